//! Tests of the paced tuner: the throttle holds a target at all times, and the merge limit is only
//! as large as the target needs.

use crate::common::tuned::{MB, PACED, WINDOW, disk, flash, precise, seconds, spec, tuning, world};
use crate::common::{Guest, KIB, MS, SECOND, World, total, weighted, within};
use proptest::prelude::*;
use tidegate_core::learnt_state::{Blob, BlobError};
use tidegate_core::objective::{Objective, OpsRate, Rate};
use tidegate_core::precision;
use tidegate_core::request::{DeviceIo, Op};
use tidegate_core::tuning::{Throttle, Tuning};
use tidegate_policies::policy::PolicySpec;

fn paced(name: &str) -> PolicySpec {
    spec(name, &[])
}

/// Returns a policy whose I/Os start smaller: 11 pages at 3 MB/s.
fn fine(tuner: (&str, u64)) -> PolicySpec {
    spec("vcup-drr", &[tuner, ("grain", 16 * MS)])
}

/// Returns the time of an I/O at 15 MB/s for one page and 70 MB/s for more; for a target of 30 MB/s
/// V-Cup alternates between the two.
fn steps(io: &DeviceIo) -> u64 {
    u64::from(io.len) * 1000 / if io.len <= 4096 { 15 } else { 70 }
}

/// Returns the time of an I/O with a seek: 20 ms and 100 MB/s.
fn seeks(io: &DeviceIo) -> u64 {
    20 * MS + u64::from(io.len) * 10
}

fn variability(world: &World, guest: Guest, count: u64) -> u64 {
    precision::variability(&seconds(world, guest, count)).expect("it moved")
}

#[test]
fn every_second_is_the_targets_from_the_first_on() {
    for name in ["vcup", "vcup-mclock", "vcup-drr", "tuner+merge-limit+sfq"] {
        for target in [1, 3, 15, 30, 60] {
            let mut world = world(&paced(name), disk);
            let guest = world.guest(&precise(Rate::bytes(target * MB)));
            world.load(guest, Op::Read, 128 * KIB, 8);
            world.run(30 * SECOND);
            let largest = world.bytes(guest).iter().map(|io| io.1).max();
            let off = seconds(&world, guest, 30);
            let off = off.iter().map(|s| s.abs_diff(target * MB)).max();
            assert!(off <= largest, "{off:?} of {target} MB/s under {name}");
            // 50 ms of the target's, or a request as it is.
            assert!(largest <= Some((50_000 * target).min(128 << 10)));
            let v = variability(&world, guest, 30);
            assert!(v <= 25_000, "{v} at {target} MB/s under {name}");
        }
    }
}

/// Time in nanoseconds that a device takes for an I/O.
type Takes = fn(&DeviceIo) -> u64;

/// Returns each second's error, in millionths, and V over the second half of a minute.
fn minute(tuner: (&str, u64), target: u64, takes: Takes) -> (Vec<u64>, u64) {
    let mut world = world(&spec("vcup-drr", &[tuner]), takes);
    let guest = world.guest(&precise(Rate::bytes(target)));
    world.load(guest, Op::Read, 128 * KIB, 8);
    world.run(60 * SECOND);
    let errors = seconds(&world, guest, 60);
    let errors = errors.iter().map(|&s| {
        let error = precision::error(&[s], target).expect("there is a target");
        error.unsigned_abs()
    });
    (errors.collect(), variability(&world, guest, 30))
}

#[test]
fn it_is_there_sooner_than_windows_of_merge_limits_and_smoother() {
    let worlds = [(steps as Takes, 30), (disk, 30), (disk, 60)];
    for (takes, target) in worlds {
        let [by_pace, by_window] = [PACED, WINDOW].map(|tuner| minute(tuner, target * MB, takes));
        // A limit that comes close to the target is as steady as the device; and off by as much as
        // that.
        assert!(
            by_pace.1 <= by_window.1.max(1_000),
            "{target}: {by_pace:?}, {by_window:?}"
        );
        let off = |(errors, _): &(Vec<u64>, u64)| errors.iter().sum::<u64>();
        assert!(
            off(&by_pace) < off(&by_window),
            "{target}: {by_pace:?}, {by_window:?}"
        );
        let far = |errors: &[u64]| errors.iter().rposition(|&error| error > 50_000);
        assert_eq!(far(&by_pace.0), None, "{target}");
    }
    // Between two limits a window is off by more than that, now and then.
    let (errors, v) = minute(WINDOW, 30 * MB, steps);
    assert!(
        v > 50_000 && errors.iter().any(|&error| error > 50_000),
        "{v}"
    );
}

#[test]
fn a_merge_limit_that_is_too_small_doubles_until_it_is_enough() {
    let mut world = world(&fine(PACED), seeks);
    // Eleven pages are 16 ms of it, and come to 2.2 MB/s; twice as many to 3.2.
    let guest = world.guest(&precise(Rate::bytes(3 * MB)));
    world.load(guest, Op::Read, 128 * KIB, 8);
    assert_eq!(tuning(&world, guest).merge_limit, Some(11 * 4096));
    world.run(10 * SECOND);
    assert_eq!(tuning(&world, guest).merge_limit, Some(22 * 4096));
    world.run(50 * SECOND);
    let seconds = seconds(&world, guest, 30);
    let beta = precision::absolute_error(&seconds, 3 * MB, 30).expect("an interval");
    assert!(beta < 20_000, "{beta}");
    assert_eq!(tuning(&world, guest).inadequate, None);
}

#[test]
fn what_cannot_be_had_is_said_and_another_target_held_at_once() {
    let mut world = world(&paced("vcup-drr"), disk);
    let guest = world.guest(&precise(Rate::bytes(100 * MB)));
    world.load(guest, Op::Read, 128 * KIB, 8);
    world.run(20 * SECOND);
    let short = tuning(&world, guest)
        .inadequate
        .expect("87 MB/s is all there is");
    assert!(short.bytes_per_s.abs_diff(86_800_000) < 2 * MB, "{short:?}");
    assert!(short.since.0 < 6 * SECOND, "{short:?}");
    assert_eq!(tuning(&world, guest).aim, Some(100 * MB));
    world.set(guest, &precise(Rate::bytes(40 * MB)));
    world.run(5 * SECOND);
    assert_eq!(tuning(&world, guest).inadequate, None);
    // Backlog of the other target is not made good at this one.
    for second in seconds(&world, guest, 4) {
        assert!(second.abs_diff(40 * MB) <= 128 << 10, "{second}");
    }
}

#[test]
fn a_device_that_does_enough_again_is_believed() {
    let mut world = world(&paced("vcup-drr"), seeks);
    let guest = world.guest(&precise(Rate::bytes(20 * MB)));
    world.load(guest, Op::Read, 128 * KIB, 8);
    world.run(10 * SECOND);
    assert!(tuning(&world, guest).inadequate.is_some());
    world.device.takes = Some(disk);
    world.run(5 * SECOND);
    assert_eq!(tuning(&world, guest).inadequate, None);
}

#[test]
fn a_target_that_changes_is_held_from_the_next_second_on() {
    let mut world = world(&paced("vcup-drr"), disk);
    let guest = world.guest(&precise(Rate::bytes(20 * MB)));
    world.load(guest, Op::Read, 128 * KIB, 8);
    world.run(10 * SECOND);
    for target in [50 * MB, 10 * MB, 35 * MB, 5 * MB] {
        world.set(guest, &precise(Rate::bytes(target)));
        world.run(5 * SECOND);
        let seconds = seconds(&world, guest, 5);
        // The last I/O still takes its time at the old rate.
        assert!(
            seconds[0].abs_diff(target) <= (target / 50).max(128 << 10),
            "{seconds:?} at {target}"
        );
        let off = seconds[1..].iter().map(|s| s.abs_diff(target)).max();
        assert!(off <= Some(128 << 10), "{seconds:?} at {target}");
    }
    // Without a target nothing of the tuner remains.
    world.set(guest, &weighted(100));
    assert_eq!(world.driver.engine.vms().tuning(guest.vm), None);
    let from = world.driver.log.len() + 64;
    world.run(SECOND);
    let whole = |start: &crate::common::Start| start.io.len == 128 << 10;
    assert!(world.driver.log[from..].iter().all(whole) && world.driver.log.len() > from + 600);
}

#[test]
fn a_stall_is_repaid_at_a_tenth_more_and_no_burst() {
    let mut world = world(&paced("vcup-drr"), flash);
    let guest = world.guest(&precise(Rate::bytes(30 * MB)));
    world.load(guest, Op::Write, 64 * KIB, 8);
    world.run(10 * SECOND + 300 * MS);
    world.stall(2 * SECOND);
    let back = world.now();
    world.run(40 * SECOND);
    let bytes = world.bytes(guest);
    let most = (0..200).map(|n| within(&bytes, back + n * 100 * MS, back + (n + 1) * 100 * MS));
    let most = most.max().expect("some");
    assert!(most <= 3_300_000 * 101 / 100 + 65_536, "{most} in 100 ms");
    let due = world.now() as u128 * 30 * u128::from(MB) / u128::from(SECOND);
    let off = u128::from(total(&bytes)).abs_diff(due);
    assert!(off < 3 * 65_536, "{off} off in all");
    assert_eq!(tuning(&world, guest).inadequate, None);
}

#[test]
fn others_turns_cost_it_nothing() {
    for name in [
        "vcup-drr",
        "vcup-mclock",
        "tuner+merge-limit+sfq",
        "tuner+merge-limit+fifo",
    ] {
        let mut world = world(&paced(name), disk);
        let guest = world.guest(&precise(Rate::bytes(10 * MB)));
        world.load(guest, Op::Read, 64 * KIB, 8);
        for _ in 0..2 {
            let other = world.guest(&Objective::default());
            world.load(other, Op::Read, 128 * KIB, 4);
        }
        world.run(40 * SECOND);
        let bins = seconds(&world, guest, 37);
        let beta = precision::absolute_error(&bins, 10 * MB, 10).expect("intervals");
        assert!(beta < 10_000, "{beta} under {name}: {bins:?}");
        let v = variability(&world, guest, 30);
        assert!(v < 20_000, "{v} under {name}: {bins:?}");
    }
}

#[test]
fn bandwidth_and_iops_are_held_together() {
    for (bytes, per_s) in [(10, 466), (15, 550), (30, 211), (2, 400)] {
        let target = Rate {
            ops: Some(OpsRate { per_s, norm: None }),
            bytes_per_s: Some(bytes * MB),
        };
        let mut world = world(&paced("vcup-drr"), flash);
        let guest = world.guest(&precise(target));
        world.load(guest, Op::Read, 512 * KIB, 4);
        world.run(70 * SECOND);
        let bins = seconds(&world, guest, 60);
        let beta = precision::absolute_error(&bins, bytes * MB, 30).expect("two intervals");
        assert!(beta <= 10_000, "{beta} at {bytes} MB/s");
        let v = variability(&world, guest, 60);
        assert!(v <= 50_000, "{v} at {bytes} MB/s");
        let from = world.now() - 60 * SECOND;
        let ios = world.bytes(guest);
        let ios = ios.iter().filter(|start| start.0 >= from).count() as u64;
        assert!(ios.abs_diff(60 * per_s) <= 1, "{ios} for {per_s}");
        let now = tuning(&world, guest);
        assert_eq!(
            (now.throttle, now.inadequate),
            (Throttle::Ios(per_s * 1000), None)
        );
    }
}

#[test]
fn iops_that_cannot_be_had_are_said() {
    let mut world = world(&paced("vcup-drr"), seeks);
    let guest = world.guest(&precise(Rate::iops(300)));
    world.load(guest, Op::Read, 4 * KIB, 8);
    world.run(10 * SECOND);
    let short = tuning(&world, guest)
        .inadequate
        .expect("50 IOPS are all there is");
    assert!(short.ios_per_s.abs_diff(50_000) < 3_000, "{short:?}");
    assert_eq!(tuning(&world, guest).merge_limit, None);
}

#[test]
fn a_target_below_a_page_a_second_is_held() {
    let mut world = world(&paced("vcup-drr"), flash);
    let guest = world.guest(&precise(Rate::bytes(1000)));
    world.load(guest, Op::Read, 16 * KIB, 2);
    world.run(600 * SECOND);
    let sum = total(&world.bytes(guest));
    assert!(sum.abs_diff(600_000) <= 4096, "{sum}");
    let now = tuning(&world, guest);
    assert_eq!((now.inadequate, now.merge_limit), (None, Some(4096)));
}

#[test]
fn who_asks_now_and_then_changes_and_reports_nothing() {
    // A tenth of a second at full speed and a tenth of nothing; or less than the target all the
    // time.
    for (busy, len, depth) in [(100 * MS, 128 * KIB, 8), (100_000, 4 * KIB, 1)] {
        let mut world = world(&paced("vcup-drr"), disk);
        let guest = world.guest(&precise(Rate::bytes(30 * MB)));
        let before = tuning(&world, guest);
        world.load(guest, Op::Write, len, depth);
        for _ in 0..200 {
            world.run(busy);
            world.pause(guest, 100 * MS);
        }
        let after = tuning(&world, guest);
        assert_eq!(
            Tuning {
                precision: None,
                ..after
            },
            before,
            "of {len}"
        );
        // Without anything inside there is nothing to wake for.
        world.unload(guest);
        world.run(2 * SECOND);
        assert_eq!(world.driver.engine.next_timeout(), None);
    }
}

#[test]
fn what_was_learnt_is_taken_over_and_what_another_learnt_is_not() {
    let mut here = world(&fine(PACED), seeks);
    let guest = here.guest(&precise(Rate::bytes(3 * MB)));
    assert_eq!(here.driver.engine.vms().export_learnt(guest.vm), Ok(None));
    here.load(guest, Op::Read, 128 * KIB, 8);
    here.run(40 * SECOND);
    let learnt = here.driver.engine.vms().export_learnt(guest.vm);
    let learnt = learnt.expect("it is there");
    let learnt = learnt.expect("an interval has ended");
    let import = |world: &mut World, guest: Guest, blob: &Blob| {
        let now = world.time();
        let refused = world
            .driver
            .engine
            .vms_mut()
            .import_learnt(now, [(guest.vm, blob)]);
        refused.into_iter().map(|(_, error)| error).next()
    };
    let there = |target: u64, tuner| {
        let mut there = world(&fine(tuner), seeks);
        let guest = there.guest(&precise(Rate::bytes(target)));
        (there, guest)
    };
    let (mut same, moved) = there(3 * MB, PACED);
    assert_eq!(import(&mut same, moved, &learnt), None);
    let was = tuning(&here, guest);
    assert_eq!(
        Tuning {
            precision: None,
            ..was
        },
        tuning(&same, moved)
    );
    assert_eq!(was.merge_limit, Some(22 * 4096));
    // Another target needs another merge limit.
    let (mut other, moved) = there(6 * MB, PACED);
    let before = tuning(&other, moved);
    assert_eq!(import(&mut other, moved, &learnt), None);
    assert_eq!(tuning(&other, moved), before);
    // Another kind of tuner learns other things.
    let (mut other, moved) = there(3 * MB, WINDOW);
    assert!(matches!(
        import(&mut other, moved, &learnt),
        Some(BlobError::Part { .. })
    ));
    // Cut short, or wild: refused, or within bounds.
    let bytes = learnt.as_bytes();
    for length in 0..bytes.len() {
        let cut = Blob::from_bytes(bytes[..length].to_vec());
        assert!(import(&mut same, guest, &cut).is_some(), "{length} bytes");
    }
    let header = Blob::new("tuner-paced", 1).as_bytes().len();
    for field in (header..bytes.len()).step_by(8) {
        let mut wild = bytes.to_vec();
        wild[field..field + 8].fill(0xFF);
        import(&mut same, guest, &Blob::from_bytes(wild));
    }
    assert_eq!(import(&mut same, guest, &learnt), None);
    same.load(guest, Op::Read, 128 * KIB, 8);
    same.run(5 * SECOND);
    let error = precision::error(&seconds(&same, guest, 5), 3 * MB).expect("it moved");
    assert!(
        error.unsigned_abs() < 30_000,
        "{error} from the first second on"
    );
}

#[test]
fn the_same_world_is_tuned_alike_twice() {
    let run = || {
        let mut world = world(&paced("vcup"), seeks);
        let guests = [1, 2].map(|target| world.guest(&precise(Rate::bytes(target * MB))));
        for guest in guests {
            world.load(guest, Op::Write, 96 * KIB, 4);
        }
        world.run(60 * SECOND);
        guests.map(|guest| (world.bytes(guest), tuning(&world, guest)))
    };
    assert_eq!(run(), run());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Checks that a VM never has more than its target's amount and an I/O, for any requests, any
    /// other VMs and any pauses of the driver, and that one that always asks gets all of it in the
    /// end.
    #[test]
    fn it_never_has_more_than_its_target_and_all_of_it_in_the_end(
        target in 200_000u64..20_000_000,
        len in 1u32..256,
        depth in 1u32..16,
        others in 0u32..3,
        stalls in prop::collection::vec(0u64..500, 1..4),
    ) {
        let mut world = world(&paced("vcup-drr"), disk);
        let guest = world.guest(&precise(Rate::bytes(target)));
        world.load(guest, Op::Read, len * 1024, depth);
        for _ in 0..others {
            let other = world.guest(&Objective::default());
            world.load(other, Op::Read, 16 * KIB, 2);
        }
        for stall in &stalls {
            world.run(SECOND);
            world.stall(stall * MS);
        }
        // Twelve times as long as the stalls: enough to repay them at a tenth more.
        world.run(12 * stalls.iter().sum::<u64>() * MS + 4 * SECOND);
        let (mut so_far, mut largest) = (0u128, 0);
        for (at, len) in world.bytes(guest) {
            so_far += u128::from(len);
            largest = largest.max(u128::from(len));
            let due = u128::from(target) * u128::from(at) / u128::from(SECOND);
            prop_assert!(so_far <= due + 1 + largest, "{so_far} of {due} by {at}");
        }
        let due = u128::from(target) * u128::from(world.now()) / u128::from(SECOND);
        // An eighth of what the device would do of such requests alone is its VM's among four.
        let bytes = u64::from(len) * 1024;
        let able = depth >= 4 && target <= bytes * SECOND / (200_000 + bytes * 10) / 8;
        prop_assert!(!able || so_far + 4 * largest.max(65_536) >= due, "{so_far} of {due}");
    }
}
