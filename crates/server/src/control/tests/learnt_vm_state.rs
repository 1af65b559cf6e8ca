//! Export and import of learnt states of VMs.

use super::*;

#[tokio::test]
async fn what_was_learnt_goes_out_and_comes_in_again() {
    let plane = Pretended::new();
    let learnt = "/v1/vms/oltp/learnt";
    let (status, file) = ask(&plane, "GET", learnt, "").await;
    assert_eq!(status, StatusCode::OK, "{file}");
    assert_eq!(
        (&file["controller"], &file["disks"]),
        (&json!("tuner"), &json!(["memory"]))
    );
    for (query, note) in [
        ("", "Detect"),
        ("?disks=moved", "Different"),
        ("?disks=same", "Same"),
    ] {
        let path = format!("/v1/vms/dss/learnt{query}");
        let (status, vm) = ask(&plane, "PUT", &path, &file.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{vm}");
        assert_eq!((&vm["name"], &vm["pending"]), (&json!("dss"), &json!(77)));
        assert_eq!(vm["notes"], json!([note]));
    }
}

#[tokio::test]
async fn what_cannot_be_taken_over_is_refused_with_the_reason_and_changes_nothing() {
    let plane = Pretended::new();
    let before = ask(&plane, "GET", "/v1/vms", "").await;
    let good = serde_json::to_value(learnt_file("a", "tuner")).expect("plain data");
    let mut cut = good.clone();
    cut["state"] = json!("01");
    let other = serde_json::to_string(&learnt_file("a", "other")).expect("plain data");
    let (good, cut) = (good.to_string(), cut.to_string());
    let path = "/v1/vms/oltp/learnt";
    for (method, path, body, status, at, what) in [
        (
            "GET",
            "/v1/vms/olpt/learnt",
            "",
            404,
            "vm",
            "no VM \"olpt\"",
        ),
        (
            "GET",
            "/v1/vms/bulk/learnt",
            "",
            409,
            "bulk",
            "nothing was learnt",
        ),
        (
            "PUT",
            "/v1/vms/olpt/learnt",
            good.as_str(),
            404,
            "vm",
            "no VM \"olpt\"",
        ),
        ("PUT", path, "{", 400, "body", "not JSON"),
        ("PUT", path, "{}", 422, "body", "not a file of learnt"),
        ("PUT", path, cut.as_str(), 422, "body", "changed or damaged"),
        ("PUT", path, other.as_str(), 409, "oltp", "learnt by other"),
        (
            "PUT",
            "/v1/vms/oltp/learnt?disks=gone",
            good.as_str(),
            400,
            "query",
            "gone",
        ),
        ("DELETE", path, "", 405, "method", "DELETE"),
    ] {
        let (got, answer) = ask(&plane, method, path, body).await;
        assert_eq!(got.as_u16(), status, "{method} {path}: {answer}");
        assert_eq!(answer["error"]["where"], at, "{method} {path}: {answer}");
        let message = answer["error"]["what"].as_str().expect("text");
        assert!(message.contains(what), "{method} {path}: {answer}");
    }
    assert_eq!(ask(&plane, "GET", "/v1/vms", "").await, before);
}
