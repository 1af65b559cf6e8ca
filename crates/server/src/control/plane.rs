//! What the API needs of the daemon; the daemon's handle has it, tests bring their own.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use tidegate_api::health::Reason;
use tidegate_api::query::LearntDisks;
use tidegate_core::objective::Objective;
use tidegate_policies::policy::PolicySpec;

use crate::command::{DeviceSnapshot, DiskSnapshot, FaultChange, VmSnapshot};
use crate::config::{DeviceConfig, DiskConfig, Schedule, VmConfig};
use crate::daemon::{ControlError, DaemonHandle};
use crate::job::JobOrder;
use crate::learnt_file::LearntFile;
use crate::reception::HandshakeCounts;

/// The daemon as the API sees it.
pub(crate) trait Plane:
    Inventory + Loops + Changes + Persistence + Clone + Send + Sync + 'static
{
}

impl<P> Plane for P where
    P: Inventory + Loops + Changes + Persistence + Clone + Send + Sync + 'static
{
}

/// Everything there is, as the daemon knows it without asking a loop. Devices go by their number.
pub(crate) trait Inventory {
    /// The devices' names and their VMs' names.
    fn devices(&self) -> Vec<(String, Vec<String>)>;

    /// What the devices were configured as, by their number.
    fn device_configs(&self) -> Vec<DeviceConfig>;

    /// What relative paths are relative to.
    fn base(&self) -> PathBuf;

    /// A VM that is served now, in the words of the configuration.
    fn vm(&self, name: &str) -> Option<VmConfig>;

    /// The VMs of a device that are served now, with what they are promised.
    fn vms_of(&self, device: usize) -> Vec<VmConfig>;

    /// The VMs that are served now and have a schedule.
    fn scheduled(&self) -> Vec<VmConfig>;

    /// Whether a VM is in the configuration.
    fn is_configured(&self, vm: &str) -> bool;

    /// Counts of half-open connections and of handshakes that failed.
    fn handshakes(&self) -> HandshakeCounts;

    /// What is wrong beside what the devices' snapshots show.
    fn problems(&self) -> Vec<Reason>;
}

/// Questions to the devices' event loops.
pub(crate) trait Loops {
    /// A VM as it stands.
    fn look(&self, vm: &str) -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// A device as it stands.
    fn snapshot(
        &self,
        device: usize,
    ) -> impl Future<Output = Result<DeviceSnapshot, ControlError>> + Send;

    /// Replaces what a VM is promised now.
    fn set_objective(
        &self,
        vm: &str,
        objective: Objective,
    ) -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// Has a VM go by another schedule from now on, or by none. What is in force stays so.
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

    /// Changes the fault rules of a disk of a device.
    fn change_faults(
        &self,
        device: usize,
        export: &str,
        change: FaultChange,
    ) -> impl Future<Output = Result<DiskSnapshot, ControlError>> + Send;

    /// Begins a job of a VM, at this time of day.
    fn begin_job(
        &self,
        vm: &str,
        order: JobOrder,
        at: Timestamp,
    ) -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// Ends the job of a VM that is not wanted any more.
    fn cancel_job(&self, vm: &str)
    -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// What the policy has learnt of a VM.
    fn export_vm(&self, vm: &str) -> impl Future<Output = Result<LearntFile, ControlError>> + Send;

    /// Has the policy go on with what was learnt of a VM; what somebody ought to know of it.
    fn import_vm(
        &self,
        vm: &str,
        file: &LearntFile,
        disks: LearntDisks,
    ) -> impl Future<Output = Result<(VmSnapshot, Vec<String>), ControlError>> + Send;
}

/// Changes of who is served.
pub(crate) trait Changes {
    /// Serves one more VM.
    fn add_vm(&self, vm: VmConfig)
    -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// Serves a VM no more; what could not be flushed.
    fn remove_vm(
        &self,
        name: &str,
        force: bool,
    ) -> impl Future<Output = Result<Vec<String>, ControlError>> + Send;

    /// Gives a VM one more disk.
    fn add_disk(
        &self,
        vm: &str,
        disk: DiskConfig,
    ) -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;

    /// Takes a disk from a VM; what could not be flushed.
    fn remove_disk(
        &self,
        vm: &str,
        export: &str,
        force: bool,
    ) -> impl Future<Output = Result<Vec<String>, ControlError>> + Send;

    /// Gives a disk another size in bytes; smaller only where that is forced.
    fn resize_disk(
        &self,
        vm: &str,
        export: &str,
        size: u64,
        force: bool,
    ) -> impl Future<Output = Result<VmSnapshot, ControlError>> + Send;
}

/// Everything that survives a restart.
pub(crate) trait Persistence {
    /// Keeps a VM as it is now, so that a restart brings it back.
    fn persist_vm(&self, vm: &str) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Forgets what is kept of a VM; whether there was anything.
    fn forget_vm(&self, vm: &str) -> impl Future<Output = Result<bool, ControlError>> + Send;

    /// Whether what is kept of a VM may be forgotten.
    fn may_forget(&self, vm: &str) -> Result<(), ControlError>;

    /// Forgets a disk that was served before, so that a new one may be created at its path. Returns
    /// false if the store does not know it.
    fn forget_disk(&self, name: &str) -> impl Future<Output = Result<bool, ControlError>> + Send;

    /// Whether what is kept of a VM names this disk.
    fn persists_disk(
        &self,
        vm: &str,
        export: &str,
    ) -> impl Future<Output = Result<bool, ControlError>> + Send;

    /// Keeps the jobs of a VM's device as they are now; whether there is where to.
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

    fn base(&self) -> PathBuf {
        DaemonHandle::base(self).to_owned()
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

    fn handshakes(&self) -> HandshakeCounts {
        self.half_open().counts()
    }

    fn problems(&self) -> Vec<Reason> {
        DaemonHandle::problems(self)
    }
}

impl Loops for DaemonHandle {
    async fn look(&self, vm: &str) -> Result<VmSnapshot, ControlError> {
        DaemonHandle::look(self, vm).await
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

    async fn begin_job(
        &self,
        vm: &str,
        order: JobOrder,
        at: Timestamp,
    ) -> Result<VmSnapshot, ControlError> {
        DaemonHandle::begin_job(self, vm, order, at).await
    }

    async fn cancel_job(&self, vm: &str) -> Result<VmSnapshot, ControlError> {
        DaemonHandle::cancel_job(self, vm).await
    }

    async fn export_vm(&self, vm: &str) -> Result<LearntFile, ControlError> {
        DaemonHandle::export_vm(self, vm).await
    }

    async fn import_vm(
        &self,
        vm: &str,
        file: &LearntFile,
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
