//! What the API needs of the daemon; the daemon's handle has it, tests bring their own.

use std::future::Future;

use tidegate_core::objective::Objective;
use tidegate_core::policy::PolicySpec;

use crate::command::{DeviceSnapshot, DiskSnapshot, FaultChange, VmSnapshot};
use crate::daemon::{ControlError, DaemonHandle};

/// The daemon as the API sees it: devices by their number.
pub(crate) trait Plane: Clone + Send + Sync + 'static {
    /// The devices' names and their VMs' names.
    fn devices(&self) -> Vec<(String, Vec<String>)>;

    /// A device as it stands.
    fn snapshot(
        &self,
        device: usize,
    ) -> impl Future<Output = Result<DeviceSnapshot, ControlError>> + Send;

    /// Replaces a VM's objective.
    fn set_objective(
        &self,
        vm: &str,
        objective: Objective,
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
}

impl Plane for DaemonHandle {
    fn devices(&self) -> Vec<(String, Vec<String>)> {
        DaemonHandle::devices(self)
            .iter()
            .map(|d| (d.name.clone(), d.vms.clone()))
            .collect()
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
}
