//! What was found out.

use tidegate_core::time::Nanos;

use super::site::Ended;

/// What happened in a data centre while it was counted.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Report {
    /// Jobs that came.
    pub arrived: u64,
    /// Jobs that went to a host at once.
    pub placed: u64,
    /// Jobs that went to a host after a wait.
    pub placed_later: u64,
    /// Jobs that waited until their deadline.
    pub discarded: u64,
    /// Jobs that no host does in time if it is empty.
    pub refused: u64,
    /// Jobs that ended.
    pub ended: u64,
    /// Those of them that ended late.
    pub missed: u64,
    /// Jobs that still ran at the end, and were late by then.
    pub overdue: u64,
    /// How late those that ended late were, on average.
    pub mean_late: Nanos,
    /// How long those waited that went to a host later: on average,
    pub mean_wait: Nanos,
    /// ninety-nine of a hundred at most,
    pub p99_wait: Nanos,
    /// and all.
    pub longest_wait: Nanos,
    /// Jobs that ran, on average.
    pub running: f64,
    /// Jobs that waited, on average.
    pub waiting: f64,
    /// Bytes that moved, of those that all disks would have moved for one job each.
    pub utilisation: f64,
    /// The same of the jobs that ended in time.
    pub useful: f64,
}

/// Counts for a [`Report`].
#[derive(Default, Debug)]
pub(super) struct Counts {
    pub(super) report: Report,
    waits: Vec<Nanos>,
    late: u128,
    useful: u128,
    /// Jobs times nanoseconds.
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
        let late = ended.at.since(ended.job.due());
        match late {
            Nanos::ZERO => self.useful += u128::from(ended.job.bytes),
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

    /// Of so many bytes that moved, out of so many that could have, in this time.
    pub(super) fn finish(mut self, moved: u64, possible: u128, length: Nanos) -> Report {
        self.waits.sort_unstable();
        let mean = |sum: u128, n: u64| Nanos((sum / u128::from(n.max(1))) as u64);
        let part = |amount: u128, whole: u128| amount as f64 / whole.max(1) as f64;
        let waited = self.waits.iter().map(|wait| u128::from(wait.0)).sum();
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
