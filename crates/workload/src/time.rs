//! Distributions of durations: think times, delays, phases of bursts.

use crate::error::{Findings, WorkloadError};
use crate::random_variate;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use tidegate_core::time::Nanos;

/// Distribution of a duration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TimeDistribution {
    /// Constant.
    Fixed(Nanos),
    /// Uniform from `from` to `to`, both included.
    Uniform {
        /// Shortest duration.
        from: Nanos,
        /// Longest duration.
        to: Nanos,
    },
    /// Exponential.
    Exponential {
        /// Mean.
        mean: Nanos,
    },
    /// Normal; negative values become zero.
    Normal {
        /// Mean, before negative values become zero.
        mean: Nanos,
        /// Standard deviation.
        deviation: Nanos,
    },
    /// Log-normal, which has a long tail.
    LogNormal {
        /// Median.
        median: Nanos,
        /// Standard deviation of the logarithm, 0 to 10.
        sigma: f64,
    },
}

impl TimeDistribution {
    /// Draws a duration, rounded to the nearest nanosecond; at most [`Nanos::MAX`].
    ///
    /// The same generator gives the same durations on every machine. Fixed and uniform durations
    /// are computed in integers; the others use `libm`'s logarithm and exponential, which consist
    /// of operations whose rounding IEEE 754 defines.
    pub fn draw(&self, rng: &mut Pcg64Mcg) -> Nanos {
        match *self {
            TimeDistribution::Fixed(time) => time,
            TimeDistribution::Uniform { from, to } => {
                let steps = to.0.saturating_sub(from.0);
                let offset = match steps.checked_add(1) {
                    Some(n) => random_variate::below(rng, n),
                    // All 2^64 durations: their number does not fit, and every word is a result.
                    None => rng.next_u64(),
                };
                Nanos(from.0 + offset)
            }
            TimeDistribution::Exponential { mean } => {
                nearest(mean.0 as f64 * random_variate::exponential(rng))
            }
            TimeDistribution::Normal { mean, deviation } => {
                nearest(mean.0 as f64 + deviation.0 as f64 * random_variate::normal(rng))
            }
            TimeDistribution::LogNormal { median, sigma } => {
                nearest(median.0 as f64 * libm::exp(sigma * random_variate::normal(rng)))
            }
        }
    }

    /// Returns the mean in nanoseconds; of a normal distribution before negative values become
    /// zero.
    pub fn mean_ns(&self) -> f64 {
        match *self {
            TimeDistribution::Fixed(time) => time.0 as f64,
            TimeDistribution::Uniform { from, to } => (from.0 as f64 + to.0 as f64) / 2.0,
            TimeDistribution::Exponential { mean } | TimeDistribution::Normal { mean, .. } => {
                mean.0 as f64
            }
            TimeDistribution::LogNormal { median, sigma } => {
                // Mean of a log-normal distribution: exp(mu + sigma^2 / 2), with exp(mu) the
                // median.
                median.0 as f64 * libm::exp(sigma * sigma / 2.0)
            }
        }
    }

    /// Checks the ranges that the fields' documentation states.
    ///
    /// # Errors
    /// All mistakes, with the fields' names.
    pub fn check(&self) -> Result<(), Vec<WorkloadError>> {
        Findings::collect(|findings| self.check_into(findings))
    }

    pub(crate) fn check_into(&self, findings: &mut Findings) {
        match *self {
            TimeDistribution::Uniform { from, to } => {
                let found = format_args!("{from}, and `to` is {to}").to_string();
                findings.expect(from <= to, "from", found, "no longer than `to`");
            }
            TimeDistribution::LogNormal { sigma, .. } => {
                findings.expect((0.0..=10.0).contains(&sigma), "sigma", sigma, "0 to 10");
            }
            TimeDistribution::Fixed(_)
            | TimeDistribution::Exponential { .. }
            | TimeDistribution::Normal { .. } => {}
        }
    }
}

/// Rounds to the nearest nanosecond. Negative values and NaN become zero, too large ones
/// [`Nanos::MAX`].
pub(crate) fn nearest(ns: f64) -> Nanos {
    // `as` saturates, and makes 0 of NaN.
    Nanos((ns + 0.5) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_variate::tests::seeded;

    const MS: Nanos = Nanos::from_millis(1);

    fn drawn(distribution: TimeDistribution, n: usize) -> Vec<u64> {
        let mut rng = seeded(11);
        (0..n).map(|_| distribution.draw(&mut rng).0).collect()
    }

    fn mean(times: &[u64]) -> f64 {
        times.iter().map(|&t| t as f64).sum::<f64>() / times.len() as f64
    }

    #[test]
    fn a_fixed_time_is_itself_and_takes_nothing_of_the_generator() {
        let mut rng = seeded(1);
        assert_eq!(TimeDistribution::Fixed(MS).draw(&mut rng), MS);
        assert_eq!(rng, seeded(1));
    }

    #[test]
    fn uniform_times_reach_both_ends_and_no_farther() {
        let times = drawn(
            TimeDistribution::Uniform {
                from: Nanos(5),
                to: Nanos(8),
            },
            1000,
        );
        for t in 5..=8 {
            let n = times.iter().filter(|&&x| x == t).count();
            assert!((200..300).contains(&n), "{t}: {n}");
        }
        assert!(times.iter().all(|t| (5..=8).contains(t)));
    }

    #[test]
    fn the_widest_uniform_range_is_drawn_from() {
        let all = TimeDistribution::Uniform {
            from: Nanos::ZERO,
            to: Nanos::MAX,
        };
        assert!(drawn(all, 100).iter().any(|&t| t > u64::MAX / 2));
    }

    #[test]
    fn exponential_times_have_their_mean_and_no_memory() {
        let times = drawn(TimeDistribution::Exponential { mean: MS }, 100_000);
        assert!((mean(&times) / 1e6 - 1.0).abs() < 0.015, "{}", mean(&times));
        // Of those past t, as many last another t: 1/e of them.
        let past = |t| times.iter().filter(|&&x| x > t).count() as f64;
        let e = std::f64::consts::E;
        assert!((past(1_000_000) / 1e5 * e - 1.0).abs() < 0.02);
        assert!((past(2_000_000) / past(1_000_000) * e - 1.0).abs() < 0.03);
    }

    #[test]
    fn normal_times_have_their_mean_and_are_never_negative() {
        let bell = |mean, deviation| TimeDistribution::Normal { mean, deviation };
        let times = drawn(bell(MS, Nanos::from_micros(100)), 100_000);
        assert!((mean(&times) / 1e6 - 1.0).abs() < 0.002);
        let wide = drawn(bell(Nanos(10), Nanos(1000)), 1000);
        let zero = wide.iter().filter(|&&t| t == 0).count();
        assert!((420..580).contains(&zero), "{zero} of 1000 cut off");
    }

    #[test]
    fn half_of_log_normal_times_are_below_the_median() {
        let tail = TimeDistribution::LogNormal {
            median: MS,
            sigma: 1.0,
        };
        let times = drawn(tail, 100_000);
        let below = times.iter().filter(|&&t| t < 1_000_000).count();
        assert!((49_300..50_700).contains(&below), "{below}");
        assert!((mean(&times) / tail.mean_ns() - 1.0).abs() < 0.03);
    }

    #[test]
    fn times_saturate() {
        let tail = TimeDistribution::LogNormal {
            median: Nanos::MAX,
            sigma: 10.0,
        };
        assert!(drawn(tail, 100).contains(&u64::MAX));
    }

    /// Expected bits, so that a machine or a build that draws other values is noticed.
    #[test]
    fn the_same_seed_draws_the_same_times_everywhere() {
        let (mean, median) = (MS, MS);
        let times = [
            TimeDistribution::Exponential { mean },
            TimeDistribution::Normal {
                mean,
                deviation: Nanos::from_micros(200),
            },
            TimeDistribution::LogNormal { median, sigma: 2.0 },
        ]
        .map(|distribution| drawn(distribution, 3));
        assert_eq!(times, GOLDEN);
    }

    const GOLDEN: [[u64; 3]; 3] = [
        [12048, 1_516_229, 3_623_426],
        [1_010_054, 1_103_423, 1_103_460],
        [1_105_771, 2_812_939, 2_813_972],
    ];

    #[test]
    fn what_is_out_of_range_is_named() {
        let upside_down = TimeDistribution::Uniform {
            from: MS,
            to: Nanos::ZERO,
        };
        let found = upside_down.check().unwrap_err();
        assert_eq!(
            found[0].to_string(),
            "from is 1.000 ms, and `to` is 0 ns; allowed: no longer than `to`"
        );
        for sigma in [-0.1, 10.1, f64::NAN, f64::INFINITY] {
            let tail = TimeDistribution::LogNormal { median: MS, sigma };
            assert_eq!(tail.check().unwrap_err()[0].field, "sigma");
        }
        assert_eq!(TimeDistribution::Exponential { mean: MS }.check(), Ok(()));
    }
}
