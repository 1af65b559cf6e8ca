//! Range locks, which put writes to overlapping blocks in sequence.
//!
//! A write that covers a block only in part reads the block and writes back all of it, which would
//! undo another write to the same block in between. While a disk has such a write in flight, each
//! of its writes therefore locks its whole blocks first, in the order of arrival, and proceeds once
//! no earlier write overlaps. Reads need no lock: writing a block back does not change the bytes
//! they read. The list is as short as the device's queue, and empty on a disk whose clients write
//! whole blocks.

/// Ranges of one disk that writes hold or wait for.
#[derive(Debug, Default)]
pub struct RangeLocks {
    /// Entries in order of arrival.
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u32,
    start: u64,
    end: u64,
    held: bool,
}

impl RangeLocks {
    /// Requests `[start, end)` for the write `id`. Returns true if it is held now; else
    /// [`RangeLocks::release`] will name the write.
    pub fn acquire(&mut self, id: u32, start: u64, end: u64) -> bool {
        debug_assert!(
            start < end,
            "an empty range excludes no other write of its block"
        );
        debug_assert!(
            self.entries.iter().all(|entry| entry.id != id),
            "I/O {id} locks twice, and `release` would free one of both"
        );
        let held = !self.entries.iter().any(|e| e.start < end && start < e.end);
        self.entries.push(Entry {
            id,
            start,
            end,
            held,
        });
        held
    }

    /// Records `[start, end)` as held by `id`, a write that was started without a lock, even if
    /// another entry overlaps.
    pub fn adopt(&mut self, id: u32, start: u64, end: u64) {
        let held = true;
        self.entries.push(Entry {
            id,
            start,
            end,
            held,
        });
    }

    /// Releases the range of `id` and appends the writes that hold their range from now on to
    /// `granted`. Panics if `id` does not hold one.
    pub fn release(&mut self, id: u32, granted: &mut Vec<u32>) {
        let at = self
            .entries
            .iter()
            .position(|e| e.id == id)
            .expect("the range is locked");
        let gone = self.entries.remove(at);
        assert!(gone.held, "released before it was held");
        // Only entries behind the released one can have waited for it.
        for i in at..self.entries.len() {
            let e = self.entries[i];
            let blocked = |o: &Entry| o.start < e.end && e.start < o.end;
            // Still behind an earlier entry, held or not: order of arrival decides.
            if !e.held && !self.entries[..i].iter().any(blocked) {
                self.entries[i].held = true;
                granted.push(e.id);
            }
        }
    }

    /// Returns true if no write holds or waits for a range.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_held_one_after_the_other_in_order() {
        let mut locks = RangeLocks::default();
        let mut granted = Vec::new();
        assert!(locks.acquire(1, 0, 4096));
        assert!(locks.acquire(2, 4096, 8192));
        assert!(!locks.acquire(3, 0, 8192));
        assert!(!locks.acquire(4, 0, 4096), "does not overtake the third");
        locks.release(1, &mut granted);
        assert!(granted.is_empty());
        locks.release(2, &mut granted);
        assert_eq!(granted, [3]);
        granted.clear();
        locks.release(3, &mut granted);
        assert_eq!(granted, [4]);
        locks.release(4, &mut granted);
        assert!(locks.is_empty());
    }

    #[test]
    fn what_is_under_way_already_is_waited_for() {
        let mut locks = RangeLocks::default();
        let mut granted = Vec::new();
        locks.adopt(1, 0, 4096);
        locks.adopt(2, 0, 8192);
        assert!(!locks.acquire(3, 4096, 8192));
        assert!(locks.acquire(4, 8192, 12288));
        locks.release(1, &mut granted);
        assert!(granted.is_empty());
        locks.release(2, &mut granted);
        assert_eq!(granted, [3]);
    }

    proptest::proptest! {
        #[test]
        fn no_two_holders_overlap_and_all_get_their_turn(
            ranges in proptest::collection::vec((0u64..20, 1u64..6), 1..40),
        ) {
            let mut locks = RangeLocks::default();
            let mut held: Vec<u32> = Vec::new();
            let mut finished = 0;
            let overlap = |a: u32, b: u32| {
                let (a, b) = (ranges[a as usize], ranges[b as usize]);
                a.0 < b.0 + b.1 && b.0 < a.0 + a.1
            };
            for (i, &(start, len)) in ranges.iter().enumerate() {
                if locks.acquire(i as u32, start, start + len) {
                    held.push(i as u32);
                }
                for (k, &a) in held.iter().enumerate() {
                    assert!(held[k + 1..].iter().all(|&b| !overlap(a, b)));
                }
                if i % 3 == 2 && !held.is_empty() {
                    let mut granted = Vec::new();
                    locks.release(held.remove(0), &mut granted);
                    finished += 1;
                    held.extend(granted);
                }
            }
            while !held.is_empty() {
                let mut granted = Vec::new();
                locks.release(held.remove(0), &mut granted);
                finished += 1;
                held.extend(granted);
            }
            assert_eq!(finished, ranges.len());
            assert!(locks.is_empty());
        }
    }
}
