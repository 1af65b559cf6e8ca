//! How long the arm takes: a curve settled by the three figures that datasheets give.
//!
//! Over the fraction `x` of the full stroke, a seek takes `a + b·sqrt(x)` up to a third of the
//! stroke (the arm accelerates, then brakes) and grows linearly beyond it (the arm coasts). The
//! two parts meet at the knee. With the knee fixed, three figures leave one such curve:
//!
//! - one track takes the track-to-track time;
//! - the whole stroke takes the full-stroke time;
//! - the mean over all pairs of tracks is the average seek time. This is how manufacturers
//!   define it (Hitachi Deskstar 7K1000.C specification, 4.5.2.1: "the weighted average of all
//!   possible seek combinations"); a seek over exactly a third of the stroke takes a little
//!   longer, because the curve is concave.

use tidegate_core::time::Nanos;

/// Where the square root ends, as a fraction of the stroke.
const KNEE: f64 = 1.0 / 3.0;
/// The share of random pairs of tracks no farther apart than the knee. Distances of random
/// pairs have the density `2·(1 − x)`.
const SHORT: f64 = 5.0 / 9.0;
/// The integral of `2·(1 − x)·(1 − x)` from the knee to 1: what a slope beyond the knee takes
/// off the mean.
const LONG_MOMENT: f64 = 16.0 / 81.0;

/// The seek time of a drive as a function of distance.
#[derive(Clone, PartialEq, Debug)]
pub struct SeekCurve {
    /// Nanoseconds: every short seek takes at least this.
    base: f64,
    /// Nanoseconds per square root of the stroke.
    root: f64,
    /// Nanoseconds per stroke, beyond the knee.
    slope: f64,
    /// Nanoseconds.
    full: f64,
    /// Tracks from the first to the last.
    stroke: f64,
}

/// The three figures do not describe one curve: the average must lie between these two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AverageOutOfRange {
    /// Everything below is too short for the other two figures.
    pub above: Nanos,
    /// Everything above is too long for them.
    pub below: Nanos,
}

impl SeekCurve {
    /// Fits the curve for a drive whose tracks are at most `stroke` apart (at least 8).
    ///
    /// # Errors
    /// When the average fits no rising curve between the other two figures.
    ///
    /// # Panics
    /// When `stroke` is below 8 or `full_stroke` not above `track_to_track`.
    pub fn fit(
        track_to_track: Nanos,
        average: Nanos,
        full_stroke: Nanos,
        stroke: u64,
    ) -> Result<SeekCurve, AverageOutOfRange> {
        assert!(stroke >= 8, "a stroke of {stroke} tracks has no curve");
        assert!(
            full_stroke > track_to_track,
            "the longest seek must take longest"
        );
        let (one, mean, full) = (
            track_to_track.0 as f64,
            average.0 as f64,
            full_stroke.0 as f64,
        );
        let one_root = (1.0 / stroke as f64).sqrt();
        let knee_root = KNEE.sqrt();
        // The integral of 2·(1 − x)·sqrt(x) up to the knee.
        let root_moment = knee_root * KNEE * (4.0 / 3.0 - 4.0 / 5.0 * KNEE);

        // base = one − root·one_root and slope = (full − base − root·knee_root) / (1 − KNEE)
        // leave the mean linear in root.
        let flat = SHORT * one + (1.0 - SHORT) * full - LONG_MOMENT * (full - one) / (1.0 - KNEE);
        let gain =
            root_moment - SHORT * one_root + LONG_MOMENT * (knee_root - one_root) / (1.0 - KNEE);
        let root = (mean - flat) / gain;
        let steepest = (full - one) / (knee_root - one_root);
        if !(root > 0.0 && root < steepest) {
            return Err(AverageOutOfRange {
                above: Nanos(flat as u64),
                below: Nanos((flat + gain * steepest) as u64),
            });
        }
        let base = one - root * one_root;
        let slope = (full - base - root * knee_root) / (1.0 - KNEE);
        Ok(SeekCurve {
            base,
            root,
            slope,
            full,
            stroke: stroke as f64,
        })
    }

    /// How long a seek over `tracks` takes; none over no track.
    pub fn time(&self, tracks: u64) -> Nanos {
        if tracks == 0 {
            return Nanos::ZERO;
        }
        let x = (tracks as f64 / self.stroke).min(1.0);
        // Multiplication and square root round the same way everywhere, so this is exact
        // enough to be equal on all machines.
        let ns = if x <= KNEE {
            self.base + self.root * x.sqrt()
        } else {
            self.full - self.slope * (1.0 - x)
        };
        Nanos((ns + 0.5) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STROKE: u64 = 999;

    fn curve() -> SeekCurve {
        let ms = Nanos::from_millis;
        SeekCurve::fit(ms(1), Nanos(8_500_000), ms(15), STROKE).unwrap()
    }

    #[test]
    fn hits_its_three_figures() {
        let c = curve();
        assert_eq!(c.time(0), Nanos::ZERO);
        assert_eq!(c.time(1), Nanos::from_millis(1));
        assert_eq!(c.time(STROKE), Nanos::from_millis(15));
        // The manufacturers' weighted average over all pairs of different tracks.
        let (mut sum, mut pairs) = (0_u128, 0_u128);
        for d in 1..=STROKE {
            let n = u128::from(STROKE + 1 - d);
            sum += n * u128::from(c.time(d).0);
            pairs += n;
        }
        let mean = (sum / pairs) as f64 / 8.5e6;
        assert!((mean - 1.0).abs() < 0.002, "mean is {mean} of the figure");
    }

    #[test]
    fn rises_without_a_jump() {
        let c = curve();
        for d in 1..STROKE {
            let step = c.time(d + 1).since(c.time(d));
            assert!(step > Nanos::ZERO && step < Nanos(300_000), "{d}: {step}");
        }
    }

    #[test]
    fn refuses_an_average_that_no_curve_has_and_says_which_it_could_be() {
        let ms = Nanos::from_millis;
        let short = SeekCurve::fit(ms(1), ms(2), ms(15), STROKE).unwrap_err();
        let long = SeekCurve::fit(ms(1), ms(14), ms(15), STROKE).unwrap_err();
        assert_eq!(short, long);
        for average in [short.above + Nanos(2), short.below.since(Nanos(2))] {
            assert!(
                SeekCurve::fit(ms(1), average, ms(15), STROKE).is_ok(),
                "{average}"
            );
        }
    }
}
