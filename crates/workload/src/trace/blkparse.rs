//! Parser of the events of the Linux block layer as `blkparse` prints them by default.
//!
//! ```text
//!   8,0    3       11     0.009507758   697  Q   W 223490 + 56 [kjournald]
//!   8,0    3       12     0.009538995   697  C   W 223490 + 56 [0]
//! ```
//!
//! Fields: device, CPU, sequence number, seconds, process, action, operation, and for most actions
//! the first sector and the number of sectors. Source: blkparse(1) and blkparse_fmt.c of blktrace.
//!
//! A request is a bio as it was queued, before the block layer merges or splits it:
//!
//! - It arrives with its `Q`. Where a dump has none for the sectors, as with `blktrace -a issue`,
//!   the first of `G`, `I` and `D` is the arrival.
//! - It ends with the `C` that completes its last sector. A `C` of a merged request ends all bios
//!   in it; the `C`s of a split one end it together. A `C` with exactly its sectors ends the oldest
//!   such bio. Without a `C` its end is unknown.
//! - Merges (`M`, `F`), splits (`X`), plugs, remaps (`A`) and messages are no requests. A requeue
//!   (`R`) changes nothing: the request is still outstanding.
//! - Each device of a dump is a disk, named `MAJOR,MINOR`. A dump of a device and of another one on
//!   top of it has each request twice, once for either.
//! - The summary at the end of a dump is passed over.

use super::field::{Letters, decimal, letters, number, sectors};
use super::{Op, Place, Record, Took};
use std::collections::{BTreeSet, VecDeque};
use tidegate_core::time::Nanos;

pub(super) const RIGHT: &str = "MAJOR,MINOR CPU SEQUENCE SECONDS PID ACTION RWBS SECTOR + \
     SECTORS [COMMAND], as blkparse prints by default";

/// Number of requests held until they end; beyond it, the oldest is returned without its end.
const OUTSTANDING_MAX: usize = 16_384;
/// Words of an event before those of its action.
const WORDS_LEAST: usize = 6;

/// Event of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Event<'a> {
    pub(super) kind: Kind,
    pub(super) at: Nanos,
    pub(super) disk: &'a str,
    pub(super) op: Op,
    pub(super) fua: bool,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Kinds of events that matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The request came: `Q`.
    Queued,
    /// The request goes to the device: `G`, `I` or `D`.
    Issued,
    /// The request is complete: `C`.
    Completed,
}

/// Meaning of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Line<'a> {
    /// Event of a request.
    Event(Event<'a>),
    /// Arrival of a request without bytes, such as a flush.
    Other,
    /// Another event, or no event.
    Nothing,
}

/// Returns true if a dump begins with this line: an event, whose other mistakes are reported later.
pub(super) fn begins(line: &str) -> bool {
    let mut words = line.split_whitespace();
    line.starts_with("Input file ")
        || words.next().is_some_and(is_device) && words.count() + 1 >= WORDS_LEAST
}

/// Returns true for `MAJOR,MINOR`.
fn is_device(word: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (word.split_once(',')).is_some_and(|(major, minor)| number(major) && number(minor))
}

/// Request that has come.
#[derive(Debug)]
struct Outstanding {
    record: Record,
    /// Place of its first event.
    place: Place,
    /// Bytes that are not complete.
    left: u64,
}

/// Requests that have come and not yet been returned, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct State {
    /// True behind the last event of a dump, in its summary.
    summary: bool,
    queue: VecDeque<Outstanding>,
    /// Number of requests that were returned; the first in the queue has this number.
    returned: u64,
    /// Incomplete requests in the queue: disk, first byte, number.
    by_place: BTreeSet<(u32, u64, u64)>,
    /// Longest request so far in bytes, which bounds the search for those that reach into a range.
    longest: u64,
    /// True at the end of the input.
    finished: bool,
}

impl State {
    /// Parses a line.
    pub(super) fn parse<'a>(&mut self, line: &'a str) -> Result<Line<'a>, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_event = words.first().is_some_and(|word| is_device(word));
        let begins_summary = line.starts_with("CPU") || line.starts_with("Total (");
        self.summary = !is_event && (self.summary || begins_summary);
        if self.summary || line.starts_with("Input file ") {
            return Ok(Line::Nothing);
        }
        let [disk, cpu, sequence, at, pid, action, rest @ ..] = &words[..] else {
            return Err(format!(
                "{} words, expected {WORDS_LEAST} or more",
                words.len()
            ));
        };
        if !is_event {
            return Err(format!("device {disk:?} is not MAJOR,MINOR"));
        }
        number("CPU", cpu)?;
        number("sequence number", sequence)?;
        number("process", pid)?;
        let at = decimal("time", at, Nanos::SECOND.0)?;
        let kind = match *action {
            "Q" => Kind::Queued,
            "G" | "I" | "D" => Kind::Issued,
            "C" => Kind::Completed,
            "A" | "B" | "F" | "M" | "P" | "R" | "S" | "T" | "U" | "UT" | "X" | "m" => {
                return Ok(Line::Nothing);
            }
            _ => return Err(format!("action {action:?}")),
        };
        let (op, place) = match rest {
            [op, sector, "+", count, ..] => (letters(op)?, Some((sector, count))),
            // A flush, or a command that is no read or write and has no sectors.
            [op, ..] => (letters(op)?, None),
            [] => return Err("no operation".to_owned()),
        };
        let others = || match kind {
            Kind::Queued => Line::Other,
            Kind::Issued | Kind::Completed => Line::Nothing,
        };
        let (Letters::Bytes { op, fua }, Some((sector, count))) = (op, place) else {
            return Ok(others());
        };
        let (offset, len) = (sectors("sector", sector)?, sectors("sectors", count)?);
        if len == 0 {
            return Ok(others());
        }
        Ok(Line::Event(Event {
            kind,
            at,
            disk,
            op,
            fua,
            offset,
            len,
        }))
    }

    /// Adds an event of a request of this record's disk, operation and bytes. Returns false for a
    /// completion of a request that never came.
    pub(super) fn add(&mut self, kind: Kind, record: Record, place: Place) -> bool {
        match kind {
            Kind::Completed => return self.complete(&record),
            Kind::Issued if !self.overlapping(&record).is_empty() => {}
            Kind::Queued | Kind::Issued => {
                let number = self.returned + self.queue.len() as u64;
                self.by_place.insert((record.disk, record.offset, number));
                self.longest = self.longest.max(record.len.into());
                let left = record.len.into();
                self.queue.push_back(Outstanding {
                    record,
                    place,
                    left,
                });
            }
        }
        true
    }

    /// Marks the end of the input, after which all requests are returned.
    pub(super) fn finish(&mut self) {
        self.finished = true;
    }

    /// Takes the oldest request, if it has ended, or if no more can be held.
    pub(super) fn pop(&mut self) -> Option<(Record, Place)> {
        let oldest = self.queue.front()?;
        if oldest.left > 0 && !self.finished && self.queue.len() <= OUTSTANDING_MAX {
            return None;
        }
        let (record, place) = (oldest.record, oldest.place);
        self.by_place
            .remove(&(record.disk, record.offset, self.returned));
        self.queue.pop_front();
        self.returned += 1;
        Some((record, place))
    }

    /// Returns the places in the queue of incomplete requests that overlap with `record`, oldest
    /// first.
    fn overlapping(&self, record: &Record) -> Vec<usize> {
        let from = (
            record.disk,
            record.offset.saturating_sub(self.longest),
            u64::MIN,
        );
        let to = (record.disk, record.end(), u64::MIN);
        let mut found: Vec<usize> = (self.by_place.range(from..to))
            .map(|(_, _, number)| (number - self.returned) as usize)
            .filter(|&at| {
                let other = &self.queue[at].record;
                other.op == record.op && other.end() > record.offset
            })
            .collect();
        found.sort_unstable();
        found
    }

    /// Completes the bytes of `record` at its time.
    fn complete(&mut self, record: &Record) -> bool {
        let mut ended = self.overlapping(record);
        let same = ended.iter().copied().find(|&at| {
            let other = &self.queue[at].record;
            (other.offset, other.len) == (record.offset, record.len)
        });
        if let Some(same) = same {
            ended = vec![same];
        }
        for &at in &ended {
            let one = &mut self.queue[at];
            let (begin, end) = (one.record.offset, one.record.end());
            let done = end.min(record.end()) - begin.max(record.offset);
            one.left = one.left.saturating_sub(done);
            if one.left == 0 {
                one.record.took = Took::new(record.at.since(one.record.at));
                self.by_place
                    .remove(&(record.disk, begin, self.returned + at as u64));
            }
        }
        !ended.is_empty()
    }
}
