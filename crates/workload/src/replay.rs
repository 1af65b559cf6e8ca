//! Replay of a block trace, as a job describes it: the trace's requests instead of drawn ones.
//! [`Replaying`](crate::replaying::Replaying) issues them.

use crate::mistake::Findings;
use crate::time::nearest;
use crate::trace::{Record, SECTOR, Trace};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tidegate_core::random::mix;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// A factor in millionths: what follows from it is whole numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Factor(u64);

impl Factor {
    /// It changes nothing.
    pub const ONE: Factor = Factor(1_000_000);
    /// What a factor may be.
    pub const RANGE: RangeInclusive<f64> = 0.000_001..=1_000_000.0;

    /// The nearest millionth to `factor`, which is in [`Factor::RANGE`].
    pub fn new(factor: f64) -> Factor {
        Factor(nearest(factor * 1e6).0.max(1))
    }

    /// So many times `n`, rounded down.
    pub(crate) fn down(self, n: u64) -> u64 {
        let product = u128::from(n) * u128::from(self.0) / 1_000_000;
        u64::try_from(product).unwrap_or(u64::MAX)
    }

    /// So many times `n`, rounded up.
    pub(crate) fn up(self, n: u64) -> u64 {
        let product = (u128::from(n) * u128::from(self.0)).div_ceil(1_000_000);
        u64::try_from(product).unwrap_or(u64::MAX)
    }
}

/// When a trace's requests come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// At the trace's times multiplied by a factor, the first at once, whether the ones before are
    /// answered or not. Past `iodepth` pieces they wait inside the guest, and that wait counts.
    Timed(Factor),
    /// One after the other: the next once the last is done.
    NextWhenDone,
}

/// Requests of a trace, shared by all who replay them.
#[derive(Clone, PartialEq, Eq)]
struct Requests {
    all: Arc<[Record]>,
    /// Of their content.
    digest: u64,
}

/// What they are follows from the digest, so that who prints a job prints no trace.
impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests ({:016x})", self.all.len(), self.digest)
    }
}

/// A trace as a job replays it.
///
/// Sizes are multiplied by `size_factor` and rounded up to whole logical blocks of the disk.
/// Addresses are multiplied by it, too, so that what follows each other or lies apart in the trace
/// still does, rounded down to a block and taken modulo the region; a request that would pass the
/// region's end moves to the last place where it fits. Several disks of a trace lie side by side,
/// each in an equal part of the region.
#[derive(Clone, PartialEq, Debug)]
pub struct Replay {
    requests: Requests,
    /// Disks that they are of, numbered from 0.
    disks: u32,
    /// When they come.
    pub mode: Mode,
    /// What their sizes and addresses are multiplied by.
    pub size_factor: Factor,
    /// After the last one the first comes again, as long after it as requests are apart on average.
    pub again: bool,
}

impl Replay {
    /// The first `limit` requests (`None`: all) of `disk`, an index into [`Trace::disks`] (`None`:
    /// of all disks), as they are, one after the other, once. `None`: there is no such request.
    pub fn new(trace: &Trace, disk: Option<u32>, limit: Option<u64>) -> Option<Replay> {
        let limit = limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let of_disk = |record: &&Record| disk.is_none_or(|disk| record.disk == disk);
        let mut all: Vec<Record> = (trace.records.iter().filter(of_disk))
            .take(limit)
            .copied()
            .collect();
        let first = all.first()?.at;
        // Numbered by their first requests among these.
        let mut numbers = vec![None; trace.disks.len()];
        let mut disks = 0;
        for record in &mut all {
            record.at = record.at.since(first);
            let number = &mut numbers[record.disk as usize];
            record.disk = *number.get_or_insert_with(|| {
                disks += 1;
                disks - 1
            });
        }
        let digest = all.iter().fold(all.len() as u64, |digest, r| {
            let what = u64::from(r.disk) << 32 | u64::from(r.op == Op::Read);
            let parts = [r.at.0, r.offset, u64::from(r.len), what];
            (parts.into_iter()).fold(digest, |digest, part| mix(digest ^ mix(part)))
        });
        let all = all.into();
        Some(Replay {
            requests: Requests { all, digest },
            disks,
            mode: Mode::NextWhenDone,
            size_factor: Factor::ONE,
            again: false,
        })
    }

    /// Requests, in the order in which they come.
    pub(crate) fn records(&self) -> &[Record] {
        &self.requests.all
    }

    /// How many there are; at least one.
    pub fn requests(&self) -> usize {
        self.requests.all.len()
    }

    /// How many disks of the trace they are of.
    pub fn disks(&self) -> u32 {
        self.disks
    }

    /// The largest, in whole sectors.
    pub(crate) fn largest(&self) -> u64 {
        let all = self.requests.all.iter();
        let largest = all.map(|record| record.len).max().unwrap_or(0);
        let bytes = self.size_factor.up(largest.into());
        bytes.checked_next_multiple_of(SECTOR).unwrap_or(bytes)
    }

    /// From the first request to the first one once again: their span and an average gap more.
    pub(crate) fn period(&self, factor: Factor) -> Nanos {
        let all = &self.requests.all;
        let span = all.last().map_or(Nanos::ZERO, |last| last.at);
        let gaps = (all.len() as u64).saturating_sub(1).max(1);
        Nanos(factor.down(span.0.saturating_add(span.0 / gaps)))
    }

    pub(crate) fn check_into(&self, findings: &mut Findings) {
        if let (true, Mode::Timed(factor)) = (self.again, self.mode) {
            let fine = self.period(factor) > Nanos::ZERO;
            let allowed = "at times only for requests that do not all come at one";
            findings.expect(fine, "loop", true, allowed);
        }
    }
}
