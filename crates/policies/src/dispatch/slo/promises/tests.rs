//! Tests of the queue of promises.

use super::*;
use tidegate_base::expected_workload::ExpectedWorkload;
use tidegate_base::objective::OpsRate;

const AT_ONCE: Head = Head {
    arrived: Nanos::ZERO,
    len: 4096,
    within_share: true,
};

fn reserved(iops: u64, latency: Option<Nanos>) -> Objective {
    Objective {
        reservation: Rate::iops(iops),
        latency,
        ..Objective::default()
    }
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

#[test]
fn a_floor_is_due_once_a_spacing_and_by_the_end_of_it() {
    let mut promises = Promises::with_capacity(2);
    promises.set(Nanos::ZERO, 0, &reserved(100, None));
    promises.wake(ms(5), 0);
    promises.place(ms(5), 0, AT_ONCE);
    assert_eq!(promises.first(), Some((ms(15), 0)));
    let one = FirstServed {
        ops: 1,
        bytes: 4096,
    };
    promises.spend(ms(5), 0, 4096, one);
    promises.place(ms(5), 0, AT_ONCE);
    assert_eq!(promises.first(), None);
    assert_eq!(promises.poll_coming(ms(14)), None);
    assert_eq!(promises.poll_coming(ms(15)), Some(0));
}

#[test]
fn a_latency_counts_from_the_arrival_within_the_rate_and_from_the_tag_beyond_it() {
    let mut promises = Promises::with_capacity(1);
    promises.set(Nanos::ZERO, 0, &reserved(100, Some(ms(3))));
    promises.wake(ms(50), 0);
    let head = |arrived| Head {
        arrived,
        len: 4096,
        within_share: false,
    };
    promises.place(ms(50), 0, head(ms(50)));
    assert_eq!(promises.first(), Some((ms(53), 0)));
    promises.spend(
        ms(50),
        0,
        4096,
        FirstServed {
            ops: 1,
            bytes: 4096,
        },
    );
    // The next request came at once: the rate allows it 10 ms after the first.
    promises.place(ms(60), 0, head(ms(50)));
    assert_eq!(promises.first(), Some((ms(63), 0)));
    // A request that came later than its tag is due its latency after it came.
    promises.place(ms(90), 0, head(ms(80)));
    assert_eq!(promises.first(), Some((ms(83), 0)));
}

#[test]
fn a_burst_within_the_rate_of_a_bounded_vm_goes_early_and_no_further() {
    let mut promises = Promises::with_capacity(2);
    promises.set(Nanos::ZERO, 0, &reserved(100, Some(ms(50))));
    promises.set(Nanos::ZERO, 1, &reserved(100, None));
    let one = FirstServed {
        ops: 1,
        bytes: 4096,
    };
    let head = Head {
        arrived: ms(20),
        len: 4096,
        within_share: true,
    };
    for vm in [0, 1] {
        promises.wake(ms(20), vm);
        promises.place(ms(20), vm, head);
    }
    let mut early = 0;
    for vm in [0, 1] {
        promises.spend(ms(20), vm, 4096, one);
        promises.place(ms(20), vm, head);
    }
    assert_eq!(promises.first(), None, "both tags lie ahead");
    // Ten requests at once go early, by which the tag is eleven spacings ahead.
    while let Some((_, vm)) = promises.first_early() {
        assert_eq!(vm, 0);
        promises.spend(ms(20), vm, 4096, one);
        promises.place(ms(20), vm, head);
        early += 1;
    }
    assert_eq!(early, 10);
    // A spacing later another one may.
    assert_eq!(promises.poll_coming(ms(29)), None);
    promises.place(ms(30), 0, head);
    assert_eq!(promises.first_early().map(|(_, vm)| vm), Some(0));
    // Without its bound the VM waits for its tag.
    promises.set(ms(30), 0, &reserved(100, None));
    assert_eq!(promises.first_early(), None);
}

#[test]
fn a_vm_that_is_served_beyond_its_floor_is_far_from_late() {
    let one = FirstServed {
        ops: 1,
        bytes: 4096,
    };
    let late_from = |promises: &mut Promises, arrived| match promises.watched_for(
        (arrived, 0, 1000),
        arrived,
        (4096, one),
        Nanos::MAX,
    ) {
        Some(WatchedFor::Floor(late)) => late,
        other => panic!("{other:?}"),
    };
    let mut promises = Promises::with_capacity(1);
    promises.set(Nanos::ZERO, 0, &reserved(100, None));
    // Ten requests at once are due a spacing of 10 ms one after the other.
    let due: Vec<Nanos> = (0..10).map(|_| late_from(&mut promises, ms(5))).collect();
    assert_eq!((due[0], due[9]), (ms(15), ms(105)));
    // A later one is due a spacing after it came: idle time earns nothing.
    assert_eq!(late_from(&mut promises, ms(300)), ms(310));
    // A latency bound counts from the arrival, so every delay matters.
    promises.set(ms(300), 0, &reserved(100, Some(ms(3))));
    assert_eq!(
        promises.watched_for((ms(300), 0, 1000), ms(300), (4096, one), Nanos::MAX),
        Some(WatchedFor::Bound(ms(303)))
    );
}

#[test]
fn without_a_rate_a_latency_holds_within_the_share() {
    let mut promises = Promises::with_capacity(1);
    let bounded = Objective {
        latency: Some(ms(4)),
        ..Objective::default()
    };
    promises.set(Nanos::ZERO, 0, &bounded);
    let mut head = Head {
        arrived: ms(7),
        len: 4096,
        within_share: true,
    };
    promises.place(ms(8), 0, head);
    // Best effort: not among what is promised, and nothing that could step down.
    assert_eq!(promises.first_by_share(), Some((ms(11), 0)));
    assert_eq!(promises.first(), None);
    assert!(!promises.can_step_down(0, &bounded, Part::Latency));
    head.within_share = false;
    promises.place(ms(8), 0, head);
    let queues = [promises.first(), promises.first_by_share()];
    assert_eq!(queues, [None; 2]);
    assert_eq!(promises.poll_coming(Nanos::MAX), None);
    // With a rate it is a promise.
    let promised = reserved(100, Some(ms(4)));
    promises.set(ms(8), 0, &promised);
    promises.place(ms(8), 0, head);
    assert_eq!(promises.first(), Some((ms(12), 0)));
    assert!(promises.can_step_down(0, &promised, Part::Latency));
}

#[test]
fn rates_beyond_the_device_are_cut_in_proportion() {
    let mut promises = Promises::with_capacity(2);
    for (vm, iops) in [(0, 1000), (1, 100)] {
        promises.set(Nanos::ZERO, vm, &reserved(iops, None));
        promises.wake(Nanos::ZERO, vm);
        promises.place(Nanos::ZERO, vm, AT_ONCE);
    }
    // The device completes 550 I/Os per second, half of the sum of the promises.
    let mut served = [0u32; 2];
    for n in 0..55_000u64 {
        let now = Nanos(n * Nanos::SECOND.0 / 550);
        while let Some(vm) = promises.poll_coming(now) {
            promises.place(now, vm, AT_ONCE);
        }
        let (_, vm) = promises.first().expect("more is due than is served");
        promises.spend(
            now,
            vm,
            4096,
            FirstServed {
                ops: 1,
                bytes: 4096,
            },
        );
        promises.place(now, vm, AT_ONCE);
        served[vm] += 1;
    }
    let ratio = f64::from(served[0]) / f64::from(served[1]);
    assert!((9.9..10.1).contains(&ratio), "{served:?}");
}

#[test]
fn stepped_down_parts_are_not_scheduled_until_they_come_back() {
    let mut promises = Promises::with_capacity(1);
    let objective = Objective {
        target: Rate::bytes(1 << 20),
        ..reserved(50, Some(ms(3)))
    };
    promises.set_transfer(0, 8 << 20);
    promises.set(Nanos::ZERO, 0, &objective);
    // 16 KiB at 8 MiB/s, the transfer's rate.
    let spacing = |promises: &Promises| promises.vms[0].pacer.period(SPACING_BYTES);
    assert_eq!(spacing(&promises), Nanos(1_953_125));
    // The target's rate and a tenth more, by which it repays stalls; then the reservation's.
    let then = [(Part::Transfer, 14_204), (Part::Target, 20_000)];
    for (part, micros) in then {
        assert!(promises.can_step_down(0, &objective, part));
        promises.set_down(0, part, true);
        promises.set(Nanos::ZERO, 0, &objective);
        assert!(!promises.can_step_down(0, &objective, part));
        assert_eq!(spacing(&promises).0 / 1000, micros, "{part:?}");
    }
    assert!(promises.has_latency(0));
    promises.set_down(0, Part::Latency, true);
    promises.set(Nanos::ZERO, 0, &objective);
    assert!(!promises.has_latency(0) && promises.has(0));
    promises.set_down(0, Part::Transfer, false);
    promises.set(Nanos::ZERO, 0, &objective);
    assert_eq!(spacing(&promises), Nanos(1_953_125));
}

#[test]
fn a_transfer_makes_good_what_it_is_behind_and_a_floor_does_not() {
    let mut promises = Promises::with_capacity(2);
    promises.set_transfer(0, 8 << 20);
    promises.set(Nanos::ZERO, 0, &Objective::default());
    let floor = Objective {
        reservation: Rate::bytes(8 << 20),
        ..Objective::default()
    };
    promises.set(Nanos::ZERO, 1, &floor);
    let one = FirstServed {
        ops: 1,
        bytes: SPACING_BYTES.into(),
    };
    // Nothing waited for 500 ms.
    let mut watched_for = [None; 2];
    for vm in [0, 1] {
        promises.wake(ms(500), vm);
        promises.spend(ms(500), vm, SPACING_BYTES.into(), one);
        let spent = (SPACING_BYTES.into(), one);
        watched_for[vm] = promises.watched_for((ms(500), vm, 1000), ms(500), spent, Nanos::MAX);
    }
    assert!(promises.is_transfer_behind(ms(500), 0));
    assert!(!promises.is_transfer_behind(ms(600), 1));
    let [
        Some(WatchedFor::Floor(transfer)),
        Some(WatchedFor::Floor(floor)),
    ] = watched_for
    else {
        panic!("{watched_for:?}");
    };
    assert!(transfer < ms(500) && floor > ms(500), "{watched_for:?}");
    // A transfer that is far from late is watched as if it were late soon.
    promises.spend(ms(500), 0, 8 << 20, one);
    let spent = (8 << 20, one);
    let soon = promises.watched_for((ms(500), 0, 1000), ms(500), spent, ms(700));
    assert_eq!(soon, Some(WatchedFor::Floor(ms(700))));
    promises.set_down(0, Part::Transfer, true);
    assert!(!promises.has_transfer(0) && !promises.is_transfer_behind(ms(500), 0));
}

#[test]
fn a_reservation_in_iops_holds_beside_a_transfer_and_earns_nothing_while_idle() {
    let mut promises = Promises::with_capacity(1);
    // 18 I/Os of 4 KiB a second.
    promises.set_transfer(0, 18 * 4096);
    promises.set(Nanos::ZERO, 0, &reserved(1000, None));
    let one = FirstServed {
        ops: 1,
        bytes: 4096,
    };
    // Nothing waited for two seconds.
    promises.wake(ms(2000), 0);
    let serve = |promises: &mut Promises, now: Nanos| {
        promises.place(now, 0, AT_ONCE);
        let is_due = promises.first().is_some();
        if is_due {
            promises.spend(now, 0, 4096, one);
        }
        is_due
    };
    // The transfer makes good a second, the reservation nothing: these are its first 19, too.
    let at_once = (0..1000).take_while(|_| serve(&mut promises, ms(2000)));
    assert_eq!(at_once.count(), 19);
    let served = (2001..3000).filter(|&now| serve(&mut promises, ms(now)));
    assert_eq!(served.count(), 981);
    // Bytes that the reservation moved are no lead of the transfer.
    assert!(!promises.is_transfer_behind(ms(2999), 0));
    assert!(promises.is_transfer_behind(ms(3060), 0));
}

#[test]
fn the_rest_of_a_request_keeps_the_deadline_of_its_first_part() {
    let [unit, next] = [0, 1].map(|index| ReqId {
        index,
        generation: 0,
    });
    let counted_by_size = Rate {
        ops: Some(OpsRate {
            per_s: 1000,
            norm: Some(16 << 10),
        }),
        bytes_per_s: None,
    };
    // The first part of 64 KiB of a request of 1 MiB.
    let part = FirstServed {
        ops: 1,
        bytes: 1 << 20,
    };
    for latency in [None, Some(ms(1)), Some(ms(5))] {
        let mut promises = Promises::with_capacity(1);
        let objective = Objective {
            reservation: counted_by_size,
            latency,
            ..Objective::default()
        };
        promises.set(Nanos::ZERO, 0, &objective);
        promises.wake(ms(10), 0);
        let head = Head {
            arrived: ms(7),
            len: 4096,
            within_share: true,
        };
        promises.place(ms(10), 0, head);
        // A spacing or the bound after its tag: 1 ms.
        let by = ms(11);
        assert_eq!(promises.first(), Some((by, 0)));
        promises.spend(ms(10), 0, 64 << 10, part);
        promises.begin_rest(0, unit, by, false);
        for _ in 1..16 {
            promises.end_rest(0, unit);
            promises.place(ms(10), 0, head);
            assert_eq!(promises.first(), Some((by, 0)));
            promises.spend(ms(10), 0, 64 << 10, FirstServed::default());
        }
        // The next request is due 64 spacings after this one.
        promises.end_rest(0, next);
        promises.place(ms(10), 0, head);
        assert_eq!(promises.first(), None);
        assert_eq!(promises.poll_coming(ms(63)), None);
        assert_eq!(promises.poll_coming(ms(74)), Some(0));
    }
}

#[test]
fn the_rest_of_a_request_that_went_early_goes_early_and_one_by_bytes_by_its_own_tags() {
    let unit = ReqId {
        index: 0,
        generation: 0,
    };
    let mut promises = Promises::with_capacity(2);
    promises.set(Nanos::ZERO, 0, &reserved(1000, Some(ms(50))));
    let bytes = Objective {
        reservation: Rate::bytes(16 << 20),
        ..Objective::default()
    };
    promises.set(Nanos::ZERO, 1, &bytes);
    let head = Head {
        arrived: ms(10),
        len: 4096,
        within_share: true,
    };
    let one = |bytes| FirstServed { ops: 1, bytes };
    for vm in [0, 1] {
        promises.wake(ms(10), vm);
        // The tag of VM 0 goes beyond what may be early.
        (0..20).for_each(|_| promises.spend(ms(10), vm, 16 << 10, one(16 << 10)));
        promises.begin_rest(vm, unit, ms(60), vm == 0);
        promises.end_rest(vm, unit);
        promises.place(ms(10), vm, head);
    }
    assert_eq!(promises.first_early(), Some((ms(60), 0)));
    assert_eq!(promises.first(), None, "VM 1 is charged each part");
}

#[test]
fn a_lead_over_a_rate_near_the_limit_is_no_longer_than_what_is_inside() {
    let one = FirstServed {
        ops: 1,
        bytes: 4096,
    };
    let late = |limit: Rate| {
        let mut promises = Promises::with_capacity(1);
        let mut objective = reserved(100, None);
        objective.limit.total = limit;
        promises.set(Nanos::ZERO, 0, &objective);
        // 120 requests a second of a VM that has two inside, each gone as it comes.
        let served = (0..1200).map(|n| ms(n * 25 / 3));
        let watched =
            served.map(|now| promises.watched_for((now, 0, 2), now, (4096, one), Nanos::MAX));
        watched.last().expect("there are some")
    };
    let last = ms(1199 * 25 / 3);
    assert_eq!(
        late(Rate::iops(149)),
        Some(WatchedFor::Floor(last + ms(30)))
    );
    // A VM that may go on to have half as much again is far from late.
    assert_eq!(late(Rate::iops(150)), Some(WatchedFor::Floor(ms(12_000))));
    assert_eq!(late(Rate::bytes(1)), Some(WatchedFor::Floor(ms(12_000))));
}

/// VM with a latency bound of 3 ms for `iops` requests a second, of which `burst` may come at once.
fn expecting(iops: u64, burst: u32, reservation: Rate) -> Objective {
    Objective {
        reservation,
        latency: Some(ms(3)),
        expects: ExpectedWorkload {
            iops: Some(iops),
            burst: Some(burst),
            ..ExpectedWorkload::NOTHING
        },
        ..Objective::default()
    }
}

#[test]
fn inside_its_envelope_a_request_is_due_by_its_bound_and_outside_it_has_no_promise() {
    let mut promises = Promises::with_capacity(1);
    let objective = expecting(100, 2, Rate::NONE);
    promises.set(Nanos::ZERO, 0, &objective);
    let head = Head {
        arrived: ms(50),
        len: 4096,
        within_share: true,
    };
    let one = FirstServed {
        ops: 1,
        bytes: 4096,
    };
    promises.wake(ms(50), 0);
    for _ in 0..2 {
        promises.place(ms(50), 0, head);
        assert_eq!(promises.first(), Some((ms(53), 0)));
        promises.spend(ms(50), 0, 4096, one);
    }
    promises.place(ms(50), 0, head);
    let queues = [
        promises.first(),
        promises.first_early(),
        promises.first_by_share(),
    ];
    assert_eq!(queues, [None; 3]);
    // At a disk, nothing is held back for a request outside.
    let watched = promises.watched_for((ms(50), 0, 1), ms(50), (4096, one), Nanos::MAX);
    assert_eq!(watched, None);
    assert_eq!(promises.poll_coming(ms(59)), None);
    assert_eq!(promises.poll_coming(ms(60)), Some(0));
    promises.place(ms(60), 0, head);
    assert_eq!(promises.first(), Some((ms(63), 0)));
    let watched = promises.watched_for((ms(60), 0, 1), ms(60), (4096, one), Nanos::MAX);
    assert_eq!(watched, Some(WatchedFor::Bound(ms(63))));
    assert!(promises.can_step_down(0, &objective, Part::Latency));
    promises.set_down(0, Part::Latency, true);
    promises.set(ms(60), 0, &objective);
    assert!(!promises.has(0));
    assert_eq!(promises.first(), None);
}

#[test]
fn an_envelope_and_a_floor_together_are_promised_the_faster_of_both_rates() {
    let one = FirstServed {
        ops: 1,
        bytes: 4096,
    };
    for (envelope, floor) in [(50, 200), (200, 50), (100, 100)] {
        let mut promises = Promises::with_capacity(1);
        promises.set(Nanos::ZERO, 0, &expecting(envelope, 1, Rate::iops(floor)));
        let head = Head {
            arrived: Nanos::ZERO,
            len: 4096,
            within_share: true,
        };
        promises.wake(Nanos::ZERO, 0);
        let mut served = 0;
        // A request waits all the time.
        for now in (0..10_000).map(ms) {
            promises.place(now, 0, head);
            if promises.first().is_some() {
                promises.spend(now, 0, 4096, one);
                served += 1;
            }
        }
        let due = 10 * envelope.max(floor);
        assert!(
            (due..=due + due / 50).contains(&served),
            "{served} of {due}"
        );
    }
}
