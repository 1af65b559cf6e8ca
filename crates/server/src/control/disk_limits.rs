//! Routes that change limits of disks, and limits that disks share.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use tidegate_config::device::limit_groups;

use super::Api;
use super::error::{ApiError, ApiResult};
use super::handlers::{Body, change_query, in_time, ok, parse_body};
use super::path::Path;
use super::plane::Plane;
use super::view;

/// Example of the body of [`set_disk`].
pub(super) const DISK: &str = "{\"limit\": \"40 MB/s\", \"limit_group\": null}";
/// Example of the body of [`set_group`].
pub(super) const GROUP: &str = "{\"limit\": \"40 MB/s\"}";

/// `PATCH /v1/vms/{name}/disks/{export}/limits`
pub(super) async fn set_disk<P: Plane>(
    State(api): State<Api<P>>,
    Path((name, export)): Path<(String, String)>,
    uri: Uri,
    body: Body,
) -> ApiResult<Response> {
    let query = change_query(&uri)?;
    let change = parse_body(body, DISK)?;
    let (own, vm) = (api.clone(), name.clone());
    // The future holds the lock on changes, so the limits do not change between reading and
    // writing them.
    api.change(&name, async move {
        let instead = "change it there; without persist it is changed until the daemon ends";
        own.check_disks_may_persist(&vm, query, instead)?;
        let (config, _) = own.existing_vm(&vm).await?;
        let Some(disk) = config.disks.iter().find(|disk| disk.export == export) else {
            let known: Vec<_> = config.disks.into_iter().map(|disk| disk.export).collect();
            return Err(ApiError::not_found("disk", &export, &known));
        };
        let devices = own.plane.device_configs();
        let groups = devices[config.device].limit_groups.iter();
        let groups: Vec<_> = groups.map(|group| group.name.clone()).collect();
        let was = (&disk.limit, disk.limit_group.as_deref());
        let (limit, group) = limit_groups::merge(&change, was, &groups)?;
        let refused = |error| ApiError::control(&error, &vm);
        if query.persist {
            // Fails without a store, before the change: a limit that is lifted and set again has
            // let all go that waited for it.
            let _ = own
                .plane
                .persists_disk(&vm, &export)
                .await
                .map_err(refused)?;
        }
        let set = own.plane.set_disk_limits(&vm, &export, limit, group);
        let now = set.await.map_err(refused)?;
        if let Err(error) = own.persist_if_asked(&vm, query).await {
            // Persisting was part of the request, so it fails as a whole.
            let (limit, group) = (disk.limit, disk.limit_group.clone());
            let _ = own.plane.set_disk_limits(&vm, &export, limit, group).await;
            return Err(error);
        }
        tracing::info!(
            vm,
            export,
            persisted = query.persist,
            "limits of a disk changed"
        );
        Ok(ok(&own.view(&now)))
    })
    .await
}

/// `PATCH /v1/devices/{name}/limit_groups/{group}`
pub(super) async fn set_group<P: Plane>(
    State(api): State<Api<P>>,
    Path((name, group)): Path<(String, String)>,
    body: Body,
) -> ApiResult<Response> {
    let device = api.device(&name)?;
    let change = parse_body(body, GROUP)?;
    // Read under the lock, so that no other client changes the limit in between.
    let _one_at_a_time = api.lock_changes(&name).await?;
    let snapshot = api.snapshot(device, &name).await?;
    let groups = &snapshot.limit_groups;
    let Some(was) = groups.iter().find(|known| known.name == group) else {
        let known: Vec<_> = groups.iter().map(|group| group.name.clone()).collect();
        return Err(ApiError::not_found("limit group", &group, &known));
    };
    let limit = limit_groups::merge_group(&change, &was.limit)?;
    let set = api.plane.set_group_limit(device, &group, limit);
    let now = in_time(&name, set).await?;
    tracing::info!(device = name, group, "limit of a group changed");
    Ok(ok(&view::device(&now)))
}
