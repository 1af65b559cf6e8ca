//! Recognition of a cap: seconds that look capped, and the test with fewer or more I/Os in flight.

use super::cap_rates::{CapRates, Throughput, reaches};
use super::{CapLearner, State, WINDOW_IOS_MIN};
use crate::device_monitor::window_meter::Window;
use tidegate_base::time::Nanos;

/// Consecutive seconds that must look capped before a test: the 3 s of the module's comment.
pub(super) const SUSPECT_SECONDS: usize = 3;
/// Profile's time for the work over the elapsed time, up to which the device can do more.
const SPARE_DEVICE_RATIO: f64 = 0.8;
/// Pause after the first failed test, doubled after each further one: a test halves the I/Os in
/// flight for a second and may cost throughput.
pub(super) const TEST_PAUSE_MIN: Nanos = Nanos(30 * Nanos::SECOND.0);
/// Longest pause after a failed test.
const TEST_PAUSE_MAX: Nanos = Nanos(600 * Nanos::SECOND.0);

/// Measurements of a second that matter for a cap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Second {
    pub(super) throughput: Throughput,
    /// Bytes of the largest I/O.
    pub(super) largest: u64,
    pub(super) len: Nanos,
    /// Mean of I/Os in flight, rounded down.
    pub(super) in_flight: u64,
}

impl CapLearner {
    /// Evaluates a second without a known cap. Returns `true` if a test begins, after three seconds
    /// that look capped.
    pub(super) fn search(&mut self, window: &Window, at: Throughput) -> bool {
        let can_do_more = self.can_do_more(window, at);
        // Fewer than two in flight in at most 5 % of the time.
        let full = window.thin.0 * 20 <= window.len.0;
        if !full || !can_do_more || window.failed || window.ios < WINDOW_IOS_MIN {
            self.suspect_run = 0;
            return false;
        }
        self.seconds.rotate_left(1);
        self.seconds[SUSPECT_SECONDS - 1] = Second {
            throughput: at,
            largest: window.largest,
            len: window.len,
            in_flight: window.depth_milli / 1000,
        };
        self.suspect_run += 1;
        // A test costs throughput, so failed ones are followed by pauses.
        if self.suspect_run < SUSPECT_SECONDS || window.end < self.test_at {
            return false;
        }
        let Some(rates) = self.pinned() else {
            return false;
        };
        let fewest = self.seconds.iter().map(|s| s.in_flight).min().unwrap_or(2);
        if let Some((depth, top)) = self.adapted {
            let raise = State::Raise {
                // At an adapted depth half as many in flight would lower the rate in any case.
                depth: (2 * depth + 2).min(top),
                in_flight: depth,
                throughput: rates.reach,
                rates,
            };
            self.enter(raise, window.end);
            return true;
        }
        // Half as many: a device without a cap would then do less.
        let bound = (fewest / 2).max(1) as u32;
        let test = State::Test {
            bound,
            throughput: rates.reach,
            rates,
        };
        self.enter(test, window.end);
        true
    }

    /// Returns `true` if the device can do more than in this second although each I/O took longer
    /// than it would then.
    fn can_do_more(&mut self, window: &Window, at: Throughput) -> bool {
        // Mean time of an I/O by Little's law, in picoseconds.
        let took = window.depth_milli as u128 * window.len.0 as u128 / window.ios.max(1) as u128;
        let (before, took_before) = self.best_seconds[window.pattern];
        if at.ios > before.ios {
            // The best second of a class of workloads is what the device was once able to do.
            self.best_seconds[window.pattern] = (at, took);
        }
        match window.expected {
            // At an adapted depth an I/O is as fast as ever, so its time shows nothing: the test
            // decides.
            Some((_, most)) if self.adapted.is_some() => {
                most <= SPARE_DEVICE_RATIO * window.len.0 as f64
            }
            Some((_, most)) => {
                // Mean time of an I/O at saturation, in picoseconds: `saturating_depth` in
                // flight at the profile's rate.
                let saturated =
                    most * window.saturating_depth as f64 * 1000.0 / window.ios.max(1) as f64;
                most <= SPARE_DEVICE_RATIO * window.len.0 as f64 && took as f64 > saturated
            }
            None => {
                // Bytes count as well: sizes within a class differ up to twice, and a device's
                // interface lets fewer of the larger ones pass.
                let slower = took > took_before || self.adapted.is_some();
                let quarter_more =
                    |part: fn(&Throughput) -> u64| part(&before) / 5 >= part(&at) / 4;
                quarter_more(|at| at.ios) && quarter_more(|at| at.bytes) && slower
            }
        }
    }

    /// Returns the rates that stayed the same over the last seconds, within 3 % and the I/O at
    /// either end of each.
    fn pinned(&self) -> Option<CapRates> {
        let all = &self.seconds;
        let largest = all.iter().map(|s| s.largest).max().unwrap_or(0);
        let len = all.iter().map(|s| s.len.0).min().unwrap_or(1).max(1);
        let per_s = |units: u64| units as u128 * Nanos::SECOND.0 as u128 / len as u128;
        let stays = |part: fn(&Throughput) -> u64, unit: u64| {
            let rates = || all.iter().map(|s| part(&s.throughput) as u128);
            let (least, most) = (rates().min().unwrap_or(0), rates().max().unwrap_or(0));
            // 1/33 is the 3 % of this function's doc comment.
            most - least <= most / 33 + per_s(unit)
        };
        let (ios, bytes) = (stays(|at| at.ios, 1000), stays(|at| at.bytes, largest));
        let mean = |part: fn(&Throughput) -> u64| {
            let sum: u128 = all.iter().map(|s| part(&s.throughput) as u128).sum();
            (sum / SUSPECT_SECONDS as u128) as u64
        };
        let at = Throughput {
            ios: mean(|at| at.ios),
            bytes: mean(|at| at.bytes),
        };
        (ios || bytes).then(|| CapRates::pinned(at, ios, bytes))
    }

    /// Ends the test with half as many in flight: a rate that held confirms the cap.
    pub(super) fn finish_test(
        &mut self,
        window: &Window,
        at: Throughput,
        before: Throughput,
        rates: CapRates,
    ) {
        let now = window.end;
        self.suspect_run = 0;
        let held = (rates.ios.is_some() && reaches(at.ios, before.ios))
            || (rates.bytes.is_some() && reaches(at.bytes, before.bytes));
        if !held {
            return self.postpone_test(now);
        }
        let State::Test { bound, .. } = self.state else {
            return;
        };
        self.adopt(now, rates, bound);
    }

    /// Ends the test with more than `in_flight`, the adapted depth: a rate that did not rise
    /// confirms it.
    pub(super) fn finish_raise(
        &mut self,
        window: &Window,
        at: Throughput,
        before: Throughput,
        in_flight: u32,
        rates: CapRates,
    ) {
        let now = window.end;
        self.suspect_run = 0;
        // Within 5 % the rate is the same; and the mean must show that more really were in flight.
        let is_same = |at: u64, before: u64| at <= before + before / 20;
        let held = (rates.ios.is_none() || is_same(at.ios, before.ios))
            && (rates.bytes.is_none() || is_same(at.bytes, before.bytes));
        let was_raised = window.depth_milli > u64::from(in_flight) * 1000 + 500;
        if held && was_raised {
            self.adopt(now, rates, in_flight)
        } else {
            self.postpone_test(now)
        }
    }

    /// Gives up the search for a while: there is no cap, or none that can be kept.
    pub(super) fn postpone_test(&mut self, now: Nanos) {
        self.test_at = now + self.test_pause;
        self.test_pause = (self.test_pause + self.test_pause).min(TEST_PAUSE_MAX);
        self.drop_cap(now);
    }
}
