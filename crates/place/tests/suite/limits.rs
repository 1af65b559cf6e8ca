//! Transfers with limited demand, which cannot use all the bandwidth that they could get.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class::{self, BestEffort, Idle, RealTime};
use tidegate_core::transfers::Transfer;
use tidegate_place::{
    Acceptance, Bandwidth, HostId, HostSnapshot, HostSpec, Outcome, Pcos, PriorityDatabase,
    RejectionReason, Request, RequestError, RequestId, Update, VmState, WAITING_CAPACITY, admit,
};

const MB: u64 = 1_000_000;
const START: Nanos = Nanos::from_secs(100);

/// Database of a host with 60 MB/s for any number of VMs, without measured rates.
fn database() -> PriorityDatabase {
    PriorityDatabase::new(Bandwidth::new(60 * MB, &[]).expect("a valid bandwidth"))
}

/// Database of the host that has measured VMs of these classes together, at rates in MB/s.
fn database_with(measured: &[(Class, u64)]) -> PriorityDatabase {
    let mut database = database();
    database.learn(measured.iter().map(|&(class, mb)| (class, mb * MB)));
    database
}

/// VM with a transfer of `mb` megabytes that started at [`START`] and has `seconds` to end.
fn vm(class: Class, mb: u64, seconds: u64) -> VmState {
    let transfer = Some(Transfer {
        bytes: mb * MB,
        begun: START,
        deadline: Nanos::from_secs(seconds),
        moved: 0,
    });
    VmState { class, transfer }
}

/// Request to move `mb` megabytes in `seconds`.
fn request(mb: u64, seconds: u64) -> Request {
    Request::new(mb * MB, Nanos::from_secs(seconds)).expect("a valid request")
}

/// Returns the rates in MB/s of VMs of these classes, with their limits in MB/s.
fn rates(database: &PriorityDatabase, classes: &[Class], limits: &[Option<u64>]) -> Vec<u64> {
    let vms: Vec<_> = (classes.iter()).map(|class| vm(*class, 1, 1)).collect();
    let limits: Vec<_> = limits.iter().map(|limit| limit.map(|mb| mb * MB)).collect();
    let snapshot = HostSnapshot::new(START, database, &vms).with_limits(&limits);
    tidegate_place::rates(&snapshot)
        .iter()
        .map(|rate| rate / MB)
        .collect()
}

#[test]
fn unused_bandwidth_goes_to_the_same_class_first_and_then_to_lower_ones() {
    let even = database_with(&[(BestEffort, 20); 3]);
    let three = [BestEffort; 3];
    assert_eq!(rates(&even, &three, &[]), [20, 20, 20]);
    assert_eq!(rates(&even, &three, &[None, Some(8), None]), [26, 8, 26]);
    let two = [Some(8), Some(22), None];
    assert_eq!(rates(&even, &three, &two), [8, 22, 30]);
    let known = database_with(&[(RealTime, 40), (BestEffort, 15), (Idle, 5)]);
    let classes = [Idle, RealTime, BestEffort];
    assert_eq!(
        rates(&known, &classes, &[None, Some(10), None]),
        [5, 10, 45]
    );
    // All of the unused bandwidth goes down to a VM that can use it.
    let limits = [None, Some(10), Some(12)];
    assert_eq!(rates(&known, &classes, &limits), [38, 10, 12]);
    // Unused bandwidth never goes to higher classes.
    assert_eq!(rates(&known, &classes, &[Some(1), None, None]), [1, 40, 15]);
}

#[test]
fn unmeasured_classes_share_as_the_measured_class_that_they_are_aligned_with() {
    // Three best-effort VMs were measured at 20 MB/s each. An idle VM is aligned with them,
    // so the 12 MB/s that the limited one leaves are shared evenly whatever the second VM's
    // class.
    let even = database_with(&[(BestEffort, 20); 3]);
    let limits = [Some(8), None, None];
    for classes in [[BestEffort; 3], [BestEffort, Idle, BestEffort]] {
        assert_eq!(rates(&even, &classes, &limits), [8, 26, 26]);
    }
    // The same result without any measurement.
    let classes = [BestEffort, Idle, RealTime];
    assert_eq!(rates(&database(), &classes, &limits), [8, 26, 26]);
    // One of the two idle VMs is aligned with best effort, and it is unknown which: neither
    // leaves anything.
    let one_idle = database_with(&[(Idle, 6), (BestEffort, 27), (BestEffort, 27)]);
    let classes = [Idle, Idle, BestEffort];
    assert_eq!(
        rates(&one_idle, &classes, &[Some(2), None, None]),
        [2, 6, 27]
    );
}

#[test]
fn admission_counts_a_running_transfer_with_its_limit() {
    // Beside the newcomer 30 MB/s would suffice for the running transfer, but it can use only 10.
    let running = [vm(BestEffort, 300, 12)];
    let database = database();
    let asked = request(300, 12);
    assert!(admit(&HostSnapshot::new(START, &database, &running), &asked).is_ok());
    let limits = [Some(10 * MB)];
    let limited = HostSnapshot::new(START, &database, &running).with_limits(&limits);
    // At 10 MB/s the 300 MB take 30 s of the 12 s that they have: the running transfer is late
    // whatever happens and therefore not protected. The newcomer gets the other 50 MB/s.
    assert!(admit(&limited, &request(500, 10)).is_ok());
    assert!(admit(&limited, &request(501, 10)).is_err());
    assert_eq!(Acceptance::for_snapshot(&limited).max_rate(), 50 * MB);
    // 100 MB in 10 s are in time at best effort, and 1.1 s late at the 9 MB/s of the idle class:
    // the running transfer cannot be lowered for the newcomer, which is rejected.
    let known = database_with(&[(BestEffort, 50), (Idle, 9)]);
    let running = [vm(BestEffort, 100, 10)];
    let snapshot = HostSnapshot::new(START, &known, &running).with_limits(&limits);
    let rejection = admit(&snapshot, &request(500, 9)).expect_err("refused");
    let late = Nanos(1_111_111_112);
    assert_eq!(rejection.why, RejectionReason::Misses { who: 0, late });
}

#[test]
fn a_limit_below_the_needed_rate_is_refused() {
    let asked = request(100, 10);
    assert_eq!(asked.limit(), u64::MAX);
    let limited = asked.limited(10 * MB).expect("just enough");
    assert_eq!(limited.limit(), 10 * MB);
    let error = asked
        .limited(10 * MB - 1)
        .expect_err("a limit below the needed rate");
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

/// Returns the forecast rates of the transfers on the only host, in MB/s.
fn forecast_rates(pcos: &Pcos) -> Vec<u64> {
    let view = pcos.host(HostId(0)).expect("the host was added");
    let running = view.running().iter();
    running.map(|transfer| view.rate(transfer) / MB).collect()
}

#[test]
fn a_declared_limit_holds_from_the_start_and_a_measured_one_is_never_above_it() {
    let limited = request(1_000, 1_000)
        .limited(10 * MB)
        .expect("more than it needs");
    let (mut pcos, ids) = host(&[limited, request(1_000, 100)]);
    assert_eq!(forecast_rates(&pcos), [10, 50]);
    // Measured at 6 MB/s of its own demand: the declared limit was too high.
    let measured = [(BestEffort, 6 * MB), (BestEffort, 54 * MB)];
    let demand_limited = [(ids[0], 6 * MB)];
    let update = Update {
        measured: &measured,
        demand_limited: &demand_limited,
        ..Update::default()
    };
    pcos.update(START, HostId(0), &update);
    assert_eq!(forecast_rates(&pcos), [6, 54]);
    // A rate of 30 MB/s, though the declared limit is 10: the limit stays.
    let update = Update {
        measured: &[(BestEffort, 30 * MB); 2],
        ..Update::default()
    };
    pcos.update(START, HostId(0), &update);
    assert_eq!(forecast_rates(&pcos), [10, 50]);
    // A scheduler that restarts sets the declared limits of running transfers again.
    let (mut restarted, ids) = host(&[request(1_000, 1_000), request(1_000, 100)]);
    restarted.limit(HostId(0), ids[0], 10 * MB);
    assert_eq!(forecast_rates(&restarted), [10, 50]);
}

#[test]
fn a_measured_demand_limit_holds_until_the_transfer_exceeds_it() {
    let (mut pcos, ids) = host(&[request(1_000, 1_000), request(1_000, 100)]);
    assert_eq!(forecast_rates(&pcos), [30, 30]);
    let report = |pcos: &mut Pcos, mb_per_s: [u64; 2], demand_limited: &[(RequestId, u64)]| {
        let measured = mb_per_s.map(|mb| (BestEffort, mb * MB));
        let update = Update {
            measured: &measured,
            demand_limited,
            ..Update::default()
        };
        pcos.update(START, HostId(0), &update);
    };
    report(&mut pcos, [10, 50], &[(ids[0], 10 * MB)]);
    assert_eq!(forecast_rates(&pcos), [10, 50]);
    // The database has the rate of a best-effort VM without a demand limit: 30 MB/s, as before.
    let view = pcos.host(HostId(0)).expect("the host was added");
    let learnt: Vec<_> = view.database().entries().collect();
    assert_eq!(
        (learnt.len(), learnt[0].rates.for_class(BestEffort)),
        (1, 30 * MB)
    );
    // The first transfer used all of its 30 MB/s, so its limit of 10 MB/s is gone.
    report(&mut pcos, [30, 30], &[]);
    assert_eq!(forecast_rates(&pcos), [30, 30]);
    // In the idle class the transfer gets 2 MB/s, less than its limit of 10 MB/s: an interval below
    // the limit says nothing about it, so the limit stays.
    report(&mut pcos, [10, 50], &[(ids[0], 10 * MB)]);
    let update = Update {
        classes: &[(ids[0], Idle)],
        ..Update::default()
    };
    pcos.update(START, HostId(0), &update);
    let measured = [(Idle, 2 * MB), (BestEffort, 58 * MB)];
    for _ in 0..2 {
        let update = Update {
            measured: &measured,
            ..Update::default()
        };
        pcos.update(START, HostId(0), &update);
    }
    let view = pcos.host(HostId(0)).expect("the host was added");
    assert_eq!(view.running()[0].limit, Some(10 * MB));
}
