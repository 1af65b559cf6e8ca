//! Cost of drawing requests and arrivals, in nanoseconds each:
//! `cargo run --release -p tidegate-workload --example cost`.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use std::hint::black_box;
use std::time::Instant;
use tidegate_core::time::Nanos;
use tidegate_workload::arrival_process::{ArrivalClock, Arrivals, Spacing};
use tidegate_workload::spec::{Mix, Placement, Rw, SizeShare, Sizes, Workload};
use tidegate_workload::stream::Stream;

const DISK: u64 = 100 << 30;
const DRAWS: u32 = 5_000_000;

fn main() {
    let workload = |mix, random, placement| Workload {
        rw: Rw { mix, random },
        placement,
        ..Workload::default()
    };
    let mixed = Mix::ReadWrite { read_percent: 70 };
    let several = |bytes| SizeShare { bytes, weight: 1 };
    let mut split = workload(Mix::Read, true, Placement::Uniform);
    split.sizes[0] = Sizes([4096, 8192, 65536].map(several).into());
    let deviation_percent = 10.0;
    for (name, workload) in [
        (
            "sequential reads",
            workload(Mix::Read, false, Placement::Uniform),
        ),
        (
            "random reads",
            workload(Mix::Read, true, Placement::Uniform),
        ),
        ("random mix", workload(mixed, true, Placement::Uniform)),
        ("random, three sizes", split),
        ("shuffle", workload(Mix::Read, true, Placement::Shuffle)),
        (
            "zipf",
            workload(Mix::Read, true, Placement::Zipf { theta: 0.99 }),
        ),
        (
            "pareto",
            workload(Mix::Read, true, Placement::Pareto { h: 0.2 }),
        ),
        (
            "normal",
            workload(Mix::Read, true, Placement::Normal { deviation_percent }),
        ),
    ] {
        let mut stream = Stream::new(&workload, 0, DISK).expect("the job fits");
        print(name, |rng| {
            black_box(stream.next(rng));
        });
    }
    for (name, spacing) in [
        ("arrivals, even", Spacing::Fixed),
        ("arrivals, Poisson", Spacing::Poisson),
    ] {
        let arrivals = Arrivals {
            per_s: 777.0,
            spacing,
            bursts: None,
        };
        let mut clock = ArrivalClock::new(&arrivals, Nanos::ZERO);
        print(name, |rng| {
            black_box(clock.next(rng));
        });
    }
}

/// The best of five rounds: other processes ran beside the others.
fn print(name: &str, mut draw: impl FnMut(&mut Pcg64Mcg)) {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            (0..DRAWS).for_each(|_| draw(&mut rng));
            start.elapsed().as_secs_f64() * 1e9 / f64::from(DRAWS)
        })
        .fold(f64::INFINITY, f64::min);
    println!("{name:20} {best:5.1} ns");
}
