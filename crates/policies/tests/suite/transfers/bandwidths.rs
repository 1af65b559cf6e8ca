//! Bandwidth assumed of a VM that is not measured yet, and the device figures learnt for that.

use crate::common::{Guest, MS, SECOND, World};
use crate::transfers::{MIB, RATE, begin, status, world, world_of, writer};
use tidegate_core::learnt_state::Blob;
use tidegate_core::objective::Objective;
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::request::{DeviceIo, Op};
use tidegate_policies::policy::PolicySpec;

fn fifo(bytes_per_s: u64) -> World {
    world_of(&PolicySpec::named("fifo").expect("registered"), bytes_per_s)
}

fn writers<const N: usize>(world: &mut World) -> [Guest; N] {
    [(); N].map(|()| writer(world, &Objective::default()))
}

/// Returns the bandwidth that forecasts assume for `n` VMs together.
fn capacity(world: &World, n: usize) -> u64 {
    world.driver.engine.transfers().total_bandwidth(n)
}

/// Going from one VM to another takes half as long as an I/O.
fn with_seeks(io: &DeviceIo) -> u64 {
    let of_vms = (io.addr >> 40) as usize % 2;
    SECOND * MIB / RATE + [0, 10 * MS][of_vms]
}

#[test]
fn one_not_measured_yet_has_its_part_of_what_the_device_is_said_to_do() {
    let mut world = fifo(RATE);
    let [one, _, _] = writers(&mut world);
    let quiet = world.guest(&Objective::default());
    world.run(5 * SECOND);
    let status = begin(&mut world, one, 1_000, 100);
    assert_eq!(status.bandwidth, None);
    // Three VMs share the device; the one without requests does not count.
    let seconds = status.forecast.done.since(world.time()).as_secs_f64();
    assert!((seconds - 60.0).abs() < 0.01, "{seconds}");
    assert!(status.possible);
    assert!(!begin(&mut world, one, 1_000, 19).possible);
    assert!(begin(&mut world, one, 1_000, 21).possible);
    // A higher best bandwidth raises the possible rate, not the forecast one.
    world
        .driver
        .engine
        .transfers_mut()
        .set_best_bandwidth(2 * RATE);
    assert_eq!(world.driver.engine.transfers().best_bandwidth(), 2 * RATE);
    assert_eq!(world.driver.engine.transfers().total_bandwidth(1), RATE);
    assert!(begin(&mut world, one, 1_000, 11).possible);
    let status = begin(&mut world, one, 1_000, 9);
    assert!(!status.possible);
    let seconds = status.forecast.done.since(world.time()).as_secs_f64();
    assert!((seconds - 60.0).abs() < 0.01, "{seconds}");
    // A VM with a transfer of its own counts as one that shares the device.
    let status = begin(&mut world, quiet, 1_000, 100);
    let seconds = status.forecast.done.since(world.time()).as_secs_f64();
    assert!((seconds - 80.0).abs() < 0.01, "{seconds}");
}

#[test]
fn a_profile_says_what_a_device_does_of_which_nothing_else_is_said() {
    let curve = |iops| Curve::new(&[(4096, iops), (1 << 20, iops / 16.0)]).expect("a curve");
    // 1,600 / 16 mebibytes a second at best.
    let reads = [curve(1_600.0), curve(160.0)];
    let profile = Profile::new(reads, None, Vec::new(), Vec::new());
    let mut world = fifo(0);
    let [one] = writers(&mut world);
    world
        .driver
        .engine
        .device_mut()
        .set_profile(Some(profile.clone().into()));
    assert_eq!(capacity(&world, 1), 100 * MIB, "before there is a job");
    let status = begin(&mut world, one, 1_000, 100);
    assert!((9.9..10.1).contains(&status.forecast.done.as_secs_f64()));
    // The profile may change while a transfer runs; the stated device rate takes precedence.
    world.driver.engine.device_mut().set_profile(None);
    assert_eq!(capacity(&world, 1), 0);
    world
        .driver
        .engine
        .device_mut()
        .set_profile(Some(profile.clone().into()));
    assert_eq!(capacity(&world, 3), 100 * MIB);
    let mut world = fifo(RATE);
    let [one] = writers(&mut world);
    world
        .driver
        .engine
        .device_mut()
        .set_profile(Some(profile.into()));
    begin(&mut world, one, 1_000, 100);
    assert_eq!(capacity(&world, 1), RATE);
}

#[test]
fn the_total_is_learnt_by_how_many_share_it_and_outlives_the_engine() {
    let mut world = fifo(0);
    world.device.takes = Some(with_seeks);
    let [one, two] = writers(&mut world);
    world.unload(two);
    world.run(SECOND);
    begin(&mut world, one, 100_000, 10_000);
    assert_eq!(world.driver.engine.transfers().export_bandwidths(), None);
    world.run(4 * SECOND);
    assert!(capacity(&world, 1).abs_diff(RATE) < MIB);
    world.load(two, Op::Write, MIB as u32, 4);
    // The interval in which the second one comes teaches too much; that wears off.
    world.run(90 * SECOND);
    let shared = capacity(&world, 2);
    // Half of the I/Os take 20 ms, half 30.
    assert!(shared.abs_diff(40 * MIB) < MIB, "{shared}");
    assert!(capacity(&world, 1).abs_diff(RATE) < 2 * MIB);
    assert_eq!(capacity(&world, 9), shared);

    let kept = world
        .driver
        .engine
        .transfers()
        .export_bandwidths()
        .expect("two are known");
    let mut again = fifo(0);
    let [three, _] = writers(&mut again);
    again
        .driver
        .engine
        .transfers_mut()
        .import_bandwidths(&kept)
        .expect("its own");
    let status = begin(&mut again, three, 1_000, 100);
    let seconds = status.forecast.done.as_secs_f64();
    let expected = 1_000.0 * MIB as f64 / (shared as f64 / 2.0);
    assert!((seconds - expected).abs() < 0.01, "{seconds}");
    let said = again
        .driver
        .engine
        .transfers_mut()
        .import_bandwidths(&Blob::new("cap", 1));
    assert!(said.is_err());
    assert_eq!(
        again.driver.engine.transfers().export_bandwidths(),
        Some(kept)
    );
}

#[test]
fn who_leaves_the_device_idle_teaches_nothing() {
    let mut world = fifo(RATE);
    let [one] = writers(&mut world);
    begin(&mut world, one, 100_000, 10_000);
    for _ in 0..20 {
        world.run(SECOND / 2);
        world.pause(one, SECOND / 2);
    }
    assert!(
        status(&world, one)
            .bandwidth
            .is_some_and(|b| b < RATE * 2 / 3)
    );
    assert_eq!(world.driver.engine.transfers().export_bandwidths(), None);
    world.run(6 * SECOND);
    assert!(
        world
            .driver
            .engine
            .transfers()
            .export_bandwidths()
            .is_some()
    );
}

#[test]
fn a_stall_of_the_driver_and_a_backup_teach_nothing() {
    let mut world = fifo(RATE);
    let [one] = writers(&mut world);
    begin(&mut world, one, 100_000, 10_000);
    world.run(SECOND);
    world.stall(30 * SECOND);
    world.run(SECOND);
    assert_eq!(world.driver.engine.transfers().export_bandwidths(), None);
    let mut world = fifo(RATE);
    let backup = world.background();
    world.load(backup, Op::Read, MIB as u32, 4);
    let one = world.guest(&Objective::default());
    begin(&mut world, one, 100_000, 10_000);
    world.run(10 * SECOND);
    assert_eq!(world.driver.engine.transfers().export_bandwidths(), None);
}

#[test]
fn who_is_hardly_served_does_not_count_as_one_more() {
    // Real time has everything, best effort next to nothing: together they teach what one does.
    let mut world = world("cfq", &[]);
    let urgent = Objective {
        priority: tidegate_core::objective::Priority::RealTime,
        ..Objective::default()
    };
    let one = writer(&mut world, &urgent);
    writer(&mut world, &Objective::default());
    begin(&mut world, one, 100_000, 10_000);
    world.run(10 * SECOND);
    let kept = world
        .driver
        .engine
        .transfers()
        .export_bandwidths()
        .expect("it was busy");
    assert!(capacity(&world, 1).abs_diff(RATE) < MIB);
    let mut fields = kept.fields("bandwidths", 1).expect("its own");
    assert_eq!(
        (fields.u64(), fields.u64()),
        (Ok(1), Ok(1)),
        "one user alone"
    );
}

#[test]
fn what_is_given_is_not_learnt() {
    let given = [("max_bandwidth", 54 * MIB), ("bandwidth_loss", 17 * MIB)];
    let mut world = world("pridyn", &given);
    assert_eq!(capacity(&world, 2), 37 * MIB, "before there is a job");
    let [one, two] = writers(&mut world);
    begin(&mut world, one, 1_000, 1_000);
    begin(&mut world, two, 1_000, 1_000);
    world.run(10 * SECOND);
    assert_eq!(
        [1, 2, 5].map(|n| capacity(&world, n)),
        [54 * MIB, 37 * MIB, 37 * MIB]
    );
    // Another policy begins with what was seen meanwhile.
    world.swap("fifo");
    assert!(capacity(&world, 2).abs_diff(RATE) < MIB);
}

#[test]
fn the_next_transfer_of_a_stream_begins_with_what_its_vm_had_if_told_so() {
    for carry in [0, 1] {
        let mut world = world("pridyn", &[("carry", carry)]);
        let [one, _] = writers(&mut world);
        begin(&mut world, one, 100_000, 10_000);
        world.run(4 * SECOND);
        let had = status(&world, one).bandwidth;
        assert!(had.is_some());
        let next = begin(&mut world, one, 100_000, 10_000);
        assert_eq!(next.bandwidth, had.filter(|_| carry == 1));
    }
}
