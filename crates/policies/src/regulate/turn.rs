//! Who holds the end of a turn up: VMs that have credit left and still want something, or may
//! soon. For each VM one word; the end of the turn is known at any time without a loop.

use core::cmp::Reverse;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::time::Nanos;

/// Whether a VM holds the end of a turn up, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// It does not.
    No,
    /// It has credit left, and a request that waits for the dispatcher.
    Waiting,
    /// It has credit left, and something in flight.
    Flying,
    /// It has credit left and nothing to do, but may ask again until then.
    Quiet(Nanos),
}

/// The holds of all VMs, by slot.
#[derive(Debug)]
pub(crate) struct Turn {
    holds: Vec<Hold>,
    waiting: u32,
    flying: u32,
    /// Ends of the graces of quiet VMs, the last first; those that have passed may be in it.
    graces: IndexedHeap<Reverse<Nanos>>,
}

impl Turn {
    /// Memory a VM takes in it.
    pub(crate) const BYTES_PER_VM: usize =
        size_of::<Hold>() + IndexedHeap::<Reverse<Nanos>>::BYTES_PER_ID;

    /// With room for so many VMs.
    pub(crate) fn new(vms: usize) -> Turn {
        Turn {
            holds: Vec::with_capacity(vms),
            waiting: 0,
            flying: 0,
            graces: IndexedHeap::with_capacity(vms),
        }
    }

    /// What a VM does now. O(log n) where a grace begins or ends, else O(1).
    pub(crate) fn set(&mut self, slot: usize, hold: Hold) {
        if self.holds.len() <= slot {
            self.holds.resize(slot + 1, Hold::No);
        }
        let old = core::mem::replace(&mut self.holds[slot], hold);
        if old == hold {
            return;
        }
        match hold {
            Hold::No => {}
            Hold::Waiting => self.waiting += 1,
            Hold::Flying => self.flying += 1,
            Hold::Quiet(end) => self.graces.set(slot, Reverse(end)),
        }
        match (old, hold) {
            (Hold::Waiting, _) => self.waiting -= 1,
            (Hold::Flying, _) => self.flying -= 1,
            (Hold::Quiet(_), Hold::Waiting | Hold::Flying | Hold::No) => {
                self.graces.remove(slot);
            }
            (Hold::No, _) | (Hold::Quiet(_), Hold::Quiet(_)) => {}
        }
    }

    /// When it ends, if nothing else happens; `old`: when nobody is waited for any more who has
    /// nothing waiting. A time that lies back: it has ended.
    pub(crate) fn end(&self, old: Nanos) -> Nanos {
        match (self.waiting, self.flying) {
            (1.., _) => Nanos::MAX,
            (0, 1..) => old,
            (0, 0) => self
                .graces
                .peek()
                .map_or(Nanos::ZERO, |(end, _)| end.0.min(old)),
        }
    }
}
