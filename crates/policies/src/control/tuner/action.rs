//! TA, the tuning action: chooses the merge limit L in pages, and the use of the throttle, for the
//! next window (section 4.3 of the paper that [`tuner`](super) cites).
//!
//! ```text
//!            too little                    too little              too little
//!   throttled ---------> one page ... L ------------> L + 1 ... top ---------> inadequate
//!            <---------          <-----------
//!             too much             too much
//! ```
//!
//! What is too much or too little is the error carried over all windows so far, so that two limits
//! alternate in the proportion that gives the target between them: 15 MB/s at one and 70 at the
//! next give 30, not 42.5. A window whose own error is of the other sign already corrects it, and
//! changes nothing. With [`Carry::Nothing`] it is the error of the last window alone, as in the
//! paper.

use crate::regulate::merge_limit::PAGE_BYTES;
use tidegate_base::time::Nanos;

/// Time for which the device has to fall short of the target before status output says so.
pub(super) const SHORTFALL_REPORT_DELAY: Nanos = Nanos::SECOND;

/// Amounts moved and due in a window, with the largest error to carry over, all in one unit: bytes
/// or thousandths of an I/O.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    /// Amount that the device completed.
    pub measured: u128,
    /// Amount that the target asks of the window.
    pub due: u128,
    /// Maximum error, of either sign, that is carried over; the rest of a larger one is dropped.
    pub max_carried: u128,
    /// Amount of one page.
    pub page: u128,
}

/// Use that TA makes of the errors of earlier windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Carry {
    /// Decides by the last window alone, as the paper has it.
    Nothing,
    /// Adds errors up, and drops the sum where the throttle begins: that carries late slots itself.
    UntilThrottled,
    /// Adds errors up through the throttle as well, as is needed where the throttle is not exact.
    Throughout,
}

/// State of the tuning action.
#[derive(Clone, Copy, Debug)]
pub(super) struct Action {
    /// L, in pages.
    pub limit: u32,
    /// Largest L, in pages.
    pub top: u32,
    /// L is 1, and the delay slice holds the target.
    pub throttled: bool,
    carry: Carry,
    /// Sum over past windows, or of the last one, of the excess over the target; below zero: a
    /// shortfall.
    carried: i128,
    /// Time since which the device has moved too little at the largest L; `None`: it moves enough.
    pub short_since: Option<Nanos>,
}

impl Action {
    /// Starts at one page, throttled or not.
    pub(super) fn new(top: u32, throttled: bool) -> Action {
        Action {
            limit: 1,
            top,
            throttled,
            carry: Carry::UntilThrottled,
            carried: 0,
            short_since: None,
        }
    }

    /// Returns the state with this use of the errors of earlier windows.
    pub(super) fn carrying(self, carry: Carry) -> Action {
        Action { carry, ..self }
    }

    /// Continues at another limit, with nothing carried.
    pub(super) fn restart(&mut self, limit: u32, throttled: bool) {
        let top = self.top;
        *self = Action {
            limit: limit.clamp(1, top),
            carry: self.carry,
            ..Action::new(top, throttled)
        };
    }

    /// Takes in a window in which the VM asked for its target. `tolerance` in per cent;
    /// `throttles`: a delay slice exists below one page.
    pub(super) fn step(&mut self, now: Nanos, moved: &Moved, tolerance: u64, throttles: bool) {
        let Moved {
            measured,
            due,
            max_carried,
            page,
        } = *moved;
        // All four are products of 64-bit figures and stay far below 2^127.
        let (measured, due) = (measured as i128, due as i128);
        let max = max_carried as i128;
        let before = match self.carry {
            Carry::Nothing => 0,
            Carry::UntilThrottled | Carry::Throughout => self.carried,
        };
        let carried = (before + measured - due).clamp(-max, max);
        self.carried = carried;
        let band = due / 100 * i128::from(tolerance);
        if self.short_since.is_some() && measured + band >= due {
            self.short_since = None;
        }
        if carried > band && measured > due {
            self.lower(throttles);
        } else if carried < -band && measured < due {
            // Under the throttle up to two pages may be due without being late: the slot that is
            // not yet due, and the one before it. The paper has no such rule.
            if !self.throttled || self.carry == Carry::Nothing || carried < -2 * page as i128 {
                self.raise(now, measured + band < due);
            }
        }
    }

    fn lower(&mut self, throttles: bool) {
        if self.limit > 1 {
            self.limit -= 1;
        } else if throttles && !self.throttled {
            self.throttled = true;
            if self.carry == Carry::UntilThrottled {
                self.carried = 0;
            }
        }
    }

    fn raise(&mut self, now: Nanos, is_below_band: bool) {
        if self.throttled {
            self.throttled = false;
        } else if self.limit < self.top {
            self.limit += 1;
        } else if is_below_band {
            self.short_since.get_or_insert(now);
        }
    }

    /// L in bytes.
    pub(super) fn bytes(&self) -> u32 {
        self.limit * PAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs windows on a device whose bandwidth follows the limit at once. Returns the mean
    /// bandwidth, and the limit of each window.
    fn run(action: &mut Action, target: u64, by_limit: &[u64], windows: u64) -> (f64, Vec<u32>) {
        let mut sum = 0;
        let mut limits = Vec::new();
        for window in 0..windows {
            let able = by_limit[action.limit as usize - 1];
            let measured = if action.throttled {
                able.min(target)
            } else {
                able
            };
            sum += measured;
            limits.push(action.limit);
            let moved = Moved {
                measured: measured.into(),
                due: target.into(),
                max_carried: 2 * u128::from(target),
                page: 0,
            };
            action.step(Nanos(window), &moved, 5, true);
        }
        (sum as f64 / windows as f64, limits)
    }

    #[test]
    fn two_limits_alternate_to_give_a_rate_between_theirs() {
        let mut action = Action::new(11, false);
        let by_limit: Vec<u64> = [15_000, 70_000].into_iter().chain([90_000; 9]).collect();
        let (mean, limits) = run(&mut action, 30_000, &by_limit, 1000);
        assert!((mean / 30_000.0 - 1.0).abs() < 0.005, "{mean}");
        assert!(
            limits.iter().all(|&limit| limit <= 2),
            "no third limit is tried"
        );
        let upper = limits.iter().filter(|&&limit| limit == 2).count();
        // 15 x + 70 (1 - x) = 30 where the upper has 27.3 %.
        assert!((265..=281).contains(&upper), "{upper}");
    }

    #[test]
    fn by_the_last_window_alone_two_limits_have_as_many_windows_each() {
        let by_limit: Vec<u64> = [15_000, 70_000].into_iter().chain([90_000; 9]).collect();
        let mut action = Action::new(11, false).carrying(Carry::Nothing);
        // Section 3.4's 15 and 70 MB/s, whatever is between them.
        for target in [30_000, 60_000] {
            let (mean, _) = run(&mut action, target, &by_limit, 1000);
            assert_eq!(mean, 42_500.0, "at {target}");
        }
        // A window without a page ends the throttle.
        let mut action = Action::new(11, true).carrying(Carry::Nothing);
        let moved = Moved {
            measured: 0,
            due: 3276,
            max_carried: 65536,
            page: 4096,
        };
        action.step(Nanos(0), &moved, 5, true);
        assert!(!action.throttled);
    }

    #[test]
    fn a_target_that_a_limit_meets_within_the_band_stays_with_it() {
        let mut action = Action::new(11, false);
        let by_limit: Vec<u64> = (1..=11).map(|limit| limit * 10_000).collect();
        let (mean, limits) = run(&mut action, 50_000, &by_limit, 100);
        assert!(limits[10..].iter().all(|&limit| limit == 5), "{limits:?}");
        // Bytes missed during the ascent are made good, up to the two windows' worth carried.
        assert!((mean - 50_000.0).abs() < 0.05 * 50_000.0, "{mean}");
    }

    #[test]
    fn below_the_smallest_limit_the_throttle_holds_and_leaves_first() {
        let mut action = Action::new(11, false);
        action.restart(3, false);
        let (_, limits) = run(&mut action, 5_000, &[15_000; 11], 20);
        assert!(action.throttled && limits.ends_with(&[1]));
        let (mean, _) = run(&mut action, 5_000, &[15_000; 11], 100);
        assert_eq!(mean, 5_000.0);
        // The device becomes slower: first the throttle goes, then the limit rises.
        let slow: Vec<u64> = (1..=11).map(|limit| limit * 2_000).collect();
        let (_, limits) = run(&mut action, 5_000, &slow, 1);
        assert_eq!((limits[0], action.limit, action.throttled), (1, 1, false));
        let (mean, limits) = run(&mut action, 5_000, &slow, 1000);
        assert!((mean / 5_000.0 - 1.0).abs() < 0.01, "{mean}");
        assert!(limits[10..].iter().all(|limit| (2..=3).contains(limit)));
    }

    #[test]
    fn a_shortfall_at_the_largest_limit_keeps_the_limit_and_is_reported() {
        let mut action = Action::new(4, false);
        let (_, limits) = run(&mut action, 50_000, &[10_000, 20_000, 30_000, 40_000], 50);
        assert!(limits[4..].iter().all(|&limit| limit == 4));
        assert_eq!(
            action.short_since,
            Some(Nanos(3)),
            "since the first window at the top"
        );
        // Bytes missed meanwhile are made good only up to two windows' worth.
        let (_, limits) = run(&mut action, 50_000, &[50_000, 100_000, 100_000, 100_000], 4);
        assert_eq!(action.short_since, None);
        assert!(limits.last() < Some(&4), "{limits:?}");
    }

    #[test]
    fn limits_that_do_not_rise_with_the_merge_limit_cost_windows_and_no_more() {
        // A dip at 4: TA climbs over it.
        let mut action = Action::new(6, false);
        let by_limit = [10_000, 20_000, 30_000, 25_000, 45_000, 60_000];
        let (mean, _) = run(&mut action, 40_000, &by_limit, 2000);
        assert!((mean / 40_000.0 - 1.0).abs() < 0.01, "{mean}");
    }

    #[test]
    fn a_throttle_below_its_rate_holds_the_target_only_with_the_error_carried_on() {
        // Throttled the VM has a tenth of the target, at one page four times as much.
        let mean = |carry| {
            let mut action = Action::new(1, false).carrying(carry);
            // A restart keeps the reading.
            action.restart(1, false);
            let mut sum = 0;
            for window in 0..1000 {
                let measured = if action.throttled { 100 } else { 4000 };
                sum += measured;
                let moved = Moved {
                    measured,
                    due: 1000,
                    max_carried: 8000,
                    page: 0,
                };
                action.step(Nanos(window), &moved, 5, true);
            }
            sum as f64 / 1000.0
        };
        let throughout = mean(Carry::Throughout);
        assert!((throughout - 1000.0).abs() < 10.0, "{throughout}");
        // One window of each in turn, as each is decided by the last window alone.
        assert_eq!(mean(Carry::UntilThrottled), 2050.0);
    }

    #[test]
    fn windows_shorter_than_a_slot_do_not_end_the_throttle() {
        // A page of 4096 a window of 3276 due: nothing in some windows.
        let mut action = Action::new(11, true);
        for window in 0..1000u128 {
            let pages = |by: u128| by * 3276 / 4096;
            let moved = Moved {
                measured: (pages(window + 1) - pages(window)) * 4096,
                due: 3276,
                max_carried: 65536,
                page: 4096,
            };
            action.step(Nanos(window as u64), &moved, 5, true);
            assert!(action.throttled, "in window {window}");
        }
    }
}
