//! Replay of the log after a cut: the newest content of each byte, what is left to send of it, and
//! what is on the wire.
//!
//! A log can have a quarter of a million records. So they are looked at in steps, newest first,
//! each of a bounded number of records and ranges; parts that a newer record has are left out.

use std::collections::BTreeMap;
use std::ops::Range;

use super::log::Log;
use super::{Change, Data, Part, Terms};
use crate::request::Command;

/// Parts that are on the wire at a time.
const WINDOW: usize = 32;
/// Records, and ranges of bytes that newer ones have, that are looked at in a step: some 20 us.
const STEP: usize = 128;

/// Part of a change to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    offset: u64,
    len: u64,
    change: Change,
    /// Position of the first byte of a write.
    data: u64,
}

/// Replay of the log.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// Number of records that were not looked at to their end: those before the oldest one that
    /// was.
    records_left: usize,
    /// Bytes of the last of them that were looked at.
    looked_at: u64,
    /// Bytes that newer records have.
    newer: Coverage,
    /// Pieces to be sent, which do not overlap; the last one is next.
    pieces: Vec<Piece>,
    /// Parts on the wire, by the low half of their cookies.
    pub(super) parts: [Option<Part>; WINDOW],
}

impl Replay {
    /// Begins to replay a log, which must not change until the replay is over.
    pub(super) fn new(log: &Log) -> Replay {
        Replay {
            records_left: log.len(),
            ..Replay::default()
        }
    }

    /// Returns true if nothing is left to send or to be answered.
    pub(super) fn is_over(&self) -> bool {
        self.records_left == 0 && self.pieces.is_empty() && self.parts.iter().all(Option::is_none)
    }

    /// Returns true if a part could be sent after a further step.
    pub(super) fn is_gathering(&self) -> bool {
        self.records_left > 0 && self.pieces.is_empty() && self.free_slot().is_some()
    }

    /// Returns a free place among the parts on the wire.
    pub(super) fn free_slot(&self) -> Option<usize> {
        self.parts.iter().position(Option::is_none)
    }

    /// Takes the next part to send: its command, first byte, length and data. `None` if there is
    /// none, or none was found in a step.
    pub(super) fn take_next(
        &mut self,
        terms: &Terms,
        log: &Log,
    ) -> Option<(Command, u64, u32, Data)> {
        if self.pieces.is_empty() {
            self.gather(log, terms);
        }
        let piece = self.pieces.last_mut()?;
        let offset = piece.offset;
        let from = Data::Log { at: piece.data };
        let (command, len, data) = terms.part(piece.change, piece.len, from);
        piece.offset += u64::from(len);
        piece.len -= u64::from(len);
        piece.data += u64::from(len);
        if piece.len == 0 {
            self.pieces.pop();
        }
        Some((command, offset, len, data))
    }

    /// Looks at some records, newest first.
    fn gather(&mut self, log: &Log, terms: &Terms) {
        let mut steps = STEP;
        while self.records_left > 0 && steps > 0 {
            steps -= 1;
            let record = log.record(self.records_left - 1);
            let end = record.offset + u64::from(record.len);
            let from = record.offset + self.looked_at;
            let pieces = &mut self.pieces;
            let to = self.newer.add(from..end, &mut steps, |part| {
                // A trim that the server does not have is none, and newer content of its range was
                // left alone as well.
                if record.change != Change::Trim || terms.can_trim {
                    pieces.push(Piece {
                        offset: part.start,
                        len: part.end - part.start,
                        change: record.change,
                        data: record.data + (part.start - record.offset),
                    });
                }
            });
            if to == end {
                self.records_left -= 1;
                self.looked_at = 0;
            } else {
                self.looked_at = to - record.offset;
            }
        }
    }
}

/// Set of bytes, as ranges that neither overlap nor touch, by their begin.
#[derive(Debug, Default)]
struct Coverage(BTreeMap<u64, u64>);

impl Coverage {
    /// Adds a range from its begin on, and calls `new` with each part of it that was not in the
    /// set. Stops when as many ranges of the set as there are `steps` were met, and returns the end
    /// of what was added.
    fn add(
        &mut self,
        range: Range<u64>,
        steps: &mut usize,
        mut new: impl FnMut(Range<u64>),
    ) -> u64 {
        let Range { mut start, mut end } = range.clone();
        let mut at = start;
        // From the last range that begins before this one, which may reach into it.
        let first = self.0.range(..=start).next_back();
        let from = first
            .filter(|(_, to)| **to >= start)
            .map_or(start, |(from, _)| *from);
        while let Some((&from, &to)) = self.0.range(from..=end).next() {
            self.0.remove(&from);
            if at < from {
                new(at..from);
            }
            at = at.max(to);
            start = start.min(from);
            *steps = steps.saturating_sub(1);
            if *steps == 0 && at < range.end {
                self.0.insert(start, at);
                return at;
            }
            end = end.max(to);
        }
        if at < range.end {
            new(at..range.end);
        }
        self.0.insert(start, end);
        range.end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn coverage_names_each_new_byte_once(
            ranges in prop::collection::vec((0u64..60, 1u64..12, 2usize..5), 1..30),
        ) {
            let mut coverage = Coverage::default();
            let mut known = [false; 80];
            for (start, len, most) in ranges {
                let (mut new, end, mut at) = ([false; 80], start + len, start);
                while at < end {
                    let mut steps = most;
                    let to = coverage.add(at..end, &mut steps, |part| {
                        assert!(part.start < part.end && at <= part.start && part.end <= end);
                        for byte in part {
                            assert!(!std::mem::replace(&mut new[byte as usize], true));
                        }
                    });
                    assert!(at < to && to <= end && (to == end || steps == 0));
                    at = to;
                }
                for byte in start..end {
                    let known = &mut known[byte as usize];
                    assert_eq!(new[byte as usize], !*known, "byte {byte}");
                    *known = true;
                }
            }
        }
    }

    const TERMS: Terms = Terms {
        max_payload: 1 << 20,
        can_zero: true,
        can_trim: true,
        can_flush: true,
    };

    /// Returns all parts, with the number of calls that brought none.
    fn replay(log: &Log) -> (Vec<(Command, u64, u32, Data)>, usize) {
        let mut replay = Replay::new(log);
        let (mut parts, mut empty) = (Vec::new(), 0);
        loop {
            match replay.take_next(&TERMS, log) {
                Some(part) => parts.push(part),
                None if replay.is_over() => return (parts, empty),
                None => empty += 1,
            }
        }
    }

    #[test]
    fn the_newest_content_of_each_byte_is_replayed_alone() {
        let mut log = Log::new(1 << 20);
        let zeroes = Change::Zeroes { no_hole: false };
        for (offset, len, change) in [
            (0, 100, Change::Write),
            (50, 100, zeroes),
            (60, 10, Change::Write),
        ] {
            assert!(log.reserve(change.logged_bytes(len)));
            log.push(offset, len, change);
        }
        let zero = Command::WriteZeroes {
            no_hole: false,
            fast_zero: false,
        };
        let (mut parts, _) = replay(&log);
        parts.sort_by_key(|(_, offset, ..)| *offset);
        assert_eq!(
            parts,
            [
                (Command::Write, 0, 50, Data::Log { at: 0 }),
                (zero, 50, 10, Data::None),
                (Command::Write, 60, 10, Data::Log { at: 100 }),
                (zero, 70, 80, Data::None),
            ]
        );
    }

    #[test]
    fn a_long_log_is_looked_at_in_bounded_steps() {
        const WRITES: u64 = 64 * STEP as u64;
        let mut log = Log::new(WRITES << 12);
        // A range below all others, then writes with gaps, then one place again and again.
        assert!(log.reserve(0));
        log.push(0, 2 * WRITES as u32, Change::Zeroes { no_hole: false });
        for at in 0..WRITES / 2 {
            assert!(log.reserve(1));
            log.push(4 * at, 1, Change::Write);
        }
        for _ in 0..WRITES / 2 - 1 {
            assert!(log.reserve(1));
            log.push(0, 1, Change::Write);
        }
        let mut replay = Replay::new(&log);
        let mut bytes = 0;
        let mut calls = 0;
        while !replay.is_over() {
            let before = (replay.records_left, replay.newer.0.len());
            let part = replay.take_next(&TERMS, &log);
            bytes += part.map_or(0, |(_, _, len, _)| u64::from(len));
            let after = (replay.records_left, replay.newer.0.len());
            assert!(before.0 - after.0 <= STEP && before.1.abs_diff(after.1) <= STEP);
            calls += 1;
        }
        assert_eq!(bytes, 2 * WRITES, "each byte once");
        assert!(calls > WRITES / 2);
    }
}
