use super::*;
use proptest::prelude::*;
use tidegate_base::expected_workload::ExpectedWorkload;
use tidegate_base::objective::{Burst, Limit, Rate};

const IDLE: StateAtClose = StateAtClose {
    regulated: false,
    waits_for_others: false,
    device_busy: false,
};

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn device() -> DeviceSpec {
    DeviceSpec {
        depth: 32,
        physical_block: 4096,
        max_io: 1 << 20,
        zeroes_are_writes: false,
        positioning: Nanos::ZERO,
        bytes_per_s: 0,
    }
}

/// Circumstances of a late request beside others, on a device that has one I/O at a time.
const BESIDE: Circumstances = Circumstances {
    beside_others: true,
    is_serial: false,
    concurrency: 1,
    answered: 0,
    requests_per_1024_ios: 1024,
    mean_device: Nanos::ZERO,
};

/// Attainment of one VM, 10 ms of blocking time, and the number of its answered requests.
struct One(Attainments, u32);

impl One {
    fn new(objective: &Objective) -> One {
        let mut all = Attainments::new(&device(), 64);
        all.add(0);
        assert!(all.change(Nanos::ZERO, 0, objective, IDLE));
        One(all, 0)
    }

    fn arrives(&mut self, at: Nanos, slot: u32) {
        self.0.arrived(at, [0, slot], (at, 4096, self.1), || IDLE);
    }

    fn ends(&mut self, at: Nanos, slot: u32, account: Account) {
        self.1 += 1;
        if self.0.answered(at, [0, slot], 4096, Ok(()), || IDLE) {
            let circumstances = Circumstances {
                answered: self.1,
                ..BESIDE
            };
            self.0.blame([0, slot], &account, circumstances);
        }
    }

    fn part(&self, now: Nanos, part: Part) -> PartAttainment {
        let parts = self.0.view(now, 0, IDLE);
        parts
            .into_iter()
            .find(|it| it.part == part)
            .expect("it is promised")
    }
}

fn reserved(iops: u64) -> Objective {
    Objective {
        reservation: Rate::iops(iops),
        ..Objective::default()
    }
}

fn device_time(time: Nanos) -> Account {
    Account {
        device: time,
        ..Account::default()
    }
}

#[test]
fn a_vm_of_depth_one_is_judged_by_its_tags() {
    let mut one = One::new(&reserved(100));
    // Due 20 ms after each arrival: 10 of the rate, 10 of the device.
    for i in 0..40 {
        one.arrives(ms(25 * i), 0);
        one.ends(ms(25 * i + 20), 0, Account::default());
    }
    let kept = one.part(ms(1500), Part::Reservation);
    assert_eq!((kept.kept_s, kept.missed(), kept.late), (1, 0, 0));
    assert_eq!(kept.asked_less_s, 1, "40 of 100");
    // One late by 1 ns is forgiven, two are not.
    for (second, late) in [(2, 1), (3, 2)] {
        for i in 0..10 {
            let at = ms(second * 1000 + 25 * i);
            one.arrives(at, 0);
            let late = Nanos(u64::from(i < late));
            one.ends(at + ms(20) + late, 0, device_time(ms(20)));
        }
    }
    let kept = one.part(ms(4000), Part::Reservation);
    assert_eq!((kept.kept_s, kept.missed(), kept.late), (2, 1, 3));
    assert_eq!((kept.worst, kept.last_missed_ago_s), (Nanos(1), Some(1)));
    assert_eq!(kept.main_cause(), Some(Cause::Device));
    assert_eq!(kept.is_kept(), Some(false));
    assert_eq!(
        kept.last_hour,
        Window {
            judged: 3,
            missed: 1
        }
    );
}

#[test]
fn a_request_that_hangs_is_missed_in_every_second_of_it() {
    let mut one = One::new(&reserved(10));
    one.arrives(ms(100), 0);
    // Due at 0.21 s, answered at 4.5 s.
    let hangs = one.part(ms(4300), Part::Reservation);
    assert_eq!(
        (hangs.kept_s, hangs.missed()),
        (1, 3),
        "kept where one is forgiven"
    );
    one.ends(ms(4500), 0, device_time(ms(4400)));
    let hung = one.part(ms(9000), Part::Reservation);
    assert_eq!(
        (hung.kept_s, hung.missed()),
        (1, 4),
        "and in the second of its answer"
    );
    assert_eq!(hung.worst, ms(4500 - 210));
}

#[test]
fn a_few_slow_requests_are_no_kept_second() {
    let mut one = One::new(&reserved(100));
    for i in 0..5 {
        one.arrives(ms(900 * i), 0);
        one.ends(ms(900 * i + 800), 0, device_time(ms(800)));
    }
    let missed = one.part(ms(5000), Part::Reservation);
    assert_eq!((missed.kept_s, missed.missed()), (0, 5));
}

#[test]
fn a_backlog_is_due_at_its_rate() {
    let mut one = One::new(&reserved(10));
    (0..20).for_each(|slot| one.arrives(Nanos::ZERO, slot));
    // Request k is due at (k + 1) x 100 ms + 10 ms.
    for k in 0..20 {
        one.ends(ms(100 * (u64::from(k) + 1) + 10), k, Account::default());
    }
    let kept = one.part(ms(3000), Part::Reservation);
    assert_eq!((kept.kept_s, kept.missed()), (3, 0));
    assert_eq!(kept.asked_less_s, 1, "in the last second one was left");
}

#[test]
fn more_than_the_floor_for_a_minute_is_no_credit_for_starving() {
    let mut one = One::new(&reserved(10));
    // 100 a second for a minute, then one a second.
    for i in 0..6000 {
        one.arrives(ms(10 * i), 0);
        one.ends(ms(10 * i + 5), 0, Account::default());
    }
    for i in 0..5 {
        one.arrives(ms(60_000 + 1000 * i), 0);
        one.ends(ms(60_950 + 1000 * i), 0, device_time(ms(950)));
    }
    let part = one.part(ms(65_000), Part::Reservation);
    assert_eq!((part.kept_s, part.missed()), (60, 5));
}

#[test]
fn a_deep_queue_that_has_more_than_its_floor_is_spaced_by_it() {
    let mut one = One::new(&reserved(20));
    // 32 outstanding, one answered every 6 ms, any of the first 8 of them.
    (0..32).for_each(|slot| one.arrives(Nanos::ZERO, slot));
    let mut queue: Vec<u32> = (0..32).collect();
    for i in 1..10_000 {
        let slot = queue.remove((i * 5 % 8) as usize);
        one.ends(ms(6 * i), slot, device_time(ms(6)));
        one.arrives(ms(6 * i), slot);
        queue.push(slot);
    }
    let part = one.part(ms(59_000), Part::Reservation);
    assert_eq!((part.missed(), part.late), (0, 0));
    // From now on one a second: they are due within 1.7 s.
    for i in 0..6 {
        let slot = queue.remove(0);
        one.ends(ms(61_000 + 1000 * i), slot, device_time(ms(1000)));
        one.arrives(ms(61_000 + 1000 * i), slot);
        queue.push(slot);
    }
    assert!(one.part(ms(66_000), Part::Reservation).missed() >= 4);
}

#[test]
fn a_floor_answered_in_groups_is_kept_where_each_second_has_its_rate() {
    let rate = Rate::iops(100);
    let target = Objective {
        target: rate,
        ..Objective::default()
    };
    // Groups of 50 requests that come together and are answered 450 ms later, or of 49 in the third
    // second, where the rate is short by two requests.
    let judged = |objective: &Objective, part| {
        let mut one = One::new(objective);
        for (at, requests) in [
            (0, 50),
            (500, 50),
            (1000, 50),
            (1500, 50),
            (2000, 49),
            (2500, 49),
        ] {
            (0..requests).for_each(|slot| one.arrives(ms(at), slot));
            (0..requests).for_each(|slot| one.ends(ms(at + 450), slot, Account::default()));
        }
        let found = one.part(ms(3500), part);
        (found.kept_s, found.missed())
    };
    assert_eq!(judged(&target, Part::Target), (2, 1));
    assert_eq!(judged(&reserved(100), Part::Reservation), (2, 1));
}

#[test]
fn a_request_that_the_device_passes_over_breaks_no_floor_whose_rate_is_served() {
    // One request is passed over for 600 ms while the others of the VM get 100 a second.
    let judged = |iops| {
        let mut one = One::new(&reserved(iops));
        one.arrives(ms(100), 0);
        for i in 0..100 {
            one.arrives(ms(10 * i), 1);
            one.ends(ms(10 * i + 5), 1, Account::default());
            if i == 70 {
                one.ends(ms(705), 0, device_time(ms(605)));
            }
        }
        let found = one.part(ms(1000), Part::Reservation);
        (found.kept_s, found.missed())
    };
    assert_eq!(judged(100), (1, 0));
    assert_eq!(judged(200), (0, 1));
}

#[test]
fn a_low_floor_is_not_kept_with_a_request_less() {
    let mut one = One::new(&reserved(2));
    // Due 0.51 s after it comes.
    one.arrives(ms(0), 0);
    one.ends(ms(900), 0, device_time(ms(900)));
    let missed = one.part(ms(1000), Part::Reservation);
    assert_eq!((missed.kept_s, missed.missed()), (0, 1));
}

#[test]
fn latency_holds_inside_the_envelope() {
    let objective = Objective {
        latency: Some(ms(5)),
        ..reserved(100)
    };
    let mut one = One::new(&objective);
    // Two at once: the second one is due its bound after the rate allows it.
    (0..2).for_each(|slot| one.arrives(Nanos::ZERO, slot));
    one.ends(ms(5), 0, Account::default());
    one.ends(ms(15), 1, Account::default());
    let kept = one.part(ms(1000), Part::Latency);
    assert_eq!((kept.kept_s, kept.late, kept.best_effort), (1, 0, false));
    let bound = Objective {
        reservation: Rate::NONE,
        ..objective
    };
    let mut one = One::new(&bound);
    (0..2).for_each(|slot| one.arrives(Nanos::ZERO, slot));
    one.ends(ms(5), 0, Account::default());
    one.ends(ms(15), 1, Account::default());
    let missed = one.part(ms(1000), Part::Latency);
    assert_eq!(
        (missed.missed(), missed.late, missed.best_effort),
        (1, 1, true)
    );
}

#[test]
fn latency_holds_inside_the_envelope_that_is_expected() {
    let objective = |reservation| Objective {
        latency: Some(ms(5)),
        expects: ExpectedWorkload {
            iops: Some(100),
            burst: Some(2),
            ..ExpectedWorkload::NOTHING
        },
        ..reservation
    };
    // A reservation of another rate is no envelope.
    for reservation in [Objective::default(), reserved(1), reserved(10_000)] {
        let judged = |ends: [u64; 3]| {
            let mut one = One::new(&objective(reservation));
            (0..3).for_each(|slot| one.arrives(Nanos::ZERO, slot));
            for (slot, end) in ends.into_iter().enumerate() {
                one.ends(ms(end), slot as u32, Account::default());
            }
            one.part(ms(1000), Part::Latency)
        };
        // Two may come at once; the third one is due its bound after the rate allows it.
        let kept = judged([5, 5, 15]);
        assert_eq!((kept.kept_s, kept.late, kept.best_effort), (1, 0, false));
        assert_eq!(judged([5, 6, 15]).late, 1);
        assert_eq!(judged([5, 5, 16]).late, 1);
    }
    // A burst that is answered soon is used up all the same.
    let mut one = One::new(&objective(Objective::default()));
    (0..2).for_each(|slot| one.arrives(Nanos::ZERO, slot));
    (0..2).for_each(|slot| one.ends(ms(1), slot, Account::default()));
    one.arrives(ms(1), 2);
    one.ends(ms(15), 2, Account::default());
    assert_eq!(one.part(ms(1000), Part::Latency).late, 0);
}

#[test]
fn another_envelope_is_another_promise() {
    let mut objective = Objective {
        latency: Some(ms(5)),
        ..Objective::default()
    };
    let mut one = One::new(&objective);
    one.arrives(Nanos::ZERO, 0);
    one.ends(ms(1), 0, Account::default());
    assert_eq!(one.part(ms(1000), Part::Latency).kept_s, 1);
    objective.expects.size = Some(4096);
    one.0.change(ms(1000), 0, &objective, IDLE);
    let same = one.part(ms(1000), Part::Latency);
    assert_eq!(same.kept_s, 1, "a size is no envelope");
    objective.expects.iops = Some(100);
    one.0.change(ms(1000), 0, &objective, IDLE);
    let anew = one.part(ms(1000), Part::Latency);
    assert_eq!((anew.kept_s, anew.best_effort), (0, false));
}

#[test]
fn the_cause_is_where_late_requests_spent_their_time() {
    let state = |regulated, waits_for_others| StateAtClose {
        regulated,
        waits_for_others,
        device_busy: true,
    };
    for (regulated, queued, cause) in [
        (9, 1, Cause::OwnLimit),
        (1, 9, Cause::Others),
        (1, 1, Cause::Device),
    ] {
        let mut one = One::new(&reserved(100));
        let account = Account {
            regulated: ms(regulated),
            queued: ms(queued),
            device: ms(5),
            ..Account::default()
        };
        one.arrives(Nanos::ZERO, 0);
        one.ends(ms(900), 0, account);
        let missed = one.part(ms(1000), Part::Reservation);
        assert_eq!(missed.main_cause(), Some(cause));
    }
    for (state, cause) in [
        (state(true, true), Cause::OwnLimit),
        (state(false, true), Cause::Others),
        (state(false, false), Cause::Device),
    ] {
        let mut one = One::new(&reserved(100));
        one.0.stalls().busy(ms(1990));
        one.arrives(Nanos::ZERO, 0);
        // One second forgives it, the next one does not.
        let parts = one.0.view(ms(2000), 0, state);
        assert_eq!(parts[0].main_cause(), Some(cause));
    }
}

#[test]
fn a_wait_is_blamed_on_the_vms_that_were_served_meanwhile() {
    // Two requests at once wait behind a neighbour's I/O and some of the VM's own, and are served
    // one after the other. The second one follows its own VM's, yet waited as the first one did.
    let cause_of = |neighbour: u64, own: u32| {
        let mut one = One::new(&reserved(100));
        let earlier = 2..2 + own;
        earlier
            .clone()
            .for_each(|slot| one.arrives(Nanos::ZERO, slot));
        (0..2).for_each(|slot| one.arrives(Nanos::ZERO, slot));
        let mut now = Nanos::ZERO;
        for slot in earlier {
            now += ms(10);
            one.ends(now, slot, device_time(ms(10)));
        }
        for slot in 0..2 {
            let account = Account {
                queued: now + ms(neighbour),
                ..device_time(ms(10))
            };
            now += ms(10);
            one.ends(now + ms(neighbour), slot, account);
        }
        one.part(ms(1000), Part::Reservation).main_cause()
    };
    assert_eq!(cause_of(500, 10), Some(Cause::Others));
    assert_eq!(cause_of(100, 50), Some(Cause::Device));
}

#[test]
fn seconds_in_which_the_medium_stalled_count_apart() {
    let mut one = One::new(&reserved(100));
    one.0.stalls().busy(ms(100));
    one.arrives(ms(100), 0);
    one.0.stalls().ended(ms(900));
    one.ends(ms(900), 0, device_time(ms(800)));
    let stalled = one.part(ms(1000), Part::Reservation);
    assert_eq!((stalled.stalled_s, stalled.judged()), (1, 0));
    assert_eq!(stalled.is_kept(), None);
}

#[test]
fn a_limit_is_missed_where_more_passes_than_its_burst_allows() {
    let burst = |burst| Objective {
        limit: Limit {
            total: Rate::iops(100),
            burst,
            ..Limit::NONE
        },
        ..Objective::default()
    };
    let run = |objective: &Objective, per_s: &[u32]| {
        let mut one = One::new(objective);
        for (second, &count) in per_s.iter().enumerate() {
            for i in 0..count {
                let at = Nanos::from_secs(second as u64) + ms(u64::from(i));
                let first = FirstServed {
                    ops: 1,
                    bytes: 4096,
                };
                one.0.dispatched(at, 0, Lane::Read, first, || IDLE);
            }
        }
        let limit = one.part(Nanos::from_secs(per_s.len() as u64), Part::Limit);
        (limit.kept_s, limit.missed_s[Cause::Policy as usize])
    };
    // One request and 1 % above the rate, and not both again.
    assert_eq!(run(&burst(None), &[102, 101, 100]), (3, 0));
    assert_eq!(run(&burst(None), &[103, 100]), (1, 1));
    assert_eq!(run(&burst(None), &[0, 0, 150, 101]), (1, 1));
    let fast = Burst {
        total: Rate::iops(300),
        read: Rate::NONE,
        write: Rate::NONE,
        length: Nanos::SECOND,
    };
    assert_eq!(run(&burst(Some(fast)), &[300, 200, 100, 50]), (4, 0));
    assert_eq!(run(&burst(Some(fast)), &[300, 300]), (1, 1));
}

#[test]
fn another_promise_has_counts_of_its_own_and_the_history_stays() {
    let mut one = One::new(&reserved(100));
    one.arrives(Nanos::ZERO, 0);
    one.ends(ms(900), 0, device_time(ms(900)));
    one.arrives(ms(999), 1);
    let now = ms(1200);
    assert!(one.0.change(now, 0, &reserved(50), IDLE));
    // Of the promise before: judged by neither.
    one.ends(ms(2500), 1, device_time(ms(1500)));
    let part = one.part(ms(3000), Part::Reservation);
    assert_eq!((part.judged(), part.late), (0, 0));
    assert_eq!(
        part.last_day,
        Window {
            judged: 1,
            missed: 1
        }
    );
    assert!(!one.0.change(ms(3000), 0, &Objective::default(), IDLE));
    assert!(one.0.view(ms(3000), 0, IDLE).is_empty());
}

#[test]
fn an_export_goes_on_where_it_ended() {
    let mut one = One::new(&reserved(100));
    one.arrives(Nanos::ZERO, 0);
    one.ends(ms(900), 0, device_time(ms(900)));
    one.0.expect_transfer(ms(940), 0);
    one.0.transfer_ended(ms(950), 0, ms(3));
    let records = one.0.export(ms(1000), 0, IDLE);
    let mut later = One::new(&reserved(100));
    later.0.import(ms(500), 0, 60, &records);
    let part = later.part(ms(500), Part::Reservation);
    assert_eq!((part.missed(), part.worst), (1, ms(880)));
    assert_eq!(part.last_missed_ago_s, Some(61));
    assert_eq!(
        part.last_hour,
        Window {
            judged: 1,
            missed: 1
        }
    );
    let transfer = later.part(ms(500), Part::Transfer);
    assert_eq!((transfer.missed(), transfer.worst), (1, ms(3)));
    let mut other = One::new(&reserved(99));
    other.0.import(ms(500), 0, 60, &records);
    let part = other.part(ms(500), Part::Reservation);
    assert_eq!((part.missed(), part.last_hour.missed), (0, 1));
}

/// Request as the oracle keeps it.
#[derive(Clone, Copy, Debug)]
struct Kept {
    due: u64,
    /// Time of its answer; `None`: it is not answered.
    end: Option<u64>,
}

/// Verdicts on whole seconds before `now`, from every request there ever was: kept and missed.
fn oracle(all: &[Kept], iops: u64, now: u64) -> (u64, u64) {
    const S: u64 = 1_000_000_000;
    let (mut kept, mut missed) = (0, 0);
    for second in 0..now / S {
        let (begin, end) = (second * S, (second + 1) * S);
        let due = |it: &&Kept| (begin..end).contains(&it.due);
        let late = |it: &&Kept| it.end.is_none_or(|at| at > it.due);
        let hangs = |it: &Kept| it.due < begin && it.end.is_none_or(|at| at >= end);
        let very_late = |it: &Kept| {
            let late = |at: u64| (begin..end).contains(&at) && at >= it.due + LATE.0;
            it.end.is_some_and(late)
        };
        let answered = |it: &&Kept| it.end.is_some_and(|at| (begin..end).contains(&at));
        let answered = all.iter().filter(answered).count() as u64;
        let missing = u64::from(answered > 0 && iops >= 10);
        if answered + missing >= iops {
            kept += 1;
        } else if all.iter().filter(due).filter(late).count() > 1
            || all.iter().any(hangs)
            || all.iter().any(very_late)
        {
            missed += 1;
        } else if all.iter().any(|it| due(&it)) {
            kept += 1;
        }
    }
    (kept, missed)
}

proptest! {
    /// Seconds closed by the VM's own events, whenever those come, are judged as from a list of
    /// all requests.
    #[test]
    fn verdicts_are_those_of_a_list_of_all_requests(
        iops in prop::sample::select(vec![1u64, 8, 100, 1000]),
        steps in prop::collection::vec(
            (0u64..400_000_000, any::<bool>(), 0usize..64), 1..300,
        ),
        pauses in prop::collection::vec((0usize..300, 1u64..90), 0..4),
        after in 0u64..100,
    ) {
        let mut one = One::new(&reserved(iops));
        let (mut now, mut tag, mut all) = (0u64, 0u64, Vec::<Kept>::new());
        let mut open: Vec<(u32, usize)> = Vec::new();
        let mut free: Vec<u32> = (0..64).collect();
        for (at, (step, arrives, which)) in steps.into_iter().enumerate() {
            now += step;
            now += pauses.iter().filter(|p| p.0 == at).map(|p| p.1 * 1_000_000_000).sum::<u64>();
            if arrives || open.is_empty() {
                // A request that is due beyond the ring is judged by its answer alone.
                let next = tag.max(now) + 1_000_000_000 / iops;
                if next + 10_000_000 >= now / 1_000_000_000 * 1_000_000_000 + 32_000_000_000 {
                    continue;
                }
                let Some(slot) = free.pop() else { continue };
                tag = next;
                one.arrives(Nanos(now), slot);
                open.push((slot, all.len()));
                all.push(Kept { due: tag + 10_000_000, end: None });
            } else {
                let (slot, index) = open.swap_remove(which % open.len());
                all[index].end = Some(now);
                let outstanding = (open.len() as u64 + 1) * (1_000_000_000 / iops);
                if now + outstanding < tag {
                    tag -= 1_000_000_000 / iops;
                }
                one.ends(Nanos(now), slot, Account::default());
                free.push(slot);
            }
        }
        let now = now + after * 1_000_000_000;
        let got = one.part(Nanos(now), Part::Reservation);
        prop_assert_eq!((got.kept_s, got.missed()), oracle(&all, iops, now));
        let judged = got.last_day;
        prop_assert_eq!((u64::from(judged.judged), u64::from(judged.missed)),
            (got.judged(), got.missed()));
    }
}

#[test]
fn a_floor_is_judged_by_the_longest_blocking_time_since_it_was_promised() {
    let late_by = |change: fn(&mut Attainments)| {
        let mut one = One::new(&reserved(100));
        one.0.set_blocking(Some(ms(40)));
        one.arrives(ms(100), 0);
        one.ends(ms(101), 0, device_time(ms(1)));
        change(&mut one.0);
        one.arrives(ms(500), 1);
        one.ends(ms(540), 1, device_time(ms(40)));
        one.part(ms(2000), Part::Reservation).worst
    };
    assert_eq!(late_by(|_| {}), Nanos::ZERO, "due at 550 ms");
    // Others' promises made the queue shorter: what was promised before is judged as it was.
    assert_eq!(
        late_by(|all| all.loosen_blocking(Some(ms(20)))),
        Nanos::ZERO
    );
    // The device is another one, or is known better.
    assert_eq!(late_by(|all| all.set_blocking(Some(ms(20)))), ms(10));
    // Another promise is judged as things are.
    let anew = |all: &mut Attainments| {
        all.loosen_blocking(Some(ms(20)));
        all.change(ms(400), 0, &reserved(101), IDLE);
    };
    assert!(late_by(anew) > Nanos::ZERO);
}

#[test]
fn a_sampler_closes_seconds_without_changing_the_verdicts() {
    let objective = reserved(100);
    let [mut sampled, mut other] = [One::new(&objective), One::new(&objective)];
    for i in 0..50u64 {
        for one in [&mut sampled, &mut other] {
            one.arrives(ms(100 * i), 0);
            // Each tenth request is late.
            let took = if i % 10 == 9 { 99 } else { 5 };
            one.ends(ms(100 * i + took), 0, device_time(ms(took)));
        }
        sampled.0.close_seconds(ms(100 * i + 99), 0, IDLE);
    }
    let part = |one: &One| one.part(ms(7000), Part::Reservation);
    assert_eq!(part(&sampled), part(&other));
    let seconds = sampled
        .0
        .close_seconds(ms(7000), 0, IDLE)
        .expect("promised");
    let seconds = seconds[Part::Reservation as usize];
    let expected = part(&other);
    assert_eq!(seconds.kept_s, expected.kept_s);
    assert_eq!(seconds.missed_s.map(u64::from), expected.missed_s);
    assert!(seconds.kept_s > 0);
    assert_eq!(sampled.0.close_seconds(ms(7000), 1, IDLE), None);
}
