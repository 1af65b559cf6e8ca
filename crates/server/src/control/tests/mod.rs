//! The API against a simulated daemon: answers, and that a refused request changes nothing.

mod access;
mod admission;
mod budget;
mod changes;
mod confinement;
mod dashboard;
mod disk_limits;
mod events;
mod golden;
mod learnt_vm_state;
mod openapi;
mod placements;
mod requests;
mod schedules;
mod scrapes;
mod simulated_daemon;
mod stuck;
mod tokens;
mod transfers;
mod tuning;
mod vms_and_disks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidegate_api::query::LearntDisks;
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::learnt_state::Blob;
use tidegate_core::objective::Objective;
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::request::VmId;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tower::ServiceExt;

use super::access::Caller;
use super::plane::{Changes, Inventory, Loops, Persistence};
use super::routes::router;
use super::*;
use crate::command::sample_snapshot::snapshot;
use crate::command::{CommandError, DeviceSnapshot, DiskSnapshot, FaultChange, VmSnapshot};
use crate::config::{
    Create, DeviceConfig, DiskConfig, DiskFormat, ListenAddress, ListenConfig, PathsConfig,
    Schedule, SocketOwner, VmConfig,
};
use crate::daemon::ControlError;
use crate::fault::{RuleSnapshot, State};
use crate::learnt_state_file::LearntStateFile;
use crate::listener::HandshakeCounts;
use crate::storage_identity::Identity;
use simulated_daemon::{Pretended, learnt_file, pretended_vm};

async fn ask(plane: &Pretended, method: &str, path: &str, body: &str) -> (StatusCode, Value) {
    let api = Api::new(plane.clone(), Clock::system());
    ask_api(&api, method, path, body).await
}

async fn ask_api(
    api: &Api<Pretended>,
    method: &str,
    path: &str,
    body: &str,
) -> (StatusCode, Value) {
    let (status, text) = ask_text(api, method, path, body).await;
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}

/// Sends a request and returns the status and the body as text.
async fn ask_text(
    api: &Api<Pretended>,
    method: &str,
    path: &str,
    body: &str,
) -> (StatusCode, String) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .extension(Caller::admin())
        .body(Body::from(body.to_owned()));
    let answer = router(api.clone())
        .oneshot(request.expect("good"))
        .await
        .expect("infallible");
    let status = answer.status();
    let content_type = openapi::content_type(&answer);
    let bytes = answer
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    openapi::assert_described((method, path, body), status, &content_type, &text);
    (status, text)
}
