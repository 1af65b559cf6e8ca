//! SplitMix64, a small generator of pseudorandom numbers that gives the same sequence on every
//! machine.
//!
//! Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators (OOPSLA 2014).

/// Generator of 64-bit pseudorandom numbers with 64 bits of state; all seeds are equally good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitMix64(u64);

/// Increment of the state: 2^64 divided by the golden ratio, which spreads states evenly.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl SplitMix64 {
    /// Creates a generator from a seed.
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// Returns the next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// Returns a uniformly distributed integer below `n`.
    ///
    /// Source: Lemire: Fast random integer generation in an interval (TOMACS 2019).
    ///
    /// # Panics
    /// If `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "no integer is below zero");
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            let low = product as u64;
            // Rejection, so that no result has one more 64-bit word than the others. The modulo is
            // computed only in the rare case that `low` is below `n`.
            if low >= n || low >= n.wrapping_neg() % n {
                return (product >> 64) as u64;
            }
        }
    }
}

/// Finaliser of SplitMix64 (Stafford's variant 13): hashes neighbouring integers to unlike ones.
#[inline]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_that_of_splitmix64() {
        // The authors' reference implementation, seeded with 1234567.
        let mut random = SplitMix64::new(1_234_567);
        let drawn = [(); 3].map(|()| random.next_u64());
        let known = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(drawn, known);
    }

    #[test]
    fn every_integer_below_is_as_likely() {
        let mut random = SplitMix64::new(1);
        let mut counts = [0_u32; 6];
        for _ in 0..60_000 {
            counts[random.below(6) as usize] += 1;
        }
        // Five degrees of freedom: one run in a thousand is beyond 20.5.
        let squares = counts.iter().map(|&n| (f64::from(n) - 10_000.0).powi(2));
        let chi_squared = squares.sum::<f64>() / 10_000.0;
        assert!(chi_squared < 20.5, "{counts:?}: {chi_squared}");
    }

    #[test]
    fn a_range_that_does_not_divide_2_to_the_64_has_no_favourites() {
        // Three quarters of all words: without rejection a third of the numbers, those that two
        // words fall on, would come twice as often as the others.
        let n = 3 << 62;
        let mut random = SplitMix64::new(7);
        let thirds = |x: u64| x.wrapping_rem(3) as usize;
        let mut counts = [0_u32; 3];
        for _ in 0..30_000 {
            let x = random.below(n);
            assert!(x < n);
            counts[thirds(x)] += 1;
        }
        assert!(
            counts.iter().all(|n| n.abs_diff(10_000) < 400),
            "{counts:?}"
        );
        assert_eq!(SplitMix64::new(9).below(1), 0);
    }
}
