//! Where a request's time went is booked to what held it then.

mod common;

use common::*;
use tidegate_core::engine::{DiskSpec, Engine};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::request::{ClientId, Lane, Request};
use tidegate_core::time::Nanos;

fn client(engine: &mut Engine, objective: &Objective, base: u64) -> ClientId {
    let vm = engine.add_vm(Nanos::ZERO, objective).expect("room");
    let disk = DiskSpec {
        base,
        size: 1 << 30,
        read_only: false,
    };
    let disk = engine.add_disk(vm, disk).expect("fits");
    engine.connect(disk).expect("there")
}

fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

#[test]
fn time_between_the_parts_of_a_request_counts_what_happened_then() {
    let mut engine = Engine::new(config(1, 0), &policy("limit")).expect("sound");
    let guest = client(&mut engine, &limited(Rate::iops(10)), 0);
    let other = client(&mut engine, &Objective::default(), 1 << 30);
    engine
        .handle_request(ms(0), guest, Request::read(0, 4096, 1))
        .expect("taken");
    let first = engine.poll_dispatch(ms(0)).expect("goes at once");
    engine.handle_completion(ms(1), first.id, Ok(()));
    // Two parts; held back by the limit for 100 ms.
    engine
        .handle_request(ms(0), guest, Request::read(0, 2 << 20, 2))
        .expect("taken");
    assert_eq!(engine.poll_dispatch(ms(1)), None);
    let part = engine.poll_dispatch(ms(100)).expect("due");
    engine.handle_completion(ms(110), part.id, Ok(()));
    engine.set_policy(ms(110), &policy("fifo"));
    // Then 20 ms of queueing: the gate is open, nobody polls.
    let part = engine.poll_dispatch(ms(130)).expect("the second part");
    engine.handle_completion(ms(140), part.id, Ok(()));
    engine.handle_disconnect(ms(140), other);
    let done = std::iter::from_fn(|| engine.poll_done())
        .find(|d| d.tag == 2)
        .expect("done");
    assert_eq!(done.account.device, ms(20));
    assert_eq!(
        (done.account.regulated, done.account.queued),
        (ms(99), ms(20)),
        "{:?}",
        done.account
    );
}

/// Found by torture: under `edf`, with deadlines that count from when a request was let in, one moved on while it
/// waited for nothing but its turn.
#[test]
fn how_long_a_limit_held_is_settled_when_another_policy_comes() {
    let mut engine = Engine::new(config(1, 0), &policy("mclock")).expect("sound");
    let guest = client(&mut engine, &limited(Rate::iops(10)), 0);
    let ask = |engine: &mut Engine, at: u64, tag: u64| {
        let request = Request::read(tag << 20, 4096, tag);
        (engine.handle_request(ms(at), guest, request)).expect("taken");
    };
    ask(&mut engine, 0, 1);
    let first = engine.poll_dispatch(ms(0)).expect("goes at once");
    engine.handle_completion(ms(1), first.id, Ok(()));
    ask(&mut engine, 1, 2);
    assert_eq!(engine.poll_dispatch(ms(1)), None);
    // It comes 5 ms before what the limit has held for 99 is let go.
    ask(&mut engine, 95, 3);
    let second = engine.poll_dispatch(ms(100)).expect("due");
    engine.set_policy(ms(101), &policy("edf"));
    let held = |engine: &Engine| {
        let facts = engine.view();
        let vm = facts.vms().next().expect("there");
        facts.held(facts.lane_head(vm, Lane::Read).expect("it waits"))
    };
    assert_eq!(held(&engine), ms(6));
    engine.handle_completion(ms(150), second.id, Ok(()));
    assert_eq!(held(&engine), ms(6), "it waits for its turn only");
    let third = engine.poll_dispatch(ms(150)).expect("its turn");
    engine.handle_completion(ms(151), third.id, Ok(()));
    while engine.poll_done().is_some() {}
}

#[test]
fn a_cancelled_request_says_that_its_limit_held_it() {
    let mut engine = Engine::new(config(1, 0), &policy("limit")).expect("sound");
    let guest = client(&mut engine, &limited(Rate::iops(10)), 0);
    engine
        .handle_request(ms(0), guest, Request::read(0, 4096, 1))
        .expect("taken");
    let first = engine.poll_dispatch(ms(0)).expect("goes at once");
    engine.handle_completion(ms(0), first.id, Ok(()));
    engine
        .handle_request(ms(0), guest, Request::read(0, 4096, 2))
        .expect("taken");
    assert_eq!(engine.poll_dispatch(ms(0)), None);
    engine.handle_disconnect(ms(50), guest);
    let done = std::iter::from_fn(|| engine.poll_done())
        .find(|d| d.tag == 2)
        .expect("done");
    assert_eq!(done.account.total(), ms(50));
    assert_eq!(done.account.regulated, ms(50));
}
