//! Grace: tolerated lateness of a transfer that a newcomer must not delay, and what a transfer
//! keeps that is later than that.

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

/// Rate that a running transfer that is late by more than its grace even without the newcomer keeps
/// when one is admitted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LateRule {
    /// The transfer keeps at least 95 % of its rate, so that lateness does not grow with each
    /// newcomer. A newcomer that costs it no more than that is admitted.
    #[default]
    KeepsRate,
    /// The transfer is not protected at all.
    Unprotected,
}

impl LateRule {
    /// Share of its rate that a late transfer keeps, in percent. The rest allows for rates that
    /// were measured.
    const KEPT_PERCENT: u64 = 95;

    /// Rate in bytes per second that a late transfer with the rate `had` keeps.
    pub(crate) fn kept(self, had: u64) -> u64 {
        match self {
            // At most `had`, so the cast loses nothing.
            LateRule::KeepsRate => (u128::from(had) * u128::from(Self::KEPT_PERCENT) / 100) as u64,
            LateRule::Unprotected => 0,
        }
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

    #[test]
    fn a_late_transfer_keeps_19_of_20_parts_of_its_rate_or_nothing() {
        assert_eq!(LateRule::default(), LateRule::KeepsRate);
        assert_eq!(LateRule::KeepsRate.kept(40), 38);
        assert_eq!(LateRule::KeepsRate.kept(0), 0);
        assert_eq!(
            LateRule::KeepsRate.kept(u64::MAX),
            (u128::from(u64::MAX) * 95 / 100) as u64
        );
        assert_eq!(LateRule::Unprotected.kept(40), 0);
    }
}
