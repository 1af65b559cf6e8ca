//! The background queue: first in, first out, with batches by address.

use super::sorted::Sorted;
use crate::dispatch::by_deadline::head_of;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::request::{ReqId, VmId};
use tidegate_base::time::Nanos;
use tidegate_core::facts::Facts;

/// Units in a batch at most: Linux's `fifo_batch`.
const BATCH: u32 = 16;

/// The background queue.
pub(super) struct Background {
    /// Tenants with a unit that may go, by the arrival of the first.
    oldest: IndexedHeap<u64>,
    /// Units in the batch that goes on; none when a VM's unit went last.
    batch: u32,
    /// When one of them went last.
    went: Nanos,
}

impl Background {
    /// Memory a VM takes.
    pub(super) const BYTES_PER_VM: usize = IndexedHeap::<u64>::BYTES_PER_ID;

    pub(super) fn new(vms: u32) -> Background {
        Background {
            oldest: IndexedHeap::with_capacity(vms as usize),
            batch: 0,
            went: Nanos::ZERO,
        }
    }

    /// A tenant's head or gates may have changed.
    pub(super) fn rank(&mut self, facts: &Facts, vm: VmId) {
        match facts.head(vm) {
            Some(head) => self.oldest.set(vm.index(), facts.queued(head).seq()),
            None => self.forget(vm),
        }
    }

    pub(super) fn forget(&mut self, vm: VmId) {
        self.oldest.remove(vm.index());
    }

    fn oldest(&self, facts: &Facts) -> Option<ReqId> {
        let (_, vm) = self.oldest.peek()?;
        Some(head_of(facts, facts.vm_at(vm)))
    }

    /// When the oldest unit has been passed over for so long, and none has gone meanwhile;
    /// `after` zero: never.
    pub(super) fn promotion(&self, facts: &Facts, after: Nanos) -> Option<Nanos> {
        if after == Nanos::ZERO {
            return None;
        }
        let oldest = facts.queued(self.oldest(facts)?).unit();
        Some(oldest.arrived.max(self.went) + after)
    }

    /// What goes next, and its place in its batch: the oldest, or on from where the last
    /// background I/O ended.
    pub(super) fn next(
        &self,
        facts: &Facts,
        sorted: &mut Sorted,
        on_from: Option<u64>,
    ) -> Option<(ReqId, u32)> {
        let oldest = self.oldest(facts)?;
        let goes_on = on_from
            .filter(|_| (1..BATCH).contains(&self.batch))
            .and_then(|from| sorted.next_background(facts, from));
        Some(match goes_on {
            Some(next) => (next, self.batch + 1),
            None => (oldest, 1),
        })
    }

    /// A unit has started, as this many of a batch; 0: a VM's.
    pub(super) fn started(&mut self, now: Nanos, batch: u32) {
        self.batch = batch;
        if batch > 0 {
            self.went = now;
        }
    }
}
