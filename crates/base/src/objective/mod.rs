//! Objective of a VM (everything that it is promised) as plain data, and its validation.

mod group;

pub use group::{Group, GroupName};
pub use tidegate_units::{OpsRate, Rate};

use crate::expected_workload::{Envelope, ExpectedWorkload, THOUSAND};
use crate::time::Nanos;
use core::fmt;

/// Maximum of a rate of requests that count by size, in bytes per second: beyond it pacing would
/// not fit 64 bits.
const NORMALISED_BYTES_PER_S_MAX: u128 = 1 << 60;
/// Shortest and longest burst.
const BURST_LENGTH_MIN: Nanos = Nanos::from_millis(1);
const BURST_LENGTH_MAX: Nanos = Nanos::from_secs(3600);

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
        Some(OpsRate {
            per_s,
            norm: Some(norm),
        }) if per_s as u128 * norm as u128 > NORMALISED_BYTES_PER_S_MAX => {
            Err(ObjectiveError::NormalisedRateTooHigh { what, per_s, norm })
        }
        _ => Ok(()),
    }
}

/// Returns the first figure (requests, then bytes) in which `rate` is above `other`, with both
/// values as text.
fn first_excess(rate: &Rate, other: &Rate) -> Option<(String, String)> {
    if let (Some(a), Some(b)) = (rate.ops, other.ops) {
        // Rates with different normalisation sizes compare at the larger of both sizes.
        let len = a.norm.unwrap_or(0).max(b.norm.unwrap_or(0));
        if requests_per_1000_s(a, len) > requests_per_1000_s(b, len) {
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

/// Returns the number of requests of `len` bytes that `rate` lets through in 1000 s.
fn requests_per_1000_s(rate: OpsRate, len: u32) -> u128 {
    // Without a normalisation size each request counts as one, whatever its length.
    let norm = rate.norm.unwrap_or(len.max(1)) as u128;
    // 1000 s, so that the division loses less than a thousandth of a request per second.
    rate.per_s as u128 * 1000 * norm / norm.max(len as u128)
}

/// Maximum rates: in total, and of reads and writes separately.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Limit {
    /// Maximum rate of reads and writes together.
    pub total: Rate,
    /// Maximum rate of reads.
    pub read: Rate,
    /// Maximum rate of everything that changes the disk.
    pub write: Rate,
    /// Burst that is allowed after idle time; `None`: requests are strictly paced.
    pub burst: Option<Burst>,
}

impl Limit {
    /// No limit.
    pub const NONE: Limit = Limit {
        total: Rate::NONE,
        read: Rate::NONE,
        write: Rate::NONE,
        burst: None,
    };

    /// Limits reads and writes together, without bursts.
    pub const fn of_all(rate: Rate) -> Limit {
        Limit {
            total: rate,
            ..Limit::NONE
        }
    }

    /// Returns true if no rate is limited.
    pub const fn is_none(&self) -> bool {
        self.total.is_none() && self.read.is_none() && self.write.is_none()
    }
}

/// Burst as in QEMU's throttling: after idle time a VM may run at the burst rates for `length`, and
/// then falls back to its limit. Credit for the next burst grows at the limit's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Burst {
    /// Rates of reads and writes together during a burst (QEMU's `bps_max`, `iops_max`).
    pub total: Rate,
    /// Rates of reads during a burst (QEMU's `bps_rd_max`, `iops_rd_max`).
    pub read: Rate,
    /// Rates of writes during a burst (QEMU's `bps_wr_max`, `iops_wr_max`).
    pub write: Rate,
    /// Maximum duration of a burst (QEMU's `*_max_length`), 1 ms to 1 hour.
    pub length: Nanos,
}

/// Everything that a VM is promised. Every part is optional; the default is an equal share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Objective {
    /// Minimum rate while the VM has requests.
    pub reservation: Rate,
    /// Maximum rate.
    pub limit: Limit,
    /// Rate to be held precisely: minimum and maximum at once.
    pub target: Rate,
    /// Share of the throughput that reservations leave, relative to other VMs' weights: 1 to
    /// 10,000.
    pub weight: u32,
    /// Group that shares one weight; the VM's own weight then applies within the group.
    pub group: Option<Group>,
    /// Bound on the time from a request's arrival to its reply.
    pub latency: Option<Nanos>,
    /// I/O priority class, for policies that have classes.
    pub priority: Priority,
    /// Expected requests of the VM: plans are made for them, and a latency bound holds inside their
    /// envelope.
    pub expects: ExpectedWorkload,
}

/// I/O priority class, as in Linux's `ionice`. The smallest value goes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Priority {
    /// Served before all other classes while it has requests. Linux's eight levels of this class
    /// are one level here.
    RealTime,
    /// Shares by level, 0 (largest share) to 7 (smallest).
    BestEffort(u8),
    /// Served only if no other class has requests.
    Idle,
}

impl Priority {
    /// Class of a VM that sets none; the default of a Linux process, too.
    pub const DEFAULT: Priority = Priority::BestEffort(4);
    /// Lowest best-effort level.
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

    /// Parses `realtime`, `best-effort`, `best-effort 0` to `best-effort 7`, or `idle`.
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
    /// Weight of a VM without one.
    pub const DEFAULT_WEIGHT: u32 = 100;
    /// Largest weight.
    pub const MAX_WEIGHT: u32 = 10_000;

    /// Returns the rate and burst of the requests that the latency bound covers.
    ///
    /// The rate is the expected IOPS, else the target, else the reservation. Returns `None` without
    /// a bound, or without any of these rates: then the bound is best effort.
    pub fn envelope(&self) -> Option<Envelope> {
        // Only a latency bound needs an envelope.
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

    /// Checks the range of each part, and the parts against each other.
    ///
    /// # Errors
    /// The first part that is out of range, or the first two parts that contradict each other, with
    /// their values.
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
        // A minimum above a maximum could never be kept.
        check_not_above("reservation", &self.reservation, "limit", &self.limit.total)?;
        check_not_above("target", &self.target, "limit", &self.limit.total)?;
        check_not_above("reservation", &self.reservation, "target", &self.target)?;
        check_not_above("limit.read", &self.limit.read, "limit", &self.limit.total)?;
        check_not_above("limit.write", &self.limit.write, "limit", &self.limit.total)?;
        if let Priority::BestEffort(value) = self.priority
            && value > Priority::LEVEL_MAX
        {
            return Err(ObjectiveError::PriorityOutOfRange { value });
        }
        validate_expected_workload(&self.expects)?;
        self.limit.validate_burst()
    }
}

/// Checks that the fields of an expected workload are in their range.
fn validate_expected_workload(expects: &ExpectedWorkload) -> Result<(), ObjectiveError> {
    let share = (0, u64::from(THOUSAND));
    let burst_max = ExpectedWorkload::BURST_MAX.into();
    let fields = [
        ("expects.reads", expects.reads.map(u64::from), share),
        ("expects.access", expects.sequential.map(u64::from), share),
        (
            "expects.size",
            expects.size.map(u64::from),
            (1, u32::MAX.into()),
        ),
        ("expects.iops", expects.iops, (1, Rate::MAX)),
        (
            "expects.burst",
            expects.burst.map(u64::from),
            (1, burst_max),
        ),
    ];
    for (what, value, (min, max)) in fields {
        if let Some(value) = value.filter(|value| !(min..=max).contains(value)) {
            return Err(ObjectiveError::ExpectsOutOfRange {
                what,
                value,
                min,
                max,
            });
        }
    }
    Ok(())
}

impl Limit {
    fn validate_burst(&self) -> Result<(), ObjectiveError> {
        let Some(burst) = &self.burst else {
            return Ok(());
        };
        if !(BURST_LENGTH_MIN..=BURST_LENGTH_MAX).contains(&burst.length) {
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
            // A burst adds to a limit; without one there is nothing to exceed.
            let bytes_unlimited = rate.bytes_per_s.is_some() && limit.bytes_per_s.is_none();
            if bytes_unlimited || (rate.ops.is_some() && limit.ops.is_none()) {
                return Err(ObjectiveError::BurstWithoutLimit {
                    burst: high,
                    limit: low,
                });
            }
            check_not_above(low, limit, high, rate)?;
        }
        Ok(())
    }
}

/// Checks that the rate of the part `low` is not above that of the part `high`.
fn check_not_above(
    low: &'static str,
    low_rate: &Rate,
    high: &'static str,
    high_rate: &Rate,
) -> Result<(), ObjectiveError> {
    match first_excess(low_rate, high_rate) {
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
            expects: ExpectedWorkload::NOTHING,
        }
    }
}

/// Reason why an objective is not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ObjectiveError {
    /// Two parts contradict each other: the one that must be smaller is larger.
    #[error("{low} ({low_value}) is above {high} ({high_value}): lower the one or raise the other")]
    Contradiction {
        /// Name of the part that must be smaller.
        low: &'static str,
        /// Value of that part.
        low_value: String,
        /// Name of the part that must be larger.
        high: &'static str,
        /// Value of that part.
        high_value: String,
    },
    /// A rate is 0 or above [`Rate::MAX`].
    #[error("{what}: a rate of {value} a second; allowed is 1 to 2^50")]
    RateOutOfRange {
        /// Name of the part.
        what: &'static str,
        /// Rate per second that was given.
        value: u64,
    },
    /// A rate of requests times their normalisation size is above 2^60 bytes per second.
    #[error("{what}: {per_s} requests of {norm} bytes a second exceed 2^60 bytes a second")]
    NormalisedRateTooHigh {
        /// Name of the part.
        what: &'static str,
        /// Requests per second that were given.
        per_s: u64,
        /// Normalisation size in bytes.
        norm: u32,
    },
    /// A normalisation size is 0.
    #[error("{what}: a normalisation size of zero; name a size such as 4 KiB")]
    ZeroNorm {
        /// Name of the part.
        what: &'static str,
    },
    /// The VM's weight is out of range.
    #[error("weight {value}: allowed is 1 to 10000")]
    WeightOutOfRange {
        /// Weight that was given.
        value: u32,
    },
    /// The group's weight is out of range.
    #[error("weight {value} of a group: allowed is 1 to 10000")]
    GroupWeightOutOfRange {
        /// Weight that was given.
        value: u32,
    },
    /// The latency bound is 0.
    #[error("latency 0: allowed is above 0; leave it out or set a bound such as 10 ms")]
    ZeroLatency,
    /// The best-effort level is out of range.
    #[error("priority best-effort {value}: allowed is 0 to 7")]
    PriorityOutOfRange {
        /// Level that was given.
        value: u8,
    },
    /// A field of the expected workload is out of range.
    #[error("{what} {value}: allowed is {min} to {max}")]
    ExpectsOutOfRange {
        /// Name of the field.
        what: &'static str,
        /// Value that was given; shares in thousandths.
        value: u64,
        /// Smallest allowed value.
        min: u64,
        /// Largest allowed value.
        max: u64,
    },
    /// The burst length is out of range.
    #[error("limit.burst.length {value}: allowed is 1 ms to 1 hour")]
    BurstLength {
        /// Length that was given.
        value: Nanos,
    },
    /// A burst rate has no limit that it could exceed.
    #[error("{burst} names a rate that {limit} does not limit: add it to {limit} or leave it out")]
    BurstWithoutLimit {
        /// Name of the burst rate.
        burst: &'static str,
        /// Name of the limit that is missing.
        limit: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_the_expected_iops_or_else_the_target_or_reservation() {
        let mut objective = Objective {
            reservation: Rate::iops(100),
            ..Objective::default()
        };
        let rate_and_burst = |objective: &Objective| {
            let envelope = objective.envelope();
            envelope.map(|envelope| (envelope.rate, envelope.burst))
        };
        assert_eq!(rate_and_burst(&objective), None, "there is no bound");
        objective.latency = Some(Nanos::from_millis(5));
        assert_eq!(rate_and_burst(&objective), Some((Rate::iops(100), 1)));
        objective.target = Rate::bytes(1 << 20);
        assert_eq!(rate_and_burst(&objective), Some((Rate::bytes(1 << 20), 1)));
        (objective.expects.iops, objective.expects.burst) = (Some(30), Some(4));
        assert_eq!(rate_and_burst(&objective), Some((Rate::iops(30), 4)));
        let without = Objective {
            latency: objective.latency,
            ..Objective::default()
        };
        assert_eq!(rate_and_burst(&without), None, "best effort");
    }

    #[test]
    fn a_reservation_above_the_limit_is_refused_with_both_values() {
        let objective = Objective {
            reservation: Rate::iops(500),
            limit: Limit::of_all(Rate::iops(400)),
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
        assert_eq!(first_excess(&rate(100, Some(65536)), &fine), None);
        assert!(first_excess(&rate(101, Some(65536)), &fine).is_some());
        assert!(first_excess(&rate(500, None), &rate(400, Some(4096))).is_some());
    }

    #[test]
    fn a_normalised_rate_above_2_60_names_rate_and_size() {
        let with_norm = |norm| Objective {
            target: Rate {
                ops: Some(OpsRate {
                    per_s: 1 << 40,
                    norm: Some(norm),
                }),
                bytes_per_s: None,
            },
            ..Objective::default()
        };
        assert_eq!(with_norm(1 << 20).validate(), Ok(()));
        assert_eq!(
            with_norm(1 << 21).validate().unwrap_err().to_string(),
            "target: 1099511627776 requests of 2097152 bytes a second exceed 2^60 bytes a second"
        );
    }

    #[test]
    fn an_expected_workload_out_of_range_is_refused() {
        let with = |expects| Objective {
            expects,
            ..Objective::default()
        };
        let good = ExpectedWorkload {
            reads: Some(1000),
            sequential: Some(0),
            size: Some(1),
            iops: Some(Rate::MAX),
            burst: Some(ExpectedWorkload::BURST_MAX),
        };
        assert_eq!(with(good).validate(), Ok(()));
        let mut wrong = [good; 5];
        wrong[0].reads = Some(1001);
        wrong[1].sequential = Some(1001);
        wrong[2].size = Some(0);
        wrong[3].iops = Some(0);
        wrong[4].burst = Some(65_537);
        let names = ["reads", "access", "size", "iops", "burst"];
        for (expects, name) in wrong.into_iter().zip(names) {
            let error = with(expects).validate().unwrap_err().to_string();
            assert!(error.starts_with(&format!("expects.{name} ")), "{error}");
        }
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
