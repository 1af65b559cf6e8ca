//! Operation at the cap's pace, with probes for a higher cap.

use super::cap_rates::Throughput;
use super::pace::{PACE_64THS, SCALE_ONE};
use super::{BOUND_TIME_MAX, CapLearner, PROBE_INTERVAL, QUEUE_TIME_MIN, UNUSED_CAP_LIFETIME};
use crate::device_monitor::window_meter::Window;
use tidegate_base::time::Nanos;

/// Profile's least time for the work over the elapsed time, from which the device itself is the
/// limit.
const DEVICE_LIMIT_RATIO: f64 = 0.9;
/// Paces of probes in turn, in 64ths of the cap's pace: 9/8, 5/4 and 2.
const PROBE_STEPS_64THS: [u64; 3] = [72, 80, 128];

impl CapLearner {
    /// Evaluates a second at the cap's pace, or faster.
    pub(super) fn evaluate_pace(&mut self, window: &Window, at: Throughput, scale: u64) {
        let now = window.end;
        let Some(mut rates) = self.rates else { return };
        let limit = DEVICE_LIMIT_RATIO * window.len.0 as f64;
        let at_its_limit = window.expected.is_some_and(|(least, _)| least >= limit);
        if at_its_limit || now.since(self.last_limiting) > UNUSED_CAP_LIFETIME {
            // The device itself bounds the rate, or the cap has limited nothing for long.
            return self.drop_cap(now);
        }
        // A tenth of the second: below that the load, not the cap, bounds the rate.
        let limits = window.held.0 * 10 >= window.len.0;
        let is_full_second = now.since(self.since) >= window.len;
        if limits {
            self.last_limiting = now;
        }
        if scale == SCALE_ONE {
            rates.narrow(at);
            if is_full_second && window.ios > 0 {
                // At low rates the time of four I/Os must pass, or a single one would look like a
                // queue.
                let gap = Nanos(window.len.0 / window.ios);
                self.queue_time = QUEUE_TIME_MIN.max(Nanos(gap.0 * 4)).min(BOUND_TIME_MAX);
            }
            let probe = limits && now >= self.probe_at;
            self.rates = Some(rates);
            let scale = if probe {
                PROBE_STEPS_64THS[self.probes % PROBE_STEPS_64THS.len()]
            } else {
                SCALE_ONE
            };
            if probe {
                self.probes += 1;
                self.last_probe_started = now;
            }
            self.enter_pace(scale, now);
            return;
        }
        // Passed if the rate exceeds the cap by more than half of what the probe added.
        let exceeds = |rate: u64, cap: Option<u64>| {
            cap.is_some_and(|cap| {
                rate as u128 * (2 * SCALE_ONE) as u128 > cap as u128 * (SCALE_ONE + scale) as u128
            })
        };
        let passed = exceeds(at.ios, rates.ios) || exceeds(at.bytes, rates.bytes);
        if passed && self.rates_before_probe.is_none() && !self.outlasts(now, scale) {
            return;
        }
        if passed {
            // Kept over several raises: only a queue shows which of them the bucket's tokens paid
            // for.
            self.rates_before_probe.get_or_insert(rates);
            rates.raise(at);
            self.rates = Some(rates);
            // A cap that is higher than known may be much higher, so the fastest step follows.
            self.enter_pace(PROBE_STEPS_64THS[PROBE_STEPS_64THS.len() - 1], now);
        } else {
            self.probe_at = now + PROBE_INTERVAL;
            self.enter_pace(SCALE_ONE, now);
        }
    }

    /// Returns `true` if the probe has lasted for longer than the tokens can that the pace, just
    /// below the cap, has left in the bucket since it was empty. In seconds, rounded against the
    /// probe.
    fn outlasts(&self, now: Nanos, scale: u64) -> bool {
        let seconds = |time: Nanos| time.0 / Nanos::SECOND.0;
        let started = self.last_probe_started;
        let saved = (64 - PACE_64THS) * (seconds(started.since(self.since)) + 1);
        let surplus = (scale * PACE_64THS / SCALE_ONE).saturating_sub(64);
        surplus * seconds(now.since(started)) > saved
    }
}
