//! WR, window revision: finds the window for which a tuning action holds. Algorithm 1 of the paper
//! that [`tuner`](super) cites; a step every statistical interval.
//!
//! A search by halves between the shortest and the longest window, at the start and whenever V
//! rises above a threshold, then not again for ten intervals unless the objective changes. Read so
//! that the windows that the paper prints come out: the last V is infinite at first and the first
//! window always bounds the search from above; where V and beta are good enough the measured window
//! stays, and where the range is exhausted its middle.

/// Parameters of window revision: windows in milliseconds, V and beta in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WindowTerms {
    /// Shortest window, at least 1.
    pub min: u64,
    /// Longest window, with which the search begins.
    pub max: u64,
    /// UN_WIN: width of a range of windows that is not searched further.
    pub undivided: u64,
    /// BEST_V: V at which the search ends.
    pub best_v: u64,
    /// B_threshold: largest beta at which a window counts as precise.
    pub threshold: u64,
    /// U: rise of V that does not yet count as worse.
    pub unsteady: u64,
    /// V above which the search is restarted.
    pub worst_v: u64,
    /// The window that met the goal is kept; `false`: it moves before the goal is tested, as
    /// algorithm 1 is printed.
    pub goal_keeps_window: bool,
}

/// Statistical intervals for which a finished search is not restarted (the paper's ten).
pub(super) const RESTS: u64 = 10;

/// State of window revision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WindowRevision {
    pub terms: WindowTerms,
    /// Current window in ms.
    pub window: u64,
    pub low: u64,
    pub high: u64,
    /// V of the interval before; `None`: the first interval, whose V always counts as lower.
    pub last_v: Option<u64>,
    pub searching: bool,
    /// Intervals until the search may be restarted.
    pub rests: u64,
}

impl WindowRevision {
    /// Starts a search at the longest window.
    pub(super) fn new(terms: WindowTerms) -> WindowRevision {
        WindowRevision {
            terms,
            window: terms.max,
            low: terms.min.min(terms.max),
            high: terms.max,
            last_v: None,
            searching: true,
            rests: 0,
        }
    }

    /// Allows an early restart of the search, as the objective has changed.
    pub(super) fn objective_changed(&mut self) {
        self.rests = 0;
    }

    /// Takes in an interval's V and beta, and moves to the next window.
    pub(super) fn step(&mut self, v: u64, beta: u64) {
        let terms = self.terms;
        if !self.searching {
            self.rests = self.rests.saturating_sub(1);
            if self.rests == 0 && v > terms.worst_v {
                *self = WindowRevision::new(terms);
            }
            return;
        }
        let precise = beta <= terms.threshold;
        let met = precise && v <= terms.best_v;
        if met && terms.goal_keeps_window {
            return self.settle();
        }
        let no_worse = |last: u64| precise && v.saturating_sub(terms.unsteady) <= last;
        if self.last_v.is_none_or(no_worse) {
            self.high = self.window;
        } else {
            self.low = self.window;
        }
        self.last_v = Some(v);
        self.window = (self.low + self.high) / 2;
        if met || self.high - self.low <= terms.undivided {
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.searching = false;
        self.rests = RESTS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 5.1.1's parameters.
    const PAPER: WindowTerms = WindowTerms {
        min: 32,
        max: 1024,
        undivided: 32,
        best_v: 50_000,
        threshold: 100_000,
        unsteady: 30_000,
        worst_v: 200_000,
        goal_keeps_window: true,
    };

    /// Windows measured, with (V, beta) in hundredths of a per cent, and the window settled on.
    fn search(intervals: &[(u64, u64)]) -> (Vec<u64>, u64) {
        let mut revision = WindowRevision::new(PAPER);
        let mut measured = Vec::new();
        for &(v, beta) in intervals {
            assert!(
                revision.searching,
                "settled on {} too early",
                revision.window
            );
            measured.push(revision.window);
            revision.step(v * 100, beta * 100);
        }
        assert!(!revision.searching, "still at {}", revision.window);
        (measured, revision.window)
    }

    /// Figure 7, what the text says of it; the other figures are between those.
    #[test]
    fn the_windows_that_the_paper_settles_on_come_out() {
        // SRvar: beta is above the threshold in the first interval alone, V falls but for a small
        // rise within U, and is 4.62 % at 63 ms.
        let srvar = [
            (2500, 1800),
            (1800, 400),
            (1200, 300),
            (600, 200),
            (792, 200),
            (462, 200),
        ];
        assert_eq!(search(&srvar), (vec![1024, 528, 280, 156, 94, 63], 63));
        // RRvar: V rises from 9.45 to 15.13 % in the sixth, at 63 ms.
        let rrvar = [
            (3000, 900),
            (2200, 500),
            (1600, 400),
            (1200, 300),
            (945, 300),
            (1513, 400),
        ];
        assert_eq!(search(&rrvar), (vec![1024, 528, 280, 156, 94, 63], 78));
        // SWvar: beta rises from 7 to 14.91 % in the fourth, at 156 ms.
        let swvar = [
            (3000, 900),
            (2500, 800),
            (2000, 700),
            (1500, 1491),
            (1400, 600),
            (1300, 600),
        ];
        assert_eq!(search(&swvar), (vec![1024, 528, 280, 156, 218, 187], 171));
    }

    #[test]
    fn a_first_window_that_is_good_enough_stays() {
        assert_eq!(search(&[(500, 1000)]), (vec![1024], 1024));
        // The goal is met at both thresholds, not beyond one of them.
        let mut revision = WindowRevision::new(PAPER);
        revision.step(50_000, 100_001);
        assert!(revision.searching && revision.window == 528);
    }

    /// SRvar of figure 7: V of 2.70 % at 94 ms, and 4.62 % at 63 ms thereafter.
    #[test]
    fn as_printed_the_window_moves_before_the_goal_is_tested() {
        let mut revision = WindowRevision::new(WindowTerms {
            goal_keeps_window: false,
            ..PAPER
        });
        for (window, v) in [(1024, 250), (528, 180), (280, 120), (156, 60), (94, 27)] {
            assert_eq!((revision.window, revision.searching), (window, true));
            revision.step(v * 1000, 0);
        }
        assert_eq!((revision.window, revision.searching), (63, false));
    }

    #[test]
    fn a_rise_within_u_is_none_and_beyond_it_is_one() {
        let mut revision = WindowRevision::new(PAPER);
        revision.step(100_000, 0);
        revision.step(130_000, 0);
        assert_eq!((revision.low, revision.high), (32, 528));
        revision.step(160_001, 0);
        assert_eq!(
            (revision.low, revision.high, revision.window),
            (280, 528, 404)
        );
    }

    #[test]
    fn the_search_begins_anew_when_v_is_bad_and_enough_time_has_passed() {
        let mut revision = WindowRevision::new(PAPER);
        revision.step(0, 0);
        for _ in 1..RESTS {
            revision.step(900_000, 0);
            assert!(!revision.searching);
        }
        revision.step(200_000, 0);
        assert!(!revision.searching, "not above the threshold");
        revision.step(200_001, 0);
        assert!(revision.searching && revision.window == 1024);
        // Another objective: no rest.
        revision.step(0, 0);
        revision.objective_changed();
        revision.step(200_001, 0);
        assert!(revision.searching);
    }

    #[test]
    fn every_search_ends_within_seven_intervals() {
        // All sequences of good and bad intervals.
        for bits in 0u32..1 << 8 {
            let mut revision = WindowRevision::new(PAPER);
            let mut steps = 0;
            while revision.searching {
                let good = bits >> steps & 1 == 1;
                revision.step(300_000, if good { 0 } else { 1_000_000 });
                steps += 1;
            }
            assert!(steps <= 7, "{steps} for {bits:b}");
            assert!((32..=1024).contains(&revision.window));
        }
    }

    #[test]
    fn a_range_of_one_window_is_that_window() {
        let terms = WindowTerms {
            min: 100,
            max: 100,
            ..PAPER
        };
        let mut revision = WindowRevision::new(terms);
        revision.step(900_000, 900_000);
        assert_eq!((revision.window, revision.searching), (100, false));
    }
}
