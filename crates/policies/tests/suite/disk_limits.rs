//! Limits of single disks, and limits that disks share.

use std::sync::mpsc::Sender;

use crate::common::{Driver, Guest, World, assert_below, config, policy};
use tidegate_core::engine::{EngineConfig, Refusal, SharedLimitId};
use tidegate_core::objective::{Burst, Limit, Objective, Rate};
use tidegate_core::policy::Policy;
use tidegate_core::request::{Done, IoError, Op, Request};
use tidegate_core::roles::{Controller, Event, Interests, Knobs, Roles};
use tidegate_core::time::Nanos;
use tidegate_core::view::View;
use tidegate_policies::policy::PolicySpec;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// Time in which the device does one I/O: far faster than all limits here.
const SERVICE: u64 = 100_000;

fn iops(per_s: u64) -> Limit {
    Limit::of_all(Rate::iops(per_s))
}

/// Returns a world under a policy, which keeps all answers.
fn world(name: &str) -> World {
    let mut world = World::with_config(config(4, 0), name, SERVICE);
    world.keep_done = true;
    world
}

/// Adds a second disk, with a client, to the VM of a guest.
fn second_disk(world: &mut World, guest: Guest) -> Guest {
    let disk = world.driver.disk(guest.vm);
    let client = world.driver.client(disk);
    Guest {
        disk,
        client,
        ..guest
    }
}

fn limit_disk(world: &mut World, guest: Guest, limit: &Limit) {
    let now = world.time();
    let mut vms = world.driver.engine.vms_mut();
    vms.limit_disk(now, guest.disk, limit)
        .expect("the disk is there");
}

/// Has guests share a new limit.
fn share(world: &mut World, guests: &[Guest], limit: &Limit) -> SharedLimitId {
    let now = world.time();
    let mut vms = world.driver.engine.vms_mut();
    let id = vms
        .add_shared_limit(now, limit)
        .expect("the limit is valid");
    for guest in guests {
        let shares = vms.share_limit(now, guest.disk, Some(id));
        shares.expect("the disk is there");
    }
    id
}

/// Number of a client's answers of one kind.
fn count(world: &World, guest: Guest, op: Op) -> u64 {
    let of = |done: &&Done| done.client == guest.client && done.op == op;
    world.done.iter().filter(of).count() as u64
}

/// Starts of a disk's I/Os, with the requests that each is the first to serve.
fn starts(world: &World, guest: Guest) -> Vec<(u64, u64)> {
    let of = world
        .driver
        .log
        .iter()
        .filter(|io| io.io.disk == guest.disk);
    of.map(|io| (io.at, u64::from(io.io.first_ops))).collect()
}

#[test]
fn a_disk_keeps_its_limit_under_every_policy_and_the_vms_other_disk_goes_on() {
    for spec in PolicySpec::every_composition() {
        let name = spec.name();
        let mut world = world(name);
        let limited = world.guest(&Objective::default());
        let free = second_disk(&mut world, limited);
        limit_disk(&mut world, limited, &iops(200));
        world.load(limited, Op::Read, 4096, 8);
        world.load(free, Op::Read, 4096, 2);
        world.run(SECOND);
        let served = count(&world, limited, Op::Read);
        assert!((199..=204).contains(&served), "{name}: {served}");
        assert_below(&starts(&world, limited), 200, 1);
        let others = count(&world, free, Op::Read);
        assert!(others > 20 * served, "{name}: {others} beside {served}");
        world.unload(limited);
        world.unload(free);
        world.driver.drain();
    }
}

#[test]
fn reads_and_writes_have_limits_of_their_own_and_flushes_pass() {
    let mut world = world("fifo");
    let guest = world.guest(&Objective::default());
    let limit = Limit {
        read: Rate::iops(300),
        write: Rate::bytes(1 << 20),
        ..Limit::NONE
    };
    limit_disk(&mut world, guest, &limit);
    world.load(guest, Op::Read, 4096, 4);
    world.load(guest, Op::Write, 16384, 4);
    world.run(SECOND);
    world.ask(guest, Request::flush(1 << 40));
    world.run(SERVICE * 4);
    assert_eq!(count(&world, guest, Op::Flush), 1, "it waits for no limit");
    let (reads, writes) = (
        count(&world, guest, Op::Read),
        count(&world, guest, Op::Write),
    );
    assert!((299..=304).contains(&reads), "{reads}");
    assert!((63..=66).contains(&writes), "{writes}");
}

#[test]
fn a_burst_is_spent_and_saved_up_again() {
    let mut world = world("mclock");
    let guest = world.guest(&Objective::default());
    let limit = Limit {
        burst: Some(Burst {
            total: Rate::iops(1000),
            read: Rate::NONE,
            write: Rate::NONE,
            length: Nanos::from_millis(100),
        }),
        ..iops(100)
    };
    limit_disk(&mut world, guest, &limit);
    world.load(guest, Op::Read, 4096, 8);
    // 100 ms x 1000 / (1000 - 100) at the rate of the burst, and at that of the limit from then on.
    world.run(SECOND);
    let first = count(&world, guest, Op::Read);
    assert!((198..=204).contains(&first), "{first}");
    world.pause(guest, 10 * SECOND);
    world.run(100 * MS);
    let again = count(&world, guest, Op::Read) - first;
    assert!((98..=110).contains(&again), "{again}");
}

#[test]
fn disks_that_share_a_limit_take_turns_whatever_their_depth() {
    for spec in PolicySpec::every_composition() {
        let name = spec.name();
        let mut world = world(name);
        let guests = [(); 3].map(|()| world.guest(&Objective::default()));
        share(&mut world, &guests, &iops(300));
        for (guest, depth) in guests.into_iter().zip([1, 4, 16]) {
            world.load(guest, Op::Write, 4096, depth);
        }
        world.run(2 * SECOND);
        let served = guests.map(|guest| count(&world, guest, Op::Write));
        let all: u64 = served.iter().sum();
        assert!((599..=606).contains(&all), "{name}: {served:?}");
        for of_guest in served {
            assert!((190..=210).contains(&of_guest), "{name}: {served:?}");
        }
        let mut together: Vec<_> = guests
            .iter()
            .flat_map(|&guest| starts(&world, guest))
            .collect();
        together.sort_unstable();
        assert_below(&together, 300, 1);
    }
}

#[test]
fn a_disk_leaves_to_the_others_what_its_own_limit_keeps_it_from() {
    let mut world = world("slo");
    let [slow, fast] = [(); 2].map(|()| world.guest(&Objective::default()));
    share(&mut world, &[slow, fast], &iops(400));
    limit_disk(&mut world, slow, &iops(50));
    for guest in [slow, fast] {
        world.load(guest, Op::Read, 4096, 8);
    }
    world.run(2 * SECOND);
    let served = [slow, fast].map(|guest| count(&world, guest, Op::Read));
    assert!((99..=103).contains(&served[0]), "{served:?}");
    assert!((698..=704).contains(&served[1]), "{served:?}");
}

#[test]
fn reads_and_writes_share_a_rate_of_both_in_turns() {
    let mut world = world("mclock");
    let [reader, writer] = [(); 2].map(|()| world.guest(&Objective::default()));
    share(&mut world, &[reader, writer], &iops(200));
    world.load(reader, Op::Read, 4096, 16);
    world.load(writer, Op::Write, 4096, 1);
    world.run(2 * SECOND);
    let served = [
        count(&world, reader, Op::Read),
        count(&world, writer, Op::Write),
    ];
    assert!(served[0].abs_diff(served[1]) <= 4, "{served:?}");
    assert!((399..=404).contains(&(served[0] + served[1])), "{served:?}");
}

/// The lane that comes first in the turns of the shared limit must not use up the disk's own rate
/// each time.
#[test]
fn both_lanes_of_a_disk_with_both_limits_are_served_in_turns() {
    for other in [Op::Read, Op::Write] {
        let mut world = world("fifo");
        let [both, beside] = [(); 2].map(|()| world.guest(&Objective::default()));
        share(&mut world, &[both, beside], &iops(100));
        limit_disk(&mut world, both, &iops(20));
        world.load(beside, other, 4096, 16);
        world.load(both, Op::Read, 4096, 4);
        world.load(both, Op::Write, 4096, 4);
        world.run(4 * SECOND);
        let served = [Op::Read, Op::Write].map(|op| count(&world, both, op));
        assert!((79..=82).contains(&(served[0] + served[1])), "{served:?}");
        assert!(served[0].abs_diff(served[1]) <= 2, "{other:?}: {served:?}");
        let rest = count(&world, beside, other);
        assert!((316..=322).contains(&rest), "{rest}");
    }
}

#[test]
fn a_changed_limit_holds_from_now_on_and_writes_nothing_off() {
    let mut world = world("mclock");
    let guest = world.guest(&Objective::default());
    limit_disk(&mut world, guest, &iops(1));
    world.load(guest, Op::Read, 4096, 4);
    world.run(SECOND / 2);
    let before = count(&world, guest, Op::Read);
    assert!(before <= 2, "{before}");
    limit_disk(&mut world, guest, &iops(1000));
    world.run(SECOND);
    let raised = count(&world, guest, Op::Read) - before;
    assert!((500..=1004).contains(&raised), "{raised}");
    limit_disk(&mut world, guest, &Limit::NONE);
    world.run(SECOND / 10);
    let lifted = count(&world, guest, Op::Read) - before - raised;
    assert!(lifted > 500, "{lifted}");
    // A limit that is set again has no request for nothing.
    limit_disk(&mut world, guest, &iops(100));
    world.run(SECOND);
    let again = count(&world, guest, Op::Read) - before - raised - lifted;
    assert!((98..=106).contains(&again), "{again}");
}

/// Starts what may go now and ends it at once. Returns the tags of what was answered.
fn pass_and_serve(driver: &mut Driver, time: Nanos) -> Vec<u64> {
    driver.pass(time);
    let before = driver.answers().len();
    while let Some(io) = driver.start() {
        driver.end(&io, Ok(()));
    }
    let answers = driver.answers();
    answers[before..].iter().map(|done| done.tag).collect()
}

#[test]
fn a_debt_outlives_a_change_to_another_rate_and_not_a_lifted_limit() {
    let mut driver = Driver::new(config(4, 0), &policy("fifo"));
    let guest = driver.guest(&Objective::default());
    let set = |driver: &mut Driver, limit: &Limit| {
        let set = (driver.engine.vms_mut()).limit_disk(driver.now, guest.disk, limit);
        set.expect("the disk is there");
    };
    let ms = Nanos::from_millis;
    set(&mut driver, &iops(10));
    for tag in 0..8 {
        let request = Request::read(tag << 20, 4096, tag);
        driver.request(guest.client, request).expect("taken");
    }
    assert_eq!(pass_and_serve(&mut driver, ms(0)), [0]);
    // One request is owed, which takes 50 ms at the new rate; there and back changes nothing.
    for per_s in [1, 10, 20] {
        set(&mut driver, &iops(per_s));
        assert!(pass_and_serve(&mut driver, ms(0)).is_empty());
    }
    assert!(pass_and_serve(&mut driver, ms(49)).is_empty());
    assert_eq!(pass_and_serve(&mut driver, ms(1)), [1]);
    // A lifted limit is forgotten: waiting requests go, and a limit that is set begins anew.
    set(&mut driver, &Limit::NONE);
    set(&mut driver, &iops(20));
    assert_eq!(pass_and_serve(&mut driver, ms(0)), [2]);
    assert!(pass_and_serve(&mut driver, ms(49)).is_empty());
    set(&mut driver, &Limit::NONE);
    assert_eq!(pass_and_serve(&mut driver, ms(0)), [3, 4, 5, 6, 7]);
}

#[test]
fn a_shared_limit_is_changed_left_and_removed() {
    let mut world = world("fifo");
    let [one, other] = [(); 2].map(|()| world.guest(&Objective::default()));
    let id = share(&mut world, &[one, other], &iops(1));
    for guest in [one, other] {
        world.load(guest, Op::Read, 4096, 2);
    }
    world.run(SECOND / 2);
    let now = world.time();
    let mut vms = world.driver.engine.vms_mut();
    assert!(vms.remove_shared_limit(id).is_err(), "two disks share it");
    vms.share_limit(now, one.disk, None)
        .expect("the disk is there");
    world.run(SECOND / 10);
    assert!(
        count(&world, one, Op::Read) > 500,
        "it has no limit any more"
    );
    let now = world.time();
    let mut vms = world.driver.engine.vms_mut();
    vms.change_shared_limit(now, id, &iops(500))
        .expect("it is there");
    let before = count(&world, other, Op::Read);
    world.run(SECOND);
    let raised = count(&world, other, Op::Read) - before;
    assert!((250..=504).contains(&raised), "{raised}");
    let now = world.time();
    let mut vms = world.driver.engine.vms_mut();
    vms.share_limit(now, other.disk, None)
        .expect("the disk is there");
    vms.remove_shared_limit(id).expect("nobody shares it");
    assert!(vms.share_limit(now, one.disk, Some(id)).is_err());
    assert!(vms.change_shared_limit(now, id, &iops(5)).is_err());
}

#[test]
fn time_before_a_limit_counts_as_held_by_a_limit() {
    let mut driver = Driver::new(config(1, 0), &policy("fifo"));
    let guest = driver.guest(&Objective::default());
    let limit = driver
        .engine
        .vms_mut()
        .limit_disk(driver.now, guest.disk, &iops(10));
    limit.expect("the disk is there");
    for tag in 0..2 {
        let request = Request::read(tag * 8192, 4096, tag);
        driver.request(guest.client, request).expect("taken");
    }
    let first = driver.start().expect("goes at once");
    driver.end(&first, Ok(()));
    assert!(driver.start().is_none(), "the second one has to wait");
    assert_eq!(driver.engine.next_timeout(), Some(Nanos::from_millis(100)));
    driver.pass(Nanos::from_millis(100));
    let second = driver.start().expect("its time has come");
    driver.pass(Nanos::from_millis(3));
    driver.end(&second, Ok(()));
    let account = driver.answers()[1].account;
    assert_eq!(account.regulated, Nanos::from_millis(100));
    assert_eq!(
        (account.queued, account.admission),
        (Nanos::ZERO, Nanos::ZERO)
    );
    assert_eq!(account.device, Nanos::from_millis(3));
}

/// Controller that sends the latency of each answer.
struct Listener(Sender<Nanos>);

impl Controller for Listener {
    fn interests(&self) -> Interests {
        Interests::ANSWERED
    }
    fn on_event(&mut self, _: &View, event: &Event, _: &mut Knobs) {
        if let Event::Answered(done) = event {
            self.0.send(done.account.total()).expect("heard");
        }
    }
    fn next_timer(&self) -> Nanos {
        Nanos::MAX
    }
    fn on_timer(&mut self, _: &View, _: &mut Knobs) {}
}

#[test]
fn for_roles_a_request_arrives_when_its_limit_lets_it_go() {
    let mut driver = Driver::new(config(1, 0), &policy("fifo"));
    let (latencies, heard) = std::sync::mpsc::channel();
    driver.engine.wrap_roles(driver.now, move |roles| Roles {
        controller: Some(Box::new(Listener(latencies.clone()))),
        ..roles
    });
    let limited = driver.guest(&Objective::default());
    let free = driver.guest(&Objective::default());
    let set = (driver.engine.vms_mut()).limit_disk(driver.now, limited.disk, &iops(10));
    set.expect("the disk is there");
    let ms = Nanos::from_millis;
    let ask = |driver: &mut Driver, guest: Guest, tag: u64| {
        let request = Request::read(tag << 20, 4096, tag);
        driver.request(guest.client, request).expect("taken");
    };
    ask(&mut driver, limited, 0);
    let first = driver.start().expect("goes at once");
    driver.pass(ms(3));
    driver.end(&first, Ok(()));
    driver.pass(ms(2));
    ask(&mut driver, limited, 1);
    assert!(driver.start().is_none(), "it has to wait until 100 ms");
    driver.pass(ms(93));
    ask(&mut driver, free, 2);
    let beside = driver.start().expect("goes at once");
    driver.pass(ms(2));
    // Now the limit lets it go, and the device is busy for another millisecond.
    driver.pass(ms(1));
    driver.end(&beside, Ok(()));
    let held = driver.start().expect("its time has come");
    driver.pass(ms(3));
    driver.end(&held, Ok(()));
    assert_eq!(held.arrived, first.arrived + ms(100));
    let account = driver.answers().last().expect("answered").account;
    let times = [account.regulated, account.queued, account.device];
    assert_eq!(times, [ms(95), ms(1), ms(3)]);
    let heard: Vec<_> = heard.try_iter().collect();
    assert_eq!(heard, [ms(3), ms(3), ms(4)]);
}

/// The wait for a request slot is often the work of the limit, whose waiting requests have the
/// slots, so it is no age for the scheduler either.
#[test]
fn a_held_request_that_waited_for_a_slot_arrives_when_its_limit_lets_it_go() {
    let config = EngineConfig {
        max_pending_per_vm: 1,
        ..config(1, 0)
    };
    let mut driver = Driver::new(config, &policy("fifo"));
    let (latencies, heard) = std::sync::mpsc::channel();
    driver.engine.wrap_roles(driver.now, move |roles| Roles {
        controller: Some(Box::new(Listener(latencies.clone()))),
        ..roles
    });
    let guest = driver.guest(&Objective::default());
    let set = (driver.engine.vms_mut()).limit_disk(driver.now, guest.disk, &iops(10));
    set.expect("the disk is there");
    let ms = Nanos::from_millis;
    let first = Request::read(0, 4096, 0);
    driver.request(guest.client, first).expect("taken");
    let second = Request::read(1 << 20, 4096, 1);
    let refused = driver
        .engine
        .handle_request(driver.now, guest.client, second);
    assert_eq!(refused, Err(Refusal::Full));
    let io = driver.start().expect("goes at once");
    let came = driver.now;
    driver.pass(ms(30));
    driver.end(&io, Ok(()));
    let Driver {
        engine,
        ledger,
        now,
        ..
    } = &mut driver;
    let mut admission = engine.admission_mut();
    let claimed = admission.claim(*now, guest.client, Op::Read, 4096);
    claimed.expect("the slot is free");
    let taken = admission.handle_claimed_request(*now, guest.client, second, came);
    ledger.accepted(came, guest.client, taken.expect("taken"), &second);
    assert!(driver.start().is_none(), "it has to wait until 100 ms");
    driver.pass(ms(70));
    let held = driver.start().expect("its time has come");
    assert_eq!(held.arrived, came + ms(100));
    driver.pass(ms(3));
    driver.end(&held, Ok(()));
    let account = driver.answers().last().expect("answered").account;
    let times = [account.admission, account.regulated, account.device];
    assert_eq!(times, [ms(30), ms(70), ms(3)]);
    assert_eq!(account.total(), ms(103));
    let heard: Vec<_> = heard.try_iter().collect();
    assert_eq!(heard, [ms(30), ms(3)]);
}

/// A deadline counts from when the limit lets a request go, so one that was held for long is not
/// served before one that has waited at the device for longer.
#[test]
fn a_held_request_does_not_overtake_by_its_age() {
    let spec = policy("edf");
    let mut driver = Driver::new(config(1, 0), &spec);
    let limited = driver.guest(&Objective::default());
    let free = driver.guest(&Objective::default());
    let set = (driver.engine.vms_mut()).limit_disk(driver.now, limited.disk, &iops(10));
    set.expect("the disk is there");
    for tag in 0..2 {
        let request = Request::read(tag << 20, 4096, tag);
        driver.request(limited.client, request).expect("taken");
    }
    let first = driver.start().expect("goes at once");
    driver.pass(Nanos::from_millis(99));
    for tag in 2..4 {
        let request = Request::read(tag << 20, 4096, tag);
        driver.request(free.client, request).expect("taken");
    }
    driver.pass(Nanos::from_millis(2));
    driver.end(&first, Ok(()));
    let mut order = vec![];
    while let Some(io) = driver.start() {
        order.push(io.vm);
        driver.end(&io, Ok(()));
    }
    assert_eq!(order, [free.vm, free.vm, limited.vm]);
}

#[test]
fn requests_that_wait_for_a_limit_go_with_their_client_disk_or_vm() {
    for what in 0..4 {
        let mut driver = Driver::new(config(4, 0), &policy("mclock"));
        let guest = driver.guest(&Objective::default());
        let limit = driver
            .engine
            .vms_mut()
            .limit_disk(driver.now, guest.disk, &iops(1));
        limit.expect("the disk is there");
        for tag in 0..4 {
            let request = Request::write(tag * (1 << 20), 4096, tag);
            driver.request(guest.client, request).expect("taken");
        }
        let io = driver.start().expect("the first one goes at once");
        assert!(driver.start().is_none());
        let (error, gone): (IoError, &[u64]) = match what {
            0 => {
                driver.disconnect(guest.client);
                (IoError::Cancelled, &[1, 2, 3])
            }
            1 => {
                driver.remove_disk(guest.disk);
                (IoError::Cancelled, &[1, 2, 3])
            }
            2 => {
                driver.remove_vm(guest.vm);
                (IoError::Cancelled, &[1, 2, 3])
            }
            _ => {
                driver.resize_disk(guest.disk, 0, 2 << 20);
                (IoError::BeyondEnd, &[2, 3])
            }
        };
        let answers = driver.answers();
        let tags: Vec<u64> = answers.iter().map(|done| done.tag).collect();
        assert_eq!(tags, gone);
        assert!(answers.iter().all(|done| done.outcome == Err(error)));
        driver.end(&io, Ok(()));
        driver.drain();
    }
}

#[test]
fn requests_that_wait_for_a_limit_move_with_their_disk() {
    let mut driver = Driver::new(config(4, 0), &policy("deadline"));
    let guest = driver.guest(&Objective::default());
    let limit = driver
        .engine
        .vms_mut()
        .limit_disk(driver.now, guest.disk, &iops(10));
    limit.expect("the disk is there");
    for tag in 0..2 {
        let request = Request::read(tag * 8192, 4096, tag);
        driver.request(guest.client, request).expect("taken");
    }
    let first = driver.start().expect("goes at once");
    driver.end(&first, Ok(()));
    driver.resize_disk(guest.disk, 64 << 20, 1 << 20);
    driver.pass(Nanos::from_millis(100));
    let second = driver.start().expect("its time has come");
    assert_eq!((second.addr, second.offset), ((64 << 20) + 8192, 8192));
    driver.end(&second, Ok(()));
}

#[test]
fn a_slot_of_a_removed_disk_has_no_limit() {
    let mut driver = Driver::new(config(4, 0), &policy("fifo"));
    let guest = driver.guest(&Objective::default());
    let limit = driver
        .engine
        .vms_mut()
        .limit_disk(driver.now, guest.disk, &iops(1));
    limit.expect("the disk is there");
    driver.remove_vm(guest.vm);
    let next = driver.guest(&Objective::default());
    assert_eq!(next.disk.index(), guest.disk.index());
    for tag in 0..4 {
        let request = Request::read(tag * 8192, 4096, tag);
        driver.request(next.client, request).expect("taken");
    }
    assert_eq!(driver.start_all().len(), 4);
    driver.end_all();
}
