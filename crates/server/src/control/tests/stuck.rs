//! Operations that hang or fail.

use super::*;
use crate::control::error::ApiResult;

#[tokio::test(start_paused = true)]
async fn a_vm_whose_loop_is_silent_is_not_taken_for_gone() {
    let plane = Pretended::new();
    let path = "/v1/vms/silent?persist=true&force=true";
    let new = "{\"device\": \"disk0\", \"disk\": [{\"size\": \"1 GiB\"}]}";
    let (status, _) = ask(&plane, "PUT", path, new).await;
    assert_eq!(status, StatusCode::CREATED);
    let (status, refused) = ask(&plane, "DELETE", path, "").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{refused}");
    let kept = plane.stored.lock().expect("no test thread has panicked");
    assert!(kept.contains_key("silent"), "it is served, and forgotten");
}

#[tokio::test(start_paused = true)]
async fn requests_about_one_device_or_vm_share_what_its_loop_says() {
    for path in [
        "/v1/devices/disk0",
        "/v1/devices/disk0/interference",
        "/v1/vms/oltp",
        "/v1/vms/oltp/job",
    ] {
        let plane = Pretended::new();
        let api = Api::new(plane.clone(), Clock::system());
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let api = api.clone();
            asking.spawn(async move { ask_api(&api, "GET", path, "").await.0 });
        }
        let all = asking.join_all().await;
        assert_eq!(all, [StatusCode::OK; 100], "{path}");
        assert!(plane.asked() <= 2, "{path}: {} times", plane.asked());
    }
}

#[tokio::test(start_paused = true)]
async fn an_objective_is_carried_through_even_if_its_asker_hangs_up() {
    let plane = Pretended::new();
    let new = "{\"device\": \"disk0\", \"disk\": [{\"size\": \"1 GiB\"}]}";
    ask(&plane, "PUT", "/v1/vms/slow", new).await;
    let path = "/v1/vms/slow/objective?persist=true";
    let asked = ask(&plane, "PATCH", path, "{\"weight\": 7}");
    let asked = tokio::time::timeout(ANSWER_TIMEOUT, asked).await;
    assert!(asked.is_err(), "it was answered before");
    tokio::time::sleep(ANSWER_TIMEOUT * 2).await;
    assert_eq!(plane.vm("slow").expect("added").objective.weight, 7);
    assert!(
        plane
            .stored
            .lock()
            .expect("no test thread has panicked")
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
    let api = Api::new(Pretended::new(), Clock::system());
    let changing = api.changing.clone();
    let stuck = changing.lock().await;
    let error = api.lock_changes("oltp").await.expect_err("it is held");
    assert_eq!(error.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(error.body.error.what.contains("another change"));
    drop(stuck);
    assert!(api.lock_changes("oltp").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_never_ends_is_given_up_and_the_next_ones_go() {
    let api = Api::new(Pretended::new(), Clock::system());
    let never = std::future::pending::<ApiResult<()>>();
    let error = api.change("oltp", never).await.expect_err("it never ends");
    assert_eq!(error.status, StatusCode::SERVICE_UNAVAILABLE);
    let message = error.body.error.what;
    assert!(message.contains("other changes may start"), "{message}");
    let before = tokio::time::Instant::now();
    let done = api.change("oltp", async { Ok(7) }).await;
    assert_eq!(done.expect("no other change holds the lock"), 7);
    assert_eq!(before.elapsed(), std::time::Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn no_daemon_takes_over_in_a_change_whose_client_has_hung_up() {
    let second = std::time::Duration::from_secs(1);
    let plane = Pretended::new();
    let gate = plane.gate.clone();
    let api = Api::new(plane, Clock::system());
    let (end, ends) = tokio::sync::oneshot::channel::<()>();
    let change = api.change("oltp", async move {
        ends.await.expect("the test ends it");
        Ok(())
    });
    assert!(tokio::time::timeout(second, change).await.is_err());
    assert!(!gate.close(second).await, "it goes on");
    end.send(()).expect("it waits");
    assert!(gate.close(second).await);
    let refused = api.change("oltp", async { Ok(()) }).await;
    let error = refused.expect_err("a daemon takes over");
    assert_eq!(error.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn a_failed_disk_is_a_reason_and_the_daemon_goes_on() {
    let plane = Pretended::new();
    plane.with(|devices| devices[1].vms[0].disks[0].failed = Some("fsync: EIO".to_owned()));
    let (status, body) = ask(&plane, "GET", "/healthz", "").await;
    assert_eq!(
        (status, &body["status"]),
        (StatusCode::OK, &json!("degraded"))
    );
    assert_eq!(body["problems"], json!(["vm dss, export dss: fsync: EIO"]));
    let reason = json!({
        "kind": "disk_failed", "device": "disk1", "vm": "dss", "export": "dss",
        "what": "fsync: EIO",
    });
    assert_eq!(body["reasons"], json!([reason]));
}

#[tokio::test]
async fn a_disk_that_hangs_and_an_old_io_are_reasons_and_the_daemon_goes_on() {
    let plane = Pretended::new();
    let set = |hung: Option<u64>, oldest: u64| {
        plane.with(|devices| {
            let disk = &mut devices[1].vms[0].disks[0];
            disk.hung = hung.map(Nanos::from_secs);
            disk.oldest_io = Some(Nanos::from_secs(oldest));
        });
    };
    for (hung, oldest, kind, message) in [
        (
            Some(3),
            4,
            "disk_hung",
            "hangs: no I/O completed for 3 s; it gets one I/O at a time",
        ),
        (None, 10, "old_io", "has been with the device for 10 s"),
    ] {
        set(hung, oldest);
        let (status, body) = ask(&plane, "GET", "/healthz", "").await;
        assert_eq!(
            (status, &body["status"]),
            (StatusCode::OK, &json!("degraded"))
        );
        assert_eq!(body["reasons"].as_array().map(Vec::len), Some(1), "{body}");
        assert_eq!(body["reasons"][0]["kind"], kind);
        let problem = body["problems"][0].as_str().unwrap_or_default();
        assert!(problem.starts_with("vm dss, export dss: "), "{problem}");
        assert!(problem.contains(message), "{problem}");
    }
    set(None, 9);
    let (_, body) = ask(&plane, "GET", "/healthz", "").await;
    assert_eq!(body["status"], "ok", "{body}");
}

#[tokio::test(start_paused = true)]
async fn a_stuck_loop_is_reported_and_does_not_hang_its_asker() {
    let plane = Pretended::new();
    plane.with(|devices| devices[1].name = "stuck".to_owned());
    let (status, body) = ask(&plane, "GET", "/healthz", "").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(body["status"], "failing");
    assert_eq!(body["reasons"][0]["kind"], "loop_silent");
    let problems = body["problems"].as_array().expect("a list");
    assert_eq!(problems.len(), 1, "{body}");
    assert!(
        problems[0].as_str().is_some_and(|p| p.contains("stuck")),
        "{body}"
    );
}
