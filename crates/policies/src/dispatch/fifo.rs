//! First in, first out over all VMs: the order of a device without a scheduler.
//!
//! One list in the order of arrival. A unit whose lane's gate is shut is moved aside when it
//! reaches the front, to its lane's own list; once the gate opens, lanes with units set aside
//! compete with the list's front by arrival. Each unit is moved at most once a shutting, so a
//! pick is O(1) while nothing is gated and O(log lanes) otherwise.
//!
//! Starvation bound: a unit waits for every unit that arrived before it, and for no other.

use tidegate_base::device::DeviceSpec;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::request::{Lane, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use tidegate_core::part::{Capacity, Enforces, PartDescriptor};
use tidegate_core::roles::{Dispatcher, Footprint, Pick};
use tidegate_core::starvation::Bound;
use tidegate_core::view::{NIL, View};

/// Registry entry of the `fifo` dispatcher.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Dispatcher> = PartDescriptor {
    name: "fifo",
    summary: "order of arrival",
    params: &[],
    enforces: Enforces::NONE,
    build: |_, capacity| Box::new(Fifo::new(capacity)),
};

/// Neighbours of a unit in its list, by request slot. 8 bytes keep a list in few cache lines: links
/// are read in the order of arrival, long after they were written.
#[derive(Clone, Copy)]
struct Link {
    next: u32,
    prev: u32,
}

/// Ends of a doubly linked list of units, by request slot; [`NIL`] where the list is empty.
#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List {
    head: NIL,
    tail: NIL,
};

/// Dispatcher that sends admitted units to the device in the order of arrival.
pub struct Fifo {
    links: Vec<Link>,
    main: List,
    /// Largest arrival number ever appended to `main`; a unit with a larger one goes to its end.
    newest: Option<u64>,
    /// Number of units set aside; while it is 0, no pick looks at the fields below.
    aside_units: u32,
    /// Flag by request slot: the unit is set aside.
    is_aside: Vec<bool>,
    /// Units set aside, a list for each lane.
    aside: Vec<List>,
    /// Lanes with units set aside whose gate is open, by the arrival of their first unit.
    reopened: IndexedHeap<u64>,
}

impl Fifo {
    /// Creates the dispatcher with room for every VM and request of the engine.
    pub fn new(capacity: &Capacity) -> Fifo {
        let lanes = capacity.vms as usize * Lane::ALL.len();
        let link = Link {
            next: NIL,
            prev: NIL,
        };
        Fifo {
            links: vec![link; capacity.requests as usize],
            main: EMPTY,
            newest: None,
            aside_units: 0,
            is_aside: vec![false; capacity.requests as usize],
            aside: vec![EMPTY; lanes],
            reopened: IndexedHeap::with_capacity(lanes),
        }
    }

    /// Appends `slot` to `main`, where almost every unit belongs.
    fn append(&mut self, slot: u32) {
        let last = core::mem::replace(&mut self.main.tail, slot);
        self.links[slot as usize] = Link {
            next: NIL,
            prev: last,
        };
        match last {
            NIL => self.main.head = slot,
            last => self.links[last as usize].next = slot,
        }
    }

    /// Inserts `slot` into a list by its arrival: at the end, or near the front where a merged I/O
    /// failed and its requests are queued again one by one.
    fn insert_by_arrival(&mut self, view: &View, mut list: List, slot: u32) -> List {
        let seq = seq(view, slot);
        let mut next = NIL;
        // Walks from the front: requests of a failed merged I/O are among the oldest of the list.
        if list.tail != NIL && self::seq(view, list.tail) > seq {
            next = list.head;
            while self::seq(view, next) < seq {
                next = self.links[next as usize].next;
            }
        }
        let prev = match next {
            NIL => list.tail,
            // `prev` of the first unit is undefined, see `unlink`.
            next if next == list.head => NIL,
            next => self.links[next as usize].prev,
        };
        self.links[slot as usize] = Link { next, prev };
        match prev {
            NIL => list.head = slot,
            p => self.links[p as usize].next = slot,
        }
        match next {
            NIL => list.tail = slot,
            n => self.links[n as usize].prev = slot,
        }
        list
    }

    /// Takes `slot` out of a list. The `prev` of the list's first unit is undefined: keeping it up
    /// to date would cost a cache miss for each unit that goes.
    fn unlink(&mut self, mut list: List, slot: u32) -> List {
        let Link { next, prev } = self.links[slot as usize];
        let first = list.head == slot;
        if first {
            list.head = next;
        } else {
            self.links[prev as usize].next = next;
        }
        if next == NIL {
            // `prev` may be read only where the unit is not the first.
            list.tail = if first { NIL } else { prev };
        } else if !first {
            self.links[next as usize].prev = prev;
        }
        list
    }

    /// Updates the lane's place among the reopened lanes after its gate or its list changed.
    fn rank_lane(&mut self, view: &View, vm: VmId, lane: Lane) {
        let index = lane_index(vm, lane);
        match self.aside[index].head {
            // A gate that shut again before its units were picked takes the lane out.
            head if head != NIL && view.gate_open(vm, lane) => {
                self.reopened.set(index, seq(view, head));
            }
            _ => {
                self.reopened.remove(index);
            }
        }
    }

    /// Picks a unit while gates are, or may be, shut.
    #[inline(never)]
    fn pick_among_gates(&mut self, view: &View) -> Pick {
        loop {
            let front = self.main.head;
            // The older of the two goes, so a lane that was shut regains its place by arrival.
            if let Some((arrived, index)) = self.reopened.peek()
                && (front == NIL || arrived < seq(view, front))
            {
                return start(view.req_id(self.aside[index].head));
            }
            if front == NIL {
                return Pick::Idle(Nanos::MAX);
            }
            let head = view.req_id(front);
            // A lane whose gate is open again and that has nothing set aside goes straight from the
            // front.
            if view.queued(head).may_go() {
                return start(head);
            }
            let (vm, lane) = view.queued(head).vm_lane();
            self.set_aside(view, front, lane_index(vm, lane));
        }
    }

    /// Moves the front unit, whose gate is shut, to its lane's own list, so that it does not block
    /// units of other lanes.
    fn set_aside(&mut self, view: &View, front: u32, index: usize) {
        self.main = self.unlink(self.main, front);
        self.aside_units += 1;
        self.is_aside[front as usize] = true;
        self.aside[index] = self.insert_by_arrival(view, self.aside[index], front);
    }
}

/// Index of a VM's lane in `aside` and `reopened`.
fn lane_index(vm: VmId, lane: Lane) -> usize {
    vm.index() * Lane::ALL.len() + lane.index()
}

/// Arrival number of a waiting unit.
fn seq(view: &View, slot: u32) -> u64 {
    view.queued(view.req_id(slot)).seq()
}

/// Pick of a whole unit, with all that may be merged into it.
fn start(head: ReqId) -> Pick {
    Pick::Start {
        head,
        max: u32::MAX,
        held: Nanos::ZERO,
    }
}

impl Dispatcher for Fifo {
    fn insert(&mut self, view: &View, unit: ReqId) {
        let seq = Some(view.queued(unit).seq());
        // Units admitted by a regulator or queued again after an error are older than the newest.
        if seq > self.newest {
            self.newest = seq;
            self.append(unit.index);
        } else {
            self.main = self.insert_by_arrival(view, self.main, unit.index);
        }
    }

    fn remove(&mut self, view: &View, unit: ReqId) {
        if self.aside_units == 0 || !self.is_aside[unit.index()] {
            self.main = self.unlink(self.main, unit.index);
            return;
        }
        let (vm, lane) = view.queued(unit).vm_lane();
        let index = lane_index(vm, lane);
        self.aside_units -= 1;
        self.is_aside[unit.index()] = false;
        self.aside[index] = self.unlink(self.aside[index], unit.index);
        self.rank_lane(view, vm, lane);
    }

    fn gate(&mut self, view: &View, vm: VmId, lane: Lane, _open: bool) {
        // A lane without units set aside needs no entry: its gate is read when a unit reaches the
        // front.
        if self.aside_units > 0 {
            self.rank_lane(view, vm, lane);
        }
    }

    fn footprint(&self) -> Footprint {
        let lane = size_of::<List>() + IndexedHeap::<u64>::BYTES_PER_ID;
        Footprint {
            vm: Lane::ALL.len() * lane,
            request: size_of::<Link>() + size_of::<bool>(),
            ..Footprint::default()
        }
    }

    fn starvation(&self, _device: &DeviceSpec, _: Option<&Profile>) -> Bound {
        Bound::Arrival
    }

    fn pick(&mut self, view: &View) -> Pick {
        let front = self.main.head;
        // The common case: no gate is shut, so the oldest unit goes without a look at the lists of
        // lanes.
        if self.aside_units == 0 && front != NIL {
            let head = view.req_id(front);
            if view.queued(head).may_go() {
                return start(head);
            }
        }
        self.pick_among_gates(view)
    }
}
