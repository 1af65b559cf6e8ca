//! Waiting list of placement requests.

use std::collections::BTreeSet;

use tidegate_core::time::Nanos;

use super::RequestId;
use crate::Request;

/// Request that waits for a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    pub(crate) id: RequestId,
    pub(crate) request: Request,
    pub(crate) arrived: Nanos,
}

impl Waiter {
    /// Time at which the request is discarded.
    pub(crate) fn due(&self) -> Nanos {
        self.arrived + self.request.deadline()
    }
}

/// Rate of an empty slot, above that of every request.
const NO_RATE: u64 = u64::MAX;
// Power of two, because slots are the leaves of a complete binary tree.
const MIN_SLOTS: usize = 64;

/// Waiting requests in order of arrival, with a segment tree over the needed rates: the oldest
/// request that needs at most a given rate is found in logarithmic time.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// Slots in order of arrival, empty where a request has left.
    slots: Vec<Option<Waiter>>,
    /// Identifiers of the requests that have or had each slot, ascending, for binary search.
    ids: Vec<RequestId>,
    /// Segment tree: lowest needed rate below each node; the leaves are the second half.
    tree: Vec<u64>,
    by_due: BTreeSet<(Nanos, RequestId)>,
}

impl Waiting {
    pub(crate) fn new() -> Waiting {
        Waiting {
            slots: Vec::new(),
            ids: Vec::new(),
            tree: vec![NO_RATE; 2 * MIN_SLOTS],
            by_due: BTreeSet::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_due.len()
    }

    /// Iterates in order of arrival.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.slots.iter().flatten()
    }

    /// Adds a request, whose identifier must be higher than all before.
    pub(crate) fn push(&mut self, waiter: Waiter) {
        debug_assert!(self.ids.last().is_none_or(|last| *last < waiter.id));
        // All leaves are in use, though some slots may be empty.
        if self.slots.len() == self.tree.len() / 2 {
            self.close_gaps();
        }
        self.by_due.insert((waiter.due(), waiter.id));
        self.append(waiter);
    }

    fn append(&mut self, waiter: Waiter) {
        self.ids.push(waiter.id);
        self.slots.push(Some(waiter));
        self.set_rate(self.slots.len() - 1, waiter.request.rate());
    }

    /// Returns the oldest request in slot `from` or later that needs at most `rate`.
    pub(crate) fn oldest(&self, from: usize, rate: u64) -> Option<(usize, &Waiter)> {
        let leaves = self.tree.len() / 2;
        if rate == NO_RATE || from >= leaves {
            return None;
        }
        // Ascend to the first subtree on the right that has one, then descend to its leftmost leaf.
        let mut at = leaves + from;
        while self.tree[at] > rate {
            while at & 1 == 1 {
                at /= 2;
                if at <= 1 {
                    return None;
                }
            }
            at += 1;
        }
        while at < leaves {
            at *= 2;
            if self.tree[at] > rate {
                at += 1;
            }
        }
        let slot = at - leaves;
        Some((slot, self.slots.get(slot)?.as_ref()?))
    }

    /// Removes a request.
    pub(crate) fn remove(&mut self, id: RequestId) -> Option<Waiter> {
        let slot = self.ids.binary_search(&id).ok()?;
        let waiter = self.slots[slot].take()?;
        self.by_due.remove(&(waiter.due(), id));
        self.set_rate(slot, NO_RATE);
        Some(waiter)
    }

    /// Time at which the next request is discarded.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        Some(self.by_due.first()?.0)
    }

    /// Removes the next request whose deadline is `now` or earlier.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<Waiter> {
        let &(due, id) = self.by_due.first()?;
        if due <= now { self.remove(id) } else { None }
    }

    fn set_rate(&mut self, slot: usize, rate: u64) {
        let mut at = self.tree.len() / 2 + slot;
        self.tree[at] = rate;
        while at > 1 {
            at /= 2;
            self.tree[at] = self.tree[2 * at].min(self.tree[2 * at + 1]);
        }
    }

    /// Compacts the requests into a tree with at least twice as many leaves.
    fn close_gaps(&mut self) {
        let there: Vec<Waiter> = self.iter().copied().collect();
        let slots = (2 * there.len()).next_power_of_two().max(MIN_SLOTS);
        self.slots.clear();
        self.ids.clear();
        self.tree.clear();
        self.tree.resize(2 * slots, NO_RATE);
        for waiter in there {
            self.append(waiter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn waiter(id: u64, rate: u64) -> Waiter {
        Waiter {
            id: RequestId(id),
            request: Request::new(rate * 10, Nanos::from_secs(10)).expect("it is one"),
            arrived: Nanos(id),
        }
    }

    proptest! {
        #[test]
        fn the_oldest_is_that_of_a_search(
            rates in prop::collection::vec(1_u64..40, 1..300),
            leave in prop::collection::vec(0_usize..300, 0..300),
            asked in prop::collection::vec((0_usize..320, 0_u64..42), 1..20),
        ) {
            let mut waiting = Waiting::new();
            let mut plain: Vec<Option<Waiter>> = Vec::new();
            for (i, &rate) in rates.iter().enumerate() {
                waiting.push(waiter(i as u64, rate));
                plain.push(Some(waiter(i as u64, rate)));
                // Some requests leave while others arrive.
                if let Some(&who) = leave.get(i).filter(|who| **who <= i) {
                    let left = plain[who].take();
                    prop_assert_eq!(waiting.remove(RequestId(who as u64)), left);
                }
            }
            prop_assert_eq!(waiting.len(), plain.iter().flatten().count());
            let there: Vec<_> = plain.iter().flatten().copied().collect();
            prop_assert_eq!(&waiting.iter().copied().collect::<Vec<_>>(), &there);
            for &(from, rate) in &asked {
                let expected = (waiting.slots.iter().skip(from).flatten())
                    .find(|waiter| waiter.request.rate() <= rate);
                prop_assert_eq!(waiting.oldest(from, rate).map(|found| found.1), expected);
            }
        }
    }

    #[test]
    fn whose_time_is_over_leaves_at_that_moment() {
        let mut waiting = Waiting::new();
        waiting.push(waiter(1, 5));
        waiting.push(waiter(2, 5));
        let due = Nanos(10_000_000_001);
        assert_eq!(waiting.next_due(), Some(due));
        assert_eq!(waiting.pop_due(Nanos(due.0 - 1)), None);
        assert_eq!(waiting.pop_due(due), Some(waiter(1, 5)));
        assert_eq!(waiting.pop_due(due), None);
        assert_eq!(
            waiting.oldest(0, 5).map(|found| found.1.id),
            Some(RequestId(2))
        );
        assert_eq!(waiting.oldest(0, 4), None);
    }
}
