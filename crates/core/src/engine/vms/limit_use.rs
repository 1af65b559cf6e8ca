//! Use of limits, which one engine hands over to another, so that no VM gains a burst by it.

use super::VmsMut;
use crate::engine::disk_limits::SharedLimitId;
use crate::roles::Consumed;
use tidegate_base::request::{DiskId, VmId};
use tidegate_base::time::Nanos;

/// Limit of a VM, of a disk, or one that disks share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitId {
    /// Limit in a VM's objective.
    Vm(VmId),
    /// Own limit of a disk.
    Disk(DiskId),
    /// Limit that disks share.
    Shared(SharedLimitId),
}

impl VmsMut<'_> {
    /// Returns the part of a limit that is used up at `now`; without any rate if there is no such
    /// limit.
    pub fn consumed(&mut self, now: Nanos, limit: LimitId) -> Consumed {
        let engine = &mut *self.engine;
        engine.view.queues.advance(now);
        let now = engine.view.queues.now;
        let limits = engine.disk_limits.as_ref();
        let consumed = match limit {
            LimitId::Vm(vm) => {
                let is_known = engine.check_vm(vm).is_ok();
                is_known.then(|| engine.active.consumed(&engine.view, vm))
            }
            LimitId::Disk(disk) => {
                let is_known = engine.directory.known_disk(disk).is_ok();
                let limits = limits.filter(|_| is_known);
                limits.and_then(|limits| limits.own_consumed(now, disk.index))
            }
            LimitId::Shared(id) => limits.and_then(|limits| limits.shared_consumed(now, id)),
        };
        consumed.unwrap_or_default()
    }

    /// Has a limit owe at `now` what is used up of it in another engine. If that was earlier, see
    /// [`Consumed::after`]; if the limit was another one there, see [`convert`]. Rates that were
    /// not limited there count as unused. Does nothing if there is no such limit. A request whose
    /// wait has ended already goes all the same.
    ///
    /// [`convert`]: crate::limit_accounts::convert
    pub fn adopt_consumed(&mut self, now: Nanos, limit: LimitId, consumed: &Consumed) {
        let consumed = consumed.or_unused();
        let engine = &mut *self.engine;
        engine.view.queues.advance(now);
        let now = engine.view.queues.now;
        let limits = engine.disk_limits.as_mut();
        match limit {
            LimitId::Vm(vm) => {
                if engine.check_vm(vm).is_ok() {
                    engine.active.adopt(&engine.view, vm, &consumed);
                }
            }
            LimitId::Disk(disk) => {
                let is_known = engine.directory.known_disk(disk).is_ok();
                if let Some(limits) = limits.filter(|_| is_known) {
                    limits.adopt_own(now, disk.index, &consumed);
                }
            }
            LimitId::Shared(id) => {
                if let Some(limits) = limits {
                    limits.adopt_shared(now, id, &consumed);
                }
            }
        }
        if let Some(limits) = &engine.disk_limits {
            engine.view.timers.set_release_at(limits.next_timer());
        }
    }
}
