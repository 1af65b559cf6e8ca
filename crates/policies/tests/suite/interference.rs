//! Time of requests by cause: classes that add up, and the VMs behind which requests were.

use crate::common::{Driver, Guest, World, config, limited, policy};
use tidegate_core::engine::SilenceTimeouts;
use tidegate_core::interference::{Class, Interval, VmTimes};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::request::{Op, Request, VmId};
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

/// Asks for a read of 4 KiB, at a place that adjoins no other one's.
fn ask(driver: &mut Driver, guest: Guest, at: u64) {
    (driver.ask(guest.client, Op::Read, at << 20, 4096)).expect("there is room");
}

/// Has a guest read a hundred times, 50 ms apart, 1 ms each: its requests are all sampled then,
/// which those of a new VM are not, and it is known what the device needs.
fn accustom(driver: &mut Driver, guest: Guest) {
    for n in 0..100 {
        driver.now += Nanos(50 * MS);
        ask(driver, guest, n);
        driver.dispatch(1);
        driver.now += Nanos(MS);
        driver.end_all();
        driver.answers();
    }
}

/// Interval since `before`.
fn since(driver: &Driver, vm: VmId, before: &VmTimes) -> Interval {
    Interval::between(before, &driver.engine.vms().times(vm))
}

/// Has two reads come at once, the first of which takes 2 s with the device, at a depth of one.
fn stall(driver: &mut Driver, guest: Guest) -> Interval {
    let before = driver.engine.vms().times(guest.vm);
    driver.now += Nanos(5 * SECOND);
    [0, 1].iter().for_each(|&n| ask(driver, guest, n));
    driver.dispatch(1);
    driver.now += Nanos(2 * SECOND);
    driver.end_all();
    driver.dispatch(1);
    driver.now += Nanos(MS);
    driver.drain();
    since(driver, guest.vm, &before)
}

#[test]
fn a_stall_after_idleness_is_known_as_one() {
    let mut world = World::with_config(config(1, 0), "fifo", MS);
    let guest = world.guest(&Objective::default());
    accustom(&mut world.driver, guest);
    let interval = stall(&mut world.driver, guest);
    assert!(part(&interval, Class::SlowDevice) > 0.99, "{interval:?}");
}

#[test]
fn time_before_admission_says_nothing_of_the_devices_pace() {
    let mut world = World::with_config(config(1, 0), "fifo", MS);
    let guest = world.guest(&Objective::default());
    let driver = &mut world.driver;
    for n in 0..200 {
        let (came, request) = (driver.now, Request::read(n << 20, 4096, n));
        driver.now += Nanos(900 * MS);
        let mut admission = driver.engine.admission_mut();
        let claimed = admission.claim(driver.now, guest.client, Op::Read, 4096);
        claimed.expect("there is room");
        let taken = admission.handle_claimed_request(driver.now, guest.client, request, came);
        let taken = taken.expect("it was claimed");
        (driver.ledger).accepted(came, guest.client, taken, &request);
        let tally = driver.tallies.get_mut(&guest.vm).expect("it is there");
        tally.arrives(Op::Read);
        driver.dispatch(1);
        driver.now += Nanos(MS);
        driver.end_all();
        driver.answers();
    }
    let interval = stall(driver, guest);
    assert!(part(&interval, Class::SlowDevice) > 0.99, "{interval:?}");
}

#[test]
fn a_request_that_waits_between_its_parts_waits_for_a_vm() {
    let mut config = config(1, 0);
    config.device.max_io = 256 << 10;
    let mut world = World::with_config(config, "drr", MS);
    let [split, other] = [0; 2].map(|_| world.guest(&Objective::default()));
    let driver = &mut world.driver;
    accustom(driver, split);
    let before = driver.engine.vms().times(split.vm);
    for n in 0..20u64 {
        driver.now += Nanos(50 * MS);
        let taken = driver.ask(split.client, Op::Read, n << 20, 1 << 20);
        taken.expect("there is room");
        // The first part goes at once.
        driver.dispatch(1);
        for at in 0..8 {
            let taken = driver.ask(other.client, Op::Read, at << 20, 256 << 10);
            taken.expect("there is room");
        }
        while !driver.in_flight.is_empty() {
            driver.now += Nanos(MS);
            driver.end_nth(0, Ok(()));
            driver.start_all();
        }
        driver.answers();
    }
    let interval = since(driver, split.vm, &before);
    assert_eq!(interval.requests, 20);
    assert!(behind(&interval, other.vm) > 0.1, "{interval:?}");
    assert_eq!(interval.unnamed, Nanos::ZERO, "{interval:?}");
}

/// Neighbour that goes on while a disk does nothing: a read every `every`, of 1 ms.
fn go_on(driver: &mut Driver, other: Guest, reads: u64, every: Nanos) {
    for n in 0..reads {
        driver.now += every;
        ask(driver, other, n);
        for io in driver.start_all().iter().filter(|io| io.vm == other.vm) {
            driver.now += Nanos(MS);
            driver.end(io, Ok(()));
        }
        driver.answers();
        let now = driver.now;
        driver.engine.device_mut().detect_hung_disks(now);
    }
}

#[test]
fn a_disk_that_hangs_is_no_neighbours_work() {
    let mut world = World::with_policy(config(4, 0), &policy("fifo"), MS);
    let [hung, other] = [0; 2].map(|_| world.guest(&Objective::default()));
    let engine = &mut world.driver.engine;
    let timeouts = SilenceTimeouts::default();
    (engine.device_mut()).enable_hung_disk_handling(Nanos::ZERO, timeouts);
    let driver = &mut world.driver;
    accustom(driver, hung);
    let before = driver.engine.vms().times(hung.vm);
    for n in 0..3 {
        ask(driver, hung, n);
    }
    let stuck = driver.start_all();
    go_on(driver, other, 20, Nanos(100 * MS));
    assert!(driver.engine.device().any_hung());
    // The probe of the disk, and flushes that wait until the disk no longer hangs. Not all requests
    // of a burst are sampled.
    ask(driver, hung, 3);
    let probe = driver.start_all();
    for _ in 0..8 {
        let flush = driver.ask(hung.client, Op::Flush, 0, 0);
        flush.expect("there is room");
    }
    go_on(driver, other, 200, Nanos(100 * MS));
    let all = stuck.iter().chain(&probe);
    all.for_each(|io| driver.end(io, Ok(())));
    driver.drain();
    let interval = since(driver, hung.vm, &before);
    assert_eq!(interval.requests, 12);
    assert!(part(&interval, Class::SlowDevice) > 0.95, "{interval:?}");
}

#[test]
fn a_flush_that_waits_for_one_of_its_disk_waits_for_its_own_vm() {
    let mut world = World::with_config(config(4, 0), "fifo", MS);
    let [flusher, other] = [0; 2].map(|_| world.guest(&Objective::default()));
    let driver = &mut world.driver;
    accustom(driver, flusher);
    let before = driver.engine.vms().times(flusher.vm);
    for _ in 0..10 {
        driver.now += Nanos(50 * MS);
        let flush = |driver: &mut Driver| {
            let flush = driver.ask(flusher.client, Op::Flush, 0, 0);
            flush.expect("there is room");
            driver.start_all()
        };
        let first = flush(driver);
        let second = flush(driver);
        assert_eq!((first.len(), second.len()), (1, 0));
        go_on(driver, other, 200, Nanos(MS));
        driver.end(&first[0], Ok(()));
        driver.drain();
    }
    let interval = since(driver, flusher.vm, &before);
    assert_eq!(interval.requests, 20);
    let waited = Nanos(10 * 400 * MS);
    assert!(interval.time(Class::OwnRequests) >= waited, "{interval:?}");
    let others = interval.culprits.iter().map(|it| it.waited.0);
    assert_eq!(others.sum::<u64>(), 0, "{interval:?}");
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
