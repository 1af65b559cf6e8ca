//! Operation at the cap's pace, with probes for a higher cap.

use super::cap_rates::Throughput;
use super::pace::PACE;
use super::{CapLearner, DROP_AFTER, OVER, PROBE, QUEUED_UP};
use crate::device_monitor::window_meter::Window;
use tidegate_base::time::Nanos;

/// Profile's least time for the work over the elapsed time, from which the device itself is the
/// limit.
const AT_ITS_LIMIT: f64 = 0.9;
/// Paces of probes in turn, in 64ths of the cap's pace: 9/8, 5/4 and 2.
const STEPS: [u64; 3] = [72, 80, 128];

impl CapLearner {
    /// Evaluates a second at the cap's pace, or faster.
    pub(super) fn evaluate_pace(&mut self, window: &Window, at: Throughput, scale: u64) {
        let now = window.end;
        let Some(mut rates) = self.rates else { return };
        let limit = AT_ITS_LIMIT * window.len.0 as f64;
        let at_its_limit = window.expected.is_some_and(|(least, _)| least >= limit);
        if at_its_limit || now.since(self.used) > DROP_AFTER {
            return self.drop_cap(now);
        }
        let in_the_way = window.held.0 * 10 >= window.len.0;
        let whole = now.since(self.since) >= window.len;
        if in_the_way {
            self.used = now;
        }
        if scale == 64 {
            rates.narrow(at);
            if whole && window.ios > 0 {
                // At low rates the time of four I/Os must pass, or a single one would look like a
                // queue.
                let gap = Nanos(window.len.0 / window.ios);
                self.queued_up = QUEUED_UP.max(Nanos(gap.0 * 4)).min(OVER);
            }
            let probe = in_the_way && now >= self.probe_at;
            self.rates = Some(rates);
            let scale = if probe {
                STEPS[self.probes % STEPS.len()]
            } else {
                64
            };
            if probe {
                self.probes += 1;
                self.probed = now;
            }
            self.enter_pace(scale, now);
            return;
        }
        // Passed if the rate exceeds the cap by more than half of what the probe added.
        let more = |rate: u64, cap: Option<u64>| {
            cap.is_some_and(|cap| rate as u128 * 128 > cap as u128 * (64 + scale) as u128)
        };
        let passed = more(at.ios, rates.ios) || more(at.bytes, rates.bytes);
        if passed && self.before.is_none() && !self.outlasts(now, scale) {
            return;
        }
        if passed {
            // Kept over several raises: only a queue shows which of them the bucket's tokens paid
            // for.
            self.before.get_or_insert(rates);
            rates.raise(at);
            self.rates = Some(rates);
            self.enter_pace(STEPS[STEPS.len() - 1], now);
        } else {
            self.probe_at = now + PROBE;
            self.enter_pace(64, now);
        }
    }

    /// Returns `true` if the probe has lasted for longer than the tokens can that the pace, just
    /// below the cap, has left in the bucket since it was empty. In seconds, rounded against the
    /// probe.
    fn outlasts(&self, now: Nanos, scale: u64) -> bool {
        let seconds = |time: Nanos| time.0 / Nanos::SECOND.0;
        let saved = (64 - PACE) * (seconds(self.probed.since(self.since)) + 1);
        let more = (scale * PACE / 64).saturating_sub(64);
        more * seconds(now.since(self.probed)) > saved
    }
}
