//! The API against a daemon that is only pretended: what it answers, and that what it refuses
//! changes nothing.

mod changes;
mod jobs;
mod learnt;
mod planes;
mod schedules;
mod stuck;
mod tenants;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::learnt::Blob;
use tidegate_core::objective::Objective;
use tidegate_core::policy::Policy;
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::request::VmId;
use tidegate_core::stats::VmStats;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tower::ServiceExt;

use super::*;
use crate::command::{CommandError, DeviceSnapshot, DiskSnapshot, FaultChange, VmSnapshot};
use crate::config::{Create, DeviceConfig, DiskConfig, DiskFormat, Schedule, VmConfig};
use crate::daemon::{ControlError, Disks};
use crate::fault::{RuleSnapshot, State};
use crate::identity::Identity;
use crate::job::VmJobs;
use crate::learnt_file::LearntFile;
use crate::reception::{DeviceConnections, HandshakeCounts};
use planes::{Pretended, learnt_file, pretended_vm};

/// A device under mClock, its first VM with a reservation and a latency.
pub(crate) fn snapshot(name: &str, vms: &[&str]) -> DeviceSnapshot {
    let policy = PolicySpec::named("mclock").expect("mclock is registered");
    let engine = Engine::new(EngineConfig::default(), &policy).expect("defaults are good");
    let vm = |(index, vm): (usize, &&str)| VmSnapshot {
        background: false,
        id: VmId::from_bits(index as u64),
        name: (*vm).to_owned(),
        device: name.to_owned(),
        policy: policy.name().to_owned(),
        objective: match index {
            0 => Objective {
                reservation: tidegate_core::objective::Rate::iops(120),
                latency: Some(Nanos::from_millis(30)),
                ..Objective::default()
            },
            _ => Objective::default(),
        },
        honours: policy.honours(),
        disks: vec![DiskSnapshot {
            export: (*vm).to_owned(),
            size: 1 << 30,
            failed: None,
            media: None,
            oldest_io: None,
            hung: None,
            faults: Vec::new(),
            faults_injected: 0,
        }],
        clients: 1,
        pending: 0,
        in_flight: 0,
        holdings: Default::default(),
        stalled: 0,
        reply_time: Default::default(),
        stats: Box::new(VmStats::default()),
        seconds: Default::default(),
        tuning: None,
        jobs: VmJobs::default(),
        connections: DeviceConnections::new(100).add_vm(64),
    };
    DeviceSnapshot {
        name: name.to_owned(),
        backing: "memory".to_owned(),
        policy: policy.to_shared(),
        facts: engine.facts(),
        waits: engine.waits(),
        drift: engine.drift(),
        learnt_cap: engine.learnt_cap(),
        adapted_depth: engine.adapted_depth(),
        learnt_costs: engine.learnt_costs(),
        uncounted: 0,
        oldest_io: None,
        vms: vms.iter().enumerate().map(vm).collect(),
        taken_at: Nanos::from_secs(1),
    }
}

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
    let request = Request::builder()
        .method(method)
        .uri(path)
        .body(Body::from(body.to_owned()));
    let answer = router(api.clone())
        .oneshot(request.expect("good"))
        .await
        .expect("infallible");
    let status = answer.status();
    let body = answer
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}
