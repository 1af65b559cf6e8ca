//! What operations choose from.

use crate::policy::PolicySpec;
use tidegate_base::objective::{Burst, Limit, Objective, OpsRate, Rate};
use tidegate_base::time::Nanos;

/// Every policy of the registry and every composition, and some with other parameters.
pub(super) fn policy(n: u8) -> PolicySpec {
    let all = PolicySpec::all();
    let mut spec = all[n as usize % all.len()].clone();
    if n >= 128 {
        // Refused where the composition has no such parameter.
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

/// Objectives of every kind: floors, caps, both, targets, weights, bursts, latencies, none.
pub(super) fn objective(n: u8) -> Objective {
    let none = Objective::default();
    let total = |total| Limit {
        total,
        ..Limit::NONE
    };
    let normalised = |per_s, norm| Rate {
        ops: Some(OpsRate {
            per_s,
            norm: Some(norm),
        }),
        bytes_per_s: None,
    };
    let both = Rate {
        bytes_per_s: Some(20_000_000),
        ..Rate::iops(300)
    };
    let burst = |rate| {
        Some(Burst {
            total: rate,
            read: Rate::NONE,
            write: Rate::NONE,
            length: Nanos::from_millis(20),
        })
    };
    match n % 19 {
        0 => Objective { weight: 1, ..none },
        1 => Objective {
            weight: 10_000,
            ..none
        },
        2 => Objective {
            limit: total(Rate::iops(1000)),
            ..none
        },
        3 => Objective {
            limit: total(Rate::bytes(50_000_000)),
            ..none
        },
        4 => Objective {
            reservation: Rate::iops(200),
            ..none
        },
        5 => Objective {
            reservation: Rate::iops(500),
            limit: total(Rate::iops(500)),
            ..none
        },
        6 => Objective {
            reservation: Rate::bytes(5_000_000),
            limit: total(both),
            ..none
        },
        7 => Objective {
            limit: Limit {
                read: Rate::iops(100),
                ..Limit::NONE
            },
            ..none
        },
        8 => Objective {
            limit: Limit {
                write: Rate::bytes(9_000_000),
                ..Limit::NONE
            },
            ..none
        },
        9 => Objective {
            limit: total(normalised(2000, 4096)),
            ..none
        },
        10 => {
            let limit = Limit {
                burst: burst(Rate::iops(900)),
                ..total(Rate::iops(90))
            };
            Objective {
                limit,
                weight: 7,
                ..none
            }
        }
        11 => Objective {
            reservation: both,
            weight: 3,
            ..none
        },
        12 => Objective {
            limit: total(Rate::iops(1_000_000_000)),
            ..none
        },
        13 => Objective {
            latency: Some(Nanos::from_millis(2)),
            ..none
        },
        14 => Objective {
            latency: Some(Nanos::from_millis(60)),
            limit: total(Rate::iops(700)),
            ..none
        },
        16 => Objective {
            target: Rate::bytes(4_000_000),
            ..none
        },
        17 => Objective {
            target: both,
            limit: total(both),
            ..none
        },
        18 => Objective {
            target: normalised(900, 16384),
            weight: 3,
            ..none
        },
        _ => none,
    }
}
