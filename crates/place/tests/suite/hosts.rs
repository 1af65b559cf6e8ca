//! Hosts that are closed and removed.

use tidegate_core::time::Nanos;
use tidegate_place::{
    Bandwidth, Event, Grace, HostId, HostSpec, LateRule, Outcome, Pcos, Refusal, Request,
    RequestId, Update, WAITING_CAPACITY,
};

const MB: u64 = 1_000_000;

fn hosts(rates: &[u64]) -> Pcos {
    let mut pcos = Pcos::new(WAITING_CAPACITY);
    for rate in rates {
        pcos.add_host(at(0), host(*rate));
    }
    pcos
}

fn host(rate: u64) -> HostSpec {
    HostSpec::new(Bandwidth::new(rate * MB, &[]).expect("it is one"))
}

fn request(mb: u64, seconds: u64) -> Request {
    Request::new(mb * MB, at(seconds)).expect("it is one")
}

const fn at(seconds: u64) -> Nanos {
    Nanos::from_secs(seconds)
}

fn ask(pcos: &mut Pcos, now: Nanos, asked: Request) -> (RequestId, Option<usize>) {
    let answer = pcos.request(now, asked);
    match answer.outcome {
        Outcome::Placed(placement) => (answer.id, Some(placement.host.0)),
        _ => (answer.id, None),
    }
}

#[test]
fn a_closed_host_takes_nobody_until_it_is_opened_and_its_transfers_go_on() {
    let mut pcos = hosts(&[60, 40]);
    let (first, place) = ask(&mut pcos, at(0), request(400, 10));
    assert_eq!(place, Some(0));
    pcos.close_host(at(1), HostId(0));
    let view = pcos.host(HostId(0)).expect("there");
    assert!(!view.is_open() && view.running().len() == 1);
    assert_eq!(ask(&mut pcos, at(1), request(400, 10)).1, Some(1));
    let (waits, place) = ask(&mut pcos, at(1), request(400, 10));
    assert_eq!(place, None);
    // It is not reopened when its transfer ends or when it is updated.
    let update = Update {
        ended: &[first],
        ..Update::default()
    };
    pcos.update(at(2), HostId(0), &update);
    pcos.retry_all(at(2));
    assert_eq!(pcos.poll_event(), None);
    assert_eq!(pcos.nearest(at(2), &request(400, 10)), None);
    // A request that only the closed host could serve waits; one that no host could serve is
    // refused.
    let (fast, place) = ask(&mut pcos, at(2), request(500, 10));
    assert_eq!(place, None);
    let answer = pcos.request(at(2), request(700, 10)).outcome;
    let nearest = Some(Nanos(11_666_666_667));
    assert_eq!(answer, Outcome::Refused(Refusal::Impossible { nearest }));
    assert!(pcos.withdraw(fast));
    pcos.open_host(at(3), HostId(0));
    let event = pcos.poll_event();
    assert!(
        matches!(&event, Some(Event::Placed(of)) if of.id == waits && of.host.0 == 0),
        "{event:?}"
    );
}

#[test]
fn a_host_that_goes_gives_its_transfers_back_and_is_never_heard_of_again() {
    let mut pcos = hosts(&[60, 40]);
    let (on_first, place) = ask(&mut pcos, at(0), request(600, 20));
    assert_eq!(place, Some(0));
    let (on_second, place) = ask(&mut pcos, at(0), request(350, 10));
    assert_eq!(place, Some(1));
    // Estimated progress: 60 MB/s for four seconds.
    let lost = pcos.remove_host(at(4), HostId(0));
    let left: Vec<_> = (lost.iter())
        .map(|running| (running.id, running.vm.transfer.expect("a job").bytes_left()))
        .collect();
    assert_eq!(left, [(on_first, 360 * MB)]);
    assert!(pcos.host(HostId(0)).is_none());
    assert_eq!(
        pcos.hosts().map(|host| host.id).collect::<Vec<_>>(),
        [HostId(1)]
    );
    assert_eq!(pcos.rejection(at(4), HostId(0), &request(1, 10)), None);
    // A late update and a second removal are ignored.
    let update = Update {
        ended: &[on_first],
        ..Update::default()
    };
    pcos.update(at(4), HostId(0), &update);
    pcos.open_host(at(4), HostId(0));
    assert!(pcos.remove_host(at(4), HostId(0)).is_empty());
    let answer = pcos.request(at(4), request(500, 10)).outcome;
    assert!(matches!(answer, Outcome::Refused(_)), "{answer:?}");
    // The remainder waits for the other host.
    let (again, place) = ask(&mut pcos, at(4), request(360, 16));
    assert_eq!(place, None);
    let update = Update {
        ended: &[on_second],
        ..Update::default()
    };
    pcos.update(at(9), HostId(1), &update);
    let event = pcos.poll_event();
    assert!(
        matches!(&event, Some(Event::Placed(of)) if of.id == again && of.host.0 == 1),
        "{event:?}"
    );
    // A new host gets a new number.
    assert_eq!(pcos.add_host(at(9), host(50)), HostId(2));
}

/// Two transfers on 40 MB/s, reported `behind` bytes late, and a third one second after that.
fn let_in(grace: Option<Grace>, behind: u64) -> bool {
    let_in_by(LateRule::Unprotected, grace, behind)
}

fn let_in_by(late_rule: LateRule, grace: Option<Grace>, behind: u64) -> bool {
    let mut pcos = Pcos::new(WAITING_CAPACITY).with_late_rule(late_rule);
    if let Some(grace) = grace {
        pcos = pcos.with_grace(grace);
    }
    pcos.add_host(at(0), host(40));
    let (id, _) = ask(&mut pcos, at(0), request(400, 10));
    let moved = [(id, 4 * 40 * MB - behind)];
    let update = Update {
        moved: &moved,
        ..Update::default()
    };
    pcos.update(at(4), HostId(0), &update);
    ask(&mut pcos, at(4), request(40, 10)).1.is_some()
}

#[test]
fn by_how_much_a_transfer_may_be_late_and_still_keep_others_out_is_a_parameter() {
    // 0.1 s is a hundredth of the deadline and corresponds to 4 MB.
    assert!(!let_in(None, 0) && !let_in(None, 4 * MB));
    assert!(let_in(None, 4 * MB + 1));
    // Without grace the transfer counts as late at once and is not protected.
    assert!(!let_in(Some(Grace::NONE), 0));
    assert!(let_in(Some(Grace::NONE), 1));
    assert!(!let_in(Some(Grace::thousandths(20)), 8 * MB));
    assert!(let_in(Some(Grace::thousandths(20)), 8 * MB + 1));
    // A late transfer that keeps its rate keeps others out all the same.
    assert!(!let_in_by(LateRule::KeepsRate, None, 4 * MB + 1));
    assert_eq!(Grace::default(), Grace::thousandths(10));
    assert_eq!(Grace::thousandths(5_000).as_thousandths(), 1_000);
}
