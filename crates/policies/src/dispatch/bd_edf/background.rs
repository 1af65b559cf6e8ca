//! Queue of background units: first in, first out, with batches by address.

use super::sorted::Sorted;
use crate::dispatch::deadline_order::head_of;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::request::{ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_core::view::View;

/// Maximum number of units in a batch: Linux's `fifo_batch`.
const BATCH_UNITS_MAX: u32 = 16;

/// Queue of background units and the state of their batch.
pub(super) struct Background {
    /// Background processes with a unit that may go, by the arrival of their first.
    oldest: IndexedHeap<u64>,
    /// Number of units in the current batch; 0 if a VM's unit went last.
    batch: u32,
    /// Time at which a background unit last went.
    last_started: Nanos,
}

impl Background {
    /// Memory of one VM in bytes.
    pub(super) const BYTES_PER_VM: usize = IndexedHeap::<u64>::BYTES_PER_ID;

    pub(super) fn new(vms: u32) -> Background {
        Background {
            oldest: IndexedHeap::with_capacity(vms as usize),
            batch: 0,
            last_started: Nanos::ZERO,
        }
    }

    /// Updates a process's place after its head or gates may have changed.
    pub(super) fn rank(&mut self, view: &View, vm: VmId) {
        match view.head(vm) {
            Some(head) => self.oldest.set(vm.index(), view.queued(head).seq()),
            None => self.remove(vm),
        }
    }

    pub(super) fn remove(&mut self, vm: VmId) {
        self.oldest.remove(vm.index());
    }

    fn oldest(&self, view: &View) -> Option<ReqId> {
        let (_, vm) = self.oldest.peek()?;
        Some(head_of(view, view.vm_at(vm)))
    }

    /// Returns the time at which the oldest unit has waited for `after` with no background unit
    /// gone in that time; `None` if nothing waits or `after` is zero.
    pub(super) fn promotion(&self, view: &View, after: Nanos) -> Option<Nanos> {
        if after == Nanos::ZERO {
            return None;
        }
        let oldest = view.queued(self.oldest(view)?).unit();
        Some(oldest.arrived.max(self.last_started) + after)
    }

    /// Returns the unit that goes next and its place in its batch: the next by address from
    /// `on_from`, where the last background I/O ended, as long as the batch goes on; else the
    /// oldest, which begins a batch.
    pub(super) fn next_unit(
        &self,
        view: &View,
        sorted: &mut Sorted,
        on_from: Option<u64>,
    ) -> Option<(ReqId, u32)> {
        let oldest = self.oldest(view)?;
        let goes_on = on_from
            // 0: a VM's I/O has moved the head since, so a new batch begins with the oldest.
            .filter(|_| (1..BATCH_UNITS_MAX).contains(&self.batch))
            .and_then(|from| sorted.next_background(view, from));
        Some(match goes_on {
            Some(next) => (next, self.batch + 1),
            None => (oldest, 1),
        })
    }

    /// Records the start of a unit with its place in a batch; 0: a VM's unit.
    pub(super) fn started(&mut self, now: Nanos, batch: u32) {
        self.batch = batch;
        if batch > 0 {
            self.last_started = now;
        }
    }
}
