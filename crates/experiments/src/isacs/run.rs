//! Runs of the cases, and their results over all rounds.

use super::case::Case;
use super::free_parameters::{Calibration, WORK_SHRINK};
use super::policy::Policy;
use super::setup;
use crate::{Progress, pool};
use std::collections::{BTreeMap, BTreeSet};
use tidegate_vcpu::report::{VcpuReport, VcpuVmReport};
use tidegate_vcpu::scenario::{DiskSpec, Simulation};

/// Number of rounds per experiment, each with a seed of its own.
pub(super) const ROUNDS: u64 = 15;
/// Duration of iperf in the paper, in seconds.
const IPERF_S: f64 = 60.0;

/// Results of a case under a scheduler: means over the rounds.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct CaseResult {
    /// Mean round trip of each VM that answers packets, in ms.
    pub(super) trips_ms: Vec<f64>,
    /// Longest round trip of all rounds, in ms.
    pub(super) longest_ms: f64,
    /// Data received in a minute, in GB, or written per second, in MB.
    pub(super) amount: f64,
    /// Duration of fixed work, in s.
    pub(super) work_s: f64,
    /// All counted round trips, in ms.
    pub(super) all_trips_ms: Vec<f64>,
    /// Smallest and largest `amount` or `work_s` of a round.
    pub(super) range: (f64, f64),
    /// Part of its pCPU that the client used.
    pub(super) client: f64,
    /// Part of the disk's time that the files took at the rate at which they were written; more
    /// than 1 if the guests' memory took some.
    pub(super) disk: f64,
}

impl CaseResult {
    /// Value that a figure over several cases shows.
    pub(super) fn shown(&self) -> f64 {
        if self.work_s > 0.0 {
            self.work_s
        } else {
            self.amount
        }
    }
}

impl CaseResult {
    /// Mean round trip over the VMs, in ms.
    pub(super) fn trip_ms(&self) -> f64 {
        mean(self.trips_ms.iter().copied())
    }
}

fn mean(all: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = all.fold((0.0, 0), |(sum, n), x| (sum + x, n + 1));
    // No values have the mean 0: cases without round trips or work.
    sum / f64::from(n.max(1))
}

/// Results of one round.
fn case_result(case: Case, disk: DiskSpec, report: &VcpuReport) -> CaseResult {
    let vms = || report.vms.iter();
    let trips = || vms().filter_map(|vm| vm.round_trips.as_ref());
    let work = vms().filter_map(|vm| vm.work_s);
    let written: Option<f64> = case.is_of_files().then(|| {
        let files = vms().filter_map(|vm| vm.file);
        files.map(|file| file.bytes_per_s).sum()
    });
    let amount = written.map_or_else(
        || {
            let received = |vm: &VcpuVmReport| vm.received_bytes_per_s;
            // Streams run for less than a minute here; the rate is taken for the paper's duration.
            vms().filter_map(received).sum::<f64>() * IPERF_S / 1e9
        },
        |rate| rate / 1e6,
    );
    // Scaled back to the paper's amount of work.
    let work_s = mean(work) * WORK_SHRINK as f64;
    // Cases with work receive streams too, but the figure is about the work.
    let shown = if work_s > 0.0 { work_s } else { amount };
    let client = vms().find(|vm| vm.name == setup::CLIENT);
    let all_trips = trips().flat_map(|trips| trips.counted.iter());
    CaseResult {
        trips_ms: trips().map(|trips| trips.mean_ms).collect(),
        longest_ms: trips().map(|trips| trips.max_ms).fold(0.0, f64::max),
        amount,
        work_s,
        all_trips_ms: all_trips.map(|trip| trip.as_millis_f64()).collect(),
        range: (shown, shown),
        client: client.map_or(0.0, |vm| vm.cpus),
        disk: written.map_or(0.0, |rate| {
            rate / disk.io as f64 * disk.service.as_secs_f64()
        }),
    }
}

/// Runs one round of a case.
pub(super) fn round(case: Case, policy: Policy, free: &Calibration, round: u64) -> CaseResult {
    let scenario = setup::scenario(case, policy, free, round);
    let disk = scenario.disk;
    case_result(case, disk, &Simulation::new(scenario).run())
}

/// Combines the rounds of a case.
pub(super) fn combine_rounds(rounds: &[CaseResult]) -> CaseResult {
    // All rounds of a case have the same VMs.
    let vms = rounds.first().map_or(0, |results| results.trips_ms.len());
    let over = |get: &dyn Fn(&CaseResult) -> f64| mean(rounds.iter().map(get));
    CaseResult {
        trips_ms: (0..vms)
            .map(|vm| over(&|results| results.trips_ms[vm]))
            .collect(),
        longest_ms: rounds
            .iter()
            .map(|results| results.longest_ms)
            .fold(0.0, f64::max),
        amount: over(&|results| results.amount),
        work_s: over(&|results| results.work_s),
        all_trips_ms: rounds
            .iter()
            .flat_map(|results| results.all_trips_ms.iter().copied())
            .collect(),
        range: (
            rounds.iter().map(|f| f.range.0).fold(f64::MAX, f64::min),
            rounds.iter().map(|f| f.range.1).fold(0.0, f64::max),
        ),
        client: over(&|results| results.client),
        disk: over(&|results| results.disk),
    }
}

/// Results by case and scheduler.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Runs(BTreeMap<(Case, Policy), CaseResult>);

impl Runs {
    /// Result of a case under a policy; `None` if it was not run.
    pub(super) fn get(&self, case: Case, policy: Policy) -> Option<&CaseResult> {
        self.0.get(&(case, policy.in_case(case)))
    }

    /// Returns whether there is a result under this very key.
    pub(super) fn has(&self, key: &(Case, Policy)) -> bool {
        self.0.contains_key(key)
    }

    /// Adds the results of cases and policies that were not run yet.
    pub(super) fn extend(&mut self, other: Runs) {
        for (key, result) in other.0 {
            self.0.entry(key).or_insert(result);
        }
    }
}

impl FromIterator<((Case, Policy), CaseResult)> for Runs {
    fn from_iter<I: IntoIterator<Item = ((Case, Policy), CaseResult)>>(results: I) -> Runs {
        Runs(results.into_iter().collect())
    }
}

/// Keys of these cases under these policies, those that stand for several once.
pub(super) fn keys(cases: &[Case], policies: &[Policy]) -> Vec<(Case, Policy)> {
    let of = |&case: &Case| {
        let policies = policies.iter();
        policies.map(move |policy| (case, policy.in_case(case)))
    };
    let all: BTreeSet<(Case, Policy)> = cases.iter().flat_map(of).collect();
    all.into_iter().collect()
}

/// Runs `rounds` rounds of each key.
pub(super) fn run_all(
    keys: &[(Case, Policy)],
    free: &Calibration,
    rounds: u64,
    jobs: usize,
    progress: Progress<'_>,
) -> Runs {
    let of_key =
        // Seeds count from 1.
        |&(case, policy): &(Case, Policy)| (1..=rounds).map(move |round| (case, policy, round));
    let items: Vec<_> = keys.iter().flat_map(of_key).collect();
    let results = pool::map_parallel(&items, jobs, progress, |&(case, policy, n)| {
        round(case, policy, free, n)
    });
    // Results are in the order of `items`: all rounds of a key are adjacent.
    let results = results.chunks(rounds.max(1) as usize).map(combine_rounds);
    keys.iter().copied().zip(results).collect()
}
