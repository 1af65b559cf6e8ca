//! Operations of the daemon that the API uses, as traits: [`DaemonHandle`] implements them, tests
//! substitute their own.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_api::health::Reason;
use tidegate_api::query::LearntDisks;
use tidegate_core::objective::{Limit, Objective};
use tidegate_policies::policy::PolicySpec;

use crate::command::{DeviceSnapshot, DiskSnapshot, FaultChange, VmSnapshot};
use crate::config::{DeviceConfig, DiskConfig, ListenConfig, PathsConfig, Schedule, VmConfig};
use crate::daemon::{self, ChangeGate, ControlError, DaemonHandle, DeviceRecordings, DiskLimits};
use crate::history::History;
use crate::learnt_state_file::LearntStateFile;
use crate::listener::HandshakeCounts;
use crate::membership::Membership;
use crate::recording::Recordings;
use crate::transfer::TransferOrder;

/// All operations of the daemon that the API uses.
pub(crate) trait Plane:
    Inventory + Loops + Changes + Persistence + Clone + Send + Sync + 'static
{
}

impl<P> Plane for P where
    P: Inventory + Loops + Changes + Persistence + Clone + Send + Sync + 'static
{
}

/// State that the daemon has without asking an event loop. Devices are identified by index.
pub(crate) trait Inventory {
    /// Returns the names of all devices with the names of their VMs.
    fn devices(&self) -> Vec<(String, Vec<String>)>;

    /// Returns the configurations of all devices, by index.
    fn device_configs(&self) -> Vec<DeviceConfig>;

    /// Returns the rules for paths of disks that come by the API.
    fn paths(&self) -> PathsConfig;

    /// Returns the listeners for clients of disks, in the order of the configuration.
    fn listeners(&self) -> Vec<ListenConfig>;

    /// Returns the configuration of a VM that is served now.
    fn vm(&self, name: &str) -> Option<VmConfig>;

    /// Returns the configurations of the VMs that are served now on a device.
    fn vms_of(&self, device: usize) -> Vec<VmConfig>;

    /// Returns the VMs that are served now and have a schedule.
    fn scheduled(&self) -> Vec<VmConfig>;

    /// Returns true if the configuration file names the VM.
    fn is_configured(&self, vm: &str) -> bool;

    /// Returns a disk as the configuration file has it; `None` if the file does not have it, or
    /// gives no size of it.
    fn sized_by_configuration(&self, vm: &str, export: &str) -> Option<DiskConfig>;

    /// Counts of half-open connections and of handshakes that failed.
    fn handshakes(&self) -> HandshakeCounts;

    /// Returns the gate for changes.
    fn change_gate(&self) -> ChangeGate {
        ChangeGate::default()
    }

    /// Returns the time since the daemon started.
    fn uptime(&self) -> Duration;

    /// Returns the problems that the devices' snapshots do not show.
    fn problems(&self) -> Vec<Reason>;

    /// Returns the history; `None` if it is turned off.
    fn history(&self) -> Option<Arc<History>>;

    /// Returns the recordings of requests.
    fn recordings(&self) -> Arc<Recordings>;

    /// Returns the membership in a cluster; `None` for a daemon that joins none.
    fn membership(&self) -> Option<Arc<Membership>> {
        None
    }
}

/// Questions and changes that an event loop answers.
pub(crate) trait Loops {
    /// Returns a snapshot of one VM.
    fn vm_snapshot(
        &self,
        vm: &str,
    ) -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// Returns a snapshot of a device with all its VMs.
    fn snapshot(
        &self,
        device: usize,
    ) -> impl Future<Output = Result<DeviceSnapshot, ControlError>> + Send;

    /// Replaces the objective of a VM that is in force now, not its schedule.
    fn set_objective(
        &self,
        vm: &str,
        objective: Objective,
    ) -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// Replaces the schedule of a VM from now on. The objective in force stays.
    fn set_schedule(&self, vm: &str, schedule: Option<Arc<Schedule>>);

    /// Changes the maximum number of connections of a VM.
    fn set_max_connections(
        &self,
        vm: &str,
        max: u32,
    ) -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// Replaces a device's policy.
    fn set_policy(
        &self,
        device: usize,
        policy: PolicySpec,
    ) -> impl Future<Output = Result<DeviceSnapshot, ControlError>> + Send;

    /// Replaces the limits of a disk: its own, and the name of the limit group whose limit it
    /// shares.
    fn set_disk_limits(
        &self,
        vm: &str,
        export: &str,
        limit: Limit,
        group: Option<String>,
    ) -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// Replaces a limit that disks of a device share.
    fn set_group_limit(
        &self,
        device: usize,
        group: &str,
        limit: Limit,
    ) -> impl Future<Output = Result<DeviceSnapshot, ControlError>> + Send;

    /// Changes the fault rules of a disk of a device.
    fn change_faults(
        &self,
        device: usize,
        export: &str,
        change: FaultChange,
    ) -> impl Future<Output = Result<DiskSnapshot, ControlError>> + Send;

    /// Switches the recording of a device's requests on or off.
    fn set_recording(
        &self,
        device: usize,
        on: bool,
    ) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Begins a deadline transfer of a VM; `at` is the present time.
    fn begin_transfer(
        &self,
        vm: &str,
        order: TransferOrder,
        at: Timestamp,
    ) -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// Cancels the deadline transfer of a VM.
    fn cancel_transfer(
        &self,
        vm: &str,
    ) -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// Returns the state that the policy has learnt of a VM.
    fn export_vm(
        &self,
        vm: &str,
    ) -> impl Future<Output = Result<LearntStateFile, ControlError>> + Send;

    /// Passes learnt state of a VM to the policy. Returns the VM and notes for the client.
    fn import_vm(
        &self,
        vm: &str,
        file: &LearntStateFile,
        disks: LearntDisks,
    ) -> impl Future<Output = Result<(VmSnapshot, Vec<String>), ControlError>> + Send;
}

/// Changes of VMs and disks.
pub(crate) trait Changes {
    /// Adds a VM.
    fn add_vm(&self, vm: VmConfig)
    -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// Removes a VM. Returns the disks that could not be flushed, with the reasons.
    fn remove_vm(
        &self,
        name: &str,
        force: bool,
    ) -> impl Future<Output = Result<Vec<String>, ControlError>> + Send;

    /// Adds a disk to a VM.
    fn add_disk(
        &self,
        vm: &str,
        disk: DiskConfig,
    ) -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// Removes a disk of a VM. Returns the reason if it could not be flushed.
    fn remove_disk(
        &self,
        vm: &str,
        export: &str,
        force: bool,
    ) -> impl Future<Output = Result<Vec<String>, ControlError>> + Send;

    /// Changes the size of a disk, in bytes; a smaller size requires `force`.
    fn resize_disk(
        &self,
        vm: &str,
        export: &str,
        size: u64,
        force: bool,
    ) -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;
}

/// State that survives a restart.
pub(crate) trait Persistence {
    /// Writes a VM to the store as it is now.
    fn persist_vm(&self, vm: &str) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Deletes the records of a VM. Returns false if there were none.
    fn forget_vm(&self, vm: &str) -> impl Future<Output = Result<bool, ControlError>> + Send;

    /// Checks that the records of a VM may be deleted.
    fn may_forget(&self, vm: &str) -> Result<(), ControlError>;

    /// Forgets a disk that was served before, so that a new one may be created at its path. Returns
    /// false if the store does not know it.
    fn forget_disk(&self, name: &str) -> impl Future<Output = Result<bool, ControlError>> + Send;

    /// Returns true if the VM's record in the store has a disk with this export name.
    fn persists_disk(
        &self,
        vm: &str,
        export: &str,
    ) -> impl Future<Output = Result<bool, ControlError>> + Send;

    /// Writes the deadline transfers of the VM's device to the store. Returns false if the
    /// configuration names no store.
    fn persist_transfers(
        &self,
        vm: &str,
    ) -> impl Future<Output = Result<bool, ControlError>> + Send;
}

impl Inventory for DaemonHandle {
    fn devices(&self) -> Vec<(String, Vec<String>)> {
        let entries = DaemonHandle::devices(self).entries().iter().enumerate();
        entries
            .map(|(i, device)| (device.name().to_owned(), self.vms().names_on(i)))
            .collect()
    }

    fn device_configs(&self) -> Vec<DeviceConfig> {
        DaemonHandle::devices(self).configs()
    }

    fn paths(&self) -> PathsConfig {
        DaemonHandle::paths(self).clone()
    }

    fn listeners(&self) -> Vec<ListenConfig> {
        DaemonHandle::listeners(self).to_vec()
    }

    fn vm(&self, name: &str) -> Option<VmConfig> {
        DaemonHandle::vm(self, name)
    }

    fn vms_of(&self, device: usize) -> Vec<VmConfig> {
        self.vms().on_device(device)
    }

    fn scheduled(&self) -> Vec<VmConfig> {
        self.vms().scheduled()
    }

    fn is_configured(&self, vm: &str) -> bool {
        self.vms().is_configured(vm)
    }

    fn sized_by_configuration(&self, vm: &str, export: &str) -> Option<DiskConfig> {
        self.vms().sized_by_configuration(vm, export)
    }

    fn handshakes(&self) -> HandshakeCounts {
        self.half_open().counts()
    }

    fn change_gate(&self) -> ChangeGate {
        daemon::change_gate_of(self)
    }

    fn uptime(&self) -> Duration {
        DaemonHandle::devices(self).uptime()
    }

    fn problems(&self) -> Vec<Reason> {
        DaemonHandle::problems(self)
    }

    fn history(&self) -> Option<Arc<History>> {
        daemon::history_of(self)
    }

    fn recordings(&self) -> Arc<Recordings> {
        DeviceRecordings::of(self).state().clone()
    }

    fn membership(&self) -> Option<Arc<Membership>> {
        daemon::membership_of(self).cloned()
    }
}

impl Loops for DaemonHandle {
    async fn set_disk_limits(
        &self,
        vm: &str,
        export: &str,
        limit: Limit,
        group: Option<String>,
    ) -> Result<VmSnapshot, ControlError> {
        DiskLimits::of(self)
            .set_disk([vm, export], limit, group)
            .await
    }

    async fn set_group_limit(
        &self,
        device: usize,
        group: &str,
        limit: Limit,
    ) -> Result<DeviceSnapshot, ControlError> {
        DiskLimits::of(self).set_group(device, group, limit).await
    }

    async fn vm_snapshot(&self, vm: &str) -> Result<VmSnapshot, ControlError> {
        DaemonHandle::vm_snapshot(self, vm).await
    }

    async fn snapshot(&self, device: usize) -> Result<DeviceSnapshot, ControlError> {
        DaemonHandle::snapshot(self, device).await
    }

    async fn set_objective(
        &self,
        vm: &str,
        objective: Objective,
    ) -> Result<VmSnapshot, ControlError> {
        DaemonHandle::set_objective(self, vm, objective).await
    }

    fn set_schedule(&self, vm: &str, schedule: Option<Arc<Schedule>>) {
        self.vms().set_schedule(vm, schedule);
    }

    async fn set_max_connections(&self, vm: &str, max: u32) -> Result<VmSnapshot, ControlError> {
        DaemonHandle::set_max_connections(self, vm, max).await
    }

    async fn set_policy(
        &self,
        device: usize,
        policy: PolicySpec,
    ) -> Result<DeviceSnapshot, ControlError> {
        DaemonHandle::set_policy(self, device, policy).await
    }

    async fn change_faults(
        &self,
        device: usize,
        export: &str,
        change: FaultChange,
    ) -> Result<DiskSnapshot, ControlError> {
        DaemonHandle::change_faults(self, device, export, change).await
    }

    async fn set_recording(&self, device: usize, on: bool) -> Result<(), ControlError> {
        DeviceRecordings::of(self).switch(device, on).await
    }

    async fn begin_transfer(
        &self,
        vm: &str,
        order: TransferOrder,
        at: Timestamp,
    ) -> Result<VmSnapshot, ControlError> {
        DaemonHandle::begin_transfer(self, vm, order, at).await
    }

    async fn cancel_transfer(&self, vm: &str) -> Result<VmSnapshot, ControlError> {
        DaemonHandle::cancel_transfer(self, vm).await
    }

    async fn export_vm(&self, vm: &str) -> Result<LearntStateFile, ControlError> {
        DaemonHandle::export_vm(self, vm).await
    }

    async fn import_vm(
        &self,
        vm: &str,
        file: &LearntStateFile,
        disks: LearntDisks,
    ) -> Result<(VmSnapshot, Vec<String>), ControlError> {
        DaemonHandle::import_vm(self, vm, file, disks).await
    }
}

impl Changes for DaemonHandle {
    async fn add_vm(&self, vm: VmConfig) -> Result<VmSnapshot, ControlError> {
        DaemonHandle::add_vm(self, vm).await
    }

    async fn remove_vm(&self, name: &str, force: bool) -> Result<Vec<String>, ControlError> {
        DaemonHandle::remove_vm(self, name, force).await
    }

    async fn add_disk(&self, vm: &str, disk: DiskConfig) -> Result<VmSnapshot, ControlError> {
        DaemonHandle::add_disk(self, vm, disk).await
    }

    async fn remove_disk(
        &self,
        vm: &str,
        export: &str,
        force: bool,
    ) -> Result<Vec<String>, ControlError> {
        DaemonHandle::remove_disk(self, vm, export, force).await
    }

    async fn resize_disk(
        &self,
        vm: &str,
        export: &str,
        size: u64,
        force: bool,
    ) -> Result<VmSnapshot, ControlError> {
        DaemonHandle::resize_disk(self, vm, export, size, force).await
    }
}

impl Persistence for DaemonHandle {
    async fn persist_vm(&self, vm: &str) -> Result<(), ControlError> {
        self.persist(vm).await
    }

    async fn forget_vm(&self, vm: &str) -> Result<bool, ControlError> {
        self.forget_vm(vm).await
    }

    fn may_forget(&self, vm: &str) -> Result<(), ControlError> {
        DaemonHandle::may_forget(self, vm)
    }

    async fn forget_disk(&self, name: &str) -> Result<bool, ControlError> {
        DaemonHandle::forget_disk(self, name).await
    }

    async fn persists_disk(&self, vm: &str, export: &str) -> Result<bool, ControlError> {
        self.persists_disk(vm, export).await
    }

    async fn persist_transfers(&self, vm: &str) -> Result<bool, ControlError> {
        self.persist_transfers(vm).await
    }
}
