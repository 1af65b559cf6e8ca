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
        Nanos((self.at(x) + 0.5) as u64)
    }

    /// Nanoseconds over the fraction `x` of the stroke; goes on in a line beyond 1.
    fn at(&self, x: f64) -> f64 {
        // Multiplication and square root round the same way everywhere, so this is exact
        // enough to be equal on all machines.
        if x <= KNEE {
            self.base + self.root * x.sqrt()
        } else {
            self.full - self.slope * (1.0 - x)
        }
    }
}

/// Steps an octave of distance is tabulated in, as a power of two.
const STEPS: u32 = 6;

/// The curve tabulated: a drive that weighs many seeks against each other looks them up, and
/// with integers alone. Every distance up to `2 << STEPS`, then `1 << STEPS` an octave with
/// straight lines between them. The lines err by less than a hundred-thousandth of the seek, but
/// for the one that cuts the corner at the knee: there it is up to 1/500.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SeekTable {
    /// Nanoseconds; a seek takes at most a second.
    nodes: Box<[u32]>,
}

impl SeekTable {
    pub(super) fn new(curve: &SeekCurve) -> SeekTable {
        let stroke = curve.stroke as u64;
        let (last, _) = SeekTable::step(stroke);
        let node = |index: usize| {
            let octave = (index >> STEPS).saturating_sub(1) as u32;
            let tracks = (index as u64 - (u64::from(octave) << STEPS)) << octave;
            match tracks {
                0 => 0,
                _ => (curve.at(tracks as f64 / curve.stroke) + 0.5) as u32,
            }
        };
        SeekTable {
            nodes: (0..=last + 1).map(node).collect(),
        }
    }

    /// The node at or before a distance, and how many distances lie between it and the next,
    /// as a power of two.
    fn step(tracks: u64) -> (usize, u32) {
        let octave = (tracks | 1).ilog2().saturating_sub(STEPS);
        (
            (octave << STEPS) as usize + (tracks >> octave) as usize,
            octave,
        )
    }

    /// Nanoseconds over `tracks`, at most the stroke.
    pub(super) fn time(&self, tracks: u64) -> u64 {
        let (index, octave) = SeekTable::step(tracks);
        let (from, to) = (self.nodes[index], self.nodes[index + 1]);
        let past = tracks & ((1 << octave) - 1);
        u64::from(from) + ((u64::from(to - from) * past) >> octave)
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
    fn the_table_follows_the_curve() {
        let ms = Nanos::from_millis;
        for stroke in [8, 63, 64, 129, 999, 200_000, 1_000_000] {
            let c = SeekCurve::fit(ms(1), ms(7), ms(15), stroke).unwrap();
            let table = SeekTable::new(&c);
            assert_eq!(table.time(0), 0);
            assert_eq!(table.time(1), 1_000_000);
            for i in 0..=2_000 {
                let d = (stroke * i / 2_000).max(1);
                let (exact, found) = (c.time(d).0, table.time(d));
                let at_knee = (d * 3).abs_diff(stroke) < stroke / 16;
                let most = exact / if at_knee { 500 } else { 100_000 };
                assert!(found.abs_diff(exact) <= 1 + most, "{d}: {found}");
            }
            assert!(table.time(stroke).abs_diff(15_000_000) <= 1);
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
