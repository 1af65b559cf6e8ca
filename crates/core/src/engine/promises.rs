//! Feasibility of all promises on a device together: the depth that latency bounds leave, and the
//! blocking time by which reservations and targets (floors) are judged.
//!
//! The check is that of plans ([`fit`]), with the engine's objectives and transfers, and the
//! profile or learnt costs. A driver asks for it ([`DeviceMut::check_feasibility`]) outside of the
//! request path, since it visits all VMs.
//!
//! [`DeviceMut::check_feasibility`]: super::DeviceMut::check_feasibility

use super::device::DeviceControl;
use super::measured_depth::{DepthRange, MeasuredDepth, Span};
use crate::attainment::{Attainments, BoundUse};
use crate::queue_depth::DepthBound;
use crate::roles::Dispatcher;
use crate::seek_bound;
use crate::view::{Life, View};
use std::borrow::Cow;
use tidegate_base::device::DeviceSpec;
use tidegate_base::request::VmId;
use tidegate_base::time::Nanos;
use tidegate_capacity::fit::{self, Assumed, Fit, PlannedVm, Queueing};
use tidegate_capacity::profile::Profile;

/// Smallest interval between two checks, however often promises change: with 10,000 VMs one takes
/// tens of milliseconds.
const CHECK_INTERVAL_MIN: Nanos = Nanos::from_millis(100);
/// Smallest interval between two checks for new learnt costs, which change all the time.
const LEARNT_CHECK_INTERVAL_MIN: Nanos = Nanos::SECOND;

/// Smallest interval between two looks at the latencies of requests with a bound.
const LATENCY_INTERVAL: Nanos = Nanos::from_millis(100);

/// Outcome of a feasibility check of all promises of a device together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feasibility {
    /// Everything that was promised fits the device.
    pub fits: bool,
    /// Largest number of I/Os in flight for the sake of latency bounds, at most the configured
    /// depth: the largest with which every bound is met in the worst case or, beyond that, with
    /// which requests were seen to meet them with room to spare.
    pub depth_bound: u32,
    /// VM that uses up most of its latency bound; `None`: no VM has one.
    pub tightest: Option<VmId>,
    /// Blocking time, by which a request within its reservation or target may be late: T of the
    /// plan, at the depth that the device's
    /// queue has or may have soon. Where the queue is kept short, no request waits for the
    /// configured depth.
    pub blocking: Nanos,
    /// Costs were learnt; otherwise they are the profile's.
    pub is_learnt: bool,
}

/// State of the feasibility checks.
pub(super) struct Promises {
    /// Time of the next check; [`Nanos::MAX`]: nothing has changed.
    due: Nanos,
    /// Time of the last check; `None`: there was none.
    last: Option<Nanos>,
    /// Costs have changed since then, not promises alone.
    new_costs: bool,
    /// Estimator windows from which costs had been learnt by then.
    windows: u64,
    /// Depth of the queue that the last blocking time counts with.
    depth: u32,
    outcome: Option<Feasibility>,
    /// Largest depth by the worst case; that of the outcome may differ. `None`: costs are not
    /// known.
    worst_case_depth: Option<u32>,
    /// With the depth of the worst case every latency bound is met.
    guaranteed: bool,
    /// Tightest latency bound at the last check.
    tightest: Option<Nanos>,
    /// Largest depth by measured latencies.
    measured: MeasuredDepth,
    /// Time at which latencies were last taken into it.
    latencies_at: Nanos,
    pace: Pace,
}

/// Pace at which the device completes I/Os, measured once a second.
#[derive(Clone, Copy, Default)]
struct Pace {
    /// Time of the last measurement.
    measured_at: Nanos,
    /// I/Os that had ended by then.
    ended: u64,
    /// Mean time from one end to the next before the last measurement; `None`: nothing ended, or
    /// nothing was measured yet.
    per_io: Option<Nanos>,
}

impl Pace {
    /// Interval between two measurements.
    const INTERVAL: Nanos = Nanos::SECOND;

    /// Measures the pace once [`Pace::INTERVAL`] has passed since the last measurement. Returns
    /// whether it did.
    #[inline]
    fn measure(&mut self, now: Nanos, ended: u64) -> bool {
        let span = now.since(self.measured_at);
        if span < Self::INTERVAL {
            return false;
        }
        let per_io = span.0.checked_div(ended - self.ended).map(Nanos);
        *self = Pace {
            measured_at: now,
            ended,
            per_io,
        };
        true
    }

    /// Returns the blocking time by which floors are judged, given the worst case for a queue of
    /// `depth`.
    ///
    /// The worst case assumes the worst of all mixes, such as long random writes alone. That may
    /// be tens of times the device's actual times, and a floor judged by it would be kept whatever
    /// a VM gets. So the time in which the device drains its queue at its measured pace counts
    /// where that is shorter. All of a second counts as work, so pauses make it longer. The
    /// blocking time of the device's kind is the minimum: housekeeping may block the device for as
    /// long.
    fn judged_by(&self, worst_case: Nanos, depth: u32, spec: &DeviceSpec) -> Nanos {
        let least = Attainments::blocking_of_kind(spec);
        let drain = |per_io: Nanos| Nanos(per_io.0.saturating_mul(depth.into())).max(least);
        self.per_io
            .map_or(worst_case, |per_io| drain(per_io).min(worst_case))
    }
}

impl Promises {
    /// Creates the state of a device without VMs.
    pub(super) fn new() -> Promises {
        Promises {
            due: Nanos::MAX,
            last: None,
            new_costs: false,
            windows: 0,
            depth: 0,
            outcome: None,
            worst_case_depth: None,
            guaranteed: false,
            tightest: None,
            measured: MeasuredDepth::default(),
            latencies_at: Nanos::ZERO,
            pace: Pace::default(),
        }
    }

    /// Latest outcome; `None`: what requests cost is not known yet.
    pub(super) fn outcome(&self) -> Option<Feasibility> {
        self.outcome
    }

    /// Returns whether a check is due, now or later.
    pub(super) fn is_due(&self) -> bool {
        self.due < Nanos::MAX
    }

    /// Records that a VM, an objective, a transfer or the use of the device has changed.
    pub(super) fn changed(&mut self, now: Nanos) {
        self.due_after(now, CHECK_INTERVAL_MIN);
    }

    /// Records that the device has another profile, or none any more.
    pub(super) fn profile_changed(&mut self, now: Nanos) {
        self.new_costs = true;
        self.due_after(now, CHECK_INTERVAL_MIN);
    }

    /// Takes over new learnt costs, which count where there is no profile.
    #[inline]
    pub(super) fn follow_costs(&mut self, view: &View) {
        if let (None, Some(estimator)) = (&view.profile, &view.estimator)
            && estimator.windows() != self.windows
        {
            (self.windows, self.new_costs) = (estimator.windows(), true);
            self.due_after(view.queues.now, LEARNT_CHECK_INTERVAL_MIN);
        }
    }

    /// Takes over the depth in force and the device's pace, by which floors are judged.
    #[inline]
    pub(super) fn follow_depth(
        &mut self,
        view: &View,
        control: &mut DeviceControl,
        attainment: &mut Attainments,
    ) {
        let (now, device) = (view.queues.now, &view.queues.device);
        let is_measured = self.pace.measure(now, device.ended);
        let since_latencies = now.since(self.latencies_at);
        if is_measured || (control.promised.is_some() && since_latencies >= LATENCY_INTERVAL) {
            self.latencies_at = now;
            let span = if is_measured {
                Span::Second
            } else {
                Span::Part
            };
            let used = attainment.take_bound_use(is_measured);
            self.measure_depth(view, control, used, span);
        }
        let Some(outcome) = self.outcome else {
            return;
        };
        // Only a depth beyond the one counted with makes requests wait longer than the last check
        // assumed.
        if control.limit > self.depth {
            self.due_after(now, CHECK_INTERVAL_MIN);
        }
        if is_measured {
            let depth = counted_depth(view, control);
            let blocking = self.pace.judged_by(outcome.blocking, depth, &device.spec);
            attainment.set_blocking(Some(blocking));
        }
    }

    /// Updates the depth by the latencies of requests since the last call, with which a second or
    /// a part of one ends.
    fn measure_depth(
        &mut self,
        view: &View,
        control: &mut DeviceControl,
        used: BoundUse,
        ended: Span,
    ) {
        // A depth measured for a latency objective must not hold once no such objective is left.
        if control.promised.is_none() {
            if self.measured.reset() {
                self.set_bound(view, control);
            }
            return;
        }
        let Some(in_force) = control.depth_control.as_ref().map(|depth| depth.depth()) else {
            return;
        };
        let range = self.depth_range(view);
        // Visits all VMs, so it is asked only where the answer may change the depth.
        let is_idle = ended == Span::Second
            && self.measured.is_unanswered_second(used)
            && range.start < range.most
            && !is_bounded_request_waiting(view);
        let ended = if is_idle { Span::IdleSecond } else { ended };
        if self.measured.update(used, ended, in_force, range) {
            self.set_bound(view, control);
        }
    }

    /// Puts the depth that promises leave in force.
    fn set_bound(&mut self, view: &View, control: &mut DeviceControl) {
        let range = self.depth_range(view);
        let (depth, most) = (self.measured.depth(range), range.most);
        if let Some(outcome) = &mut self.outcome {
            outcome.depth_bound = depth;
        }
        if let Some(control) = &mut control.depth_control {
            let bound = (depth < most).then_some(DepthBound {
                depth,
                vm: self.outcome.and_then(|outcome| outcome.tightest),
            });
            control.set_bound(view.queues.now, bound);
        }
        control.bound_depth(view);
    }

    /// Depths between which measured latencies decide.
    fn depth_range(&self, view: &View) -> DepthRange {
        depth_range(view, self.worst_case_depth, self.guaranteed)
    }

    /// Schedules a check now, but no sooner than `interval` after the last one.
    fn due_after(&mut self, now: Nanos, interval: Nanos) {
        // The first check may run at once.
        let earliest = self.last.map_or(now, |last| last + interval);
        // A check that is due sooner for another reason stays due.
        self.due = self.due.min(now.max(earliest));
    }

    /// Checks the promises if a check is due, and applies the outcome to depth and attainment.
    /// Returns whether it was due.
    pub(super) fn check_feasibility(
        &mut self,
        view: &mut View,
        control: &mut DeviceControl,
        attainment: &mut Attainments,
        dispatcher: &dyn Dispatcher,
    ) -> bool {
        let now = view.queues.now;
        if now < self.due {
            return false;
        }
        if view.profile.is_none()
            && let Some(seeks_dominate) = view
                .estimator
                .as_deref()
                .and_then(seek_bound::seeks_dominate_by_learnt_costs)
        {
            control.learn_seeks(view, seeks_dominate);
        }
        self.depth = counted_depth(view, control);
        let checked = evaluate(view, control, dispatcher, self.depth, self.measured);
        let outcome = checked.map(|(outcome, _)| outcome);
        let was_known = self.outcome.is_some();
        let new_costs = core::mem::take(&mut self.new_costs) || !was_known;
        (self.due, self.last) = (Nanos::MAX, Some(now));
        if outcome.is_none() && !was_known {
            // Neither bound nor blocking time came from here.
            return true;
        }
        let worst_case = outcome.map(|outcome| outcome.depth_bound);
        // A depth measured under looser promises says nothing about tighter ones. New costs change
        // what is assumed of the worst case, not what requests were seen to take.
        let tightest = control.promised.map(|promised| promised.tightest);
        let is_tighter = match (tightest, self.tightest) {
            (Some(now), Some(before)) => now < before,
            (now, before) => now.is_some() && before.is_none(),
        };
        if is_tighter || (!new_costs && worst_case < self.worst_case_depth) {
            self.measured.reset();
        }
        (self.worst_case_depth, self.tightest) = (worst_case, tightest);
        self.guaranteed = checked.is_some_and(|(_, guaranteed)| guaranteed);
        self.outcome = outcome;
        self.set_bound(view, control);
        let outcome = self.outcome;
        let judged_by = |outcome: Feasibility| {
            let spec = &view.queues.device.spec;
            self.pace.judged_by(outcome.blocking, self.depth, spec)
        };
        let blocking = outcome.map(judged_by);
        if new_costs {
            attainment.set_blocking(blocking)
        } else {
            // Without new costs only others' promises changed, which must not tighten a VM's own.
            attainment.loosen_blocking(blocking)
        }
        true
    }
}

/// Returns whether a VM with a latency bound has a request inside the engine.
fn is_bounded_request_waiting(view: &View) -> bool {
    view.vms()
        .any(|vm| view.objective(vm).latency.is_some() && view.requests(vm) > 0)
}

/// Costs for the check, and true if they were learnt; `None`: not known well enough.
fn costs(view: &View) -> Option<(Cow<'_, Profile>, bool)> {
    if let Some(profile) = view.profile.as_deref() {
        let precise = profile.imprecision().is_none();
        return precise.then_some((Cow::Borrowed(profile), false));
    }
    let (profile, judged) = view.estimator.as_ref()?.profile();
    judged.then_some((Cow::Owned(profile), true))
}

/// Returns the depths between which measured latencies decide, given that of the worst case;
/// `None`: costs are not known. `guaranteed`: with it every bound is met.
fn depth_range(view: &View, worst_case: Option<u32>, guaranteed: bool) -> DepthRange {
    let device = &view.queues.device;
    let most = device.spec.depth;
    let start = worst_case.unwrap_or(most);
    assert!(
        (1..=most).contains(&start),
        "the worst case allows a depth of {start}, of 1 to {most}"
    );
    DepthRange {
        start,
        least: if device.seeks && !guaranteed {
            1
        } else {
            start
        },
        most,
        guaranteed,
    }
}

/// Depth that the check assumes: twice the one in force. An adapted depth grows by doubling, and
/// promised requests may exceed it up to that.
fn counted_depth(view: &View, control: &DeviceControl) -> u32 {
    let depth = control.limit.saturating_mul(2);
    depth.clamp(1, view.queues.device.spec.depth)
}

/// Evaluates all promises together, with floors judged at a queue of `depth`, which is at most the
/// bound of the worst case or the `measured` one. Returns also whether the bound of the worst case
/// keeps every latency bound; `None`: the costs of requests are not known.
fn evaluate(
    view: &View,
    control: &DeviceControl,
    dispatcher: &dyn Dispatcher,
    depth: u32,
    measured: MeasuredDepth,
) -> Option<(Feasibility, bool)> {
    let now = view.queues.now;
    let (profile, is_learnt) = costs(view)?;
    let spec = &view.queues.device.spec;
    let device = fit::Device {
        profile: &profile,
        depth: spec.depth,
        max_io: spec.max_io,
        merge_limit: view.queues.merge_limit,
        capacity: None,
        queueing: Queueing {
            least_depth: control.depth_control.is_some().then_some(1),
            part: control.longest_part(spec.max_io),
            background_part: dispatcher.background_part(&profile),
        },
    };
    let live = (0..view.queues.vms.len()).filter(|&slot| view.queues.vms[slot].life == Life::Live);
    let slots: Vec<usize> = live.collect();
    let planned = |&slot: &usize| PlannedVm {
        background: view.queues.vms[slot].background,
        transfer: transfer(view, slot, now),
        ..PlannedVm::new("", &view.objectives[slot])
    };
    let vms: Vec<PlannedVm<'_>> = slots.iter().map(planned).collect();
    let assumed = Assumed::default();
    let fit = fit::evaluate(&device, &vms, &assumed);
    // Floors are judged by what was planned, however deep the queue is beyond that.
    let depth = depth.min(if fit.fits() {
        fit.depth_bound
    } else {
        measured.depth(depth_range(view, Some(fit.depth_bound), false))
    });
    let blocking = if depth != fit.depth_bound {
        fit::blocking(&fit::Device { depth, ..device }, &vms, &assumed)
    } else {
        fit.blocking
    };
    // A profile without latencies gives only device time, and requests take longer than that.
    let least = if fit.blocked_by.is_measured {
        Nanos::ZERO
    } else {
        Attainments::blocking_of_kind(spec)
    };
    let feasibility = Feasibility {
        fits: fit.fits(),
        depth_bound: fit.depth_bound,
        tightest: tightest(&fit).map(|at| view.vm_at(slots[at])),
        blocking: blocking.max(least),
        is_learnt,
    };
    // Without latencies only the device's time is known to suffice.
    Some((feasibility, fit.fits() && fit.blocked_by.is_measured))
}

/// Bytes per second that the transfer of the VM in a slot needs to end in time; 0: it has none, or
/// its deadline has passed.
fn transfer(view: &View, slot: usize, now: Nanos) -> u64 {
    let transfer = view
        .predictor()
        .and_then(|predictor| predictor.transfer(slot));
    transfer.map_or(0, |transfer| transfer.required_bytes_per_s(now))
}

/// Index of the need that uses up most of its bound.
fn tightest(fit: &Fit) -> Option<usize> {
    let bounds = fit.needs.iter().enumerate();
    let used = bounds.filter_map(|(index, need)| {
        let bound = need.bound?;
        let used = bound.takes?.0 as f64 / bound.asked.0.max(1) as f64;
        Some((index, used))
    });
    // Strict comparison keeps the first of several equal ones.
    let tightest = used.reduce(|best, next| if next.1 > best.1 { next } else { best });
    tightest.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_base::device::DeviceSpec;

    #[test]
    fn blocking_time_follows_the_pace_of_the_device_up_to_the_worst_case() {
        let flash = DeviceSpec {
            depth: 32,
            physical_block: 4096,
            max_io: 1 << 20,
            zeroes_are_writes: false,
            positioning: Nanos::ZERO,
            bytes_per_s: 0,
        };
        let mut pace = Pace::default();
        let worst_case = Nanos::from_millis(107);
        let judged = |pace: &Pace, depth| pace.judged_by(worst_case, depth, &flash);
        assert_eq!(judged(&pace, 8), worst_case, "nothing is known of the pace");
        assert!(!pace.measure(Nanos::from_millis(999), 10));
        assert!(pace.measure(Nanos::SECOND, 400));
        assert_eq!(judged(&pace, 8), Nanos::from_millis(20));
        assert_eq!(
            judged(&pace, 2),
            Nanos::from_millis(10),
            "the least of flash"
        );
        assert_eq!(judged(&pace, 64), worst_case);
        assert!(pace.measure(Nanos::from_secs(2), 400));
        assert_eq!(judged(&pace, 8), worst_case, "an idle second says nothing");
    }
}
