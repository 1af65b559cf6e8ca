//! Results of a simulated data centre.

use tidegate_core::time::Nanos;

use super::host::Ended;

/// Results over the counted time.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Report {
    /// Transfers that arrived.
    pub arrived: u64,
    /// Transfers placed at once.
    pub placed: u64,
    /// Transfers placed after a wait.
    pub placed_later: u64,
    /// Requests discarded at their deadlines.
    pub discarded: u64,
    /// Requests refused because not even an empty host would be in time.
    pub refused: u64,
    /// Transfers that ended.
    pub ended: u64,
    /// Ended transfers that missed their deadlines.
    pub missed: u64,
    /// Transfers still running at the end that were past their deadlines.
    pub overdue: u64,
    /// Mean lateness of the transfers that ended late.
    pub mean_late: Nanos,
    /// Mean wait of the transfers placed after a wait.
    pub mean_wait: Nanos,
    /// 99th percentile of that wait.
    pub p99_wait: Nanos,
    /// Longest such wait.
    pub longest_wait: Nanos,
    /// Mean number of running transfers.
    pub running: f64,
    /// Mean number of waiting requests.
    pub waiting: f64,
    /// Bytes moved, as a fraction of what all disks could have moved for one transfer each.
    pub utilisation: f64,
    /// Bytes of transfers that ended in time, as the same fraction.
    pub useful: f64,
}

/// Accumulator of a [`Report`].
#[derive(Default, Debug)]
pub(super) struct Counts {
    pub(super) report: Report,
    waits: Vec<Nanos>,
    late: u128,
    useful: u128,
    /// Integral over time, in transfers times nanoseconds.
    running: u128,
    waiting: u128,
}

impl Counts {
    pub(super) fn wait(&mut self, waited: Nanos) {
        self.report.placed_later += 1;
        self.waits.push(waited);
    }

    pub(super) fn end(&mut self, ended: &Ended) {
        self.report.ended += 1;
        let late = ended.at.since(ended.transfer.due_time());
        match late {
            Nanos::ZERO => self.useful += u128::from(ended.transfer.bytes),
            late => {
                self.report.missed += 1;
                self.late += u128::from(late.0);
            }
        }
    }

    pub(super) fn time(&mut self, passed: Nanos, running: usize, waiting: usize) {
        self.running += u128::from(passed.0) * running as u128;
        self.waiting += u128::from(passed.0) * waiting as u128;
    }

    /// Computes the report from `moved` bytes of `possible` ones in `length`.
    pub(super) fn finish(mut self, moved: u64, possible: u128, length: Nanos) -> Report {
        self.waits.sort_unstable();
        // The mean of nothing is 0.
        let mean = |sum: u128, n: u64| Nanos((sum / u128::from(n.max(1))) as u64);
        let part = |amount: u128, whole: u128| amount as f64 / whole.max(1) as f64;
        let waited = self.waits.iter().map(|wait| u128::from(wait.0)).sum();
        // Rank of the percentile, rounded up; at least the first element.
        let p99 = (self.waits.len() * 99).div_ceil(100);
        Report {
            mean_late: mean(self.late, self.report.missed),
            mean_wait: mean(waited, self.waits.len() as u64),
            p99_wait: self
                .waits
                .get(p99.saturating_sub(1))
                .copied()
                .unwrap_or_default(),
            longest_wait: self.waits.last().copied().unwrap_or_default(),
            running: part(self.running, length.0.into()),
            waiting: part(self.waiting, length.0.into()),
            utilisation: part(moved.into(), possible),
            useful: part(self.useful, possible),
            ..self.report
        }
    }
}
