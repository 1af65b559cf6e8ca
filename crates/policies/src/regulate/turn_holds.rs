//! VMs that delay the end of a turn: those that have credit left and want to use it, or may soon.
//! One word a VM; the end of the turn is known at any time without a loop.

use core::cmp::Reverse;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::time::Nanos;

/// Reason for which a VM delays the end of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// The VM does not delay it.
    No,
    /// The VM has credit left, and a request that waits for the dispatcher.
    Waiting,
    /// The VM has credit left, and a request in flight.
    Flying,
    /// The VM has credit left and no request, but may issue one until this time.
    Quiet(Nanos),
}

/// Hold states of all VMs, by slot.
#[derive(Debug)]
pub(crate) struct TurnHolds {
    holds: Vec<Hold>,
    waiting: u32,
    flying: u32,
    /// Ends of quiet VMs' grace times, the last one first; expired ones may remain.
    graces: IndexedHeap<Reverse<Nanos>>,
}

impl TurnHolds {
    /// Memory of one VM in bytes.
    pub(crate) const BYTES_PER_VM: usize =
        size_of::<Hold>() + IndexedHeap::<Reverse<Nanos>>::BYTES_PER_ID;

    /// Creates an empty turn with room for `vms` VMs.
    pub(crate) fn new(vms: usize) -> TurnHolds {
        TurnHolds {
            holds: Vec::with_capacity(vms),
            waiting: 0,
            flying: 0,
            graces: IndexedHeap::with_capacity(vms),
        }
    }

    /// Sets a VM's hold state. O(log n) where a grace time begins or ends, else O(1).
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

    /// Returns the time at which the turn ends unless a VM's state changes; a past time: it has
    /// ended. `old` is the time after which VMs without a waiting request are not waited for.
    pub(crate) fn end(&self, old: Nanos) -> Nanos {
        match (self.waiting, self.flying) {
            (1.., _) => Nanos::MAX,
            (0, 1..) => old,
            (0, 0) => self
                .graces
                .peek()
                // Nobody holds the turn: zero is a time that has passed.
                .map_or(Nanos::ZERO, |(end, _)| end.0.min(old)),
        }
    }
}
