//! Limits hold at every moment, also while they are being changed, across changes of policy,
//! and after a driver that stood still.

mod common;

use common::*;
use tidegate_core::objective::{Limit, Objective, OpsRate, Rate};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

const LIMITING: [&str; 3] = ["limit", "mclock", "token-bucket+mclock"];

fn normalised(per_s: u64, norm: Option<u32>) -> Rate {
    Rate {
        ops: Some(OpsRate { per_s, norm }),
        bytes_per_s: None,
    }
}

#[test]
fn a_limit_holds_in_every_window() {
    for policy in LIMITING {
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
    for policy in LIMITING {
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
    for policy in LIMITING {
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
    for policy in LIMITING {
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
    for policy in LIMITING {
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
    world.log.clear();
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
        world.log.clear();
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
        world.service = 1000;
        world.log.clear();
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
        world.log.clear();
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

#[test]
fn changing_limits_and_policies_at_random_moments_never_overshoots() {
    let mut world = World::new("limit", 1000);
    let guest = world.guest(&limited(Rate::iops(1000)));
    world.load(guest, Op::Write, 4096, 32);
    let mut random = 1u64;
    for step in 0..400 {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        world.run(1 + (random >> 33) % (7 * MS));
        match step % 3 {
            0 => world.swap(LIMITING[(random >> 40) as usize % 3]),
            1 => world.set(guest, &limited(Rate::iops(100 + (random >> 40) % 901))),
            _ => world.set(
                guest,
                &Objective {
                    limit: Limit {
                        total: Rate::iops(1000),
                        write: Rate::iops(1000),
                        ..Limit::NONE
                    },
                    ..Objective::default()
                },
            ),
        }
    }
    assert_below(&world.ops(guest), 1000, 1);
}
