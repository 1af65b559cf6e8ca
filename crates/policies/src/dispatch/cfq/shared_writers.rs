//! VMs that have an asynchronous write in the shared queue that may start.

/// Value of a VM's place outside the list.
const ABSENT: u32 = u32::MAX;

/// Set of VM slots, with O(1) updates and iteration over its members only.
#[derive(Debug)]
pub(super) struct SharedWriters {
    /// Slots of the members, in no order.
    slots: Vec<u32>,
    /// Index in `slots` of each VM slot, or [`ABSENT`].
    places: Vec<u32>,
}

impl SharedWriters {
    /// Memory of one VM in bytes.
    pub(super) const BYTES_PER_VM: usize = 2 * size_of::<u32>();

    /// Creates an empty set with room for `vms` VM slots.
    pub(super) fn new(vms: usize) -> SharedWriters {
        SharedWriters {
            slots: Vec::with_capacity(vms),
            places: vec![ABSENT; vms],
        }
    }

    /// Adds a VM slot to the set or removes it.
    pub(super) fn set(&mut self, slot: usize, is_member: bool) {
        match (is_member, self.places[slot]) {
            (true, ABSENT) => {
                self.places[slot] = self.slots.len() as u32;
                self.slots.push(slot as u32);
            }
            (false, place) if place != ABSENT => {
                // The last of the list takes the place of the one that leaves.
                self.slots.swap_remove(place as usize);
                if let Some(&moved) = self.slots.get(place as usize) {
                    self.places[moved as usize] = place;
                }
                self.places[slot] = ABSENT;
            }
            _ => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the members' slots, in an order that means nothing.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        self.slots.iter().map(|&slot| slot as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn members_are_those_that_were_set_last() {
        let (mut writers, mut model) = (SharedWriters::new(7), BTreeSet::new());
        let mut state = 1_u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            let (slot, is_member) = ((state >> 33) as usize % 7, state >> 62 & 1 == 1);
            writers.set(slot, is_member);
            if is_member {
                model.insert(slot);
            } else {
                model.remove(&slot);
            }
            assert_eq!(writers.slots().count(), model.len());
            assert_eq!(writers.slots().collect::<BTreeSet<_>>(), model);
            assert_eq!(writers.is_empty(), model.is_empty());
        }
    }
}
