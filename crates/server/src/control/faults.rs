//! `/v1/disks/{export}/faults`: fault rules of a disk.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use tidegate_api::fault::DiskFaultsView;

use super::Api;
use super::error::{ApiError, ApiResult};
use super::handlers::{Body, in_time, ok, parse_body};
use super::path::Path;
use super::plane::Plane;
use super::view;
use crate::command::{DiskSnapshot, FaultChange};
use crate::config;

/// Example of a body.
pub(super) const RULE: &str = "{\"on\": \"write\", \"every\": 100, \"error\": \"EIO\"}";

/// Disk with the device and the VM that it belongs to.
struct LocatedDisk {
    /// Index of the device.
    device: usize,
    device_name: String,
    vm: String,
    disk: DiskSnapshot,
}

impl LocatedDisk {
    fn view(&self, disk: &DiskSnapshot) -> DiskFaultsView {
        view::disk_faults(&self.device_name, &self.vm, disk)
    }
}

impl<P: Plane> Api<P> {
    /// Returns the disk with this export name.
    async fn locate_disk(&self, export: &str) -> ApiResult<LocatedDisk> {
        let mut known = Vec::new();
        for (device, snapshot) in self.snapshots().await?.into_iter().enumerate() {
            for vm in &snapshot.vms {
                for disk in &vm.disks {
                    if disk.export == export {
                        return Ok(LocatedDisk {
                            device,
                            device_name: snapshot.name.clone(),
                            vm: vm.name.clone(),
                            disk: disk.clone(),
                        });
                    }
                    known.push(disk.export.clone());
                }
            }
        }
        Err(ApiError::not_found("export", export, &known))
    }

    async fn change_faults(&self, export: &str, change: FaultChange) -> ApiResult<Response> {
        // The disk is looked up under the lock, so that no removal comes between.
        let _one_at_a_time = self.lock_changes(export).await?;
        let located = self.locate_disk(export).await?;
        let changed = self.plane.change_faults(located.device, export, change);
        let disk = in_time(export, changed).await?;
        // A warning, because injected faults look like failures of the disk.
        tracing::warn!(export, rules = disk.faults.len(), "fault rules changed");
        Ok(ok(&located.view(&disk)))
    }
}

pub(super) async fn list<P: Plane>(
    State(api): State<Api<P>>,
    Path(export): Path<String>,
) -> ApiResult<Response> {
    let located = api.locate_disk(&export).await?;
    Ok(ok(&located.view(&located.disk)))
}

pub(super) async fn add<P: Plane>(
    State(api): State<Api<P>>,
    Path(export): Path<String>,
    body: Body,
) -> ApiResult<Response> {
    let rule = Box::new(config::fault::from_json(&parse_body(body, RULE)?)?);
    api.change_faults(&export, FaultChange::Add(rule)).await
}

pub(super) async fn clear<P: Plane>(
    State(api): State<Api<P>>,
    Path(export): Path<String>,
) -> ApiResult<Response> {
    api.change_faults(&export, FaultChange::Clear).await
}

pub(super) async fn remove<P: Plane>(
    State(api): State<Api<P>>,
    Path((export, number)): Path<(String, String)>,
) -> ApiResult<Response> {
    let Ok(number) = number.parse() else {
        let what = format!("{number:?} is not the number of a fault rule");
        let error = ApiError::new(StatusCode::NOT_FOUND, what, "fault");
        return Err(error.allowing("a number that GET .../faults shows"));
    };
    (api.change_faults(&export, FaultChange::Remove(number))).await
}
