//! Tests of the tuner by windows: each VM with a target reaches it by merge limit and throttle,
//! regardless of other VMs.

use crate::common::tuned::{MB, WINDOW, disk, flash, precise, seconds, spec, tuning, world};
use crate::common::{KIB, MS, SECOND, World, config, limited, total, weighted, within};
use tidegate_core::learnt_state::{Blob, BlobError};
use tidegate_core::objective::{Objective, OpsRate, Rate};
use tidegate_core::precision;
use tidegate_core::request::{DeviceIo, Op, Request};
use tidegate_core::tuning::{BandwidthRange, Throttle, Tuning};
use tidegate_policies::policy::PolicySpec;

/// Returns a composition with parameters, tuned by windows.
fn windowed(name: &str, params: &[(&str, u64)]) -> PolicySpec {
    spec(name, &[params, &[WINDOW]].concat())
}

/// Parameters in which the paper differs from the defaults.
const PAPER: &[(&str, u64)] = &[("profiling", 1), ("headroom", 0)];

#[test]
fn a_bandwidth_between_two_merge_limits_is_held() {
    for params in [&[][..], PAPER] {
        let mut world = world(&windowed("tuner+merge-limit+fifo", params), disk);
        let guest = world.guest(&precise(Rate::bytes(30 * MB)));
        world.load(guest, Op::Read, 128 * KIB, 8);
        world.run(120 * SECOND);
        let seconds = seconds(&world, guest, 60);
        let beta = precision::absolute_error(&seconds, 30 * MB, 30).expect("two intervals");
        let v = precision::variability(&seconds).expect("it moved");
        assert!(beta < 10_000, "{beta} with {params:?}");
        assert!(v < 60_000, "{v} with {params:?}");
        assert_eq!(tuning(&world, guest).inadequate, None);
    }
}

#[test]
fn profiling_tells_the_range_and_where_tuning_begins() {
    let mut world = world(&windowed("tuner+merge-limit+fifo", PAPER), disk);
    let guest = world.guest(&precise(Rate::bytes(30 * MB)));
    // Nothing to profile with.
    world.run(20 * SECOND);
    assert_eq!(tuning(&world, guest).profiling, Some((0, 11)));
    world.load(guest, Op::Read, 128 * KIB, 8);
    world.run(5 * SECOND + 100 * MS);
    let now = tuning(&world, guest);
    assert_eq!(
        (now.profiling, now.merge_limit),
        (Some((5, 11)), Some(6 * 4096))
    );
    assert_eq!((now.throttle, now.range), (Throttle::Off, None));
    world.run(6 * SECOND);
    let now = tuning(&world, guest);
    let BandwidthRange {
        lowest,
        highest,
        merge_limit,
    } = now.range.expect("all were profiled");
    assert!(lowest.abs_diff(17 * MB) < MB, "{lowest}");
    // Parts of 128 KiB at eleven pages are 11, 11 and 10 pages long.
    assert!(highest.abs_diff(68 * MB) < MB, "{highest}");
    assert_eq!(merge_limit, 11 * 4096);
    // One page gives 17 MB/s, two 29.1 and three 38.
    assert_eq!((now.profiling, now.merge_limit), (None, Some(2 * 4096)));
}

#[test]
fn below_one_page_the_delay_slice_holds_it_from_the_first_second() {
    for policy in ["vcup", "vcup-mclock", "vcup-drr"] {
        let mut world = world(&windowed(policy, &[]), flash);
        let guest = world.guest(&precise(Rate::bytes(30 * MB)));
        world.load(guest, Op::Read, 128 * KIB, 8);
        world.run(32 * SECOND);
        let seconds = seconds(&world, guest, 32);
        let off = seconds.iter().map(|s| s.abs_diff(30 * MB)).max();
        assert!(off <= Some(2 * 4096), "{off:?} under {policy}");
        let now = tuning(&world, guest);
        assert_eq!(now.throttle, Throttle::Exactly(30 * MB));
        // The first window is good enough.
        assert_eq!((now.settled, now.window.0), (true, 1024 * MS));
    }
}

#[test]
fn a_stall_of_the_driver_is_made_good_and_no_burst() {
    let mut world = world(&windowed("vcup-drr", &[]), flash);
    let guest = world.guest(&precise(Rate::bytes(30 * MB)));
    world.load(guest, Op::Write, 64 * KIB, 8);
    world.run(10 * SECOND + 300 * MS);
    world.stall(2 * SECOND);
    let back = world.now();
    world.run(40 * SECOND);
    let bytes = world.bytes(guest);
    let most = (0..200).map(|n| within(&bytes, back + n * 100 * MS, back + (n + 1) * 100 * MS));
    let most = most.max().expect("some");
    // A tenth more than the rate, and 1 % for slots that come late.
    assert!(most <= 3_300_000 * 101 / 100, "{most} in 100 ms");
    let due = world.now() as u128 * 30 * u128::from(MB) / u128::from(SECOND);
    let off = (u128::from(total(&bytes))).abs_diff(due);
    assert!(off < 3 * 4096, "{off} off in all");
}

#[test]
fn two_precise_vms_know_nothing_of_each_other_and_others_are_not_touched() {
    for name in ["vcup-mclock", "vcup-drr", "tuner+merge-limit+sfq"] {
        let mut world = world(&windowed(name, &[]), disk);
        let small = world.guest(&precise(Rate::bytes(3 * MB)));
        let large = world.guest(&precise(Rate::bytes(12 * MB)));
        let free = world.guest(&Objective::default());
        for (guest, len) in [(small, 64), (large, 128), (free, 128)] {
            world.load(guest, Op::Read, len * KIB, 8);
        }
        world.run(120 * SECOND);
        for (guest, target) in [(small, 3 * MB), (large, 12 * MB)] {
            let seconds = seconds(&world, guest, 60);
            let beta = precision::absolute_error(&seconds, target, 30).expect("two intervals");
            assert!(beta < 50_000, "{beta} of {target} under {name}");
        }
        assert_eq!(world.driver.engine.vms().tuning(free.vm), None);
        assert!(world.bytes(free).iter().all(|&(_, len)| len == 128 << 10));
    }
}

#[test]
fn what_cannot_be_had_is_said_with_what_can_and_taken_back() {
    let mut world = world(&windowed("vcup-drr", PAPER), disk);
    let guest = world.guest(&precise(Rate::bytes(100 * MB)));
    world.load(guest, Op::Read, 128 * KIB, 8);
    world.run(60 * SECOND);
    let short = tuning(&world, guest)
        .inadequate
        .expect("68 MB/s is all there is");
    assert!(short.bytes_per_s.abs_diff(68 * MB) < 2 * MB, "{short:?}");
    assert!(short.since.0 < 16 * SECOND, "{short:?}");
    // Nothing was revised for it.
    assert_eq!(tuning(&world, guest).aim, Some(100 * MB));
    assert_eq!(tuning(&world, guest).merge_limit, Some(11 * 4096));
    world.set(guest, &precise(Rate::bytes(40 * MB)));
    world.run(10 * SECOND);
    assert_eq!(tuning(&world, guest).inadequate, None);
}

#[test]
fn who_asks_for_less_than_its_target_changes_and_reports_nothing() {
    for flushes in [false, true] {
        let mut world = world(&windowed("vcup-drr", &[]), disk);
        let guest = world.guest(&precise(Rate::bytes(3 * MB)));
        // A request of 4 KiB every 20 ms or so, 0.2 MB/s; it may be a flush that ends the quiet
        // time.
        let before = tuning(&world, guest);
        for _ in 0..500 {
            let flush = Request::flush(u64::MAX);
            if flushes {
                let taken = world.driver.request(guest.client, flush);
                taken.expect("there is room");
            }
            world.load(guest, Op::Write, 4 * KIB, 1);
            world.run(100_000);
            world.unload(guest);
            world.run(20 * MS);
        }
        assert_eq!(tuning(&world, guest), before, "with flushes: {flushes}");
        // Without anything inside there is nothing to wake for.
        world.run(2 * SECOND);
        assert_eq!(world.driver.engine.next_timeout(), None);
    }
}

#[test]
fn an_objective_that_changes_is_reached_within_ten_seconds() {
    let mut world = world(&windowed("vcup-drr", PAPER), disk);
    let guest = world.guest(&precise(Rate::bytes(20 * MB)));
    world.load(guest, Op::Read, 128 * KIB, 8);
    world.run(40 * SECOND);
    for target in [50 * MB, 10 * MB, 35 * MB] {
        world.set(guest, &precise(Rate::bytes(target)));
        world.run(15 * SECOND);
        let seconds = seconds(&world, guest, 5);
        let error = precision::error(&seconds, target).expect("it moved");
        assert!(error.unsigned_abs() < 50_000, "{error} at {target}");
    }
    // No target: nothing is left of the tuner.
    world.set(guest, &weighted(100));
    assert_eq!(world.driver.engine.vms().tuning(guest.vm), None);
    let from = world.driver.log.len() + 64;
    world.run(SECOND);
    assert!(
        world.driver.log[from..]
            .iter()
            .all(|start| start.io.len == 128 << 10)
    );
}

#[test]
fn bandwidth_and_iops_are_held_together_by_size_and_rate() {
    // Section 5.6: 10 MB/s in 466 I/Os of 21.4 KB, 15 in 550, 30 in 211 of 142 KB, for which parts
    // of 128 pages have to be longer than 42.
    for (bytes, per_s, max_ml) in [(10, 466, 11), (15, 550, 11), (30, 211, 64)] {
        let target = Rate {
            ops: Some(OpsRate { per_s, norm: None }),
            bytes_per_s: Some(bytes * MB),
        };
        let mut world = world(&windowed("vcup-drr", &[("max_ml", max_ml)]), flash);
        let guest = world.guest(&precise(target));
        world.load(guest, Op::Read, 512 * KIB, 4);
        world.run(90 * SECOND);
        let seconds = seconds(&world, guest, 60);
        let beta = precision::absolute_error(&seconds, bytes * MB, 30).expect("two intervals");
        assert!(beta <= 10_000, "{beta} at {bytes} MB/s");
        let from = world.now() - 60 * SECOND;
        let ios = world
            .bytes(guest)
            .iter()
            .filter(|start| start.0 >= from)
            .count() as u64;
        assert!(
            ios.abs_diff(60 * per_s) <= 60 * per_s / 200,
            "{ios} for {per_s}"
        );
    }
}

#[test]
fn iops_alone_leave_merge_limits_as_they_are() {
    let mut world = world(&windowed("vcup-mclock", &[]), flash);
    let guest = world.guest(&precise(Rate::iops(300)));
    world.load(guest, Op::Read, 128 * KIB, 4);
    world.run(20 * SECOND);
    let bytes = world.bytes(guest);
    assert!(bytes.iter().all(|&(_, len)| len == 128 << 10));
    assert!(bytes.len().abs_diff(6000) <= 12, "{}", bytes.len());
    assert_eq!(tuning(&world, guest).aim, None);
}

#[test]
fn a_limit_of_a_vm_without_a_target_holds() {
    for name in ["vcup", "vcup-mclock", "vcup-drr"] {
        let mut world = world(&windowed(name, &[]), flash);
        let guest = world.guest(&limited(Rate::bytes(20 * MB)));
        world.load(guest, Op::Read, 64 * KIB, 4);
        world.run(10 * SECOND);
        crate::common::assert_below(&world.bytes(guest), 20 * MB, 64 << 10);
        let sum = total(&world.bytes(guest));
        assert!(sum.abs_diff(200 * MB) <= 65536, "{sum} under {name}");
    }
}

#[test]
fn what_was_learnt_is_taken_over_by_another_engine() {
    let mut here = world(&windowed("vcup-drr", PAPER), disk);
    let guest = here.guest(&precise(Rate::bytes(30 * MB)));
    assert_eq!(
        here.driver.engine.vms().export_learnt(guest.vm),
        Ok(None),
        "nothing was learnt yet"
    );
    here.load(guest, Op::Read, 128 * KIB, 8);
    here.run(200 * SECOND);
    let learnt = here
        .driver
        .engine
        .vms()
        .export_learnt(guest.vm)
        .expect("it is there");
    let learnt = learnt.expect("it was profiled");
    let there = |target: u64, max_ml| {
        let policy = windowed("vcup-drr", &[PAPER, &[("max_ml", max_ml)]].concat());
        let mut there = world(&policy, disk);
        let guest = there.guest(&precise(Rate::bytes(target)));
        let now = there.time();
        let refused = there
            .driver
            .engine
            .vms_mut()
            .import_learnt(now, [(guest.vm, &learnt)]);
        assert_eq!(refused, []);
        (there, guest)
    };
    let (mut same, moved) = there(30 * MB, 11);
    let (was, is) = (tuning(&here, guest), tuning(&same, moved));
    assert_eq!(
        Tuning {
            precision: None,
            ..was
        },
        is
    );
    assert_eq!(is.profiling, None, "the VM moved, not its disk");
    same.load(moved, Op::Read, 128 * KIB, 8);
    same.run(5 * SECOND);
    let error = precision::error(&seconds(&same, moved, 5), 30 * MB).expect("it moved");
    assert!(
        error.unsigned_abs() < 100_000,
        "{error} from the first second on"
    );
    // Another target, and fewer merge limits: windows and bandwidths are still what they are.
    let (other, moved) = there(18 * MB, 2);
    let is = tuning(&other, moved);
    assert_eq!((is.window, is.aim), (was.window, Some(18 * MB)));
    assert_eq!(is.range.map(|range| range.merge_limit), Some(2 * 4096));
    assert_eq!(is.merge_limit, Some(4096));
}

#[test]
fn what_was_learnt_of_another_disk_is_measured_anew_and_the_rest_is_taken_over() {
    let mut here = world(&windowed("vcup-drr", PAPER), disk);
    let guest = here.guest(&precise(Rate::bytes(30 * MB)));
    here.load(guest, Op::Read, 128 * KIB, 8);
    here.run(200 * SECOND);
    let learnt = here
        .driver
        .engine
        .vms()
        .export_learnt(guest.vm)
        .expect("it is there");
    let learnt = learnt.expect("it was profiled");
    let was = tuning(&here, guest);
    // A disk of which one page comes to three times as much.
    let faster = |io: &DeviceIo| 60_000 + u64::from(io.len) * 4;
    let mut there = world(&windowed("vcup-drr", PAPER), faster);
    let moved = there.guest(&precise(Rate::bytes(30 * MB)));
    let now = there.time();
    let refused = there
        .driver
        .engine
        .vms_mut()
        .import_moved(now, [(moved.vm, &learnt)]);
    assert_eq!(refused, []);
    let is = tuning(&there, moved);
    assert_eq!(
        (is.window, is.settled, is.aim),
        (was.window, was.settled, was.aim)
    );
    assert_eq!((is.range, is.profiling), (None, Some((0, 11))));
    there.load(moved, Op::Read, 128 * KIB, 8);
    there.run(12 * SECOND);
    let range = tuning(&there, moved).range.expect("it was profiled again");
    assert!(range.lowest > 45 * MB, "{range:?}");
    // Where no bandwidths are measured none are kept of another disk either.
    let mut plain = world(&windowed("vcup-drr", &[]), faster);
    let plainly = plain.guest(&precise(Rate::bytes(30 * MB)));
    let now = plain.time();
    let refused = plain
        .driver
        .engine
        .vms_mut()
        .import_moved(now, [(plainly.vm, &learnt)]);
    assert_eq!(refused, []);
    let is = tuning(&plain, plainly);
    assert_eq!(
        (is.range, is.profiling, is.window),
        (None, None, was.window)
    );
}

#[test]
fn what_no_tuner_learnt_is_refused_and_changes_nothing() {
    let mut world = world(&windowed("vcup-drr", PAPER), disk);
    let guest = world.guest(&precise(Rate::bytes(30 * MB)));
    let free = world.guest(&Objective::default());
    world.load(guest, Op::Read, 128 * KIB, 8);
    world.run(100 * SECOND);
    let good = world
        .driver
        .engine
        .vms()
        .export_learnt(guest.vm)
        .expect("there")
        .expect("learnt");
    let before = tuning(&world, guest);
    let mut refused = |vm, blob: &Blob| {
        let now = world.time();
        let refused = world
            .driver
            .engine
            .vms_mut()
            .import_learnt(now, [(vm, blob)]);
        refused.into_iter().map(|(_, error)| error).next()
    };
    assert!(matches!(
        refused(free.vm, &good),
        Some(BlobError::Unwanted(_))
    ));
    let bytes = good.as_bytes();
    for length in 0..bytes.len() {
        let cut = Blob::from_bytes(bytes[..length].to_vec());
        assert!(refused(guest.vm, &cut).is_some(), "{length} bytes");
    }
    // Each field at its largest: whatever is taken is in range.
    let header = Blob::new("tuner", 1).as_bytes().len();
    for field in (header..bytes.len()).step_by(8) {
        let mut wild = bytes.to_vec();
        wild[field..field + 8].fill(0xFF);
        if refused(guest.vm, &Blob::from_bytes(wild)).is_none() {
            assert_eq!(refused(guest.vm, &good), None);
        }
    }
    // Behind the three fields of the target and the window: its shortest and its longest length.
    let (shortest, longest) = (header + 4 * 8, header + 5 * 8);
    let mut crossed = bytes.to_vec();
    let (before_longest, from_longest) = crossed.split_at_mut(longest);
    before_longest[shortest..].swap_with_slice(&mut from_longest[..8]);
    assert_ne!(crossed, bytes, "the search has not ended at one length");
    assert!(
        matches!(
            refused(guest.vm, &Blob::from_bytes(crossed)),
            Some(BlobError::Value { .. })
        ),
        "the shortest window is above the longest"
    );
    assert_eq!(refused(guest.vm, &good), None);
    let after = tuning(&world, guest);
    assert_eq!(
        Tuning {
            precision: None,
            ..before
        },
        after
    );
    world.run(10 * SECOND);
}

#[test]
fn the_way_to_a_target_does_not_move_the_aim() {
    // From one page to nine, a window of a second each: too little for most of ten seconds.
    let interval = ("statistical_interval", 10 * SECOND);
    let mut world = world(&windowed("vcup-drr", &[interval]), disk);
    let guest = world.guest(&precise(Rate::bytes(60 * MB)));
    world.load(guest, Op::Read, 128 * KIB, 8);
    world.run(12 * SECOND);
    let now = tuning(&world, guest);
    let (error, _) = now.precision.expect("an interval has ended");
    assert!(error < -50_000, "{error}");
    assert_eq!(now.aim, Some(60 * MB));
}

/// Regression test of torture seed 45: a knob that was set while a policy took over let units in
/// twice.
#[test]
fn a_policy_with_a_tuner_and_credits_takes_over_what_waits() {
    let mut world = World::with_config(config(1, 0), "vbc+fifo", MS);
    let guest = world.guest(&precise(Rate::bytes(30 * MB)));
    world.load(guest, Op::Read, 8 * KIB, 40);
    world.swap("tuner+vbc+fifo");
    world.run(SECOND);
    assert!(world.driver.log.len() > 900);
    world.swap("vcup");
    world.run(SECOND);
    assert!(world.driver.log.len() > 1800);
}

#[test]
fn the_same_world_is_tuned_alike_twice() {
    let run = || {
        let mut world = world(&windowed("vcup", PAPER), disk);
        let guests = [5, 9].map(|target| world.guest(&precise(Rate::bytes(target * MB))));
        for guest in guests {
            world.load(guest, Op::Write, 96 * KIB, 4);
        }
        world.run(60 * SECOND);
        guests.map(|guest| (world.bytes(guest), tuning(&world, guest)))
    };
    assert_eq!(run(), run());
}
