//! Tests of EDF: against a model that scans all deadlines, and examples of its behaviour.

use crate::common::lab::{GUESTS, Lab, LabConfig, Model, deadline_starts};
use crate::common::oracle_test;
use crate::common::*;
use proptest::prelude::*;
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_core::request::{DeviceIo, Op, ReqId, Request};
use tidegate_core::starvation::DeadlineFrom;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// Parameters of EDF, and of the model.
#[derive(Clone, Copy, Debug)]
struct Params {
    from: DeadlineFrom,
    margin: Nanos,
    /// Deadline of a VM without a latency bound.
    default: Nanos,
    /// Deadline of a background process.
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

/// Model that computes the deadline of every guest's first unit for each pick.
struct Scan(Params);

impl Model for Scan {
    fn reset(&mut self, _lab: &Lab) {}
    fn added(&mut self, _lab: &Lab, _guest: usize) {}
    fn weight_changed(&mut self, _lab: &Lab, _guest: usize) {}
    fn refresh(&mut self, _lab: &Lab) {}
    fn started(&mut self, _lab: &Lab, _guest: usize, _io: &DeviceIo) {}

    fn next(&mut self, lab: &Lab) -> Option<ReqId> {
        let heads = (0..GUESTS).filter_map(|guest| {
            let unit = lab.unit(lab.head(guest)?);
            let bound = lab.guests[guest].objective.latency;
            let start = lab.deadline_start(&unit, self.0.from);
            let due = if is_background(guest) {
                start + self.0.background
            } else {
                start + bound.unwrap_or(self.0.default) - self.0.margin
            };
            Some((due, unit.seq, unit.id))
        });
        heads.min().map(|(_, _, id)| id)
    }
}

/// Makes the last two guests background processes.
fn is_background(guest: usize) -> bool {
    guest >= 4
}

/// Maps a weight to a latency bound in ms; one in eight guests has none.
fn latency(weight: u32) -> Option<Nanos> {
    (!weight.is_multiple_of(8)).then(|| Nanos::from_millis(weight as u64))
}

fn params() -> impl Strategy<Value = Params> {
    let spans = (0u64..30, 0u64..300, 0u64..600);
    (deadline_starts(), spans).prop_map(|(from, (margin, default, background))| Params {
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
    config: |config| LabConfig {
        latency,
        background: is_background,
        ..config
    },
    model: |_: &LabConfig| Scan(params),
}

/// Objective with a latency bound of `ms` milliseconds.
fn bounded(ms: u64) -> Objective {
    Objective {
        latency: Some(Nanos::from_millis(ms)),
        ..Objective::default()
    }
}

/// Submits one request of each guest, each at the given number of milliseconds after the one
/// before. Returns the indices of the guests in the order in which their requests are started.
fn start_order(world: &mut World, requests: &[(Guest, u64)]) -> Vec<usize> {
    for &(guest, after_ms) in requests {
        world.driver.now.0 += after_ms * MS;
        let request = Request::read(0, 4096, u64::MAX);
        let accepted = world.driver.request(guest.client, request);
        accepted.expect("there is room");
    }
    let from = world.driver.log.len();
    world.run(SECOND);
    let started = world.driver.log[from..].iter();
    let guests = started.map(|start| {
        let guest = requests
            .iter()
            .position(|(guest, _)| guest.vm == start.io.vm);
        guest.expect("the I/O is of one of the guests")
    });
    guests.collect()
}

#[test]
fn a_tighter_bound_is_served_first_and_equal_bounds_by_arrival() {
    let mut world = World::new("edf", MS);
    let guests = [80, 20, 50, 50].map(|ms| world.guest(&bounded(ms)));
    let requests = guests.map(|guest| (guest, 0));
    assert_eq!(start_order(&mut world, &requests), [1, 2, 3, 0]);
}

#[test]
fn a_looser_bound_is_served_first_if_its_deadline_is_earlier() {
    let mut world = World::new("edf", MS);
    let [loose, tight] = [80, 20].map(|ms| world.guest(&bounded(ms)));
    // Deadlines at 80 ms, and at 61 + 20 or 59 + 20 ms.
    assert_eq!(start_order(&mut world, &[(loose, 0), (tight, 61)]), [0, 1]);
    assert_eq!(start_order(&mut world, &[(loose, 0), (tight, 59)]), [1, 0]);
}

#[test]
fn a_vm_without_a_bound_is_served_before_background_processes_and_after_bounds() {
    let mut world = World::new("edf", MS);
    let mut spec = policy("edf");
    let spans = [("best_effort_latency", 200), ("background_latency", 500)];
    for (name, ms) in spans {
        spec.set(name, ms * MS).expect("in range");
    }
    world.driver.engine.set_policy(Nanos::ZERO, &spec);
    let none = world.guest(&Objective::default());
    let background = world.background();
    let promised = world.guest(&bounded(150));
    let requests = [(background, 0), (none, 0), (promised, 0)];
    assert_eq!(start_order(&mut world, &requests), [2, 1, 0]);
    // A background process does not starve: its deadline of 500 ms is before 320 + 200 ms.
    let requests = [(background, 0), (none, 320)];
    assert_eq!(start_order(&mut world, &requests), [0, 1]);
}

#[test]
fn a_vm_without_any_objective_is_served_after_one_with_a_reservation() {
    let mut world = World::new("edf", MS);
    let nothing = world.guest(&Objective::default());
    let rate = world.guest(&Objective {
        reservation: Rate::iops(10),
        ..Objective::default()
    });
    // Deadlines at 5,000 ms (best effort), and 200 ms after the second arrival.
    assert_eq!(
        start_order(&mut world, &[(nothing, 0), (rate, 4_700)]),
        [1, 0]
    );
    assert_eq!(
        start_order(&mut world, &[(nothing, 0), (rate, 4_900)]),
        [0, 1]
    );
}

#[test]
fn a_margin_above_the_bound_puts_the_deadline_before_the_arrival() {
    let mut world = World::new("edf", MS);
    world.driver.now.0 = SECOND;
    let [late, early] = [5, 3].map(|ms| world.guest(&bounded(ms)));
    assert_eq!(start_order(&mut world, &[(late, 0), (early, 0)]), [1, 0]);
}

#[test]
fn a_changed_objective_applies_to_waiting_requests() {
    let mut world = World::new("edf", 10 * MS);
    let [busy, other] = [40, 60].map(|ms| world.guest(&bounded(ms)));
    world.load(busy, Op::Read, 4096, 4);
    world.load(other, Op::Read, 4096, 1);
    world.run(MS);
    world.set(other, &bounded(15));
    let from = world.driver.log.len();
    world.run(10 * MS);
    assert_eq!(world.driver.log[from].io.vm, other.vm);
}

#[test]
fn a_deadline_from_admission_leaves_out_the_time_held_back_by_a_limit() {
    // The limited VM submits two requests at 0; its limit of 1 IOPS holds the second back until
    // 1000 ms. The other VM keeps three requests outstanding from 985 ms on, of 20 ms each.
    // Deadlines are the bound less the margin of 9 ms: 71 ms for the limited VM, 51 ms for the
    // other. Counted from its arrival at 0, the held request is overdue and started next. Counted
    // from its admission, it is due at 1071 ms, after the requests of the other VM that arrived at
    // 985 ms (due at 1036) and at 1005 ms (due at 1056).
    let starts_before = |from: DeadlineFrom| {
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
            limit: Limit::of_all(Rate::iops(1)),
            ..bounded(80)
        });
        let other = world.guest(&bounded(60));
        world.load(limited, Op::Read, 4096, 2);
        world.run(985 * MS);
        let from = world.driver.log.len();
        world.load(other, Op::Read, 4096, 3);
        world.run(SECOND);
        let mut since = world.driver.log[from..].iter();
        since.position(|started| started.io.vm == limited.vm)
    };
    assert_eq!(starts_before(DeadlineFrom::Arrival), Some(1));
    assert_eq!(starts_before(DeadlineFrom::Admission), Some(4));
}
