//! Pseudorandom permutations of the integers below n, in constant memory.

use tidegate_core::random::SplitMix64;

/// Permutation of the integers below `n`, chosen by a key.
///
/// Rounds of multiplication by odd numbers, addition and folding the high bits onto the low ones
/// are a bijection of all integers of a number of bits. A result of `n` or above goes through the
/// rounds again until it is below `n` (cycle walking, Black and Rogaway). Less than half of the
/// results do.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    n: u64,
    /// Bits of the largest integer that the rounds permute: a power of two, less 1.
    mask: u64,
    /// Number of bits by which the high bits are shifted onto the low ones.
    fold: u32,
    /// Odd factor and summand of each round.
    rounds: [(u64, u64); 3],
}

impl Permutation {
    /// Creates a permutation of the integers below `n`.
    ///
    /// # Panics
    /// `n` is 0.
    pub(super) fn new(n: u64, key: u64) -> Permutation {
        // `apply` would not end for a range without numbers.
        assert!(n > 0, "a permutation of no integers");
        // At least 1 bit: with n = 1 a mask of 0 bits would shift by 64.
        let bits = (u64::BITS - (n - 1).leading_zeros()).max(1);
        // Not the workload's generator: the permutation depends on the key alone, so that copies
        // share hot blocks.
        let mut random = SplitMix64::new(key);
        let mut word = || random.next_u64();
        Permutation {
            n,
            mask: u64::MAX >> (u64::BITS - bits),
            fold: bits.div_ceil(2),
            // Odd factors are invertible modulo a power of two, which makes a round a bijection.
            rounds: [(); 3].map(|()| (word() | 1, word())),
        }
    }

    /// Returns the image of `x`, which must be below `n`.
    #[inline]
    pub(super) fn apply(&self, x: u64) -> u64 {
        debug_assert!(x < self.n);
        let mut x = x;
        loop {
            for (factor, summand) in self.rounds {
                x = x.wrapping_mul(factor).wrapping_add(summand) & self.mask;
                x ^= x >> self.fold;
            }
            if x < self.n {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_variate::tests::chi_squared;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn each_integer_is_the_image_of_one(n in 1_u64..5000, key in any::<u64>()) {
            let order = Permutation::new(n, key);
            let mut met = vec![false; n as usize];
            for x in 0..n {
                let y = order.apply(x) as usize;
                prop_assert!(!std::mem::replace(&mut met[y], true), "{} twice", y);
            }
        }

        #[test]
        fn large_ranges_are_kept_within(
            n in 1_u64..,
            key in any::<u64>(),
            x in any::<prop::sample::Index>(),
        ) {
            let x = x.index(usize::MAX) as u64 % n;
            prop_assert!(Permutation::new(n, key).apply(x) < n);
        }
    }

    #[test]
    fn neighbours_are_scattered() {
        let n = 1_000_003;
        for key in 0..20 {
            let order = Permutation::new(n, key);
            let mut distances = [0; 10];
            for x in 0..100_000 {
                let (a, b) = (order.apply(x), order.apply(x + 1));
                // Around the circle, so that all distances are alike.
                distances[((a + n - b) % n * 10 / n) as usize] += 1;
            }
            let spread = distances.iter().max().unwrap() - distances.iter().min().unwrap();
            assert!(spread < 3000, "key {key}: {distances:?}");
        }
    }

    #[test]
    fn keys_lead_to_different_orders() {
        // Where 0 goes under many keys is as good as drawn.
        let mut counts = [0; 100];
        for key in 0..100_000 {
            counts[Permutation::new(100, key).apply(0) as usize] += 1;
        }
        assert!(chi_squared(&counts, &[0.01; 100]) < 6.0, "{counts:?}");
    }
}
