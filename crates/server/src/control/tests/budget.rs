//! Budgets of devices, and readiness.

use super::*;

/// Returns the budgets of the two devices.
async fn budgets(plane: &Pretended) -> [Value; 2] {
    let (status, body) = ask(plane, "GET", "/v1/budget", "").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let all: Vec<Value> = serde_json::from_value(body).expect("a list");
    all.try_into().expect("two devices")
}

async fn reserve(plane: &Pretended, iops: u64, query: &str) -> StatusCode {
    let body = format!("{{\"reservation\": \"{iops} IOPS\"}}");
    let path = format!("/v1/vms/bulk/objective{query}");
    ask(plane, "PATCH", &path, &body).await.0
}

#[tokio::test]
async fn a_budget_is_what_admission_admits() {
    let mut plane = Pretended::new();
    let [unknown, _] = budgets(&plane).await;
    assert_eq!(unknown["available"], Value::Null);
    let reason = unknown["reason"].as_str().expect("a reason");
    assert!(reason.contains("`tidegate profile`"), "{reason}");

    let curve = || Curve::new(&[(4096, 1000.0), (1 << 20, 1000.0)]).expect("a curve");
    let profile = Profile::new([curve(), curve()], None, Vec::new(), Vec::new());
    plane.profile = Some(Arc::new(profile));
    let [of_disk, _] = budgets(&plane).await;
    assert_eq!(of_disk["device"], "disk0");
    // 120 of 800 IOPS are promised to another VM.
    assert_eq!(of_disk["used_thousandths"], 150, "{of_disk}");
    let left = of_disk["available"]["reservation_iops"]
        .as_u64()
        .expect("a number");
    assert!((677..=680).contains(&left), "{of_disk}");
    let total = of_disk["total"]["reservation_iops"]
        .as_u64()
        .expect("a number");
    assert!((797..=800).contains(&total), "{of_disk}");
    assert_eq!(reserve(&plane, left, "").await, StatusCode::OK);
    // The VM has it now, and there is nothing worth mentioning for another one.
    let [then, _] = budgets(&plane).await;
    let left = then["available"]["reservation_iops"]
        .as_u64()
        .expect("a number");
    assert!(left <= 3, "{then}");
    assert_eq!(reserve(&plane, 684, "").await, StatusCode::CONFLICT);

    // On a device that is overcommitted nothing is left, and the answer says why.
    assert_eq!(reserve(&plane, 900, "?force=true").await, StatusCode::OK);
    let [over, _] = budgets(&plane).await;
    assert_eq!(over["available"]["reservation_iops"], 0);
    assert_eq!(over["available"]["transfer_bytes_per_s"], 0);
    assert_eq!(over["used_thousandths"], 1275);
    let reason = over["reason"].as_str().expect("a reason");
    assert!(reason.contains("102 % of the device's time"), "{reason}");
}

#[tokio::test]
async fn a_budget_leaves_room_for_later_entries_of_schedules() {
    let mut plane = Pretended::new();
    let curve = || Curve::new(&[(4096, 1000.0), (1 << 20, 1000.0)]).expect("a curve");
    let profile = Profile::new([curve(), curve()], None, Vec::new(), Vec::new());
    plane.profile = Some(Arc::new(profile));
    let entry = "{\"from\": \"20:00\", \"until\": \"21:00\", \"reservation\": \"580 IOPS\"}";
    let (status, body) = ask(&plane, "POST", "/v1/vms/bulk/schedule", entry).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let [of_disk, _] = budgets(&plane).await;
    let left = of_disk["available"]["reservation_iops"]
        .as_u64()
        .expect("a number");
    assert!((99..=100).contains(&left), "{of_disk}");
}

#[tokio::test]
async fn a_daemon_is_ready_until_another_one_takes_over() {
    let plane = Pretended::new();
    let ready = |ready: bool, problems: Value| json!({ "ready": ready, "problems": problems });
    let (status, body) = ask(&plane, "GET", "/readyz", "").await;
    assert_eq!((status, body), (StatusCode::OK, ready(true, json!([]))));
    // A disk that has failed keeps no VM from being added.
    plane.with(|devices| devices[1].vms[0].disks[0].failed = Some("fsync: EIO".to_owned()));
    let (status, _) = ask(&plane, "GET", "/readyz", "").await;
    assert_eq!(status, StatusCode::OK);
    assert!(plane.gate.close(Duration::from_secs(1)).await);
    let (status, body) = ask(&plane, "GET", "/readyz", "").await;
    let problems = json!(["another daemon is taking over"]);
    let expected = (StatusCode::SERVICE_UNAVAILABLE, ready(false, problems));
    assert_eq!((status, body), expected);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_with_a_silent_loop_is_not_ready() {
    let plane = Pretended::new();
    plane.with(|devices| devices[1].name = "stuck".to_owned());
    let (status, body) = ask(&plane, "GET", "/readyz", "").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(body["ready"], false);
    let problem = body["problems"][0].as_str().expect("one");
    assert!(problem.starts_with("device stuck: "), "{problem}");
}
