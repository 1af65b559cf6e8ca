//! How precisely a bandwidth is held: error, absolute error and variability. Li et al.,
//! "Customizable SLO and Its Near-Precise Enforcement for Storage Bandwidth", ToS 2017, definitions
//! 2.1 to 2.3.
//!
//! All three are about samples, the units (bytes mostly) moved in each second of an interval. They
//! are quotients of integers, exact until the last step: what is returned is in millionths, rounded
//! to the nearest, halves away from zero. So the same samples give the same figures on every
//! machine.
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

/// The statistical interval of beta where nobody says another, in seconds: that of the paper's
/// section 5.
pub const INTERVAL_S: u32 = 30;

/// One: what a quotient of 1 is in millionths.
pub const MILLION: u64 = 1_000_000;

/// B, definition 2.1: by how much the mean of the samples is above the target (below it: negative),
/// relative to the target, in millionths. `None`: without samples, or with a target of 0.
pub fn error(samples: &[u64], target: u64) -> Option<i64> {
    let due = due(samples.len(), target)?;
    let moved = sum(samples);
    let part = millionths(moved.abs_diff(due), due);
    let part = i64::try_from(part).unwrap_or(i64::MAX);
    Some(if moved < due { -part } else { part })
}

/// Beta, definition 2.2: the mean of |B| over the intervals of `interval` samples each that there
/// are whole, in millionths. `None`: there is no whole one, or the target is 0.
pub fn absolute_error(samples: &[u64], target: u64, interval: usize) -> Option<u64> {
    let intervals = samples.len().checked_div(interval)?;
    let due_in_each = due(interval, target)?;
    let off = samples.chunks_exact(interval);
    let off: u128 = off.map(|of| sum(of).abs_diff(due_in_each)).sum();
    Some(millionths(off, due(intervals, 1)? * due_in_each))
}

/// V, definition 2.3: by how much a sample is off the samples' own mean, on average, relative to
/// that mean, in millionths; a mean absolute deviation. `None`: without samples, or where all are
/// 0.
pub fn variability(samples: &[u64]) -> Option<u64> {
    let moved = sum(samples);
    let seconds = samples.len() as u128;
    // Both the deviation and the mean times the number of samples, so that no mean is rounded.
    let off: u128 = samples
        .iter()
        .map(|&one| (u128::from(one) * seconds).abs_diff(moved))
        .sum();
    (moved > 0).then(|| millionths(off, moved * seconds))
}

/// All three, of the seconds that are known of a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Precision {
    /// Seconds that count: those in which the VM had something outstanding.
    pub seconds: u32,
    /// Seconds of the same time in which it had nothing outstanding at all, which do not.
    pub idle: u32,
    /// Seconds of a statistical interval.
    pub interval: u32,
    /// What the VM is to have, in bytes a second; `None`: no bandwidth is held.
    pub target: Option<u64>,
    /// What it had on average, in bytes a second, rounded down; `None`: no second counts.
    pub mean: Option<u64>,
    /// B over all of them, in millionths.
    pub error: Option<i64>,
    /// Beta over the whole intervals that end with the last second, in millionths.
    pub absolute_error: Option<u64>,
    /// V over all of them, in millionths.
    pub variability: Option<u64>,
}

impl Precision {
    /// Of these samples, the oldest first, beside so many idle seconds.
    pub fn of(samples: &[u64], idle: u32, target: Option<u64>, interval: u32) -> Precision {
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
            absolute_error: target.and_then(|of| absolute_error(whole, of, interval as usize)),
            variability: variability(samples),
        }
    }
}

fn sum(samples: &[u64]) -> u128 {
    samples.iter().map(|&one| u128::from(one)).sum()
}

/// What so many samples ought to come to; `None` for nothing.
fn due(samples: usize, target: u64) -> Option<u128> {
    let due = samples as u128 * u128::from(target);
    (due > 0).then_some(due)
}

/// A quotient in millionths, to the nearest. Sums of samples stay below 2^84 for as many samples as
/// fit a memory of 2^20 of them, and their products below 2^104, so nothing overflows.
fn millionths(part: u128, whole: u128) -> u64 {
    let twice = part * 2 * u128::from(MILLION) / whole;
    u64::try_from(twice.div_ceil(2)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_is_said_of_nothing() {
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
        let known = Precision::of(&samples, 3, Some(10), 2);
        assert_eq!((known.seconds, known.idle, known.mean), (5, 3, Some(13)));
        assert_eq!(known.error, Some(380_000));
        // 10 and 10, 20 and 20.
        assert_eq!(known.absolute_error, Some(500_000));
        let free = Precision::of(&samples, 3, None, 2);
        let none = (free.error, free.absolute_error);
        assert_eq!((none, free.variability), ((None, None), known.variability));
        let nothing = Precision::of(&[], 3, Some(10), 0);
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
        // What is left over of an interval does not count.
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
        fn they_are_the_definitions(
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
