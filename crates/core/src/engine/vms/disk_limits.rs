//! Limits of disks, of their own and shared.

use super::VmsMut;
use crate::engine::EngineError;
use crate::engine::disk_limits::{DiskLimits, SharedLimitId};
use crate::view::Life;
use tidegate_base::objective::{Limit, Objective};
use tidegate_base::request::DiskId;
use tidegate_base::time::Nanos;

impl VmsMut<'_> {
    /// Limits a disk beside its VM's limit, or changes its limit; [`Limit::NONE`] lifts it.
    /// Requests beyond it wait before their VM's lanes, whatever the policy, and their wait counts
    /// as held by a limit. What the disk has used beyond a rate is not written off by a change to
    /// another rate. It is forgotten with a rate or a burst that is lifted: set again, that begins
    /// anew.
    ///
    /// # Errors
    /// If the limit contradicts itself, or there is no such disk.
    pub fn limit_disk(
        &mut self,
        now: Nanos,
        disk: DiskId,
        limit: &Limit,
    ) -> Result<(), EngineError> {
        check(limit)?;
        self.change_disk_limits(now, disk, limit.is_none(), |limits, now, index| {
            limits.set_own(now, index, limit);
        })
    }

    /// Lifts all limits of disks for good, their own and shared ones, so that what waits for them
    /// goes on: for a device that is to come to its end soon.
    pub fn lift_disk_limits(&mut self, now: Nanos) {
        let engine = &mut *self.engine;
        engine.view.queues.advance(now);
        if let Some(limits) = &mut engine.disk_limits {
            for disk in limits.lift_all(engine.view.queues.now) {
                engine.directory.set_limited(disk, false);
            }
            engine.view.timers.set_release_at(limits.next_timer());
        }
    }

    /// Adds a limit that disks may share, of one VM or of several: see [`VmsMut::share_limit`].
    ///
    /// # Errors
    /// If the limit contradicts itself.
    pub fn add_shared_limit(
        &mut self,
        now: Nanos,
        limit: &Limit,
    ) -> Result<SharedLimitId, EngineError> {
        check(limit)?;
        self.engine.view.queues.advance(now);
        let limits = self.engine.disk_limits.get_or_insert_default();
        Ok(limits.add_shared(self.engine.view.queues.now, limit))
    }

    /// Changes a limit that disks share. What they have used beyond it is kept or forgotten as in
    /// [`VmsMut::limit_disk`].
    ///
    /// # Errors
    /// If the limit contradicts itself, or there is none of this handle.
    pub fn change_shared_limit(
        &mut self,
        now: Nanos,
        id: SharedLimitId,
        limit: &Limit,
    ) -> Result<(), EngineError> {
        check(limit)?;
        self.engine.view.queues.advance(now);
        let now = self.engine.view.queues.now;
        let limits = self.engine.disk_limits.as_mut().ok_or(UNKNOWN_SHARED)?;
        if !limits.set_shared(now, id, limit) {
            return Err(UNKNOWN_SHARED);
        }
        self.engine.view.timers.set_release_at(limits.next_timer());
        Ok(())
    }

    /// Removes a limit that no disk shares any more.
    ///
    /// # Errors
    /// If a disk shares it, or there is none of this handle.
    pub fn remove_shared_limit(&mut self, id: SharedLimitId) -> Result<(), EngineError> {
        let limits = self.engine.disk_limits.as_mut().ok_or(UNKNOWN_SHARED)?;
        limits.remove_shared(id).then_some(()).ok_or(UNKNOWN_SHARED)
    }

    /// Has a disk share a limit with others, in place of the one that it shared before; `None`:
    /// none. Disks that wait for it take turns, one request each.
    ///
    /// # Errors
    /// If there is no such disk or limit.
    pub fn share_limit(
        &mut self,
        now: Nanos,
        disk: DiskId,
        with: Option<SharedLimitId>,
    ) -> Result<(), EngineError> {
        let limits = self.engine.disk_limits.as_ref();
        let is_known = |id| limits.is_some_and(|limits| limits.knows(id));
        if with.is_some_and(|id| !is_known(id)) {
            return Err(UNKNOWN_SHARED);
        }
        self.change_disk_limits(now, disk, with.is_none(), |limits, now, index| {
            limits.share(now, index, with);
        })
    }

    /// Changes the limits of a disk by `change`. `lifts`: it only removes a limit, and there is
    /// nothing to do for a disk that has none.
    fn change_disk_limits(
        &mut self,
        now: Nanos,
        disk: DiskId,
        lifts: bool,
        change: impl FnOnce(&mut DiskLimits, Nanos, u32),
    ) -> Result<(), EngineError> {
        let engine = &mut *self.engine;
        let vm = engine.directory.known_disk(disk)?.vm;
        if engine.view.queues.vms[vm as usize].life != Life::Live {
            return Err(EngineError::Unknown { what: "the VM" });
        }
        if lifts && !engine.directory.disk_at(disk.index).limited {
            return Ok(());
        }
        engine.view.queues.advance(now);
        let limits = engine.disk_limits.get_or_insert_default();
        limits.make_room(engine.view.queues.reqs.hot.len());
        change(limits, engine.view.queues.now, disk.index);
        let is_limited = !limits.close_unlimited(disk.index);
        engine.directory.set_limited(disk.index, is_limited);
        engine.view.timers.set_release_at(limits.next_timer());
        Ok(())
    }
}

/// Error of a handle that names no shared limit, or one that is still shared.
const UNKNOWN_SHARED: EngineError = EngineError::Unknown {
    what: "the shared limit",
};

/// Checks a limit by itself.
fn check(limit: &Limit) -> Result<(), EngineError> {
    let objective = Objective {
        limit: *limit,
        ..Objective::default()
    };
    Ok(objective.validate()?)
}
