//! Random variates from a seeded generator, equal on every machine.
//!
//! Bounded integers are drawn by multiplication (Lemire, "Fast Random Integer Generation in an
//! Interval", 2019), which is exact and divides only in about n of 2^64 draws. Real numbers use the
//! four basic operations and square roots, whose rounding IEEE 754 defines, and `libm`'s logarithm,
//! which consists of these operations. Rust neither fuses nor reorders them, in debug or in release
//! builds.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

/// Distance between neighbouring results of [`unit()`]: 2^-53.
const STEP: f64 = 1.0 / (1_u64 << 53) as f64;

/// Returns a uniform integer from 0 to `n` - 1; `n` must be at least 1.
#[inline]
pub(crate) fn below(rng: &mut Pcg64Mcg, n: u64) -> u64 {
    debug_assert!(n > 0);
    let mut product = u128::from(rng.next_u64()) * u128::from(n);
    // Rejection: 2^64 mod n of the products' low halves would give some results once too often.
    if (product as u64) < n {
        let surplus = n.wrapping_neg() % n;
        while (product as u64) < surplus {
            product = u128::from(rng.next_u64()) * u128::from(n);
        }
    }
    (product >> 64) as u64
}

/// Returns a uniform number in [0, 1).
#[inline]
pub(crate) fn unit(rng: &mut Pcg64Mcg) -> f64 {
    // 53 bits: as many as the fraction of an f64, so that the conversion is exact.
    (rng.next_u64() >> 11) as f64 * STEP
}

/// Returns a uniform number in (0, 1], which has a logarithm.
#[inline]
pub(crate) fn above_zero(rng: &mut Pcg64Mcg) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 * STEP
}

/// Returns an exponential variate with mean 1.
#[inline]
pub(crate) fn exponential(rng: &mut Pcg64Mcg) -> f64 {
    -libm::log(above_zero(rng))
}

/// Returns a normal variate with mean 0 and deviation 1, by Marsaglia's polar method.
pub(crate) fn normal(rng: &mut Pcg64Mcg) -> f64 {
    loop {
        let (x, y) = (2.0 * unit(rng) - 1.0, 2.0 * unit(rng) - 1.0);
        let square = x * x + y * y;
        // Outside of the unit circle the angle is not uniform; at 0 there is no logarithm. The
        // second variate of the pair is dropped to keep the generator without state.
        if square > 0.0 && square < 1.0 {
            return x * (-2.0 * libm::log(square) / square).sqrt();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rand_pcg::rand_core::SeedableRng;

    /// Returns the generator of a test.
    pub(crate) fn seeded(seed: u64) -> Pcg64Mcg {
        Pcg64Mcg::seed_from_u64(seed)
    }

    /// Returns the deviation of counts from their expectation in standard deviations of
    /// chi-squared, whose distribution is nearly normal from about ten cells on. Cells with an
    /// expectation below ten are joined.
    pub(crate) fn chi_squared(counts: &[u64], probabilities: &[f64]) -> f64 {
        assert_eq!(counts.len(), probabilities.len());
        let total: u64 = counts.iter().sum();
        let (mut sum, mut cells) = (0.0, 0.0_f64);
        let (mut seen, mut expected) = (0.0, 0.0);
        for (&count, &p) in counts.iter().zip(probabilities) {
            seen += count as f64;
            expected += p * total as f64;
            if expected >= 10.0 {
                sum += (seen - expected) * (seen - expected) / expected;
                cells += 1.0;
                (seen, expected) = (0.0, 0.0);
            }
        }
        let freedom = (cells - 1.0).max(1.0);
        (sum - freedom) / (2.0 * freedom).sqrt()
    }

    #[test]
    fn bounded_integers_are_uniform_and_bounded() {
        let mut rng = seeded(1);
        for n in [1, 2, 3, 7, 100, 1000] {
            let mut counts = vec![0; n];
            for _ in 0..100_000 {
                counts[below(&mut rng, n as u64) as usize] += 1;
            }
            let off = chi_squared(&counts, &vec![1.0 / n as f64; n]);
            assert!(off < 4.0, "{n}: {off}");
        }
        assert!((0..1000).all(|_| below(&mut rng, u64::MAX) < u64::MAX));
    }

    #[test]
    fn a_bound_that_does_not_divide_the_range_of_the_generator_is_met_exactly() {
        // Without rejection a third of the results would be drawn twice as often.
        let n = (1 << 63) + (1 << 62);
        let mut rng = seeded(2);
        let thirds = (0..30_000).fold([0_u64; 3], |mut counts, _| {
            counts[(below(&mut rng, n) >> 62) as usize] += 1;
            counts
        });
        assert!(chi_squared(&thirds, &[1.0 / 3.0; 3]) < 4.0, "{thirds:?}");
        let even = (0..30_000)
            .filter(|_| below(&mut rng, n).is_multiple_of(2))
            .count();
        assert!((14_500..15_500).contains(&even), "{even}");
    }

    #[test]
    fn real_numbers_keep_their_bounds() {
        let mut rng = seeded(3);
        for _ in 0..10_000 {
            assert!((0.0..1.0).contains(&unit(&mut rng)));
            let x = above_zero(&mut rng);
            assert!(x > 0.0 && x <= 1.0);
            assert!(exponential(&mut rng) >= 0.0);
        }
    }

    #[test]
    fn the_normal_distribution_has_its_moments() {
        let mut rng = seeded(4);
        let n = 100_000;
        let (mut sum, mut squares, mut within) = (0.0, 0.0, 0);
        for _ in 0..n {
            let z = normal(&mut rng);
            sum += z;
            squares += z * z;
            within += u32::from(z.abs() < 1.0);
        }
        let n = f64::from(n);
        assert!((sum / n).abs() < 0.015, "{}", sum / n);
        assert!((squares / n - 1.0).abs() < 0.02, "{}", squares / n);
        assert!((f64::from(within) / n - 0.682_69).abs() < 0.006);
    }
}
