//! Objectives of a torture run.

use super::super::TortureRng;
use tidegate_core::expected_workload::ExpectedWorkload;
use tidegate_core::objective::{Burst, Limit, Objective, OpsRate, Priority, Rate};
use tidegate_core::time::Nanos;

/// Stream of the envelopes' generator; those of the components are small numbers.
const ENVELOPE_STREAM: u64 = 1 << 32;

/// Parts of objectives that a run uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Promises {
    pub(super) limits: bool,
    pub(super) bursts: bool,
    pub(super) reservations: bool,
    pub(super) weights: bool,
    pub(super) priorities: bool,
    /// `true` if some of the VMs are processes of the host.
    pub(super) background: bool,
    /// Approximate IOPS of the device.
    pub(super) iops: u64,
}

impl Promises {
    /// Draws an objective with these parts.
    pub(super) fn objective(&self, rng: &mut TortureRng) -> Objective {
        let mut objective = Objective::default();
        // Most objectives are valid; a few attempts avoid a loop without end.
        for _ in 0..8 {
            objective = Objective::default();
            if self.weights && rng.chance(700) {
                objective.weight = rng.octaves(1, Objective::MAX_WEIGHT.into()) as u32;
            }
            if self.reservations && rng.chance(500) {
                // A quarter: several VMs may have one, and the device keeps none if they are far
                // beyond it.
                objective.reservation = rate(rng, self.iops / 4 + 1);
            }
            if self.limits && rng.chance(600) {
                objective.limit = limit(rng, self.iops, self.bursts);
            }
            if self.priorities && rng.chance(500) {
                objective.priority = match rng.below(6) {
                    0 => Priority::RealTime,
                    1 => Priority::Idle,
                    _ => Priority::BestEffort(rng.below(8) as u8),
                };
            }
            if rng.chance(100) {
                objective.target = rate(rng, self.iops);
            }
            if rng.chance(150) {
                let bound = rng.octaves(100_000, 1_000_000_000);
                objective.latency = Some(Nanos(bound));
                objective.expects = self.envelope(bound);
            }
            if objective.validate().is_ok() {
                return objective;
            }
        }
        // The parts contradicted each other every time: only the weight is kept.
        Objective {
            weight: objective.weight,
            ..Objective::default()
        }
    }
}

impl Promises {
    /// Draws the envelope of a latency bound, by a generator of its own: the other draws of a seed
    /// stay what they were.
    fn envelope(&self, bound: u64) -> ExpectedWorkload {
        let mut rng = TortureRng::new(bound, ENVELOPE_STREAM);
        let is_given = rng.chance(600);
        ExpectedWorkload {
            iops: (is_given && rng.chance(800)).then(|| rng.octaves(1, self.iops.max(1))),
            burst: (is_given && rng.chance(600)).then(|| rng.octaves(1, 64) as u32),
            ..ExpectedWorkload::NOTHING
        }
    }

    /// Draws a limit of a disk, or of several.
    pub(super) fn disk_limit(&self, rng: &mut TortureRng) -> Limit {
        let is_valid = |limit: &Limit| {
            let objective = Objective {
                limit: *limit,
                ..Objective::default()
            };
            !limit.is_none() && objective.validate().is_ok()
        };
        // Most limits are valid; a few attempts avoid a loop without end.
        let drawn = (0..8).find_map(|_| Some(limit(rng, self.iops, self.bursts)).filter(is_valid));
        drawn.unwrap_or(Limit::of_all(Rate::iops(self.iops)))
    }
}

fn rate(rng: &mut TortureRng, iops: u64) -> Rate {
    let ops = rng.chance(650).then(|| OpsRate {
        per_s: rng.octaves((iops / 64).max(1), iops.max(1)),
        norm: rng.chance(300).then(|| rng.octaves(512, 64 << 10) as u32),
    });
    let by_bytes = ops.is_none() || rng.chance(250);
    Rate {
        ops,
        // Requests of 64 B to 16 KiB at that rate: below and above what the device does.
        bytes_per_s: by_bytes.then(|| rng.octaves(iops.max(1) * 64, iops.max(1) * 16_384)),
    }
}

fn limit(rng: &mut TortureRng, iops: u64, bursts: bool) -> Limit {
    let scope = |rng: &mut TortureRng, often| {
        if rng.chance(often) {
            rate(rng, iops)
        } else {
            Rate::NONE
        }
    };
    let mut limit = Limit {
        total: scope(rng, 600),
        read: scope(rng, 250),
        write: scope(rng, 250),
        burst: None,
    };
    if bursts && rng.chance(600) {
        let mut faster = |rate: &Rate| Rate {
            ops: rate.ops.filter(|_| rng.chance(700)).map(|ops| OpsRate {
                per_s: ops.per_s * rng.octaves(1, 16),
                norm: ops.norm,
            }),
            bytes_per_s: rate
                .bytes_per_s
                .filter(|_| rng.chance(700))
                .map(|bytes| bytes * rng.octaves(1, 16)),
        };
        let [total, read, write] = [&limit.total, &limit.read, &limit.write].map(&mut faster);
        limit.burst = Some(Burst {
            total,
            read,
            write,
            length: Nanos(rng.octaves(1_000_000, 2_000_000_000)),
        });
    }
    limit
}
