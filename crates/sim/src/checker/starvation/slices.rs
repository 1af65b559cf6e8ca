//! A bound by time slices: within its class each other queue has one before it.

use crate::checker::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::jobs::Class;
use tidegate_core::request::{DeviceIo, IoId, Lane, ReqId, VmId};
use tidegate_core::starvation::Slices;
use tidegate_core::time::Nanos;

/// How long one of `queues` may wait while the longest I/O, or the longest time in which
/// nobody drove the engine, is `slowest`.
fn within(slices: &Slices, queues: u64, slowest: Nanos, idle: bool) -> Nanos {
    let (longest, idles) = (slices.longest.0, slices.idle.0);
    // It enters behind all others' slices less its own; with a slice overrun, when the
    // others have one left; and its own last turn may have gone on so long without it.
    let enters = (queues + 3).saturating_mul(longest);
    // A turn: until the device has room, its first I/O, the slice, an I/O that overruns it,
    // and one of an idle VM behind it. A flush may go before each. Behind it others of its
    // kind may go on.
    let turn = longest + idles + slices.workload.0 + slowest.0.saturating_mul(8);
    let overdue = if idle { slices.overdue.0 } else { 0 };
    // Whoever preempts asynchronous writes has a turn more.
    let preempting = if slices.by_lane { queues / 2 + 1 } else { 0 };
    let turns = (queues + 1 + preempting).saturating_mul(turn);
    Nanos(enters.saturating_add(turns).saturating_add(overdue))
}

/// The class in force, which a controller may have turned.
fn class_of(slices: &Slices, engine: &Engine, vm: VmId) -> u8 {
    let class = match slices.background {
        _ if !slices.priorities => Class::BestEffort,
        Some(class) if engine.view().is_background(vm) => class.into(),
        _ => engine.jobs().standing(vm).class,
    };
    match class {
        Class::RealTime => 0,
        Class::BestEffort => 1,
        Class::Idle => IDLE,
    }
}

const IDLE: u8 = 2;

/// Who waits, and since when.
#[derive(Debug)]
pub(super) struct Turns {
    slices: Option<Slices>,
    /// By VM and lane: its first unit, and since when.
    since: Vec<Option<(ReqId, Nanos)>>,
    /// By VM: its class when this was asked last.
    classes: Vec<u8>,
    in_flight: Vec<(IoId, Nanos)>,
    slowest: Nanos,
    /// When this was asked last.
    asked: Option<Nanos>,
}

impl Turns {
    pub(super) fn new(slots: usize) -> Turns {
        Turns {
            slices: None,
            since: vec![None; slots * Lane::ALL.len()],
            classes: vec![IDLE; slots],
            in_flight: Vec::new(),
            slowest: Nanos::ZERO,
            asked: None,
        }
    }

    pub(super) fn forget(&mut self, slices: Slices) {
        self.slices = Some(slices);
        self.since.fill(None);
        self.asked = None;
    }

    /// Where somebody's class is another, what each was passed over is forgotten.
    fn see_classes(&mut self, slices: &Slices, engine: &Engine) {
        let facts = engine.view();
        for slot in 0..facts.vm_slots() {
            let class = class_of(slices, engine, facts.vm_at(slot));
            if core::mem::replace(&mut self.classes[slot], class) != class {
                self.since.fill(None);
            }
        }
    }

    pub(super) fn started(&mut self, engine: &Engine, io: &DeviceIo) -> Verdict {
        let (Some(slices), facts) = (self.slices, engine.view()) else {
            return Ok(());
        };
        self.see_classes(&slices, engine);
        let (now, class) = (facts.now(), self.classes[io.vm.index()]);
        for slot in 0..facts.vm_slots() {
            let vm = facts.vm_at(slot);
            let of_vm = self.classes[slot];
            let beneath = of_vm > class && of_vm != IDLE;
            for lane in Lane::ALL {
                let own = vm == io.vm && (!slices.by_lane || lane == io.op.lane());
                if own || beneath {
                    // From now at the earliest: it had a turn, or its class was not asked.
                    let since = &mut self.since[slot * Lane::ALL.len() + lane.index()];
                    *since = since.map(|(head, _)| (head, now));
                }
            }
        }
        self.in_flight.push((io.id, now));
        self.look(engine)
    }

    /// Who has waited for too long by now.
    pub(super) fn look(&mut self, engine: &Engine) -> Verdict {
        let (Some(slices), facts) = (self.slices, engine.view()) else {
            return Ok(());
        };
        self.see_classes(&slices, engine);
        let now = facts.now();
        let quiet = now.since(self.asked.replace(now).unwrap_or(now));
        let ages = self.in_flight.iter().map(|&(_, at)| now.since(at));
        let longest = ages.max().unwrap_or(Nanos::ZERO);
        self.slowest = self.slowest.max(quiet).max(longest);
        self.in_flight.retain(|&(id, _)| engine.is_in_flight(id));
        let queues = facts.vm_slots() as u64 * (1 + slices.by_lane as u64) - 1;
        for slot in 0..facts.vm_slots() {
            let vm = facts.vm_at(slot);
            let idle = self.classes[slot] == IDLE;
            for lane in Lane::ALL {
                let head = facts.lane_head(vm, lane);
                let open = facts.gate_open(vm, lane);
                let known = &mut self.since[slot * Lane::ALL.len() + lane.index()];
                let never = idle && slices.overdue == Nanos::ZERO;
                let Some(head) = head.filter(|_| open && !never) else {
                    *known = None;
                    continue;
                };
                // Another one without a turn: the first was taken back.
                let same = known.filter(|&(first, _)| first == head);
                let (_, since) = *known.insert(same.unwrap_or((head, now)));
                let waited = now.since(since);
                let within = within(&slices, queues, self.slowest, idle);
                ensure!(
                    Starvation,
                    waited <= within,
                    "{vm:?} has waited for {waited} with a {lane:?}; its bound is {within}"
                );
            }
        }
        Ok(())
    }
}
