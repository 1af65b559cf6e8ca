//! Amounts that a VM moved in each second, and their precision against its target.

use crate::common::{Guest, KIB, MS, SECOND, World, weighted};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::request::Op;

fn precise(bytes_per_s: u64) -> Objective {
    Objective {
        target: Rate::bytes(bytes_per_s),
        ..Objective::default()
    }
}

fn seconds(world: &World, guest: Guest) -> Vec<Option<u64>> {
    let seconds = world.driver.engine.vms().vm_seconds(world.time(), guest.vm);
    seconds.iter().collect()
}

/// Bytes of a second with a hundred answers.
const FULL: Option<u64> = Some(100 * 4096);

#[test]
fn what_moves_in_each_second_is_known_and_idle_ones_are_told_apart() {
    let mut world = World::new("fifo", 10 * MS);
    let guest = world.guest(&precise(400_000));
    world.load(guest, Op::Read, 4 * KIB, 1);
    world.run(5 * SECOND + 500 * MS);
    assert_eq!(
        seconds(&world, guest),
        [FULL; 4],
        "from the first whole one on"
    );
    // The last answer arrives at 5.5 s.
    world.pause(guest, 3 * SECOND);
    let half = Some(51 * 4096);
    let so_far = [FULL, FULL, FULL, FULL, half, None, None];
    assert_eq!(seconds(&world, guest), so_far);
    // The VM resumes at 8.5 s.
    world.run(1500 * MS);
    let rest = [Some(49 * 4096), FULL];
    assert_eq!(seconds(&world, guest), [&so_far[..], &rest].concat());
    // Requests are inside, and none ends: those seconds count as 0, not as idle.
    world.stall(2 * SECOND);
    let stuck = [&so_far[..], &rest, &[Some(0); 2]].concat();
    assert_eq!(seconds(&world, guest), stuck);
    world.run(100 * MS);
    assert_eq!(
        seconds(&world, guest),
        stuck,
        "looking at them changes nothing"
    );
}

#[test]
fn precision_is_that_of_the_seconds_and_begins_anew_with_another_target() {
    let mut world = World::new("fifo", 10 * MS);
    let guest = world.guest(&precise(400_000));
    world.load(guest, Op::Write, 4 * KIB, 1);
    world.run(62 * SECOND);
    let of = |world: &World, target| {
        let seconds = world.driver.engine.vms().vm_seconds(world.time(), guest.vm);
        seconds.precision(target, 30)
    };
    let precision = of(&world, Some(400_000));
    assert_eq!((precision.seconds, precision.idle), (61, 0));
    assert_eq!(precision.mean, Some(409_600));
    assert_eq!(precision.error, Some(24_000));
    assert_eq!(precision.absolute_error, Some(24_000));
    assert_eq!(precision.variability, Some(0));
    assert_eq!(of(&world, None).error, None);
    let same_target = Objective {
        weight: 7,
        ..precise(400_000)
    };
    world.set(guest, &same_target);
    assert_eq!(of(&world, Some(400_000)), precision);
    world.set(guest, &precise(800_000));
    assert_eq!(of(&world, Some(800_000)).seconds, 0);
    world.run(3 * SECOND);
    // The second of the change counts for neither target.
    assert_eq!(of(&world, Some(800_000)).error, Some(-488_000));
    assert_eq!(seconds(&world, guest), [FULL; 2]);
    world.set(guest, &weighted(100));
    assert_eq!(seconds(&world, guest), []);
}

#[test]
fn who_comes_into_the_place_of_another_begins_with_nothing() {
    let mut world = World::new("fifo", 10 * MS);
    let guest = world.guest(&weighted(100));
    world.load(guest, Op::Read, 4 * KIB, 1);
    world.run(5 * SECOND);
    world.remove_vm(guest);
    let next = world.guest(&weighted(100));
    assert_eq!(next.vm.index(), guest.vm.index());
    world.run(2 * SECOND);
    assert_eq!(seconds(&world, next), [None], "and is idle");
}

#[test]
fn only_the_last_five_minutes_are_known() {
    let mut world = World::new("fifo", 10 * MS);
    let guest = world.guest(&weighted(100));
    world.load(guest, Op::Read, 4 * KIB, 1);
    world.run(400 * SECOND);
    assert_eq!(seconds(&world, guest), [FULL; 300]);
    world.pause(guest, 1000 * SECOND);
    assert_eq!(seconds(&world, guest), [None; 300]);
}
