//! How requests and VMs lie in memory.
//!
//! Requests live in a slab; queues hold slot numbers. A slot is hot (what scheduling looks at)
//! and cold (the account, the answer's address), kept in two arrays.
//!
//! With many VMs nearly everything the engine touches has left the caches since it was last
//! touched, and its time is the number of lines it waits for. So a slot's hot part is one line
//! and its cold part another, a VM is two neighbouring ones, and handles of things that stay
//! while a request is inside (its client, its disk) are kept as slot numbers alone.

use crate::attainment::Standing;
use tidegate_base::device::DeviceFacts;
use tidegate_base::request::{Account, IoError, Lane, Op, ReqId, VmId};
use tidegate_base::slab::NIL;
use tidegate_base::time::Nanos;

pub(crate) mod state {
    pub(crate) const FREE: u8 = 0;
    /// First of a unit in a lane, not admitted yet.
    pub(crate) const PENDING: u8 = 1;
    /// First of a unit in a lane, known to the dispatcher.
    pub(crate) const ADMITTED: u8 = 2;
    /// Behind the first of a unit.
    pub(crate) const PASSENGER: u8 = 3;
    /// Wholly handed to the device.
    pub(crate) const STARTED: u8 = 4;
    /// A flush in its express lane.
    pub(crate) const EXPRESS: u8 = 5;
    /// First of a unit that was admitted, and waits for its disk to hang no more.
    pub(crate) const PARKED: u8 = 6;
}

pub(crate) mod flag {
    pub(crate) const FUA: u8 = 1;
    pub(crate) const KEEP_ALLOCATED: u8 = 2;
    /// Not to be merged: it failed in company once.
    pub(crate) const ALONE: u8 = 4;
    /// Its operation was charged.
    pub(crate) const CHARGED: u8 = 8;
    /// A hint: where it ends, one of its kind began that waited, too, and did not join it.
    pub(crate) const FOLLOWED: u8 = 16;
    /// An I/O of several requests has failed of which a part of it was: once nothing of it is in
    /// flight it goes again, from its beginning.
    pub(crate) const AGAIN: u8 = 32;
    /// A read or write that holds payload memory: see [`crate::engine::PayloadBounds`].
    pub(crate) const HOLDS: u8 = 64;
    /// First of a unit of reads that holds payload memory and waits in its lane: counted in
    /// [`Vm::holders`](super::Vm::holders).
    pub(crate) const HOLDER: u8 = 128;
    /// What has to be the same of all requests of a unit.
    pub(crate) const KIND: u8 = !(CHARGED | FOLLOWED | HOLDS | HOLDER);
}

/// Why a lane is closed: bits of [`Vm::shut`].
pub(crate) mod shut {
    /// The regulator has shut the lane's gate; time in which it is shut counts as regulated.
    pub(crate) const REGULATED: u8 = 1;
    /// The lane's reads lack payload memory.
    pub(crate) const STARVED: u8 = 2;
}

/// What scheduling looks at, in one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Hot {
    /// First byte on the device.
    pub addr: u64,
    pub seq: u64,
    /// Bytes of this guest request.
    pub len: u32,
    /// Bytes of it handed to the device.
    pub issued: u32,
    /// First of a unit: bytes of all its guest requests, and how many it has.
    pub unit_len: u32,
    pub unit_reqs: u32,
    /// Neighbours in the lane (first of a unit only). `prev` means nothing in the lane's first
    /// unit; `next` also links the free list.
    pub next: u32,
    pub prev: u32,
    /// The guest request behind this one in its unit.
    pub chain_next: u32,
    /// First of a unit: its guest requests with the highest and the lowest address.
    pub chain_last: u32,
    pub chain_first: u32,
    pub vm: u32,
    pub generation: u32,
    pub state: u8,
    pub op: Op,
    pub flags: u8,
}

const _: () = assert!(size_of::<Hot>() == 64);

impl Hot {
    /// Slot that is free; `next` is the free one behind it.
    pub(crate) const fn vacant(next: u32) -> Hot {
        Hot {
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
            next,
            prev: NIL,
            chain_next: NIL,
            chain_last: NIL,
            unit_reqs: 0,
            chain_first: NIL,
        }
    }

    /// Makes the slot `slot` the first free one, before `free`, and returns it; its handle names
    /// nothing from now on.
    ///
    /// # Panics
    /// When the slot is free.
    #[inline(always)]
    pub(crate) fn vacate(&mut self, slot: u32, free: u32) -> u32 {
        assert!(self.state != state::FREE, "a request ends only once");
        self.state = state::FREE;
        self.generation = self.generation.wrapping_add(1);
        self.next = free;
        slot
    }

    #[inline]
    pub(crate) fn id(&self, slot: u32) -> ReqId {
        ReqId {
            index: slot,
            generation: self.generation,
        }
    }
}

/// The answer's address and the account, in one cache line.
///
/// To stay within it, the account keeps running sums in place of begin and sum: while something
/// is going on, its begin has been subtracted, so that adding the end leaves the sum. Queueing
/// is what remains of the time from arrival to end.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Cold {
    pub tag: u64,
    pub arrived: Nanos,
    /// While it waits: less the lane's shut time and the device's deliberate time when it began
    /// to.
    regulated: u64,
    deliberate: u64,
    merged_wait: u64,
    /// While it is with the device: less the time it went there.
    device: u64,
    pub client: u32,
    pub disk: u32,
    /// The VM served just before this request first was; `NIL`: its own, or none.
    pub behind: u32,
    /// Its I/Os in flight.
    pub outstanding: u16,
    pub error: Option<IoError>,
}

const _: () = assert!(size_of::<Cold>() == 64);

impl Cold {
    pub(crate) const VACANT: Cold = Cold {
        tag: 0,
        arrived: Nanos::ZERO,
        regulated: 0,
        deliberate: 0,
        merged_wait: 0,
        device: 0,
        client: NIL,
        disk: NIL,
        behind: NIL,
        outstanding: 0,
        error: None,
    };

    /// It arrived: a new account, and its first wait. `shut` and `deliberate` are what its lane
    /// and the device have seen of being held back in all.
    pub(crate) fn open(&mut self, now: Nanos, shut: Nanos, deliberate: Nanos) {
        self.arrived = now;
        self.regulated = 0u64.wrapping_sub(shut.0);
        self.deliberate = 0u64.wrapping_sub(deliberate.0);
        self.merged_wait = 0;
        self.device = 0;
        self.behind = NIL;
        self.outstanding = 0;
        self.error = None;
    }

    /// It waits again.
    pub(crate) fn begin_wait(&mut self, shut: Nanos, deliberate: Nanos) {
        self.regulated = self.regulated.wrapping_sub(shut.0);
        self.deliberate = self.deliberate.wrapping_sub(deliberate.0);
    }

    /// A wait ended. A passenger's is booked as that, whatever its lane did: only a request's
    /// first wait can be one.
    pub(crate) fn end_wait(&mut self, now: Nanos, passenger: bool, shut: Nanos, deliberate: Nanos) {
        let waited = self.waited(now);
        if passenger {
            self.merged_wait = waited;
            (self.regulated, self.deliberate) = (0, 0);
            return;
        }
        // The lane may have been shut for longer than the request was there.
        self.regulated = self.regulated.wrapping_add(shut.0).min(waited);
        let rest = waited - self.regulated;
        self.deliberate = self.deliberate.wrapping_add(deliberate.0).min(rest);
    }

    /// It was admitted: until here the regulator held it, and now it waits for its turn.
    pub(crate) fn admitted(&mut self, now: Nanos, shut: Nanos, deliberate: Nanos) {
        self.regulated = self.waited(now);
        self.deliberate = 0;
        self.begin_wait(shut, deliberate);
    }

    /// How long a regulator has held it so far. `shut` is its lane's.
    pub(crate) fn held(&self, now: Nanos, shut: Nanos) -> Nanos {
        let held = match self.outstanding {
            0 => self.regulated.wrapping_add(shut.0).min(self.waited(now)),
            _ => self.regulated,
        };
        Nanos(held)
    }

    /// Its lane may have been shut for longer than it was there, which is told once its wait ends.
    /// What it was held so far is that from here on; else it would seem to be held still, until it
    /// has waited as long.
    pub(crate) fn settle(&mut self, now: Nanos, shut: Nanos) {
        if self.outstanding == 0 {
            self.regulated = self.held(now, shut).0.wrapping_sub(shut.0);
        }
    }

    /// Since when it counts as being with the device, where an I/O of it was held back for so long
    /// only because of a cap there; what it waited for otherwise stays that.
    pub(crate) fn with_device_since(&self, now: Nanos, held: Nanos) -> Nanos {
        let rest = self
            .waited(now)
            .saturating_sub(self.regulated + self.deliberate);
        now - Nanos(held.0.min(rest))
    }

    /// One more of its I/Os goes to the device.
    pub(crate) fn part_started(&mut self, now: Nanos) {
        if self.outstanding == 0 {
            self.device = self.device.wrapping_sub(now.0);
        }
        self.outstanding += 1;
    }

    /// One of its I/Os came back.
    pub(crate) fn part_ended(&mut self, now: Nanos) {
        self.outstanding -= 1;
        if self.outstanding == 0 {
            self.device = self.device.wrapping_add(now.0);
        }
    }

    /// Its time so far, the device's and a passenger's apart, while none of it is in flight.
    fn waited(&self, now: Nanos) -> u64 {
        let elapsed = now.since(self.arrived).0;
        elapsed.saturating_sub(self.device + self.merged_wait)
    }

    /// The account, once nothing of it waits or is in flight.
    pub(crate) fn account(&self, now: Nanos) -> Account {
        let held = self.regulated + self.deliberate;
        Account {
            regulated: Nanos(self.regulated),
            queued: Nanos(self.waited(now).saturating_sub(held)),
            merged_wait: Nanos(self.merged_wait),
            deliberate: Nanos(self.deliberate),
            device: Nanos(self.device),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct LaneQueue {
    pub head: u32,
    pub tail: u32,
    /// First unit that is not admitted; `NIL`: all are.
    pub pending: u32,
}

impl LaneQueue {
    pub(crate) const EMPTY: LaneQueue = LaneQueue {
        head: NIL,
        tail: NIL,
        pending: NIL,
    };

    /// The first admitted unit; `NIL`: none.
    #[inline]
    pub(crate) fn admitted_head(&self) -> u32 {
        // `head == pending` also covers the empty lane: both are NIL.
        if self.head == self.pending {
            NIL
        } else {
            self.head
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Free,
    Live,
    /// Removed; what is in flight has not ended yet.
    Leaving,
}

/// The engine's hot state of one VM: one cache line for what is in its queues, and its
/// neighbour for what passes by.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub(crate) struct Vm {
    pub lanes: [LaneQueue; 2],
    /// Why each lane is closed, by the bits of [`shut`]; 0: it is open.
    pub shut: [u8; 2],
    pub life: Life,
    /// A process of the host: see [`Facts::is_background`](crate::facts::Facts::is_background).
    pub background: bool,
    /// A regulator at admission would not let its next unit in.
    pub spent: bool,
    /// What it is answered counts for its job.
    pub has_job: bool,
    /// Its requests are judged: see [`crate::attainment`].
    pub judged: bool,
    /// Reads of it were set aside because another one of the lane holds the memory they lack.
    pub shelved: bool,
    pub generation: u32,
    /// Guest requests waiting (also flushes).
    pub waiting: u32,
    /// Guest requests inside the engine.
    pub requests: u32,
    pub in_flight: u32,
    pub merge_limit: u32,
    /// Larger reads and writes are split.
    pub largest_io: u32,
    /// Guest requests that came, and that were answered, modulo 2^32: see [`Ledger`].
    pub arrived: u32,
    pub answered: u32,
    /// The second of its last answer, or of the request that ended a quiet time: see
    /// [`Seconds`](tidegate_base::seconds::Seconds).
    pub second: u32,
    /// Units in the read lane that hold payload memory.
    pub holders: u32,
    /// How long each lane has been shut in all; of one that is, less the time it was shut.
    pub shut_sum: [u64; 2],
    /// When its last outstanding request was answered.
    pub quiet_since: Nanos,
    pub edges: Edges,
}

const _: () = assert!(size_of::<Vm>() == 128);

/// Where the last reads and writes of a VM began and ended, as 16-bit fingerprints. A request
/// that meets none of these merges with nothing, and most do not: this saves looking at the
/// units that wait, each of which is a line that has long left the caches.
#[derive(Clone, Copy)]
pub(crate) struct Edges {
    begins: [u16; Edges::COUNT],
    ends: [u16; Edges::COUNT],
}

impl Edges {
    pub(crate) const COUNT: usize = 8;
    pub(crate) const NONE: Edges = Edges {
        begins: [0; Edges::COUNT],
        ends: [0; Edges::COUNT],
    };

    fn print(op: Op, addr: u64) -> u16 {
        (addr ^ op as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(16) as u16
    }

    /// Whether a request of `op` may begin where one of the last ended, or end where one
    /// began; seldom wrongly so. It takes the place of the oldest: `count` of them came before.
    #[inline]
    pub(crate) fn meet(&mut self, count: u32, op: Op, begin: u64, end: u64) -> bool {
        let (begin, end) = (Edges::print(op, begin), Edges::print(op, end));
        // No early exit: each comparison becomes one vector instruction.
        let any = |of: &[u16; Edges::COUNT], edge| of.iter().fold(false, |m, &e| m | (e == edge));
        let meets = any(&self.ends, begin) | any(&self.begins, end);
        let oldest = count as usize % Edges::COUNT;
        self.begins[oldest] = begin;
        self.ends[oldest] = end;
        meets
    }
}

impl Vm {
    /// Slot of a VM that is not there.
    pub(crate) fn vacant() -> Vm {
        Vm {
            lanes: [LaneQueue::EMPTY; 2],
            shut: [0; 2],
            life: Life::Free,
            background: false,
            spent: false,
            has_job: false,
            judged: false,
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

    #[inline]
    pub(crate) fn id(&self, slot: u32) -> VmId {
        VmId {
            index: slot,
            generation: self.generation,
        }
    }

    /// How it stands on a device, for its attainment.
    #[inline]
    pub(crate) fn standing(&self, device: &DeviceFacts) -> Standing {
        Standing {
            regulated: (self.shut[0] | self.shut[1]) & shut::REGULATED != 0,
            waits_for_others: self.waiting > 0 && device.requests > self.requests,
            device_busy: device.in_flight > 0,
        }
    }

    /// How long a lane has been shut in all.
    pub(crate) fn shut_time(&self, lane: Lane, now: Nanos) -> Nanos {
        let sum = self.shut_sum[lane.index()];
        if self.shut[lane.index()] & shut::REGULATED != 0 {
            Nanos(sum.wrapping_add(now.0))
        } else {
            Nanos(sum)
        }
    }

    /// Whether a lane is closed, for whatever reason.
    #[inline]
    pub(crate) fn is_closed(&self, lane: Lane) -> bool {
        self.shut[lane.index()] != 0
    }

    /// Sets or clears a regulator's reason to close a lane; false when it was so already.
    pub(crate) fn set_regulated(&mut self, lane: Lane, closed: bool, now: Nanos) -> bool {
        let reasons = &mut self.shut[lane.index()];
        if (*reasons & shut::REGULATED != 0) == closed {
            return false;
        }
        *reasons ^= shut::REGULATED;
        let sum = &mut self.shut_sum[lane.index()];
        *sum = if closed {
            sum.wrapping_sub(now.0)
        } else {
            sum.wrapping_add(now.0)
        };
        true
    }

    /// The lane's first admitted unit, if its gate is open; `NIL`: none.
    #[inline]
    pub(crate) fn open_head(&self, lane: usize) -> u32 {
        if self.shut[lane] != 0 {
            NIL
        } else {
            self.lanes[lane].admitted_head()
        }
    }
}
