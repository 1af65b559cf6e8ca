//! Guarantees of mClock to a VM beside others: its floor, and freedom from starvation.

use crate::common::*;
use proptest::prelude::*;
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::request::Op;

fn weighted(weight: u32, reservation: Rate) -> Objective {
    Objective {
        weight,
        reservation,
        ..Objective::default()
    }
}

#[test]
fn a_flush_does_not_forgive_what_large_ios_cost() {
    let mut world = World::new("mclock", MS);
    let [plain, flushes] = [(); 2].map(|()| world.guest(&weighted(100, Rate::NONE)));
    for guest in [plain, flushes] {
        world.load(guest, Op::Read, 1 << 20, 4);
    }
    world.load(flushes, Op::Flush, 0, 1);
    world.run(8 * SECOND);
    let reads = |guest: Guest| {
        let of = |s: &&Start| s.io.vm == guest.vm && s.io.op == Op::Read;
        world.driver.log.iter().filter(of).count()
    };
    let [plain, flushes] = [plain, flushes].map(reads);
    assert!(
        plain >= flushes,
        "{plain} reads, and {flushes} of the one that flushes"
    );
}

#[test]
fn a_new_vm_does_not_inherit_the_debt_of_its_slot() {
    let mut world = World::new("mclock", MS);
    let others: Vec<Guest> = (0..2)
        .map(|_| world.guest(&weighted(100, Rate::NONE)))
        .collect();
    for &other in &others {
        world.load(other, Op::Read, 4096, 4);
    }
    // Served by reservation alone: its share runs far ahead of its weight.
    let old = world.guest(&weighted(1, Rate::iops(500)));
    world.load(old, Op::Read, 4096, 4);
    world.run(10 * SECOND);
    world.remove_vm(old);
    let new = world.guest(&weighted(100, Rate::NONE));
    world.load(new, Op::Read, 4096, 4);
    world.run(3 * SECOND);
    let got = total(&world.ops(new));
    assert!(
        got >= 990,
        "{got} of 3000 services for one of three equal VMs"
    );
}

#[test]
fn a_vm_whose_reservation_goes_is_not_starved() {
    let mut world = World::new("mclock", MS);
    let others: Vec<Guest> = (0..2)
        .map(|_| world.guest(&weighted(100, Rate::NONE)))
        .collect();
    for &other in &others {
        world.load(other, Op::Read, 4096, 4);
    }
    let guest = world.guest(&weighted(10, Rate::iops(500)));
    world.load(guest, Op::Read, 4096, 4);
    world.run(100 * SECOND);
    world.set(guest, &weighted(10, Rate::NONE));
    world.driver.log.clear();
    world.run(10 * SECOND);
    let got = total(&world.ops(guest));
    // Its share is 10 of 210, that is 47 services a second.
    assert!(
        got >= 400,
        "{got} of 10000 services for a weight of 10 in 210"
    );
}

#[test]
fn a_reservation_is_met_in_any_window_beside_many_small_ones() {
    // 1000 services a second; 400 reserved by one VM, 40 x 9 by others.
    let mut world = World::new("mclock", MS);
    let small: Vec<Guest> = (0..40)
        .map(|_| world.guest(&weighted(100, Rate::iops(9))))
        .collect();
    let big = world.guest(&weighted(100, Rate::iops(400)));
    let idle = world.guest(&weighted(10_000, Rate::NONE));
    for guest in small.iter().chain([&big, &idle]) {
        world.load(*guest, Op::Read, 4096, 4);
    }
    world.run(5 * SECOND);
    let (least, at) = quietest_100_ms(&world.ops(big), 0, 5 * SECOND);
    assert!(least >= 39, "{least} of 40 in 100 ms from {at} ns");
}

#[test]
fn a_vm_whose_weight_is_raised_is_served_by_it_at_once() {
    for reservation in [Rate::NONE, Rate::iops(300)] {
        let mut world = World::new("mclock", MS);
        let other = world.guest(&weighted(10_000, Rate::NONE));
        world.load(other, Op::Read, 4096, 4);
        let guest = world.guest(&weighted(1, reservation));
        world.load(guest, Op::Read, 4096, 4);
        world.run(SECOND);
        world.set(guest, &weighted(10_000, Rate::NONE));
        world.driver.log.clear();
        world.run(SECOND);
        let got = total(&world.ops(guest));
        assert!(
            got >= 460,
            "{got} of 1000 services for one of two equal VMs"
        );
    }
}

#[test]
fn a_vm_that_wakes_neither_starves_others_nor_is_starved() {
    let mut world = World::new("mclock", MS);
    let [a, b, sleeper] = [100, 200, 100].map(|w| world.guest(&weighted(w, Rate::NONE)));
    world.load(sleeper, Op::Read, 4096, 4);
    world.load(a, Op::Read, 4096, 4);
    world.load(b, Op::Read, 4096, 4);
    world.run(SECOND);
    world.unload(sleeper);
    world.run(100 * SECOND);
    world.driver.log.clear();
    world.load(sleeper, Op::Read, 4096, 4);
    world.run(SECOND);
    for (guest, expected) in [(a, 25), (b, 50), (sleeper, 25)] {
        let got = within(
            &world.ops(guest),
            world.now() - SECOND,
            world.now() - 900 * MS,
        );
        assert!(
            got.abs_diff(expected) <= 2,
            "{got} of {expected} in the first 100 ms"
        );
    }
}

#[test]
fn idle_time_earns_no_reservation_and_no_limit() {
    let mut world = World::new("mclock", 1000);
    let objective = Objective {
        reservation: Rate::iops(100),
        ..limited(Rate::iops(200))
    };
    let guest = world.guest(&objective);
    world.run(3600 * SECOND);
    world.load(guest, Op::Read, 4096, 500);
    world.run(SECOND);
    assert_below(&world.ops(guest), 200, 1);
    assert!(total(&world.ops(guest)).abs_diff(200) <= 1);
}

#[test]
fn idle_time_earns_no_floor_before_others() {
    let mut world = World::new("mclock", MS);
    let other = world.guest(&weighted(100, Rate::NONE));
    world.load(other, Op::Read, 4096, 4);
    let guest = world.guest(&weighted(1, Rate::iops(100)));
    world.run(100 * SECOND);
    world.load(guest, Op::Read, 4096, 100);
    world.driver.log.clear();
    world.run(SECOND);
    let got = total(&world.ops(guest));
    assert!(
        (100..=112).contains(&got),
        "{got} by a floor of 100 and a share of 1 in 101"
    );
}

#[test]
fn a_held_back_vm_does_not_save_up_its_share() {
    let mut world = World::new("mclock", MS);
    let other = world.guest(&weighted(100, Rate::NONE));
    world.load(other, Op::Read, 4096, 4);
    let guest = world.guest(&limited(Rate::iops(10)));
    world.load(guest, Op::Read, 4096, 4);
    world.run(10 * SECOND);
    world.set(guest, &weighted(100, Rate::NONE));
    world.driver.log.clear();
    world.run(100 * MS);
    let got = total(&world.ops(guest));
    assert!(
        got.abs_diff(50) <= 2,
        "{got} of 100 for one of two equal VMs"
    );
}

#[test]
fn a_limit_that_is_lifted_does_not_give_back_the_share_it_held() {
    let mut world = World::new("mclock", MS);
    let open = world.guest(&weighted(100, Rate::NONE));
    let held = world.guest(&limited(Rate::iops(1)));
    for guest in [open, held] {
        world.load(guest, Op::Read, 4096, 4);
    }
    world.run(500 * MS);
    world.set(held, &weighted(100, Rate::NONE));
    world.driver.log.clear();
    world.run(100 * MS);
    let got = total(&world.ops(held));
    assert!(
        (48..=52).contains(&got),
        "{got} of 100 between two equal VMs"
    );
}

#[test]
fn a_waking_vm_is_not_passed_by_one_whose_limit_is_lifted() {
    let mut world = World::new("mclock", MS);
    let small = world.guest(&weighted(1, Rate::NONE));
    let heavy = world.guest(&weighted(1000, Rate::NONE));
    let capped = Objective {
        weight: 50,
        ..limited(Rate::iops(1))
    };
    let held = world.guest(&capped);
    for guest in [small, held] {
        world.load(guest, Op::Read, 4096, 4);
    }
    world.run(20 * MS);
    world.driver.log.clear();
    // The only one ready is the small one, whose tag lies far ahead, as each of its I/Os costs
    // it much. The one that is held stands well before it.
    world.load(heavy, Op::Read, 4096, 1);
    world.set(held, &weighted(50, Rate::NONE));
    world.run(100 * MS);
    let first = world.driver.log.iter().position(|s| s.io.vm == heavy.vm);
    assert!(
        first.is_some_and(|before| before <= 3),
        "{first:?} I/Os of smaller VMs before the first of the heavy one"
    );
}

#[test]
fn a_woken_vm_with_a_large_debt_pays_no_more_than_its_bound() {
    // Served by its floor far beyond its share, then asleep, then back without a floor.
    let mut world = World::new("mclock", MS);
    let other = world.guest(&weighted(100, Rate::NONE));
    world.load(other, Op::Read, 4096, 4);
    let guest = world.guest(&weighted(1, Rate::iops(500)));
    world.load(guest, Op::Read, 4096, 4);
    world.run(20 * SECOND);
    world.unload(guest);
    world.run(SECOND);
    world.set(guest, &weighted(100, Rate::NONE));
    world.driver.log.clear();
    world.load(guest, Op::Read, 4096, 4);
    world.run(SECOND);
    let got = total(&world.ops(guest));
    assert!(
        got >= 460,
        "{got} of 1000 services for one of two equal VMs"
    );
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Reservations of at most 80 % of a device with a constant service time, beside greedy
    /// VMs: in no window of 100 ms is any of them short by more than one request.
    #[test]
    fn a_feasible_reservation_is_met_in_every_window(
        parts in prop::collection::vec(1u64..=100, 1..20),
        greedy in prop::collection::vec(1u32..=10_000, 0..4),
        depth in 1u32..=4,
        in_bytes in any::<bool>(),
    ) {
        let capacity = 1000 * 8 / 10;
        let sum: u64 = parts.iter().sum();
        let rates: Vec<u64> = parts.iter().map(|p| (p * capacity / sum).max(1)).collect();
        prop_assume!(rates.iter().sum::<u64>() <= capacity);
        let mut world = World::with_config(config(depth, 0), "mclock", MS);
        let rate = |r: u64| if in_bytes { Rate::bytes(r * 16384) } else { Rate::iops(r) };
        let reserved: Vec<Guest> =
            rates.iter().map(|&r| world.guest(&weighted(1, rate(r)))).collect();
        let greedy: Vec<Guest> =
            greedy.iter().map(|&w| world.guest(&weighted(w, Rate::NONE))).collect();
        for guest in greedy.iter().chain(&reserved) {
            world.load(*guest, Op::Read, 16384, 8);
        }
        world.run(2 * SECOND);
        for (guest, rate) in reserved.iter().zip(rates) {
            let (least, at) = quietest_100_ms(&world.ops(*guest), 0, 2 * SECOND);
            prop_assert!(least + 1 >= rate / 10, "{least} of {} from {at} ns", rate / 10);
        }
    }
}
