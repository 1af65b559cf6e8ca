//! Tests of mClock against its rules in linear scans.

use crate::common::costs::{self, Costs};
use crate::common::*;
use proptest::prelude::*;
use std::sync::Arc;
use tidegate_core::objective::{Limit, Objective, OpsRate, Rate};
use tidegate_core::request::{DeviceIo, Op};

/// Defaults of mClock's parameters.
const COST_SIZE: u128 = 16 << 10;
const SLACK: u64 = 900_000;
const MOST_AHEAD: u128 = 32;
const DEPTH: usize = 3;

/// Tag of one rate: its time multiplied by the rate, so that no rounding occurs.
#[derive(Clone)]
struct Tag {
    rate: u128,
    scaled: u128,
}

impl Tag {
    fn new(rate: Option<u64>) -> Option<Tag> {
        rate.map(|rate| Tag {
            rate: rate as u128,
            scaled: 0,
        })
    }

    fn due(&self) -> u64 {
        (self.scaled / self.rate) as u64
    }

    fn forget_before(&mut self, time: u64) {
        if self.due() < time {
            self.scaled = time as u128 * self.rate;
        }
    }

    fn spend(&mut self, units: u128) {
        self.scaled += units * SECOND as u128;
    }
}

/// Tags of the rates in requests and in bytes.
type Tags = [Option<Tag>; 2];

fn tags(rate: &Rate) -> Tags {
    [
        Tag::new(rate.ops.map(|o| o.per_s)),
        Tag::new(rate.bytes_per_s),
    ]
}

fn dues(tags: &Tags) -> impl Iterator<Item = u64> + '_ {
    tags.iter().flatten().map(Tag::due)
}

fn forget(tags: &mut Tags, time: u64) {
    tags.iter_mut()
        .flatten()
        .for_each(|t| t.forget_before(time));
}

fn spend(tags: &mut Tags, io: &DeviceIo) {
    let units = [io.first_ops as u128, io.len as u128];
    for (tag, units) in tags.iter_mut().zip(units) {
        tag.iter_mut().for_each(|t| t.spend(units));
    }
}

/// Charges a limit. A late dispatch is made good for the slack, and requests that waited for as
/// much as a window of 100 ms has room for.
fn spend_limit(tags: &mut Tags, io: &DeviceIo, now: u64) {
    let slack = now.saturating_sub(SLACK);
    if let [Some(ops), _] = tags
        && io.first_ops > 0
    {
        let late = now.saturating_sub(max_lateness(ops.rate as u64));
        ops.forget_before(late.max(io.arrived.0.saturating_sub(SLACK)));
    }
    if let [_, Some(bytes)] = tags {
        bytes.forget_before(slack);
    }
    spend(tags, io);
}

struct Vm {
    reservation: Tags,
    limit: Tags,
    period: u64,
    weight: u128,
    /// Place in the order of shares: points x 2^56 / weight.
    share: u128,
    /// Bytes left of each waiting request.
    waiting: Vec<u32>,
    /// The limit held the VM back when it was checked last.
    held: bool,
    /// The reservation has come due, and the VM has not been served since.
    due: bool,
}

struct Oracle {
    costs: Costs,
    vms: Vec<Vm>,
    clock: u128,
    /// Longest lateness of reservations that is made good; beyond it time is forgiven to all VMs.
    catch_up: u64,
    forgiven: u64,
    /// Latest R tag served.
    front: u64,
}

/// Tolerance for the rounding of P in the engine: a point a service, times four.
const P_UNIT: u128 = 1 << 58;

fn virtual_cost(points: u128, weight: u128) -> u128 {
    (points << 56) / weight
}

impl Oracle {
    fn least_share(&self) -> Option<u128> {
        let ready = self.vms.iter().filter(|v| !v.waiting.is_empty() && !v.held);
        ready.map(|v| v.share).min()
    }

    fn arrives(&mut self, now: u64, vm: usize, len: u32) {
        let join = self.clock;
        self.look(now);
        let first = self.first_overdue();
        let first = first.and_then(|(_, v)| dues(&self.vms[v].reservation).min());
        let reservations_stand_at = first.unwrap_or(u64::MAX).min(now - self.forgiven);
        let vm = &mut self.vms[vm];
        if vm.waiting.is_empty() {
            forget(&mut vm.reservation, reservations_stand_at);
            // A limit does not save up the time in which the VM asked for nothing.
            forget(&mut vm.limit, now.saturating_sub(SLACK));
            let largest = self.costs.largest(1 << 20);
            let least = self.costs.of(0, Op::Flush, 0, 0, 1);
            let most = virtual_cost((MOST_AHEAD * least).max(2 * largest), vm.weight);
            if vm.share < join || vm.share > join + most {
                vm.share = join;
            }
            vm.held = !vm.allowed(now);
        }
        vm.waiting.push(len);
        self.look(now);
    }

    fn is_due(&self, now: u64, vm: usize) -> bool {
        let vm = &self.vms[vm];
        let due = dues(&vm.reservation).min();
        let asks = due.is_some_and(|due| due + self.forgiven <= now);
        asks && vm.allowed(now) && !vm.waiting.is_empty()
    }

    /// Marks reservations that have come due; a mark stays until the VM is served.
    fn look(&mut self, now: u64) {
        for vm in 0..self.vms.len() {
            self.vms[vm].due |= self.is_due(now, vm);
        }
    }

    /// Returns the time at which a due reservation is overdue.
    fn overdue(&self, vm: usize) -> Option<u64> {
        let vm = &self.vms[vm];
        let due = dues(&vm.reservation).min()?;
        vm.due.then_some(due + vm.period)
    }

    fn first_overdue(&self) -> Option<(u64, usize)> {
        let all = (0..self.vms.len()).filter_map(|v| Some((self.overdue(v)?, v)));
        all.min()
    }

    /// Returns the VMs one of which must go now, and `true` if it goes for its reservation; an
    /// empty list if none may go.
    fn picks(&mut self, now: u64) -> (Vec<usize>, bool) {
        for vm in self
            .vms
            .iter_mut()
            .filter(|v| !v.waiting.is_empty() && v.held)
        {
            if vm.allowed(now) {
                vm.held = false;
                vm.share = vm.share.max(self.clock);
            }
        }
        let allowed: Vec<usize> = (0..self.vms.len())
            .filter(|&v| !self.vms[v].waiting.is_empty() && self.vms[v].allowed(now))
            .collect();
        self.look(now);
        if let Some((first, _)) = self.first_overdue() {
            let at_once = |v: &usize| self.overdue(*v) == Some(first);
            return (allowed.into_iter().filter(at_once).collect(), true);
        }
        let least = allowed
            .iter()
            .map(|&v| self.vms[v].share)
            .min()
            .unwrap_or(0);
        let near = |v: &usize| self.vms[*v].share <= least + 1000 * P_UNIT;
        (allowed.into_iter().filter(near).collect(), false)
    }

    fn started(&mut self, now: u64, index: usize, io: &DeviceIo, reserved: bool) {
        let vm = &mut self.vms[index];
        let before = vm.share;
        let cost = (self.costs).of(index, io.op, io.addr, io.len, io.first_ops);
        self.costs.went(index, io.op, io.addr, io.len, io.first_ops);
        let least = self.costs.of(0, Op::Flush, 0, 0, 1);
        vm.share += virtual_cost(cost, vm.weight);
        spend_limit(&mut vm.limit, io, now);
        if reserved {
            let from = self.front.saturating_sub(self.catch_up + vm.period);
            forget(&mut vm.reservation, from);
            let due = dues(&vm.reservation).min().expect("it has one");
            if due > self.front {
                self.front = due;
                let late = (now - self.forgiven).saturating_sub(due);
                self.forgiven += late.saturating_sub(self.catch_up);
            }
            spend(&mut vm.reservation, io);
            let most = virtual_cost((MOST_AHEAD * least).max(2 * cost), vm.weight);
            vm.share = vm.share.min((self.clock + most).max(before));
        }
        vm.waiting[0] -= io.len;
        if vm.waiting[0] == 0 {
            vm.waiting.remove(0);
        }
        vm.held = !vm.allowed(now);
        vm.due = false;
        self.look(now);
        let least = self.least_share().map_or(before, |least| least.min(before));
        self.clock = self.clock.max(least);
    }

    /// Returns the next time at which a request that is held now may go.
    fn next(&self) -> Option<u64> {
        let waiting = self.vms.iter().filter(|v| !v.waiting.is_empty());
        waiting.map(|v| dues(&v.limit).max().unwrap_or(0)).min()
    }
}

impl Vm {
    fn new(objective: &Objective) -> Vm {
        let reservation = tags(&objective.reservation);
        // One spacing: of a request, or of `cost_size` bytes; the shorter.
        let cost = [1, COST_SIZE];
        let spacing = reservation.iter().zip(cost).filter_map(|(tag, units)| {
            tag.as_ref()
                .map(|t| (units * SECOND as u128 / t.rate) as u64)
        });
        Vm {
            period: spacing.min().unwrap_or(0),
            reservation,
            limit: tags(&objective.limit.total),
            weight: objective.weight as u128,
            share: 0,
            waiting: Vec::new(),
            held: false,
            due: false,
        }
    }

    fn allowed(&self, now: u64) -> bool {
        dues(&self.limit).all(|due| due <= now)
    }
}

struct Bench {
    driver: Driver,
    oracle: Oracle,
    guests: Vec<Guest>,
    /// End of each VM's last request.
    ends: Vec<u64>,
    asked: u64,
}

impl Bench {
    fn new(objectives: &[Objective], catch_up: u64, by: usize) -> Bench {
        let mut policy = policy("mclock");
        policy.set("catch_up", catch_up).expect("in its range");
        policy.set("cost", by as u64).expect("there are four");
        let mut driver = Driver::new(config(DEPTH as u32, 0), &policy);
        driver
            .engine
            .device_mut()
            .set_profile(Some(Arc::new(costs::profile())));
        let mut oracle = Oracle {
            costs: Costs::new(by, objectives.len()),
            vms: Vec::new(),
            clock: 0,
            catch_up,
            forgiven: 0,
            front: 0,
        };
        let mut guests = Vec::new();
        for (n, objective) in objectives.iter().enumerate() {
            let guest = driver.guest(objective);
            assert_eq!(guest.vm.index(), n, "slots are dense");
            guests.push(guest);
            oracle.vms.push(Vm::new(objective));
        }
        Bench {
            driver,
            oracle,
            guests,
            ends: vec![0; objectives.len()],
            asked: 0,
        }
    }

    fn request(&mut self, vm: usize, write: bool, len: u32) {
        self.asked += 1;
        let op = if write { Op::Write } else { Op::Read };
        // Now and then it goes on where the last one ended.
        let offset = if self.asked.is_multiple_of(3) {
            self.ends[vm]
        } else {
            self.asked << 24
        };
        let client = self.guests[vm].client;
        if self.driver.ask(client, op, offset, len).is_ok() {
            self.ends[vm] = offset + u64::from(len);
            self.oracle.arrives(self.driver.now.0, vm, len);
        }
    }

    fn dispatch(&mut self) {
        while self.driver.in_flight.len() < DEPTH {
            let (candidates, reserved) = self.oracle.picks(self.driver.now.0);
            let io = self.driver.start();
            assert_eq!(
                io.is_some(),
                !candidates.is_empty(),
                "{candidates:?} at {}",
                self.driver.now.0
            );
            let Some(io) = io else {
                let next = self.driver.engine.next_timeout().map(|t| t.0);
                assert_eq!(next, self.oracle.next(), "the wake-up");
                return;
            };
            assert!(
                candidates.contains(&io.vm.index()),
                "{candidates:?}, not {io:?}"
            );
            self.oracle
                .started(self.driver.now.0, io.vm.index(), &io, reserved);
        }
    }

    fn complete(&mut self, which: usize) {
        let in_flight = self.driver.in_flight.len();
        if in_flight > 0 {
            self.driver.end_nth(which % in_flight, Ok(()));
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Request { vm: usize, write: bool, len: u32 },
    Complete { which: usize },
    Dispatch,
    Wait { nanos: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![4 => 1u32..=65536, 1 => 65536u32..=3 << 20];
    prop_oneof![
        5 => (0usize..6, any::<bool>(), len)
            .prop_map(|(vm, write, len)| Step::Request { vm, write, len }),
        4 => (0usize..DEPTH).prop_map(|which| Step::Complete { which }),
        4 => Just(Step::Dispatch),
        2 => (0u64..=20 * MS).prop_map(|nanos| Step::Wait { nanos }),
    ]
}

fn rate(ops: std::ops::Range<u64>, bytes: std::ops::Range<u64>) -> impl Strategy<Value = Rate> {
    (prop::option::of(ops), prop::option::of(bytes)).prop_map(|(ops, bytes_per_s)| Rate {
        ops: ops.map(|per_s| OpsRate { per_s, norm: None }),
        bytes_per_s,
    })
}

fn objective() -> impl Strategy<Value = Objective> {
    let reservation = rate(1..500, 1_000..20_000_000);
    let limit = rate(500..3000, 20_000_000..200_000_000);
    let weight = prop_oneof![1u32..=10, 1u32..=10_000];
    (reservation, limit, weight).prop_map(|(reservation, total, weight)| Objective {
        reservation,
        limit: Limit::of_all(total),
        weight,
        ..Objective::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn picks_are_those_of_the_rules(
        objectives in prop::collection::vec(objective(), 1..7),
        catch_up in prop_oneof![Just(SECOND), 0..=50 * MS],
        by in 0usize..4,
        steps in prop::collection::vec(step(), 0..400),
    ) {
        let mut bench = Bench::new(&objectives, catch_up, by);
        for step in steps {
            match step {
                Step::Request { vm, write, len } => {
                    bench.request(vm % objectives.len(), write, len);
                }
                Step::Complete { which } => bench.complete(which),
                Step::Dispatch => bench.dispatch(),
                Step::Wait { nanos } => bench.driver.now.0 += nanos,
            }
        }
    }

    #[test]
    fn shares_go_by_weight_within_one_service_a_pair(
        vms in prop::collection::vec((1u32..=1000, 4096u32..=1 << 20), 2..8),
        depth in 1u32..=8,
    ) {
        let mut world = World::with_config(config(depth, 0), "mclock", MS);
        let of = |&(weight, _): &(u32, u32)| Objective { weight, ..Objective::default() };
        let guests: Vec<Guest> = vms.iter().map(|vm| world.guest(&of(vm))).collect();
        for (guest, &(_, len)) in guests.iter().zip(&vms) {
            world.load(*guest, Op::Read, len, 2 * depth);
        }
        world.run(2 * SECOND);
        // Cumulative service by weight, after each dispatch.
        let mut got = vec![0u64; vms.len()];
        let cost = |len: u32| (len as u64).max(COST_SIZE as u64);
        for start in &world.driver.log {
            let vm = guests.iter().position(|g| g.vm == start.io.vm).expect("one of them");
            got[vm] += cost(start.io.len);
            for (a, &(weight_a, len_a)) in vms.iter().enumerate() {
                for (b, &(weight_b, len_b)) in vms.iter().enumerate() {
                    let share = |n: u64, weight| n as f64 / weight as f64;
                    let ahead = share(got[a], weight_a) - share(got[b], weight_b);
                    let most = share(cost(len_a), weight_a) + share(cost(len_b), weight_b);
                    prop_assert!(ahead <= most * 1.000_001, "{a} is {ahead} ahead of {b}");
                }
            }
        }
    }
}
