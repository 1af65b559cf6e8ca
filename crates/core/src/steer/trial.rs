//! A trial of a depth: pairs of windows, an anchor's and a candidate's, until the difference stands
//! out of what the pairs differ by.

/// Pairs of windows that decide a trial.
const PAIRS_MIN: u32 = 3;
const PAIRS_MAX: u32 = 12;
/// The first pair decides where the candidate lost more than that.
const HOPELESS: f64 = -0.2;
/// What a pair may say at most, so that a window in which the device stood still does not outweigh
/// all others.
const GAIN_MOST: f64 = 0.5;
/// What a smaller depth may cost.
const TOLERANCE_DOWN: f64 = 0.03;
/// What the depth in force may cost.
const TOLERANCE_KEEP: f64 = 0.05;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Down,
    Between,
    Keep,
}

/// Windows of an anchor's depth and a candidate's in turn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Trial {
    pub(super) step: Step,
    pub(super) anchor: u32,
    pub(super) candidate: u32,
    /// What the anchor did in this pair, once it is known.
    pub(super) by_anchor: Option<f64>,
    pairs: u32,
    /// Sums of what the candidate did more than the anchor, as a part of it, and of the squares.
    sum: f64,
    squares: f64,
    /// Windows in a row that said nothing.
    pub(super) empty: u32,
}

impl Trial {
    pub(super) fn new(step: Step, anchor: u32, candidate: u32) -> Trial {
        Trial {
            step,
            anchor,
            candidate,
            by_anchor: None,
            pairs: 0,
            sum: 0.0,
            squares: 0.0,
            empty: 0,
        }
    }

    fn tolerance(&self) -> f64 {
        match self.step {
            Step::Down | Step::Between => TOLERANCE_DOWN,
            Step::Keep => TOLERANCE_KEEP,
        }
    }

    /// What a window has shown; whether the candidate passes, once that is decided.
    pub(super) fn window(&mut self, rate: f64) -> Option<bool> {
        let Some(by_anchor) = self.by_anchor.take() else {
            self.by_anchor = Some(rate);
            return None;
        };
        let gain = (rate / by_anchor - 1.0).clamp(-GAIN_MOST, GAIN_MOST);
        self.pairs += 1;
        self.sum += gain;
        self.squares += gain * gain;
        if self.pairs == 1 && gain < HOPELESS {
            return Some(false);
        }
        if self.pairs < PAIRS_MIN {
            return None;
        }
        let n = f64::from(self.pairs);
        let (mean, least) = (self.sum / n, -self.tolerance());
        let variance = ((self.squares - n * mean * mean) / (n - 1.0)).max(0.0);
        // The square root of a variance is exact on every machine (IEEE 754).
        let error = (variance / n).sqrt();
        match () {
            () if mean - error >= least => Some(true),
            () if mean + error < least => Some(false),
            () if self.pairs >= PAIRS_MAX => Some(mean >= least),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_window_out_of_line_does_not_decide_a_trial() {
        // The candidate does a tenth less; the anchor stood still in one window.
        let mut trial = Trial::new(Step::Down, 32, 8);
        let mut passes = None;
        for pair in 0..PAIRS_MAX {
            let anchor = if pair == 1 { 0.01 } else { 1.0 };
            assert_eq!(trial.window(anchor), None);
            passes = trial.window(0.9);
            if passes.is_some() {
                break;
            }
        }
        assert_eq!(passes, Some(false));
    }
}
