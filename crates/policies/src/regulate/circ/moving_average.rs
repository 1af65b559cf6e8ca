//! A moving average that keeps its sum: what is put in comes out in equal parts over a window.

/// Moving average over the amounts of the last periods. Each amount comes out in equal parts over
/// `window` periods, the first part at once; the sum of all parts equals the amount.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovingAverage {
    /// The part of each period in the window.
    parts: [i128; MovingAverage::WINDOW_MAX],
    window: usize,
    /// Index of the oldest part.
    oldest: usize,
    /// Remainders of divisions, due with the next parts.
    rest: i128,
}

impl MovingAverage {
    /// Longest window in periods.
    pub(super) const WINDOW_MAX: usize = 16;

    /// Creates an empty average over `window` periods, 1 to [`MovingAverage::WINDOW_MAX`].
    pub(super) fn new(window: usize) -> MovingAverage {
        MovingAverage {
            parts: [0; MovingAverage::WINDOW_MAX],
            window: window.clamp(1, MovingAverage::WINDOW_MAX),
            oldest: 0,
            rest: 0,
        }
    }

    /// Adds the amount of a period that has ended. Returns the amount that is due now.
    pub(super) fn add(&mut self, amount: i128) -> i128 {
        let window = self.window as i128;
        // The oldest part has come out `window` times; the new one takes its place.
        self.parts[self.oldest] = amount / window;
        self.oldest = (self.oldest + 1) % self.window;
        let parts = self.parts[..self.window].iter().sum::<i128>();
        parts + amount % window + core::mem::take(&mut self.rest)
    }

    /// Returns to the average a part of a due amount that could not be divided.
    pub(super) fn put_back(&mut self, rest: i128) {
        self.rest += rest;
    }

    /// Returns the amount that is still to come out.
    pub(super) fn outstanding(&self) -> i128 {
        // The part at `oldest` is used up; the one after it comes out once more, and so on.
        let times_left = |age: usize| self.parts[(self.oldest + age) % self.window] * age as i128;
        (1..self.window).map(times_left).sum::<i128>() + self.rest
    }

    /// Empties the average. Returns the amount that it outstanding.
    pub(super) fn clear(&mut self) -> i128 {
        let outstanding = self.outstanding();
        *self = MovingAverage::new(self.window);
        outstanding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothed_amount_is_the_mean_of_the_window_and_keeps_the_sum() {
        let mut smoothed = MovingAverage::new(4);
        let due = [400, 0, 0, 801, 0, 0, 0, 0].map(|amount| smoothed.add(amount));
        // 801 = 4 x 200 + 1, and the odd one at once.
        assert_eq!(due, [100, 100, 100, 301, 200, 200, 200, 0]);
        assert_eq!(smoothed.outstanding(), 0);
    }

    #[test]
    fn held_amount_is_what_still_comes_out() {
        for window in [1, 3, 16] {
            let mut smoothed = MovingAverage::new(window);
            let mut outstanding = 0;
            for n in 0..100 {
                let amount = n * n % 977;
                outstanding += amount - smoothed.add(amount);
                smoothed.put_back(n % 7);
                outstanding += n % 7;
                assert_eq!(smoothed.outstanding(), outstanding);
            }
            let rest: i128 = (0..window).map(|_| smoothed.add(0)).sum();
            assert_eq!((rest, smoothed.outstanding()), (outstanding, 0));
            smoothed.add(1_000_003);
            let outstanding = smoothed.outstanding();
            assert_eq!((smoothed.clear(), smoothed.outstanding()), (outstanding, 0));
        }
    }
}
