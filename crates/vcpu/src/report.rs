//! What was found out, as plain data.

use crate::scheduler::Counts;
use core::fmt;
use serde::Serialize;
use tidegate_core::time::Nanos;

/// All of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VcpuReport {
    /// What the scenario shows.
    pub title: String,
    /// Which scheduler.
    pub scheduler: String,
    /// The seed.
    pub seed: u64,
    /// How long it lasted, in virtual seconds.
    pub duration_s: f64,
    /// How much of that was not counted.
    pub warm_up_s: f64,
    /// How often a pCPU went over to another vCPU.
    pub switches: u64,
    /// What the scheduler did.
    pub counts: CountsReport,
    /// The driver domain, then the others in the order of the scenario.
    pub vms: Vec<VcpuVmReport>,
}

/// What a scheduler did: see [`Counts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CountsReport {
    /// Credits of a run-queue that began anew.
    pub resets: u64,
    /// CPU-BOOSTs that began.
    pub boosts: u64,
    /// vCPUs moved to even load.
    pub balanced: u64,
    /// vCPUs moved to even I/O.
    pub io_balanced: u64,
    /// IVCredits that were cut off.
    pub clamped: u64,
}

impl From<Counts> for CountsReport {
    fn from(counts: Counts) -> CountsReport {
        CountsReport {
            resets: counts.resets,
            boosts: counts.boosts,
            balanced: counts.balanced,
            io_balanced: counts.io_balanced,
            clamped: counts.clamped,
        }
    }
}

/// Results of a VM of a [`VcpuReport`]: processor time, and what it did with it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VcpuVmReport {
    /// Its name.
    pub name: String,
    /// Processor time it had, in pCPUs.
    pub cpus: f64,
    /// Notifications it was sent by the driver domain, each second.
    pub notified_per_s: f64,
    /// Round trips, where it answers some.
    pub round_trips: Option<Latencies>,
    /// What it received each second, where it is sent a stream.
    pub received_bytes_per_s: Option<f64>,
    /// How long its fixed work took; none where it has none, or is not done.
    pub work_s: Option<f64>,
    /// The file, where it writes one.
    pub file: Option<FileReport>,
}

/// A file that was written.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FileReport {
    /// Bytes so far.
    pub bytes: u64,
    /// Bytes each second, until the process had written the last.
    pub bytes_per_s: f64,
}

impl FileReport {
    /// So many bytes in this time.
    pub fn new(bytes: u64, took: Nanos) -> FileReport {
        FileReport {
            bytes,
            bytes_per_s: bytes as f64 / took.as_secs_f64().max(1e-9),
        }
    }
}

/// Times of round trips.
#[derive(Clone, PartialEq, Serialize)]
pub struct Latencies {
    /// How many were sent.
    pub sent: u64,
    /// How many came back.
    pub answered: u64,
    /// The mean of those in the middle half of time, as the ISACS paper counts.
    pub mean_ms: f64,
    /// Half of these took no longer.
    pub p50_ms: f64,
    /// 99 of 100 of these took no longer.
    pub p99_ms: f64,
    /// The longest of these.
    pub max_ms: f64,
    /// These, in the order in which they were sent.
    #[serde(skip)]
    pub counted: Vec<Nanos>,
}

impl Latencies {
    /// Of round trips in the order in which they were sent. All zero where none came back.
    pub fn new(trips: Vec<Nanos>, sent: u64) -> Latencies {
        let answered = trips.len();
        let counted = trips[answered / 4..answered - answered / 4].to_vec();
        let mut sorted = counted.clone();
        sorted.sort_unstable();
        let ms = |ns: Option<&Nanos>| ns.map_or(0.0, |ns| ns.as_millis_f64());
        let at = |part: usize| ms(sorted.get((sorted.len() * part).div_ceil(100).max(1) - 1));
        let sum: u64 = sorted.iter().map(|ns| ns.0).sum();
        Latencies {
            sent,
            answered: answered as u64,
            mean_ms: sum as f64 / sorted.len().max(1) as f64 / 1e6,
            p50_ms: at(50),
            p99_ms: at(99),
            max_ms: ms(sorted.last()),
            counted,
        }
    }
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {}: mean {:.3} ms, p50 {:.3} ms, p99 {:.3} ms, max {:.3} ms",
            self.answered, self.sent, self.mean_ms, self.p50_ms, self.p99_ms, self.max_ms
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_middle_half_counts() {
        let mut trips = vec![Nanos::from_millis(50); 25];
        trips.extend((1..=50).map(Nanos::from_millis));
        trips.extend(vec![Nanos::from_millis(70); 25]);
        let found = Latencies::new(trips, 101);
        assert_eq!((found.sent, found.answered), (101, 100));
        assert_eq!(
            (found.p50_ms, found.p99_ms, found.max_ms),
            (25.0, 50.0, 50.0)
        );
        assert!((found.mean_ms - 25.5).abs() < 1e-9);
        let none = Latencies::new(Vec::new(), 3);
        assert_eq!((none.answered, none.mean_ms, none.max_ms), (0, 0.0, 0.0));
    }
}
