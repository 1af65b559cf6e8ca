//! Reader of one waiting unit, for roles.

use super::{Unit, View, moved};
use crate::slots::{Hot, state};
use tidegate_base::request::{Lane, Op, ReqId, VmId};
use tidegate_base::time::Nanos;

/// A unit that waits, or one of its guest requests; from [`View::queued`].
#[derive(Clone, Copy)]
pub struct Queued<'a> {
    pub(super) view: &'a View,
    pub(super) id: ReqId,
}

impl Queued<'_> {
    /// Hot part of the slot. Debug builds panic on a handle whose request was answered.
    #[inline]
    fn hot(&self) -> &Hot {
        let hot = &self.view.queues.reqs.hot[self.id.index()];
        debug_assert_eq!(
            hot.generation, self.id.generation,
            "a role kept {:?}, of which it was told that it is gone",
            self.id
        );
        hot
    }

    /// Copies the unit's fields. Inside the call that says it was removed, `addr` and `len` are
    /// what was left of it: 0 bytes, once it was wholly started.
    #[inline]
    pub fn unit(&self) -> Unit {
        let hot = self.hot();
        let reqs = &self.view.queues.reqs;
        let first = &reqs.hot[hot.chain_first as usize];
        Unit {
            id: self.id,
            vm: self.view.vm_at(hot.vm as usize),
            op: hot.op,
            addr: first.addr + first.issued as u64,
            len: hot.unit_len - first.issued,
            requests: hot.unit_reqs,
            seq: hot.seq,
            arrived: reqs.cold[self.id.index()].arrived,
        }
    }

    /// Position in the order of arrival over all VMs.
    #[inline]
    pub fn seq(&self) -> u64 {
        self.hot().seq
    }

    /// VM and lane.
    #[inline]
    pub fn vm_lane(&self) -> (VmId, Lane) {
        let hot = self.hot();
        (self.view.vm_at(hot.vm as usize), hot.op.lane())
    }

    /// Returns whether the gate of the unit's lane is open.
    #[inline]
    pub fn may_go(&self) -> bool {
        let hot = self.hot();
        !self.view.queues.vms[hot.vm as usize].is_closed(hot.op.lane())
    }

    /// Returns whether the unit was admitted; `false`: it waits for that still.
    pub fn is_admitted(&self) -> bool {
        self.hot().state == state::ADMITTED
    }

    /// Time for which a regulator has held an admitted unit: the request that gave it its name
    /// waited so long to be admitted, or for its lane's gate.
    pub fn held(&self) -> Nanos {
        let (hot, queues) = (self.hot(), &self.view.queues);
        let shut = queues.vms[hot.vm as usize].shut_time(hot.op.lane(), queues.now);
        queues.reqs.cold[self.id.index()].held(queues.now, shut)
    }

    /// VM, operation, first byte on the device and length in bytes of the guest request, as it
    /// arrived.
    #[inline]
    pub fn request(&self) -> (VmId, Op, u64, u32) {
        let hot = self.hot();
        (self.view.vm_at(hot.vm as usize), hot.op, hot.addr, hot.len)
    }

    /// Bytes of the guest request as it arrived that are transferred; 0 where the device only
    /// changes metadata.
    pub fn request_bytes(&self) -> u32 {
        let hot = self.hot();
        moved(self.view, hot.op, hot.len)
    }
}
