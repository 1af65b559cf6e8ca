//! Deadline transfers in the world: when they begin and end, and what is given to it from outside.

use crate::common::{DISK, good};
use crate::world::with;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;
use tidegate_sim::world::World;
use tidegate_workload::deadline::Deadline;

/// Two VMs under PriDyn: one whose transfer has a deadline, one that waits for a transfer.
fn one_that_waits() -> World {
    let text = DISK.replace("fifo", "pridyn")
        + &with(
            "a",
            "rw = \"read\"\nio_size = \"100 MiB\"\ndeadline = \"50 s\"",
        )
        + &with(
            "b",
            "rw = \"write\"\nio_size = \"4 KiB\"\nstartdelay = \"60 s\"",
        );
    let mut world = World::new(good(&text), None);
    world.keep_responses();
    world
}

#[test]
fn time_passes_to_the_next_transfer_s_begin_or_end() {
    let mut world = one_that_waits();
    world.run_to_transfer(Nanos::from_secs(50));
    assert_eq!(world.now(), Nanos::ZERO, "it begins at once");
    let running: Vec<_> = world.transfers().collect();
    let (vm, transfer) = running[0];
    assert_eq!(
        (running.len(), vm, transfer.bytes, transfer.left),
        (1, 0, 100 << 20, 100 << 20)
    );
    world.run_to_transfer(Nanos(1_000_000));
    assert_eq!(world.now(), Nanos(1_000_000), "no further than it may");
    world.run_to_transfer(Nanos::from_secs(50));
    let done = world.take_responses();
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].response_ns, world.now().0);
    assert_eq!(world.transfers().count(), 0);
}

#[test]
fn a_transfer_that_is_given_begins_then_and_is_the_same_when_it_is_done_again() {
    let at = Nanos::from_millis(300);
    let run = |stops: &[u64]| {
        let mut world = one_that_waits();
        for stop in stops {
            while world.now() < Nanos::from_millis(*stop) {
                world.run_to_transfer(Nanos::from_millis(*stop));
            }
        }
        while world.now() < at {
            world.run_to_transfer(at);
        }
        let mut transfer = world.scenario().vms[1].workloads[0].clone();
        transfer.io_size = Some(8 << 20);
        transfer.deadline = Some(Deadline::Fixed(Nanos::from_secs(30)));
        world.begin(1, &transfer, Some((Class::RealTime, &[(0, Class::Idle)])));
        let classes = [0, 1].map(|vm| {
            let (engine, id) = world.served(vm).expect("there");
            engine.transfers().class_status(id).class
        });
        assert_eq!(classes, [Class::Idle, Class::RealTime]);
        let begun: Vec<_> = world.transfers().map(|(vm, it)| (vm, it.since)).collect();
        assert_eq!(begun, [(0, Nanos::ZERO), (1, at)]);
        while world.transfers().count() > 0 {
            world.run_to_transfer(Nanos::from_secs(60));
        }
        world.take_responses()
    };
    let once = run(&[]);
    assert_eq!(
        once.iter().map(|of| of.vm.as_str()).collect::<Vec<_>>(),
        ["b", "a"]
    );
    // Where it was stopped on the way makes no difference.
    assert_eq!(once, run(&[10, 123, 250]));
}
