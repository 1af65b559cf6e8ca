//! Bytes that count for a transfer, and its single end.

use crate::common::{Driver, Guest, KIB, MS, SECOND, config, policy};
use crate::transfers::{MIB, RATE, begin, ends, status, world, world_of, writer};
use tidegate_core::engine::EngineError;
use tidegate_core::objective::{Objective, Priority};
use tidegate_core::policy::Policy;
use tidegate_core::request::{DeviceIo, IoError, Op};
use tidegate_core::time::Nanos;
use tidegate_core::transfers::{Class, Forecast, TransferOutcome, TransferSpec};
use tidegate_policies::policy::{PolicySpec, registry};

#[test]
fn a_transfer_is_done_with_the_answer_to_its_last_byte() {
    let mut world = world("fifo", &[]);
    let guest = writer(&mut world, &Objective::default());
    world.run(10 * MS);
    // Requests in flight at the start count, because they are answered afterwards.
    let begun = begin(&mut world, guest, 10, 1).transfer;
    assert_eq!((begun.begun, begun.moved), (Nanos(10 * MS), 0));
    world.run(155 * MS);
    let transfer = status(&world, guest).transfer;
    assert_eq!((transfer.moved, transfer.bytes_left()), (8 * MIB, 2 * MIB));
    world.run(SECOND);
    let [end] = ends(&mut world)[..] else {
        panic!("one job ends once")
    };
    assert_eq!((end.vm, end.outcome), (guest.vm, TransferOutcome::Done));
    assert_eq!((end.ended, end.late), (Nanos(200 * MS), Nanos::ZERO));
    assert_eq!(end.transfer.moved, 10 * MIB);
    assert_eq!(
        world
            .driver
            .engine
            .transfers()
            .transfer(world.time(), guest.vm),
        None
    );
}

/// VM on a device that takes one I/O at a time, with merging up to 16 KiB.
struct Bench {
    driver: Driver,
    guest: Guest,
}

impl Bench {
    fn new() -> Bench {
        let mut driver = Driver::new(config(1, 16 * KIB), &policy("fifo"));
        let guest = driver.guest(&Objective::default());
        Bench { driver, guest }
    }

    fn ask(&mut self, op: Op, offset: u64, len: u32) {
        let taken = self.driver.ask(self.guest.client, op, offset, len);
        taken.expect("there is room");
    }

    /// Starts the next I/O and ends it with `outcome`.
    fn serve(&mut self, outcome: Result<(), IoError>) -> DeviceIo {
        let io = self.driver.start().expect("something waits");
        self.driver.now += Nanos(MS);
        self.driver.end(&io, outcome);
        io
    }

    fn moved(&self) -> u64 {
        let driver = &self.driver;
        let status = driver
            .engine
            .transfers()
            .transfer(driver.now, self.guest.vm);
        status.expect("its job runs").transfer.moved
    }
}

#[test]
fn what_fails_does_not_count_and_merged_requests_count_each_by_itself() {
    let mut bench = Bench::new();
    let spec = TransferSpec {
        bytes: MIB,
        deadline: Nanos::SECOND,
    };
    bench
        .driver
        .engine
        .transfers_mut()
        .begin_transfer(bench.driver.now, bench.guest.vm, &spec)
        .expect("sound");
    bench.ask(Op::Read, 1 << 30, 8 * KIB);
    let first = bench.driver.start().expect("it goes");
    for place in 0..4 {
        bench.ask(Op::Read, place * 4096, 4 * KIB);
    }
    bench.driver.end(&first, Ok(()));
    assert_eq!(bench.moved(), 8192);
    assert_eq!(bench.serve(Err(IoError::Io)).len, 16 * KIB);
    assert_eq!(bench.moved(), 8192, "it goes again, a request at a time");
    bench.serve(Ok(()));
    bench.serve(Err(IoError::Io));
    bench.serve(Ok(()));
    bench.serve(Ok(()));
    assert_eq!(bench.moved(), 8192 + 3 * 4096);
    // Nothing but reads and writes moves bytes.
    for op in [Op::Discard, Op::WriteZeroes] {
        bench.ask(op, 1 << 20, 64 * KIB);
        bench.serve(Ok(()));
    }
    bench.ask(Op::Flush, 0, 0);
    bench.serve(Ok(()));
    assert_eq!(bench.moved(), 8192 + 3 * 4096);
    // A cancelled request does not count, either; one in parts counts in full at its end.
    bench.ask(Op::Write, 2 << 20, 2 << 20);
    let part = bench.serve(Ok(()));
    assert_eq!((part.len, bench.moved()), (1 << 20, 8192 + 3 * 4096));
    bench.serve(Ok(()));
    let end = bench
        .driver
        .engine
        .transfers_mut()
        .poll_transfer_end()
        .expect("done at last");
    assert_eq!(end.transfer.moved, 8192 + 3 * 4096 + (2 << 20));
    bench.ask(Op::Write, 4 << 20, 4 * KIB);
    bench.driver.disconnect(bench.guest.client);
}

#[test]
fn each_transfer_ends_once_however_it_ends() {
    let mut world = world("fifo", &[]);
    let [one, two] = [(); 2].map(|()| writer(&mut world, &Objective::default()));
    begin(&mut world, one, 1_000, 5);
    world.run(7 * SECOND);
    begin(&mut world, one, 2_000, 100);
    let replaced = ends(&mut world);
    assert_eq!(replaced.len(), 1);
    assert_eq!(replaced[0].outcome, TransferOutcome::Cancelled);
    assert_eq!(replaced[0].late, Nanos::from_secs(2));
    assert!(replaced[0].transfer.moved > 170 * MIB);
    let now = world.time();
    let ended = world
        .driver
        .engine
        .transfers_mut()
        .end_transfer(now, one.vm)
        .expect("the VM is there");
    assert_eq!(ended.map(|end| end.transfer.bytes), Some(2_000 * MIB));
    assert_eq!(
        world
            .driver
            .engine
            .transfers_mut()
            .end_transfer(now, one.vm),
        Ok(None)
    );
    begin(&mut world, two, 10, 100);
    world.remove_vm(two);
    let outcomes: Vec<_> = ends(&mut world)
        .iter()
        .map(|end| (end.vm, end.transfer.bytes, end.outcome))
        .collect();
    let expected = [(one.vm, 2_000 * MIB), (two.vm, 10 * MIB)];
    let expected = expected.map(|(vm, bytes)| (vm, bytes, TransferOutcome::Cancelled));
    assert_eq!(outcomes, expected);
    assert_eq!(world.driver.engine.transfers().transfer(now, two.vm), None);
    // The next VM in its slot has none.
    let three = writer(&mut world, &Objective::default());
    assert_eq!(
        world.driver.engine.transfers().transfer(now, three.vm),
        None
    );
    world.run(SECOND);
    assert!(ends(&mut world).is_empty());
}

#[test]
fn what_cannot_be_a_transfer_is_refused_with_the_reason() {
    let mut world = world("pridyn", &[]);
    let guest = world.guest(&Objective::default());
    let backup = world.background();
    let gone = world.guest(&Objective::default());
    world.remove_vm(gone);
    let mut refused = |guest: crate::common::Guest, bytes, deadline| {
        let spec = TransferSpec { bytes, deadline };
        let error =
            world
                .driver
                .engine
                .transfers_mut()
                .begin_transfer(Nanos::ZERO, guest.vm, &spec);
        error.expect_err("it cannot be").to_string()
    };
    assert_eq!(
        refused(guest, 0, Nanos(1)),
        "size of the transfer is 0; allowed is at least 1"
    );
    assert_eq!(
        refused(guest, 1, Nanos::ZERO),
        "deadline of the transfer is 0; allowed is at least 1 ns"
    );
    assert!(
        refused(backup, 1, Nanos(1)).contains("background process cannot have a deadline transfer")
    );
    assert_eq!(
        refused(gone, 1, Nanos(1)),
        "the VM does not exist or was removed"
    );
    let unknown = world
        .driver
        .engine
        .transfers_mut()
        .end_transfer(Nanos::ZERO, gone.vm);
    assert_eq!(unknown, Err(EngineError::Unknown { what: "the VM" }));
    assert_eq!(
        world.driver.engine.next_timeout(),
        None,
        "nothing has begun"
    );
}

#[test]
fn a_transfer_is_forecast_under_any_policy() {
    for info in registry() {
        let mut world = world_of(&PolicySpec::named(info.name).expect("registered"), 0);
        let guest = writer(&mut world, &Objective::default());
        let status_at_begin = begin(&mut world, guest, 1_000, 30);
        // Neither the VM nor the device was measured.
        assert_eq!(status_at_begin.bandwidth, None, "{}", info.name);
        let neutral = Forecast {
            done: Nanos::from_secs(30),
            early: Nanos::ZERO,
            late: Nanos::ZERO,
        };
        assert_eq!(status_at_begin.forecast, neutral, "{}", info.name);
        assert!(status_at_begin.possible, "{}", info.name);
        world.run(7 * SECOND);
        let status = status(&world, guest);
        let bandwidth = status.bandwidth.expect("it was measured twice");
        assert!(bandwidth <= RATE + RATE / 50, "{}: {bandwidth}", info.name);
        let due = status.transfer.forecast(world.time(), bandwidth);
        assert_eq!(status.forecast, due, "{}", info.name);
        assert_eq!(status.class, Class::BestEffort, "{}", info.name);
        // Alone on the device it has all of it, and is done ten seconds early.
        if ["fifo", "cfq", "sfq", "mclock", "pridyn"].contains(&info.name) {
            let early = status.forecast.early.as_secs_f64();
            assert!((9.0..11.0).contains(&early), "{}: {early}", info.name);
            assert!(status.possible);
            world.run(SECOND * 20);
            assert_eq!(ends(&mut world).len(), 1, "{}", info.name);
        }
    }
}

#[test]
fn a_class_of_the_objective_is_told_where_it_is_kept_to() {
    let urgent = Objective {
        priority: Priority::RealTime,
        ..Objective::default()
    };
    for (name, class) in [
        ("cfq", Class::RealTime),
        ("pridyn", Class::RealTime),
        ("fifo", Class::BestEffort),
    ] {
        let mut world = world(name, &[]);
        let guest = writer(&mut world, &urgent);
        assert_eq!(begin(&mut world, guest, 10, 10).class, class, "{name}");
        assert_eq!(
            world.driver.engine.transfers().class_status(guest.vm).class,
            class,
            "{name}"
        );
    }
    assert!(policy("pridyn").helps_transfers() && policy("pridyn+open+cfq").helps_transfers());
    assert!(!policy("cfq").helps_transfers() && !policy("pridyn+open+fifo").helps_transfers());
}

#[test]
fn ends_that_nobody_asks_for_are_bounded_and_the_oldest_go_first() {
    let mut world = world("fifo", &[]);
    let guest = world.guest(&Objective::default());
    for mib in 1..=2_000 {
        begin(&mut world, guest, mib, 1);
    }
    let ends = ends(&mut world);
    assert_eq!(ends.len(), 1024);
    let sizes: Vec<u64> = ends.iter().map(|end| end.transfer.bytes / MIB).collect();
    assert!(sizes.iter().copied().eq(976..=1_999), "{sizes:?}");
}

#[test]
fn there_is_a_timer_only_around_transfers() {
    let mut world = world("fifo", &[]);
    let guest = world.guest(&Objective::default());
    assert_eq!(world.driver.engine.next_timeout(), None);
    world.run(SECOND);
    begin(&mut world, guest, 1, 100);
    assert_eq!(world.driver.engine.next_timeout(), Some(Nanos(4 * SECOND)));
    world.run(10 * SECOND);
    assert_eq!(world.driver.engine.next_timeout(), Some(Nanos(13 * SECOND)));
    let now = world.time();
    world
        .driver
        .engine
        .transfers_mut()
        .end_transfer(now, guest.vm)
        .expect("there");
    // The next transfer of a stream is measured from there on; after a whole interval without one
    // there is none.
    world.run(3 * SECOND);
    assert_eq!(world.driver.engine.next_timeout(), Some(Nanos(16 * SECOND)));
    world.run(3 * SECOND);
    assert_eq!(world.driver.engine.next_timeout(), None);
}

#[test]
fn a_transfer_goes_on_under_another_policy() {
    let mut world = world("fifo", &[]);
    let guest = writer(&mut world, &Objective::default());
    begin(&mut world, guest, 1_000, 100);
    for info in registry() {
        world.run(SECOND / 2);
        let before = status(&world, guest);
        world.swap(info.name);
        let after = status(&world, guest);
        assert_eq!(before.transfer, after.transfer, "{}", info.name);
        assert_eq!(before.bandwidth, after.bandwidth, "{}", info.name);
    }
    assert!(status(&world, guest).transfer.moved > 300 * MIB);
    world.run(20 * SECOND);
    let outcomes: Vec<_> = ends(&mut world).iter().map(|end| end.outcome).collect();
    assert_eq!(outcomes, [TransferOutcome::Done]);
}

#[test]
fn a_removed_vm_takes_its_transfer_along_at_once() {
    let mut driver = Driver::new(config(1, 0), &policy("pridyn"));
    let guest = driver.guest(&Objective::default());
    let spec = TransferSpec {
        bytes: 4096,
        deadline: Nanos::SECOND,
    };
    driver
        .engine
        .transfers_mut()
        .begin_transfer(Nanos::ZERO, guest.vm, &spec)
        .expect("sound");
    driver.ask(guest.client, Op::Read, 0, 4096).expect("room");
    let io = driver.start().expect("it goes");
    driver.now = Nanos(MS);
    driver.remove_vm(guest.vm);
    let end = driver.engine.transfers_mut().poll_transfer_end();
    let end = end.expect("it went along");
    assert_eq!(
        (end.outcome, end.ended),
        (TransferOutcome::Cancelled, Nanos(MS))
    );
    // The I/O in flight ends after its transfer, and counts for none.
    driver.now = Nanos(2 * MS);
    driver.end(&io, Ok(()));
    assert_eq!(driver.answers().len(), 1);
    assert_eq!(driver.engine.transfers_mut().poll_transfer_end(), None);
}
