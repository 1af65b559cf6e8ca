//! Results of a run: a sample per VM and second, from which the paper's measures follow: error B,
//! absolute error beta and variability V (definitions 2.1 to 2.3, see [`precision`]).

use tidegate_core::engine::Engine;
use tidegate_core::precision;
use tidegate_core::request::{Op, VmId};
use tidegate_core::time::Nanos;
use tidegate_sim::report::{Rates, Report, VmReport};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::World;

/// Sample of a VM in one second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Second {
    /// Bytes answered.
    pub(super) bytes: u64,
    /// Reads and writes answered.
    pub(super) requests: u64,
    /// Device I/Os done for the VM: its requests after merging and splitting.
    pub(super) ios: u64,
    /// Device I/Os of the VM with the array at the end of the second.
    pub(super) in_flight: u64,
    /// State of its tuner at the end of the second.
    pub(super) tuned: Tuned,
}

/// State of a tuner.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Tuned {
    /// Control window in ms; 0 if nothing tunes the VM.
    pub(super) window_ms: u64,
    /// `true` once the search for a better window has ended.
    pub(super) settled: bool,
    /// B and V of the last statistical interval, in percent.
    pub(super) precision: Option<(f64, f64)>,
    /// `true` if the target exceeds the capacity.
    pub(super) inadequate: bool,
}

/// Results of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) report: Report,
    /// Target of each VM in bytes per second; 0 for none.
    targets: Vec<u64>,
    /// Samples of each VM since the begin of the run.
    seconds: Vec<Vec<Second>>,
    /// Number of leading samples that do not count.
    skipped: usize,
}

/// Device I/Os done for a VM so far.
fn ios(engine: &Engine, vm: VmId) -> u64 {
    let stats = engine.vms().vm_stats(vm);
    let moved = [Op::Read, Op::Write].map(|op| stats.op(op).ops);
    // Merged requests may not have ended, so the difference could be negative.
    (moved.iter().sum::<u64>() + stats.split).saturating_sub(stats.merged)
}

fn tuned(engine: &Engine, vm: VmId) -> Tuned {
    let Some(tuning) = engine.vms().tuning(vm) else {
        return Tuned::default();
    };
    // Errors and variability are in millionths.
    let percent = |(b, v): (i64, u64)| (b as f64 / 1e4, v as f64 / 1e4);
    Tuned {
        window_ms: tuning.window.0 / 1_000_000,
        settled: tuning.settled,
        precision: tuning.precision.map(percent),
        inadequate: tuning.inadequate.is_some(),
    }
}

impl Second {
    /// Creates a sample from the rates of the second and the engine's counters; `before` is the
    /// number of I/Os at its begin.
    fn measure(rates: &Rates, served: Option<(&Engine, VmId)>, before: &mut u64) -> Second {
        let mut second = Second {
            // Rates over a whole second are counts; rounding undoes the division.
            bytes: rates.bytes_per_s.round() as u64,
            requests: (rates.read_iops + rates.write_iops).round() as u64,
            ..Second::default()
        };
        if let Some((engine, vm)) = served {
            let all = ios(engine, vm);
            second.ios = all.saturating_sub(*before);
            second.in_flight = engine.vms().in_flight(vm).into();
            second.tuned = tuned(engine, vm);
            *before = all;
        }
        second
    }
}

impl Run {
    pub(super) fn simulate(scenario: Scenario) -> Run {
        let vms = scenario.vms.iter();
        let targets = vms.map(|vm| vm.objective.target.bytes_per_s.unwrap_or(0));
        let targets: Vec<u64> = targets.collect();
        let skipped = (scenario.frame.warm_up.0 / Nanos::SECOND.0) as usize;
        let mut seconds = vec![Vec::new(); targets.len()];
        let mut before = vec![0; targets.len()];
        let mut world = World::new(scenario, Some(Nanos::SECOND));
        while !world.is_over() {
            let mut rows = Vec::new();
            world.step(&mut |row| rows.push(row.rates));
            // Rows come in the order of VMs.
            for (vm, rates) in rows.iter().enumerate() {
                let second = Second::measure(rates, world.served(vm), &mut before[vm]);
                seconds[vm].push(second);
            }
        }
        Run {
            report: world.report(),
            targets,
            seconds,
            skipped,
        }
    }

    pub(super) fn vms(&self) -> &[VmReport] {
        &self.report.vms
    }

    /// Index of a VM by its name.
    pub(super) fn vm_index(&self, vm: &str) -> Option<usize> {
        self.vms().iter().position(|results| results.name == vm)
    }

    /// Samples of a VM that count.
    pub(super) fn seconds(&self, vm: usize) -> &[Second] {
        let all = self.seconds.get(vm);
        // A run that ended within the warm-up has no sample that counts.
        all.and_then(|all| all.get(self.skipped..)).unwrap_or(&[])
    }

    /// All samples of a VM.
    pub(super) fn all_seconds(&self, vm: usize) -> &[Second] {
        &self.seconds[vm]
    }

    /// Target of a VM in bytes per second; 0 for none.
    pub(super) fn target(&self, vm: usize) -> u64 {
        self.targets[vm]
    }

    /// Bytes of each counted second; empty for an unknown VM.
    fn samples(&self, vm: usize) -> Vec<u64> {
        self.seconds(vm).iter().map(|second| second.bytes).collect()
    }

    /// Mean throughput of a VM in MB/s.
    pub(super) fn mb_s(&self, vm: usize) -> f64 {
        mean(self.seconds(vm), |second| second.bytes) / 1e6
    }

    /// Mean device I/Os per second of a VM.
    pub(super) fn ios(&self, vm: usize) -> f64 {
        mean(self.seconds(vm), |second| second.ios)
    }

    /// Absolute error beta over [`STATISTICAL_INTERVAL_S`], in percent; `None`: no whole interval,
    /// or no target.
    pub(super) fn beta(&self, vm: usize) -> Option<f64> {
        beta(
            &self.samples(vm),
            *self.targets.get(vm)?,
            STATISTICAL_INTERVAL_S,
        )
    }

    /// Variability V, in percent; `None`: nothing was answered.
    pub(super) fn v(&self, vm: usize) -> Option<f64> {
        v(&self.samples(vm))
    }

    /// Mean latency of a request, in ms.
    pub(super) fn latency_ms(&self, vm: usize) -> f64 {
        self.vms()[vm].rates.latency_mean_ns.unwrap_or(0) as f64 / 1e6
    }

    /// Mean time of a request with the array, in ms, the network to it included.
    pub(super) fn array_ms(&self, vm: usize) -> f64 {
        self.vms()[vm].waits.device_ns as f64 / 1e6
    }

    /// Mean time of a device I/O with the array, in ms, the network to it included: by Little's law
    /// from how many are there at the ends of seconds.
    pub(super) fn io_ms(&self, vm: usize) -> f64 {
        1e3 * mean(self.seconds(vm), |second| second.in_flight) / self.ios(vm)
    }

    /// Mean number of a VM's requests with the array, by Little's law.
    pub(super) fn queue(&self, vm: usize) -> f64 {
        let of = &self.vms()[vm];
        of.rates.iops * of.waits.device_ns as f64 / 1e9
    }

    /// Total throughput of all VMs, in MB/s.
    pub(super) fn total_mb_s(&self) -> f64 {
        (0..self.vms().len()).map(|vm| self.mb_s(vm)).sum()
    }
}

/// Statistical interval of reported figures, in seconds.
pub(super) const STATISTICAL_INTERVAL_S: usize = 30;

/// Mean of a count over seconds.
pub(super) fn mean(seconds: &[Second], of: impl Fn(&Second) -> u64) -> f64 {
    let sum: u64 = seconds.iter().map(of).sum();
    // No samples have the mean 0.
    sum as f64 / seconds.len().max(1) as f64
}

/// Absolute error beta (definition 2.2) of samples by the second over intervals of `interval`
/// seconds, in percent.
pub(super) fn beta(samples: &[u64], target: u64, interval: usize) -> Option<f64> {
    let beta = precision::absolute_error(samples, target, interval)?;
    Some(beta as f64 / 1e4)
}

/// Variability V (definition 2.3) of samples by the second, in percent.
pub(super) fn v(samples: &[u64]) -> Option<f64> {
    Some(precision::variability(samples)? as f64 / 1e4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vcup::setup::{self, Case, Key};

    /// Requests of 32 and 12 KiB, in I/Os of four pages: two of a read, one of a write.
    #[test]
    fn seconds_are_what_the_report_says_and_requests_are_told_from_ios() {
        let key = Key::new(Case::Keys, "fq");
        let mut scenario = setup::scenario(&key).expect("a scenario");
        scenario.vms.truncate(1);
        (scenario.frame.warm_up, scenario.frame.duration) = (Nanos::SECOND, Nanos::from_secs(5));
        for device in &mut scenario.devices {
            (device.scheduling.max_io, device.scheduling.merge_limit) = (16 << 10, 0);
        }
        let run = Run::simulate(scenario);
        assert_eq!(run.seconds(0).len(), 4);
        assert_eq!(run.all_seconds(0).len(), 5);
        let rates = run.vms()[0].rates;
        assert!((run.mb_s(0) - rates.bytes_per_s / 1e6).abs() < 0.01);
        let ios = 2.0 * rates.read_iops + rates.write_iops;
        assert!(
            (run.ios(0) / ios - 1.0).abs() < 0.05,
            "{}, {ios}",
            run.ios(0)
        );
        assert_eq!(run.target(0), 5_000_000);
        assert!(run.beta(0).is_none(), "no whole interval");
        assert!(run.v(0).is_some() && run.queue(0) > 0.0 && run.latency_ms(0) > 0.0);
        // A ring of 32 is full, and never more than that.
        let most = 32e3 / run.ios(0);
        assert!(
            (0.9 * most..=most).contains(&run.io_ms(0)),
            "{}",
            run.io_ms(0)
        );
    }
}
