//! What a VM was promised, as plain data, validated together.

mod group;

pub use group::{Group, GroupName};
pub use tidegate_units::{OpsRate, Rate};

use crate::expect::{Envelope, Expects};
use crate::time::Nanos;
use core::fmt;

/// Checks that both figures of a rate are in their range.
fn validate_rate(rate: &Rate, what: &'static str) -> Result<(), ObjectiveError> {
    for value in [rate.ops.map(|o| o.per_s), rate.bytes_per_s]
        .into_iter()
        .flatten()
    {
        if value == 0 || value > Rate::MAX {
            return Err(ObjectiveError::RateOutOfRange { what, value });
        }
    }
    match rate.ops {
        Some(OpsRate { norm: Some(0), .. }) => Err(ObjectiveError::ZeroNorm { what }),
        // Both together are bytes a second; beyond 2^60 pacing would not fit 64 bits.
        Some(OpsRate {
            per_s,
            norm: Some(norm),
        }) if per_s as u128 * norm as u128 > 1 << 60 => {
            Err(ObjectiveError::RateOutOfRange { what, value: per_s })
        }
        _ => Ok(()),
    }
}

/// Returns the first dimension in which `rate` asks for more than `other` allows: both figures.
fn above(rate: &Rate, other: &Rate) -> Option<(String, String)> {
    if let (Some(a), Some(b)) = (rate.ops, other.ops) {
        // Rates of different normalisation compare at the size of the coarser one.
        let at = a.norm.unwrap_or(0).max(b.norm.unwrap_or(0));
        if requests_per_1000_s(a, at) > requests_per_1000_s(b, at) {
            return Some((a.to_string(), b.to_string()));
        }
    }
    match (rate.bytes_per_s, other.bytes_per_s) {
        (Some(a), Some(b)) if a > b => {
            Some((Rate::bytes(a).to_string(), Rate::bytes(b).to_string()))
        }
        _ => None,
    }
}

/// Returns the number of requests of `len` bytes that fit a thousand seconds.
fn requests_per_1000_s(rate: OpsRate, len: u32) -> u128 {
    let norm = rate.norm.unwrap_or(len.max(1)) as u128;
    rate.per_s as u128 * 1000 * norm / norm.max(len as u128)
}

/// A cap: in all, and for reads and writes apart.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Limit {
    /// Reads and writes together.
    pub total: Rate,
    /// Reads alone.
    pub read: Rate,
    /// Everything that changes the disk alone.
    pub write: Rate,
    /// What may pass at once after a quiet time. `None`: strictly paced.
    pub burst: Option<Burst>,
}

impl Limit {
    /// No cap.
    pub const NONE: Limit = Limit {
        total: Rate::NONE,
        read: Rate::NONE,
        write: Rate::NONE,
        burst: None,
    };

    /// True when nothing is capped.
    pub const fn is_none(&self) -> bool {
        self.total.is_none() && self.read.is_none() && self.write.is_none()
    }
}

/// A burst as QEMU's throttling has it: after a quiet time a VM may run at `rates` for
/// `length`, then falls back to its limit; credit for it grows at the limit's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Burst {
    /// The rates while bursting (`bps_max`, `iops_max` and their `_rd`, `_wr` forms), in all.
    pub total: Rate,
    /// For reads.
    pub read: Rate,
    /// For writes.
    pub write: Rate,
    /// How long the burst rates may last (`*_max_length`), 1 ms to 1 hour.
    pub length: Nanos,
}

/// What a VM was promised. Every part is optional; the default promises an equal share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Objective {
    /// A floor: what the VM gets when it asks.
    pub reservation: Rate,
    /// A cap.
    pub limit: Limit,
    /// To be held precisely: floor and cap in one.
    pub target: Rate,
    /// Share of what reservations leave, relative to the other VMs' weights: 1 to 10,000.
    pub weight: u32,
    /// The group that it shares a weight with; its own then counts within that.
    pub group: Option<Group>,
    /// Bound on a request's time from arrival to answer.
    pub latency: Option<Nanos>,
    /// Its class, for schedulers that know such.
    pub priority: Priority,
    /// Expected requests of the VM: plans are made for them, and a latency bound holds inside their
    /// envelope.
    pub expects: Expects,
}

/// A class of I/O priority, as Linux's `ionice` has them: the least goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Priority {
    /// Before everything else, for as long as it asks. Linux's eight levels within it are one
    /// here.
    RealTime,
    /// A share by level: 0 has the largest, 7 the smallest.
    BestEffort(u8),
    /// When nobody else asks.
    Idle,
}

impl Priority {
    /// What a VM has that names none, and a process under Linux.
    pub const DEFAULT: Priority = Priority::BestEffort(4);
    /// The lowest level of best effort.
    pub const LEVEL_MAX: u8 = 7;
}

impl Default for Priority {
    fn default() -> Self {
        Priority::DEFAULT
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Priority::RealTime => f.write_str("realtime"),
            Priority::BestEffort(level) => write!(f, "best-effort {level}"),
            Priority::Idle => f.write_str("idle"),
        }
    }
}

impl core::str::FromStr for Priority {
    type Err = ();

    /// `realtime`, `best-effort`, `best-effort 0` to `best-effort 7`, `idle`.
    fn from_str(text: &str) -> Result<Priority, ()> {
        match text {
            "realtime" => return Ok(Priority::RealTime),
            "idle" => return Ok(Priority::Idle),
            "best-effort" => return Ok(Priority::DEFAULT),
            _ => {}
        }
        let level = text.strip_prefix("best-effort ").ok_or(())?;
        match level.parse() {
            Ok(level @ 0..=Priority::LEVEL_MAX) => Ok(Priority::BestEffort(level)),
            _ => Err(()),
        }
    }
}

impl Objective {
    /// The weight of a VM that names none.
    pub const DEFAULT_WEIGHT: u32 = 100;
    /// The largest weight.
    pub const MAX_WEIGHT: u32 = 10_000;

    /// Returns the rate and burst inside which requests are answered within the latency bound: the
    /// expected IOPS, or else the target, or else the reservation. `None`: no bound, or no rate; a
    /// bound without a rate is best effort.
    pub fn envelope(&self) -> Option<Envelope> {
        self.latency?;
        let rates = [self.target, self.reservation];
        let rate = match self.expects.iops {
            Some(iops) => Rate::iops(iops),
            None => rates.into_iter().find(|rate| !rate.is_none())?,
        };
        Some(Envelope {
            rate,
            burst: self.expects.burst.unwrap_or(1),
        })
    }

    /// Checks the parts against each other.
    ///
    /// # Errors
    /// Names the parts that contradict each other, with both values.
    pub fn validate(&self) -> Result<(), ObjectiveError> {
        validate_rate(&self.reservation, "reservation")?;
        validate_rate(&self.target, "target")?;
        validate_rate(&self.limit.total, "limit")?;
        validate_rate(&self.limit.read, "limit.read")?;
        validate_rate(&self.limit.write, "limit.write")?;
        if !(1..=Self::MAX_WEIGHT).contains(&self.weight) {
            return Err(ObjectiveError::WeightOutOfRange { value: self.weight });
        }
        if let Some(Group { weight, .. }) = self.group
            && !(1..=Self::MAX_WEIGHT).contains(&weight)
        {
            return Err(ObjectiveError::GroupWeightOutOfRange { value: weight });
        }
        if self.latency == Some(Nanos::ZERO) {
            return Err(ObjectiveError::ZeroLatency);
        }
        below("reservation", &self.reservation, "limit", &self.limit.total)?;
        below("target", &self.target, "limit", &self.limit.total)?;
        below("reservation", &self.reservation, "target", &self.target)?;
        below("limit.read", &self.limit.read, "limit", &self.limit.total)?;
        below("limit.write", &self.limit.write, "limit", &self.limit.total)?;
        if let Priority::BestEffort(value @ 8..) = self.priority {
            return Err(ObjectiveError::PriorityOutOfRange { value });
        }
        self.limit.validate_burst()
    }
}

impl Limit {
    fn validate_burst(&self) -> Result<(), ObjectiveError> {
        let Some(burst) = &self.burst else {
            return Ok(());
        };
        if burst.length < Nanos::from_millis(1) || burst.length > Nanos::from_secs(3600) {
            return Err(ObjectiveError::BurstLength {
                value: burst.length,
            });
        }
        let pairs = [
            ("limit", &self.total, "limit.burst", &burst.total),
            ("limit.read", &self.read, "limit.burst.read", &burst.read),
            (
                "limit.write",
                &self.write,
                "limit.burst.write",
                &burst.write,
            ),
        ];
        for (low, limit, high, rate) in pairs {
            validate_rate(rate, high)?;
            let bytes_alone = rate.bytes_per_s.is_some() && limit.bytes_per_s.is_none();
            if bytes_alone || (rate.ops.is_some() && limit.ops.is_none()) {
                return Err(ObjectiveError::BurstWithoutLimit {
                    burst: high,
                    limit: low,
                });
            }
            below(low, limit, high, rate)?;
        }
        Ok(())
    }
}

fn below(low: &'static str, a: &Rate, high: &'static str, b: &Rate) -> Result<(), ObjectiveError> {
    match above(a, b) {
        Some((low_value, high_value)) => Err(ObjectiveError::Contradiction {
            low,
            low_value,
            high,
            high_value,
        }),
        None => Ok(()),
    }
}

impl Default for Objective {
    fn default() -> Self {
        Objective {
            reservation: Rate::NONE,
            limit: Limit::NONE,
            target: Rate::NONE,
            weight: Self::DEFAULT_WEIGHT,
            group: None,
            latency: None,
            priority: Priority::DEFAULT,
            expects: Expects::NOTHING,
        }
    }
}

/// Why an objective cannot be promised.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ObjectiveError {
    /// Two parts contradict each other.
    #[error("{low} ({low_value}) is above {high} ({high_value}): lower the one or raise the other")]
    Contradiction {
        /// The part that must be the smaller.
        low: &'static str,
        /// Its value.
        low_value: String,
        /// The part that must be the larger.
        high: &'static str,
        /// Its value.
        high_value: String,
    },
    /// A rate of zero, or an absurd one.
    #[error("{what}: a rate of {value} a second; allowed is 1 to 2^50")]
    RateOutOfRange {
        /// The part.
        what: &'static str,
        /// What it says.
        value: u64,
    },
    /// A normalisation size of zero.
    #[error("{what}: a normalisation size of zero; name a size such as 4 KiB")]
    ZeroNorm {
        /// The part.
        what: &'static str,
    },
    /// A weight outside its range.
    #[error("weight {value}: allowed is 1 to 10000")]
    WeightOutOfRange {
        /// What it says.
        value: u32,
    },
    /// A group's weight outside its range.
    #[error("weight {value} of a group: allowed is 1 to 10000")]
    GroupWeightOutOfRange {
        /// What it says.
        value: u32,
    },
    /// A latency of zero.
    #[error("latency 0: no device answers in no time; leave it out or name a bound such as 10 ms")]
    ZeroLatency,
    /// A level of best effort outside its range.
    #[error("priority best-effort {value}: allowed is 0 to 7")]
    PriorityOutOfRange {
        /// What it says.
        value: u8,
    },
    /// A burst length out of range.
    #[error("limit.burst.length {value}: allowed is 1 ms to 1 hour")]
    BurstLength {
        /// What it says.
        value: Nanos,
    },
    /// A burst rate whose limit is missing.
    #[error("{burst} names a rate that {limit} does not limit: add it to {limit} or leave it out")]
    BurstWithoutLimit {
        /// The burst.
        burst: &'static str,
        /// The limit it belongs to.
        limit: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_what_is_expected_or_else_the_floor() {
        let mut objective = Objective {
            reservation: Rate::iops(100),
            ..Objective::default()
        };
        let of = |objective: &Objective| objective.envelope().map(|it| (it.rate, it.burst));
        assert_eq!(of(&objective), None, "there is no bound");
        objective.latency = Some(Nanos::from_millis(5));
        assert_eq!(of(&objective), Some((Rate::iops(100), 1)));
        objective.target = Rate::bytes(1 << 20);
        assert_eq!(of(&objective), Some((Rate::bytes(1 << 20), 1)));
        (objective.expects.iops, objective.expects.burst) = (Some(30), Some(4));
        assert_eq!(of(&objective), Some((Rate::iops(30), 4)));
        let without = Objective {
            latency: objective.latency,
            ..Objective::default()
        };
        assert_eq!(of(&without), None, "best effort");
    }

    #[test]
    fn a_reservation_above_the_limit_is_refused_with_both_values() {
        let objective = Objective {
            reservation: Rate::iops(500),
            limit: Limit {
                total: Rate::iops(400),
                ..Limit::NONE
            },
            ..Objective::default()
        };
        let error = objective.validate().unwrap_err().to_string();
        assert!(error.contains("reservation (500 IOPS)"), "{error}");
        assert!(error.contains("limit (400 IOPS)"), "{error}");
    }

    #[test]
    fn rates_of_different_normalisation_compare_at_the_coarser_size() {
        let rate = |per_s, norm| Rate {
            ops: Some(OpsRate { per_s, norm }),
            bytes_per_s: None,
        };
        // 100 a second of 64 KiB are 1600 a second of 4 KiB at that size: no contradiction.
        let fine = rate(1600, Some(4096));
        assert_eq!(above(&rate(100, Some(65536)), &fine), None);
        assert!(above(&rate(101, Some(65536)), &fine).is_some());
        assert!(above(&rate(500, None), &rate(400, Some(4096))).is_some());
    }

    #[test]
    fn a_burst_needs_its_limit_and_must_lie_above_it() {
        let burst = |rate| Burst {
            total: rate,
            read: Rate::NONE,
            write: Rate::NONE,
            length: Nanos::SECOND,
        };
        let with = |total, rate| Objective {
            limit: Limit {
                total,
                burst: Some(burst(rate)),
                ..Limit::NONE
            },
            ..Objective::default()
        };
        assert!(with(Rate::iops(100), Rate::iops(1000)).validate().is_ok());
        assert!(matches!(
            with(Rate::iops(100), Rate::iops(50)).validate(),
            Err(ObjectiveError::Contradiction { .. })
        ));
        assert!(matches!(
            with(Rate::iops(100), Rate::bytes(5000)).validate(),
            Err(ObjectiveError::BurstWithoutLimit { .. })
        ));
    }
}
