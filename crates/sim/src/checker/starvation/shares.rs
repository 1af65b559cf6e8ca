//! Starvation bound by weight: limits the cost that each VM is served while the head of another one
//! waits.
//!
//! The bound holds among VMs that differ in nothing but weight. It is not checked while a floor is
//! in force, for a VM that the dispatcher itself limits, between VMs of different priority classes
//! or groups where the dispatcher enforces those, or for background processes. Where weights are
//! allocations, those in force are read at each start, and the largest quotient of two VMs' weights
//! since the one waits counts.

use crate::checker::{Verdict, ensure};
use std::collections::VecDeque;
use tidegate_core::engine::{DeviceSpec, Engine};
use tidegate_core::objective::Priority;
use tidegate_core::part::Enforces;
use tidegate_core::profile::{Access, Direction, Profile};
use tidegate_core::request::{DeviceIo, Op, ReqId, VmId};
use tidegate_core::roles::Knob;
use tidegate_core::starvation::{Cost, Lead, Shares, Weights};
use tidegate_policies::policy::{dispatchers, regulators};

/// Bytes that an I/O transfers at the device.
fn moved(io: &DeviceIo, device: &DeviceSpec) -> u64 {
    match io.op {
        Op::Read | Op::Write => io.len.into(),
        Op::WriteZeroes if device.zeroes_are_writes => io.len.into(),
        Op::WriteZeroes | Op::Discard | Op::Flush => 0,
    }
}

/// End addresses of the last 32 I/Os of a VM.
#[derive(Clone, Default, Debug)]
struct Ends(VecDeque<u64>);

impl Ends {
    fn push(&mut self, end: u64) {
        self.0.push_back(end);
        // 32, as many as the estimator of costs remembers of each VM.
        if self.0.len() > 32 {
            self.0.pop_front();
        }
    }
}

/// Stream of a VM, as far as it can be observed. A new dispatcher starts without a stream, and the
/// time of its start is not reported: it knows the I/Os since the last reset, and none from before
/// its VM came.
#[derive(Clone, Default, Debug)]
struct Stream {
    vm: Option<VmId>,
    known: Ends,
    all: Ends,
}

impl Stream {
    /// Lower bound of the device time of an I/O with this profile, in picoseconds. If it is unclear
    /// whether the I/O counts as sequential, the smaller of both times counts.
    fn time(&mut self, profile: Option<&Profile>, io: &DeviceIo, bytes: u64) -> u64 {
        let Some(profile) = profile else {
            return Profile::UNKNOWN_PS;
        };
        let time = |direction, access| profile.time_ps(direction, access, bytes as u32);
        if bytes == 0 {
            // Operations without data are charged as the least write that the profile knows.
            return time(Direction::Write, Access::Random);
        }
        let [known, all] = [&self.known, &self.all].map(|ends| ends.0.contains(&io.addr));
        let of = |access| time(Direction::for_op(io.op), access);
        let [sequential, random] = [Access::Sequential, Access::Random].map(of);
        match (known, all) {
            (true, _) => sequential,
            (false, false) => random,
            (false, true) => sequential.min(random),
        }
    }

    fn record_end(&mut self, io: &DeviceIo, bytes: u64) {
        if bytes > 0 {
            self.known.push(io.addr + bytes);
            self.all.push(io.addr + bytes);
        }
    }
}

/// Cost of an I/O that depends on the I/O alone.
pub(super) fn cost_of(cost: Cost, io: &DeviceIo, device: &DeviceSpec) -> u64 {
    let bytes = moved(io, device);
    match cost {
        Cost::Bytes { least } => bytes.max(least),
        Cost::Requests => io.first_ops.into(),
        Cost::Classes { size } => bytes.div_ceil(size).max(1),
        Cost::DeviceTime { .. } => panic!("that takes its VM's stream"),
    }
}

/// Cost that each VM was served while another one waited.
#[derive(Debug)]
pub(super) struct Passed {
    shares: Option<Shares>,
    /// `true` while a floor is in force, which suspends the bound.
    reserved: bool,
    slots: usize,
    weights: Vec<u64>,
    /// VMs that the dispatcher holds to a limit.
    limited: Vec<bool>,
    /// Priority class of each VM; 0 where the dispatcher does not enforce priorities.
    classes: Vec<u8>,
    /// VMs that share a weight as a group.
    grouped: Vec<bool>,
    /// Streams by VM slot.
    streams: Vec<Stream>,
    /// Heads of the VMs when an I/O started last.
    heads: Vec<Option<ReqId>>,
    /// Cost served, indexed by `waits * slots + served`.
    served: Vec<u64>,
    /// By the same index: weights of the served and the waiting VM when their quotient was largest
    /// since the latter waits, and the number of changes of either.
    apart: Vec<([u64; 2], u64)>,
    lightest: u64,
    /// For turns: largest quantum of each VM since the policy is in force. A VM keeps what it was
    /// granted when weights change.
    quanta: Vec<u64>,
    /// Binary logarithm of the lightest weight that waits.
    scale: u32,
}

impl Passed {
    pub(super) fn new(slots: usize) -> Passed {
        Passed {
            shares: None,
            reserved: false,
            slots,
            weights: vec![1; slots],
            limited: vec![false; slots],
            classes: vec![0; slots],
            grouped: vec![false; slots],
            streams: vec![Stream::default(); slots],
            heads: vec![None; slots],
            served: vec![0; slots * slots],
            apart: vec![([0, 1], 0); slots * slots],
            lightest: 1,
            quanta: vec![0; slots],
            scale: 0,
        }
    }

    pub(super) fn reset(&mut self, engine: &Engine, shares: Shares) {
        // Another policy: what the former one granted is not in its quanta.
        if self.shares != Some(shares) {
            self.quanta.fill(0);
        }
        self.shares = Some(shares);
        let by = enforced_by_dispatcher(engine);
        // Factors of priorities are applied to weights of objectives alone: a VM's former
        // allocation would otherwise be scaled again at each reset.
        assert!(
            !(by.priority && matches!(shares.weights, Weights::Allocations { .. })),
            "a dispatcher that weights by allocations enforces no priorities"
        );
        self.reserved = false;
        self.lightest = u64::MAX;
        for vm in engine.view().vms() {
            let objective = engine.vms().objective(vm);
            self.reserved |= engine.policy().has_floor(objective);
            let has_transfer = engine
                .transfers()
                .transfer(engine.view().now(), vm)
                .is_some();
            // Help for a deadline transfer acts like a floor: it overrides weights.
            self.reserved |= has_transfer && engine.policy().helps_transfers();
            self.weights[vm.index()] = match (shares.weights, by.weight) {
                (Weights::Allocations { .. }, _) => {
                    allocation(engine, vm).unwrap_or(self.weights[vm.index()])
                }
                (Weights::Objectives, true) => objective.weight.into(),
                (Weights::Objectives, false) => 1,
            };
            // Weight factors in quarters, as the dispatchers scale I/O priority levels.
            let (class, quarters) = match objective.priority {
                // Level 4 is the default of I/O priorities and has factor 1.
                Priority::RealTime => (1, 4),
                Priority::BestEffort(level) => (2, 8 - u64::from(level)),
                Priority::Idle => (3, 4),
            };
            self.classes[vm.index()] = 0;
            if by.priority {
                self.classes[vm.index()] = class;
                self.weights[vm.index()] *= quarters;
            }
            self.grouped[vm.index()] = by.group && objective.group.is_some();
            let weight = self.weights[vm.index()];
            self.lightest = self.lightest.min(weight);
            self.limited[vm.index()] = by.limit && !objective.limit.total.is_none();
        }
        (0..self.slots).for_each(|slot| self.waits_anew(slot));
        // A new dispatcher knows no stream; the earlier ends stay in `all`.
        (self.streams.iter_mut()).for_each(|stream| stream.known.0.clear());
        if let Lead::Turns { quantum } = shares.lead {
            // The scale is at least that of the lightest VM. Weights of unused slots are
            // meaningless.
            let scale = self.lightest.ilog2();
            for vm in engine.view().vms() {
                let largest = &mut self.quanta[vm.index()];
                *largest = (*largest).max((quantum * self.weights[vm.index()]) >> scale);
            }
        }
    }

    fn stream(&mut self, vm: VmId) -> &mut Stream {
        let stream = &mut self.streams[vm.index()];
        if stream.vm != Some(vm) {
            *stream = Stream {
                vm: Some(vm),
                ..Stream::default()
            };
        }
        stream
    }

    /// Follows the stream of the VM of an I/O that is not checked. The dispatcher follows it too,
    /// so a later I/O that continues this one may cost less.
    pub(super) fn follow_unchecked(&mut self, engine: &Engine, io: &DeviceIo) {
        let moved = moved(io, &engine.view().device().spec);
        self.stream(io.vm).record_end(io, moved);
    }

    pub(super) fn started(&mut self, engine: &Engine, io: &DeviceIo) -> Verdict {
        let Some(shares) = self.shares else {
            return Ok(());
        };
        let (view, served) = (engine.view(), io.vm.index());
        if let Weights::Allocations { .. } = shares.weights {
            self.follow(engine);
        }
        if io.op == Op::Flush {
            // A flush goes outside the order, but is charged to its VM.
            self.waits_anew(served);
            return Ok(());
        }
        let head_of = |slot| {
            let vm = view.vm_at(slot);
            view.head(vm).filter(|_| !view.is_background(vm))
        };
        let waits = |slot: &usize| head_of(*slot).is_some();
        let waiting = (0..view.vm_slots()).filter(waits);
        let lightest = waiting.map(|slot| self.weights[slot]).min();
        if let Some(scale) = lightest.map(u64::ilog2)
            && scale != self.scale
        {
            // Under round robin a change of the scale changes all quanta, so earlier service has no
            // bound.
            self.scale = scale;
            if matches!(shares.lead, Lead::Turns { .. }) {
                self.served.fill(0);
            }
        }
        let device = &view.device().spec;
        let cost = match shares.cost {
            Cost::DeviceTime { .. } => {
                let bytes = moved(io, device);
                self.stream(io.vm).time(view.costs(), io, bytes)
            }
            of_io => cost_of(of_io, io, device),
        };
        self.stream(io.vm).record_end(io, moved(io, device));
        for slot in 0..view.vm_slots() {
            let head = head_of(slot);
            // With another head than before, the VM may have waited for nothing in between.
            let same = head == std::mem::replace(&mut self.heads[slot], head);
            if slot == served || head.is_none() || !same {
                self.waits_anew(slot);
                continue;
            }
            let apart = self.classes[slot] != self.classes[served]
                || self.grouped[slot]
                || self.grouped[served]
                || view.is_background(io.vm);
            if self.reserved || self.limited[slot] || apart {
                continue;
            }
            let allowed = self.allowed(&shares, slot, served);
            let passed = &mut self.served[slot * self.slots + served];
            *passed += cost;
            ensure!(
                Starvation,
                u128::from(*passed) <= allowed,
                "{:?} (weight {}) waited while {:?} (weight {}) was served a cost of {passed}; \
                 its bound is {allowed}",
                view.vm_at(slot),
                self.weights[slot],
                io.vm,
                self.weights[served]
            );
        }
        Ok(())
    }

    /// Resets the cost served while `waits` waited, because it waits for nothing or for another
    /// unit now.
    fn waits_anew(&mut self, waits: usize) {
        let of = waits * self.slots..(waits + 1) * self.slots;
        self.served[of.clone()].fill(0);
        for (apart, &weight) in self.apart[of].iter_mut().zip(&self.weights) {
            *apart = ([weight, self.weights[waits]], 0);
        }
    }

    /// Takes over allocations that have changed.
    fn follow(&mut self, engine: &Engine) {
        for vm in engine.view().vms() {
            let Some(weight) = allocation(engine, vm) else {
                continue;
            };
            if core::mem::replace(&mut self.weights[vm.index()], weight) == weight {
                continue;
            }
            // Both ways: it may be the one that waits, or the one that is served.
            for other in 0..self.slots {
                self.widen(other, vm.index());
                self.widen(vm.index(), other);
            }
        }
    }

    fn widen(&mut self, waits: usize, served: usize) {
        let now = [self.weights[served], self.weights[waits]];
        let (widest, changes) = &mut self.apart[waits * self.slots + served];
        *changes += 1;
        // Quotients are compared by cross products, so that nothing is rounded.
        if u128::from(now[0]) * u128::from(widest[1]) > u128::from(widest[0]) * u128::from(now[1]) {
            *widest = now;
        }
    }

    fn allowed(&self, shares: &Shares, waits: usize, served: usize) -> u128 {
        let ([other, own], changes) = match shares.weights {
            Weights::Allocations { .. } => self.apart[waits * self.slots + served],
            Weights::Objectives => ([served, waits].map(|slot| self.weights[slot]), 0),
        };
        let [other, own] = [other, own].map(u128::from);
        let largest = u128::from(shares.largest);
        match shares.lead {
            // Tags are rounded, by less than a unit of cost.
            Lead::Ahead { ahead, once } => {
                let rounding = match shares.weights {
                    Weights::Allocations { rounding } => rounding * changes,
                    Weights::Objectives => 0,
                };
                u128::from(ahead) * other / own + u128::from(once + rounding) + 1
            }
            Lead::Turns { quantum } => {
                // The waiting VM's own scale gives it at least a whole quantum.
                let debt = self.quanta[waits].max(shares.cost.flush());
                let turns = (largest + u128::from(debt)).div_ceil(quantum.into());
                // Twice, for the turns in which the scale of the quanta changes.
                2 * (turns + 1) * u128::from(self.quanta[served]) + largest
            }
        }
    }
}

/// Weight of a VM by its allocation; `None` if it has none at present and keeps its former weight.
fn allocation(engine: &Engine, vm: VmId) -> Option<u64> {
    let (rate, [least, most]) = (
        engine.view().allocation(vm),
        [Knob::ALLOCATION_MIN, Knob::ALLOCATION_MAX],
    );
    // Dispatchers clamp allocations to these bounds, so that weights stay comparable.
    (rate > 0).then(|| rate.clamp(least, most))
}

/// Parts of an objective that the dispatcher enforces by itself, where the regulator does not.
fn enforced_by_dispatcher(engine: &Engine) -> Enforces {
    let (_, regulator, dispatcher) = engine.policy().parts();
    let by_dispatcher = dispatchers().iter().find(|part| part.name == dispatcher);
    let by_regulator = regulators().iter().find(|part| part.name == regulator);
    let mut enforces = by_dispatcher.map_or(Enforces::NONE, |part| part.enforces);
    // A regulator's limit shuts the gate, and a VM behind it does not wait.
    enforces.limit &= !by_regulator.is_some_and(|part| part.enforces.limit);
    enforces
}
