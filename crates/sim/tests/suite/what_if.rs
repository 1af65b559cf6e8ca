//! Replays of recordings: they reproduce what was recorded, and foretell what would have been.

use crate::common::{self, what_if::prepared, what_if::recorded};
use std::collections::BTreeMap;
use tidegate_config::objective;
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_sim::what_if::{Figures, Reproduction, WhatIf};
use tidegate_workload::dependence::Evidence;

/// Disk with a synchronous VM, one that thinks, a bulk writer and an open loop.
const HOST: &str = r#"
duration = "30 s"
[[device]]
name = "disk"
model = "hdd-7200-1tb"
policy = "fifo"
[[vm]]
name = "sync"
disk = [{ size = "4 GiB" }]
[[vm.workload]]
rw = "randread"
[[vm]]
name = "thinking"
disk = [{ size = "4 GiB" }]
[[vm.workload]]
rw = "randwrite"
thinktime = { distribution = "exponential", mean = "40 ms" }
[[vm]]
name = "bulk"
disk = [{ size = "4 GiB" }]
[[vm.workload]]
rw = "write"
bs = "64 KiB"
iodepth = 4
[[vm]]
name = "clock"
disk = [{ size = "4 GiB" }]
[[vm.workload]]
rw = "randread"
rate_iops = "10 IOPS"
"#;

/// Replays a recording; returns the figures of every VM.
fn replayed(
    what_if: &WhatIf,
    policy: Option<&str>,
    objectives: &BTreeMap<usize, Objective>,
) -> Vec<Figures> {
    let report = common::what_if::replayed(what_if, policy, objectives);
    let vms = what_if.vms.iter().zip(&report.vms);
    vms.map(|(vm, report)| Figures::of_simulated(vm, report, what_if.duration))
        .collect()
}

/// Asserts that two figures differ by at most `part` of the first.
fn assert_near(what: &str, was: f64, is: f64, part: f64) {
    assert!(
        (is - was).abs() <= was * part,
        "{what}: {is}, expected {was}"
    );
}

#[test]
fn each_vm_is_judged_by_its_own_requests() {
    let what_if = prepared(&recorded(HOST).0);
    let found: Vec<_> = (what_if.vms.iter())
        .map(|vm| (vm.name.as_str(), vm.inference.closed, vm.inference.depth))
        .collect();
    assert_eq!(
        found[..3],
        [("sync", true, 1), ("thinking", true, 1), ("bulk", true, 4)]
    );
    assert_eq!((found[3].0, found[3].1), ("clock", false));
    let [sync, thinking, bulk, clock] = &what_if.vms[..] else {
        panic!("four VMs");
    };
    for vm in [sync, bulk] {
        assert_eq!(vm.inference.evidence, Evidence::AtOnce, "{}", vm.name);
        assert!(!vm.is_inferred(), "{}", vm.name);
    }
    assert_eq!(clock.inference.evidence, Evidence::Clock);
    assert!(!clock.is_inferred() && thinking.is_inferred());
    let think = thinking.inference.think.expect("it thinks").0 as f64;
    // The median of an exponential distribution is ln 2 of its mean.
    assert_near("think time", 40e6 * 0.693, think, 0.15);
}

#[test]
fn a_recording_is_reproduced_under_its_own_policy() {
    let limited = HOST.replace(
        "name = \"bulk\"",
        "name = \"bulk\"\nobjective.limit = \"8 MB/s\"",
    );
    for policy in ["fifo", "mclock", "slo"] {
        let text = limited.replace("\"fifo\"", &format!("{policy:?}"));
        let what_if = prepared(&recorded(&text).0);
        assert_eq!(what_if.duration, Nanos::from_secs(30));
        let replayed = replayed(&what_if, None, &BTreeMap::new());
        let vms = what_if.vms.iter().zip(&replayed);
        let pairs: Vec<_> = vms.clone().map(|(vm, is)| (vm.recorded, *is)).collect();
        let found = Reproduction::new(&pairs);
        assert!(found.throughput_error <= 0.1, "{policy}: {found:?}");
        assert!(found.latency_error <= 0.1, "{policy}: {found:?}");
        for (vm, is) in vms {
            assert_near(
                &format!("{policy}, {}", vm.name),
                vm.recorded.iops,
                is.iops,
                0.1,
            );
        }
    }
}

/// The truth is known: the VMs themselves are simulated under the other policy.
#[test]
fn another_policy_and_a_limit_are_foretold() {
    let what_if = prepared(&recorded(HOST).0);
    let none = BTreeMap::new();
    let limit = serde_json::json!({ "limit": "4 MB/s" });
    let limit = objective::merge(&Objective::default(), &limit).expect("right");
    let limited = BTreeMap::from([(2, limit)]);
    let with_limit = HOST.replace(
        "name = \"bulk\"",
        "name = \"bulk\"\nobjective.limit = \"4 MB/s\"",
    );
    for (policy, objectives, text) in [
        ("mclock", &none, HOST),
        ("slo", &none, HOST),
        ("mclock", &limited, &with_limit),
    ] {
        let truth = recorded(&text.replace("\"fifo\"", &format!("{policy:?}"))).1;
        let foretold = replayed(&what_if, Some(policy), objectives);
        for (vm, foretold) in truth.vms.iter().zip(&foretold) {
            let what = format!("{policy}, {}", vm.name);
            assert_near(&what, vm.rates.iops, foretold.iops, 0.15);
            let p50 = vm.rates.latency_p50_ns.expect("answered") as f64;
            assert_near(&what, p50, foretold.p50_ns as f64, 0.2);
        }
    }
}

#[test]
fn vms_come_and_go_and_objectives_change_as_recorded() {
    let text = r#"
duration = "20 s"
[[device]]
name = "disk"
model = "nvme-1tb"
policy = "mclock"
[[vm]]
name = "stays"
disk = [{ size = "1 GiB" }]
[[vm.workload]]
rw = "randread"
[[vm]]
name = "guest"
arrives = "5 s"
leaves = "15 s"
disk = [{ size = "1 GiB" }]
[[vm.workload]]
rw = "randrw"
iodepth = 2
fsync = 8
[[event]]
at = "10 s"
vm = "stays"
objective = { limit = "200 IOPS" }
"#;
    let what_if = prepared(&recorded(text).0);
    let replayed = replayed(&what_if, None, &BTreeMap::new());
    for (vm, is) in what_if.vms.iter().zip(&replayed) {
        assert_near(&vm.name, vm.recorded.iops, is.iops, 0.1);
        assert_near(&vm.name, vm.recorded.p50_ns as f64, is.p50_ns as f64, 0.1);
    }
    // An objective that is given replaces all that was recorded.
    let free = BTreeMap::from([(0, Objective::default())]);
    let freed = self::replayed(&what_if, None, &free);
    assert!(
        freed[0].iops > replayed[0].iops * 1.5,
        "{freed:?} {replayed:?}"
    );
}
