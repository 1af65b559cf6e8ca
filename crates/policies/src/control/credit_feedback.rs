//! Feedback on credits: a VM that missed its objective in a turn gets a larger part of the next
//! one. Jin et al., "Flubber", 2013, section 3.2.2, equations 2 to 4.
//!
//! At the end of each interval that was a whole turn, with at least beta requests answered,
//!
//! - Ind_i = max((B_i - b_i) / B_i, (l_i - L_i) / L_i), between 0 and 1, where b_i are the
//!   answers a second and l_i is their mean latency, over the interval;
//! - c_i : c_j = (a_i + Ind_i * beta) : (a_j + Ind_j * beta), normalised to the smallest;
//! - a_i = beta * c_i, or `max_interval` * c_i / sum(c) where the sum would reach it.
//!
//! A VM that asked for less than B_i has no throughput deficit. It asked for less if it would have
//! issued fewer than B_i requests a second even with each of them answered at once. Its requests in
//! its quiet time, when only its own think time delays it, give that rate.
//!
//! When all objectives have held for ten intervals in a row, proportions drift back to those of the
//! reservations by a tenth of the difference an interval. A VM that comes, goes or changes restores
//! them at once and discards that interval's measurements.
//!
//! Proportions may be taken over from another engine. The blob of a VM holds its objective, its
//! c_i, its c_i by reservations, and the quotient of the sums of both over all VMs. An imported c_i
//! is scaled by the change of the one by reservations, so that it is unchanged among the same VMs.
//! A VM without a blob has its c_i by reservations, scaled by the quotient of the sums. So a VM
//! whose part of an interval had grown still has more of it than by reservations, beside any VMs.
//! Then equation 4 assigns credits.
//!
//! Activity is counted by events, O(1) each. The end of an interval costs O(VMs admitted or
//! answered); all n VMs are visited only if proportions change, at most once in beta answers.

use super::{LastQuiet, quiet_time};
use crate::regulate::proportion::{
    BETA, DEFAULT_IOPS, LITERAL, MAX_INTERVAL, Proportions, REQUEST_SIZE, Terms,
};
use tidegate_base::learnt_state::{Blob, BlobError};
use tidegate_base::objective::{Objective, OpsRate, Rate};
use tidegate_base::request::{Done, IoError, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_core::part::{Enforces, ParamInfo, ParamKind, PartDescriptor};
use tidegate_core::roles::{Controller, Event, Interests, Interval, IntervalEnd, Knob, Knobs};
use tidegate_core::view::View;

/// Intervals in a row with all objectives kept after which proportions drift back.
const KEPT_INTERVALS_BEFORE_DRIFT: u32 = 10;
/// Part of the difference to the proportions of the reservations that one drift step removes.
const DRIFT_STEP: f64 = 0.1;
/// Version of the exported blob: objective, c_i, c_i by reservations, quotient of the sums of both.
const LEARNT_VERSION: u16 = 1;
/// Upper bound of an imported c_i, above any quotient of two rates.
const PROPORTION_MAX: f64 = 1e30;

/// Parameters of [`CreditFeedback`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreditFeedbackParams {
    /// Terms by which credits are computed; equal to the regulator's.
    pub terms: Terms,
    /// `false` keeps credits in the proportions of the reservations.
    pub feedback: bool,
    /// Follows the paper as printed: Ind_i may exceed 1, every whole turn feeds back, nothing
    /// drifts.
    pub literal: bool,
}

/// Description for the registry of policy parts.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Controller> = PartDescriptor {
    name: "credit-feedback",
    summary: "gives more credits to VMs that missed their objective",
    params: &[
        ParamInfo {
            name: "feedback",
            kind: ParamKind::Flag,
            default: 1,
            min: 0,
            max: 1,
            help: "adapts credits; off: they stay in proportion to reservations",
        },
        BETA,
        MAX_INTERVAL,
        DEFAULT_IOPS,
        REQUEST_SIZE,
        LITERAL,
    ],
    enforces: Enforces {
        reservation: true,
        latency: true,
        ..Enforces::NONE
    },
    build: |params, capacity| {
        let of = CreditFeedbackParams {
            terms: Terms::from_params(params),
            feedback: params.get("feedback") != 0,
            literal: params.get("literal") != 0,
        };
        Box::new(CreditFeedback::new(of, capacity.vms))
    },
};

/// Activity of a VM in the interval with the number `interval`; stale in any other.
#[derive(Clone, Copy, Default, Debug)]
struct Activity {
    interval: u64,
    answers: u32,
    /// Requests that arrived, merged ones included.
    asked: u32,
    latency: Nanos,
    /// Time without a request inside the engine.
    quiet: Nanos,
}

/// State of one VM slot.
#[derive(Clone, Copy, Default, Debug)]
struct Vm {
    present: bool,
    activity: Activity,
    quiet: LastQuiet,
    /// Mean cost of a request in credits, smoothed by 1/8 a request; 0: not known yet.
    cost: f64,
    /// c_i; meaningful only while proportions differ from those of the reservations.
    proportion: f64,
    /// a_i in credits; meaningful only while proportions differ from those of the reservations.
    credits: u32,
    /// Number of an interval, and Ind_i in it.
    indicator: (u64, f64),
}

/// Controller that gives more credits to VMs that missed their objective.
#[derive(Debug)]
pub struct CreditFeedback {
    params: CreditFeedbackParams,
    due: Proportions,
    vms: Vec<Vm>,
    /// Number of the current interval.
    interval: u64,
    /// Time at which the first unit of the interval was let in; [`Nanos::MAX`]: none was.
    since: Nanos,
    answers: u64,
    /// Slots of VMs with activity in the interval.
    active: Vec<u32>,
    /// Intervals in a row in which all objectives held.
    held: u32,
    /// Proportions equal those of the reservations; `proportion` and `credits` of VMs are then
    /// unused.
    by_reservations: bool,
    /// Sum of all c_i; meaningful only while `by_reservations` is `false`.
    sum: f64,
    /// Proportions were imported, and credits are not yet assigned by them.
    importing: bool,
}

impl CreditFeedback {
    /// Creates a controller without VMs, with room for `vms` of them.
    pub fn new(params: CreditFeedbackParams, vms: u32) -> CreditFeedback {
        CreditFeedback {
            params,
            due: Proportions::new(params.terms),
            vms: Vec::new(),
            interval: 1,
            since: Nanos::MAX,
            answers: 0,
            active: Vec::with_capacity(vms as usize),
            held: 0,
            by_reservations: true,
            sum: 0.0,
            importing: false,
        }
    }

    /// Returns the VM's activity counters of the current interval, reset if they are of an earlier
    /// one.
    fn activity(&mut self, vm: VmId) -> Option<&mut Activity> {
        let of_vm = self.vms.get_mut(vm.index()).filter(|vm| vm.present)?;
        let activity = &mut of_vm.activity;
        if activity.interval != self.interval {
            *activity = Activity {
                interval: self.interval,
                ..Activity::default()
            };
            self.active.push(vm.index);
        }
        Some(activity)
    }

    fn record_arrival(&mut self, view: &View, request: ReqId) {
        let (vm, _) = view.queued(request).vm_lane();
        // `since` is [`Nanos::MAX`] before the interval's first admission.
        let begun = self.since.min(view.now());
        let Some(activity) = self.activity(vm) else {
            return;
        };
        activity.asked += 1;
        let of_vm = &mut self.vms[vm.index()];
        // Only the first request after a quiet time ends it.
        if let Some(since) = of_vm.quiet.ended(view.quiet_since(vm)) {
            of_vm.activity.quiet += quiet_time(view.now(), since, begun);
        }
        let bytes = view.queued(request).request_bytes();
        let cost = self.params.terms.cost(view.objective(vm), 1, bytes) as f64;
        let mean = &mut self.vms[vm.index()].cost;
        *mean = match *mean {
            // The first request seen counts in full.
            0.0 => cost,
            mean => mean + (cost - mean) / 8.0,
        };
    }

    fn admitted(&mut self, view: &View, vm: VmId) {
        if self.activity(vm).is_some() {
            self.since = self.since.min(view.now());
        }
    }

    fn answered(&mut self, done: &Done) {
        // Neither reached the device; a request that failed there was served all the same.
        let never_served = matches!(done.outcome, Err(IoError::Cancelled | IoError::BeyondEnd));
        if done.op == Op::Flush || never_served {
            return;
        }
        let Some(activity) = self.activity(done.vm) else {
            return;
        };
        activity.answers += 1;
        activity.latency += done.account.total();
        self.answers += 1;
    }

    /// Starts a new interval and discards all counts.
    fn begin_interval(&mut self) {
        // A new number makes all counts of VMs stale, without a walk over them.
        self.interval += 1;
        self.since = Nanos::MAX;
        self.answers = 0;
        self.active.clear();
    }

    /// Returns to the proportions of the reservations and starts a new interval.
    fn reset(&mut self) {
        self.by_reservations = true;
        self.held = 0;
        self.begin_interval();
    }

    fn added(&mut self, view: &View, vm: VmId) {
        if view.is_background(vm) {
            return;
        }
        let (slot, objective) = (vm.index(), view.objective(vm));
        if self.vms.len() <= slot {
            self.vms.resize(slot + 1, Vm::default());
        }
        self.vms[slot].present = true;
        // Another set of reservations changes every VM's proportion, so what was learnt is void.
        self.due.set(slot, objective, &view.device().spec);
        self.reset();
    }

    fn removed(&mut self, vm: VmId) {
        match self.vms.get_mut(vm.index()) {
            Some(of_vm) if of_vm.present => *of_vm = Vm::default(),
            _ => return,
        }
        self.due.remove(vm.index());
        self.reset();
    }

    fn interval_ended(&mut self, view: &View, ended: &Interval, out: &mut Knobs) {
        // Intervals that ended early, or without an admission, say nothing about objectives.
        let whole = ended.end == IntervalEnd::Turn && self.since < view.now();
        // Too few answers make Ind_i a matter of chance.
        let enough = self.params.literal || self.answers >= self.params.terms.beta as u64;
        if whole && enough {
            if self.compute_indicators(view) {
                self.held = 0;
                self.feed_back(view, out);
            } else {
                self.held = self.held.saturating_add(1);
                if self.held >= KEPT_INTERVALS_BEFORE_DRIFT
                    && !self.by_reservations
                    && !self.params.literal
                {
                    self.drift(view, out);
                }
            }
        }
        self.begin_interval();
    }

    /// Computes Ind_i (equation 2) of each VM with activity. Returns `true` if a VM missed its
    /// objective.
    fn compute_indicators(&mut self, view: &View) -> bool {
        let length = view.now().since(self.since).as_secs_f64();
        let mut missed = false;
        for &slot in &self.active {
            let vm = view.vm_at(slot as usize);
            let mut activity = self.vms[slot as usize].activity;
            // The present quiet time has no end yet, so it is added here.
            if view.requests(vm) == 0 {
                activity.quiet += quiet_time(view.now(), view.quiet_since(vm), self.since);
            }
            let due = self.due.demand(slot as usize) as f64;
            let due = due / self.params.terms.request_size as f64;
            // `request_size` is the size that one credit pays for. A rate in requests is divided by
            // the mean cost, so that it compares with the count of answers.
            let due = due / self.vms[slot as usize].cost.max(1.0);
            let mut worst = indicator(&activity, view.objective(vm), due, length);
            if !self.params.literal {
                worst = worst.min(1.0);
            }
            self.vms[slot as usize].indicator = (self.interval, worst);
            missed |= worst > 0.0;
        }
        missed
    }

    /// Raises c_i by the indicators (equation 3) and assigns credits.
    fn feed_back(&mut self, view: &View, out: &mut Knobs) {
        let beta = self.params.terms.beta as f64;
        self.leave_reservations(1.0);
        for vm in self.vms.iter_mut().filter(|vm| vm.present) {
            // An indicator of an earlier interval is stale: the VM had no activity in this one.
            let (of, indicator) = vm.indicator;
            let missed = if of == self.interval { indicator } else { 0.0 };
            vm.proportion = vm.credits as f64 + missed * beta;
        }
        self.assign(view, out);
    }

    /// Moves proportions a tenth of the way back to equation 1. Restores equation 1 exactly once no
    /// VM's credits would differ.
    fn drift(&mut self, view: &View, out: &mut Knobs) {
        let beta = self.params.terms.beta as f64;
        let mut apart = 0.0_f64;
        for (slot, vm) in self.vms.iter_mut().enumerate().filter(|(_, vm)| vm.present) {
            let away = self.due.proportion(slot) - vm.proportion;
            vm.proportion += away * DRIFT_STEP;
            apart = apart.max(away.abs() * beta);
        }
        self.assign(view, out);
        // Credits are rounded to whole numbers, so below half a credit none would differ.
        if apart >= 0.5 {
            return;
        }
        self.by_reservations = true;
        for slot in 0..self.vms.len() {
            let credits = self.due.grant(slot);
            set_credits(view, &mut self.vms[slot], slot, credits, out);
        }
    }

    /// Initialises each VM's own proportion and credits, if proportions were those of the
    /// reservations: credits as granted so far, proportions by reservations times `scale`.
    fn leave_reservations(&mut self, scale: f64) {
        if !core::mem::take(&mut self.by_reservations) {
            return;
        }
        self.held = 0;
        for (slot, vm) in self.vms.iter_mut().enumerate().filter(|(_, vm)| vm.present) {
            vm.credits = self.due.grant(slot);
            vm.proportion = self.due.proportion(slot) * scale;
        }
    }

    /// Normalises proportions to the smallest, and assigns credits by equation 4.
    fn assign(&mut self, view: &View, out: &mut Knobs) {
        let present = || self.vms.iter().filter(|vm| vm.present);
        let least = present().map(|vm| vm.proportion).fold(f64::MAX, f64::min);
        let sum = present().map(|vm| vm.proportion).sum::<f64>() / least;
        let beta = self.params.terms.beta as f64;
        let most = self.due.max_interval() as f64;
        // Equation 4: beta for the smallest, unless the sum would exceed the longest interval.
        let factor = if sum * beta < most { beta } else { most / sum };
        self.sum = sum;
        for (slot, vm) in self.vms.iter_mut().enumerate() {
            // From a float that is no number or out of range, `as` makes the nearest that is.
            vm.proportion /= least;
            // Plus a half rounds to the nearest.
            let credits = (vm.proportion * factor + 0.5) as u32;
            set_credits(view, vm, slot, credits.clamp(1, Terms::CREDITS_MAX), out);
        }
    }
}

/// Figures of an objective on which credits depend: rate, norm in bytes, bytes a second, latency
/// bound in nanoseconds. 0 stands for an absent one.
fn objective_figures(objective: &Objective) -> [u64; 4] {
    let Rate { ops, bytes_per_s } = objective.reservation;
    let (per_s, norm) = match ops {
        Some(OpsRate { per_s, norm }) => (per_s, norm.unwrap_or(0)),
        None => (0, 0),
    };
    let latency = objective.latency.map_or(0, |bound| bound.0);
    [per_s, norm.into(), bytes_per_s.unwrap_or(0), latency]
}

/// Returns Ind_i: the relative shortfall of the objective, throughput or latency, that was missed
/// by more; 0 if neither was missed. `due` in IOPS, `length` in seconds.
fn indicator(activity: &Activity, objective: &Objective, due: f64, length: f64) -> f64 {
    let mut worst = 0.0_f64;
    let would_make = activity.asked as f64 / activity.quiet.as_secs_f64();
    // Without quiet time the VM was never limited by itself, so it could have used more.
    if activity.quiet == Nanos::ZERO || would_make >= due {
        let got = activity.answers as f64 / length;
        worst = worst.max((due - got) / due);
    }
    if let (Some(bound), 1..) = (objective.latency, activity.answers) {
        let mean = activity.latency.as_secs_f64() / activity.answers as f64;
        worst = worst.max((mean - bound.as_secs_f64()) / bound.as_secs_f64());
    }
    worst
}

/// Sets a VM's credits knob, unless it has that value already.
fn set_credits(view: &View, vm: &mut Vm, slot: usize, credits: u32, out: &mut Knobs) {
    if vm.present && vm.credits != credits {
        vm.credits = credits;
        out.set(view.vm_at(slot), Knob::Credits(credits));
    }
}

impl Controller for CreditFeedback {
    fn interests(&self) -> Interests {
        if self.params.feedback {
            Interests::ARRIVED
                .union(Interests::MERGED)
                .union(Interests::ADMITTED)
                .union(Interests::ANSWERED)
                .union(Interests::INTERVALS)
                .union(Interests::VMS)
        } else {
            Interests::NONE
        }
    }

    fn on_event(&mut self, view: &View, event: &Event, out: &mut Knobs) {
        match *event {
            Event::Arrived(request) | Event::Merged { by: request, .. } => {
                self.record_arrival(view, request);
            }
            Event::Admitted(unit) => self.admitted(view, view.queued(unit).vm_lane().0),
            Event::Answered(done) => self.answered(done),
            Event::IntervalEnded(ref ended) => self.interval_ended(view, ended, out),
            Event::VmAdded(vm) | Event::VmChanged(vm) => self.added(view, vm),
            Event::VmRemoved(vm) => self.removed(vm),
            _ => {}
        }
    }

    fn next_timer(&self) -> Nanos {
        Nanos::MAX
    }

    fn on_timer(&mut self, _view: &View, _out: &mut Knobs) {}

    fn export(&self, view: &View, vm: VmId) -> Option<Blob> {
        let of_vm = self.vms.get(vm.index()).filter(|vm| vm.present)?;
        // Proportions of reservations are computed again, so there is nothing to keep.
        if self.by_reservations {
            return None;
        }
        let mut blob = Blob::new(DESCRIPTOR.name, LEARNT_VERSION);
        for figure in objective_figures(view.objective(vm)) {
            blob.push_u64(figure);
        }
        blob.push_f64(of_vm.proportion)
            .push_f64(self.due.proportion(vm.index()))
            .push_f64(self.sum / self.due.proportion_sum());
        Some(blob)
    }

    fn import(&mut self, view: &View, vm: VmId, learnt: &Blob) -> Result<(), BlobError> {
        let slot = vm.index();
        if !self.vms.get(slot).is_some_and(|vm| vm.present) {
            return Err(BlobError::Unwanted(
                "credits are not for this VM, or do not change",
            ));
        }
        let mut fields = learnt.fields(DESCRIPTOR.name, LEARNT_VERSION)?;
        let mut promised = [0; 4];
        for figure in &mut promised {
            *figure = fields.u64()?;
        }
        let proportion = fields.f64_in("its part", 1.0..=PROPORTION_MAX)?;
        let then = fields.f64_in("its part by reservations", 1.0..=PROPORTION_MAX)?;
        let range = 1.0 / PROPORTION_MAX..=PROPORTION_MAX;
        let scale = fields.f64_in("the sum of parts", range)?;
        fields.end()?;
        // A state learnt for another objective does not hold for this one.
        if promised != objective_figures(view.objective(vm)) {
            return Err(BlobError::Objective);
        }
        // Scaled by what the sum of all proportions was then, so that shares stay.
        self.leave_reservations(scale);
        // The factor is exactly 1 while the ratios of the reservations have not changed.
        self.vms[slot].proportion = proportion * (self.due.proportion(slot) / then);
        self.importing = true;
        Ok(())
    }

    fn imported(&mut self, view: &View, out: &mut Knobs) {
        if core::mem::take(&mut self.importing) {
            self.assign(view, out);
        }
    }
}
