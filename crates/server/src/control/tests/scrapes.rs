//! Listeners of metrics.

use axum::Router;

use super::*;
use crate::control::scrapes;

/// Sends a request to the listeners of metrics.
async fn scrape(router: &Router, method: &str, path: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path);
    let answer = (router.clone())
        .oneshot(request.body(Body::empty()).expect("good"))
        .await
        .expect("infallible");
    let status = answer.status();
    let body = answer.into_body().collect().await.expect("a body");
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    (status, text)
}

#[tokio::test]
async fn a_listener_of_metrics_serves_metrics_and_health_alone() {
    let plane = Pretended::new();
    let router = scrapes::router(Api::new(plane.clone(), Clock::system()));
    let before = format!("{:?}", plane.vms(|vms| vms.clone()));
    for path in ["/metrics", "/healthz", "/readyz"] {
        let (status, body) = scrape(&router, "GET", path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        let (_, expected) =
            ask_text(&Api::new(plane.clone(), Clock::system()), "GET", path, "").await;
        assert_eq!(body, expected, "what the control socket answers");
        for method in ["PUT", "POST", "PATCH", "DELETE"] {
            let (status, body) = scrape(&router, method, path).await;
            assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{body}");
        }
    }
    for path in [
        "/",
        "/v1/vms",
        "/v1/vms/oltp",
        "/v1/devices",
        "/v1/stats",
        "/v1/vms/oltp/objective",
        "/v1/disks/oltp/faults",
        "/metrics/",
        "/metrics/../v1/vms",
        "//v1/vms",
        "/healthz%2f..%2fv1/vms",
    ] {
        for method in ["GET", "PUT", "POST", "PATCH", "DELETE"] {
            let (status, body) = scrape(&router, method, path).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{method} {path}: {body}");
            assert!(body.contains("/metrics, /healthz or /readyz"), "{body}");
        }
    }
    assert_eq!(format!("{:?}", plane.vms(|vms| vms.clone())), before);
}

#[tokio::test(start_paused = true)]
async fn scrapes_that_come_together_share_an_answer() {
    let plane = Pretended::new();
    let router = scrapes::router(Api::new(plane.clone(), Clock::system()));
    let fail = |why: Option<&str>| {
        let why = why.map(str::to_owned);
        plane.with(|devices| devices[1].vms[0].disks[0].failed = why);
    };
    let is_degraded = async || {
        let (_, body) = scrape(&router, "GET", "/healthz").await;
        body.contains("degraded")
    };
    assert!(!is_degraded().await);
    fail(Some("fsync: EIO"));
    assert!(!is_degraded().await, "the answer of before");
    tokio::time::advance(Duration::from_millis(99)).await;
    assert!(!is_degraded().await);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(is_degraded().await, "a new one");
    // Each page has its own.
    fail(None);
    assert!(is_degraded().await);
    let (_, metrics) = scrape(&router, "GET", "/metrics").await;
    let mut failed = metrics
        .lines()
        .filter(|line| line.starts_with("tidegate_vm_disks_failed{"));
    assert!(failed.all(|line| line.ends_with(" 0.0")), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_completed_for_others_though_the_client_that_began_it_leaves() {
    let plane = Pretended::new();
    plane.with(|devices| devices[1].name = "stuck".to_owned());
    let router = scrapes::router(Api::new(plane.clone(), Clock::system()));
    let start = tokio::time::Instant::now();
    let soon = Duration::from_millis(10);
    for _ in 0..20 {
        let left = tokio::time::timeout(soon, scrape(&router, "GET", "/healthz")).await;
        left.expect_err("its loop does not answer");
    }
    let (status, body) = scrape(&router, "GET", "/healthz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    // The answer that the first client has begun.
    assert!(start.elapsed() < ANSWER_TIMEOUT + soon);
    plane.with(|devices| devices[1].name = "disk1".to_owned());
    let (status, body) = scrape(&router, "GET", "/healthz").await;
    assert_eq!(status, StatusCode::OK, "{body}");
}

#[tokio::test(start_paused = true)]
async fn questions_to_all_loops_have_a_distance_and_see_each_change_before_them() {
    let plane = Pretended::new();
    let api = Api::new(plane.clone(), Clock::system());
    for path in ["/healthz", "/metrics", "/v1/devices"] {
        let start = tokio::time::Instant::now();
        let mut answers = Vec::new();
        for failed in [true, false, true, false, true, false] {
            let why = failed.then(|| "fsync: EIO".to_owned());
            plane.with(|devices| devices[1].vms[0].disks[0].failed = why.clone());
            plane.with(|devices| devices[1].name = format!("disk{}", u8::from(failed)));
            let (_, answer) = ask_text(&api, "GET", path, "").await;
            answers.push(answer);
        }
        for pair in answers.windows(2) {
            assert_ne!(pair[0], pair[1], "{path}: an answer of before a change");
        }
        assert!(start.elapsed() >= Duration::from_millis(50), "{path}");
    }
    // Clients that ask at the same time share the answers of the loops.
    let start = tokio::time::Instant::now();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let api = api.clone();
        asking.spawn(async move { ask_text(&api, "GET", "/v1/stats", "").await });
    }
    for (status, body) in asking.join_all().await {
        assert_eq!(status, StatusCode::OK, "{body}");
    }
    assert!(start.elapsed() < Duration::from_millis(50));
}
