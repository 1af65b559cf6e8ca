//! Average of a value of windows, such as the work of VMs, and how much it varies.

/// Reciprocal of the weight of the latest window, once that many were seen.
const WINDOWS: u32 = 8;
/// Standard deviations, and part of the mean, by which another load differs at least.
const OTHER_DEVIATIONS: f64 = 3.0;
const OTHER_PART: f64 = 0.1;
/// Windows from which on a mean says more than its last window.
const WINDOWS_MIN: u32 = 4;

/// Exponentially weighted mean and variance of a value of windows. The first windows count alike.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct WindowAverage {
    mean: f64,
    variance: f64,
    /// Windows seen, at most [`WINDOWS`].
    windows: u32,
}

impl WindowAverage {
    /// Adds the value of a window.
    pub(super) fn add(&mut self, value: f64) {
        self.windows = (self.windows + 1).min(WINDOWS);
        let weight = 1.0 / f64::from(self.windows);
        let difference = value - self.mean;
        self.mean += weight * difference;
        self.variance = (1.0 - weight) * (self.variance + weight * difference * difference);
    }

    /// Returns whether this value is that of another load: beyond what single windows vary by.
    pub(super) fn is_of_another_load(&self, value: f64) -> bool {
        let difference = value - self.mean;
        let is_beyond_chance = difference * difference > OTHER_DEVIATIONS.powi(2) * self.variance;
        self.is_average() && is_beyond_chance && difference.abs() > OTHER_PART * self.mean
    }

    /// Returns the mean; 0 before a window was seen.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the variance of a window's value; 0 before two windows were seen.
    pub(super) fn variance(&self) -> f64 {
        self.variance
    }

    /// Returns the standard error of the mean; 0 before two windows were seen.
    pub(super) fn standard_error(&self) -> f64 {
        (self.variance / f64::from(self.windows.max(1))).sqrt()
    }

    /// Returns whether a window was seen.
    pub(super) fn is_known(&self) -> bool {
        self.windows > 0
    }

    /// Returns whether enough windows were seen for an average.
    pub(super) fn is_average(&self) -> bool {
        self.windows >= WINDOWS_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_windows_count_alike() {
        let mut average = WindowAverage::default();
        for value in [100.0, 200.0, 300.0] {
            average.add(value);
        }
        assert!((average.mean() - 200.0).abs() < 1e-9, "{average:?}");
        assert!(
            (average.variance() - 20_000.0 / 3.0).abs() < 1e-6,
            "{average:?}"
        );
        assert!(!average.is_average());
    }

    #[test]
    fn another_load_is_beyond_chance_and_a_tenth() {
        let mut average = WindowAverage::default();
        for value in [900.0, 1100.0, 900.0, 1100.0] {
            assert!(
                !average.is_of_another_load(5000.0),
                "little was seen: {average:?}"
            );
            average.add(value);
        }
        assert!(!average.is_of_another_load(1290.0) && average.is_of_another_load(1310.0));
        assert!(!average.is_of_another_load(710.0) && average.is_of_another_load(690.0));
        let mut steady = WindowAverage::default();
        for _ in 0..8 {
            steady.add(1000.0);
        }
        assert!(!steady.is_of_another_load(1090.0) && steady.is_of_another_load(1110.0));
    }

    #[test]
    fn old_windows_fade() {
        let mut average = WindowAverage::default();
        for value in [1000.0; 20].into_iter().chain([100.0; 120]) {
            average.add(value);
        }
        assert!((average.mean() - 100.0).abs() < 1.0, "{average:?}");
        assert!(average.variance() < 100.0, "{average:?}");
        assert!(average.is_average());
    }
}
