//! Factors of times and sizes.

use crate::time::nearest;
use std::ops::RangeInclusive;

/// Factor in millionths, so that results are integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Factor(u64);

impl Factor {
    /// Factor 1, which changes nothing.
    pub const ONE: Factor = Factor(1_000_000);
    /// Range of factors.
    pub const RANGE: RangeInclusive<f64> = 0.000_001..=1_000_000.0;

    /// Creates the factor nearest to `factor`.
    ///
    /// # Panics
    /// `factor` is not in [`Factor::RANGE`].
    pub fn new(factor: f64) -> Factor {
        let range = Factor::RANGE;
        assert!(range.contains(&factor), "{factor} is not in {range:?}");
        // At least a millionth: 0 would put all requests at one time, or make them empty.
        Factor(nearest(factor * 1e6).0.max(1))
    }

    /// Multiplies `n`, rounding down; saturates.
    pub(crate) fn mul_floor(self, n: u64) -> u64 {
        let product = u128::from(n) * u128::from(self.0) / 1_000_000;
        u64::try_from(product).unwrap_or(u64::MAX)
    }

    /// Multiplies `n`, rounding up; saturates.
    pub(crate) fn mul_ceil(self, n: u64) -> u64 {
        let product = (u128::from(n) * u128::from(self.0)).div_ceil(1_000_000);
        u64::try_from(product).unwrap_or(u64::MAX)
    }
}
