//! Sums over slots: which slot a point of their total falls into. Fenwick: A new data structure
//! for cumulative frequency tables (Software: Practice and Experience 24, 1994).
//!
//! Node n holds the sum of the last 2^k slots up to the nth, where 2^k is the lowest bit of n:
//! changing a slot and finding a point each look at log2 of the slots.

/// Values of the slots `0..slots` with prefix sums; initially 0. Never allocates after
/// [`Fenwick::with_capacity`].
#[derive(Clone, Debug)]
pub struct Fenwick {
    /// Partial sums, indexed from 1; `sums[0]` is not used.
    sums: Vec<u64>,
    values: Vec<u64>,
    total: u64,
}

impl Fenwick {
    /// Creates values for `slots` slots, all 0.
    pub fn with_capacity(slots: usize) -> Fenwick {
        Fenwick {
            sums: vec![0; slots + 1],
            values: vec![0; slots],
            total: 0,
        }
    }

    /// Memory of a slot, in bytes.
    pub const BYTES_PER_SLOT: usize = 2 * size_of::<u64>();

    /// Returns the value of a slot.
    #[inline]
    pub fn get(&self, slot: usize) -> u64 {
        self.values[slot]
    }

    /// Returns the sum of all values, which must stay below 2^64.
    #[inline]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Sets the value of a slot. Panics beyond the capacity.
    pub fn set(&mut self, slot: usize, value: u64) {
        let old = core::mem::replace(&mut self.values[slot], value);
        if old == value {
            return;
        }
        // A decrease wraps around; the sums are still right, since they are below 2^64.
        let change = value.wrapping_sub(old);
        self.total = self.total.wrapping_add(change);
        let mut node = slot + 1;
        while node < self.sums.len() {
            self.sums[node] = self.sums[node].wrapping_add(change);
            node += node & node.wrapping_neg();
        }
    }

    /// Returns the slot that contains `point`, if the slots are laid end to end, each as long as
    /// its value. Panics if the point is not below the total.
    pub fn find(&self, mut point: u64) -> usize {
        assert!(point < self.total, "a point beyond the total");
        let slots = self.values.len();
        let mut before = 0;
        // There are slots, because the total is above 0.
        let mut step = 1 << slots.ilog2();
        while step > 0 {
            let node = before + step;
            // At equality the point lies behind these slots; slots of value 0 are thereby passed
            // over.
            if node <= slots && self.sums[node] <= point {
                point -= self.sums[node];
                before = node;
            }
            step /= 2;
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_point_falls_where_a_scan_says(
            slots in 1usize..70,
            changes in prop::collection::vec(
                (0usize..70, prop_oneof![Just(0u64), 1u64..1 << 50]),
                1..200,
            ),
            points in prop::collection::vec(any::<u64>(), 1..20),
        ) {
            let mut sums = Fenwick::with_capacity(slots);
            let mut values = vec![0u64; slots];
            for (slot, value) in changes {
                values[slot % slots] = value;
                sums.set(slot % slots, value);
                let total: u64 = values.iter().sum();
                prop_assert_eq!(sums.total(), total);
                prop_assert_eq!(sums.get(slot % slots), value);
                // The first and the last of each slot, and any others.
                let ends = values.iter().scan(0, |sum, v| { *sum += v; Some(*sum) });
                let edges = ends.flat_map(|end| [end, end.wrapping_sub(1)]);
                for point in edges.chain(points.iter().copied()).filter(|_| total > 0) {
                    let point = point % total;
                    let mut left = point;
                    let by_scan = values.iter().position(|&v| {
                        let here = left < v;
                        left = left.wrapping_sub(v);
                        here
                    });
                    prop_assert_eq!(Some(sums.find(point)), by_scan);
                }
            }
        }
    }
}
