//! Write buffer of a flash disk: a queue per die, and a hash index by page.
//!
//! An entry is a page with those of its units that were written. Entries of a die are programmed in
//! order of arrival, as many units as one program operation takes. A unit that is written again
//! while it waits is programmed once.
//!
//! A flush books the programs of all that waits at once, far ahead of the dies. Those units take up
//! room until they are sent to their die, or frequent flushes would let writes in without end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    page: u32,
    /// Bit set of the page's units that wait.
    units: u32,
    /// Time at which the first of them arrived, in nanoseconds.
    since: u64,
    /// Next slot of the same die, or of the list of free slots.
    next: u32,
    /// Next slot in the same hash bucket.
    chain: u32,
}

/// Queue of one die.
#[derive(Clone, Copy, Debug)]
struct DieQueue {
    first: u32,
    last: u32,
    units: u32,
}

/// Write buffer of a drive. Sizes are in units of the mapping.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    slots: Box<[Slot]>,
    free: u32,
    buckets: Box<[u32]>,
    /// Right shift of a 64-bit hash that leaves a bucket's index.
    shift: u32,
    queues: Box<[DieQueue]>,
    size: u32,
    used: u32,
    leaving: Leaving,
    /// Number of units in `leaving`.
    booked: u32,
}

/// Units that a flush has booked: the time at which they leave, in nanoseconds, and their number.
/// Entries of the past are removed when their room is needed.
#[derive(Debug)]
struct Leaving(BinaryHeap<Reverse<(u64, u32)>>);

impl Clone for Leaving {
    /// Clones with full capacity. (A derived clone would allocate later.)
    fn clone(&self) -> Leaving {
        let mut heap = BinaryHeap::with_capacity(self.0.capacity());
        heap.extend(&self.0);
        Leaving(heap)
    }
}

impl Buffer {
    /// Creates a buffer of `size` units for `dies` dies.
    pub(super) fn new(size: u32, dies: u32) -> Buffer {
        let slot = |n: u32| Slot {
            page: 0,
            units: 0,
            since: 0,
            // At first all slots are a list of free ones.
            next: if n + 1 < size { n + 1 } else { NONE },
            chain: NONE,
        };
        let queue = DieQueue {
            first: NONE,
            last: NONE,
            units: 0,
        };
        // At least 2: a shift by 64 would overflow.
        let buckets = size.next_power_of_two().max(2);
        Buffer {
            slots: (0..size).map(slot).collect(),
            free: 0,
            buckets: vec![NONE; buckets as usize].into(),
            shift: 64 - buckets.ilog2(),
            queues: vec![queue; dies as usize].into(),
            size,
            used: 0,
            // Each entry has at least one unit, so it never grows.
            leaving: Leaving(BinaryHeap::with_capacity(size as usize)),
            booked: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns true if there is room for `units` more.
    pub(super) fn has_room(&self, units: u32) -> bool {
        self.used + self.booked + units <= self.size
    }

    /// Keeps the room of `units` that were taken until they leave, at `at` in nanoseconds.
    pub(super) fn keep_until(&mut self, at: u64, units: u32) {
        self.leaving.0.push(Reverse((at, units)));
        self.booked += units;
    }

    /// Returns the earliest time at which units leave that were booked; `MAX` if there are none.
    pub(super) fn next_leave(&self) -> u64 {
        self.leaving
            .0
            .peek()
            .map_or(u64::MAX, |&Reverse((at, _))| at)
    }

    /// Frees the room of the booked units that leave first.
    pub(super) fn let_leave(&mut self) {
        if let Some(Reverse((_, units))) = self.leaving.0.pop() {
            self.booked -= units;
        }
    }

    /// Number of units that wait for a die.
    pub(super) fn waiting(&self, die: usize) -> u32 {
        self.queues[die].units
    }

    /// Time at which the oldest unit of a die arrived, in nanoseconds; `MAX` if none waits.
    pub(super) fn oldest(&self, die: usize) -> u64 {
        match self.queues[die].first {
            NONE => u64::MAX,
            slot => self.slots[slot as usize].since,
        }
    }

    fn bucket(&self, page: u32) -> usize {
        // Fibonacci hashing (2^64 divided by the golden ratio): the top bits spread neighbours.
        let hash = u64::from(page).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> self.shift) as usize
    }

    fn find(&self, page: u32) -> Option<usize> {
        let mut at = self.buckets[self.bucket(page)];
        while at != NONE {
            let slot = &self.slots[at as usize];
            if slot.page == page {
                return Some(at as usize);
            }
            at = slot.chain;
        }
        None
    }

    /// Returns true if all `units` of `page` are in the buffer.
    pub(super) fn holds(&self, page: u32, units: u32) -> bool {
        // An empty buffer saves reads the lookup, as on a drive that is only read.
        self.used > 0
            && self
                .find(page)
                .is_some_and(|s| self.slots[s].units & units == units)
    }

    /// Adds `units` of `page`, which is on `die`, at `now`; there must be room for all of them.
    pub(super) fn insert(&mut self, die: usize, page: u32, units: u32, now: u64) {
        if let Some(slot) = self.find(page) {
            let slot = &mut self.slots[slot];
            // A unit that is written again takes no more room.
            let added = (units & !slot.units).count_ones();
            slot.units |= units;
            self.queues[die].units += added;
            self.used += added;
            return;
        }
        let added = units.count_ones();
        assert!(self.has_room(added), "the write buffer is full");
        let (at, bucket) = (self.free, self.bucket(page));
        let slot = &mut self.slots[at as usize];
        self.free = slot.next;
        *slot = Slot {
            page,
            units,
            since: now,
            next: NONE,
            chain: self.buckets[bucket],
        };
        self.buckets[bucket] = at;
        let queue = &mut self.queues[die];
        match queue.last {
            NONE => queue.first = at,
            last => self.slots[last as usize].next = at,
        }
        queue.last = at;
        queue.units += added;
        self.used += added;
    }

    /// Removes up to `most` units of a die, oldest first; returns their number.
    pub(super) fn take(&mut self, die: usize, most: u32) -> u32 {
        let mut taken = 0;
        while taken < most && self.queues[die].first != NONE {
            let at = self.queues[die].first as usize;
            let slot = &mut self.slots[at];
            while slot.units != 0 && taken < most {
                // Clears the lowest bit that is set.
                slot.units &= slot.units - 1;
                taken += 1;
            }
            if slot.units == 0 {
                self.drop_first(die);
            }
        }
        self.queues[die].units -= taken;
        self.used -= taken;
        taken
    }

    /// Removes the first entry of a die, which has no units left, from its queue and its bucket.
    fn drop_first(&mut self, die: usize) {
        let at = self.queues[die].first;
        let Slot {
            page, next, chain, ..
        } = self.slots[at as usize];
        self.queues[die].first = next;
        if next == NONE {
            self.queues[die].last = NONE;
        }
        let bucket = self.bucket(page);
        let mut link = self.buckets[bucket];
        if link == at {
            self.buckets[bucket] = chain;
        } else {
            while self.slots[link as usize].chain != at {
                link = self.slots[link as usize].chain;
            }
            self.slots[link as usize].chain = chain;
        }
        self.slots[at as usize].next = self.free;
        self.free = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_program_takes_the_oldest_units_of_its_die() {
        let mut b = Buffer::new(16, 2);
        b.insert(0, 10, 0b11, 5);
        b.insert(1, 11, 0b1, 6);
        b.insert(0, 12, 0b1111, 7);
        b.insert(0, 10, 0b110, 8);
        assert_eq!((b.waiting(0), b.waiting(1), b.oldest(0)), (7, 1, 5));
        assert_eq!(b.take(0, 4), 4);
        assert!(!b.holds(10, 1) && b.holds(12, 0b1110) && !b.holds(12, 0b1));
        assert_eq!(b.take(0, 4), 3);
        assert_eq!((b.take(0, 4), b.oldest(0)), (0, u64::MAX));
    }

    proptest! {
        /// Against a set of units.
        #[test]
        fn holds_just_what_was_put_in(
            steps in proptest::collection::vec((0_u32..40, 1_u32..16, 0..3_u8), 1..200)
        ) {
            let (mut b, mut set) = (Buffer::new(24, 4), BTreeSet::new());
            for (page, units, what) in steps {
                let die = page as usize % 4;
                let bits = (0..4).filter(|u| units >> u & 1 == 1);
                match what {
                    0 | 1 if b.has_room(units.count_ones()) => {
                        b.insert(die, page, units, 0);
                        set.extend(bits.map(|u| (page, u)));
                    }
                    _ => {
                        let most = b.waiting(die).min(3);
                        prop_assert_eq!(b.take(die, 3), most);
                        let all: Vec<_> = set.iter().copied().collect();
                        set.retain(|&(p, u)| p as usize % 4 != die || b.holds(p, 1 << u));
                        prop_assert_eq!(all.len() - set.len(), most as usize);
                    }
                }
                prop_assert_eq!(b.used as usize, set.len());
                for p in 0..40 {
                    for u in 0..4 {
                        prop_assert_eq!(b.holds(p, 1 << u), set.contains(&(p, u)));
                    }
                }
            }
        }
    }
}
