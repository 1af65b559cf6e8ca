//! Tests of CIRC: against its rules in plain loops over all VMs, and its behaviours.

mod plain;
mod rules;

use crate::common::crowd::{self, BLOCK, Crowd, GUESTS, Rules, Step};
use crate::common::*;
use proptest::prelude::*;
use rules::{CREDIT, Plan, Shared, Slow, regulated};
use std::sync::{Arc, Mutex};
use tidegate_core::engine::EngineConfig;
use tidegate_core::objective::Objective;
use tidegate_core::request::{Op, Request, VmId};
use tidegate_core::time::Nanos;
use tidegate_policies::regulate::circ::CircParams;

const PERIOD: u64 = 30 * MS;

const PARAMS: CircParams = CircParams {
    period: Nanos(PERIOD),
    burst: 2,
    smoothing: 4,
    slices: 1,
};

/// World under CIRC whose allocations are set by hand.
struct Hand {
    world: World,
    slow: Shared,
    plan: Arc<Mutex<Plan>>,
}

impl Hand {
    /// Creates a world with a device of depth 64 that takes a microsecond an I/O.
    fn new() -> Hand {
        Hand::of(config(64, 0), "open+fifo", 1000)
    }

    fn of(config: EngineConfig, policy: &str, service: u64) -> Hand {
        Hand::with(PARAMS, config, policy, service)
    }

    fn with(params: CircParams, config: EngineConfig, policy: &str, service: u64) -> Hand {
        let slow = Arc::new(Mutex::new(Slow::new(params)));
        let plan = Arc::new(Mutex::new(Plan::default()));
        let mut world = World::with_config(config, policy, service);
        let wrap = regulated(&slow, &plan);
        world.driver.engine.wrap_roles(Nanos::ZERO, wrap);
        Hand { world, slow, plan }
    }

    /// Adds a VM with an allocation in thousandths of a request a second.
    fn guest(&mut self, allocation: u64) -> Guest {
        let guest = self.world.guest(&Objective::default());
        self.turn(guest, allocation);
        guest
    }

    fn turn(&mut self, guest: Guest, allocation: u64) {
        let mut plan = self.plan.lock().expect("no panic before");
        plan.now.push((guest.vm, allocation));
        drop(plan);
        // The controller hears of the VM.
        self.world.set(guest, &Objective::default());
    }

    fn turn_at_the_end(&self, guest: Guest, allocation: u64) {
        let mut plan = self.plan.lock().expect("no panic before");
        plan.then.push_back((guest.vm, allocation));
    }

    fn ask(&mut self, guest: Guest, count: u64) {
        for n in 0..count {
            let request = Request::read(n << 21, BLOCK, u64::MAX);
            let taken = self.world.driver.request(guest.client, request);
            taken.expect("there is room");
        }
    }

    fn rules<R>(&self, look: impl FnOnce(&Slow) -> R) -> R {
        look(&self.slow.lock().expect("no panic before"))
    }

    fn spent(&self, guest: Guest) -> u64 {
        self.rules(|slow| slow.vms[&guest.vm].spent_in_all)
    }

    fn credit(&self, guest: Guest) -> Option<i128> {
        self.rules(|slow| slow.credit(guest.vm))
    }

    /// Returns `true` if a request of the VM waits for admission.
    fn waits(&self, guest: Guest) -> bool {
        let view = self.world.driver.engine.view();
        view.pending_head(guest.vm).is_some()
    }

    fn served(&self, guest: Guest) -> u64 {
        total(&self.world.ops(guest))
    }
}

#[test]
fn a_periods_credits_are_handed_out_slice_by_slice() {
    let params = CircParams {
        slices: 10,
        ..PARAMS
    };
    let mut hand = Hand::with(params, config(64, 0), "open+fifo", 1000);
    // A thousand credits a period, a hundred a slice.
    let guest = hand.guest(33_333_334);
    hand.world.load(guest, Op::Read, BLOCK, 80);
    // The burst that it comes with goes at once.
    hand.world.run(PERIOD);
    let mut before = hand.spent(guest);
    assert!((2_990..=3_000).contains(&before), "{before}");
    for slice in 0..40 {
        hand.world.run(PERIOD / 10);
        let spent = hand.spent(guest);
        let of_slice = spent - before;
        assert!((99..=101).contains(&of_slice), "{slice}: {of_slice}");
        before = spent;
    }
}

// --- What is granted --------------------------------------------------------------------------

#[test]
fn an_allocation_is_kept_exactly_over_ten_thousand_periods() {
    // In thousandths: 0.157, 1.111, 9.999, 33.333 and 234.567 requests a second.
    for allocation in [157, 1_111, 9_999, 33_333, 234_567] {
        let mut hand = Hand::new();
        let guest = hand.guest(allocation);
        hand.world.load(guest, Op::Read, BLOCK, 80);
        // The burst it comes with, and in each period what it is granted.
        let mut exact = i128::from(allocation) * i128::from(2 * PERIOD);
        exact = exact.max(CREDIT);
        for _ in 0..10_000 {
            exact += i128::from(allocation) * i128::from(PERIOD);
            hand.world.run(PERIOD);
        }
        let allowed = (exact / CREDIT) as u64;
        assert_eq!(hand.spent(guest), allowed, "{allocation}");
        assert!(hand.waits(guest));
    }
}

#[test]
fn below_a_request_a_period_the_first_goes_at_once_and_the_rest_in_time() {
    let mut hand = Hand::new();
    // 5 a second: one in every 6.67 periods.
    let guest = hand.guest(5_000);
    hand.ask(guest, 10);
    assert_eq!(hand.spent(guest), 1);
    hand.world.run(2 * SECOND);
    assert_eq!(hand.spent(guest), 10);
    // 0.2 s each behind the first, at the ends of periods.
    let at: Vec<u64> = hand.world.ops(guest).iter().map(|op| op.0).collect();
    let due = |n: u64| (n * 200 * MS).div_ceil(PERIOD).saturating_sub(1) * PERIOD;
    let expected: Vec<u64> = (0..10).map(due).collect();
    assert_eq!(at, expected);
}

#[test]
fn nothing_known_is_no_reason_to_stop() {
    let mut hand = Hand::new();
    let guest = hand.world.guest(&Objective::default());
    hand.ask(guest, 500);
    assert!(!hand.waits(guest));
    hand.world.run(MS);
    assert_eq!(hand.served(guest), 500);
    // The VM is held from its first allocation on, which is set at the end of the period: three
    // requests a period. It is quiet by then, so it starts with a burst of six.
    hand.turn_at_the_end(guest, 100_000);
    hand.world.run(PERIOD);
    hand.ask(guest, 20);
    assert_eq!(hand.spent(guest), 9);
    assert!(hand.waits(guest));
    hand.world.run(SECOND);
    assert_eq!(hand.spent(guest), 20);
    // A VM that is not quiet gets no burst.
    let other = hand.world.guest(&Objective::default());
    hand.world.load(other, Op::Read, BLOCK, 1000);
    hand.world.run(MS);
    hand.turn_at_the_end(other, 100_000);
    hand.world.run(PERIOD);
    assert_eq!(hand.spent(other), 3);
    assert!(hand.waits(other));
}

#[test]
fn a_knob_counts_from_when_it_is_turned() {
    let mut hand = Hand::new();
    let guest = hand.guest(1_000_000);
    hand.ask(guest, 600);
    // Two periods' credits saved up, and those of this period.
    assert_eq!(hand.spent(guest), 90);
    // Twice the allocation for the last third of the period: 10 more credits, which are usable when
    // the next one begins.
    hand.world.run(20 * MS);
    hand.turn(guest, 2_000_000);
    assert_eq!(hand.credit(guest), Some(10 * CREDIT));
    // A knob at the end of a period counts for all of the next one.
    hand.turn_at_the_end(guest, 3_000_000);
    hand.world.run(10 * MS + 1);
    assert_eq!(hand.spent(guest), 90 + 10 + 90);
    // Less than the period's past grant: the difference becomes a debt.
    hand.turn(guest, 1_000_000);
    assert!(hand.credit(guest) < Some(-59 * CREDIT));
    hand.world.run(2 * PERIOD);
    assert_eq!(hand.spent(guest), 190);
    hand.world.run(PERIOD);
    assert_eq!(hand.spent(guest), 190 + 30);
}

#[test]
fn a_driver_that_stalls_is_not_paid_for_it() {
    let mut hand = Hand::new();
    let guest = hand.guest(1_000_000);
    hand.ask(guest, 1000);
    hand.world.run(1);
    let ended = hand.rules(|slow| slow.ended);
    // A slightly late period makes the next one shorter by as much.
    hand.world.stall(PERIOD + 10 * MS);
    hand.world.run(1);
    assert_eq!(hand.spent(guest), 120);
    hand.world.run(20 * MS);
    assert_eq!(hand.spent(guest), 150);
    assert_eq!(hand.rules(|slow| slow.ended), ended + 2);
    // A very late period ends once, and the next one begins now.
    hand.world.stall(10 * SECOND);
    hand.world.run(PERIOD - 1);
    assert_eq!(hand.spent(guest), 180);
    assert_eq!(hand.rules(|slow| slow.ended), ended + 3);
}

// --- Bursts -----------------------------------------------------------------------------------

#[test]
fn an_inactive_vm_comes_back_with_a_burst_up_to_the_threshold() {
    let mut hand = Hand::new();
    let (a, _) = (hand.guest(1_000_000), hand.guest(1_000_000));
    hand.ask(a, 200);
    hand.world.run(SECOND);
    // Quiet for more than two periods: the VM is inactive, and no timer runs.
    assert_eq!(hand.credit(a), None);
    assert_eq!(hand.world.driver.engine.next_timeout(), None);
    hand.world.run(SECOND);
    let before = hand.spent(a);
    hand.ask(a, 200);
    // 60 credits of the burst, and 30 of the new period.
    assert_eq!(hand.spent(a) - before, 90);
    // Quiet for one period, it has not saved as much, and not a credit more than it may.
    let mut hand = Hand::new();
    let a = hand.guest(1_000_000);
    hand.ask(a, 90);
    hand.world.run(PERIOD + MS);
    assert_eq!(hand.credit(a), Some(30 * CREDIT));
    hand.world.run(PERIOD);
    assert_eq!(hand.credit(a), Some(60 * CREDIT));
    hand.ask(a, 200);
    assert_eq!(hand.spent(a), 90 + 60);
}

#[test]
fn a_vm_with_something_in_flight_stays_active_at_the_threshold() {
    // One I/O takes half a second.
    let mut hand = Hand::of(config(64, 0), "open+fifo", 500 * MS);
    let a = hand.guest(1_000_000);
    hand.ask(a, 1);
    hand.world.run(400 * MS);
    assert!(hand.credit(a) >= Some(60 * CREDIT));
    hand.world.run(400 * MS);
    assert_eq!(hand.credit(a), None);
}

#[test]
fn allocations_of_zero() {
    let mut hand = Hand::new();
    let a = hand.guest(1_000_000);
    let zero = hand.guest(0);
    // Without any other allocation before, the burst is one credit: one request passes, the next
    // waits.
    hand.ask(zero, 5);
    assert_eq!(hand.spent(zero), 1);
    hand.world.run(SECOND);
    assert_eq!(hand.spent(zero), 1);
    hand.turn_at_the_end(zero, 100_000);
    hand.world.run(PERIOD);
    assert_eq!(hand.spent(zero), 1 + 3);
    // With an allocation of 0 and nothing inside, a VM keeps its right to a burst.
    hand.ask(a, 60);
    hand.world.run(MS);
    hand.turn(a, 0);
    hand.world.run(5 * PERIOD);
    assert_eq!(hand.credit(a), None);
    let before = hand.spent(a);
    hand.ask(a, 100);
    assert_eq!(hand.spent(a) - before, 60);
    // With an allocation of 0 and requests waiting, it is granted nothing.
    hand.world.run(SECOND);
    assert_eq!(hand.spent(a) - before, 60);
    hand.turn_at_the_end(a, 1_000_000);
    hand.world.run(2 * PERIOD);
    assert_eq!(hand.spent(a) - before, 100);
}

#[test]
fn a_vm_that_was_counted_out_comes_back_with_the_burst_of_its_new_allocation() {
    let mut hand = Hand::new();
    let vm = hand.guest(1_000_000);
    hand.turn(vm, 0);
    hand.world.run(5 * PERIOD);
    hand.ask(vm, 1);
    hand.turn(vm, 100_000);
    // A burst of six, and three credits of this period.
    let most = 9 * CREDIT;
    let credit = hand.credit(vm);
    assert!(credit.is_some_and(|credit| credit <= most), "{credit:?}");
    // A lower allocation takes nothing from a VM whose allocation was never 0.
    let other = hand.guest(1_000_000);
    hand.ask(other, 1);
    hand.turn(other, 100_000);
    assert!(
        hand.credit(other)
            .is_some_and(|credit| credit > 50 * CREDIT)
    );
}

// --- What is not used -------------------------------------------------------------------------

#[test]
fn an_idle_vm_holds_nobody_back_beyond_the_window() {
    let mut hand = Hand::new();
    let (busy, idle) = (hand.guest(1_000_000), hand.guest(3_000_000));
    let all = hand.guest(1_000_000);
    // The VM uses up its burst, and stops.
    hand.ask(idle, 270);
    for guest in [busy, all] {
        hand.world.load(guest, Op::Read, BLOCK, 900);
    }
    hand.world.run(MS);
    // Two periods until the VM reaches its threshold, then four of the moving mean.
    hand.world.run(6 * PERIOD);
    let before = [hand.spent(busy), hand.spent(all)];
    hand.world.run(10 * PERIOD);
    let after = [hand.spent(busy), hand.spent(all)];
    // 5000 a second, shared by the two.
    assert_eq!(after[0] - before[0], 10 * 75);
    assert_eq!(after[1] - before[1], 10 * 75);
    // The VM returns and gets its own credits at once, and the burst.
    hand.ask(idle, 900);
    let left = 180 + 90 - 3;
    assert!(hand.spent(idle) >= 270 + left, "{}", hand.spent(idle));
}

#[test]
fn what_is_given_away_goes_by_allocations_and_is_smoothed() {
    let mut hand = Hand::new();
    let (a, b) = (hand.guest(1_000_000), hand.guest(3_000_000));
    let gives = hand.guest(1_600_000);
    for guest in [a, b] {
        hand.world.load(guest, Op::Read, BLOCK, 900);
    }
    let mut had = Vec::new();
    hand.world.run(MS);
    for _ in 0..7 {
        hand.world.run(PERIOD);
        let of = |guest: Guest| hand.rules(|slow| slow.vms[&guest.vm].from_others);
        had.push([of(a), of(b)]);
    }
    let _ = gives;
    // 48 credits a period from the third one on: a quarter after the first period, and so on.
    let steps: Vec<[i128; 2]> = had
        .windows(2)
        .map(|w| [w[1][0] - w[0][0], w[1][1] - w[0][1]])
        .collect();
    let quarter = |n: i128| [n * 3 * CREDIT, n * 9 * CREDIT];
    assert_eq!(had[0], quarter(1));
    let expected: Vec<[i128; 2]> = [2, 3, 4, 4, 4, 4].map(quarter).to_vec();
    assert_eq!(steps, expected);
}

#[test]
fn what_nobody_wants_lapses_and_what_is_wanted_is_not_lost() {
    let mut hand = Hand::new();
    let (a, b) = (hand.guest(1_000_000), hand.guest(1_000_000));
    // Both VMs use half of their allocations: nothing is passed on, and nothing accumulates.
    for _ in 0..1000 {
        hand.ask(a, 1);
        hand.ask(b, 1);
        hand.world.run(2 * MS);
    }
    let from_others = |hand: &Hand, g: Guest| hand.rules(|slow| slow.vms[&g.vm].from_others);
    assert_eq!(from_others(&hand, a) + from_others(&hand, b), 0);
    // One VM wants more: it gets its savings, then all that the other VM leaves, and besides only
    // the credits on their way at the beginning: 30 of each of the last four periods.
    let before = hand.spent(a);
    hand.world.load(a, Op::Read, BLOCK, 900);
    for _ in 0..1500 {
        hand.ask(b, 1);
        hand.world.run(2 * MS);
    }
    let got = hand.spent(a) - before;
    assert!((4500..=4500 + 60 + 30 * 6 / 4).contains(&got), "{got}");
}

#[test]
fn allocations_that_add_up_to_the_device_keep_it_busy() {
    // A device of 1000 requests a second. One VM is below a request a period, one comes and goes.
    let mut hand = Hand::of(config(1, 0), "open+sfq", MS);
    let (a, b) = (hand.guest(600_000), hand.guest(370_000));
    let slow = hand.guest(10_000);
    let comes_and_goes = hand.guest(20_000);
    for guest in [a, b, slow] {
        hand.world.load(guest, Op::Read, BLOCK, 200);
    }
    hand.world.run(SECOND);
    let (began, all) = (hand.world.now(), hand.world.driver.log.len());
    let before = [a, b, slow].map(|guest| hand.spent(guest));
    for _ in 0..50 {
        hand.ask(comes_and_goes, 1);
        hand.world.run(200 * MS);
    }
    let went = hand.world.driver.log.len() - all;
    assert_eq!(hand.world.now() - began, 10 * SECOND);
    assert!(went >= 9_990, "{went}");
    // The 15 a second that the last one leaves are divided as the rest is.
    let got = [a, b, slow].map(|guest| hand.spent(guest));
    for (n, share) in [600, 370, 10].into_iter().enumerate() {
        let due = share * 10 + share * 150 / 980;
        let got = got[n] - before[n];
        assert!(got.abs_diff(due) <= 30, "{n}: {got}, due {due}");
    }
}

// --- What is charged --------------------------------------------------------------------------

#[test]
fn merged_requests_cost_one_each_and_parts_nothing_more() {
    let mut hand = Hand::of(config(1, 64 * KIB), "open+fifo", MS);
    let a = hand.guest(100_000);
    let ask = |hand: &mut Hand, request: Request| {
        let taken = hand.world.driver.request(a.client, request);
        taken.expect("there is room");
    };
    let block = |n: u64| Request::read(n * u64::from(BLOCK), BLOCK, u64::MAX);
    // 9 credits. The second waits behind the first, and three join it.
    for n in [1000, 0, 1, 2, 3] {
        ask(&mut hand, block(n));
    }
    assert_eq!(hand.credit(a), Some(4 * CREDIT));
    // Eight parts.
    ask(&mut hand, Request::read(1 << 30, 8 << 20, u64::MAX));
    assert_eq!(hand.credit(a), Some(3 * CREDIT));
    ask(&mut hand, Request::flush(u64::MAX));
    for n in 2000..2003 {
        ask(&mut hand, block(2 * n));
    }
    assert_eq!(hand.credit(a), Some(0));
    // Six that merge while they wait go as one, and leave a debt.
    for n in 5000..5006 {
        ask(&mut hand, block(n));
    }
    hand.world.run(PERIOD + 1);
    assert_eq!(hand.credit(a), Some(-3 * CREDIT));
    assert_eq!(hand.spent(a), 15);
    hand.world.run(PERIOD);
    assert_eq!(hand.credit(a), Some(0));
}

#[test]
fn background_processes_and_flushes_pass_freely() {
    let mut hand = Hand::new();
    let backup = hand.world.background();
    let a = hand.guest(1_000);
    hand.ask(backup, 50);
    hand.ask(a, 5);
    assert!(!hand.waits(backup) && hand.waits(a));
    assert!(hand.rules(|slow| !slow.vms.contains_key(&backup.vm)));
    for n in 0..5 {
        let taken = hand.world.driver.request(a.client, Request::flush(n));
        taken.expect("there is room");
    }
    hand.world.keep_done = true;
    hand.world.run(MS);
    let of_a = hand.world.done.iter().filter(|done| done.vm == a.vm);
    assert_eq!(of_a.count(), 1 + 5);
}

// --- Anything, in any order -------------------------------------------------------------------

/// Rules under which all VMs have the same objective and their allocations change, at once or at
/// the end of the period.
struct Allocated {
    slow: Shared,
    plan: Arc<Mutex<Plan>>,
}

const ALLOCATIONS: [u64; 8] = [0, 1, 5_003, 33_333, 100_000, 333_331, 2_000_000, u64::MAX];

impl Rules for Allocated {
    fn objective(&self, _: usize) -> Objective {
        Objective::default()
    }

    fn changes(&mut self, vm: VmId, n: usize) {
        let allocation = (vm, ALLOCATIONS[n / 2 % ALLOCATIONS.len()]);
        let mut plan = self.plan.lock().expect("no panic before");
        if n.is_multiple_of(2) {
            plan.now.push(allocation)
        } else {
            plan.then.push_back(allocation)
        }
    }
}

fn crowd_of(depth: u32, policies: &[&str], params: CircParams) -> Crowd<Allocated> {
    let slow = Arc::new(Mutex::new(Slow::new(params)));
    let plan = Arc::new(Mutex::new(Plan::default()));
    let policies = policies.iter().map(|name| policy(name)).collect();
    let wrap = regulated(&slow, &plan);
    Crowd::new(depth, policies, Allocated { slow, plan }, wrap)
}

/// Allocates credits to all VMs and completes all requests. Afterwards the VMs become inactive one
/// by one, and nothing is held.
fn close(mut crowd: Crowd<Allocated>) {
    let mut plan = crowd.rules.plan.lock().expect("no panic before");
    let vms = crowd.guests.iter().map(|guest| (guest.vm, 100_000_000));
    plan.now.extend(vms.clone());
    plan.then.extend(vms);
    drop(plan);
    crowd.drain();
    for _ in 0..10_000 {
        let Some(due) = crowd.driver.engine.next_timeout() else {
            let slow = crowd.rules.slow.lock().expect("no panic before");
            assert!(slow.vms.keys().all(|&vm| slow.credit(vm).is_none()));
            return;
        };
        crowd.driver.now = crowd.driver.now.max(due);
        crowd.driver.engine.handle_timeout(crowd.driver.now);
    }
    panic!("periods never stop");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(300),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Checks that regulator and model agree about everybody's credit and the period's end after
    /// every event, that the books of both balance, and that no burst exceeds its threshold.
    #[test]
    fn it_keeps_its_rules_under_anything(
        depth in 1u32..6,
        period in 1u64..80,
        burst in 1u32..5,
        smoothing in 1u32..8,
        below in 0usize..3,
        slices in prop::sample::select(vec![1, 2, 7, 100]),
        steps in prop::collection::vec(crowd::step(70_000), 0..250),
    ) {
        let params = CircParams { period: Nanos(period * MS), burst, smoothing, slices };
        let below = ["open+fifo", "open+sfq", "open+mclock"][below];
        let policies = [below, "open+mclock", "open+drr", "token-bucket+fifo"];
        let mut crowd = crowd_of(depth, &policies, params);
        for step in steps {
            crowd.act(step);
        }
        close(crowd);
    }

    /// Checks the bound on bursts under constant allocations: a VM takes no more in any time than
    /// its grants of that time and its threshold.
    #[test]
    fn it_bounds_bursts(
        allocations in prop::collection::vec(1..ALLOCATIONS.len() - 1, GUESTS),
        burst in 1u32..4,
        slices in prop::sample::select(vec![1, 2, 7, 100]),
        steps in prop::collection::vec(crowd::step(70_000), 0..250),
    ) {
        let params = CircParams { burst, slices, ..PARAMS };
        let mut crowd = crowd_of(8, &["open+drr"], params);
        for (guest, &allocation) in allocations.iter().enumerate() {
            crowd.act(Step::Change { guest, to: 2 * allocation });
        }
        for step in steps {
            if !matches!(step, Step::Change { .. } | Step::Swap { .. }) {
                crowd.act(step);
            }
        }
        close(crowd);
    }
}
