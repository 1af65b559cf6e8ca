//! A VM that waits with its gate open is passed over no longer than its dispatcher's bound.
//!
//! The bounds are those that each dispatcher's own documentation states, here in one table; a
//! dispatcher that has none in it is not tortured, and a test says so.
//!
//! | dispatcher | bound |
//! |---|---|
//! | `fifo` | what goes is what arrived first, among the lanes whose gate is open |
//! | `mclock` | while a VM waits, every other one gets at most its own weight's share of (32 I/Os of `cost_size`, or two of its own, and its own cost), plus an I/O |
//!
//! A bound by weights holds among VMs that nothing else than weights tells apart: it is not
//! held against anybody while a reservation is in force, nor for a VM that the dispatcher itself
//! holds to a limit. What a VM has been passed over is forgotten whenever an objective or the
//! policy changes, or a VM comes or goes.

use super::{Verdict, ensure};
use tidegate_core::engine::{DeviceSpec, Engine};
use tidegate_core::policy::PolicySpec;
use tidegate_core::request::{DeviceIo, Lane, Op, ReqId, VmId};

/// How long a dispatcher may pass over a VM.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Not at all: first come, first served, and the device is never left idle.
    Arrival,
    /// By weight: while a VM waits another gets at most so much a weight, and so much once.
    Weight(fn(&PolicySpec, &DeviceSpec) -> Lead),
}

/// A bound by weights, in bytes of cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lead {
    /// An I/O costs its bytes, at least this many.
    pub cost_min: u64,
    /// For each weight of the VM that waits: so much times the other's weight.
    pub by_weight: u64,
    /// And so much whatever the weights.
    pub once: u64,
}

/// The bound of each dispatcher.
pub const BOUNDS: &[(&str, Bound)] = &[("fifo", Bound::Arrival), ("mclock", Bound::Weight(mclock))];

fn mclock(policy: &PolicySpec, device: &DeviceSpec) -> Lead {
    let cost_min = param(policy, "cost_size");
    let largest = cost_min.max(device.max_io as u64);
    Lead {
        cost_min,
        by_weight: (32 * cost_min).max(2 * largest) + largest,
        once: 2 * largest,
    }
}

fn param(policy: &PolicySpec, name: &str) -> u64 {
    let mut params = policy.params();
    params
        .find(|(info, _)| info.name == name)
        .map_or(0, |(_, value)| value)
}

/// The bound of a policy's dispatcher, where the table has one.
pub fn bound_of(policy: &PolicySpec) -> Option<Bound> {
    let (_, _, dispatcher) = policy.parts();
    let known = BOUNDS.iter().find(|(name, _)| *name == dispatcher);
    known.map(|(_, bound)| *bound)
}

/// What the table promises of the next pick, seen before it.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    vm: VmId,
    lane: Lane,
    seq: u64,
}

/// The checker.
#[derive(Debug)]
pub struct Starvation {
    bound: Option<Bound>,
    lead: Lead,
    /// Nobody's weight counts while there is a reservation.
    reserved: bool,
    slots: usize,
    weights: Vec<u64>,
    /// The dispatcher holds this VM to a limit.
    limited: Vec<bool>,
    /// What each VM was served while another's head waited: `waits * slots + served`.
    passed: Vec<u64>,
}

impl Starvation {
    /// For an engine with room for so many VMs.
    pub fn new(slots: usize) -> Starvation {
        Starvation {
            bound: None,
            lead: Lead {
                cost_min: 0,
                by_weight: 0,
                once: 0,
            },
            reserved: false,
            slots,
            weights: vec![1; slots],
            limited: vec![false; slots],
            passed: vec![0; slots * slots],
        }
    }

    /// An objective or the policy has changed, a VM has come or gone.
    pub fn forget(&mut self, engine: &Engine) {
        let policy = engine.policy();
        self.bound = bound_of(policy);
        if let Some(Bound::Weight(lead)) = self.bound {
            self.lead = lead(policy, &engine.config().device);
        }
        let honours = policy.honours();
        let by_regulator = policy.parts().1 == "token-bucket";
        self.reserved = false;
        for vm in engine.view().vms() {
            let objective = engine.objective(vm);
            self.reserved |= honours.reservation && !objective.reservation.is_none();
            let weight = if honours.weight { objective.weight } else { 1 };
            self.weights[vm.index()] = weight.into();
            self.limited[vm.index()] =
                honours.limit && !by_regulator && !objective.limit.total.is_none();
        }
        self.passed.fill(0);
    }

    /// What the next pick must be, where the bound says so. To be asked with everything that is
    /// due done.
    pub fn promise(&self, engine: &Engine) -> Option<Promise> {
        let Some(Bound::Arrival) = self.bound else {
            return None;
        };
        let facts = engine.view();
        let mut first: Option<(u64, Promise)> = None;
        for slot in 0..facts.vm_slots() {
            let vm = facts.vm_at(slot);
            for lane in Lane::ALL {
                let head = facts.lane_head(vm, lane);
                let open = |_: &ReqId| facts.gate_open(vm, lane);
                let Some(seq) = head.filter(open).map(|head| facts.seq(head)) else {
                    continue;
                };
                if first.is_none_or(|(least, _)| seq < least) {
                    first = Some((seq, Promise { vm, lane, seq }));
                }
            }
        }
        first.map(|(_, promise)| promise)
    }

    /// A device I/O has started, of which the earliest request is number `first`, after a
    /// promise of what would.
    ///
    /// # Errors
    /// When it should have been another, or somebody was passed over too long.
    pub fn started(
        &mut self,
        engine: &Engine,
        io: &DeviceIo,
        first: u64,
        promise: Option<Promise>,
    ) -> Verdict {
        if io.op == Op::Flush {
            // It takes its turn outside the order, and is charged to its VM all the same.
            let slot = io.vm.index();
            self.passed[slot * self.slots..(slot + 1) * self.slots].fill(0);
            return Ok(());
        }
        if let Some(Promise { vm, lane, seq }) = promise {
            ensure!(
                Starvation,
                // What failed in company may stand in its lane behind one that came later.
                (io.vm, io.op.lane()) == (vm, lane) || first < seq,
                "{io:?} went before a {lane:?} of {vm:?} that had arrived earlier, as number {seq}"
            );
        }
        let Some(Bound::Weight(_)) = self.bound else {
            return Ok(());
        };
        let facts = engine.view();
        let bytes = match io.op {
            Op::Read | Op::Write => io.len as u64,
            Op::WriteZeroes if facts.device().spec.zeroes_are_writes => io.len as u64,
            _ => 0,
        };
        let (served, cost) = (io.vm.index(), bytes.max(self.lead.cost_min));
        for slot in 0..facts.vm_slots() {
            if slot == served || facts.head(facts.vm_at(slot)).is_none() {
                self.passed[slot * self.slots..(slot + 1) * self.slots].fill(0);
                continue;
            }
            if self.reserved || self.limited[slot] {
                continue;
            }
            let passed = &mut self.passed[slot * self.slots + served];
            *passed += cost;
            let share = self.lead.by_weight * self.weights[served] / self.weights[slot];
            let allowed = share + self.lead.once;
            ensure!(
                Starvation,
                *passed <= allowed,
                "{:?} (weight {}) waited while {:?} (weight {}) was served a cost of {passed}; \
                 its bound is {allowed}",
                facts.vm_at(slot),
                self.weights[slot],
                io.vm,
                self.weights[served]
            );
        }
        Ok(())
    }

    /// Nothing goes now, while the device has room: whether something should have.
    ///
    /// # Errors
    /// When it should.
    pub fn idle(&self, engine: &Engine) -> Verdict {
        let Some(Promise { vm, lane, .. }) = self.promise(engine) else {
            return Ok(());
        };
        ensure!(
            Starvation,
            false,
            "the device has room and a {lane:?} of {vm:?} may go, but does not"
        );
        Ok(())
    }
}
