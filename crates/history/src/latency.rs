//! Compact histograms of latencies.
//!
//! Bucket `16 o + s` counts times from `2^(10+o) (1 + s/16)` ns up to the next bucket's begin, for
//! octaves `o` of 0 to 26; bucket 0 also counts all shorter times and the last all longer ones. The
//! engine's histograms have the same buckets. A quantile is the upper bound of the bucket that it
//! falls into, at most 6.25 % above the true value.
//!
//! A histogram with more cells than fit is made coarser: 2, 4, 8 or 16 adjacent buckets are counted
//! in the last of them. Quantiles stay upper bounds, at most 12.5, 25, 50 or 100 % above the true
//! value. With [`SAMPLE_CELLS_MAX`](crate::budget::SAMPLE_CELLS_MAX) cells a second is exact to a
//! bucket while its latencies lie within six octaves, a factor of 64.

use tidegate_packing::put_number;

use crate::reader::{Damage, Reader};

/// Sub-buckets of an octave.
const SUB_BUCKETS: u32 = 16;
/// Begin of the first octave, as a power of two nanoseconds.
const FIRST_OCTAVE: u32 = 10;
const OCTAVES: u32 = 27;
/// Number of buckets.
pub const BUCKETS: u16 = (SUB_BUCKETS * OCTAVES) as u16;
/// Most that a histogram is coarsened: 2^4 buckets in one.
const SHIFT_MAX: u32 = 4;

/// Returns the exclusive upper bound of a bucket in nanoseconds.
pub fn upper_bound_ns(bucket: u16) -> u64 {
    let bucket = u64::from(bucket.min(BUCKETS - 1));
    let (octave, sub) = (bucket / 16 + u64::from(FIRST_OCTAVE), bucket % 16 + 1);
    (1 << octave) + (sub << (octave - 4))
}

/// Histogram of latencies: cells in ascending order of their buckets.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Latency {
    cells: Vec<(u16, u64)>,
}

impl Latency {
    /// Creates a histogram of counts by bucket.
    ///
    /// # Panics
    /// If buckets are not ascending, or beyond the last.
    pub fn new(cells: Vec<(u16, u64)>) -> Latency {
        let ascending = cells.windows(2).all(|pair| pair[0].0 < pair[1].0);
        assert!(
            ascending && cells.last().is_none_or(|last| last.0 < BUCKETS),
            "cells are in order of their buckets: {cells:?}"
        );
        Latency { cells }
    }

    /// Cells that are not empty: bucket and count.
    pub fn cells(&self) -> &[(u16, u64)] {
        &self.cells
    }

    /// Number of latencies.
    pub fn count(&self) -> u64 {
        let add = |sum: u64, cell: &(u16, u64)| sum.saturating_add(cell.1);
        self.cells.iter().fold(0, add)
    }

    /// Adds the latencies of another histogram.
    pub fn merge(&mut self, other: &Latency) {
        for &(bucket, count) in &other.cells {
            match self.cells.binary_search_by_key(&bucket, |cell| cell.0) {
                Ok(at) => self.cells[at].1 = self.cells[at].1.saturating_add(count),
                Err(at) => self.cells.insert(at, (bucket, count)),
            }
        }
    }

    /// Returns the bucket of the quantile of `per_mille` thousandths; `None` for no latencies.
    pub fn quantile(&self, per_mille: u64) -> Option<u16> {
        let total = u128::from(self.count());
        // At least the first: the 0-quantile is the shortest latency.
        let rank = (total * u128::from(per_mille)).div_ceil(1000).max(1);
        let mut seen = 0;
        let mut cells = self.cells.iter();
        let found = cells.find(|(_, count)| {
            seen += u128::from(*count);
            seen >= rank
        });
        found.or(self.cells.last()).map(|&(bucket, _)| bucket)
    }

    /// Counts adjacent buckets together until there are at most `max` cells, or no more can be.
    pub fn coarsen(&mut self, max: usize) {
        for shift in 1..=SHIFT_MAX {
            if self.cells.len() <= max {
                return;
            }
            self.coarsen_by(shift);
        }
    }

    /// Counts 2^`shift` adjacent buckets in the last of them.
    fn coarsen_by(&mut self, shift: u32) {
        let last_of = |bucket: u16| bucket | ((1 << shift) - 1);
        let mut coarse: Vec<(u16, u64)> = Vec::with_capacity(self.cells.len());
        for &(bucket, count) in &self.cells {
            match coarse.last_mut() {
                Some(cell) if cell.0 == last_of(bucket) => cell.1 = cell.1.saturating_add(count),
                _ => coarse.push((last_of(bucket), count)),
            }
        }
        self.cells = coarse;
    }

    /// Appends the histogram: its coarseness, the first cell, the number of cells up to the last,
    /// and the count of each; 0 is followed by the number of further empty cells.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let is_last = |shift: u32| {
            let mask = (1 << shift) - 1;
            self.cells.iter().all(|cell| cell.0 & mask == mask)
        };
        let shift = (0..=SHIFT_MAX)
            .rev()
            .find(|&shift| is_last(shift))
            .unwrap_or(0);
        let (Some(first), Some(last)) = (self.cells.first(), self.cells.last()) else {
            return out.push(u8::MAX);
        };
        out.push(shift as u8);
        put_number(u64::from(first.0 >> shift), out);
        put_number(u64::from((last.0 - first.0) >> shift), out);
        let mut next = first.0 >> shift;
        for &(bucket, count) in &self.cells {
            let empty = (bucket >> shift) - next;
            if empty > 0 {
                out.push(0);
                put_number(u64::from(empty - 1), out);
            }
            put_number(count, out);
            next = (bucket >> shift) + 1;
        }
    }

    /// Reads what [`Latency::encode`] has written.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Latency, Damage> {
        let shift = match reader.byte()? {
            u8::MAX => return Ok(Latency::default()),
            shift if u32::from(shift) <= SHIFT_MAX => u32::from(shift),
            _ => return Err(Damage("a histogram is too coarse")),
        };
        const BEYOND: &str = "a histogram has a bucket too many";
        let end = usize::from(BUCKETS >> shift);
        let first = reader.at_most(end - 1, BEYOND)?;
        let last = first + reader.at_most(end - 1 - first, BEYOND)?;
        let (mut cells, mut at) = (Vec::new(), first);
        while at <= last {
            match reader.number()? {
                0 => at += 1 + reader.at_most(end, BEYOND)?,
                count => {
                    let bucket = (at << shift) as u16 | ((1 << shift) - 1);
                    cells.push((bucket, count));
                    at += 1;
                }
            }
        }
        Ok(Latency { cells })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn histogram() -> impl Strategy<Value = Latency> {
        let cells = prop::collection::btree_map(0..BUCKETS, 1u64..1 << 40, 0..60);
        cells.prop_map(|cells| Latency::new(cells.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn histograms_round_trip_at_every_coarseness(
            mut histogram in histogram(),
            max in 0usize..80,
        ) {
            histogram.coarsen(max);
            let mut out = Vec::new();
            histogram.encode(&mut out);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(Latency::decode(&mut reader), Ok(histogram));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn a_coarser_histogram_has_the_same_count_and_bounds_from_above(
            histogram in histogram(),
            max in 0usize..80,
            per_mille in 0u64..=1000,
        ) {
            let mut coarse = histogram.clone();
            coarse.coarsen(max);
            prop_assert_eq!(coarse.count(), histogram.count());
            prop_assert!(coarse.cells().len() <= max.max(usize::from(BUCKETS) / 16));
            if let Some(exact) = histogram.quantile(per_mille) {
                let bound = coarse.quantile(per_mille).expect("as many");
                prop_assert!((exact..exact + 16).contains(&bound), "{exact} {bound}");
                let (exact, bound) = (upper_bound_ns(exact), upper_bound_ns(bound));
                prop_assert!(bound <= 2 * exact, "{exact} ns, {bound} ns");
            }
        }

        /// Merged histograms have the quantiles of all latencies together.
        #[test]
        fn quantiles_of_a_merge_are_those_of_all(
            parts in prop::collection::vec(prop::collection::vec(0..BUCKETS, 0..20), 1..5),
            per_mille in 0u64..=1000,
        ) {
            let mut merged = Latency::default();
            for part in &parts {
                for &bucket in part {
                    merged.merge(&Latency::new(vec![(bucket, 1)]));
                }
            }
            let mut all: Vec<u16> = parts.concat();
            all.sort_unstable();
            let rank = (all.len() * per_mille as usize).div_ceil(1000).max(1);
            prop_assert_eq!(merged.quantile(per_mille), all.get(rank - 1).copied());
        }
    }

    #[test]
    fn bounds_are_those_of_the_documentation() {
        assert_eq!(upper_bound_ns(0), 1024 + 64);
        assert_eq!(upper_bound_ns(15), 2048);
        assert_eq!(upper_bound_ns(BUCKETS - 1), 1 << 37);
        assert_eq!(upper_bound_ns(u16::MAX), 1 << 37);
    }
}
