//! Tests of the hard disk model: compared with the figures of its datasheet.

use crate::common::{KIB, Load, MIB, Rng, close, in_order, io, keep, once};
use proptest::prelude::*;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::hdd::{Hdd, HddFigures, ReadAheadFigures, SeekFigures};
use tidegate_device::{Completion, Model, ModelIo, catalogue};
use tidegate_units::{Bandwidth, Bytes, Duration, Rotation};

// Figures of devices/hdd-7200-1tb.toml.
/// Time of the controller for a command, in nanoseconds.
const OVERHEAD_NS: f64 = 0.3e6;
/// Rate of the outermost zone in bytes per second.
const OUTER_RATE: f64 = 175e6;
/// Rate of the innermost zone in bytes per second.
const INNER_RATE: f64 = 83e6;
/// Rate of the interface in bytes per second.
const INTERFACE_RATE: f64 = 600e6;

fn disk() -> Box<dyn Model> {
    in_order().build()
}

/// A small drive with round figures: 4 KiB physical blocks, four segments of 256 KiB.
fn small() -> Hdd {
    let ms = |n| Duration(Nanos::from_millis(n));
    let figures = HddFigures {
        capacity: Bytes(1 << 30),
        logical_block: Bytes(512),
        physical_block: Bytes(4_096),
        queue_depth: 8,
        max_io: Bytes(MIB),
        rotation: Rotation(6_000),
        outer_rate: Bandwidth(100_000_000),
        inner_rate: Bandwidth(50_000_000),
        zones: 4,
        command_overhead: Duration(Nanos::from_micros(100)),
        interface_rate: Bandwidth(300_000_000),
        write_settle: Duration(Nanos::from_micros(500)),
        seek: SeekFigures {
            track_to_track: ms(1),
            average: ms(8),
            full_stroke: ms(16),
        },
        read_ahead: ReadAheadFigures {
            cache: Bytes(MIB),
            segments: 4,
            minimum: Bytes(0),
        },
        surfaces: None,
        write_cache: None,
        ncq: None,
    };
    Hdd::new("small", &figures).unwrap()
}

#[test]
fn sequential_rates_lie_between_those_of_the_innermost_and_outermost_zone() {
    let small = small();
    let spec = small.spec();
    assert_eq!(
        (spec.bytes_per_s, spec.bytes_per_s_max),
        (50_000_000, 100_000_000)
    );
    let disk = disk();
    let (least, most) = (
        disk.spec().bytes_per_s as f64,
        disk.spec().bytes_per_s_max as f64,
    );
    let outer = sequential_rate(Op::Read, 4, 0);
    assert!(
        outer <= most && outer > 0.9 * most && outer > 1.5 * least,
        "{outer} of {most}"
    );
}

fn random_iops(op: Op, depth: u32) -> f64 {
    Load::random(op, 4 * KIB, depth, 20_000).iops(&mut *disk())
}

fn sequential_rate(op: Op, depth: u32, from: u64) -> f64 {
    let (mut disk, count, len) = (disk(), 4_000, 128 * KIB);
    let end = keep(&mut *disk, Nanos::ZERO, depth, count, |id| {
        io(op, id, from + id * len, len)
    });
    (count * len) as f64 / end.as_secs_f64()
}

/// Returns the first byte of the last 4000 x 128 KiB of the disk, in whole blocks of 4 KiB.
fn innermost_addr() -> u64 {
    (disk().spec().capacity - 4_000 * 128 * KIB) / 4_096 * 4_096
}

#[test]
fn a_random_read_takes_overhead_seek_and_half_a_revolution() {
    let expected = OVERHEAD_NS + 8.5e6 + 60e9 / 7_200.0 / 2.0;
    close(1e9 / random_iops(Op::Read, 1), expected, 3.0);
    let iops = random_iops(Op::Read, 1);
    assert!((70.0..85.0).contains(&iops), "{iops} IOPS");
}

#[test]
fn with_one_command_at_a_time_queuing_changes_nothing() {
    for op in [Op::Read, Op::Write] {
        for load in [
            Load::random(op, 4 * KIB, 1, 2_000),
            Load::sequential(op, 64 * KIB, 1, 2_000),
        ] {
            let queued = catalogue::load("hdd-7200-1tb").unwrap();
            let (a, b) = (
                load.run(&mut *disk(), Nanos::ZERO),
                load.run(&mut *queued.build(), Nanos::ZERO),
            );
            assert_eq!(a, b, "{load:?}");
        }
    }
}

#[test]
fn a_random_write_takes_longer_by_its_settling() {
    let (read, write) = (
        1e9 / random_iops(Op::Read, 1),
        1e9 / random_iops(Op::Write, 1),
    );
    close(write - read, 1e6, 15.0);
}

#[test]
fn overhead_hides_behind_the_mechanism_when_commands_queue() {
    let (alone, queued) = (
        1e9 / random_iops(Op::Read, 1),
        1e9 / random_iops(Op::Read, 4),
    );
    close(alone - queued, OVERHEAD_NS, 15.0);
    // In order of arrival a greater depth gains nothing.
    close(random_iops(Op::Read, 32), 1e9 / queued, 0.1);
}

#[test]
fn sequential_reads_reach_the_rate_of_their_zone() {
    for depth in [1, 2, 32] {
        close(sequential_rate(Op::Read, depth, 0), OUTER_RATE, 3.0);
        close(
            sequential_rate(Op::Read, depth, innermost_addr()),
            INNER_RATE,
            3.0,
        );
    }
}

#[test]
fn sequential_writes_lose_a_revolution_each_unless_they_queue() {
    close(sequential_rate(Op::Write, 2, 0), OUTER_RATE, 3.0);
    let alone = sequential_rate(Op::Write, 1, 0);
    // 128 KiB in a revolution and what the write itself takes.
    assert!((12e6..16e6).contains(&alone), "{alone} B/s");
}

#[test]
fn data_read_ahead_is_served_at_interface_rate() {
    let mut disk = disk();
    let len = 64 * KIB;
    let mut now = once(&mut *disk, Nanos::ZERO, ModelIo::read(0, 0, len as u32));
    now += Nanos::from_millis(100);
    let transfer = len as f64 / INTERFACE_RATE * 1e9;
    // The read-ahead filled its segment of 2 MiB, 32 reads of 64 KiB, and stopped.
    for id in 1..=32 {
        let end = once(&mut *disk, now, ModelIo::read(id, id * len, len as u32));
        close(end.since(now).0 as f64, OVERHEAD_NS + transfer, 0.1);
        now = end;
    }
    // The reads made room in the segment, so the read-ahead went on when its position came under
    // the head again.
    now += Nanos::from_millis(100);
    let end = once(&mut *disk, now, ModelIo::read(33, 33 * len, len as u32));
    close(end.since(now).0 as f64, OVERHEAD_NS + transfer, 0.1);
}

#[test]
fn a_read_that_the_head_is_about_to_pass_waits_for_it() {
    let mut disk = disk();
    let first = once(&mut *disk, Nanos::ZERO, ModelIo::read(0, 0, 4_096));
    // Submitted at once, so 1 MiB comes at the track's rate without a lost revolution.
    let end = once(&mut *disk, first, ModelIo::read(1, 4_096, MIB as u32));
    close(
        end.since(first).0 as f64,
        MIB as f64 / OUTER_RATE * 1e9,
        15.0,
    );
}

#[test]
fn a_stream_interleaved_with_random_reads_collapses() {
    let (mut disk, mut rng, len) = (disk(), Rng(3), 128 * KIB);
    let blocks = disk.spec().capacity / 4_096;
    let end = keep(&mut *disk, Nanos::ZERO, 1, 4_000, |id| match id % 2 {
        0 => ModelIo::read(id, id / 2 * len, len as u32),
        _ => ModelIo::read(id, rng.below(blocks) * 4_096, 4_096),
    });
    let rate = (2_000 * len) as f64 / end.as_secs_f64();
    assert!(rate < OUTER_RATE / 20.0, "{rate} B/s");
}

#[test]
fn each_of_as_many_streams_as_segments_keeps_its_read_ahead() {
    let mut disk = small();
    let spread = 200 * MIB;
    // A pause after each read lets the head read ahead for it before the next stream's turn.
    let mut now = Nanos::ZERO;
    for id in 0..4 {
        now = once(&mut disk, now, ModelIo::read(id, id * spread, 4_096)) + Nanos::from_millis(50);
    }
    for id in 0..4 {
        let end = once(
            &mut disk,
            now,
            ModelIo::read(id, id * spread + 4_096, 4_096),
        );
        assert!(
            end.since(now) < Nanos::from_micros(120),
            "stream {id}: {}",
            end.since(now)
        );
        now = end;
    }
    // A fifth stream takes over the segment unused for longest, the first stream's.
    now = once(&mut disk, now, ModelIo::read(9, 4 * spread, 4_096));
    let end = once(&mut disk, now, ModelIo::read(0, 8_192, 4_096));
    assert!(end.since(now) > Nanos::from_millis(1), "{}", end.since(now));
}

#[test]
fn a_write_drops_its_range_from_the_buffer() {
    let mut disk = small();
    let now = once(&mut disk, Nanos::ZERO, ModelIo::read(0, 0, 4_096)) + Nanos::from_millis(50);
    let now = once(&mut disk, now, ModelIo::write(1, 8_192, 4_096));
    let end = once(&mut disk, now, ModelIo::read(2, 8_192, 4_096));
    assert!(end.since(now) > Nanos::from_millis(5), "{}", end.since(now));
}

#[test]
fn a_partial_physical_block_costs_a_revolution_to_write() {
    let end = |io| once(&mut small(), Nanos::ZERO, io);
    let whole = end(ModelIo::write(0, 409_600, 4_096));
    assert_eq!(
        end(ModelIo::write(0, 409_600 + 512, 512)),
        whole + small().revolution()
    );
    assert_eq!(
        end(ModelIo::write(0, 409_600, 512)),
        whole + small().revolution()
    );
}

#[test]
fn flush_and_discard_cost_their_overhead_and_flush_ends_last() {
    let mut disk = small();
    let overhead = Nanos::from_micros(100);
    let discard = ModelIo {
        op: Op::Discard,
        ..ModelIo::write(1, 0, 1 << 29)
    };
    assert_eq!(once(&mut disk, Nanos::ZERO, ModelIo::flush(0)), overhead);
    assert_eq!(once(&mut disk, overhead, discard), overhead + overhead);
    let now = Nanos::SECOND;
    disk.submit(now, ModelIo::write(2, MIB, 4_096));
    disk.submit(now, ModelIo::flush(3));
    let written = disk.next_completion().unwrap();
    assert!(written > now + Nanos::from_millis(1));
    assert_eq!(disk.pop_completed(written).unwrap().id, 2);
    assert_eq!(
        disk.pop_completed(written),
        Some(Completion { id: 3, at: written })
    );
    let zeroes = ModelIo {
        op: Op::WriteZeroes,
        ..ModelIo::write(4, 0, 4_096)
    };
    assert_eq!(
        once(&mut small(), Nanos::ZERO, zeroes),
        once(&mut small(), Nanos::ZERO, ModelIo::write(4, 0, 4_096))
    );
}

#[test]
fn late_polling_does_not_change_completion_times() {
    let (mut prompt, mut late) = (small(), small());
    let ios: Vec<ModelIo> = (0..8)
        .map(|i| ModelIo::read(i, i * 100 * MIB, 4_096))
        .collect();
    for io in &ios {
        prompt.submit(Nanos::ZERO, *io);
        late.submit(Nanos::ZERO, *io);
    }
    let a: Vec<Completion> = std::iter::from_fn(|| {
        let at = prompt.next_completion()?;
        prompt.pop_completed(at)
    })
    .collect();
    let b: Vec<Completion> =
        std::iter::from_fn(|| late.pop_completed(Nanos::from_secs(60))).collect();
    assert_eq!(a, b);
}

#[test]
fn nothing_ends_before_its_time() {
    let mut disk = small();
    disk.submit(Nanos::ZERO, ModelIo::read(0, 0, 4_096));
    let at = disk.next_completion().unwrap();
    assert_eq!(disk.pop_completed(Nanos(at.0 - 1)), None);
    assert_eq!(disk.in_flight(), 1);
    assert!(disk.pop_completed(at).is_some());
    assert_eq!((disk.in_flight(), disk.next_completion()), (0, None));
}

#[test]
fn a_year_later_it_serves_as_on_the_first_day() {
    let mut disk = small();
    // A whole number of revolutions of 10 ms.
    let year = Nanos::from_secs(365 * 86_400);
    let early = once(
        &mut small(),
        Nanos::ZERO,
        ModelIo::read(0, 500 * MIB, 4_096),
    );
    assert_eq!(
        once(&mut disk, year, ModelIo::read(0, 500 * MIB, 4_096)),
        year + early
    );
    // Reading ahead for a year ends at the segment's size, too.
    let later = year + year;
    let end = once(&mut disk, later, ModelIo::read(1, 500 * MIB + 4_096, 4_096));
    assert!(
        end.since(later) < Nanos::from_micros(120),
        "{}",
        end.since(later)
    );
}

#[test]
fn the_last_block_can_be_read_and_written() {
    let mut disk = small();
    let last = (1 << 30) - 4_096;
    let now = once(&mut disk, Nanos::ZERO, ModelIo::read(0, last, 4_096));
    let now = once(&mut disk, now, ModelIo::write(1, last, 4_096));
    once(
        &mut disk,
        now,
        ModelIo::read(2, last - MIB + 4_096, MIB as u32),
    );
}

#[test]
#[should_panic(expected = "exceed the capacity")]
fn an_address_beyond_the_capacity_is_refused() {
    small().submit(Nanos::ZERO, ModelIo::read(0, 1 << 30, 512));
}

#[test]
#[should_panic(expected = "not whole blocks of 512")]
fn a_length_that_is_no_whole_block_is_refused() {
    small().submit(Nanos::ZERO, ModelIo::read(0, 0, 100));
}

#[test]
#[should_panic(expected = "the queue of 8 is full")]
fn one_more_than_the_queue_depth_is_refused() {
    let mut disk = small();
    (0..9).for_each(|id| disk.submit(Nanos::ZERO, ModelIo::flush(id)));
}

#[test]
#[should_panic(expected = "time runs backwards")]
fn time_that_runs_backwards_is_refused() {
    let mut disk = small();
    disk.submit(Nanos(1), ModelIo::flush(0));
    disk.submit(Nanos(0), ModelIo::flush(1));
}

/// An arbitrary I/O on the small drive, clustered so that streams, overlaps and the end of the
/// disk occur, and the time the driver waits before it.
fn any_io() -> impl Strategy<Value = (ModelIo, u64)> {
    let op = prop_oneof![
        4 => Just(Op::Read),
        2 => Just(Op::Write),
        1 => Just(Op::Flush),
        1 => Just(Op::Discard),
        1 => Just(Op::WriteZeroes),
    ];
    let place = prop_oneof![0_u64..64, 2_097_000_u64..2_097_152, 0_u64..2_097_152];
    let wait = prop_oneof![Just(0_u64), 0..200_000_u64, 0..30_000_000_u64];
    (op, place, 1_u64..=2_048, wait, any::<bool>()).prop_map(|(op, block, blocks, wait, fua)| {
        let blocks = blocks.min(2_097_152 - block);
        let (addr, len) = if op == Op::Flush {
            (0, 0)
        } else {
            (block * 512, (blocks * 512) as u32)
        };
        (
            ModelIo {
                id: 0,
                op,
                addr,
                len,
                fua,
            },
            wait,
        )
    })
}

/// Submits all, popping only when the queue is full; returns submission times and completions.
fn run(disk: &mut Hdd, ios: &[(ModelIo, u64)]) -> (Vec<Nanos>, Vec<Completion>) {
    let (mut now, mut sent, mut ended) = (Nanos::ZERO, Vec::new(), Vec::new());
    for (id, (io, wait)) in ios.iter().enumerate() {
        now += Nanos(*wait);
        if !disk.has_room() {
            now = now.max(disk.next_completion().unwrap());
        }
        while let Some(c) = disk.pop_completed(now) {
            ended.push(c);
        }
        disk.submit(
            now,
            ModelIo {
                id: id as u64,
                ..*io
            },
        );
        sent.push(now);
    }
    while let Some(c) = disk.pop_completed(Nanos::MAX) {
        ended.push(c);
    }
    (sent, ended)
}

proptest! {
    #[test]
    fn any_sequence_ends_once_in_order_and_not_too_soon(
        ios in proptest::collection::vec(any_io(), 1..200)
    ) {
        let (sent, ended) = run(&mut small(), &ios);
        prop_assert_eq!(ended.len(), ios.len());
        let mut last = Nanos::ZERO;
        for (i, c) in ended.iter().enumerate() {
            prop_assert_eq!(c.id, i as u64);
            prop_assert!(c.at >= last);
            last = c.at;
            let (io, _) = ios[i];
            let data = matches!(io.op, Op::Read | Op::Write);
            // 300 MB/s: 10/3 ns a byte.
            let transfer = if data { u64::from(io.len) * 10 / 3 } else { 0 };
            prop_assert!(c.at >= sent[i] + Nanos(100_000 + transfer));
            // Alone in the drive: overhead (100 us), the longest seek (16 ms) with settling (0.5
            // ms), a revolution of 10 ms to find the place and one to read a partial block first
            // (each with 10 % for the layout of tracks), and the length at the innermost rate of 50
            // MB/s (20 ns a byte, also with 10 %).
            let begun = sent[i].max(if i > 0 { ended[i - 1].at } else { Nanos::ZERO });
            let medium = if io.op == Op::Discard { 0 } else { u64::from(io.len) * 22 };
            let most = Nanos(100_000 + 16_500_000 + 2 * 11_000_000 + medium + transfer);
            prop_assert!(c.at <= begun + most, "{:?} took {}", io, c.at.since(begun));
        }
        // The same inputs give the same outputs.
        prop_assert_eq!(run(&mut small(), &ios).1, ended);
    }
}
