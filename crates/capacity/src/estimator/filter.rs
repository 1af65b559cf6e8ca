//! Recursive least squares with a prior and forgetting: a Kalman filter with a random-walk state.
//!
//! The state is the cost of an I/O of each kind and [`Node`](super::NODES). A window observes that
//! the costs of all its I/Os add up to its length, with an error relative to the length; so each
//! window is one equation, however long it was. The variance of the error is estimated from the
//! windows' deviations. Forgetting pulls the covariance towards the prior's: a cost that is no
//! longer observed becomes as uncertain as it was at first, and no more than that (no wind-up).
//!
//! The filter uses sums, products and quotients alone, the same number for each window, in a fixed
//! order: the same windows give the same bits on every machine.

use core::ops::RangeInclusive;

use super::prior::{self, COSTS, Weights};
use super::{COUNT_MAX, KINDS};
use tidegate_base::learnt_state::{Blob, BlobError, Fields};

/// Sparse vector over the costs, as indices and numbers of I/Os: those of one size, two nodes for
/// each kind.
pub(super) type SparseWeights = [(usize, f64); 2 * KINDS];

/// Part of the way to the prior's covariance that each window goes. The prior's relative variance
/// is about 5: a cost that is no longer observed is uncertain by 10 % again after some 1,000
/// windows, and a cost observed well in each window, with an error of 3 %, depends on the last 10.
const PRIOR_PULL_PER_WINDOW: f64 = 2e-6;
/// Weight of a window in the smoothed variance of the error: a memory of 20 windows, as many as
/// must deviate before the device counts as changed.
const NOISE_EWMA_WEIGHT: f64 = 0.05;
/// Smallest variance of a window's relative error: a deviation of 1 %, about one of the 128 I/Os of
/// a window.
const NOISE_MIN: f64 = 0.01 * 0.01;
/// Largest variance of a window's relative error: a deviation of 100 %.
const NOISE_MAX: f64 = 1.0;
/// Variance of a window's relative error that is assumed at first: a deviation of 10 %.
const NOISE_START: f64 = 0.1 * 0.1;
/// Smallest cost as a part of the prior's; keeps costs positive.
const COST_MIN_OF_PRIOR: f64 = 0.01;
/// Number of consecutive windows longer, or shorter, than predicted by `CHANGE_RATIO` after which
/// the device counts as changed: 2.4 s of the shortest windows.
const CHANGED_WINDOWS: u64 = 20;
/// Ratio of a window's length to its prediction, or the inverse, from which it may show a changed
/// device: `OUTLIER_SIGMA` times the error assumed at first.
const CHANGE_RATIO: f64 = 1.3;
/// Deviation in standard deviations beyond which uncertainty does not explain a window: the usual
/// three-sigma rule.
const OUTLIER_SIGMA: f64 = 3.0;
/// Part of the way to the prior's covariance that a changed device, or a restored state, goes: with
/// a prior variance of about 5, the standard deviation of a well-known cost is then about 30 %, so
/// that it counts as unknown ([`LearntCost::KNOWN_WITHIN`](super::LearntCost::KNOWN_WITHIN)) and a
/// few windows correct it.
const COVARIANCE_RESET_SHARE: f64 = 0.02;
/// Range in nanoseconds of the cost of an I/O of up to 1 MiB, on any device; bounds imported
/// values.
const COST_NS_RANGE: RangeInclusive<f64> = 1e-3..=1e12;

/// State of the filter; the [module](self) describes the method.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Prior costs in nanoseconds per I/O.
    prior: Weights,
    costs: Weights,
    /// Prior covariance, relative to the prior costs.
    prior_covariance: Box<[[f64; COSTS]; COSTS]>,
    covariance: Box<[[f64; COSTS]; COSTS]>,
    /// Variance of a window's relative error, smoothed.
    noise: f64,
    windows: u64,
    deviations: Deviations,
}

/// Consecutive windows that deviate to the same side by more than their uncertainty explains.
#[derive(Clone, Copy, Default, Debug)]
struct Deviations {
    /// Number of windows; positive where they are longer than predicted, negative where shorter.
    run: i64,
    /// Sum of the lengths of these windows, in nanoseconds.
    length: f64,
    /// Sum of the predicted lengths, in nanoseconds.
    predicted: f64,
}

impl Filter {
    pub(super) fn new(prior: Weights) -> Filter {
        assert!(
            prior.iter().all(|cost| COST_NS_RANGE.contains(cost)),
            "a prior cost is outside {COST_NS_RANGE:?} ns: {prior:?}"
        );
        Filter {
            prior,
            costs: prior,
            prior_covariance: Box::new(prior::relative_covariance()),
            covariance: Box::new([[0.0; COSTS]; COSTS]),
            noise: NOISE_START,
            windows: 0,
            deviations: Deviations::default(),
        }
    }

    /// Number of windows learnt from.
    pub(super) fn windows(&self) -> u64 {
        self.windows
    }

    /// Appends the state to a blob.
    pub(super) fn export(&self, blob: &mut Blob) {
        blob.push_u64(self.windows).push_f64(self.noise);
        for (prior, cost) in self.prior.iter().zip(&self.costs) {
            blob.push_f64(*prior).push_f64(*cost);
        }
        // The matrix is symmetric: its lower triangle is enough.
        for (index, row) in self.covariance.iter().enumerate() {
            row[..=index].iter().for_each(|value| {
                blob.push_f64(*value);
            });
        }
    }

    /// Restores an exported state with added uncertainty.
    pub(super) fn import(&mut self, fields: &mut Fields<'_>) -> Result<(), BlobError> {
        let mut restored = self.clone();
        restored.windows = fields.u64()?.clamp(1, COUNT_MAX);
        restored.noise = fields.f64_in("variance of the window error", NOISE_MIN..=NOISE_MAX)?;
        for index in 0..COSTS {
            restored.prior[index] = fields.f64_in("prior cost", COST_NS_RANGE)?;
            restored.costs[index] = fields.f64_in("cost", COST_NS_RANGE)?;
        }
        for a in 0..COSTS {
            for b in 0..=a {
                // Excludes infinities and NaN; `check` tests the magnitude.
                let value = fields.f64_in("covariance", f64::MIN..=f64::MAX)?;
                restored.covariance[a][b] = value;
                restored.covariance[b][a] = value;
            }
        }
        restored.check()?;
        restored.scale(1.0, COVARIANCE_RESET_SHARE);
        *self = restored;
        Ok(())
    }

    /// Checks that the covariance can be one: |cov(a, b)|^2 <= var(a) var(b).
    fn check(&self) -> Result<(), BlobError> {
        let covariance = &self.covariance;
        for a in 0..COSTS {
            for b in 0..=a {
                let variances = covariance[a][a] * covariance[b][b];
                let value = covariance[a][b];
                // Rounding may have changed the last digits of a computed matrix.
                if covariance[a][a] < 0.0 || value * value > variances * (1.0 + 1e-6) {
                    let value = value.to_string();
                    let what = "covariance of two costs";
                    return Err(BlobError::Value { what, value });
                }
            }
        }
        Ok(())
    }

    /// Learns from a window of `len` nanoseconds in which the device did these I/Os and had enough
    /// to do.
    pub(super) fn learn(&mut self, ios: &Weights, len: f64) {
        assert!(
            len > 0.0 && ios.iter().any(|&n| n > 0.0),
            "a window of {len} ns needs a length and at least one I/O"
        );
        let predicted = dot(ios, &self.costs);
        // The prior knows the ratios of costs better than their level, which the first window sets.
        if self.windows == 0 {
            self.scale(len / predicted, 1.0);
        }
        self.windows += 1;
        // Relative to the length, so that all windows weigh the same.
        let mut relative = *ios;
        relative.iter_mut().for_each(|n| *n /= len);
        if self.is_outlier(&relative, len, predicted) {
            return;
        }
        self.pull_to_prior();
        let Correction { error, variance } = self.correct(&relative, 1.0, self.noise);
        // The expected squared deviation is the variance of the error plus that of the prediction.
        let noise = (error * error - variance).clamp(NOISE_MIN, NOISE_MAX);
        self.noise += NOISE_EWMA_WEIGHT * (noise - self.noise);
        self.bound();
    }

    /// Returns true if a window deviates by more than the uncertainty explains; nothing is learnt
    /// from it. A single one is an outlier; several in a row to one side mean that the whole device
    /// changed, and scale all costs.
    fn is_outlier(&mut self, relative: &Weights, len: f64, predicted: f64) -> bool {
        let error = 1.0 - predicted / len;
        let variance = self.prediction_variance(relative) + self.noise;
        let unexplained = error * error > OUTLIER_SIGMA * OUTLIER_SIGMA * variance;
        // The first window sets the level, so it cannot deviate from it.
        let side = if !unexplained || self.windows <= 1 {
            0
        } else if len > CHANGE_RATIO * predicted {
            1
        } else if len * CHANGE_RATIO < predicted {
            -1
        } else {
            0
        };
        let deviations = &mut self.deviations;
        if side == 0 || deviations.run.signum() == -side {
            *deviations = Deviations::default();
        }
        if side == 0 {
            return false;
        }
        deviations.run += side;
        deviations.length += len;
        deviations.predicted += predicted;
        let Deviations { run, length, .. } = *deviations;
        let ratio = length / deviations.predicted;
        // If most windows deviate, the error estimate is too small: let it grow, but at a fifth of
        // the usual weight and by twice the deviation at most, because these windows may show a
        // changed device instead.
        let noise = (error * error).min(4.0 * self.noise).min(NOISE_MAX);
        self.noise += NOISE_EWMA_WEIGHT / 5.0 * (noise - self.noise);
        if run.unsigned_abs() >= CHANGED_WINDOWS {
            self.scale(ratio, COVARIANCE_RESET_SHARE);
        }
        true
    }

    /// Variance of the total cost of these I/Os, without the window's error.
    fn prediction_variance(&self, ios: &Weights) -> f64 {
        let rows = ios.iter().zip(self.covariance.iter());
        // Most windows have I/Os of a few costs only; the rows of the others add nothing.
        let observed = rows.filter(|(n, _)| **n != 0.0);
        let sum: f64 = observed.map(|(n, row)| n * dot(ios, row)).sum();
        // Rounding may leave a sum of nearly 0 below it.
        sum.max(0.0)
    }

    /// Total cost of these I/Os, in nanoseconds.
    pub(super) fn cost(&self, ios: &SparseWeights) -> f64 {
        ios.iter().map(|&(index, n)| n * self.costs[index]).sum()
    }

    /// Variance of the total cost of these I/Os.
    pub(super) fn variance(&self, ios: &SparseWeights) -> f64 {
        let row_sum = |index: usize| -> f64 {
            let row = &self.covariance[index];
            ios.iter().map(|&(other, n)| n * row[other]).sum()
        };
        let sum: f64 = ios.iter().map(|&(index, n)| n * row_sum(index)).sum();
        sum.max(0.0)
    }

    /// Multiplies all costs by `factor`, and moves the covariance by the part `reset_share` of the
    /// way to the prior's.
    fn scale(&mut self, factor: f64, reset_share: f64) {
        for cost in self.costs.iter_mut().chain(&mut self.prior) {
            *cost *= factor;
        }
        for a in 0..COSTS {
            for b in 0..COSTS {
                let prior = self.prior_covariance[a][b] * self.prior[a] * self.prior[b];
                // A covariance has the unit of a squared cost.
                let scaled = self.covariance[a][b] * factor * factor;
                self.covariance[a][b] = scaled + reset_share * (prior - scaled);
            }
        }
        self.deviations = Deviations::default();
    }

    /// Moves the covariance a little towards the prior's; once for each window.
    fn pull_to_prior(&mut self) {
        for a in 0..COSTS {
            for b in 0..COSTS {
                let prior = self.prior_covariance[a][b] * self.prior[a] * self.prior[b];
                let value = &mut self.covariance[a][b];
                *value += PRIOR_PULL_PER_WINDOW * (prior - *value);
            }
        }
    }

    /// Updates the costs by an observation: `weights` cost `sum`, with an error of variance
    /// `error`.
    fn correct(&mut self, weights: &Weights, sum: f64, error: f64) -> Correction {
        let mut gain = [0.0; COSTS];
        for (gain, row) in gain.iter_mut().zip(self.covariance.iter()) {
            *gain = dot(weights, row);
        }
        let variance = dot(weights, &gain).max(0.0);
        let deviation = sum - dot(weights, &self.costs);
        // Positive, because the variance of the error is at least `NOISE_MIN`.
        let total = variance + error;
        for a in 0..COSTS {
            self.costs[a] += gain[a] * deviation / total;
            for b in 0..COSTS {
                self.covariance[a][b] -= gain[a] * gain[b] / total;
            }
        }
        Correction {
            error: deviation,
            variance,
        }
    }

    /// Keeps all costs positive. The cost that is lowest relative to its prior returns to the lower
    /// bound, and correlated costs move along: a projection by the covariance (Simon, Kalman
    /// filtering with state constraints, IET Control Theory 2010). The projection is no
    /// observation, so the covariance stays as it is.
    fn bound(&mut self) {
        // A projection may push another cost below its bound, so a few rounds follow; the loop
        // after them clamps the rest.
        for _ in 0..4 {
            let ratio = |index: usize| self.costs[index] / self.prior[index];
            let lowest = (1..COSTS).fold(0, |lowest, index| {
                if ratio(index) < ratio(lowest) {
                    index
                } else {
                    lowest
                }
            });
            let row = &self.covariance[lowest];
            if ratio(lowest) >= COST_MIN_OF_PRIOR || row[lowest] <= 0.0 {
                break;
            }
            let raise = COST_MIN_OF_PRIOR * self.prior[lowest] - self.costs[lowest];
            let gain = raise / row[lowest];
            for (cost, covariance) in self.costs.iter_mut().zip(row) {
                *cost += gain * covariance;
            }
        }
        for (cost, prior) in self.costs.iter_mut().zip(&self.prior) {
            *cost = cost.max(COST_MIN_OF_PRIOR * prior);
        }
    }
}

/// Result of an observation.
struct Correction {
    /// Deviation of the observation from its prediction.
    error: f64,
    /// Variance of the prediction itself.
    variance: f64,
}

fn dot(a: &Weights, b: &Weights) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
