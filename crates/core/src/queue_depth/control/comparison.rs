//! Comparison of measured rates of work: when a measurement is long enough, whether a difference is
//! certain, and which depth has the benefit of the doubt.

use super::DepthControl;
use crate::queue_depth::rate::Rate;
use tidegate_base::time::Nanos;

/// Ends that a measurement takes at least.
pub(super) const ENDS_MIN: u32 = 32;
/// Ends after which a measurement decides whatever its error, and those that it takes where they
/// are so slow that `LONG` has passed.
pub(super) const ENDS_MAX: u32 = 256;
const ENDS_SLOW: u32 = 128;
pub(super) const LONG: Nanos = Nanos::from_millis(100);
/// A measurement of few but regular I/Os decides after this time: 8 of 1 MiB at 200 MB/s.
const REGULAR: Nanos = Nanos::from_millis(40);
const ENDS_REGULAR: u32 = 12;
/// Largest relative error of the first measurement of a load on flash, unless it takes longer than
/// one comparison does.
const FIRST_ERROR_MAX: f64 = 0.1;
/// Batches that a comparison takes at least: of fewer the error is not known.
const BATCHES_MIN: u32 = 4;
/// Shortest comparison with a depth that is or was in force. A device's buffers make its rate go up
/// and down within milliseconds; a cloud disk (2026) was a tenth slower for 7 ms after the depth
/// had fallen.
const COMPARE_MIN_SEEKS: Nanos = Nanos::from_millis(2);
const COMPARE_MIN_FLASH: Nanos = Nanos::from_millis(8);
/// Longest uncertain comparison.
const COMPARE_LONG: Nanos = Nanos::from_millis(30);
/// Standard errors that make a comparison certain.
const CERTAIN: f64 = 1.5;
/// Work that a smaller depth may cost on a steady flash device, as a fraction: what is given up on
/// purpose, and an uncertain comparison.
const UNCERTAIN_LOSS_MAX: f64 = 0.03;
/// Time in nanoseconds that an I/O spends with the device, from which on more work is given up for
/// a shorter queue.
const SLOW_NS: f64 = 1e6;

impl DepthControl {
    /// Returns `true` if a measurement with this relative error is long enough to decide.
    pub(super) fn is_judged(&self, now: Nanos, error: f64) -> bool {
        let (ends, elapsed) = (self.meter.counted(), self.meter.elapsed(now));
        let few_but_regular = ends >= ENDS_REGULAR && elapsed >= REGULAR && error < 0.01;
        ends >= ENDS_MIN || (few_but_regular && !self.seeks)
    }

    /// Returns `true` if the first measurement of a load is precise enough to compare twice the
    /// depth with: of bursts, 32 ends may be one more or less than half.
    pub(super) fn is_first_judged(&self, now: Nanos, error: f64) -> bool {
        let is_vague = error > FIRST_ERROR_MAX && !self.seeks;
        self.is_judged(now, 0.0) && (!is_vague || self.is_over(now))
    }

    /// Returns `true` if a measurement decides whatever its error.
    fn is_over(&self, now: Nanos) -> bool {
        let (ends, elapsed) = (self.meter.counted(), self.meter.elapsed(now));
        ends >= ENDS_MAX || (ends >= ENDS_SLOW && elapsed >= LONG)
    }

    /// Decides if `margin`, known to `error`, is positive; `None`: not yet. A measurement that ends
    /// uncertain counts with `lean` errors added, so that a disk with seeks keeps the larger depth.
    /// An unsteady device is certain of negative margins sooner, since a trial may cost much.
    pub(super) fn verdict(&self, now: Nanos, margin: f64, error: f64, lean: f64) -> Option<bool> {
        let certain_below = CERTAIN + self.doubt_of_growth();
        let sure = margin >= CERTAIN * error || margin <= -error * certain_below;
        if sure && self.is_judged(now, error) {
            return Some(margin >= 0.0);
        }
        let knows_error = self.seeks || self.noise.is_significant();
        let favour = if knows_error {
            error
        } else {
            error.min((UNCERTAIN_LOSS_MAX - self.tuning.loss(false)).max(0.0))
        };
        self.is_over(now).then_some(margin + lean * favour >= 0.0)
    }

    /// Decides as [`DepthControl::verdict`] does, with more time, between two depths. `margin`: of
    /// the smaller one, or of the larger one where `lean` is that of [`DepthControl::doubt`].
    pub(super) fn compare(&self, now: Nanos, margin: f64, error: f64, lean: f64) -> Option<bool> {
        let (ends, elapsed) = (self.meter.counted(), self.meter.elapsed(now));
        let shortest = if self.seeks {
            COMPARE_MIN_SEEKS
        } else {
            COMPARE_MIN_FLASH
        };
        let few = ends < BATCHES_MIN * self.meter.batch() || elapsed < shortest;
        let uncertain = margin.abs() < CERTAIN * error && elapsed < COMPARE_LONG;
        if few || uncertain {
            None
        } else {
            self.verdict(now, margin, error, lean)
        }
    }

    /// Returns the errors by which the larger depth is favoured where a comparison is uncertain. A
    /// disk with seeks gains by depths that its irregular rate hides for long. Elsewhere the
    /// smaller depth is favoured, or chance would raise the depth now and then.
    pub(super) fn doubt(&self) -> f64 {
        if self.seeks { 1.0 } else { -1.0 }
    }

    /// Returns the errors by which growth is favoured while the depth of a load is first searched.
    /// A steady flash disk grows on by chance, since smaller depths are tried afterwards.
    pub(super) fn doubt_of_growth(&self) -> f64 {
        match () {
            () if self.seeks => 1.0,
            () if self.noise.is_significant() => -1.0,
            () => 0.0,
        }
    }

    /// Returns the fraction of the work of `reference`, measured at the depth in force, that a
    /// smaller depth may cost.
    pub(super) fn loss(&self, reference: &Rate) -> f64 {
        // By Little's law: the time that an I/O spends with the device.
        let took_ns = f64::from(self.depth) * reference.each / reference.per_ns;
        self.tuning.loss(took_ns > SLOW_NS)
    }
}
