//! Transfers that a cluster has placed: checked before they begin, and once more after that.

use std::time::{Duration, Instant};

use tidegate_core::objective::Rate;

use super::*;
use crate::membership::{HandedMembership, Membership, StartRefusal};

const JOB: &str = "/v1/vms/oltp/job";

fn body(host: &str, reserved: u64) -> String {
    let placement = json!({ "host": host, "begun_ns": 7, "reserved_bytes_per_s": reserved });
    json!({ "size": "1 GB", "deadline": "1 h", "placement": placement }).to_string()
}

/// Returns a daemon that is registered as host `a`. etcd answers its checks in turn, and confirms
/// all later ones.
fn joined(answers: Vec<Result<(), StartRefusal>>) -> Pretended {
    let membership = Arc::new(Membership::new("a"));
    let handed = HandedMembership {
        key: "/t/members/a".to_owned(),
        instance: "1f".to_owned(),
        lease: 7,
    };
    membership.joined(Instant::now() + Duration::from_secs(3600), handed);
    let mut checks = membership.take_checks().expect("the first");
    tokio::spawn(async move {
        let mut answers = answers.into_iter();
        while let Some(check) = checks.recv().await {
            assert_eq!((check.vm.as_str(), check.claim.begun_ns), ("oltp", 7));
            let _ = check.reply.send(answers.next().unwrap_or(Ok(())));
        }
    });
    let mut plane = Pretended::new();
    plane.membership = Some(membership);
    plane
}

fn what(body: &Value) -> &str {
    body["error"]["what"].as_str().expect("a message")
}

#[tokio::test]
async fn a_daemon_without_a_cluster_starts_no_placements() {
    let plane = Pretended::new();
    let (status, refused) = ask(&plane, "PUT", JOB, &body("a", 0)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(
        what(&refused).contains("has joined no cluster"),
        "{refused}"
    );
    let own = json!({ "size": "1 GB", "deadline": "1 h" }).to_string();
    let (status, begun) = ask(&plane, "PUT", JOB, &own).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
}

#[tokio::test]
async fn a_daemon_outside_its_cluster_refuses_placements_alone() {
    let mut plane = Pretended::new();
    plane.membership = Some(Arc::new(Membership::new("a")));
    let (status, refused) = ask(&plane, "PUT", JOB, &body("a", 0)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        what(&refused).contains("is not in the cluster since"),
        "{refused}"
    );
    let (status, ready) = ask(&plane, "GET", "/readyz", "").await;
    assert_eq!((status, &ready["ready"]), (StatusCode::OK, &json!(true)));
    assert_eq!(ready["cluster"]["state"], "waiting");
    let (status, health) = ask(&plane, "GET", "/healthz", "").await;
    assert_eq!(
        (status, &health["status"]),
        (StatusCode::OK, &json!("degraded"))
    );
    assert_eq!(health["reasons"][0]["kind"], "not_in_cluster");
    let own = json!({ "size": "1 GB", "deadline": "1 h" }).to_string();
    let (status, begun) = ask(&plane, "PUT", JOB, &own).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
}

#[tokio::test]
async fn a_placement_that_is_confirmed_twice_runs() {
    let plane = joined(Vec::new());
    let (status, begun) = ask(&plane, "PUT", JOB, &body("a", u64::MAX)).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    assert_eq!(begun["job"]["size_bytes"], 1_000_000_000);
    let (_, shown) = ask(&plane, "GET", JOB, "").await;
    assert_eq!(shown["job"]["size_bytes"], 1_000_000_000);
}

#[tokio::test]
async fn a_placement_that_has_ended_does_not_begin() {
    let plane = joined(vec![Err(StartRefusal::invalid("it has ended"))]);
    let (status, refused) = ask(&plane, "PUT", JOB, &body("a", u64::MAX)).await;
    assert_eq!(
        (status, what(&refused)),
        (StatusCode::CONFLICT, "it has ended")
    );
    let (_, shown) = ask(&plane, "GET", JOB, "").await;
    assert_eq!(
        (shown.get("job"), shown.get("last")),
        (None, None),
        "{shown}"
    );
}

#[tokio::test]
async fn a_transfer_whose_placement_ends_as_it_begins_is_cancelled() {
    let plane = joined(vec![Ok(()), Err(StartRefusal::invalid("it has ended"))]);
    let (status, refused) = ask(&plane, "PUT", JOB, &body("a", u64::MAX)).await;
    assert_eq!(
        (status, what(&refused)),
        (StatusCode::CONFLICT, "it has ended")
    );
    let (_, shown) = ask(&plane, "GET", JOB, "").await;
    assert_eq!(shown.get("job"), None, "{shown}");
    // One that cannot be confirmed any more was confirmed before.
    let plane = joined(vec![Ok(()), Err(StartRefusal::at_present("etcd is away"))]);
    let (status, begun) = ask(&plane, "PUT", JOB, &body("a", u64::MAX)).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
}

#[tokio::test]
async fn a_placement_that_was_decided_before_a_vm_was_promised_more_is_refused() {
    let plane = joined(Vec::new());
    plane.vms(|vms| {
        for vm in vms.iter_mut() {
            vm.objective = Objective::default();
        }
        vms[0].objective.reservation = Rate::bytes(30_000_000);
        vms[2].objective.reservation = Rate::bytes(5_000_000);
    });
    let (status, refused) = ask(&plane, "PUT", JOB, &body("a", 34_999_999)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(what(&refused).contains("reserve 35000000 B/s"), "{refused}");
    let (status, begun) = ask(&plane, "PUT", JOB, &body("a", 35_000_000)).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
}
