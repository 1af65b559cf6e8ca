//! Request sizes drawn by their weights in constant time.

use crate::random_variate;
use crate::spec::Sizes;
use rand_pcg::Pcg64Mcg;

/// Size with the places where a request of it may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    /// Size in bytes.
    pub(super) bytes: u32,
    /// Number of blocks, of the smallest size, at which a request of this size may begin.
    pub(super) places: u64,
}

/// Generator of sizes by the alias method (Walker 1977, in Vose's form), in integers, so that
/// weights hold exactly.
#[derive(Clone, Debug)]
pub(super) struct SizeDraw {
    /// Smallest size in bytes.
    unit: u64,
    /// Single size, which is drawn without the table; unused if there are several.
    single: Size,
    /// Alias table; empty for a single size.
    columns: Box<[Column]>,
    /// Sum of all weights: the height of each column.
    height: u64,
}

/// Column of the alias table: `size` below the height `own`, `alias` above.
#[derive(Clone, Copy, Debug)]
struct Column {
    /// Height below which the column stands for `size`; above the table's height: all of it.
    own: u64,
    size: Size,
    alias: Size,
}

impl SizeDraw {
    /// Creates a generator for a region of `end` bytes.
    pub(super) fn new(sizes: &Sizes, end: u64) -> SizeDraw {
        let unit = u64::from(sizes.smallest().max(1));
        let size = |bytes: u32| Size {
            bytes,
            // A size larger than the region still has one place; the region's check refuses it.
            places: end.saturating_sub(u64::from(bytes)) / unit + 1,
        };
        let height = sizes.0.iter().map(|share| u64::from(share.weight)).sum();
        let n = sizes.0.len() as u64;
        let mut columns: Vec<Column> = (sizes.0.iter())
            .map(|share| Column {
                // Scaled by the number of columns, so that the mean height is the sum of weights.
                own: u64::from(share.weight) * n,
                size: size(share.bytes),
                alias: size(share.bytes),
            })
            .collect();
        build_alias_table(&mut columns, height);
        let single = size(sizes.largest());
        if sizes.single().is_some() {
            // A single size needs no draw, and existing seeds keep their requests.
            columns.clear();
        }
        SizeDraw {
            unit,
            single,
            columns: columns.into(),
            height,
        }
    }

    /// Returns the smallest size in bytes.
    #[inline]
    pub(super) fn unit(&self) -> u64 {
        self.unit
    }

    /// Draws a size.
    #[inline]
    pub(super) fn draw(&self, rng: &mut Pcg64Mcg) -> Size {
        if self.columns.is_empty() {
            return self.single;
        }
        let column = &self.columns[random_variate::below(rng, self.columns.len() as u64) as usize];
        if random_variate::below(rng, self.height) < column.own {
            column.size
        } else {
            column.alias
        }
    }
}

/// Fills each column below `height` from one above it, so that every column has two sizes at most.
fn build_alias_table(columns: &mut [Column], height: u64) {
    let (mut low, mut high): (Vec<usize>, Vec<usize>) =
        (0..columns.len()).partition(|&i| columns[i].own < height);
    while let (Some(l), Some(&h)) = (low.pop(), high.last()) {
        columns[l].alias = columns[h].size;
        // The column gives what the low one lacks; the total stays n times `height`, so none runs
        // out.
        columns[h].own -= height - columns[l].own;
        if columns[h].own < height {
            high.pop();
            low.push(h);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_variate::tests::{chi_squared, seeded};
    use crate::spec::SizeShare;
    use proptest::prelude::*;

    fn sizes(weights: &[u32]) -> Sizes {
        let share = |(i, &weight)| SizeShare {
            bytes: (i as u32 + 1) * 512,
            weight,
        };
        Sizes(weights.iter().enumerate().map(share).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Adds up what each column gives to each size; nothing is sampled.
        #[test]
        fn the_table_has_exactly_the_given_weights(
            weights in prop::collection::vec(1..=u32::MAX, 2..50),
        ) {
            let table = SizeDraw::new(&sizes(&weights), 1 << 40);
            let mut got = vec![0_u128; weights.len()];
            for column in &table.columns {
                let own = column.own.min(table.height);
                got[(column.size.bytes / 512 - 1) as usize] += u128::from(own);
                got[(column.alias.bytes / 512 - 1) as usize] += u128::from(table.height - own);
            }
            let n = weights.len() as u128;
            let want: Vec<u128> = weights.iter().map(|&w| u128::from(w) * n).collect();
            prop_assert_eq!(got, want);
        }
    }

    #[test]
    fn sizes_come_as_often_as_their_weights_say() {
        let weights = [1, 10, 100, 3, 1000, 50];
        let table = SizeDraw::new(&sizes(&weights), 1 << 40);
        let mut rng = seeded(21);
        let mut counts = [0; 6];
        for _ in 0..200_000 {
            counts[(table.draw(&mut rng).bytes / 512 - 1) as usize] += 1;
        }
        let p = weights.map(|w| f64::from(w) / 1164.0);
        assert!(chi_squared(&counts, &p) < 4.0, "{counts:?}");
    }

    #[test]
    fn a_single_size_draws_no_random_number() {
        let table = SizeDraw::new(&sizes(&[7]), 5000);
        let mut rng = seeded(1);
        let (bytes, places) = (512, 9);
        assert_eq!(table.draw(&mut rng), Size { bytes, places });
        assert_eq!(rng, seeded(1));
    }
}
