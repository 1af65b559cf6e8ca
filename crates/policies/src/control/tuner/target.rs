//! TR, target revision: corrects the bandwidth that tuning actions aim at, so that the VM's
//! bandwidth is the objective's (section 4.3 of the paper that [`tuner`](super) cites). A step
//! every statistical interval.
//!
//! An error B outside the tolerance moves the aim against its sign, by `factor` of the objective:
//! half the error the first time, two points more on the same side and two less on the other one.
//! Beyond the threshold a step is multiplied by the number of steps in a row on that side. The aim
//! stays within 0.5 to 1.5 of the objective, and `factor` between two points and the threshold.
//! Without these bounds half of a large error at the start would make the aim swing from end to
//! end, two points less each time.

use tidegate_base::precision::MILLION;

/// Parameters of target revision, all in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TargetTerms {
    /// Errors up to this size change nothing.
    pub tolerance: u64,
    /// Change of `factor` in one step.
    pub step: u64,
    /// Errors above this size multiply their step by the run; also the largest `factor`.
    pub threshold: u64,
}

/// State of target revision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TargetRevision {
    /// Objective in bytes a second.
    pub objective: u64,
    /// b_TARGET: bandwidth to aim at, in bytes a second.
    pub aim: u64,
    /// adjust_factor, in millionths; 0: nothing has been revised yet.
    pub factor: u64,
    /// The last step was upwards.
    pub up: bool,
    /// Number of steps in a row in that direction.
    pub run: u64,
}

impl TargetRevision {
    /// Starts with the objective as the aim.
    pub(super) fn new(objective: u64) -> TargetRevision {
        TargetRevision {
            objective,
            aim: objective,
            factor: 0,
            up: false,
            run: 0,
        }
    }

    /// Returns the smallest and the largest aim: 0.5 and 1.5 of the objective.
    pub(super) fn bounds(objective: u64) -> (u64, u64) {
        ((objective / 2).max(1), objective + objective / 2)
    }

    /// Revises the aim after an interval with error B, in millionths.
    pub(super) fn step(&mut self, error: i64, terms: &TargetTerms) {
        let (up, size) = (error < 0, error.unsigned_abs());
        if size <= terms.tolerance {
            self.run = 0;
            return;
        }
        let is_same_side = self.up == up;
        let max_factor = terms.threshold.max(terms.step);
        self.factor = match (self.factor, is_same_side) {
            (0, _) => size / 2,
            (factor, true) => factor + terms.step,
            (factor, false) => factor.saturating_sub(terms.step),
        }
        .clamp(terms.step, max_factor);
        self.run = if is_same_side { self.run + 1 } else { 1 };
        self.up = up;
        let times = if size > terms.threshold { self.run } else { 1 };
        let part = u128::from(self.factor) * u128::from(times);
        let by = u128::from(self.objective) * part / u128::from(MILLION);
        let by = u64::try_from(by).unwrap_or(u64::MAX);
        let (min, max) = TargetRevision::bounds(self.objective);
        let aim = if up {
            self.aim.saturating_add(by)
        } else {
            self.aim.saturating_sub(by)
        };
        self.aim = aim.clamp(min, max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: TargetTerms = TargetTerms {
        tolerance: 50_000,
        step: 20_000,
        threshold: 100_000,
    };

    /// Returns the aim after each of these errors, in per cent, for an objective of 1000.
    fn aims(errors: &[i64]) -> Vec<u64> {
        let mut revision = TargetRevision::new(1000);
        let step = |&percent: &i64| {
            revision.step(percent * 10_000, &TERMS);
            revision.aim
        };
        errors.iter().map(step).collect()
    }

    #[test]
    fn steps_are_half_the_error_then_two_points_more_or_less() {
        // Half of 8 %; then 6 %, then the other way by 4 %, and by 6 %.
        assert_eq!(aims(&[8, 8, -8, -8]), [960, 900, 940, 1000]);
        // Within the tolerance nothing moves, and steps are in a row no more.
        assert_eq!(aims(&[8, 5, -5, 0, 8]), [960, 960, 960, 960, 900]);
    }

    #[test]
    fn large_errors_are_multiplied_by_the_steps_in_a_row_and_not_compounded() {
        // 6 %, then 8 % twice over, then 10 % three times: 0.94, 0.78, and the lower bound.
        assert_eq!(aims(&[12, 12, 12, 12]), [940, 780, 500, 500]);
        // A change of side begins to count anew: 6 %, then 4 %, then 6 % twice over.
        assert_eq!(aims(&[12, -12, -12]), [940, 980, 1100]);
        // Smaller ones are not multiplied, but count.
        assert_eq!(aims(&[8, 8, 12]), [960, 900, 660]);
    }

    #[test]
    fn the_aim_stays_within_its_bounds_and_the_factor_within_the_threshold() {
        assert_eq!(aims(&[-600, -600, -600]), [1100, 1300, 1500]);
        assert_eq!(aims(&[600, -600, 6]), [900, 980, 920]);
        let mut revision = TargetRevision::new(1);
        revision.step(i64::MAX, &TERMS);
        assert_eq!(revision.aim, 1, "never nothing");
        let mut revision = TargetRevision::new(1 << 50);
        (0..9).for_each(|_| revision.step(i64::MIN, &TERMS));
        assert_eq!(revision.aim, 3 << 49);
    }

    /// Checks convergence on a device that always moves a fixed part too much, or too little.
    #[test]
    fn a_constant_drift_is_revised_away() {
        for gain in [0.75, 0.8, 0.9, 1.1, 1.3, 1.6] {
            let mut revision = TargetRevision::new(30_000_000);
            let mut error = 0;
            for _ in 0..20 {
                let moved = revision.aim as f64 * gain;
                error = ((moved / 30e6 - 1.0) * 1e6) as i64;
                revision.step(error, &TERMS);
            }
            assert!(error.unsigned_abs() <= TERMS.tolerance, "{gain}: {error}");
        }
    }
}
