//! Description of the replay of a block trace, whose requests a workload issues instead of drawn
//! ones. [`TraceReplay`](crate::trace_replay::TraceReplay) issues them.

pub use crate::factor::Factor;

use crate::error::Findings;
use crate::time::TimeDistribution;
use crate::trace::{Record, SECTOR, Trace};
use std::fmt;
use std::sync::Arc;
use tidegate_core::random::mix;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// Times at which a trace's requests are issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Times of the trace multiplied by a factor, from the first request on, whether earlier
    /// requests are answered or not. Beyond `iodepth` pieces they wait inside the guest, which
    /// counts into their latency.
    Timed(Factor),
    /// One after the other: the next when the last is done.
    NextWhenDone,
    /// In order, so that a fixed number of requests is outstanding or thought about: each end lets
    /// the next request come, a think time of its own later ([`crate::dependence`]).
    /// [`Record::at`] is the think time. The first so many requests follow no end, and theirs count
    /// from the start.
    Thinking(u32),
}

/// Requests of a trace, shared by all workloads that replay them.
#[derive(Clone, PartialEq, Eq)]
struct Requests {
    all: Arc<[Record]>,
    /// Hash of the content. Debug output has it instead of the content, so that it stays short and
    /// still tells traces apart.
    digest: u64,
}

impl Requests {
    fn new(all: Vec<Record>) -> Requests {
        let digest = all.iter().fold(all.len() as u64, |digest, r| {
            let op = match r.op {
                Op::Read => 1,
                Op::Discard => 2,
                Op::Flush => 3,
                Op::WriteZeroes => 8,
                Op::Write => 4 * u64::from(r.fua),
            };
            let what = u64::from(r.disk) << 32 | op;
            let parts = [r.at.0, r.offset, u64::from(r.len), what];
            (parts.into_iter()).fold(digest, |digest, part| mix(digest ^ mix(part)))
        });
        let all = all.into();
        Requests { all, digest }
    }
}

/// Prints the number and the hash of the requests instead of the requests.
impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests ({:016x})", self.all.len(), self.digest)
    }
}

/// Trace as a workload replays it.
///
/// Sizes are multiplied by `size_factor` and rounded up to whole logical blocks of the disk.
/// Addresses are multiplied by it too, so that requests stay adjacent or apart as in the trace;
/// they are rounded down to a block and taken modulo the region. A request that would pass the
/// region's end moves to the last place where it fits. Several disks of a trace lie side by side,
/// each in an equal part of the region.
#[derive(Clone, PartialEq, Debug)]
pub struct Replay {
    requests: Requests,
    /// Number of disks of the trace that the requests belong to; the disks are numbered from 0.
    disks: u32,
    /// Times at which the requests are issued.
    pub mode: Mode,
    /// Factor of sizes and addresses.
    pub size_factor: Factor,
    /// True to begin again after the last request, after a pause of the average gap between
    /// requests (`loop` in a scenario).
    pub looped: bool,
    /// Pause before each request but the first, from the reply to the request before it, in
    /// [`Mode::NextWhenDone`].
    pub pause: Option<TimeDistribution>,
    /// Time between the end of a round and the beginning of the next in [`Mode::Thinking`] with
    /// `looped`: the time in which the trace has no request of its VM, before and behind them.
    pub round_pause: Nanos,
}

impl Replay {
    /// Selects the first `limit` requests (`None`: all) of `disk`, an index into [`Trace::disks`]
    /// (`None`: all disks), to be replayed unscaled, once and one after the other. Returns `None`
    /// if there is no such request.
    pub fn new(trace: &Trace, disk: Option<u32>, limit: Option<u64>) -> Option<Replay> {
        let limit = limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let of_disk = |record: &&Record| disk.is_none_or(|disk| record.disk == disk);
        let mut all: Vec<Record> = (trace.records.iter().filter(of_disk))
            .take(limit)
            .copied()
            .collect();
        // Time begins with the first request that is replayed, not with the trace.
        let first = all.first()?.at;
        // Disks are renumbered in the order of their first requests among the selected ones.
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
        Some(Replay {
            requests: Requests::new(all),
            disks,
            mode: Mode::NextWhenDone,
            size_factor: Factor::ONE,
            looped: false,
            pause: None,
            round_pause: Nanos::ZERO,
        })
    }

    /// Replays requests in [`Mode::Thinking`], whose [`Record::at`] are think times and whose disk
    /// is 0: `first` come at the start, each of the `rest` follows an end. With `looped` the rest
    /// comes again and again. Returns `None` if there is no first request.
    pub fn thinking(first: Vec<Record>, rest: Vec<Record>) -> Option<Replay> {
        let depth = u32::try_from(first.len()).ok().filter(|&depth| depth > 0)?;
        let mut records = first;
        records.extend(rest);
        Some(Replay {
            requests: Requests::new(records),
            disks: 1,
            mode: Mode::Thinking(depth),
            size_factor: Factor::ONE,
            looped: false,
            pause: None,
            round_pause: Nanos::ZERO,
        })
    }

    /// Returns the place of the request that follows the last one if the replay is repeated.
    pub(crate) fn repeats_from(&self) -> usize {
        match self.mode {
            Mode::Thinking(depth) => depth as usize,
            Mode::Timed(_) | Mode::NextWhenDone => 0,
        }
    }

    /// Returns the pause before the request at `index` of a repeated round, beside its think time.
    ///
    /// Each of the places in the queue takes one of the round's first requests, and so each of them
    /// pauses once. A round of fewer requests than places is over when some of them have paused:
    /// several rounds then share a pause, which is as much longer.
    pub(crate) fn pause_of_round(&self, index: usize) -> Nanos {
        let Mode::Thinking(depth) = self.mode else {
            return Nanos::ZERO;
        };
        let depth = depth as usize;
        if index.saturating_sub(depth) >= depth {
            return Nanos::ZERO;
        }
        let round = self.request_count().saturating_sub(depth).max(1);
        let rounds = depth.div_ceil(round) as u64;
        Nanos(self.round_pause.0.saturating_mul(rounds))
    }

    /// Requests in the order of their times.
    pub(crate) fn records(&self) -> &[Record] {
        &self.requests.all
    }

    /// Returns the number of requests, at least 1.
    pub fn request_count(&self) -> usize {
        self.requests.all.len()
    }

    /// Number of disks of the trace that the requests belong to.
    pub fn disks(&self) -> u32 {
        self.disks
    }

    /// Returns the largest request in bytes, scaled, in whole sectors.
    pub(crate) fn largest(&self) -> u64 {
        let all = self.requests.all.iter();
        let largest = all.map(|record| record.len).max().unwrap_or(0);
        let bytes = self.size_factor.mul_ceil(largest.into());
        // Beyond 64 bits no disk holds the request anyway, and the check of the region refuses it.
        bytes.checked_next_multiple_of(SECTOR).unwrap_or(bytes)
    }

    /// Returns the time from the first request to its repetition: the span and an average gap.
    pub(crate) fn period(&self, factor: Factor) -> Nanos {
        let all = &self.requests.all;
        let span = all.last().map_or(Nanos::ZERO, |last| last.at);
        // A trace of one request has no gap; 1 avoids a division by 0.
        let gaps = (all.len() as u64).saturating_sub(1).max(1);
        Nanos(factor.mul_floor(span.0.saturating_add(span.0 / gaps)))
    }

    pub(crate) fn check_into(&self, findings: &mut Findings) {
        if let (true, Mode::Timed(factor)) = (self.looped, self.mode) {
            let fine = self.period(factor) > Nanos::ZERO;
            let found = "true, but all requests of the trace are at one time";
            let allowed = "false, or mode = \"next-when-done\"";
            findings.expect(fine, "loop", found, allowed);
        }
    }
}
