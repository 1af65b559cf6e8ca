//! Tests of Virtual Bandwidth Control: against its rules in plain loops, and its behaviours.

use crate::common::credits::{self, Shared, Slow};
use crate::common::crowd::{self, Crowd, Rules};
use crate::common::*;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use tidegate_core::engine::{DeviceSpec, EngineConfig};
use tidegate_core::objective::{Objective, OpsRate, Rate};
use tidegate_core::policy::Policy;
use tidegate_core::request::{Op, Request};
use tidegate_core::roles::IntervalEnd;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_policies::regulate::proportion::{Proportions, Terms};

fn reserved(iops: u64) -> Objective {
    Objective {
        reservation: Rate::iops(iops),
        ..Objective::default()
    }
}

fn spec(name: &str, params: &[(&str, u64)]) -> PolicySpec {
    let mut spec = policy(name);
    for &(name, value) in params {
        spec.set(name, value).expect("in range");
    }
    spec
}

/// Creates a world whose regulator is compared with the model of its rules.
fn checked(params: &[(&str, u64)], config: EngineConfig, service: u64) -> (World, Shared) {
    let spec = spec("vbc+fifo", params);
    let slow = Arc::new(Mutex::new(Slow::new(credits::params(&spec))));
    let mut world = World::with_policy(config, &spec, service);
    world
        .driver
        .engine
        .wrap_roles(Nanos::ZERO, credits::beside(&slow));
    (world, slow)
}

fn served(world: &World, guest: Guest) -> u64 {
    total(&world.ops(guest))
}

// --- How many credits -------------------------------------------------------------------------

const TERMS: Terms = Terms {
    beta: 32,
    max_interval: 1 << 30,
    default_iops: 100,
    request_size: 16 << 10,
};

fn device() -> DeviceSpec {
    config(1, 0).device
}

fn grants(terms: Terms, objectives: &[Objective]) -> Vec<u32> {
    let mut due = Proportions::new(terms);
    for (slot, objective) in objectives.iter().enumerate() {
        due.set(slot, objective, &device());
    }
    (0..objectives.len()).map(|slot| due.grant(slot)).collect()
}

#[test]
fn credits_are_in_the_exact_proportion_of_reservations() {
    let of = |terms, iops: &[u64]| {
        grants(
            terms,
            &iops.iter().map(|&b| reserved(b)).collect::<Vec<_>>(),
        )
    };
    // 32 x 7/3 = 74.67, 32 x 11/3 = 117.33.
    assert_eq!(of(TERMS, &[700, 300, 1100]), [75, 32, 117]);
    // The paper's 1000 and 120 IOPS, "8:1".
    assert_eq!(of(TERMS, &[1000, 120]), [267, 32]);
    // A ratio that no 64-bit float holds: 2^50 - 1 to 3.
    let beta = Terms { beta: 3, ..TERMS };
    assert_eq!(of(beta, &[(1 << 50) - 1, 3]), [1 << 30, 1]);
    // Exactly half a credit is rounded up: 3 x 3/2.
    assert_eq!(of(beta, &[3, 2]), [5, 3]);
}

#[test]
fn the_longest_interval_bounds_what_is_granted() {
    let of = |max_interval, iops: &[u64]| {
        let terms = Terms {
            max_interval,
            ..TERMS
        };
        grants(
            terms,
            &iops.iter().map(|&b| reserved(b)).collect::<Vec<_>>(),
        )
    };
    // 100 x 7/21, 3/21 and 11/21.
    assert_eq!(of(100, &[700, 300, 1100]), [33, 14, 52]);
    // 32 x (7 + 3 + 11) / 3 = 224 is the first that is not reached by it.
    assert_eq!(of(225, &[700, 300, 1100]), [75, 32, 117]);
    assert_eq!(of(224, &[700, 300, 1100]), [75, 32, 117]);
    assert_eq!(of(223, &[700, 300, 1100]), [74, 32, 117]);
    // Never less than one.
    assert_eq!(of(10, &[1, 100_000]), [1, 10]);
    // Unknown device; a disk of 100 MB/s moves 12,207 requests of 16 KiB in 2 s.
    let terms = Terms {
        max_interval: 0,
        ..TERMS
    };
    assert_eq!(terms.max_interval(&device()), 20_000);
    let disk = DeviceSpec {
        bytes_per_s: 100_000_000,
        ..device()
    };
    assert_eq!(terms.max_interval(&disk), 12_207);
}

#[test]
fn every_kind_of_reservation_counts_in_requests() {
    let rate = |ops: Option<(u64, u32)>, bytes| Objective {
        reservation: Rate {
            ops: ops.map(|(per_s, norm)| OpsRate {
                per_s,
                norm: (norm > 0).then_some(norm),
            }),
            bytes_per_s: bytes,
        },
        ..Objective::default()
    };
    let all = [
        // The same, whatever it is normalised to.
        rate(Some((100, 0)), None),
        rate(Some((100, 65_536)), None),
        // 100 requests of 16 KiB.
        rate(None, Some(1_638_400)),
        // The larger of both.
        rate(Some((100, 0)), Some(16_384)),
        rate(Some((1, 0)), Some(1_638_400)),
        // None: 100 IOPS.
        rate(None, None),
    ];
    assert_eq!(grants(TERMS, &all), [32; 6]);
    let half = rate(None, Some(8192));
    assert_eq!(grants(TERMS, &[half, reserved(2)]), [32, 128]);
}

proptest! {
    #[test]
    fn grants_keep_to_their_bounds(
        iops in prop::collection::vec(1u64..100_000, 1..20),
        beta in 1u32..300,
        max_interval in 1u32..5000,
    ) {
        let terms = Terms { beta, max_interval, ..TERMS };
        let all: Vec<Objective> = iops.iter().map(|&b| reserved(b)).collect();
        let grants = grants(terms, &all);
        let granted: u64 = grants.iter().map(|&a| a as u64).sum();
        prop_assert!(granted <= max_interval as u64 + iops.len() as u64);
        // Each is within half a credit of the exact figure, or one.
        let (least, sum) = (iops.iter().min().expect("one"), iops.iter().sum::<u64>());
        let factor = (beta as f64 / *least as f64).min(max_interval as f64 / sum as f64);
        for (&b, &a) in iops.iter().zip(&grants) {
            let exact = b as f64 * factor;
            prop_assert!((a as f64 - exact).abs() <= 0.5 + 1e-6 || (a == 1 && exact < 1.0));
        }
    }
}

// --- What they do -----------------------------------------------------------------------------

#[test]
fn backlogged_vms_are_served_in_the_proportion_of_their_reservations() {
    let (mut world, slow) = checked(&[], config(1, 0), MS);
    let guests = [700, 300, 1100].map(|iops| world.guest(&reserved(iops)));
    for guest in guests {
        world.load(guest, Op::Read, 4096, 16);
    }
    world.run(10 * SECOND);
    let slow = slow.lock().expect("no panic before");
    let turns: Vec<_> = slow
        .intervals
        .iter()
        .filter(|(end, _)| *end == IntervalEnd::Turn)
        .collect();
    assert!(turns.len() > 40, "{}", turns.len());
    for (_, spent) in turns {
        let spent = guests.map(|guest| spent[&guest.vm]);
        assert_eq!(spent, [75, 32, 117]);
    }
    drop(slow);
    let got = guests.map(|guest| served(&world, guest));
    assert_eq!(got.iter().sum::<u64>(), 10_000);
    for (got, due) in got.into_iter().zip([75, 32, 117]) {
        // At most one turn's credits away.
        assert!(got.abs_diff(10_000 * due / 224) <= due, "{got}");
    }
}

#[test]
fn a_vm_with_more_requests_waiting_gets_no_more() {
    let (mut world, _) = checked(&[], config(1, 0), MS);
    let (a, b) = (world.guest(&reserved(100)), world.guest(&reserved(300)));
    world.load(a, Op::Read, 4096, 1000);
    world.load(b, Op::Read, 4096, 100);
    world.run(20 * SECOND);
    let got = [served(&world, a), served(&world, b)];
    assert!(got[0].abs_diff(5000) < 200, "{got:?}");
}

#[test]
fn a_vm_alone_is_not_held_by_one_that_is_quiet() {
    let (mut world, _) = checked(&[], config(4, 0), MS);
    let alone = world.guest(&reserved(50));
    let idle = world.guest(&reserved(5000));
    world.keep_done = true;
    // The other one was there once, and is quiet since long before.
    world.load(idle, Op::Read, 4096, 1);
    world.run(10 * MS);
    world.unload(idle);
    world.run(SECOND);
    world.done.clear();
    world.load(alone, Op::Read, 4096, 64);
    world.run(SECOND);
    assert_eq!(world.done.len(), 999);
    for done in &world.done {
        assert_eq!(done.account.regulated, Nanos::ZERO, "{done:?}");
    }
    assert_eq!(served(&world, idle), 10);
}

/// Issues a request of each guest every `every` ns, without waiting for answers.
fn open_loop(world: &mut World, guests: &[Guest], every: u64, until: u64) {
    let begin = world.now();
    let step = every / guests.len() as u64;
    let mut n = 0;
    while world.now() < begin + until {
        let guest = guests[n % guests.len()];
        let request = Request::read((n as u64 % 1000) << 21, 4096, u64::MAX);
        let taken = world.driver.request(guest.client, request);
        taken.expect("there is room");
        n += 1;
        world.run(step);
    }
}

#[test]
fn a_thousand_vms_of_ten_requests_a_second_hold_nobody_up() {
    let config = EngineConfig {
        max_vms: 1000,
        ..config(1, 0)
    };
    // Twice as fast as they ask.
    let mut world = World::with_policy(config, &policy("vbc+fifo"), 50_000);
    world.keep_done = true;
    let guests: Vec<Guest> = (0..1000).map(|_| world.guest(&reserved(10))).collect();
    open_loop(&mut world, &guests, 100 * MS, SECOND);
    world.run(MS);
    assert_eq!(world.done.len(), 10_000);
    for done in &world.done {
        assert_eq!(done.account.regulated, Nanos::ZERO, "{done:?}");
    }
}

#[test]
fn a_grant_that_reopens_very_many_vms_does_not_nest() {
    const VMS: u32 = 20_000;
    let config = EngineConfig {
        max_vms: VMS,
        max_requests: 16 * VMS,
        ..config(4096, 0)
    };
    let mut world = World::with_policy(config, &spec("vbc+fifo", &[("beta", 1)]), 10);
    world.keep_done = true;
    let guests: Vec<Guest> = (0..VMS).map(|_| world.guest(&reserved(10))).collect();
    // One credit each, so the second requests of all are let in at once.
    for n in 0..2 {
        for guest in &guests {
            let request = Request::read(n << 21, 4096, u64::MAX);
            let taken = world.driver.request(guest.client, request);
            taken.expect("there is room");
        }
    }
    world.run(SECOND);
    assert_eq!(world.done.len(), 2 * VMS as usize);
}

/// Runs a guest with one request at a time and a think time. Returns the requests it issued.
fn synchronous(world: &mut World, guest: Guest, think: u64, until: u64) -> u64 {
    let end = world.now() + until;
    let mut n = 0;
    world.keep_done = true;
    while world.now() < end {
        let request = Request::read(n << 21, 4096, u64::MAX);
        let taken = world.driver.request(guest.client, request);
        taken.expect("there is room");
        n += 1;
        while !world.done.iter().any(|done| done.vm == guest.vm) {
            world.run(50_000);
        }
        world.done.clear();
        world.run(think);
    }
    n
}

#[test]
fn a_slow_synchronous_vm_beside_a_fast_one() {
    // It thinks a little longer than by default anybody is waited for.
    let patient = [("wait_for", SECOND)];
    let (mut world, _) = checked(&patient, config(1, 0), MS);
    let (slow, fast) = (world.guest(&reserved(50)), world.guest(&reserved(200)));
    world.load(fast, Op::Read, 4096, 16);
    let asked = synchronous(&mut world, slow, 10 * MS, 10 * SECOND);
    // Everybody has what it reserved; the slow one lets go 20 ms after it has stopped.
    assert!(asked > 50 * 10, "{asked}");
    let got = served(&world, fast);
    assert!(got >= 200 * 10, "{got}");
    let before = served(&world, fast);
    world.run(SECOND);
    let after = served(&world, fast) - before;
    assert!(after >= 970, "{after}");
}

#[test]
fn nobody_waits_for_unused_credit_beyond_the_interval_in_which_all_could_have_had_it() {
    // 32 credits at 100 IOPS: 320 ms. The first I/O of the slow one takes 10 s.
    let (mut world, slow_rules) = checked(&[], config(2, 0), 10 * SECOND);
    let (slow, fast) = (world.guest(&reserved(100)), world.guest(&reserved(100)));
    world.load(slow, Op::Read, 4096, 1);
    world.run(MS);
    world.unload(slow);
    let begin = world.now();
    for n in 0..100 {
        let request = Request::read(n << 21, 4096, u64::MAX);
        let taken = world.driver.request(fast.client, request);
        taken.expect("there is room");
    }
    let view = world.driver.engine.view();
    assert!(view.pending_head(fast.vm).is_some() && !view.may_enter(fast.vm));
    let turn = slow_rules
        .lock()
        .expect("no panic before")
        .ends(Nanos(begin));
    assert_eq!(turn, Nanos(320 * MS));
    world.run(319 * MS - 1);
    assert!(world.driver.engine.view().pending_head(fast.vm).is_some());
    // 32 more then, and 32 each as often, though nothing ends.
    world.run(2);
    let spent = |slow: &Shared| slow.lock().expect("no panic before").vms[&fast.vm].spent;
    assert_eq!(spent(&slow_rules), 64);
    world.run(2 * 320 * MS);
    assert_eq!(spent(&slow_rules), 100);
    world.device.service = MS;
}

#[test]
fn without_a_bound_on_intervals_credit_is_used_in_full_proportion() {
    // 267 credits to 32, and a device on which the first VM's take longer than 32 / 120 s. One
    // request at a time, so that the VM often has none that waits when the others are dry.
    let share = |bound: u64| {
        let (mut world, _) = checked(&[("bound_intervals", bound)], config(1, 0), 2 * MS);
        let (much, little) = (world.guest(&reserved(1000)), world.guest(&reserved(120)));
        world.load(much, Op::Read, 4096, 1);
        world.load(little, Op::Read, 4096, 8);
        world.run(20 * SECOND);
        served(&world, much) as f64 / served(&world, little) as f64
    };
    let (free, bound) = (share(0), share(1));
    assert!((free - 267.0 / 32.0).abs() < 0.5, "{free}");
    assert!(bound < 5.0, "{bound}");
}

#[test]
fn by_the_letter_nobody_is_waited_for() {
    let (mut world, _) = checked(&[("literal", 1)], config(1, 0), MS);
    let (slow, fast) = (world.guest(&reserved(50)), world.guest(&reserved(200)));
    world.load(fast, Op::Read, 4096, 16);
    let asked = synchronous(&mut world, slow, 10 * MS, 5 * SECOND);
    assert!(served(&world, fast) + asked >= 4900);
}

#[test]
fn a_unit_of_merged_requests_costs_as_many_and_may_go_into_debt() {
    let (mut world, slow) = checked(&[("beta", 4)], config(1, 64 * KIB), MS);
    let (a, b) = (world.guest(&reserved(100)), world.guest(&reserved(100)));
    let left = |slow: &Shared| slow.lock().expect("no panic before").vms[&a.vm].left;
    let ask = |world: &mut World, guest: Guest, block: u64| {
        let request = Request::read(block * 4096, 4096, u64::MAX);
        let taken = world.driver.request(guest.client, request);
        taken.expect("there is room");
    };
    // Two far apart, and three that join the second once it is admitted.
    for block in [1000, 0, 1, 2, 3] {
        ask(&mut world, a, block);
    }
    assert_eq!(left(&slow), -1);
    assert!(!world.driver.engine.view().may_enter(a.vm));
    // Six that merge while they wait for admission: all at once, when the turn comes.
    for block in 2000..2006 {
        ask(&mut world, a, block);
    }
    assert_eq!(left(&slow), -1);
    // The other VM has credit left, and something waiting.
    ask(&mut world, b, 0);
    assert!(world.driver.engine.view().pending_head(a.vm).is_some());
    world.run(20 * MS);
    // 4 - 1 - 6: three in debt, which the idle moment behind it forgives.
    let slow = slow.lock().expect("no panic before");
    assert_eq!(slow.vms[&a.vm].spent, 11);
    let debts: Vec<i64> = slow.intervals.iter().map(|(_, s)| s[&a.vm]).collect();
    assert_eq!(debts.iter().sum::<i64>(), 11);
    assert!(debts.contains(&6), "{debts:?}");
    drop(slow);
    assert_eq!(served(&world, a), 11);
}

#[test]
fn the_parts_of_a_large_request_cost_one_credit() {
    let (mut world, slow) = checked(&[], config(1, 0), MS);
    let a = world.guest(&reserved(100));
    let request = Request::read(0, 8 << 20, u64::MAX);
    let taken = world.driver.request(a.client, request);
    taken.expect("there is room");
    world.run(20 * MS);
    assert_eq!(world.driver.log.len(), 8);
    assert_eq!(slow.lock().expect("no panic before").vms[&a.vm].spent, 1);
}

#[test]
fn background_processes_take_no_credits_and_hold_nobody_up() {
    let (mut world, slow) = checked(&[("beta", 1)], config(1, 0), MS);
    let a = world.guest(&reserved(10));
    let vm = world
        .driver
        .try_background(&Objective::default())
        .expect("room");
    let client = world.driver.guest_at(vm, 1 << 50, 1 << 30).client;
    for n in 0..20 {
        let request = Request::read(n << 21, 4096, u64::MAX);
        let taken = world.driver.request(client, request);
        taken.expect("there is room");
    }
    assert!(world.driver.engine.view().may_enter(vm));
    world.load(a, Op::Read, 4096, 4);
    world.run(100 * MS);
    assert_eq!(world.driver.log.len(), 100);
    assert!(!slow.lock().expect("no panic before").vms.contains_key(&vm));
    world.driver.disconnect(client);
}

// --- Anything, in any order -------------------------------------------------------------------

/// Reservations of all kinds, with the model of the rules.
struct Reserved(Shared);

impl Rules for Reserved {
    fn objective(&self, n: usize) -> Objective {
        let n = n % 6;
        let mut objective = reserved([700, 300, 1100, 1, 50, 300][n]);
        match n {
            3 => objective.reservation = Rate::NONE,
            4 => objective.reservation.bytes_per_s = Some(3_000_001),
            5 => objective.latency = Some(Nanos::from_millis(3)),
            _ => {}
        }
        objective
    }

    fn swaps(&mut self, to: &PolicySpec) {
        if to.parts().1 == "vbc" {
            credits::announce(&self.0, to);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(400),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Checks that regulator and model agree about everybody's credit and the interval's end after
    /// every event, and that the books balance.
    #[test]
    fn it_keeps_its_rules_under_anything(
        depth in 1u32..6,
        beta in 1u64..12,
        max_interval in prop_oneof![Just(0u64), 5u64..200],
        literal in any::<bool>(),
        bound_intervals in any::<bool>(),
        steps in prop::collection::vec(crowd::step(20_000), 0..250),
    ) {
        let bound = ("bound_intervals", u64::from(bound_intervals));
        let params = [("beta", beta), ("max_interval", max_interval), bound];
        let other = [("beta", 32), ("literal", u64::from(literal)), bound];
        let policies = vec![
            spec("vbc+fifo", &params),
            spec("credit-feedback+vbc+fifo", &params),
            spec("credit-feedback+vbc+sfq", &other),
            policy("token-bucket+mclock"),
        ];
        let slow = Arc::new(Mutex::new(Slow::new(credits::params(&policies[0]))));
        let wrap = credits::beside(&slow);
        let mut crowd = Crowd::new(depth, policies, Reserved(slow), wrap);
        for step in steps {
            crowd.act(step);
        }
        crowd.drain();
    }
}
