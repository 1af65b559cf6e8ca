//! Recursive least squares with a prior and forgetting: a Kalman filter whose state walks.
//!
//! The state is what an I/O of each kind and [`Node`](super::NODES) costs. A window says that the
//! sum of costs over all I/Os of it was its length; so each window is one equation, however long it
//! was, with an error in parts of its length. How large that is, is itself estimated, from how far
//! windows are off. Forgetting pulls the covariance towards that of the prior: what is not seen any
//! more becomes as uncertain as it was, and no more uncertain than that (no wind-up).
//!
//! Only sums, products and quotients, the same number of them for each window, in one order: the
//! same windows give the same bits on every machine.

use core::ops::RangeInclusive;

use super::prior::{self, COSTS, Weights};
use super::{KINDS, MOST};
use tidegate_base::learnt::{Blob, BlobError, Fields};

/// Few of all costs, by place and how many I/Os: those that are of one size, two nodes for each
/// kind.
pub(super) type Few = [(usize, f64); 2 * KINDS];

/// What part of the way to the prior's covariance each window goes. The prior's is about 5 in parts
/// of the cost squared: what is not seen any more is unsure by 10 % again after some 1,000 windows,
/// and of what is seen well in each, with an error of 3 % a window, the last 10 count.
const FORGET: f64 = 2e-6;
/// What a window counts in the smoothed error.
const SMOOTH: f64 = 0.05;
/// A window's error, in parts of its length, squared: at least, at most, and at first.
const NOISE: [f64; 3] = [0.01 * 0.01, 1.0, 0.1 * 0.1];
/// No cost falls below this part of the prior's.
const LEAST: f64 = 0.01;
/// So many windows in a row off to one side by so much, and the device is another one by now.
const OFF_IN_A_ROW: u64 = 20;
const OFF: f64 = 1.3;
/// In standard deviations: no accident of what is unsure.
const BEYOND: f64 = 3.0;
/// How much of what was known is not any more, on another device, or after a time in which nobody
/// looked.
const DOUBT: f64 = 0.02;
/// Nanoseconds that no I/O of 1 MiB or less takes of any device, nor can be told from nothing.
const POSSIBLE: RangeInclusive<f64> = 1e-3..=1e12;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Nanoseconds an I/O, as the prior has them.
    prior: Weights,
    costs: Weights,
    /// The prior's covariance, in parts of its costs.
    spread: Box<[[f64; COSTS]; COSTS]>,
    covariance: Box<[[f64; COSTS]; COSTS]>,
    noise: f64,
    windows: u64,
    /// Windows in a row that were off to the same side (positive: longer than reckoned), and the
    /// lengths and reckoned lengths of them, summed up.
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

    /// Windows it has learnt from.
    pub(super) fn windows(&self) -> u64 {
        self.windows
    }

    /// Adds what was learnt to what is kept.
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

    /// Goes on with what was learnt before, less sure of it.
    pub(super) fn import(&mut self, fields: &mut Fields<'_>) -> Result<(), BlobError> {
        let mut kept = self.clone();
        kept.windows = fields.u64()?.clamp(1, MOST);
        kept.noise = fields.f64_in("the error of a window", NOISE[0]..=NOISE[1])?;
        for at in 0..COSTS {
            kept.prior[at] = fields.f64_in("a cost by itself", POSSIBLE)?;
            kept.costs[at] = fields.f64_in("a cost", POSSIBLE)?;
        }
        for at in 0..COSTS {
            for to in 0..=at {
                let known = fields.f64_in("a variance", f64::MIN..=f64::MAX)?;
                kept.covariance[at][to] = known;
                kept.covariance[to][at] = known;
            }
        }
        kept.check()?;
        kept.scale(1.0, DOUBT);
        *self = kept;
        Ok(())
    }

    /// Whether the covariance can be one: two costs vary together no more than each by itself.
    fn check(&self) -> Result<(), BlobError> {
        let of = &self.covariance;
        for at in 0..COSTS {
            for to in 0..=at {
                let both = of[at][at] * of[to][to];
                let value = of[at][to];
                // It is computed, so the last digits may be off.
                if of[at][at] < 0.0 || value * value > both * (1.0 + 1e-6) {
                    let value = value.to_string();
                    let what = "how two costs vary together";
                    return Err(BlobError::Value { what, value });
                }
            }
        }
        Ok(())
    }

    /// A window of `len` nanoseconds in which the device did these I/Os, and had enough to do.
    pub(super) fn learn(&mut self, ios: &Weights, len: f64) {
        let reckoned = dot(ios, &self.costs);
        if self.windows == 0 {
            self.scale(len / reckoned, 1.0);
        }
        self.windows += 1;
        // In parts of its length, so that all windows count alike.
        let mut part = *ios;
        part.iter_mut().for_each(|n| *n /= len);
        if self.is_off(&part, len, reckoned) {
            return;
        }
        self.forget();
        let (error, known) = self.correct(&part, 1.0, self.noise);
        let seen = (error * error - known).clamp(NOISE[0], NOISE[1]);
        self.noise += SMOOTH * (seen - self.noise);
        self.bound();
    }

    /// Whether a window is off by more than what is unsure explains. Nothing is learnt from it: it
    /// was an accident, or all of the device is another by now, which several in a row to one side
    /// tell.
    fn is_off(&mut self, part: &Weights, len: f64, reckoned: f64) -> bool {
        let error = 1.0 - reckoned / len;
        let beyond = error * error > BEYOND * BEYOND * (self.known(part) + self.noise);
        let side = match beyond && self.windows > 1 {
            true if len > OFF * reckoned => 1,
            true if len * OFF < reckoned => -1,
            _ => 0,
        };
        if side == 0 || self.row.signum() == -side {
            (self.row, self.off) = (0, [0.0; 2]);
        }
        if side == 0 {
            return false;
        }
        self.row += side;
        self.off = [self.off[0] + len, self.off[1] + reckoned];
        // If most are off, it is the error that is larger.
        let seen = (error * error).min(4.0 * self.noise).min(NOISE[1]);
        self.noise += SMOOTH / 5.0 * (seen - self.noise);
        if self.row.unsigned_abs() >= OFF_IN_A_ROW {
            self.scale(self.off[0] / self.off[1], DOUBT);
        }
        true
    }

    /// The variance of what these I/Os cost.
    fn known(&self, ios: &Weights) -> f64 {
        let rows = ios.iter().zip(self.covariance.iter());
        let seen = rows.filter(|(n, _)| **n != 0.0);
        seen.map(|(n, row)| n * dot(ios, row)).sum::<f64>().max(0.0)
    }

    /// What so many I/Os cost, in nanoseconds.
    pub(super) fn cost(&self, ios: &Few) -> f64 {
        ios.iter().map(|&(at, n)| n * self.costs[at]).sum()
    }

    /// The variance of that.
    pub(super) fn variance(&self, ios: &Few) -> f64 {
        let with_all = |at: usize| -> f64 {
            let row = &self.covariance[at];
            ios.iter().map(|&(to, n)| n * row[to]).sum()
        };
        let sum: f64 = ios.iter().map(|&(at, n)| n * with_all(at)).sum();
        sum.max(0.0)
    }

    /// All costs are this many times what they were, and `doubt` of what was known at first is not
    /// known again.
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

    /// The costs of `weights` are seen to be `sum`, with an error of this variance. Returns how far
    /// off it was, and the variance that was expected of that without the error.
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

    /// No I/O takes less than nothing: the cost that is lowest by its prior is put back to the
    /// least that there is, and others move along as far as they are not told apart from it: a
    /// projection by the covariance (Simon, Kalman filtering with state constraints, IET Control
    /// Theory 2010). It is no observation, so nothing becomes surer by it.
    fn bound(&mut self) {
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
