//! Placement over hosts: choice of the host, waiting, retries and discards.

use proptest::prelude::*;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class::{self, BestEffort, Idle};
use tidegate_core::transfers::Transfer;
use tidegate_place::{
    Bandwidth, Event, HostId, HostSpec, Outcome, Pcos, Refusal, RejectionReason, Request,
    RequestId, Update, VmState, WAITING_CAPACITY,
};

const MB: u64 = 1_000_000;

/// Hosts with the given bandwidths in MB/s.
fn hosts(rates: &[u64]) -> Pcos {
    let mut pcos = Pcos::new(WAITING_CAPACITY);
    for rate in rates {
        pcos.add_host(Nanos::ZERO, host(*rate));
    }
    pcos
}

fn host(rate: u64) -> HostSpec {
    HostSpec::new(Bandwidth::new(rate * MB, &[]).expect("it is one"))
}

fn request(mb: u64, seconds: u64) -> Request {
    Request::new(mb * MB, Nanos::from_secs(seconds)).expect("it is one")
}

const fn at(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

fn placed(pcos: &mut Pcos, now: Nanos, mb: u64, seconds: u64) -> (RequestId, usize) {
    let answer = pcos.request(now, request(mb, seconds));
    match answer.outcome {
        Outcome::Placed(placement) => {
            assert_eq!((placement.id, placement.waited), (answer.id, Nanos::ZERO));
            (answer.id, placement.host.0)
        }
        other => panic!("not placed: {other:?}"),
    }
}

fn waits(pcos: &mut Pcos, now: Nanos, mb: u64, seconds: u64) -> RequestId {
    let answer = pcos.request(now, request(mb, seconds));
    assert_eq!(answer.outcome, Outcome::Waiting);
    answer.id
}

fn end(pcos: &mut Pcos, now: Nanos, host: usize, id: RequestId) {
    let update = Update {
        ended: &[id],
        ..Update::default()
    };
    pcos.update(now, HostId(host), &update);
}

fn events(pcos: &mut Pcos) -> Vec<(u64, Option<usize>)> {
    let one = |event| match event {
        Event::Placed(placement) => (placement.id.0, Some(placement.host.0)),
        Event::Discarded(id) => (id.0, None),
    };
    std::iter::from_fn(|| pcos.poll_event()).map(one).collect()
}

#[test]
fn the_host_with_most_free_bandwidth_is_taken_the_first_of_those_alike() {
    let mut pcos = hosts(&[60, 80, 80]);
    let places: Vec<_> = (0..5)
        .map(|_| placed(&mut pcos, at(0), 100, 10).1)
        .collect();
    // 10 MB/s each; free: 80 80 - 70 80 - 70 70 - 60 70 - 60 60 60.
    assert_eq!(places, [1, 2, 1, 2, 0]);
}

#[test]
fn who_waits_is_tried_when_a_transfer_ends_the_oldest_first() {
    let mut pcos = hosts(&[40]);
    let (first, _) = placed(&mut pcos, at(0), 400, 10);
    let large = waits(&mut pcos, at(1), 300, 10);
    let small = waits(&mut pcos, at(2), 100, 10);
    let later = waits(&mut pcos, at(3), 150, 10);
    // The update changed neither number nor classes.
    assert_eq!(events(&mut pcos), []);
    end(&mut pcos, at(5), 0, first);
    // 40 MB/s alone suffice for the large request, 20 for each of two do not.
    assert_eq!(events(&mut pcos), [(large.0, Some(0))]);
    assert_eq!(pcos.waiting().count(), 2);
    // Both are placed when it ends.
    end(&mut pcos, at(6), 0, large);
    assert_eq!(events(&mut pcos), [(small.0, Some(0)), (later.0, Some(0))]);
    // The deadline of the run counts from its start.
    let view = pcos.host(HostId(0)).expect("there");
    let due = |at: usize| view.running()[at].vm.transfer.expect("a job").due_time();
    assert_eq!((due(0), due(1)), (at(16), at(16)));
}

#[test]
fn one_that_is_placed_may_make_room_for_an_older_one() {
    // Two VMs were measured with less each than three.
    let mut spec = host(40);
    spec.database.learn([(BestEffort, 10 * MB); 2]);
    spec.database.learn([(BestEffort, 30 * MB); 3]);
    let mut pcos = Pcos::new(WAITING_CAPACITY);
    pcos.add_host(at(0), spec);
    let (lenient, _) = placed(&mut pcos, at(0), 50, 100);
    let older = waits(&mut pcos, at(0), 400, 20);
    let small = waits(&mut pcos, at(0), 120, 10);
    // Two have 15 MB/s each, enough for 12; then three have 30, enough for 20.
    let update = Update {
        classes: &[(lenient, Idle)],
        measured: &[(BestEffort, 50 * MB); 2],
        ..Update::default()
    };
    pcos.update(at(2), HostId(0), &update);
    assert_eq!(events(&mut pcos), [(small.0, Some(0)), (older.0, Some(0))]);
}

#[test]
fn a_change_of_class_is_a_change_of_state_and_progress_is_none() {
    let mut pcos = hosts(&[40]);
    let (first, _) = placed(&mut pcos, at(0), 400, 10);
    let waiter = waits(&mut pcos, at(0), 100, 10);
    let moved = Update {
        moved: &[(first, 399 * MB)],
        ..Update::default()
    };
    pcos.update(at(1), HostId(0), &moved);
    assert_eq!(events(&mut pcos), []);
    // An unchanged class triggers no retry either.
    let same = Update {
        classes: &[(first, BestEffort)],
        ..Update::default()
    };
    pcos.update(at(1), HostId(0), &same);
    assert_eq!(events(&mut pcos), []);
    let other = Update {
        classes: &[(first, Idle)],
        ..Update::default()
    };
    pcos.update(at(1), HostId(0), &other);
    assert_eq!(events(&mut pcos), [(waiter.0, Some(0))]);
}

#[test]
fn who_has_waited_its_deadline_is_discarded_at_that_moment() {
    let mut pcos = hosts(&[40]);
    let (first, _) = placed(&mut pcos, at(0), 4_000, 100);
    let [a, b] = [5, 6].map(|now| waits(&mut pcos, at(now), 100, 10));
    assert_eq!(pcos.next_timeout(), Some(at(15)));
    pcos.handle_timeout(Nanos(at(15).0 - 1));
    assert_eq!(events(&mut pcos), []);
    // At its deadline a request is no longer placed.
    end(&mut pcos, at(15), 0, first);
    assert_eq!(events(&mut pcos), [(a.0, None), (b.0, Some(0))]);
    assert_eq!(pcos.next_timeout(), None);
    // A withdrawn request is neither placed nor discarded.
    let c = waits(&mut pcos, at(16), 400, 10);
    assert!(pcos.withdraw(c) && !pcos.withdraw(c));
    pcos.handle_timeout(at(99));
    assert_eq!(events(&mut pcos), []);
}

#[test]
fn what_no_empty_host_does_in_time_is_refused_with_what_would() {
    let mut pcos = Pcos::new(1);
    let answer = pcos.request(at(0), request(1, 1)).outcome;
    assert_eq!(
        answer,
        Outcome::Refused(Refusal::Impossible { nearest: None })
    );
    pcos.add_host(at(0), host(40));
    pcos.add_host(at(0), host(50));
    let answer = pcos.request(at(0), request(600, 11)).outcome;
    let nearest = Some(at(12));
    assert_eq!(answer, Outcome::Refused(Refusal::Impossible { nearest }));
    for _ in 0..2 {
        placed(&mut pcos, at(0), 400, 10);
    }
    waits(&mut pcos, at(0), 400, 10);
    let answer = pcos.request(at(0), request(400, 10)).outcome;
    assert_eq!(answer, Outcome::Refused(Refusal::TooManyWait { most: 1 }));
}

#[test]
fn a_host_that_comes_takes_who_waits() {
    let mut pcos = hosts(&[40]);
    placed(&mut pcos, at(0), 400, 10);
    let waiter = waits(&mut pcos, at(0), 400, 10);
    pcos.add_host(at(1), host(50));
    assert_eq!(events(&mut pcos), [(waiter.0, Some(1))]);
}

#[test]
fn reasons_and_nearest_deadlines_are_those_of_the_hosts() {
    let mut pcos = hosts(&[60, 50]);
    placed(&mut pcos, at(0), 600, 11);
    placed(&mut pcos, at(0), 200, 10);
    let asked = request(600, 12);
    // 30 MB/s for both: 600 MB take 20 s, 9 s late.
    let rejection = pcos.rejection(at(0), HostId(0), &asked).expect("rejected");
    assert_eq!(
        rejection.why,
        RejectionReason::Misses {
            who: 0,
            late: at(9)
        }
    );
    let rejection = pcos.rejection(at(0), HostId(1), &asked).expect("rejected");
    assert_eq!(rejection.why, RejectionReason::OwnDeadline);
    assert_eq!(pcos.nearest(at(0), &asked), Some((HostId(1), at(24))));
    assert_eq!(pcos.rejection(at(0), HostId(1), &request(600, 24)), None);
    assert_eq!(pcos.rejection(at(0), HostId(2), &asked), None);
}

#[test]
fn who_starts_again_goes_on_with_what_it_knew() {
    let mut pcos = hosts(&[40]);
    let transfer = Transfer {
        bytes: 400 * MB,
        begun: at(0),
        deadline: at(11),
        moved: 0,
    };
    let ran = VmState {
        class: BestEffort,
        transfer: Some(transfer),
    };
    let id = pcos.resume(HostId(0), ran, at(0));
    let waiter = pcos.resume_waiting(at(0), request(100, 10));
    pcos.retry_all(at(1));
    assert_eq!(events(&mut pcos), []);
    end(&mut pcos, at(2), 0, id);
    assert_eq!(events(&mut pcos), [(waiter.0, Some(0))]);
}

/// Step of the random driver.
#[derive(Clone, Copy, Debug)]
enum Step {
    Request {
        mb: u64,
        seconds: u64,
    },
    /// End of the n-th running transfer.
    End(usize),
    Class(usize, Class),
    Moved(usize, u64),
    Learn(usize),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let class = (0_usize..3).prop_map(|at| Class::ALL[at]);
    let step = prop_oneof![
        5 => (1_u64..400, 1_u64..60).prop_map(|(mb, seconds)| Step::Request { mb, seconds }),
        2 => (0_usize..20).prop_map(Step::End),
        1 => (0_usize..20, class).prop_map(|(who, class)| Step::Class(who, class)),
        1 => (0_usize..20, 0_u64..400).prop_map(|(who, mb)| Step::Moved(who, mb)),
        1 => (0_usize..3).prop_map(Step::Learn),
        2 => (0_u64..4_000).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..120)
}

/// Random driver of a meta-scheduler, with its own list of waiting requests.
struct Drive {
    pcos: Pcos,
    now: Nanos,
    /// Log of all answers and events, in order.
    outcomes: Vec<String>,
    waiting: Vec<(RequestId, Request, Nanos)>,
}

impl Drive {
    /// Running transfers with their hosts.
    fn running(&self) -> Vec<(HostId, RequestId)> {
        let hosts = self.pcos.hosts();
        let running = hosts.flat_map(|host| host.running().iter().map(move |it| (host.id, it.id)));
        running.collect()
    }

    /// Running transfer number `who`, modulo their number.
    fn nth(running: &[(HostId, RequestId)], who: usize) -> Option<(HostId, RequestId)> {
        running.get(who % running.len().max(1)).copied()
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        let running = self.running();
        let changed = match step {
            Step::End(who) | Step::Class(who, _) | Step::Moved(who, _) => Drive::nth(&running, who),
            _ => None,
        };
        match step {
            Step::Request { mb, seconds } => self.request(mb, seconds)?,
            Step::Learn(host) => self.learn(HostId(host)),
            Step::Wait(ms) => {
                self.now += Nanos::from_millis(ms);
                self.pcos.handle_timeout(self.now);
            }
            Step::End(_) | Step::Class(..) | Step::Moved(..) => {
                if let Some((host, id)) = changed {
                    self.change(host, id, step);
                }
            }
        }
        self.events()?;
        if let (Step::End(_), Some((host, _))) = (step, changed) {
            // Requests that still wait were tried and are rejected by the host.
            let (pcos, now) = (&mut self.pcos, self.now);
            let mut rejected = |request| pcos.rejection(now, host, request).is_some();
            prop_assert!(self.waiting.iter().all(|(_, request, _)| rejected(request)));
        }
        Ok(())
    }

    fn request(&mut self, mb: u64, seconds: u64) -> Result<(), TestCaseError> {
        let request = request(mb, seconds);
        // Discards happen before anything else at the same time.
        self.pcos.handle_timeout(self.now);
        self.pcos.refresh_all(self.now);
        let mut takers: Vec<_> = (0..3).map(HostId).collect();
        takers.retain(|host| self.pcos.rejection(self.now, *host, &request).is_none());
        let answer = self.pcos.request(self.now, request);
        self.outcomes.push(format!("{answer:?}"));
        match answer.outcome {
            Outcome::Placed(placement) => prop_assert!(takers.contains(&placement.host)),
            Outcome::Waiting => {
                prop_assert!(takers.is_empty());
                self.waiting.push((answer.id, request, self.now));
            }
            Outcome::Refused(_) => prop_assert!(takers.is_empty()),
        }
        Ok(())
    }

    /// Ends a running transfer, changes its class or reports its progress.
    fn change(&mut self, host: HostId, id: RequestId, step: Step) {
        let none = Update::default();
        match step {
            Step::End(_) => {
                let ended = &[id];
                self.pcos.update(self.now, host, &Update { ended, ..none });
            }
            Step::Class(_, class) => {
                let classes = &[(id, class)];
                self.pcos
                    .update(self.now, host, &Update { classes, ..none });
            }
            Step::Moved(_, mb) => {
                let moved = &[(id, mb * MB)];
                self.pcos.update(self.now, host, &Update { moved, ..none });
            }
            Step::Request { .. } | Step::Learn(_) | Step::Wait(_) => {}
        }
    }

    /// Reports measured rates of each class on a host.
    fn learn(&mut self, host: HostId) {
        let view = self.pcos.host(host).expect("three");
        let classes = view.running().iter().map(|running| running.vm.class);
        let had: Vec<_> = classes
            .map(|class| (class, (class as u64 + 1) * 5 * MB))
            .collect();
        let update = Update {
            measured: &had,
            ..Update::default()
        };
        self.pcos.update(self.now, host, &update);
    }

    /// Checks that waiting requests were placed or discarded in time, and that the rest keeps its
    /// order.
    fn events(&mut self) -> Result<(), TestCaseError> {
        while let Some(event) = self.pcos.poll_event() {
            self.outcomes.push(format!("{event:?}"));
            let (id, is_placed) = match &event {
                Event::Placed(placement) => (placement.id, true),
                Event::Discarded(id) => (*id, false),
            };
            let place = self.waiting.iter().position(|waiter| waiter.0 == id);
            prop_assert!(place.is_some(), "{event:?} did not wait");
            let (_, request, arrived) = self.waiting.remove(place.unwrap_or(0));
            // A discard happens exactly at the deadline.
            prop_assert_eq!(arrived + request.deadline() > self.now, is_placed);
        }
        let due = |(_, request, arrived): &(RequestId, Request, Nanos)| {
            *arrived + request.deadline() > self.now
        };
        prop_assert!(self.waiting.iter().all(due));
        prop_assert_eq!(
            self.pcos
                .waiting()
                .map(|waiter| waiter.0)
                .collect::<Vec<_>>(),
            self.waiting
                .iter()
                .map(|waiter| waiter.0)
                .collect::<Vec<_>>()
        );
        Ok(())
    }
}

/// Runs the driver and returns its log.
fn drive(steps: &[Step]) -> Result<Vec<String>, TestCaseError> {
    let mut drive = Drive {
        pcos: hosts(&[60, 40, 20]),
        now: Nanos::ZERO,
        outcomes: Vec::new(),
        waiting: Vec::new(),
    };
    for step in steps {
        drive.step(*step)?;
    }
    Ok(drive.outcomes)
}

proptest! {
    #[test]
    fn every_request_is_placed_waits_or_is_gone_and_twice_the_same(steps in steps()) {
        prop_assert_eq!(drive(&steps)?, drive(&steps)?);
    }
}
