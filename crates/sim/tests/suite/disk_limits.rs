//! Limits of single disks and limits that disks share, in the simulator.

use crate::common::{good, near, refused, run, vm};
use tidegate_core::objective::{Limit, Rate};
use tidegate_sim::report::Report;
use tidegate_sim::scenario::{DiskPart, Scenario};
use tidegate_sim::world::World;
use tidegate_workload::spec::{Mix, Sizes};

/// A flash disk under a policy that enforces no limits of VMs, with a limit group.
const DEVICE: &str = "duration = \"20 s\"\n[[device]]\nname = \"flash\"\nmodel = \"nvme-1tb\"\n\
                      policy = \"fifo\"\n[[device.limit_group]]\nname = \"logs\"\n\
                      limit = \"300 IOPS\"\n";

/// A VM with a disk of these keys that keeps 16 random reads queued.
fn reader(name: &str, disk: &str) -> String {
    format!(
        "[[vm]]\nname = \"{name}\"\ndisk = [{{ size = \"1 GiB\"{disk} }}]\n\
         workload = [{{ rw = \"randread\", bs = \"4 KiB\", iodepth = 16 }}]\n"
    )
}

/// Requests per second of a VM.
fn iops(report: &Report, name: &str) -> f64 {
    vm(report, name).rates.iops
}

#[test]
fn disks_keep_their_own_and_their_shared_limits_under_any_policy() {
    let vms = [
        ("alone", ", limit = \"200 IOPS\""),
        ("a", ", limit_group = \"logs\""),
        ("b", ", limit_group = \"logs\""),
        ("free", ""),
    ];
    let vms: String = vms.iter().map(|(name, disk)| reader(name, disk)).collect();
    let report = run(&(DEVICE.to_owned() + &vms));
    near(iops(&report, "alone"), 200.0, 2.0);
    // They take turns.
    near(iops(&report, "a"), 150.0, 2.0);
    near(iops(&report, "b"), 150.0, 2.0);
    assert!(iops(&report, "free") > 10_000.0);
}

#[test]
fn hosts_keep_a_shared_limit_each() {
    let vms = reader("a", ", limit_group = \"logs\"") + &reader("b", ", limit_group = \"logs\"");
    let vms = vms.replacen("name = \"b\"", "name = \"b\"\nhost = 1", 1);
    let report = run(&(DEVICE.to_owned() + &vms));
    for name in ["a", "b"] {
        near(iops(&report, name), 300.0, 2.0);
    }
}

/// One VM with two disks behind each other: 256 MiB with a limit, and the rest without.
fn divided() -> Scenario {
    let mut scenario = good(&(DEVICE.to_owned() + &reader("a", "")));
    let part = |start: u64, limit: Limit| DiskPart {
        start,
        limit,
        group: None,
    };
    let limit = Limit::of_all(Rate::iops(100));
    scenario.vms[0].parts = vec![part(0, limit), part(256 << 20, Limit::NONE)];
    scenario
}

#[test]
fn a_part_of_a_disk_holds_its_own_requests_alone() {
    let mut scenario = divided();
    let mut beside = scenario.vms[0].workloads[0].clone();
    beside.offset = 256 << 20;
    beside.rw.mix = Mix::Write;
    scenario.vms[0].workloads[0].size = Some(256 << 20);
    scenario.vms[0].workloads.push(beside);
    scenario.check().expect("it is sound");
    let mut world = World::new(scenario, None);
    world.run(&mut |_| {});
    let report = world.report();
    let rates = &vm(&report, "a").rates;
    near(rates.read_iops, 100.0, 2.0);
    assert!(rates.write_iops > 10_000.0, "{}", rates.write_iops);
}

#[test]
fn requests_may_reach_into_the_next_part() {
    let mut scenario = divided();
    let workload = &mut scenario.vms[0].workloads[0];
    // Every one of them lies across the boundary.
    workload.offset = (256 << 20) - 4096;
    workload.size = Some(8192);
    workload.sizes = std::array::from_fn(|_| Sizes::fixed(8192));
    scenario.check().expect("it is sound");
    let mut world = World::new(scenario, None);
    world.run(&mut |_| {});
    near(iops(&world.report(), "a"), 100.0, 2.0);
}

#[test]
fn parts_that_do_not_follow_each_other_are_refused() {
    for starts in [[1, 4096], [0, 0], [0, 1 << 30]] {
        let mut scenario = divided();
        for (part, start) in scenario.vms[0].parts.iter_mut().zip(starts) {
            part.start = start;
        }
        let error = scenario.check().expect_err("refused").to_string();
        assert!(error.contains("do not follow each other"), "{error}");
    }
    let mut scenario = divided();
    scenario.vms[0].parts[1].group = Some("log".to_owned());
    let error = scenario.check().expect_err("refused").to_string();
    assert!(error.contains("no limit group \"log\""), "{error}");
}

#[test]
fn a_limit_group_that_is_not_there_is_named() {
    let text = DEVICE.to_owned() + &reader("a", ", limit_group = \"log\"");
    let message = refused(&text);
    assert!(message.contains("did you mean \"logs\"?"), "{message}");
}

#[test]
fn time_that_a_disks_limit_holds_requests_is_no_time_at_the_device() {
    let report = run(&(DEVICE.to_owned() + &reader("a", ", limit = \"200 IOPS\"")));
    // 16 requests queued at 200 a second take 80 ms each.
    let waits = &vm(&report, "a").waits;
    near(waits.regulated_ns as f64, 80e6, 5.0);
    assert!(waits.queued_ns + waits.device_ns < 1_000_000, "{waits:?}");
}
