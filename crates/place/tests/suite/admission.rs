//! Admission controller: hand-computed cases, and properties against a direct check. Case numbers
//! are those of figure 5.8 of Jain's thesis.

use proptest::prelude::*;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class::{self, BestEffort, Idle, RealTime};
use tidegate_core::transfers::Transfer;
use tidegate_place::{
    Acceptance, Assignment, Bandwidth, Combination, HostSnapshot, LateRule, MAX_VMS,
    PriorityDatabase, Rejection, RejectionReason, Request, VmState, admit,
};

const MB: u64 = 1_000_000;
const NOW: Nanos = Nanos::from_secs(100);

/// Database of a host with 60 MB/s for any number of VMs.
fn database() -> PriorityDatabase {
    PriorityDatabase::new(Bandwidth::new(60 * MB, &[]).expect("valid"))
}

/// Records the rates in MB/s of the VMs of one combination of classes.
fn with_measured_rates(mut database: PriorityDatabase, rates: &[(Class, u64)]) -> PriorityDatabase {
    database.learn(rates.iter().map(|&(class, mb)| (class, mb * MB)));
    database
}

/// Time in seconds for which each VM's transfer has run at [`NOW`].
const RUNNING_S: u64 = 10;
/// Megabytes that each VM's transfer has moved by then.
const MOVED_MB: u64 = 5;

/// VM whose transfer has `left` megabytes to move in `seconds` from [`NOW`] on.
fn vm(class: Class, left: u64, seconds: u64) -> VmState {
    let transfer = Some(Transfer {
        bytes: (MOVED_MB + left) * MB,
        begun: NOW - Nanos::from_secs(RUNNING_S),
        deadline: Nanos::from_secs(RUNNING_S + seconds),
        moved: MOVED_MB * MB,
    });
    VmState { class, transfer }
}

fn request(mb: u64, seconds: u64) -> Request {
    Request::new(mb * MB, Nanos::from_secs(seconds)).expect("valid")
}

fn admit_request(
    database: &PriorityDatabase,
    vms: &[VmState],
    mb: u64,
    seconds: u64,
) -> Result<Assignment, Rejection> {
    admit(
        &HostSnapshot::new(NOW, database, vms),
        &request(mb, seconds),
    )
}

fn accepted(class: Class, lowered: &[(usize, Class)]) -> Result<Assignment, Rejection> {
    let lowered = lowered.to_vec();
    Ok(Assignment { class, lowered })
}

fn rejected(why: RejectionReason, class: Class, late: u64) -> Result<Assignment, Rejection> {
    let late = Nanos::from_secs(late);
    Err(Rejection { why, class, late })
}

fn misses(victim: usize, seconds: u64) -> RejectionReason {
    let late = Nanos::from_secs(seconds);
    RejectionReason::Misses { who: victim, late }
}

#[test]
fn case_3_all_in_time_is_accepted_with_the_default_class() {
    // 30 MB/s each: 300 MB take 10 s.
    let running = [vm(BestEffort, 300, 10)];
    assert_eq!(
        admit_request(&database(), &running, 300, 10),
        accepted(BestEffort, &[])
    );
    assert_eq!(
        admit_request(&database(), &[], 600, 10),
        accepted(BestEffort, &[])
    );
}

#[test]
fn case_2_both_late_is_rejected() {
    let running = [vm(BestEffort, 300, 9)];
    assert_eq!(
        admit_request(&database(), &running, 600, 17),
        rejected(misses(0, 1), BestEffort, 3)
    );
}

#[test]
fn case_1_newcomer_is_lowered_to_protect_a_running_transfer() {
    let running = [vm(BestEffort, 300, 6)];
    // Beside an idle one it has 50 MB/s and is in time; the newcomer has 10.
    let measured = with_measured_rates(database(), &[(BestEffort, 50), (Idle, 10)]);
    let measured = with_measured_rates(measured, &[(BestEffort, 30), (BestEffort, 30)]);
    assert_eq!(
        admit_request(&measured, &running, 300, 30),
        accepted(Idle, &[])
    );
    // In time in the idle class as well: that is the lowest.
    let running = [vm(BestEffort, 300, 5)];
    assert_eq!(
        admit_request(&measured, &running, 300, 30),
        rejected(misses(0, 1), Idle, 0)
    );
}

#[test]
fn case_4_the_transfer_with_most_slack_is_lowered_for_the_newcomer() {
    // Equal classes: 20 MB/s each; beside one idle VM 27 and 6, beside two 50 and 5.
    let mut measured = with_measured_rates(database(), &[(BestEffort, 20); 3]);
    measured = with_measured_rates(measured, &[(BestEffort, 27), (BestEffort, 27), (Idle, 6)]);
    measured = with_measured_rates(measured, &[(BestEffort, 50), (Idle, 5), (Idle, 5)]);
    let running = [vm(BestEffort, 100, 20), vm(BestEffort, 100, 95)];
    // 270 MB in 10 s need 27 MB/s: the second VM has 90 s of slack, the first 15.
    assert_eq!(
        admit_request(&measured, &running, 270, 10),
        accepted(BestEffort, &[(1, Idle)])
    );
    // A higher need lowers the first one as well; with 5 MB/s that one ends after 20 s exactly.
    assert_eq!(
        admit_request(&measured, &running, 500, 10),
        accepted(BestEffort, &[(0, Idle), (1, Idle)])
    );
    // A VM without a transfer is lowered before those with one.
    let best_effort = VmState {
        class: BestEffort,
        transfer: None,
    };
    let running = [running[1], best_effort];
    assert_eq!(
        admit_request(&measured, &running, 270, 10),
        accepted(BestEffort, &[(1, Idle)])
    );
}

#[test]
fn case_4_of_equal_slack_the_first_transfer_is_lowered() {
    let mut measured = with_measured_rates(database(), &[(BestEffort, 20); 3]);
    measured = with_measured_rates(measured, &[(BestEffort, 27), (BestEffort, 27), (Idle, 6)]);
    let running = [vm(BestEffort, 100, 95); 2];
    assert_eq!(
        admit_request(&measured, &running, 270, 10),
        accepted(BestEffort, &[(0, Idle)])
    );
}

#[test]
fn case_4_then_the_newcomer_is_raised_and_rejected_at_the_highest() {
    let mut measured = with_measured_rates(database(), &[(BestEffort, 30); 2]);
    measured = with_measured_rates(measured, &[(BestEffort, 40), (Idle, 20)]);
    measured = with_measured_rates(measured, &[(RealTime, 55), (Idle, 5)]);
    let running = [vm(BestEffort, 50, 10)];
    assert_eq!(
        admit_request(&measured, &running, 550, 10),
        accepted(RealTime, &[(0, Idle)])
    );
    assert_eq!(
        admit_request(&measured, &running, 560, 10),
        rejected_late(RealTime, 181_818_182)
    );
    // An idle VM cannot be lowered.
    let running = [vm(Idle, 50, 10)];
    assert_eq!(
        admit_request(&measured, &running, 550, 10),
        accepted(RealTime, &[])
    );
    // Without running VMs none can be lowered.
    assert_eq!(
        admit_request(&database(), &[], 601, 10),
        rejected_late(RealTime, 16_666_667)
    );
}

fn rejected_late(class: Class, late: u64) -> Result<Assignment, Rejection> {
    Err(Rejection {
        why: RejectionReason::OwnDeadline,
        class,
        late: Nanos(late),
    })
}

#[test]
fn cases_1_and_4_that_undo_each_other_end_in_a_rejection() {
    // Late as best effort; as real time it makes the other late: raised and lowered for ever.
    let mut measured = with_measured_rates(database(), &[(BestEffort, 30), (Idle, 30)]);
    measured = with_measured_rates(measured, &[(RealTime, 50), (Idle, 10)]);
    let running = [vm(Idle, 100, 5)];
    let rejection = admit_request(&measured, &running, 500, 10).expect_err("no class is right");
    assert_eq!(rejection.why, RejectionReason::Steps);
}

/// Decision where a transfer that is late anyway is not protected.
fn admit_beside_unprotected(
    running: &[VmState],
    mb: u64,
    seconds: u64,
) -> Result<Assignment, Rejection> {
    let database = database();
    let snapshot = HostSnapshot::new(NOW, &database, running);
    let snapshot = snapshot.with_late_rule(LateRule::Unprotected);
    admit(&snapshot, &request(mb, seconds))
}

#[test]
fn an_already_late_transfer_keeps_19_of_20_parts_of_its_rate() {
    // 60 MB/s alone are too little: it is late with or without the newcomer, which would halve it.
    let running = [vm(BestEffort, 700, 10)];
    let (from, to) = (60 * MB, 30 * MB);
    assert_eq!(
        admit_request(&database(), &running, 10, 100),
        rejected(RejectionReason::Slows { who: 0, from, to }, Idle, 0)
    );
    // A newcomer that costs it a twentieth is admitted, in the class in which it does, if the rest
    // is enough for itself.
    let beside = |left: u64| {
        let database = with_measured_rates(database(), &[(BestEffort, 30); 2]);
        with_measured_rates(database, &[(BestEffort, left), (Idle, 60 - left)])
    };
    assert_eq!(
        admit_request(&beside(57), &running, 300, 100),
        accepted(Idle, &[])
    );
    assert!(admit_request(&beside(56), &running, 300, 100).is_err());
    assert!(admit_request(&beside(57), &running, 301, 100).is_err());
    // One that is past its deadline keeps as much.
    let running = [vm(BestEffort, 700, 0)];
    assert!(admit_request(&beside(57), &running, 300, 100).is_ok());
    assert!(admit_request(&beside(56), &running, 300, 100).is_err());
    // A transfer that would be late because of the newcomer is named before one that is slowed.
    let running = [vm(BestEffort, 700, 10), vm(BestEffort, 300, 10)];
    assert_eq!(
        admit_request(&database(), &running, 10, 100),
        rejected(misses(1, 5), Idle, 0)
    );
}

#[test]
fn an_already_late_transfer_blocks_no_admission_where_it_is_unprotected() {
    // 60 MB/s alone are too little for the running transfer: it is late with or without the
    // newcomer.
    let running = [vm(BestEffort, 700, 10)];
    assert_eq!(
        admit_beside_unprotected(&running, 300, 10),
        accepted(BestEffort, &[])
    );
    // A transfer past its deadline blocks none either.
    let running = [vm(BestEffort, 7, 0)];
    assert_eq!(
        admit_beside_unprotected(&running, 300, 10),
        accepted(BestEffort, &[])
    );
    // 610 MB at 60 MB/s end after 10.17 s. Late by 0.17 s, less than a hundredth of its deadline of
    // 20 s, the transfer is within its grace and still protected.
    let running = [vm(BestEffort, 610, 10)];
    assert!(admit_beside_unprotected(&running, 300, 10).is_err());
    // 612 MB end after 10.2 s: late by exactly the grace. With 613 MB it is exceeded.
    let running = [vm(BestEffort, 612, 10)];
    assert!(admit_beside_unprotected(&running, 300, 10).is_err());
    let running = [vm(BestEffort, 613, 10)];
    assert!(admit_beside_unprotected(&running, 300, 10).is_ok());
    // A transfer that is in time without the newcomer is protected.
    let running = [vm(BestEffort, 600, 10)];
    assert_eq!(
        admit_request(&database(), &running, 300, 10),
        rejected(misses(0, 10), Idle, 0)
    );
}

#[test]
fn a_rejection_names_the_most_late_transfer() {
    let running = [
        vm(BestEffort, 20, 30),
        vm(BestEffort, 300, 15),
        vm(BestEffort, 300, 20),
    ];
    // 15 MB/s each: both end after 20 s, which is late for the second only.
    assert_eq!(
        admit_request(&database(), &running, 10, 90),
        rejected(misses(1, 5), Idle, 0)
    );
    assert_eq!(
        admit_request(&database(), &running[1..], 10, 90),
        accepted(BestEffort, &[])
    );
}

#[test]
fn a_full_host_rejects_every_request() {
    let running = [vm(BestEffort, 0, 1); MAX_VMS];
    assert!(admit_request(&database(), &running[1..], 1, 1000).is_ok());
    assert_eq!(
        admit_request(&database(), &running, 1, 1000),
        rejected(RejectionReason::Full, BestEffort, 0)
    );
    let none = Acceptance::for_snapshot(&HostSnapshot::new(NOW, &database(), &running));
    assert_eq!((none.max_rate(), none.takes(1)), (0, false));
}

#[test]
fn the_nearest_deadline_is_the_first_that_is_accepted() {
    let running = [vm(BestEffort, 300, 12)];
    let takes = Acceptance::for_snapshot(&HostSnapshot::new(NOW, &database(), &running));
    // 30 MB/s: 500 MB take 16.67 s.
    assert_eq!(takes.max_rate(), 30 * MB);
    let nearest = takes.nearest(&request(500, 10)).expect("there is one");
    assert_eq!(nearest, Nanos(16_666_666_667));
    let with = |deadline| {
        let request = Request::new(500 * MB, deadline).expect("valid");
        admit(&HostSnapshot::new(NOW, &database(), &running), &request).is_ok()
    };
    assert!(with(nearest) && !with(Nanos(nearest.0 - 1)));
    assert_eq!(takes.nearest(&request(500, 40)), Some(Nanos::from_secs(40)));
    // The running transfer needs all of the bandwidth.
    let running = [vm(BestEffort, 300, 6)];
    let takes = Acceptance::for_snapshot(&HostSnapshot::new(NOW, &database(), &running));
    assert_eq!(takes.nearest(&request(1, 10)), None);
}

/// Random host: its database and its VMs.
fn host() -> impl Strategy<Value = (PriorityDatabase, Vec<VmState>)> {
    let class = || (0_usize..3).prop_map(|at| Class::ALL[at]);
    let interval = prop::collection::vec((class(), 0_u64..60), 1..6);
    let vm = (class(), 0_u64..400, 0_u64..40, prop::bool::weighted(0.9)).prop_map(
        |(class, left, seconds, has_transfer)| {
            let vm = vm(class, left, seconds);
            VmState {
                transfer: vm.transfer.filter(|_| has_transfer),
                ..vm
            }
        },
    );
    let losses = prop::collection::vec(0..30 * MB, 0..4);
    let all = (
        losses,
        prop::collection::vec(interval, 0..12),
        prop::collection::vec(vm, 0..5),
    );
    all.prop_map(|(lost, intervals, vms)| {
        let bandwidth = Bandwidth::new(60 * MB, &lost).expect("valid");
        let database = intervals
            .iter()
            .fold(PriorityDatabase::new(bandwidth), |all, rates| {
                with_measured_rates(all, rates)
            });
        (database, vms)
    })
}

/// Forecast rates of all VMs, the newcomer last, with the assigned classes.
fn foreseen(database: &PriorityDatabase, vms: &[VmState], assignment: &Assignment) -> Vec<u64> {
    let mut classes: Vec<_> = vms.iter().map(|vm| vm.class).collect();
    for &(who, class) in &assignment.lowered {
        assert!(class < classes[who], "lowered is lower");
        classes[who] = class;
    }
    classes.push(assignment.class);
    let rates = database.rates(&Combination::from_classes(classes.iter().copied()));
    classes
        .iter()
        .map(|&class| rates.for_class(class))
        .collect()
}

/// Request that needs exactly `rate` bytes per second.
fn needing(rate: u64) -> Request {
    Request::new(rate, Nanos::SECOND).expect("valid")
}

proptest! {
    #[test]
    fn acceptance_threshold_is_one_of_the_class_rates((database, vms) in host()) {
        let snapshot = HostSnapshot::new(NOW, &database, &vms);
        let takes = Acceptance::for_snapshot(&snapshot);
        let n = vms.len() + 1;
        // All rates that the forecast can give a newcomer, and their neighbours.
        for idle in 0..=n {
            for best_effort in 0..=n - idle {
                let real_time = n - idle - best_effort;
                let counts = [(Idle, idle), (BestEffort, best_effort), (RealTime, real_time)];
                let classes = counts.iter().flat_map(|&(class, count)| vec![class; count]);
                let rates = database.rates(&Combination::from_classes(classes));
                let at_and_above = |class| [rates.for_class(class), rates.for_class(class) + 1];
                for rate in Class::ALL.into_iter().flat_map(at_and_above) {
                    if rate > 0 {
                        let admitted = admit(&snapshot, &needing(rate)).is_ok();
                        prop_assert_eq!(takes.takes(rate), admitted, "{}", rate);
                    }
                }
            }
        }
    }

    #[test]
    fn admitted_requests_are_predicted_in_time(
        (database, vms) in host(),
        mb in 1_u64..600,
        seconds in 1_u64..40,
    ) {
        let request = request(mb, seconds);
        let Ok(assignment) = admit(&HostSnapshot::new(NOW, &database, &vms), &request) else {
            return Ok(());
        };
        let rates = foreseen(&database, &vms, &assignment);
        let own = request.start_at(NOW).forecast(NOW, rates[vms.len()]);
        prop_assert_eq!(own.late, Nanos::ZERO);
        let classes = vms.iter().map(|vm| vm.class);
        let before = database.rates(&Combination::from_classes(classes));
        for (vm, rate) in vms.iter().zip(rates) {
            let Some(transfer) = vm.transfer else { continue };
            let rate_before = before.for_class(vm.class);
            let late_without = transfer.forecast(NOW, rate_before).late > Nanos::ZERO;
            let late = transfer.forecast(NOW, rate).late > Nanos::ZERO;
            prop_assert!(late_without || !late);
        }
    }

    #[test]
    fn acceptance_agrees_with_admission(
        (database, vms) in host(),
        requests in prop::collection::vec((1_u64..600, 1_u64..40), 1..40),
        later in 0_u64..20_000,
    ) {
        let takes = Acceptance::for_snapshot(&HostSnapshot::new(NOW, &database, &vms));
        prop_assert!(takes.valid_until() >= NOW);
        // Up to the stated end of validity, the result stays the same.
        let now = NOW + Nanos::from_millis(later).min(takes.valid_until().since(NOW));
        let mut most = 0;
        for &(mb, seconds) in &requests {
            let request = request(mb, seconds);
            let snapshot = HostSnapshot::new(now, &database, &vms);
            let admitted = admit(&snapshot, &request).is_ok();
            prop_assert_eq!(takes.takes(request.rate()), admitted, "{} at {}", request.rate(), now);
            most = most.max(if admitted { request.rate() } else { 0 });
            // The nearest deadline is accepted; one that is a nanosecond shorter is not.
            if let Some(nearest) = takes.nearest(&request) {
                let with = |deadline| {
                    let request = Request::new(mb * MB, deadline).expect("valid");
                    admit(&snapshot, &request).is_ok()
                };
                prop_assert!(with(nearest));
                prop_assert!(nearest == request.deadline() || !with(Nanos(nearest.0 - 1)));
            }
        }
        prop_assert!(most <= takes.max_rate());
    }
}
