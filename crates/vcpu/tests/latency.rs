//! How soon who wakes runs.

mod common;

use common::{answering, credit, credit2, credit2_shared, hog, isacs, scenario, vm};
use tidegate_core::time::Nanos;
use tidegate_vcpu::machine::CpuSet;
use tidegate_vcpu::report::Latencies;
use tidegate_vcpu::scenario::{Scenario, SchedulerSpec, Simulation, VmSpec};

/// Round trips to the first of `vms` on pCPU 1; the client and the driver domain have their own.
fn round_trips(scheduler: SchedulerSpec, mut vms: Vec<VmSpec>) -> Latencies {
    vms.push(vm("client", CpuSet::range(2, 2)));
    let scenario = Scenario {
        duration: Nanos::from_secs(8),
        until_done: true,
        warm_up: Nanos::from_millis(500),
        ..scenario(scheduler, 3, vms)
    };
    let report = Simulation::new(scenario).run();
    report.vms[1].round_trips.clone().expect("it answers some")
}

fn here() -> CpuSet {
    CpuSet::range(1, 1)
}

#[test]
fn without_neighbours_a_round_trip_is_the_sum_of_its_hops() {
    for scheduler in [credit(), credit2(), credit2_shared(), isacs()] {
        let found = round_trips(scheduler, vec![answering(vm("io", here()), 1, 5_000, 500)]);
        assert_eq!((found.answered, found.sent), (500, 500));
        // Twice 5 us at the client and at the driver domain, 30 us in the guest.
        assert_eq!((found.mean_ms, found.max_ms), (0.05, 0.05), "{scheduler:?}");
    }
}

#[test]
fn who_mostly_sleeps_preempts_a_hog_once_that_has_run_for_the_rate_limit() {
    for scheduler in [credit(), credit2(), credit2_shared(), isacs()] {
        let io = answering(vm("io", here()), 2, 5_000, 1_000);
        let found = round_trips(scheduler, vec![io, hog("hog", here())]);
        assert!(found.p50_ms < 0.06, "{scheduler:?}: {found:?}");
        // Woken within the rate limit of whoever runs it waits, for its slice at worst.
        assert!(found.max_ms < 32.0, "{scheduler:?}: {found:?}");
    }
}
