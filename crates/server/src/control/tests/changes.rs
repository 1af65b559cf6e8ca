//! Reads of devices, VMs and policies, and changes of objectives, policies and fault rules.

use super::*;
use crate::config::tests::enforcing;

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
    let stats: tidegate_api::stats::StatsView =
        serde_json::from_value(stats).expect("what the CLI reads");
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
        json!(
            match enforcing(&[|of| of.reservation, |of| of.limit_by_direction]) {
                // No single policy enforces both the reservation and the part, so a combination is
                // used.
                named if named.is_empty() => vec!["token-bucket+mclock"],
                named => named,
            }
        )
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

/// Request that must be refused: method, path, body; status, `where` and a part of `what` of the
/// answer.
type Refused<'a> = (&'a str, &'a str, &'a str, u16, &'a str, &'a str);

/// Asserts that each request gets its error, and that the VMs do not change.
async fn assert_refused(requests: &[Refused<'_>]) {
    let plane = Pretended::new();
    let before = ask(&plane, "GET", "/v1/vms", "").await;
    for &(method, path, body, status, at, what) in requests {
        let (got, answer) = ask(&plane, method, path, body).await;
        assert_eq!(got.as_u16(), status, "{method} {path}: {answer}");
        assert_eq!(answer["error"]["where"], at, "{method} {path}: {answer}");
        let message = answer["error"]["what"].as_str().expect("text");
        assert!(message.contains(what), "{method} {path}: {answer}");
    }
    assert_eq!(ask(&plane, "GET", "/v1/vms", "").await, before);
}

#[tokio::test]
async fn what_does_not_exist_is_refused_by_name() {
    assert_refused(&[
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
        ("DELETE", "/v1/vms/oltp?sure=1", "", 400, "query", "sure"),
        ("GET", "/v1/stats?bucket=1", "", 400, "query", "bucket"),
    ])
    .await;
}

#[tokio::test]
async fn changes_of_vms_that_are_refused_say_why() {
    assert_refused(&[
        (
            "DELETE",
            "/v1/vms/oltp",
            "",
            409,
            "oltp",
            "1 client is connected: uid 0",
        ),
        (
            "PUT",
            "/v1/vms/a",
            "{}",
            422,
            "vm \"a\"",
            "no device is set",
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
    ])
    .await;
}

#[tokio::test]
async fn changes_of_disks_that_are_refused_say_why() {
    assert_refused(&[
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
    ])
    .await;
}

#[tokio::test]
async fn changes_of_an_objective_that_are_refused_say_why() {
    let huge = format!("{{\"latency\": \"{}\"}}", "x".repeat(BODY_BYTES_MAX));
    let objective = "/v1/vms/oltp/objective";
    assert_refused(&[
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
    ])
    .await;
}

#[tokio::test]
async fn policies_and_fault_rules_that_are_refused_say_why() {
    let policy = "/v1/devices/disk0/policy";
    let faults = "/v1/disks/oltp/faults";
    assert_refused(&[
        ("PUT", policy, "\"mclok\"", 422, "policy", "no policy named"),
        (
            "PUT",
            policy,
            "{\"name\": \"mclock\", \"slack\": 1}",
            422,
            "policy: slack",
            "bare",
        ),
        (
            "GET",
            "/v1/disks/dusk/faults",
            "",
            404,
            "export",
            "no export \"dusk\"",
        ),
        ("POST", faults, "{}", 422, "", "no effect is set"),
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
    ])
    .await;
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
    // The fault rules must show in the views of both the VM and the device.
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
async fn a_name_that_is_no_text_is_an_error_of_the_api() {
    let daemon = Pretended::new();
    for (method, path) in [
        ("GET", "/v1/vms/%ff"),
        ("PUT", "/v1/vms/a%f2b"),
        ("PATCH", "/v1/vms/oltp/disks/%c3"),
        ("DELETE", "/v1/disks/oltp/faults/%80"),
    ] {
        let (status, body) = ask(&daemon, method, path, "{}").await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        assert_eq!(body["error"]["what"], "a name in the path is not UTF-8");
    }
}
