//! Distribution of random requests over the blocks of their region.

use super::permute::Permutation;
use super::zipf::Zipf;
use crate::random_variate;
use crate::spec::Placement;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

/// Key of the permutation that scatters popular blocks over a region; arbitrary.
const SCATTER_KEY: u64 = 0x5ca7_7e12;

/// Generator of random blocks of a region.
#[derive(Clone, Debug)]
pub(super) enum Places {
    Uniform,
    Zipf {
        ranks: Zipf,
        scatter: Permutation,
    },
    /// Rank `n * u^power` for a uniform `u`, as in fio.
    Pareto {
        n: u64,
        power: f64,
        scatter: Permutation,
    },
    /// Middle and standard deviation in blocks.
    Normal {
        middle: f64,
        deviation: f64,
    },
}

impl Places {
    /// Creates a generator over `n` blocks, at least one.
    pub(super) fn new(placement: &Placement, n: u64) -> Places {
        let scatter = Permutation::new(n, SCATTER_KEY);
        match *placement {
            // The stream itself shuffles, because all of its operations share one order.
            Placement::Uniform | Placement::Shuffle => Places::Uniform,
            Placement::Zipf { theta } => Places::Zipf {
                ranks: Zipf::new(n, theta),
                scatter,
            },
            Placement::Pareto { h } => Places::Pareto {
                n,
                // As in fio. `log1p` keeps precision for small h.
                power: libm::log(h) / libm::log1p(-h),
                scatter,
            },
            Placement::Normal { deviation_percent } => Places::Normal {
                // Blocks are few enough for f64: a region of 2^60 bytes has 2^51 sectors.
                middle: n as f64 / 2.0,
                deviation: n as f64 * deviation_percent / 100.0,
            },
        }
    }

    /// Draws a block for a request that may begin at the first `places` blocks.
    #[inline]
    pub(super) fn draw(&self, places: u64, rng: &mut Pcg64Mcg) -> u64 {
        match self {
            Places::Uniform => random_variate::below(rng, places),
            // Ranks count from 1. A block where a large request does not fit becomes the last that
            // holds it.
            Places::Zipf { ranks, scatter } => scatter.apply(ranks.draw(rng) - 1).min(places - 1),
            Places::Pareto { n, power, scatter } => {
                let rank = (*n as f64 * libm::pow(random_variate::unit(rng), *power)) as u64;
                // The product may round up to `n`.
                scatter.apply(rank.min(n - 1)).min(places - 1)
            }
            Places::Normal { middle, deviation } => loop {
                // Values outside the region are drawn again, not moved to its ends, which would
                // become hot.
                let x = middle + deviation * random_variate::normal(rng);
                if x >= 0.0 && x < middle * 2.0 {
                    return (x as u64).min(places - 1);
                }
            },
        }
    }
}

/// Random order of the blocks without repetition, then another one.
#[derive(Clone, Debug)]
pub(super) struct Shuffle {
    n: u64,
    /// Number of blocks drawn in this round.
    done: u64,
    order: Permutation,
}

impl Shuffle {
    /// Creates the order of `n` blocks, at least one.
    pub(super) fn new(n: u64) -> Shuffle {
        Shuffle {
            n,
            // The first draw starts a round, because it has a generator for the order's key.
            done: n,
            order: Permutation::new(n, 0),
        }
    }

    #[inline]
    pub(super) fn draw(&mut self, rng: &mut Pcg64Mcg) -> u64 {
        if self.done == self.n {
            self.done = 0;
            self.order = Permutation::new(self.n, rng.next_u64());
        }
        let block = self.order.apply(self.done);
        self.done += 1;
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_variate::tests::{chi_squared, seeded};

    fn counts(placement: Placement, n: u64) -> Vec<u64> {
        let (places, mut rng) = (Places::new(&placement, n), seeded(41));
        let mut counts = vec![0; n as usize];
        for _ in 0..200_000 {
            counts[places.draw(n, &mut rng) as usize] += 1;
        }
        counts
    }

    /// Returns counts by rank, popular blocks first.
    fn ranked(placement: Placement, n: u64) -> Vec<u64> {
        let counts = counts(placement, n);
        let scatter = Permutation::new(n, SCATTER_KEY);
        (0..n)
            .map(|rank| counts[scatter.apply(rank) as usize])
            .collect()
    }

    #[test]
    fn uniform_blocks_are_all_alike() {
        let off = chi_squared(&counts(Placement::Uniform, 100), &[0.01; 100]);
        assert!(off < 4.0, "{off}");
    }

    #[test]
    fn zipf_blocks_keep_their_probabilities_when_scattered() {
        let n = 1000;
        let weights: Vec<f64> = (1..=n).map(|k| libm::pow(k as f64, -1.1)).collect();
        let sum: f64 = weights.iter().sum();
        let p: Vec<f64> = weights.iter().map(|w| w / sum).collect();
        let off = chi_squared(&ranked(Placement::Zipf { theta: 1.1 }, n), &p);
        assert!(off < 4.0, "{off}");
    }

    #[test]
    fn pareto_blocks_have_fio_s_skew() {
        for h in [0.1, 0.2, 0.5, 0.9] {
            let n = 500;
            let inverse = libm::log1p(-h) / libm::log(h);
            let up_to = |k: u64| libm::pow(k as f64 / n as f64, inverse);
            let p: Vec<f64> = (0..n).map(|k| up_to(k + 1) - up_to(k)).collect();
            let off = chi_squared(&ranked(Placement::Pareto { h }, n), &p);
            assert!(off < 4.0, "h {h}: {off}");
            // Which is to say: a share h of the blocks gets 1 - h of the requests.
            assert!((up_to((h * n as f64) as u64) - (1.0 - h)).abs() < 1e-9);
        }
    }

    #[test]
    fn normal_blocks_lie_around_the_middle() {
        let deviation_percent = 10.0;
        let counts = counts(Placement::Normal { deviation_percent }, 1000);
        let within = |blocks: std::ops::Range<usize>| -> f64 {
            counts[blocks].iter().sum::<u64>() as f64 / 200_000.0
        };
        assert!((within(400..600) - 0.682_69).abs() < 0.005);
        assert!((within(300..700) - 0.954_50).abs() < 0.003);
        assert!((within(0..500) - 0.5).abs() < 0.005);
    }

    #[test]
    fn a_bell_wider_than_the_region_stays_within() {
        let deviation_percent = 100.0;
        let counts = counts(Placement::Normal { deviation_percent }, 3);
        assert!(counts.iter().all(|&n| n > 60_000), "{counts:?}");
    }

    #[test]
    fn popular_blocks_are_not_neighbours() {
        let scatter = Permutation::new(1_000_000, SCATTER_KEY);
        let mut hot: Vec<u64> = (0..100).map(|rank| scatter.apply(rank)).collect();
        hot.sort_unstable();
        assert!(hot[99] - hot[0] > 900_000, "{hot:?}");
        let near = hot
            .windows(2)
            .filter(|pair| pair[1] - pair[0] < 100)
            .count();
        assert!(near < 5, "{hot:?}");
    }

    #[test]
    fn a_shuffle_meets_each_block_once_a_round_and_rounds_differ() {
        let (mut shuffle, mut rng) = (Shuffle::new(1000), seeded(42));
        let mut round = || -> Vec<u64> { (0..1000).map(|_| shuffle.draw(&mut rng)).collect() };
        let (first, second) = (round(), round());
        assert_ne!(first, second);
        for mut round in [first, second] {
            round.sort_unstable();
            assert!(round.into_iter().eq(0..1000));
        }
    }
}
