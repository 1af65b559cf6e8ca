//! Results of a run, with fair shares and service times by the disk's profile.

use tidegate_core::profile::{Estimation, Pattern};
use tidegate_core::time::Nanos;
use tidegate_sim::report::{Report, Row};
use tidegate_sim::scenario::{Scenario, VmSpec};
use tidegate_sim::world::World;
use tidegate_workload::spec::{Mix, SizeShare, Sizes};

/// Interval of the rows in a series.
const INTERVAL: Nanos = Nanos::from_secs(5);

/// Pattern of a VM's requests, by its first workload.
fn pattern(vm: &VmSpec) -> Option<Pattern> {
    let workload = vm.workloads.first()?;
    let reads = match workload.rw.mix {
        Mix::Read => 1.0,
        Mix::ReadWrite { read_percent } => f64::from(read_percent) / 100.0,
        // Writes, and kinds of requests without a saturation of their own, count as no reads.
        _ => 0.0,
    };
    let sequential = f64::from(u8::from(!workload.rw.random));
    let [read, write, _] = &workload.sizes;
    Some(Pattern {
        reads,
        sequential_reads: sequential,
        sequential_writes: sequential,
        // Mean request size, weighted by the share of reads.
        size: reads * mean(read) + (1.0 - reads) * mean(write),
    })
}

fn mean(sizes: &Sizes) -> f64 {
    let weighed = |of: &dyn Fn(&SizeShare) -> f64| -> f64 {
        let shares = sizes.0.iter();
        shares.map(|s| f64::from(s.weight) * of(s)).sum()
    };
    weighed(&|share| f64::from(share.bytes)) / weighed(&|_| 1.0)
}

/// Results of a run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) report: Report,
    /// Rows per VM and [`INTERVAL`], including the warm-up.
    pub(super) rows: Vec<Row>,
    /// [`saturations`] of the scenario.
    saturations: Vec<Option<f64>>,
    weights: Vec<f64>,
}

/// Requests per second with which each VM alone would saturate the disk, by the profile in 3D: the
/// paper's P. `None` for a VM without workloads, or without a profile of the disk.
pub(super) fn saturations(scenario: &Scenario) -> Vec<Option<f64>> {
    let device = scenario.devices.first();
    let profile = device.and_then(|device| device.scheduling.profile.as_ref());
    let saturation = |vm| Some(profile?.saturation_iops(&pattern(vm)?, Estimation::ThreeD));
    scenario.vms.iter().map(saturation).collect()
}

impl Run {
    pub(super) fn simulate(scenario: Scenario) -> Run {
        let saturations = saturations(&scenario);
        let weights = scenario.vms.iter();
        let weights = weights.map(|vm| f64::from(vm.objective.weight)).collect();
        let mut rows = Vec::new();
        let mut world = World::new(scenario, Some(INTERVAL));
        world.run(&mut |row| rows.push(row.clone()));
        Run {
            report: world.report(),
            rows,
            saturations,
            weights,
        }
    }

    fn place(&self, vm: &str) -> Option<usize> {
        self.report
            .vms
            .iter()
            .position(|results| results.name == vm)
    }

    /// Requests per second of a VM.
    pub(super) fn iops(&self, vm: &str) -> Option<f64> {
        Some(self.report.vms[self.place(vm)?].rates.iops)
    }

    /// Requests per second of all VMs.
    pub(super) fn total_iops(&self) -> f64 {
        self.report.vms.iter().map(|vm| vm.rates.iops).sum()
    }

    /// Bytes per second of a VM.
    pub(super) fn bytes_per_s(&self, vm: &str) -> Option<f64> {
        Some(self.report.vms[self.place(vm)?].rates.bytes_per_s)
    }

    /// Utilisation of the disk in percent of the time.
    pub(super) fn utilisation(&self) -> Option<f64> {
        Some(100.0 * self.report.devices.first()?.busy)
    }

    /// Fair share of a VM in requests per second: equation 2.
    pub(super) fn fair_share(&self, vm: &str) -> Option<f64> {
        let place = self.place(vm)?;
        let all: f64 = self.weights.iter().sum();
        Some(self.saturations[place]? * self.weights[place] / all)
    }

    /// Requests per second of a VM as a fraction of its saturation: the paper's service time (its
    /// footnote 5).
    pub(super) fn service(&self, vm: &str) -> Option<f64> {
        let place = self.place(vm)?;
        Some(self.report.vms[place].rates.iops / self.saturations[place]?)
    }

    /// Mean time of a request with the disk and on the way to it after admission, over all VMs, in
    /// milliseconds.
    pub(super) fn system_latency_ms(&self) -> Option<f64> {
        let vms = &self.report.vms;
        let requests: f64 = vms.iter().map(|vm| vm.rates.iops).sum();
        let times = vms
            .iter()
            .map(|vm| vm.rates.iops * vm.waits.device_ns as f64);
        (requests > 0.0).then(|| times.sum::<f64>() / requests / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfair::setup::{Case, Disk, Key, scenario};

    #[test]
    fn a_fair_share_is_a_third_of_what_saturates_the_disk() {
        let key = Key::new(Case::LessBacklogged, Disk::Hdd, "fifo");
        let mut scenario = scenario(&key).expect("a scenario");
        // The shares follow from the scenario, so a run of no length is enough.
        scenario.frame.warm_up = Nanos::ZERO;
        scenario.frame.duration = Nanos::from_millis(1);
        let run = Run::simulate(scenario);
        let profile = Disk::Hdd.profile().expect("measured");
        for (vm, kib) in [("vm1", 16), ("vm2", 64), ("vm3", 128)] {
            let pattern = Pattern {
                reads: 0.6,
                sequential_reads: 0.0,
                sequential_writes: 0.0,
                size: f64::from(kib << 10),
            };
            let all = profile.saturation_iops(&pattern, Estimation::ThreeD);
            let share = run.fair_share(vm).expect("there");
            assert!((share - all / 3.0).abs() < 1e-9, "{vm}: {share} of {all}");
            assert_eq!(run.service(vm), Some(0.0));
        }
    }

    #[test]
    fn sizes_count_as_often_as_they_come() {
        let sizes = Sizes(vec![
            SizeShare {
                bytes: 16 << 10,
                weight: 60,
            },
            SizeShare {
                bytes: 32 << 10,
                weight: 40,
            },
        ]);
        assert!((mean(&sizes) - 22.4 * 1024.0).abs() < 1e-6);
    }
}
