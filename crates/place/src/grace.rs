//! Grace: tolerated lateness of a transfer that a newcomer must not delay.

use tidegate_core::time::Nanos;

/// Fraction of a deadline, in thousandths, by which a transfer may be late without the newcomer and
/// still be protected against it.
///
/// Forecasts are averages, and hosts admit transfers until the running ones have no slack. Without
/// grace, a transfer whose forecast is late by one byte would lose its protection, and would then
/// be delayed further. Jain's thesis does not discuss this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grace(u32);

impl Grace {
    /// No grace: a transfer that is late without the newcomer is not protected.
    pub const NONE: Grace = Grace(0);

    /// Grace of `n` thousandths of a deadline; values above 1,000 become 1,000.
    pub fn thousandths(n: u32) -> Grace {
        Grace(n.min(1_000))
    }

    /// Grace in thousandths of a deadline.
    pub fn as_thousandths(self) -> u32 {
        self.0
    }

    /// Tolerated lateness of a transfer with this deadline.
    pub(crate) fn of_deadline(self, deadline: Nanos) -> Nanos {
        // At most a whole deadline, so the cast loses nothing.
        Nanos((u128::from(deadline.0) * u128::from(self.0) / 1_000) as u64)
    }
}

impl Default for Grace {
    /// Default grace: a hundredth of the deadline.
    fn default() -> Grace {
        Grace(10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_is_a_part_of_the_deadline_and_no_more_than_all_of_it() {
        let deadline = Nanos::from_secs(200);
        assert_eq!(Grace::default().of_deadline(deadline), Nanos::from_secs(2));
        assert_eq!(Grace::NONE.of_deadline(deadline), Nanos::ZERO);
        assert_eq!(Grace::thousandths(5_000).as_thousandths(), 1_000);
        assert_eq!(
            Grace::thousandths(5_000).of_deadline(Nanos::MAX),
            Nanos::MAX
        );
    }
}
