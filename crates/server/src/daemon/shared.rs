//! Parts of a daemon that its tasks share, each with its own state.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Notify;

use super::change_gate::ChangeGate;
use super::devices::DeviceTable;
use super::directory::VmDirectory;
use super::disks::OpenDisks;
use super::outcome::Outcome;
use super::persistence::{self, Persistence};
use super::transfers::Transfers;
use super::unsent::Unsent;
use crate::config::{DaemonConfig, ListenConfig, PathsConfig};
use crate::history::History;
use crate::listener::HalfOpenTables;
use crate::membership::Membership;
use crate::recording::Recordings;
use crate::storage_identity::IdentitySource;

/// Parts of a daemon that its tasks share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) devices: DeviceTable,
    pub(super) vms: VmDirectory,
    pub(super) disks: OpenDisks,
    pub(super) persistence: Persistence,
    pub(super) transfers: Transfers,
    /// History of VMs and devices; `None` if it is turned off.
    pub(super) history: Option<Arc<History>>,
    pub(super) recordings: Arc<Recordings>,
    /// Membership in the cluster of `[cluster]`; `None` without that section.
    pub(super) membership: Option<Arc<Membership>>,
    /// Section `[paths]` of the configuration, for disks that come by the API or from the store.
    pub(super) paths: PathsConfig,
    /// Section `[daemon]` of the configuration.
    pub(super) config: DaemonConfig,
    /// Listeners for clients of disks.
    pub(super) listeners: Vec<ListenConfig>,
    pub(super) half_open: HalfOpenTables,
    /// Absolute path of the configuration file; `None` without one.
    pub(super) config_file: Option<PathBuf>,
    /// Sections of the configuration file other than `[[vm]]`, as they were at the start.
    pub(super) sections: Value,
    /// Gate for changes of the control API.
    pub(super) gate: ChangeGate,
    /// Connections of another daemon whose clients have not read their last replies.
    pub(super) unsent: Unsent,
    pub(super) stop: Notify,
    /// Decision between the end of the daemon and its hand-over to another one.
    pub(super) outcome: Outcome,
}

impl Shared {
    /// Returns the keys of the VMs of the configuration file in force, as the file has them.
    pub(super) fn file_vms(&self) -> Vec<Value> {
        let vms = self.vms.in_file().into_iter();
        vms.map(|vm| {
            let device = self.devices.name(vm.device);
            persistence::words_of(vm, device)
        })
        .collect()
    }

    /// Returns the source of the identity of a device's storage, with its present disks.
    pub(super) fn identity_source(&self, device: usize) -> IdentitySource {
        let kind = self.devices.entries()[device].config().kind;
        IdentitySource::of_device(&kind, &self.vms.on_device(device))
    }
}
