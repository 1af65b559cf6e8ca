//! The indexed state machine against linear searches, and against one that is rebuilt from its
//! state at every step.

use proptest::prelude::*;
use tidegate_core::transfers::Class;

use super::*;
use crate::Bandwidth;

const MB: u64 = 1_000_000;
const BANDWIDTHS: [u64; 5] = [60, 40, 40, 20, 80];

#[derive(Clone, Copy, Debug)]
enum Step {
    Request {
        mb: u64,
        seconds: u64,
        limit: Option<u64>,
    },
    End(usize),
    Class(usize, usize),
    Moved(usize, u64),
    Learn(usize),
    Close(usize),
    Open(usize),
    Remove(usize),
    RefreshNext(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let request = (1_u64..1_000, 1_u64..60, prop::option::of(1_u64..4));
    let host = 0..BANDWIDTHS.len();
    prop_oneof![
        8 => request.prop_map(|(mb, seconds, limit)| Step::Request { mb, seconds, limit }),
        3 => (0_usize..50).prop_map(Step::End),
        1 => (0_usize..50, 0_usize..3).prop_map(|(who, class)| Step::Class(who, class)),
        2 => (0_usize..50, 0_u64..900).prop_map(|(who, mb)| Step::Moved(who, mb)),
        1 => host.clone().prop_map(Step::Learn),
        1 => host.clone().prop_map(Step::Close),
        2 => host.clone().prop_map(Step::Open),
        1 => host.prop_map(Step::Remove),
        1 => (1_usize..7).prop_map(Step::RefreshNext),
        5 => (1_u64..20_000_000_000).prop_map(Step::Wait),
    ]
}

fn new_pcos() -> Pcos {
    let mut pcos = Pcos::new(6);
    for mb in BANDWIDTHS {
        let bandwidth = Bandwidth::new(mb * MB, &[0, 2 * MB, 3 * MB]).expect("it leaves some");
        let mut spec = HostSpec::new(bandwidth);
        spec.transfers = 4;
        pcos.add_host(Nanos::ZERO, spec);
    }
    pcos
}

/// Decides a request as [`Pcos::request`] does, by linear searches over all hosts and requests.
fn request_linearly(pcos: &mut Pcos, now: Nanos, request: Request) -> Answer {
    pcos.handle_timeout(now);
    let waiter = pcos.new_waiter(now, request);
    let id = waiter.id;
    let mut rejecting = Vec::new();
    loop {
        for host in 0..pcos.hosts.len() {
            if pcos.hosts[host].acceptance().valid_until() < now {
                pcos.refresh(now, HostId(host));
            }
        }
        let mut best: Option<(u64, usize)> = None;
        for (at, host) in pcos.hosts.iter().enumerate() {
            let takes = host.acceptance();
            let is_better = best.is_none_or(|(free, _)| takes.free() > free);
            if is_better && takes.takes(request.rate()) && !rejecting.contains(&at) {
                best = Some((takes.free(), at));
            }
        }
        let Some((_, host)) = best else {
            let solo_rates = pcos.hosts.iter().map(Host::solo_rate);
            let solo_rate = solo_rates.max().unwrap_or(0);
            let outcome = if request.rate() > solo_rate {
                let nearest = request.deadline_at(solo_rate);
                Outcome::Refused(Refusal::Impossible { nearest })
            } else if pcos.waiting().count() >= pcos.waiting_max {
                let most = pcos.waiting_max;
                Outcome::Refused(Refusal::TooManyWait { most })
            } else {
                pcos.waiting.push(waiter);
                Outcome::Waiting
            };
            return Answer { id, outcome };
        };
        if let Some(placement) = pcos.place(now, HostId(host), &waiter) {
            retry_linearly(pcos, now, HostId(host));
            let outcome = Outcome::Placed(placement);
            return Answer { id, outcome };
        }
        rejecting.push(host);
    }
}

/// Tries the waiting requests on a host as [`Pcos::retry`] does, one after the other.
fn retry_linearly(pcos: &mut Pcos, now: Nanos, host: HostId) {
    if pcos.hosts[host.0].acceptance().valid_until() < now {
        pcos.refresh(now, host);
    }
    let mut after = None;
    loop {
        let takes = pcos.hosts[host.0].acceptance().clone();
        let is_next = |waiter: &&Waiter| {
            after.is_none_or(|after| waiter.id > after) && takes.takes(waiter.request.rate())
        };
        let Some(waiter) = pcos.waiting.iter().find(is_next).copied() else {
            return;
        };
        after = Some(waiter.id);
        if let Some(placement) = pcos.place(now, host, &waiter) {
            pcos.waiting.remove(waiter.id);
            pcos.events.push_back(Event::Placed(placement));
            after = None;
        }
    }
}

/// Builds a state machine that has the hosts, transfers and requests of another one, as after a
/// restart.
fn rebuilt(pcos: &Pcos, now: Nanos) -> Pcos {
    let mut new = Pcos::new(pcos.waiting_max);
    for (at, host) in pcos.hosts.iter().enumerate() {
        let id = new.add_host(now, host.spec());
        if host.is_gone() {
            new.remove_host(now, id);
            continue;
        }
        new.replace_host(now, id, host.spec(), host.is_open(), &host.resumable());
        assert_eq!(id, HostId(at));
    }
    for waiter in pcos.waiting.iter() {
        new.resume_waiting(waiter.arrived, waiter.request);
    }
    new.refresh_all(now);
    new
}

/// Position of each transfer on its host, which two state machines that name them differently have
/// in common.
fn place_of(pcos: &Pcos, host: HostId, id: RequestId) -> Option<usize> {
    let mut all = pcos.hosts[host.0].running().iter();
    all.position(|running| running.id == id)
}

/// Decision without identifiers: host, class, and lowered transfers by their positions.
type Decision = Option<(HostId, Class, Vec<(Option<usize>, Class)>)>;

fn decision(pcos: &Pcos, outcome: &Outcome) -> Result<Decision, Outcome> {
    match outcome {
        Outcome::Placed(placement) => {
            let lowered = placement.lowered.iter();
            let lowered = lowered.map(|(id, class)| (place_of(pcos, placement.host, *id), *class));
            Ok(Some((placement.host, placement.class, lowered.collect())))
        }
        Outcome::Waiting => Ok(None),
        Outcome::Refused(_) => Err(outcome.clone()),
    }
}

/// Compares the decision on a request with that of a state machine rebuilt from the present state.
fn compare_rebuilt(pcos: &Pcos, now: Nanos, request: Request) -> Result<(), TestCaseError> {
    let (mut kept, mut new) = (pcos.clone(), rebuilt(pcos, now));
    kept.refresh_all(now);
    for (kept, new) in kept.hosts.iter().zip(&new.hosts) {
        prop_assert_eq!(kept.acceptance(), new.acceptance());
        let progress = |host: &Host| -> Vec<_> {
            let all = host.running().iter();
            all.map(|running| (running.vm, running.as_of)).collect()
        };
        prop_assert_eq!(progress(kept), progress(new));
    }
    let first = kept.request(now, request).outcome;
    let second = new.request(now, request).outcome;
    prop_assert_eq!(decision(&kept, &first), decision(&new, &second));
    let follow = |pcos: &mut Pcos| -> Vec<Option<(HostId, Class)>> {
        let one = |event| match event {
            Event::Placed(placement) => Some((placement.host, placement.class)),
            Event::Discarded(_) => None,
        };
        std::iter::from_fn(|| pcos.poll_event()).map(one).collect()
    };
    prop_assert_eq!(follow(&mut kept), follow(&mut new));
    Ok(())
}

/// Applies a step that is no request.
fn change(pcos: &mut Pcos, now: Nanos, step: Step) {
    let running: Vec<_> = (pcos.hosts())
        .flat_map(|host| host.running().iter().map(move |it| (host.id, it.id)))
        .collect();
    let nth = |who: usize| running.get(who % running.len().max(1)).copied();
    let none = Update::default();
    match step {
        Step::End(who) => {
            if let Some((host, id)) = nth(who) {
                let ended = &[id];
                pcos.update(now, host, &Update { ended, ..none });
            }
        }
        Step::Class(who, class) => {
            if let Some((host, id)) = nth(who) {
                let classes = &[(id, Class::ALL[class])];
                pcos.update(now, host, &Update { classes, ..none });
            }
        }
        Step::Moved(who, mb) => {
            if let Some((host, id)) = nth(who) {
                let moved = &[(id, mb * MB)];
                pcos.update(now, host, &Update { moved, ..none });
            }
        }
        Step::Learn(host) => {
            let classes = pcos.hosts[host]
                .running()
                .iter()
                .map(|running| running.vm.class);
            let measured: Vec<_> = classes
                .map(|class| (class, (class as u64 + 1) * 5 * MB))
                .collect();
            let measured = measured.as_slice();
            pcos.update(now, HostId(host), &Update { measured, ..none });
        }
        Step::Close(host) => pcos.close_host(now, HostId(host)),
        Step::Open(host) => pcos.open_host(now, HostId(host)),
        Step::Remove(host) => drop(pcos.remove_host(now, HostId(host))),
        Step::RefreshNext(n) => pcos.refresh_next(now, n),
        Step::Request { .. } | Step::Wait(_) => {}
    }
}

proptest! {
    #[test]
    fn decisions_are_those_of_linear_searches_and_of_a_rebuilt_state_machine(
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut pcos = new_pcos();
        let mut now = Nanos::ZERO;
        for step in steps {
            if let Step::Wait(ns) = step {
                now += Nanos(ns);
            }
            let Step::Request { mb, seconds, limit } = step else {
                change(&mut pcos, now, step);
                while pcos.poll_event().is_some() {}
                continue;
            };
            let request = Request::new(mb * MB, Nanos::from_secs(seconds)).expect("valid");
            let times = limit.map_or(u64::MAX, |times| times.saturating_mul(request.rate()));
            let request = request.limited(times).expect("at least what it needs");
            compare_rebuilt(&pcos, now, request)?;
            let mut linear = pcos.clone();
            let expected = request_linearly(&mut linear, now, request);
            prop_assert_eq!(pcos.request(now, request), expected);
            let events = |pcos: &mut Pcos| -> Vec<_> {
                std::iter::from_fn(|| pcos.poll_event()).collect()
            };
            prop_assert_eq!(events(&mut pcos), events(&mut linear));
        }
    }
}
