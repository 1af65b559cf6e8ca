//! Throttled VMs by the slice in which they have a whole credit again.
//!
//! A slice that begins concerns those VMs alone, however many others are throttled. Each slice has
//! a list of VM slots, linked through the slots, so that a VM moves from one to another in constant
//! time and nothing is allocated for a request.

/// Link of a slot that is in no list, and end of a list.
const NIL: u32 = u32::MAX;

/// Place of a VM slot in the list of a slice.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Number of the slice; [`NIL`]: the slot is in no list.
    slice: u32,
    previous: u32,
    next: u32,
}

const UNLINKED: Link = Link {
    slice: NIL,
    previous: NIL,
    next: NIL,
};

/// Lists of VM slots, one for each slice of a period.
#[derive(Debug)]
pub(super) struct SliceQueue {
    /// First slot of each slice's list.
    heads: Vec<u32>,
    links: Vec<Link>,
}

impl SliceQueue {
    /// Memory of one more VM, in bytes.
    pub(super) const BYTES_PER_VM: usize = size_of::<Link>();

    /// Creates empty lists for `slices` slices.
    pub(super) fn new(slices: usize) -> SliceQueue {
        SliceQueue {
            heads: vec![NIL; slices],
            links: Vec::new(),
        }
    }

    /// Makes room for VM slots below `slots`.
    pub(super) fn grow(&mut self, slots: usize) {
        if self.links.len() < slots {
            self.links.resize(slots, UNLINKED);
        }
    }

    /// Puts a slot into the list of a slice, out of that in which it was.
    pub(super) fn put(&mut self, slot: usize, slice: usize) {
        if self.links[slot].slice == slice as u32 {
            return;
        }
        self.remove(slot);
        let head = &mut self.heads[slice];
        self.links[slot] = Link {
            slice: slice as u32,
            previous: NIL,
            next: *head,
        };
        if let Some(next) = self.links.get_mut(*head as usize) {
            next.previous = slot as u32;
        }
        *head = slot as u32;
    }

    /// Takes a slot out of the list in which it is, if it is in one.
    pub(super) fn remove(&mut self, slot: usize) {
        let link = core::mem::replace(&mut self.links[slot], UNLINKED);
        if link.slice == NIL {
            return;
        }
        match self.links.get_mut(link.previous as usize) {
            Some(previous) => previous.next = link.next,
            None => self.heads[link.slice as usize] = link.next,
        }
        if let Some(next) = self.links.get_mut(link.next as usize) {
            next.previous = link.previous;
        }
    }

    /// Takes all slots out of the lists of the slices up to `last` and adds them to `out`, in no
    /// particular order.
    pub(super) fn take_until(&mut self, last: usize, out: &mut Vec<u32>) {
        let lists = self.heads.len().min(last + 1);
        for head in &mut self.heads[..lists] {
            let mut slot = core::mem::replace(head, NIL);
            while slot != NIL {
                out.push(slot);
                let link = core::mem::replace(&mut self.links[slot as usize], UNLINKED);
                slot = link.next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain map from slot to slice.
        #[test]
        fn slots_are_in_the_list_that_they_were_put_into_last(
            steps in prop::collection::vec((0usize..12, 0usize..12), 1..200),
        ) {
            let mut queue = SliceQueue::new(10);
            queue.grow(12);
            let mut plain: [Option<usize>; 12] = [None; 12];
            for (slot, what) in steps {
                match what {
                    10 => {
                        queue.remove(slot);
                        plain[slot] = None;
                    }
                    11 => {
                        let mut taken = Vec::new();
                        queue.take_until(slot, &mut taken);
                        taken.sort_unstable();
                        let due = |at: &usize| plain[*at].is_some_and(|slice| slice <= slot);
                        let expected: Vec<u32> = (0..12).filter(due).map(|at| at as u32).collect();
                        prop_assert_eq!(&taken, &expected);
                        expected.iter().for_each(|&at| plain[at as usize] = None);
                    }
                    slice => {
                        queue.put(slot, slice);
                        plain[slot] = Some(slice);
                    }
                }
            }
        }
    }
}
