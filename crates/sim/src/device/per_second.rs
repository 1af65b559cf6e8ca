//! Bytes that a VM moved in each second, for the precision of its bandwidth.

use std::collections::VecDeque;
use tidegate_core::precision::Precision;

/// Most seconds that are known, the last of a run: a day. Their memory is bounded, however long
/// the run is.
const SECONDS_MAX: usize = 86_400;

/// Bytes read and written by the second. A second in which the VM had nothing outstanding from
/// its begin to its end is an idle one, and counted apart.
#[derive(Clone, Debug, Default)]
pub(super) struct PerSecond {
    /// Bytes in the second that runs.
    bytes: u64,
    /// Something was outstanding in the second that runs.
    asked: bool,
    /// Excludes the current second: only a part of it is to be counted, or the target changed in
    /// it.
    left_out: bool,
    /// Bytes in each second that counts, the oldest first.
    samples: VecDeque<u64>,
    /// Seconds without anything outstanding.
    idle: u32,
}

impl PerSecond {
    /// Notes that a request is issued.
    pub(super) fn asked(&mut self) {
        self.asked = true;
    }

    /// Counts bytes that were answered.
    pub(super) fn moved(&mut self, bytes: u32) {
        self.bytes += u64::from(bytes);
    }

    /// Excludes the current second because the VM is absent, has just come or gone, or has finished
    /// its workloads, so that the second is not a whole one.
    pub(super) fn leave_out(&mut self) {
        self.left_out = true;
    }

    /// Ends a second; `asks`: something is outstanding.
    pub(super) fn second(&mut self, asks: bool) {
        match (self.left_out, self.asked) {
            (true, _) => {}
            (false, false) => self.idle += 1,
            (false, true) => {
                // The oldest goes: the end of a run is nearest to its steady state.
                if self.samples.len() == SECONDS_MAX {
                    self.samples.pop_front();
                }
                self.samples.push_back(self.bytes);
            }
        }
        // Requests outstanding now count as asked for in the next second, too.
        (self.bytes, self.asked, self.left_out) = (0, asks, false);
    }

    /// Forgets all seconds; `second`: one begins right now.
    pub(super) fn clear_counts(&mut self, second: bool) {
        self.samples.clear();
        self.idle = 0;
        // Otherwise only the rest of this second would be counted.
        self.left_out |= !second;
    }

    /// Precision against a target in bytes a second, over statistical intervals in seconds.
    pub(super) fn precision(&self, target: Option<u64>, interval: u32) -> Precision {
        let samples: Vec<u64> = self.samples.iter().copied().collect();
        Precision::from_samples(&samples, self.idle, target, interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_count_in_which_something_was_asked_for() {
        let mut seconds = PerSecond::default();
        let mut second = |bytes, asks, left_out: bool| {
            if bytes > 0 {
                seconds.asked();
                seconds.moved(bytes);
            }
            if left_out {
                seconds.leave_out();
            }
            seconds.second(asks);
            seconds.clone()
        };
        second(7, false, true);
        second(0, false, false);
        second(10, true, false);
        // Asked for before, and not answered.
        second(0, true, false);
        let known = second(20, false, false);
        assert_eq!(known.samples, [10, 0, 20]);
        let precision = known.precision(Some(10), 1);
        assert_eq!((precision.seconds, precision.idle), (3, 1));
        assert_eq!(precision.error, Some(0));
        let mut anew = known.clone();
        anew.clear_counts(false);
        anew.second(true);
        anew.second(true);
        assert_eq!((anew.samples.len(), anew.idle), (1, 0), "one was not whole");
    }

    #[test]
    fn no_more_than_a_day_is_known() {
        let mut seconds = PerSecond::default();
        for second in 0..SECONDS_MAX as u32 + 5 {
            seconds.asked();
            seconds.moved(second);
            seconds.second(false);
        }
        assert_eq!(
            (seconds.samples.len(), seconds.samples[0]),
            (SECONDS_MAX, 5)
        );
    }
}
