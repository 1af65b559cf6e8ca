//! Battery-backed write cache of a controller: data that was acknowledged and is not on the device
//! yet.
//!
//! The cache holds runs of adjacent dirty bytes, sorted by address; writes next to each other
//! merge. Runs are destaged by ascending address, then from the first again (C-LOOK), in I/Os that
//! cross no multiple of their largest size. What is being destaged takes room until it is on the
//! device.

use super::figures::WriteCacheFigures;

/// Adjacent bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Run {
    fn len(self) -> u64 {
        self.end - self.start
    }

    fn overlaps(self, other: Run) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Write cache. Sizes are in bytes, times in nanoseconds.
#[derive(Debug)]
pub(super) struct WriteCache {
    figures: WriteCacheFigures,
    max_runs: usize,
    /// Dirty runs, sorted, neither overlapping nor adjacent. Never grows beyond its capacity.
    runs: Vec<Run>,
    /// Bytes in all dirty runs.
    dirty: u64,
    /// Runs that are being destaged. Never grows beyond its capacity.
    destaged: Vec<Run>,
    /// Bytes in all runs that are being destaged.
    destaged_bytes: u64,
    /// Address from which the sweep continues.
    sweep: u64,
    /// True from the high watermark down to the low one.
    drains: bool,
}

impl WriteCache {
    pub(super) fn new(figures: &WriteCacheFigures) -> WriteCache {
        let max_runs = figures.runs();
        WriteCache {
            figures: *figures,
            max_runs,
            runs: Vec::with_capacity(max_runs),
            dirty: 0,
            destaged: Vec::with_capacity(figures.destage_depth as usize),
            destaged_bytes: 0,
            sweep: 0,
            drains: false,
        }
    }

    /// Returns true if there is room for a write of `bytes`.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        // A write may begin a run, and a discard may cut one in two.
        self.occupied() + bytes <= self.figures.size.0 && self.runs.len() + 1 < self.max_runs
    }

    /// Bytes that are dirty or being destaged.
    pub(super) fn occupied(&self) -> u64 {
        self.dirty + self.destaged_bytes
    }

    /// Returns true if there is dirty data that is not being destaged.
    pub(super) fn is_dirty(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Time without a command after which dirty data is destaged.
    pub(super) fn idle(&self) -> u64 {
        self.figures.idle.0.0
    }

    /// Adds `start..end`, for which there must be room.
    pub(super) fn insert(&mut self, start: u64, end: u64) {
        // `<` and `<=`: adjacent runs are merged, too.
        let first = self.runs.partition_point(|run| run.end < start);
        let count = self.runs[first..].partition_point(|run| run.start <= end);
        if count == 0 {
            assert!(self.runs.len() < self.max_runs, "the write cache is full");
            self.runs.insert(first, Run { start, end });
            self.dirty += end - start;
        } else {
            let touched = &self.runs[first..first + count];
            let held: u64 = touched.iter().map(|run| run.len()).sum();
            let merged = Run {
                start: touched[0].start.min(start),
                end: touched[count - 1].end.max(end),
            };
            self.runs[first] = merged;
            self.runs.drain(first + 1..first + count);
            self.dirty += merged.len() - held;
        }
        self.update_watermark();
    }

    /// Removes `start..end`, which is discarded. What is being destaged stays.
    pub(super) fn remove(&mut self, start: u64, end: u64) {
        let gone = Run { start, end };
        let first = self.runs.partition_point(|run| run.end <= start);
        let mut index = first;
        while let Some(run) = self
            .runs
            .get(index)
            .copied()
            .filter(|run| run.overlaps(gone))
        {
            let (before, behind) = (run.start < start, run.end > end);
            if before && behind && self.runs.len() == self.max_runs {
                // Without room for a second run its middle is destaged needlessly.
                break;
            }
            self.dirty -= run.end.min(end) - run.start.max(start);
            if before && behind {
                let rest = Run {
                    start: end,
                    end: run.end,
                };
                self.runs[index].end = start;
                self.runs.insert(index + 1, rest);
                break;
            } else if before {
                self.runs[index].end = start;
                index += 1;
            } else if behind {
                self.runs[index].start = end;
                break;
            } else {
                self.runs.remove(index);
            }
        }
        self.update_watermark();
    }

    /// Returns the address up to which the data from `at` on is in the cache; `at` if it is not.
    pub(super) fn covered_until(&self, at: u64) -> u64 {
        let index = self.runs.partition_point(|run| run.end <= at);
        let dirty = self.runs.get(index).filter(|run| run.start <= at);
        let destaged = self.destaged.iter().filter(|run| run.start <= at);
        let ends = dirty.into_iter().chain(destaged).map(|run| run.end);
        ends.fold(at, u64::max)
    }

    /// Returns true if `start..end` is in the cache as a whole.
    pub(super) fn covers(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            let until = self.covered_until(at);
            if until == at {
                return false;
            }
            at = until;
        }
        true
    }

    /// Applies the watermarks. Runs count as bytes do: many small ones fill the table first.
    fn update_watermark(&mut self) {
        if self.dirty >= self.figures.high_watermark.0 || self.runs.len() * 8 > self.max_runs * 7 {
            self.drains = true;
        } else if self.dirty <= self.figures.low_watermark.0 && self.runs.len() * 2 <= self.max_runs
        {
            self.drains = false;
        }
    }

    /// Returns true if a further destage may begin; `pressed`: a write waits for room, or the
    /// controller is idle.
    pub(super) fn wants_destage(&self, pressed: bool) -> bool {
        (self.drains || pressed)
            && self.is_dirty()
            && self.destaged.len() < self.figures.destage_depth as usize
    }

    /// Takes the next run to be destaged. `None` if all dirty data overlaps what is being destaged
    /// already: its newer content has to follow it.
    pub(super) fn next_destage(&mut self) -> Option<Run> {
        let ahead = self.runs.partition_point(|run| run.end <= self.sweep);
        let io = self.figures.destage_io.0;
        let sweep = self.sweep;
        // Behind the last run the sweep starts again at the first.
        let order = (ahead..self.runs.len()).chain(0..ahead);
        for index in order {
            let run = self.runs[index];
            // A run that has grown in front of the sweep is taken from the sweep on.
            let start = if index == ahead && run.start < sweep {
                sweep
            } else {
                run.start
            };
            let piece = Run {
                start,
                end: run.end.min((start / io + 1) * io),
            };
            if self.destaged.iter().any(|other| other.overlaps(piece)) {
                continue;
            }
            if start > run.start && self.runs.len() == self.max_runs {
                continue;
            }
            self.take(index, piece);
            return Some(piece);
        }
        None
    }

    /// Moves a piece of a run from the dirty data to what is being destaged.
    fn take(&mut self, index: usize, piece: Run) {
        let run = self.runs[index];
        match (run.start < piece.start, piece.end < run.end) {
            (false, false) => {
                self.runs.remove(index);
            }
            (false, true) => self.runs[index].start = piece.end,
            (true, false) => self.runs[index].end = piece.start,
            (true, true) => {
                self.runs[index].end = piece.start;
                let rest = Run {
                    start: piece.end,
                    end: run.end,
                };
                self.runs.insert(index + 1, rest);
            }
        }
        self.dirty -= piece.len();
        self.destaged.push(piece);
        self.destaged_bytes += piece.len();
        self.sweep = piece.end;
        self.update_watermark();
    }

    /// Notes that a run is on the device: its room is free.
    pub(super) fn destaged(&mut self, run: Run) {
        let index = self.destaged.iter().position(|other| *other == run);
        // Runs that are being destaged never overlap, so each is there once.
        self.destaged
            .swap_remove(index.expect("it is being destaged"));
        self.destaged_bytes -= run.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use tidegate_core::time::Nanos;
    use tidegate_units::{Bytes, Duration};

    fn cache() -> WriteCache {
        let mut cache = WriteCache::new(&WriteCacheFigures {
            size: Bytes(1 << 20),
            high_watermark: Bytes(100),
            low_watermark: Bytes(40),
            idle: Duration(Nanos(5)),
            destage_io: Bytes(32),
            destage_depth: 3,
        });
        cache.figures.size = Bytes(160);
        cache
    }

    fn run(start: u64, end: u64) -> Option<Run> {
        Some(Run { start, end })
    }

    #[test]
    fn destages_go_by_address_merge_and_cross_no_boundary() {
        let mut c = cache();
        for (start, end) in [(70, 80), (10, 20), (20, 40), (90, 100)] {
            c.insert(start, end);
        }
        c.sweep = 60;
        assert_eq!(c.next_destage(), run(70, 80));
        assert_eq!(c.next_destage(), run(90, 96));
        assert_eq!(c.next_destage(), run(96, 100));
        assert!(!c.wants_destage(true), "three are on their way");
        c.destaged(Run { start: 70, end: 80 });
        assert!(c.wants_destage(true) && !c.wants_destage(false));
        // 10..20 and 20..40 were merged, and 32 is a boundary.
        assert_eq!(c.next_destage(), run(10, 32));
        assert_eq!(c.next_destage(), run(32, 40));
        assert!(!c.is_dirty());
        assert_eq!(c.occupied(), 40);
    }

    #[test]
    fn draining_begins_at_the_high_watermark_and_ends_at_the_low_one() {
        let mut c = cache();
        c.insert(0, 96);
        assert!(!c.wants_destage(false));
        c.insert(200, 204);
        assert!(c.wants_destage(false));
        assert_eq!(c.next_destage(), run(0, 32));
        assert!(c.wants_destage(false), "68 are dirty");
        assert_eq!(c.next_destage(), run(32, 64));
        assert!(!c.wants_destage(false), "36 are dirty");
        // Data being destaged takes room: 100 of 160.
        assert!(c.has_room(60) && !c.has_room(61));
        c.destaged(Run { start: 0, end: 32 });
        assert!(c.has_room(92) && !c.has_room(93));
    }

    #[test]
    fn newer_data_follows_what_is_being_destaged() {
        let mut c = cache();
        c.insert(0, 20);
        assert_eq!(c.next_destage(), run(0, 20));
        c.insert(10, 30);
        assert_eq!(c.next_destage(), run(20, 30));
        assert_eq!(c.next_destage(), None, "10..20 would overtake");
        assert!(c.covers(0, 30));
        c.destaged(Run { start: 0, end: 20 });
        assert_eq!(c.next_destage(), run(10, 20));
    }

    proptest! {
        /// Against a set of bytes: nothing is lost before it is destaged.
        #[test]
        fn holds_just_what_was_written_until_it_is_destaged(
            steps in proptest::collection::vec((0_u64..90, 1_u64..40, 0..5_u8), 1..80)
        ) {
            let mut c = cache();
            c.max_runs = 6;
            let (mut dirty, mut way): (BTreeSet<u64>, Vec<Run>) = (BTreeSet::new(), Vec::new());
            for (start, len, what) in steps {
                let end = start + len;
                match what {
                    0 | 1 if c.has_room(len) => {
                        c.insert(start, end);
                        dirty.extend(start..end);
                    }
                    // With room for two halves, or it may keep more.
                    2 if c.runs.len() < c.max_runs => {
                        c.remove(start, end);
                        (start..end).for_each(|byte| { dirty.remove(&byte); });
                    }
                    3 if !way.is_empty() => {
                        let run = way.remove((start % way.len() as u64) as usize);
                        c.destaged(run);
                    }
                    4 if c.wants_destage(true) => {
                        if let Some(run) = c.next_destage() {
                            prop_assert!((run.start..run.end).all(|byte| dirty.remove(&byte)));
                            prop_assert!(!way.iter().any(|other| other.overlaps(run)));
                            prop_assert_eq!(run.start / 32, (run.end - 1) / 32);
                            way.push(run);
                        }
                    }
                    _ => {}
                }
                let moving: u64 = way.iter().map(|run| run.len()).sum();
                prop_assert_eq!(c.occupied(), dirty.len() as u64 + moving);
                prop_assert!(c.occupied() <= 160, "more than its size");
                prop_assert!(c.runs.len() <= c.max_runs && way.len() <= 3);
                prop_assert!(c.runs.windows(2).all(|pair| pair[0].end < pair[1].start));
                for byte in 0..140 {
                    let on_its_way = way.iter().any(|run| run.start <= byte && byte < run.end);
                    prop_assert_eq!(c.covers(byte, byte + 1), dirty.contains(&byte) || on_its_way);
                }
            }
        }
    }
}
