//! Bound of background processes: they get the device time that VMs leave, and one I/O every
//! `background_after`.

use crate::checker::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_core::time::Nanos;

/// Observations of the background processes.
#[derive(Debug)]
pub(super) struct Leftover {
    /// Interval after which the engine starts one background I/O before all VMs; zero disables
    /// that. `None` where the dispatcher schedules background processes itself.
    after: Option<Nanos>,
    /// `true` if the dispatcher may hold a VM whose gate is open.
    holds: bool,
    /// Start of the last background I/O.
    went: Option<Nanos>,
    /// Latest possible start of the time for which background units have been passed over.
    since: Nanos,
    /// Number of background I/Os in flight when a VM's I/O started last.
    in_flight: u32,
    /// Background units that waited then, by VM and lane.
    heads: Vec<Option<ReqId>>,
}

impl Leftover {
    pub(super) fn new(slots: usize) -> Leftover {
        Leftover {
            after: None,
            holds: false,
            went: None,
            since: Nanos::ZERO,
            in_flight: 0,
            heads: vec![None; slots * Lane::ALL.len()],
        }
    }

    pub(super) fn reset(&mut self, engine: &Engine) {
        let policy = engine.policy();
        let mut params = policy.params().iter().copied();
        let after = params.find(|(info, _)| info.name == "background_after");
        self.after = after.map(|(_, after)| Nanos(after));
        self.holds = policy.may_hold();
        self.went = None;
        self.heads.fill(None);
    }

    /// Returns `true` if the engine schedules the background and the dispatcher knows VMs only.
    pub(super) fn is_of_the_engine(&self) -> bool {
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
        self.since = now;
        self.in_flight = view.in_flight(io.vm);
        if io.op == Op::Flush {
            return Ok(());
        }
        let went = self.went.replace(now);
        let waits = view
            .vms()
            .find(|&vm| !view.is_background(vm) && view.has_head(vm));
        let (Some(vm), Some(went), false) = (waits, went, self.holds) else {
            return Ok(());
        };
        ensure!(
            Starvation,
            after > Nanos::ZERO && now.since(went) >= after,
            "{io:?} of the background went before {vm:?}, and one had gone {} before",
            now.since(went)
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
                let known = &mut self.heads[slot * Lane::ALL.len() + lane.index()];
                waits_still |= head.is_some() && *known == head;
                *known = head;
                if head.is_some() && view.gate_open(vm, lane) {
                    open = Some(vm);
                }
            }
        }
        // The interval counts from the end of the last background I/O, or from when a unit waits
        // again, whichever is later. Both have happened by now.
        let ended = std::mem::replace(&mut self.in_flight, in_flight) > 0;
        if in_flight > 0 || ended || !waits_still {
            self.since = now;
        }
        ensure!(
            Starvation,
            open.is_none() || after == Nanos::ZERO || now.since(self.since) < after,
            "{open:?} of the background has been passed over for {}; its bound is {after}",
            now.since(self.since)
        );
        Ok(())
    }
}
