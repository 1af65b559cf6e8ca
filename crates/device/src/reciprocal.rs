//! Division by a constant of a model, by multiplication with its reciprocal.
//!
//! A processor takes tens of cycles to divide 64 bits and a few to multiply them. A disk model
//! divides a dozen times per I/O, always by the same few figures of its drive.

/// Divisor with its precomputed reciprocal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Divisor {
    by: u64,
    /// 2^64 - 1 divided by `by`, rounded down.
    reciprocal: u64,
}

impl Divisor {
    /// Precomputes the reciprocal of `by`.
    ///
    /// # Panics
    /// If `by` is zero.
    pub(crate) fn new(by: u64) -> Divisor {
        Divisor {
            by,
            reciprocal: u64::MAX / by,
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.by
    }

    /// Returns quotient and remainder of `n`.
    pub(crate) fn split(&self, n: u64) -> (u64, u64) {
        // The quotient is too small by at most one: the reciprocal's error is at most one, so the
        // product's error is at most n / 2^64.
        let quotient = ((u128::from(n) * u128::from(self.reciprocal)) >> 64) as u64;
        let rest = n - quotient * self.by;
        if rest >= self.by {
            (quotient + 1, rest - self.by)
        } else {
            (quotient, rest)
        }
    }

    /// Returns `n` divided, rounded down.
    pub(crate) fn floor(&self, n: u64) -> u64 {
        self.split(n).0
    }

    /// Returns `n` divided, rounded up.
    pub(crate) fn ceil(&self, n: u64) -> u64 {
        let (quotient, rest) = self.split(n);
        quotient + u64::from(rest > 0)
    }

    /// Returns the remainder of `n`.
    pub(crate) fn remainder(&self, n: u64) -> u64 {
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
                prop_assert_eq!((divisor.floor(n), divisor.remainder(n)), (n / by, n % by));
                prop_assert_eq!(divisor.ceil(n), n.div_ceil(by));
            }
        }
    }
}
