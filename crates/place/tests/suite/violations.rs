//! Running transfers that are in time without a newcomer are in time with it, where the priority
//! database is exact. The host is a fluid that is written here, apart from the crate's forecasts.

use proptest::prelude::*;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class::{self, BestEffort, Idle, RealTime};
use tidegate_core::transfers::Transfer;
use tidegate_place::{
    Bandwidth, Combination, HostSpec, LateRule, Outcome, Pcos, Placement, PriorityDatabase,
    Request, RequestId, VmState, WAITING_CAPACITY,
};

const MB: u64 = 1_000_000;
/// Bandwidth of the disk in bytes per second.
const DISK: u64 = 60 * MB;
/// Largest number of running transfers.
const MOST: usize = 4;

/// Rate in bytes per second of one of these transfers: each class has a fixed weight.
fn rate(classes: &[Class], class: Class) -> u64 {
    let weight = |class: Class| [1, 4, 16][class as usize];
    let all: u64 = classes.iter().copied().map(weight).sum();
    DISK * weight(class) / all
}

/// Database with the exact rates of all combinations.
fn exact_database() -> PriorityDatabase {
    let mut database = PriorityDatabase::new(Bandwidth::new(DISK, &[]).expect("valid"));
    for idle in 0..=MOST + 1 {
        for best_effort in 0..=MOST + 1 - idle {
            for real_time in 0..=MOST + 1 - idle - best_effort {
                let counts = [
                    (Idle, idle),
                    (BestEffort, best_effort),
                    (RealTime, real_time),
                ];
                let classes: Vec<Class> = (counts.iter())
                    .flat_map(|&(class, n)| vec![class; n])
                    .collect();
                if !classes.is_empty() {
                    database.learn(classes.iter().map(|&class| (class, rate(&classes, class))));
                    let known = database.rates(&Combination::from_classes(classes.clone()));
                    assert_eq!(known.for_class(classes[0]), rate(&classes, classes[0]));
                }
            }
        }
    }
    database
}

/// Transfer on the fluid.
#[derive(Clone, Copy, Debug)]
struct Flow {
    left: f64,
    /// Deadline in seconds from now.
    due: f64,
    class: Class,
    /// Class after the newcomer has ended.
    after: Class,
    ended: Option<f64>,
}

/// Runs all to their ends; the last one is the newcomer if `has_newcomer`. A transfer past its
/// deadline is raised to real time (PriDyn's guard).
fn run(mut flows: Vec<Flow>, has_newcomer: bool) -> Vec<Flow> {
    let mut now = 0.0;
    while flows.iter().any(|flow| flow.ended.is_none()) {
        let running = |flow: &&Flow| flow.ended.is_none();
        let classes: Vec<Class> = flows
            .iter()
            .filter(running)
            .map(|flow| flow.class)
            .collect();
        let rates: Vec<f64> = (flows.iter())
            .map(|flow| rate(&classes, flow.class) as f64)
            .collect();
        let mut step = f64::MAX;
        for (flow, rate) in flows
            .iter()
            .zip(&rates)
            .filter(|(flow, _)| flow.ended.is_none())
        {
            step = step.min(flow.left / rate);
            if flow.class < RealTime && flow.due >= now {
                step = step.min(flow.due - now + 1e-9);
            }
        }
        now += step;
        for (flow, rate) in flows.iter_mut().zip(&rates) {
            if flow.ended.is_some() {
                continue;
            }
            flow.left -= rate * step;
            if flow.left < 0.5 {
                flow.ended = Some(now);
            } else if flow.due < now {
                (flow.class, flow.after) = (RealTime, RealTime);
            }
        }
        if has_newcomer && flows.last().expect("the newcomer").ended.is_some() {
            for flow in &mut flows {
                flow.class = flow.class.max(flow.after);
            }
        }
    }
    flows
}

/// Transfer with a class, megabytes left and a deadline in hundredths of a second from now.
type Job = (usize, u64, u64);

/// Places the newcomer beside the jobs, and returns the numbers of jobs that are in time without it
/// and late with it; `None` if it is not placed at once.
fn violations(jobs: &[Job], newcomer: (u64, u64), late_rule: LateRule) -> Option<Vec<usize>> {
    let start = Nanos::from_secs(100);
    let mut pcos = Pcos::new(WAITING_CAPACITY).with_late_rule(late_rule);
    let database = exact_database();
    let transfers = MOST + 1;
    let host = pcos.add_host(
        start,
        HostSpec {
            database,
            transfers,
        },
    );
    let ids: Vec<RequestId> = (jobs.iter())
        .map(|&(class, mb, hundredths)| {
            let transfer = Transfer {
                bytes: mb * MB,
                begun: start,
                deadline: Nanos::from_millis(10 * hundredths),
                moved: 0,
            };
            let vm = VmState {
                class: Class::ALL[class],
                transfer: Some(transfer),
            };
            pcos.resume(host, vm, start)
        })
        .collect();
    pcos.refresh_all(start);
    let (mb, hundredths) = newcomer;
    let request = Request::new(mb * MB, Nanos::from_millis(10 * hundredths)).expect("valid");
    let Outcome::Placed(Placement { class, lowered, .. }) = pcos.request(start, request).outcome
    else {
        return None;
    };
    let flow = |&(class, mb, hundredths): &Job| Flow {
        left: (mb * MB) as f64,
        due: hundredths as f64 / 100.0,
        class: Class::ALL[class],
        after: Class::ALL[class],
        ended: None,
    };
    let without = run(jobs.iter().map(flow).collect(), false);
    let mut with: Vec<Flow> = jobs.iter().map(flow).collect();
    for (id, class) in lowered {
        let at = ids.iter().position(|of| *of == id).expect("it runs");
        with[at].class = class;
    }
    with.push(Flow {
        class,
        after: class,
        ..flow(&(class as usize, mb, hundredths))
    });
    let with = run(with, true);
    // A millisecond for what is rounded to bytes and nanoseconds.
    let late = |flow: &Flow| flow.ended.expect("ended") > flow.due + 1e-3;
    let harmed =
        |at: &usize| without[*at].ended.expect("ended") <= without[*at].due && late(&with[*at]);
    assert!(!late(&with[jobs.len()]), "the newcomer itself: {with:?}");
    Some((0..jobs.len()).filter(harmed).collect())
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    prop::collection::vec((0_usize..3, 1_u64..300, 1_u64..2_000), 0..=MOST)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn no_transfer_that_is_in_time_without_a_newcomer_is_late_with_it(
        jobs in jobs(),
        newcomer in (1_u64..200, 1_u64..4_000),
    ) {
        let found = violations(&jobs, newcomer, LateRule::KeepsRate);
        prop_assert!(found.is_none_or(|found| found.is_empty()));
        let found = violations(&jobs, newcomer, LateRule::Unprotected);
        prop_assert!(found.is_none_or(|found| found.is_empty()));
    }
}

#[test]
fn a_transfer_that_another_s_end_will_bring_in_time_is_protected() {
    // 30 MB/s each: the first ends after 1 s. The second, which would take 5 s at that rate, has
    // 60 MB/s from then on and ends after 3 s.
    let jobs = [(1, 30, 400), (1, 150, 305)];
    // 5 MB of a newcomer cost it 0.083 s, whatever its present rate says.
    assert_eq!(violations(&jobs, (5, 4_000), LateRule::Unprotected), None);
    // With 0.28 s more the same newcomer is placed.
    let jobs = [(1, 30, 400), (1, 150, 333)];
    let found = violations(&jobs, (5, 4_000), LateRule::Unprotected);
    assert_eq!(found, Some(vec![]));
}
