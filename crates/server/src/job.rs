//! Jobs as the daemon has them: so many bytes of a VM, by when on the wall clock.
//!
//! The engine knows a job since this daemon began it, by a clock that starts with the host. What of
//! it was before, and when it is due for people, stands here beside that.

mod times;

use jiff::Timestamp;
use serde_json::{Value, json};
use tidegate_core::jobs::{Job, JobOutcome, JobStatus};
use tidegate_core::time::Nanos;

pub(crate) use times::{after, before, between, span, to_the_millisecond};

/// A job that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobOrder {
    /// R: bytes that are to be read and written.
    pub bytes: u64,
    /// When it is to be done.
    pub due: Due,
    /// Instead of one that the VM has.
    pub replace: bool,
    /// Bytes a second that it may need at most; `None`: any number.
    pub most: Option<u64>,
}

impl JobOrder {
    /// Bytes a second that it needs to be done in so much time.
    pub fn needs(&self, deadline: Nanos) -> u64 {
        let job = Job {
            bytes: self.bytes,
            begun: Nanos::ZERO,
            deadline: deadline.max(Nanos(1)),
            moved: 0,
        };
        job.needs(Nanos::ZERO)
    }
}

/// When a job is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// So long after it begins.
    In(Nanos),
    /// At this time.
    At(Timestamp),
    /// As long after it begins as the device needs for it beside those that use it now, and so many
    /// thousandths of that longer: equations 4.1 and 4.2 of PriDyn's thesis.
    Tolerance(u64),
}

/// What is known of a job that runs beside what the engine knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Since {
    /// When it began, to the millisecond. No other job of its VM has the same.
    pub begun: Timestamp,
    /// When it is due.
    pub due: Timestamp,
    /// Bytes of it that had moved when this daemon took it up.
    pub moved: u64,
    /// So long after it was due was that.
    pub overdue: Nanos,
}

/// When a job will be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outlook {
    /// Nothing is known yet of what its VM has, nor of the device.
    Unknown,
    /// Never: nothing moves.
    Never,
    /// So long from now.
    In(Nanos),
}

/// A job that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunningJob {
    /// What of it is not the engine's.
    pub since: Since,
    /// How it stands, of what was left when this daemon took it up.
    pub status: JobStatus,
    /// When it will be done at the bandwidth that it has.
    pub outlook: Outlook,
    /// Bytes that the whole device does in a second, as far as that is known; zero: it is not.
    pub capacity: u64,
    /// The policy in force sees to it that it is done in time, as far as that can be.
    pub enforced: bool,
}

impl RunningJob {
    /// R: bytes in all.
    pub fn bytes(&self) -> u64 {
        self.status.job.bytes.saturating_add(self.since.moved)
    }

    /// Bytes of them that have moved.
    pub fn moved(&self) -> u64 {
        let moved = self.status.job.moved.saturating_add(self.since.moved);
        moved.min(self.bytes())
    }

    /// So long before it is due it will be done; zero: it will not be. `None`: nothing is known of
    /// that.
    pub fn early(&self) -> Option<Nanos> {
        match self.outlook {
            Outlook::Unknown => None,
            _ if self.since.overdue > Nanos::ZERO => Some(Nanos::ZERO),
            _ => Some(self.status.forecast.early),
        }
    }

    /// So long after it is due; zero: in time. [`Nanos::MAX`]: never. `None`: nothing is known of
    /// that.
    pub fn late(&self) -> Option<Nanos> {
        let late = self.status.forecast.late.0;
        match self.outlook {
            Outlook::Unknown => None,
            Outlook::Never => Some(Nanos::MAX),
            Outlook::In(_) => Some(Nanos(late.saturating_add(self.since.overdue.0))),
        }
    }

    /// Bytes a second that it may have at best: those of the whole device, or what its VM has, if
    /// that is more; zero: nothing is known of that.
    pub fn best_bandwidth(&self) -> u64 {
        self.capacity.max(self.status.bandwidth.unwrap_or(0))
    }

    /// How long from now the rest takes if it has the whole device; `None`: what that does is not
    /// known.
    pub fn at_best(&self) -> Option<Nanos> {
        let best = self.best_bandwidth();
        (best > 0).then(|| self.status.job.latency(best))
    }

    /// What of it is kept.
    pub fn kept(&self) -> KeptJob {
        KeptJob {
            bytes: self.bytes(),
            moved: self.moved(),
            begun: self.since.begun,
            due: self.since.due,
        }
    }
}

/// A job that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndedJob {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes of them that had moved.
    pub moved: u64,
    /// When it began.
    pub begun: Timestamp,
    /// When it was due.
    pub due: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// So long before it was due.
    pub early: Nanos,
    /// So long after it was due.
    pub late: Nanos,
    /// How.
    pub outcome: JobOutcome,
}

impl EndedJob {
    /// What became of it.
    pub fn result(&self) -> JobResult {
        match (self.outcome, self.late) {
            (JobOutcome::Cancelled, _) => JobResult::Cancelled,
            (JobOutcome::Done, Nanos::ZERO) => JobResult::Met,
            (JobOutcome::Done, _) => JobResult::Missed,
        }
    }
}

/// What became of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobResult {
    /// Done in time.
    Met,
    /// Done, and late.
    Missed,
    /// Not done: it was not wanted any more.
    Cancelled,
}

impl JobResult {
    /// `met`, `missed` or `cancelled`.
    pub fn name(self) -> &'static str {
        match self {
            JobResult::Met => "met",
            JobResult::Missed => "missed",
            JobResult::Cancelled => "cancelled",
        }
    }
}

/// How many jobs of a VM are over, by what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EndedJobs {
    /// Done in time.
    pub met: u64,
    /// Done, and late.
    pub missed: u64,
    /// Not done.
    pub cancelled: u64,
}

impl EndedJobs {
    /// One more.
    pub fn count(&mut self, result: JobResult) {
        match result {
            JobResult::Met => self.met += 1,
            JobResult::Missed => self.missed += 1,
            JobResult::Cancelled => self.cancelled += 1,
        }
    }

    /// All of them.
    pub fn all(&self) -> u64 {
        self.met + self.missed + self.cancelled
    }
}

/// The jobs of a VM.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VmJobs {
    /// The one that runs; `None`: it has none.
    pub running: Option<RunningJob>,
    /// The last one that is over, since the daemon started.
    pub last: Option<EndedJob>,
    /// All that are over, since the daemon started.
    pub ended: EndedJobs,
}

/// What is kept of a job that runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptJob {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes of them that had moved.
    pub moved: u64,
    /// When it began.
    pub begun: Timestamp,
    /// When it is due.
    pub due: Timestamp,
}

impl KeptJob {
    /// In words that [`KeptJob::read`] reads.
    pub fn words(&self) -> String {
        let words = json!({
            "bytes": self.bytes,
            "moved": self.moved,
            "begun": self.begun.to_string(),
            "due": self.due.to_string(),
        });
        words.to_string()
    }

    /// Reads what was kept.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(text: &str) -> Result<KeptJob, String> {
        let words: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let number = |key: &str| words[key].as_u64().ok_or(format!("{key:?} is no number"));
        let time = |key: &str| {
            let text = words[key].as_str().unwrap_or_default();
            let time = text.parse::<Timestamp>();
            time.map_err(|error| format!("{key:?} is no time: {error}"))
        };
        let kept = KeptJob {
            bytes: number("bytes")?,
            moved: number("moved")?,
            begun: time("begun")?,
            due: time("due")?,
        };
        match kept.moved < kept.bytes {
            true => Ok(kept),
            false => Err(format!("nothing is left of its {} bytes", kept.bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::times::tests::{BEGUN, time};
    use super::*;

    #[test]
    fn what_is_kept_comes_back_as_it_was_and_what_is_damaged_does_not() {
        let kept = KeptJob {
            bytes: u64::MAX,
            moved: 7,
            begun: time(BEGUN),
            due: time("2026-11-22T14:03:10.5Z"),
        };
        assert_eq!(KeptJob::read(&kept.words()), Ok(kept));
        let words = kept.words();
        for (damaged, said) in [
            (
                words.replace("\"moved\":7", "\"moved\":\"7\""),
                "\"moved\" is no number",
            ),
            (words.replace("14:02", "25:02"), "\"begun\" is no time"),
            (words.replace("due", "duo"), "\"due\" is no time"),
            (
                words.replace("\"moved\":7", "\"moved\":18446744073709551615"),
                "nothing is left",
            ),
            ("{".to_owned(), "EOF"),
        ] {
            let error = KeptJob::read(&damaged).expect_err("damaged");
            assert!(error.contains(said), "{said}: {error}");
        }
    }
}
