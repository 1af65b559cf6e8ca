//! Comparison of two depths by turns.
//!
//! The rate of a disk that others use too drifts by a tenth within tens of milliseconds: a single
//! measurement of one depth after another shows the drift rather than the depth. The candidate is
//! therefore measured between two measurements of the depth in force, and as often as it takes; a
//! drift over the three cancels, and the error is that of the mean of all rounds.

use crate::queue_depth::rate::Rate;
use crate::queue_depth::rate_noise::RateNoise;
use tidegate_base::time::Nanos;

/// Rounds from which the error is taken from their spread. Fewer say too little of it.
const SPREAD_ROUNDS_MIN: u32 = 4;

/// Comparison in progress of the depth in force with a candidate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Comparison {
    /// Depth that is tried, smaller or larger than the one in force.
    pub(super) candidate: u32,
    /// Latest rate of the depth in force.
    pub(super) reference: Rate,
    /// Gains of the candidate in the rounds that are over.
    pub(super) gains: PairedGains,
    /// Start of the comparison.
    pub(super) since: Nanos,
}

/// Gains of a candidate over the depth in force, as fractions of the rate, one a round.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(super) struct PairedGains {
    rounds: u32,
    sum: f64,
    sum_of_squares: f64,
    /// Sum over rounds of the square of the standard error of the gain.
    variances: f64,
}

impl PairedGains {
    /// Adds a round: the rate `tried` of the candidate between two of the depth in force.
    pub(super) fn add(&mut self, before: &Rate, tried: &Rate, after: &Rate) {
        let reference = (before.per_ns + after.per_ns) / 2.0;
        let ratio = tried.per_ns / reference;
        let square = |error: f64| error * error;
        let relative = square(tried.error) + (square(before.error) + square(after.error)) / 4.0;
        self.rounds += 1;
        self.sum += ratio - 1.0;
        self.sum_of_squares += square(ratio - 1.0);
        self.variances += square(ratio) * relative;
    }

    /// Returns the rounds that are over.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Returns the mean gain of at least one round.
    pub(super) fn mean(&self) -> f64 {
        self.sum / f64::from(self.rounds)
    }

    /// Returns the standard error of the mean: that of the measurements, and what the device's
    /// unsteadiness adds, by the spread of the rounds or, of few rounds, by `noise`.
    pub(super) fn error(&self, noise: RateNoise) -> f64 {
        let n = f64::from(self.rounds);
        let measured = self.variances.sqrt() / n;
        if self.rounds < SPREAD_ROUNDS_MIN {
            return measured + noise.fraction() / n.sqrt();
        }
        let mean = self.mean();
        let spread = (self.sum_of_squares / n - mean * mean).max(0.0) / (n - 1.0);
        measured.max(spread.sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_ns: f64) -> Rate {
        Rate {
            per_ns,
            error: 0.02,
            each: 4096.0,
        }
    }

    #[test]
    fn a_drift_over_a_round_is_no_gain() {
        let mut gains = PairedGains::default();
        for base in [1.0, 1.2, 1.4] {
            gains.add(&rate(base), &rate(base + 0.1), &rate(base + 0.2));
        }
        assert!(gains.mean().abs() < 1e-12, "{}", gains.mean());
    }

    #[test]
    fn more_rounds_make_a_mean_more_certain() {
        let gains_of = |rounds: u32| {
            let mut gains = PairedGains::default();
            for round in 0..rounds {
                let tried = if round % 2 == 0 { 1.2 } else { 1.0 };
                gains.add(&rate(1.0), &rate(tried), &rate(1.0));
            }
            gains
        };
        let noise = RateNoise::default();
        let [few, many] = [4, 16].map(|rounds| gains_of(rounds).error(noise));
        assert!((gains_of(16).mean() - 0.1).abs() < 1e-12);
        // Rounds differ from their mean by 0.1: over the root of 15, or of 3, degrees of freedom.
        assert!((many - 0.1 / 15f64.sqrt()).abs() < 1e-12, "{many}");
        assert!((few - 0.1 / 3f64.sqrt()).abs() < 1e-12, "{few}");
    }

    #[test]
    fn the_noise_of_the_device_counts_while_rounds_are_few() {
        let mut noise = RateNoise::default();
        (0..100).for_each(|_| noise.update(&rate(1.0), &rate(1.3)));
        let mut gains = PairedGains::default();
        gains.add(&rate(1.0), &rate(1.0), &rate(1.0));
        assert!(gains.error(RateNoise::default()) < 0.03);
        assert!(gains.error(noise) > 0.2);
    }
}
