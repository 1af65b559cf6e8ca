//! Choices of operations: policies and objectives by number.

use tidegate_core::objective::{Burst, Limit, Objective, OpsRate, Rate};
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// Number of sets of parameters that [`parameters`] returns.
const PARAMETER_SETS: u64 = 128;

/// Returns any composition of parts, with one of [`PARAMETER_SETS`] sets of parameters or with its
/// defaults. Every number stands for one, so that no input of the fuzzer is wasted.
pub(super) fn policy(choice: u16) -> PolicySpec {
    let all = PolicySpec::every_composition();
    // The remainder selects the composition, the quotient its parameters.
    let (set, composition) = (
        usize::from(choice) / all.len(),
        usize::from(choice) % all.len(),
    );
    let mut spec = all[composition].clone();
    // Quotients beyond the last set stand for the defaults.
    if (set as u64) < PARAMETER_SETS {
        for (name, value) in parameters(set as u64) {
            // Most compositions have only some of the parameters.
            if spec.params().iter().any(|(info, _)| info.name == name) {
                (spec.set(name, value)).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }
    spec
}

/// Returns values of parameters for a number below [`PARAMETER_SETS`]; times in nanoseconds. Each
/// is within its parameter's range.
fn parameters(step: u64) -> [(&'static str, u64); 24] {
    // Another offset for small ranges, so that they do not follow the same remainders as `step`.
    let n = step + PARAMETER_SETS;
    [
        ("slack", step * 1_000_000),
        ("catch_up", step * 1_000_000),
        ("depth", n % 4),
        ("cost", n % 3),
        // 16 KiB to 143 KiB.
        ("quantum", (n - 112) << 10),
        ("read_expire", step * 10_000),
        ("fifo_batch", 1 + n % 5),
        ("writes_starved", 1 + n % 3),
        ("margin", n % 4 * 1_000_000),
        ("default_latency", step * 100_000),
        ("max_wait", n % 3 * 1_000_000),
        ("bound_waits", n % 2),
        ("deep_queue", n / 2 % 2),
        ("beta", 1 + n % 5),
        ("max_interval", n % 7 * 5),
        ("literal", n / 2 % 2),
        ("pages", n % 3),
        ("fill", n % 3 * 50),
        ("max_ml", 1 + n % 20),
        // 1 ms to 32 ms: for some numbers below the minimum, which the policy must bear.
        ("window_max", 1_000_000 << (n % 6)),
        ("window_min", 4_000_000),
        ("statistical_interval", 1_000_000_000),
        ("profiling", n % 2),
        ("headroom", n / 2 % 3 * 10),
    ]
}

fn total(total: Rate) -> Limit {
    Limit::of_all(total)
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

/// Returns a rate of 300 IOPS and 20 MB/s at once.
fn both() -> Rate {
    Rate {
        bytes_per_s: Some(20_000_000),
        ..Rate::iops(300)
    }
}

/// Returns a limit of 90 IOPS with a burst of ten times that for 20 ms.
fn with_burst() -> Limit {
    Limit {
        burst: Some(Burst {
            total: Rate::iops(900),
            read: Rate::NONE,
            write: Rate::NONE,
            length: Nanos::from_millis(20),
        }),
        ..total(Rate::iops(90))
    }
}

/// Number of objectives that [`objective`] returns.
const OBJECTIVES: u8 = 19;

/// Returns one of [`OBJECTIVES`] objectives: reservations, limits, both, targets, weights, bursts,
/// latencies, none.
pub(super) fn objective(n: u8) -> Objective {
    let none = Objective::default();
    let weight = |weight| Objective { weight, ..none };
    let reservation = |reservation| Objective {
        reservation,
        ..none
    };
    let limit = |limit| Objective { limit, ..none };
    let target = |target| Objective { target, ..none };
    let latency = |ms| Objective {
        latency: Some(Nanos::from_millis(ms)),
        ..none
    };
    match n % OBJECTIVES {
        0 => weight(1),
        1 => weight(Objective::MAX_WEIGHT),
        2 => limit(total(Rate::iops(1000))),
        3 => limit(total(Rate::bytes(50_000_000))),
        4 => reservation(Rate::iops(200)),
        5 => Objective {
            limit: total(Rate::iops(500)),
            ..reservation(Rate::iops(500))
        },
        6 => Objective {
            limit: total(both()),
            ..reservation(Rate::bytes(5_000_000))
        },
        7 => limit(Limit {
            read: Rate::iops(100),
            ..Limit::NONE
        }),
        8 => limit(Limit {
            write: Rate::bytes(9_000_000),
            ..Limit::NONE
        }),
        9 => limit(total(normalised(2000, 4096))),
        10 => Objective {
            limit: with_burst(),
            ..weight(7)
        },
        11 => Objective {
            reservation: both(),
            ..weight(3)
        },
        // Above what any device does: it never holds a request back.
        12 => limit(total(Rate::iops(1_000_000_000))),
        13 => latency(2),
        14 => Objective {
            limit: total(Rate::iops(700)),
            ..latency(60)
        },
        15 => none,
        16 => target(Rate::bytes(4_000_000)),
        17 => Objective {
            limit: total(both()),
            ..target(both())
        },
        _ => Objective {
            weight: 3,
            ..target(normalised(900, 16_384))
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_chosen_parameter_exists() {
        let all = PolicySpec::every_composition();
        for (name, _) in parameters(0) {
            let has = |spec: &PolicySpec| spec.params().iter().any(|(info, _)| info.name == name);
            assert!(all.iter().any(has), "no composition has {name}");
        }
    }

    #[test]
    fn every_composition_is_chosen_with_defaults_and_with_every_set_of_parameters() {
        let compositions = PolicySpec::every_composition();
        let mut by_name: BTreeMap<String, Vec<PolicySpec>> = BTreeMap::new();
        // `policy` panics if a parameter is out of range.
        for spec in (0..=u16::MAX).map(policy) {
            let name = spec.name().to_owned();
            by_name.entry(name).or_default().push(spec);
        }
        assert_eq!(by_name.len(), compositions.len());
        for default in compositions {
            let chosen = &by_name[default.name()];
            assert!(chosen.len() as u64 > PARAMETER_SETS, "{}", default.name());
            assert!(chosen.contains(default), "{}", default.name());
        }
    }

    #[test]
    fn every_objective_is_valid() {
        for n in 0..OBJECTIVES {
            assert_eq!(objective(n).validate(), Ok(()), "{n}");
        }
    }
}
