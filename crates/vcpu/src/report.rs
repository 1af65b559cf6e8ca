//! Results of a vCPU scenario as plain data.

use crate::scheduler::Counts;
use core::fmt;
use serde::Serialize;
use tidegate_core::time::Nanos;

/// Results of one run of a vCPU scenario.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VcpuReport {
    /// Title of the scenario.
    pub title: String,
    /// Name of the scheduler.
    pub scheduler: String,
    /// Seed of the run.
    pub seed: u64,
    /// Duration in virtual seconds, warm-up included.
    pub duration_s: f64,
    /// Warm-up in virtual seconds, excluded from the results.
    pub warm_up_s: f64,
    /// Number of times that a pCPU switched to another vCPU.
    pub switches: u64,
    /// Event counters of the scheduler.
    pub counts: CountsReport,
    /// Results by VM: the driver domain first, then the VMs in the order of the scenario.
    pub vms: Vec<VcpuVmReport>,
}

/// Event counters of a scheduler; see [`Counts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CountsReport {
    /// Credit resets of run-queues.
    pub resets: u64,
    /// Periods of CPU-BOOST that began.
    pub boosts: u64,
    /// vCPUs migrated to balance load.
    pub balanced: u64,
    /// vCPUs migrated to balance I/O.
    pub io_balanced: u64,
    /// IVCredits that were clamped.
    pub clamped: u64,
    /// Turns for I/O that began.
    pub turns: u64,
}

impl From<Counts> for CountsReport {
    fn from(counts: Counts) -> CountsReport {
        CountsReport {
            resets: counts.resets,
            boosts: counts.boosts,
            balanced: counts.balanced,
            io_balanced: counts.io_balanced,
            clamped: counts.clamped,
            turns: counts.turns,
        }
    }
}

/// Results of one VM of a [`VcpuReport`].
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct VcpuVmReport {
    /// Name of the VM.
    pub name: String,
    /// Mean CPU time in pCPUs.
    pub cpus: f64,
    /// Notifications from the driver domain per second.
    pub notified_per_s: f64,
    /// Round-trip times, if the VM answers a `ping`.
    pub round_trips: Option<Latencies>,
    /// Received bytes per second, if the VM receives a `stream`.
    pub received_bytes_per_s: Option<f64>,
    /// Time in seconds that the VM's fixed work took; `None` if it has none or has not finished.
    pub work_s: Option<f64>,
    /// Written file, if the VM writes one.
    pub file: Option<FileReport>,
}

/// Progress of a file that is written.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FileReport {
    /// Bytes written so far.
    pub bytes: u64,
    /// Bytes per second, up to the time at which the process wrote the last byte.
    pub bytes_per_s: f64,
}

impl FileReport {
    /// Computes the rate of `bytes` written in `took`.
    pub fn new(bytes: u64, took: Nanos) -> FileReport {
        FileReport {
            bytes,
            // At least 1 ns, so that a file that took no time has a rate.
            bytes_per_s: bytes as f64 / took.as_secs_f64().max(1e-9),
        }
    }
}

/// Round-trip times of packets.
#[derive(Clone, PartialEq, Serialize)]
pub struct Latencies {
    /// Number of packets sent.
    pub sent: u64,
    /// Number of packets answered.
    pub answered: u64,
    /// Mean in milliseconds over the middle half of the round trips, as in the ISACS paper.
    pub mean_ms: f64,
    /// Median in milliseconds of the counted round trips.
    pub p50_ms: f64,
    /// 99th percentile in milliseconds of the counted round trips.
    pub p99_ms: f64,
    /// Maximum in milliseconds of the counted round trips.
    pub max_ms: f64,
    /// Counted round trips, in the order in which they were sent.
    #[serde(skip)]
    pub counted: Vec<Nanos>,
}

impl Latencies {
    /// Computes the statistics of round trips in the order in which they were sent; all 0 if none
    /// came back.
    pub fn new(trips: Vec<Nanos>, sent: u64) -> Latencies {
        let answered = trips.len();
        // The ISACS paper evaluates the middle half only.
        let counted = trips[answered / 4..answered - answered / 4].to_vec();
        let mut sorted = counted.clone();
        sorted.sort_unstable();
        let ms = |ns: Option<&Nanos>| ns.map_or(0.0, |ns| ns.as_millis_f64());
        // Rank of the percentile, rounded up, counted from 1.
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
