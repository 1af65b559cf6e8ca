//! Deadline: batches in the order of addresses, and a soft deadline for every unit, as in Linux's
//! mq-deadline (Documentation/block/deadline-iosched).
//!
//! Reads and writes (all operations that change the disk) are ordered separately. Each direction
//! keeps its units by address and by the time they have waited. A batch is up to `fifo_batch` I/Os
//! of one direction, each the next at or behind the address of the one before.
//!
//! ```text
//!            next by address in this direction, and the batch is not full
//!            +-------+
//!            v       |         else: which direction?
//!        [ batch ] --+------>  reads, if any wait; but writes, if they have been passed over
//!            ^                 `writes_starved` times, or are alone
//!            |                     |
//!            |   the next by address behind the last I/O of that direction; but where none
//!            +---  is, or the oldest has expired, the oldest
//! ```
//!
//! Expiry is checked between batches only, as the price of the order of addresses.
//!
//! The order of addresses is a [`Forest`] over all units. The oldest of a direction is the oldest
//! of its lanes' heads, kept in a heap; so a lane whose gate shuts leaves the order of age at once.
//! Its units leave the order of addresses only when a search meets them, and return when the gate
//! opens: the head at once, then two for each unit that goes. So an opening or a dispatch costs
//! O(log n) however many units a lane holds, a shut lane is never searched twice, and one that a
//! limit opens for a unit at a time gives them in the order of arrival, as a limit in front of the
//! scheduler would.
//!
//! Decisions where Linux's rules do not fit or say nothing:
//! - A unit's time counts from its arrival, its admission, or its lane's gate opening, the
//!   latest: time that a limit or credits held it is not the scheduler's to make good.
//! - Units at one address go in the order of their slots.
//! - The parts of a large request count as I/Os of their own, as Linux splits before it sorts.
//! - `writes_starved` is at least 1: with 0 reads would starve while any write waits.
//! - No I/O priorities and no tags held back from asynchronous requests: an engine's VMs have
//!   no classes, and queues of their own. Front merges are the engine's.
//! - Flushes take the engine's express lane and count in no batch.
//!
//! Starvation bound: a unit that has expired, with n I/Os to do for it and those of its
//! direction whose time counts from before, is started within `fifo_batch` x (n + n /
//! `writes_starved`, rounded up) I/Os if it reads, and `fifo_batch` x n (1 + `writes_starved`)
//! if it writes. Before it expires there is no bound but that time.

use crate::tree::Forest;
use tidegate_base::device::DeviceSpec;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::request::{DeviceIo, Lane, Op, ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_capacity::profile::Profile;
use tidegate_core::part::{Capacity, Enforces, ParamInfo, ParamKind, PartDescriptor};
use tidegate_core::roles::{Dispatcher, Event, Footprint, Interests, Pick};
use tidegate_core::starvation::{Bound, Expiry};
use tidegate_core::view::{NIL, View};

/// Parameters of [`Deadline`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeadlineParams {
    /// Time after which reads and writes expire.
    pub expire: [Nanos; 2],
    /// Maximum number of I/Os in a batch.
    pub fifo_batch: u32,
    /// Batches of reads that may go before waiting writes; at least 1.
    pub writes_starved: u32,
}

/// Registry entry of the `deadline` dispatcher.
pub(crate) static DESCRIPTOR: PartDescriptor<dyn Dispatcher> = PartDescriptor {
    name: "deadline",
    summary: "batches sorted by address, starting with the oldest expired request",
    params: &[
        ParamInfo::span(
            "read_expire",
            500_000_000,
            "age at which a read expires and goes first",
        ),
        ParamInfo::span(
            "write_expire",
            5_000_000_000,
            "age at which a write expires and goes first",
        ),
        ParamInfo {
            name: "fifo_batch",
            kind: ParamKind::Count,
            default: 16,
            min: 1,
            max: 65_536,
            help: "maximum I/Os in a batch; expiry is checked between batches",
        },
        ParamInfo {
            name: "writes_starved",
            kind: ParamKind::Count,
            default: 2,
            min: 1,
            max: 65_536,
            help: "maximum read batches before waiting writes",
        },
    ],
    enforces: Enforces::NONE,
    build: |params, capacity| {
        let params = DeadlineParams {
            expire: ["read_expire", "write_expire"].map(|name| Nanos(params.get(name))),
            fifo_batch: params.get("fifo_batch") as u32,
            writes_starved: params.get("writes_starved") as u32,
        };
        Box::new(Deadline::new(params, capacity))
    },
};

/// Values of [`Place::next`] for a unit that is in no list: in the order of addresses ([`SORTED`]),
/// or not queued here at all ([`NOT_QUEUED`]).
const SORTED: u32 = NIL - 1;
const NOT_QUEUED: u32 = NIL - 2;

/// Place of the unit with the request slot's index.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Key of the unit in the order of addresses: its first byte.
    addr: u64,
    /// Time at which the unit came to the scheduler.
    entered: Nanos,
    /// Neighbours in the lane's list of units set aside; or [`SORTED`], or [`NOT_QUEUED`].
    next: u32,
    prev: u32,
}

/// State of one lane of a VM.
#[derive(Clone, Copy, Debug)]
struct LaneState {
    /// Time at which the lane's gate last opened.
    opened: Nanos,
    /// First of the lane's units set aside, in no order; [`NIL`]: none.
    aside: u32,
    /// Unit by which the lane stands in the order of age; [`NIL`]: it does not.
    head: u32,
}

const EMPTY: LaneState = LaneState {
    opened: Nanos::ZERO,
    aside: NIL,
    head: NIL,
};

/// Key of the order of age: the time from which a unit's wait counts, then the arrival number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Age {
    since: Nanos,
    seq: u64,
}

/// Unit that was picked, kept until the engine reports its start.
#[derive(Clone, Copy, Debug)]
struct Picked {
    slot: u32,
    /// Address one past the unit's last byte.
    end: u64,
    direction: Lane,
    /// Value of `starved` from now on, if the unit begins a batch.
    begins: Option<u32>,
}

/// Dispatcher that sends batches in the order of addresses, each begun with the oldest unit once
/// that has expired.
pub struct Deadline {
    params: DeadlineParams,
    places: Vec<Place>,
    lanes: Vec<LaneState>,
    /// Units of open lanes, and those of shut lanes that no search has met, by address; one set for
    /// each direction.
    sorted: Forest<u64>,
    /// VMs whose lane is open and holds units, by the age of the lane's first; one heap for each
    /// direction.
    by_age: [IndexedHeap<Age>; 2],
    /// Direction and number of I/Os of the current batch.
    direction: Lane,
    batch: u32,
    /// Batches of reads since writes were first passed over.
    starved: u32,
    /// Address at which each direction's last I/O began.
    position: [u64; 2],
    picked: Option<Picked>,
    /// Unit that a regulator has just admitted.
    admitted: Option<ReqId>,
}

impl Deadline {
    /// Creates the dispatcher with room for every VM and request of the engine.
    ///
    /// # Panics
    /// When `fifo_batch` or `writes_starved` is 0.
    pub fn new(params: DeadlineParams, capacity: &Capacity) -> Deadline {
        // With 0 reads would starve for as long as any write waits.
        assert!(
            params.writes_starved > 0,
            "at least one batch of reads goes before waiting writes"
        );
        assert!(params.fifo_batch > 0, "a batch has at least one I/O");
        let (vms, requests) = (capacity.vms as usize, capacity.requests as usize);
        let place = Place {
            addr: 0,
            entered: Nanos::ZERO,
            next: NOT_QUEUED,
            prev: NIL,
        };
        Deadline {
            params,
            places: vec![place; requests],
            lanes: vec![EMPTY; vms * Lane::ALL.len()],
            sorted: Forest::with_capacity(Lane::ALL.len(), requests),
            by_age: Lane::ALL.map(|_| IndexedHeap::with_capacity(vms)),
            direction: Lane::Write,
            batch: 0,
            starved: 0,
            position: [0; 2],
            picked: None,
            admitted: None,
        }
    }

    fn sort(&mut self, lane: Lane, slot: u32, addr: u64) {
        self.places[slot as usize].addr = addr;
        self.places[slot as usize].next = SORTED;
        self.sorted.insert(lane.index(), addr, slot as usize);
    }

    fn unsort(&mut self, lane: Lane, slot: u32) {
        let addr = self.places[slot as usize].addr;
        let was = self.sorted.remove(lane.index(), addr, slot as usize);
        debug_assert!(was, "a sorted unit is in the order of addresses");
    }

    /// Adds a unit to the list of units set aside of the lane with this index.
    fn put_aside(&mut self, index: usize, slot: u32) {
        let next = self.lanes[index].aside;
        self.lanes[index].aside = slot;
        self.places[slot as usize].next = next;
        self.places[slot as usize].prev = NIL;
        if next != NIL {
            self.places[next as usize].prev = slot;
        }
    }

    /// Removes a unit from the list of units set aside of the lane with this index.
    fn take_from_aside(&mut self, index: usize, slot: u32) {
        let Place { next, prev, .. } = self.places[slot as usize];
        match prev {
            NIL => self.lanes[index].aside = next,
            p => self.places[p as usize].next = next,
        }
        if next != NIL {
            self.places[next as usize].prev = prev;
        }
    }

    /// Moves a unit set aside back into the order of addresses.
    fn put_back(&mut self, view: &View, vm: VmId, lane: Lane, slot: u32) {
        self.take_from_aside(lane_index(vm, lane), slot);
        let unit = view.queued(view.req_id(slot)).unit();
        self.sort(lane, slot, unit.addr);
    }

    /// Updates a lane's place in the order of age after its head or gate changed.
    fn rank(&mut self, view: &View, vm: VmId, lane: Lane) {
        let open = view.gate_open(vm, lane);
        let head = view.lane_head(vm, lane).filter(|_| open);
        let index = lane_index(vm, lane);
        let heap = &mut self.by_age[lane.index()];
        match head {
            Some(head) => {
                let entered = self.places[head.index()].entered;
                // Time behind a shut gate does not count, see the module's decisions.
                let since = entered.max(self.lanes[index].opened);
                let seq = view.queued(head).seq();
                // Lanes that opened together have equal times, so the arrival decides among them.
                heap.set(vm.index(), Age { since, seq });
            }
            None => {
                heap.remove(vm.index());
            }
        }
        self.lanes[index].head = head.map_or(NIL, |h| h.index);
    }

    /// Returns the first unit of an open lane at or behind the start of the direction's last I/O.
    /// Moves units of shut lanes that it meets aside.
    fn next_by_address(&mut self, view: &View, direction: Lane) -> Option<u32> {
        // From the start of the last I/O, not its end: a unit at the same address is not passed
        // over.
        let from = self.position[direction.index()];
        loop {
            let (_, slot) = self.sorted.first_from(direction.index(), from)?;
            let slot = slot as u32;
            let (vm, lane) = view.queued(view.req_id(slot)).vm_lane();
            if view.gate_open(vm, lane) {
                return Some(slot);
            }
            // Set aside until the gate opens, so that no search meets the unit twice.
            self.unsort(lane, slot);
            self.put_aside(lane_index(vm, lane), slot);
        }
    }

    /// Returns the direction of the next batch and the value of `starved` from then on; `None` if
    /// nothing waits.
    fn next_direction(&self) -> Option<(Lane, u32)> {
        let [reads, writes] = [0, 1].map(|l: usize| !self.by_age[l].is_empty());
        match (reads, writes) {
            // Writes are counted as passed over only while they wait beside reads.
            (true, true) if self.starved >= self.params.writes_starved => Some((Lane::Write, 0)),
            (true, true) => Some((Lane::Read, self.starved + 1)),
            (true, false) => Some((Lane::Read, self.starved)),
            (false, true) => Some((Lane::Write, 0)),
            (false, false) => None,
        }
    }

    /// Returns the slot of the unit with which a new batch of a direction begins.
    fn first_of_batch(&mut self, view: &View, direction: Lane) -> u32 {
        let oldest = self.by_age[direction.index()].peek();
        let (age, vm) = oldest.expect("the direction was chosen because something waits");
        let expires = age.since + self.params.expire[direction.index()];
        let next = if expires > view.now() {
            self.next_by_address(view, direction)
        } else {
            None
        };
        // Expired, or nothing lies ahead: the oldest begins the batch, and the elevator goes on
        // from there.
        next.unwrap_or_else(|| self.lanes[lane_index(view.vm_at(vm), direction)].head)
    }

    /// Books the start of the picked unit, and a new batch if it begins one; flushes count in none.
    fn started(&mut self, view: &View, io: &DeviceIo) {
        if io.op == Op::Flush {
            return;
        }
        let picked = self.picked.take().expect("only what was picked starts");
        if let Some(starved) = picked.begins {
            self.starved = starved;
            // Set at the start and not at the pick: a pick may be split or cancelled before its
            // start.
            self.batch = 0;
        }
        let lane = picked.direction;
        self.direction = lane;
        self.batch += 1;
        self.position[lane.index()] = io.addr;
        // A partial start leaves the rest of the unit at a higher address.
        if io.addr + (io.len as u64) < picked.end {
            self.update_address(view, picked.slot, lane);
        }
    }

    /// Updates the place of a unit whose first byte has changed.
    fn update_address(&mut self, view: &View, slot: u32, lane: Lane) {
        let place = &self.places[slot as usize];
        let addr = view.queued(view.req_id(slot)).unit().addr;
        // A unit set aside takes its address afresh when it is put back.
        if place.next == SORTED && place.addr != addr {
            self.unsort(lane, slot);
            self.sort(lane, slot, addr);
        }
    }
}

/// Index of a VM's lane in `Deadline::lanes`.
fn lane_index(vm: VmId, lane: Lane) -> usize {
    vm.index() * Lane::ALL.len() + lane.index()
}

impl Dispatcher for Deadline {
    fn interests(&self) -> Interests {
        Interests::STARTED
            .union(Interests::MERGED)
            .union(Interests::ADVANCED)
            .union(Interests::ADMITTED)
            .union(Interests::VMS)
    }

    fn insert(&mut self, view: &View, unit: ReqId) {
        let (vm, lane) = view.queued(unit).vm_lane();
        let known = view.queued(unit).unit();
        // Time in a regulator is not the scheduler's to make good, so the wait counts from
        // admission.
        // The engine reports an admission right before it inserts the unit.
        let held = self.admitted.take() == Some(unit);
        let entered = if held { view.now() } else { known.arrived };
        self.places[unit.index()].entered = entered;
        if view.gate_open(vm, lane) {
            self.sort(lane, unit.index, known.addr);
        } else {
            self.put_aside(lane_index(vm, lane), unit.index);
        }
        // Only a lane's first unit is in the order of age; the rest follow it.
        if view.lane_head(vm, lane) == Some(unit) {
            self.rank(view, vm, lane);
        }
    }

    fn remove(&mut self, view: &View, unit: ReqId) {
        let (vm, lane) = view.queued(unit).vm_lane();
        let index = lane_index(vm, lane);
        match self.places[unit.index()].next {
            SORTED => self.unsort(lane, unit.index),
            _ => self.take_from_aside(index, unit.index),
        }
        // Slots are used again; a later `gate` must not take the next unit for a sorted one.
        self.places[unit.index()].next = NOT_QUEUED;
        if self.lanes[index].head == unit.index {
            self.rank(view, vm, lane);
        }
        // Two units return for each that leaves, so that a reopened lane is sorted again in bounded
        // steps.
        for _ in 0..2 {
            let aside = self.lanes[index].aside;
            if aside != NIL && view.gate_open(vm, lane) {
                self.put_back(view, vm, lane, aside);
            }
        }
    }

    fn gate(&mut self, view: &View, vm: VmId, lane: Lane, open: bool) {
        if open {
            self.lanes[lane_index(vm, lane)].opened = view.now();
            if let Some(head) = view.lane_head(vm, lane)
                // The head may not have been set aside (no search met it), or not be inserted yet.
                && !matches!(self.places[head.index()].next, SORTED | NOT_QUEUED)
            {
                self.put_back(view, vm, lane, head.index);
            }
        }
        self.rank(view, vm, lane);
    }

    fn on_event(&mut self, view: &View, event: &Event) {
        match *event {
            Event::Started(io) => self.started(view, io),
            Event::Merged { into: unit, .. } | Event::Advanced(unit) => {
                let (_, lane) = view.queued(unit).vm_lane();
                self.update_address(view, unit.index, lane);
            }
            Event::Admitted(unit) => self.admitted = Some(unit),
            Event::VmAdded(vm) => {
                // The slot's former VM must not leave its gate times or its list.
                for lane in Lane::ALL {
                    self.lanes[lane_index(vm, lane)] = EMPTY;
                }
            }
            _ => {}
        }
    }

    fn starvation(&self, _device: &DeviceSpec, _: Option<&Profile>) -> Bound {
        Bound::Age(Expiry {
            after: self.params.expire,
            batch: self.params.fifo_batch.into(),
            writes_starved: self.params.writes_starved.into(),
        })
    }

    fn pick(&mut self, view: &View) -> Pick {
        // A batch also ends where nothing of its direction lies ahead: no wrapping round within a
        // batch.
        let goes_on = if self.batch < self.params.fifo_batch {
            self.next_by_address(view, self.direction)
        } else {
            None
        };
        let (slot, direction, begins) = match (goes_on, self.next_direction()) {
            (Some(slot), _) => (slot, self.direction, None),
            (None, Some((direction, starved))) => {
                let slot = self.first_of_batch(view, direction);
                (slot, direction, Some(starved))
            }
            (None, None) => return Pick::Idle(Nanos::MAX),
        };
        let head = view.req_id(slot);
        let unit = view.queued(head).unit();
        self.picked = Some(Picked {
            slot,
            end: unit.addr + unit.len as u64,
            direction,
            begins,
        });
        Pick::Start {
            head,
            max: u32::MAX,
            held: Nanos::ZERO,
        }
    }

    fn footprint(&self) -> Footprint {
        let lane = size_of::<LaneState>() + IndexedHeap::<Age>::BYTES_PER_ID;
        Footprint {
            vm: Lane::ALL.len() * lane,
            request: size_of::<Place>() + Forest::<u64>::BYTES_PER_ENTRY,
            ..Footprint::default()
        }
    }
}
