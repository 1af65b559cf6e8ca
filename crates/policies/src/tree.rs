//! Ordered sets over dense ids, with successors: B+ trees that share preallocated nodes.
//!
//! ```text
//!            [ 10 | 47 ]                 an inner node's keys bound its children from below
//!            /         \
//!   [ 10 12 31 ] --> [ 47 47 90 ]        leaves hold the entries, each linked to the next
//! ```
//!
//! An index by address over many thousands of requests is walked far more often than it fits
//! the caches: a node of 32 entries costs a few misses where a binary tree costs one a level.
//! Insertion splits full nodes and removal fills lean ones on the way down, so neither needs a
//! second pass, and every node but a root stays at least `NODE_ENTRIES_MIN` entries full: that
//! bounds how many nodes a number of entries can take, and all of them are there from the start.
//!
//! [`Treaps`](crate::treap::Treaps) take half the memory (16 bytes for 34 an entry) and do not
//! replace these sets: each step down is a branch and a line that nobody foresees. The successor of
//! the last key found, taken out, and another key put in, by set size:
//!
//! ```text
//!   entries                   32      2,048     16,384    131,072
//!   instructions, here       624        939      1,068
//!                 treap      494      1,016      1,284
//!   nanoseconds,  here       320        470        580      1,550
//!                 treap      500        920      1,210      4,560
//! ```

const NIL: u32 = u32::MAX;

/// Maximum number of entries in a node.
const NODE_ENTRIES_MAX: usize = 32;

/// Minimum number of entries in a node other than a root. Two such nodes merge into one with room
/// left, so that alternating removals and insertions do not merge and split each time.
const NODE_ENTRIES_MIN: usize = NODE_ENTRIES_MAX / 2 - 1;

#[derive(Clone, Copy, Debug)]
struct Entry<K> {
    key: K,
    id: u32,
    /// Child of an inner node; unused in leaves.
    child: u32,
}

#[derive(Clone, Debug)]
struct Node<K> {
    len: u32,
    /// Next leaf; in a free node, the next free one.
    next: u32,
    entries: [Entry<K>; NODE_ENTRIES_MAX],
}

#[derive(Clone, Copy, Debug)]
struct Root {
    node: u32,
    /// Number of levels of inner nodes above the leaves.
    height: u32,
    len: u32,
}

/// Sets of `(key, id)`, each in that order. Never allocates after [`Forest::with_capacity`].
#[derive(Clone, Debug)]
pub struct Forest<K> {
    nodes: Vec<Node<K>>,
    free: u32,
    roots: Vec<Root>,
    /// Set and leaf of the last look-up, in a set of more than one leaf: a walk along the order and
    /// the removal of an entry just found start there.
    last: (usize, u32),
}

impl<K: Ord + Copy + Default> Forest<K> {
    /// Memory of one entry in bytes at most, in a large set.
    pub const BYTES_PER_ENTRY: usize = size_of::<Node<K>>() / NODE_ENTRIES_MIN;

    /// Creates `sets` empty sets with room for `entries` entries in all.
    pub fn with_capacity(sets: usize, entries: usize) -> Self {
        // Worst case: each root may be nearly empty, and every other node has only NODE_ENTRIES_MIN
        // entries.
        let (mut level, mut nodes) = (entries / NODE_ENTRIES_MIN + sets, 0);
        while level > sets {
            nodes += level;
            level = level / NODE_ENTRIES_MIN + sets;
        }
        nodes += 2 * sets;
        let blank = Entry {
            key: K::default(),
            id: NIL,
            child: NIL,
        };
        let node = |next| Node {
            len: 0,
            next,
            entries: [blank; NODE_ENTRIES_MAX],
        };
        // All nodes begin in the list of free ones, each linked to the next.
        let mut nodes: Vec<Node<K>> = (1..=nodes as u32).map(node).collect();
        if let Some(last) = nodes.last_mut() {
            last.next = NIL;
        }
        let root = Root {
            node: NIL,
            height: 0,
            len: 0,
        };
        Forest {
            free: if nodes.is_empty() { NIL } else { 0 },
            nodes,
            roots: vec![root; sets],
            last: (0, NIL),
        }
    }

    /// Returns the number of entries of a set.
    pub fn len(&self, set: usize) -> usize {
        self.roots[set].len as usize
    }

    /// Returns `true` if a set is empty.
    pub fn is_empty(&self, set: usize) -> bool {
        self.roots[set].len == 0
    }

    /// Returns a set's first entry.
    pub fn first(&self, set: usize) -> Option<(K, usize)> {
        let Root {
            mut node, height, ..
        } = self.roots[set];
        if node == NIL {
            return None;
        }
        for _ in 0..height {
            node = self.nodes[node as usize].entries[0].child;
        }
        let first = &self.nodes[node as usize].entries[0];
        Some((first.key, first.id as usize))
    }

    /// Returns a set's first entry whose key is not below `key`.
    pub fn first_from(&mut self, set: usize, key: K) -> Option<(K, usize)> {
        if let Some(leaf) = self.last_leaf(set) {
            let entries = &leaf.entries[..leaf.len as usize];
            if let [first, .., last] = entries
                // Strictly below: an equal first key may have an equal one in the leaf before.
                && first.key < key
                && key <= last.key
            {
                let found = &leaf.entries[leaf.place_of(key, 0)];
                return Some((found.key, found.id as usize));
            }
        }
        let Root {
            mut node, height, ..
        } = self.roots[set];
        if node == NIL {
            return None;
        }
        for _ in 0..height {
            let this = &self.nodes[node as usize];
            node = this.entries[this.child_of(key, 0)].child;
        }
        let leaf = &self.nodes[node as usize];
        let mut at = leaf.place_of(key, 0);
        if at == leaf.len as usize {
            // The bound of the next subtree is not below `key`, so the successor is the next leaf's
            // first.
            (node, at) = (leaf.next, 0);
        }
        if node == NIL {
            return None;
        }
        // With a single leaf the way down is as short as the look-up, so nothing is remembered.
        if height > 0 {
            self.last = (set, node);
        }
        let found = &self.nodes[node as usize].entries[at];
        Some((found.key, found.id as usize))
    }

    /// Returns a set's last entry whose key is below `key`.
    pub fn last_before(&self, set: usize, key: K) -> Option<(K, usize)> {
        let Root {
            mut node, height, ..
        } = self.roots[set];
        if node == NIL {
            return None;
        }
        // Nearest subtree to the left of the path, and its number of levels of inner nodes.
        let (mut before, mut levels) = (NIL, 0);
        for level in (0..height).rev() {
            let this = &self.nodes[node as usize];
            let at = this.child_of(key, 0);
            if at > 0 {
                (before, levels) = (this.entries[at - 1].child, level);
            }
            node = this.entries[at].child;
        }
        let leaf = &self.nodes[node as usize];
        let found = match leaf.place_of(key, 0) {
            0 if before == NIL => return None,
            0 => self.last_under(before, levels),
            at => &leaf.entries[at - 1],
        };
        Some((found.key, found.id as usize))
    }

    fn last_under(&self, mut node: u32, levels: u32) -> &Entry<K> {
        let last = |node: u32| {
            let this = &self.nodes[node as usize];
            &this.entries[this.len as usize - 1]
        };
        for _ in 0..levels {
            node = last(node).child;
        }
        last(node)
    }

    /// Returns the leaf of the last look-up, if it belongs to this set.
    fn last_leaf(&self, set: usize) -> Option<&Node<K>> {
        let (of, node) = self.last;
        (of == set && node != NIL).then(|| &self.nodes[node as usize])
    }

    /// Inserts an entry that is not in the set yet. Panics beyond the capacity.
    pub fn insert(&mut self, set: usize, key: K, id: usize) {
        let id = id as u32;
        let mut root = self.roots[set];
        if root.node == NIL {
            root.node = self.allocate_node();
        } else if self.nodes[root.node as usize].len as usize == NODE_ENTRIES_MAX {
            let above = self.allocate_node();
            self.nodes[above as usize].len = 1;
            self.nodes[above as usize].entries[0].child = root.node;
            root.node = above;
            root.height += 1;
            self.split(above, 0, root.height == 1);
        }
        root.len += 1;
        self.roots[set] = root;
        let mut node = root.node;
        // Full children are split on the way down, so that an insertion never has to go up again.
        for level in (0..root.height).rev() {
            let mut at = self.nodes[node as usize].child_of(key, id);
            let child = self.nodes[node as usize].entries[at].child;
            if self.nodes[child as usize].len as usize == NODE_ENTRIES_MAX {
                self.split(node, at, level == 0);
                let right = &self.nodes[node as usize].entries[at + 1];
                at += usize::from((right.key, right.id) <= (key, id));
            }
            node = self.nodes[node as usize].entries[at].child;
        }
        let leaf = &mut self.nodes[node as usize];
        let at = leaf.place_of(key, id);
        let child = NIL;
        leaf.insert(at, Entry { key, id, child });
    }

    /// Removes an entry; returns `false` if it was not in the set.
    pub fn remove(&mut self, set: usize, key: K, id: usize) -> bool {
        let id = id as u32;
        if self.last.0 == set && self.last.1 != NIL {
            let leaf = &mut self.nodes[self.last.1 as usize];
            // The short cut is not valid if the leaf would become lean: that needs the path from
            // the root.
            if leaf.len as usize > NODE_ENTRIES_MIN && leaf.remove_entry(key, id) {
                self.roots[set].len -= 1;
                return true;
            }
        }
        let Root {
            node: root, height, ..
        } = self.roots[set];
        if root == NIL {
            return false;
        }
        let mut node = root;
        // Lean children are filled on the way down, so that a removal never has to go up again.
        for level in (0..height).rev() {
            let mut at = self.nodes[node as usize].child_of(key, id);
            let child = self.nodes[node as usize].entries[at].child;
            if self.nodes[child as usize].len as usize <= NODE_ENTRIES_MIN {
                at = self.fill(node, at, level == 0);
            }
            node = self.nodes[node as usize].entries[at].child;
        }
        let found = self.nodes[node as usize].remove_entry(key, id);
        self.roots[set].len -= found as u32;
        self.lower_root(set);
        found
    }

    /// Replaces an inner root with one child by the child, and frees an empty root.
    fn lower_root(&mut self, set: usize) {
        let mut root = self.roots[set];
        let this = &self.nodes[root.node as usize];
        if root.height > 0 && this.len == 1 {
            let child = this.entries[0].child;
            self.free_node(root.node);
            root.node = child;
            root.height -= 1;
        } else if root.height == 0 && this.len == 0 {
            self.free_node(root.node);
            root.node = NIL;
        }
        self.roots[set] = root;
    }

    /// Splits the full child at index `at` of `parent` into two.
    fn split(&mut self, parent: u32, at: usize, leaf: bool) {
        let right = self.allocate_node();
        let left = self.nodes[parent as usize].entries[at].child;
        let [left_node, right_node] = self.node_pair_mut(left, right);
        let keep = NODE_ENTRIES_MAX / 2;
        right_node.entries[..NODE_ENTRIES_MAX - keep].copy_from_slice(&left_node.entries[keep..]);
        right_node.len = (NODE_ENTRIES_MAX - keep) as u32;
        left_node.len = keep as u32;
        if leaf {
            right_node.next = left_node.next;
            left_node.next = right;
        }
        let bound = Entry {
            child: right,
            ..right_node.entries[0]
        };
        self.nodes[parent as usize].insert(at + 1, bound);
    }

    /// Fills the lean child at index `at` of `parent` to more than [`NODE_ENTRIES_MIN`] entries,
    /// from a neighbour or by merging with it. Returns the child's index afterwards.
    fn fill(&mut self, parent: u32, at: usize, leaf: bool) -> usize {
        let has_right = at + 1 < self.nodes[parent as usize].len as usize;
        // Work on the child and its right neighbour, or its left one if it is the last.
        // An inner node has two children at least, so one of the neighbours exists.
        let pair = if has_right { at } else { at - 1 };
        let above = &self.nodes[parent as usize].entries;
        let (left, mut bound) = (above[pair].child, above[pair + 1]);
        let right = bound.child;
        let [left_node, right_node] = self.node_pair_mut(left, right);
        if !leaf {
            // The first key of an inner node is no bound and may be stale; the parent's key is
            // valid.
            right_node.entries[0].key = bound.key;
            right_node.entries[0].id = bound.id;
        }
        let (left_len, right_len) = (left_node.len as usize, right_node.len as usize);
        if left_len + right_len <= 2 * NODE_ENTRIES_MIN {
            left_node.entries[left_len..left_len + right_len]
                .copy_from_slice(&right_node.entries[..right_len]);
            left_node.len += right_node.len;
            if leaf {
                left_node.next = right_node.next;
            }
            self.nodes[parent as usize].remove(pair + 1);
            self.free_node(right);
            return pair;
        }
        if has_right {
            let moved = right_node.entries[0];
            right_node.remove(0);
            left_node.insert(left_len, moved);
        } else {
            let moved = left_node.entries[left_len - 1];
            left_node.len -= 1;
            right_node.insert(0, moved);
        }
        // Whichever way an entry moved, the right node begins at another one now.
        (bound.key, bound.id) = (right_node.entries[0].key, right_node.entries[0].id);
        self.nodes[parent as usize].entries[pair + 1] = bound;
        at
    }

    fn node_pair_mut(&mut self, a: u32, b: u32) -> [&mut Node<K>; 2] {
        self.nodes
            .get_disjoint_mut([a as usize, b as usize])
            .expect("two nodes of one tree")
    }

    fn allocate_node(&mut self) -> u32 {
        let node = self.free;
        assert!(node != NIL, "more entries than the capacity");
        self.free = self.nodes[node as usize].next;
        self.nodes[node as usize].len = 0;
        self.nodes[node as usize].next = NIL;
        node
    }

    fn free_node(&mut self, node: u32) {
        if self.last.1 == node {
            // A node that is used again may belong to another set.
            self.last.1 = NIL;
        }
        self.nodes[node as usize].next = self.free;
        self.free = node;
    }
}

impl<K: Ord + Copy> Node<K> {
    /// Returns the index of an entry in a leaf, or the index at which it belongs. Keys alone are
    /// bisected, since equal ones are rare and comparing pairs takes twice as long.
    fn place_of(&self, key: K, id: u32) -> usize {
        let entries = &self.entries[..self.len as usize];
        let first = entries.partition_point(|e| e.key < key);
        // Equal keys are ordered by id.
        let before = |e: &&Entry<K>| e.key == key && e.id < id;
        first + entries[first..].iter().take_while(before).count()
    }

    /// Returns the index of the child under which an entry is, or belongs.
    fn child_of(&self, key: K, id: u32) -> usize {
        let bounds = &self.entries[1..self.len as usize];
        let first = bounds.partition_point(|e| e.key < key);
        let before = |e: &&Entry<K>| e.key == key && e.id <= id;
        first + bounds[first..].iter().take_while(before).count()
    }

    fn insert(&mut self, at: usize, entry: Entry<K>) {
        self.entries.copy_within(at..self.len as usize, at + 1);
        self.entries[at] = entry;
        self.len += 1;
    }

    /// Removes an entry from a leaf; returns `false` if it is not in it.
    fn remove_entry(&mut self, key: K, id: u32) -> bool {
        let at = self.place_of(key, id);
        // Clamped, since an entry behind all others belongs at index `len`; the length is checked
        // next.
        let entry = &self.entries[at.min(NODE_ENTRIES_MAX - 1)];
        let found = at < self.len as usize && entry.key == key && entry.id == id;
        if found {
            self.remove(at);
        }
        found
    }

    fn remove(&mut self, at: usize) {
        self.entries.copy_within(at + 1..self.len as usize, at);
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Checks all invariants: fill, order, bounds, links. Returns the entries.
    fn check(forest: &Forest<u64>, set: usize) -> Vec<(u64, usize)> {
        fn walk(
            forest: &Forest<u64>,
            node: u32,
            height: u32,
            root: bool,
            leaves: &mut Vec<u32>,
        ) -> Vec<(u64, u32)> {
            let this = &forest.nodes[node as usize];
            let len = this.len as usize;
            assert!(
                len <= NODE_ENTRIES_MAX && (len >= NODE_ENTRIES_MIN || root),
                "{len} entries"
            );
            assert!(height == 0 || len >= 2, "an inner node with one child");
            if height == 0 {
                leaves.push(node);
                return this.entries[..len].iter().map(|e| (e.key, e.id)).collect();
            }
            let mut all: Vec<(u64, u32)> = Vec::new();
            for (at, entry) in this.entries[..len].iter().enumerate() {
                let below = walk(forest, entry.child, height - 1, false, leaves);
                if at > 0 {
                    let bound = (entry.key, entry.id);
                    assert!(all.iter().all(|&e| e < bound) && below.iter().all(|&e| e >= bound));
                }
                all.extend(below);
            }
            all
        }
        let root = forest.roots[set];
        if root.node == NIL {
            assert_eq!(root.len, 0);
            return Vec::new();
        }
        let mut leaves = Vec::new();
        let all = walk(forest, root.node, root.height, true, &mut leaves);
        let next = leaves[1..].iter().copied().chain([NIL]);
        assert!(
            leaves
                .iter()
                .map(|&l| forest.nodes[l as usize].next)
                .eq(next)
        );
        assert_eq!(all.len(), root.len as usize);
        all.into_iter()
            .map(|(key, id)| (key, id as usize))
            .collect()
    }

    fn free_nodes(forest: &Forest<u64>) -> usize {
        let next = |&at: &u32| Some(forest.nodes[at as usize].next).filter(|&n| n != NIL);
        core::iter::successors(Some(forest.free).filter(|&n| n != NIL), next).count()
    }

    /// Generates runs of insertions (or removals) at neighbouring keys, so that nodes fill and
    /// empty.
    fn run() -> impl Strategy<Value = (bool, usize, u64, u64, usize)> {
        (any::<bool>(), 0usize..2, 0u64..600, 0u64..4, 1usize..120)
    }

    proptest! {
        #[test]
        fn behaves_like_sorted_sets(runs in prop::collection::vec(run(), 1..60)) {
            let mut forest = Forest::with_capacity(2, 4000);
            let nodes = forest.nodes.len();
            let mut oracle = [BTreeSet::new(), BTreeSet::new()];
            for (add, set, start, step, length) in runs {
                for n in 0..length {
                    let (key, id) = (start + n as u64 * step, n % 50);
                    let entry = (key, id);
                    let known = oracle[set].contains(&entry);
                    if add && !known && oracle[0].len() + oracle[1].len() < 4000 {
                        oracle[set].insert(entry);
                        forest.insert(set, key, id);
                    } else if !add {
                        prop_assert_eq!(forest.remove(set, key, id), oracle[set].remove(&entry));
                    }
                    let from = oracle[set].range((key, 0)..).next().copied();
                    prop_assert_eq!(forest.first_from(set, key), from);
                    let before = oracle[set].range(..(key, 0)).next_back().copied();
                    prop_assert_eq!(forest.last_before(set, key), before);
                    prop_assert_eq!(forest.first(set), oracle[set].first().copied());
                }
                for (set, oracle) in oracle.iter().enumerate() {
                    prop_assert!(check(&forest, set).iter().eq(oracle.iter()));
                    prop_assert_eq!(forest.len(set), oracle.len());
                    prop_assert_eq!(forest.is_empty(set), oracle.is_empty());
                }
            }
            for (set, entries) in oracle.iter().enumerate() {
                for &(key, id) in entries {
                    prop_assert!(forest.remove(set, key, id));
                }
            }
            prop_assert_eq!(free_nodes(&forest), nodes, "every node comes back");
        }
    }

    #[test]
    fn the_capacity_suffices_in_any_order() {
        for (entries, stride) in [
            (1usize, 1usize),
            (14, 1),
            (33, 5),
            (1000, 1),
            (1000, 7),
            (5000, 1237),
        ] {
            let mut forest = Forest::with_capacity(2, entries);
            for set in [0, 1] {
                let order = (0..entries).map(|n| n * stride % entries);
                for n in order.clone() {
                    forest.insert(set, n as u64, n);
                }
                // Thin out to every node's least, then fill one end again: many lean nodes.
                for n in order.clone().filter(|n| n % 2 == 0) {
                    assert!(forest.remove(set, n as u64, n));
                }
                for n in 0..entries.div_ceil(2) {
                    forest.insert(set, 0, n + entries);
                }
                check(&forest, set);
                for n in 0..entries.div_ceil(2) {
                    assert!(forest.remove(set, 0, n + entries));
                }
                for n in order.filter(|n| n % 2 == 1) {
                    assert!(forest.remove(set, n as u64, n));
                }
                assert!(forest.is_empty(set));
            }
        }
    }
}
