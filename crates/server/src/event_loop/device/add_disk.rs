//! Adding of a disk to a device, at start or while the device is served.

use std::sync::atomic::{AtomicU32, Ordering};

use tidegate_core::engine::{DiskSpec, Engine, EngineError, SharedLimitId};
use tidegate_core::objective::Limit;
use tidegate_core::request::DiskId;
use tidegate_core::time::Nanos;

use super::super::PAYLOAD_MAX;
use super::super::vms::Vms;
use super::{Device, DiskState, fault_injection};
use crate::backing::Disk;
use crate::config::LimitGroup;
use crate::frontend::Volume;
use crate::ring::clock;

/// Limit that disks share.
pub(in super::super) struct SharedLimit {
    /// Name, and the limit in force.
    pub(in super::super) config: LimitGroup,
    /// Handle in the engine.
    pub(in super::super) id: SharedLimitId,
}

impl Device {
    /// Registers a disk at address `base` of the device with the engine and with its VM, and
    /// returns its index. If the engine refuses it, the disk is closed.
    pub(in super::super) fn add_disk(
        &mut self,
        engine: &mut Engine,
        vms: &mut Vms,
        vm: usize,
        disk: Disk,
        base: u64,
    ) -> Result<usize, EngineError> {
        // The removal has listed the disks that it closes; a later one would stay open.
        assert!(
            !vms[vm].is_removed,
            "a disk is added to a VM that is being removed"
        );
        let spec = DiskSpec {
            base,
            size: disk.size,
            read_only: disk.read_only,
        };
        let id = engine.vms_mut().add_disk(vms[vm].id, spec)?;
        let group = disk.limit_group.as_deref();
        // Only where there is a limit: the engine keeps state for disks that have one.
        if (!disk.limit.is_none() || group.is_some())
            && let Err(refused) = self.limit_disk(engine, clock(), id, &disk.limit, group)
        {
            let removed = engine.vms_mut().remove_disk(clock(), id);
            removed.expect("it was just added");
            return Err(refused);
        }
        let index = self.disks.insert(DiskState {
            serial: next_serial(),
            base,
            vm,
            id,
            resizing: false,
            in_flight: 0,
            hung: None,
            faults: fault_injection::arm_rules(&disk, clock()),
            injected: 0,
            disk,
        });
        vms[vm].disks.push(index);
        let len = self.by_id.len().max(id.index() + 1);
        // Ids of removed disks are reused, so the table stays short; `usize::MAX` is no disk.
        self.by_id.resize(len, usize::MAX);
        self.by_id[id.index()] = index;
        Ok(index)
    }

    /// Adds the limits that disks of the device may share.
    pub(in super::super) fn add_limit_groups(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        groups: &[LimitGroup],
    ) -> Result<(), EngineError> {
        for group in groups {
            let id = engine.vms_mut().add_shared_limit(now, &group.limit)?;
            self.limit_groups.push(SharedLimit {
                config: group.clone(),
                id,
            });
        }
        Ok(())
    }

    /// Replaces a limit that disks share.
    pub(in super::super) fn set_group_limit(
        &mut self,
        engine: &mut Engine,
        now: Nanos,
        name: &str,
        limit: &Limit,
    ) -> Result<(), EngineError> {
        let groups = &mut self.limit_groups;
        let group = groups.iter_mut().find(|known| known.config.name == name);
        let group = group.ok_or(UNKNOWN_GROUP)?;
        engine.vms_mut().change_shared_limit(now, group.id, limit)?;
        group.config.limit = *limit;
        Ok(())
    }

    /// Replaces the limits of a disk: its own, and the group whose limit it shares. Changes nothing
    /// if they are refused.
    pub(in super::super) fn limit_disk(
        &self,
        engine: &mut Engine,
        now: Nanos,
        id: DiskId,
        limit: &Limit,
        group: Option<&str>,
    ) -> Result<(), EngineError> {
        let shared = match group {
            None => None,
            Some(name) => {
                let mut groups = self.limit_groups.iter();
                let known = groups.find(|known| known.config.name == name);
                Some(known.ok_or(UNKNOWN_GROUP)?.id)
            }
        };
        let mut vms = engine.vms_mut();
        vms.limit_disk(now, id, limit)?;
        vms.share_limit(now, id, shared)
    }

    /// Describes a disk for the frontends that export it.
    pub(in super::super) fn volume(&self, index: usize) -> Volume {
        let state = &self.disks[index];
        let disk = &state.disk;
        Volume {
            serial: state.serial,
            name: disk.export.clone(),
            size: disk.size,
            block_size: disk.block_size,
            physical_block: disk.physical_block(),
            payload_max: PAYLOAD_MAX,
            read_only: disk.read_only,
            identity: disk.medium.identity(),
            activation: disk.medium.activation().cloned(),
            rotational: self.model.as_ref().is_some_and(|m| m.spec().rotational),
        }
    }
}

/// Error of a name that no limit group has.
const UNKNOWN_GROUP: EngineError = EngineError::Unknown {
    what: "the limit group",
};

/// Returns a number that identifies a disk for as long as the process runs, so that a client's
/// choice of a disk never leads to a later one.
fn next_serial() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
