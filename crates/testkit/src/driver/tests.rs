//! Tests of the driver: order of completions, draining, refusals and cancellation.

use super::*;
use crate::setup::{config, limited, policy};
use tidegate_core::engine::PayloadBounds;
use tidegate_core::objective::Rate;
use tidegate_core::request::IoError;

fn driver(depth: u32) -> Driver {
    Driver::new(config(depth, 0), &policy("fifo"))
}

#[test]
fn completions_keep_the_order_of_the_test() {
    let mut driver = driver(3);
    let guest = driver.guest(&Objective::default());
    let tags = [0, 1, 2].map(|n| driver.ask(guest.client, Op::Read, n << 20, 4096));
    let started = driver.start_all();
    assert_eq!((started.len(), driver.in_flight.len()), (3, 3));
    driver.end(&started[2], Ok(()));
    driver.end_nth(1, Err(IoError::Io));
    driver.end_all();
    let answers: Vec<_> = driver
        .answers()
        .iter()
        .map(|d| (d.tag, d.outcome))
        .collect();
    let [first, second, third] = tags.map(|tag| tag.expect("there is room"));
    let expected = [(third, Ok(())), (second, Err(IoError::Io)), (first, Ok(()))];
    assert_eq!(answers, expected);
    assert!(driver.answers().is_empty());
    driver.assert_drained();
    let tally = driver.tallies[&guest.vm];
    assert_eq!((tally.answered(), tally.first_ops), (3, 3));
    assert_eq!(
        (tally.ok[0], tally.failed[0], tally.device_bytes),
        (2, 1, 3 * 4096)
    );
}

#[test]
fn draining_waits_for_limits() {
    let mut driver = driver(1);
    let guest = driver.guest(&limited(Rate::iops(10)));
    driver.set_policy(&policy("limit"));
    for n in 0..5 {
        driver
            .ask(guest.client, Op::Write, n << 20, 4096)
            .expect("room");
    }
    driver.drain();
    assert!(driver.now >= Nanos::from_millis(400), "{}", driver.now);
    assert_eq!(driver.log.len(), 5);
}

#[test]
fn a_refusal_must_have_its_reason() {
    let mut driver = driver(1);
    let vm = driver.vm(&Objective::default());
    let guest = driver.guest_at(vm, 1 << 30, 1 << 20);
    let beyond = driver.ask(guest.client, Op::Read, 1 << 20, 512);
    assert!(matches!(beyond, Err(Refusal::OutOfRange { .. })));
    assert_eq!(
        driver.ask(guest.client, Op::Read, 0, 0),
        Err(Refusal::Empty)
    );
    driver.disconnect(guest.client);
    let gone = driver.ask(guest.client, Op::Read, 0, 512);
    assert_eq!(gone, Err(Refusal::NotConnected));
}

#[test]
fn removal_cancels_waiting_requests() {
    let mut driver = driver(1);
    let [first, second] = [(); 2].map(|()| driver.guest(&Objective::default()));
    for guest in [first, second] {
        for n in 0..3 {
            driver
                .ask(guest.client, Op::Read, n << 20, 4096)
                .expect("room");
        }
    }
    driver.start().expect("the first goes");
    driver.remove_vm(first.vm);
    assert_eq!(driver.tallies[&first.vm].cancelled, 2);
    driver.disconnect(second.client);
    assert_eq!(driver.tallies[&second.vm].cancelled, 3);
    driver.check();
    driver.drain();
    assert_eq!(driver.tallies[&first.vm].answered(), 3);
}

#[test]
fn unread_replies_hold_their_payload_memory() {
    let mut driver = driver(1);
    let largest = 1 << 20;
    driver.engine.admission_mut().bound_payload(&PayloadBounds {
        total: 1 << 20,
        per_vm: 1 << 20,
        largest,
    });
    let guest = driver.guest(&Objective::default());
    driver.replies.unread_by.push(guest.vm);
    driver.ask(guest.client, Op::Read, 0, 65_536).expect("room");
    driver.start().expect("there is memory");
    driver.end_all();
    assert_eq!(driver.replies.held, [(guest.vm, Op::Read, 65_536)]);
    let (slots, payload_bytes) = driver.engine.admission().in_use();
    assert_eq!((slots, payload_bytes), (0, 65_536));
    let now = driver.now;
    driver.replies.return_held(&mut driver.engine, now);
    assert_eq!(driver.engine.admission().in_use(), (0, 0));
}
