//! Index of hosts by free bandwidth and by the highest rate that they accept, with the times at
//! which these figures lose their validity.

use tidegate_core::heap::IndexedHeap;
use tidegate_core::time::Nanos;

/// Figures of a host by which it is found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Figures {
    /// Highest rate of an accepted transfer in bytes per second; 0: none is accepted.
    pub(super) max_rate: u64,
    /// Free bandwidth in bytes per second.
    pub(super) free: u64,
    /// Highest rate of a transfer alone on the host, whether or not it is open.
    pub(super) solo_rate: u64,
}

impl Figures {
    fn max(self, other: Figures) -> Figures {
        Figures {
            max_rate: self.max_rate.max(other.max_rate),
            free: self.free.max(other.free),
            solo_rate: self.solo_rate.max(other.solo_rate),
        }
    }
}

/// Figures of all hosts in a segment tree: the host with most free bandwidth among those that
/// accept a rate is found by a descent that passes over subtrees without one, and a changed host
/// costs a path to the root.
#[derive(Clone, Debug)]
pub(super) struct HostIndex {
    hosts: usize,
    /// Maxima of the figures below each node; node 1 is the root, the leaves are the second half.
    tree: Vec<Figures>,
    /// Ends of validity.
    valid_until: IndexedHeap<Nanos>,
}

/// Best host so far in a descent.
#[derive(Clone, Copy)]
struct Best {
    free: u64,
    host: usize,
}

impl HostIndex {
    pub(super) fn new() -> HostIndex {
        HostIndex {
            hosts: 0,
            tree: vec![Figures::default(); 2],
            valid_until: IndexedHeap::with_capacity(1),
        }
    }

    /// Adds a host, the next one in order, that accepts nothing.
    pub(super) fn push(&mut self) {
        self.hosts += 1;
        self.valid_until.make_room(self.hosts);
        if self.hosts > self.leaves() {
            self.grow();
        }
    }

    fn leaves(&self) -> usize {
        self.tree.len() / 2
    }

    /// Doubles the number of leaves.
    fn grow(&mut self) {
        let old = self.tree.split_off(self.leaves());
        self.tree.clear();
        self.tree.resize(4 * old.len(), Figures::default());
        let leaves = self.leaves();
        self.tree[leaves..leaves + old.len()].copy_from_slice(&old);
        for node in (1..leaves).rev() {
            self.tree[node] = self.tree[2 * node].max(self.tree[2 * node + 1]);
        }
    }

    /// Replaces the figures of a host, which are valid up to and including `valid_until`.
    pub(super) fn set(&mut self, host: usize, figures: Figures, valid_until: Nanos) {
        self.valid_until.set(host, valid_until);
        let mut node = self.leaves() + host;
        self.tree[node] = figures;
        while node > 1 {
            node /= 2;
            self.tree[node] = self.tree[2 * node].max(self.tree[2 * node + 1]);
        }
    }

    /// Highest rate of a transfer alone on a host in bytes per second; 0 without hosts.
    pub(super) fn solo_rate(&self) -> u64 {
        self.tree[1].solo_rate
    }

    /// Takes a host whose figures are no longer valid at `now`. It is not returned again before its
    /// figures are [set](Self::set).
    pub(super) fn pop_stale(&mut self, now: Nanos) -> Option<usize> {
        let (valid_until, host) = self.valid_until.peek()?;
        if valid_until >= now {
            return None;
        }
        self.valid_until.pop();
        Some(host)
    }

    /// Returns the host with most free bandwidth among those whose highest rate is at least `rate`
    /// and that `accepts` does not rule out; among equals the first.
    pub(super) fn best(&self, rate: u64, accepts: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best = None;
        self.descend(1, 0..self.leaves(), rate, &accepts, &mut best);
        best.map(|best: Best| best.host)
    }

    fn descend(
        &self,
        node: usize,
        hosts: core::ops::Range<usize>,
        rate: u64,
        accepts: &impl Fn(usize) -> bool,
        best: &mut Option<Best>,
    ) {
        let figures = self.tree[node];
        let is_better = |best: Best| {
            figures.free > best.free || figures.free == best.free && hosts.start < best.host
        };
        if figures.max_rate < rate || !best.is_none_or(is_better) || hosts.start >= self.hosts {
            return;
        }
        if node >= self.leaves() {
            if accepts(hosts.start) {
                *best = Some(Best {
                    free: figures.free,
                    host: hosts.start,
                });
            }
            return;
        }
        let middle = hosts.start + hosts.len() / 2;
        let (left, right) = (2 * node, 2 * node + 1);
        // The half with most free bandwidth first: the other one is mostly passed over then.
        if self.tree[left].free >= self.tree[right].free {
            self.descend(left, hosts.start..middle, rate, accepts, best);
            self.descend(right, middle..hosts.end, rate, accepts, best);
        } else {
            self.descend(right, middle..hosts.end, rate, accepts, best);
            self.descend(left, hosts.start..middle, rate, accepts, best);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_best_host_is_that_of_a_linear_search(
            hosts in prop::collection::vec((0_u64..6, 0_u64..6, any::<bool>()), 1..40),
            changes in prop::collection::vec((0_usize..40, 0_u64..6, 0_u64..6), 0..40),
            rate in 0_u64..7,
        ) {
            let mut plain: Vec<_> = hosts.iter().map(|&(rate, free, _)| (rate, free)).collect();
            let mut index = HostIndex::new();
            let set = |index: &mut HostIndex, at: usize, (max_rate, free): (u64, u64)| {
                let figures = Figures { max_rate, free, solo_rate: free };
                index.set(at, figures, Nanos(max_rate));
            };
            for (at, host) in plain.iter().enumerate() {
                index.push();
                set(&mut index, at, *host);
            }
            for (at, rate, free) in changes {
                let at = at % plain.len();
                plain[at] = (rate, free);
                set(&mut index, at, plain[at]);
            }
            let mut expected: Option<(u64, usize)> = None;
            for (at, &(max_rate, free)) in plain.iter().enumerate() {
                let accepts = max_rate >= rate && hosts[at].2;
                if accepts && expected.is_none_or(|(most, _)| free > most) {
                    expected = Some((free, at));
                }
            }
            let found = index.best(rate, |at| hosts[at].2);
            prop_assert_eq!(found, expected.map(|(_, at)| at));
            prop_assert_eq!(index.solo_rate(), plain.iter().map(|host| host.1).max().unwrap_or(0));
            let mut stale: Vec<_> = std::iter::from_fn(|| index.pop_stale(Nanos(3))).collect();
            stale.sort_unstable();
            let old: Vec<_> = (0..plain.len()).filter(|at| plain[*at].0 < 3).collect();
            prop_assert_eq!(stale, old);
        }
    }
}
