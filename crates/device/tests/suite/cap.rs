//! Tests of caps: a device with a cap reaches the cap's rates and no more.

use crate::common::{KIB, MIB, Rng, keep, once};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::cap::{CapFigures, Capped};
use tidegate_device::catalogue::{self, Entry};
use tidegate_device::{Model, ModelIo};
use tidegate_units::{Bandwidth, Duration};

const SECOND: u64 = 1_000_000_000;

fn capped(cap: &str) -> Entry {
    let text = include_str!("../../../../devices/nvme-1tb.toml");
    let text = text.replace("\"nvme-1tb\"", "\"capped\"");
    catalogue::parse(&format!("{text}\n[cap]\n{cap}\n"), "test").unwrap()
}

/// Returns a duration in tenths of a second, rounded to the nearest.
fn tenths_of_s(duration: Nanos) -> u64 {
    (duration.0 + SECOND / 20) / (SECOND / 10)
}

/// Returns the duration of `count` random reads of one size with a fixed number in flight.
fn time_random_reads(disk: &mut dyn Model, now: Nanos, depth: u32, count: u64, size: u64) -> Nanos {
    let rng = &mut Rng(7);
    let read = |id| ModelIo::read(id, rng.below(1 << 27) * 4 * KIB, size as u32);
    Nanos(keep(disk, now, depth, count, read).0 - now.0)
}

#[test]
fn ios_and_bytes_pass_at_the_caps_rates_at_any_depth() {
    for depth in [1, 8, 256] {
        let by_iops = time_random_reads(
            &mut *capped("iops = 500").build(),
            Nanos::ZERO,
            depth,
            5000,
            4 * KIB,
        );
        assert_eq!(tenths_of_s(by_iops), 100, "{by_iops}");
        let device = capped("bandwidth = \"50 MB/s\"");
        let by_bytes = time_random_reads(&mut *device.build(), Nanos::ZERO, depth, 500, MIB);
        // 500 MiB at 50 MB/s.
        assert_eq!(tenths_of_s(by_bytes), 105, "{by_bytes}");
    }
    // The lower of both rates holds: 100 I/Os of 1 MiB are 105 MB.
    let both = capped("iops = 500\nbandwidth = \"50 MB/s\"");
    let large = time_random_reads(&mut *both.build(), Nanos::ZERO, 8, 100, MIB);
    assert!((2_000_000_000..2_200_000_000).contains(&large.0), "{large}");
    let small = time_random_reads(&mut *both.build(), Nanos::ZERO, 8, 1000, 4 * KIB);
    assert!((1_990_000_000..2_010_000_000).contains(&small.0), "{small}");
}

#[test]
fn below_its_rate_a_cap_adds_no_latency() {
    let (mut with, mut without) = (capped("iops = 500").build(), catalogue::load("nvme-1tb"));
    let without = &mut *without.as_mut().unwrap().build();
    for n in 0..100 {
        let (now, io) = (Nanos(n * SECOND / 499), ModelIo::read(n, n * MIB, 4096));
        assert_eq!(once(&mut *with, now, io), once(without, now, io));
    }
}

#[test]
fn burst_credit_is_spent_and_refills_while_idle() {
    let mut disk = capped("iops = 1000\nburst = \"10 s\"").build();
    // The credit of 10,000 I/Os passes at the speed of the device, in about 0.1 s.
    let first = time_random_reads(&mut *disk, Nanos::ZERO, 32, 10_000, 4 * KIB);
    assert!(first.0 < SECOND / 5, "{first}");
    let then = time_random_reads(&mut *disk, first, 32, 5000, 4 * KIB);
    assert!(
        (4 * SECOND..5 * SECOND + SECOND / 10).contains(&then.0),
        "{then}"
    );
    // Four idle seconds save up 4,000 I/Os, and an hour no more than 10,000.
    let now = Nanos(first.0 + then.0 + 4 * SECOND);
    let rested = time_random_reads(&mut *disk, now, 32, 4000, 4 * KIB);
    assert!(rested.0 < SECOND / 5, "{rested}");
    let later = Nanos(now.0 + 3600 * SECOND);
    let full = time_random_reads(&mut *disk, later, 32, 12_000, 4 * KIB);
    assert!((19 * SECOND / 10..2 * SECOND).contains(&full.0), "{full}");
}

#[test]
fn a_flush_costs_no_credit_and_waits_for_earlier_commands() {
    let mut disk = capped("iops = 10").build();
    for id in 0..3 {
        disk.submit(Nanos::ZERO, ModelIo::write(id, id * MIB, 4096));
    }
    disk.submit(Nanos::ZERO, ModelIo::flush(3));
    disk.submit(
        Nanos::ZERO,
        ModelIo {
            op: Op::Discard,
            ..ModelIo::write(4, 0, 1 << 20)
        },
    );
    let mut ends = Vec::new();
    while let Some(at) = disk.next_completion() {
        ends.push((disk.pop_completed(at).unwrap().id, at.0 / 1_000_000));
    }
    let [(0, 0), (1, 100), (2, 200), (3, 200..210), (4, 300)] = ends[..] else {
        panic!("{ends:?}")
    };
}

#[test]
fn a_new_cap_applies_from_its_change_on() {
    let cap = |iops| CapFigures {
        iops: Some(iops),
        bandwidth: None,
        burst: None,
    };
    let device = catalogue::load("nvme-1tb").unwrap().build();
    let mut disk = Capped::new(device, &cap(1000)).unwrap();
    let first = time_random_reads(&mut disk, Nanos::ZERO, 8, 1000, 4 * KIB);
    disk.set_cap(first, &cap(100)).unwrap();
    let then = time_random_reads(&mut disk, first, 8, 1000, 4 * KIB);
    assert!((9_900_000_000..10_010_000_000).contains(&then.0), "{then}");
    let nothing = CapFigures {
        iops: None,
        bandwidth: None,
        burst: None,
    };
    assert!(disk.set_cap(first, &nothing).is_err());
    let too_long = CapFigures {
        bandwidth: Some(Bandwidth(1 << 20)),
        burst: Some(Duration(Nanos(90_000 * SECOND))),
        ..nothing
    };
    assert!(disk.set_cap(first, &too_long).is_err());
}

#[test]
fn a_cap_stands_in_front_of_a_built_in_device() {
    let head = "name = \"capped\"\ndescription = \"test\"\n";
    let parse = |rest: &str| catalogue::parse(&format!("{head}{rest}"), "my.toml");
    let cap = "[cap]\niops = 500\n";
    let entry = parse(&format!("model = \"nvme-1tb\"\n{cap}")).unwrap();
    assert_eq!(entry.name, "capped");
    let took = time_random_reads(&mut *entry.build(), Nanos::ZERO, 8, 1000, 4 * KIB);
    assert_eq!(tenths_of_s(took), 20, "{took}");
    for (rest, expected) in [
        (
            "model = \"nvme-1tb\"\n",
            "line 3: found model without [cap]",
        ),
        (
            &format!("model = \"nvme-2tb\"\n{cap}"),
            "line 3: model: no device is called",
        ),
        (
            cap,
            "found none, allowed: exactly one of [hdd], [ssd], [raid0] and model",
        ),
    ] {
        let message = parse(rest).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn errors_of_a_cap_name_its_line_and_key() {
    let refused = |cap: &str, expected: &str| {
        let text = include_str!("../../../../devices/nvme-1tb.toml");
        let text = format!("{text}\n[cap]\n{cap}\n");
        let error = catalogue::parse(&text, "my.toml").unwrap_err();
        let message = error.to_string();
        assert!(message.contains(expected), "{message}");
    };
    // After the file: a blank line, [cap], then its first key.
    let line = include_str!("../../../../devices/nvme-1tb.toml")
        .lines()
        .count()
        + 3;
    refused(
        "iops = 0",
        &format!("my.toml, line {line}: cap.iops: found 0, allowed: 1 to 10000000"),
    );
    refused(
        "burst = \"1 s\"",
        "cap: found neither iops nor bandwidth, allowed: iops, bandwidth or both",
    );
    refused(
        "bandwidth = \"1 kB/s\"",
        "cap.bandwidth: found 1 kB/s, allowed: 100 kB/s to 100 GB/s",
    );
    refused("bandwidth = 100", "in quotes");
    refused(
        "iops = 1\nbytes = 2",
        "unknown key `bytes`, known keys: iops, bandwidth, burst",
    );
}
