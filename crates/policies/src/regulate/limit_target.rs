//! Limits and targets: the gates that hold over every promise.
//!
//! Limits are those of the [`token bucket`](super::token_bucket): requests and bytes a second, for
//! reads, writes and both, with bursts. A target is floor and cap in one; this part is its cap, the
//! dispatcher keeps its floor.
//!
//! ```text
//!   a lane's gate opens at max(limit's time, target's time)
//!   target's time = max(pace of the target, which may be 2 s behind;
//!                       pace of 1.1 x the target, which is never behind)
//! ```
//!
//! - What a stall of the device took from a VM, up to two seconds, is caught up at no more than 1.1
//!   times the target, so that the mean over seconds is the target's (V-Cup, ToS 2017, section 2.2:
//!   errors are reckoned over intervals).
//! - On a disk that seeks, lateness up to 100 ms is made good at once, so that a stream goes in
//!   batches.
//! - Time in which the VM had nothing inside for 100 ms or longer is not caught up: it did not ask.
//! - A target in IOPS counts guest requests, as reservations and limits do.
//! - A flush passes freely and costs nothing.

use super::token_bucket::TokenBucket;
use tidegate_base::objective::Rate;
use tidegate_base::pace::{RatePacer, catch_up_rate};
use tidegate_core::part::{Enforces, PartDescriptor, SLACK};
use tidegate_core::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_core::roles::{
    Consumed, Event, Footprint, Gate, Interests, Regulator, Reopened, Stage,
};
use tidegate_core::time::Nanos;
use tidegate_core::view::{View, moved};

/// Longest stall that a target makes good (DESIGN.md, section 7).
const REPAID_STALL_MAX: Nanos = Nanos::from_secs(2);
/// Time without a request inside after which a VM did not ask for its target: longer than a guest
/// takes between an answer and its next request, shorter than the seconds by which targets are
/// judged.
const IDLE_TIME_MIN: Nanos = Nanos::from_millis(100);

/// Lateness of a target that is made good at once on a disk that seeks: a stream goes in batches,
/// or each of its I/Os would take a positioning.
const DISK_BATCH_LATENESS: Nanos = Nanos::from_millis(100);

/// Description in the registry of parts.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Regulator> = PartDescriptor {
    name: "limit-target",
    summary: "limits as in token-bucket, and targets as limits",
    params: &[SLACK],
    enforces: Enforces {
        target: true,
        ..TokenBucket::ENFORCES
    },
    build: |params, _| Box::new(LimitTarget::new(Nanos(params.get("slack")))),
};

/// Pace of one VM's target.
#[derive(Clone, Copy, Debug)]
struct Target {
    /// Pace of the target itself; may lag by [`REPAID_STALL_MAX`].
    mean: RatePacer,
    /// Pace of 1.1 times the target; does not lag.
    peak: RatePacer,
    /// No I/O was charged yet: the VM did not ask before its first one.
    unused: bool,
}

impl Target {
    fn new(target: &Rate, now: Nanos) -> Target {
        Target {
            mean: RatePacer::new(target, now),
            peak: RatePacer::new(&faster(target), now),
            unused: true,
        }
    }

    fn set_rate(&mut self, target: &Rate, now: Nanos) {
        self.mean.set_rate(target, now);
        self.peak.set_rate(&faster(target), now);
    }

    fn due(&self) -> Nanos {
        self.mean.all_due().max(self.peak.all_due())
    }

    /// Charges an I/O that starts at `now`. `quiet_since` is the time of the VM's last answer that
    /// left no request inside.
    fn spend(&mut self, io: &DeviceIo, bytes: u64, now: Nanos, quiet_since: Nanos, slack: Nanos) {
        // Before its first request a VM has no last answer.
        let quiet_since = if core::mem::replace(&mut self.unused, false) {
            Nanos::ZERO
        } else {
            quiet_since
        };
        // `quiet_since` may be later than the arrival, where an earlier request of a burst was
        // answered.
        if quiet_since < io.arrived && io.arrived.since(quiet_since) >= IDLE_TIME_MIN {
            self.mean.ops.cancel_due(quiet_since, io.arrived);
            self.mean.bytes.cancel_due(quiet_since, io.arrived);
        }
        let first = io.first_served();
        // Before the charge: what the target is behind beyond that is lost.
        self.mean.forget_before(now - REPAID_STALL_MAX);
        self.mean.spend(bytes, first);
        self.peak.spend_late(bytes, first, [io.arrived, now], slack);
    }
}

/// Returns a rate a tenth above `rate`, at which stalls are made good.
fn faster(rate: &Rate) -> Rate {
    Rate {
        ops: rate.ops.map(|ops| tidegate_base::objective::OpsRate {
            per_s: catch_up_rate(ops.per_s),
            ..ops
        }),
        bytes_per_s: rate.bytes_per_s.map(catch_up_rate),
    }
}

/// Regulator that enforces limits and the caps of targets.
#[derive(Debug)]
pub struct LimitTarget {
    slack: Nanos,
    limits: TokenBucket,
    /// Targets by VM slot; `None`: no target.
    targets: Vec<Option<Box<Target>>>,
}

impl LimitTarget {
    /// Creates the regulator; late dispatches under a limit are made good for `slack`.
    pub fn new(slack: Nanos) -> LimitTarget {
        LimitTarget {
            slack,
            limits: TokenBucket::new(slack),
            targets: Vec::new(),
        }
    }

    fn set_target(&mut self, view: &View, vm: VmId) {
        let (slot, target) = (vm.index(), &view.objective(vm).target);
        if self.targets.len() <= slot {
            // Most VMs have no target, so the list grows only up to the last that has one.
            if target.is_none() {
                return;
            }
            self.targets.resize_with(slot + 1, || None);
        }
        match &mut self.targets[slot] {
            Some(_) if target.is_none() => self.targets[slot] = None,
            Some(paced) => paced.set_rate(target, view.now()),
            None if target.is_none() => {}
            empty => *empty = Some(Box::new(Target::new(target, view.now()))),
        }
    }

    #[cold]
    #[inline(never)]
    fn charge_target(&mut self, view: &View, io: &DeviceIo) {
        let slack = if view.device().seeks {
            // A stream goes in batches there, which a limit's slack alone would cut short.
            self.slack.max(DISK_BATCH_LATENESS)
        } else {
            self.slack
        };
        if io.op != Op::Flush
            && let Some(Some(target)) = self.targets.get_mut(io.vm.index())
        {
            let bytes = moved(view, io.op, io.len).into();
            target.spend(io, bytes, view.now(), view.quiet_since(io.vm), slack);
        }
    }
}

impl Regulator for LimitTarget {
    fn stage(&self) -> Stage {
        Stage::Dispatch
    }

    fn interests(&self) -> Interests {
        self.limits.interests()
    }

    fn gate(&self, view: &View, unit: ReqId) -> Gate {
        let (vm, lane) = view.queued(unit).vm_lane();
        self.lane_gate(view, vm, lane)
    }

    #[inline]
    fn lane_gate(&self, view: &View, vm: VmId, lane: Lane) -> Gate {
        let limit = self.limits.lane_gate(view, vm, lane);
        let Some(Some(target)) = self.targets.get(vm.index()) else {
            return limit;
        };
        match (limit, target.due()) {
            // Both must allow the VM.
            (Gate::Until(limit), target) => Gate::Until(limit.max(target)),
            (_, target) if target > view.now() => Gate::Until(target),
            _ => Gate::Pass,
        }
    }

    fn on_event(&mut self, view: &View, event: &Event, reopen: &mut Reopened) {
        if let Event::Started(io) = *event {
            self.limits.charge(view, io);
            if !self.targets.is_empty() {
                self.charge_target(view, io);
            }
            return;
        }
        self.limits.on_event(view, event, reopen);
        match *event {
            Event::VmAdded(vm) | Event::VmChanged(vm) => self.set_target(view, vm),
            Event::VmRemoved(vm) => {
                if let Some(target) = self.targets.get_mut(vm.index()) {
                    *target = None;
                }
            }
            _ => {}
        }
    }

    fn footprint(&self) -> Footprint {
        let limits = self.limits.footprint();
        Footprint {
            vm: limits.vm + size_of::<Option<Box<Target>>>(),
            vm_cold: limits.vm_cold + size_of::<Target>(),
            ..limits
        }
    }

    fn consumed(&self, view: &View, vm: VmId) -> Consumed {
        self.limits.consumed(view, vm)
    }

    fn adopt(&mut self, view: &View, vm: VmId, consumed: &Consumed) {
        self.limits.adopt(view, vm, consumed);
    }
}
