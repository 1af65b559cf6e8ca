//! mClock held against its publications: the allocations that they work out or imply.
//!
//! The paper (Gulati, Merchant, Varman, OSDI 2010) defines what each VM of a saturated device
//! should get: its share by weight, but at least its reservation and at most its limit, where
//! the shares add up to what the device does. [`fair`] computes that by bisection, knowing
//! nothing of tags.

use crate::common::*;
use proptest::prelude::*;
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_core::request::Op;

/// Reservation and limit in requests a second, 0 for none, and weight.
type Terms = (u64, u64, u32);

fn objective((reservation, limit, weight): Terms) -> Objective {
    let rate = |per_s| match per_s {
        0 => Rate::NONE,
        per_s => Rate::iops(per_s),
    };
    Objective {
        reservation: rate(reservation),
        limit: Limit::of_all(rate(limit)),
        weight,
        ..Objective::default()
    }
}

/// Returns the fair rates, a second, of VMs that always have requests on a device of rate
/// `capacity`.
fn fair(vms: &[Terms], capacity: f64) -> Vec<f64> {
    let at = |level: f64| {
        let one = |&(reservation, limit, weight): &Terms| {
            let most = if limit == 0 { f64::MAX } else { limit as f64 };
            (level * weight as f64).max(reservation as f64).min(most)
        };
        vms.iter().map(one).collect::<Vec<f64>>()
    };
    let (mut low, mut high) = (0.0, capacity);
    for _ in 0..200 {
        let level = (low + high) / 2.0;
        if at(level).iter().sum::<f64>() < capacity {
            low = level;
        } else {
            high = level;
        }
    }
    at(low)
}

/// Returns the VMs' measured rates, a second, over `seconds` after a second of warm-up.
fn measured(vms: &[Terms], service: u64, seconds: u64) -> Vec<f64> {
    let mut world = World::new("mclock", service);
    let guests: Vec<Guest> = vms.iter().map(|&v| world.guest(&objective(v))).collect();
    for &guest in &guests {
        world.load(guest, Op::Read, 4096, 32);
    }
    world.run(SECOND);
    world.driver.log.clear();
    world.run(seconds * SECOND);
    let rate = |&guest: &Guest| total(&world.ops(guest)) as f64 / seconds as f64;
    guests.iter().map(rate).collect()
}

/// Asserts that VMs get their fair rates, within a relative error and one request a second.
fn assert_fair(vms: &[Terms], service: u64, within: f64) {
    let due = fair(vms, SECOND as f64 / service as f64);
    let got = measured(vms, service, 10);
    for (vm, (got, due)) in got.iter().zip(&due).enumerate() {
        let off = (got - due).abs();
        assert!(
            off <= due * within + 1.0,
            "{vm} of {vms:?}, {service} ns an I/O: {got} a second instead of {due}"
        );
    }
}

/// Checks the paper's example (section 2): remote desktop, OLTP and data migration with weights 1 :
/// 2 : 3, 250 IOPS reserved for each of the first two, and the third limited to 1000.
#[test]
fn the_papers_three_vms_get_its_shares_at_every_capacity() {
    let vms = [(250, 0, 100), (250, 0, 200), (0, 1000, 300)];
    for capacity in [500, 625, 800, 1000, 1250, 2000, 2500, 3125, 4000] {
        assert_fair(&vms, SECOND / capacity, 0.005);
    }
    // Where its turn meets those of two others at the same tag, the third comes later than the
    // one I/O that its limit makes good.
    assert_fair(&vms, SECOND / 2400, 0.03);
}

/// Checks the example configuration of dmclock's simulator: one server of 160 IOPS, and clients
/// that come one by one. The last client's limit stands for requests that cost several.
#[test]
fn dmclocks_example_clients_get_their_shares_as_they_come() {
    let vms = [(0, 0, 1), (0, 40, 1), (0, 50, 2), (0, 17, 2)];
    for clients in 1..=vms.len() {
        assert_fair(&vms[..clients], SECOND / 160, 0.005);
    }
    // Its benchmark: without anything, with both bounds, and with a limit and twice the weight.
    let vms = [(0, 0, 1), (20, 40, 1), (0, 50, 2)].map(|vm| [vm; 2]);
    assert_fair(vms.as_flattened(), SECOND / 160, 0.005);
    // A hundred equal clients on as much as they reserve, and half as much again.
    for capacity in [2000, 3000] {
        assert_fair(&[(20, 60, 1); 100], SECOND / capacity, 0.005);
    }
}

/// Checks reservations beyond the device's rate: all R tags advance together, and each VM gets its
/// part by their rates. dmclock's `pull_reservation` has two, 2 : 1, long overdue.
#[test]
fn floors_beyond_the_device_are_met_in_proportion() {
    for (vms, capacity) in [
        (vec![(250, 0, 100), (250, 0, 200), (0, 1000, 300)], 400),
        (vec![(2, 0, 1), (1, 0, 1)], 1),
        (vec![(200, 0, 1), (100, 0, 100), (0, 0, 100)], 100),
        (vec![(1000, 0, 1), (250, 0, 100)], 100),
        (vec![(1000, 1000, 1), (250, 300, 100), (50, 0, 100)], 130),
    ] {
        let sum: u64 = vms.iter().map(|v| v.0).sum();
        for (&(reservation, ..), got) in vms.iter().zip(measured(&vms, SECOND / capacity, 60)) {
            let due = (capacity * reservation) as f64 / sum as f64;
            let off = (got - due).abs();
            assert!(
                off <= due * 0.02 + 0.05,
                "{vms:?}: {got} a second instead of {due}"
            );
        }
    }
}

/// Checks that a VM with one request at a time keeps its part of reservations beyond the device's
/// rate.
#[test]
fn a_vm_that_asks_for_one_at_a_time_keeps_its_part_of_floors_beyond_the_device() {
    let mut world = World::new("mclock", 10 * MS);
    let [greedy, shy] = [500, 50].map(|r| world.guest(&objective((r, 0, 100))));
    world.load(greedy, Op::Read, 4096, 32);
    world.run(10 * SECOND);
    world.load(shy, Op::Read, 4096, 1);
    world.driver.log.clear();
    world.run(20 * SECOND);
    let got = total(&world.ops(shy));
    assert!(got.abs_diff(2000 / 11) <= 10, "{got} of 2000 services");
}

/// Checks that a device that was too slow for its floors owes them at most `catch_up` afterwards.
#[test]
fn a_debt_of_floors_ends_a_second_after_the_device_recovers() {
    let mut world = World::new("mclock", 10 * MS);
    let [a, b, rest] = [(600, 0, 1), (200, 0, 1), (0, 0, 100)].map(|v| world.guest(&objective(v)));
    for guest in [a, b, rest] {
        world.load(guest, Op::Read, 4096, 8);
    }
    world.run(30 * SECOND);
    world.device.service = SECOND / 1600;
    world.driver.log.clear();
    world.run(4 * SECOND);
    // A second of 800 owed, made good with the 800 a second that are left beside the floors.
    for (guest, floor) in [(a, 600), (b, 200)] {
        let got = within(
            &world.ops(guest),
            world.now() - 2 * SECOND,
            world.now() - SECOND,
        );
        assert!(got.abs_diff(floor) <= 2, "{got} of {floor}");
        let before =
            total(&world.ops(guest)) - within(&world.ops(guest), world.now() - SECOND, world.now());
        assert!(
            before.abs_diff(4 * floor) <= floor / 50,
            "{before} of 4 x {floor}"
        );
    }
    assert!(
        within(
            &world.ops(rest),
            world.now() - 2 * SECOND,
            world.now() - SECOND
        ) >= 795
    );
}

/// Checks that weights share the rest that a floor leaves, and that the VM with the floor gets no
/// more by its own weight.
#[test]
fn a_floor_counts_against_the_share_of_its_vm() {
    assert_fair(&[(300, 0, 1), (0, 0, 1)], MS, 0.005);
    assert_fair(&[(700, 0, 1), (0, 0, 1)], MS, 0.005);
}

/// Checks that an I/O that became due on a busy device waits only for the device, and that the next
/// one does not wait longer because of it.
#[test]
fn a_busy_device_costs_no_vm_its_limit_and_no_floor_below_one() {
    for service in [3 * MS, 7 * MS, 11 * MS] {
        assert_fair(&[(0, 60, 1000), (0, 0, 1)], service, 0.01);
        assert_fair(&[(50, 50, 1), (0, 0, 1000)], service, 0.01);
        assert_fair(&[(50, 60, 1), (0, 0, 1000)], service, 0.01);
    }
}

/// Checks the rate under a limit on a slow device. The whole rate is reached as long as 100 ms have
/// room for the requests to be made good. Just below ten more a second they have none, and a VM
/// loses the time that its I/Os wait beyond 1 ms.
#[test]
fn a_limit_beside_another_vm_on_a_slow_device_gets_its_rate() {
    for (limit, least) in [
        (30, [29.9; 3]),
        (45, [44.9; 3]),
        (55, [54.9; 3]),
        (75, [74.9, 74.9, 74.8]),
        (95, [94.9, 94.9, 94.7]),
        (100, [99.9; 3]),
        (99, [83.3, 95.2, 71.4]),
    ] {
        for (service, least) in [3 * MS, 5 * MS, 7 * MS].into_iter().zip(least) {
            for policy in ["mclock", "limit", "token-bucket+mclock"] {
                let got = limited_beside_another(policy, limit, service);
                assert!(
                    got >= least,
                    "{policy}: {got} of {limit}, {service} ns an I/O"
                );
            }
        }
    }
}

/// Returns the rate that a VM limited to `limit` a second gets beside a VM of a thousandth of its
/// weight.
fn limited_beside_another(policy: &str, limit: u64, service: u64) -> f64 {
    let mut world = World::new(policy, service);
    let limited = world.guest(&objective((0, limit, 1000)));
    let other = world.guest(&objective((0, 0, 1)));
    world.load(limited, Op::Read, 4096, 8);
    world.load(other, Op::Read, 4096, 1);
    world.run(20 * SECOND);
    let ops = world.ops(limited);
    assert_below(&ops, limit, 1);
    total(&ops) as f64 / 20.0
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 5,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Checks shares against the definition, with floors of at most 80 % of the device, limits
    /// above them, and any weights. The limits are whole requests in 100 ms, so that a request that
    /// waits as long as its spacing can be made good. A longer wait, for several others' turns,
    /// loses the rest to them. So may a VM whose share comes near its limit, since it cannot catch
    /// up on the delay by floors.
    #[test]
    fn shares_are_those_of_the_definition(
        vms in prop::collection::vec((1u64..=100, 0u64..=600, 1u32..=1000), 1..10),
        micros in 300u64..=3000,
    ) {
        let capacity = 1_000_000 / micros;
        let sum: u64 = vms.iter().map(|v| v.0).sum();
        let vms: Vec<Terms> = vms
            .iter()
            .map(|&(part, above, weight)| {
                let reservation = part * capacity * 8 / 10 / sum;
                let limit = match above {
                    ..200 => 0,
                    _ => (reservation + above - 199).next_multiple_of(10),
                };
                (if above % 3 == 0 { 0 } else { reservation }, limit, weight)
            })
            .collect();
        let service = micros * 1000;
        let (due, got) = (fair(&vms, SECOND as f64 / service as f64), measured(&vms, service, 10));
        for (&(_, limit, _), (&due, &got)) in vms.iter().zip(due.iter().zip(&got)) {
            let held = limit != 0 && due >= limit as f64 * 0.4;
            let least = due * if held { 0.75 } else { 0.97 } - 1.0;
            prop_assert!(
                got >= least,
                "{got} a second instead of {due}: {vms:?}, {service} ns an I/O"
            );
            prop_assert!(limit == 0 || got <= limit as f64 + 1.0, "{got} of {limit}");
        }
        let sum = |all: &[f64]| all.iter().sum::<f64>();
        let idle = sum(&due) - sum(&got);
        prop_assert!(
            idle <= sum(&due) * 0.03 + 1.0,
            "{idle} a second unused: {vms:?}, {service} ns an I/O"
        );
    }
}
