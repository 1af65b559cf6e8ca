//! Grace: how late a job may be without a newcomer and still be one that it must not delay.

use tidegate_core::time::Nanos;

/// Part of a deadline, in thousandths, up to which a job that is late without a newcomer still
/// keeps newcomers out.
///
/// What is foreseen is an average, and jobs are let in until those that run have nothing to spare:
/// one that was taken for late at the first figure that is off by a byte would protect nobody any
/// more, itself least. The thesis says nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grace(u32);

impl Grace {
    /// No grace: a job that is late without a newcomer, however little, keeps nobody out.
    pub const NONE: Grace = Grace(0);

    /// Grace of `n` thousandths of a deadline, at most 1,000.
    pub fn thousandths(n: u32) -> Grace {
        Grace(n.min(1_000))
    }

    /// Returns the thousandths of a deadline.
    pub fn as_thousandths(self) -> u32 {
        self.0
    }

    /// Returns the time that a job with this deadline may be late.
    pub(crate) fn of_deadline(self, deadline: Nanos) -> Nanos {
        Nanos((u128::from(deadline.0) * u128::from(self.0) / 1_000) as u64)
    }
}

impl Default for Grace {
    /// A hundredth.
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
