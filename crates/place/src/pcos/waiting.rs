//! Those that wait for a host.

use std::collections::BTreeSet;

use tidegate_core::time::Nanos;

use super::RequestId;
use crate::Request;

/// Somebody who waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    pub(crate) id: RequestId,
    pub(crate) request: Request,
    pub(crate) arrived: Nanos,
}

impl Waiter {
    /// When it is discarded.
    pub(crate) fn due(&self) -> Nanos {
        self.arrived + self.request.deadline()
    }
}

/// No rate that anybody who waits needs.
const NOBODY: u64 = u64::MAX;
const FEWEST_PLACES: usize = 64;

/// All that wait, in the order they came. The oldest of those that need no more than some rate is
/// found without a look at the others: places have the rates needed there, and pairs of them, and
/// pairs of pairs, the least.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// In the order they came, with gaps where somebody has left.
    places: Vec<Option<Waiter>>,
    /// The numbers of those that have or had the places: to find somebody again.
    ids: Vec<RequestId>,
    /// The least rate below each node; the places' own are its second half.
    least: Vec<u64>,
    by_due: BTreeSet<(Nanos, RequestId)>,
}

impl Waiting {
    pub(crate) fn new() -> Waiting {
        Waiting {
            places: Vec::new(),
            ids: Vec::new(),
            least: vec![NOBODY; 2 * FEWEST_PLACES],
            by_due: BTreeSet::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_due.len()
    }

    /// In the order they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiter> {
        self.places.iter().flatten()
    }

    /// Somebody waits from now on, with a higher number than all before.
    pub(crate) fn push(&mut self, waiter: Waiter) {
        debug_assert!(self.ids.last().is_none_or(|last| *last < waiter.id));
        if self.places.len() == self.least.len() / 2 {
            self.close_gaps();
        }
        self.by_due.insert((waiter.due(), waiter.id));
        self.put(waiter);
    }

    fn put(&mut self, waiter: Waiter) {
        self.ids.push(waiter.id);
        self.places.push(Some(waiter));
        self.set(self.places.len() - 1, waiter.request.rate());
    }

    /// The oldest, from a place on, that needs no more than this rate.
    pub(crate) fn oldest(&self, from: usize, rate: u64) -> Option<(usize, &Waiter)> {
        let leaves = self.least.len() / 2;
        if rate == NOBODY || from >= leaves {
            return None;
        }
        // Up to the first subtree to the right that has one, then down to its leftmost.
        let mut at = leaves + from;
        while self.least[at] > rate {
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
            if self.least[at] > rate {
                at += 1;
            }
        }
        let place = at - leaves;
        Some((place, self.places.get(place)?.as_ref()?))
    }

    /// Somebody leaves.
    pub(crate) fn remove(&mut self, id: RequestId) -> Option<Waiter> {
        let place = self.ids.binary_search(&id).ok()?;
        let waiter = self.places[place].take()?;
        self.by_due.remove(&(waiter.due(), id));
        self.set(place, NOBODY);
        Some(waiter)
    }

    /// When the next one is to be discarded.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        Some(self.by_due.first()?.0)
    }

    /// The next one whose time is over.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<Waiter> {
        let &(due, id) = self.by_due.first()?;
        if due <= now { self.remove(id) } else { None }
    }

    fn set(&mut self, place: usize, rate: u64) {
        let mut at = self.least.len() / 2 + place;
        self.least[at] = rate;
        while at > 1 {
            at /= 2;
            self.least[at] = self.least[2 * at].min(self.least[2 * at + 1]);
        }
    }

    /// Makes room: those that wait move together, over twice as many places as they need.
    fn close_gaps(&mut self) {
        let there: Vec<Waiter> = self.iter().copied().collect();
        let places = (2 * there.len()).next_power_of_two().max(FEWEST_PLACES);
        self.places.clear();
        self.ids.clear();
        self.least.clear();
        self.least.resize(2 * places, NOBODY);
        for waiter in there {
            self.put(waiter);
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
                // Some leave while others come.
                if let Some(&who) = leave.get(i).filter(|who| **who <= i) {
                    let left = plain[who].take();
                    prop_assert_eq!(waiting.remove(RequestId(who as u64)), left);
                }
            }
            prop_assert_eq!(waiting.len(), plain.iter().flatten().count());
            let there: Vec<_> = plain.iter().flatten().copied().collect();
            prop_assert_eq!(&waiting.iter().copied().collect::<Vec<_>>(), &there);
            for &(from, rate) in &asked {
                let expected = (waiting.places.iter().skip(from).flatten())
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
