//! Deficit round robin against its rules in linear scans, its bounds, and its behaviours.

use crate::common::costs::Costs;
use crate::common::lab::{self, GUESTS, Lab, LabConfig, MAX_IO, Model, Step};
use crate::common::oracle_test;
use crate::common::*;
use proptest::prelude::*;
use tidegate_core::part::Capacity;
use tidegate_core::request::{DeviceIo, Op, ReqId, Request};
use tidegate_core::roles::Dispatcher;
use tidegate_policies::dispatch::cost::{CostBy, CostParams};
use tidegate_policies::dispatch::drr::{Drr, DrrParams};
use tidegate_policies::policy::PolicySpec;

const COST_SIZE: u64 = 16 << 10;
const QUANTUM: u64 = 64 << 10;
/// Rounds on the wheel, less the one that goes on.
const MOST_ROUNDS: u64 = 63;

fn cost(op: Op, len: u32) -> i64 {
    let moves = matches!(op, Op::Read | Op::Write);
    (if moves { len as u64 } else { 0 }).max(COST_SIZE) as i64
}

#[derive(Clone, Copy, Default)]
struct Queue {
    deficit: i64,
    weight: u64,
    waits: bool,
    /// Round of the queue's next turn, and its place in that round.
    due: u64,
    place: u64,
    granted: bool,
}

/// Rounds of all guests, as far as a query changes them.
#[derive(Clone, Copy, Default)]
struct Turns {
    queues: [Queue; GUESTS],
    round: u64,
    scale: u32,
    places: u64,
}

/// Model of DRR that goes round by round and skips only rounds without turns.
struct Rounds {
    by: usize,
    costs: Costs,
    bytes: u64,
    quantum: u64,
    turns: Turns,
    /// `turns` before the last query.
    before: Turns,
}

impl Rounds {
    fn new(by: usize, bytes: u64) -> Rounds {
        let costs = Costs::new(by, GUESTS);
        Rounds {
            by,
            bytes,
            quantum: costs.quantum(bytes),
            costs,
            turns: Turns::default(),
            before: Turns::default(),
        }
    }

    fn place(&mut self) -> u64 {
        self.turns.places += 1;
        self.turns.places
    }

    fn quantum(&self, guest: usize) -> i64 {
        ((self.quantum * self.turns.queues[guest].weight) >> self.turns.scale) as i64
    }
}

impl Model for Rounds {
    fn reset(&mut self, lab: &Lab) {
        *self = Rounds::new(self.by, self.bytes);
        (0..GUESTS).for_each(|guest| self.added(lab, guest));
    }

    fn added(&mut self, lab: &Lab, guest: usize) {
        self.costs.forget(guest);
        self.turns.queues[guest] = Queue::default();
        self.weight_changed(lab, guest);
    }

    fn weight_changed(&mut self, lab: &Lab, guest: usize) {
        self.turns.queues[guest].weight = lab.guests[guest].objective.weight as u64;
    }

    fn refresh(&mut self, lab: &Lab) {
        for guest in lab.in_order() {
            let waits = lab.head(guest).is_some();
            if waits && !self.turns.queues[guest].waits {
                self.turns.queues[guest].due = self.turns.round + 1;
                self.turns.queues[guest].place = self.place();
                self.turns.queues[guest].granted = false;
            } else if !waits {
                self.turns.queues[guest].deficit = self.turns.queues[guest].deficit.min(0);
            }
            self.turns.queues[guest].waits = waits;
        }
    }

    fn next(&mut self, lab: &Lab) -> Option<ReqId> {
        // A query may end turns, begin a round and take its scale.
        self.before = self.turns;
        loop {
            let waiting = (0..GUESTS).filter(|&g| self.turns.queues[g].waits);
            let first =
                waiting.min_by_key(|&g| (self.turns.queues[g].due, self.turns.queues[g].place))?;
            if self.turns.queues[first].due > self.turns.round {
                self.turns.round = self.turns.queues[first].due;
                let weights = self
                    .turns
                    .queues
                    .iter()
                    .filter(|q| q.waits)
                    .map(|q| q.weight);
                self.turns.scale = weights.min().expect("one waits").ilog2();
            }
            let quantum = self.quantum(first);
            if !self.turns.queues[first].granted {
                self.turns.queues[first].granted = true;
                self.turns.queues[first].deficit += quantum;
            }
            let head = lab.head(first).expect("it waits");
            let unit = lab.unit(head);
            let (.., whole) = lab.driver.engine.view().queued(head).request();
            let is_first = unit.requests > 1 || unit.len == whole;
            let cost = self.costs.of_head(
                first,
                unit.op,
                unit.addr,
                unit.len.min(MAX_IO),
                (unit.requests, is_first),
            ) as i64;
            if cost <= self.turns.queues[first].deficit {
                return Some(head);
            }
            let mut rounds = 1;
            while self.turns.queues[first].deficit + quantum < cost && rounds < MOST_ROUNDS {
                self.turns.queues[first].deficit += quantum;
                rounds += 1;
            }
            self.turns.queues[first].due = self.turns.round + rounds;
            self.turns.queues[first].place = self.place();
            self.turns.queues[first].granted = false;
        }
    }

    fn not_asked(&mut self) {
        self.turns = self.before;
    }

    fn started(&mut self, _lab: &Lab, guest: usize, io: &DeviceIo) {
        let cost = (self.costs).of(guest, io.op, io.addr, io.len, io.first_ops);
        self.costs.went(guest, io.op, io.addr, io.len, io.first_ops);
        self.turns.queues[guest].deficit -= cost as i64;
    }
}

fn weight() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![3 => 50u32..=400, 1 => 1u32..=10_000]
}

fn drr(name: &str, quantum: u64, by: u64) -> PolicySpec {
    let mut spec = policy(name);
    spec.set("quantum", quantum).expect("in range");
    spec.set("cost", by).expect("there are four");
    spec
}

oracle_test! {
    fn turns_are_those_of_the_rules(quantum in (16u64 << 10)..=(200 << 10), by in 0usize..4)
    policies: ["drr", "token-bucket+drr"],
    spec: |name| drr(name, quantum, by as u64),
    weights: weight(),
    steps: 500,
    cases: (ProptestConfig::default().cases / 2).max(64),
    config: |config| config,
    model: |_: &LabConfig| Rounds::new(by, quantum),
}

/// Checks the lab where the engine keeps the last free place for an expected request of a VM and
/// does not ask the dispatcher: the model's query must not count. Here it would begin a round,
/// whose scale the VM that leaves next (weight 509) changes.
#[test]
fn a_query_that_the_engine_does_not_make_begins_no_round() {
    let request = |guest, op, first_block| Step::Request {
        guest,
        op,
        first_block,
        blocks: 1,
    };
    let read = |guest| request(guest, Op::Read, 0);
    let next = |guest| Step::Adjacent {
        guest,
        before: false,
        blocks: 1,
    };
    let end = Step::Complete {
        io: 0,
        fails: false,
    };
    let mut steps = vec![next(1), request(1, Op::Write, 2), request(5, Op::Write, 0)];
    steps.extend([
        Step::SetPolicy { gated: false },
        Step::SetWeight {
            guest: 5,
            weight: 255,
        },
    ]);
    steps.push(Step::Dispatch);
    steps.extend([read(0), read(0), read(2), read(2), next(2), end.clone()]);
    steps.extend([next(2), read(2), end.clone(), Step::Dispatch, read(2)]);
    steps.extend([end.clone(), end.clone(), Step::Wait { micros: 1 }]);
    steps.extend([
        read(0),
        read(2),
        read(0),
        read(1),
        read(2),
        read(2),
        read(0),
        read(2),
    ]);
    steps.extend([next(3), request(3, Op::Read, 2), read(2)]);
    steps.extend([Step::Disconnect { guest: 1 }, next(0)]);
    steps.extend([Step::Dispatch, Step::Dispatch, read(0)]);
    steps.extend([Step::Disconnect { guest: 0 }, end, Step::Dispatch, read(4)]);
    let by = CostBy::WORDS.iter().position(|&word| word == "device-time");
    let by = by.expect("a word");
    let policies = ["drr", "token-bucket+drr"].map(|name| drr(name, 16 << 10, by as u64));
    let terms = LabConfig::new(2, false, &[509, 590, 50, 50, 64, 50]);
    lab::run_on(&terms, policies, &mut Rounds::new(by, 16 << 10), steps);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: (ProptestConfig::default().cases / 2).max(64),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// The module's bound on fairness, after each dispatch, over any mix of weights and sizes.
    #[test]
    fn shares_differ_by_a_quantum_and_an_io_each_at_most(
        vms in prop::collection::vec((1u32..=1000, 4096u32..=1 << 20), 2..8),
        depth in 1u32..=8,
    ) {
        let mut world = World::with_config(config(depth, 0), "drr", MS);
        let guests: Vec<Guest> = vms.iter().map(|&(w, _)| world.guest(&weighted(w))).collect();
        for (guest, &(_, len)) in guests.iter().zip(&vms) {
            world.load(*guest, Op::Read, len, 2 * depth);
        }
        world.run(SECOND);
        let least = vms.iter().map(|v| v.0).min().expect("some");
        let quantum = QUANTUM as f64 / f64::from(1 << least.ilog2());
        let share = |n: i64, weight: u32| n as f64 / f64::from(weight);
        let mut got = vec![0i64; vms.len()];
        for start in &world.driver.log {
            let vm = guests.iter().position(|g| g.vm == start.io.vm).expect("one of them");
            got[vm] += cost(Op::Read, start.io.len);
            for (a, &(weight_a, len_a)) in vms.iter().enumerate() {
                for (b, &(weight_b, len_b)) in vms.iter().enumerate() {
                    let ahead = share(got[a], weight_a) - share(got[b], weight_b);
                    let io = |len, weight| share(cost(Op::Read, len), weight);
                    let most = (quantum + io(len_a, weight_a) + io(len_b, weight_b)) * 1.000_001;
                    prop_assert!(ahead <= most, "{a} is {ahead} ahead of {b}");
                }
            }
        }
    }

    /// The module's bound on starvation: what each other VM is served before a VM that wakes.
    #[test]
    fn a_woken_vm_waits_for_its_rounds_at_most(
        weights in prop::collection::vec(1u32..=300, 1..6),
        weight in 1u32..=300,
        len in 4096u32..=1 << 20,
        others_len in 4096u32..=1 << 20,
        run_ms in 1u64..400,
    ) {
        let mut world = World::new("drr", MS);
        let others: Vec<Guest> = weights.iter().map(|&w| world.guest(&weighted(w))).collect();
        for &other in &others {
            world.load(other, Op::Read, others_len, 4);
        }
        let guest = world.guest(&weighted(weight));
        world.run(run_ms * MS);
        world.driver.log.clear();
        world.load(guest, Op::Read, len, 4);
        // The round that goes on was begun without it.
        let scale = |with: Option<u32>| {
            weights.iter().copied().chain(with).min().expect("some").ilog2()
        };
        let (old, new) = (scale(None), scale(Some(weight)));
        let quantum = |weight: u32, scale: u32| ((QUANTUM * weight as u64) >> scale) as i64;
        let longest = quantum(weight, old.max(new)) as u64;
        let rounds = (cost(Op::Read, len) as u64).div_ceil(longest) as i64;
        let most: Vec<i64> = weights
            .iter()
            .map(|&w| (rounds + 1) * quantum(w, old.min(new)) + cost(Op::Read, others_len))
            .collect();
        let enough: i64 = most.iter().sum::<i64>() / cost(Op::Read, others_len) + 2;
        world.run(enough as u64 * MS);
        let served = world.driver.log.iter().position(|s| s.io.vm == guest.vm);
        let served = served.expect("within the bound");
        for (other, most) in others.iter().zip(most) {
            let before = world.driver.log[..served].iter().filter(|s| s.io.vm == other.vm);
            let got: i64 = before.map(|s| cost(Op::Read, s.io.len)).sum();
            prop_assert!(got <= most, "{got} of {most} before it");
        }
    }
}

#[test]
fn shares_go_by_weight_within_a_hundredth() {
    let mut world = World::with_config(config(4, 0), "drr", MS);
    let weights = [100, 200, 50, 350];
    let guests = weights.map(|w| world.guest(&weighted(w)));
    for (guest, len) in guests.iter().zip([4096, 16384, 65536, 8192]) {
        world.load(*guest, Op::Read, len, 16);
    }
    // The lightest, with large I/Os, gets a fiftieth of them.
    world.run(700 * SECOND);
    let got = guests.map(|g| {
        let ios = world.driver.log.iter().filter(|s| s.io.vm == g.vm);
        ios.map(|s| cost(s.io.op, s.io.len) as u64).sum::<u64>()
    });
    let all: u64 = got.iter().sum();
    for (got, weight) in got.iter().zip(weights) {
        let fair = all * weight as u64 / 700;
        assert!(got.abs_diff(fair) * 100 <= fair, "{got} of {fair}");
    }
    assert!(guests.iter().all(|g| total(&world.ops(*g)) >= 10_000));
}

#[test]
fn an_idle_vm_saves_nothing_up() {
    let mut world = World::new("drr", MS);
    let [a, b] = [0; 2].map(|_| world.guest(&weighted(100)));
    world.load(a, Op::Read, 16384, 8);
    world.run(20 * SECOND);
    world.driver.log.clear();
    world.load(b, Op::Read, 16384, 8);
    world.run(SECOND);
    let [a, b] = [a, b].map(|g| total(&world.ops(g)));
    assert!(a.abs_diff(b) <= 12, "{a} and {b}: more than a turn apart");
}

#[test]
fn a_lone_light_vm_is_served_in_every_turn() {
    // Weight 1 is the lightest, so one quantum covers four of its small I/Os; the order of
    // weights does not make it wait for rounds in which nothing happens.
    let mut world = World::new("drr", MS);
    let light = world.guest(&weighted(1));
    world.load(light, Op::Read, 1 << 20, 4);
    world.run(SECOND);
    assert_eq!(total(&world.ops(light)), 1000);
}

#[test]
fn a_large_io_is_paid_for_in_turns_of_others() {
    let mut world = World::new("drr", MS);
    let small = world.guest(&weighted(64));
    let large = world.guest(&weighted(64));
    world.load(small, Op::Read, 16384, 16);
    world.load(large, Op::Read, 1 << 20, 4);
    world.run(650 * MS);
    // A quantum is 64 KiB: four small I/Os a turn, a large one every sixteenth.
    let order: Vec<bool> = world
        .driver
        .log
        .iter()
        .map(|s| s.io.vm == large.vm)
        .collect();
    let turns: Vec<usize> = (0..order.len()).filter(|&n| order[n]).collect();
    assert!(turns.len() >= 9, "{turns:?}");
    assert!(turns.windows(2).all(|w| w[1] - w[0] == 65), "{turns:?}");
}

#[test]
fn a_flush_is_charged_like_a_small_io_also_to_an_idle_vm() {
    let mut world = World::new("drr", MS);
    let [plain, flusher] = [0; 2].map(|_| world.guest(&weighted(100)));
    let read = |n: u64| Request::read(n << 21, 64 << 10, n);
    // The flush goes first and finds its VM with nothing else: 16 KiB of debt.
    let flush = Request::flush(1000);
    world.driver.request(flusher.client, flush).expect("taken");
    let io = world.driver.start().expect("at once");
    assert_eq!(io.op, Op::Flush);
    world.driver.end(&io, Ok(()));
    for n in 0..40 {
        for guest in [flusher, plain] {
            world.driver.request(guest.client, read(n)).expect("taken");
        }
    }
    // Weight 100 at scale 2^6 makes quanta of 100 KiB: one read of 64 KiB in the first turn, with
    // 36 KiB left two in the second. With 16 KiB of debt it is one in the second, too, and two
    // in the third.
    let mut order = String::new();
    for _ in 0..12 {
        let io = world.driver.start().expect("much waits");
        order.push(if io.vm == flusher.vm { 'f' } else { 'p' });
        world.driver.end(&io, Ok(()));
    }
    assert_eq!(
        order, "fpfppffpffpp",
        "without the flush it were fpffppfpffpp"
    );
}

#[test]
fn the_lightest_weight_sets_the_scale() {
    // Whatever the scale of the weights, turns are as long.
    let mut runs = Vec::new();
    for factor in [1, 8, 1024] {
        let mut world = World::new("drr", MS);
        let guests = [2, 3, 4].map(|w| world.guest(&weighted(w * factor)));
        guests
            .iter()
            .for_each(|g| world.load(*g, Op::Read, 16384, 32));
        world.run(SECOND);
        let order: Vec<usize> = world.driver.log.iter().map(|s| s.io.vm.index()).collect();
        runs.push(order);
    }
    assert!(runs.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_weight_that_a_controller_turns_counts_from_the_next_turn() {
    let params = DrrParams {
        quantum: QUANTUM as u32,
        cost: CostParams {
            by: CostBy::Bytes,
            size: COST_SIZE as u32,
        },
    };
    let make = |capacity: &Capacity| Box::new(Drr::new(params, capacity)) as Box<dyn Dispatcher>;
    let [before, after] = lab::picks_with_a_knob(make, 800, 300);
    // A turn of 100 KiB is six of 16 KiB, or seven; one of weight 300 is eighteen or nineteen.
    assert!(before[1].abs_diff(200) <= 7, "{before:?}");
    assert!(after[1].abs_diff(300) <= 19, "{after:?}");
}
