//! A target that is a floor, too (`vcup-mclock`): neighbours that ask for all there is cannot take
//! it.

use crate::common::{Guest, KIB, SECOND, World, config, policy, total, within};
use tidegate_core::objective::{Objective, OpsRate, Rate};
use tidegate_core::precision;
use tidegate_core::request::{DeviceIo, Op};
use tidegate_policies::policy::PolicySpec;

const MB: u64 = 1_000_000;

fn precise(target: Rate) -> Objective {
    Objective {
        target,
        ..Objective::default()
    }
}

/// 20 us an I/O and 100 MB/s: 67 MB/s at one page, 98 at 128 KiB.
fn fast(io: &DeviceIo) -> u64 {
    20_000 + u64::from(io.len) * 10
}

/// A VM with a target beside four without any objective, which keep the device's queue full.
struct Beside {
    world: World,
    guest: Guest,
    neighbours: [Guest; 4],
}

impl Beside {
    fn new(policy: &PolicySpec, objective: &Objective) -> Beside {
        let mut world = World::with_policy(config(8, 64 * KIB), policy, 0);
        world.device.takes = Some(fast);
        let guest = world.guest(objective);
        let neighbours = [(); 4].map(|()| world.guest(&Objective::default()));
        for neighbour in neighbours {
            world.load(neighbour, Op::Read, 128 * KIB, 16);
        }
        world.load(guest, Op::Read, 64 * KIB, 16);
        Beside {
            world,
            guest,
            neighbours,
        }
    }

    /// Bytes of the VM in each of the last so many seconds.
    fn seconds(&self, count: u64) -> Vec<u64> {
        let bytes = self.world.bytes(self.guest);
        let end = self.world.now();
        let of = |n| within(&bytes, end - (n + 1) * SECOND, end - n * SECOND);
        (0..count).rev().map(of).collect()
    }
}

#[test]
fn neighbours_cannot_take_a_target() {
    let mut plain = policy("vcup-mclock");
    plain.set("target_floor", 0).expect("mClock's parameter");
    for (policy, held) in [
        (policy("vcup-mclock"), true),
        (plain, false),
        (policy("vcup"), false),
        (policy("vcup-drr"), false),
    ] {
        let mut of = Beside::new(&policy, &precise(Rate::bytes(30 * MB)));
        of.world.run(90 * SECOND);
        let seconds = of.seconds(60);
        let error = precision::error(&seconds, 30 * MB).expect("it moved");
        if !held {
            // A fifth of the device is less than 20 MB/s.
            assert!(error < -300_000, "{error} under {policy:?}");
            continue;
        }
        let beta = precision::absolute_error(&seconds, 30 * MB, 10).expect("six intervals");
        let v = precision::variability(&seconds).expect("it moved");
        assert!(
            error.abs() < 1_000 && beta < 1_000 && v < 5_000,
            "{error} {beta} {v}"
        );
        // From the first second on, and nothing of it is wasted.
        let bytes = of.world.bytes(of.guest);
        let first = within(&bytes, 0, SECOND);
        assert!(first.abs_diff(30 * MB) < 300_000, "{first}");
        let last = of.world.now() - 60 * SECOND;
        let theirs = of
            .neighbours
            .map(|guest| within(&of.world.bytes(guest), last, u64::MAX));
        let each = theirs.map(|bytes| bytes / 60 / MB);
        assert!(each.iter().all(|&mb| mb >= 12), "{each:?}");
    }
}

#[test]
fn beside_neighbours_a_stall_is_made_good() {
    let mut of = Beside::new(&policy("vcup-mclock"), &precise(Rate::bytes(30 * MB)));
    of.world.run(10 * SECOND);
    of.world.stall(SECOND);
    of.world.run(14 * SECOND);
    let due = 25 * 30 * MB;
    let had = total(&of.world.bytes(of.guest));
    // But for what waits for the device just now.
    assert!(had.abs_diff(due) < 100_000, "{had} of {due}");
}

#[test]
fn a_floor_is_no_more_than_the_target() {
    let mut of = Beside::new(&policy("vcup-mclock"), &precise(Rate::bytes(30 * MB)));
    for neighbour in of.neighbours {
        of.world.unload(neighbour);
    }
    of.world.run(30 * SECOND);
    let had = total(&of.world.bytes(of.guest));
    assert!(had.abs_diff(30 * 30 * MB) <= 2 * 4096, "{had}");
}

#[test]
fn a_target_in_ios_is_a_floor_in_ios() {
    let per_s = |per_s, norm| OpsRate { per_s, norm };
    for (ops, bytes_per_s, ios) in [
        (per_s(500, None), None, 500),
        // Requests of 64 KiB count four.
        (per_s(2000, Some(16 << 10)), None, 500),
        (per_s(1500, None), Some(30 * MB), 1500),
    ] {
        let target = Rate {
            ops: Some(ops),
            bytes_per_s,
        };
        let mut of = Beside::new(&policy("vcup-mclock"), &precise(target));
        of.world.run(60 * SECOND);
        let last = of.world.now() - 30 * SECOND;
        let bytes = of.world.bytes(of.guest);
        let had = bytes.iter().filter(|start| start.0 >= last).count() as u64 / 30;
        assert!(had.abs_diff(ios) <= ios / 100, "{had} for {target}");
    }
}

#[test]
fn a_reservation_beside_a_target_is_kept_as_well() {
    // 600 requests of 64 KiB are more than the target's bytes, which are all that its throttle lets
    // pass.
    let reserved = |per_s| Objective {
        reservation: Rate::iops(per_s),
        ..precise(Rate::bytes(30 * MB))
    };
    for per_s in [100, 600] {
        let mut of = Beside::new(&policy("vcup-mclock"), &reserved(per_s));
        of.world.run(30 * SECOND);
        let had = total(&of.world.bytes(of.guest));
        assert!(had.abs_diff(900 * MB) < 900_000, "{had} with {per_s} IOPS");
    }
}

#[test]
fn a_target_that_is_taken_away_leaves_no_floor() {
    let mut of = Beside::new(&policy("vcup-mclock"), &precise(Rate::bytes(30 * MB)));
    of.world.run(10 * SECOND);
    of.world.set(of.guest, &Objective::default());
    of.world.run(20 * SECOND);
    let had = of.seconds(10).iter().sum::<u64>() / 10;
    // A fifth of 98 MB/s, and what smaller requests cost more.
    assert!((17 * MB..21 * MB).contains(&had), "{had}");
}
