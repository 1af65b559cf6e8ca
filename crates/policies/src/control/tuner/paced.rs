//! Paced tuner: the throttle holds the target at all times, so the merge limit only has to let the
//! device reach that rate.
//!
//! ```text
//!      behind its pace by half a second             the same at the top      the same everywhere
//!   L -----------------------------------> 2 L ... top --> fine / 4 ... 1 --> the best, inadequate
//!     <-----------------------------------
//!      was enough for half a minute; and for twice as long after each time that half of it was not
//! ```
//!
//! The paper's tuner holds a bandwidth between those of two merge limits by windows with one or the
//! other, so its smoothness depends on the window, which has to be searched. Here the throttle
//! holds the bandwidth and carries late slots: they are the feed-forward and the integral, both
//! exact. A merge limit larger than needed only makes the bandwidth less smooth. So L begins at the
//! largest value that is smooth enough (`grain`), which is cheap for the device and its other VMs,
//! and doubles when that is too little.
//!
//! Larger is not always faster: a VM with a fixed number of requests outstanding has fewer I/Os at
//! the device the larger they are, and where each waits behind neighbours, fewer I/Os move less. So
//! before a shortfall is reported, values below the smooth one are tried, too, each a quarter of
//! the last.

use crate::regulate::merge_limit::PAGE_BYTES;
use tidegate_base::time::Nanos;

/// Shortest interval between two checks of a VM's pace.
const WINDOW: Nanos = Nanos::from_millis(125);
/// Longest regular lateness, caused by other VMs' turns, that is made good at once.
pub(super) const LATENESS: Nanos = Nanos::from_millis(400);
/// Backlog at which a VM needs another merge limit: a quarter of what the throttle still makes
/// good.
const BEHIND: Nanos = Nanos::from_millis(500);
/// Time for which a merge limit has to be enough before half of it is tried.
const GOOD_TIME: Nanos = Nanos::from_secs(30);
/// Longest such time, reached by doubling after each failed try.
pub(super) const GOOD_TIME_MAX: Nanos = Nanos::from_secs(3600);
/// Divisor of L in the search below the limit that is fine enough.
const BELOW: u32 = 4;

/// Returns the interval of pace checks for a VM whose I/Os have `units` units each, at `per_s`
/// units a second: the time between two I/Os, between `WINDOW` and a second.
pub(super) fn window(units: u64, per_s: u64) -> Nanos {
    Nanos(units * 1_000_000_000 / per_s.max(1))
        .max(WINDOW)
        .min(Nanos::SECOND)
}

/// Measurements of a window in which the VM asked for its target, in bytes or thousandths of an
/// I/O.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    /// Target a second.
    pub per_s: u64,
    /// Time for which the VM had requests inside. Nothing is owed for the rest of the window.
    pub asked_for: Nanos,
    /// Amount that ended.
    pub moved: u64,
    /// Largest amount of one I/O.
    pub largest: u64,
    /// A larger merge limit may raise the amount.
    pub by_limit: bool,
}

/// State of the paced tuner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Paced {
    /// L, in pages.
    pub limit: u32,
    /// Largest L, in pages.
    top: u32,
    /// Largest L, in pages, at which a single I/O takes no longer than `grain`.
    fine: u32,
    /// Backlog in units times nanoseconds a second.
    behind: u128,
    /// Time for which L has been enough.
    enough: Nanos,
    /// Time for which L has to be enough before a smaller one is tried.
    pub patience: Nanos,
    /// L is a try: half of a limit that was enough, or twice in the search below.
    tried: bool,
    /// Time since which the device has not reached the target at any L.
    pub short_since: Option<Nanos>,
    /// Amount moved at this L, and the time for which the VM wanted it.
    here: (u64, Nanos),
    /// Best of the limits that were too little: its rate a second, and L.
    best: (u64, u32),
    /// L is below `fine`, because every L from there up was too little.
    below: bool,
    /// Earliest time of the next search below `fine`, and the pause after that search if it fails,
    /// too.
    not_before: Nanos,
    pause: Nanos,
}

impl Paced {
    /// Creates the state of a VM without a target.
    pub(super) fn new(top: u32) -> Paced {
        Paced {
            limit: 1,
            top,
            fine: 1,
            behind: 0,
            enough: Nanos::ZERO,
            patience: GOOD_TIME,
            tried: false,
            short_since: None,
            here: (0, Nanos::ZERO),
            best: (0, 1),
            below: false,
            not_before: Nanos::ZERO,
            pause: GOOD_TIME,
        }
    }

    /// Starts with another target, at the L whose I/Os take no longer than `grain` at that rate, or
    /// a page.
    pub(super) fn begin_search(&mut self, bytes_per_s: u64, grain: Nanos) {
        let bytes = u128::from(bytes_per_s) * u128::from(grain.0) / 1_000_000_000;
        let pages = u32::try_from(bytes / u128::from(PAGE_BYTES)).unwrap_or(u32::MAX);
        let fine = pages.clamp(1, self.top);
        *self = Paced {
            limit: fine,
            fine,
            ..Paced::new(self.top)
        };
    }

    /// Continues with limit and patience learnt elsewhere, within this VM's bounds.
    pub(super) fn resume(&mut self, limit: u32, patience: Nanos) {
        self.limit = limit.clamp(self.fine, self.top);
        self.patience = patience.max(GOOD_TIME).min(GOOD_TIME_MAX);
    }

    /// Takes in a window in which the VM asked for its target, and changes L if needed.
    pub(super) fn act(&mut self, now: Nanos, passed: &Passed) {
        let span = |time: Nanos| u128::from(passed.per_s) * u128::from(time.0);
        let of = |units: u64| u128::from(units) * 1_000_000_000;
        let (due, moved) = (span(passed.asked_for), of(passed.moved));
        // A slot that is not due and an I/O that has not ended are no backlog: hence two I/Os on
        // top.
        let most = span(BEHIND) + of(passed.largest.saturating_mul(2));
        self.behind = (self.behind + due).saturating_sub(moved).min(2 * most);
        self.enough += passed.asked_for;
        self.here = (
            self.here.0.saturating_add(passed.moved),
            self.here.1 + passed.asked_for,
        );
        if self.behind > most && moved < due {
            self.raise(now, passed.by_limit);
        } else if self.enough >= self.patience && self.short_since.is_none() {
            self.lower();
        }
    }

    /// Reacts to an L that is too little: raises it, searches below `fine`, or gives up.
    fn raise(&mut self, now: Nanos, by_limit: bool) {
        let enough = core::mem::take(&mut self.enough);
        if !by_limit || (self.short_since.is_some() && !self.below) {
            self.short_since.get_or_insert(now);
            return;
        }
        self.record_limit();
        let in_vain = self.tried && enough < self.patience;
        self.patience = if in_vain {
            Nanos(self.patience.0 * 2).min(GOOD_TIME_MAX)
        } else {
            GOOD_TIME
        };
        match (self.below, self.limit) {
            // A doubled L failed during the search below: back to the one that was enough.
            (true, limit) if in_vain => self.set_limit(limit / 2),
            (true, 1) => self.give_up(now),
            (true, limit) => self.set_limit(limit / BELOW),
            (false, limit) if limit < self.top => self.set_limit(limit.saturating_mul(2)),
            (false, _) if self.fine > 1 && now >= self.not_before => {
                // The shortfall is reported during the search already, since searching mostly finds
                // nothing.
                (self.below, self.short_since) = (true, Some(now));
                self.set_limit(self.fine / BELOW);
            }
            (false, _) => self.give_up(now),
        }
    }

    /// Records the rate of this L if it is the best so far.
    fn record_limit(&mut self) {
        let (moved, time) = self.here;
        let per_s = u128::from(moved) * 1_000_000_000 / u128::from(time.0.max(1));
        let per_s = u64::try_from(per_s).unwrap_or(u64::MAX);
        if per_s > self.best.0 {
            self.best = (per_s, self.limit);
        }
    }

    fn set_limit(&mut self, limit: u32) {
        self.limit = limit.clamp(1, self.top);
        (self.behind, self.tried) = (0, false);
        self.here = (0, Nanos::ZERO);
    }

    /// Ends a search in which no L was enough: keeps the best one and reports the shortfall.
    fn give_up(&mut self, now: Nanos) {
        if self.below {
            self.not_before = now + self.pause;
            self.pause = Nanos(self.pause.0 * 2).min(GOOD_TIME_MAX);
        }
        let (_, best) = core::mem::take(&mut self.best);
        if best > 0 {
            self.set_limit(best);
        }
        self.below = false;
        self.short_since.get_or_insert(now);
    }

    /// Moves L a step towards `fine` after it was enough for the whole patience.
    fn lower(&mut self) {
        let limit = if self.below {
            (self.limit * 2).min(self.fine)
        } else {
            (self.limit / 2).max(self.fine)
        };
        let tried = limit != self.limit;
        self.set_limit(limit);
        (self.enough, self.tried, self.best) = (Nanos::ZERO, tried, (0, limit));
        // At `fine` itself the search below is over only if that L, too, is enough; until then it
        // may fail.
        self.below &= tried;
    }

    /// Ends the shortfall: the device reaches the target again.
    pub(super) fn recovered(&mut self) {
        (self.short_since, self.behind) = (None, 0);
    }

    /// L in bytes.
    pub(super) fn bytes(&self) -> u32 {
        self.limit * PAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: u64 = 8_192_000;

    /// Runs the tuner for `seconds` on a device that does `by_page` bytes a second per page of the
    /// limit.
    fn run(paced: &mut Paced, by_page: u64, seconds: u64) {
        for window in 0..seconds * 8 {
            let able = by_page * u64::from(paced.limit);
            // Backlog is made good at a tenth above the target.
            let wanted = if paced.behind > 0 {
                TARGET / 10 * 11
            } else {
                TARGET
            };
            let passed = Passed {
                per_s: TARGET,
                asked_for: WINDOW,
                moved: able.min(wanted) / 8,
                largest: paced.bytes().into(),
                by_limit: true,
            };
            paced.act(Nanos(window * WINDOW.0), &passed);
        }
    }

    fn paced(top: u32) -> Paced {
        let mut paced = Paced::new(top);
        paced.begin_search(TARGET, Nanos::from_millis(2));
        assert_eq!(paced.limit, 4, "16 KiB in 2 ms");
        paced
    }

    #[test]
    fn search_begins_at_the_largest_smooth_limit() {
        for (target, limit) in [
            (0, 1),
            (1, 1),
            (100_000, 1),
            (3_000_000, 11),
            (u64::MAX, 256),
        ] {
            let mut paced = Paced::new(256);
            paced.begin_search(target, Nanos::from_millis(16));
            assert_eq!(paced.limit, limit, "{target}");
        }
    }

    #[test]
    fn slow_vms_are_checked_in_longer_windows() {
        let ms = |units, per_s| window(units, per_s).0 / 1_000_000;
        assert_eq!([ms(4096, 30_000_000), ms(4096, 16_384)], [125, 250]);
        assert_eq!(
            [ms(4096, 1), ms(1000, 1_000), ms(u32::MAX.into(), 0)],
            [1000; 3]
        );
    }

    #[test]
    fn a_limit_that_is_enough_stays() {
        let mut paced = paced(64);
        run(&mut paced, TARGET / 4 + 1, 1000);
        assert_eq!((paced.limit, paced.patience), (4, GOOD_TIME));
    }

    #[test]
    fn a_limit_that_is_too_small_doubles_within_seconds() {
        let mut paced = paced(64);
        run(&mut paced, TARGET / 13, 5);
        assert_eq!((paced.limit, paced.short_since), (16, None));
        let mut paced = self::paced(13);
        run(&mut paced, TARGET / 12, 5);
        assert_eq!((paced.limit, paced.short_since), (13, None));
    }

    #[test]
    fn half_of_what_was_enough_is_tried_ever_more_seldom() {
        let mut paced = paced(64);
        run(&mut paced, TARGET / 7, 5);
        let mut raised = Vec::new();
        for second in 0..2000 {
            let before = paced.patience;
            run(&mut paced, TARGET / 7, 1);
            assert!((4..=8).contains(&paced.limit), "{paced:?}");
            if paced.patience > before {
                raised.push(second);
            }
        }
        // Each time twice as long after the last.
        assert!((5..=7).contains(&raised.len()), "{raised:?}");
        assert!(paced.patience >= Nanos::from_secs(30 << 5));
        // Where less is enough again it is found.
        run(&mut paced, TARGET, 2000);
        assert_eq!(paced.limit, 4);
    }

    /// Runs the tuner for `seconds` on a device that reaches the target only with at most `enough`
    /// pages an I/O. Returns the number of changes of the limit.
    fn run_small(paced: &mut Paced, enough: u32, seconds: u64) -> u32 {
        let mut turned = 0;
        for window in 0..seconds * 8 {
            let wanted = if paced.behind > 0 {
                TARGET / 10 * 11
            } else {
                TARGET
            };
            let able = if paced.limit <= enough {
                TARGET * 2
            } else {
                TARGET / 4 * 3
            };
            let passed = Passed {
                per_s: TARGET,
                asked_for: WINDOW,
                moved: able.min(wanted) / 8,
                largest: paced.bytes().into(),
                by_limit: true,
            };
            let before = paced.limit;
            paced.act(Nanos(window * WINDOW.0), &passed);
            if passed.moved >= TARGET / 8 {
                paced.recovered();
            }
            turned += u32::from(paced.limit != before);
        }
        turned
    }

    #[test]
    fn smaller_limit_with_a_higher_rate_is_found_and_kept() {
        let mut paced = Paced::new(32);
        paced.begin_search(TARGET, Nanos::from_millis(50));
        assert_eq!(paced.limit, 32);
        run_small(&mut paced, 3, 10);
        assert_eq!((paced.limit, paced.short_since), (2, None));
        // Twice as much is tried, ever more seldom.
        let turned = run_small(&mut paced, 3, 2000);
        assert!(
            paced.limit <= 4 && (8..=16).contains(&turned),
            "{turned}: {paced:?}"
        );
        assert_eq!(paced.short_since, None);
        // Where more is enough again it is found.
        run_small(&mut paced, 32, 8 * 3600);
        assert_eq!((paced.limit, paced.below), (32, false));
    }

    #[test]
    fn failed_searches_become_rarer_and_keep_the_best_limit() {
        let mut paced = paced(16);
        for window in 0..4000 * 8 {
            // Four fifths at the top at most: told, and taken back by whatever.
            let passed = Passed {
                per_s: TARGET,
                asked_for: WINDOW,
                moved: TARGET / 20 * u64::from(paced.limit) / 8,
                largest: paced.bytes().into(),
                by_limit: true,
            };
            paced.act(Nanos(window * WINDOW.0), &passed);
            if paced.short_since.is_some() && window % 80 == 79 {
                assert_eq!(paced.limit, 16);
                paced.recovered();
            }
        }
        assert!(paced.pause >= Nanos::from_secs(240), "{paced:?}");
    }

    #[test]
    fn at_the_top_and_still_behind_is_said_and_taken_back() {
        let mut paced = paced(8);
        run(&mut paced, TARGET / 10, 20);
        assert_eq!(paced.limit, 8);
        let since = paced.short_since.expect("a fifth is missing");
        assert!(since <= Nanos::from_secs(6), "{since}");
        run(&mut paced, TARGET / 10, 1000);
        assert_eq!(paced.limit, 8, "nothing changes while it is so");
        paced.recovered();
        run(&mut paced, TARGET, 5);
        assert_eq!(paced.short_since, None);
    }

    #[test]
    fn slices_of_the_device_are_no_delay() {
        // Nothing for 500 ms, then all of it in 125.
        let mut paced = paced(64);
        for window in 0..1000 {
            let passed = Passed {
                per_s: TARGET,
                asked_for: WINDOW,
                moved: if window % 5 == 4 { TARGET / 8 * 5 } else { 0 },
                largest: paced.bytes().into(),
                by_limit: true,
            };
            paced.act(Nanos(window * WINDOW.0), &passed);
        }
        assert_eq!(paced.limit, 4);
    }

    #[test]
    fn imported_state_is_kept_within_bounds() {
        let mut paced = paced(64);
        paced.resume(1, Nanos::ZERO);
        assert_eq!((paced.limit, paced.patience), (4, GOOD_TIME));
        paced.resume(1000, Nanos::MAX);
        assert_eq!((paced.limit, paced.patience), (64, GOOD_TIME_MAX));
    }
}
