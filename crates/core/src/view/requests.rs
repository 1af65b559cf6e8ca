//! Slab of the requests inside the engine, and the units that they form.

use crate::budget::buffer_bytes;
use crate::slots::{Cold, Edges, Hot, LaneQueue, flag, state};
use tidegate_base::request::{Op, ReqId};
use tidegate_base::slab::NIL;
use tidegate_base::time::Nanos;

/// Number of units, from the end of its lane, that a new request is compared with, if it continues
/// one of the last [`Edges::COUNT`] requests: streams interleave a few at a time. Linux's
/// `blk_bio_list_merge` looks back as far, at 8 requests.
pub(crate) const MERGE_SCAN: usize = Edges::COUNT;

/// Slab of requests. A unit is one request, or several that adjoin, linked by
/// [`Hot::chain_next`] in the order of their addresses; it is identified by the slot of one of
/// them.
#[derive(Default)]
pub(crate) struct Requests {
    pub hot: Vec<Hot>,
    pub cold: Vec<Cold>,
    /// First free slot; [`NIL`]: none is.
    pub free: u32,
    /// Place of the next request in the order of arrival.
    next_seq: u64,
}

/// New request, as its slot is filled with. `own_memory` and `judged` are not stored in the slot:
/// admission and attainment read them.
#[derive(Clone, Copy)]
pub(crate) struct NewRequest {
    /// First byte on the device.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    pub op: Op,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Slot of the VM.
    pub vm: u32,
    pub client: u32,
    pub disk: u32,
    pub tag: u64,
    /// Time at which its wait began.
    pub since: Nanos,
    /// Total time until now for which its lane has been shut.
    pub shut: Nanos,
    /// Total time until now for which the device was deliberately left idle.
    pub deliberate: Nanos,
    /// The payload lies in memory of the client's own.
    pub own_memory: bool,
    /// The request counts for its VM's attainment: see [`crate::attainment`].
    pub judged: bool,
}

/// Result of [`Requests::find_merge_target`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MergeSearch {
    /// Unit that has room for the request; true: the request goes behind the unit, false: before
    /// it.
    pub target: Option<(u32, bool)>,
    /// True if a unit without room begins where the request ends.
    pub is_followed: bool,
}

impl Requests {
    /// Creates a slab of `requests` slots; it never grows or allocates again.
    pub(crate) fn new(requests: u32) -> Requests {
        assert!(requests < NIL, "the number of the last slot marks no slot");
        // Slot i links to i + 1, so the free list runs through all slots in order.
        let mut hot: Vec<Hot> = (1..=requests).map(Hot::vacant).collect();
        if let Some(last) = hot.last_mut() {
            last.next = NIL;
        }
        Requests {
            hot,
            cold: vec![Cold::VACANT; requests as usize],
            free: if requests == 0 { NIL } else { 0 },
            next_seq: 0,
        }
    }

    /// Slot that the next request is written to; it stays free until [`Requests::fill`].
    ///
    /// # Panics
    /// When all slots are taken.
    #[inline(always)]
    pub(crate) fn next_slot(&self) -> u32 {
        assert!(self.free != NIL, "the request slab is full");
        self.free
    }

    /// Takes the slot of [`Requests::next_slot`] and writes the request into it, as a unit of its
    /// own in this state, behind `prev` in its lane. Written field by field: building a slot
    /// elsewhere and copying it costs more than all the other stores together.
    #[inline(always)]
    pub(crate) fn fill(&mut self, slot: u32, with: &NewRequest, state: u8, prev: u32) -> ReqId {
        debug_assert_eq!(
            slot, self.free,
            "the slots before it in the list would be lost"
        );
        let hot = &mut self.hot[slot as usize];
        debug_assert_eq!(
            hot.state,
            state::FREE,
            "a slot of the free list has a request"
        );
        self.free = hot.next;
        hot.addr = with.addr;
        hot.seq = self.next_seq;
        self.next_seq += 1;
        hot.len = with.len;
        hot.issued = 0;
        hot.unit_len = with.len;
        hot.unit_reqs = 1;
        hot.next = NIL;
        hot.prev = prev;
        hot.chain_next = NIL;
        hot.chain_last = slot;
        hot.chain_first = slot;
        hot.vm = with.vm;
        hot.state = state;
        hot.op = with.op;
        hot.flags = with.flags;
        let cold = &mut self.cold[slot as usize];
        cold.tag = with.tag;
        cold.client = with.client;
        cold.disk = with.disk;
        cold.open(with.since, with.shut, with.deliberate);
        hot.id(slot)
    }

    /// Returns the handle of the request that is in a slot now.
    #[inline]
    pub(crate) fn id(&self, slot: u32) -> ReqId {
        debug_assert_ne!(
            self.hot[slot as usize].state,
            state::FREE,
            "slot {slot} has no request, and so no handle"
        );
        self.hot[slot as usize].id(slot)
    }

    /// Gives a request that did not wait in a lane the last place in the order of arrival.
    pub(crate) fn renumber(&mut self, slot: u32) {
        self.hot[slot as usize].seq = self.next_seq;
        self.next_seq += 1;
    }

    /// Returns every admitted unit in the order of arrival, from which a new dispatcher builds its
    /// index.
    pub(crate) fn admitted_in_order(&self) -> Vec<ReqId> {
        let mut all: Vec<ReqId> = (0..self.hot.len() as u32)
            .filter(|&slot| self.hot[slot as usize].state == state::ADMITTED)
            .map(|slot| self.id(slot))
            .collect();
        // Slots are used again in any order, so their numbers say nothing of arrival.
        all.sort_by_key(|&id| self.hot[id.index()].seq);
        all
    }

    /// Iterates over the slots of a unit's guest requests, in the order of their addresses.
    pub(crate) fn chain(&self, unit: u32) -> impl Iterator<Item = u32> + '_ {
        let mut slot = self.hot[unit as usize].chain_first;
        let mut left = self.hot[unit as usize].unit_reqs;
        core::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            left -= 1;
            let this = slot;
            slot = self.hot[this as usize].chain_next;
            Some(this)
        })
    }

    /// Makes one guest request a unit of its own (not linked yet).
    pub(crate) fn make_unit(&mut self, slot: u32, state: u8, seq: u64) {
        let hot = &mut self.hot[slot as usize];
        debug_assert_eq!(
            hot.state,
            state::STARTED,
            "slot {slot} becomes a unit while it belongs to one"
        );
        hot.state = state;
        hot.seq = seq;
        hot.unit_len = hot.len;
        hot.unit_reqs = 1;
        hot.chain_first = slot;
        hot.chain_last = slot;
        hot.chain_next = NIL;
    }

    /// Returns the bytes of a waiting unit that are not dispatched yet.
    pub(crate) fn bytes_left(&self, unit: u32) -> u32 {
        let this = &self.hot[unit as usize];
        // Only a unit's first request can be partly dispatched.
        this.unit_len - self.hot[this.chain_first as usize].issued
    }

    /// Returns the number of a unit's requests, from its front, that fit whole into `room` bytes.
    pub(crate) fn whole_requests_in(&self, unit: u32, room: u32) -> u32 {
        let mut len = 0;
        let fits = self.chain(unit).take_while(|&slot| {
            len += self.hot[slot as usize].len;
            len <= room
        });
        fits.count() as u32
    }

    /// Finds the waiting unit that begins where this one ends and may be merged with it, among the
    /// next [`MERGE_SCAN`] of the lane.
    pub(crate) fn continuation(&self, unit: u32) -> Option<u32> {
        let Requests { hot, cold, .. } = self;
        let this = &hot[unit as usize];
        // From the first request's begin, since the unit may be partly dispatched.
        let end = hot[this.chain_first as usize].addr + u64::from(this.unit_len);
        let mut next = this.next;
        for _ in 0..MERGE_SCAN {
            if next == NIL {
                return None;
            }
            let other = &hot[next as usize];
            let first = &hot[other.chain_first as usize];
            // A partly dispatched unit no longer begins where its first request does.
            let adjoins = first.addr == end && first.issued == 0;
            let alike = other.op == this.op
                && (other.flags & flag::KIND) == (this.flags & flag::KIND)
                && other.state == state::ADMITTED;
            if adjoins && alike && cold[next as usize].disk == cold[unit as usize].disk {
                return Some(next);
            }
            next = other.next;
        }
        None
    }

    /// Returns the bytes of memory that a unit's reads need and do not hold.
    pub(crate) fn missing_memory(&self, unit: u32) -> u64 {
        let lacking = |slot: u32| {
            let Hot { len, flags, .. } = self.hot[slot as usize];
            match flags & flag::HOLDS {
                0 => buffer_bytes(len),
                _ => 0,
            }
        };
        self.chain(unit).map(lacking).sum()
    }

    /// Marks all requests of a unit as holding payload memory.
    pub(crate) fn mark_held(&mut self, unit: u32) {
        let Hot {
            unit_reqs,
            chain_first: mut slot,
            ..
        } = self.hot[unit as usize];
        for _ in 0..unit_reqs {
            let this = &mut self.hot[slot as usize];
            this.flags |= flag::HOLDS;
            slot = this.chain_next;
        }
    }

    /// Finds a waiting unit of `lane` that adjoins a new request and has room for it, growing to at
    /// most `unit_len_max` bytes. Where the unit has no room, or is partly dispatched, the first of
    /// the two in address order is marked as followed. The lane must not be empty.
    #[inline]
    pub(crate) fn find_merge_target(
        &mut self,
        lane: LaneQueue,
        request: &NewRequest,
        unit_len_max: u32,
    ) -> MergeSearch {
        debug_assert_ne!(lane.tail, NIL, "an empty lane has no unit to join");
        let Requests { hot, cold, .. } = self;
        let (kind, mut unit) = (request.flags & flag::KIND, lane.tail);
        let mut is_followed = false;
        for _ in 0..MERGE_SCAN {
            let other = &hot[unit as usize];
            let first = &hot[other.chain_first as usize];
            // A partly dispatched unit takes nothing in front, and does not grow.
            let (whole, last) = (first.issued == 0, other.chain_last);
            let behind = first.addr + other.unit_len as u64 == request.addr;
            let before = request.addr + request.len as u64 == first.addr && whole;
            let alike = other.op == request.op && other.flags & flag::KIND == kind;
            if alike && (behind || before) && cold[unit as usize].disk == request.disk {
                if whole && other.unit_len <= unit_len_max.saturating_sub(request.len) {
                    return MergeSearch {
                        target: Some((unit, behind)),
                        is_followed,
                    };
                }
                if behind {
                    // At dispatch the unit may have shrunk, or the limit grown: then the units that
                    // continue it are merged into its I/O.
                    hot[last as usize].flags |= flag::FOLLOWED;
                } else {
                    is_followed = true;
                }
                // Too large to join anything: one mark is all that the search can yield.
                if request.len >= unit_len_max {
                    break;
                }
            }
            if unit == lane.head {
                break;
            }
            // `prev` is valid here: the search ended above at the lane's first unit.
            unit = hot[unit as usize].prev;
        }
        MergeSearch {
            target: None,
            is_followed,
        }
    }

    /// Merges a request into a waiting unit, at its end (`behind`) or its beginning. The unit keeps
    /// its handle and its place in the order of arrival.
    pub(crate) fn append(&mut self, unit: u32, slot: u32, behind: bool) {
        debug_assert!(
            self.adjoins(unit, slot, behind),
            "slot {slot} joins unit {unit}, behind: {behind}, which it does not adjoin"
        );
        let hot = &mut self.hot;
        let len = hot[slot as usize].len;
        let Hot {
            chain_first,
            chain_last,
            ..
        } = hot[unit as usize];
        if behind {
            hot[chain_last as usize].chain_next = slot;
            hot[unit as usize].chain_last = slot;
        } else {
            hot[slot as usize].chain_next = chain_first;
            hot[unit as usize].chain_first = slot;
        }
        hot[unit as usize].unit_len += len;
        hot[unit as usize].unit_reqs += 1;
        hot[slot as usize].state = state::MERGED;
    }

    /// Returns whether the unit `other` begins where the unit `unit` ends (`behind`), or ends where
    /// it begins, and nothing of the latter of the two was issued: their bytes are those of one
    /// I/O.
    fn adjoins(&self, unit: u32, other: u32, behind: bool) -> bool {
        let (ahead, after) = if behind { (unit, other) } else { (other, unit) };
        let first = |slot: u32| &self.hot[self.hot[slot as usize].chain_first as usize];
        let ahead_end = first(ahead).addr + u64::from(self.hot[ahead as usize].unit_len);
        first(after).addr == ahead_end && first(after).issued == 0
    }

    /// Appends all requests of a unit that is out of its lane to another unit.
    pub(crate) fn append_unit(&mut self, unit: u32, next: u32) {
        debug_assert!(
            self.adjoins(unit, next, true),
            "unit {next} joins unit {unit}, behind which it does not begin"
        );
        let hot = &mut self.hot;
        let Hot {
            chain_first,
            chain_last,
            unit_len,
            unit_reqs,
            ..
        } = hot[next as usize];
        let this = &mut hot[unit as usize];
        let last = core::mem::replace(&mut this.chain_last, chain_last);
        this.unit_len += unit_len;
        this.unit_reqs += unit_reqs;
        hot[last as usize].chain_next = chain_first;
    }

    /// Bytes of a unit's first request that fit into `room` and end on a boundary of `block` bytes,
    /// the physical block; 0: nothing fits.
    pub(crate) fn cut(&self, unit: u32, room: u32, block: u32) -> u32 {
        let first = self.hot[unit as usize].chain_first;
        let (start, block) = (self.hot[first as usize].addr, u64::from(block));
        // Rounded down, so that neither part begins or ends inside a physical block.
        let end = (start + u64::from(room)) / block * block;
        end.saturating_sub(start) as u32
    }

    /// Returns whether another waiting request begins where a unit ends and has not joined it. For
    /// most units this reads only the cache line that dispatch touches anyway.
    #[inline]
    pub(crate) fn is_followed(&self, unit: u32) -> bool {
        let this = &self.hot[unit as usize];
        let last = match this.unit_reqs {
            1 => this,
            _ => &self.hot[this.chain_last as usize],
        };
        last.flags & flag::FOLLOWED != 0 && this.flags & (flag::ALONE | flag::AGAIN) == 0
    }

    /// Divides a unit that is out of its lane behind its first `reqs` requests. Each half takes its
    /// handle, and so its deadline, from its earliest request. Returns the slot of the half behind,
    /// and both halves in the order of arrival.
    pub(crate) fn divide(&mut self, unit: u32, reqs: u32) -> (u32, [u32; 2]) {
        let Hot {
            state: was,
            seq,
            chain_first,
            chain_last,
            unit_len,
            unit_reqs,
            ..
        } = self.hot[unit as usize];
        debug_assert!(
            reqs > 0 && reqs < unit_reqs,
            "{reqs} of {unit_reqs} requests leave one part empty"
        );
        let (last_of_front, front_len) = self
            .chain(unit)
            .take(reqs as usize)
            .fold((NIL, 0), |(_, len), slot| {
                (slot, len + self.hot[slot as usize].len)
            });
        debug_assert!(
            0 < front_len && front_len < unit_len,
            "the first {reqs} of {unit_reqs} requests have {front_len} of {unit_len} bytes"
        );
        let first_of_rest = self.hot[last_of_front as usize].chain_next;
        let arrived = |slot: u32| self.cold[slot as usize].arrived;
        let came_first = |half: &mut dyn Iterator<Item = u32>| {
            half.min_by_key(|&slot| arrived(slot))
                .expect("none is empty")
        };
        let front = came_first(&mut self.chain(unit).take(reqs as usize));
        let rest = came_first(&mut self.chain(unit).skip(reqs as usize));
        let in_order = if arrived(front) <= arrived(rest) {
            [front, rest]
        } else {
            [rest, front]
        };
        // Each half is identified by its earliest request, which may differ from `unit`: `unit` is
        // an ordinary merged request until then.
        self.hot[unit as usize].state = state::MERGED;
        self.hot[last_of_front as usize].chain_next = NIL;
        self.hot[last_of_front as usize].flags |= flag::FOLLOWED;
        let of_front = (front, chain_first, last_of_front, front_len, reqs);
        let (rest_len, rest_reqs) = (unit_len - front_len, unit_reqs - reqs);
        let of_rest = (rest, first_of_rest, chain_last, rest_len, rest_reqs);
        for (slot, first, last, len, reqs) in [of_front, of_rest] {
            let this = &mut self.hot[slot as usize];
            // Both keep the unit's place in the order of arrival.
            this.seq = seq;
            this.chain_first = first;
            this.chain_last = last;
            this.unit_len = len;
            this.unit_reqs = reqs;
            this.state = was;
        }
        (rest, in_order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills the next slot with a read of VM 0 at `addr`.
    fn read(reqs: &mut Requests, addr: u64, len: u32, since: u64) -> u32 {
        let slot = reqs.next_slot();
        let with = NewRequest {
            addr,
            len,
            op: Op::Read,
            flags: 0,
            vm: 0,
            client: 0,
            disk: 0,
            tag: addr,
            since: Nanos(since),
            shut: Nanos::ZERO,
            deliberate: Nanos::ZERO,
            own_memory: false,
            judged: false,
        };
        reqs.fill(slot, &with, state::EXPRESS, NIL);
        slot
    }

    fn give_back(reqs: &mut Requests, slot: u32) {
        reqs.free = reqs.hot[slot as usize].vacate(slot, reqs.free);
    }

    fn of_unit(reqs: &Requests, unit: u32) -> Vec<u64> {
        let addr = |slot: u32| reqs.hot[slot as usize].addr;
        reqs.chain(unit).map(addr).collect()
    }

    #[test]
    fn a_slot_is_used_again_under_another_handle() {
        let mut reqs = Requests::new(2);
        let first = read(&mut reqs, 0, 512, 0);
        let id = reqs.id(first);
        give_back(&mut reqs, first);
        assert_eq!(read(&mut reqs, 512, 512, 0), first);
        assert_ne!(reqs.id(first), id);
        assert_eq!(read(&mut reqs, 1024, 512, 0), 1);
    }

    #[test]
    #[should_panic(expected = "ends only once")]
    fn a_slot_is_given_back_once() {
        let mut reqs = Requests::new(1);
        let slot = read(&mut reqs, 0, 512, 0);
        give_back(&mut reqs, slot);
        give_back(&mut reqs, slot);
    }

    #[test]
    fn units_grow_at_both_ends_and_divide_at_a_request() {
        let mut reqs = Requests::new(8);
        let unit = read(&mut reqs, 4096, 4096, 5);
        let [behind, before] = [(8192, 7), (0, 3)].map(|(at, t)| read(&mut reqs, at, 4096, t));
        reqs.append(unit, behind, true);
        reqs.append(unit, before, false);
        assert_eq!(of_unit(&reqs, unit), [0, 4096, 8192]);
        assert_eq!(
            (reqs.bytes_left(unit), reqs.whole_requests_in(unit, 8192)),
            (12_288, 2)
        );
        assert_eq!(reqs.cut(unit, 5000, 512), 4608);
        let (rest, in_order) = reqs.divide(unit, 1);
        // The half in front came at 3, the other at 5, with the unit's first request.
        assert_eq!((rest, in_order), (unit, [before, unit]));
        assert_eq!(of_unit(&reqs, before), [0]);
        assert_eq!(of_unit(&reqs, rest), [4096, 8192]);
        assert!(reqs.is_followed(before) && !reqs.is_followed(rest));
    }

    #[test]
    fn merge_targets_have_room_and_others_are_marked_as_followed() {
        let mut reqs = Requests::new(4);
        let unit = read(&mut reqs, 0, 4096, 0);
        let lane = LaneQueue {
            head: unit,
            tail: unit,
            pending: NIL,
        };
        let mut next = NewRequest {
            addr: 4096,
            len: 4096,
            op: Op::Read,
            flags: 0,
            vm: 0,
            client: 0,
            disk: 0,
            tag: 0,
            since: Nanos::ZERO,
            shut: Nanos::ZERO,
            deliberate: Nanos::ZERO,
            own_memory: false,
            judged: false,
        };
        let found = |target| MergeSearch {
            target,
            is_followed: false,
        };
        assert_eq!(
            reqs.find_merge_target(lane, &next, 8192),
            found(Some((unit, true)))
        );
        assert!(!reqs.is_followed(unit));
        assert_eq!(reqs.find_merge_target(lane, &next, 8191), found(None));
        assert!(reqs.is_followed(unit));
        next.disk = 1;
        assert_eq!(reqs.find_merge_target(lane, &next, 8192), found(None));
    }
}
