//! vFair's share model: allocates each VM a rate by its weight and by what its requests
//! cost. Lu, Saltaformaggio, Kompella and Xu, "vFair: Latency-Aware Fair Storage Scheduling via
//! Per-IO Cost-Based Differentiation", SoCC 2015, sections 4.1 to 4.3.
//!
//! Every period, for each of the VMs that compete:
//!
//! ```text
//!   pattern t, t' ──▶ P, P': requests a second of it that saturate the device    (saturation.rs)
//!                        │
//!   weights ────────────▶ allocation = w / sum(w) * P, less what is lost by blending (strategy.rs)
//!                        │
//!   latency, credits ───▶ * own scale: what the profile gets wrong                  (feedback.rs)
//!                        ▼
//!            Knob::Allocation: the regulator grants it, the dispatcher weighs by it
//! ```
//!
//! A period is the regulator's ([`IntervalEnd::Period`]). Under a regulator without periods the
//! model has its own of `period`, or 30 ms without that parameter.
//!
//! Readings, where the paper leaves room:
//! - A VM competes while it has requests inside, and for [`COMPETES`] periods after its last
//!   request. A VM that does not compete is allocated 0, and its allocation goes to the others at
//!   the next period.
//! - A new VM gets its share at once, as if it competed. With requests of its own it counts among
//!   the others from the next period on, at the latest.
//! - The weight of a *group* of VMs is divided among its competing VMs by their own weights, on all
//!   hosts that share the device.
//! - Allocations are between 1 and 4,000,000 requests a second, whatever the weights: at a fraction
//!   of a request a second a VM would wait for ever.
//! - Unused allocation goes to VMs that want more at the next period (`lend`); a VM keeps twice its
//!   recent use, and an eighth of its part at least. The regulator passes on the rest credit for
//!   credit, whatever a request of either VM costs. Alone, that would turn the thousands of unused
//!   credits of a sequential reader into as many large random requests of its neighbours, and the
//!   feedback would swing between too many of them and none.
//! - Nothing is exported: a pattern is learnt again in five windows, and the scale in a second or
//!   two.

pub mod feedback;
mod groups;
mod params;
pub mod peers;
pub mod saturation;
pub mod strategy;
mod vm;

use crate::pattern::Patterns;
use feedback::{Feedback, OwnScale, Period, Reserve, Target};
use groups::Groups;
pub use params::ShareModelParams;
use params::{CORRECTION, LATENCY_BY, LATENCY_OVER, LATENCY_TARGET, LEND, STRATEGY};
use peers::Peers;
use saturation::{Estimate, Saturation};
use strategy::{Claim, Strategy};
use tidegate_base::request::{Done, IoError, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_core::part::{Capacity, Enforces, PartDescriptor};
use tidegate_core::roles::{Controller, Event, Interests, IntervalEnd, Knob, Knobs, PeerShare};
use tidegate_core::view::View;
use vm::{VACANT, Vm};

/// Periods after its last request for which a VM still competes.
pub const COMPETES: u64 = 4;
/// Multiple of its use that a VM with credits left is allocated, ...
const USES: f64 = 2.0;
/// ... which is never below this part of its proportional allocation.
const KEEPS: f64 = 0.125;

/// Description for the registry of policy parts.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Controller> = PartDescriptor {
    name: "share-model",
    summary: "allocates rates by weight and by the device time of each VM's requests",
    params: &[
        STRATEGY,
        saturation::ESTIMATION,
        LEND,
        LATENCY_TARGET,
        LATENCY_BY,
        CORRECTION,
        LATENCY_OVER,
    ],
    enforces: Enforces {
        group: true,
        ..Enforces::NONE
    },
    build: |params, capacity| {
        let saturation = Saturation::from_params(params);
        let params = ShareModelParams::from_params(params);
        Box::new(ShareModel::new(params, saturation, capacity))
    },
};

/// Controller that allocates rates by weight, request cost and measured latency.
#[derive(Debug)]
pub struct ShareModel {
    params: ShareModelParams,
    saturation: Saturation,
    patterns: Patterns,
    vms: Vec<Vm>,
    /// Estimates for each VM's own pattern and its blended one.
    estimates: Vec<[Estimate; 2]>,
    /// Slots of VMs that compete, including idle ones that are not yet removed.
    listed: Vec<u32>,
    /// Sum of the listed VMs' own weights, whatever their groups.
    weights: u64,
    groups: Groups,
    /// Claims of the listed VMs; scratch space of [`ShareModel::allocate`].
    claims: Vec<Claim>,
    feedback: Feedback,
    /// Other hosts that share the device, and the message that is due to them.
    peers: Peers,
    share: Option<PeerShare>,
    /// Number of the current period.
    periods: u64,
    /// Time at which the last period ended.
    ended_at: Nanos,
    /// Values at that time: VMs' requests admitted and not done, and completed I/Os of VMs.
    inside: u32,
    ended: u64,
    /// Sum over requests answered in this period of the time since their admission.
    time_inside: Nanos,
    /// VMs, weights or the profile have changed since the last allocation.
    changed: bool,
}

impl ShareModel {
    /// Creates a controller without VMs, with room for those of `capacity`.
    pub fn new(
        params: ShareModelParams,
        saturation: Saturation,
        capacity: &Capacity,
    ) -> ShareModel {
        let vms = capacity.vms as usize;
        ShareModel {
            params,
            saturation,
            patterns: Patterns::new(vms),
            vms: vec![VACANT; vms],
            estimates: vec![[Estimate::UNKNOWN; 2]; vms],
            listed: Vec::with_capacity(vms),
            weights: 0,
            groups: Groups::with_capacity(vms),
            claims: Vec::with_capacity(vms),
            feedback: Feedback::NEW,
            peers: Peers::new(),
            share: None,
            periods: COMPETES + 1,
            ended_at: Nanos::ZERO,
            inside: 0,
            ended: 0,
            time_inside: Nanos::ZERO,
            changed: false,
        }
    }

    /// Returns the common factor for the profile's figures; see [`Feedback::scale`].
    pub fn scale(&self) -> f64 {
        self.feedback.scale()
    }

    /// Returns the factor for the profile's figures of the VM in a slot.
    fn scale_of(&self, slot: usize) -> f64 {
        let own = self.vms[slot].scale;
        own.map_or(self.feedback.scale(), OwnScale::get)
    }

    fn added(&mut self, view: &View, vm: VmId, out: &mut Knobs) {
        if view.is_background(vm) {
            return;
        }
        let weight = view.objective(vm).weight;
        self.vms[vm.index()] = Vm {
            present: true,
            weight,
            ..VACANT
        };
        self.wake(view, vm);
        self.changed = true;
        // The timer fires at once and allocates exactly. This provisional value bridges the time
        // until then.
        self.set_provisional_allocation(view, vm, out);
    }

    /// Sets a provisional allocation: the VM's part beside those that compete, without regard to
    /// groups.
    fn set_provisional_allocation(&mut self, view: &View, vm: VmId, out: &mut Knobs) {
        let weight = self.vms[vm.index()].weight;
        let alone = (self.saturation).iops(view, &self.patterns.own(view.now(), vm));
        let all = self.weights as f64 + self.peers.others().weight;
        let part = f64::from(weight) / all;
        self.set_allocation(vm, alone * part, out);
    }

    fn changed(&mut self, view: &View, vm: VmId) {
        let weight = view.objective(vm).weight;
        let of_vm = &mut self.vms[vm.index()];
        let old = core::mem::replace(&mut of_vm.weight, weight);
        if of_vm.listed {
            // Only listed VMs are part of the sum.
            self.weights = self.weights - u64::from(old) + u64::from(weight);
        }
        self.changed = true;
    }

    fn removed(&mut self, vm: VmId) {
        let left = core::mem::replace(&mut self.vms[vm.index()], VACANT);
        if left.listed {
            self.weights -= u64::from(left.weight);
            self.listed.retain(|&slot| slot != vm.index);
        }
        self.changed = true;
    }

    /// Adds a VM to the list of competitors, unless it is there.
    fn wake(&mut self, view: &View, vm: VmId) {
        if self.listed.is_empty() {
            // With an empty list no periods ended, so the counts of the last one are stale.
            self.begin_period(view);
        }
        let of_vm = &mut self.vms[vm.index()];
        if !of_vm.listed {
            of_vm.listed = true;
            self.weights += u64::from(of_vm.weight);
            self.listed.push(vm.index);
        }
    }

    fn begin_period(&mut self, view: &View) {
        self.ended_at = view.now();
        self.inside = view.device().inside();
        self.ended = view.device().ended_of_vms();
        self.time_inside = Nanos::ZERO;
    }

    fn record_arrival(&mut self, view: &View, request: ReqId, out: &mut Knobs) {
        let (vm, _) = view.queued(request).vm_lane();
        if self.vms[vm.index()].present {
            self.vms[vm.index()].asked_in = self.periods;
            let counted_out = !self.vms[vm.index()].listed;
            self.wake(view, vm);
            if counted_out {
                // The allocation of its last active time is stale: other VMs have come and gone.
                self.set_provisional_allocation(view, vm, out);
            }
        }
    }

    fn answered(&mut self, done: &Done) {
        // Neither reached the device; a request that failed there was served all the same.
        let never_served = matches!(done.outcome, Err(IoError::Cancelled | IoError::BeyondEnd));
        let of_vm = &mut self.vms[done.vm.index()];
        if done.op != Op::Flush && !never_served && of_vm.present {
            of_vm.answered += 1;
            of_vm.device += done.account.device;
            let inside = done.account.queued + done.account.device;
            of_vm.time_inside += inside;
            self.time_inside += inside;
        }
    }

    /// Evaluates the period that has ended, and allocates anew.
    fn period_ended(&mut self, view: &View, out: &mut Knobs) {
        let length = view.now().since(self.ended_at).as_secs_f64();
        self.periods += 1;
        // Before claims are made, so that a host that is gone takes no share.
        self.peers.drop_silent(view.now(), self.params.period);
        // A period of zero length has no rates.
        let counts = length > 0.0;
        if counts {
            for &slot in &self.listed {
                self.vms[slot as usize].settle(length);
            }
        }
        self.forget_idle(view, out);
        self.claim(view);
        if counts && !self.params.own_scales {
            self.feed_back(view, length);
        }
        self.find_squeezed();
        if counts && self.params.strategy == Strategy::Bsps {
            self.cut(view);
        }
        self.find_needs(view);
        // Own scales go by what is left of P_i and by what is lent.
        if counts && self.params.own_scales {
            self.feed_back(view, length);
        }
        self.begin_period(view);
        self.allocate(view, out);
    }

    /// Removes VMs that stopped competing, and sets their allocations to 0.
    fn forget_idle(&mut self, view: &View, out: &mut Knobs) {
        let (vms, periods, weights) = (&mut self.vms, self.periods, &mut self.weights);
        self.listed.retain(|&slot| {
            let of_vm = &mut vms[slot as usize];
            let id = view.vm_at(slot as usize);
            of_vm.listed = view.requests(id) > 0 || periods - of_vm.asked_in <= COMPETES;
            if !of_vm.listed {
                *weights -= u64::from(of_vm.weight);
                of_vm.allocated = Some(0);
                // A VM that returns is measured from the start, as one that was added.
                of_vm.scale = None;
                of_vm.inside = 0.0;
                out.set(id, Knob::Allocation(0));
            }
            of_vm.listed
        });
    }

    /// Fills `claims` with the VMs that compete, and allocates by the strategy.
    fn claim(&mut self, view: &View) {
        if core::mem::take(&mut self.changed) {
            self.find_groups(view);
        }
        self.groups.clear_competing();
        for &slot in &self.listed {
            let of_vm = &self.vms[slot as usize];
            self.groups.add_competing(of_vm.group, of_vm.weight);
        }
        for part in self.peers.groups() {
            self.groups.add_peer_group(part);
        }
        self.claims.clear();
        for &slot in &self.listed {
            let (id, of_vm) = (view.vm_at(slot as usize), &self.vms[slot as usize]);
            let own = self.patterns.own(view.now(), id);
            let blended = self.patterns.blended(view.now(), id);
            let [of_own, of_blended] = &mut self.estimates[slot as usize];
            self.claims.push(Claim {
                slot,
                weight: self.groups.share(of_vm.group, of_vm.weight),
                alone: of_own.iops(&self.saturation, view, &own),
                blended: of_blended.iops(&self.saturation, view, &blended),
                achieved: of_vm.rate,
                squeezed: false,
                needs: None,
                cut: of_vm.cut,
                dither: self.saturation.dither(view, id, &own),
                allocation: 0.0,
                kept: 1.0,
                group: of_vm.group,
            });
        }
        strategy::allocate(self.params.strategy, &mut self.claims, &self.peers.others());
    }

    /// Rebuilds the groups after VMs have come, gone or changed.
    fn find_groups(&mut self, view: &View) {
        let group = |slot: usize| view.objective(view.vm_at(slot)).group;
        let present = (0..view.vm_slots()).filter(|&slot| self.vms[slot].present);
        self.groups.set(present.filter_map(group));
        for slot in 0..view.vm_slots() {
            if self.vms[slot].present {
                self.vms[slot].group = group(slot).and_then(|group| self.groups.find(&group));
            }
        }
    }

    fn feed_back(&mut self, view: &View, length: f64) {
        // A VM that the strict strategy has cut is short of credits on purpose and must not raise
        // the scale.
        let ran_out = |&slot: &u32| {
            wants_more(view, view.vm_at(slot as usize)) && self.vms[slot as usize].cut >= 1.0
        };
        let target = self.target(view);
        let inside_max = self.inside_max(view);
        let wanted = self.feedback.wanted(target).min(inside_max);
        let period = Period {
            length,
            ended: (view.device().ended_of_vms() - self.ended) as f64,
            inside: view.device().inside().into(),
            before: self.inside.into(),
            ran_out: self.listed.iter().any(ran_out),
            inside_max,
            reserve: self.reserve(view, wanted),
        };
        let mean = self.time_inside.as_secs_f64() / length;
        let (mut all, scale) = self.peers.together(&period, self.feedback.scale());
        let several = !self.peers.is_empty();
        if matches!(target, Target::Given(_)) && (several || self.params.over_period) {
            all = all.with_inside(self.peers.mean_inside(mean));
        }
        if let Some(scale) = scale {
            self.feedback.set_scale(scale);
        }
        self.feedback.observe(&all, target);
        if self.params.own_scales {
            self.follow_scale(view, wanted);
        }
        let admitted = (period.ended + period.inside - period.before).max(0.0);
        self.share = Some(PeerShare {
            number: self.periods,
            weight: strategy::weights(&self.claims),
            lost: strategy::lost_weight(&self.claims),
            inside: period.inside,
            mean_inside: mean,
            ended: period.ended / length,
            admitted: admitted / length,
            ran_out: period.ran_out,
            scale: self.feedback.scale(),
            groups: self.groups.competing_groups(),
        });
    }

    /// Returns the sums of all VMs' allocations and of their requests inside.
    fn sums(&self) -> (f64, f64) {
        let inside = |claim: &Claim| self.vms[claim.slot as usize].inside;
        let allocated = self.claims.iter().map(|claim| claim.allocation).sum();
        (allocated, self.claims.iter().map(inside).sum())
    }

    /// Returns `true` if a VM asks for more than it has: its credits ran out, or its requests fill
    /// at least half of its part of the queue, so that it might have run out any time. `sums` as of
    /// [`ShareModel::sums`].
    ///
    /// The queue is what is inside, but no more than the target `wanted`: where everything that
    /// guests have is inside, a heavy VM has less than its part of it for no other reason than that
    /// the light ones have more than theirs.
    fn asks(
        &self,
        view: &View,
        claim: &Claim,
        (allocated, inside): (f64, f64),
        wanted: f64,
    ) -> bool {
        let its = self.vms[claim.slot as usize].inside;
        let is_full = its * allocated >= 0.5 * inside.min(wanted) * claim.allocation;
        wants_more(view, view.vm_at(claim.slot as usize)) || (is_full && its > 0.0)
    }

    /// Returns the part of the target that belongs to VMs that ask for no more; see [`Reserve`].
    /// `wanted` as of [`ShareModel::asks`].
    fn reserve(&self, view: &View, wanted: f64) -> Reserve {
        let sums = self.sums();
        if !self.params.own_scales || sums.1 == 0.0 {
            return Reserve::NONE;
        }
        let (mut asked, mut due, mut others, mut idle) = (0.0, 0.0, 0.0, 0.0);
        // With peers, whose VMs are not known one by one, only what is deducted counts.
        let several = !self.peers.is_empty();
        for claim in &self.claims {
            let its = self.vms[claim.slot as usize].inside;
            let whole = claim.allocation / claim.kept;
            let has_requests = view.requests(view.vm_at(claim.slot as usize)) > 0;
            if several || self.asks(view, claim, sums, wanted) {
                asked += claim.allocation;
                due += whole;
            } else {
                others += its;
                if claim.squeezed && has_requests {
                    // The indicator cannot tell a VM that is kept from its share from one that asks
                    // for less than that.
                    due += whole.min(self.could_use(claim));
                } else {
                    idle += its;
                }
            }
        }
        if asked == 0.0 {
            return Reserve::NONE;
        }
        Reserve {
            others: others / sums.1,
            idle: idle / sums.1,
            part: asked / due,
        }
    }

    /// Returns what a VM that asks for no more than it has could use at most, in requests a second
    /// by the unscaled profile. A VM that has requests in a part `b` of the time would ask for
    /// 1 / (1 - b) of its rate if the device took no time. Not below its [`Claim::needs`].
    fn could_use(&self, claim: &Claim) -> f64 {
        let of_vm = &self.vms[claim.slot as usize];
        // Its requests inside are at least that part; from one on it may always have had some.
        let without = 1.0 - of_vm.inside;
        let needs = claim.needs.unwrap_or(f64::INFINITY);
        if without > 0.0 {
            needs.max(claim.achieved / without / self.scale_of(claim.slot as usize))
        } else {
            f64::INFINITY
        }
    }

    /// Lets the VMs' own scales follow the common one. `wanted` as of [`ShareModel::asks`].
    fn follow_scale(&mut self, view: &View, wanted: f64) {
        let (common, sums) = (self.feedback.scale(), self.sums());
        for at in 0..self.claims.len() {
            let claim = self.claims[at];
            let asks = self.asks(view, &claim, sums, wanted);
            let of_vm = &mut self.vms[claim.slot as usize];
            // As [`ShareModel::find_needs`] has it for lent time: twice its use, and an eighth.
            let used = claim.achieved.max(of_vm.last_rate);
            let least = (USES * used / claim.allocation).max(KEEPS * common);
            let own = of_vm.scale.get_or_insert(OwnScale::new(common));
            own.follow(common, asks, least);
        }
    }

    /// Returns the upper bound on requests inside; see [`feedback::inside_max`]. Infinite with one
    /// VM, which no other VM throttles; with peers, whose outstanding requests are not known; and
    /// without a profile, by which utilisation is computed.
    fn inside_max(&self, view: &View) -> f64 {
        if self.listed.len() < 2 || !self.peers.is_empty() || view.profile().is_none() {
            return f64::INFINITY;
        }
        let requests = |&slot: &u32| view.requests(view.vm_at(slot as usize));
        let outstanding: u32 = self.listed.iter().map(requests).sum();
        let taken = self.claims.iter().map(|c| c.achieved / c.blended).sum();
        feedback::inside_max(outstanding.into(), taken)
    }

    fn target(&self, view: &View) -> Target {
        if self.params.latency_target > Nanos::ZERO {
            return Target::Given(self.params.latency_target.as_secs_f64());
        }
        let depth = match (self.params.depth, view.device().spec.depth) {
            (0, device) => device,
            (given, device) => given.min(device),
        };
        let depth = f64::from(depth);
        // Rates and utilisation of the VMs' actual mix: `achieved / taken` is the saturation rate
        // of that mix.
        let achieved: f64 = self.claims.iter().map(|c| c.achieved).sum();
        let taken: f64 = self.claims.iter().map(|c| c.achieved / c.blended).sum();
        if self.params.by_profile && taken > 0.0 {
            Target::Profile {
                depth,
                iops: achieved / taken,
            }
        } else {
            Target::Depth(depth)
        }
    }

    /// Sets `needs` of each claim: a multiple of the use of a VM that had credits left, `None` for
    /// others.
    fn find_needs(&mut self, view: &View) {
        for at in 0..self.claims.len() {
            let scale = self.scale_of(self.claims[at].slot as usize);
            let claim = &mut self.claims[at];
            let vm = view.vm_at(claim.slot as usize);
            let used = claim.achieved.max(self.vms[claim.slot as usize].last_rate);
            // Used rates are real ones, allocations are by the unscaled profile: hence the
            // division.
            let needs = (USES * used / scale).max(claim.allocation * KEEPS);
            claim.needs = (!wants_more(view, vm)).then_some(needs);
        }
        if self.params.lend {
            strategy::lend(&mut self.claims, self.groups.pools());
        }
    }

    /// Sets `squeezed` of each claim.
    fn find_squeezed(&mut self) {
        let all: f64 = self.claims.iter().map(|claim| claim.weight).sum();
        for at in 0..self.claims.len() {
            let slot = self.claims[at].slot as usize;
            let scale = self.scale_of(slot);
            let claim = &mut self.claims[at];
            claim.squeezed = self.vms[slot].latency > all / (claim.weight * claim.alone * scale);
        }
    }

    /// Makes one step of the strict strategy ([`strategy::cut`]) and allocates anew.
    fn cut(&mut self, view: &View) {
        strategy::cut(&mut self.claims, view.device().in_flight == 0);
        for claim in &self.claims {
            self.vms[claim.slot as usize].cut = claim.cut;
        }
        strategy::allocate(self.params.strategy, &mut self.claims, &self.peers.others());
    }

    /// Sets the allocation of every claim.
    fn allocate(&mut self, view: &View, out: &mut Knobs) {
        // Variations of shares must add up to zero device time, so each VM gets its own less the
        // mean.
        let time = |claim: &Claim| claim.allocation / claim.alone;
        let varied: f64 = self.claims.iter().map(|c| time(c) * c.dither).sum();
        let all: f64 = self.claims.iter().map(time).sum();
        let mean = if all > 0.0 { varied / all } else { 0.0 };
        for at in 0..self.claims.len() {
            let claim = self.claims[at];
            let id = view.vm_at(claim.slot as usize);
            // The mean can exceed a light VM's own variation by far; half of the share always
            // remains.
            let share = (1.0 + claim.dither - mean).max(0.5);
            self.set_allocation(id, claim.allocation * share, out);
        }
    }

    /// Sets a VM's allocation to `rate` requests a second by the unscaled profile.
    fn set_allocation(&mut self, vm: VmId, rate: f64, out: &mut Knobs) {
        let rate = rate * self.scale_of(vm.index()) * 1000.0;
        let [least, most] = [Knob::ALLOCATION_MIN, Knob::ALLOCATION_MAX];
        // From a float that is no number or out of range, `as` makes the nearest that is.
        let rate = ((rate + 0.5) as u64).clamp(least, most);
        let of_vm = &mut self.vms[vm.index()];
        if of_vm.allocated != Some(rate) {
            of_vm.allocated = Some(rate);
            out.set(vm, Knob::Allocation(rate));
        }
    }
}

/// Returns `true` if a VM has no credit left and a request that waits for some.
fn wants_more(view: &View, vm: VmId) -> bool {
    !view.may_enter(vm) && view.pending_head(vm).is_some()
}

impl Controller for ShareModel {
    fn interests(&self) -> Interests {
        Patterns::INTERESTS
            .union(Interests::ANSWERED)
            .union(Interests::INTERVALS)
            .union(Interests::PROFILE)
            .union(Interests::PEERS)
    }

    fn on_event(&mut self, view: &View, event: &Event, out: &mut Knobs) {
        self.patterns.on_event(view, event);
        match *event {
            Event::Arrived(request) | Event::Merged { by: request, .. } => {
                self.record_arrival(view, request, out);
            }
            Event::Answered(done) => self.answered(done),
            Event::IntervalEnded(interval) if interval.end == IntervalEnd::Period => {
                self.period_ended(view, out);
            }
            Event::VmAdded(vm) => self.added(view, vm, out),
            Event::VmChanged(vm) if self.vms[vm.index()].present => self.changed(view, vm),
            Event::VmRemoved(vm) => self.removed(vm),
            Event::Peer { host, share } => self.peers.take_message(view.now(), host, share),
            Event::ProfileChanged => {
                // The scale corrects the former profile, so it starts anew.
                self.feedback = Feedback::NEW;
                self.vms.iter_mut().for_each(|of_vm| of_vm.scale = None);
                self.estimates.fill([Estimate::UNKNOWN; 2]);
                self.changed = true;
            }
            _ => {}
        }
    }

    fn next_timer(&self) -> Nanos {
        match (self.changed, self.listed.is_empty()) {
            (true, _) => Nanos::ZERO,
            (false, false) => self.ended_at + self.params.period,
            (false, true) => Nanos::MAX,
        }
    }

    fn on_timer(&mut self, view: &View, out: &mut Knobs) {
        if self.ended_at + self.params.period <= view.now() && !self.listed.is_empty() {
            self.period_ended(view, out);
        } else {
            self.forget_idle(view, out);
            self.claim(view);
            self.find_needs(view);
            self.allocate(view, out);
        }
    }

    fn allocates(&self) -> bool {
        true
    }

    fn poll_share(&mut self) -> Option<PeerShare> {
        self.share.take()
    }

    fn uses_costs(&self) -> bool {
        true
    }
}
