//! Bytes that a VM moved in each of the last seconds: the samples of its [`Precision`] (Li et al.,
//! "Customizable SLO and Its Near-Precise Enforcement for Storage Bandwidth", ToS 2017, definitions
//! 2.1 to 2.3).
//!
//! Seconds are whole seconds of the driver's clock. The present second is not a sample, nor is the
//! one in which counting began. A sample holds the bytes of reads and writes that were answered
//! without error in that second. A second in which the VM had no request inside the engine from
//! begin to end is idle: it says nothing about the precision of the service, so it is counted
//! apart.
//!
//! ```text
//!   an answer -------------- in a later second than the last event? --> close that second and all
//!   a request after none ---^                                           between, idle or empty
//! ```
//!
//! Within one second, which is the usual case, this costs one comparison. Closing a second takes a
//! few stores; after a long time without requests at most [`SECONDS_KEPT`] seconds are written.

use crate::precision::Precision;
use crate::time::Nanos;

/// Seconds that are kept per VM: ten statistical intervals of 30 s.
pub const SECONDS_KEPT: usize = 300;

/// Marks an idle second in the ring; no VM moves as many bytes in a second.
const IDLE_SECOND: u64 = u64::MAX;

/// Ring of per-second byte counts of one VM; 2.4 KB of heap memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BandwidthSamples {
    /// Bytes moved in each second, or [`IDLE_SECOND`]; second number `n` since the begin is at `n %
    /// SECONDS_KEPT`.
    ring: Box<[u64; SECONDS_KEPT]>,
    /// Number of seconds closed since counting began.
    closed: u64,
    /// Number of the present second, as of [`BandwidthSamples::second_number`].
    current_second: u32,
    /// True if the present second was counted from its begin, so that it will be a sample.
    whole: bool,
    /// Total bytes that the VM had moved at the begin of the present second.
    total_at_start: u64,
}

impl Default for BandwidthSamples {
    fn default() -> Self {
        BandwidthSamples {
            ring: Box::new([0; SECONDS_KEPT]),
            closed: 0,
            current_second: 0,
            whole: false,
            total_at_start: 0,
        }
    }
}

impl BandwidthSamples {
    /// Heap memory of one [`BandwidthSamples`], in bytes.
    pub const HEAP_BYTES: usize = size_of::<[u64; SECONDS_KEPT]>();

    /// Returns the number of the second that contains `now`, modulo 2^32 (136 years).
    #[inline]
    pub fn second_number(now: Nanos) -> u32 {
        (now.0 / Nanos::SECOND.0) as u32
    }

    /// Restarts counting with the next second and drops all samples. `total`: bytes that the VM has
    /// moved so far.
    pub fn restart(&mut self, second: u32, total: u64) {
        (self.closed, self.whole) = (0, false);
        (self.current_second, self.total_at_start) = (second, total);
    }

    /// Closes the seconds before `second`.
    ///
    /// `total`: bytes that the VM had moved before this event. `had_requests`: true if
    /// the VM had requests inside the engine since the last call, false if it had none; the seconds
    /// between count as empty or as idle accordingly.
    pub fn advance_to(&mut self, second: u32, total: u64, had_requests: bool) {
        // Numbers of seconds wrap after 136 years; their difference does not.
        let passed = second.wrapping_sub(self.current_second);
        if passed == 0 {
            return;
        }
        assert!(
            total >= self.total_at_start,
            "a VM's total of moved bytes does not fall"
        );
        let moved = total - self.total_at_start;
        // The second in which counting began was not counted from its begin.
        if core::mem::replace(&mut self.whole, true) {
            self.close(moved);
        }
        let between = if had_requests { 0 } else { IDLE_SECOND };
        // At most one round of the ring: more would overwrite itself.
        for _ in 1..passed.min(SECONDS_KEPT as u32 + 1) {
            self.close(between);
        }
        (self.current_second, self.total_at_start) = (second, total);
    }

    fn close(&mut self, moved: u64) {
        self.ring[(self.closed % SECONDS_KEPT as u64) as usize] = moved;
        self.closed += 1;
    }

    /// Iterates over the kept seconds, oldest first: bytes moved, or `None` for an idle second.
    pub fn iter(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        let first = self.closed.saturating_sub(SECONDS_KEPT as u64);
        let moved = (first..self.closed).map(|at| self.ring[(at % SECONDS_KEPT as u64) as usize]);
        moved.map(|moved| (moved != IDLE_SECOND).then_some(moved))
    }

    /// Computes the precision of the kept seconds that are not idle.
    ///
    /// `target`: bandwidth to be held in bytes per second, if any. `interval`: length of a
    /// statistical interval in seconds that are not idle.
    pub fn precision(&self, target: Option<u64>, interval: u32) -> Precision {
        let samples: Vec<u64> = self.iter().flatten().collect();
        let idle = self.iter().filter(Option::is_none).count() as u32;
        Precision::from_samples(&samples, idle, target, interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Samples, oldest first; `None`: an idle second.
    fn kept(seconds: &BandwidthSamples) -> Vec<Option<u64>> {
        seconds.iter().collect()
    }

    #[test]
    fn the_first_and_the_present_second_are_not_samples() {
        let mut seconds = BandwidthSamples::default();
        seconds.restart(7, 1000);
        seconds.advance_to(7, 1500, true);
        assert_eq!(kept(&seconds), []);
        seconds.advance_to(8, 1700, true);
        assert_eq!(
            kept(&seconds),
            [],
            "second 7 was not counted from its begin"
        );
        seconds.advance_to(9, 2000, true);
        assert_eq!(kept(&seconds), [Some(300)]);
        seconds.restart(9, 2100);
        seconds.advance_to(11, 2500, true);
        assert_eq!(
            kept(&seconds),
            [Some(0)],
            "samples of the former target are dropped"
        );
    }

    #[test]
    fn idle_seconds_are_counted_apart_from_seconds_without_an_answer() {
        let mut seconds = BandwidthSamples::default();
        seconds.restart(0, 0);
        seconds.advance_to(1, 0, true);
        seconds.advance_to(4, 50, true);
        seconds.advance_to(7, 80, false);
        let expected = [Some(50), Some(0), Some(0), Some(30), None, None];
        assert_eq!(kept(&seconds), expected);
        let precision = seconds.precision(Some(20), 2);
        assert_eq!((precision.seconds, precision.idle), (4, 2));
        assert_eq!(precision.mean, Some(20));
        assert_eq!(precision.error, Some(0));
        // Intervals of 2 s: (50 + 0) / 2 = 25 and (0 + 30) / 2 = 15 are 25 % off the target of 20.
        assert_eq!(precision.absolute_error, Some(250_000));
    }

    proptest! {
        /// Model: keeps every second, and compares the last ones.
        #[test]
        fn the_last_seconds_are_kept(
            steps in prop::collection::vec((0u32..500, 0u64..1000, any::<bool>()), 1..40),
            start in prop::sample::select(vec![0, u32::MAX - 200]),
        ) {
            let mut seconds = BandwidthSamples::default();
            seconds.restart(start, 0);
            let (mut second, mut total, mut all) = (start, 0u64, Vec::new());
            let mut running = None;
            for (passed, moved, asked) in steps {
                if passed > 0 {
                    all.extend(running.replace(0).map(Some));
                    all.extend((1..passed).map(|_| asked.then_some(0)));
                }
                second = second.wrapping_add(passed);
                seconds.advance_to(second, total, asked);
                total += moved;
                if let Some(running) = &mut running {
                    *running += moved;
                }
            }
            let last = all.len().saturating_sub(SECONDS_KEPT);
            prop_assert_eq!(kept(&seconds), &all[last..]);
        }
    }
}
