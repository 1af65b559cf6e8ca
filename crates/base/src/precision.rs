//! Metrics of how precisely a bandwidth is held: error, absolute error and variability.
//!
//! Source: Li et al., "Customizable SLO and Its Near-Precise Enforcement for Storage Bandwidth",
//! ToS 2017, definitions 2.1 to 2.3.
//!
//! A sample is the number of units (mostly bytes) moved in one second of an interval. The metrics
//! are quotients of integers and exact until the last step. Results are in millionths, rounded to
//! the nearest with halves away from zero, so equal samples give equal figures on every machine.
//!
//! ```
//! use tidegate_base::precision;
//!
//! // Four seconds of a VM that is to have 30 MB/s.
//! let seconds = [30_000_000, 33_000_000, 27_000_000, 36_000_000];
//! assert_eq!(precision::error(&seconds, 30_000_000), Some(50_000)); // B: 5 % too much
//! // Two intervals of 2 s: +5 % and +5 %.
//! assert_eq!(precision::absolute_error(&seconds, 30_000_000, 2), Some(50_000));
//! // The mean is 31.5 MB/s; seconds are 3 MB/s off it on average.
//! assert_eq!(precision::variability(&seconds), Some(95_238));
//! ```

/// Default statistical interval of the absolute error (beta), in seconds; section 5 of the paper.
pub const INTERVAL_S: u32 = 30;

/// Millionths in a whole.
pub const MILLION: u64 = 1_000_000;

/// Error B (definition 2.1): mean of the samples minus the target, relative to the target, in
/// millionths.
///
/// Negative below the target. `None` without samples or with a target of 0.
pub fn error(samples: &[u64], target: u64) -> Option<i64> {
    let due = expected_sum(samples.len(), target)?;
    let moved = sum(samples);
    let part = millionths(moved.abs_diff(due), due);
    // Beyond 9 x 10^12 times the target the exact figure does not matter.
    let part = i64::try_from(part).unwrap_or(i64::MAX);
    Some(if moved < due { -part } else { part })
}

/// Absolute error beta (definition 2.2): mean of |B| over all whole intervals of `interval`
/// samples, in millionths.
///
/// `None` without a whole interval or with a target of 0.
pub fn absolute_error(samples: &[u64], target: u64, interval: usize) -> Option<u64> {
    // `None` for an interval of 0 seconds.
    let intervals = samples.len().checked_div(interval)?;
    if intervals == 0 {
        return None;
    }
    let due_in_each = expected_sum(interval, target)?;
    let deviations = (samples.chunks_exact(interval))
        .map(|interval_samples| sum(interval_samples).abs_diff(due_in_each));
    Some(millionths(
        deviations.sum(),
        intervals as u128 * due_in_each,
    ))
}

/// Variability V (definition 2.3): mean absolute deviation of the samples from their mean, relative
/// to that mean, in millionths.
///
/// `None` without samples or if all samples are 0.
pub fn variability(samples: &[u64]) -> Option<u64> {
    let moved = sum(samples);
    let seconds = samples.len() as u128;
    // Deviation and mean are both multiplied by the number of samples, so that the mean is not
    // rounded.
    let deviation: u128 = samples
        .iter()
        .map(|&sample| (u128::from(sample) * seconds).abs_diff(moved))
        .sum();
    (moved > 0).then(|| millionths(deviation, moved * seconds))
}

/// Error, absolute error and variability of a VM's bandwidth over its kept seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Precision {
    /// Seconds that count: those in which the VM had requests outstanding.
    pub seconds: u32,
    /// Seconds of the same period without outstanding requests, which do not count.
    pub idle: u32,
    /// Length of a statistical interval in seconds.
    pub interval: u32,
    /// Target bandwidth in bytes per second; `None`: no bandwidth is to be held.
    pub target: Option<u64>,
    /// Mean bandwidth in bytes per second, rounded down; `None`: no second counts.
    pub mean: Option<u64>,
    /// Error B over all counted seconds, in millionths.
    pub error: Option<i64>,
    /// Absolute error beta over the whole intervals that end with the last second, in millionths.
    pub absolute_error: Option<u64>,
    /// Variability V over all counted seconds, in millionths.
    pub variability: Option<u64>,
}

impl Precision {
    /// Computes the metrics of `samples`, oldest first, which lie among `idle` idle seconds.
    pub fn from_samples(
        samples: &[u64],
        idle: u32,
        target: Option<u64>,
        interval: u32,
    ) -> Precision {
        // Whole intervals are counted back from the last sample; the oldest ones are left over.
        let left_over = samples.len().checked_rem(interval as usize).unwrap_or(0);
        let whole = &samples[left_over..];
        let mean = sum(samples).checked_div(samples.len() as u128);
        Precision {
            seconds: samples.len() as u32,
            idle,
            interval,
            target,
            mean: mean.map(|mean| mean as u64),
            error: target.and_then(|target| error(samples, target)),
            absolute_error: target
                .and_then(|target| absolute_error(whole, target, interval as usize)),
            variability: variability(samples),
        }
    }
}

fn sum(samples: &[u64]) -> u128 {
    samples.iter().map(|&sample| u128::from(sample)).sum()
}

/// Returns the sum that this many samples ought to have; `None` if it is 0.
fn expected_sum(samples: usize, target: u64) -> Option<u128> {
    let due = samples as u128 * u128::from(target);
    (due > 0).then_some(due)
}

/// Returns a quotient in millionths, rounded to the nearest.
///
/// Nothing overflows: sums of at most 2^20 samples stay below 2^84, and their products below 2^104.
fn millionths(part: u128, whole: u128) -> u64 {
    let twice = part * 2 * u128::from(MILLION) / whole;
    // Doubled before the division and halved after it: halves go away from zero.
    u64::try_from(twice.div_ceil(2)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn metrics_without_samples_are_none() {
        assert_eq!(error(&[], 5), None);
        assert_eq!(error(&[5], 0), None);
        assert_eq!(absolute_error(&[5, 5], 5, 0), None);
        assert_eq!(absolute_error(&[5, 5], 5, 3), None, "no whole interval");
        assert_eq!(absolute_error(&[5, 5], 0, 1), None);
        assert_eq!(variability(&[]), None);
        assert_eq!(variability(&[0, 0]), None);
    }

    #[test]
    fn intervals_end_with_the_last_second_and_without_a_target_only_v_is_known() {
        let samples = [9, 10, 10, 20, 20];
        let known = Precision::from_samples(&samples, 3, Some(10), 2);
        assert_eq!((known.seconds, known.idle, known.mean), (5, 3, Some(13)));
        assert_eq!(known.error, Some(380_000));
        // 10 and 10, 20 and 20.
        assert_eq!(known.absolute_error, Some(500_000));
        let free = Precision::from_samples(&samples, 3, None, 2);
        let none = (free.error, free.absolute_error);
        assert_eq!((none, free.variability), ((None, None), known.variability));
        let nothing = Precision::from_samples(&[], 3, Some(10), 0);
        assert_eq!(
            (nothing.mean, nothing.error, nothing.variability),
            (None, None, None)
        );
    }

    #[test]
    fn halves_go_away_from_zero() {
        // 1 of 2 million is half a millionth.
        assert_eq!(error(&[2_000_001], 2_000_000), Some(1));
        assert_eq!(error(&[1_999_999], 2_000_000), Some(-1));
        assert_eq!(error(&[4_000_001], 4_000_000), Some(0));
        assert_eq!(error(&[3_999_997], 4_000_000), Some(-1));
    }

    /// Figure 1 of the paper: both cases have the same mean, and over 100 s the same error.
    #[test]
    fn the_statistical_interval_tells_slow_swings_from_fast_ones() {
        let swing = |half: usize| -> Vec<u64> {
            let at = |second: usize| match second / half % 2 {
                0 => 2_000_000,
                _ => 0,
            };
            (0..300).map(at).collect()
        };
        let (slow, fast) = (swing(50), swing(5));
        for samples in [&slow, &fast] {
            assert_eq!(error(samples, 1_000_000), Some(0));
            assert_eq!(variability(samples), Some(MILLION));
        }
        assert_eq!(absolute_error(&fast, 1_000_000, 30), Some(0));
        let beta = absolute_error(&slow, 1_000_000, 30).expect("whole intervals");
        assert!(beta > MILLION / 2, "{beta}");
        // An incomplete interval at the end does not count.
        assert_eq!(absolute_error(&slow[..59], 1_000_000, 30), Some(MILLION));
    }

    /// The definitions as they are printed, in floating point.
    fn literal(samples: &[u64], target: f64, interval: usize) -> [f64; 3] {
        let count = samples.len() as f64;
        let b = |of: &[u64]| {
            let errors = of.iter().map(|&one| (one as f64 - target) / target);
            errors.sum::<f64>() / of.len() as f64
        };
        let intervals = samples.chunks_exact(interval);
        let beta = intervals.clone().map(|of| b(of).abs()).sum::<f64>() / intervals.len() as f64;
        let mean = samples.iter().map(|&one| one as f64).sum::<f64>() / count;
        let off = samples.iter().map(|&one| (one as f64 - mean).abs() / mean);
        [b(samples), beta, off.sum::<f64>() / count]
    }

    proptest! {
        #[test]
        fn metrics_equal_their_definitions(
            samples in prop::collection::vec(0u64..200_000_000, 1..200),
            target in 100_000u64..200_000_000,
            interval in 1usize..40,
        ) {
            let literal = literal(&samples, target as f64, interval);
            let same = |found: Option<f64>, literal: f64| match found {
                Some(found) => (found - literal * 1e6).abs() <= 0.51 + literal.abs() * 1e-6,
                None => !literal.is_finite(),
            };
            let b = error(&samples, target).map(|b| b as f64);
            let beta = absolute_error(&samples, target, interval).map(|b| b as f64);
            let v = variability(&samples).map(|v| v as f64);
            prop_assert!(same(b, literal[0]), "B: {b:?}, {}", literal[0]);
            prop_assert!(same(beta, literal[1]), "beta: {beta:?}, {}", literal[1]);
            prop_assert!(same(v, literal[2]), "V: {v:?}, {}", literal[2]);
        }

        #[test]
        fn samples_of_any_size_fit(
            samples in prop::collection::vec(any::<u64>(), 1..50),
            target in 1u64..,
        ) {
            error(&samples, target);
            absolute_error(&samples, target, 7);
            variability(&samples);
        }
    }
}
