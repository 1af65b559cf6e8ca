//! The API against a daemon that is only pretended: what it answers, and that what it refuses
//! changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::objective::Objective;
use tidegate_core::policy::PolicySpec;
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::request::VmId;
use tidegate_core::stats::VmStats;
use tidegate_core::time::Nanos;
use tower::ServiceExt;

use super::*;
use crate::command::{CommandError, DeviceSnapshot, DiskSnapshot, FaultChange, VmSnapshot};
use crate::config::{Create, DeviceConfig, DiskConfig, DiskFormat, VmConfig};
use crate::daemon::ControlError;
use crate::fault::{RuleSnapshot, State};

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
        drift: engine.drift(),
        learnt_cap: engine.learnt_cap(),
        vms: vms.iter().enumerate().map(vm).collect(),
        taken_at: Nanos::from_secs(1),
    }
}

/// Devices, their VMs in the words of the configuration, the disks of those that are kept, and what the
/// devices can do.
#[derive(Clone)]
struct Pretended(
    Arc<Mutex<Vec<DeviceSnapshot>>>,
    Arc<Mutex<Vec<VmConfig>>>,
    Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>,
    Option<Arc<Profile>>,
);

impl Pretended {
    fn new() -> Pretended {
        let devices = vec![
            snapshot("disk0", &["oltp", "bulk"]),
            snapshot("disk1", &["dss"]),
        ];
        let vms = devices.iter().enumerate().flat_map(|(index, device)| {
            let vms = device.vms.iter();
            vms.map(move |vm| pretended_vm(&vm.name, index, vm.objective))
        });
        let vms = vms.collect();
        Pretended(
            Arc::new(Mutex::new(devices)),
            Arc::new(Mutex::new(vms)),
            Arc::default(),
            None,
        )
    }

    fn vms<T>(&self, f: impl FnOnce(&mut Vec<VmConfig>) -> T) -> T {
        f(&mut self.1.lock().expect("nobody panicked"))
    }

    /// The snapshot of a VM, changed.
    fn change(&self, vm: &str, f: impl FnOnce(&mut VmSnapshot)) -> VmSnapshot {
        self.with(|devices| {
            let mut all = devices.iter_mut().flat_map(|device| &mut device.vms);
            let vm = all.find(|it| it.name == vm).expect("the API looked it up");
            f(vm);
            vm.clone()
        })
    }

    fn with<T>(&self, f: impl FnOnce(&mut Vec<DeviceSnapshot>) -> T) -> T {
        f(&mut self.0.lock().expect("nobody panicked"))
    }
}

/// One disk, of a GiB in memory, exported under the VM's name.
fn pretended_vm(name: &str, device: usize, objective: Objective) -> VmConfig {
    VmConfig {
        name: name.to_owned(),
        device,
        background: false,
        objective,
        disks: vec![DiskConfig {
            export: name.to_owned(),
            path: None,
            size: Some(1 << 30),
            create: Create::No,
            format: DiskFormat::Probe,
            read_only: false,
            block_size: 512,
            faults: Vec::new(),
            place: None,
        }],
    }
}

fn pretended_disk(disk: &DiskConfig) -> DiskSnapshot {
    DiskSnapshot {
        export: disk.export.clone(),
        size: disk.size.expect("told"),
        failed: None,
        faults: Vec::new(),
        faults_injected: 0,
    }
}

impl Plane for Pretended {
    fn vms_of(&self, device: usize) -> Vec<VmConfig> {
        self.vms(|vms| {
            let theirs = vms.iter().filter(|vm| vm.device == device);
            theirs.cloned().collect()
        })
    }

    async fn look(&self, vm: &str) -> Result<VmSnapshot, ControlError> {
        if vm == "silent" {
            std::future::pending::<()>().await;
        }
        Ok(self.change(vm, |_| {}))
    }

    async fn keep(&self, vm: &str) -> Result<(), ControlError> {
        if vm == "unkept" {
            let what = "the disk is full".to_owned();
            return Err(ControlError::Store { what, help: None });
        }
        let disks = self.vm(vm).into_iter().flat_map(|vm| vm.disks);
        let exports = disks.map(|disk| disk.export).collect();
        let mut kept = self.2.lock().expect("nobody panicked");
        kept.insert(vm.to_owned(), exports);
        Ok(())
    }

    async fn forget(&self, vm: &str) -> Result<bool, ControlError> {
        Ok((self.2.lock().expect("nobody panicked").remove(vm)).is_some())
    }

    async fn keeps_disk(&self, vm: &str, export: &str) -> Result<bool, ControlError> {
        let kept = self.2.lock().expect("nobody panicked");
        Ok(kept.get(vm).is_some_and(|disks| disks.contains(export)))
    }

    fn may_forget(&self, vm: &str) -> Result<(), ControlError> {
        match self.is_configured(vm) {
            true => Err(ControlError::Configured(vm.to_owned())),
            false => Ok(()),
        }
    }

    fn is_configured(&self, vm: &str) -> bool {
        ["oltp", "bulk", "dss"].contains(&vm)
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    fn device_configs(&self) -> Vec<DeviceConfig> {
        let text = ["disk0", "disk1"]
            .map(|name| format!("[[device]]\nname = {name:?}\nkind = \"memory\"\n"))
            .concat();
        let text = format!("[[listen]]\nunix = \"s\"\n{text}");
        let loaded = crate::config::parse(&text, "t", Path::new("/"));
        let mut devices = loaded.unwrap_or_else(|e| panic!("{e}")).config.devices;
        for device in &mut devices {
            device.profile = self.3.clone();
        }
        devices
    }

    fn base(&self) -> PathBuf {
        "/etc/tidegate".into()
    }

    fn vm(&self, name: &str) -> Option<VmConfig> {
        self.vms(|vms| vms.iter().find(|vm| vm.name == name).cloned())
    }

    async fn add_vm(&self, vm: VmConfig) -> Result<VmSnapshot, ControlError> {
        let now = self.with(|devices| {
            let device = &mut devices[vm.device];
            let mut now = snapshot(&device.name, &[&vm.name]).vms.remove(0);
            now.objective = vm.objective;
            now.disks = vm.disks.iter().map(pretended_disk).collect();
            device.vms.push(now.clone());
            now
        });
        self.vms(|vms| vms.push(vm));
        Ok(now)
    }

    async fn remove_vm(&self, name: &str, force: bool) -> Result<Vec<String>, ControlError> {
        if !force {
            return Err(CommandError::InUse(vec!["uid 0 to \"oltp\"".to_owned()]).into());
        }
        self.with(|devices| {
            let all = devices.iter_mut();
            all.for_each(|device| device.vms.retain(|vm| vm.name != name));
        });
        self.vms(|vms| vms.retain(|vm| vm.name != name));
        Ok(vec!["export \"oltp\" could not be flushed: EIO".to_owned()])
    }

    async fn add_disk(&self, vm: &str, disk: DiskConfig) -> Result<VmSnapshot, ControlError> {
        let new = pretended_disk(&disk);
        self.vms(|vms| {
            let vm = vms.iter_mut().find(|it| it.name == vm);
            vm.expect("looked up").disks.push(disk);
        });
        Ok(self.change(vm, |vm| vm.disks.push(new)))
    }

    async fn remove_disk(
        &self,
        vm: &str,
        export: &str,
        _: bool,
    ) -> Result<Vec<String>, ControlError> {
        self.vms(|vms| {
            let vm = vms.iter_mut().find(|it| it.name == vm);
            (vm.expect("looked up").disks).retain(|disk| disk.export != export);
        });
        self.change(vm, |vm| vm.disks.retain(|disk| disk.export != export));
        Ok(Vec::new())
    }

    async fn resize_disk(
        &self,
        vm: &str,
        export: &str,
        size: u64,
        force: bool,
    ) -> Result<VmSnapshot, ControlError> {
        let now = 1 << 30;
        if size < now && !force {
            return Err(CommandError::Shrinks { now, size }.into());
        }
        Ok(self.change(vm, |vm| {
            let disk = vm.disks.iter_mut().find(|disk| disk.export == export);
            disk.expect("looked up").size = size;
        }))
    }

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
        if vm == "slow" {
            tokio::time::sleep(ANSWER_WITHIN * 2).await;
        }
        if objective.weight == 13 {
            return Err(CommandError::Refused("13 brings bad luck".to_owned()).into());
        }
        self.vms(|vms| {
            let config = vms.iter_mut().find(|it| it.name == vm);
            config.expect("the API looked it up").objective = objective;
        });
        Ok(self.change(vm, |vm| vm.objective = objective))
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
            device.vms.iter_mut().for_each(|vm| {
                vm.honours = policy.honours();
                vm.policy = policy.name().to_owned();
            });
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
        ("DELETE", "/v1/stats", "", 405, "method", "DELETE"),
        ("DELETE", "/v1/vms/olpt", "", 404, "vm", "no VM \"olpt\""),
        (
            "DELETE",
            "/v1/vms/oltp",
            "",
            409,
            "oltp",
            "1 client is connected: uid 0",
        ),
        ("DELETE", "/v1/vms/oltp?sure=1", "", 400, "query", "sure"),
        (
            "DELETE",
            "/v1/vms/oltp/disks/x",
            "",
            404,
            "disk",
            "no disk \"x\"",
        ),
        (
            "PUT",
            "/v1/vms/a",
            "{}",
            422,
            "vm \"a\"",
            "does not say which device",
        ),
        (
            "PUT",
            "/v1/vms/a",
            "{\"device\": \"disk1\"}",
            422,
            "vm \"a\"",
            "has no disk",
        ),
        (
            "PUT",
            "/v1/vms/a",
            "{\"device\": \"disk1\", \"disk\": [{\"size\": 5}]}",
            422,
            "vm \"a\": disk[0].size",
            "5 is a bare number",
        ),
        (
            "PUT",
            "/v1/vms/a",
            "{\"name\": \"b\"}",
            422,
            "name",
            "\"b\" in the body",
        ),
        (
            "PUT",
            "/v1/vms/.a",
            "{}",
            422,
            "vm \".a\": name",
            "cannot be a name",
        ),
        (
            "PUT",
            "/v1/vms/oltp/disks/x",
            "{\"path\": \"/a\"}",
            422,
            "path",
            "have no path",
        ),
        (
            "PATCH",
            "/v1/vms/oltp/disks/oltp",
            "{\"size\": \"1 MiB\"}",
            409,
            "oltp",
            "would be lost",
        ),
        (
            "PATCH",
            "/v1/vms/oltp/disks/x",
            "{\"size\": \"1 MiB\"}",
            404,
            "disk",
            "no disk",
        ),
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
async fn a_vm_is_put_once_and_what_differs_is_said() {
    let plane = Pretended::new();
    let new = json!({
        "device": "disk1",
        "objective": { "limit": "500 IOPS" },
        "disk": [{ "size": "2 GiB" }, { "export": "new-logs", "size": "1 GiB" }],
    });
    let path = "/v1/vms/new";
    let put = async |body: &Value| ask(&plane, "PUT", path, &body.to_string()).await;
    let (status, vm) = put(&new).await;
    assert_eq!(status, StatusCode::CREATED, "{vm}");
    assert_eq!(
        (&vm["device"], &vm["objective"]["limit"]["total"]),
        (&json!("disk1"), &json!("500 IOPS"))
    );
    assert_eq!(vm["disks"][1]["export"], "new-logs");
    let (status, again) = put(&new).await;
    assert_eq!((status, again), (StatusCode::OK, vm.clone()));
    // A promise is changed in place, and the whole of it is what was asked for.
    let mut other = new.clone();
    other["objective"] = json!({ "weight": 7 });
    let (status, changed) = put(&other).await;
    assert_eq!(status, StatusCode::OK, "{changed}");
    assert_eq!(changed["objective"]["weight"], 7);
    assert_eq!(changed["objective"]["limit"], Value::Null);

    let differs = json!({
        "device": "disk0",
        "background": true,
        "disk": [{ "size": "3 GiB", "block_size": "4 KiB" }, { "export": "x", "size": "1 GiB" }],
    });
    let (status, refused) = put(&differs).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let also = refused["also"].as_array().expect("a list");
    let said: Vec<&str> = also.iter().filter_map(|p| p["what"].as_str()).collect();
    let expected = [
        "device is \"disk1\", not \"disk0\"",
        "background is \"false\", not \"true\"",
        "disk \"new\": block_size is \"512\", not \"4096\"",
        "disk \"new\": size is \"2 GiB\", not \"3 GiB\"",
        "it has no disk that is exported as \"x\"",
        "it has a disk more, exported as \"new-logs\"",
    ];
    assert_eq!(said, expected);
    let (_, same) = ask(&plane, "GET", path, "").await;
    assert_eq!(same, changed);

    let (status, removed) = ask(&plane, "DELETE", "/v1/vms/new?force=true", "").await;
    assert_eq!(status, StatusCode::OK, "{removed}");
    assert_eq!(removed["removed"], "new");
    assert_eq!(removed["not_flushed"].as_array().map(Vec::len), Some(1));
    let (status, _) = ask(&plane, "DELETE", "/v1/vms/new?force=true", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_is_to_survive_is_kept_or_does_not_happen() {
    let plane = Pretended::new();
    let kept = || -> BTreeSet<String> {
        let kept = plane.2.lock().expect("nobody panicked");
        kept.keys().cloned().collect()
    };
    let new = "{\"device\": \"disk0\", \"disk\": [{\"size\": \"1 GiB\"}]}";
    let put = async |path: &str| ask(&plane, "PUT", path, new).await.0;
    assert_eq!(put("/v1/vms/brief").await, StatusCode::CREATED);
    assert!(kept().is_empty());
    // Asked for once more, to stay this time.
    assert_eq!(put("/v1/vms/brief?persist=true").await, StatusCode::OK);
    assert_eq!(put("/v1/vms/long?persist=true").await, StatusCode::CREATED);
    assert_eq!(kept(), ["brief", "long"].map(str::to_owned).into());
    let status = put("/v1/vms/unkept?persist=true").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    let (status, _) = ask(&plane, "GET", "/v1/vms/unkept", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "it is there all the same");

    let delete = async |path: &str| ask(&plane, "DELETE", path, "").await;
    let (status, _) = delete("/v1/vms/brief?persist=true&force=true").await;
    assert_eq!((status, kept().len()), (StatusCode::OK, 1));
    // Without it a restart brings it back; then there is only what is kept to be removed.
    let (status, _) = delete("/v1/vms/long?force=true").await;
    assert_eq!((status, kept().len()), (StatusCode::OK, 1));
    let (status, _) = delete("/v1/vms/long?persist=true").await;
    assert_eq!((status, kept().len()), (StatusCode::OK, 0));
    let (status, _) = delete("/v1/vms/long?persist=true").await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    // The configuration's own VMs.
    let (status, refused) = delete("/v1/vms/oltp?persist=true&force=true").await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let allowed = refused["error"]["allowed"].as_str().expect("text");
    assert!(allowed.contains("out of the configuration"), "{refused}");
    let size = "{\"size\": \"2 GiB\"}";
    let disk = "/v1/vms/oltp/disks/oltp?persist=true";
    let (status, _) = ask(&plane, "PATCH", disk, size).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let objective = "/v1/vms/oltp/objective?persist=true";
    let (status, _) = ask(&plane, "PATCH", objective, "{\"weight\": 7}").await;
    assert_eq!(
        (status, kept()),
        (StatusCode::OK, ["oltp".to_owned()].into())
    );
}

#[tokio::test]
async fn a_disk_that_is_not_there_keeps_nothing_but_its_own_absence() {
    let plane = Pretended::new();
    let kept = || plane.2.lock().expect("nobody panicked").clone();
    let new = "{\"device\": \"disk0\", \"disk\": [{\"size\": \"1 GiB\"}]}";
    let put = async |path: &str, body: &str| ask(&plane, "PUT", path, body).await.0;
    let delete = async |path: &str| ask(&plane, "DELETE", path, "").await.0;
    assert_eq!(put("/v1/vms/brief", new).await, StatusCode::CREATED);
    let misspelt = "/v1/vms/brief/disks/breif?persist=true";
    assert_eq!(delete(misspelt).await, StatusCode::NOT_FOUND);
    assert_eq!(kept(), BTreeMap::new());

    // Gone until the end, and then for good.
    assert_eq!(
        put("/v1/vms/long?persist=true", new).await,
        StatusCode::CREATED
    );
    let logs = "/v1/vms/long/disks/logs";
    let disk = "{\"size\": \"1 GiB\"}";
    assert_eq!(
        put(&format!("{logs}?persist=true"), disk).await,
        StatusCode::CREATED
    );
    assert_eq!(delete(logs).await, StatusCode::OK);
    assert_eq!(kept()["long"].len(), 2);
    let for_good = format!("{logs}?persist=true");
    assert_eq!(delete(&for_good).await, StatusCode::OK);
    assert_eq!(kept()["long"], ["long".to_owned()].into());
    assert_eq!(delete(&for_good).await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn disks_are_put_resized_and_removed_by_themselves() {
    let plane = Pretended::new();
    let path = "/v1/vms/oltp/disks/logs";
    for expected in [StatusCode::CREATED, StatusCode::OK] {
        let (status, vm) = ask(&plane, "PUT", path, "{\"size\": \"2 GiB\"}").await;
        assert_eq!(
            (status, vm["disks"].as_array().map(Vec::len)),
            (expected, Some(2))
        );
    }
    let (status, refused) = ask(&plane, "PUT", path, "{\"size\": \"3 GiB\"}").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(refused["also"][0]["allowed"], "PATCH the disk's size");
    for _ in 0..2 {
        let (status, vm) = ask(&plane, "PATCH", path, "{\"size\": \"3 GiB\"}").await;
        assert_eq!(
            (status, &vm["disks"][1]["size_bytes"]),
            (StatusCode::OK, &json!(3u64 << 30))
        );
    }
    let shrink = "/v1/vms/oltp/disks/oltp?force=true";
    let (status, vm) = ask(&plane, "PATCH", shrink, "{\"size\": \"1 MiB\"}").await;
    assert_eq!(
        (status, &vm["disks"][0]["size_bytes"]),
        (StatusCode::OK, &json!(1 << 20))
    );
    let (status, removed) = ask(&plane, "DELETE", path, "").await;
    assert_eq!(
        (status, &removed["removed"]),
        (StatusCode::OK, &json!("logs"))
    );
    let (status, _) = ask(&plane, "DELETE", path, "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn a_vm_whose_loop_is_silent_is_not_taken_for_gone() {
    let plane = Pretended::new();
    let path = "/v1/vms/silent?persist=true&force=true";
    let new = "{\"device\": \"disk0\", \"disk\": [{\"size\": \"1 GiB\"}]}";
    let (status, _) = ask(&plane, "PUT", path, new).await;
    assert_eq!(status, StatusCode::CREATED);
    let (status, refused) = ask(&plane, "DELETE", path, "").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{refused}");
    let kept = plane.2.lock().expect("nobody panicked");
    assert!(kept.contains_key("silent"), "it is served, and forgotten");
}

#[tokio::test(start_paused = true)]
async fn an_objective_is_carried_through_even_if_its_asker_hangs_up() {
    let plane = Pretended::new();
    let new = "{\"device\": \"disk0\", \"disk\": [{\"size\": \"1 GiB\"}]}";
    ask(&plane, "PUT", "/v1/vms/slow", new).await;
    let path = "/v1/vms/slow/objective?persist=true";
    let asked = ask(&plane, "PATCH", path, "{\"weight\": 7}");
    let asked = tokio::time::timeout(ANSWER_WITHIN, asked).await;
    assert!(asked.is_err(), "it was answered before");
    tokio::time::sleep(ANSWER_WITHIN * 2).await;
    assert_eq!(plane.vm("slow").expect("added").objective.weight, 7);
    assert!(
        plane
            .2
            .lock()
            .expect("nobody panicked")
            .contains_key("slow")
    );
    let (status, vm) = ask(&plane, "PATCH", path, "{\"weight\": 8}").await;
    assert_eq!(
        (status, &vm["objective"]["weight"]),
        (StatusCode::OK, &json!(8))
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_stuck_does_not_hang_the_next() {
    let changing = Arc::<tokio::sync::Mutex<()>>::default();
    let api = Api {
        plane: Pretended::new(),
        changing: changing.clone(),
    };
    let stuck = changing.lock().await;
    let error = api.alone("oltp").await.expect_err("it is held");
    assert_eq!(error.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(error.body.error.what.contains("another change"));
    drop(stuck);
    assert!(api.alone("oltp").await.is_ok());
}

#[test]
fn a_path_is_the_same_whole_or_not() {
    let now = snapshot("disk0", &["new"]).vms.remove(0);
    let mut old = pretended_vm("new", 0, Objective::default()).disks.remove(0);
    let mut asked = old.clone();
    asked.path = Some("somewhere/new.raw".into());
    old.path = std::path::absolute("somewhere/new.raw").ok();
    assert!(differ::disks(&old, &now, &asked).is_empty());
    asked.path = Some("elsewhere/new.raw".into());
    assert_eq!(differ::disks(&old, &now, &asked).len(), 1);
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
    fn vms_of(&self, _: usize) -> Vec<VmConfig> {
        Vec::new()
    }

    async fn look(&self, _: &str) -> Result<VmSnapshot, ControlError> {
        std::future::pending().await
    }

    async fn keep(&self, _: &str) -> Result<(), ControlError> {
        Err(ControlError::NoStore)
    }

    async fn forget(&self, _: &str) -> Result<bool, ControlError> {
        Err(ControlError::NoStore)
    }

    async fn keeps_disk(&self, _: &str, _: &str) -> Result<bool, ControlError> {
        Err(ControlError::NoStore)
    }

    fn may_forget(&self, _: &str) -> Result<(), ControlError> {
        Err(ControlError::NoStore)
    }

    fn is_configured(&self, _: &str) -> bool {
        false
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    fn device_configs(&self) -> Vec<DeviceConfig> {
        Vec::new()
    }

    fn base(&self) -> PathBuf {
        PathBuf::new()
    }

    fn vm(&self, _: &str) -> Option<VmConfig> {
        None
    }

    async fn add_vm(&self, _: VmConfig) -> Result<VmSnapshot, ControlError> {
        std::future::pending().await
    }

    async fn remove_vm(&self, _: &str, _: bool) -> Result<Vec<String>, ControlError> {
        std::future::pending().await
    }

    async fn add_disk(&self, _: &str, _: DiskConfig) -> Result<VmSnapshot, ControlError> {
        std::future::pending().await
    }

    async fn remove_disk(&self, _: &str, _: &str, _: bool) -> Result<Vec<String>, ControlError> {
        std::future::pending().await
    }

    async fn resize_disk(
        &self,
        _: &str,
        _: &str,
        _: u64,
        _: bool,
    ) -> Result<VmSnapshot, ControlError> {
        std::future::pending().await
    }

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

#[tokio::test]
async fn what_does_not_fit_the_device_is_refused_unless_it_is_forced() {
    let mut plane = Pretended::new();
    async fn set(plane: &Pretended, rate: &str, query: &str) -> (StatusCode, Value) {
        let path = format!("/v1/vms/bulk/objective{query}");
        let body = format!("{{\"reservation\": \"{rate}\"}}");
        ask(plane, "PATCH", &path, &body).await
    }
    // Nobody knows what it can do.
    let (status, _) = set(&plane, "100000 IOPS", "").await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = set(&plane, "none", "").await;
    assert_eq!(status, StatusCode::OK);

    let curve = || Curve::new(&[(4096, 1000.0), (1 << 20, 1000.0)]).expect("a curve");
    let profile = Profile::new([curve(), curve()], None, Vec::new(), Vec::new());
    plane.3 = Some(Arc::new(profile));
    // 120 IOPS are promised to another.
    let (status, refused) = set(&plane, "700 IOPS", "").await;
    assert_eq!(status, StatusCode::CONFLICT);
    let error = &refused["error"];
    assert_eq!(
        error["what"],
        "does not fit: what is promised on this device needs 82 % of its time; at most 80 % may be \
         promised, and bulk needs 70 %"
    );
    assert_eq!(
        error["allowed"],
        "the nearest that fits: reservation = \"680 IOPS\"; or ?force=true, to promise it all the same"
    );
    let (_, vm) = ask(&plane, "GET", "/v1/vms/bulk", "").await;
    assert_eq!(vm["objective"]["reservation"], Value::Null);
    let (status, _) = set(&plane, "680 IOPS", "").await;
    assert_eq!(status, StatusCode::OK);

    let (status, forced) = set(&plane, "900 IOPS", "?force=true").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(forced["objective"]["reservation"], "900 IOPS");
    // It is too much now; less is welcome, more is not, and what is not about it does not matter.
    let (status, _) = set(&plane, "800 IOPS", "").await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = set(&plane, "801 IOPS", "").await;
    assert_eq!(status, StatusCode::CONFLICT);
    let (status, _) = ask(&plane, "PATCH", "/v1/vms/oltp/objective", "{\"weight\": 7}").await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = set(&plane, "1 IOPS", "?forse=true").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}
