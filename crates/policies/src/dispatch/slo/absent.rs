//! VMs whose requests are all with a disk that seeks.
//!
//! Such a disk serves its queue in an order of its own. Where the queue holds all that the VMs have
//! outstanding, the VMs share the disk by their own depths instead of by weight. So the upper half
//! of the queue is for VMs that are not ahead of an absent one: a disk gains little there (5 % of
//! the work from 16 to 31 on a 7200 rpm disk), and the absent VM soon has something waiting again.

use tidegate_core::facts::Facts;

/// VMs with all their requests in flight, by slot; at most as many as the disk's queue has places.
#[derive(Debug, Default)]
pub(super) struct Absent(Vec<usize>);

impl Absent {
    /// Creates an empty list with room for `vms` VMs. Nothing is allocated later: VMs beyond the
    /// room are not noted, so that others may go ahead of them.
    pub(super) fn with_capacity(vms: usize) -> Absent {
        Absent(Vec::with_capacity(vms))
    }

    /// Notes that nothing of a VM waits any more, while I/Os of it are in flight.
    pub(super) fn left(&mut self, slot: usize) {
        if self.0.len() < self.0.capacity() && !self.0.contains(&slot) {
            self.0.push(slot);
        }
    }

    /// Notes that something of a VM waits again, or that the VM is gone.
    #[inline]
    pub(super) fn came(&mut self, slot: usize) {
        if !self.0.is_empty() {
            self.0.retain(|&absent| absent != slot);
        }
    }

    /// Returns whether a VM with I/Os in flight meets a condition. Forgets VMs without.
    pub(super) fn any(&mut self, facts: &Facts, is_meant: impl Fn(usize) -> bool) -> bool {
        self.0
            .retain(|&slot| facts.in_flight(facts.vm_at(slot)) > 0);
        self.0.iter().any(|&slot| is_meant(slot))
    }
}
