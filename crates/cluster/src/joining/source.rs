//! Source of what a daemon publishes in the cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::time::Nanos;
use tidegate_server::command::DeviceSnapshot;
use tidegate_server::control;
use tidegate_server::daemon::{self, DaemonHandle};
use tidegate_server::membership::{PlacedTransfer, PublishedDevice};
use tokio::time::timeout;

use super::now;
use crate::membership::PublishedTransfer;

/// Time for an event loop to say which policy is in force.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Daemon whose devices and VMs are published.
pub trait MemberSource: Send + Sync + 'static {
    /// Returns the devices with their standing reservations, without waiting for anything.
    fn devices(&self) -> Vec<PublishedDevice>;

    /// Returns policies and budgets of the devices, which may take seconds; without those of a
    /// device that does not answer.
    fn details(&self) -> impl Future<Output = Vec<DeviceDetails>> + Send;

    /// Returns the running transfers by device; without those of a device that does not answer.
    fn transfers(&self) -> impl Future<Output = BTreeMap<String, Vec<PublishedTransfer>>> + Send;

    /// Returns the running transfers that were started for placers; without those of a device that
    /// does not answer.
    fn placed_transfers(&self) -> impl Future<Output = Vec<PlacedTransfer>> + Send;
}

/// Policy and budget of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceDetails {
    /// Name of the device.
    pub name: String,
    /// Name of the policy in force; `None`: not known.
    pub policy: Option<String>,
    /// Answer of `GET /v1/budget` for the device; `None`: not known.
    pub budget: Option<serde_json::Value>,
}

impl MemberSource for DaemonHandle {
    fn devices(&self) -> Vec<PublishedDevice> {
        daemon::published_devices(self)
    }

    async fn details(&self) -> Vec<DeviceDetails> {
        let budgets = control::device_budgets(self).await.unwrap_or_default();
        let mut all = Vec::new();
        for (at, device) in DaemonHandle::devices(self)
            .configs()
            .into_iter()
            .enumerate()
        {
            let snapshot = timeout(ANSWER_TIMEOUT, self.snapshot(at)).await;
            let policy = snapshot
                .ok()
                .and_then(Result::ok)
                .map(|device| device.policy.name().to_owned());
            let budget = budgets.iter().find(|budget| budget.device == device.name);
            all.push(DeviceDetails {
                name: device.name,
                policy,
                budget: budget.and_then(|budget| serde_json::to_value(budget).ok()),
            });
        }
        all
    }

    async fn transfers(&self) -> BTreeMap<String, Vec<PublishedTransfer>> {
        let mut all = BTreeMap::new();
        for at in 0..DaemonHandle::devices(self).configs().len() {
            let snapshot = timeout(ANSWER_TIMEOUT, self.snapshot(at)).await;
            if let Ok(Ok(device)) = snapshot {
                all.insert(device.name.clone(), published_transfers(&device));
            }
        }
        all
    }

    async fn placed_transfers(&self) -> Vec<PlacedTransfer> {
        let mut all = Vec::new();
        for at in 0..DaemonHandle::devices(self).configs().len() {
            let snapshot = timeout(ANSWER_TIMEOUT, self.snapshot(at)).await;
            let device = snapshot.ok().and_then(Result::ok);
            let vms = device.iter().flat_map(|device| &device.vms);
            all.extend(vms.filter_map(|vm| {
                let placed_ns = vm.transfers.running?.since.placed_ns?;
                let vm = vm.name.clone();
                Some(PlacedTransfer { vm, placed_ns })
            }));
        }
        all
    }
}

/// Returns the running transfers of a device as of now.
fn published_transfers(device: &DeviceSnapshot) -> Vec<PublishedTransfer> {
    let as_of = now();
    let running = device.vms.iter().filter_map(|vm| {
        let running = vm.transfers.running.as_ref()?;
        Some(PublishedTransfer {
            vm: vm.name.clone(),
            bytes: running.bytes(),
            moved: running.moved(),
            // A deadline before 1970 is as late as one then.
            due: Nanos(u64::try_from(running.since.due.as_nanosecond()).unwrap_or(0)),
            class: running.status.class,
            as_of,
        })
    });
    running.collect()
}
