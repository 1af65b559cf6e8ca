//! Merge limit and throttle: how large a VM's I/Os may be, and how fast they may follow each other.
//! Li et al., "Customizable SLO and Its Near-Precise Enforcement for Storage Bandwidth", ToS 2017,
//! sections 3.3 and 5.6.
//!
//! - **Merge limit.** A VM's requests are merged up to this many pages of 4 KiB, and larger ones
//!   are split. A controller sets it for each VM by [`Knob::MergeLimit`], and the engine applies it
//!   at the next merge and the next split; I/Os in flight are not affected. Without a controller it
//!   is `pages`, for all VMs. An I/O filled below `fill` per cent of the limit when it goes takes
//!   the beginning of the next request along.
//! - **Delay slice.** Under [`Throttle::Exactly`] the next I/O may go only after the time of this
//!   one's bytes at the rate: 4 KiB / rate for one page, the paper's slice. Up to 2 s of late slots
//!   are carried over: those of `batch` go at once, which suits dispatchers by time slices, and the
//!   rest is made good at a tenth above the rate. Time in which the VM asks for nothing is lost.
//!   With a `tick` slots end as a kernel's timers do, at the next multiple of it, and late ones are
//!   lost: a reading of the paper, whose testbed had ticks of 10 ms.
//! - **IOPS.** [`Throttle::Ios`] limits device requests, carried in the same way; a request counts
//!   by its size if the objective's target names one.
//! - **Regular lateness.** Under [`Knob::Lateness`] slots that other VMs' turns regularly make late
//!   go at once, too: see `lateness`. A stall is not regular, and is made good as above.
//! - **Ceiling.** Under [`Throttle::AtMost`] nothing beyond `batch` is carried over.
//!
//! Limits and bursts hold in addition, as in [`token_bucket`](super::token_bucket).
//!
//! Flushes pass freely and cost nothing. Requests that move no bytes cost no bytes.

use super::lateness::Lateness;
use super::token_bucket::TokenBucket;
use tidegate_base::objective::OpsRate;
use tidegate_base::pace::{Pacer, catch_up_rate};
use tidegate_base::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_core::part::{ParamInfo, ParamKind, PartDescriptor, SLACK};
use tidegate_core::roles::{
    Consumed, Event, FILL, Footprint, Gate, Interests, Knob, Regulator, Reopened, Stage,
};
use tidegate_core::tuning::Throttle;
use tidegate_core::view::{View, moved};

/// Unit of merge limits in bytes: the paper's sigma.
pub const PAGE_BYTES: u32 = 4096;
/// Longest lateness that is carried over; slots later than that are lost.
const LATENESS_CARRIED_MAX: Nanos = Nanos::from_secs(2);
/// Cost of an ordinary I/O under [`Throttle::Ios`], in thousandths of an I/O.
pub const IO_COST_MILLI: u64 = 1000;

/// Description for the registry of policy parts.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Regulator> = PartDescriptor {
    name: "merge-limit",
    summary: "merge limits and pacing of I/Os; limits as in token-bucket",
    params: &[
        ParamInfo {
            name: "pages",
            kind: ParamKind::Count,
            default: 0,
            min: 0,
            max: 1 << 18,
            help: "largest I/O of untuned VMs in pages of 4 KiB; 0: the device's",
        },
        ParamInfo {
            name: "fill",
            kind: ParamKind::Count,
            default: FILL as u64,
            min: 0,
            max: 100,
            help: "fill level in per cent of the merge limit below which an I/O takes part of \
                   the next request; 100: always",
        },
        ParamInfo::span(
            "batch",
            0,
            "delay up to which late slots of throttled VMs are made up for at once",
        ),
        ParamInfo::span(
            "tick",
            0,
            "period of the timer that ends the throttle's slots, which makes no late one good; 0: \
             exact slots",
        ),
        SLACK,
    ],
    enforces: TokenBucket::ENFORCES,
    build: |params, capacity| {
        let of = MergeLimitParams {
            pages: params.get("pages") as u32,
            fill: params.get("fill") as u32,
            batch: Nanos(params.get("batch")),
            tick: Nanos(params.get("tick")),
            slack: Nanos(params.get("slack")),
        };
        Box::new(MergeLimit::new(of, capacity.vms))
    },
};

/// Parameters of [`MergeLimit`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MergeLimitParams {
    /// Maximum pages of an I/O of a VM without its own merge limit, up to 2^18; 0: the device's
    /// maximum.
    pub pages: u32,
    /// Fill level in per cent, 0 to 100; see [`Regulator::fill`].
    pub fill: u32,
    /// Lateness up to which late slots go at once.
    pub batch: Nanos,
    /// Period of the timer that ends slots under [`Throttle::Exactly`]; late ones are lost then. 0:
    /// exact slots.
    pub tick: Nanos,
    /// Lateness that limits make good; throttles make good at least that much at once.
    pub slack: Nanos,
}

/// Returns the cost of an I/O under an IOPS target, in thousandths of an I/O: 1000, or more in
/// proportion for an I/O larger than the size that the rate names.
pub fn counted_ios(rate: Option<OpsRate>, len: u32) -> u64 {
    let norm = rate.and_then(|rate| rate.norm);
    norm.map_or(IO_COST_MILLI, |norm| {
        IO_COST_MILLI.max(u64::from(len) * IO_COST_MILLI / u64::from(norm))
    })
}

/// Throttle of one VM.
#[derive(Clone, Copy, Debug)]
struct Throttled {
    throttle: Throttle,
    /// Pacer at the throttle's rate, which carries late slots.
    steady: Pacer,
    /// Pacer that bounds how fast late slots are made good; under a ceiling, the ceiling.
    fast: Pacer,
    /// Learnt lateness of slots that go at once.
    lateness: Lateness,
    /// Beginning of the last quiet time known to have ended; `None`: none has.
    quiet_since: Option<Nanos>,
}

impl Throttled {
    const OFF: Throttled = Throttled {
        throttle: Throttle::Off,
        steady: Pacer::NONE,
        fast: Pacer::NONE,
        lateness: Lateness::NONE,
        quiet_since: None,
    };

    fn set_throttle(&mut self, throttle: Throttle, now: Nanos) {
        use core::mem::discriminant;
        if discriminant(&throttle) != discriminant(&self.throttle) {
            // Units of bytes and of I/Os cannot be mixed, so no lateness is carried over. Between
            // two throttles in bytes the last I/O still takes its time.
            let due = match (self.throttle, throttle) {
                (_, Throttle::Ios(_)) | (Throttle::Ios(_), _) => now,
                _ => self.due().max(now),
            };
            (self.steady, self.fast) = (Pacer::new(1, 1, due), Pacer::new(1, 1, due));
        }
        let (steady, fast) = match throttle {
            Throttle::Off => (0, 0),
            // Late slots are made good at a tenth above the rate.
            Throttle::Exactly(rate) | Throttle::Ios(rate) => (rate, catch_up_rate(rate)),
            Throttle::AtMost(rate) => (0, rate),
        };
        self.steady = self.steady.with_rate(steady);
        self.fast = self.fast.with_rate(fast);
        self.throttle = throttle;
    }

    /// Discards late slots.
    fn discard_late_slots(&mut self, now: Nanos) {
        self.steady.forget_before(now);
        self.fast.forget_before(now);
    }

    fn spend(&mut self, units: u64, now: Nanos, at_once: Nanos, tick: Nanos) {
        let due = self.due();
        let carried = match self.ticks(tick) {
            true => Nanos::ZERO,
            false => LATENESS_CARRIED_MAX,
        };
        // Before the charge: slots later than that are lost, not made good.
        self.steady.forget_before(now - carried);
        let slot = self.steady.due();
        self.steady.spend(units);
        self.lateness
            .dispatched(due, now, self.steady.due().since(slot));
        let at_once = at_once.max(self.lateness.regular());
        // Slots late by no more than this go at once, regular waits for others' turns included.
        self.fast.forget_before(now - at_once);
        self.fast.spend(units);
    }

    fn due(&self) -> Nanos {
        self.steady.due().max(self.fast.due())
    }

    /// Returns true if slots end with the timer's ticks.
    fn ticks(&self, tick: Nanos) -> bool {
        tick > Nanos::ZERO && matches!(self.throttle, Throttle::Exactly(_))
    }

    /// Returns the time from which the next I/O may go.
    fn opens(&self, tick: Nanos) -> Nanos {
        let due = self.due();
        match self.ticks(tick) {
            true => Nanos(due.0.div_ceil(tick.0).saturating_mul(tick.0)),
            false => due,
        }
    }
}

/// Regulator with merge limits, throttles, and limits as in `token-bucket`.
#[derive(Debug)]
pub struct MergeLimit {
    params: MergeLimitParams,
    limits: TokenBucket,
    /// Throttles by slot; `None` for VMs without a target.
    vms: Vec<Option<Box<Throttled>>>,
}

impl MergeLimit {
    /// Creates a regulator without VMs, with room for `vms` of them.
    ///
    /// # Panics
    /// When `pages` is above 2^18 or `fill` above 100.
    pub fn new(params: MergeLimitParams, vms: u32) -> MergeLimit {
        // More pages would overflow the bytes of `merge_limit`, which would come out small.
        assert!(params.pages <= 1 << 18, "a merge limit is at most 1 GiB");
        assert!(params.fill <= 100, "a fill level is at most 100 per cent");
        MergeLimit {
            params,
            limits: TokenBucket::new(params.slack),
            vms: Vec::with_capacity(vms as usize),
        }
    }

    fn throttled_mut(&mut self, vm: VmId) -> Option<&mut Throttled> {
        self.vms.get_mut(vm.index())?.as_deref_mut()
    }

    /// Allocates the throttle of a VM with a target before its first request; `anew` discards one
    /// of an earlier VM.
    fn prepare_throttle(&mut self, view: &View, vm: VmId, anew: bool) {
        let slot = vm.index();
        if self.vms.len() <= slot {
            self.vms.resize_with(slot + 1, || None);
        }
        let of_vm = &mut self.vms[slot];
        // The slot's former VM may have left a throttle.
        if anew {
            *of_vm = None;
        }
        if of_vm.is_none() && !view.objective(vm).target.is_none() {
            *of_vm = Some(Box::new(Throttled::OFF));
        }
    }

    /// Drops slots that were due while the VM had no request: they are not made good.
    fn end_quiet_time(&mut self, view: &View, vm: VmId) {
        let Some(of_vm) = self.throttled_mut(vm) else {
            return;
        };
        let since = view.quiet_since(vm);
        if of_vm.quiet_since.replace(since) != Some(since) {
            let from = match since {
                // The VM has never issued a request.
                Nanos::MAX => Nanos::ZERO,
                since => since,
            };
            of_vm.steady.cancel_due(from, view.now());
        }
    }

    fn charge(&mut self, view: &View, io: &DeviceIo) {
        let at_once = self.params.batch.max(self.params.slack);
        let tick = self.params.tick;
        let Some(of_vm) = self.throttled_mut(io.vm) else {
            return;
        };
        if io.op == Op::Flush {
            return;
        }
        let units = match of_vm.throttle {
            Throttle::Off => return,
            Throttle::Exactly(_) | Throttle::AtMost(_) => moved(view, io.op, io.len).into(),
            Throttle::Ios(_) => {
                let bytes = moved(view, io.op, io.len);
                counted_ios(view.objective(io.vm).target.ops, bytes)
            }
        };
        of_vm.spend(units, view.now(), at_once, tick);
    }
}

impl Regulator for MergeLimit {
    fn stage(&self) -> Stage {
        Stage::Dispatch
    }

    fn interests(&self) -> Interests {
        self.limits.interests().union(Interests::ARRIVED)
    }

    fn gate(&self, view: &View, unit: ReqId) -> Gate {
        let (vm, lane) = view.queued(unit).vm_lane();
        self.lane_gate(view, vm, lane)
    }

    fn lane_gate(&self, view: &View, vm: VmId, lane: Lane) -> Gate {
        let limited = self.limits.lane_gate(view, vm, lane);
        let Some(Some(of_vm)) = self.vms.get(vm.index()) else {
            return limited;
        };
        match (limited, of_vm.opens(self.params.tick)) {
            // The throttle allows the VM, so only its limits count.
            (_, due) if due <= view.now() => limited,
            (Gate::Pass, due) => Gate::Until(due),
            (Gate::Until(limited), due) => Gate::Until(limited.max(due)),
            // Blocked for good stays so, whatever the throttle says.
            (Gate::Blocked, _) => Gate::Blocked,
        }
    }

    fn merge_limit(&self) -> u32 {
        match self.params.pages {
            0 => u32::MAX,
            // Fits: at most 2^18 pages of 4 KiB.
            pages => pages * PAGE_BYTES,
        }
    }

    fn fill(&self) -> u32 {
        self.params.fill
    }

    fn set(&mut self, view: &View, vm: VmId, knob: Knob) {
        let (now, of_vm) = (view.now(), self.throttled_mut(vm));
        match (knob, of_vm) {
            (Knob::Throttle(throttle), Some(of_vm)) => of_vm.set_throttle(throttle, now),
            (Knob::Lateness(most), Some(of_vm)) => {
                // Another bound on lateness begins a new measurement.
                of_vm.discard_late_slots(now);
                of_vm.lateness.learn_up_to(most);
            }
            _ => {}
        }
    }

    fn on_event(&mut self, view: &View, event: &Event, reopen: &mut Reopened) {
        match *event {
            Event::Arrived(unit) => {
                return self.end_quiet_time(view, view.queued(unit).vm_lane().0);
            }
            Event::Started(io) => self.charge(view, io),
            Event::VmAdded(vm) => self.prepare_throttle(view, vm, true),
            Event::VmChanged(vm) => self.prepare_throttle(view, vm, false),
            Event::VmRemoved(vm) => {
                if let Some(of_vm) = self.vms.get_mut(vm.index()) {
                    *of_vm = None;
                }
            }
            _ => {}
        }
        self.limits.on_event(view, event, reopen);
    }

    fn footprint(&self) -> Footprint {
        let limits = self.limits.footprint();
        Footprint {
            vm: limits.vm + size_of::<Option<Box<()>>>() + size_of::<Throttled>(),
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
