//! Causes of missed promises: who had the device while late requests waited.

use crate::common::{DISK, near, read, run_with_rows, vm};
use crate::world::with;
use tidegate_sim::world::World;

/// Cause of the promise that VM `a` misses on a hard disk under `fifo`, beside VM `b`.
fn cause(depth: u32, a: &str, b: Option<&str>) -> Option<&'static str> {
    let objective = "[vm.objective]\nreservation = \"500 IOPS\"\n[[vm.workload]]";
    let vms = with("a", a).replace("[[vm.workload]]", objective)
        + &b.map_or_else(String::new, |b| with("b", b));
    let disk = DISK.replace("depth = 1", &format!("depth = {depth}"));
    // Accepted with a warning: the policy does not enforce reservations.
    let scenario = read(&(disk + &vms)).expect("good").config;
    let mut world = World::new(scenario, None);
    world.run(&mut |_| {});
    let report = world.report();
    let promise = &vm(&report, "a").promises[0];
    assert_eq!(promise.kept, Some(false), "{promise:?}");
    promise.cause
}

/// Workload of two reads at a time: the second is served just behind the first, of the same VM.
const READER: &str = "rw = \"randread\"\nbs = \"8 KiB\"\niodepth = 2";

#[test]
fn a_neighbour_that_has_the_disk_is_named_wherever_requests_wait() {
    let writer = "rw = \"write\"\nbs = \"1 MiB\"\niodepth = 32";
    // In the queue, where the disk has one I/O, and inside the disk, where it has them all.
    assert_eq!(cause(1, READER, Some(writer)), Some("others"));
    assert_eq!(cause(32, READER, Some(writer)), Some("others"));
}

#[test]
fn a_disk_that_is_too_slow_for_the_vm_alone_is_named_beside_a_small_neighbour() {
    for depth in [1, 32] {
        let deep = READER.replace("iodepth = 2", "iodepth = 32");
        assert_eq!(cause(depth, &deep, None), Some("device"));
        let small = "rw = \"randread\"\nrate_iops = \"10 IOPS\"";
        assert_eq!(cause(depth, &deep, Some(small)), Some("device"), "{depth}");
    }
}

#[test]
fn reports_divide_all_time_and_name_the_vms_behind_which_others_were() {
    let writer = "rw = \"write\"\nbs = \"1 MiB\"\niodepth = 32";
    let (report, rows) =
        run_with_rows(&(DISK.to_owned() + &with("a", READER) + &with("b", writer)));
    for name in ["a", "b"] {
        let of_vm = vm(&report, name);
        let (times, served) = (&of_vm.interference, &of_vm.served);
        assert_eq!(times.requests, served.count);
        near(
            times.total_ns() as f64,
            (served.mean_ns * served.count) as f64,
            0.01,
        );
        // Rows add up to the whole.
        let rows: Vec<_> = rows.iter().filter(|row| row.vm == name).collect();
        assert_eq!(rows.len(), 60);
        let all: u64 = rows.iter().map(|row| row.interference.total_ns()).sum();
        assert_eq!(all, times.total_ns());
    }
    let times = &vm(&report, "a").interference;
    assert!(
        times.others_ns as f64 > 0.8 * times.total_ns() as f64,
        "{times:?}"
    );
    assert_eq!(times.behind[0].vm, "b");
    let named: u64 = times
        .behind
        .iter()
        .map(|it| it.waited_ns + it.inside_ns)
        .sum();
    assert_eq!(named + times.unnamed_ns, times.others_ns);
}

#[test]
fn counts_begin_after_the_warm_up_and_stay_when_a_vm_has_left() {
    let reader = with("a", READER).replace("disk =", "leaves = \"30 s\"\ndisk =");
    let disk = DISK.replace("duration", "warm_up = \"10 s\"\nduration");
    let (report, rows) = run_with_rows(&(disk + &reader + &with("b", "rw = \"write\"")));
    let of_vm = vm(&report, "a");
    assert_eq!(of_vm.interference.requests, of_vm.served.count);
    let last = rows.iter().rev().find(|row| row.vm == "a");
    assert_eq!(last.expect("it has rows").interference.requests, 0);
}
