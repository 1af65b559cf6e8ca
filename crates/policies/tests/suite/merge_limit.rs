//! Tests of the regulator `merge-limit`: the size of I/Os and the time between them.

use crate::common::{Guest, KIB, MS, SECOND, World, config, policy, total, within};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use tidegate_core::objective::{Limit, Objective, OpsRate, Rate};
use tidegate_core::request::{Op, Request, VmId};
use tidegate_core::roles::{Controller, Event, Interests, Knob, Knobs, Roles};
use tidegate_core::time::Nanos;
use tidegate_core::tuning::Throttle;
use tidegate_core::view::View;
use tidegate_policies::regulate::merge_limit::{MergeLimit, MergeLimitParams};

/// Controller that sets the given knobs when any objective is set.
struct Puppet(Arc<Mutex<Vec<(VmId, Knob)>>>);

impl Controller for Puppet {
    fn interests(&self) -> Interests {
        Interests::VMS
    }

    fn on_event(&mut self, _: &View, event: &Event, out: &mut Knobs) {
        if let Event::VmChanged(_) = event {
            let planned = std::mem::take(&mut *self.0.lock().expect("no panic before"));
            planned.into_iter().for_each(|(vm, knob)| out.set(vm, knob));
        }
    }

    fn next_timer(&self) -> Nanos {
        Nanos::MAX
    }

    fn on_timer(&mut self, _: &View, _: &mut Knobs) {}
}

/// World under the regulator over FIFO, with a controller for its knobs.
struct Lab {
    world: World,
    plan: Arc<Mutex<Vec<(VmId, Knob)>>>,
}

const SLACK: Nanos = Nanos(900_000);

impl Lab {
    /// Creates a world with a device of depth 8 that takes `service` ns an I/O; merges up to 64
    /// KiB.
    fn new(service: u64, pages: u32) -> Lab {
        Lab::batching(service, pages, Nanos::ZERO)
    }

    fn batching(service: u64, pages: u32, batch: Nanos) -> Lab {
        Lab::with_params(
            service,
            MergeLimitParams {
                pages,
                fill: 75,
                batch,
                tick: Nanos::ZERO,
                slack: SLACK,
            },
        )
    }

    fn with_params(service: u64, params: MergeLimitParams) -> Lab {
        let mut world = World::with_policy(config(8, 64 * KIB), &policy("fifo"), service);
        let plan = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&plan);
        world
            .driver
            .engine
            .wrap_roles(Nanos::ZERO, move |roles| Roles {
                controller: Some(Box::new(Puppet(Arc::clone(&shared)))),
                regulator: Box::new(MergeLimit::new(params, 8)),
                ..roles
            });
        Lab { world, plan }
    }

    fn turn(&mut self, guest: Guest, knob: Knob) {
        let mut plan = self.plan.lock().expect("no panic before");
        plan.push((guest.vm, knob));
        drop(plan);
        let objective = *self.world.driver.engine.vms().objective(guest.vm);
        self.world.set(guest, &objective);
    }

    fn throttled(&mut self, throttle: Throttle) -> Guest {
        let guest = self.world.guest(&precise(Rate::bytes(1_000_000)));
        self.turn(guest, Knob::Throttle(throttle));
        guest
    }
}

fn precise(target: Rate) -> Objective {
    Objective {
        target,
        ..Objective::default()
    }
}

#[test]
fn bytes_follow_each_other_at_the_rate_to_a_page() {
    // 30 MB/s of pages: a slot of 136,533 ns and a third.
    let mut lab = Lab::new(10_000, 1);
    let guest = lab.throttled(Throttle::Exactly(30_000_000));
    lab.world.load(guest, Op::Read, 20 * KIB, 16);
    lab.world.run(10 * SECOND);
    let bytes = lab.world.bytes(guest);
    for second in 1..=10u64 {
        let so_far = within(&bytes, 0, second * SECOND) as i64;
        let due = second as i64 * 30_000_000;
        assert!((so_far - due).abs() <= 4096, "{so_far} by {second} s");
    }
    assert!(bytes.iter().all(|&(_, len)| len <= 4096));
}

#[test]
fn with_a_tick_a_page_goes_in_each_and_a_late_slot_is_lost() {
    // A slot of 3 MB/s is 1.37 ms, which ends with the next tick of 10 ms.
    let mut lab = Lab::with_params(
        10_000,
        MergeLimitParams {
            pages: 1,
            fill: 75,
            batch: Nanos::ZERO,
            tick: Nanos(10_000_000),
            slack: SLACK,
        },
    );
    let guest = lab.throttled(Throttle::Exactly(3_000_000));
    lab.world.load(guest, Op::Read, 4 * KIB, 16);
    lab.world.run(SECOND);
    let bytes = lab.world.bytes(guest);
    // The first at once, and one at each tick.
    assert_eq!(within(&bytes, 0, SECOND / 2), 50 * 4096);
    lab.world.stall(SECOND);
    let back = lab.world.now();
    lab.world.run(SECOND);
    let bytes = lab.world.bytes(guest);
    let after = within(&bytes, back, back + SECOND / 2);
    assert!((50 * 4096..=51 * 4096).contains(&after), "{after}");
    // IOPS and ceilings know no ticks.
    lab.turn(guest, Knob::Throttle(Throttle::AtMost(3_000_000)));
    let from = lab.world.now();
    lab.world.run(SECOND);
    let bytes = lab.world.bytes(guest);
    assert!(within(&bytes, from, from + SECOND).abs_diff(3_000_000) <= 2 * 4096);
}

#[test]
fn what_a_stall_took_is_made_good_at_a_tenth_more_and_up_to_two_seconds() {
    for (stall, lost) in [(1, 0), (5, 3)] {
        let mut lab = Lab::new(10_000, 1);
        let guest = lab.throttled(Throttle::Exactly(10_000_000));
        lab.world.load(guest, Op::Write, 4 * KIB, 4);
        lab.world.run(SECOND);
        lab.world.stall(stall * SECOND);
        let back = lab.world.now();
        lab.world.run(30 * SECOND);
        let bytes = lab.world.bytes(guest);
        let first = within(&bytes, back, back + SECOND);
        assert!((10_990_000..=11_020_000).contains(&first), "{first}");
        let due = (31 + stall - lost) * 10_000_000;
        let off = total(&bytes).abs_diff(due);
        assert!(off <= 2 * 4096, "{off} off after {stall} s");
        let last = within(&bytes, lab.world.now() - SECOND, lab.world.now());
        assert!(last.abs_diff(10_000_000) <= 4096, "{last}");
    }
}

#[test]
fn slots_of_a_batch_go_at_once_and_later_ones_as_before() {
    let batch = Nanos(300 * MS);
    for (throttle, repays) in [
        (Throttle::Exactly(10_000_000), true),
        (Throttle::AtMost(10_000_000), false),
    ] {
        let mut lab = Lab::batching(10_000, 1, batch);
        let guest = lab.throttled(throttle);
        lab.world.load(guest, Op::Write, 4 * KIB, 4);
        lab.world.run(SECOND);
        lab.world.stall(SECOND);
        let back = lab.world.now();
        lab.world.run(10 * SECOND);
        let bytes = lab.world.bytes(guest);
        // 300 ms at once and the 100 ms that pass, where it repays at a tenth more.
        let fast = if repays { 11_000_000 } else { 10_000_000 };
        let first = within(&bytes, back, back + 100 * MS);
        assert!(first.abs_diff(fast * 4 / 10) <= 3 * 4096, "{first}");
        let lost = if repays { 0 } else { 7_000_000 };
        let all = total(&bytes);
        assert!(all.abs_diff(12 * 10_000_000 - lost) <= 4 * 4096, "{all}");
    }
}

#[test]
fn who_asks_for_nothing_saves_nothing_up() {
    // With one request at a time the VM has none inside between two requests.
    let mut lab = Lab::new(1_000_000, 1);
    let guest = lab.throttled(Throttle::Exactly(2_000_000));
    lab.world.run(3 * SECOND);
    lab.world.load(guest, Op::Read, 4 * KIB, 1);
    lab.world.run(SECOND);
    let first = total(&lab.world.bytes(guest));
    assert!(
        first <= 2_000_000 + 8192,
        "{first}: nothing was due before it asked"
    );
    for _ in 0..5 {
        lab.world.pause(guest, 700 * MS);
        let from = lab.world.now();
        lab.world.run(300 * MS);
        let bytes = within(&lab.world.bytes(guest), from, lab.world.now());
        assert!(bytes <= 600_000 + 2 * 4096, "{bytes} in 300 ms");
    }
}

#[test]
fn a_flush_that_ends_a_quiet_time_does_not_save_it_up() {
    let mut lab = Lab::new(1_000_000, 1);
    let guest = lab.throttled(Throttle::Exactly(2_000_000));
    lab.world.load(guest, Op::Write, 4 * KIB, 2);
    lab.world.run(SECOND);
    lab.world.pause(guest, 5 * SECOND);
    let from = lab.world.time();
    let flush = lab.world.driver.request(guest.client, Request::flush(99));
    flush.expect("there is room");
    lab.world.run(SECOND);
    let bytes = within(&lab.world.bytes(guest), from.0, lab.world.now());
    assert!(bytes <= 2_000_000 + 2 * 4096, "{bytes}");
}

#[test]
fn under_a_ceiling_nothing_is_made_good() {
    let mut lab = Lab::new(10_000, 1);
    let guest = lab.throttled(Throttle::AtMost(10_000_000));
    lab.world.load(guest, Op::Read, 4 * KIB, 4);
    lab.world.run(SECOND);
    lab.world.stall(SECOND);
    let back = lab.world.now();
    lab.world.run(2 * SECOND);
    let bytes = within(&lab.world.bytes(guest), back, lab.world.now());
    assert!(bytes.abs_diff(20_000_000) <= 9_000 + 2 * 4096, "{bytes}");
}

#[test]
fn ios_are_the_devices_and_count_by_their_size_where_the_target_says_so() {
    for (norm, per_s) in [(None, 500), (Some(8 * KIB), 250)] {
        let mut lab = Lab::new(10_000, 4);
        let ops = Some(OpsRate { per_s: 500, norm });
        let target = Rate { ops, ..Rate::NONE };
        let guest = lab.world.guest(&precise(target));
        lab.turn(guest, Knob::Throttle(Throttle::Ios(500_000)));
        // Each goes in four I/Os of 16 KiB.
        lab.world.load(guest, Op::Read, 64 * KIB, 4);
        lab.world.run(4 * SECOND);
        let ios = lab.world.bytes(guest).len();
        assert!(ios.abs_diff(4 * per_s) <= 1, "{ios} with {norm:?}");
    }
}

#[test]
fn a_rate_that_rises_lets_its_vm_go_at_once_and_off_lets_it_free() {
    let mut lab = Lab::new(10_000, 0);
    let guest = lab.throttled(Throttle::Exactly(10_000));
    lab.world.load(guest, Op::Read, 64 * KIB, 16);
    lab.world.run(SECOND);
    assert_eq!(
        total(&lab.world.bytes(guest)),
        64 << 10,
        "the next is due after 6.5 s"
    );
    lab.turn(guest, Knob::Throttle(Throttle::Off));
    lab.world.run(SECOND);
    assert!(lab.world.bytes(guest).len() > 90_000);
}

#[test]
fn pages_bound_ios_of_vms_and_not_of_the_background() {
    let mut lab = Lab::new(10_000, 3);
    let guest = lab.world.guest(&Objective::default());
    let background = lab.world.background();
    for guest in [guest, background] {
        lab.world.load(guest, Op::Read, 64 * KIB, 1);
    }
    lab.world.run(MS);
    let sizes = |guest| lab.world.bytes(guest).into_iter().map(|b| b.1).take(6);
    assert_eq!(
        sizes(guest).collect::<Vec<_>>(),
        [12288, 12288, 12288, 12288, 12288, 4096]
    );
    assert!(sizes(background).all(|len| len == 65536));
}

#[test]
fn a_merge_limit_that_changes_leaves_what_is_in_flight_as_it_is() {
    let mut lab = Lab::new(SECOND, 16);
    let guest = lab.world.guest(&precise(Rate::bytes(1_000_000)));
    let ask = |lab: &mut Lab, page: u64| {
        let request = Request::read(page * 4096, 4096, u64::MAX);
        let taken = lab.world.driver.request(guest.client, request);
        taken.expect("there is room");
    };
    // All eight places are taken by one page each; the ninth to the twelfth wait, merged.
    (0..8).for_each(|page| {
        ask(&mut lab, 1000 * page);
        lab.world.run(1);
    });
    (0..4).for_each(|page| ask(&mut lab, 100_000 + page));
    lab.turn(guest, Knob::MergeLimit(2 * 4096));
    (4..8).for_each(|page| ask(&mut lab, 100_000 + page));
    lab.world.run(20 * SECOND);
    let sizes: Vec<u64> = lab.world.bytes(guest).iter().skip(8).map(|b| b.1).collect();
    assert_eq!(sizes, [8192; 4]);
    // The device's own bounds hold above, and come back.
    lab.turn(guest, Knob::MergeLimit(u32::MAX));
    (0..32).for_each(|page| ask(&mut lab, 200_000 + page));
    lab.world.run(20 * SECOND);
    assert_eq!(
        lab.world
            .bytes(guest)
            .iter()
            .skip(12)
            .map(|b| b.1)
            .collect::<Vec<_>>(),
        [65536; 2]
    );
}

#[test]
fn limits_hold_in_series_with_the_throttle() {
    let mut lab = Lab::new(10_000, 1);
    let limit = Limit::of_all(Rate::iops(1000));
    let objective = |target| Objective {
        limit,
        target,
        ..Objective::default()
    };
    let free = lab.world.guest(&objective(Rate::NONE));
    let slow = lab.world.guest(&objective(Rate::bytes(1_000_000)));
    lab.turn(slow, Knob::Throttle(Throttle::Exactly(1_000_000)));
    for guest in [free, slow] {
        lab.world.load(guest, Op::Read, 4 * KIB, 8);
    }
    lab.world.run(4 * SECOND);
    let sum = |guest| total(&lab.world.bytes(guest));
    assert!(sum(free).abs_diff(4000 * 4096) <= 2 * 4096, "{}", sum(free));
    assert!(sum(slow).abs_diff(4_000_000) <= 4096, "{}", sum(slow));
}

proptest! {
    /// Checks that the throttle passes no more than the rate so far, an I/O and a tenth of the lost
    /// amount, for any requests and any changes of the rate, and that a VM that always asks gets
    /// all of it.
    #[test]
    fn the_throttle_is_exact(
        rates in prop::collection::vec(50_000u64..3_000_000, 1..6),
        len in 1u32..64,
        stalls in prop::collection::vec(0u64..300, 6),
    ) {
        let mut lab = Lab::new(1_000, 4);
        let guest = lab.throttled(Throttle::Exactly(rates[0]));
        lab.world.load(guest, Op::Read, len * 1024, 8);
        let mut due = 0u128;
        for (&rate, &stall) in rates.iter().zip(&stalls) {
            lab.turn(guest, Knob::Throttle(Throttle::Exactly(rate)));
            lab.world.run(SECOND);
            due += u128::from(rate) * u128::from(SECOND);
            lab.world.stall(stall * MS);
            due += u128::from(rate) * u128::from(stall * MS);
            // Twelve times as long as the stall: enough to repay it at a tenth more.
            lab.world.run(12 * stall * MS);
            due += u128::from(rate) * u128::from(12 * stall * MS);
            let bytes = u128::from(total(&lab.world.bytes(guest)));
            let due = due / u128::from(SECOND);
            // Slots are carried over in time, not in bytes: at each turn an I/O's at the old rate.
            let most = 16384 * (1 + rates.iter().max().unwrap() / rates.iter().min().unwrap());
            let most = u128::from(most) * rates.len() as u128;
            prop_assert!(bytes.abs_diff(due) <= most, "{bytes} of {due}");
        }
    }
}
