//! Tests of SFQ(D): against the tagging of its papers (Goyal, Vin, Cheng, SIGCOMM 1996; Jin, Chase,
//! Kaur, SIGMETRICS 2004), against its rules in linear scans, their published bounds, and its
//! behaviours. Costs are given by their index in [`CostBy::WORDS`].

use crate::common::costs::{self, Costs};
use crate::common::lab::{self, GUESTS, Lab, LabConfig, Model};
use crate::common::oracle_test;
use crate::common::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use tidegate_core::objective::Rate;
use tidegate_core::part::Capacity;
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::request::{DeviceIo, Op, ReqId, Request};
use tidegate_core::roles::{Dispatcher, Knob};
use tidegate_core::time::Nanos;
use tidegate_policies::dispatch::cost::{CostBy, CostParams};
use tidegate_policies::dispatch::sfq::{Sfq, SfqParams};
use tidegate_policies::policy::PolicySpec;

const COST_SIZE: u32 = 16 << 10;
/// Virtual time of a byte at weight 1.
const BYTE: u128 = 1 << 8;
/// Units of virtual time by which the whole numbers of two VMs' tags widen the bound on fairness.
const ROUNDING: i128 = 2;

fn sfq(name: &str, cost: usize, depth: u64) -> PolicySpec {
    let mut spec = policy(name);
    spec.set("cost", cost as u64).expect("there are four");
    spec.set("depth", depth).expect("in range");
    spec
}

/// Returns the VM and the cost in points of each I/O of a log.
fn costs_of(by: usize, guests: &[Guest], log: &[Start]) -> Vec<(usize, u128)> {
    let mut costs = Costs::new(by, guests.len());
    let of = |start: &Start| {
        let io = &start.io;
        let guest = guests.iter().position(|g| g.vm == io.vm);
        let guest = guest.expect("one of them");
        let cost = costs.of(guest, io.op, io.addr, io.len, io.first_ops);
        costs.went(guest, io.op, io.addr, io.len, io.first_ops);
        (guest, cost)
    };
    log.iter().map(of).collect()
}

fn set_profile(world: &mut World) {
    world
        .driver
        .engine
        .device_mut()
        .set_profile(Some(Arc::new(costs::profile())));
}

#[derive(Clone, Copy, Default)]
struct Flow {
    tag: u128,
    weight: u128,
    waits: bool,
}

/// Model of SFQ's tags. They never wrap, and weights that are powers of two need no rounding.
struct Tags {
    by: usize,
    costs: Costs,
    depth: u32,
    flows: [Flow; GUESTS],
    clock: u128,
    latest: u128,
}

impl Tags {
    fn new(by: usize, depth: u32) -> Tags {
        Tags {
            by,
            costs: Costs::new(by, GUESTS),
            depth,
            flows: [Flow::default(); GUESTS],
            clock: 0,
            latest: 0,
        }
    }
}

impl Model for Tags {
    fn reset(&mut self, lab: &Lab) {
        *self = Tags::new(self.by, self.depth);
        (0..GUESTS).for_each(|guest| self.added(lab, guest));
    }

    fn added(&mut self, lab: &Lab, guest: usize) {
        self.costs.forget(guest);
        self.flows[guest] = Flow {
            tag: self.clock,
            weight: lab.guests[guest].objective.weight as u128,
            waits: false,
        };
    }

    fn weight_changed(&mut self, lab: &Lab, guest: usize) {
        let weight = lab.guests[guest].objective.weight as u128;
        let flow = &mut self.flows[guest];
        let ahead = flow.tag.saturating_sub(self.clock);
        if ahead > 0 && weight != flow.weight {
            flow.tag = self.clock + ahead * flow.weight / weight;
        }
        flow.weight = weight;
    }

    fn refresh(&mut self, lab: &Lab) {
        for guest in lab.in_order() {
            let waits = lab.head(guest).is_some();
            let nobody = self.flows.iter().all(|f| !f.waits);
            if waits && !self.flows[guest].waits {
                if nobody && lab.driver.engine.device_stats().in_flight == 0 {
                    self.clock = self.clock.max(self.latest);
                }
                self.flows[guest].tag = self.flows[guest].tag.max(self.clock);
            }
            self.flows[guest].waits = waits;
        }
    }

    fn next(&mut self, lab: &Lab) -> Option<ReqId> {
        if self.depth > 0 && lab.driver.engine.device_stats().in_flight >= self.depth {
            return None;
        }
        let waiting = lab.in_order().into_iter().filter(|&g| self.flows[g].waits);
        lab.head(waiting.min_by_key(|&g| self.flows[g].tag)?)
    }

    fn started(&mut self, _lab: &Lab, guest: usize, io: &DeviceIo) {
        let flow = &mut self.flows[guest];
        self.clock = flow.tag;
        let cost = (self.costs).of(guest, io.op, io.addr, io.len, io.first_ops);
        self.costs.went(guest, io.op, io.addr, io.len, io.first_ops);
        flow.tag += cost / flow.weight;
        self.latest = self.latest.max(flow.tag);
    }
}

fn weight() -> impl Strategy<Value = u32> + Clone {
    (0u32..=13).prop_map(|n| 1 << n)
}

/// Asserts the published bounds on fairness after each dispatch and each completion, in whole
/// numbers: costs by weight are compared multiplied by both weights. `vms`: weight and request size
/// of each.
fn assert_bounds(vms: &[(u32, u32)], depth: u32, by: usize) {
    let mut world = World::with_config(config(8, 0), "sfq", MS);
    let policy = sfq("sfq", by, depth.into());
    world.driver.engine.set_policy(Nanos::ZERO, &policy);
    set_profile(&mut world);
    let guests: Vec<Guest> = vms
        .iter()
        .map(|&(w, _)| world.guest(&weighted(w)))
        .collect();
    for (guest, &(_, len)) in guests.iter().zip(vms) {
        world.load(*guest, Op::Read, len, 16);
    }
    world.run(SECOND);
    // The world's device ends I/Os in the order in which they began.
    let done = world.driver.log.len() - world.driver.engine.device_stats().in_flight as usize;
    let costs = costs_of(by, &guests, &world.driver.log);
    let largest = |vm| {
        costs
            .iter()
            .filter(|c| c.0 == vm)
            .map(|c| c.1 as i128)
            .max()
    };
    let largest: Vec<i128> = (0..vms.len()).map(|vm| largest(vm).unwrap_or(0)).collect();
    let weight = |vm: usize| i128::from(vms[vm].0);
    for (what, ios, times) in [
        ("dispatched", &costs[..], 1),
        ("completed", &costs[..done], i128::from(depth + 1)),
    ] {
        let mut got = vec![0i128; vms.len()];
        // Smallest lead of each VM over each other so far: intervals may begin anywhere.
        let mut least = vec![vec![0i128; vms.len()]; vms.len()];
        for &(vm, cost) in ios {
            got[vm] += cost as i128;
            for a in 0..vms.len() {
                for b in (0..vms.len()).filter(|&b| b != a) {
                    let ahead = got[a] * weight(b) - got[b] * weight(a);
                    let both = largest[a] * weight(b) + largest[b] * weight(a);
                    let most = times * (both + ROUNDING * weight(a) * weight(b));
                    let grown = ahead - least[a][b];
                    assert!(grown < most, "{what}: {a} by {grown} of {most} over {b}");
                    least[a][b] = least[a][b].min(ahead);
                }
            }
        }
    }
}

/// Request as the papers tag it, at its arrival.
struct Tagged {
    start: u128,
    finish: u128,
    tag: u64,
}

oracle_test! {
    fn picks_are_those_of_the_rules(own_depth in 0u32..=3, cost in 0usize..4)
    policies: ["sfq", "token-bucket+sfq"],
    spec: |name| sfq(name, cost, u64::from(own_depth)),
    weights: weight(),
    steps: 500,
    cases: (ProptestConfig::default().cases / 2).max(64),
    config: |config| config,
    model: |_: &LabConfig| Tags::new(cost, own_depth),
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: (ProptestConfig::default().cases / 2).max(64),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Checks the order against the papers' tagging: a request gets both tags when it arrives, from
    /// v and from the request before it, and v is the start tag of the request dispatched last.
    #[test]
    fn the_order_is_that_of_tags_given_at_arrival(
        depth in 1u64..=4,
        weights in prop::array::uniform4(weight()),
        steps in prop::collection::vec((0u8..10, 0usize..4, 1u32..=16), 0..400),
    ) {
        let mut world = World::with_config(config(8, 0), "sfq", MS);
        let now = Nanos::ZERO;
        world.driver.engine.set_policy(now, &sfq("sfq", 0, depth));
        let guests = weights.map(|w| world.guest(&weighted(w)));
        let mut queues: [VecDeque<Tagged>; 4] = Default::default();
        let (mut v, mut finished, mut latest) = (0u128, [0u128; 4], 0u128);
        let mut outstanding = VecDeque::new();
        for (n, (what, vm, blocks)) in steps.into_iter().enumerate() {
            let (n, len) = (n as u64, blocks * 4096);
            match what {
                0..=3 => {
                    let request = Request::read(n << 21, len, n);
                    world.driver.request(guests[vm].client, request).expect("taken");
                    if outstanding.is_empty() && queues.iter().all(VecDeque::is_empty) {
                        v = v.max(latest);
                    }
                    let start = v.max(finished[vm]);
                    let finish = start + len.max(COST_SIZE) as u128 * BYTE / weights[vm] as u128;
                    finished[vm] = finish;
                    queues[vm].push_back(Tagged { start, finish, tag: n });
                }
                4..=7 => {
                    let io = world.driver.start();
                    let first = (0..4)
                        .filter(|&q| !queues[q].is_empty() && outstanding.len() < depth as usize)
                        .min_by_key(|&q| queues[q][0].start);
                    prop_assert_eq!(io.map(|io| io.vm), first.map(|q| guests[q].vm));
                    if let (Some(io), Some(q)) = (io, first) {
                        let Tagged { start, finish, tag } = queues[q].pop_front().expect("some");
                        let segment = world.driver.engine.io_segments(io.id).next().expect("data");
                        prop_assert_eq!(segment.tag, tag);
                        (v, latest) = (start, latest.max(finish));
                        outstanding.push_back(io);
                    }
                }
                _ => if let Some(io) = outstanding.pop_front() {
                    world.driver.end(&io, Ok(()));
                },
            }
        }
        for io in outstanding {
            world.driver.end(&io, Ok(()));
        }
    }

    /// Checks the published bounds after each dispatch and each completion, for any weights.
    #[test]
    fn the_published_bounds_are_never_passed(
        vms in prop::collection::vec((1u32..=1000, 4096u32..=1 << 20), 2..8),
        depth in 1u32..=8,
        by in 0usize..4,
    ) {
        assert_bounds(&vms, depth, by);
    }

    /// Checks the module's bound on starvation: the service of each other VM before a VM that wakes
    /// up.
    #[test]
    fn a_woken_vm_waits_for_one_io_each_at_most(
        weights in prop::collection::vec(1u32..=10_000, 1..6),
        weight in 1u32..=10_000,
        len in 4096u32..=1 << 20,
        slept_ms in 0u64..50,
    ) {
        let mut world = World::new("sfq", MS);
        let others: Vec<Guest> = weights.iter().map(|&w| world.guest(&weighted(w))).collect();
        for &other in &others {
            world.load(other, Op::Read, 64 << 10, 4);
        }
        let guest = world.guest(&weighted(weight));
        world.load(guest, Op::Read, len, 1);
        world.run(100 * MS);
        world.unload(guest);
        world.run(slept_ms * MS);
        world.driver.log.clear();
        world.load(guest, Op::Read, len, 1);
        let ahead = len.max(COST_SIZE) as f64 / f64::from(weight);
        // One I/O, the lead of the woken VM in the other's weight, and the rounding of tags.
        let most = |w: u32| f64::from(64 << 10) + f64::from(w) * ahead * 1.000_001 + 1.0;
        let all: f64 = weights.iter().map(|&w| most(w)).sum();
        world.run((all / f64::from(64 << 10)) as u64 * MS + 2 * MS);
        let served = world.driver.log.iter().position(|s| s.io.vm == guest.vm);
        let served = served.expect("within the bound");
        for (other, &w) in others.iter().zip(&weights) {
            let before = world.driver.log[..served].iter().filter(|s| s.io.vm == other.vm);
            let got: u64 = before.map(|s| s.io.len as u64).sum();
            prop_assert!(got as f64 <= most(w), "{got} of {} before it", most(w));
        }
    }
}

/// Weights that do not divide the costs: of two VMs with equal whole tags one may go although it is
/// a fraction of a unit ahead, and then leads by that much more than both costs.
#[test]
fn tags_rounded_to_whole_numbers_stay_within_the_published_bounds() {
    assert_bounds(&[(455, 240_753), (425, 584_706)], 1, 3);
    assert_bounds(&[(186, 360_387), (451, 652_642)], 1, 3);
    assert_bounds(&[(151, 255_445), (92, 259_902)], 1, 3);
}

#[test]
fn shares_go_by_weight_within_a_hundredth() {
    for (by, name) in CostBy::WORDS.iter().enumerate() {
        let mut world = World::with_config(config(32, 0), "sfq", MS);
        world
            .driver
            .engine
            .set_policy(Nanos::ZERO, &sfq("sfq", by, 8));
        set_profile(&mut world);
        let weights = [100, 300, 77, 523];
        let guests = weights.map(|w| world.guest(&weighted(w)));
        for (guest, len) in guests.iter().zip([4096, 65536, 10_240, 200_704]) {
            world.load(*guest, Op::Read, len, 40);
        }
        world.run(330 * SECOND);
        let mut got = [0; 4];
        for (guest, cost) in costs_of(by, &guests, &world.driver.log) {
            got[guest] += cost;
        }
        let all: u128 = got.iter().sum();
        for (got, weight) in got.iter().zip(weights) {
            let fair = all * weight as u128 / 1000;
            assert!(got.abs_diff(fair) * 100 <= fair, "{name}: {got} of {fair}");
        }
        let ios = guests.map(|g| world.driver.log.iter().filter(|s| s.io.vm == g.vm).count());
        assert!(ios.iter().all(|&n| n >= 10_000), "{name}: {ios:?}");
    }
}

#[test]
fn no_more_than_d_are_outstanding() {
    let mut world = World::with_config(config(32, 0), "sfq", MS);
    world
        .driver
        .engine
        .set_policy(Nanos::ZERO, &sfq("sfq", 0, 5));
    let guests = [0; 3].map(|_| world.guest(&weighted(100)));
    guests
        .iter()
        .for_each(|g| world.load(*g, Op::Read, 4096, 16));
    world.run(10 * MS);
    assert_eq!(world.driver.engine.device_stats().in_flight, 5);
    // I/Os that another policy left in flight count towards the depth, too.
    world.swap("fifo");
    world.run(1);
    assert_eq!(world.driver.engine.device_stats().in_flight, 32);
    let started = world.driver.engine.device_stats().started;
    world
        .driver
        .engine
        .set_policy(world.time(), &sfq("sfq", 0, 5));
    world.run(20 * MS);
    assert_eq!(world.driver.engine.device_stats().started, started);
    world.run(20 * MS);
    assert_eq!(world.driver.engine.device_stats().in_flight, 5);
}

#[test]
fn room_beyond_d_is_not_booked_as_a_deliberate_wait() {
    let mut world = World::with_config(config(32, 0), "sfq", MS);
    world
        .driver
        .engine
        .set_policy(Nanos::ZERO, &sfq("sfq", 0, 1));
    world.keep_done = true;
    let guest = world.guest(&weighted(100));
    world.load(guest, Op::Read, 4096, 4);
    world.run(50 * MS);
    let last = world.done.last().expect("some");
    assert_eq!(last.account.deliberate, Nanos::ZERO);
    assert!(last.account.queued > Nanos::ZERO);
}

#[test]
fn idle_time_earns_nothing() {
    let mut world = World::new("sfq", MS);
    let [a, b] = [0; 2].map(|_| world.guest(&weighted(100)));
    world.load(a, Op::Read, 4096, 8);
    world.run(100 * SECOND);
    world.driver.log.clear();
    world.load(b, Op::Read, 4096, 8);
    world.run(SECOND);
    let [a, b] = [a, b].map(|g| total(&world.ops(g)));
    assert!(a.abs_diff(b) <= 2, "{a} and {b}");
}

#[test]
fn a_busy_period_forgets_the_one_before() {
    let mut world = World::new("sfq", MS);
    let [a, b] = [0; 2].map(|_| world.guest(&weighted(1)));
    // A large I/O of `a`, then the device is idle.
    world
        .driver
        .request(a.client, Request::read(0, 1 << 20, 0))
        .expect("taken");
    world.run(10 * MS);
    world.driver.log.clear();
    world.load(a, Op::Read, 16384, 8);
    world.load(b, Op::Read, 16384, 8);
    world.run(10 * MS);
    let order: Vec<bool> = world.driver.log.iter().map(|s| s.io.vm == a.vm).collect();
    assert!(
        order
            .chunks(2)
            .all(|pair| pair.iter().filter(|&&of_a| of_a).count() == 1),
        "{order:?}"
    );
}

#[test]
fn a_weight_that_is_raised_counts_at_once() {
    let mut world = World::new("sfq", MS);
    let other = world.guest(&weighted(10_000));
    world.load(other, Op::Read, 4096, 4);
    let guest = world.guest(&weighted(1));
    world.load(guest, Op::Read, 4096, 4);
    world.run(SECOND);
    world.set(guest, &weighted(10_000));
    world.driver.log.clear();
    world.run(SECOND);
    let got = total(&world.ops(guest));
    assert!(
        got.abs_diff(500) <= 2,
        "{got} of 1000 for one of two equal VMs"
    );
}

#[test]
fn flushes_are_charged_to_the_vm_that_sends_them() {
    let mut world = World::new("sfq", MS);
    let [plain, flusher] = [0; 2].map(|_| world.guest(&weighted(100)));
    world.load(plain, Op::Read, 16384, 4);
    world.load(flusher, Op::Read, 16384, 4);
    for _ in 0..500 {
        let flush = Request::flush(1 << 20);
        world.driver.request(flusher.client, flush).expect("taken");
        world.run(10 * MS);
    }
    let turns = |g: Guest| world.driver.log.iter().filter(|s| s.io.vm == g.vm).count();
    // One of ten turns in 10 ms is the flush, and counts for the VM that flushes.
    let (plain, flusher) = (turns(plain), turns(flusher));
    assert!(plain.abs_diff(flusher) <= 4, "{plain} and {flusher}");
}

#[test]
fn a_vm_that_only_flushes_owes_no_more_than_32_of_them() {
    let mut world = World::new("sfq", MS);
    let [plain, flusher] = [0; 2].map(|_| world.guest(&weighted(100)));
    world.load(plain, Op::Read, 16384, 4);
    for _ in 0..1000 {
        world
            .driver
            .request(flusher.client, Request::flush(1 << 20))
            .expect("taken");
        world.run(2 * MS);
    }
    world.driver.log.clear();
    world.load(flusher, Op::Read, 16384, 4);
    world.run(SECOND);
    let first = world
        .driver
        .log
        .iter()
        .position(|s| s.io.vm == flusher.vm && s.io.op == Op::Read);
    // The debt of 32 small I/Os, and one I/O of each VM.
    assert!(first.is_some_and(|n| n <= 32 + 2), "{first:?}");
}

#[test]
fn a_vm_held_back_by_its_limit_does_not_save_up_its_share() {
    let mut world = World::new("token-bucket+sfq", MS);
    let other = world.guest(&weighted(100));
    world.load(other, Op::Read, 4096, 4);
    let guest = world.guest(&limited(Rate::iops(10)));
    world.load(guest, Op::Read, 4096, 4);
    world.run(10 * SECOND);
    world.set(guest, &weighted(100));
    world.driver.log.clear();
    world.run(100 * MS);
    let got = total(&world.ops(guest));
    assert!(
        got.abs_diff(50) <= 2,
        "{got} of 100 for one of two equal VMs"
    );
}

#[test]
fn cost_parameter_selects_the_unit_of_fairness() {
    // Two equal VMs, one with I/Os eight times as large.
    for (by, fair) in [(0, 8), (1, 1), (2, 8)] {
        let mut world = World::new("sfq", MS);
        world
            .driver
            .engine
            .set_policy(Nanos::ZERO, &sfq("sfq", by, 0));
        let [small, large] = [0; 2].map(|_| world.guest(&weighted(100)));
        world.load(small, Op::Read, 16 << 10, 16);
        world.load(large, Op::Read, 128 << 10, 16);
        world.run(9 * SECOND);
        let [small, large] = [small, large].map(|g| total(&world.ops(g)));
        assert!(
            small.abs_diff(fair * large) <= 8,
            "{}: {small} and {large}",
            CostBy::WORDS[by]
        );
    }
}

/// Returns a constructor of SFQ by the cost with index `by` of the words.
fn maker(by: usize) -> impl Fn(&Capacity) -> Box<dyn Dispatcher> {
    let by = [
        CostBy::Bytes,
        CostBy::Requests,
        CostBy::SizeClasses,
        CostBy::DeviceTime,
    ][by];
    let cost = CostParams {
        by,
        size: COST_SIZE,
    };
    move |capacity| Box::new(Sfq::new(SfqParams { depth: 0, cost }, capacity))
}

#[test]
fn where_rates_are_allocated_they_are_the_weights() {
    let iops = |guest, rate: u64| (guest, Knob::Allocation(rate * 1000));
    for by in 0..CostBy::WORDS.len() {
        // From the smallest to the largest, and next to it, where a weight is coarsest.
        for (first, second) in [
            ([1, 3], [2, 2]),
            ([1, 1000], [1000, 1]),
            ([3_000_000, 1_000_000], [4_000_000, 1_333_333]),
        ] {
            let knobs = [first, second].map(|of| [iops(0, of[0]), iops(1, of[1])]);
            let got = lab::picks_with_knobs(maker(by), true, 8000, [&knobs[0], &knobs[1]]);
            for (got, of) in got.into_iter().zip([first, second]) {
                let fair = (4000 * of[1] / (of[0] + of[1])) as usize;
                assert!(got[1].abs_diff(fair) <= 2, "{of:?} by {by}: {got:?}");
            }
        }
    }
}

#[test]
fn zero_allocation_restores_the_weight() {
    let rate = |guest, rate| (guest, Knob::Allocation(rate));
    let first = [rate(0, 1_000_000), rate(1, 3_000_000)];
    let second = [rate(1, 0), (0, Knob::Weight(10_000))];
    let got = lab::picks_with_knobs(maker(1), true, 800, [&first, &second]);
    assert_eq!(got, [[100, 300]; 2]);
    // And without a controller that allocates, an allocation is no weight.
    let got = lab::picks_with_knobs(maker(1), false, 800, [&first, &second[1..]]);
    assert_eq!(got[0], [200, 200]);
    assert!(got[1][1] <= 4, "{got:?}");
}

#[test]
fn weight_set_by_a_controller_counts_at_once() {
    let [before, after] = lab::picks_with_a_knob(maker(0), 800, 300);
    assert_eq!(before, [200, 200]);
    assert!(after[1].abs_diff(300) <= 1, "{after:?}");
}

#[test]
fn a_profile_counts_from_when_it_is_there_and_again_after_a_swap() {
    // Random reads take two and four times as long in the second profile as sequential ones.
    let flat = |iops| Curve::new(&[(4096, iops)]).expect("a curve");
    let profile = |random| {
        let reads = [flat(4000.0), flat(random)];
        Some(Arc::new(Profile::new(reads, None, Vec::new(), Vec::new())))
    };
    let mut world = World::new("sfq", MS);
    world
        .driver
        .engine
        .set_policy(Nanos::ZERO, &sfq("sfq", 3, 0));
    let [stream, seeks] = [0; 2].map(|_| world.guest(&weighted(100)));
    let order = |world: &mut World, n: &mut u64| {
        let mut got = [0u64; 2];
        for _ in 0..1200 {
            for (guest, place) in [(stream, *n * 4096), (seeks, (1 << 30) + *n * 8192)] {
                if world.driver.engine.vms().pending(guest.vm) == 0 {
                    let read = Request::read(place, 4096, *n);
                    world.driver.request(guest.client, read).expect("taken");
                }
            }
            let io = world.driver.start().expect("both wait");
            if io.vm == stream.vm {
                *n += 1;
            }
            got[usize::from(io.vm == seeks.vm)] += 1;
            world.driver.end(&io, Ok(()));
        }
        got
    };
    let near = |got: [u64; 2], times: u64| {
        let fair = 1200 * times / (times + 1);
        assert!(got[0].abs_diff(fair) <= 4, "{got:?}, not {times} to one");
    };
    let mut n = 0;
    near(order(&mut world, &mut n), 1);
    world
        .driver
        .engine
        .device_mut()
        .set_profile(profile(2000.0));
    near(order(&mut world, &mut n), 2);
    world
        .driver
        .engine
        .device_mut()
        .set_profile(profile(1000.0));
    near(order(&mut world, &mut n), 4);
    let policy = sfq("sfq", 3, 1);
    world.driver.engine.set_policy(Nanos::ZERO, &policy);
    near(order(&mut world, &mut n), 4);
    // A removed profile stays in use as long as the policy does.
    world.driver.engine.device_mut().set_profile(None);
    near(order(&mut world, &mut n), 4);
}
