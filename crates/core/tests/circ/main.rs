//! CIRC against its rules in plain loops over all VMs, and its behaviours.

#[path = "../common/mod.rs"]
mod common;
mod rules;

use common::*;
use proptest::prelude::*;
use rules::{CREDIT, Plan, Shared, Slow, regulated};
use std::sync::{Arc, Mutex};
use tidegate_core::engine::{DeviceSpec, DiskSpec, Engine, EngineConfig};
use tidegate_core::objective::Objective;
use tidegate_core::policy::PolicySpec;
use tidegate_core::regulate::circ::CircParams;
use tidegate_core::request::{ClientId, IoError, IoId, Op, Request, VmId};
use tidegate_core::time::Nanos;

const BLOCK: u32 = 4096;
const PERIOD: u64 = 30 * MS;

const PARAMS: CircParams = CircParams {
    period: Nanos(PERIOD),
    burst: 2,
    smoothing: 4,
};

/// A world under CIRC, whose allocations are set by hand.
struct Hand {
    world: World,
    slow: Shared,
    plan: Arc<Mutex<Plan>>,
}

impl Hand {
    /// A device that takes 64 at a time and a microsecond each.
    fn new() -> Hand {
        Hand::of(config(64, 0), "open+fifo", 1000)
    }

    fn of(config: EngineConfig, policy: &str, service: u64) -> Hand {
        let slow = Arc::new(Mutex::new(Slow::new(PARAMS)));
        let plan = Arc::new(Mutex::new(Plan::default()));
        let mut world = World::with(config, policy, service);
        let wrap = regulated(&slow, &plan);
        world.engine.wrap_roles(Nanos::ZERO, wrap);
        Hand { world, slow, plan }
    }

    /// A VM with so many thousandths of a request a second.
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
            let now = self.world.time();
            let taken = (self.world.engine).handle_request(now, guest.client, request);
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

    /// Whether something of a VM waits to be let in.
    fn waits(&self, guest: Guest) -> bool {
        let view = self.world.engine.view();
        view.pending_head(guest.vm).is_some()
    }

    fn served(&self, guest: Guest) -> u64 {
        total(&self.world.ops(guest))
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
    // From the first knob on, which comes when the period ends, it is held: three a period. It is
    // quiet by then, so it finds a burst of six.
    hand.turn_at_the_end(guest, 100_000);
    hand.world.run(PERIOD);
    hand.ask(guest, 20);
    assert_eq!(hand.spent(guest), 9);
    assert!(hand.waits(guest));
    hand.world.run(SECOND);
    assert_eq!(hand.spent(guest), 20);
    // One that is not quiet finds none.
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
    // Two periods' worth saved up, and this one's.
    assert_eq!(hand.spent(guest), 90);
    // For the last third of it twice as much: 10 more, which it sees when the next begins.
    hand.world.run(20 * MS);
    hand.turn(guest, 2_000_000);
    assert_eq!(hand.credit(guest), Some(10 * CREDIT));
    // At the end of a period for all of the next one.
    hand.turn_at_the_end(guest, 3_000_000);
    hand.world.run(10 * MS + 1);
    assert_eq!(hand.spent(guest), 90 + 10 + 90);
    // What was granted already may become a debt.
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
    // A little late: the next period is as much shorter.
    hand.world.stall(PERIOD + 10 * MS);
    hand.world.run(1);
    assert_eq!(hand.spent(guest), 120);
    hand.world.run(20 * MS);
    assert_eq!(hand.spent(guest), 150);
    assert_eq!(hand.rules(|slow| slow.ended), ended + 2);
    // Very late: one period ended, and the next begins now.
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
    // It has been quiet for more than two periods: inactive, and nothing will happen.
    assert_eq!(hand.credit(a), None);
    assert_eq!(hand.world.engine.next_timeout(), None);
    hand.world.run(SECOND);
    let before = hand.spent(a);
    hand.ask(a, 200);
    // 60 saved up, 30 of the period that begins.
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
    // It never had another one: a single request, then it waits for one.
    hand.ask(zero, 5);
    assert_eq!(hand.spent(zero), 1);
    hand.world.run(SECOND);
    assert_eq!(hand.spent(zero), 1);
    hand.turn_at_the_end(zero, 100_000);
    hand.world.run(PERIOD);
    assert_eq!(hand.spent(zero), 1 + 3);
    // Counted out with nothing inside, a VM keeps its right to a burst.
    hand.ask(a, 60);
    hand.world.run(MS);
    hand.turn(a, 0);
    hand.world.run(5 * PERIOD);
    assert_eq!(hand.credit(a), None);
    let before = hand.spent(a);
    hand.ask(a, 100);
    assert_eq!(hand.spent(a) - before, 60);
    // And counted out with something waiting, it is granted nothing.
    hand.world.run(SECOND);
    assert_eq!(hand.spent(a) - before, 60);
    hand.turn_at_the_end(a, 1_000_000);
    hand.world.run(2 * PERIOD);
    assert_eq!(hand.spent(a) - before, 100);
}

// --- What is not used -------------------------------------------------------------------------

#[test]
fn an_idle_vm_holds_nobody_back_beyond_the_window() {
    let mut hand = Hand::new();
    let (busy, idle) = (hand.guest(1_000_000), hand.guest(3_000_000));
    let all = hand.guest(1_000_000);
    // It has had its burst, and stops.
    hand.ask(idle, 270);
    for guest in [busy, all] {
        hand.world.load(guest, Op::Read, BLOCK, 900);
    }
    hand.world.run(MS);
    // Two periods until it is at its threshold, then four over which the mean is taken.
    hand.world.run(6 * PERIOD);
    let before = [hand.spent(busy), hand.spent(all)];
    hand.world.run(10 * PERIOD);
    let after = [hand.spent(busy), hand.spent(all)];
    // 5000 a second, shared by the two.
    assert_eq!(after[0] - before[0], 10 * 75);
    assert_eq!(after[1] - before[1], 10 * 75);
    // It comes back, and has what is its own at once, and the burst.
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
    // 48 a period from the third one: a quarter of it after the first, and so on.
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
    // Both at half of what they are allocated: nothing is passed on, and nothing piles up.
    for _ in 0..1000 {
        hand.ask(a, 1);
        hand.ask(b, 1);
        hand.world.run(2 * MS);
    }
    let from_others = |hand: &Hand, g: Guest| hand.rules(|slow| slow.vms[&g.vm].from_others);
    assert_eq!(from_others(&hand, a) + from_others(&hand, b), 0);
    // One wants more: what it saved up, then all that the other one leaves, and no more but what was
    // on its way when it began: 30 of each of the last four periods.
    let before = hand.spent(a);
    hand.world.load(a, Op::Read, BLOCK, 900);
    for _ in 0..1500 {
        hand.ask(b, 1);
        hand.world.run(2 * MS);
    }
    let got = hand.spent(a) - before;
    assert!((4500..=4500 + 60 + 30 * 6 / 4).contains(&got), "{got}");
}

// --- What is charged --------------------------------------------------------------------------

#[test]
fn merged_requests_cost_one_each_and_parts_nothing_more() {
    let mut hand = Hand::of(config(1, 64 * KIB), "open+fifo", MS);
    let a = hand.guest(100_000);
    let ask = |hand: &mut Hand, request: Request| {
        let now = hand.world.time();
        let taken = (hand.world.engine).handle_request(now, a.client, request);
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
fn background_tenants_and_flushes_pass_freely() {
    let mut hand = Hand::new();
    let backup = hand.world.background();
    let a = hand.guest(1_000);
    hand.ask(backup, 50);
    hand.ask(a, 5);
    assert!(!hand.waits(backup) && hand.waits(a));
    assert!(hand.rules(|slow| !slow.vms.contains_key(&backup.vm)));
    for n in 0..5 {
        let now = hand.world.time();
        let taken = (hand.world.engine).handle_request(now, a.client, Request::flush(n));
        taken.expect("there is room");
    }
    hand.world.keep_done = true;
    hand.world.run(MS);
    let of_a = hand.world.done.iter().filter(|done| done.vm == a.vm);
    assert_eq!(of_a.count(), 1 + 5);
}

// --- Anything, in any order -------------------------------------------------------------------

#[derive(Clone, Debug)]
enum Step {
    Ask {
        guest: usize,
        count: u64,
        block: u64,
        blocks: u32,
    },
    Adjacent {
        guest: usize,
    },
    Flush {
        guest: usize,
    },
    Dispatch,
    Complete {
        which: usize,
        fails: bool,
    },
    Wait {
        micros: u64,
        late: bool,
    },
    Vanish {
        guest: usize,
    },
    Replace {
        guest: usize,
    },
    Turn {
        guest: usize,
        allocation: usize,
        at_once: bool,
    },
    Swap {
        to: usize,
    },
}

const GUESTS: usize = 5;
const ALLOCATIONS: [u64; 8] = [0, 1, 5_003, 33_333, 100_000, 333_331, 2_000_000, u64::MAX];

fn step() -> impl Strategy<Value = Step> {
    let guest = || 0..GUESTS;
    prop_oneof![
        24 => (guest(), prop_oneof![4 => 1u64..4, 1 => 20u64..60], 0u64..200, prop_oneof![8 => 1u32..4, 1 => 30u32..50])
            .prop_map(|(guest, count, block, blocks)| Step::Ask { guest, count, block, blocks }),
        6 => guest().prop_map(|guest| Step::Adjacent { guest }),
        1 => guest().prop_map(|guest| Step::Flush { guest }),
        16 => Just(Step::Dispatch),
        20 => (0usize..8, prop::bool::weighted(0.05))
            .prop_map(|(which, fails)| Step::Complete { which, fails }),
        12 => (0u64..70_000, prop::bool::weighted(0.2))
            .prop_map(|(micros, late)| Step::Wait { micros, late }),
        1 => guest().prop_map(|guest| Step::Vanish { guest }),
        1 => guest().prop_map(|guest| Step::Replace { guest }),
        4 => (guest(), 0..ALLOCATIONS.len(), any::<bool>())
            .prop_map(|(guest, allocation, at_once)| Step::Turn { guest, allocation, at_once }),
        1 => (0usize..3).prop_map(|to| Step::Swap { to }),
    ]
}

struct Lab {
    engine: Engine,
    slow: Shared,
    plan: Arc<Mutex<Plan>>,
    now: Nanos,
    guests: Vec<(VmId, ClientId)>,
    last: Vec<u64>,
    in_flight: Vec<IoId>,
    disks: u64,
}

impl Lab {
    fn new(depth: u32, policy: &PolicySpec, params: CircParams) -> Lab {
        let device = DeviceSpec {
            max_io: 16 * BLOCK,
            ..config(depth, 0).device
        };
        let config = EngineConfig {
            device,
            merge_limit: 8 * BLOCK,
            max_vms: 2 * GUESTS as u32,
            ..config(depth, 0)
        };
        let slow = Arc::new(Mutex::new(Slow::new(params)));
        let plan = Arc::new(Mutex::new(Plan::default()));
        let mut engine = Engine::new(config, policy).expect("sound");
        engine.wrap_roles(Nanos::ZERO, regulated(&slow, &plan));
        let mut lab = Lab {
            engine,
            slow,
            plan,
            now: Nanos(1_000_000),
            guests: Vec::new(),
            last: vec![0; GUESTS],
            in_flight: Vec::new(),
            disks: 0,
        };
        for _ in 0..GUESTS {
            let guest = lab.guest();
            lab.guests.push(guest);
        }
        lab
    }

    fn guest(&mut self) -> (VmId, ClientId) {
        let vm = self.engine.add_vm(self.now, &Objective::default());
        let vm = vm.expect("room");
        let spec = DiskSpec {
            base: self.disks << 30,
            size: 1 << 30,
            read_only: false,
        };
        self.disks += 1;
        let disk = self.engine.add_disk(vm, spec).expect("fits");
        (vm, self.engine.connect(disk).expect("there"))
    }

    fn ask(&mut self, guest: usize, request: Request) {
        self.last[guest] = request.offset + u64::from(request.len);
        let client = self.guests[guest].1;
        // Refused where it has vanished, or has as many inside as it may.
        let _ = self.engine.handle_request(self.now, client, request);
    }

    fn act(&mut self, step: Step) {
        match step {
            Step::Ask {
                guest,
                count,
                block,
                blocks,
            } => {
                for n in 0..count {
                    let offset = (block + 100 * n) * u64::from(BLOCK);
                    self.ask(guest, Request::read(offset, blocks * BLOCK, 0));
                }
            }
            Step::Adjacent { guest } => {
                let offset = self.last[guest] % (1 << 29);
                self.ask(guest, Request::write(offset, BLOCK, 0));
            }
            Step::Flush { guest } => self.ask(guest, Request::flush(0)),
            Step::Dispatch => self.dispatch(),
            Step::Complete { which, fails } => {
                if !self.in_flight.is_empty() {
                    let which = which % self.in_flight.len();
                    let io = self.in_flight.swap_remove(which);
                    let outcome = if fails { Err(IoError::Io) } else { Ok(()) };
                    self.engine.handle_completion(self.now, io, outcome);
                }
            }
            Step::Wait { micros, late } => {
                let end = self.now + Nanos::from_micros(micros);
                let due = |engine: &Engine| engine.next_timeout().filter(|&due| due <= end);
                while let Some(due) = due(&self.engine) {
                    self.now = if late { end } else { self.now.max(due) };
                    self.engine.handle_timeout(self.now);
                }
                self.now = end;
            }
            Step::Vanish { guest } => {
                let client = self.guests[guest].1;
                self.engine.handle_disconnect(self.now, client);
            }
            Step::Replace { guest } => {
                let (vm, _) = self.guests[guest];
                if self.engine.view().vm_slots() >= 2 * GUESTS && self.engine.in_flight(vm) > 0 {
                    return;
                }
                self.engine.remove_vm(self.now, vm).expect("there");
                self.guests[guest] = self.guest();
            }
            Step::Turn {
                guest,
                allocation,
                at_once,
            } => {
                let (vm, _) = self.guests[guest];
                let allocation = (vm, ALLOCATIONS[allocation]);
                let mut plan = self.plan.lock().expect("no panic before");
                match at_once {
                    true => plan.now.push(allocation),
                    false => plan.then.push_back(allocation),
                }
                drop(plan);
                let set = (self.engine).set_objective(self.now, vm, &Objective::default());
                set.expect("sound");
            }
            Step::Swap { to } => {
                let name = ["open+mclock", "open+drr", "token-bucket+fifo"][to];
                self.engine.set_policy(self.now, &policy(name));
            }
        }
        while self.engine.poll_done().is_some() {}
    }

    fn dispatch(&mut self) {
        while let Some(io) = self.engine.poll_dispatch(self.now) {
            self.in_flight.push(io.id);
        }
    }

    /// Everybody is allocated something: everything drains.
    fn close(mut self) {
        let mut plan = self.plan.lock().expect("no panic before");
        let vms = self.guests.iter().map(|&(vm, _)| (vm, 100_000_000));
        plan.now.extend(vms.clone());
        plan.then.extend(vms);
        drop(plan);
        for _ in 0..10_000 {
            self.dispatch();
            let Some(io) = self.in_flight.pop() else {
                match self.engine.next_timeout() {
                    _ if self.engine.is_idle() => break,
                    Some(due) => {
                        self.now = self.now.max(due);
                        continue;
                    }
                    None => panic!("nothing will ever happen again"),
                }
            };
            self.now += Nanos::from_micros(100);
            self.engine.handle_completion(self.now, io, Ok(()));
            while self.engine.poll_done().is_some() {}
        }
        assert!(self.engine.is_idle(), "it does not drain");
        // Then they are inactive one after the other, and nothing is held for anybody.
        for _ in 0..10_000 {
            let Some(due) = self.engine.next_timeout() else {
                let slow = self.slow.lock().expect("no panic before");
                assert!(slow.vms.keys().all(|&vm| slow.credit(vm).is_none()));
                return;
            };
            self.now = self.now.max(due);
            self.engine.handle_timeout(self.now);
        }
        panic!("periods never stop");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(300),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The regulator and the plain loops agree about everybody's credit and the period's end
    /// after every event, the books of both balance, and no burst exceeds its threshold.
    #[test]
    fn it_keeps_its_rules_under_anything(
        depth in 1u32..6,
        period in 1u64..80,
        burst in 1u32..5,
        smoothing in 1u32..8,
        below in 0usize..3,
        steps in prop::collection::vec(step(), 0..250),
    ) {
        let params = CircParams { period: Nanos(period * MS), burst, smoothing };
        let below = ["open+fifo", "open+sfq", "open+mclock"][below];
        let mut lab = Lab::new(depth, &policy(below), params);
        for step in steps {
            lab.act(step);
        }
        lab.close();
    }

    /// The same with allocations that stay: then what a VM takes in any time is bounded by what it
    /// is granted in it and its threshold.
    #[test]
    fn it_bounds_bursts(
        allocations in prop::collection::vec(1..ALLOCATIONS.len() - 1, GUESTS),
        burst in 1u32..4,
        steps in prop::collection::vec(step(), 0..250),
    ) {
        let params = CircParams { burst, ..PARAMS };
        let mut lab = Lab::new(8, &policy("open+drr"), params);
        for (guest, &allocation) in allocations.iter().enumerate() {
            lab.act(Step::Turn { guest, allocation, at_once: true });
        }
        for step in steps {
            if !matches!(step, Step::Turn { .. } | Step::Swap { .. }) {
                lab.act(step);
            }
        }
        lab.close();
    }
}
