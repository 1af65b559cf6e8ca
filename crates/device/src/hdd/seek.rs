//! Seek time as a function of distance, fitted to the three figures that datasheets state.
//!
//! Over the fraction `x` of the full stroke, a seek takes `a + b·sqrt(x)` up to a third of the
//! stroke, because the arm accelerates and then brakes at a limited force. Beyond, it grows
//! linearly, because the arm coasts at its top speed. This is the form of Ruemmler and Wilkes, "An
//! Introduction to Disk Drive Modeling" (IEEE Computer 27(3), 1994); the knee at a third is a
//! choice. Both parts meet at the knee, which leaves one curve for three figures:
//!
//! - a seek over one track takes the track-to-track time;
//! - a seek over the whole stroke takes the full-stroke time;
//! - the mean over all pairs of tracks is the average seek time, as manufacturers define it
//!   (Hitachi Deskstar 7K1000.C specification, 4.5.2.1: "the weighted average of all possible seek
//!   combinations"). A seek over exactly a third of the stroke takes a little longer than that,
//!   because the curve is concave.

use tidegate_core::time::Nanos;

/// Distance at which the curve becomes linear, as a fraction of the stroke; a choice.
const KNEE: f64 = 1.0 / 3.0;
/// Share of random pairs of tracks that are at most `KNEE` apart: distances of random pairs have
/// the density `2·(1 − x)`, so it is `1 − (1 − KNEE)²`.
const SHORT_SHARE: f64 = 5.0 / 9.0;
/// Integral of `2·(1 − x)·(1 − x)` from `KNEE` to 1: the amount by which one unit of slope beyond
/// the knee reduces the mean.
const LONG_MOMENT: f64 = 16.0 / 81.0;

/// Seek time of a drive as a function of distance.
#[derive(Clone, PartialEq, Debug)]
pub struct SeekCurve {
    /// Constant part of short seeks in nanoseconds (settling).
    base: f64,
    /// Coefficient of the square root in nanoseconds (acceleration).
    root: f64,
    /// Nanoseconds per full stroke beyond the knee (coasting).
    slope: f64,
    /// Full-stroke time in nanoseconds.
    full: f64,
    /// Distance from the first to the last track, in tracks.
    stroke: f64,
}

/// Refusal of an average seek time that no curve has, given the other two figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AverageOutOfRange {
    /// Averages up to this one are too short.
    pub above: Nanos,
    /// Averages from this one on are too long.
    pub below: Nanos,
}

impl SeekCurve {
    /// Fits the curve of a drive whose tracks are at most `stroke` apart.
    ///
    /// # Errors
    /// If no rising concave curve between the other two figures has this average.
    ///
    /// # Panics
    /// If `stroke` is below 8, or `full_stroke` is not above `track_to_track`.
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
        // Integral of 2·(1 − x)·sqrt(x) from 0 to the knee.
        let root_moment = knee_root * KNEE * (4.0 / 3.0 - 4.0 / 5.0 * KNEE);

        // With base = one − root·one_root and slope = (full − base − root·knee_root) / (1 − KNEE),
        // the mean is linear in `root`, which therefore needs no iteration.
        let flat = SHORT_SHARE * one + (1.0 - SHORT_SHARE) * full
            - LONG_MOMENT * (full - one) / (1.0 - KNEE);
        let gain = root_moment - SHORT_SHARE * one_root
            + LONG_MOMENT * (knee_root - one_root) / (1.0 - KNEE);
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

    /// Returns the seek time over `tracks`; zero for no distance.
    pub fn time(&self, tracks: u64) -> Nanos {
        if tracks == 0 {
            return Nanos::ZERO;
        }
        let x = (tracks as f64 / self.stroke).min(1.0);
        // Rounded to the nearest nanosecond.
        Nanos((self.time_at(x) + 0.5) as u64)
    }

    /// Returns the time in nanoseconds over the fraction `x` of the stroke; linear beyond 1.
    fn time_at(&self, x: f64) -> f64 {
        // IEEE 754 defines multiplication and square root exactly, so results are equal on all
        // machines.
        if x <= KNEE {
            self.base + self.root * x.sqrt()
        } else {
            self.full - self.slope * (1.0 - x)
        }
    }
}

/// Logarithm to base 2 of the number of table entries per octave of distance.
const STEPS_LOG2: u32 = 6;

/// Seek curve as a table of integers, for drives that compare many seeks per decision.
///
/// It has an entry for every distance up to `2 << STEPS_LOG2`, then `1 << STEPS_LOG2` entries per
/// octave with linear interpolation. The error is below 1/100,000 of the seek, except for the
/// interval that contains the knee: there it is up to 1/500.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SeekTable {
    /// Seek times in nanoseconds; a seek takes at most 1 s.
    nodes: Box<[u32]>,
}

impl SeekTable {
    pub(super) fn new(curve: &SeekCurve) -> SeekTable {
        let stroke = curve.stroke as u64;
        let (last, _) = SeekTable::entry(stroke);
        let node = |index: usize| {
            let octave = (index >> STEPS_LOG2).saturating_sub(1) as u32;
            let tracks = (index as u64 - (u64::from(octave) << STEPS_LOG2)) << octave;
            match tracks {
                0 => 0,
                _ => (curve.time_at(tracks as f64 / curve.stroke) + 0.5) as u32,
            }
        };
        SeekTable {
            // One more than the last: `time` interpolates towards the next entry.
            nodes: (0..=last + 1).map(node).collect(),
        }
    }

    /// Returns the index of the entry at or before a distance, and the logarithm to base 2 of the
    /// distance between it and the next entry.
    fn entry(tracks: u64) -> (usize, u32) {
        // `| 1`: the logarithm of 0 is undefined, and 0 lies in the first octave as 1 does.
        let octave = (tracks | 1).ilog2().saturating_sub(STEPS_LOG2);
        (
            (octave << STEPS_LOG2) as usize + (tracks >> octave) as usize,
            octave,
        )
    }

    /// Returns the seek time in nanoseconds over `tracks`, which must not exceed the stroke.
    pub(super) fn time(&self, tracks: u64) -> u64 {
        let (index, octave) = SeekTable::entry(tracks);
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
