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
