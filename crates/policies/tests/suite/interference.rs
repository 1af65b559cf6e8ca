//! Time of requests by cause: classes that add up, and the VMs behind which requests were.

use crate::common::{Driver, Guest, World, config, limited, policy};
use tidegate_core::engine::SilenceTimeouts;
use tidegate_core::interference::{Class, Interval, VmTimes};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::request::{Op, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::registry;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn interval(world: &World, vm: VmId) -> Interval {
    let times = world.driver.engine.vms().times(vm);
    Interval::between(&VmTimes::default(), &times)
}

/// Part of a VM's time behind another one.
fn behind(interval: &Interval, vm: VmId) -> f64 {
    let culprit = interval.culprits.iter().find(|it| it.vm == vm);
    let time = culprit.map_or(0, |it| it.total().0);
    time as f64 / interval.total().0 as f64
}

fn part(interval: &Interval, class: Class) -> f64 {
    interval.time(class).0 as f64 / interval.total().0 as f64
}

/// One VM with a read at a time, one with 15, on a device of this depth.
fn neighbours(policy_name: &str, depth: u32) -> (World, Guest, Guest) {
    let mut world = World::with_config(config(depth, 0), policy_name, MS);
    let small = world.guest(&Objective::default());
    let large = world.guest(&Objective::default());
    world.load(small, Op::Read, 4096, 1);
    world.load(large, Op::Read, 4096, 15);
    (world, small, large)
}

#[test]
fn classes_add_up_to_the_latency_under_every_policy() {
    for known in registry().iter().map(|info| info.name) {
        let (mut world, small, large) = neighbours(known, 4);
        world.run(3 * SECOND);
        for guest in [small, large] {
            let interval = interval(&world, guest.vm);
            let stats = world.driver.engine.vms().vm_stats(guest.vm);
            assert_eq!(interval.total(), stats.latency.sum(), "{known}");
            assert_eq!(interval.requests, stats.total_ops(), "{known}");
        }
    }
}

#[test]
fn a_vm_in_front_is_named_before_the_device_and_inside_of_it() {
    for depth in [1, 16] {
        let (mut world, small, large) = neighbours("fifo", depth);
        world.run(4 * SECOND);
        let of_small = interval(&world, small.vm);
        assert!(behind(&of_small, large.vm) > 0.85, "{of_small:?}");
        let culprit = of_small.culprits[0];
        let inside = culprit.inside.0 as f64 / culprit.total().0 as f64;
        assert_eq!(inside > 0.5, depth == 16, "{of_small:?}");
        // The other one has fifteen of sixteen requests.
        let of_large = interval(&world, large.vm);
        assert!(part(&of_large, Class::OwnRequests) > 0.75, "{of_large:?}");
        assert!((0.01..0.15).contains(&behind(&of_large, small.vm)));
    }
}

#[test]
fn a_large_request_takes_more_of_a_wait_than_a_small_one() {
    let mut world = World::with_config(config(1, 0), "fifo", MS);
    world.device.takes = Some(|io| u64::from(io.len) * 10);
    let [small, large, victim] = [0; 3].map(|_| world.guest(&Objective::default()));
    world.load(small, Op::Read, 16 << 10, 4);
    world.load(large, Op::Read, 256 << 10, 4);
    world.load(victim, Op::Read, 4096, 1);
    world.run(20 * SECOND);
    let interval = interval(&world, victim.vm);
    let parts = [small, large].map(|guest| behind(&interval, guest.vm));
    assert!(parts[1] > 5.0 * parts[0], "{parts:?}");
    assert!(parts[0] + parts[1] > 0.9, "{interval:?}");
}

#[test]
fn a_limit_is_the_vms_own() {
    let mut world = World::with_config(config(4, 0), "limit", MS);
    let limited = world.guest(&limited(Rate::iops(20)));
    let other = world.guest(&Objective::default());
    world.load(limited, Op::Read, 4096, 4);
    world.load(other, Op::Read, 4096, 2);
    world.run(10 * SECOND);
    let interval = interval(&world, limited.vm);
    assert!(part(&interval, Class::OwnLimit) > 0.9, "{interval:?}");
}

#[test]
fn a_stall_is_the_devices_and_nobodys() {
    let (mut world, small, _) = neighbours("fifo", 4);
    world.run(5 * SECOND);
    let before = world.driver.engine.vms().times(small.vm);
    world.device.service = 3 * SECOND;
    world.run(MS);
    world.device.service = MS;
    world.run(5 * SECOND);
    let after = world.driver.engine.vms().times(small.vm);
    let interval = Interval::between(&before, &after);
    let slow = interval.time(Class::SlowDevice);
    assert!(slow > Nanos(2 * SECOND), "{interval:?}");
}

#[test]
fn a_disk_that_hangs_is_no_neighbours_work() {
    let mut world = World::with_policy(config(4, 0), &policy("fifo"), MS);
    let [hung, other] = [0; 2].map(|_| world.guest(&Objective::default()));
    let engine = &mut world.driver.engine;
    let timeouts = SilenceTimeouts::default();
    (engine.device_mut()).enable_hung_disk_handling(Nanos::ZERO, timeouts);
    let driver = &mut world.driver;
    let ask = |driver: &mut Driver, guest: Guest, at: u64| {
        (driver.ask(guest.client, Op::Read, at << 20, 4096)).expect("there is room");
    };
    // Of a VM that is new not every request is sampled.
    for n in 0..100 {
        ask(driver, hung, n);
        driver.now += Nanos(50 * MS);
        driver.dispatch(1);
        driver.now += Nanos(MS);
        driver.end_all();
        driver.answers();
    }
    let before = driver.engine.vms().times(hung.vm);
    for n in 0..3 {
        ask(driver, hung, n);
    }
    let stuck = driver.start_all();
    let end_of_other = |driver: &mut Driver, n: u64| {
        ask(driver, other, n);
        for io in driver.start_all().iter().filter(|io| io.vm == other.vm) {
            driver.now += Nanos(MS);
            driver.end(io, Ok(()));
        }
        driver.answers();
    };
    for n in 0..200 {
        driver.now += Nanos(100 * MS);
        end_of_other(driver, n);
        let now = driver.now;
        driver.engine.device_mut().detect_hung_disks(now);
    }
    assert!(driver.engine.device().any_hung());
    stuck.iter().for_each(|io| driver.end(io, Ok(())));
    driver.drain();
    let after = world.driver.engine.vms().times(hung.vm);
    let interval = Interval::between(&before, &after);
    assert_eq!(interval.requests, 3);
    assert!(part(&interval, Class::SlowDevice) > 0.9, "{interval:?}");
}

#[test]
fn vms_come_and_go_in_the_same_slot() {
    let (mut world, small, large) = neighbours("fifo", 1);
    world.run(SECOND);
    world.remove_vm(large);
    let next = world.guest(&Objective::default());
    assert_eq!(next.vm.index(), large.vm.index());
    let before = world.driver.engine.vms().times(small.vm);
    world.load(next, Op::Write, 4096, 15);
    world.run(4 * SECOND);
    let after = world.driver.engine.vms().times(small.vm);
    let interval = Interval::between(&before, &after);
    assert!(behind(&interval, next.vm) > 0.8, "{interval:?}");
    assert!(behind(&interval, large.vm) < 0.05, "{interval:?}");
    let fresh = Interval::between(
        &VmTimes::default(),
        &world.driver.engine.vms().times(next.vm),
    );
    assert!(
        fresh.culprits.iter().all(|it| it.vm == small.vm),
        "{fresh:?}"
    );
}
