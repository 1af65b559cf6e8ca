//! `/v1/vms/{name}/learnt`: export and import of the state that the policy has learnt of a VM.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use tidegate_api::query::LearntQuery;

use super::Api;
use super::error::{ApiError, ApiResult};
use super::handlers::{Body, in_time, ok, parse_body, parse_query};
use super::path::Path;
use super::plane::Plane;
use super::view;
use crate::learnt_state_file::LearntStateFile;

const FILE: &str = "a file from GET /v1/vms/{name}/learnt";

pub(super) async fn export<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
) -> ApiResult<Response> {
    // Checked first, because its error lists the VMs that exist.
    api.vm_snapshot(&name).await?;
    Ok(ok(&in_time(&name, api.plane.export_vm(&name)).await?))
}

pub(super) async fn import<P: Plane>(
    State(api): State<Api<P>>,
    Path(name): Path<String>,
    uri: Uri,
    body: Body,
) -> ApiResult<Response> {
    let query: LearntQuery = parse_query(&uri, "?disks=same, ?disks=moved or ?disks=tell")?;
    let body = parse_body(body, FILE)?;
    let file = LearntStateFile::read(&body).map_err(|error| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        ApiError::new(status, error.to_string(), "body").allowing(FILE)
    })?;
    let (own, vm) = (api.clone(), name.clone());
    api.change(&name, async move {
        // Checked first, because its error lists the VMs that exist.
        own.vm_snapshot(&vm).await?;
        let imported = in_time(&vm, own.plane.import_vm(&vm, &file, query.disks)).await?;
        let (now, notes) = imported;
        let (controller, from) = (&file.controller, &file.vm);
        tracing::info!(vm, controller, from, "learnt state imported");
        let mut view = view::vm(&now);
        view.notes = notes;
        Ok(ok(&view))
    })
    .await
}
