//! Bound of background processes: they get the device time that VMs leave, and one I/O every
//! `background_after`.

use crate::checker::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_core::time::Nanos;

/// Observations of the background processes' I/Os, with the bound on how long VMs may delay them
/// and on how often they may go before VMs.
#[derive(Debug)]
pub(super) struct BackgroundBound {
    /// Interval after which the engine starts one background I/O before all VMs; zero disables
    /// that. `None` where the dispatcher schedules background processes itself.
    after: Option<Nanos>,
    /// `true` if the dispatcher may hold a VM whose gate is open. The device then has room that the
    /// VM does not use, and background I/Os may take it at any time.
    may_hold: bool,
    /// Start of the last background I/O.
    last_start: Option<Nanos>,
    /// Latest possible start of the time for which background units have been passed over.
    passed_over_since: Nanos,
    /// Number of background I/Os in flight when a VM's I/O started last.
    in_flight: u32,
    /// Background units that waited then, by VM and lane.
    heads: Vec<Option<ReqId>>,
}

impl BackgroundBound {
    pub(super) fn new(slots: usize) -> BackgroundBound {
        BackgroundBound {
            after: None,
            may_hold: false,
            last_start: None,
            passed_over_since: Nanos::ZERO,
            in_flight: 0,
            heads: vec![None; slots * Lane::ALL.len()],
        }
    }

    pub(super) fn reset(&mut self, engine: &Engine) {
        let policy = engine.policy();
        let mut params = policy.params().iter().copied();
        // Only dispatchers that leave the background to the engine have this parameter.
        let after = params.find(|(info, _)| info.name == "background_after");
        self.after = after.map(|(_, after)| Nanos(after));
        self.may_hold = policy.may_hold();
        self.last_start = None;
        self.heads.fill(None);
    }

    /// Returns `true` if the engine schedules background processes, and the dispatcher VMs only.
    pub(super) fn engine_schedules_background(&self) -> bool {
        self.after.is_some()
    }

    pub(super) fn started(&mut self, engine: &Engine, io: &DeviceIo) -> Verdict {
        let Some(after) = self.after else {
            return Ok(());
        };
        let view = engine.view();
        let now = view.now();
        if !view.is_background(io.vm) {
            // The dispatcher does not order flushes, so those are not checked.
            return match io.op {
                Op::Flush => Ok(()),
                _ => self.passed_over(engine, after),
            };
        }
        self.passed_over_since = now;
        self.in_flight = view.in_flight(io.vm);
        if io.op == Op::Flush {
            return Ok(());
        }
        let last_start = self.last_start.replace(now);
        let waits = view
            .vms()
            .find(|&vm| !view.is_background(vm) && view.has_head(vm));
        let (Some(vm), Some(last), false) = (waits, last_start, self.may_hold) else {
            // The first I/O after a change has no predecessor to measure from.
            return Ok(());
        };
        ensure!(
            Starvation,
            // At 0 the engine never lets the background go before VMs.
            after > Nanos::ZERO && now.since(last) >= after,
            "background {io:?} started {} after the previous one although {vm:?} was waiting; the \
             minimum is {after}",
            now.since(last)
        );
        Ok(())
    }

    /// Checks how long the background has been passed over, when a VM's I/O starts.
    fn passed_over(&mut self, engine: &Engine, after: Nanos) -> Verdict {
        let view = engine.view();
        let now = view.now();
        let (mut in_flight, mut waits_still, mut open) = (0, false, None::<VmId>);
        for slot in 0..view.vm_slots() {
            let vm = view.vm_at(slot);
            let background = view.is_background(vm);
            in_flight += if background { view.in_flight(vm) } else { 0 };
            for lane in Lane::ALL {
                let head = view.lane_head(vm, lane).filter(|_| background);
                let last_head = &mut self.heads[slot * Lane::ALL.len() + lane.index()];
                // The same unit as at the last look: it has waited all the time between.
                waits_still |= head.is_some() && *last_head == head;
                *last_head = head;
                if head.is_some() && view.gate_open(vm, lane) {
                    open = Some(vm);
                }
            }
        }
        // The interval counts from the end of the last background I/O, or from when a unit waits
        // again, whichever is later. Both have happened by now.
        let ended = std::mem::replace(&mut self.in_flight, in_flight) > 0;
        if in_flight > 0 || ended || !waits_still {
            self.passed_over_since = now;
        }
        ensure!(
            Starvation,
            open.is_none() || after == Nanos::ZERO || now.since(self.passed_over_since) < after,
            "{open:?} of the background has been passed over for {}; its bound is {after}",
            now.since(self.passed_over_since)
        );
        Ok(())
    }
}
