//! Handle of a running daemon: its parts, and operations that involve several of them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_api::health::Reason;
use tidegate_api::query::LearntDisks;
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tokio::sync::{Notify, oneshot};

use super::change_gate::ChangeGate;
use super::changes::Changes;
use super::devices::{DeviceEntry, DeviceTable};
use super::directory::VmDirectory;
use super::disks::OpenDisks;
use super::learnt_vm_state::LearntVmStates;
use super::outcome::Outcome;
use super::persistence::Persistence;
use super::restore::Restore;
use super::served_vms::ServedVms;
use super::shared::Shared;
use super::transfers::Transfers;
use super::unsent::Unsent;
use crate::command::{
    Command, CommandError, ControlError, DeviceSnapshot, DiskSnapshot, FaultChange, VmSnapshot,
};
use crate::config::{Config, DaemonConfig, DiskConfig, ListenConfig, PathsConfig, VmConfig};
use crate::event_loop::Files;
use crate::feasibility;
use crate::history::History;
use crate::learnt_state_file::LearntStateFile;
use crate::listener::{ExportCatalogue, HalfOpenTables};
use crate::membership::{Membership, PublishedDevice};
use crate::recording::Recordings;
use crate::store::Store;
use crate::transfer::TransferOrder;

/// Handle of a running daemon, cheap to clone; the control API is built on it.
///
/// [`DaemonHandle::vms`] has the VMs, [`DaemonHandle::devices`] the operations on one device; the
/// other methods involve several parts.
#[derive(Clone, Debug)]
pub struct DaemonHandle {
    shared: Arc<Shared>,
}

impl DaemonHandle {
    pub(super) fn new(
        (devices, config, in_file): (Vec<DeviceEntry>, Config, Vec<VmConfig>),
        files: Files,
        catalogue: Arc<ExportCatalogue>,
        store: Option<Arc<Store>>,
        transfers_changed: Arc<Notify>,
        history: Option<Arc<History>>,
    ) -> DaemonHandle {
        // VMs refer to devices by index, so a mismatch would send commands to the wrong loop.
        let names = |device: &DeviceEntry| device.name().to_owned();
        let configured = config.devices.iter().map(|device| device.name.clone());
        assert!(
            devices.iter().map(names).eq(configured),
            "event loops in another order than the devices of the configuration"
        );
        // Without a store nothing is ever written, which the longest interval stands for.
        let interval = (config.store.as_ref()).map_or(Nanos::MAX, |store| store.learnt_every);
        let own = store.as_ref().map(|store| store.path().to_owned());
        let names = devices.iter().map(|device| device.name().to_owned());
        let recordings = Arc::new(Recordings::new(config.recording, names));
        let shared = Arc::new(Shared {
            devices: DeviceTable::new(devices),
            vms: VmDirectory::new(config.vms, in_file),
            disks: OpenDisks::new(files, catalogue, config.daemon.open_within, own),
            persistence: Persistence::new(store, Duration::from_nanos(interval.0)),
            transfers: Transfers::new(transfers_changed),
            history,
            recordings,
            membership: (config.cluster).map(|cluster| Arc::new(Membership::new(&cluster.host))),
            paths: config.paths,
            config: config.daemon,
            listeners: config.listeners,
            half_open: HalfOpenTables::default(),
            config_file: config.file.and_then(|file| std::path::absolute(file).ok()),
            sections: config.sections,
            gate: ChangeGate::default(),
            unsent: Unsent::default(),
            stop: Notify::new(),
            outcome: Outcome::default(),
        });
        DaemonHandle { shared }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the devices with the channels to their event loops.
    pub fn devices(&self) -> &DeviceTable {
        &self.shared.devices
    }

    /// Returns the VMs that are served now.
    pub fn vms(&self) -> &VmDirectory {
        &self.shared.vms
    }

    /// Returns the store; `None` if the configuration names none. Its methods may block on the
    /// disk, so call them on a thread that may block.
    pub fn store(&self) -> Option<&Arc<Store>> {
        self.shared.persistence.store()
    }

    /// Returns the list of files that the disks of all devices have open.
    pub(super) fn files(&self) -> Files {
        self.shared.disks.files().clone()
    }

    /// Returns the section `[daemon]` of the configuration.
    pub(super) fn config(&self) -> DaemonConfig {
        self.shared.config
    }

    /// Returns the section `[paths]` of the configuration, for disks that come by the API.
    pub fn paths(&self) -> &PathsConfig {
        &self.shared.paths
    }

    /// Returns the listeners for clients of disks, in the order of the configuration.
    pub fn listeners(&self) -> &[ListenConfig] {
        &self.shared.listeners
    }

    /// Returns the half-open connections of all listeners: those of clients that have not chosen an
    /// export yet, or whose TLS handshake with the control API or metrics is not done.
    pub fn half_open(&self) -> &HalfOpenTables {
        &self.shared.half_open
    }

    /// Returns the configuration of a VM that is served.
    pub fn vm(&self, name: &str) -> Option<VmConfig> {
        self.shared.vms.get(name)
    }

    /// Changes the maximum number of connections of a VM; connections beyond a lower maximum stay
    /// open. Returns a snapshot of the VM.
    ///
    /// # Errors
    /// If there is no such VM, or its event loop has ended.
    pub async fn set_max_connections(
        &self,
        vm: &str,
        max: u32,
    ) -> Result<VmSnapshot, ControlError> {
        let now = self.vm_snapshot(vm).await?;
        // The counters are shared with the listeners, so the event loop need not be told.
        now.connections.set_max(max);
        self.shared.vms.change(vm, |vm| vm.max_connections = max);
        Ok(now)
    }

    /// Returns a snapshot of a device.
    ///
    /// # Errors
    /// If there is no such device or its loop has ended.
    pub async fn snapshot(&self, device: usize) -> Result<DeviceSnapshot, ControlError> {
        self.shared.devices.snapshot(device).await
    }

    /// Returns a snapshot of a VM.
    ///
    /// # Errors
    /// If there is no such VM or its loop has ended.
    pub async fn vm_snapshot(&self, vm: &str) -> Result<VmSnapshot, ControlError> {
        let look = |vm, reply| Command::SnapshotVm { vm, reply };
        self.ask_of(vm, look).await
    }

    /// Replaces the objective of a VM that is in force now, not its schedule. Returns the VM's
    /// snapshot.
    ///
    /// # Errors
    /// If there is no such VM, the engine refuses the objective, or the loop has ended.
    pub async fn set_objective(
        &self,
        vm: &str,
        objective: Objective,
    ) -> Result<VmSnapshot, ControlError> {
        let boxed = Box::new(objective);
        let set = self.ask_of(vm, |vm, reply| Command::SetObjective {
            vm,
            objective: boxed,
            reply,
        });
        let now = set.await?;
        // The directory follows the loop, which may have refused.
        self.shared.vms.set_objective(vm, objective);
        Ok(now)
    }

    /// Replaces a device's policy and returns a snapshot of the device.
    ///
    /// # Errors
    /// If there is no such device, the engine refuses the policy, or the loop has ended.
    pub async fn set_policy(
        &self,
        device: usize,
        policy: PolicySpec,
    ) -> Result<DeviceSnapshot, ControlError> {
        self.shared.devices.set_policy(device, policy).await
    }

    /// Changes the fault rules of a disk and returns a snapshot of the disk.
    ///
    /// # Errors
    /// If there is no such device, export or rule, the rule is refused, or the loop has ended.
    pub async fn change_faults(
        &self,
        device: usize,
        export: &str,
        change: FaultChange,
    ) -> Result<DiskSnapshot, ControlError> {
        let devices = &self.shared.devices;
        devices.change_faults(device, export, change).await
    }

    /// Begins a deadline transfer of a VM; `at` is the present time. Returns the VM's snapshot.
    ///
    /// # Errors
    /// If there is no such VM, it has a transfer and `replace` is not set, the engine refuses the
    /// transfer, or the loop has ended.
    pub async fn begin_transfer(
        &self,
        vm: &str,
        order: TransferOrder,
        at: Timestamp,
    ) -> Result<VmSnapshot, ControlError> {
        let begin = |vm, reply| Command::BeginTransfer {
            vm,
            order,
            at,
            reply,
        };
        self.ask_of(vm, begin).await
    }

    /// Cancels the deadline transfer of a VM and returns the VM's snapshot.
    ///
    /// # Errors
    /// If there is no such VM, it has no transfer, or the loop has ended.
    pub async fn cancel_transfer(&self, vm: &str) -> Result<VmSnapshot, ControlError> {
        self.ask_of(vm, |vm, reply| Command::CancelTransfer { vm, reply })
            .await
    }

    /// Writes the deadline transfers of a VM's device to the store, durably. Returns false if the
    /// configuration names no store.
    ///
    /// # Errors
    /// If there is no such VM, its loop has ended, or the store cannot be written.
    pub async fn persist_transfers(&self, vm: &str) -> Result<bool, ControlError> {
        let device = self.shared.vms.device_of(vm)?;
        let Shared {
            devices,
            persistence,
            transfers,
            ..
        } = &*self.shared;
        transfers.snapshot(devices, persistence, device).await
    }

    /// Returns the state that the policy has learnt of a VM, as a file.
    ///
    /// # Errors
    /// If there is no such VM, nothing was learnt of it, or its loop has ended.
    pub async fn export_vm(&self, name: &str) -> Result<LearntStateFile, ControlError> {
        self.learnt().export(name).await
    }

    /// Passes learnt state of a VM, from this or another daemon, to the policy. Returns the VM's
    /// snapshot, and notes for the operator.
    ///
    /// # Errors
    /// If there is no such VM, the policy in force rejects the state, or the loop has ended.
    /// Nothing has changed then.
    pub async fn import_vm(
        &self,
        name: &str,
        file: &LearntStateFile,
        disks: LearntDisks,
    ) -> Result<(VmSnapshot, Vec<String>), ControlError> {
        self.learnt().import(name, file, disks).await
    }

    /// Adds a VM, creates and opens its files as at start, and returns its snapshot.
    ///
    /// # Errors
    /// If a name is in use, a disk cannot be opened, or the device is full. Nothing has changed
    /// then, except that files that were created are left.
    pub async fn add_vm(&self, vm: VmConfig) -> Result<VmSnapshot, ControlError> {
        self.changes().add_vm(vm).await
    }

    /// Removes a VM. Returns the disks that could not be flushed, with the reasons.
    ///
    /// # Errors
    /// If there is no such VM, or clients are connected and `force` is not set.
    pub async fn remove_vm(&self, name: &str, force: bool) -> Result<Vec<String>, ControlError> {
        self.changes().remove_vm(name, force).await
    }

    /// Adds a disk to a VM and returns the VM's snapshot.
    ///
    /// # Errors
    /// Those of [`DaemonHandle::add_vm`].
    pub async fn add_disk(&self, vm: &str, disk: DiskConfig) -> Result<VmSnapshot, ControlError> {
        self.changes().add_disk(vm, disk).await
    }

    /// Removes a disk of a VM. Returns the reason if it could not be flushed.
    ///
    /// # Errors
    /// If there is no such disk, it is the only one of its VM, or clients are connected and `force`
    /// is not set.
    pub async fn remove_disk(
        &self,
        vm: &str,
        export: &str,
        force: bool,
    ) -> Result<Vec<String>, ControlError> {
        self.changes().remove_disk(vm, export, force).await
    }

    /// Changes the size of a disk, in bytes, and returns the VM's snapshot. A smaller size requires
    /// `force`. If the disk has the size already, it is made durable.
    ///
    /// # Errors
    /// If there is no such disk, the size is not possible, or it is smaller and `force` is not set.
    /// The size has not changed then, except with [`ControlError::NotDurable`].
    pub async fn resize_disk(
        &self,
        vm: &str,
        export: &str,
        size: u64,
        force: bool,
    ) -> Result<VmSnapshot, ControlError> {
        self.changes().resize_disk(vm, export, size, force).await
    }

    /// Writes a VM to the store as it is now, durably: the complete VM, or only the objective if
    /// the configuration file names the VM.
    ///
    /// # Errors
    /// If there is no store, no such VM, or the store cannot be written.
    pub async fn persist(&self, name: &str) -> Result<(), ControlError> {
        let Shared {
            devices,
            vms,
            persistence,
            ..
        } = &*self.shared;
        // Before the VM is looked up: without a store no VM can be persisted.
        if persistence.store().is_none() {
            return Err(ControlError::NoStore);
        }
        let vm = vms.find(name)?;
        let device = devices.name(vm.device);
        let is_configured = vms.is_configured(name);
        // A VM of the configuration file keeps its disks there; the store adds only its objective.
        persistence.put_vm(vm, device, is_configured).await
    }

    /// Checks that the store's records of a VM may be deleted.
    ///
    /// # Errors
    /// If there is no store, or the configuration file names the VM and would bring it back.
    pub(crate) fn may_forget(&self, name: &str) -> Result<(), ControlError> {
        let Shared {
            vms, persistence, ..
        } = &*self.shared;
        persistence.may_forget(name, vms)
    }

    /// Deletes the store's records of a VM, durably: the VM, its deadline transfer and its learnt
    /// states. Returns true if there were any.
    ///
    /// # Errors
    /// If there is no store, the configuration file names the VM, or the store cannot be written.
    pub(crate) async fn forget_vm(&self, name: &str) -> Result<bool, ControlError> {
        let Shared {
            vms, persistence, ..
        } = &*self.shared;
        persistence.forget_vm(name, vms).await
    }

    /// Deletes the store's record of a disk, durably, by its export name or its absolute path, so
    /// that a new file may be created there. Returns false if there is no such record.
    ///
    /// # Errors
    /// If the disk is being served, there is no store, or the store cannot be written.
    pub(crate) async fn forget_disk(&self, name: &str) -> Result<bool, ControlError> {
        let Shared {
            vms,
            disks,
            persistence,
            ..
        } = &*self.shared;
        persistence.forget_disk(name, disks.files(), vms).await
    }

    /// Returns true if the store's record of a VM names this disk.
    ///
    /// # Errors
    /// If there is no store, or it cannot be read.
    pub(crate) async fn persists_disk(&self, vm: &str, export: &str) -> Result<bool, ControlError> {
        self.shared.persistence.has_disk(vm, export).await
    }

    /// Returns a reason for each VM in the store that is not served.
    pub fn problems(&self) -> Vec<Reason> {
        self.shared.persistence.problems(&self.shared.vms)
    }

    /// Restores the state in the store. See [`Daemon::restore`](super::Daemon::restore).
    pub(super) async fn restore(&self, taken: Option<&ServedVms>) {
        Restore::new(&self.shared).run(taken).await;
    }

    /// Begins an orderly end, as SIGTERM does. [`Daemon::run`](super::Daemon::run) returns once it
    /// is complete.
    pub fn shut_down(&self) {
        self.shared.stop.notify_one();
    }

    /// Completes when [`DaemonHandle::shut_down`] is called.
    pub(super) async fn stopped(&self) {
        self.shared.stop.notified().await;
    }

    fn learnt(&self) -> LearntVmStates<'_> {
        LearntVmStates::new(&self.shared.devices, &self.shared.vms)
    }

    fn changes(&self) -> Changes<'_> {
        Changes::new(&self.shared)
    }

    /// Sends a command about a VM to its device's event loop and waits for the answer.
    async fn ask_of<T>(
        &self,
        vm: &str,
        command: impl FnOnce(String, oneshot::Sender<Result<T, CommandError>>) -> Command,
    ) -> Result<T, ControlError> {
        let device = self.shared.vms.device_of(vm)?;
        let name = vm.to_owned();
        let devices = &self.shared.devices;
        Ok(devices.ask(device, |reply| command(name, reply)).await??)
    }
}

/// Returns the membership of a daemon in a cluster; `None` if its configuration has no `[cluster]`.
pub fn membership_of(daemon: &DaemonHandle) -> Option<&Arc<Membership>> {
    daemon.shared.membership.as_ref()
}

/// Returns the devices of a daemon with their standing reservations, as a member of a cluster
/// publishes them; asks no event loop.
pub fn published_devices(daemon: &DaemonHandle) -> Vec<PublishedDevice> {
    let now = Timestamp::now();
    let configs = daemon.shared.devices.configs();
    let devices = configs.iter().enumerate().map(|(at, device)| {
        let vms = daemon.shared.vms.on_device(at);
        PublishedDevice {
            name: device.name.clone(),
            vms: vms.iter().map(|vm| vm.name.clone()).collect(),
            reserved_bytes_per_s: feasibility::standing_reservation(device, &vms, now),
        }
    });
    devices.collect()
}
