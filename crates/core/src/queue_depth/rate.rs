//! Rate at which a device delivers work while its depth is full, with its standard error.
//!
//! Completions are counted in batches. A batch counts only if a unit waited for the depth at nearly
//! all of its completions, so that gaps that the load or the policy leaves do not look like a slow
//! device. The error is that of a ratio estimator over batches: it reflects the observed variation,
//! whether the device is regular (an interface) or irregular (seeks).

use tidegate_base::time::Nanos;

/// Completions in the shortest batch.
pub(super) const BATCH: u32 = 4;
/// Completions of a batch at which a unit must wait for the depth, in quarters.
const FULL_QUARTERS: u32 = 3;

/// Measured rate of delivered work.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rate {
    /// Work per nanosecond: picoseconds of a saturated device by the profile, else bytes.
    pub(super) per_ns: f64,
    /// Standard error, as a fraction of `per_ns`.
    pub(super) error: f64,
    /// Mean work of an I/O.
    pub(super) each: f64,
}

impl Rate {
    /// Returns by which fraction this rate exceeds `other`, and the standard error of that.
    pub(super) fn gain_over(&self, other: &Rate) -> (f64, f64) {
        let ratio = self.per_ns / other.per_ns;
        // The square root is exact on every machine (IEEE 754), so results do not depend on it.
        let error = (self.error * self.error + other.error * other.error).sqrt();
        (ratio - 1.0, ratio * error)
    }
}

/// Measurement of one rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct RateMeter {
    /// Start of the measurement, later by the time in which the device had nothing to do.
    since: Nanos,
    /// Completions in a batch.
    batch: u32,
    /// Start, completions, work and completions at a full depth of the present batch.
    batch_since: Nanos,
    ends: u32,
    work: f64,
    full: u32,
    /// Batches that count, and batches dropped in a row.
    batches: u32,
    dropped: u32,
    /// Work per nanosecond of the last batch; `None`: it does not count, or there was none.
    last: Option<f64>,
    /// Sums over batches of work, time and their products.
    w: f64,
    t: f64,
    ww: f64,
    wt: f64,
    tt: f64,
}

impl RateMeter {
    /// Begins a measurement with batches of `batch` completions, at least [`BATCH`]. I/Os that
    /// complete in bursts look less irregular the longer batches are.
    pub(super) fn new(now: Nanos, batch: u32) -> RateMeter {
        RateMeter {
            since: now,
            batch: batch.max(BATCH),
            batch_since: now,
            ends: 0,
            work: 0.0,
            full: 0,
            batches: 0,
            dropped: 0,
            last: None,
            w: 0.0,
            t: 0.0,
            ww: 0.0,
            wt: 0.0,
            tt: 0.0,
        }
    }

    /// Drops the present batch, because the device had nothing to do meanwhile. That time does not
    /// count as time of the measurement: it may be a night, or all the time since the machine
    /// started.
    pub(super) fn interrupt(&mut self, now: Nanos) {
        self.since += now.since(self.batch_since);
        self.begin_batch(now);
    }

    fn begin_batch(&mut self, now: Nanos) {
        (self.batch_since, self.ends) = (now, 0);
        (self.work, self.full) = (0.0, 0);
    }

    /// Counts an I/O that completed; `full`: units waited for the depth. Returns `true` if a batch
    /// is over.
    #[inline]
    pub(super) fn ended(&mut self, now: Nanos, work: f64, full: bool) -> bool {
        self.ends += 1;
        self.work += work;
        self.full += u32::from(full);
        if self.ends < self.batch {
            return false;
        }
        if self.full * 4 >= self.batch * FULL_QUARTERS {
            let (w, t) = (self.work, now.since(self.batch_since).0 as f64);
            self.w += w;
            self.t += t;
            self.ww += w * w;
            self.wt += w * t;
            self.tt += t * t;
            self.batches += 1;
            self.dropped = 0;
            self.last = Some(w / t.max(1.0));
        } else {
            self.dropped += 1;
            self.last = None;
        }
        self.begin_batch(now);
        true
    }

    /// Returns the number of completions that count.
    pub(super) fn counted(&self) -> u32 {
        self.batches * self.batch
    }

    /// Returns the completions in batches dropped since the last one that counted.
    pub(super) fn dropped(&self) -> u32 {
        self.dropped * self.batch
    }

    /// Returns the work per nanosecond of the last batch; `None` if it does not count.
    pub(super) fn last(&self) -> Option<f64> {
        self.last
    }

    /// Returns the completions in a batch.
    pub(super) fn batch(&self) -> u32 {
        self.batch
    }

    /// Returns the time since the measurement began in which the device had something to do.
    pub(super) fn elapsed(&self, now: Nanos) -> Nanos {
        now.since(self.since)
    }

    /// Returns the rate so far; `None` before two batches and before time has passed.
    pub(super) fn rate(&self) -> Option<Rate> {
        if self.batches < 2 || self.t <= 0.0 || self.w <= 0.0 {
            return None;
        }
        let (n, per_ns) = (f64::from(self.batches), self.w / self.t);
        // Squared residuals of work against time x rate. Over n - 1 they give the variance of a
        // batch, times n that of the total.
        let residuals = self.ww - 2.0 * per_ns * self.wt + per_ns * per_ns * self.tt;
        let variance = residuals.max(0.0) * n / (n - 1.0);
        Some(Rate {
            per_ns,
            error: variance.sqrt() / self.w,
            each: self.w / (n * f64::from(self.batch)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_device_is_known_exactly_and_an_irregular_one_with_its_error() {
        let (mut regular, mut irregular) = (
            RateMeter::new(Nanos::ZERO, BATCH),
            RateMeter::new(Nanos::ZERO, BATCH),
        );
        let mut now = [Nanos::ZERO; 2];
        for n in 0..64 {
            now[0] += Nanos(1000);
            now[1] += Nanos(if n / 4 % 2 == 0 { 500 } else { 1500 });
            regular.ended(now[0], 2.0, true);
            irregular.ended(now[1], 2.0, true);
        }
        let regular = regular.rate().expect("16 batches");
        assert!((regular.per_ns - 0.002).abs() < 1e-12 && regular.error < 1e-6);
        let irregular = irregular.rate().expect("16 batches");
        assert!((irregular.per_ns - 0.002).abs() < 1e-12);
        // A deviation of a half over the root of 16 batches, corrected for one degree of freedom.
        assert!(
            (irregular.error - 0.129).abs() < 0.001,
            "{}",
            irregular.error
        );
    }

    #[test]
    fn batches_in_which_nothing_waited_do_not_count() {
        let mut meter = RateMeter::new(Nanos::ZERO, BATCH);
        for n in 1..=40 {
            meter.ended(Nanos(n * 1000), 1.0, false);
        }
        assert_eq!((meter.counted(), meter.dropped()), (0, 40));
        assert_eq!(meter.rate(), None);
    }

    #[test]
    fn time_in_which_the_device_has_nothing_to_do_is_no_time_of_the_measurement() {
        let hour = 3_600_000_000_000;
        let mut meter = RateMeter::new(Nanos::ZERO, BATCH);
        meter.interrupt(Nanos(hour));
        for n in 1..=6 {
            meter.ended(Nanos(hour + n * 1000), 1.0, true);
        }
        assert_eq!(meter.elapsed(Nanos(hour + 6000)), Nanos(6000));
        // The two ends after the last batch are dropped with the pause.
        meter.interrupt(Nanos(2 * hour));
        assert_eq!(meter.elapsed(Nanos(2 * hour)), Nanos(4000));
        assert_eq!(meter.counted(), 4);
    }
}
