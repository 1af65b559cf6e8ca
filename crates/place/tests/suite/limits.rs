//! Transfers with limited demand, which cannot use all the bandwidth that they could get.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class::{self, BestEffort, Idle, RealTime};
use tidegate_core::transfers::Transfer;
use tidegate_place::{
    Acceptance, Bandwidth, HostId, HostSnapshot, HostSpec, Outcome, Pcos, PriorityDatabase,
    RejectionReason, Request, RequestError, RequestId, Tenant, Update, WAITING_CAPACITY, admit,
};

const MB: u64 = 1_000_000;
const START: Nanos = Nanos::from_secs(100);

/// Database of a host with 60 MB/s for any number of tenants.
fn database() -> PriorityDatabase {
    PriorityDatabase::new(Bandwidth::new(60 * MB, &[]).expect("it is one"))
}

fn knows(had: &[(Class, u64)]) -> PriorityDatabase {
    let mut database = database();
    database.learn(had.iter().map(|&(class, mb)| (class, mb * MB)));
    database
}

/// Tenant with `mb` megabytes to move in `seconds`.
fn tenant(class: Class, mb: u64, seconds: u64) -> Tenant {
    let transfer = Some(Transfer {
        bytes: mb * MB,
        begun: START,
        deadline: Nanos::from_secs(seconds),
        moved: 0,
    });
    Tenant { class, transfer }
}

fn request(mb: u64, seconds: u64) -> Request {
    Request::new(mb * MB, Nanos::from_secs(seconds)).expect("it is one")
}

fn rates(database: &PriorityDatabase, classes: &[Class], limits: &[Option<u64>]) -> Vec<u64> {
    let tenants: Vec<_> = (classes.iter()).map(|class| tenant(*class, 1, 1)).collect();
    let limits: Vec<_> = limits.iter().map(|limit| limit.map(|mb| mb * MB)).collect();
    let snapshot = HostSnapshot::new(START, database, &tenants).with_limits(&limits);
    tidegate_place::rates(&snapshot)
        .iter()
        .map(|rate| rate / MB)
        .collect()
}

#[test]
fn what_one_leaves_others_of_its_class_have_and_then_the_classes_below() {
    let even = knows(&[(BestEffort, 20); 3]);
    let three = [BestEffort; 3];
    assert_eq!(rates(&even, &three, &[]), [20, 20, 20]);
    assert_eq!(rates(&even, &three, &[None, Some(8), None]), [26, 8, 26]);
    let two = [Some(8), Some(22), None];
    assert_eq!(rates(&even, &three, &two), [8, 22, 30]);
    let known = knows(&[(RealTime, 40), (BestEffort, 15), (Idle, 5)]);
    let classes = [Idle, RealTime, BestEffort];
    assert_eq!(
        rates(&known, &classes, &[None, Some(10), None]),
        [5, 10, 45]
    );
    // All of the unused bandwidth goes down to a tenant that can use it.
    let limits = [None, Some(10), Some(12)];
    assert_eq!(rates(&known, &classes, &limits), [38, 10, 12]);
    // Unused bandwidth never goes to higher classes.
    assert_eq!(rates(&known, &classes, &[Some(1), None, None]), [1, 40, 15]);
}

#[test]
fn where_classes_were_not_seen_a_lower_one_leaves_nothing_more() {
    // Three of one class were measured. If the second were idle, it would neither have nor leave
    // more than measured.
    let even = knows(&[(BestEffort, 20); 3]);
    let limits = [Some(8), None, None];
    for classes in [[BestEffort; 3], [BestEffort, Idle, BestEffort]] {
        assert_eq!(rates(&even, &classes, &limits), [8, 26, 26]);
    }
    // The same result without any measurement.
    let classes = [BestEffort, Idle, RealTime];
    assert_eq!(rates(&database(), &classes, &limits), [8, 26, 26]);
    // One of the two idle tenants is aligned with best effort, and it is unknown which: neither
    // leaves anything.
    let one_idle = knows(&[(Idle, 6), (BestEffort, 27), (BestEffort, 27)]);
    let classes = [Idle, Idle, BestEffort];
    assert_eq!(
        rates(&one_idle, &classes, &[Some(2), None, None]),
        [2, 6, 27]
    );
}

#[test]
fn what_a_transfer_takes_at_most_counts_where_it_is_to_be_in_time() {
    // Beside the newcomer 30 MB/s would suffice for the running transfer, but it can use only 10.
    let running = [tenant(BestEffort, 300, 12)];
    let database = database();
    let asked = request(300, 12);
    assert!(admit(&HostSnapshot::new(START, &database, &running), &asked).is_ok());
    let limits = [Some(10 * MB)];
    let limited = HostSnapshot::new(START, &database, &running).with_limits(&limits);
    // It is late in any case and therefore not protected; the newcomer gets what it leaves.
    assert!(admit(&limited, &request(500, 10)).is_ok());
    assert!(admit(&limited, &request(501, 10)).is_err());
    assert_eq!(Acceptance::for_snapshot(&limited).max_rate(), 50 * MB);
    // With more time it is in time, and as idle it would not be: the newcomer is rejected.
    let known = knows(&[(BestEffort, 50), (Idle, 9)]);
    let running = [tenant(BestEffort, 100, 10)];
    let snapshot = HostSnapshot::new(START, &known, &running).with_limits(&limits);
    let rejection = admit(&snapshot, &request(500, 9)).expect_err("refused");
    let late = Nanos(1_111_111_112);
    assert_eq!(rejection.why, RejectionReason::Misses { who: 0, late });
}

#[test]
fn a_transfer_that_takes_less_than_it_needs_is_no_transfer() {
    let asked = request(100, 10);
    assert_eq!(asked.limit(), u64::MAX);
    let limited = asked.limited(10 * MB).expect("just enough");
    assert_eq!(limited.limit(), 10 * MB);
    let error = asked.limited(10 * MB - 1).expect_err("late");
    let (limit, needs) = (10 * MB - 1, 10 * MB);
    assert_eq!(error, RequestError::TooSlow { limit, needs });
}

/// One host of 60 MB/s with the given transfers placed in order.
fn host(transfers: &[Request]) -> (Pcos, Vec<RequestId>) {
    let mut pcos = Pcos::new(WAITING_CAPACITY);
    pcos.add_host(
        START,
        HostSpec {
            database: database(),
            transfers: 8,
        },
    );
    let place = |request: &Request| {
        let answer = pcos.request(START, *request);
        assert!(matches!(answer.outcome, Outcome::Placed(_)), "{answer:?}");
        answer.id
    };
    let ids = transfers.iter().map(place).collect();
    (pcos, ids)
}

fn has(pcos: &Pcos) -> Vec<u64> {
    let view = pcos.host(HostId(0)).expect("there");
    let all = view.running().iter();
    all.map(|running| view.rate(running) / MB).collect()
}

#[test]
fn what_was_said_of_a_transfer_counts_from_its_beginning_and_is_never_more() {
    let limited = request(1_000, 1_000)
        .limited(10 * MB)
        .expect("more than it needs");
    let (mut pcos, ids) = host(&[limited, request(1_000, 100)]);
    assert_eq!(has(&pcos), [10, 50]);
    // The declared limit was wrong, or the demand has changed.
    let had = [(BestEffort, 6 * MB), (BestEffort, 54 * MB)];
    let sated = [(ids[0], 6 * MB)];
    let update = Update {
        measured: &had,
        demand_limited: &sated,
        ..Update::default()
    };
    pcos.update(START, HostId(0), &update);
    assert_eq!(has(&pcos), [6, 54]);
    let update = Update {
        measured: &[(BestEffort, 30 * MB); 2],
        ..Update::default()
    };
    pcos.update(START, HostId(0), &update);
    assert_eq!(has(&pcos), [10, 50]);
    // The limit is kept across a restart.
    let (mut again, ids) = host(&[request(1_000, 1_000), request(1_000, 100)]);
    again.limit(HostId(0), ids[0], 10 * MB);
    assert_eq!(has(&again), [10, 50]);
}

#[test]
fn a_transfer_that_had_all_it_takes_is_known_to_take_no_more_until_it_does() {
    let (mut pcos, ids) = host(&[request(1_000, 1_000), request(1_000, 100)]);
    assert_eq!(has(&pcos), [30, 30]);
    let tell = |pcos: &mut Pcos, had: [u64; 2], sated: &[(RequestId, u64)]| {
        let had = had.map(|mb| (BestEffort, mb * MB));
        let update = Update {
            measured: &had,
            demand_limited: sated,
            ..Update::default()
        };
        pcos.update(START, HostId(0), &update);
    };
    tell(&mut pcos, [10, 50], &[(ids[0], 10 * MB)]);
    assert_eq!(has(&pcos), [10, 50]);
    // The class's mean is not the rate of one of its tenants: 30 MB/s, as before.
    let view = pcos.host(HostId(0)).expect("there");
    let learnt: Vec<_> = view.database().entries().collect();
    assert_eq!(
        (learnt.len(), learnt[0].rates.for_class(BestEffort)),
        (1, 30 * MB)
    );
    // Demand was unlimited, with 30 MB/s offered, more than it used before.
    tell(&mut pcos, [30, 30], &[]);
    assert_eq!(has(&pcos), [30, 30]);
    // It had less than its limit: the limit stands.
    tell(&mut pcos, [10, 50], &[(ids[0], 10 * MB)]);
    let update = Update {
        classes: &[(ids[0], Idle)],
        ..Update::default()
    };
    pcos.update(START, HostId(0), &update);
    let had = [(Idle, 2 * MB), (BestEffort, 58 * MB)];
    for _ in 0..2 {
        let update = Update {
            measured: &had,
            ..Update::default()
        };
        pcos.update(START, HostId(0), &update);
    }
    let view = pcos.host(HostId(0)).expect("there");
    assert_eq!(view.running()[0].limit, Some(10 * MB));
}
