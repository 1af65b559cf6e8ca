//! Event checker: number and spacing of the I/O notifications of a vCPU (section 4.2).

use tidegate_core::time::Nanos;

/// Event statistics of one vCPU since the last reset of its run-queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EventChecker {
    /// Time of the last event; kept across epochs.
    last: Option<Nanos>,
    /// Number of events, without those after a long pause: `E_n`.
    count: u64,
    /// Exponential average of the interval in nanoseconds: `Ī` of equation 1.
    interval: u64,
    /// Number of all events, for the load of run-queues.
    all: u64,
}

impl EventChecker {
    /// Records an event at `now`. After a pause longer than `cutoff` it only updates the time of
    /// the last event. A new interval weighs `new` thousandths, the previous average the rest.
    pub fn event(&mut self, now: Nanos, cutoff: Nanos, new: u32) {
        self.all += 1;
        // The first event of a vCPU has no interval before it.
        let Some(last) = self.last.replace(now) else {
            return;
        };
        let interval = now.since(last);
        if interval > cutoff {
            return;
        }
        let (new, old) = (u64::from(new), u64::from(1000_u32.saturating_sub(new)));
        self.interval = match self.count {
            // The first interval has no average to be weighed with.
            0 => interval.0,
            _ => (new * interval.0 + old * self.interval) / 1000,
        };
        self.count += 1;
    }

    /// Number times average interval in nanoseconds: first factor of equation 2.
    pub fn strength(&self) -> u64 {
        self.count.saturating_mul(self.interval)
    }

    /// Number of all events of the epoch.
    pub fn total(&self) -> u64 {
        self.all
    }

    /// Starts a new epoch.
    pub fn restart(&mut self) {
        *self = EventChecker {
            last: self.last,
            ..EventChecker::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUTOFF: Nanos = Nanos::from_millis(10);

    fn heard(at_us: &[u64]) -> EventChecker {
        let mut checker = EventChecker::default();
        for &us in at_us {
            checker.event(Nanos::from_micros(us), CUTOFF, 900);
        }
        checker
    }

    #[test]
    fn equation_1_by_hand() {
        // Intervals of 1000, 2000 and 500 us: 1000; 0.9 * 2000 + 0.1 * 1000 = 1900;
        // 0.9 * 500 + 0.1 * 1900 = 640.
        let checker = heard(&[0, 1000, 3000, 3500]);
        assert_eq!((checker.count, checker.interval), (3, 640_000));
        assert_eq!(checker.strength(), 1_920_000);
    }

    #[test]
    fn what_comes_after_more_than_10_ms_only_says_when() {
        let checker = heard(&[0, 10_000, 20_001, 20_501]);
        // 10 ms counts, 10.001 ms does not, 0.5 ms does.
        assert_eq!((checker.count, checker.total()), (2, 4));
        assert_eq!(checker.interval, 450_000 + 1_000_000);
    }

    #[test]
    fn an_epoch_forgets_all_but_the_last_time() {
        let mut checker = heard(&[0, 1000]);
        checker.restart();
        assert_eq!(checker.strength(), 0);
        checker.event(Nanos::from_micros(1700), CUTOFF, 900);
        assert_eq!(checker.strength(), 700_000);
    }
}
