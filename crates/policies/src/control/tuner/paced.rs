//! The paced tuner: the throttle holds the target at all times, and the merge limit has nothing to
//! hold. It only sees to it that the device does as much.
//!
//! ```text
//!      behind its pace by half a second             the same at the top      the same everywhere
//!   L -----------------------------------> 2 L ... top --> fine / 4 ... 1 --> the best, inadequate
//!     <-----------------------------------
//!      was enough for half a minute; and for twice as long after each time that half of it was not
//! ```
//!
//! The paper's tuner finds a bandwidth between those of two merge limits, by windows in which it
//! has one or the other, so how smooth it is depends on the window and has to be searched. Here the
//! bandwidth is the throttle's, which carries what is late: that is the feed-forward and the
//! integral, both exact. A merge limit that is larger than need be costs fineness alone. So L
//! begins as large as is fine enough (`grain`), which is cheap for the device and its other
//! tenants, and doubles when that is too little.
//!
//! Larger is not always more: a VM that has so many requests outstanding and no more has fewer I/Os
//! with the device the larger they are, and where each of them waits behind neighbours, few come to
//! less. So below what is fine enough is looked, too, by quarters, before more is said not to be
//! had.

use crate::regulate::merge_limit::PAGE;
use tidegate_base::time::Nanos;

/// A VM's pace is looked at no more often.
const WINDOW: Nanos = Nanos::from_millis(125);
/// Others' turns may make slots late by up to so long for them to go at once.
pub(super) const LATENESS: Nanos = Nanos::from_millis(400);
/// A VM that is so far behind needs another merge limit: a quarter of what the throttle still makes
/// good.
const BEHIND: Nanos = Nanos::from_millis(500);
/// For so long a merge limit has to be enough for half of it to be tried.
const ENOUGH: Nanos = Nanos::from_secs(30);
/// The same after it was too little many times.
pub(super) const ENOUGH_MOST: Nanos = Nanos::from_secs(3600);
/// By how much L shrinks while it is looked below what is fine enough.
const BELOW: u32 = 4;

/// How often a VM's pace is looked at whose I/Os have so many units, at so many a second: no more
/// often than they come, and each second at the least.
pub(super) fn window(units: u64, per_s: u64) -> Nanos {
    Nanos(units * 1_000_000_000 / per_s.max(1))
        .max(WINDOW)
        .min(Nanos::SECOND)
}

/// A window in which the VM asked for its target; in bytes, or in thousandths of an I/O.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    /// The target, a second.
    pub per_s: u64,
    /// How long the VM wanted it: what is due while it has nothing inside is lost.
    pub asked_for: Nanos,
    /// What ended.
    pub moved: u64,
    /// What one I/O may come to.
    pub largest: u64,
    /// A larger merge limit helps.
    pub by_limit: bool,
}

/// The state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Paced {
    /// L, in pages.
    pub limit: u32,
    /// The largest L.
    top: u32,
    /// The L that is fine enough.
    fine: u32,
    /// By how much it is behind, in units times nanoseconds a second.
    behind: u128,
    /// For how long L was enough.
    enough: Nanos,
    /// For how long it has to be.
    pub patience: Nanos,
    /// L is half of what was enough.
    tried: bool,
    /// Since when the device has not done enough at any L.
    pub short_since: Option<Nanos>,
    /// What moved at this L, and for how long the VM wanted it.
    here: (u64, Nanos),
    /// The L that came to most of those that were too little, and what it came to a second.
    best: (u64, u32),
    /// L is below what is fine enough, as all above is too little.
    below: bool,
    /// It is not looked there before, and for how long not after the next time in vain.
    not_before: Nanos,
    pause: Nanos,
}

impl Paced {
    /// Of a VM without a target yet.
    pub(super) fn new(top: u32) -> Paced {
        Paced {
            limit: 1,
            top,
            fine: 1,
            behind: 0,
            enough: Nanos::ZERO,
            patience: ENOUGH,
            tried: false,
            short_since: None,
            here: (0, Nanos::ZERO),
            best: (0, 1),
            below: false,
            not_before: Nanos::ZERO,
            pause: ENOUGH,
        }
    }

    /// For another target in bytes a second: an I/O takes no longer than `grain` of it, or is a
    /// page.
    pub(super) fn begin(&mut self, bytes_per_s: u64, grain: Nanos) {
        let bytes = u128::from(bytes_per_s) * u128::from(grain.0) / 1_000_000_000;
        let pages = u32::try_from(bytes / u128::from(PAGE)).unwrap_or(u32::MAX);
        let fine = pages.clamp(1, self.top);
        *self = Paced {
            limit: fine,
            fine,
            ..Paced::new(self.top)
        };
    }

    /// Goes on as it was elsewhere.
    pub(super) fn resume(&mut self, limit: u32, patience: Nanos) {
        self.limit = limit.clamp(self.fine, self.top);
        self.patience = patience.max(ENOUGH).min(ENOUGH_MOST);
    }

    /// A window has ended in which the VM asked for its target.
    pub(super) fn act(&mut self, now: Nanos, passed: &Passed) {
        let span = |time: Nanos| u128::from(passed.per_s) * u128::from(time.0);
        let of = |units: u64| u128::from(units) * 1_000_000_000;
        let (due, moved) = (span(passed.asked_for), of(passed.moved));
        // A slot that has not come yet, and an I/O that has not ended, are no delay.
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

    /// L is too little.
    fn raise(&mut self, now: Nanos, by_limit: bool) {
        let enough = core::mem::take(&mut self.enough);
        if !by_limit || (self.short_since.is_some() && !self.below) {
            self.short_since.get_or_insert(now);
            return;
        }
        self.note();
        let in_vain = self.tried && enough < self.patience;
        self.patience = match in_vain {
            true => Nanos(self.patience.0 * 2).min(ENOUGH_MOST),
            false => ENOUGH,
        };
        match (self.below, self.limit) {
            // Twice what was enough is too much: back.
            (true, limit) if in_vain => self.turn(limit / 2),
            (true, 1) => self.give_up(now),
            (true, limit) => self.turn(limit / BELOW),
            (false, limit) if limit < self.top => self.turn(limit.saturating_mul(2)),
            (false, _) if self.fine > 1 && now >= self.not_before => {
                // Said meanwhile: it is so, and mostly stays so.
                (self.below, self.short_since) = (true, Some(now));
                self.turn(self.fine / BELOW);
            }
            (false, _) => self.give_up(now),
        }
    }

    /// What this L came to.
    fn note(&mut self) {
        let (moved, time) = self.here;
        let per_s = u128::from(moved) * 1_000_000_000 / u128::from(time.0.max(1));
        let per_s = u64::try_from(per_s).unwrap_or(u64::MAX);
        if per_s > self.best.0 {
            self.best = (per_s, self.limit);
        }
    }

    fn turn(&mut self, limit: u32) {
        self.limit = limit.clamp(1, self.top);
        (self.behind, self.tried) = (0, false);
        self.here = (0, Nanos::ZERO);
    }

    /// No L is enough: the best of them it is.
    fn give_up(&mut self, now: Nanos) {
        if self.below {
            self.not_before = now + self.pause;
            self.pause = Nanos(self.pause.0 * 2).min(ENOUGH_MOST);
        }
        let (_, best) = core::mem::take(&mut self.best);
        if best > 0 {
            self.turn(best);
        }
        self.below = false;
        self.short_since.get_or_insert(now);
    }

    /// L was enough for long: one that is nearer to what is fine enough may be, too.
    fn lower(&mut self) {
        let limit = match self.below {
            true => (self.limit * 2).min(self.fine),
            false => (self.limit / 2).max(self.fine),
        };
        let tried = limit != self.limit;
        self.turn(limit);
        (self.enough, self.tried, self.best) = (Nanos::ZERO, tried, (0, limit));
        // At what is fine enough it may prove too much yet.
        self.below &= tried;
    }

    /// The device does enough again.
    pub(super) fn recovered(&mut self) {
        (self.short_since, self.behind) = (None, 0);
    }

    /// L in bytes.
    pub(super) fn bytes(&self) -> u32 {
        self.limit * PAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: u64 = 8_192_000;

    /// A device that does so many bytes a second for each page of the limit; for so many seconds.
    fn run(paced: &mut Paced, by_page: u64, seconds: u64) {
        for window in 0..seconds * 8 {
            let able = by_page * u64::from(paced.limit);
            // What is late is made good at a tenth above the target.
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
        paced.begin(TARGET, Nanos::from_millis(2));
        assert_eq!(paced.limit, 4, "16 KiB in 2 ms");
        paced
    }

    #[test]
    fn it_begins_as_large_as_is_fine_enough() {
        for (target, limit) in [
            (0, 1),
            (1, 1),
            (100_000, 1),
            (3_000_000, 11),
            (u64::MAX, 256),
        ] {
            let mut paced = Paced::new(256);
            paced.begin(target, Nanos::from_millis(16));
            assert_eq!(paced.limit, limit, "{target}");
        }
    }

    #[test]
    fn what_comes_seldom_is_looked_at_seldom() {
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
        assert_eq!((paced.limit, paced.patience), (4, ENOUGH));
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

    /// A device that comes to the target with so many pages an I/O or fewer.
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
    fn where_smaller_is_more_it_is_found_and_kept() {
        let mut paced = Paced::new(32);
        paced.begin(TARGET, Nanos::from_millis(50));
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
    fn in_vain_it_is_looked_for_ever_more_seldom_and_the_best_is_kept() {
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
    fn what_comes_from_elsewhere_is_kept_within_bounds() {
        let mut paced = paced(64);
        paced.resume(1, Nanos::ZERO);
        assert_eq!((paced.limit, paced.patience), (4, ENOUGH));
        paced.resume(1000, Nanos::MAX);
        assert_eq!((paced.limit, paced.patience), (64, ENOUGH_MOST));
    }
}
