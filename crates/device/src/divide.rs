//! Division by something that is always the same, without dividing.
//!
//! A processor takes tens of cycles to divide 64 bits and a few to multiply them; a disk model
//! divides a dozen times for each I/O, always by the same few figures of its drive.

/// A divisor with its reciprocal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Divisor {
    by: u64,
    /// 2^64 - 1 divided by it, rounded down.
    reciprocal: u64,
}

impl Divisor {
    /// # Panics
    /// When `by` is zero.
    pub(crate) fn new(by: u64) -> Divisor {
        Divisor {
            by,
            reciprocal: u64::MAX / by,
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.by
    }

    /// Quotient and remainder of `n`.
    pub(crate) fn split(&self, n: u64) -> (u64, u64) {
        // Rounding down makes it too small by one at most: the error of the reciprocal is at
        // most one, so that of the product at most n / 2^64.
        let quotient = ((u128::from(n) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = n - quotient * self.by;
        if rest >= self.by {
            (quotient + 1, rest - self.by)
        } else {
            (quotient, rest)
        }
    }

    /// `n` divided, rounded down.
    pub(crate) fn floor(&self, n: u64) -> u64 {
        self.split(n).0
    }

    /// `n` divided, rounded up.
    pub(crate) fn ceil(&self, n: u64) -> u64 {
        let (quotient, rest) = self.split(n);
        quotient + u64::from(rest > 0)
    }

    /// What is left of `n`.
    pub(crate) fn rest(&self, n: u64) -> u64 {
        self.split(n).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn divides_like_a_division(
            n in prop_oneof![0_u64..1 << 20, 0_u64..=u64::MAX],
            by in prop_oneof![1_u64..1 << 12, 1_u64..1 << 40, 1_u64..1 << 63],
            step in 0_u64..4,
        ) {
            let divisor = Divisor::new(by);
            // Around a multiple is where it could go wrong.
            let near = (n / by * by).saturating_add(step).saturating_sub(2);
            for n in [n, near] {
                prop_assert_eq!(divisor.split(n), (n / by, n % by));
                prop_assert_eq!((divisor.floor(n), divisor.rest(n)), (n / by, n % by));
                prop_assert_eq!(divisor.ceil(n), n.div_ceil(by));
            }
        }
    }
}
