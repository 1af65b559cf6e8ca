//! Write cache of a hard disk: data that was written and is not on the medium yet.
//!
//! The cache holds extents (runs of adjacent bytes), sorted by address, up to a fixed number. The
//! drive writes them back in sweeps from the outer edge inwards (C-LOOK): from where it wrote last
//! to the next extent, and from the last one back to the first. Alternatively it takes the extent
//! that it can begin soonest. A long extent is written in pieces, so that a read waits for one
//! piece at most.

use super::figures::WriteBackOrder;

/// Bytes written back at a time; a choice: a few milliseconds on a track.
const PIECE_BYTES: u64 = 512 << 10;

/// Run of bytes that waits for the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Extent {
    start: u64,
    end: u64,
}

/// Write cache of a drive. Sizes are in bytes, times in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    size: u64,
    /// Maximum number of extents.
    max_extents: usize,
    idle: u64,
    order: WriteBackOrder,
    /// Extents, sorted, neither overlapping nor adjacent. Never grows beyond its capacity.
    extents: Vec<Extent>,
    /// Bytes in all extents.
    dirty: u64,
    /// Piece that is being written to the medium, until `in_transit_until`. It occupies room until
    /// then.
    in_transit: Extent,
    in_transit_until: u64,
    /// Address from which the sweep continues.
    sweep: u64,
}

impl WriteCache {
    pub(super) fn new(size: u64, extents: u32, idle: u64, order: WriteBackOrder) -> WriteCache {
        let max_extents = extents as usize;
        WriteCache {
            size,
            max_extents,
            idle,
            order,
            extents: Vec::with_capacity(max_extents),
            dirty: 0,
            in_transit: Extent { start: 0, end: 0 },
            in_transit_until: 0,
            sweep: 0,
        }
    }

    /// Returns an empty cache with the same parameters. (A clone would lack the capacity.)
    pub(super) fn fresh(&self) -> WriteCache {
        WriteCache {
            extents: Vec::with_capacity(self.max_extents),
            ..*self
        }
    }

    /// Returns true if a write of `bytes` fits an empty cache.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        bytes <= self.size
    }

    /// Returns true if there is room for `bytes` more at `now`.
    pub(super) fn has_room(&self, now: u64, bytes: u64) -> bool {
        let in_transit = if now < self.in_transit_until {
            self.in_transit.end - self.in_transit.start
        } else {
            0
        };
        // The write may start a new extent, so one must be free.
        self.dirty + in_transit + bytes <= self.size && self.extents.len() < self.max_extents
    }

    /// Returns true if no data waits for the medium.
    pub(super) fn is_clean(&self) -> bool {
        self.extents.is_empty()
    }

    /// Returns true if the cache is half full, so that the drive writes back without waiting to be
    /// idle.
    pub(super) fn is_half_full(&self) -> bool {
        // Many small extents use up their number before the bytes.
        self.dirty * 2 >= self.size || self.extents.len() * 2 > self.max_extents
    }

    /// Time after the last command for which the drive waits before it writes back.
    pub(super) fn idle_wait(&self) -> u64 {
        if self.is_half_full() { 0 } else { self.idle }
    }

    /// Returns the indices of the extents that touch or overlap `start..end`.
    fn touching(&self, start: u64, end: u64) -> core::ops::Range<usize> {
        // `<` and `<=`: adjacent extents are merged, too.
        let first = self.extents.partition_point(|e| e.end < start);
        let last = first + self.extents[first..].partition_point(|e| e.start <= end);
        first..last
    }

    /// Adds `start..end`; there must be room.
    pub(super) fn insert(&mut self, start: u64, end: u64) {
        let touching = self.touching(start, end);
        let Some(first) = self.extents[touching.clone()].first().copied() else {
            assert!(
                self.extents.len() < self.max_extents,
                "the write cache is full"
            );
            self.extents.insert(touching.start, Extent { start, end });
            self.dirty += end - start;
            return;
        };
        let held: u64 = self.extents[touching.clone()]
            .iter()
            .map(|e| e.end - e.start)
            .sum();
        let merged = Extent {
            start: first.start.min(start),
            end: self.extents[touching.end - 1].end.max(end),
        };
        self.extents[touching.start] = merged;
        self.extents.drain(touching.start + 1..touching.end);
        self.dirty += merged.end - merged.start - held;
    }

    /// Removes `start..end`, because the medium is written directly or the data is discarded.
    pub(super) fn remove(&mut self, start: u64, end: u64) {
        let mut index = self.extents.partition_point(|e| e.end <= start);
        while let Some(e) = self.extents.get_mut(index).filter(|e| e.start < end) {
            match (e.start < start, e.end > end) {
                (true, true) => {
                    // If there is no room for a second extent, the extent stays whole: its middle
                    // is written back needlessly.
                    if self.extents.len() < self.max_extents {
                        let rest = Extent {
                            start: end,
                            end: self.extents[index].end,
                        };
                        self.extents[index].end = start;
                        self.extents.insert(index + 1, rest);
                        self.dirty -= end - start;
                    }
                    return;
                }
                (true, false) => {
                    self.dirty -= e.end - start;
                    e.end = start;
                    index += 1;
                }
                (false, true) => {
                    self.dirty -= end - e.start;
                    e.start = end;
                    return;
                }
                (false, false) => {
                    self.dirty -= e.end - e.start;
                    self.extents.remove(index);
                }
            }
        }
    }

    /// Returns true if all of `start..end` can be read from the cache at `now`.
    pub(super) fn holds(&self, now: u64, start: u64, end: u64) -> bool {
        let inside = |e: &Extent| e.start <= start && end <= e.end;
        let index = self.extents.partition_point(|e| e.end < end);
        self.extents.get(index).is_some_and(inside)
            || (now < self.in_transit_until && inside(&self.in_transit))
    }

    /// Removes and returns the next piece to be written back; the caller writes it and reports the
    /// end with [`WriteCache::set_in_transit_until`].
    ///
    /// `delay(address, most)` returns the time until a write at `address` can begin; a result above
    /// `most` may be a lower bound.
    pub(super) fn next_piece(&mut self, delay: impl Fn(u64, u64) -> u64) -> Option<(u64, u64)> {
        let index = match self.order {
            WriteBackOrder::Sweep => {
                let ahead = self.extents.partition_point(|e| e.start < self.sweep);
                // Behind the last extent the sweep starts again at the first.
                if ahead < self.extents.len() { ahead } else { 0 }
            }
            WriteBackOrder::Soonest => {
                let (mut soonest, mut least) = (0, u64::MAX);
                for (index, extent) in self.extents.iter().enumerate() {
                    let wait = delay(extent.start, least);
                    if wait < least {
                        (soonest, least) = (index, wait);
                    }
                }
                soonest
            }
        };
        let extent = self.extents.get_mut(index)?;
        let start = extent.start;
        let end = extent.end.min(start + PIECE_BYTES);
        if end == extent.end {
            self.extents.remove(index);
        } else {
            extent.start = end;
        }
        self.dirty -= end - start;
        self.sweep = end;
        self.in_transit = Extent { start, end };
        Some((start, end))
    }

    /// Time at which everything taken from the cache is on the medium.
    pub(super) fn in_transit_until(&self) -> u64 {
        self.in_transit_until
    }

    /// Sets the time at which the piece taken last is on the medium.
    pub(super) fn set_in_transit_until(&mut self, at: u64) {
        self.in_transit_until = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Delay for the order `Sweep`, which does not use it.
    fn none(_: u64, _: u64) -> u64 {
        unreachable!("a sweep goes by address")
    }

    fn cache() -> WriteCache {
        WriteCache::new(1_000, 8, 5, WriteBackOrder::Sweep)
    }

    #[test]
    fn sweeps_inwards_and_begins_again() {
        let mut c = cache();
        for start in [500, 100, 900, 300] {
            c.insert(start, start + 10);
        }
        c.sweep = 400;
        let order: Vec<u64> = std::iter::from_fn(|| c.next_piece(none))
            .map(|p| p.0)
            .collect();
        assert_eq!(order, [500, 900, 100, 300]);
        assert!(c.is_clean() && c.dirty == 0);
    }

    #[test]
    fn what_can_begin_soonest_goes_first_where_the_drive_asks() {
        let mut c = WriteCache::new(1_000, 8, 5, WriteBackOrder::Soonest);
        for start in [500, 100, 900, 300] {
            c.insert(start, start + 10);
        }
        let delay = |start: u64, _| (start + 700) % 1_000;
        let order: Vec<u64> = std::iter::from_fn(|| c.next_piece(delay))
            .map(|p| p.0)
            .collect();
        assert_eq!(order, [300, 500, 900, 100]);
    }

    #[test]
    fn a_long_run_is_written_in_pieces() {
        let mut c = WriteCache::new(4 * PIECE_BYTES, 8, 0, WriteBackOrder::Sweep);
        c.insert(0, 2 * PIECE_BYTES + 100);
        assert_eq!(c.next_piece(none), Some((0, PIECE_BYTES)));
        assert_eq!(c.next_piece(none), Some((PIECE_BYTES, 2 * PIECE_BYTES)));
        assert_eq!(
            c.next_piece(none),
            Some((2 * PIECE_BYTES, 2 * PIECE_BYTES + 100))
        );
        assert_eq!(c.next_piece(none), None);
    }

    #[test]
    fn what_is_on_its_way_takes_room_and_can_be_read_until_it_is_there() {
        let mut c = cache();
        c.insert(0, 1_000);
        assert!(!c.has_room(0, 1));
        c.next_piece(none);
        c.set_in_transit_until(50);
        assert!(c.holds(49, 10, 20) && !c.has_room(49, 1));
        assert!(!c.holds(50, 10, 20) && c.has_room(50, 1_000));
    }

    proptest! {
        /// Against a set of bytes.
        #[test]
        fn holds_just_what_was_put_in(
            steps in proptest::collection::vec((0_u64..60, 1_u64..20, 0..3_u8), 1..60)
        ) {
            let (mut c, mut bytes) = (cache(), std::collections::BTreeSet::new());
            for (start, len, what) in steps {
                let end = start + len;
                match what {
                    0 | 1 if c.has_room(0, len) => {
                        c.insert(start, end);
                        bytes.extend(start..end);
                    }
                    // With room for two halves, or it may keep more.
                    2 if c.extents.len() < c.max_extents => {
                        c.remove(start, end);
                        (start..end).for_each(|b| { bytes.remove(&b); });
                    }
                    _ => {
                        if let Some((start, end)) = c.next_piece(none) {
                            prop_assert!((start..end).all(|b| bytes.remove(&b)));
                        }
                    }
                }
                prop_assert_eq!(c.dirty, bytes.len() as u64);
                prop_assert!(c.extents.windows(2).all(|w| w[0].end < w[1].start));
                prop_assert!(c.extents.len() <= c.max_extents);
                for b in 0..90 {
                    prop_assert_eq!(c.holds(0, b, b + 1), bytes.contains(&b));
                }
            }
        }
    }
}
