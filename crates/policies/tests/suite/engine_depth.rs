//! Tests of the adaptive queue depth, and of places reserved for VMs.

use crate::engine::{Bench, KIB};
use tidegate_core::objective::Objective;
use tidegate_core::request::{IoError, Op, Request};
use tidegate_core::splitting::MaxIoShared;
use tidegate_core::time::Nanos;
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
