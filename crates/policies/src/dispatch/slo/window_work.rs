//! Work of VMs in windows of one kind: its mean, and how much it varies.

/// Reciprocal of the weight of the latest window, once that many were seen.
const WINDOWS: u32 = 8;
/// Standard deviations, and part of the mean, by which the work of another load differs at least.
const OTHER_DEVIATIONS: f64 = 3.0;
const OTHER_PART: f64 = 0.1;
/// Windows from which on a mean says more than its last window.
const WINDOWS_MIN: u32 = 4;

/// Exponentially weighted mean and variance of the work in windows, in units of cost. The first
/// windows count alike.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct WindowWork {
    mean: f64,
    variance: f64,
    /// Windows seen, at most [`WINDOWS`].
    windows: u32,
}

impl WindowWork {
    /// Adds the work of a window.
    pub(super) fn add(&mut self, work: u64) {
        self.windows = (self.windows + 1).min(WINDOWS);
        let weight = 1.0 / f64::from(self.windows);
        let difference = work as f64 - self.mean;
        self.mean += weight * difference;
        self.variance = (1.0 - weight) * (self.variance + weight * difference * difference);
    }

    /// Returns whether this work is that of another load: beyond what single windows vary by.
    pub(super) fn is_of_another_load(&self, work: u64) -> bool {
        let difference = work as f64 - self.mean;
        let is_beyond_chance = difference * difference > OTHER_DEVIATIONS.powi(2) * self.variance;
        self.is_average() && is_beyond_chance && difference.abs() > OTHER_PART * self.mean
    }

    /// Returns the mean work; 0 before a window was seen.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the variance of a window's work; 0 before two windows were seen.
    pub(super) fn variance(&self) -> f64 {
        self.variance
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
        let mut work = WindowWork::default();
        for value in [100, 200, 300] {
            work.add(value);
        }
        assert!((work.mean() - 200.0).abs() < 1e-9, "{work:?}");
        assert!((work.variance() - 20_000.0 / 3.0).abs() < 1e-6, "{work:?}");
        assert!(!work.is_average());
    }

    #[test]
    fn another_load_is_beyond_chance_and_a_tenth() {
        let mut work = WindowWork::default();
        for value in [900, 1100, 900, 1100] {
            assert!(!work.is_of_another_load(5000), "little was seen: {work:?}");
            work.add(value);
        }
        assert!(!work.is_of_another_load(1290) && work.is_of_another_load(1310));
        assert!(!work.is_of_another_load(710) && work.is_of_another_load(690));
        let mut steady = WindowWork::default();
        for _ in 0..8 {
            steady.add(1000);
        }
        assert!(!steady.is_of_another_load(1090) && steady.is_of_another_load(1110));
    }

    #[test]
    fn old_windows_fade() {
        let mut work = WindowWork::default();
        for value in [1000; 20].into_iter().chain([100; 120]) {
            work.add(value);
        }
        assert!((work.mean() - 100.0).abs() < 1.0, "{work:?}");
        assert!(work.variance() < 100.0, "{work:?}");
        assert!(work.is_average());
    }
}
