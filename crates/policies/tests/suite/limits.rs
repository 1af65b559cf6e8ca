//! Tests of limits at every moment, also while they are changed, across changes of policy, and
//! after a driver that stood still.

use crate::common::*;
use proptest::prelude::*;
use std::sync::LazyLock;
use tidegate_core::objective::{Objective, OpsRate, Rate};
use tidegate_core::policy::Policy;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// Policies and compositions that enforce limits, except those with credits: credits hold requests
/// back for other reasons.
static LIMITING: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let all = PolicySpec::every_composition().iter();
    let limiting = all.filter(|spec| {
        spec.enforces().limit && spec.parts().0.is_none() && spec.parts().1 != "vbc"
    });
    limiting.map(PolicySpec::name).collect()
});

fn normalised(per_s: u64, norm: Option<u32>) -> Rate {
    Rate {
        ops: Some(OpsRate { per_s, norm }),
        bytes_per_s: None,
    }
}

#[test]
fn a_limit_holds_in_every_window() {
    for &policy in LIMITING.iter() {
        let mut world = World::new(policy, 1000);
        let guest = world.guest(&limited(Rate::iops(1000)));
        world.load(guest, Op::Read, 4096, 16);
        world.run(2 * SECOND);
        let ops = world.ops(guest);
        assert_below(&ops, 1000, 1);
        assert!(total(&ops).abs_diff(2000) <= 1, "{policy}: {}", total(&ops));
    }
}

#[test]
fn a_limit_holds_after_a_stalled_driver() {
    for &policy in LIMITING.iter() {
        let mut world = World::new(policy, 1000);
        let guest = world.guest(&limited(Rate::iops(1000)));
        world.load(guest, Op::Read, 4096, 600);
        world.run(SECOND);
        world.stall(SECOND / 2);
        world.run(SECOND);
        assert_below(&world.ops(guest), 1000, 1);
    }
}

#[test]
fn a_reservation_that_catches_up_stays_below_its_limit() {
    for policy in ["mclock", "token-bucket+mclock"] {
        let mut world = World::new(policy, 1000);
        let objective = Objective {
            reservation: Rate::iops(1000),
            ..limited(Rate::iops(1000))
        };
        let guest = world.guest(&objective);
        world.load(guest, Op::Read, 4096, 600);
        world.run(SECOND);
        world.stall(SECOND / 2);
        world.run(SECOND);
        assert_below(&world.ops(guest), 1000, 1);
    }
}

#[test]
fn a_reservation_in_requests_stays_below_a_limit_in_bytes() {
    for policy in ["mclock", "token-bucket+mclock"] {
        let mut world = World::new(policy, 1000);
        let objective = Objective {
            reservation: Rate::iops(100),
            ..limited(Rate::bytes(1_000_000))
        };
        let guest = world.guest(&objective);
        world.load(guest, Op::Write, 256 * KIB, 16);
        world.run(2 * SECOND);
        assert_below(&world.bytes(guest), 1_000_000, 256 << 10);
    }
}

#[test]
fn a_limit_that_is_lifted_takes_its_debt_with_it() {
    for &policy in LIMITING.iter() {
        let mut world = World::new(policy, 1000);
        let guest = world.guest(&limited(Rate::bytes(1)));
        world.load(guest, Op::Read, 1 << 20, 4); // at 1 B/s one request lasts twelve days
        world.run(SECOND / 10);
        world.set(guest, &Objective::default());
        world.run(SECOND / 10);
        world.set(guest, &limited(Rate::bytes(100 << 20)));
        let before = total(&world.bytes(guest));
        world.run(SECOND);
        let got = total(&world.bytes(guest)) - before;
        assert!(
            got >= 99 << 20,
            "{policy}: {got} bytes in a second at 100 MiB/s"
        );
    }
}

#[test]
fn a_reservation_that_is_lifted_takes_its_debt_with_it() {
    let mut world = World::new("mclock", 10 * MS);
    let reserved = |reservation| Objective {
        reservation,
        weight: 1,
        ..Objective::default()
    };
    let guest = world.guest(&reserved(Rate::bytes(1)));
    let other = world.guest(&Objective {
        weight: 10_000,
        ..Objective::default()
    });
    world.load(guest, Op::Read, 1 << 20, 4);
    world.load(other, Op::Read, 4096, 4);
    world.run(SECOND);
    world.set(guest, &reserved(Rate::NONE));
    world.run(SECOND / 10);
    world.set(guest, &reserved(Rate::bytes(50 << 20)));
    let before = total(&world.ops(guest));
    world.run(SECOND);
    let got = total(&world.ops(guest)) - before;
    assert!(got >= 49, "{got} requests in a second of 50 reserved");
}

#[test]
fn a_limit_whose_normalisation_goes_keeps_its_debt_in_requests() {
    for &policy in LIMITING.iter() {
        let mut world = World::new(policy, 1000);
        let guest = world.guest(&limited(normalised(100, Some(4096))));
        world.load(guest, Op::Read, 1 << 20, 4); // counts 256: 2.56 s
        world.run(SECOND / 10);
        world.set(guest, &limited(normalised(100, None)));
        world.run(4 * SECOND);
        let got = total(&world.ops(guest));
        assert!(
            got > 100,
            "{policy}: {got} requests in 4 s of 100/s, 2.56 s of it owed"
        );
    }
}

#[test]
fn a_limit_that_becomes_normalised_buys_nothing() {
    for &policy in LIMITING.iter() {
        let mut world = World::new(policy, 1000);
        let guest = world.guest(&limited(normalised(1, None)));
        world.load(guest, Op::Read, 4096, 4);
        world.run(SECOND / 10);
        for _ in 0..10 {
            world.set(guest, &limited(normalised(1, Some(4096))));
            world.run(MS);
            world.set(guest, &limited(normalised(1, None)));
            world.run(MS);
        }
        let got = total(&world.ops(guest));
        assert!(
            got <= 2,
            "{policy}: {got} requests in 120 ms at one a second"
        );
    }
}

#[test]
fn taking_a_burst_away_does_not_freeze_its_vm() {
    let mut world = World::new("limit", 1000);
    let burst = bursting(Rate::iops(100), Rate::iops(2000), Nanos::from_secs(60));
    let guest = world.guest(&burst);
    world.load(guest, Op::Read, 4096, 16);
    world.run(30 * SECOND);
    world.set(guest, &limited(Rate::iops(100)));
    world.driver.log.clear();
    world.run(10 * SECOND);
    let got = total(&world.ops(guest));
    assert!(
        (990..=1002).contains(&got),
        "{got} requests in 10 s at 100/s"
    );
}

#[test]
fn a_burst_passes_where_token_bucket_and_mclock_go_together() {
    let mut world = World::new("token-bucket+mclock", 1000);
    let guest = world.guest(&bursting(Rate::iops(100), Rate::iops(2000), Nanos::SECOND));
    world.load(guest, Op::Read, 4096, 16);
    world.run(SECOND);
    let got = total(&world.ops(guest));
    assert!(
        got >= 1990,
        "{got} requests in the first second of a burst of 2000/s"
    );
}

#[test]
fn a_swap_to_mclock_does_not_freeze_a_vm_that_used_its_burst() {
    for to in ["mclock", "token-bucket+mclock"] {
        let mut world = World::new("limit", 1000);
        let guest = world.guest(&bursting(
            Rate::iops(100),
            Rate::iops(2000),
            Nanos::from_secs(60),
        ));
        world.load(guest, Op::Read, 4096, 16);
        world.run(30 * SECOND);
        world.swap(to);
        world.driver.log.clear();
        world.run(10 * SECOND);
        let got = total(&world.ops(guest));
        assert!(got >= 990, "{to}: {got} requests in 10 s at 100/s");
    }
}

#[test]
fn a_swap_never_buys_a_burst() {
    for from in ["mclock", "fifo"] {
        let mut world = World::new(from, 10 * MS);
        let guest = world.guest(&bursting(
            Rate::iops(100),
            Rate::iops(2000),
            Nanos::from_secs(60),
        ));
        world.load(guest, Op::Read, 4096, 16);
        world.run(10 * SECOND);
        world.swap("limit");
        world.device.service = 1000;
        world.driver.log.clear();
        world.run(SECOND);
        let got = total(&world.ops(guest));
        assert!(
            got <= 102,
            "{from} to limit: {got} requests in a second at 100/s"
        );
    }
}

#[test]
fn a_swap_back_and_forth_never_buys_a_burst() {
    for between in ["mclock", "token-bucket+mclock", "token-bucket+fifo"] {
        let mut world = World::new("limit", 1000);
        let guest = world.guest(&bursting(Rate::iops(100), Rate::iops(2000), Nanos::SECOND));
        world.load(guest, Op::Read, 4096, 16);
        world.run(10 * SECOND); // the burst is used up
        world.driver.log.clear();
        world.swap(between);
        world.run(SECOND);
        world.swap("limit");
        world.run(SECOND);
        let got = total(&world.ops(guest));
        assert!(
            (198..=203).contains(&got),
            "by {between}: {got} requests in 2 s at 100/s"
        );
    }
}

#[test]
fn a_swap_to_mclock_keeps_what_the_burst_rate_holds_back() {
    let mut world = World::new("limit", MS / 10);
    let rate = Rate::iops(49);
    let guest = world.guest(&bursting(rate, rate, Nanos::SECOND));
    world.load(guest, Op::Read, 4096, 4);
    world.run(90 * MS);
    world.swap("mclock");
    world.run(SECOND);
    assert_below(&world.ops(guest), 49, 1);
}

#[test]
fn a_burst_that_is_added_does_not_repeat_what_the_limit_let_go() {
    let mut world = World::new("limit", MS / 10);
    let rate = Rate::bytes(20_000);
    let guest = world.guest(&limited(rate));
    world.load(guest, Op::Read, 4096, 4);
    world.run(50 * MS);
    world.set(guest, &bursting(rate, rate, Nanos::SECOND));
    world.run(SECOND);
    assert_below(&world.bytes(guest), 20_000, 4096);
}

#[test]
fn a_burst_that_is_taken_away_leaves_what_it_let_go_last_to_be_paid() {
    let mut world = World::new("limit", MS / 10);
    let burst = bursting(Rate::iops(3), Rate::iops(48), Nanos::from_millis(200));
    let guest = world.guest(&burst);
    world.load(guest, Op::Read, 4096, 4);
    // One has just gone: the burst's rate lets the next go 20 ms later.
    world.run(64 * MS);
    world.set(guest, &limited(Rate::iops(77)));
    world.run(SECOND);
    assert_below(&world.ops(guest), 77, 1);
}

#[test]
fn swaps_do_not_lift_the_burst_rate() {
    let mut world = World::new("limit", 1000);
    let burst = bursting(
        Rate::bytes(1 << 20),
        Rate::bytes(4 << 20),
        Nanos::from_secs(60),
    );
    let guest = world.guest(&burst);
    world.load(guest, Op::Read, 1 << 20, 16);
    for _ in 0..50 {
        world.run(10 * MS);
        world.swap("token-bucket+fifo");
        world.run(10 * MS);
        world.swap("limit");
    }
    let got = total(&world.bytes(guest));
    assert!(
        got <= 5 << 20,
        "{got} bytes in a second at a burst rate of 4 MiB/s"
    );
}

#[test]
fn a_burst_normalised_otherwise_than_its_limit_lasts_as_long_as_it_says() {
    for (slow, fast) in [(None, Some(4096)), (Some(4096), None)] {
        let mut world = World::new("limit", 1000);
        let objective = bursting(normalised(100, slow), normalised(2000, fast), Nanos::SECOND);
        if objective.validate().is_err() {
            continue; // a fair answer too
        }
        let guest = world.guest(&objective);
        world.load(guest, Op::Read, 4096, 16);
        world.run(10 * SECOND);
        // 2000 in the bucket, and 100 a second that leak.
        let got = total(&world.ops(guest));
        assert!(
            got.abs_diff(3000) <= 5,
            "{slow:?}, {fast:?}: {got} requests in 10 s"
        );
    }
}

#[derive(Clone, Debug)]
enum Change {
    Rate(u64),
    Swap(usize),
    Stall(u64),
    Floor(u64),
    /// The load pauses for this time, in ns, and resumes.
    Quiet(u64),
}

fn rate() -> impl Strategy<Value = u64> {
    prop_oneof![20u64..=200, 20u64..=3000]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => rate().prop_map(Change::Rate),
        3 => (0..LIMITING.len()).prop_map(Change::Swap),
        1 => (0..=300 * MS).prop_map(Change::Stall),
        1 => (1u64..=20).prop_map(Change::Floor),
        1 => (0..=300 * MS).prop_map(Change::Quiet),
    ]
}

/// Returns the amount that `rates`, each in force since its time, allow from `from` to `to` and in
/// the rest of 100 ms, without the request beyond: 1 % of the highest rate, and each rate times its
/// time. Where one rate holds for all of it, requests that waited may come closer together in a
/// part of the 100 ms, so the rest counts as well. A change binds requests that start after it:
/// beyond `to`, nothing counts then.
fn allowed(rates: &[(u64, u64)], from: u64, to: u64, in_bytes: bool) -> f64 {
    let (mut sum, mut highest, mut in_force) = (0.0, 0, 0);
    for (i, &(since, rate)) in rates.iter().enumerate() {
        let until = rates.get(i + 1).map_or(u64::MAX, |r| r.0);
        let (a, b) = (since.max(from), until.min(to));
        // The slack reaches back: a rate that ended just before still counts as the highest.
        if b + MS >= a {
            highest = highest.max(rate);
        }
        in_force += u32::from(until >= from && since <= to);
        sum += rate as f64 * b.saturating_sub(a) as f64 / SECOND as f64;
    }
    if in_force == 1 && !in_bytes {
        sum = highest as f64 / 10.0;
    }
    sum + highest as f64 / 1000.0
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Checks every window of up to 100 ms: no more than the rates in force allowed, 1 % of the
    /// highest, and one request, for any changes and any service times.
    #[test]
    fn a_limit_that_changes_is_never_overshot(
        first in 0..LIMITING.len(),
        in_bytes in any::<bool>(),
        service in prop_oneof![Just(1000), 1000..=20 * MS],
        initial in rate(),
        changes in prop::collection::vec(
            (change(), prop_oneof![0u64..=60 * MS, 0..=SECOND]),
            1..40,
        ),
    ) {
        let mut world = World::new(LIMITING[first], service);
        let unit = if in_bytes { 8192 } else { 1 };
        let rate = |r: u64| if in_bytes { Rate::bytes(r * 8192) } else { Rate::iops(r) };
        let objective = |r, floor| Objective { reservation: rate(floor), ..limited(rate(r)) };
        let (mut current, mut floor) = (initial, 1);
        let guest = world.guest(&objective(current, floor));
        world.load(guest, Op::Write, 8192, 64);
        // Another one that takes what is left: the first waits for the device.
        if service > 1000 {
            let other = world.guest(&Objective { weight: 1, ..Objective::default() });
            world.load(other, Op::Write, 8192, 2);
        }
        let mut rates = vec![(0, current)];
        for (change, then) in changes {
            match change {
                Change::Rate(r) if r != current => {
                    current = r;
                    rates.push((world.now(), r));
                }
                Change::Rate(_) => {}
                Change::Floor(f) => floor = f,
                Change::Swap(to) => world.swap(LIMITING[to]),
                Change::Stall(nanos) => world.stall(nanos),
                Change::Quiet(nanos) => {
                    world.pause(guest, nanos);
                }
            }
            world.set(guest, &objective(current, floor));
            world.run(then);
        }
        let sent = if in_bytes { world.bytes(guest) } else { world.ops(guest) };
        for (i, &(from, _)) in sent.iter().enumerate() {
            let mut got = 0;
            for &(at, amount) in sent[i..].iter().take_while(|s| s.0 < from + 100 * MS) {
                got += amount;
                let most = allowed(&rates, from, at, in_bytes) + 1.0;
                let got = got as f64 / unit as f64;
                prop_assert!(got <= most + 1e-6, "{got} of {most} from {from} to {at}");
            }
        }
    }
}
