//! VMs whose requests are all with a disk that seeks.
//!
//! Such a disk serves its queue in an order of its own. Where the queue holds all that the VMs have
//! outstanding, the VMs share the disk by their own depths instead of by weight. So the upper half
//! of the queue is for VMs that are not ahead of an absent one: a disk gains little there (5 % of
//! the work from 16 to 31 on a 7200 rpm disk), and the absent VM soon has something waiting again.

use tidegate_base::time::Nanos;
use tidegate_core::view::View;

/// Longest time for which others wait for an absent VM. One whose requests take longer has a disk
/// that hangs or reports errors late.
const ABSENCE_WAIT_MAX: Nanos = Nanos::SECOND;

/// VMs with all their requests in flight, as slots and the time since when; at most as many as the
/// disk's queue has places.
#[derive(Debug, Default)]
pub(super) struct Absent(Vec<(usize, Nanos)>);

impl Absent {
    /// Creates an empty list with room for `vms` VMs. Nothing is allocated later: VMs beyond the
    /// room are not recorded, so that others may go ahead of them.
    pub(super) fn with_capacity(vms: usize) -> Absent {
        Absent(Vec::with_capacity(vms))
    }

    /// Records that nothing of a VM waits any more, while I/Os of it are in flight.
    pub(super) fn record_absence(&mut self, now: Nanos, slot: usize) {
        // A VM that is in the list keeps its first time, so that the wait for it is bounded.
        if self.0.len() < self.0.capacity() && !self.has(slot) {
            self.0.push((slot, now));
        }
    }

    fn has(&self, slot: usize) -> bool {
        self.0.iter().any(|&(absent, _)| absent == slot)
    }

    /// Records that something of a VM waits again, or that the VM is gone.
    #[inline]
    pub(super) fn record_return(&mut self, slot: usize) {
        if !self.0.is_empty() {
            self.0.retain(|&(absent, _)| absent != slot);
        }
    }

    /// Returns the time until which others wait for the VMs of which `is_meant` is true; `None` if
    /// for none. Forgets VMs without I/Os in flight.
    pub(super) fn waited_for(
        &mut self,
        view: &View,
        is_meant: impl Fn(usize) -> bool,
    ) -> Option<Nanos> {
        self.0
            .retain(|&(slot, _)| view.in_flight(view.vm_at(slot)) > 0);
        let meant = self.0.iter().filter(|&&(slot, _)| is_meant(slot));
        let until = meant.map(|&(_, since)| since + ABSENCE_WAIT_MAX).max()?;
        // A time that has passed is no reason to wait: the VM's disk hangs or reports errors late.
        (until > view.now()).then_some(until)
    }
}
