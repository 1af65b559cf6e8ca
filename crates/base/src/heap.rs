//! Four-ary min-heap over dense ids, with keys that can be changed in place.
//!
//! The four children of a node are adjacent: 64 bytes with a 64-bit key, so a level costs one or
//! two cache lines and the heap has half the levels of a binary one. A table of positions makes
//! `set` and `remove` O(log n).

/// Min-heap of `(key, id)`; equal keys leave in the order of their ids.
///
/// Allocates only for ids at or above the capacity given to [`IndexedHeap::with_capacity`].
#[derive(Clone, Debug)]
pub struct IndexedHeap<K> {
    nodes: Vec<(K, u32)>,
    /// Index in `nodes` of each id; `ABSENT` for an id that is not in the heap.
    position: Vec<u32>,
}

/// Position of an id that is not in the heap.
const ABSENT: u32 = u32::MAX;
/// Children per node: four nodes with a 64-bit key are as large as a cache line of 64 bytes.
const ARITY: usize = 4;

impl<K: Ord + Copy> IndexedHeap<K> {
    /// Memory of one id in the heap, in bytes.
    pub const BYTES_PER_ID: usize = size_of::<(K, u32)>() + size_of::<u32>();

    /// Creates an empty heap for the ids `0..ids`, at most `u32::MAX` of them.
    pub fn with_capacity(ids: usize) -> Self {
        assert!(ids <= ABSENT as usize, "ids are below u32::MAX");
        IndexedHeap {
            nodes: Vec::with_capacity(ids),
            position: vec![ABSENT; ids],
        }
    }

    /// Returns true if the heap has no ids.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of ids in the heap.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the smallest key and its id.
    #[inline]
    pub fn peek(&self) -> Option<(K, usize)> {
        self.nodes.first().map(|&(key, id)| (key, id as usize))
    }

    /// Returns whether `id` is in the heap.
    pub fn contains(&self, id: usize) -> bool {
        self.position.get(id).is_some_and(|&p| p != ABSENT)
    }

    /// Makes room for the ids `0..ids`, so that inserting them allocates nothing.
    pub fn make_room(&mut self, ids: usize) {
        assert!(ids <= ABSENT as usize, "ids are below u32::MAX");
        if ids > self.position.len() {
            self.position.resize(ids, ABSENT);
            self.nodes.reserve(ids - self.nodes.len());
        }
    }

    /// Inserts `id`, below `u32::MAX`, with `key`, or changes its key.
    pub fn set(&mut self, id: usize, key: K) {
        if id >= self.position.len() {
            // The highest 32-bit number marks an absent id.
            assert!(id < ABSENT as usize, "ids are below u32::MAX");
            self.position.resize(id + 1, ABSENT);
        }
        let at = self.position[id];
        if at == ABSENT {
            self.nodes.push((key, id as u32));
            self.sift_up(self.nodes.len() - 1);
            return;
        }
        let at = at as usize;
        let old = self.nodes[at].0;
        self.nodes[at].0 = key;
        // An equal key keeps its place: `sift_down` leaves it.
        if key < old {
            self.sift_up(at)
        } else {
            self.sift_down(at)
        }
    }

    /// Removes `id`; returns false if it was not in the heap.
    pub fn remove(&mut self, id: usize) -> bool {
        // The position is likely not in the CPU caches, so it is read only if it can matter.
        if self.nodes.is_empty() {
            return false;
        }
        let Some(&at) = self.position.get(id) else {
            return false;
        };
        if at == ABSENT {
            return false;
        }
        self.position[id] = ABSENT;
        let at = at as usize;
        let last = self
            .nodes
            .pop()
            .expect("an id with a position is in the heap");
        if at < self.nodes.len() {
            let old = self.nodes[at];
            // The last node fills the gap. It comes from another subtree, so it may have to move in
            // either direction.
            self.nodes[at] = last;
            self.position[last.1 as usize] = at as u32;
            if last < old {
                self.sift_up(at)
            } else {
                self.sift_down(at)
            }
        }
        true
    }

    /// Removes and returns the smallest key and its id.
    pub fn pop(&mut self) -> Option<(K, usize)> {
        let top = self.peek()?;
        self.remove(top.1);
        Some(top)
    }

    /// Removes all ids.
    pub fn clear(&mut self) {
        for &(_, id) in &self.nodes {
            self.position[id as usize] = ABSENT;
        }
        self.nodes.clear();
    }

    fn sift_up(&mut self, mut at: usize) {
        let node = self.nodes[at];
        while at > 0 {
            // Children of node n: `ARITY * n + 1 ..= ARITY * n + ARITY`.
            let parent = (at - 1) / ARITY;
            if self.nodes[parent] <= node {
                break;
            }
            self.place(at, self.nodes[parent]);
            at = parent;
        }
        self.place(at, node);
    }

    fn sift_down(&mut self, mut at: usize) {
        let node = self.nodes[at];
        loop {
            let first = at * ARITY + 1;
            let last = (first + ARITY).min(self.nodes.len());
            if first >= last {
                break;
            }
            let mut least = first;
            for child in first + 1..last {
                if self.nodes[child] < self.nodes[least] {
                    least = child;
                }
            }
            if node <= self.nodes[least] {
                break;
            }
            self.place(at, self.nodes[least]);
            at = least;
        }
        self.place(at, node);
    }

    fn place(&mut self, at: usize, node: (K, u32)) {
        self.nodes[at] = node;
        self.position[node.1 as usize] = at as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_sorted_set(
            ops in prop::collection::vec((0usize..40, 0u64..50, 0u8..4), 1..300),
        ) {
            let mut heap = IndexedHeap::with_capacity(8);
            let mut oracle: BTreeSet<(u64, usize)> = BTreeSet::new();
            for (id, key, what) in ops {
                match what {
                    0 | 1 => {
                        oracle.retain(|&(_, i)| i != id);
                        oracle.insert((key, id));
                        heap.set(id, key);
                    }
                    2 => {
                        let had = oracle.iter().any(|&(_, i)| i == id);
                        oracle.retain(|&(_, i)| i != id);
                        prop_assert_eq!(heap.remove(id), had);
                    }
                    _ => prop_assert_eq!(heap.pop(), oracle.pop_first()),
                }
                prop_assert_eq!(heap.peek(), oracle.first().copied());
                prop_assert_eq!(heap.len(), oracle.len());
                prop_assert_eq!(heap.contains(id), oracle.iter().any(|&(_, i)| i == id));
            }
        }
    }
}
