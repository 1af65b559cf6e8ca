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
use super::{KINDS, MOST};
use tidegate_base::learnt_state::{Blob, BlobError, Fields};

/// Sparse vector of costs, as places and numbers of I/Os: those of one size, two nodes for each
/// kind.
pub(super) type Few = [(usize, f64); 2 * KINDS];

/// Part of the way to the prior's covariance that each window goes. The prior's relative variance
/// is about 5: a cost that is no longer observed is uncertain by 10 % again after some 1,000
/// windows, and a cost observed well in each window, with an error of 3 %, depends on the last 10.
const FORGET: f64 = 2e-6;
/// Weight of a window in the smoothed variance of the error.
const SMOOTH: f64 = 0.05;
/// Variance of a window's relative error: lower bound, upper bound and initial value.
const NOISE: [f64; 3] = [0.01 * 0.01, 1.0, 0.1 * 0.1];
/// Lower bound on a cost, as a part of the prior's.
const LEAST: f64 = 0.01;
/// Number of consecutive windows off to one side by the factor `OFF` after which the device counts
/// as changed.
const OFF_IN_A_ROW: u64 = 20;
const OFF: f64 = 1.3;
/// Deviation in standard deviations beyond which uncertainty does not explain a window.
const BEYOND: f64 = 3.0;
/// Part of the knowledge that is dropped when the device changed or after a pause.
const DOUBT: f64 = 0.02;
/// Range in nanoseconds of the cost of an I/O of up to 1 MiB, on any device; bounds imported
/// values.
const POSSIBLE: RangeInclusive<f64> = 1e-3..=1e12;

/// State of the filter; the [module](self) describes the method.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Prior costs in nanoseconds per I/O.
    prior: Weights,
    costs: Weights,
    /// Prior covariance, relative to the prior costs.
    spread: Box<[[f64; COSTS]; COSTS]>,
    covariance: Box<[[f64; COSTS]; COSTS]>,
    noise: f64,
    windows: u64,
    /// Number of consecutive windows that were off to one side (positive: longer than predicted),
    /// and the sums of their lengths and predicted lengths.
    row: i64,
    off: [f64; 2],
}

impl Filter {
    pub(super) fn new(prior: Weights) -> Filter {
        Filter {
            prior,
            costs: prior,
            spread: Box::new(prior::spread()),
            covariance: Box::new([[0.0; COSTS]; COSTS]),
            noise: NOISE[2],
            windows: 0,
            row: 0,
            off: [0.0; 2],
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
        for (at, row) in self.covariance.iter().enumerate() {
            row[..=at].iter().for_each(|known| {
                blob.push_f64(*known);
            });
        }
    }

    /// Restores an exported state with added uncertainty.
    pub(super) fn import(&mut self, fields: &mut Fields<'_>) -> Result<(), BlobError> {
        let mut kept = self.clone();
        kept.windows = fields.u64()?.clamp(1, MOST);
        kept.noise = fields.f64_in("variance of the window error", NOISE[0]..=NOISE[1])?;
        for at in 0..COSTS {
            kept.prior[at] = fields.f64_in("prior cost", POSSIBLE)?;
            kept.costs[at] = fields.f64_in("cost", POSSIBLE)?;
        }
        for at in 0..COSTS {
            for to in 0..=at {
                let known = fields.f64_in("covariance", f64::MIN..=f64::MAX)?;
                kept.covariance[at][to] = known;
                kept.covariance[to][at] = known;
            }
        }
        kept.check()?;
        kept.scale(1.0, DOUBT);
        *self = kept;
        Ok(())
    }

    /// Checks that the covariance can be one: |cov(a, b)|^2 <= var(a) var(b).
    fn check(&self) -> Result<(), BlobError> {
        let of = &self.covariance;
        for at in 0..COSTS {
            for to in 0..=at {
                let both = of[at][at] * of[to][to];
                let value = of[at][to];
                // Rounding may have changed the last digits of a computed matrix.
                if of[at][at] < 0.0 || value * value > both * (1.0 + 1e-6) {
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
        let reckoned = dot(ios, &self.costs);
        // The prior knows the ratios of costs better than their level, which the first window sets.
        if self.windows == 0 {
            self.scale(len / reckoned, 1.0);
        }
        self.windows += 1;
        // Relative to the length, so that all windows weigh the same.
        let mut part = *ios;
        part.iter_mut().for_each(|n| *n /= len);
        if self.is_off(&part, len, reckoned) {
            return;
        }
        self.forget();
        let (error, known) = self.correct(&part, 1.0, self.noise);
        // The expected squared deviation is the variance of the error plus that of the prediction.
        let seen = (error * error - known).clamp(NOISE[0], NOISE[1]);
        self.noise += SMOOTH * (seen - self.noise);
        self.bound();
    }

    /// Returns true if a window deviates by more than the uncertainty explains; nothing is learnt
    /// from it. A single one is an outlier; several in a row to one side mean that the whole device
    /// changed, and scale all costs.
    fn is_off(&mut self, part: &Weights, len: f64, reckoned: f64) -> bool {
        let error = 1.0 - reckoned / len;
        let beyond = error * error > BEYOND * BEYOND * (self.known(part) + self.noise);
        let side = if !beyond || self.windows <= 1 {
            0
        } else if len > OFF * reckoned {
            1
        } else if len * OFF < reckoned {
            -1
        } else {
            0
        };
        if side == 0 || self.row.signum() == -side {
            (self.row, self.off) = (0, [0.0; 2]);
        }
        if side == 0 {
            return false;
        }
        self.row += side;
        self.off = [self.off[0] + len, self.off[1] + reckoned];
        // If most windows deviate, the error estimate is too small: let it grow.
        let seen = (error * error).min(4.0 * self.noise).min(NOISE[1]);
        self.noise += SMOOTH / 5.0 * (seen - self.noise);
        if self.row.unsigned_abs() >= OFF_IN_A_ROW {
            self.scale(self.off[0] / self.off[1], DOUBT);
        }
        true
    }

    /// Variance of the total cost of these I/Os, without the window's error.
    fn known(&self, ios: &Weights) -> f64 {
        let rows = ios.iter().zip(self.covariance.iter());
        let seen = rows.filter(|(n, _)| **n != 0.0);
        seen.map(|(n, row)| n * dot(ios, row)).sum::<f64>().max(0.0)
    }

    /// Total cost of these I/Os, in nanoseconds.
    pub(super) fn cost(&self, ios: &Few) -> f64 {
        ios.iter().map(|&(at, n)| n * self.costs[at]).sum()
    }

    /// Variance of the total cost of these I/Os.
    pub(super) fn variance(&self, ios: &Few) -> f64 {
        let with_all = |at: usize| -> f64 {
            let row = &self.covariance[at];
            ios.iter().map(|&(to, n)| n * row[to]).sum()
        };
        let sum: f64 = ios.iter().map(|&(at, n)| n * with_all(at)).sum();
        sum.max(0.0)
    }

    /// Multiplies all costs by `by`, and returns the part `doubt` of the covariance to the prior's.
    fn scale(&mut self, by: f64, doubt: f64) {
        for cost in self.costs.iter_mut().chain(&mut self.prior) {
            *cost *= by;
        }
        for at in 0..COSTS {
            for to in 0..COSTS {
                let prior = self.spread[at][to] * self.prior[at] * self.prior[to];
                let kept = self.covariance[at][to] * by * by;
                self.covariance[at][to] = kept + doubt * (prior - kept);
            }
        }
        (self.row, self.off) = (0, [0.0; 2]);
    }

    fn forget(&mut self) {
        for at in 0..COSTS {
            for to in 0..COSTS {
                let prior = self.spread[at][to] * self.prior[at] * self.prior[to];
                let known = &mut self.covariance[at][to];
                *known += FORGET * (prior - *known);
            }
        }
    }

    /// Updates the costs by an observation: `weights` cost `sum`, with an error of variance
    /// `error`. Returns the deviation from the prediction, and the variance of the prediction
    /// itself.
    fn correct(&mut self, weights: &Weights, sum: f64, error: f64) -> (f64, f64) {
        let mut gain = [0.0; COSTS];
        for (gain, row) in gain.iter_mut().zip(self.covariance.iter()) {
            *gain = dot(weights, row);
        }
        let known = dot(weights, &gain).max(0.0);
        let off = sum - dot(weights, &self.costs);
        let whole = known + error;
        for at in 0..COSTS {
            self.costs[at] += gain[at] * off / whole;
            for to in 0..COSTS {
                self.covariance[at][to] -= gain[at] * gain[to] / whole;
            }
        }
        (off, known)
    }

    /// Keeps all costs positive. The cost that is lowest relative to its prior returns to the lower
    /// bound, and correlated costs move along: a projection by the covariance (Simon, Kalman
    /// filtering with state constraints, IET Control Theory 2010). The projection is no
    /// observation, so the covariance stays as it is.
    fn bound(&mut self) {
        // A projection may push another cost below its bound, so a few rounds follow; the loop
        // after them clamps the rest.
        for _ in 0..4 {
            let part = |at: usize| self.costs[at] / self.prior[at];
            let lowest = (1..COSTS).fold(0, |low, at| if part(at) < part(low) { at } else { low });
            let row = &self.covariance[lowest];
            if part(lowest) >= LEAST || row[lowest] <= 0.0 {
                break;
            }
            let by = (LEAST * self.prior[lowest] - self.costs[lowest]) / row[lowest];
            for (cost, with) in self.costs.iter_mut().zip(row) {
                *cost += by * with;
            }
        }
        for (cost, prior) in self.costs.iter_mut().zip(&self.prior) {
            *cost = cost.max(LEAST * prior);
        }
    }
}

fn dot(a: &Weights, b: &Weights) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
