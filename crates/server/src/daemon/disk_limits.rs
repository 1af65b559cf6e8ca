//! Changes of limits of disks, and of limits that disks share.

use std::fmt::Display;

use serde_json::{Value, json};
use tidegate_config::device::limit_groups;
use tidegate_config::objective::limit;
use tidegate_core::objective::Limit;

use super::handle::DaemonHandle;
use super::shared::Shared;
use crate::command::{Command, ControlError, DeviceSnapshot, LimitChange, VmSnapshot};
use crate::config::{ConfigErrors, DeviceConfig, DiskConfig, LimitGroup, VmConfig};
use crate::takeover::LimitGroupPlan;

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

    /// Puts the limits of the disks of `now` in force where those of the disks that are `served`
    /// differ.
    ///
    /// # Errors
    /// As for [`DiskLimits::set_disk`].
    pub(super) async fn put(&self, served: &VmConfig, now: &VmConfig) -> Result<(), ControlError> {
        for disk in differing(served, now) {
            let (limit, group) = (disk.limit, disk.limit_group.clone());
            self.set_disk([&served.name, &disk.export], limit, group)
                .await?;
        }
        Ok(())
    }

    /// Puts the limits in force that disks share and that were changed while another daemon ran.
    /// A group whose limit was edited in the file since, or that the file has no more, stays as
    /// the file has it.
    ///
    /// # Errors
    /// The group whose limit is refused, with the reason.
    pub(super) async fn put_groups(&self, plans: &[LimitGroupPlan]) -> Result<(), String> {
        let configs = self.shared.devices.configs();
        for plan in plans {
            let device = configs.iter().position(|config| config.name == plan.device);
            let own = device.and_then(|device| {
                let mut groups = configs[device].limit_groups.iter();
                groups.find(|group| group.name == plan.name)
            });
            let (Some(device), Some(own)) = (device, own) else {
                continue;
            };
            let refused = |error: &dyn Display| format!("limit group {:?}: {error}", plan.name);
            let limit = taken_over(plan, &own.limit).map_err(|errors| refused(&errors))?;
            if let Some(limit) = limit {
                let set = self.set_group(device, &plan.name, limit).await;
                set.map_err(|error| refused(&error))?;
            }
        }
        Ok(())
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

/// Returns the limits that disks of a device share for a new daemon: as its file has them, and as
/// they are `now`.
pub(super) fn group_plans(device: &DeviceConfig, now: &[LimitGroup]) -> Vec<LimitGroupPlan> {
    let plan = |in_file: &LimitGroup| {
        let now = now.iter().find(|group| group.name == in_file.name)?;
        Some(LimitGroupPlan {
            device: device.name.clone(),
            name: in_file.name.clone(),
            in_file: limit::view(&in_file.limit),
            in_force: limit::view(&now.limit),
        })
    };
    device.limit_groups.iter().filter_map(plan).collect()
}

/// Returns the limit that a running daemon has put in force for a group, to be in force here as
/// well; `None` where it is the one of the file, or the file has another limit now.
///
/// # Errors
/// If it is no limit, as configurations have them.
fn taken_over(plan: &LimitGroupPlan, own: &Limit) -> Result<Option<Limit>, ConfigErrors> {
    let read = |words: &Value| limit_groups::merge_group(&json!({ "limit": words }), &Limit::NONE);
    // Words that cannot be read are not those of this file.
    if read(&plan.in_file).ok() != Some(*own) {
        return Ok(None);
    }
    Ok(Some(read(&plan.in_force)?).filter(|limit| limit != own))
}

/// Returns the disks of `now` whose limits are not those of the same disk of `served`.
fn differing<'a>(
    served: &'a VmConfig,
    now: &'a VmConfig,
) -> impl Iterator<Item = &'a DiskConfig> + 'a {
    now.disks.iter().filter(|disk| {
        let mut served = served.disks.iter();
        let served = served.find(|served| served.export == disk.export);
        served.is_some_and(|served| {
            (&served.limit, &served.limit_group) != (&disk.limit, &disk.limit_group)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config;

    #[test]
    fn limits_of_groups_that_were_changed_go_over_unless_the_file_was_edited() {
        let limit = |text: &str| {
            let words = json!({ "limit": { "total": text, "burst": { "total": "5 GB/s" } } });
            limit_groups::merge_group(&words, &Limit::NONE).unwrap_or_else(|e| panic!("{e}"))
        };
        let [in_file, changed, edited] = ["9 MB/s", "8 MB/s", "7 MB/s"].map(limit);
        let plan = |now: Limit| LimitGroupPlan {
            device: "d".to_owned(),
            name: "logs".to_owned(),
            in_file: limit::view(&in_file),
            in_force: limit::view(&now),
        };
        let found = |now, own: &Limit| taken_over(&plan(now), own).expect("limits");
        assert_eq!(found(changed, &in_file), Some(changed));
        assert_eq!(found(Limit::NONE, &in_file), Some(Limit::NONE));
        assert_eq!(found(in_file, &in_file), None);
        assert_eq!(found(changed, &edited), None);
        let unreadable = LimitGroupPlan {
            in_force: json!("fast"),
            ..plan(changed)
        };
        assert!(taken_over(&unreadable, &in_file).is_err());
    }

    #[test]
    fn only_disks_that_are_served_with_other_limits_differ() {
        let text = "[[listen]]\nunix = \"s\"\n[[device]]\nname = \"d\"\nkind = \"memory\"\n\
            [[device.limit_group]]\nname = \"logs\"\nlimit = \"9 MB/s\"\n";
        let config = config::parse(text, "t", Path::new("/"))
            .expect("good")
            .config;
        let vm = |limits: [&str; 4]| {
            let mut disks = Vec::new();
            for (export, keys) in ["a", "b", "c", "d"].into_iter().zip(limits) {
                let mut disk = serde_json::json!({ "export": export, "size": "1 MiB" });
                if let Some((key, value)) = keys.split_once('=') {
                    disk[key] = value.into();
                }
                disks.push(disk);
            }
            let words = serde_json::json!({ "name": "vm", "disk": disks });
            let vm = config::vm::from_json(&words, &config.devices, &config.paths);
            vm.unwrap_or_else(|error| panic!("{error}"))
        };
        let mut served = vm(["limit=5 IOPS", "", "limit=9 MB/s", "limit=7 IOPS"]);
        let now = vm(["limit=6 IOPS", "limit_group=logs", "limit=9 MB/s", ""]);
        let exports = |served: &VmConfig| -> Vec<String> {
            let disks = differing(served, &now);
            disks.map(|disk| disk.export.clone()).collect()
        };
        assert_eq!(exports(&served), ["a", "b", "d"]);
        // One that is no longer served has no limit that could be changed.
        served.disks.remove(1);
        assert_eq!(exports(&served), ["a", "d"]);
    }
}
