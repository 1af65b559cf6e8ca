//! Changes of limits of disks, and of limits that disks share.

use tidegate_core::objective::Limit;

use super::handle::DaemonHandle;
use super::shared::Shared;
use crate::command::{Command, ControlError, DeviceSnapshot, LimitChange, VmSnapshot};

/// Limits of a daemon's disks.
pub(crate) struct DiskLimits<'a> {
    shared: &'a Shared,
}

impl<'a> DiskLimits<'a> {
    /// Returns the limits of a daemon's disks.
    pub(crate) fn of(handle: &'a DaemonHandle) -> DiskLimits<'a> {
        DiskLimits {
            shared: handle.shared(),
        }
    }

    /// Replaces the limits of a disk: its own, and the name of the limit group whose limit it
    /// shares. Returns the VM's snapshot.
    ///
    /// # Errors
    /// If there is no such VM, disk or group, the engine refuses the limit, or the loop has ended.
    pub(crate) async fn set_disk(
        &self,
        [vm, export]: [&str; 2],
        limit: Limit,
        group: Option<String>,
    ) -> Result<VmSnapshot, ControlError> {
        let device = self.shared.vms.device_of(vm)?;
        let set = self.shared.devices.ask(device, |reply| {
            Command::ChangeLimits(LimitChange::Disk {
                vm: vm.to_owned(),
                export: export.to_owned(),
                limit: Box::new(limit),
                group: group.clone(),
                reply,
            })
        });
        let now = set.await??;
        // The directory follows the loop, which may have refused.
        self.shared.vms.change(vm, |vm| {
            if let Some(disk) = vm.disks.iter_mut().find(|disk| disk.export == export) {
                (disk.limit, disk.limit_group) = (limit, group);
            }
        });
        Ok(now)
    }

    /// Replaces a limit that disks of a device share and returns a snapshot of the device.
    ///
    /// # Errors
    /// If there is no such device or group, the engine refuses the limit, or the loop has ended.
    pub(crate) async fn set_group(
        &self,
        device: usize,
        group: &str,
        limit: Limit,
    ) -> Result<DeviceSnapshot, ControlError> {
        let set = self.shared.devices.ask(device, |reply| {
            Command::ChangeLimits(LimitChange::Group {
                group: group.to_owned(),
                limit: Box::new(limit),
                reply,
            })
        });
        Ok(set.await??)
    }
}
