//! Changes of limits of disks, and of limits that disks share.

use tidegate_core::objective::{Limit, Rate};

use super::*;
use crate::config::LimitGroup;

const DISK: &str = "/v1/vms/oltp/disks/oltp/limits";

#[tokio::test]
async fn limits_of_a_disk_are_changed_one_by_one() {
    let plane = Pretended::new();
    let patch = async |body: Value| {
        let (status, vm) = ask(&plane, "PATCH", DISK, &body.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{vm}");
        let disk = &vm["disks"][0];
        (disk["limit"].clone(), disk["limit_group"].clone())
    };
    let (limit, group) = patch(json!({ "limit": { "read": "500 IOPS" } })).await;
    assert_eq!((&limit["read"], group), (&json!("500 IOPS"), Value::Null));
    let (limit, group) = patch(json!({ "limit_group": "logs" })).await;
    assert_eq!((&limit["read"], group), (&json!("500 IOPS"), json!("logs")));
    let (limit, _) = patch(json!({ "limit": { "write": "9 MB/s" } })).await;
    assert_eq!(
        (&limit["read"], &limit["write"]),
        (&json!("500 IOPS"), &json!("9 MB/s"))
    );
    let both = patch(json!({ "limit": null, "limit_group": "none" })).await;
    assert_eq!(both, (Value::Null, Value::Null));
}

#[tokio::test]
async fn limits_that_cannot_be_are_refused() {
    let plane = Pretended::new();
    let persist = format!("{DISK}?persist=true");
    let limit = "{\"limit\": \"9 IOPS\"}";
    for (path, body, status, why) in [
        (
            DISK,
            "{\"limit_group\": \"log\"}",
            422,
            "did you mean \\\"logs\\\"?",
        ),
        (DISK, "{\"limits\": null}", 422, "unknown key"),
        ("/v1/vms/oltp/disks/data/limits", limit, 404, "oltp"),
        ("/v1/vms/nobody/disks/data/limits", limit, 404, "nobody"),
        // The disks of the configuration are those of the file.
        (&persist, limit, 409, "defined in the configuration"),
    ] {
        let (found, answer) = ask(&plane, "PATCH", path, body).await;
        assert_eq!(found.as_u16(), status, "{path} {body}: {answer}");
        assert!(answer.to_string().contains(why), "{answer}");
    }
    let (_, vm) = ask(&plane, "GET", "/v1/vms/oltp", "").await;
    assert_eq!(vm["disks"][0]["limit"], Value::Null, "{vm}");
}

#[tokio::test]
async fn a_change_that_cannot_be_persisted_changes_nothing() {
    let plane = Pretended::new();
    let disk = "{\"device\": \"disk0\", \"disk\": [{\"size\": \"1 GiB\", \"limit\": \"9 IOPS\"}]}";
    for (name, status) in [
        (simulated_daemon::NAME_THAT_CANNOT_BE_STORED, 500),
        (simulated_daemon::NAME_WITHOUT_STORE, 409),
    ] {
        let vm = format!("/v1/vms/{name}");
        let (added, answer) = ask(&plane, "PUT", &vm, disk).await;
        assert_eq!(added, StatusCode::CREATED, "{answer}");
        let path = format!("{vm}/disks/{name}/limits?persist=true");
        let (found, answer) = ask(&plane, "PATCH", &path, "{\"limit\": null}").await;
        assert_eq!(found.as_u16(), status, "{answer}");
        let (_, now) = ask(&plane, "GET", &vm, "").await;
        assert_eq!(now["disks"][0]["limit"]["total"], "9 IOPS", "{now}");
    }
}

/// Returns the limit of a VM's disk and the limit group whose limit it shares.
async fn limits_of(plane: &Pretended, vm: &str) -> (Value, Value) {
    let (_, vm) = ask(plane, "GET", &format!("/v1/vms/{vm}"), "").await;
    let disk = &vm["disks"][0];
    (disk["limit"]["total"].clone(), disk["limit_group"].clone())
}

#[tokio::test]
async fn both_limits_of_a_disk_are_changed_and_persisted_or_neither_is() {
    let plane = Pretended::new();
    let disk = json!({ "size": "1 GiB", "limit": "9 IOPS", "limit_group": "logs" });
    let added = json!({ "device": "disk0", "disk": [disk] }).to_string();
    let before = || (json!("9 IOPS"), json!("logs"));
    let good = json!({ "limit": { "total": "8 IOPS" }, "limit_group": "none" });
    let unknown_group = json!({ "limit": { "total": "8 IOPS" }, "limit_group": "log" });
    let bad_limit = json!({ "limit": { "total": "8 miles" }, "limit_group": "none" });
    let is_stored = |vm: &str| {
        let stored = plane.stored.lock().expect("no test thread has panicked");
        stored.contains_key(vm)
    };
    let full = simulated_daemon::NAME_THAT_CANNOT_BE_STORED;
    for (name, change, status) in [
        ("brief", &unknown_group, 422),
        ("brief", &bad_limit, 422),
        (full, &good, 500),
        (full, &unknown_group, 422),
    ] {
        let vm = format!("/v1/vms/{name}");
        let (status_of_vm, answer) = ask(&plane, "PUT", &vm, &added).await;
        assert!(status_of_vm.is_success(), "{answer}");
        let path = format!("{vm}/disks/{name}/limits?persist=true");
        let (found, answer) = ask(&plane, "PATCH", &path, &change.to_string()).await;
        assert_eq!(found.as_u16(), status, "{name}, {change}: {answer}");
        assert_eq!(limits_of(&plane, name).await, before(), "{name}, {change}");
        assert!(!is_stored(name), "{name}, {change}");
    }
    let path = "/v1/vms/brief/disks/brief/limits?persist=true";
    let (found, answer) = ask(&plane, "PATCH", path, &good.to_string()).await;
    assert_eq!(found, StatusCode::OK, "{answer}");
    let now = limits_of(&plane, "brief").await;
    assert_eq!(now, (json!("8 IOPS"), Value::Null));
    assert!(is_stored("brief"));
}

#[tokio::test]
async fn a_limit_that_disks_share_is_changed() {
    let plane = Pretended::new();
    plane.with(|devices| {
        devices[0].limit_groups = vec![LimitGroup {
            name: "logs".to_owned(),
            limit: Limit {
                write: Rate::iops(70),
                ..Limit::NONE
            },
        }];
    });
    let path = "/v1/devices/disk0/limit_groups/logs";
    let (status, device) = ask(
        &plane,
        "PATCH",
        path,
        "{\"limit\": {\"total\": \"80 IOPS\"}}",
    )
    .await;
    assert_eq!(status, StatusCode::OK, "{device}");
    let group = &device["limit_groups"][0];
    assert_eq!(group["name"], "logs");
    let limit = &group["limit"];
    assert_eq!(
        (&limit["total"], &limit["write"]),
        (&json!("80 IOPS"), &json!("70 IOPS"))
    );
    let (status, device) = ask(&plane, "PATCH", path, "{\"limit\": null}").await;
    assert_eq!(status, StatusCode::OK, "{device}");
    assert_eq!(device["limit_groups"][0]["limit"], Value::Null);
    for (path, body, status) in [
        (
            "/v1/devices/disk9/limit_groups/logs",
            "{\"limit\": null}",
            404,
        ),
        (
            "/v1/devices/disk0/limit_groups/log",
            "{\"limit\": null}",
            404,
        ),
        (path, "{}", 422),
    ] {
        let (found, answer) = ask(&plane, "PATCH", path, body).await;
        assert_eq!(found.as_u16(), status, "{path}: {answer}");
    }
}
