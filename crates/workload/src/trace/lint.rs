//! Checks of a trace: records that can be right, and yet hint at a mistake.

use super::{Format, Place, Record, Tally};
use std::collections::HashSet;
use tidegate_core::time::Nanos;
use tidegate_units::human::{bytes_and_count, duration};

/// Number of findings of a kind that are kept to be shown.
const EXAMPLES: usize = 5;
/// Number of requests of one time among which duplicates are found.
const SAME_TIME_MAX: usize = 1 << 16;

/// Bounds of the checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LintOptions {
    /// Size in bytes of every disk, which no request may pass; `None`: unknown.
    pub disk_size: Option<u64>,
    /// Logical block size in bytes, by which addresses and lengths must be divisible.
    pub block_size: u64,
    /// Time without a request from which on it is reported.
    pub gap: Nanos,
}

/// Kind of finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LintKind {
    /// Record that cannot be right.
    Invalid,
    /// Request of no bytes.
    Empty,
    /// Request that is earlier than the one before it.
    Backwards,
    /// Request that ends beyond the disk.
    BeyondDisk,
    /// Address or length that is not in whole blocks.
    Unaligned,
    /// Request that is there twice, with everything that the trace says about it.
    Duplicate,
    /// Long time without a request.
    Gap,
}

impl LintKind {
    /// All kinds in the order of their report.
    pub const ALL: [LintKind; 7] = [
        LintKind::Invalid,
        LintKind::Empty,
        LintKind::Backwards,
        LintKind::BeyondDisk,
        LintKind::Unaligned,
        LintKind::Duplicate,
        LintKind::Gap,
    ];

    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            LintKind::Invalid => "invalid",
            LintKind::Empty => "empty",
            LintKind::Backwards => "backwards",
            LintKind::BeyondDisk => "beyond-disk",
            LintKind::Unaligned => "unaligned",
            LintKind::Duplicate => "duplicate",
            LintKind::Gap => "gap",
        }
    }
}

/// Findings of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LintFindings {
    /// Kind.
    pub kind: LintKind,
    /// Number of findings.
    pub count: u64,
    /// First findings, at most five.
    pub examples: Vec<(Place, String)>,
}

/// Checker of a trace, which is given one request after the other.
#[derive(Debug)]
pub struct Lint {
    options: LintOptions,
    /// True if times are those of ends, by which the trace is in order.
    by_end: bool,
    found: [LintFindings; LintKind::ALL.len()],
    last: Option<Nanos>,
    /// Requests of the last time.
    same_time: HashSet<(u32, bool, u64, u32, Option<Nanos>)>,
}

impl Lint {
    /// Creates a checker of a trace in `format`.
    pub fn new(format: Format, options: LintOptions) -> Lint {
        Lint {
            options,
            by_end: matches!(format, Format::Biosnoop | Format::Recording),
            found: LintKind::ALL.map(|kind| LintFindings {
                kind,
                count: 0,
                examples: Vec::new(),
            }),
            last: None,
            same_time: HashSet::new(),
        }
    }

    /// Checks the next request of the trace.
    pub fn check(&mut self, record: &Record, place: Place) {
        let took = record.took.get();
        let end_time = took.filter(|_| self.by_end).unwrap_or(Nanos::ZERO);
        let time = Nanos(record.at.0.saturating_add(end_time.0));
        self.check_time(time, place);
        let key = (record.disk, record.op == tidegate_core::request::Op::Read);
        let key = (key.0, key.1, record.offset, record.len, took);
        if self.same_time.contains(&key) {
            self.add(LintKind::Duplicate, place, || {
                let bytes = bytes_and_count(record.len.into());
                format!("{bytes} at byte {} again at the same time", record.offset)
            });
        } else if self.same_time.len() < SAME_TIME_MAX {
            self.same_time.insert(key);
        }
        if let Some(size) = self.options.disk_size
            && record.end() > size
        {
            self.add(LintKind::BeyondDisk, place, || {
                format!("ends at byte {} of {size}", record.end())
            });
        }
        let block = self.options.block_size;
        let whole = |bytes: u64| bytes.is_multiple_of(block);
        if !whole(record.offset) || !whole(record.len.into()) {
            self.add(LintKind::Unaligned, place, || {
                format!(
                    "{} B at byte {}, blocks have {block} B",
                    record.len, record.offset
                )
            });
        }
    }

    fn check_time(&mut self, time: Nanos, place: Place) {
        let last = self.last.replace(time);
        if last != Some(time) {
            self.same_time.clear();
        }
        let Some(last) = last else { return };
        if time < last {
            let by = duration(last.since(time).0);
            self.add(LintKind::Backwards, place, || {
                format!("{by} before the request before it")
            });
        }
        let gap = time.since(last);
        if gap >= self.options.gap {
            self.add(LintKind::Gap, place, || {
                format!("{} after the request before it", duration(gap.0))
            });
        }
    }

    fn add(&mut self, kind: LintKind, place: Place, what: impl FnOnce() -> String) {
        let found = &mut self.found[kind as usize];
        found.count += 1;
        if found.examples.len() < EXAMPLES {
            found.examples.push((place, what()));
        }
    }

    /// Returns the findings of all kinds, also of those that have none. `tally` has the bad
    /// records, which the reader skipped.
    pub fn finish(mut self, tally: &Tally) -> Vec<LintFindings> {
        for bad in &tally.bad {
            let kind = if bad.empty {
                LintKind::Empty
            } else {
                LintKind::Invalid
            };
            self.add(kind, bad.place, || bad.what.clone());
        }
        self.found[LintKind::Empty as usize].count = tally.empty;
        self.found[LintKind::Invalid as usize].count = tally.skipped - tally.empty;
        self.found.into()
    }
}
