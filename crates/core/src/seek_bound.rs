//! Test for a device whose I/O time is mostly seek time, as on a hard disk.

use tidegate_base::device::DeviceSpec;
use tidegate_base::time::Nanos;
use tidegate_capacity::estimator::{CostEstimator, LearntCost};
use tidegate_capacity::profile::{Access, Direction, Pattern, Profile};

/// Ratio of the times of random and of sequential reads of 4 KiB from which seeks dominate, and the
/// least random time in picoseconds (1 ms).
const SEEK_TIME_RATIO_MIN: u64 = 8;
const RANDOM_TIME_MIN_PS: u64 = 1_000_000_000;

/// Returns `true` if the time of an I/O is mostly its seek: by the profile, else by the device's
/// specification.
pub(crate) fn seeks_dominate(spec: &DeviceSpec, profile: Option<&Profile>) -> bool {
    let Some(profile) = profile else {
        return spec.positioning > Nanos::ZERO;
    };
    let time = |access| profile.time_ps(Direction::Read, access, 4096);
    let (random, sequential) = (time(Access::Random), time(Access::Sequential));
    random >= RANDOM_TIME_MIN_PS && random >= SEEK_TIME_RATIO_MIN * sequential
}

/// Returns `true` if the time of an I/O is mostly its seek, by learnt costs; `None`: they are too
/// uncertain.
pub(crate) fn seeks_dominate_by_learnt_costs(estimator: &CostEstimator) -> Option<bool> {
    let time = |sequential: f64| {
        let cost = estimator.cost(&Pattern {
            reads: 1.0,
            sequential_reads: sequential,
            sequential_writes: 0.0,
            size: 4096.0,
        });
        // A less certain cost could flip the answer from one window to the next.
        (cost.relative_half_width <= LearntCost::JUDGED_WITHIN).then_some(cost.time_ps as u64)
    };
    let random = time(0.0)?;
    // Sequential costs need not be known where random I/O is fast.
    if random >= RANDOM_TIME_MIN_PS {
        Some(random >= SEEK_TIME_RATIO_MIN.saturating_mul(time(1.0)?))
    } else {
        Some(false)
    }
}
