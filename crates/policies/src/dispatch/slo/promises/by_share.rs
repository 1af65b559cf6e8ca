//! Latency bounds without a rate: best effort, within the share of their VM.

use super::{Head, Place, Promises};
use crate::tournament::Tournament;
use tidegate_base::time::Nanos;

impl Promises {
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
        self.due_by_share.set(vm, deadline.0);
    }

    /// Returns the earliest deadline of a latency bound without a rate, and the VM whose head has
    /// it.
    #[inline]
    pub(in super::super) fn first_by_share(&self) -> Option<(Nanos, usize)> {
        let (deadline, vm) = self.due_by_share.peek()?;
        Some((Nanos(deadline), vm))
    }
}
