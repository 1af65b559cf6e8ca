//! Parts of a daemon that its tasks share, each with its own state.

use std::sync::Arc;

use tokio::sync::Notify;

use super::devices::DeviceTable;
use super::directory::VmDirectory;
use super::disks::OpenDisks;
use super::persistence::Persistence;
use super::transfers::Transfers;
use crate::config::{DaemonConfig, ListenConfig, PathsConfig};
use crate::history::History;
use crate::listener::HalfOpenTables;
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
    /// Section `[paths]` of the configuration, for disks that come by the API or from the store.
    pub(super) paths: PathsConfig,
    /// Section `[daemon]` of the configuration.
    pub(super) config: DaemonConfig,
    /// Listeners for clients of disks.
    pub(super) listeners: Vec<ListenConfig>,
    pub(super) half_open: HalfOpenTables,
    pub(super) stop: Notify,
}

impl Shared {
    /// Returns the source of the identity of a device's storage, with its present disks.
    pub(super) fn identity_source(&self, device: usize) -> IdentitySource {
        let kind = &self.devices.entries()[device].config().kind;
        IdentitySource::of_device(kind, &self.vms.on_device(device))
    }
}
