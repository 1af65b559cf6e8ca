//! Many small ordered sets over dense ids, each with both neighbours of any place: treaps whose
//! nodes are the ids' own.
//!
//! ```text
//!           (30)            by key from left to right,
//!          /    \           by a hash of the id from top to bottom
//!       (12)    (47)
//!          \
//!          (20)
//! ```
//!
//! A set a VM's queue, of which most hold a handful: a B+ tree ([`Forest`](crate::tree::Forest))
//! would take a node of 32 entries for each, or be one large tree of all, which every step walks
//! from its root. Here an empty set is one word, and an id 16 bytes. The hash makes the way down
//! as long as in a tree of random order: it does not depend on the keys.

const NIL: u32 = u32::MAX;

/// Left child of an id that is in no set.
const IN_NO_SET: u32 = NIL - 1;

#[derive(Clone, Copy, Debug)]
struct Node {
    key: u64,
    /// Subtrees before and behind the node.
    children: [u32; 2],
}

/// Link from which a node hangs.
#[derive(Clone, Copy)]
enum Hook {
    Root(usize),
    Child(u32, usize),
}

/// Sets of `(key, id)`, each in that order; an id is in at most one of them. Never allocates after
/// [`Treaps::with_capacity`].
#[derive(Clone, Debug)]
pub struct Treaps {
    nodes: Vec<Node>,
    roots: Vec<u32>,
}

impl Treaps {
    /// Memory of one id in bytes.
    pub const BYTES_PER_ID: usize = size_of::<Node>();
    /// Memory of one set in bytes.
    pub const BYTES_PER_SET: usize = size_of::<u32>();

    /// Creates `sets` empty sets of the ids `0..ids`.
    pub fn with_capacity(sets: usize, ids: usize) -> Treaps {
        let node = Node {
            key: 0,
            children: [IN_NO_SET, NIL],
        };
        Treaps {
            nodes: vec![node; ids],
            roots: vec![NIL; sets],
        }
    }

    /// Returns the key of an id, or `None` if it is in no set.
    pub fn key_of(&self, id: usize) -> Option<u64> {
        let node = &self.nodes[id];
        (node.children[0] != IN_NO_SET).then_some(node.key)
    }

    /// Inserts an id, which must be in no set.
    pub fn insert(&mut self, set: usize, key: u64, id: usize) {
        debug_assert!(self.key_of(id).is_none(), "an id is in one set at most");
        let (new, height) = (id as u32, height(id as u32));
        let mut hook = Hook::Root(set);
        let mut at = self.roots[set];
        // Higher nodes stay above the new one; the first lower one is where it goes.
        while at != NIL && self::height(at) > height {
            let side = self.side(key, new, at);
            hook = Hook::Child(at, side);
            at = self.nodes[at as usize].children[side];
        }
        self.nodes[id] = Node {
            key,
            children: [NIL; 2],
        };
        self.attach(hook, new);
        // The subtree at the place is split into the keys before the new node and those behind it.
        let mut ends = [Hook::Child(new, 0), Hook::Child(new, 1)];
        while at != NIL {
            let side = self.side(key, new, at);
            // The new node belongs on side `side` of `at`, so `at` goes to the other side of the
            // new node.
            self.attach(ends[1 - side], at);
            ends[1 - side] = Hook::Child(at, side);
            at = self.nodes[at as usize].children[side];
        }
        // Both seams may still point at a subtree that was cut from them.
        self.attach(ends[0], NIL);
        self.attach(ends[1], NIL);
    }

    /// Removes an id from a set; returns `false` if it was not in it.
    pub fn remove(&mut self, set: usize, id: usize) -> bool {
        let Some(key) = self.key_of(id) else {
            return false;
        };
        let gone = id as u32;
        let (mut hook, mut at) = (Hook::Root(set), self.roots[set]);
        while at != gone {
            if at == NIL {
                return false;
            }
            let side = self.side(key, gone, at);
            hook = Hook::Child(at, side);
            at = self.nodes[at as usize].children[side];
        }
        let [mut before, mut behind] = self.nodes[id].children;
        while before != NIL && behind != NIL {
            // The two subtrees are zipped together by height, which keeps the heap order.
            let (up, side) = if height(before) > height(behind) {
                (&mut before, 1)
            } else {
                (&mut behind, 0)
            };
            let (node, below) = (*up, self.nodes[*up as usize].children[side]);
            *up = below;
            self.attach(hook, node);
            hook = Hook::Child(node, side);
        }
        self.attach(hook, if before == NIL { behind } else { before });
        // Marks the id as in no set, which `key_of` reads.
        self.nodes[id].children[0] = IN_NO_SET;
        true
    }

    /// Returns a set's last entry whose key is below `key`, and its first whose key is not.
    pub fn around(&self, set: usize, key: u64) -> [Option<(u64, usize)>; 2] {
        let (mut found, mut at) = ([None; 2], self.roots[set]);
        while at != NIL {
            let node = &self.nodes[at as usize];
            // The last node met on either side is the nearest of that side.
            let ahead = usize::from(node.key >= key);
            found[ahead] = Some((node.key, at as usize));
            at = node.children[1 - ahead];
        }
        found
    }

    /// Returns a set's first entry.
    pub fn first(&self, set: usize) -> Option<(u64, usize)> {
        self.around(set, 0)[1]
    }

    /// Returns the side of node `at`, 0 or 1, on which an entry belongs.
    fn side(&self, key: u64, id: u32, at: u32) -> usize {
        usize::from((self.nodes[at as usize].key, at) < (key, id))
    }

    fn attach(&mut self, hook: Hook, node: u32) {
        match hook {
            Hook::Root(set) => self.roots[set] = node,
            Hook::Child(of, side) => self.nodes[of as usize].children[side] = node,
        }
    }
}

/// Returns the pseudo-random heap priority of an id; no two ids have the same.
fn height(id: u32) -> u32 {
    // Multiplication by an odd number and a shifted exclusive or are bijections, so no two heights
    // are equal. The factors are the first two primes of xxHash32.
    let mixed = id.wrapping_mul(0x9E37_79B1);
    (mixed ^ mixed >> 15).wrapping_mul(0x85EB_CA77)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Checks all invariants of the subtree; returns its entries.
    fn check(treaps: &Treaps, at: u32, above: u64) -> Vec<(u64, usize)> {
        // The id has a key, so it is in another set.
        if at == NIL {
            return Vec::new();
        }
        let node = treaps.nodes[at as usize];
        assert!(u64::from(height(at)) < above, "a parent stands higher");
        let [before, behind] = node.children.map(|c| check(treaps, c, height(at).into()));
        let own = [(node.key, at as usize)];
        before.into_iter().chain(own).chain(behind).collect()
    }

    proptest! {
        #[test]
        fn behaves_like_sorted_sets(
            ops in prop::collection::vec((0usize..60, 0usize..2, 0u64..40, 0u8..5), 1..400),
        ) {
            let mut treaps = Treaps::with_capacity(2, 60);
            let mut oracle = [BTreeSet::new(), BTreeSet::new()];
            for (id, set, key, what) in ops {
                let known = treaps.key_of(id);
                let place = oracle.iter().position(|o| o.iter().any(|e: &(u64, usize)| e.1 == id));
                prop_assert_eq!(known.is_some(), place.is_some());
                match (known, place) {
                    (Some(known), Some(place)) if what < 3 => {
                        prop_assert!(!treaps.remove(1 - place, id));
                        prop_assert!(treaps.remove(place, id));
                        prop_assert!(oracle[place].remove(&(known, id)));
                    }
                    (None, None) => {
                        prop_assert!(!treaps.remove(set, id));
                        treaps.insert(set, key, id);
                        oracle[set].insert((key, id));
                    }
                    _ => {}
                }
                for (set, oracle) in oracle.iter().enumerate() {
                    let below = oracle.range(..(key, 0)).next_back().copied();
                    let from = oracle.range((key, 0)..).next().copied();
                    prop_assert_eq!(treaps.around(set, key), [below, from]);
                    prop_assert_eq!(treaps.first(set), oracle.first().copied());
                    let all = check(&treaps, treaps.roots[set], u64::MAX);
                    prop_assert!(all.iter().eq(oracle.iter()));
                }
            }
        }
    }

    #[test]
    fn the_way_down_is_short_whatever_the_order() {
        fn depth(treaps: &Treaps, at: u32) -> u32 {
            match at {
                NIL => 0,
                at => {
                    let below = treaps.nodes[at as usize].children;
                    1 + below
                        .map(|c| depth(treaps, c))
                        .into_iter()
                        .max()
                        .unwrap_or(0)
                }
            }
        }
        for stride in [1, 7, 1237, 4095] {
            let mut treaps = Treaps::with_capacity(1, 4096);
            for n in 0..4096 {
                treaps.insert(0, (n as u64 * stride) % 4096, n);
            }
            let deep = depth(&treaps, treaps.roots[0]);
            assert!(deep <= 40, "{deep} levels of 4096 for {stride}");
        }
    }
}
