//! The way to control a daemon that runs: its parts, and what is done with several of them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_api::health::Reason;
use tidegate_api::query::LearntDisks;
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tokio::sync::{Notify, oneshot};

use super::changes::Changes;
use super::devices::{DeviceEntry, DeviceTable};
use super::directory::VmDirectory;
use super::disks::OpenDisks;
use super::learnt::LearntStates;
use super::persistence::Persistence;
use super::restore::Restore;
use super::shared::Shared;
use super::transfers::Transfers;
use crate::command::{
    Command, CommandError, ControlError, DeviceSnapshot, DiskSnapshot, FaultChange, VmSnapshot,
};
use crate::config::{Config, DaemonConfig, DiskConfig, VmConfig};
use crate::event_loop::Files;
use crate::job::JobOrder;
use crate::learnt_file::LearntFile;
use crate::reception::{Catalogue, HalfOpen};
use crate::store::Store;

/// Control of a daemon that runs, cloneable: what the control API is made of.
///
/// Who is served is [`DaemonHandle::vms`], what is asked of a device as a whole
/// [`DaemonHandle::devices`]; the other methods go over several parts.
#[derive(Clone, Debug)]
pub struct DaemonHandle {
    shared: Arc<Shared>,
}

impl DaemonHandle {
    pub(super) fn new(
        devices: Vec<DeviceEntry>,
        config: Config,
        files: Files,
        catalogue: Arc<Catalogue>,
        store: Option<Arc<Store>>,
        news: Arc<Notify>,
    ) -> DaemonHandle {
        let interval = (config.store.as_ref()).map_or(Nanos::MAX, |store| store.learnt_every);
        let own = store.as_ref().map(|store| store.path().to_owned());
        let shared = Arc::new(Shared {
            devices: DeviceTable::new(devices),
            vms: VmDirectory::new(config.vms),
            disks: OpenDisks::new(files, catalogue, config.daemon.open_within, own),
            persistence: Persistence::new(store, Duration::from_nanos(interval.0)),
            transfers: Transfers::new(news),
            base: config.base,
            config: config.daemon,
            half_open: Arc::default(),
            stop: Notify::new(),
        });
        DaemonHandle { shared }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the devices, and the way to their loops.
    pub fn devices(&self) -> &DeviceTable {
        &self.shared.devices
    }

    /// Returns the VMs that are served now.
    pub fn vms(&self) -> &VmDirectory {
        &self.shared.vms
    }

    /// Returns what holds changes that shall survive a restart; `None` where the configuration
    /// names no store. Its calls may wait for the disk: make them where a thread may block.
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

    /// Returns the directory of the configuration, which relative paths are relative to.
    pub fn base(&self) -> &Path {
        &self.shared.base
    }

    /// Returns the half-open connections of all listeners: clients that have not chosen an export
    /// yet.
    pub fn half_open(&self) -> &Arc<HalfOpen> {
        &self.shared.half_open
    }

    /// Returns a VM in the words of the configuration, if it is served.
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
        let now = self.look(vm).await?;
        now.connections.set_max(max);
        self.shared.vms.change(vm, |vm| vm.max_connections = max);
        Ok(now)
    }

    /// Returns a device as it stands.
    ///
    /// # Errors
    /// If there is no such device or its loop has ended.
    pub async fn snapshot(&self, device: usize) -> Result<DeviceSnapshot, ControlError> {
        self.shared.devices.snapshot(device).await
    }

    /// Returns a VM as it stands.
    ///
    /// # Errors
    /// If there is no such VM or its loop has ended.
    pub async fn look(&self, vm: &str) -> Result<VmSnapshot, ControlError> {
        let look = |vm, reply| Command::Look { vm, reply };
        self.ask_of(vm, look).await
    }

    /// Replaces the objective of a VM that is in force now, not its schedule; returns what is in
    /// force.
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
        self.shared.vms.set_objective(vm, objective);
        Ok(now)
    }

    /// Replaces a device's policy; returns what is in force.
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

    /// Changes the fault rules of a disk of a device; returns what is in force.
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

    /// Begins a deadline transfer of a VM, at this time of day.
    ///
    /// # Errors
    /// If there is no such VM, it has a transfer that is not to be replaced, the engine refuses it,
    /// or the loop has ended.
    pub async fn begin_job(
        &self,
        vm: &str,
        order: JobOrder,
        at: Timestamp,
    ) -> Result<VmSnapshot, ControlError> {
        let begin = |vm, reply| Command::BeginJob {
            vm,
            order,
            at,
            reply,
        };
        self.ask_of(vm, begin).await
    }

    /// Cancels the deadline transfer of a VM.
    ///
    /// # Errors
    /// If there is no such VM, it has no transfer, or the loop has ended.
    pub async fn cancel_job(&self, vm: &str) -> Result<VmSnapshot, ControlError> {
        self.ask_of(vm, |vm, reply| Command::CancelJob { vm, reply })
            .await
    }

    /// Writes the deadline transfers of a VM's device to the store as they are now. Returns false
    /// if there is no store; they are durable otherwise.
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

    /// Returns what the policy has learnt of a VM, as a file.
    ///
    /// # Errors
    /// If there is no such VM, nothing was learnt of it, or its loop has ended.
    pub async fn export_vm(&self, name: &str) -> Result<LearntFile, ControlError> {
        self.learnt().export(name).await
    }

    /// Has the policy go on with what was learnt of a VM, here or elsewhere. Returns the VM as it
    /// stands, and notes for people.
    ///
    /// # Errors
    /// If there is no such VM, the policy in force does not take it over, or the loop has ended.
    /// Then nothing has changed.
    pub async fn import_vm(
        &self,
        name: &str,
        file: &LearntFile,
        disks: LearntDisks,
    ) -> Result<(VmSnapshot, Vec<String>), ControlError> {
        self.learnt().import(name, file, disks).await
    }

    /// Serves one more VM; returns what is in force. Its files are made and opened as at the start.
    ///
    /// # Errors
    /// If a name is taken, a disk cannot be opened, or there is no room. Then nothing has changed,
    /// but files that were made are left.
    pub async fn add_vm(&self, vm: VmConfig) -> Result<VmSnapshot, ControlError> {
        self.changes().add_vm(vm).await
    }

    /// Serves a VM no more. Returns what could not be flushed, disk by disk.
    ///
    /// # Errors
    /// If there is no such VM, or clients are connected and it is not forced.
    pub async fn remove_vm(&self, name: &str, force: bool) -> Result<Vec<String>, ControlError> {
        self.changes().remove_vm(name, force).await
    }

    /// Gives a VM one more disk; returns what is in force.
    ///
    /// # Errors
    /// As [`DaemonHandle::add_vm`].
    pub async fn add_disk(&self, vm: &str, disk: DiskConfig) -> Result<VmSnapshot, ControlError> {
        self.changes().add_disk(vm, disk).await
    }

    /// Takes a disk from a VM. Returns what could not be flushed.
    ///
    /// # Errors
    /// If there is no such disk, it is the only one, or clients are connected and it is not forced.
    pub async fn remove_disk(
        &self,
        vm: &str,
        export: &str,
        force: bool,
    ) -> Result<Vec<String>, ControlError> {
        self.changes().remove_disk(vm, export, force).await
    }

    /// Gives a disk another size in bytes, a smaller one only if it is forced; returns what is in
    /// force. A size that it has already is made durable.
    ///
    /// # Errors
    /// If there is no such disk, the size cannot be had, or it is smaller and that is not forced.
    /// Then it stays as it was, but for [`ControlError::NotDurable`].
    pub async fn resize_disk(
        &self,
        vm: &str,
        export: &str,
        size: u64,
        force: bool,
    ) -> Result<VmSnapshot, ControlError> {
        self.changes().resize_disk(vm, export, size, force).await
    }

    /// Writes a VM to the store as it is now: all of it, or the objective of one that the
    /// configuration names. Durable when it returns.
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
        if persistence.store().is_none() {
            return Err(ControlError::NoStore);
        }
        let vm = vms.find(name)?;
        let device = devices.name(vm.device);
        let is_configured = vms.is_configured(name);
        persistence.put_vm(vm, device, is_configured).await
    }

    /// Checks that a VM may be forgotten by the store.
    ///
    /// # Errors
    /// If there is no store, or the configuration names the VM and would bring it back.
    pub(crate) fn may_forget(&self, name: &str) -> Result<(), ControlError> {
        let Shared {
            vms, persistence, ..
        } = &*self.shared;
        persistence.may_forget(name, vms)
    }

    /// Makes the store forget a VM, with its deadline transfer and what was learnt of it. Returns
    /// true if there was anything. Durable when it returns.
    ///
    /// # Errors
    /// If there is no store, the configuration names the VM, or the store cannot be written.
    pub(crate) async fn forget_vm(&self, name: &str) -> Result<bool, ControlError> {
        let Shared {
            vms, persistence, ..
        } = &*self.shared;
        persistence.forget_vm(name, vms).await
    }

    /// Makes the store forget a disk that was served before, by its export name or its absolute
    /// path, so that a new one may be created there. Durable on return. Returns false if the store
    /// does not know the disk.
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

    /// Returns a reason for each persisted VM that is not served.
    pub fn problems(&self) -> Vec<Reason> {
        self.shared.persistence.problems(&self.shared.vms)
    }

    /// Takes up what the store has. See [`Daemon::restore`](super::Daemon::restore).
    pub(super) async fn restore(&self) {
        Restore::new(&self.shared).all().await;
    }

    /// Begins an orderly end, as SIGTERM does. [`Daemon::run`](super::Daemon::run) returns when
    /// it is done.
    pub fn shut_down(&self) {
        self.shared.stop.notify_one();
    }

    /// Ends when [`DaemonHandle::shut_down`] was called.
    pub(super) async fn stopped(&self) {
        self.shared.stop.notified().await;
    }

    fn learnt(&self) -> LearntStates<'_> {
        LearntStates::new(&self.shared.devices, &self.shared.vms)
    }

    fn changes(&self) -> Changes<'_> {
        Changes::new(&self.shared)
    }

    /// Sends a command about a VM to its device's loop and waits for the answer to it.
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
