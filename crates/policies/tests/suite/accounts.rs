//! Accounts of a request: each phase of its time is booked to the part that delayed it.
//!
//! Calls go to the engine itself, not through the test kit's driver: each has a time of its own,
//! which may be earlier than that of the call before.

use crate::common::*;
use tidegate_core::engine::{DiskSpec, Engine};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::request::{ClientId, Lane, Op, Request};
use tidegate_core::time::Nanos;

fn connect_vm(engine: &mut Engine, objective: &Objective, base: u64) -> ClientId {
    let vm = engine
        .vms_mut()
        .add_vm(Nanos::ZERO, objective)
        .expect("room");
    let disk = DiskSpec {
        base,
        size: 1 << 30,
        read_only: false,
    };
    let disk = engine.vms_mut().add_disk(vm, disk).expect("fits");
    engine.connect(disk).expect("there")
}

fn ms(n: u64) -> Nanos {
    Nanos::from_millis(n)
}

#[test]
fn time_between_parts_is_booked_to_what_delayed_the_next_part() {
    let mut engine = Engine::new(config(1, 0), &policy("limit")).expect("sound");
    let guest = connect_vm(&mut engine, &limited(Rate::iops(10)), 0);
    let other = connect_vm(&mut engine, &Objective::default(), 1 << 30);
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

/// Regression (stress test): a policy change let the held time, and so an EDF deadline that counts
/// from the admission of the request, grow while the request was merely queued.
#[test]
fn held_time_is_settled_at_a_policy_change() {
    let mut engine = Engine::new(config(1, 0), &policy("mclock")).expect("sound");
    let guest = connect_vm(&mut engine, &limited(Rate::iops(10)), 0);
    let ask = |engine: &mut Engine, at: u64, tag: u64| {
        let request = Request::read(tag << 20, 4096, tag);
        (engine.handle_request(ms(at), guest, request)).expect("taken");
    };
    ask(&mut engine, 0, 1);
    let first = engine.poll_dispatch(ms(0)).expect("goes at once");
    engine.handle_completion(ms(1), first.id, Ok(()));
    ask(&mut engine, 1, 2);
    assert_eq!(engine.poll_dispatch(ms(1)), None);
    // Request 3 arrives 5 ms before request 2 is released, which the limit held for 99 ms.
    ask(&mut engine, 95, 3);
    let second = engine.poll_dispatch(ms(100)).expect("due");
    engine.set_policy(ms(101), &policy("edf"));
    let held = |engine: &Engine| {
        let view = engine.view();
        let vm = view.vms().next().expect("there");
        view.queued(view.lane_head(vm, Lane::Read).expect("it waits"))
            .held()
    };
    assert_eq!(held(&engine), ms(6));
    engine.handle_completion(ms(150), second.id, Ok(()));
    assert_eq!(held(&engine), ms(6), "it waits for its turn only");
    let third = engine.poll_dispatch(ms(150)).expect("its turn");
    engine.handle_completion(ms(151), third.id, Ok(()));
    while engine.poll_done().is_some() {}
}

#[test]
fn cancelled_request_is_booked_to_its_limit() {
    let mut engine = Engine::new(config(1, 0), &policy("limit")).expect("sound");
    let guest = connect_vm(&mut engine, &limited(Rate::iops(10)), 0);
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

#[test]
fn wait_for_the_device_after_the_limit_is_booked_as_queueing() {
    let mut engine = Engine::new(config(1, 0), &policy("mclock")).expect("sound");
    let guest = connect_vm(&mut engine, &limited(Rate::iops(10)), 0);
    let other = connect_vm(&mut engine, &Objective::default(), 1 << 30);
    let ask = |engine: &mut Engine, at: u64, client: ClientId, tag: u64| {
        let request = Request::read(tag << 20, 4096, tag);
        (engine.handle_request(ms(at), client, request)).expect("taken");
    };
    ask(&mut engine, 0, guest, 1);
    let first = engine.poll_dispatch(ms(0)).expect("goes at once");
    engine.handle_completion(ms(1), first.id, Ok(()));
    ask(&mut engine, 1, guest, 2);
    assert_eq!(engine.poll_dispatch(ms(1)), None);
    ask(&mut engine, 90, other, 3);
    let others = engine.poll_dispatch(ms(90)).expect("goes at once");
    // The limit allows it from 100 ms on, the device has room from 150 ms on.
    assert_eq!(engine.poll_dispatch(ms(120)), None);
    engine.handle_completion(ms(150), others.id, Ok(()));
    let second = engine.poll_dispatch(ms(150)).expect("its turn");
    engine.handle_completion(ms(151), second.id, Ok(()));
    let done = std::iter::from_fn(|| engine.poll_done()).find(|d| d.tag == 2);
    let account = done.expect("done").account;
    assert_eq!((account.regulated, account.queued), (ms(99), ms(50)));
}

#[test]
fn mclock_names_a_limit_only_where_it_binds() {
    /// Result of a VM with a limit on a device of 1000 IOPS.
    struct Limited {
        iops: u64,
        /// Part of the waiting time that is booked to the limit.
        held_percent: u64,
    }
    fn limited_to(iops: u64, neighbour: bool) -> Limited {
        const DEPTH: u32 = 8;
        let mut world = World::new("mclock", MS);
        let guest = world.guest(&limited(Rate::iops(iops)));
        world.load(guest, Op::Read, 4096, DEPTH);
        if neighbour {
            let other = world.guest(&Objective::default());
            world.load(other, Op::Read, 4096, DEPTH);
        }
        world.run(2 * SECOND);
        let stats = world.driver.engine.vms().vm_stats(guest.vm);
        let account = stats.account;
        // All of them are outstanding all the time; those that are so at the end have no account
        // yet.
        let (all, asked) = (account.total().0, u64::from(DEPTH) * 2 * SECOND);
        // At most DEPTH requests are unanswered, each for at most the time that DEPTH take at its
        // rate: the limit, or half of the device's 1000 IOPS beside a neighbour.
        let unanswered = u64::from(DEPTH * DEPTH) * SECOND / iops.min(500);
        assert!(all <= asked && asked - all <= unanswered, "{account:?}");
        let waited = account.regulated + account.queued;
        let percent = 100 * account.regulated.0 / waited.0;
        Limited {
            // Each request takes 1 ms of the device, in 2 s.
            iops: account.device.0 / MS / 2,
            held_percent: percent,
        }
    }
    // Half of the device is its share: limits above that change nothing.
    for iops in [510, 700, 900] {
        let got = limited_to(iops, true);
        let held = got.held_percent;
        assert!(
            got.iops.abs_diff(500) <= 2 && held < 5,
            "{iops}: {}, {held} %",
            got.iops
        );
    }
    for (iops, neighbour) in [(100, true), (400, true), (100, false), (900, false)] {
        let got = limited_to(iops, neighbour);
        assert!(got.iops.abs_diff(iops) <= iops / 20, "{iops}: {}", got.iops);
        assert!(got.held_percent > 50, "{iops}: {} %", got.held_percent);
    }
}
