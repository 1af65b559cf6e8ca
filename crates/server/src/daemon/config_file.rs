//! Configuration file of a daemon as it is in force: read at the start, and again on SIGHUP.

use std::path::PathBuf;

use tidegate_policies::policy::PolicySpec;
use tokio::task::spawn_blocking;

use super::file_changes::FileInForce;
use super::handle::DaemonHandle;
use super::shared::Shared;
use crate::config::{LimitGroup, VmConfig};
use crate::store::VmRecord;

/// Configuration file of a daemon.
pub(crate) struct ConfigFile<'a> {
    shared: &'a Shared,
}

impl<'a> ConfigFile<'a> {
    /// Returns the configuration file of a daemon.
    pub(crate) fn of(handle: &'a DaemonHandle) -> ConfigFile<'a> {
        ConfigFile {
            shared: handle.shared(),
        }
    }

    /// Returns the absolute path; `None` for a daemon without a file.
    pub(crate) fn path(&self) -> Option<&'a PathBuf> {
        self.shared.config_file.as_ref()
    }

    /// Returns what the file says as far as it is in force.
    pub(crate) fn in_force(&self) -> FileInForce {
        let Shared {
            devices,
            vms,
            sections,
            ..
        } = self.shared;
        FileInForce {
            vms: vms.in_file(),
            devices: devices.configs(),
            sections: sections.clone(),
        }
    }

    /// Returns a VM as the file in force has it.
    pub(crate) fn vm(&self, name: &str) -> Option<VmConfig> {
        self.shared.vms.vm_in_file(name)
    }

    /// Replaces a VM of the file in force, or adds one.
    pub(crate) fn put_vm(&self, vm: VmConfig) {
        self.shared.vms.put_in_file(vm);
    }

    /// Removes a VM from the file in force.
    pub(crate) fn remove_vm(&self, name: &str) {
        self.shared.vms.remove_from_file(name);
    }

    /// Replaces the policy of a device in the file in force.
    pub(crate) fn put_policy(&self, device: usize, policy: PolicySpec) {
        let entry = &self.shared.devices.entries()[device];
        entry.change_config(|config| config.scheduling.policy = policy);
    }

    /// Replaces a limit that disks of a device share in the file in force.
    pub(crate) fn put_group(&self, device: usize, group: &LimitGroup) {
        let entry = &self.shared.devices.entries()[device];
        entry.change_config(|config| {
            let mut groups = config.limit_groups.iter_mut();
            if let Some(there) = groups.find(|there| there.name == group.name) {
                there.limit = group.limit;
            }
        });
    }

    /// Returns the records of VMs in the store, which count beside the file; none without a store.
    ///
    /// # Errors
    /// The reason why the store cannot be read.
    pub(crate) async fn records(&self) -> Result<Vec<VmRecord>, String> {
        let Some(store) = self.shared.persistence.store().cloned() else {
            return Ok(Vec::new());
        };
        match spawn_blocking(move || store.vms()).await {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(_) => Err("the call panicked".to_owned()),
        }
    }
}
