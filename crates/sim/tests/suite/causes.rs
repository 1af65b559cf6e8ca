//! Causes of missed promises: who had the device while late requests waited.

use crate::common::{DISK, read, vm};
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
