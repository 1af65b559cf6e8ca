//! Tests of the flash disk whose commands share the interface: compared with arithmetic on its
//! figures and with the same disk serving in order.

use crate::common::flash::{
    CHANNEL_RATE, PROGRAM_US, READ_OVERHEAD_US, READ_US, WRITE_OVERHEAD_US, figures, ssd, us,
};
use crate::common::{KIB, MIB, Rng, any_op, close, interleaved, io, keep, once};
use proptest::prelude::*;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::ssd::{
    GarbageFigures, PrefetchFigures, SharingFigure, Ssd, SsdFigures, WriteBufferFigures,
};
use tidegate_device::{Completion, Model, ModelIo, catalogue};
use tidegate_units::{Bandwidth, Bytes, Duration};

/// Interface rate at which 1 KiB takes 10.24 us.
const RATE: u64 = 100_000_000;

/// Returns the nanoseconds that `bytes` take on a channel.
fn on_channel(bytes: u64) -> u64 {
    bytes * 1_000_000_000 / CHANNEL_RATE
}

/// Time to program a page, in nanoseconds.
const PROGRAM_NS: u64 = PROGRAM_US * 1_000;
/// Time of the controller for a write or a flush, in nanoseconds.
const WRITE_OVERHEAD_NS: u64 = WRITE_OVERHEAD_US * 1_000;

/// Returns the nanoseconds that `bytes` take on an otherwise idle interface.
fn alone(bytes: u64) -> u64 {
    bytes * 1_000_000_000 / RATE
}

/// The disk of the other tests behind a slow interface.
fn shared(change: impl FnOnce(&mut SsdFigures)) -> Ssd {
    ssd(|f| {
        f.interface_sharing = SharingFigure::Interleaved;
        f.interface_rate = Bandwidth(RATE);
        f.full_duplex = false;
        change(f);
    })
}

/// Everything that is in flight, until it has ended.
fn drain(disk: &mut Ssd) -> Vec<Completion> {
    std::iter::from_fn(|| disk.pop_completed(Nanos::MAX)).collect()
}

fn end_of(ended: &[Completion], id: u64) -> u64 {
    ended.iter().find(|c| c.id == id).expect("it ended").at.0
}

#[test]
fn a_small_read_gets_an_equal_share_of_the_interface() {
    // Overhead, flash and channel, and then an equal share of the interface.
    let before = (READ_OVERHEAD_US + READ_US) * 1_000 + on_channel(16 * KIB);
    for large in [0, 1, 7, 31] {
        let mut disk = shared(|_| ());
        for id in 0..large {
            disk.submit(Nanos::ZERO, ModelIo::read(id, id * MIB, MIB as u32));
        }
        // By then all pages are out of the flash, and no transfer has ended.
        let now = Nanos::from_millis(large);
        disk.submit(now, ModelIo::read(99, 900 * MIB, 16 * KIB as u32));
        let ended = drain(&mut disk);
        let took = end_of(&ended, 99) - now.0;
        assert_eq!(took, before + (large + 1) * alone(16 * KIB), "{large}");
        // In order the small read waits for all large ones.
        let mut disk = shared(|f| f.interface_sharing = SharingFigure::InOrder);
        for id in 0..large {
            disk.submit(Nanos::ZERO, ModelIo::read(id, id * MIB, MIB as u32));
        }
        disk.submit(now, ModelIo::read(99, 900 * MIB, 16 * KIB as u32));
        let waited = end_of(&drain(&mut disk), 99);
        assert!(waited >= large * alone(MIB) + alone(16 * KIB), "{large}");
    }
}

/// Writes in two sizes, as many of each in flight, at a few places; returns the bytes that each
/// size has moved in one second. The flash is so fast that the buffer always has room.
fn two_streams(sharing: SharingFigure) -> [f64; 2] {
    let mut disk = shared(|f| {
        f.interface_sharing = sharing;
        f.write_overhead = us(0);
        f.channel_rate = Bandwidth(10_000_000_000);
        f.program = us(1);
    });
    let lens = [4 * KIB, 64 * KIB];
    let (mut now, mut moved) = (Nanos::ZERO, [0.0; 2]);
    let write = |id: u64| {
        let len = lens[id as usize % 2];
        ModelIo::write(id, id * 64 * KIB, len as u32)
    };
    (0..8).for_each(|id| disk.submit(now, write(id)));
    while now < Nanos::SECOND {
        now = disk.next_completion().unwrap();
        while let Some(ended) = disk.pop_completed(now) {
            moved[ended.id as usize % 2] += lens[ended.id as usize % 2] as f64;
            disk.submit(now, write(ended.id));
        }
    }
    moved
}

#[test]
fn streams_of_two_sizes_share_evenly_in_bytes() {
    let [small, large] = two_streams(SharingFigure::Interleaved);
    close(small / large, 1.0, 0.5);
    close(small + large, RATE as f64, 0.5);
    // In order each has as many commands.
    let [small, large] = two_streams(SharingFigure::InOrder);
    close(small / large, 1.0 / 16.0, 0.5);
    close(small + large, RATE as f64, 0.5);
}

/// Time of a command on the interface beside its data in nanoseconds.
const COMMAND_NS: u64 = 66_000;

/// Returns the IOPS of reads of `len` at a depth, whose only slow stage is the interface.
fn single_server(sharing: SharingFigure, depth: u32, len: u64) -> f64 {
    let mut disk = shared(|f| {
        f.interface_sharing = sharing;
        f.interface_command = Duration(Nanos(COMMAND_NS));
        f.channel_rate = Bandwidth(10_000_000_000);
        f.read = Duration(Nanos(1));
        f.read_overhead = us(0);
    });
    let end = keep(&mut disk, Nanos::ZERO, depth, 2_000, |id| {
        ModelIo::read(id, id * len % (1 << 29), len as u32)
    });
    2_000.0 / end.as_secs_f64()
}

#[test]
fn with_time_for_commands_the_interface_is_a_single_server() {
    for sharing in [SharingFigure::InOrder, SharingFigure::Interleaved] {
        for len in [4 * KIB, 64 * KIB] {
            let due = 1e9 / (COMMAND_NS + alone(len)) as f64;
            for depth in [1, 4, 32] {
                close(single_server(sharing, depth, len), due, 2.0);
            }
        }
    }
}

#[test]
fn a_read_among_many_has_an_equal_part_of_command_and_data() {
    let before = (READ_OVERHEAD_US + READ_US) * 1_000 + on_channel(16 * KIB);
    let mut disk = shared(|f| f.interface_command = Duration(Nanos(COMMAND_NS)));
    for id in 0..7 {
        disk.submit(Nanos::ZERO, ModelIo::read(id, id * MIB, MIB as u32));
    }
    let now = Nanos::from_millis(7);
    disk.submit(now, ModelIo::read(99, 900 * MIB, 16 * KIB as u32));
    let took = end_of(&drain(&mut disk), 99) - now.0;
    assert_eq!(took, before + 8 * (COMMAND_NS + alone(16 * KIB)));
}

#[test]
fn times_on_the_interface_out_of_range_are_refused_with_their_line() {
    let refuse = |name: &str, figure: &str, expected: &str| {
        let text = interleaved(name);
        let text = text.replace("read_overhead =", &format!("{figure}\nread_overhead ="));
        let line = 1 + text[..text.find(figure).unwrap()].matches('\n').count();
        let message = catalogue::parse(&text, "my.toml").unwrap_err().to_string();
        assert_eq!(message, format!("my.toml, line {line}: {expected}"));
    };
    refuse(
        "ssd-sata-300gb",
        "interface_command = \"2 s\"",
        "ssd.interface_command: found 2 s, allowed: at most 1 s",
    );
    refuse(
        "ssd-sata-300gb",
        "interface_turnaround = \"2 s\"",
        "ssd.interface_turnaround: found 2 s, allowed: at most 1 s",
    );
    refuse(
        "nvme-1tb",
        "interface_turnaround = \"1 us\"",
        "ssd.interface_turnaround: found 1 us, allowed: 0 ns while full_duplex is true",
    );
}

#[test]
fn turning_costs_its_figure_each_time() {
    for sharing in [SharingFigure::InOrder, SharingFigure::Interleaved] {
        let ends = |ops: [Op; 4]| {
            let mut disk = shared(|f| {
                f.interface_sharing = sharing;
                f.interface_turnaround = us(500);
            });
            let mut now = Nanos::ZERO;
            for (id, op) in (0..).zip(ops) {
                now = once(&mut disk, now, io(op, id, id * MIB, 4 * KIB));
            }
            now.0
        };
        let mixed = ends([Op::Read, Op::Write, Op::Read, Op::Write]);
        let sorted = ends([Op::Read, Op::Read, Op::Write, Op::Write]);
        // Three turns and one.
        assert_eq!(mixed - sorted, 1_000_000, "{sharing:?}");
    }
}

#[test]
fn total_throughput_equals_that_of_serving_in_order() {
    for read_parts in [0, 5, 10] {
        let time = |sharing| {
            let mut rng = Rng(3);
            let mut disk = shared(|f| {
                f.interface_sharing = sharing;
                f.program = us(50);
            });
            let end = keep(&mut disk, Nanos::ZERO, 32, 20_000, |id| {
                let len = [4 * KIB, 16 * KIB, 64 * KIB][rng.below(3) as usize];
                let addr = rng.below((1 << 30) / len) * len;
                if rng.below(10) < read_parts {
                    ModelIo::read(id, addr, len as u32)
                } else {
                    ModelIo::write(id, addr, len as u32)
                }
            });
            end.as_secs_f64()
        };
        let (order, sharing) = (
            time(SharingFigure::InOrder),
            time(SharingFigure::Interleaved),
        );
        close(sharing, order, 0.2);
    }
}

#[test]
fn a_later_transfer_postpones_completion() {
    let mut disk = shared(|f| f.write_overhead = us(0));
    disk.submit(Nanos::ZERO, ModelIo::write(0, 0, 64 * KIB as u32));
    // Each has half of the rate from the middle of the first transfer on.
    let half = Nanos(alone(32 * KIB));
    assert_eq!(disk.pop_completed(half), None);
    assert_eq!(disk.next_completion(), Some(Nanos(alone(64 * KIB))));
    disk.submit(half, ModelIo::write(1, MIB, 64 * KIB as u32));
    // A new transfer makes the driver poll once more: the announced time may be too early, never
    // too late.
    assert_eq!(disk.next_completion(), Some(half));
    assert_eq!(disk.pop_completed(half), None);
    let end = Nanos(alone(96 * KIB));
    assert_eq!(disk.next_completion(), Some(end));
    assert_eq!(disk.pop_completed(Nanos(end.0 - 1)), None);
    assert_eq!(disk.pop_completed(end), Some(Completion { id: 0, at: end }));
    assert_eq!(disk.next_completion(), Some(Nanos(alone(128 * KIB))));
}

#[test]
fn polling_far_ahead_stops_at_the_first_completion() {
    // Polling far ahead stops at the first end, so an I/O submitted at that time still shares.
    let two = |disk: &mut Ssd| {
        disk.submit(Nanos::ZERO, ModelIo::write(0, 0, 4 * KIB as u32));
        disk.submit(Nanos::ZERO, ModelIo::write(1, MIB, 64 * KIB as u32));
    };
    let (mut far, mut near) = (shared(|_| ()), shared(|_| ()));
    two(&mut far);
    two(&mut near);
    let first = far.pop_completed(Nanos::MAX).unwrap();
    assert_eq!((first.id, near.pop_completed(first.at)), (0, Some(first)));
    for disk in [&mut far, &mut near] {
        disk.submit(first.at, ModelIo::write(2, 2 * MIB, 64 * KIB as u32));
    }
    assert_eq!(drain(&mut far), drain(&mut near));
}

#[test]
fn a_flush_waits_only_for_earlier_commands() {
    let mut disk = shared(|f| f.write_overhead = us(0));
    disk.submit(Nanos::ZERO, ModelIo::write(0, 0, 64 * KIB as u32));
    disk.submit(Nanos::ZERO, ModelIo::flush(1));
    disk.submit(Nanos::ZERO, io(Op::Discard, 2, MIB, 4 * KIB));
    // On a die that the first one does not need.
    let apart = 2 * MIB + 64 * KIB;
    disk.submit(Nanos::ZERO, ModelIo::write(3, apart, 4 * KIB as u32));
    disk.submit(Nanos::ZERO, ModelIo::flush(4));
    disk.submit(Nanos::ZERO, ModelIo::write(5, 3 * MIB, MIB as u32));
    assert_eq!(disk.in_flight(), 6);
    let ended = drain(&mut disk);
    // Three share until the small transfer ends, then two.
    let small = 3 * alone(4 * KIB);
    assert_eq!((end_of(&ended, 2), end_of(&ended, 3)), (0, small));
    let large = small + 2 * alone(60 * KIB);
    assert_eq!(end_of(&ended, 0), large);
    // Its four pages lie on dies of four channels.
    let flash = on_channel(16 * KIB) + PROGRAM_NS;
    assert_eq!(end_of(&ended, 1), large + flash);
    assert_eq!(end_of(&ended, 4), large + flash);
    assert_eq!(end_of(&ended, 5), alone(MIB + 68 * KIB));
    assert_eq!(ended.len(), 6);
}

#[test]
fn with_power_loss_protection_a_flush_ends_with_the_last_write_before_it() {
    let mut disk = shared(|f| f.write_buffer.power_loss_protection = true);
    disk.submit(Nanos::ZERO, ModelIo::write(0, 0, 64 * KIB as u32));
    disk.submit(Nanos::ZERO, ModelIo::flush(1));
    disk.submit(Nanos::ZERO, ModelIo::flush(2));
    let ended = drain(&mut disk);
    let order: Vec<_> = ended.iter().map(|c| c.id).collect();
    assert_eq!(order, [0, 1, 2]);
    assert!(
        ended
            .iter()
            .all(|c| c.at.0 == WRITE_OVERHEAD_NS + alone(64 * KIB))
    );
    // No I/O ends before the time that was named.
    let now = Nanos::SECOND;
    assert_eq!(
        once(&mut disk, now, ModelIo::flush(3)),
        now + us(WRITE_OVERHEAD_US).0
    );
}

#[test]
fn fua_waits_for_its_data_and_then_for_its_program() {
    let fua = ModelIo {
        fua: true,
        ..ModelIo::write(0, 0, 4 * KIB as u32)
    };
    let program = on_channel(4 * KIB) + PROGRAM_NS;
    for (protected, after) in [(false, program), (true, 0)] {
        let mut disk = shared(|f| f.write_buffer.power_loss_protection = protected);
        disk.submit(Nanos::ZERO, fua);
        disk.submit(Nanos::ZERO, ModelIo::write(1, MIB, 64 * KIB as u32));
        let end = end_of(&drain(&mut disk), 0);
        assert_eq!(end, WRITE_OVERHEAD_NS + 2 * alone(4 * KIB) + after);
    }
}

#[test]
fn directions_share_only_where_there_is_one_way() {
    for (full_duplex, parts) in [(true, 1), (false, 2)] {
        let mut disk = shared(|f| {
            f.full_duplex = full_duplex;
            f.write_overhead = us(0);
            f.read_overhead = us(0);
            f.read = us(1);
            f.channel_rate = Bandwidth(1_000_000_000_000);
        });
        disk.submit(Nanos::ZERO, ModelIo::write(0, 0, MIB as u32));
        disk.submit(Nanos::ZERO, ModelIo::read(1, 512 * MIB, MIB as u32));
        let ended = drain(&mut disk);
        for id in 0..2 {
            close(end_of(&ended, id) as f64, (parts * alone(MIB)) as f64, 0.02);
        }
    }
}

#[test]
fn a_write_takes_room_when_its_data_has_come() {
    // Both fit the buffer one by one and not together; the small one passes the large one.
    let mut disk = shared(|f| {
        f.write_overhead = us(0);
        f.write_buffer = WriteBufferFigures {
            size: Bytes(128 * KIB),
            power_loss_protection: false,
        };
    });
    disk.submit(Nanos::ZERO, ModelIo::write(0, 0, 128 * KIB as u32));
    disk.submit(Nanos::ZERO, ModelIo::write(1, MIB, 16 * KIB as u32));
    let ended = drain(&mut disk);
    assert_eq!(end_of(&ended, 1), 2 * alone(16 * KIB));
    // The first was programmed while the second was still on its way.
    assert_eq!(end_of(&ended, 0), alone(144 * KIB));
}

fn any_io() -> impl Strategy<Value = (Op, u64, u64, bool, u64)> {
    let place = prop_oneof![0_u64..256, 0_u64..8_000];
    (any_op(), place, 1_u64..30, any::<bool>(), 0_u64..3_000_000)
}

proptest! {
    /// With one command at a time both ways of sharing give equal times.
    #[test]
    fn at_depth_one_both_modes_agree(
        steps in proptest::collection::vec(any_io(), 1..60),
        full_duplex: bool,
        collects: bool,
    ) {
        let disk = |sharing| {
            let mut figures = figures();
            figures.capacity = Bytes(64 * MIB);
            figures.interface_rate = Bandwidth(RATE + 7);
            figures.full_duplex = full_duplex;
            figures.interface_sharing = sharing;
            // Room for all of it: in order, some is made from the submission on.
            figures.write_buffer.size = Bytes(16 * MIB);
            figures.prefetch = Some(PrefetchFigures { ahead: Bytes(128 * KIB), streams: 3 });
            figures.garbage_collection = collects.then_some(GarbageFigures {
                spare: Bytes(4 * MIB),
                filled: Bytes(64 * MIB),
            });
            Ssd::new("test", &figures).unwrap()
        };
        let mut disks = [disk(SharingFigure::InOrder), disk(SharingFigure::Interleaved)];
        let mut now = Nanos::ZERO;
        for (id, (op, place, units, fua, wait)) in (0..).zip(&steps) {
            now += Nanos(*wait);
            // An I/O that waits for a die in order does not wait for data that is on its way.
            if matches!(op, Op::Write | Op::WriteZeroes) {
                now += Nanos::from_millis(50);
            }
            let io = match op {
                Op::Flush => ModelIo::flush(id),
                _ => ModelIo {
                    fua: *fua && *op == Op::Write,
                    ..io(*op, id, place * 4 * KIB, units * 4 * KIB)
                },
            };
            let [order, sharing] = disks.each_mut().map(|disk| once(disk, now, io));
            prop_assert_eq!(order, sharing, "{:?} at {}", io, now);
            now = order;
        }
    }
}
