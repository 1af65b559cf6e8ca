//! Tests of the adaptive queue depth, and of places reserved for VMs.

use crate::engine::{Bench, KIB};
use tidegate_core::engine::{DeviceSpec, EngineConfig};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::request::{ClientId, DeviceIo, IoError, IoId, Op, Request};
use tidegate_core::splitting::MaxIoShared;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_testkit::Driver;

/// Returns the depth found for a device that serves one I/O after the other, in 100 us each.
fn depth_found(request: Request, outcome: Result<(), IoError>) -> u32 {
    let mut b = Bench::new("fifo", 8);
    b.driver.engine.device_mut().adapt_depth(Nanos::ZERO, true);
    let (_, client) = b.vm(&Objective::default());
    for n in 0..16 {
        let offset = n << 20;
        b.ask(client, Request { offset, ..request });
    }
    b.dispatch();
    for n in 0..20_000 {
        b.driver.now += Nanos::from_micros(100);
        let io = b.driver.in_flight[0];
        b.end(&io, outcome);
        b.driver.answers();
        let offset = (n % 1024) << 20;
        b.ask(client, Request { offset, ..request });
        b.dispatch();
    }
    let depth = b.driver.engine.device().adapted_depth().expect("it adapts");
    b.drain();
    depth
}

#[test]
fn only_data_that_was_moved_tells_what_depth_is_enough() {
    let read = Request::read(0, 4096, 0);
    assert_eq!(depth_found(read, Ok(())), 1);
    // The depth to begin with.
    assert_eq!(depth_found(read, Err(IoError::Io)), 4);
    for op in [Op::Discard, Op::WriteZeroes] {
        let request = Request { op, ..read };
        assert_eq!(depth_found(request, Ok(())), 4, "{op:?}");
    }
}

/// Checks that a write with FUA is durable when it is answered. FUA covers only one I/O's data, so
/// each part carries it, and a physical block is never cut.
#[test]
fn every_part_of_a_durable_write_is_durable_and_whole_blocks() {
    let mut b = Bench::new("sfq", 4);
    b.driver
        .engine
        .device_mut()
        .set_max_io_shared(MaxIoShared::Bytes(16 * KIB));
    let (_, writer) = b.vm(&Objective::default());
    let (_, other) = b.vm(&Objective::default());
    b.ask(other, Request::read(0, 4096, 0));
    let durable = Request {
        op: Op::Write,
        fua: true,
        ..Request::read(4096, 128 * KIB - 4096, 0)
    };
    b.ask(writer, durable);
    let mut parts = Vec::new();
    loop {
        let went = b.dispatch();
        if went.is_empty() {
            break;
        }
        for io in went {
            if io.op == Op::Write {
                parts.push(io);
            }
            b.driver.now += Nanos::from_micros(100);
            b.end(&io, Ok(()));
        }
    }
    assert!(parts.len() >= 8, "{parts:?}");
    assert!(
        parts
            .iter()
            .all(|io| io.fua && io.offset % 4096 == 0 && io.len <= 16 * KIB)
    );
    assert_eq!(parts.iter().map(|io| io.len).sum::<u32>(), durable.len);
    b.drain();
}

#[test]
fn no_part_and_no_place_is_for_a_background_process() {
    for background in [false, true] {
        let mut b = Bench::new("sfq", 2);
        b.driver
            .engine
            .device_mut()
            .set_max_io_shared(MaxIoShared::Bytes(16 * KIB));
        let (_, guest) = b.vm(&Objective::default());
        let other = if background {
            b.driver
                .try_background(&Objective::default())
                .expect("room")
        } else {
            b.driver.vm(&Objective::default())
        };
        let disk = b.disk(other);
        let other = b.driver.client(disk);
        // The other VM waits for each answer, and issues its next request 50 us later.
        b.ask(guest, Request::read(0, 4096, 0));
        let io = b.dispatch()[0];
        for n in 0..4 {
            b.ask(other, Request::read(n << 20, 4096, 0));
            let of_other = b.dispatch()[0];
            b.driver.now += Nanos::from_micros(100);
            b.end(&of_other, Ok(()));
            b.driver.now += Nanos::from_micros(50);
        }
        // The other VM's next request is expected. The guest has one I/O in flight and would start
        // another.
        b.ask(guest, Request::read(64 << 20, 128 * KIB, 0));
        let went = b.dispatch();
        assert_eq!(went.len(), usize::from(background), "a place is kept");
        b.ask(other, Request::read(4 << 20, 4096, 0));
        b.end(&io, Ok(()));
        b.driver.now += Nanos::from_millis(2);
        let all = went.into_iter().chain(b.dispatch());
        let longest = all.map(|io| io.len).max();
        let expected = if background { 128 * KIB } else { 16 * KIB };
        assert_eq!(longest, Some(expected), "background: {background}");
        b.drain();
    }
}

/// Times that I/Os take on a device that serves any number of them at a time, so that its rate
/// grows with the depth and no depth makes an I/O faster.
fn service(io: &DeviceIo) -> Nanos {
    match io.op {
        Op::Read => Nanos::from_millis(15),
        _ => Nanos::from_millis(8),
    }
}

/// Runs a reader with one request outstanding and a writer with 16 for `span`, and returns the
/// depth in force then.
fn run_beside_a_writer(driver: &mut Driver, clients: [ClientId; 2], span: Nanos) -> u32 {
    let end = driver.now + span;
    let mut ends: Vec<(Nanos, IoId)> = Vec::new();
    while driver.now < end {
        for io in driver.start_all() {
            ends.push((driver.now + service(&io), io.id));
        }
        let due = driver.engine.next_timeout();
        let next = ends.iter().map(|&(at, _)| at).chain(due).min();
        driver.pass(next.expect("something is to happen").since(driver.now));
        let ended: Vec<_> = ends.extract_if(.., |(at, _)| *at <= driver.now).collect();
        for (_, id) in ended {
            let io = driver.in_flight.iter().find(|io| io.id == id).copied();
            driver.end(&io.expect("it is in flight"), Ok(()));
        }
        for done in driver.answers() {
            ask_random(driver, done.client, done.client == clients[0]);
        }
        driver.engine.device_mut().check_feasibility(driver.now);
    }
    driver.end_all();
    driver.engine.device().adapted_depth().expect("it adapts")
}

fn ask_random(driver: &mut Driver, client: ClientId, reads: bool) {
    let op = if reads { Op::Read } else { Op::Write };
    // A stride by which no request continues another.
    let offset = driver.now.0 / 1000 * 7919 % 100_000 * (1 << 20);
    driver
        .ask(client, op, offset, 8 * KIB)
        .expect("there is room");
}

#[test]
fn the_depth_for_a_latency_objective_ends_with_the_objective() {
    let config = EngineConfig {
        device: DeviceSpec {
            depth: 16,
            positioning: Nanos::from_millis(8),
            ..EngineConfig::default().device
        },
        ..EngineConfig::default()
    };
    let slo = PolicySpec::named("slo").expect("it is registered");
    let mut driver = Driver::new(config, &slo).with_clock_at(Nanos::SECOND);
    driver.engine.device_mut().adapt_depth(driver.now, true);
    // Each of its requests takes five sixths of that at any depth, which is nearly late. All I/Os
    // in flight together take less than half, so nothing but measured latencies bounds the depth.
    let promised = Objective {
        latency: Some(Nanos::from_millis(18)),
        reservation: Rate::iops(50),
        ..Objective::default()
    };
    // More than the device can do, so that no plan guarantees the latency objective.
    driver.vm(&Objective {
        reservation: Rate::iops(1_000_000),
        ..Objective::default()
    });
    let (reader, writer) = (driver.guest(&promised), driver.guest(&Objective::default()));
    let clients = [reader.client, writer.client];
    ask_random(&mut driver, reader.client, true);
    (0..16).for_each(|_| ask_random(&mut driver, writer.client, false));
    let bounded = run_beside_a_writer(&mut driver, clients, Nanos::from_secs(10));
    assert!(bounded <= 2, "{bounded}");
    driver.set_objective(reader.vm, &Objective::default());
    let free = run_beside_a_writer(&mut driver, clients, Nanos::from_secs(30));
    assert!(free >= 8, "{free}");
}
