//! Zipf's distribution by rejection-inversion.
//!
//! Hoermann and Derflinger, "Rejection-inversion to generate variates from monotone discrete
//! distributions", ACM TOMACS 6 (1996), with h(x) = x^-theta: invert the integral H of the
//! density's continuous hat, round to the nearest integer k, and accept if the point lies below
//! the bar of k. Near the middle of each bar that is known beforehand (`squeeze`), so that most
//! draws cost one logarithm and one exponential, whatever the number of blocks.

use crate::random_variate;
use rand_pcg::Pcg64Mcg;

/// Integers k from 1 to n with probabilities proportional to k^-theta.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    n: f64,
    theta: f64,
    /// 1 - theta, the exponent of the integral.
    one_minus_theta: f64,
    /// Integral H at the left end of the first bar.
    from: f64,
    /// Integral H at the right end of the last bar.
    to: f64,
    /// Distance of x from the right end of a bar up to which a point is accepted without evaluating
    /// the density.
    squeeze: f64,
}

impl Zipf {
    /// Creates the distribution of the integers up to `n` with the exponent `theta`.
    ///
    /// # Panics
    /// `n` is 0, or `theta` is not above 0, or is 1.
    pub(super) fn new(n: u64, theta: f64) -> Zipf {
        assert!(n > 0, "a distribution of no integers");
        // With 1 the integrals below divide by 0.
        assert!(
            theta > 0.0 && theta != 1.0,
            "theta is {theta}; it must be above 0 and not 1"
        );
        let mut zipf = Zipf {
            n: n as f64,
            theta,
            one_minus_theta: 1.0 - theta,
            from: 0.0,
            to: 0.0,
            squeeze: 0.0,
        };
        // h(1) = 1: the first bar is cut to its own area, so that k = 1 is never rejected for the
        // hat.
        zipf.from = zipf.integral(1.5) - 1.0;
        zipf.to = zipf.integral(zipf.n + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// Draws k, from 1 to n.
    pub(super) fn draw(&self, rng: &mut Pcg64Mcg) -> u64 {
        loop {
            let u = self.to + random_variate::unit(rng) * (self.from - self.to);
            let x = self.inverse(u);
            // x is positive, so adding a half and truncating rounds it.
            let k = ((x + 0.5) as u64 as f64).clamp(1.0, self.n);
            if k - x <= self.squeeze || u >= self.integral(k + 0.5) - self.density(k) {
                return k as u64;
            }
        }
    }

    /// Density h(x) = x^-theta.
    fn density(&self, x: f64) -> f64 {
        libm::exp(-self.theta * libm::log(x))
    }

    /// Integral H of h from 1 to x; `expm1` keeps precision if theta is near 1.
    fn integral(&self, x: f64) -> f64 {
        libm::expm1(self.one_minus_theta * libm::log(x)) / self.one_minus_theta
    }

    /// Inverse of the integral H.
    #[inline]
    fn inverse(&self, u: f64) -> f64 {
        // Rounding may take the argument just below -1, which has no logarithm.
        let y = (u * self.one_minus_theta).max(-1.0);
        libm::exp(libm::log1p(y) / self.one_minus_theta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_variate::tests::{chi_squared, seeded};

    #[test]
    fn every_rank_comes_as_often_as_zipf_says() {
        for (n, theta) in [
            (1, 1.2),
            (2, 0.5),
            (10, 0.01),
            (100, 0.99),
            (100, 1.000_001),
            (1000, 1.2),
            (1000, 3.0),
            (50, 10.0),
        ] {
            let zipf = Zipf::new(n, theta);
            let mut rng = seeded(31);
            let mut counts = vec![0; n as usize];
            for _ in 0..200_000 {
                counts[(zipf.draw(&mut rng) - 1) as usize] += 1;
            }
            let weights: Vec<f64> = (1..=n).map(|k| libm::pow(k as f64, -theta)).collect();
            let sum: f64 = weights.iter().sum();
            let p: Vec<f64> = weights.iter().map(|w| w / sum).collect();
            let off = chi_squared(&counts, &p);
            assert!(off < 4.0, "n {n}, theta {theta}: {off}");
        }
    }

    #[test]
    fn the_largest_disks_are_drawn_from() {
        let n = 1 << 55;
        for theta in [0.1, 0.999, 1.001, 10.0] {
            let (zipf, mut rng) = (Zipf::new(n, theta), seeded(32));
            assert!((0..1000).all(|_| (1..=n).contains(&zipf.draw(&mut rng))));
        }
    }
}
