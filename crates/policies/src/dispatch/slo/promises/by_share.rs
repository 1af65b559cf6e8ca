//! Promises on a device that other hosts share: latency bounds without a rate wait apart, as they
//! go by the host's part of the device.

use super::{Head, Place, Promises};
use crate::tournament::Tournament;
use tidegate_base::time::Nanos;

impl Promises {
    /// Creates an empty queue with room for `vms` VMs of a host whose device other hosts share.
    pub(in super::super) fn on_shared_device(vms: usize) -> Promises {
        Promises {
            due_by_share: Some(Tournament::with_capacity(vms)),
            ..Promises::with_capacity(vms)
        }
    }

    /// Puts a VM with a latency bound and no rate, whose head waits, where its head's deadline
    /// belongs; nowhere while it is ahead of its share.
    #[cold]
    #[inline(never)]
    pub(super) fn place_by_share(&mut self, vm: usize, head: Head) {
        if !head.within_share {
            return self.sleep(vm);
        }
        let promise = &mut self.vms[vm];
        let deadline = head.arrived.min(Nanos(Tournament::LARGEST)) + promise.latency;
        let before = core::mem::replace(&mut promise.place, Place::DueByShare);
        if before != Place::DueByShare {
            self.leave(vm, before);
        }
        if let Some(queue) = &mut self.due_by_share {
            queue.set(vm, deadline.0);
        }
    }

    /// Takes a VM out of the queue of latency bounds without a rate.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_by_share(&mut self, vm: usize) {
        if let Some(queue) = &mut self.due_by_share {
            queue.take_out(vm);
        }
    }

    /// Returns the earliest deadline of a latency bound without a rate and the VM whose head has
    /// it, where other hosts share the device.
    pub(in super::super) fn first_by_share(&self) -> Option<(Nanos, usize)> {
        let (deadline, vm) = self.due_by_share.as_ref()?.peek()?;
        Some((Nanos(deadline), vm))
    }
}
