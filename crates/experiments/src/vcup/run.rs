//! What came of a run: a sample a second of each VM, from which B, beta and V are.

use tidegate_core::engine::Engine;
use tidegate_core::precision;
use tidegate_core::request::{Op, VmId};
use tidegate_core::time::Nanos;
use tidegate_sim::report::{Rates, Report, VmReport};
use tidegate_sim::scenario::Scenario;
use tidegate_sim::world::World;

/// A VM in one second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Second {
    /// Bytes answered.
    pub(super) bytes: u64,
    /// Reads and writes answered.
    pub(super) requests: u64,
    /// I/Os of the device that were done for it: its requests as merged and split.
    pub(super) ios: u64,
    /// What its tuner does at the end of it.
    pub(super) tuned: Tuned,
}

/// What a tuner does.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Tuned {
    /// The window, in ms; 0: nobody tunes it.
    pub(super) window_ms: u64,
    /// No better window is searched.
    pub(super) settled: bool,
    /// B and V of the last statistical interval, in per cent.
    pub(super) precision: Option<(f64, f64)>,
    /// The target cannot be had.
    pub(super) inadequate: bool,
}

/// What came of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) report: Report,
    /// What each VM is to have, in bytes a second; 0: nothing is said.
    targets: Vec<u64>,
    /// Each VM's seconds from the beginning on.
    seconds: Vec<Vec<Second>>,
    /// So many of them do not count.
    skipped: usize,
}

/// I/Os of the device that were done for a VM so far.
fn ios(engine: &Engine, vm: VmId) -> u64 {
    let stats = engine.tenants().vm_stats(vm);
    let moved = [Op::Read, Op::Write].map(|op| stats.op(op).ops);
    // What has joined another may not have ended.
    (moved.iter().sum::<u64>() + stats.split).saturating_sub(stats.merged)
}

fn tuned(engine: &Engine, vm: VmId) -> Tuned {
    let Some(tuning) = engine.tenants().tuning(vm) else {
        return Tuned::default();
    };
    let percent = |(b, v): (i64, u64)| (b as f64 / 1e4, v as f64 / 1e4);
    Tuned {
        window_ms: tuning.window.0 / 1_000_000,
        settled: tuning.settled,
        precision: tuning.precision.map(percent),
        inadequate: tuning.inadequate.is_some(),
    }
}

impl Second {
    /// By what was answered in it, and by the engine, which had done `before` I/Os before it.
    fn of(rates: &Rates, served: Option<(&Engine, VmId)>, before: &mut u64) -> Second {
        let mut second = Second {
            bytes: rates.bytes_per_s.round() as u64,
            requests: (rates.read_iops + rates.write_iops).round() as u64,
            ..Second::default()
        };
        if let Some((engine, vm)) = served {
            let all = ios(engine, vm);
            second.ios = all.saturating_sub(*before);
            second.tuned = tuned(engine, vm);
            *before = all;
        }
        second
    }
}

impl Run {
    pub(super) fn of(scenario: Scenario) -> Run {
        let vms = scenario.tenants.iter();
        let targets = vms.map(|vm| vm.objective.target.bytes_per_s.unwrap_or(0));
        let targets: Vec<u64> = targets.collect();
        let skipped = (scenario.frame.warm_up.0 / Nanos::SECOND.0) as usize;
        let mut seconds = vec![Vec::new(); targets.len()];
        let mut before = vec![0; targets.len()];
        let mut world = World::new(scenario, Some(Nanos::SECOND));
        while !world.is_over() {
            let mut rows = Vec::new();
            world.step(&mut |row| rows.push(row.rates));
            for (vm, rates) in rows.iter().enumerate() {
                let second = Second::of(rates, world.served(vm), &mut before[vm]);
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

    pub(super) fn place(&self, vm: &str) -> Option<usize> {
        self.vms().iter().position(|found| found.name == vm)
    }

    /// A VM's seconds that count.
    pub(super) fn seconds(&self, vm: usize) -> &[Second] {
        let all = self.seconds.get(vm);
        all.and_then(|all| all.get(self.skipped..)).unwrap_or(&[])
    }

    /// All of them.
    pub(super) fn all_seconds(&self, vm: usize) -> &[Second] {
        &self.seconds[vm]
    }

    pub(super) fn target(&self, vm: usize) -> u64 {
        self.targets[vm]
    }

    /// None of a VM that is not there.
    fn samples(&self, vm: usize) -> Vec<u64> {
        self.seconds(vm).iter().map(|second| second.bytes).collect()
    }

    pub(super) fn mb_s(&self, vm: usize) -> f64 {
        mean(self.seconds(vm), |second| second.bytes) / 1e6
    }

    /// I/Os of the device a second.
    pub(super) fn ios(&self, vm: usize) -> f64 {
        mean(self.seconds(vm), |second| second.ios)
    }

    /// beta over 30 s, in per cent.
    pub(super) fn beta(&self, vm: usize) -> Option<f64> {
        beta(&self.samples(vm), *self.targets.get(vm)?, SI)
    }

    /// V, in per cent.
    pub(super) fn v(&self, vm: usize) -> Option<f64> {
        v(&self.samples(vm))
    }

    /// Mean latency of a request, in ms.
    pub(super) fn latency_ms(&self, vm: usize) -> f64 {
        self.vms()[vm].rates.latency_mean_ns.unwrap_or(0) as f64 / 1e6
    }

    /// Requests of a VM with the array in the mean: Little's law.
    pub(super) fn queue(&self, vm: usize) -> f64 {
        let of = &self.vms()[vm];
        of.rates.iops * of.waits.device_ns as f64 / 1e9
    }

    /// What all VMs have together, in MB/s.
    pub(super) fn total_mb_s(&self) -> f64 {
        (0..self.vms().len()).map(|vm| self.mb_s(vm)).sum()
    }
}

/// The statistical interval of what is reported, in seconds.
pub(super) const SI: usize = 30;

pub(super) fn mean(seconds: &[Second], of: impl Fn(&Second) -> u64) -> f64 {
    let sum: u64 = seconds.iter().map(of).sum();
    sum as f64 / seconds.len().max(1) as f64
}

/// Definition 2.2 in per cent.
pub(super) fn beta(samples: &[u64], target: u64, interval: usize) -> Option<f64> {
    let beta = precision::absolute_error(samples, target, interval)?;
    Some(beta as f64 / 1e4)
}

/// Definition 2.3 in per cent.
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
        scenario.tenants.truncate(1);
        (scenario.frame.warm_up, scenario.frame.duration) = (Nanos::SECOND, Nanos::from_secs(5));
        for device in &mut scenario.devices {
            (device.scheduling.max_io, device.scheduling.merge_limit) = (16 << 10, 0);
        }
        let run = Run::of(scenario);
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
    }
}
