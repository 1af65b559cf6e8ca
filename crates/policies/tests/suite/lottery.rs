//! Lottery scheduling against its rules in linear scans, its shares, and its behaviours.

use crate::common::lab::{self, GUESTS, Lab, LabConfig, Model};
use crate::common::oracle_test;
use crate::common::*;
use proptest::prelude::*;
use tidegate_core::part::Capacity;
use tidegate_core::random::SplitMix64;
use tidegate_core::request::{DeviceIo, Op, ReqId, Request};
use tidegate_core::roles::Dispatcher;
use tidegate_policies::dispatch::lottery::{Lottery, LotteryParams};
use tidegate_policies::policy::PolicySpec;

const COST_SIZE: u64 = 16 << 10;

fn lottery(name: &str, seed: u64) -> PolicySpec {
    let mut spec = policy(name);
    spec.set("seed", seed).expect("in range");
    spec
}

fn cost(op: Op, len: u32) -> u64 {
    let moves = matches!(op, Op::Read | Op::Write);
    (if moves { len as u64 } else { 0 }).max(COST_SIZE)
}

/// Model of the lottery: lays the tickets of all waiting VMs end to end and draws one for each I/O.
struct Drum {
    seed: u64,
    random: SplitMix64,
    weights: [u64; GUESTS],
    served: [u64; GUESTS],
}

impl Drum {
    fn new(seed: u64) -> Drum {
        Drum {
            seed,
            random: SplitMix64::new(seed),
            weights: [0; GUESTS],
            served: [COST_SIZE; GUESTS],
        }
    }
}

impl Model for Drum {
    fn reset(&mut self, lab: &Lab) {
        *self = Drum::new(self.seed);
        (0..GUESTS).for_each(|guest| self.added(lab, guest));
    }

    fn added(&mut self, lab: &Lab, guest: usize) {
        self.served[guest] = COST_SIZE;
        self.weight_changed(lab, guest);
    }

    fn weight_changed(&mut self, lab: &Lab, guest: usize) {
        self.weights[guest] = lab.guests[guest].objective.weight.into();
    }

    fn refresh(&mut self, _lab: &Lab) {}

    fn next(&mut self, lab: &Lab) -> Option<ReqId> {
        let in_order = lab.in_order();
        let waiting: Vec<usize> = in_order
            .into_iter()
            .filter(|&g| lab.head(g).is_some())
            .collect();
        let tickets = |guest: usize| (self.weights[guest] << 32) / self.served[guest];
        let total: u64 = waiting.iter().map(|&guest| tickets(guest)).sum();
        let mut point = if total > 0 {
            self.random.below(total)
        } else {
            0
        };
        for guest in waiting {
            match point.checked_sub(tickets(guest)) {
                Some(beyond) => point = beyond,
                None => return lab.head(guest),
            }
        }
        None
    }

    fn started(&mut self, _lab: &Lab, guest: usize, io: &DeviceIo) {
        self.served[guest] = cost(io.op, io.len);
    }
}

fn weight() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![3 => 50u32..=400, 1 => 1u32..=10_000]
}

oracle_test! {
    fn draws_are_those_of_the_rules(seed in 0u64..1000)
    policies: ["lottery", "token-bucket+lottery"],
    spec: |name| lottery(name, seed),
    weights: weight(),
    steps: 500,
    cases: (ProptestConfig::default().cases / 2).max(64),
    config: |config| LabConfig {
        shared: false,
        ..config
    },
    model: |_: &LabConfig| Drum::new(seed),
}

/// Returns how often each weight is served in `n` I/Os of one size, one at a time.
fn wins(seed: u64, weights: &[u32], n: u64) -> Vec<u64> {
    let mut world = World::with_policy(config(1, 0), &lottery("lottery", seed), MS);
    let guests: Vec<Guest> = weights.iter().map(|&w| world.guest(&weighted(w))).collect();
    for guest in &guests {
        world.load(*guest, Op::Read, 16 << 10, 4);
    }
    world.run(n * MS);
    guests.iter().map(|g| total(&world.ops(*g))).collect()
}

#[test]
fn wins_are_spread_as_by_chance() {
    // Three degrees of freedom: one honest run in a thousand is beyond 16.3, and one in a
    // thousand below 0.024, where draws are too even to be draws. Twenty seeds, so that neither
    // hides behind a lucky one: all are to lie within, their mean near the three it should be.
    let weights = [100, 200, 50, 350];
    let mut sum = 0.0;
    for seed in 0..20 {
        let wins = wins(seed, &weights, 7000);
        let n: u64 = wins.iter().sum();
        let expected = weights.map(|w| n as f64 * f64::from(w) / 700.0);
        let terms = wins
            .iter()
            .zip(expected)
            .map(|(&got, due)| (got as f64 - due).powi(2) / due);
        let chi_squared: f64 = terms.sum();
        assert!(
            (0.024..16.3).contains(&chi_squared),
            "seed {seed}: {wins:?}: {chi_squared}"
        );
        sum += chi_squared;
    }
    // Of 60 degrees of freedom: 30 to 100 are all but one run in a thousand.
    assert!((30.0..100.0).contains(&sum), "{sum}");
}

#[test]
fn what_vms_are_served_goes_by_weight_whatever_their_sizes() {
    let mut world = World::with_config(config(4, 0), "lottery", MS);
    let weights = [100, 200, 50, 350];
    let guests = weights.map(|w| world.guest(&weighted(w)));
    for (guest, len) in guests.iter().zip([4096, 16384, 65536, 262_144]) {
        world.load(*guest, Op::Read, len, 16);
    }
    world.run(300 * SECOND);
    let got = guests.map(|g| {
        let ios = world.driver.log.iter().filter(|s| s.io.vm == g.vm);
        ios.map(|s| cost(s.io.op, s.io.len)).sum::<u64>()
    });
    let all: u64 = got.iter().sum();
    for (got, weight) in got.iter().zip(weights) {
        // The fewest wins are those of weight 50, some 11,000: 3 % are three deviations.
        let fair = all * weight as u64 / 700;
        assert!(got.abs_diff(fair) * 100 <= 3 * fair, "{got} of {fair}");
    }
    assert!(guests.iter().all(|g| total(&world.ops(*g)) >= 9000));
}

#[test]
fn a_seed_draws_the_same_and_another_one_does_not() {
    let order = |seed| {
        let mut world = World::with_policy(config(1, 0), &lottery("lottery", seed), MS);
        let guests = [100, 100, 100].map(|w| world.guest(&weighted(w)));
        guests
            .iter()
            .for_each(|g| world.load(*g, Op::Read, 16384, 4));
        world.run(SECOND);
        world
            .driver
            .log
            .iter()
            .map(|s| s.io.vm.index())
            .collect::<Vec<_>>()
    };
    assert_eq!(order(5), order(5));
    assert_ne!(order(5), order(6));
}

#[test]
fn idle_time_saves_up_one_win_and_no_more() {
    let mut world = World::new("lottery", MS);
    let [busy, late] = [0; 2].map(|_| world.guest(&weighted(100)));
    world.load(busy, Op::Read, 1 << 20, 8);
    world.load(late, Op::Read, 16384, 1);
    world.run(SECOND);
    world.pause(late, 10 * SECOND);
    world.run(10 * SECOND);
    world.driver.log.clear();
    world.load(late, Op::Read, 1 << 20, 8);
    world.run(2 * SECOND);
    // Equal weights and sizes from then on: 1000 each of 2000, within five deviations of 22.
    let [busy, late] =
        [busy, late].map(|g| world.driver.log.iter().filter(|s| s.io.vm == g.vm).count());
    assert!(busy.abs_diff(late) <= 225, "{busy} and {late}");
}

#[test]
fn flushes_take_tickets_away_until_the_next_win() {
    // Reads of 16 KiB against reads of 16 KiB with 31 flushes before each: these pay for 32, and
    // have a chance of 1 in 33 in each draw, where without it were 1 in 2.
    let mut world = World::new("lottery", MS);
    let [plain, flusher] = [0; 2].map(|_| world.guest(&weighted(100)));
    let mut tag = 0;
    let mut ask = |world: &mut World, guest: &Guest, request: fn(u64) -> Request| {
        tag += 1;
        let taken = world.driver.request(guest.client, request(tag));
        taken.expect("room");
    };
    let serve = |world: &mut World| {
        let io = world.driver.start().expect("something waits");
        world.driver.end(&io, Ok(()));
        io
    };
    let read = |tag: u64| Request::read((tag % 1000) << 21, 16 << 10, tag);
    let mut wins = [0; 2];
    for guest in [&plain, &flusher] {
        ask(&mut world, guest, read);
        serve(&mut world);
    }
    for _ in 0..300 {
        for _ in 0..31 {
            ask(&mut world, &flusher, Request::flush);
            assert_eq!(serve(&mut world).op, Op::Flush);
        }
        ask(&mut world, &flusher, read);
        loop {
            ask(&mut world, &plain, read);
            let served = serve(&mut world).vm;
            if served == flusher.vm {
                // The one of the other's that still waits.
                wins[1] += 1;
                serve(&mut world);
                wins[0] += 1;
                break;
            }
            wins[0] += 1;
        }
    }
    // 33 of the others' draws to one, less the first: geometric, so 300 of them stray by 32 x 17.
    let expected = 300 * 33;
    assert!(i64::abs(wins[0] - expected) < 4 * 32 * 17, "{wins:?}");
    assert_eq!(wins[1], 300);
}

#[test]
fn a_weight_that_a_controller_turns_counts_at_once() {
    let params = LotteryParams {
        cost_size: COST_SIZE as u32,
        seed: 1,
    };
    let make =
        |capacity: &Capacity| Box::new(Lottery::new(params, capacity)) as Box<dyn Dispatcher>;
    let [before, after] = lab::picks_with_a_knob(make, 800, 300);
    // Of 400 with a half, of 400 with three quarters: within five deviations.
    assert!(before[1].abs_diff(before[0]) <= 142, "{before:?}");
    assert!(after[1] > 2 * after[0], "{after:?}");
}
