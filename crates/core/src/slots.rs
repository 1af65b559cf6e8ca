//! Memory layout of requests and VMs.
//!
//! Requests live in a slab; queues hold slot numbers. A slot has a hot part, which scheduling
//! reads, and a cold part, with the latency account and the reply's address, in two arrays.
//!
//! With many VMs nearly every cache line that the engine touches has left the caches since its last
//! use, so the engine's time is the number of lines it waits for. Hence the hot part of a slot
//! takes one line and the cold part another, a VM takes two adjacent lines, and handles of what
//! outlives a request (connection, disk) are stored as slot numbers without generations.

use crate::attainment::StateAtClose;
use tidegate_base::device::DeviceStats;
use tidegate_base::request::{Account, IoError, Lane, Op, ReqId, VmId};
use tidegate_base::slab::NIL;
use tidegate_base::time::Nanos;

/// States of a request slot.
pub(crate) mod state {
    /// In the free list.
    pub(crate) const FREE: u8 = 0;
    /// Head of a unit in a lane, not admitted yet.
    pub(crate) const PENDING: u8 = 1;
    /// Head of a unit in a lane, known to the dispatcher.
    pub(crate) const ADMITTED: u8 = 2;
    /// Merged into a unit behind its head.
    pub(crate) const MERGED: u8 = 3;
    /// Wholly submitted to the device.
    pub(crate) const STARTED: u8 = 4;
    /// Flush in the express lane.
    pub(crate) const EXPRESS: u8 = 5;
    /// Head of an admitted unit that waits until its disk no longer hangs.
    pub(crate) const PARKED: u8 = 6;
    /// Waits for a limit of its disk; for the scheduler it has not arrived yet.
    pub(crate) const LIMITED: u8 = 7;
}

/// Flags of a request slot, one bit each.
pub(crate) mod flag {
    /// Forced unit access, as the client asked.
    pub(crate) const FUA: u8 = 1;
    /// Zeroing must not punch a hole (NBD's `NO_HOLE`).
    pub(crate) const KEEP_ALLOCATED: u8 = 2;
    /// Never merged again: an I/O that it was merged into has failed.
    pub(crate) const ALONE: u8 = 4;
    /// Operation charged to the limit.
    pub(crate) const CHARGED: u8 = 8;
    /// Hint: a waiting request of the same kind began where this one ends, and did not join it.
    pub(crate) const FOLLOWED: u8 = 16;
    /// An I/O of several requests failed that carried a part of this one. Once none of it is in
    /// flight, it starts again from its beginning.
    pub(crate) const AGAIN: u8 = 32;
    /// Read or write that holds payload memory: see [`crate::engine::PayloadBounds`].
    pub(crate) const HOLDS: u8 = 64;
    /// Head of a unit of reads that holds payload memory and waits in its lane: counted in
    /// [`Vm::holders`](super::Vm::holders).
    pub(crate) const HOLDER: u8 = 128;
    /// Flags on which all requests of a unit must agree.
    pub(crate) const KIND: u8 = !(CHARGED | FOLLOWED | HOLDS | HOLDER);
}

/// Properties of a request that few have: bits of [`Cold::marks`].
pub(crate) mod mark {
    /// The request is sampled: see [`crate::interference`].
    pub(crate) const SAMPLED: u8 = 1;
    /// The request waited before it was taken; the time is kept beside the slots.
    pub(crate) const WAITED_OUTSIDE: u8 = 2;
    /// Limits of its disk held the request; the time is kept beside the slots.
    pub(crate) const HELD: u8 = 4;
}

/// Reasons for which a lane is closed: bits of [`Vm::shut`].
pub(crate) mod shut {
    /// Gate closed by the regulator; the time counts as regulated.
    pub(crate) const REGULATED: u8 = 1;
    /// Reads of the lane lack payload memory.
    pub(crate) const LACKS_MEMORY: u8 = 2;
}

/// Part of a request slot that scheduling reads, in one cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Hot {
    /// Offset on the device in bytes.
    pub addr: u64,
    /// Position in the order of arrival over all VMs; also orders units that wait again.
    pub seq: u64,
    /// Length of this guest request in bytes.
    pub len: u32,
    /// Bytes submitted to the device so far.
    pub issued: u32,
    /// Heads of units only: bytes and number of all guest requests of the unit.
    pub unit_len: u32,
    pub unit_reqs: u32,
    /// Neighbours in the lane (heads of units only). `prev` is undefined in the lane's first unit;
    /// `next` also links the free list.
    pub next: u32,
    pub prev: u32,
    /// Next guest request of the unit.
    pub chain_next: u32,
    /// Heads of units only: guest requests with the highest and the lowest address.
    pub chain_last: u32,
    pub chain_first: u32,
    /// Slot of the VM.
    pub vm: u32,
    /// Number of requests that the slot has held, modulo 2^32; distinguishes old handles.
    pub generation: u32,
    /// State of the slot, one of [`state`].
    pub state: u8,
    pub op: Op,
    /// Bits of [`flag`].
    pub flags: u8,
}

const _: () = assert!(size_of::<Hot>() == 64);

impl Hot {
    /// Returns a free slot; `next` is the free slot behind it.
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

    /// Returns whether the slot's request is the head of a unit that waits in a lane.
    pub(crate) fn waits_in_lane(&self) -> bool {
        self.state == state::PENDING || self.state == state::ADMITTED
    }

    /// Puts the slot `slot` at the head of the free list, before `free`, and returns it. Its old
    /// handle is invalid from now on.
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

/// Part of a request slot with the reply's address and the latency account, in one cache line.
///
/// Each sum of the account also stores the begin of an interval that is open: the begin is
/// subtracted when the interval opens, and the end added when it closes. Sums of open intervals are
/// therefore wrapped. Queueing is the rest of the time from arrival to end.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Cold {
    /// Client's handle of the request, returned with the reply.
    pub tag: u64,
    pub arrived: Nanos,
    /// Time held by the regulator, and time of deliberate idling. While the request waits, both are
    /// less the lane's and the device's totals at the begin of the wait.
    regulated: u64,
    deliberate: u64,
    merged_wait: u64,
    /// Time at the device; while an I/O is in flight, less the time of its submission.
    device: u64,
    /// Slot of the connection.
    pub client: u32,
    /// Slot of the disk.
    pub disk: u32,
    /// Position of the trail of ended I/Os when this request first went to the device, times two;
    /// plus one if another VM was served just before it.
    pub served: u32,
    /// I/Os of this request in flight.
    pub outstanding: u16,
    /// Error of the reply; `None`: none so far.
    pub error: Option<IoError>,
    /// Unusual properties of the request, as bits of [`mark`]; 0 for most.
    pub marks: u8,
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
        served: 0,
        outstanding: 0,
        error: None,
        marks: 0,
    };

    /// Opens the account at the arrival, with the first wait. `shut` and `deliberate` are the
    /// lane's total closed time and the device's total deliberate idling.
    pub(crate) fn open(&mut self, now: Nanos, shut: Nanos, deliberate: Nanos) {
        self.arrived = now;
        self.regulated = 0u64.wrapping_sub(shut.0);
        self.deliberate = 0u64.wrapping_sub(deliberate.0);
        self.merged_wait = 0;
        self.device = 0;
        self.served = 0;
        self.outstanding = 0;
        self.error = None;
        self.marks = 0;
    }

    /// Takes the time `outside`, for which the request had waited before it was taken, out of all
    /// waits: it is kept with the device's time, from which [`Cold::account`] separates it.
    pub(crate) fn waited_outside(&mut self, outside: Nanos) {
        debug_assert_eq!(
            self.device, 0,
            "the account of a new request was just opened"
        );
        self.device = outside.0;
        self.marks |= mark::WAITED_OUTSIDE;
    }

    /// Moves the arrival to the present, when the limits of its disk let the request go: it arrives
    /// for the scheduler, and its first wait begins. Returns the time for which it was held, to be
    /// kept beside the slots, as is the time before it was taken.
    pub(crate) fn released(&mut self, now: Nanos, shut: Nanos, deliberate: Nanos) -> Nanos {
        debug_assert_eq!(
            self.outstanding, 0,
            "a request is released while a part of it is in flight"
        );
        let held = Nanos(self.waited(now));
        self.arrived = now;
        // The time before it was taken was kept with the device's.
        (self.regulated, self.deliberate, self.device) = (0, 0, 0);
        self.begin_wait(shut, deliberate);
        self.marks |= mark::HELD;
        held
    }

    /// Ends the wait of a flush, which nothing holds back but the device: its lane's gate and
    /// deliberate waits do not matter.
    pub(crate) fn end_flush_wait(&mut self) {
        (self.regulated, self.deliberate) = (0, 0);
    }

    /// Position of the trail of ended I/Os when the request first went to the device, modulo 2^31.
    pub(crate) fn served_at(&self) -> u32 {
        self.served >> 1
    }

    /// Returns whether another VM was served just before the request first was.
    pub(crate) fn is_behind_another(&self) -> bool {
        self.served & 1 != 0
    }

    /// Begins another wait.
    pub(crate) fn begin_wait(&mut self, shut: Nanos, deliberate: Nanos) {
        self.regulated = self.regulated.wrapping_sub(shut.0);
        self.deliberate = self.deliberate.wrapping_sub(deliberate.0);
    }

    /// Ends a wait. The wait of a back-merged request (`merged`) counts as merged wait, whatever
    /// its lane did; only a request's first wait can be one.
    pub(crate) fn end_wait(&mut self, now: Nanos, merged: bool, shut: Nanos, deliberate: Nanos) {
        debug_assert_eq!(self.outstanding, 0, "a wait ends while a part is in flight");
        let waited = self.waited(now);
        if merged {
            self.merged_wait = waited;
            // Only the head of a unit is held or kept waiting; a merged request waits for its head.
            (self.regulated, self.deliberate) = (0, 0);
            return;
        }
        // The totals may include closed time from before the arrival: the wait itself bounds the
        // share.
        self.regulated = self.regulated.wrapping_add(shut.0).min(waited);
        let rest = waited - self.regulated;
        // Regulated time counts first, so that no time is counted twice.
        self.deliberate = self.deliberate.wrapping_add(deliberate.0).min(rest);
    }

    /// Records the admission: all time until now counts as regulated, and the wait for the turn
    /// begins.
    pub(crate) fn admitted(&mut self, now: Nanos, shut: Nanos, deliberate: Nanos) {
        debug_assert_eq!(
            self.outstanding, 0,
            "a request is admitted while a part of it is in flight"
        );
        self.regulated = self.waited(now);
        self.deliberate = 0;
        // The wait for the turn can be held again, by a gate at dispatch.
        self.begin_wait(shut, deliberate);
    }

    /// Returns the time for which a regulator has held the request so far. `shut` is its lane's
    /// total.
    pub(crate) fn held(&self, now: Nanos, shut: Nanos) -> Nanos {
        let held = match self.outstanding {
            // The wait is open: its begin was subtracted, see the type.
            0 => self.regulated.wrapping_add(shut.0).min(self.waited(now)),
            _ => self.regulated,
        };
        Nanos(held)
    }

    /// Fixes the regulated time so far, at a change of policy. The lane may have been closed since
    /// before the arrival, which only the end of the wait would correct: without this, the request
    /// would seem to be held further until it has waited that long.
    pub(crate) fn settle(&mut self, now: Nanos, shut: Nanos) {
        if self.outstanding == 0 {
            self.regulated = self.held(now, shut).0.wrapping_sub(shut.0);
        }
    }

    /// Returns the time from which the request counts as being at the device, when a cap in front
    /// of the device held an I/O back for `held`. Only time that no other cause accounts for is
    /// moved.
    pub(crate) fn with_device_since(&self, now: Nanos, held: Nanos) -> Nanos {
        let rest = self
            .waited(now)
            .saturating_sub(self.regulated + self.deliberate);
        now - Nanos(held.0.min(rest))
    }

    /// Records that an I/O of the request goes to the device.
    pub(crate) fn part_started(&mut self, now: Nanos) {
        if self.outstanding == 0 {
            // Parts in flight together count once: from the first start to the last end.
            self.device = self.device.wrapping_sub(now.0);
        }
        self.outstanding += 1;
    }

    /// Records that an I/O of the request completed.
    pub(crate) fn part_ended(&mut self, now: Nanos) {
        self.outstanding -= 1;
        if self.outstanding == 0 {
            self.device = self.device.wrapping_add(now.0);
        }
    }

    /// Returns the time since arrival without the device's and merged waits, in nanoseconds. Valid
    /// while none of the request is in flight.
    fn waited(&self, now: Nanos) -> u64 {
        let elapsed = now.since(self.arrived).0;
        elapsed.saturating_sub(self.device + self.merged_wait)
    }

    /// Returns the account, once nothing of the request waits or is in flight. A time before
    /// admission is still in the device's ([`Cold::waited_outside`]). Of a request that limits of
    /// its disk held, both that time and the one before admission are missing
    /// ([`Cold::released`]).
    pub(crate) fn account(&self, now: Nanos) -> Account {
        debug_assert_eq!(
            self.outstanding, 0,
            "a request is answered while a part of it is in flight"
        );
        let held = self.regulated + self.deliberate;
        Account {
            admission: Nanos::ZERO,
            regulated: Nanos(self.regulated),
            queued: Nanos(self.waited(now).saturating_sub(held)),
            merged_wait: Nanos(self.merged_wait),
            deliberate: Nanos(self.deliberate),
            device: Nanos(self.device),
        }
    }
}

/// Queue of one lane: units in the order of arrival, admitted ones first, as slot numbers.
#[derive(Clone, Copy)]
pub(crate) struct LaneQueue {
    pub head: u32,
    pub tail: u32,
    /// First unit that is not admitted; `NIL`: none.
    pub pending: u32,
}

impl LaneQueue {
    pub(crate) const EMPTY: LaneQueue = LaneQueue {
        head: NIL,
        tail: NIL,
        pending: NIL,
    };

    /// Returns the first admitted unit; `NIL`: none.
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

/// State of a VM slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Free,
    Live,
    /// Removed, with I/Os still in flight.
    Leaving,
}

/// Hot state of one VM: one cache line for the state of its queues, and the adjacent line for what
/// each request updates.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub(crate) struct Vm {
    /// Queues of reads and of writes.
    pub lanes: [LaneQueue; 2],
    /// Reasons for which each lane is closed, as bits of [`shut`]; 0: open.
    pub shut: [u8; 2],
    pub life: Life,
    /// True for a background process: see
    /// [`View::is_background`](crate::view::View::is_background).
    pub background: bool,
    /// True if a regulator at admission would not admit the next unit.
    pub spent: bool,
    /// True if replies count towards a deadline transfer.
    pub has_transfer: bool,
    /// True if requests are judged for attainment: see [`crate::attainment`].
    pub judged: bool,
    /// True if reads were set aside because another one of the lane holds the memory they lack.
    pub shelved: bool,
    pub generation: u32,
    /// Guest requests that wait, including flushes.
    pub waiting: u32,
    /// Guest requests inside the engine.
    pub requests: u32,
    /// I/Os of the VM in flight.
    pub in_flight: u32,
    /// Size in bytes up to which requests merge.
    pub merge_limit: u32,
    /// Size in bytes above which reads and writes are split.
    pub largest_io: u32,
    /// Guest requests that arrived and that were answered, modulo 2^32: see
    /// [`Ledger`](crate::stats::Ledger).
    pub arrived: u32,
    pub answered: u32,
    /// Second of the last reply, or of the request that ended a quiet time: see
    /// [`BandwidthSamples`](tidegate_base::bandwidth_samples::BandwidthSamples).
    pub second: u32,
    /// Units in the read lane that hold payload memory.
    pub holders: u32,
    /// Total time in which the regulator closed each lane, in nanoseconds; less the time of closing
    /// while the lane is closed.
    pub shut_sum: [u64; 2],
    /// Time at which the last outstanding request was answered.
    pub quiet_since: Nanos,
    /// Fingerprints by which most arrivals are known not to merge.
    pub edges: Edges,
}

const _: () = assert!(size_of::<Vm>() == 128);

/// Fingerprints of 16 bits of the begins and ends of a VM's last reads and writes. A request that
/// matches none of them merges with nothing, as most do: the check saves a walk over waiting units,
/// each on a line that has long left the caches.
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

    /// Returns the fingerprint of a position, a multiplicative (Fibonacci) hash that the operation
    /// perturbs.
    fn print(op: Op, addr: u64) -> u16 {
        (addr ^ op as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(16) as u16
    }

    /// Returns `true` if a request of `op` may begin where one of the last ended, or end where one
    /// began; false positives are rare. Records it in place of the oldest: `count` came before it.
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
    /// Returns a free VM slot.
    pub(crate) fn vacant() -> Vm {
        Vm {
            lanes: [LaneQueue::EMPTY; 2],
            shut: [0; 2],
            life: Life::Free,
            background: false,
            spent: false,
            has_transfer: false,
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

    /// Returns the VM's state at the end of a second, for its attainment.
    #[inline]
    pub(crate) fn state_at_close(&self, device: &DeviceStats) -> StateAtClose {
        StateAtClose {
            regulated: (self.shut[0] | self.shut[1]) & shut::REGULATED != 0,
            waits_for_others: self.waiting > 0 && device.requests > self.requests,
            device_busy: device.in_flight > 0,
        }
    }

    /// Returns the total time in which the regulator closed a lane, modulo 2^64.
    pub(crate) fn shut_time(&self, lane: Lane, now: Nanos) -> Nanos {
        let sum = self.shut_sum[lane.index()];
        if self.shut[lane.index()] & shut::REGULATED != 0 {
            Nanos(sum.wrapping_add(now.0))
        } else {
            Nanos(sum)
        }
    }

    /// Returns `true` if a lane is closed, for whatever reason.
    #[inline]
    pub(crate) fn is_closed(&self, lane: Lane) -> bool {
        self.shut[lane.index()] != 0
    }

    /// Sets or clears a regulator's reason to close a lane. Returns `false` if nothing changed.
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

    /// Returns the first admitted unit of a lane whose gate is open; `NIL`: none.
    #[inline]
    pub(crate) fn open_head(&self, lane: usize) -> u32 {
        if self.shut[lane] != 0 {
            NIL
        } else {
            self.lanes[lane].admitted_head()
        }
    }
}
