//! Background tenants have what the VMs leave, and not quite nothing.

use crate::checker::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_core::time::Nanos;

/// What is known of the background.
#[derive(Debug)]
pub(super) struct Leftover {
    /// The dispatcher leaves the background to the engine, which starts one I/O before all VMs
    /// when none went for so long; zero: never.
    after: Option<Nanos>,
    /// The dispatcher itself may hold a VM whose gate is open.
    holds: bool,
    /// When a background I/O went last.
    went: Option<Nanos>,
    /// Since when the background has been passed over, at the latest.
    since: Nanos,
    /// Its I/Os in flight when an I/O of a VM started last.
    in_flight: u32,
    /// What of it waited then.
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

    pub(super) fn forget(&mut self, engine: &Engine) {
        let policy = engine.policy();
        let mut params = policy.params().iter().copied();
        let after = params.find(|(info, _)| info.name == "background_after");
        self.after = after.map(|(_, after)| Nanos(after));
        self.holds = policy.may_hold();
        self.went = None;
        self.heads.fill(None);
    }

    /// Whether the dispatcher knows VMs alone.
    pub(super) fn is_of_the_engine(&self) -> bool {
        self.after.is_some()
    }

    pub(super) fn started(&mut self, engine: &Engine, io: &DeviceIo) -> Verdict {
        let Some(after) = self.after else {
            return Ok(());
        };
        let facts = engine.view();
        let now = facts.now();
        if !facts.is_background(io.vm) {
            // A VM's flush is not the dispatcher's to hold back.
            return match io.op {
                Op::Flush => Ok(()),
                _ => self.passed_over(engine, after),
            };
        }
        self.since = now;
        self.in_flight = facts.in_flight(io.vm);
        if io.op == Op::Flush {
            return Ok(());
        }
        let went = self.went.replace(now);
        let waits = facts
            .vms()
            .find(|&vm| !facts.is_background(vm) && facts.has_head(vm));
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

    /// A VM's I/O has started.
    fn passed_over(&mut self, engine: &Engine, after: Nanos) -> Verdict {
        let facts = engine.view();
        let now = facts.now();
        let (mut in_flight, mut waits_still, mut open) = (0, false, None::<VmId>);
        for slot in 0..facts.vm_slots() {
            let vm = facts.vm_at(slot);
            let background = facts.is_background(vm);
            in_flight += if background { facts.in_flight(vm) } else { 0 };
            for lane in Lane::ALL {
                let head = facts.lane_head(vm, lane).filter(|_| background);
                let known = &mut self.heads[slot * Lane::ALL.len() + lane.index()];
                waits_still |= head.is_some() && *known == head;
                *known = head;
                if head.is_some() && facts.gate_open(vm, lane) {
                    open = Some(vm);
                }
            }
        }
        // It counts from the end of the last one, or from when something waits again. Both have
        // happened by now, at the latest.
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
