//! What a guest was answered in each second, for the precision of its bandwidth.

use std::collections::VecDeque;
use tidegate_core::precision::Precision;

/// A day: so many of the last seconds are known. The memory they take is bounded, however long a
/// run is.
const KEPT: usize = 86_400;

/// Bytes read and written by the second. A second in which the guest had nothing outstanding from
/// its begin to its end is an idle one, and counted apart.
#[derive(Clone, Debug, Default)]
pub(super) struct Seconds {
    /// In the second that runs.
    bytes: u64,
    /// Something was outstanding in it.
    asked: bool,
    /// It does not count: not all of it is to be counted, or the target was another one.
    left_out: bool,
    /// In each that counts, the oldest first.
    samples: VecDeque<u64>,
    idle: u32,
}

impl Seconds {
    /// Something is asked for.
    pub(super) fn asked(&mut self) {
        self.asked = true;
    }

    /// So many bytes were answered.
    pub(super) fn moved(&mut self, bytes: u32) {
        self.bytes += u64::from(bytes);
    }

    /// It is not there, or has just come or gone, or is done with its work: this second is not a
    /// whole one.
    pub(super) fn leave_out(&mut self) {
        self.left_out = true;
    }

    /// A second is over; `asks`: something is outstanding.
    pub(super) fn second(&mut self, asks: bool) {
        match (self.left_out, self.asked) {
            (true, _) => {}
            (false, false) => self.idle += 1,
            (false, true) => {
                if self.samples.len() == KEPT {
                    self.samples.pop_front();
                }
                self.samples.push_back(self.bytes);
            }
        }
        (self.bytes, self.asked, self.left_out) = (0, asks, false);
    }

    /// What was before does not count; `second`: one begins right now.
    pub(super) fn forget(&mut self, second: bool) {
        self.samples.clear();
        self.idle = 0;
        self.left_out |= !second;
    }

    /// With this target, in bytes a second, and statistical intervals of so many seconds.
    pub(super) fn precision(&self, target: Option<u64>, interval: u32) -> Precision {
        let samples: Vec<u64> = self.samples.iter().copied().collect();
        Precision::of(&samples, self.idle, target, interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_count_in_which_something_was_asked_for() {
        let mut seconds = Seconds::default();
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
        anew.forget(false);
        anew.second(true);
        anew.second(true);
        assert_eq!((anew.samples.len(), anew.idle), (1, 0), "one was not whole");
    }

    #[test]
    fn no_more_than_a_day_is_known() {
        let mut seconds = Seconds::default();
        for second in 0..KEPT as u32 + 5 {
            seconds.asked();
            seconds.moved(second);
            seconds.second(false);
        }
        assert_eq!((seconds.samples.len(), seconds.samples[0]), (KEPT, 5));
    }
}
