//! Choices of operations: policies and objectives by number.

use tidegate_core::objective::{Burst, Limit, Objective, OpsRate, Rate};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// Returns a policy of the registry or any composition, some with other parameters.
pub(super) fn policy(n: u8) -> PolicySpec {
    let all = PolicySpec::every_composition();
    // Modulo: every byte stands for some policy, so that no input of the fuzzer is wasted.
    let mut spec = all[n as usize % all.len()].clone();
    if n >= 128 {
        // Compositions without the parameter refuse it.
        let _ = spec.set("slack", (n as u64 - 128) * 1_000_000);
        let _ = spec.set("catch_up", (n as u64 - 128) * 1_000_000);
        let _ = spec.set("depth", n as u64 % 4);
        let _ = spec.set("cost", n as u64 % 3);
        let _ = spec.set("quantum", (n as u64 - 112) << 10);
        let _ = spec.set("read_expire", (n as u64 - 128) * 10_000);
        let _ = spec.set("fifo_batch", 1 + n as u64 % 5);
        let _ = spec.set("writes_starved", 1 + n as u64 % 3);
        let _ = spec.set("margin", n as u64 % 4 * 1_000_000);
        let _ = spec.set("default_latency", (n as u64 - 128) * 100_000);
        let _ = spec.set("max_wait", n as u64 % 3 * 1_000_000);
        let _ = spec.set("bound_waits", n as u64 % 2);
        let _ = spec.set("deep_queue", n as u64 / 2 % 2);
        let _ = spec.set("beta", 1 + n as u64 % 5);
        let _ = spec.set("max_interval", n as u64 % 7 * 5);
        let _ = spec.set("literal", n as u64 / 2 % 2);
        let _ = spec.set("pages", n as u64 % 3);
        let _ = spec.set("fill", n as u64 % 3 * 50);
        let _ = spec.set("max_ml", 1 + n as u64 % 20);
        let _ = spec.set("window_max", 1_000_000 << (n % 6));
        let _ = spec.set("window_min", 4_000_000);
        let _ = spec.set("statistical_interval", 1_000_000_000);
        let _ = spec.set("profiling", n as u64 % 2);
        let _ = spec.set("headroom", n as u64 / 2 % 3 * 10);
    }
    spec
}

fn total(total: Rate) -> Limit {
    Limit {
        total,
        ..Limit::NONE
    }
}

fn normalised(per_s: u64, norm: u32) -> Rate {
    Rate {
        ops: Some(OpsRate {
            per_s,
            norm: Some(norm),
        }),
        bytes_per_s: None,
    }
}

/// Rate of requests and bytes at once.
fn both() -> Rate {
    Rate {
        bytes_per_s: Some(20_000_000),
        ..Rate::iops(300)
    }
}

/// Returns an objective of one of many kinds: reservations, limits, both, targets, weights, bursts,
/// latencies, none.
pub(super) fn objective(n: u8) -> Objective {
    // 19 is above the largest number that a function below knows.
    let n = n % 19;
    Objective {
        reservation: reservation(n),
        limit: limit(n),
        target: target(n),
        weight: weight(n),
        latency: latency(n),
        ..Objective::default()
    }
}

fn reservation(n: u8) -> Rate {
    match n {
        4 => Rate::iops(200),
        5 => Rate::iops(500),
        6 => Rate::bytes(5_000_000),
        11 => both(),
        _ => Rate::NONE,
    }
}

fn limit(n: u8) -> Limit {
    match n {
        2 => total(Rate::iops(1000)),
        3 => total(Rate::bytes(50_000_000)),
        5 => total(Rate::iops(500)),
        6 | 17 => total(both()),
        7 => Limit {
            read: Rate::iops(100),
            ..Limit::NONE
        },
        8 => Limit {
            write: Rate::bytes(9_000_000),
            ..Limit::NONE
        },
        9 => total(normalised(2000, 4096)),
        10 => Limit {
            burst: Some(Burst {
                total: Rate::iops(900),
                read: Rate::NONE,
                write: Rate::NONE,
                length: Nanos::from_millis(20),
            }),
            ..total(Rate::iops(90))
        },
        12 => total(Rate::iops(1_000_000_000)),
        14 => total(Rate::iops(700)),
        _ => Limit::NONE,
    }
}

fn target(n: u8) -> Rate {
    match n {
        16 => Rate::bytes(4_000_000),
        17 => both(),
        18 => normalised(900, 16_384),
        _ => Rate::NONE,
    }
}

fn weight(n: u8) -> u32 {
    match n {
        0 => 1,
        1 => 10_000,
        10 => 7,
        11 | 18 => 3,
        _ => Objective::default().weight,
    }
}

fn latency(n: u8) -> Option<Nanos> {
    match n {
        13 => Some(Nanos::from_millis(2)),
        14 => Some(Nanos::from_millis(60)),
        _ => None,
    }
}
