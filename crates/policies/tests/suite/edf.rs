//! Tests of EDF: against its rule in a linear scan, and its behaviours.

use crate::common::lab::{GUESTS, Lab, Model, Terms, starts};
use crate::common::oracle_test;
use crate::common::*;
use proptest::prelude::*;
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_core::request::{DeviceIo, Op, ReqId, Request};
use tidegate_core::starvation::DeadlineFrom;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

#[derive(Clone, Copy, Debug)]
struct Params {
    from: DeadlineFrom,
    margin: Nanos,
    default: Nanos,
    background: Nanos,
}

impl Params {
    fn spec(&self, name: &str) -> PolicySpec {
        let mut spec = policy(name);
        for (name, value) in [
            ("deadline_from", Nanos(self.from as u64)),
            ("margin", self.margin),
            ("default_latency", self.default),
            ("best_effort_latency", self.default),
            ("background_latency", self.background),
        ] {
            spec.set(name, value.0).expect("in range");
        }
        spec
    }
}

/// Model that scans every guest's first unit for each pick.
struct Scan(Params);

impl Model for Scan {
    fn reset(&mut self, _lab: &Lab) {}
    fn added(&mut self, _lab: &Lab, _guest: usize) {}
    fn weighed(&mut self, _lab: &Lab, _guest: usize) {}
    fn look(&mut self, _lab: &Lab) {}
    fn started(&mut self, _lab: &Lab, _guest: usize, _io: &DeviceIo) {}

    fn next(&mut self, lab: &Lab) -> Option<ReqId> {
        let heads = (0..GUESTS).filter_map(|guest| {
            let unit = lab.unit(lab.head(guest)?);
            let promised = lab.guests[guest].objective.latency;
            let start = lab.begins(&unit, self.0.from);
            let due = if is_background(guest) {
                start + self.0.background
            } else {
                start + promised.unwrap_or(self.0.default) - self.0.margin
            };
            Some((due, unit.seq, unit.id))
        });
        heads.min().map(|(_, _, id)| id)
    }
}

fn is_background(guest: usize) -> bool {
    guest >= 4
}

/// Maps a weight to a latency bound in ms; one in eight guests has none.
fn latency(weight: u32) -> Option<Nanos> {
    (!weight.is_multiple_of(8)).then(|| Nanos::from_millis(weight as u64))
}

fn params() -> impl Strategy<Value = Params> {
    let spans = (0u64..30, 0u64..300, 0u64..600);
    (starts(), spans).prop_map(|(from, (margin, default, background))| Params {
        from,
        margin: Nanos::from_millis(margin),
        default: Nanos::from_millis(default),
        background: Nanos::from_millis(background),
    })
}

oracle_test! {
    fn picks_are_the_earliest_deadlines(params in params())
    policies: ["edf", "token-bucket+edf"],
    spec: |name| params.spec(name),
    weights: 1u32..200,
    steps: 600,
    cases: (ProptestConfig::default().cases / 2).max(64),
    terms: |terms| Terms {
        latency,
        background: is_background,
        ..terms
    },
    model: |_: &Terms| Scan(params),
}

fn promised(ms: u64) -> Objective {
    Objective {
        latency: Some(Nanos::from_millis(ms)),
        ..Objective::default()
    }
}

/// Issues one request of each guest, each so many ms after the one before. Returns the guests in
/// the order of service.
fn order(world: &mut World, asks: &[(Guest, u64)]) -> Vec<usize> {
    for &(guest, after) in asks {
        world.driver.now.0 += after * MS;
        let request = Request::read(0, 4096, u64::MAX);
        let taken = world.driver.request(guest.client, request);
        taken.expect("room");
    }
    let from = world.driver.log.len();
    world.run(SECOND);
    let started = world.driver.log[from..].iter();
    let by = started.map(|s| asks.iter().position(|(guest, _)| guest.vm == s.io.vm));
    by.map(|place| place.expect("one that asked")).collect()
}

#[test]
fn a_tighter_bound_goes_first_and_equals_by_arrival() {
    let mut world = World::new("edf", MS);
    let guests = [80, 20, 50, 50].map(|ms| world.guest(&promised(ms)));
    let asks = guests.map(|guest| (guest, 0));
    assert_eq!(order(&mut world, &asks), [1, 2, 3, 0]);
}

#[test]
fn a_looser_bound_that_came_much_earlier_goes_first() {
    let mut world = World::new("edf", MS);
    let [loose, tight] = [80, 20].map(|ms| world.guest(&promised(ms)));
    assert_eq!(order(&mut world, &[(loose, 0), (tight, 61)]), [0, 1]);
    assert_eq!(order(&mut world, &[(loose, 0), (tight, 59)]), [1, 0]);
}

#[test]
fn a_vm_without_a_bound_stands_between_promises_and_the_background() {
    let mut world = World::new("edf", MS);
    let mut spec = policy("edf");
    let spans = [("best_effort_latency", 200), ("background_latency", 500)];
    for (name, ms) in spans {
        spec.set(name, ms * MS).expect("it is in range");
    }
    world.driver.engine.set_policy(Nanos::ZERO, &spec);
    let none = world.guest(&Objective::default());
    let background = world.background();
    let promised = world.guest(&promised(150));
    let asks = [(background, 0), (none, 0), (promised, 0)];
    assert_eq!(order(&mut world, &asks), [2, 1, 0]);
    // But the background is not passed over for ever: 500 ms after it came it is due.
    let asks = [(background, 0), (none, 320)];
    assert_eq!(order(&mut world, &asks), [0, 1]);
}

#[test]
fn a_vm_that_was_promised_nothing_stands_behind_those_that_were() {
    let mut world = World::new("edf", MS);
    let nothing = world.guest(&Objective::default());
    let rate = world.guest(&Objective {
        reservation: Rate::iops(10),
        ..Objective::default()
    });
    // 5 s against 200 ms.
    assert_eq!(order(&mut world, &[(nothing, 0), (rate, 4_700)]), [1, 0]);
    assert_eq!(order(&mut world, &[(nothing, 0), (rate, 4_900)]), [0, 1]);
}

#[test]
fn a_margin_above_the_bound_is_a_deadline_before_the_arrival() {
    let mut world = World::new("edf", MS);
    world.driver.now.0 = SECOND;
    let [late, early] = [5, 3].map(|ms| world.guest(&promised(ms)));
    assert_eq!(order(&mut world, &[(late, 0), (early, 0)]), [1, 0]);
}

#[test]
fn a_changed_objective_counts_for_what_waits_already() {
    let mut world = World::new("edf", 10 * MS);
    let [busy, other] = [40, 60].map(|ms| world.guest(&promised(ms)));
    world.load(busy, Op::Read, 4096, 4);
    world.load(other, Op::Read, 4096, 1);
    world.run(MS);
    world.set(other, &promised(15));
    let from = world.driver.log.len();
    world.run(10 * MS);
    assert_eq!(world.driver.log[from].io.vm, other.vm);
}

#[test]
fn what_a_limit_held_counts_only_from_the_arrival() {
    // The first VM's second request is held for a second, and let in while one of three of the
    // other's is in flight. Less the margin it is due 71 ms after that; the other's two that wait
    // 51 ms after 985, and so is what comes when the first of them ends, at 1005.
    let next = |from: DeadlineFrom| {
        let spec = Params {
            from,
            margin: Nanos::from_millis(9),
            default: Nanos::from_millis(200),
            background: Nanos::from_millis(500),
        }
        .spec("token-bucket+edf");
        let mut world = World::new("fifo", 20 * MS);
        world.driver.engine.set_policy(Nanos::ZERO, &spec);
        let limited = world.guest(&Objective {
            limit: Limit {
                total: Rate::iops(1),
                ..Limit::NONE
            },
            ..promised(80)
        });
        let other = world.guest(&promised(60));
        world.load(limited, Op::Read, 4096, 2);
        world.run(985 * MS);
        let from = world.driver.log.len();
        world.load(other, Op::Read, 4096, 3);
        world.run(SECOND);
        let mut since = world.driver.log[from..].iter();
        since.position(|started| started.io.vm == limited.vm)
    };
    assert_eq!(next(DeadlineFrom::Arrival), Some(1));
    assert_eq!(next(DeadlineFrom::Admission), Some(4));
}
