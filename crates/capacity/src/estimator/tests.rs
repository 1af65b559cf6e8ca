use super::filter::Filter;
use super::prior::{COSTS, Weights};
use super::*;
use tidegate_base::random::SplitMix64;
use tidegate_base::request::{DiskId, IoId, Op};

const UNSPECIFIED: DeviceSpec = DeviceSpec {
    depth: 32,
    physical_block: 4096,
    max_io: 1 << 20,
    zeroes_are_writes: false,
    positioning: Nanos::ZERO,
    bytes_per_s: 0,
};

/// Costs in nanoseconds far from any prior: writes expensive, sequential reads nearly free, and not
/// linear in size.
fn true_costs() -> Weights {
    core::array::from_fn(|at| {
        let (kind, node) = (at / NODES, (at % NODES) as f64);
        [2_000.0, 900_000.0, 3_000_000.0, 7_000_000.0][kind] * (1.0 + node * node / 8.0)
    })
}

/// Window of I/Os of some kinds and sizes, with its length in nanoseconds.
fn window(random: &mut SplitMix64, true_costs: &Weights, of: &[usize]) -> (Weights, f64) {
    let mut ios = [0.0; COSTS];
    for &at in of {
        // Scaled so that each cost makes up a large part of the time now and then.
        ios[at] = (random.below(60) as f64) * (3e7 / true_costs[at]).max(1.0);
    }
    ios[of[0]] += 1.0;
    let len: f64 = ios.iter().zip(true_costs).map(|(n, cost)| n * cost).sum();
    // Error of up to 10 % either way.
    let error = (random.below(2001) as f64 - 1000.0) / 10_000.0;
    (ios, len * (1.0 + error))
}

fn single(index: usize) -> SparseWeights {
    let mut weights = [(0, 0.0); 2 * KINDS];
    weights[0] = (index, 1.0);
    weights
}

#[test]
fn observed_costs_are_learnt_within_their_uncertainty() {
    let costs = true_costs();
    let of = [
        NODES + 2,
        NODES + 5,
        2 * NODES,
        3 * NODES + 3,
        3 * NODES + 8,
    ];
    for seed in 0..20 {
        let (mut random, mut filter) = (
            SplitMix64::new(seed),
            Filter::new(prior::prior_costs_ns(&UNSPECIFIED)),
        );
        for _ in 0..600 {
            let (ios, len) = window(&mut random, &costs, &of);
            filter.learn(&ios, len);
        }
        for at in of {
            let off = filter.cost(&single(at)) / costs[at] - 1.0;
            let deviation = filter.variance(&single(at)).sqrt() / costs[at];
            assert!(off.abs() < 0.15, "seed {seed}, cost {at}: {off}");
            assert!(
                off.abs() < 4.0 * deviation,
                "seed {seed}: {off} of {deviation}"
            );
            assert!(deviation < 0.1, "seed {seed}, cost {at}: {deviation}");
        }
        // Sequential reads were never seen, so their cost must stay uncertain.
        let unseen = filter.variance(&single(4)).sqrt() / filter.cost(&single(4));
        assert!(unseen > 0.3, "seed {seed}: {unseen}");
    }
}

#[test]
fn collinear_costs_are_known_in_sum_alone() {
    let costs = true_costs();
    let (small, large) = (NODES + 2, NODES + 6);
    let (mut random, mut filter) = (
        SplitMix64::new(1),
        Filter::new(prior::prior_costs_ns(&UNSPECIFIED)),
    );
    for _ in 0..1000 {
        let mut ios = [0.0; COSTS];
        (ios[small], ios[large]) = (40.0, 10.0);
        let error = 1.0 + (random.below(101) as f64 - 50.0) / 1000.0;
        filter.learn(&ios, (40.0 * costs[small] + 10.0 * costs[large]) * error);
    }
    let mut both = single(small);
    both[0].1 = 40.0;
    both[1] = (large, 10.0);
    let sum = 40.0 * costs[small] + 10.0 * costs[large];
    assert!((filter.cost(&both) / sum - 1.0).abs() < 0.02);
    assert!(filter.variance(&both).sqrt() / sum < 0.02);
    let apart = filter.variance(&single(large)).sqrt() / filter.cost(&single(large));
    assert!(apart > 0.2, "{apart}");
}

#[test]
fn scaled_costs_are_learnt_anew() {
    let mut costs = true_costs();
    let of = [NODES, NODES + 4, 3 * NODES];
    for by in [8.0, 0.1] {
        let (mut random, mut filter) = (
            SplitMix64::new(3),
            Filter::new(prior::prior_costs_ns(&UNSPECIFIED)),
        );
        for _ in 0..3000 {
            let (ios, len) = window(&mut random, &costs, &of);
            filter.learn(&ios, len);
        }
        costs.iter_mut().for_each(|cost| *cost *= by);
        for _ in 0..300 {
            let (ios, len) = window(&mut random, &costs, &of);
            filter.learn(&ios, len);
        }
        for at in of {
            let off = filter.cost(&single(at)) / costs[at] - 1.0;
            assert!(off.abs() < 0.15, "{by} times, cost {at}: {off}");
        }
    }
}

#[test]
fn costs_stay_positive_and_variances_finite_for_inconsistent_windows() {
    for seed in 0..30 {
        let (mut random, mut filter) = (
            SplitMix64::new(seed),
            Filter::new(prior::prior_costs_ns(&UNSPECIFIED)),
        );
        for _ in 0..500 {
            // Inconsistent input: lengths are unrelated to the I/Os.
            let mut ios = [0.0; COSTS];
            for _ in 0..=random.below(4) {
                ios[random.below(COSTS as u64) as usize] = 1.0 + random.below(200) as f64;
            }
            let len = (30_000_000 + random.below(970_000_000)) as f64;
            filter.learn(&ios, len);
            for at in 0..COSTS {
                let (cost, variance) = (filter.cost(&single(at)), filter.variance(&single(at)));
                assert!(cost > 0.0 && cost < 1e12, "seed {seed}, cost {at}: {cost}");
                assert!(
                    variance.is_finite() && variance >= 0.0,
                    "seed {seed}: {variance}"
                );
            }
        }
    }
}

#[test]
fn nodes_interpolate_sizes_linearly() {
    let half = FIXED_POINT_ONE / 2;
    assert_eq!(nodes(512), [(0, FIXED_POINT_ONE), (1, 0)]);
    assert_eq!(nodes(4096), [(0, FIXED_POINT_ONE), (1, 0)]);
    assert_eq!(nodes(6144), [(0, half), (1, half)]);
    assert_eq!(nodes(1 << 19), [(7, FIXED_POINT_ONE), (8, 0)]);
    assert_eq!(nodes(1 << 20), [(7, 0), (8, FIXED_POINT_ONE)]);
    assert_eq!(nodes(3 << 20), [(7, 0), (8, 3 * FIXED_POINT_ONE)]);
    for bytes in (4096..1 << 20).step_by(1536) {
        let by_line: u64 = nodes(bytes).iter().map(|&(n, part)| part << (12 + n)).sum();
        let off = by_line.abs_diff(u64::from(bytes) * FIXED_POINT_ONE);
        assert!(off <= 1 << 20, "{bytes}: {off}");
    }
}

#[test]
fn profile_is_pessimistic_until_costs_are_known() {
    let cost = |relative_half_width| LearntCost {
        time_ps: 1e6,
        relative_half_width,
    };
    assert_eq!(cost(0.25).pessimistic_ps(), 1e6);
    assert_eq!(cost(0.5).pessimistic_ps(), 1.5e6);
    assert_eq!(cost(f64::INFINITY).pessimistic_ps(), 4e6);

    let mut estimator = CostEstimator::new(Nanos::ZERO, &UNSPECIFIED);
    let (random_read, size) = (NODES + 2, 16384);
    let time = |estimator: &CostEstimator| {
        let (profile, known) = estimator.profile();
        let time = profile.time_ps(Direction::Read, Access::Random, size);
        (time as f64, known)
    };
    // The prior gives 32 KiB at 0.25 bytes a nanosecond; four times that before the first window.
    let (before, known) = time(&estimator);
    assert!(
        (before / (4.0 * 131_072_000.0) - 1.0).abs() < 1e-3,
        "{before}"
    );
    assert!(!known);
    let costs = true_costs();
    let mut random = SplitMix64::new(7);
    for _ in 0..600 {
        let (ios, len) = window(&mut random, &costs, &[random_read]);
        estimator.filter.learn(&ios, len);
    }
    (estimator.ios[1], estimator.bytes[1]) = (600, 600 * u64::from(size));
    estimator.windows_ended = 600;
    let (after, known) = time(&estimator);
    assert!(
        (after / (costs[random_read] * 1000.0) - 1.0).abs() < 0.05,
        "{after}"
    );
    assert!(known);
    // Writes were not seen: the prior, scaled as reads are, with the whole allowance.
    let (profile, _) = estimator.profile();
    let learnt = estimator.cost(&Pattern {
        reads: 0.0,
        ..Pattern::UNKNOWN
    });
    let writes = profile.time_ps(Direction::Write, Access::Random, 4096) as f64;
    assert!(
        !learnt.is_known() && writes > 1.2 * learnt.time_ps,
        "{writes} {learnt:?}"
    );
}

#[test]
fn an_io_is_of_the_kind_that_its_vm_is_charged_for() {
    // Reads of 64 KiB of a stream, each after a random read of another VM.
    let learnt = |access: Option<Access>| {
        let mut estimator = CostEstimator::new(Nanos::ZERO, &UNSPECIFIED);
        let mut random = SplitMix64::new(1);
        let mut io = DeviceIo {
            id: IoId::from_bits(0),
            vm: VmId::from_bits(0),
            disk: DiskId::from_bits(0),
            op: Op::Read,
            addr: 0,
            offset: 0,
            len: 64 << 10,
            fua: false,
            keep_allocated: false,
            first_ops: 1,
            first_bytes: 64 << 10,
            whole_len: 64 << 10,
            arrived: Nanos::ZERO,
        };
        let (mut now, mut next) = (Nanos::ZERO, 0);
        for n in 0..4000_u64 {
            let streams = n % 2 == 0;
            (io.vm, io.addr) = if streams {
                (VmId::from_bits(0), next)
            } else {
                (VmId::from_bits(1), (1 + random.below(1 << 30)) << 20)
            };
            next += if streams { u64::from(io.len) } else { 0 };
            let charged = if streams {
                access
            } else {
                access.map(|_| Access::Random)
            };
            estimator.started(now, (&io, charged), io.len, 1);
            now += Nanos::from_micros(100);
            estimator.ended(now, &io, true, 1);
        }
        let [sequential, random, ..] = estimator.learnt().kinds;
        [sequential.ios, random.ios]
    };
    let [sequential, random] = learnt(Some(Access::Sequential));
    assert_eq!(sequential, random);
    assert!(sequential > 1000, "{sequential}");
    // By the device's own order, no I/O continues the one before it.
    let [none, all] = learnt(None);
    assert_eq!((none, all), (0, sequential + random));
}
