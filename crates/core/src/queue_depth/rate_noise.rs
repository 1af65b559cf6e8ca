//! Unsteadiness of a device: the extent to which its rate changes by itself.
//!
//! A cloud disk is faster and slower for milliseconds or seconds, because others use the storage
//! behind it. Two measurements of such a device differ by more than their standard errors, which
//! cover the variation of single I/Os alone. The difference between measurements of one depth is
//! therefore learnt, and is part of the error wherever two depths are compared.

use super::rate::Rate;

/// Measurements over which the exponential mean extends.
const OVER: f64 = 8.0;
/// Largest difference that one measurement counts for, as a fraction of the rate.
const LARGEST: f64 = 0.5;
/// Smallest unsteadiness that matters: below it chance hardly looks like a gain.
const SIGNIFICANT: f64 = 0.02;

/// Mean fraction by which the rates of two measurements of one depth in a row differ, beyond what
/// their standard errors explain.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(super) struct RateNoise(f64);

impl RateNoise {
    /// Learns from two measurements of one depth, one after the other.
    pub(super) fn update(&mut self, before: &Rate, after: &Rate) {
        let (gain, error) = after.gain_over(before);
        let beyond = (gain.abs() - error).clamp(0.0, LARGEST);
        self.0 += (beyond - self.0) / OVER;
    }

    /// Returns by which fraction `rate` exceeds `other`, and the error of that on this device.
    pub(super) fn gain_over(self, rate: &Rate, other: &Rate) -> (f64, f64) {
        let (gain, error) = rate.gain_over(other);
        (gain, error + self.0)
    }

    /// True where chance may look like a gain.
    pub(super) fn is_significant(self) -> bool {
        self.0 > SIGNIFICANT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_ns: f64, error: f64) -> Rate {
        Rate {
            per_ns,
            error,
            each: 4096.0,
        }
    }

    #[test]
    fn what_errors_explain_is_no_unsteadiness() {
        let mut steady = RateNoise::default();
        (0..100).for_each(|_| steady.update(&rate(1.0, 0.1), &rate(1.1, 0.1)));
        assert!(!steady.is_significant());
        let (gain, error) = steady.gain_over(&rate(1.5, 0.0), &rate(1.0, 0.0));
        assert!((gain - 0.5).abs() < 1e-9 && error < 1e-9);
    }

    #[test]
    fn a_rate_that_sways_widens_errors_and_is_forgotten_once_steady() {
        let mut noise = RateNoise::default();
        for (before, after) in [(1.0, 1.3), (1.3, 1.0)].repeat(50) {
            noise.update(&rate(before, 0.01), &rate(after, 0.01));
        }
        let (_, error) = noise.gain_over(&rate(1.2, 0.01), &rate(1.0, 0.01));
        assert!(
            noise.is_significant() && (0.2..0.35).contains(&error),
            "{error}"
        );
        (0..40).for_each(|_| noise.update(&rate(1.0, 0.01), &rate(1.0, 0.01)));
        assert!(!noise.is_significant());
    }
}
