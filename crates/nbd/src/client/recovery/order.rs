//! Order of changes that overlap: each waits for all earlier ones that share bytes with it.

use std::collections::VecDeque;
use std::ops::Range;

/// Change that waits.
#[derive(Debug)]
struct Waiting {
    id: u32,
    range: Range<u64>,
    /// Number of earlier changes, active or waiting, that overlap it.
    blockers: usize,
}

/// Changes that have not ended.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Changes that were sent or are ready, first admitted first. They do not overlap.
    active: Vec<(Range<u64>, u32)>,
    /// Changes that wait for others or for room in the log, in order of submission.
    waiting: VecDeque<Waiting>,
}

impl Order {
    /// Adds a change to those that wait; returns its index if it waits for no other one.
    pub(super) fn submit(&mut self, id: u32, range: Range<u64>) -> Option<usize> {
        let active = self.active.iter().map(|(other, _)| other);
        let earlier = active.chain(self.waiting.iter().map(|other| &other.range));
        let blockers = earlier.filter(|other| overlap(other, &range)).count();
        self.waiting.push_back(Waiting {
            id,
            range,
            blockers,
        });
        (blockers == 0).then_some(self.waiting.len() - 1)
    }

    /// Returns index and name of the first change, from an index among those that wait on, that
    /// waits for no other one.
    pub(super) fn next_unblocked(&self, from: usize) -> Option<(usize, u32)> {
        let rest = (from..).zip(self.waiting.iter().skip(from));
        let mut unblocked = rest.filter(|(_, change)| change.blockers == 0);
        unblocked.next().map(|(at, change)| (at, change.id))
    }

    /// Makes a change that waits for no other one active.
    pub(super) fn activate(&mut self, at: usize) {
        let change = self
            .waiting
            .remove(at)
            .expect("an index of those that wait");
        assert_eq!(change.blockers, 0, "it waits for others");
        self.active.push((change.range, change.id));
    }

    /// Removes an active change, and returns true if one that waits now waits for no other one.
    ///
    /// Changes that overlap the active one came after it, and so have counted it.
    pub(super) fn finish(&mut self, id: u32) -> bool {
        let at = self.active.iter().position(|(_, other)| *other == id);
        let (range, _) = self.active.remove(at.expect("an active change"));
        let mut unblocks = false;
        for later in &mut self.waiting {
            if overlap(&later.range, &range) {
                later.blockers -= 1;
                unblocks |= later.blockers == 0;
            }
        }
        unblocks
    }

    /// Active changes, first admitted first.
    pub(super) fn active(&self) -> impl ExactSizeIterator<Item = u32> {
        self.active.iter().map(|(_, id)| *id)
    }

    /// Removes all changes that wait, and returns them.
    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = u32> + use<> {
        std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|change| change.id)
    }

    /// Removes all changes.
    pub(super) fn clear(&mut self) {
        self.active.clear();
        self.waiting.clear();
    }
}

/// Returns true if two ranges share bytes.
fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_change_waits_for_all_earlier_ones_that_it_overlaps_and_for_no_others(
            changes in prop::collection::vec((0u64..20, 1u64..6), 1..40),
            ends in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 80),
        ) {
            let mut order = Order::default();
            // All that have not ended, with their ranges, in order of submission.
            let mut present: Vec<(u32, Range<u64>)> = Vec::new();
            let mut changes = (0u32..).zip(changes);
            for (submits, which) in ends {
                let mut unblocks = false;
                if submits {
                    let Some((id, (start, len))) = changes.next() else { continue };
                    let at = order.submit(id, start..start + len);
                    unblocks = at.is_some();
                    prop_assert!(at.is_none_or(|at| at + 1 == order.waiting.len()));
                    present.push((id, start..start + len));
                } else if order.active().len() > 0 {
                    let id = order.active[which.index(order.active.len())].1;
                    unblocks = order.finish(id);
                    present.retain(|(other, _)| *other != id);
                }
                let blocks = |at: usize, other: usize| overlap(&present[other].1, &present[at].1);
                let free = |at: &usize| !(0..*at).any(|other| blocks(*at, other));
                let expected = (0..present.len()).filter(free);
                let mut expected: Vec<u32> = expected.map(|at| present[at].0).collect();
                let before: Vec<u32> = order.active().collect();
                while let Some((at, _)) = order.next_unblocked(0) {
                    order.activate(at);
                }
                let mut active: Vec<u32> = order.active().collect();
                prop_assert_eq!(unblocks, active.len() > before.len());
                prop_assert!(active[before.len()..].is_sorted(), "in order of submission");
                active.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(active, expected);
            }
        }
    }
}
