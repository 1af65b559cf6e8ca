//! The API against a daemon that is only pretended: what it answers, and that what it refuses
//! changes nothing.

use std::sync::Mutex;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::objective::Objective;
use tidegate_core::policy::PolicySpec;
use tidegate_core::stats::VmStats;
use tidegate_core::time::Nanos;
use tower::ServiceExt;

use super::*;
use crate::command::{CommandError, DeviceSnapshot, DiskSnapshot, FaultChange, VmSnapshot};
use crate::daemon::ControlError;
use crate::fault::{RuleSnapshot, State};

/// A device under mClock, its first VM with a reservation and a latency.
pub(crate) fn snapshot(name: &str, vms: &[&str]) -> DeviceSnapshot {
    let policy = PolicySpec::named("mclock").expect("mclock is registered");
    let engine = Engine::new(EngineConfig::default(), &policy).expect("defaults are good");
    let vm = |(index, vm): (usize, &&str)| VmSnapshot {
        background: false,
        name: (*vm).to_owned(),
        device: name.to_owned(),
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
            faults: Vec::new(),
            faults_injected: 0,
        }],
        clients: 1,
        pending: 0,
        in_flight: 0,
        stats: Box::new(VmStats::default()),
    };
    DeviceSnapshot {
        name: name.to_owned(),
        backing: "memory".to_owned(),
        policy: policy.clone(),
        facts: engine.facts(),
        waits: engine.waits(),
        vms: vms.iter().enumerate().map(vm).collect(),
        taken_at: Nanos::from_secs(1),
    }
}

#[derive(Clone)]
struct Pretended(Arc<Mutex<Vec<DeviceSnapshot>>>);

impl Pretended {
    fn new() -> Pretended {
        let devices = vec![
            snapshot("disk0", &["oltp", "bulk"]),
            snapshot("disk1", &["dss"]),
        ];
        Pretended(Arc::new(Mutex::new(devices)))
    }

    fn with<T>(&self, f: impl FnOnce(&mut Vec<DeviceSnapshot>) -> T) -> T {
        f(&mut self.0.lock().expect("nobody panicked"))
    }
}

impl Plane for Pretended {
    fn devices(&self) -> Vec<(String, Vec<String>)> {
        let names = |d: &DeviceSnapshot| d.vms.iter().map(|vm| vm.name.clone()).collect();
        self.with(|devices| devices.iter().map(|d| (d.name.clone(), names(d))).collect())
    }

    async fn snapshot(&self, device: usize) -> Result<DeviceSnapshot, ControlError> {
        Ok(self.with(|devices| devices[device].clone()))
    }

    async fn set_objective(
        &self,
        vm: &str,
        objective: Objective,
    ) -> Result<VmSnapshot, ControlError> {
        if objective.weight == 13 {
            return Err(CommandError::Refused("13 brings bad luck".to_owned()).into());
        }
        self.with(|devices| {
            let mut all = devices.iter_mut().flat_map(|device| &mut device.vms);
            let found = all.find(|it| it.name == vm).expect("the API looked it up");
            found.objective = objective;
            Ok(found.clone())
        })
    }

    async fn change_faults(
        &self,
        device: usize,
        export: &str,
        change: FaultChange,
    ) -> Result<DiskSnapshot, ControlError> {
        self.with(|devices| {
            let vms = devices[device].vms.iter_mut();
            let mut disks = vms.flat_map(|vm| &mut vm.disks);
            let disk = disks.find(|disk| disk.export == export);
            let disk = disk.expect("the API looked it up");
            match change {
                FaultChange::Add(rule) => disk.faults.push(RuleSnapshot {
                    number: disk.faults.len() as u32 + 1,
                    rule: *rule,
                    state: State::Armed,
                    met: 0,
                    injected: 0,
                }),
                FaultChange::Remove(number) => {
                    let before = disk.faults.len();
                    disk.faults.retain(|rule| rule.number != number);
                    if disk.faults.len() == before {
                        return Err(CommandError::UnknownFault(number).into());
                    }
                }
                FaultChange::Clear => disk.faults.clear(),
            }
            Ok(disk.clone())
        })
    }

    async fn set_policy(
        &self,
        device: usize,
        policy: PolicySpec,
    ) -> Result<DeviceSnapshot, ControlError> {
        self.with(|devices| {
            let device = &mut devices[device];
            device
                .vms
                .iter_mut()
                .for_each(|vm| vm.honours = policy.honours());
            device.policy = policy;
            Ok(device.clone())
        })
    }
}

async fn ask(plane: &Pretended, method: &str, path: &str, body: &str) -> (StatusCode, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .body(Body::from(body.to_owned()));
    let answer = router(plane.clone())
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

#[tokio::test]
async fn everything_there_is_can_be_looked_at() {
    let plane = Pretended::new();
    for path in [
        "/v1/devices",
        "/v1/devices/disk0",
        "/v1/vms",
        "/v1/vms/oltp",
        "/v1/policies",
        "/v1/policies/mclock",
        "/v1/stats",
        "/v1/stats?buckets=true",
        "/healthz",
        "/metrics",
    ] {
        let (status, body) = ask(&plane, "GET", path, "").await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
    }
    let (_, vm) = ask(&plane, "GET", "/v1/vms/oltp", "").await;
    assert_eq!(vm["objective"]["reservation"], "120 IOPS");
    assert_eq!(vm["not_enforced"][0]["part"], "latency");
    let (_, devices) = ask(&plane, "GET", "/v1/devices", "").await;
    assert_eq!(devices[0]["not_enforced"][0]["vm"], "oltp");
    let (_, stats) = ask(&plane, "GET", "/v1/stats", "").await;
    let stats: stats::StatsView = serde_json::from_value(stats).expect("what the CLI reads");
    assert_eq!(stats.vms.len(), 3);
}

#[tokio::test]
async fn a_change_answers_with_what_is_in_force_and_what_is_not_enforced() {
    let plane = Pretended::new();
    let change = json!({ "limit": { "total": "500 IOPS", "write": "20 MB/s" }, "latency": null });
    let (status, vm) = ask(
        &plane,
        "PATCH",
        "/v1/vms/oltp/objective",
        &change.to_string(),
    )
    .await;
    assert_eq!(status, StatusCode::OK, "{vm}");
    assert_eq!(
        vm["objective"]["reservation"], "120 IOPS",
        "what was not named stays"
    );
    assert_eq!(vm["objective"]["latency"], Value::Null);
    let parts: Vec<&Value> = vm["not_enforced"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|p| &p["part"])
        .collect();
    assert_eq!(parts, ["limit.write"]);
    assert_eq!(
        vm["not_enforced"][0]["enforced_by"],
        json!(["token-bucket+mclock"]),
        "the reservation is asked for as well"
    );

    let policy = json!({ "name": "mclock", "cost_size": "64 KiB" });
    let (status, device) = ask(
        &plane,
        "PUT",
        "/v1/devices/disk0/policy",
        &policy.to_string(),
    )
    .await;
    assert_eq!(status, StatusCode::OK, "{device}");
    let cost = json!({ "name": "cost_size", "value": "64 KiB" });
    assert!(
        device["policy"]["params"]
            .as_array()
            .expect("a list")
            .contains(&cost),
        "{device}"
    );

    let (status, device) = ask(&plane, "PUT", "/v1/devices/disk0/policy", "\"fifo\"").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(device["policy"]["name"], "fifo");
    assert_eq!(
        device["not_enforced"].as_array().map(Vec::len),
        Some(3),
        "{device}"
    );
}

#[tokio::test]
async fn what_is_refused_says_why_and_changes_nothing() {
    let plane = Pretended::new();
    let before = ask(&plane, "GET", "/v1/vms", "").await;
    let huge = format!("{{\"latency\": \"{}\"}}", "x".repeat(BODY_MAX));
    let objective = "/v1/vms/oltp/objective";
    let policy = "/v1/devices/disk0/policy";
    let faults = "/v1/disks/oltp/faults";
    for (method, path, body, status, at, what) in [
        (
            "PATCH",
            "/v1/vms/olpt/objective",
            "{}",
            404,
            "vm",
            "no VM \"olpt\"",
        ),
        ("GET", "/v1/vms/nobody", "", 404, "vm", "no VM"),
        ("GET", "/v1/devices/disk9", "", 404, "device", "no device"),
        ("GET", "/v1/policies/best", "", 404, "policy", "no policy"),
        ("GET", "/v2/devices", "", 404, "path", "no /v2/devices"),
        ("DELETE", "/v1/vms/oltp", "", 405, "method", "DELETE"),
        ("GET", objective, "", 405, "method", "GET"),
        ("PATCH", objective, "{", 400, "body", "not JSON"),
        ("PATCH", objective, "", 400, "body", "not JSON"),
        ("PATCH", objective, "[1]", 422, "", "found a list"),
        (
            "PATCH",
            objective,
            "{\"limit\": 500}",
            422,
            "limit",
            "500 is a bare number",
        ),
        (
            "PATCH",
            objective,
            "{\"limt\": null}",
            422,
            "",
            "unknown key `limt`",
        ),
        (
            "PATCH",
            objective,
            "{\"limit\": \"100 IOPS\"}",
            422,
            "limit",
            "above limit",
        ),
        (
            "PATCH",
            objective,
            "{\"weight\": 13}",
            409,
            "oltp",
            "bad luck",
        ),
        ("PATCH", objective, huge.as_str(), 413, "body", "too large"),
        ("PUT", policy, "\"mclok\"", 422, "policy", "no policy named"),
        (
            "PUT",
            policy,
            "{\"name\": \"mclock\", \"slack\": 1}",
            422,
            "policy: slack",
            "bare",
        ),
        ("GET", "/v1/stats?bucket=1", "", 400, "query", "bucket"),
        (
            "GET",
            "/v1/disks/dusk/faults",
            "",
            404,
            "export",
            "no export \"dusk\"",
        ),
        ("POST", faults, "{}", 422, "", "does not say what happens"),
        (
            "POST",
            faults,
            "{\"stall\": 2}",
            422,
            "stall",
            "bare number",
        ),
        (
            "DELETE",
            "/v1/disks/oltp/faults/7",
            "",
            404,
            "oltp",
            "no fault rule 7",
        ),
        (
            "DELETE",
            "/v1/disks/oltp/faults/x",
            "",
            404,
            "fault",
            "not the number",
        ),
        ("PUT", faults, "", 405, "method", "PUT"),
    ] {
        let (got, answer) = ask(&plane, method, path, body).await;
        assert_eq!(got.as_u16(), status, "{method} {path}: {answer}");
        assert_eq!(answer["error"]["where"], at, "{method} {path}: {answer}");
        let said = answer["error"]["what"].as_str().expect("text");
        assert!(said.contains(what), "{method} {path}: {answer}");
    }
    assert_eq!(ask(&plane, "GET", "/v1/vms", "").await, before);
}

#[tokio::test]
async fn fault_rules_are_set_shown_and_taken_away() {
    let plane = Pretended::new();
    let faults = "/v1/disks/bulk/faults";
    let rule = json!({ "on": "write", "every": 100, "error": "EIO" }).to_string();
    let (status, disk) = ask(&plane, "POST", faults, &rule).await;
    assert_eq!(status, StatusCode::OK, "{disk}");
    let (_, twice) = ask(&plane, "POST", faults, "{\"stall\": \"2 s\"}").await;
    assert_eq!(twice["rules"][1]["stall"], "2 s");
    let (_, listed) = ask(&plane, "GET", faults, "").await;
    assert_eq!(listed, twice);
    assert_eq!(
        (&listed["export"], &listed["vm"], &listed["device"]),
        (&json!("bulk"), &json!("bulk"), &json!("disk0"))
    );
    let shown = &listed["rules"][0];
    assert_eq!(shown["on"], json!(["write"]));
    assert_eq!(
        (&shown["every"], &shown["error"]),
        (&json!(100), &json!("EIO"))
    );
    // Nobody who looks at the VM or the device can overlook it.
    let (_, vm) = ask(&plane, "GET", "/v1/vms/bulk", "").await;
    assert_eq!(vm["disks"][0]["fault_rules"], 2);
    let (_, device) = ask(&plane, "GET", "/v1/devices/disk0", "").await;
    assert_eq!(device["disks_with_faults"], json!(["bulk"]));
    let (_, one) = ask(&plane, "DELETE", "/v1/disks/bulk/faults/1", "").await;
    assert_eq!(one["rules"].as_array().map(Vec::len), Some(1), "{one}");
    let (status, none) = ask(&plane, "DELETE", faults, "").await;
    assert_eq!((status, &none["rules"]), (StatusCode::OK, &json!([])));
    let (_, device) = ask(&plane, "GET", "/v1/devices/disk0", "").await;
    assert_eq!(device.get("disks_with_faults"), None);
}

#[tokio::test]
async fn a_failed_disk_makes_the_daemon_unhealthy() {
    let plane = Pretended::new();
    plane.with(|devices| devices[1].vms[0].disks[0].failed = Some("fsync: EIO".to_owned()));
    let (status, body) = ask(&plane, "GET", "/healthz", "").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(body["problems"], json!(["vm dss, export dss: fsync: EIO"]));
}

/// A daemon whose loops never answer.
#[derive(Clone)]
struct Stuck;

impl Plane for Stuck {
    fn devices(&self) -> Vec<(String, Vec<String>)> {
        vec![("disk0".to_owned(), vec!["oltp".to_owned()])]
    }

    async fn snapshot(&self, _: usize) -> Result<DeviceSnapshot, ControlError> {
        std::future::pending().await
    }

    async fn set_objective(&self, _: &str, _: Objective) -> Result<VmSnapshot, ControlError> {
        std::future::pending().await
    }

    async fn set_policy(&self, _: usize, _: PolicySpec) -> Result<DeviceSnapshot, ControlError> {
        std::future::pending().await
    }

    async fn change_faults(
        &self,
        _: usize,
        _: &str,
        _: FaultChange,
    ) -> Result<DiskSnapshot, ControlError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_loop_is_reported_and_does_not_hang_its_asker() {
    let request = Request::builder()
        .uri("/healthz")
        .body(Body::empty())
        .expect("good");
    let answer = router(Stuck).oneshot(request).await.expect("infallible");
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
}
