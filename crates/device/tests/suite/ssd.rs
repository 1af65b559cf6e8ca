//! Tests of the flash disk model: compared with arithmetic on its figures.

use crate::common::flash::{
    CHANNEL_RATE, DIES, ERASE_US, INTERFACE_RATE, PAGE, PAGES_PER_BLOCK, PROGRAM_US,
    READ_OVERHEAD_US, READ_US, WRITE_OVERHEAD_US, ssd, us,
};
use crate::common::{KIB, Load, MIB, Rng, close, io, keep, once};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::ssd::{GarbageFigures, PrefetchFigures, Ssd, ZeroesFigure};
use tidegate_device::{Model, ModelIo};
use tidegate_units::{Bandwidth, Bytes};

fn plain() -> Ssd {
    ssd(|_| ())
}

fn random_reads(depth: u32, disk: &mut Ssd) -> f64 {
    Load::random(Op::Read, 4 * KIB, depth, 50_000).iops(disk)
}

// Times in microseconds.
/// 4 KiB on the channel.
const CHANNEL: f64 = 4_096.0 * 1e6 / CHANNEL_RATE as f64;
/// 4 KiB on the interface.
const INTERFACE: f64 = 4_096.0 * 1e6 / INTERFACE_RATE as f64;
/// Controller, for a read.
const READ_OVERHEAD: f64 = READ_OVERHEAD_US as f64;
/// Controller, for a write or a flush.
const WRITE_OVERHEAD: f64 = WRITE_OVERHEAD_US as f64;
/// Read of a page from the flash.
const READ: f64 = READ_US as f64;
/// Program of a page.
const PROGRAM: f64 = PROGRAM_US as f64;
/// A page on the channel, and then its program: 541 us.
const PAGE_WRITE: f64 = PAGE as f64 * 1e6 / CHANNEL_RATE as f64 + PROGRAM;

#[test]
fn a_read_takes_overhead_flash_channel_and_interface() {
    let iops = random_reads(1, &mut plain());
    close(
        iops,
        1e6 / (READ_OVERHEAD + READ + CHANNEL + INTERFACE),
        0.1,
    );
}

#[test]
fn iops_grow_with_depth_until_the_dies_are_busy() {
    let one = random_reads(1, &mut plain());
    // By chance two of four commands find the same one of eight dies now and then.
    let four = random_reads(4, &mut plain());
    assert!((2.7..3.6).contains(&(four / one)), "{}", four / one);
    // A die is busy until its register is empty.
    let dies = DIES as f64 * 1e6 / (READ + CHANNEL);
    let deep = random_reads(256, &mut plain());
    assert!(deep < dies && deep > 0.93 * dies, "{deep} of {dies}");
}

#[test]
fn channels_saturate() {
    let slow = || ssd(|f| f.channel_rate = Bandwidth(50_000_000));
    let most = 4.0 * 50e6;
    let stream = Load::sequential(Op::Read, 64 * KIB, 16, 10_000).iops(&mut slow()) * 65_536.0;
    close(stream, most, 1.0);
    // Booked ahead die by die, random transfers leave gaps that are too short for another.
    let random = random_reads(256, &mut slow()) * 4_096.0;
    assert!(random < most && random > 0.7 * most, "{random} of {most}");
}

#[test]
fn the_interface_saturates() {
    let mut slow = ssd(|f| f.interface_rate = Bandwidth(100_000_000));
    close(random_reads(64, &mut slow), 100e6 / 4_096.0, 0.5);
}

#[test]
fn the_controller_saturates() {
    let mut slow = ssd(|f| f.read_interval = us(40));
    close(random_reads(64, &mut slow), 1e6 / 40.0, 0.5);
}

#[test]
fn half_duplex_shares_the_interface() {
    let mixed = |full| {
        let mut disk = ssd(|f| {
            f.full_duplex = full;
            f.interface_rate = Bandwidth(50_000_000);
        });
        // Writes to a few places, which stay in the buffer.
        let end = keep(&mut disk, Nanos::ZERO, 32, 20_000, |id| match id % 2 {
            0 => ModelIo::read(id, id * 7 % 65_536 * 16_384, 4_096),
            _ => ModelIo::write(id, id % 16 * 4_096, 4_096),
        });
        20_000.0 / end.as_secs_f64()
    };
    close(mixed(false), 50e6 / 4_096.0, 1.0);
    assert!(mixed(true) > 1.8 * mixed(false), "{}", mixed(true));
}

#[test]
fn a_write_ends_in_the_buffer() {
    let mut disk = plain();
    let mut now = Nanos::ZERO;
    for id in 0..32 {
        let end = once(&mut disk, now, ModelIo::write(id, id * 16_384, 4_096));
        close(
            end.since(now).0 as f64,
            1e3 * (WRITE_OVERHEAD + INTERFACE),
            0.1,
        );
        now = end;
    }
}

#[test]
fn a_full_buffer_writes_at_the_speed_of_the_flash() {
    let mut disk = plain();
    let rate = Load::sequential(Op::Write, 64 * KIB, 8, 20_000).iops(&mut disk) * 65_536.0;
    close(rate, DIES as f64 * PAGE as f64 / PAGE_WRITE * 1e6, 1.0);
    // Without garbage collection this rate lasts.
    let mut disk = plain();
    let load = Load::random(Op::Write, 4 * KIB, 8, 100_000);
    let (first, now) = load.run(&mut disk, Nanos::ZERO);
    let mut rest = [0.0; 4];
    let mut now = now;
    for rate in &mut rest {
        (*rate, now) = load.run(&mut disk, now);
        close(*rate, first, 1.0);
    }
    assert_eq!(disk.write_amplification(), 1.0);
}

#[test]
fn buffered_data_is_read_from_the_buffer() {
    let mut disk = plain();
    let now = once(&mut disk, Nanos::ZERO, ModelIo::write(0, 16_384, 4_096));
    let end = once(&mut disk, now, ModelIo::read(1, 16_384, 4_096));
    close(
        end.since(now).0 as f64,
        1e3 * (READ_OVERHEAD + INTERFACE),
        0.1,
    );
    // Neither pages that were not written nor pages that have been programmed are in the buffer.
    let now = end;
    let end = once(&mut disk, now, ModelIo::read(2, 20_480, 4_096));
    assert!(
        end.since(now) > Nanos::from_micros(60),
        "{}",
        end.since(now)
    );
    let now = end + Nanos::from_millis(10);
    let end = once(&mut disk, now, ModelIo::read(3, 16_384, 4_096));
    close(
        end.since(now).0 as f64,
        1e3 * (READ_OVERHEAD + READ + CHANNEL + INTERFACE),
        0.1,
    );
}

#[test]
fn a_read_waits_for_the_program_of_its_die() {
    let mut disk = plain();
    // A page's program begins as soon as the whole page is in the buffer.
    let now = once(&mut disk, Nanos::ZERO, ModelIo::write(0, 0, 16_384));
    let now = now + Nanos::from_micros(100);
    let busy = once(&mut disk, now, ModelIo::read(1, 8 * 16_384, 4_096)).since(now);
    let idle = once(
        &mut disk,
        now + Nanos::SECOND,
        ModelIo::read(2, 8 * 16_384, 4_096),
    );
    let idle = idle.since(now + Nanos::SECOND);
    // It takes 41 us on the channel and 500 us from its arrival, 90 us of which have passed.
    let more = busy.since(idle);
    assert!((430_000..455_000).contains(&more.0), "{more}");
}

#[test]
fn flush_waits_for_the_flash_and_for_all_before_it() {
    let mut disk = plain();
    let now = once(&mut disk, Nanos::ZERO, ModelIo::write(0, 0, 4_096));
    let end = once(&mut disk, now, ModelIo::flush(1));
    close(
        end.since(now).0 as f64,
        1e3 * (WRITE_OVERHEAD + CHANNEL + PROGRAM),
        0.1,
    );
    // The buffer is empty, so a second flush costs only its overhead.
    let again = once(&mut disk, end, ModelIo::flush(2));
    assert_eq!(again.since(end), Nanos::from_micros(WRITE_OVERHEAD_US));

    let mut disk = plain();
    for id in 0..100 {
        disk.submit(Nanos::ZERO, ModelIo::read(id, id * 16_384, 4_096));
    }
    disk.submit(Nanos::ZERO, ModelIo::flush(100));
    let ends: Vec<_> = std::iter::from_fn(|| disk.pop_completed(Nanos::SECOND)).collect();
    assert_eq!(ends.last().unwrap().id, 100);
}

/// A log that is flushed all the time, beside a writer that goes on without waiting for flushes.
#[test]
fn flushes_do_not_let_writes_in_faster_than_the_flash_takes_them() {
    let mut disk = plain();
    let (mut now, pages) = (Nanos::ZERO, 8_000);
    for page in 0..pages {
        if page % 16 == 15 {
            assert!(disk.has_room(), "flushes pile up");
            disk.submit(now, ModelIo::flush(pages + page));
        }
        disk.submit(now, ModelIo::write(page, page * PAGE, PAGE as u32));
        // Flushes end meanwhile; the writer waits for its own writes alone.
        let mut ended = false;
        while !ended {
            now = now.max(disk.next_completion().expect("the write is in flight"));
            while let Some(done) = disk.pop_completed(now) {
                ended |= done.id == page;
            }
        }
    }
    // The buffer of 1 MiB may still hold what came last.
    let buffer = MIB / PAGE;
    let least = (pages - buffer) as f64 * PAGE_WRITE / DIES as f64;
    let took = now.0 as f64 / 1e3;
    assert!(took >= 0.98 * least, "{took} us for {least}");
}

#[test]
fn fua_waits_for_its_own_program_only() {
    let mut disk = plain();
    let fua = |id, addr| ModelIo {
        fua: true,
        ..ModelIo::write(id, addr, 4_096)
    };
    let end = once(&mut disk, Nanos::ZERO, fua(0, 0));
    close(
        end.0 as f64,
        1e3 * (WRITE_OVERHEAD + INTERFACE + CHANNEL + PROGRAM),
        0.1,
    );
}

#[test]
fn power_loss_protection_makes_flush_and_fua_immediate() {
    let mut disk = ssd(|f| f.write_buffer.power_loss_protection = true);
    let fua = ModelIo {
        fua: true,
        ..ModelIo::write(0, 0, 4_096)
    };
    let now = once(&mut disk, Nanos::ZERO, fua);
    close(now.0 as f64, 1e3 * (WRITE_OVERHEAD + INTERFACE), 0.1);
    assert_eq!(
        once(&mut disk, now, ModelIo::flush(1)).since(now),
        Nanos::from_micros(WRITE_OVERHEAD_US)
    );
}

#[test]
fn discard_and_zeroes_cost_what_the_figures_say() {
    // 64 pages of 16 KiB over 8 dies: 8 x 541 us.
    let written = (MIB / PAGE / DIES) as f64 * PAGE_WRITE * 1e3;
    for (zeroes, most) in [
        (ZeroesFigure::Deallocate, WRITE_OVERHEAD_US * 1_000),
        (ZeroesFigure::Write, written.ceil() as u64),
    ] {
        let mut disk = ssd(|f| f.write_zeroes = zeroes);
        let end = once(&mut disk, Nanos::ZERO, io(Op::Discard, 0, 0, 64 * MIB));
        assert_eq!(end, Nanos::from_micros(WRITE_OVERHEAD_US));
        // More than the buffer holds, so written ones wait for the flash.
        let mut now = Nanos::SECOND;
        for id in 0..8 {
            now = once(&mut disk, now, io(Op::WriteZeroes, id, id * MIB, MIB));
        }
        let each = now.since(Nanos::SECOND).0 / 8;
        assert!(each <= most && each * 2 > most, "{zeroes:?}: {each}");
    }
}

#[test]
fn prefetch_serves_streams_and_leaves_random_reads_alone() {
    let with = || {
        ssd(|f| {
            f.prefetch = Some(PrefetchFigures {
                ahead: Bytes(256 * KIB),
                streams: 4,
            });
        })
    };
    let stream = Load::sequential(Op::Read, 16 * KIB, 1, 10_000);
    let (slow, fast) = (stream.iops(&mut plain()), stream.iops(&mut with()));
    close(
        slow,
        1e6 / (READ_OVERHEAD + READ + 4.0 * (CHANNEL + INTERFACE)),
        0.1,
    );
    // Only the overhead and the interface are left.
    close(fast, 1e6 / (READ_OVERHEAD + 4.0 * INTERFACE), 2.0);
    close(
        random_reads(4, &mut with()),
        random_reads(4, &mut plain()),
        1.0,
    );
}

/// Returns a drive with `spare` bytes of flash beyond its capacity; its first `filled` bytes hold
/// data.
fn with_garbage_collection(spare: u64, filled: u64) -> Ssd {
    ssd(|f| {
        f.garbage_collection = Some(GarbageFigures {
            spare: Bytes(spare),
            filled: Bytes(filled),
        });
    })
}

#[test]
fn random_overwrites_fall_off_the_cliff_when_the_spare_flash_is_used_up() {
    let (spare, mut disk, mut rng) = (
        200 * MIB,
        with_garbage_collection(200 * MIB, 1 << 30),
        Rng(7),
    );
    let count = spare / 4_096 / 2;
    let mut round = |disk: &mut Ssd, begun| {
        let end = keep(disk, begun, 8, count, |id| {
            ModelIo::write(id, rng.below(1 << 18) * 4_096, 4_096)
        });
        (count as f64 / end.since(begun).as_secs_f64(), end)
    };
    let (fresh, mut now) = round(&mut disk, Nanos::ZERO);
    // Four requests fill a page.
    let flash = DIES as f64 * 4.0 * 1e6 / PAGE_WRITE;
    assert!(fresh > 0.95 * flash, "{fresh} of {flash}");
    assert_eq!(disk.write_amplification(), 1.0);
    let mut last = 0.0;
    for _ in 0..20 {
        (last, now) = round(&mut disk, now);
    }
    let amplification = disk.write_amplification();
    assert!(amplification > 1.8, "{amplification}");
    // A move costs a read more than a program, and the channel twice; erases come on top.
    let move_time = READ + PROGRAM + 2.0 * (PAGE_WRITE - PROGRAM);
    let erase = ERASE_US as f64 / f64::from(PAGES_PER_BLOCK);
    let cost = PAGE_WRITE + (amplification - 1.0) * move_time + amplification * erase;
    close(last, DIES as f64 * 4.0 * 1e6 / cost, 12.0);
}

#[test]
fn amplification_grows_with_utilisation() {
    let mut last = 1.0;
    for tenths in [5, 7, 9] {
        let filled = (1_u64 << 30) / 10 * tenths;
        let (mut disk, mut rng, mut now) = (
            with_garbage_collection(128 * MIB, filled),
            Rng(9),
            Nanos::ZERO,
        );
        let (mut sum, rounds) = (0.0, 40);
        for round in 0..rounds + 40 {
            now = keep(&mut disk, now, 32, 10_000, |id| {
                ModelIo::write(id, rng.below(filled / 4_096) * 4_096, 4_096)
            });
            if round >= 40 {
                sum += disk.write_amplification();
            }
        }
        let mean = sum / f64::from(rounds);
        assert!(mean > last + 0.05, "{mean} after {last} at 0.{tenths}");
        last = mean;
    }
}

#[test]
fn collection_delays_reads() {
    let p99 = |mut disk: Ssd| {
        let (mut rng, mut now, mut took) = (Rng(2), Nanos::ZERO, Vec::new());
        // Until the spare flash is long used up.
        now = Load::random(Op::Write, 4 * KIB, 8, 300_000)
            .run(&mut disk, now)
            .1;
        for id in 0..20_000 {
            // Two writes and a read every millisecond, well below what the flash can do.
            now += Nanos::from_millis(1);
            for n in 0..2 {
                disk.submit(now, ModelIo::write(n, rng.below(1 << 18) * 4_096, 4_096));
            }
            disk.submit(now, ModelIo::read(2, rng.below(1 << 18) * 4_096, 4_096));
            while disk.in_flight() > 0 {
                let at = disk.next_completion().unwrap();
                let ended = disk.pop_completed(at).unwrap();
                if ended.id == 2 && id > 1_000 {
                    took.push(at.since(now).0);
                }
                now = now.max(at);
            }
        }
        took.sort_unstable();
        took[took.len() * 99 / 100]
    };
    let (without, with) = (
        p99(plain()),
        p99(with_garbage_collection(100 * MIB, 1 << 30)),
    );
    assert!(with > without + 300_000, "{with} ns, {without} ns");
}
