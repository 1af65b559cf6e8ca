//! Throughput of each device of the catalogue, and the CPU time of its model.
//!
//! `cargo bench -p tidegate-device --bench models` prints a line for each load: I/Os and megabytes
//! a second of model time, and nanoseconds of this machine's time for each I/O, with what the
//! driver takes. The best of several rounds is shown. Names behind `--` choose devices.

#[path = "../tests/suite/common/mod.rs"]
mod common;

use common::{KIB, Load, keep};
use std::time::Instant;
use tidegate_core::request::Op::{Read, Write};
use tidegate_core::time::Nanos;
use tidegate_device::catalogue;

const ROUNDS: u32 = 5;
const COUNT: u64 = 100_000;

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    println!(
        "{:<22}{:<34}{:>11}{:>10}{:>9}",
        "device", "load", "IOPS", "MB/s", "ns/IO"
    );
    let mut plain = common::in_order();
    plain.name = "hdd-7200-1tb, no NCQ".to_owned();
    for entry in std::iter::once(plain).chain(catalogue::entries()) {
        if !wanted.is_empty() && !wanted.contains(&entry.name) {
            continue;
        }
        let deep = entry.spec().queue_depth;
        let mut depths = vec![1, 4, 32, 256, deep];
        depths.retain(|d| *d <= deep);
        depths.dedup();
        let mut loads: Vec<(&str, Load)> = Vec::new();
        for op in [Read, Write] {
            let random = if op == Read {
                "random 4 KiB read"
            } else {
                "random 4 KiB write"
            };
            let line = if op == Read {
                "sequential 128 KiB read"
            } else {
                "sequential 128 KiB write"
            };
            loads.extend(
                depths
                    .iter()
                    .map(|d| (random, Load::random(op, 4 * KIB, *d, COUNT))),
            );
            let few = [1, 4, 32].map(|d| (line, Load::sequential(op, 128 * KIB, d, COUNT / 5)));
            loads.extend(few);
        }
        for (name, load) in loads {
            let (mut best, mut iops) = (f64::MAX, 0.0);
            for _ in 0..ROUNDS {
                let mut disk = entry.build();
                let ios = load.ios(&*disk);
                let begun = Instant::now();
                let end = keep(&mut *disk, Nanos::ZERO, load.depth, load.count, |id| {
                    ios[id as usize]
                });
                best = best.min(begun.elapsed().as_nanos() as f64 / load.count as f64);
                iops = load.count as f64 / end.as_secs_f64();
            }
            println!(
                "{:<22}{:<34}{iops:>11.1}{:>10.1}{best:>9.0}",
                entry.name,
                format!("{name}, depth {}", load.depth),
                iops * load.len as f64 / 1e6,
            );
        }
    }
}
