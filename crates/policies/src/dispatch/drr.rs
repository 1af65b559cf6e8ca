//! Deficit round robin over VMs (Shreedhar, Varghese: Efficient fair queueing using deficit round
//! robin, SIGCOMM 1995, ToN 1996), with costs in bytes unless the parameter `cost` says otherwise.
//!
//! In every round each VM that waits has one turn: its deficit grows by its quantum, and it is
//! served while its head costs no more than its deficit. What is left stays for its next turn;
//! a VM with nothing left to serve leaves the round, and its deficit is lost.
//!
//! ```text
//!   round r        r + 1            r + 2     ...                  r + 63
//!  [ A* C ]       [ B D ]            [ ]                            [ E ]
//!    ^ on its turn  ^ had theirs, or woke                             ^ its head costs more than
//!                     in this round                                     62 quanta from here
//! ```
//!
//! The paper is O(1) only where a quantum covers the largest packet: with a smaller one there are
//! turns in which no VM can be served. Such quanta would be a mebibyte and more here. So a VM whose
//! head costs k quanta more than its deficit is put straight into the round where it will be
//! covered, on a wheel of 64 rounds, and rounds in which no VM has a turn are skipped: the order is
//! the paper's, and a pick looks at one VM, or at one more for each turn that ends.
//!
//! Decisions where the paper leaves room:
//! - A VM's quantum is `quantum` x weight / 2^s, where 2^s is the largest power of two not
//!   above any weight of a VM that waits, looked at when a round begins: the lightest gets
//!   between one and two quanta, whatever the scale of the weights.
//! - An I/O costs its bytes, at least `cost_size`, for a device pays for each I/O, too, not
//!   only for its bytes. 16 KiB is where seek-free devices begin to be bound by bytes. What
//!   moves no data (discards, zeroing where the device does it by itself) costs `cost_size`.
//! - With another `cost` than bytes (see [`cost`](super::cost)) the quantum is converted to that
//!   unit: the number of requests of `cost_size` that its bytes make, rounded up; or the device's
//!   time for a random read of its bytes, but no less than a 1024th of the time that the largest
//!   I/O can take.
//! - A flush does not wait for its turn (the engine's express lane). It costs `cost_size`, and
//!   may leave its VM in debt, by at most a quantum or `cost_size`: idle VMs keep that.
//! - A head is looked at as it will leave: no longer than its VM's largest I/O. One that grew by
//!   merging while it waited is looked at again on its turn. What continues it goes along only as
//!   far as the deficit covers it, and not at all where it is not bytes that count.
//! - A VM whose gates are shut has left the round like one with nothing waiting.
//!
//! Bounds, with Q a VM's quantum as above and C the largest cost of an I/O of it:
//! - Fairness: while both wait and s stays, VMs i and j are served costs that differ, each by
//!   weight, by at most `quantum`/2^s + C(i)/w(i) + C(j)/w(j).
//! - Starvation: from the moment a VM i waits until it is served, each other VM j is served at
//!   most (R + 1) Q(j) + C(j), where R = (C(i) + i's debt) / Q(i), rounded up. Where s changes
//!   meanwhile, with the smallest Q(i) and the largest Q(j), and R + 1 more for each change.

use super::cost::{CostModel, CostParams};
use tidegate_base::device::DeviceSpec;
use tidegate_base::objective::Objective;
use tidegate_base::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use tidegate_core::part::{Capacity, Enforces, ParamInfo, ParamKind, PartDescriptor};
use tidegate_core::roles::{Dispatcher, Event, Footprint, Interests, Knob, Pick};
use tidegate_core::starvation::{Bound, Lead, Shares, Weights};
use tidegate_core::view::{NIL, Unit, View};

/// Parameters of [`Drr`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DrrParams {
    /// Amount that the lightest VM may spend in a round, in bytes; `CostModel::worth` converts it.
    pub quantum: u32,
    /// Cost of an I/O.
    pub cost: CostParams,
}

/// Registry entry of the `drr` dispatcher.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Dispatcher> = PartDescriptor {
    name: "drr",
    summary: "shares by weight in rounds (deficit round robin)",
    params: &[
        ParamInfo {
            name: "quantum",
            kind: ParamKind::Bytes,
            default: 64 << 10,
            min: 16 << 10,
            max: 16 << 20,
            help: "bytes per turn of the VM with the smallest weight",
        },
        CostParams::BY,
        CostParams::SIZE,
    ],
    enforces: Enforces {
        weight: true,
        ..Enforces::NONE
    },
    build: |params, capacity| {
        let params = DrrParams {
            quantum: params.get("quantum") as u32,
            cost: CostParams::from_params(params),
        };
        Box::new(Drr::new(params, capacity))
    },
};

/// Rounds on the wheel: the number of bits of `Drr::occupied`.
const WHEEL_ROUNDS: u32 = u64::BITS;

/// Number of powers of two up to the largest weight.
const WEIGHT_SCALES: usize = Objective::MAX_WEIGHT.ilog2() as usize + 1;

/// State of a VM in the round robin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// Nothing to serve: the VM is in no round.
    Out,
    /// Waiting in a round's list for its turn.
    Waits,
    /// First in the current round's list, with its quantum granted.
    Has,
}

/// Deficit, weight and place in the round robin of one VM.
#[derive(Clone, Copy, Debug)]
struct Queue {
    /// Cost that the VM may still spend; below zero, the debt of its flushes.
    deficit: i64,
    weight: u32,
    /// Neighbours in the list of the VM's round; [`NIL`] at its ends.
    next: u32,
    prev: u32,
    /// Place on the wheel of the VM's round.
    slot: u8,
    turn: Turn,
}

/// List of the VMs that have their turn in one round.
#[derive(Clone, Copy, Debug)]
struct Round {
    first: u32,
    last: u32,
}

/// Dispatcher of deficit round robin over VMs.
pub struct Drr {
    params: DrrParams,
    cost: CostModel,
    /// Parameter `quantum` in points of [`CostModel`]; 0 until the first VM comes.
    quantum: u64,
    queues: Vec<Queue>,
    wheel: [Round; WHEEL_ROUNDS as usize],
    /// Bit mask of the places on the wheel that hold VMs.
    occupied: u64,
    /// Place on the wheel of the current round.
    now: u32,
    /// Exponent s of the quantum (see the module), taken when the current round began.
    scale: u32,
    /// Number of VMs in rounds by weight: entry n counts weights from 2^n up to, but not including,
    /// 2^(n + 1).
    scales: [u32; WEIGHT_SCALES],
}

impl Drr {
    /// Creates the dispatcher with room for every VM of the engine.
    pub fn new(params: DrrParams, capacity: &Capacity) -> Drr {
        let queue = Queue {
            deficit: 0,
            weight: Objective::DEFAULT_WEIGHT,
            next: NIL,
            prev: NIL,
            slot: 0,
            turn: Turn::Out,
        };
        let empty = Round {
            first: NIL,
            last: NIL,
        };
        Drr {
            params,
            cost: CostModel::new(params.cost, capacity.vms as usize),
            quantum: 0,
            queues: vec![queue; capacity.vms as usize],
            wheel: [empty; WHEEL_ROUNDS as usize],
            occupied: 0,
            now: 0,
            scale: 0,
            scales: [0; WEIGHT_SCALES],
        }
    }

    /// Converts the parameter `quantum` into points, for the device and profile as they are now.
    fn set_quantum(&mut self, view: &View) {
        let device = &view.device().spec;
        self.quantum = self.cost.worth(self.params.quantum, device);
    }

    /// Returns a VM's quantum in the current round, in points.
    fn quantum(&self, vm: usize) -> i64 {
        // One to two times `quantum` for the lightest VM when the round began, in proportion for
        // others.
        ((self.quantum * self.queues[vm].weight as u64) >> self.scale) as i64
    }

    /// Returns the largest cost that a unit's next I/O can have without merging.
    fn cost_of_head(&self, view: &View, unit: &Unit) -> i64 {
        let largest = view.largest_io(unit.vm);
        self.cost.head_cost(view, unit, largest) as i64
    }

    /// Appends a VM to the list of the round that is `rounds` rounds ahead.
    fn append(&mut self, vm: usize, rounds: u32) {
        let slot = (self.now + rounds) % WHEEL_ROUNDS;
        let round = &mut self.wheel[slot as usize];
        let last = round.last;
        round.last = vm as u32;
        match last {
            NIL => round.first = vm as u32,
            last => self.queues[last as usize].next = vm as u32,
        }
        self.occupied |= 1 << slot;
        let queue = &mut self.queues[vm];
        queue.next = NIL;
        queue.prev = last;
        queue.slot = slot as u8;
        queue.turn = Turn::Waits;
    }

    /// Takes a VM out of its round's list.
    fn unlink(&mut self, vm: usize) {
        let Queue {
            next, prev, slot, ..
        } = self.queues[vm];
        let round = &mut self.wheel[slot as usize];
        match prev {
            NIL => round.first = next,
            p => self.queues[p as usize].next = next,
        }
        match next {
            NIL => round.last = prev,
            n => self.queues[n as usize].prev = prev,
        }
        if round.first == NIL {
            self.occupied &= !(1 << slot);
        }
    }

    /// Adds a VM to the next round.
    fn join(&mut self, vm: usize) {
        self.scales[self.queues[vm].weight.ilog2() as usize] += 1;
        // The next round, not this one: a VM that leaves and joins again gains no second turn.
        self.append(vm, 1);
    }

    /// Takes a VM out of its round. It loses its deficit, but keeps its debt.
    fn leave(&mut self, vm: usize) {
        if self.queues[vm].turn == Turn::Out {
            return;
        }
        self.unlink(vm);
        let queue = &mut self.queues[vm];
        queue.turn = Turn::Out;
        // A debt stays, else a VM could flush, leave and come back without it.
        queue.deficit = queue.deficit.min(0);
        self.scales[queue.weight.ilog2() as usize] -= 1;
    }

    /// Adds or removes a VM after its head or gates changed.
    fn refresh(&mut self, view: &View, vm: VmId) {
        let out = self.queues[vm.index()].turn == Turn::Out;
        match (out, view.has_head(vm)) {
            (true, true) => self.join(vm.index()),
            (false, false) => self.leave(vm.index()),
            (true, false) | (false, true) => {}
        }
    }

    /// Advances to the next round that holds a VM; returns `false` if there is none.
    fn next_round(&mut self) -> bool {
        if self.occupied == 0 {
            return false;
        }
        // The current round is empty here, so the distance is at least 1.
        let ahead = self.occupied.rotate_right(self.now).trailing_zeros();
        self.now = (self.now + ahead) % WHEEL_ROUNDS;
        // The lightest VM that waits sets the scale, so that its quantum is between one and two
        // times `quantum`.
        let least = self.scales.iter().position(|&vms| vms > 0);
        self.scale = least.expect("a VM in a round counts") as u32;
        true
    }

    /// Ends a VM's turn and moves the VM to the first round whose quanta cover the cost of its
    /// head. Quanta of the rounds that it skips are granted now, at the current scale.
    fn end_turn(&mut self, vm: usize, cost: i64) {
        self.unlink(vm);
        let quantum = self.quantum(vm);
        let missing = cost - self.queues[vm].deficit;
        let rounds = if missing <= quantum {
            1
        } else {
            let needed = (missing as u64).div_ceil(quantum as u64);
            // A head that costs more quanta than the wheel has rounds is checked again after a full
            // wheel.
            needed.min(WHEEL_ROUNDS as u64 - 1) as i64
        };
        // The quantum of the round in which the VM has its turn is granted there.
        self.queues[vm].deficit += (rounds - 1) * quantum;
        // At most 63 rounds ahead, so the place is never the current round's.
        self.append(vm, rounds as u32);
    }

    /// Charges an I/O to its VM's deficit.
    fn charge(&mut self, view: &View, io: &DeviceIo) {
        let vm = io.vm.index();
        let cost = self.cost.charge(view, io) as i64;
        let quantum = self.quantum(vm);
        let queue = &mut self.queues[vm];
        let before = queue.deficit;
        queue.deficit -= cost;
        if io.op == Op::Flush {
            // A VM's debt by flushes is bounded, so that it cannot delay its other I/Os for ever.
            let most = quantum.max(cost);
            // `min(before)`: the bound forgives nothing that the VM owed already.
            queue.deficit = queue.deficit.max(-most).min(before);
        }
        // If this was the VM's last unit, the engine calls `remove` next.
    }

    fn set_weight(&mut self, vm: usize, weight: u32) {
        let queue = &mut self.queues[vm];
        // Only VMs in rounds are counted.
        if queue.turn != Turn::Out {
            self.scales[queue.weight.ilog2() as usize] -= 1;
            self.scales[weight.ilog2() as usize] += 1;
        }
        queue.weight = weight;
    }
}

impl Dispatcher for Drr {
    fn interests(&self) -> Interests {
        (Interests::STARTED.union(Interests::VMS)).union(self.cost.interests())
    }

    fn by_lane(&self) -> bool {
        true
    }

    fn insert(&mut self, view: &View, unit: ReqId) {
        let (vm, _) = view.queued(unit).vm_lane();
        if self.queues[vm.index()].turn == Turn::Out {
            self.refresh(view, vm);
        }
    }

    fn remove(&mut self, view: &View, unit: ReqId) {
        let (vm, _) = view.queued(unit).vm_lane();
        if !view.has_head(vm) {
            self.leave(vm.index());
        }
    }

    fn gate(&mut self, view: &View, vm: VmId, _lane: Lane, _open: bool) {
        self.refresh(view, vm);
    }

    fn on_event(&mut self, view: &View, event: &Event) {
        self.cost.on_event(view, event);
        match *event {
            Event::Started(io) => self.charge(view, io),
            Event::ProfileChanged => self.set_quantum(view),
            Event::VmAdded(vm) => {
                // Events of VMs are the first at which the device and its profile can be read.
                self.set_quantum(view);
                self.set_weight(vm.index(), view.objective(vm).weight);
                self.queues[vm.index()].deficit = 0;
                self.refresh(view, vm);
            }
            Event::VmChanged(vm) => self.set_weight(vm.index(), view.objective(vm).weight),
            Event::VmRemoved(vm) => self.leave(vm.index()),
            _ => {}
        }
    }

    fn set(&mut self, _view: &View, vm: VmId, knob: Knob) {
        if let Knob::Weight(weight) = knob {
            self.set_weight(vm.index(), weight.clamp(1, Objective::MAX_WEIGHT));
        }
    }

    fn starvation(&self, device: &DeviceSpec, profile: Option<&Profile>) -> Bound {
        let cost = self.cost.stated(device, profile);
        Bound::Shares(Shares {
            cost,
            largest: cost.largest(device),
            weights: Weights::Objectives,
            lead: Lead::Turns {
                quantum: (self.cost).stated_worth(self.params.quantum, device, profile),
            },
        })
    }

    fn pick(&mut self, view: &View) -> Pick {
        loop {
            let first = self.wheel[self.now as usize].first;
            if first == NIL {
                if self.next_round() {
                    continue;
                }
                return Pick::Idle(Nanos::MAX);
            }
            let vm = first as usize;
            let head = view
                .head(view.vm_at(vm))
                .expect("a VM in a round has a head");
            if self.queues[vm].turn == Turn::Waits {
                self.queues[vm].turn = Turn::Has;
                self.queues[vm].deficit += self.quantum(vm);
            }
            let unit = view.queued(head).unit();
            let (cost, deficit) = (self.cost_of_head(view, &unit), self.queues[vm].deficit);
            if cost <= deficit {
                return Pick::Start {
                    head,
                    max: self.cost.max_bytes(&unit, deficit as u64),
                    held: Nanos::ZERO,
                };
            }
            self.end_turn(vm, cost);
        }
    }

    fn footprint(&self) -> Footprint {
        Footprint {
            vm: size_of::<Queue>(),
            vm_cold: self.cost.bytes_per_vm(),
            ..Footprint::default()
        }
    }
}
