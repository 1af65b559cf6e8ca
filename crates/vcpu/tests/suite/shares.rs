//! Shares of CPU time: weights, caps, affinity.

use crate::common::{cpus, credit, credit2, credit2_shared, eevdf, hog, io_turns, isacs};
use crate::common::{isacs_params, receiving, scenario, vm};
use tidegate_config::frame::Frame;
use tidegate_core::time::Nanos;
use tidegate_vcpu::machine::CpuSet;
use tidegate_vcpu::scenario::{Scenario, SchedulerSpec, VmSpec};
use tidegate_vcpu::schedulers::isacs::Params as IsacsParams;

const ALL: fn() -> [SchedulerSpec; 6] = || {
    [
        credit(),
        credit2(),
        credit2_shared(),
        isacs(),
        io_turns(),
        eevdf(),
    ]
};

fn near(found: f64, due: f64) -> bool {
    (found - due).abs() <= 0.05 * due
}

/// Scenario of ten seconds, of which the first is warm-up.
fn long(scheduler: SchedulerSpec, pcpus: usize, vms: Vec<VmSpec>) -> Scenario {
    Scenario {
        frame: Frame {
            warm_up: Nanos::SECOND,
            ..Frame::lasting(Nanos::from_secs(10))
        },
        ..scenario(scheduler, pcpus, vms)
    }
}

#[test]
fn hogs_of_equal_weight_share_a_pcpu_evenly() {
    let here = CpuSet::range(1, 1);
    for scheduler in ALL() {
        let vms = (0..5).map(|n| hog(&format!("vm{n}"), here)).collect();
        let found = cpus(long(scheduler, 2, vms));
        assert!(
            found.iter().all(|&c| near(c, 0.2)),
            "{scheduler:?} {found:?}"
        );
    }
}

/// Checks that hogs of the given weights share one pCPU by weight.
fn share_by_weight(scheduler: SchedulerSpec, weights: &[u32]) {
    // One pCPU only: Credit distributes the credits of all pCPUs, also to vCPUs that may use just
    // one.
    let here = CpuSet::range(0, 0);
    let vm = |(n, &weight): (usize, &u32)| {
        let mut vm = hog(&format!("vm{n}"), here);
        vm.cpu.weight = weight;
        vm
    };
    let vms = weights.iter().enumerate().map(vm).collect();
    let found = cpus(long(scheduler, 1, vms));
    let all: u32 = weights.iter().sum();
    for (found, &weight) in found.iter().zip(weights) {
        let due = f64::from(weight) / f64::from(all);
        assert!(near(*found, due), "{scheduler:?}: {found} for {due}");
    }
}

#[test]
fn weight_is_a_share_of_the_time() {
    for scheduler in ALL() {
        share_by_weight(scheduler, &[256, 512]);
    }
    // With Credit's 30 ms slices, a vCPU due four sevenths would need four slices in a row, and
    // Credit does not let a vCPU save that much credit. ISACS as printed forgives overspent credit,
    // which favours small weights most.
    let keeps_debt = IsacsParams {
        keeps_debt: true,
        ..isacs_params()
    };
    let keeps_debt = keeps_debt.spec();
    for scheduler in [credit2(), credit2_shared(), io_turns(), keeps_debt] {
        share_by_weight(scheduler, &[128, 256, 512]);
    }
}

/// Turns for I/O are paid for: a vCPU that computes beside one that is notified all the time keeps
/// its share.
#[test]
fn turns_for_io_leave_everybody_its_share() {
    let here = CpuSet::range(1, 1);
    let mut vms = vec![receiving(hog("mixed", here), 3)];
    vms.extend((0..2).map(|n| hog(&format!("hog{n}"), here)));
    vms.push(vm("client", CpuSet::range(2, 2)));
    let found = cpus(long(io_turns(), 3, vms));
    assert!(found[..3].iter().all(|&c| near(c, 1.0 / 3.0)), "{found:?}");
}

#[test]
fn hogs_spread_over_all_pcpus_that_they_may_use() {
    for scheduler in ALL() {
        let vms = (0..6).map(|n| hog(&format!("vm{n}"), CpuSet::range(1, 3)));
        let found = cpus(long(scheduler, 4, vms.collect()));
        let sum: f64 = found.iter().sum();
        assert!(near(sum, 3.0), "{scheduler:?}: {sum} of 3 pCPUs are used");
        assert!(
            found.iter().all(|&c| near(c, 0.5)),
            "{scheduler:?} {found:?}"
        );
    }
}

#[test]
fn nobody_runs_where_it_may_not() {
    for scheduler in ALL() {
        let vms = vec![
            hog("a", CpuSet::range(1, 1)),
            hog("b", CpuSet::range(1, 1)),
            hog("c", CpuSet::range(2, 2)),
            hog("d", CpuSet::range(1, 2)),
        ];
        let found = cpus(long(scheduler, 4, vms));
        let sum: f64 = found.iter().sum();
        // pCPU 3 idles in any case; a and b have at most pCPU 1.
        assert!(near(sum, 2.0), "{scheduler:?} {found:?}");
        assert!(found[0] + found[1] < 1.01, "{scheduler:?} {found:?}");
    }
}

#[test]
fn a_cap_is_the_most_however_idle_the_machine_is() {
    for scheduler in ALL() {
        let mut capped = hog("capped", CpuSet::range(1, 1));
        capped.cpu.cap = 30;
        let alone = cpus(long(scheduler, 2, vec![capped.clone()]));
        assert!((alone[0] - 0.3).abs() < 0.02, "{scheduler:?} {alone:?}");
        let vms = vec![capped, hog("free", CpuSet::range(1, 1))];
        let found = cpus(long(scheduler, 2, vms));
        assert!((found[0] - 0.3).abs() < 0.02, "{scheduler:?} {found:?}");
        assert!((found[1] - 0.7).abs() < 0.02, "{scheduler:?} {found:?}");
    }
}

#[test]
fn a_cap_holds_for_all_vcpus_of_a_machine_together() {
    for scheduler in [credit2(), credit2_shared()] {
        let mut capped = hog("capped", CpuSet::range(1, 2));
        (capped.cpu.vcpus, capped.cpu.busy_processes, capped.cpu.cap) = (2, 2, 100);
        let found = cpus(long(scheduler, 3, vec![capped]));
        assert!(near(found[0], 1.0), "{scheduler:?} {found:?}");
    }
}
