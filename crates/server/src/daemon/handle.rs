//! The way to control a daemon that runs: what it serves, and the questions to its loops.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tokio::sync::{Notify, oneshot};

use crate::command::{
    Command, ControlError, DeviceSnapshot, DiskSnapshot, FaultChange, VmSnapshot,
};
use crate::config::{Config, DeviceConfig, Schedule, VmConfig};
use crate::connections::VmConnections;
use crate::event_loop::{Files, LoopHandle};
use crate::frontend::{Volume, nbd};
use crate::identity::LiesOn;
use crate::reception::{Catalogue, HalfOpen, Offer};
use crate::store::Store;

/// A loop answers in its next turn. One that does not is in trouble, and the end shall not wait.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// What there is to control, cloneable: the control API's view of the running daemon.
#[derive(Clone, Debug)]
pub struct DaemonHandle {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    devices: Vec<DeviceEntry>,
    /// What relative paths are relative to.
    base: PathBuf,
    /// Who is served now, in the order in which they came. Each change is made whole while this
    /// is held, and nothing is waited for.
    pub(super) vms: Mutex<Vec<VmConfig>>,
    /// Files that the disks of all devices have open.
    pub(super) files: Files,
    /// Deadline for opening a disk's file.
    pub(super) open_within: Duration,
    /// Deadline for an orderly end.
    stop_within: Duration,
    pub(super) catalogue: Arc<Catalogue>,
    half_open: Arc<HalfOpen>,
    store: Option<Arc<Store>>,
    learnt_every: Nanos,
    /// The VMs that the configuration names.
    pub(super) configured: BTreeSet<String>,
    /// VMs that are kept and not served, and why.
    pub(super) not_served: Mutex<BTreeMap<String, String>>,
    /// Held while jobs are asked for and kept.
    pub(super) keeping_jobs: tokio::sync::Mutex<()>,
    /// Told when a job has ended.
    pub(super) news: Arc<Notify>,
    /// Memory of what was removed is about to be given back.
    pub(super) trimming: Arc<AtomicBool>,
    stop: Notify,
}

/// A device's fixed facts and the way to its loop.
#[derive(Debug)]
pub struct DeviceEntry {
    /// What it was configured as.
    pub(super) config: DeviceConfig,
    pub(super) handle: LoopHandle,
}

impl DeviceEntry {
    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Offers a volume of the device to NBD clients.
    pub(super) fn offer(&self, volume: Volume, connections: Arc<VmConnections>) -> Offer {
        let handle = self.handle.clone();
        Offer {
            export: nbd::export(volume),
            handle,
            connections,
        }
    }
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
        let configured = config.vms.iter().map(|vm| vm.name.clone()).collect();
        let shared = Arc::new(Shared {
            devices,
            learnt_every: (config.store.as_ref()).map_or(Nanos::MAX, |store| store.learnt_every),
            base: config.base,
            vms: Mutex::new(config.vms),
            files,
            open_within: config.daemon.open_within,
            stop_within: config.daemon.stop_within,
            catalogue,
            half_open: Arc::default(),
            store,
            configured,
            not_served: Mutex::default(),
            keeping_jobs: tokio::sync::Mutex::default(),
            news,
            trimming: Arc::default(),
            stop: Notify::new(),
        });
        DaemonHandle { shared }
    }

    /// What keeps changes that shall survive a restart; `None` where the configuration names no
    /// store. Its calls may wait for the disk: make them where a thread may block.
    pub fn store(&self) -> Option<&Arc<Store>> {
        self.shared.store.as_ref()
    }

    /// How often what controllers have learnt is kept.
    pub(crate) fn learnt_every(&self) -> Duration {
        Duration::from_nanos(self.shared.learnt_every.0)
    }

    /// Returns the list of files that the disks of all devices have open.
    pub(super) fn files(&self) -> Files {
        self.shared.files.clone()
    }

    /// Returns the deadline for an orderly end.
    pub(super) fn stop_within(&self) -> Duration {
        self.shared.stop_within
    }

    /// What relative paths are relative to: the directory of the configuration.
    pub fn base(&self) -> &Path {
        &self.shared.base
    }

    /// Returns the half-open connections of all listeners: clients that have not chosen an export
    /// yet.
    pub fn half_open(&self) -> &Arc<HalfOpen> {
        &self.shared.half_open
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
        self.change_vm(vm, |vm| vm.max_connections = max);
        Ok(now)
    }

    /// What the devices were configured as.
    pub fn device_configs(&self) -> Vec<DeviceConfig> {
        let devices = self.devices().iter();
        devices.map(|device| device.config.clone()).collect()
    }

    /// A VM that is served now, in the words of the configuration.
    pub fn vm(&self, name: &str) -> Option<VmConfig> {
        self.vms().iter().find(|vm| vm.name == name).cloned()
    }

    /// All VMs that are served now, in the words of the configuration, with what they are promised.
    pub fn all_vms(&self) -> Vec<VmConfig> {
        self.vms().clone()
    }

    /// The VMs that are served now and have a schedule.
    pub fn scheduled(&self) -> Vec<VmConfig> {
        let vms = self.vms();
        let scheduled = vms.iter().filter(|vm| vm.schedule.is_some());
        scheduled.cloned().collect()
    }

    /// Has a VM go by another schedule from now on, or by none. What is in force stays so.
    pub fn set_schedule(&self, vm: &str, schedule: Option<Arc<Schedule>>) {
        self.change_vm(vm, |vm| vm.schedule = schedule);
    }

    /// What the disks of a device lie on now.
    pub(crate) fn lies_on(&self, device: usize) -> LiesOn {
        LiesOn::of(&self.devices()[device].config.kind, &self.vms_of(device))
    }

    /// The VMs of a device, in the words of the configuration, with what they are promised now.
    pub fn vms_of(&self, device: usize) -> Vec<VmConfig> {
        let vms = self.vms();
        let theirs = vms.iter().filter(|vm| vm.device == device);
        theirs.cloned().collect()
    }

    /// The names of the VMs of a device.
    pub fn names_of(&self, device: usize) -> Vec<String> {
        let vms = self.vms();
        let theirs = vms.iter().filter(|vm| vm.device == device);
        theirs.map(|vm| vm.name.clone()).collect()
    }

    pub(super) fn vms(&self) -> MutexGuard<'_, Vec<VmConfig>> {
        // Each change is whole, whoever panicked.
        (self.shared.vms.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn stopped(&self) {
        self.shared.stop.notified().await;
    }

    /// The devices in the order of the configuration.
    pub fn devices(&self) -> &[DeviceEntry] {
        &self.shared.devices
    }

    /// The index of the device that a VM lives on.
    pub fn device_of(&self, vm: &str) -> Option<usize> {
        self.vm(vm).map(|vm| vm.device)
    }

    /// Sends a command to the loop of a device.
    ///
    /// # Errors
    /// When there is no such device or its loop has ended.
    pub fn send(&self, device: usize, command: Command) -> Result<(), ControlError> {
        let entry = self
            .devices()
            .get(device)
            .ok_or_else(|| ControlError::UnknownDevice(device.to_string()))?;
        entry
            .handle
            .send(command)
            .map_err(|_| ControlError::Gone(entry.name().to_owned()))
    }

    /// A device as it stands.
    ///
    /// # Errors
    /// When there is no such device or its loop has ended.
    pub async fn snapshot(&self, device: usize) -> Result<DeviceSnapshot, ControlError> {
        self.ask(device, |reply| Command::Snapshot { reply }).await
    }

    /// A VM as it stands.
    ///
    /// # Errors
    /// When there is no such VM or its loop has ended.
    pub async fn look(&self, vm: &str) -> Result<VmSnapshot, ControlError> {
        let device = self
            .device_of(vm)
            .ok_or_else(|| ControlError::UnknownVm(vm.to_owned()))?;
        let vm = vm.to_owned();
        Ok(self
            .ask(device, |reply| Command::Look { vm, reply })
            .await??)
    }

    /// Replaces what a VM is promised now, not its schedule; answers with what is in force.
    ///
    /// # Errors
    /// When there is no such VM, the engine refuses the objective, or the loop has ended.
    pub async fn set_objective(
        &self,
        vm: &str,
        objective: Objective,
    ) -> Result<VmSnapshot, ControlError> {
        let device = self
            .device_of(vm)
            .ok_or_else(|| ControlError::UnknownVm(vm.to_string()))?;
        let vm = vm.to_string();
        let (name, promised) = (vm.clone(), objective);
        let objective = Box::new(objective);
        let answer = self
            .ask(device, |reply| Command::SetObjective {
                vm,
                objective,
                reply,
            })
            .await??;
        if let Some(vm) = self.vms().iter_mut().find(|vm| vm.name == name) {
            vm.objective = promised;
        }
        Ok(answer)
    }

    /// Replaces a device's policy; answers with what is in force.
    ///
    /// # Errors
    /// When there is no such device, the engine refuses the policy, or the loop has ended.
    pub async fn set_policy(
        &self,
        device: usize,
        policy: PolicySpec,
    ) -> Result<DeviceSnapshot, ControlError> {
        let answer = self
            .ask(device, |reply| Command::SetPolicy { policy, reply })
            .await?;
        Ok(answer?)
    }

    /// Changes what goes wrong on purpose with a disk of a device; answers with what is in force.
    ///
    /// # Errors
    /// When there is no such device, export or rule, the rule is refused, or the loop has ended.
    pub async fn change_faults(
        &self,
        device: usize,
        export: &str,
        change: FaultChange,
    ) -> Result<DiskSnapshot, ControlError> {
        let export = export.to_owned();
        let answer = self
            .ask(device, |reply| Command::ChangeFaults {
                export,
                change,
                reply,
            })
            .await?;
        Ok(answer?)
    }

    /// Begins an orderly end, as SIGTERM does. [`Daemon::run`](super::Daemon::run) returns when
    /// it is done.
    pub fn shut_down(&self) {
        self.shared.stop.notify_one();
    }

    /// Sends a command and waits for the answer to it.
    pub(crate) async fn ask<T>(
        &self,
        device: usize,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, ControlError> {
        let (reply, answer) = oneshot::channel();
        self.send(device, command(reply))?;
        answer
            .await
            .map_err(|_| ControlError::Gone(self.devices()[device].name().to_owned()))
    }
}
