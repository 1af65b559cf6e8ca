//! Starvation bound by weight: limits the cost that each VM is served while the head of another one
//! waits.
//!
//! The bound holds among VMs that differ in nothing but weight. It is not checked while a floor is
//! in force, for a VM that the dispatcher itself limits, between VMs of different priority classes
//! or groups where the dispatcher enforces those, or for background processes. Where weights are
//! allocations, those in force are read at each start, and the bound uses the largest ratio of the
//! two VMs' weights since the waiting one began to wait.
//!
//! The forms of the bound are those of [`Lead`]; dispatchers derive its figures
//! (`tidegate_policies::dispatch`, at `starvation`).

use crate::checker::{Verdict, ensure};
use std::collections::VecDeque;
use tidegate_core::engine::{DeviceSpec, Engine};
use tidegate_core::objective::Priority;
use tidegate_core::part::Enforces;
use tidegate_core::profile::{Access, Direction, Profile};
use tidegate_core::request::{DeviceIo, Op, ReqId, VmId};
use tidegate_core::roles::Knob;
use tidegate_core::starvation::{Cost, Lead, Shares, Weights};
use tidegate_core::view::View;
use tidegate_policies::policy::{dispatchers, regulators};

/// Bytes that an I/O transfers at the device.
fn moved(io: &DeviceIo, device: &DeviceSpec) -> u64 {
    match io.op {
        Op::Read | Op::Write => io.len.into(),
        Op::WriteZeroes if device.zeroes_are_writes => io.len.into(),
        Op::WriteZeroes | Op::Discard | Op::Flush => 0,
    }
}

/// Number of end addresses that are remembered of each VM: as many as the estimator of costs
/// remembers.
const ENDS: usize = 32;

/// End addresses of the last [`ENDS`] I/Os of a VM.
#[derive(Clone, Default, Debug)]
struct Ends(VecDeque<u64>);

impl Ends {
    fn push(&mut self, end: u64) {
        self.0.push_back(end);
        if self.0.len() > ENDS {
            self.0.pop_front();
        }
    }
}

/// Stream of a VM, as far as it can be observed. A new dispatcher starts without a stream, and the
/// time of its start is not reported. What the dispatcher remembers lies between the two lists: at
/// least the I/Os since the last reset, at most those since its VM was added.
#[derive(Clone, Default, Debug)]
struct Stream {
    vm: Option<VmId>,
    since_reset: Ends,
    since_vm_added: Ends,
    /// Access patterns of the last read and the last write that began a request; `None`: unclear.
    begun: [Option<Access>; 2],
}

impl Stream {
    /// Lower bound of the device time of an I/O, in picoseconds. If it is unclear whether the I/O
    /// counts as sequential, the smaller of both times counts.
    fn time(&self, view: &View, io: &DeviceIo, bytes: u64) -> u64 {
        let Some(costs) = view.costs() else {
            return Profile::UNKNOWN_PS;
        };
        let time = |direction, access| costs.time_ps(direction, access, bytes as u32);
        if bytes == 0 {
            // Operations without data are charged as the least write that the profile knows.
            return time(Direction::Write, Access::Random);
        }
        let direction = Direction::for_op(io.op);
        match self.access(view, io) {
            Some(access) => time(direction, access),
            None => {
                let [sequential, random] =
                    [Access::Sequential, Access::Random].map(|access| time(direction, access));
                sequential.min(random)
            }
        }
    }

    /// Access pattern of an I/O, if it is clear.
    fn access(&self, view: &View, io: &DeviceIo) -> Option<Access> {
        // On a measured device that does not seek, a request's parts are of one access pattern.
        if io.first_ops == 0 && !view.device().seeks && view.profile().is_some() {
            return self.begun[Direction::for_op(io.op) as usize];
        }
        let continues = |ends: &Ends| ends.0.contains(&io.addr);
        match [&self.since_reset, &self.since_vm_added].map(continues) {
            [true, _] => Some(Access::Sequential),
            [false, false] => Some(Access::Random),
            [false, true] => None,
        }
    }

    /// Follows an I/O that went.
    fn follow(&mut self, view: &View, io: &DeviceIo) {
        let bytes = moved(io, &view.device().spec);
        if bytes > 0 {
            self.begun[Direction::for_op(io.op) as usize] = self.access(view, io);
            self.since_reset.push(io.addr + bytes);
            self.since_vm_added.push(io.addr + bytes);
        }
    }

    /// Forgets what another dispatcher knew.
    fn reset(&mut self) {
        self.since_reset.0.clear();
        self.begun = [None; 2];
    }
}

/// Cost of an I/O that depends on the I/O alone.
pub(super) fn cost_of(cost: Cost, io: &DeviceIo, device: &DeviceSpec) -> u64 {
    let bytes = moved(io, device);
    match cost {
        Cost::Bytes { least } => bytes.max(least),
        Cost::Requests => io.first_ops.into(),
        Cost::Classes { size } => bytes.div_ceil(size).max(1),
        Cost::DeviceTime { .. } => {
            panic!("device time depends on the VM's stream; use `Stream::time`")
        }
    }
}

/// Largest ratio of two VMs' weights while the one waits.
#[derive(Clone, Copy, Debug)]
struct WidestRatio {
    /// Weight of the served VM when the ratio was largest.
    served: u64,
    /// Weight of the waiting VM at that time.
    waiting: u64,
    /// Number of changes of either weight.
    changes: u64,
}

/// Cost that each VM was served while another one waited.
#[derive(Debug)]
pub(super) struct ServedWhileWaiting {
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
    /// Weights of each pair of VMs since the one waits, by the index of `served`.
    widest: Vec<WidestRatio>,
    lightest: u64,
    /// For turns: largest quantum of each VM since the policy is in force. A VM keeps what it was
    /// granted when weights change.
    quanta: Vec<u64>,
    /// Binary logarithm of the lightest weight that waits.
    scale: u32,
}

impl ServedWhileWaiting {
    pub(super) fn new(slots: usize) -> ServedWhileWaiting {
        ServedWhileWaiting {
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
            widest: vec![
                WidestRatio {
                    served: 0,
                    waiting: 1,
                    changes: 0
                };
                slots * slots
            ],
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
        (0..self.slots).for_each(|slot| self.reset_waiter(slot));
        // A new dispatcher knows no stream; the earlier ends stay in `since_vm_added`.
        self.streams.iter_mut().for_each(Stream::reset);
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
        self.stream(io.vm).follow(engine.view(), io);
    }

    pub(super) fn started(&mut self, engine: &Engine, io: &DeviceIo) -> Verdict {
        let Some(shares) = self.shares else {
            return Ok(());
        };
        let (view, served) = (engine.view(), io.vm.index());
        if let Weights::Allocations { .. } = shares.weights {
            self.update_allocations(engine);
        }
        if io.op == Op::Flush {
            // A flush goes outside the order, but is charged to its VM.
            self.reset_waiter(served);
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
                self.stream(io.vm).time(view, io, bytes)
            }
            cost => cost_of(cost, io, device),
        };
        self.stream(io.vm).follow(view, io);
        for slot in 0..view.vm_slots() {
            let head = head_of(slot);
            // With another head than before, the VM may have waited for nothing in between.
            let same = head == std::mem::replace(&mut self.heads[slot], head);
            if slot == served || head.is_none() || !same {
                self.reset_waiter(slot);
                continue;
            }
            let incomparable = self.classes[slot] != self.classes[served]
                || self.grouped[slot]
                || self.grouped[served]
                || view.is_background(io.vm);
            if self.reserved || self.limited[slot] || incomparable {
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
    fn reset_waiter(&mut self, waits: usize) {
        let row = waits * self.slots..(waits + 1) * self.slots;
        self.served[row.clone()].fill(0);
        for (widest, &weight) in self.widest[row].iter_mut().zip(&self.weights) {
            *widest = WidestRatio {
                served: weight,
                waiting: self.weights[waits],
                changes: 0,
            };
        }
    }

    /// Takes over allocations that have changed.
    fn update_allocations(&mut self, engine: &Engine) {
        for vm in engine.view().vms() {
            let Some(weight) = allocation(engine, vm) else {
                continue;
            };
            if core::mem::replace(&mut self.weights[vm.index()], weight) == weight {
                continue;
            }
            // Both ways: the VM may be the one that waits, or the one that is served.
            for other in 0..self.slots {
                self.update_widest_ratio(other, vm.index());
                self.update_widest_ratio(vm.index(), other);
            }
        }
    }

    fn update_widest_ratio(&mut self, waits: usize, served: usize) {
        let (served_now, waiting_now) = (self.weights[served], self.weights[waits]);
        let widest = &mut self.widest[waits * self.slots + served];
        widest.changes += 1;
        // Ratios are compared by cross products, so that nothing is rounded.
        let now = u128::from(served_now) * u128::from(widest.waiting);
        if now > u128::from(widest.served) * u128::from(waiting_now) {
            (widest.served, widest.waiting) = (served_now, waiting_now);
        }
    }

    fn allowed(&self, shares: &Shares, waits: usize, served: usize) -> u128 {
        let ratio = match shares.weights {
            Weights::Allocations { .. } => self.widest[waits * self.slots + served],
            Weights::Objectives => WidestRatio {
                served: self.weights[served],
                waiting: self.weights[waits],
                changes: 0,
            },
        };
        let [other, own] = [ratio.served, ratio.waiting].map(u128::from);
        let largest = u128::from(shares.largest);
        match shares.lead {
            // Tags are rounded, by less than a unit of cost.
            Lead::Ahead { ahead, once } => {
                let rounding = match shares.weights {
                    Weights::Allocations { rounding } => rounding * ratio.changes,
                    Weights::Objectives => 0,
                };
                u128::from(ahead) * other / own + u128::from(once + rounding) + 1
            }
            Lead::Turns { quantum } => {
                // The waiting VM's own scale gives it at least a whole quantum.
                let debt = self.quanta[waits].max(shares.cost.flush());
                let turns = (largest + u128::from(debt)).div_ceil(quantum.into());
                // The waiting VM may owe `debt` and needs `largest` for its I/O, at `quantum` a
                // turn: in each of those turns and in the one that runs, the other gets its
                // quantum. Twice, for the turns in which the scale of the quanta changes; and an
                // I/O may overdraw the last quantum by its whole cost.
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
