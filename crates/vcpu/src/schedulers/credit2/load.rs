//! Load averages of run-queues and vCPUs.

use tidegate_core::time::Nanos;

/// Load of one vCPU that is always runnable.
pub(super) const ONE: i64 = 1 << 32;
/// Logarithm (base 2) of the averaging window in nanoseconds: about a second.
const WINDOW_SHIFT: u32 = 30;

/// Number of runnable vCPUs and its exponential average in units of [`ONE`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    count: i64,
    average: i64,
    at: Nanos,
}

impl Load {
    /// Creates a load without runnable vCPUs and with the given average.
    pub(super) fn new(average: i64) -> Load {
        Load {
            count: 0,
            average,
            at: Nanos::ZERO,
        }
    }

    /// Advances the average to `now` and adds `change` to the number of runnable vCPUs.
    pub(super) fn update(&mut self, now: Nanos, change: i64) {
        let passed = now.since(self.at).0;
        let to = self.count * ONE;
        if passed >> WINDOW_SHIFT > 0 {
            self.average = to;
        } else {
            // 64 bits would overflow: a load of several vCPUs times up to 2^30 ns.
            let step = i128::from(to - self.average) * i128::from(passed);
            // One linear step instead of an exponential; accurate as long as updates are frequent.
            self.average += (step >> WINDOW_SHIFT) as i64;
        }
        self.at = now;
        self.count += change;
    }

    /// Average in units of [`ONE`].
    pub(super) fn average(&self) -> i64 {
        self.average
    }

    /// Adds the average of a vCPU that joins (or, if negative, leaves), so that it need not be
    /// relearnt.
    pub(super) fn shift(&mut self, by: i64) {
        self.average = (self.average + by).max(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_within_a_second_however_often_it_is_looked_at() {
        let mut often = Load::new(0);
        let mut once = Load::new(0);
        often.update(Nanos::ZERO, 2);
        once.update(Nanos::ZERO, 2);
        for us in 1..=500_000 {
            often.update(Nanos::from_micros(us), 0);
        }
        // After half a window: 2 * (1 - e^-0.4657); in one linear step 2 * 0.4657.
        once.update(Nanos::from_micros(500_000), 0);
        let of_one = |load: &Load| load.average() as f64 / ONE as f64;
        assert!((of_one(&often) - 0.7446).abs() < 1e-3, "{often:?}");
        assert!((of_one(&once) - 0.9313).abs() < 1e-3, "{once:?}");
        often.update(Nanos::from_secs(3), 0);
        assert_eq!(often.average(), 2 * ONE);
    }
}
