//! The slab of requests and the lanes they wait in.

use super::{Engine, EngineConfig, InFlight};
use crate::facts::{Cold, Edges, Facts, Hot, LaneQueue, Life, NIL, Vm, flag, state};
use crate::stats::Ledger;
use crate::watch::meter::Kind;
use tidegate_base::device::{BackgroundFacts, DeviceFacts, PartFacts};
use tidegate_base::objective::Objective;
use tidegate_base::request::{DeviceIo, DiskId, IoId, Lane, Op, VmId};
use tidegate_base::time::Nanos;

const NO_DISK: DiskId = DiskId {
    index: NIL,
    generation: NIL,
};

impl EngineConfig {
    pub(super) fn empty_facts(&self) -> Facts {
        Facts {
            now: Nanos::ZERO,
            device: DeviceFacts {
                spec: self.device,
                in_flight: 0,
                requests: 0,
                queued: 0,
                pending: 0,
                started: 0,
                ended: 0,
                errors: 0,
                last_end: Nanos::ZERO,
                idle: Nanos::ZERO,
                last_addr: 0,
                deliberate: Nanos::ZERO,
                background: BackgroundFacts::default(),
                parts: PartFacts::default(),
            },
            vms: Vec::new(),
            objectives: Vec::<Objective>::new(),
            allocations: Vec::new(),
            ledgers: Vec::<Ledger>::new(),
            hot: Vec::new(),
            cold: Vec::new(),
            profile: None,
            estimator: None,
            jobs: None,
        }
    }
}

impl Vm {
    pub(super) fn vacant() -> Vm {
        Vm {
            lanes: [LaneQueue::EMPTY; 2],
            shut: [0; 2],
            life: Life::Free,
            background: false,
            spent: false,
            has_job: false,
            shelved: false,
            generation: 0,
            waiting: 0,
            requests: 0,
            in_flight: 0,
            merge_limit: 0,
            largest_io: 0,
            arrived: 0,
            answered: 0,
            second: 0,
            holders: 0,
            shut_sum: [0; 2],
            quiet_since: Nanos::MAX,
            edges: Edges::NONE,
        }
    }
}

impl Engine {
    /// Everything the request path will ever need, allocated once.
    pub(super) fn fill_slabs(&mut self) {
        let hot = Hot {
            generation: 0,
            state: state::FREE,
            op: Op::Read,
            flags: 0,
            vm: NIL,
            len: 0,
            issued: 0,
            unit_len: 0,
            seq: 0,
            addr: 0,
            next: NIL,
            prev: NIL,
            chain_next: NIL,
            chain_last: NIL,
            unit_reqs: 0,
            chain_first: NIL,
        };
        let requests = self.config.max_requests;
        self.facts.hot = (1..=requests).map(|next| Hot { next, ..hot }).collect();
        self.facts.hot[requests as usize - 1].next = NIL;
        self.facts.cold = vec![Cold::VACANT; requests as usize];
        self.free_req = 0;

        self.grow_in_flight(self.config.device.depth);
    }

    /// Makes the slab of I/Os this large; new slots are taken after all that are free now.
    pub(super) fn grow_in_flight(&mut self, slots: u32) {
        let before = self.in_flight.len() as u32;
        let vacant = |next: u32| InFlight {
            io: DeviceIo {
                id: IoId {
                    index: 0,
                    generation: 0,
                },
                vm: VmId {
                    index: NIL,
                    generation: NIL,
                },
                disk: NO_DISK,
                op: Op::Read,
                addr: 0,
                offset: 0,
                len: 0,
                fua: false,
                keep_allocated: false,
                first_ops: 0,
                first_bytes: 0,
                part_of: 0,
                arrived: Nanos::ZERO,
            },
            generation: 0,
            live: false,
            first: NIL,
            first_offset: 0,
            reqs: 0,
            part: false,
            counted: true,
            started: Nanos::ZERO,
            kind: Kind::OTHER,
            next_free: if next == slots { NIL } else { next },
        };
        self.in_flight.extend((before + 1..=slots).map(vacant));
        let (mut last, mut next) = (NIL, self.free_io);
        while next != NIL {
            (last, next) = (next, self.in_flight[next as usize].next_free);
        }
        match last {
            NIL => self.free_io = before,
            last => self.in_flight[last as usize].next_free = before,
        }
    }

    /// Puts a unit at the end of its lane, where almost every unit belongs. Returns whether it
    /// stands there alone.
    pub(super) fn link_last(&mut self, slot: u32, vm: u32, lane: Lane, state: u8) -> bool {
        let Facts {
            hot, vms, device, ..
        } = &mut self.facts;
        let of_vm = &mut vms[vm as usize];
        device.background.queued += u32::from(of_vm.background);
        let queue = &mut of_vm.lanes[lane.index()];
        let last = core::mem::replace(&mut queue.tail, slot);
        if state == state::PENDING {
            device.pending += 1;
            if queue.pending == NIL {
                queue.pending = slot;
            }
        }
        let this = &mut hot[slot as usize];
        this.state = state;
        this.next = NIL;
        this.prev = last;
        device.queued += 1;
        if last == NIL {
            queue.head = slot;
        } else {
            hot[last as usize].next = slot;
        }
        last == NIL
    }

    /// Puts a unit into its lane before `next` (`NIL`: at the end). Its state says whether it
    /// is admitted; admitted units stand before pending ones.
    pub(super) fn link(&mut self, slot: u32, next: u32) {
        let hot = &mut self.facts.hot;
        let (vm, lane) = (
            hot[slot as usize].vm as usize,
            hot[slot as usize].op.lane().index(),
        );
        let queue = &mut self.facts.vms[vm].lanes[lane];
        let prev = match next {
            NIL => queue.tail,
            next if next == queue.head => NIL,
            next => hot[next as usize].prev,
        };
        hot[slot as usize].next = next;
        hot[slot as usize].prev = prev;
        match prev {
            NIL => queue.head = slot,
            p => hot[p as usize].next = slot,
        }
        match next {
            NIL => queue.tail = slot,
            n => hot[n as usize].prev = slot,
        }
        let held = hot[slot as usize].state == state::PENDING;
        if held && queue.pending == next {
            queue.pending = slot;
        }
        let device = &mut self.facts.device;
        device.queued += 1;
        device.pending += u32::from(held);
        device.background.queued += u32::from(self.facts.vms[vm].background);
        self.count_holder(slot);
    }

    /// Counts a unit of a lane if it is of reads that hold payload memory.
    #[inline]
    pub(super) fn count_holder(&mut self, slot: u32) {
        let hot = &mut self.facts.hot;
        let Hot {
            op,
            flags,
            chain_first,
            vm,
            ..
        } = hot[slot as usize];
        let holds = hot[chain_first as usize].flags & flag::HOLDS != 0;
        if op == Op::Read && holds && flags & flag::HOLDER == 0 {
            hot[slot as usize].flags |= flag::HOLDER;
            self.facts.vms[vm as usize].holders += 1;
            self.asks_starved = true;
        }
    }

    /// Takes a unit out of its lane; returns the unit that stood behind it.
    pub(super) fn unlink(&mut self, slot: u32) -> u32 {
        let Facts {
            hot, vms, device, ..
        } = &mut self.facts;
        device.queued -= 1;
        device.pending -= u32::from(hot[slot as usize].state == state::PENDING);
        let of_vm = &mut vms[hot[slot as usize].vm as usize];
        device.background.queued -= u32::from(of_vm.background);
        unlink(hot, of_vm, slot)
    }

    /// The slots of a unit's guest requests, in the order of their addresses.
    pub(super) fn chain(&self, unit: u32) -> impl Iterator<Item = u32> + '_ {
        let mut slot = self.facts.hot[unit as usize].chain_first;
        let mut left = self.facts.hot[unit as usize].unit_reqs;
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            left -= 1;
            let this = slot;
            slot = self.facts.hot[this as usize].chain_next;
            Some(this)
        })
    }

    /// Makes one guest request a unit of its own (not linked yet).
    pub(super) fn make_unit(&mut self, slot: u32, state: u8, seq: u64) {
        let hot = &mut self.facts.hot[slot as usize];
        hot.state = state;
        hot.seq = seq;
        hot.unit_len = hot.len;
        hot.unit_reqs = 1;
        hot.chain_first = slot;
        hot.chain_last = slot;
        hot.chain_next = NIL;
    }

    /// Splits a unit behind its first `reqs` guest requests into two that take its place. Each has its
    /// name, and so its deadline, from what came first of it, and the one that did so before the other
    /// is first. Returns the one with the requests behind.
    pub(super) fn split_unit(&mut self, unit: u32, reqs: u32) -> u32 {
        let Hot {
            state: was,
            seq,
            chain_first,
            chain_last,
            unit_len,
            unit_reqs,
            ..
        } = self.facts.hot[unit as usize];
        debug_assert!(reqs > 0 && reqs < unit_reqs);
        let (last_of_front, front_len) = self
            .chain(unit)
            .take(reqs as usize)
            .fold((NIL, 0), |(_, len), slot| {
                (slot, len + self.facts.hot[slot as usize].len)
            });
        let first_of_rest = self.facts.hot[last_of_front as usize].chain_next;
        let arrived = |slot: u32| self.facts.cold[slot as usize].arrived;
        let came_first = |half: &mut dyn Iterator<Item = u32>| {
            half.min_by_key(|&slot| arrived(slot))
                .expect("none is empty")
        };
        let front = came_first(&mut self.chain(unit).take(reqs as usize));
        let rest = came_first(&mut self.chain(unit).skip(reqs as usize));
        let in_order = match arrived(front) <= arrived(rest) {
            true => [front, rest],
            false => [rest, front],
        };
        self.withdraw(unit);
        let next = self.unlink(unit);
        self.facts.hot[unit as usize].state = state::PASSENGER;
        self.facts.hot[last_of_front as usize].chain_next = NIL;
        self.facts.hot[last_of_front as usize].flags |= flag::FOLLOWED;
        let of_front = (front, chain_first, last_of_front, front_len, reqs);
        let (rest_len, rest_reqs) = (unit_len - front_len, unit_reqs - reqs);
        let of_rest = (rest, first_of_rest, chain_last, rest_len, rest_reqs);
        for (slot, first, last, len, reqs) in [of_front, of_rest] {
            let this = &mut self.facts.hot[slot as usize];
            // Both keep the unit's place in the order of arrival.
            this.seq = seq;
            this.chain_first = first;
            this.chain_last = last;
            this.unit_len = len;
            this.unit_reqs = reqs;
            this.state = was;
        }
        let [ahead, behind] = in_order;
        self.link(behind, next);
        self.link(ahead, behind);
        for slot in in_order {
            self.announce(slot);
        }
        rest
    }

    /// Splits a unit into one for each of its guest requests.
    pub(super) fn break_up(&mut self, unit: u32) {
        let mut rest = unit;
        while self.facts.hot[rest as usize].unit_reqs > 1 {
            rest = self.split_unit(rest, 1);
        }
    }

    /// An admitted unit leaves the dispatcher's index.
    pub(super) fn withdraw(&mut self, unit: u32) {
        if self.facts.hot[unit as usize].state == state::ADMITTED {
            let id = self.facts.req_id(unit);
            self.roles.dispatcher.remove(&self.facts, id);
        }
    }

    /// An admitted unit enters the dispatcher's index.
    pub(super) fn announce(&mut self, unit: u32) {
        if self.facts.hot[unit as usize].state == state::ADMITTED {
            let id = self.facts.req_id(unit);
            self.roles.dispatcher.insert(&self.facts, id);
        }
    }

    /// The time a lane's gate has been shut, in all.
    pub(super) fn shut_time(&self, vm: u32, lane: Lane) -> Nanos {
        self.facts.vms[vm as usize].shut_time(lane, self.facts.now)
    }
}

/// Takes a unit out of its lane; returns the unit that stood behind it. A first unit's `prev`
/// is left as it was: with many VMs the new first unit's line is far away, and a store that
/// waits for it holds up all later ones.
#[inline(always)]
pub(super) fn unlink(hot: &mut [Hot], of_vm: &mut Vm, slot: u32) -> u32 {
    let Hot {
        next,
        prev,
        op,
        flags,
        ..
    } = hot[slot as usize];
    if flags & flag::HOLDER != 0 {
        hot[slot as usize].flags &= !flag::HOLDER;
        of_vm.holders -= 1;
    }
    let queue = &mut of_vm.lanes[op.lane().index()];
    if queue.pending == slot {
        queue.pending = next;
    }
    let first = queue.head == slot;
    if first {
        queue.head = next;
    } else {
        hot[prev as usize].next = next;
    }
    if next == NIL {
        queue.tail = if first { NIL } else { prev };
    } else if !first {
        hot[next as usize].prev = prev;
    }
    next
}
