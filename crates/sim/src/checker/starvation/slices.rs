//! Starvation bound by time slices: within a class each other queue has one turn before a waiting
//! one.

use crate::checker::{Verdict, ensure};
use tidegate_core::engine::Engine;
use tidegate_core::request::{DeviceIo, IoId, Lane, ReqId, VmId};
use tidegate_core::starvation::Slices;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;

/// Longest wait of one of `queues` queues. `slowest` is the longest I/O, or the longest time in
/// which nobody drove the engine.
fn max_wait(slices: &Slices, queues: u64, slowest: Nanos, idle: bool) -> Nanos {
    let (longest, idles) = (slices.longest.0, slices.idle.0);
    // A queue enters behind the slices of all others less its own. Another slice each is for one
    // that overran, for others that have one left, and for its own last turn that went on without
    // it.
    let enters = (queues + 3).saturating_mul(longest);
    // A turn: until the device has room, its first I/O, the slice, an I/O that overruns it, and an
    // I/O of an idle VM behind it. A flush may precede each, and further queues of the same kind
    // may follow.
    let turn = longest + idles + slices.workload.0 + slowest.0.saturating_mul(8);
    let overdue = if idle { slices.overdue.0 } else { 0 };
    // A queue that preempts asynchronous writes has an extra turn.
    let preempting = if slices.by_lane { queues / 2 + 1 } else { 0 };
    let turns = (queues + 1 + preempting).saturating_mul(turn);
    Nanos(enters.saturating_add(turns).saturating_add(overdue))
}

/// Priority class in force, which a controller may have changed.
fn class_of(slices: &Slices, engine: &Engine, vm: VmId) -> u8 {
    let class = match slices.background {
        _ if !slices.priorities => Class::BestEffort,
        Some(class) if engine.view().is_background(vm) => class.into(),
        _ => engine.transfers().class_status(vm).class,
    };
    match class {
        Class::RealTime => 0,
        Class::BestEffort => 1,
        Class::Idle => IDLE,
    }
}

/// Number of the idle class, the lowest of the three.
const IDLE: u8 = 2;

/// Waiting units, each with the time since which it waits.
#[derive(Debug)]
pub(super) struct Turns {
    slices: Option<Slices>,
    /// By VM and lane: head, and the time since which it waits.
    since: Vec<Option<(ReqId, Nanos)>>,
    /// Class of each VM at the last check.
    classes: Vec<u8>,
    in_flight: Vec<(IoId, Nanos)>,
    slowest: Nanos,
    /// Time of the last check.
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

    pub(super) fn reset(&mut self, slices: Slices) {
        self.slices = Some(slices);
        self.since.fill(None);
        self.asked = None;
    }

    /// Resets all waiting times if the class of a VM has changed.
    fn follow_classes(&mut self, slices: &Slices, engine: &Engine) {
        let view = engine.view();
        for slot in 0..view.vm_slots() {
            let class = class_of(slices, engine, view.vm_at(slot));
            if core::mem::replace(&mut self.classes[slot], class) != class {
                self.since.fill(None);
            }
        }
    }

    pub(super) fn started(&mut self, engine: &Engine, io: &DeviceIo) -> Verdict {
        let (Some(slices), view) = (self.slices, engine.view()) else {
            return Ok(());
        };
        self.follow_classes(&slices, engine);
        let (now, class) = (view.now(), self.classes[io.vm.index()]);
        for slot in 0..view.vm_slots() {
            let vm = view.vm_at(slot);
            let of_vm = self.classes[slot];
            // An idle VM's bound covers the time in which the classes above are served.
            let beneath = of_vm > class && of_vm != IDLE;
            for lane in Lane::ALL {
                let own = vm == io.vm && (!slices.by_lane || lane == io.op.lane());
                if own || beneath {
                    // The wait counts from now at the earliest: the queue had a turn, or its class
                    // was not served.
                    let since = &mut self.since[slot * Lane::ALL.len() + lane.index()];
                    *since = since.map(|(head, _)| (head, now));
                }
            }
        }
        self.in_flight.push((io.id, now));
        self.check_waits(engine)
    }

    /// Checks how long each head has waited.
    pub(super) fn check_waits(&mut self, engine: &Engine) -> Verdict {
        let (Some(slices), view) = (self.slices, engine.view()) else {
            return Ok(());
        };
        self.follow_classes(&slices, engine);
        let now = view.now();
        // A driver that was late may make any queue wait for as long.
        let quiet = now.since(self.asked.replace(now).unwrap_or(now));
        let ages = self.in_flight.iter().map(|&(_, at)| now.since(at));
        let longest = ages.max().unwrap_or(Nanos::ZERO);
        self.slowest = self.slowest.max(quiet).max(longest);
        // Ages are taken first, so that an I/O that has just ended counts with all of its time.
        self.in_flight.retain(|&(id, _)| engine.is_in_flight(id));
        // All but the one that waits.
        let queues = view.vm_slots() as u64 * (1 + slices.by_lane as u64) - 1;
        for slot in 0..view.vm_slots() {
            let vm = view.vm_at(slot);
            let idle = self.classes[slot] == IDLE;
            for lane in Lane::ALL {
                let head = view.lane_head(vm, lane);
                let open = view.gate_open(vm, lane);
                let known = &mut self.since[slot * Lane::ALL.len() + lane.index()];
                // Without `idle_class_overdue` idle VMs may wait for ever.
                let never = idle && slices.overdue == Nanos::ZERO;
                let Some(head) = head.filter(|_| open && !never) else {
                    *known = None;
                    continue;
                };
                // A new head without a turn means that the former one was withdrawn.
                let same = known.filter(|&(first, _)| first == head);
                let (_, since) = *known.insert(same.unwrap_or((head, now)));
                let waited = now.since(since);
                let within = max_wait(&slices, queues, self.slowest, idle);
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
