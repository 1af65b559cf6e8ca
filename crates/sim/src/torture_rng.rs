//! Random numbers of torture runs: integers only, the same on every machine, one stream per
//! component.

use rand::Rng;
use rand_pcg::Pcg64;

/// Seeded generator. Each component has a stream of its own, so that a component that draws more
/// than before does not change the draws of others.
#[derive(Clone, Debug)]
pub struct TortureRng(Pcg64);

impl TortureRng {
    /// Creates the generator of a component's `stream` under a seed.
    pub fn new(seed: u64, stream: u64) -> TortureRng {
        TortureRng(Pcg64::new(seed.into(), stream.into()))
    }

    /// Draws from 0 to `n - 1`; returns 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        // The bias is below n / 2^64.
        ((self.0.next_u64() as u128 * n as u128) >> 64) as u64
    }

    /// Draws from `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below((high - low).saturating_add(1))
    }

    /// Draws from `low` to `high`, with every power of two equally likely. `low` must be at least
    /// 1.
    pub fn octaves(&mut self, low: u64, high: u64) -> u64 {
        let octave = self.range(low.ilog2().into(), high.ilog2().into());
        let from = 1u64 << octave;
        // The first and the last octave may reach beyond the bounds.
        self.range(from, from + (from - 1)).clamp(low, high)
    }

    /// Returns `true` with a probability of `per_mille` in 1000.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille.into()
    }

    /// Draws an index of a list of `len` items.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Draws one of the items.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    /// Draws 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_within_their_bounds_and_reach_them() {
        let mut rng = TortureRng::new(1, 2);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.range(3, 7)).collect();
        assert_eq!(drawn.iter().min(), Some(&3));
        assert_eq!(drawn.iter().max(), Some(&7));
        assert!((0..1000).all(|_| (5..=5000).contains(&rng.octaves(5, 5000))));
        assert_eq!(rng.range(9, 9), 9);
    }

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        let draw = |stream| TortureRng::new(7, stream).bits();
        assert_ne!(draw(1), draw(2));
        assert_eq!(draw(1), draw(1));
    }
}
