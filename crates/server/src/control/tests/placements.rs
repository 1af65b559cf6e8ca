//! Transfers that a cluster has placed: checked before they begin, and once more after that; and
//! those that placers have recorded without being able to ask.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate_api::cluster::PlacementClaim;
use tidegate_core::objective::Rate;
use tokio::sync::{mpsc, oneshot};

use super::*;
use crate::control::recorded_starts::follow_recorded_starts;
use crate::membership::{HandedMembership, Membership, PlacedTransfer, StartCheck, StartRefusal};

const JOB: &str = "/v1/vms/oltp/job";

fn body(host: &str, reserved: u64) -> String {
    let placement = json!({ "host": host, "begun_ns": 7, "reserved_bytes_per_s": reserved });
    json!({ "size": "1 GB", "deadline": "1 h", "placement": placement }).to_string()
}

/// Returns a daemon that is registered as host `a`. etcd answers its checks in turn, and confirms
/// all later ones.
fn joined(answers: Vec<Result<(), StartRefusal>>) -> Pretended {
    let plane = joined_as_a();
    let mut checks = taken_checks(&plane);
    tokio::spawn(async move {
        let mut answers = answers.into_iter();
        while let Some(check) = checks.recv().await {
            assert_eq!((check.vm.as_str(), check.claim.begun_ns), ("oltp", 7));
            let _ = check.reply.send(answers.next().unwrap_or(Ok(())));
        }
    });
    plane
}

/// Returns a daemon that is registered as host `a`; its checks are not answered yet.
fn joined_as_a() -> Pretended {
    let membership = Arc::new(Membership::new("a"));
    let handed = HandedMembership {
        key: "/t/members/a".to_owned(),
        instance: "1f".to_owned(),
        lease: 7,
    };
    membership.joined(Instant::now() + Duration::from_secs(3600), handed);
    let mut plane = Pretended::new();
    plane.membership = Some(membership);
    plane
}

fn taken_checks(plane: &Pretended) -> mpsc::Receiver<StartCheck> {
    let membership = plane.membership.as_ref().expect("joined");
    membership.take_checks().expect("the first")
}

/// Returns whether the VM `oltp` has a transfer.
fn running(plane: &Pretended) -> bool {
    plane.with(|devices| {
        let mut vms = devices.iter().flat_map(|device| &device.vms);
        let vm = vms.find(|vm| vm.name == "oltp").expect("served");
        vm.transfers.running.is_some()
    })
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
    let plane = joined(vec![Ok(()), Err(StartRefusal::ended("it has ended"))]);
    let (status, refused) = ask(&plane, "PUT", JOB, &body("a", u64::MAX)).await;
    assert_eq!(
        (status, what(&refused)),
        (StatusCode::CONFLICT, "it has ended")
    );
    let (_, shown) = ask(&plane, "GET", JOB, "").await;
    assert_eq!(shown.get("job"), None, "{shown}");
    // One that cannot be confirmed now goes on, and is checked again later.
    let plane = joined(vec![Ok(()), Err(StartRefusal::at_present("etcd is away"))]);
    let (status, begun) = ask(&plane, "PUT", JOB, &body("a", u64::MAX)).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    // Nor does another refusal end what runs there.
    let plane = joined(vec![Ok(()), Err(StartRefusal::invalid("it is damaged"))]);
    let (status, begun) = ask(&plane, "PUT", JOB, &body("a", u64::MAX)).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    assert!(running(&plane));
}

/// Returns a daemon whose first check is confirmed, and the number of later ones, to which etcd
/// answers in turn.
fn joined_and_counted(later: Vec<Result<(), StartRefusal>>) -> (Pretended, Arc<AtomicUsize>) {
    let plane = joined_as_a();
    let mut checks = taken_checks(&plane);
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    tokio::spawn(async move {
        let first = checks.recv().await.expect("the first check");
        let _ = first.reply.send(Ok(()));
        let mut later = later.into_iter();
        while let Some(check) = checks.recv().await {
            assert!(check.has_begun);
            counted.fetch_add(1, Ordering::Relaxed);
            let _ = check.reply.send(later.next().expect("no further check"));
        }
    });
    (plane, made)
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_etcd_has_not_confirmed_is_checked_until_it_tells() {
    let away = || Err(StartRefusal::at_present("etcd is away"));
    let ended = Err(StartRefusal::ended("it has ended"));
    let (plane, made) = joined_and_counted(vec![away(), away(), ended]);
    let (status, begun) = ask(&plane, "PUT", JOB, &body("a", u64::MAX)).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    assert!(running(&plane));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!running(&plane), "it runs without a placement");
    assert_eq!(made.load(Ordering::Relaxed), 3);
    // One that is confirmed goes on, and is not checked any more.
    let (plane, made) = joined_and_counted(vec![away(), away(), Ok(())]);
    let (status, _) = ask(&plane, "PUT", JOB, &body("a", u64::MAX)).await;
    assert_eq!(status, StatusCode::CREATED);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(running(&plane));
    assert_eq!(made.load(Ordering::Relaxed), 3);
    // Nor is one that has ended.
    let (plane, made) = joined_and_counted(vec![away()]);
    let (status, _) = ask(&plane, "PUT", JOB, &body("a", u64::MAX)).await;
    assert_eq!(status, StatusCode::CREATED);
    let (status, _) = ask(&plane, "DELETE", JOB, "").await;
    assert_eq!(status, StatusCode::OK);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(made.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_repeated_is_confirmed_by_one_task() {
    let away = || Err(StartRefusal::at_present("etcd is away"));
    // Three of the starts, and two of the task, which asks 1 s and 3 s after the first start.
    let mut later = vec![away(), away(), away(), away()];
    later.push(Ok(()));
    let (plane, made) = joined_and_counted(later);
    for _ in 0..3 {
        let (status, begun) = ask(&plane, "PUT", JOB, &body("a", u64::MAX)).await;
        assert_eq!(status, StatusCode::CREATED, "{begun}");
    }
    let membership = plane.membership.clone().expect("joined");
    let transfer = PlacedTransfer {
        vm: "oltp".to_owned(),
        placed_ns: 7,
    };
    assert!(membership.is_confirming(&transfer));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(running(&plane));
    assert_eq!(made.load(Ordering::Relaxed), 5);
    assert!(!membership.is_confirming(&transfer));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_the_loop_carries_out_late_is_confirmed_and_one_that_it_refuses_is_not() {
    let new = json!({ "device": "disk0", "disk": [{ "size": "1 GiB" }] }).to_string();
    let own = json!({ "size": "3 GB", "deadline": "1 h" }).to_string();
    let job = "/v1/vms/slow/job";
    for has_job in [false, true] {
        let (plane, made) = joined_and_counted(vec![Ok(())]);
        let (status, _) = ask(&plane, "PUT", "/v1/vms/slow", &new).await;
        assert_eq!(status, StatusCode::CREATED);
        if has_job {
            // The answer is late as well.
            let _ = ask(&plane, "PUT", job, &own).await;
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        let (status, late) = ask(&plane, "PUT", job, &body("a", u64::MAX)).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{late}");
        tokio::time::sleep(Duration::from_secs(600)).await;
        let (_, shown) = ask(&plane, "GET", job, "").await;
        let size = if has_job {
            3_000_000_000_u64
        } else {
            1_000_000_000
        };
        assert_eq!(shown["job"]["size_bytes"], size, "{shown}");
        assert_eq!(made.load(Ordering::Relaxed), usize::from(!has_job));
    }
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

/// Answers the checks of a daemon one by one: the second only when the sender says so.
fn joined_with_second(answer: oneshot::Receiver<Result<(), StartRefusal>>) -> Pretended {
    let plane = joined_as_a();
    let mut checks = taken_checks(&plane);
    tokio::spawn(async move {
        let first = checks.recv().await.expect("the first check");
        let _ = first.reply.send(Ok(()));
        let second = checks.recv().await.expect("the confirmation");
        let _ = second.reply.send(answer.await.expect("an answer"));
    });
    plane
}

#[tokio::test(start_paused = true)]
async fn a_placement_is_confirmed_for_a_client_that_has_hung_up() {
    let (answer, second) = oneshot::channel();
    let plane = joined_with_second(second);
    let begin = body("a", u64::MAX);
    let asked = ask(&plane, "PUT", JOB, &begin);
    let asked = tokio::time::timeout(Duration::from_secs(1), asked).await;
    assert!(asked.is_err(), "answered before the confirmation");
    assert!(running(&plane), "begun after the first check");
    answer
        .send(Err(StartRefusal::ended("it has ended")))
        .expect("the check is under way");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!running(&plane), "it runs without a placement");
}

#[tokio::test(start_paused = true)]
async fn confirmation_leaves_a_transfer_that_has_replaced_the_placed_one() {
    let (answer, second) = oneshot::channel();
    let plane = joined_with_second(second);
    let begin = body("a", u64::MAX);
    let asked = ask(&plane, "PUT", JOB, &begin);
    let asked = tokio::time::timeout(Duration::from_secs(1), asked).await;
    assert!(asked.is_err(), "answered before the confirmation");
    // Identities are times of the wall clock, to the millisecond.
    std::thread::sleep(Duration::from_millis(5));
    let own = json!({ "size": "3 GB", "deadline": "1 h" }).to_string();
    let replace = format!("{JOB}?replace=true");
    let (status, begun) = ask(&plane, "PUT", &replace, &own).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    answer
        .send(Err(StartRefusal::ended("it has ended")))
        .expect("the check is under way");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (_, shown) = ask(&plane, "GET", JOB, "").await;
    assert_eq!(shown["job"]["size_bytes"], 3_000_000_000_u64, "{shown}");
}

#[tokio::test]
async fn a_lease_that_ends_before_the_beginning_refuses_the_start() {
    let plane = joined_as_a();
    let membership = plane.membership.clone().expect("joined");
    let mut checks = taken_checks(&plane);
    tokio::spawn(async move {
        while let Some(check) = checks.recv().await {
            membership.lost(crate::membership::Obstacle::Starting);
            let _ = check.reply.send(Ok(()));
        }
    });
    let (status, refused) = ask(&plane, "PUT", JOB, &body("a", u64::MAX)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{refused}");
    assert!(!running(&plane));
}

/// Returns the API of a daemon that is registered as host `a`, which carries out recorded starts,
/// and the checks it has made: whether the transfer had begun.
fn with_recorded_starts() -> (Pretended, Arc<Membership>, mpsc::UnboundedReceiver<bool>) {
    let plane = joined_as_a();
    let mut checks = taken_checks(&plane);
    let (made, checked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(check) = checks.recv().await {
            let _ = made.send(check.has_begun);
            let _ = check.reply.send(Ok(()));
        }
    });
    let api = Api::new(plane.clone(), Clock::system());
    tokio::spawn(follow_recorded_starts(api));
    let membership = plane.membership.clone().expect("joined");
    (plane, membership, checked)
}

/// Returns the claim of a placement that was made so many seconds ago.
fn placed_ago(seconds: i64) -> PlacementClaim {
    let now = Clock::system().now().as_nanosecond();
    PlacementClaim {
        host: "a".to_owned(),
        begun_ns: u64::try_from(now).expect("after 1970") - seconds as u64 * 1_000_000_000,
        reserved_bytes_per_s: u64::MAX,
        device: None,
    }
}

const HOUR: Nanos = Nanos::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn a_recorded_start_is_carried_out_once_and_is_due_when_it_was_placed_for() {
    let (plane, membership, mut checked) = with_recorded_starts();
    let claim = placed_ago(1800);
    let start = || membership.start_recorded("oltp", 1_000_000_000, HOUR, claim.clone());
    assert_eq!(start().await, Ok(()));
    let (_, shown) = ask(&plane, "GET", JOB, "").await;
    assert_eq!(shown["job"]["size_bytes"], 1_000_000_000, "{shown}");
    let left = shown["job"]["due_in_s"].as_f64().expect("seconds");
    assert!((1790.0..=1800.0).contains(&left), "{left}");
    // The first check and the second, which says that the transfer has begun.
    assert_eq!(
        (checked.recv().await, checked.recv().await),
        (Some(false), Some(true))
    );
    // As if the answer was lost, or the placer asks at the same time.
    assert_eq!(start().await, Ok(()));
    let body = json!({ "size": "1 GB", "deadline": "1 h", "placement": claim }).to_string();
    let (status, begun) = ask(&plane, "PUT", JOB, &body).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    let (_, again) = ask(&plane, "GET", JOB, "").await;
    assert_eq!(again["job"]["begun"], shown["job"]["begun"], "another one");
    // Nothing is asked that a drained host would refuse.
    assert_eq!(
        (checked.recv().await, checked.recv().await),
        (Some(true), Some(true))
    );
    // It has been cancelled, so it must not come back.
    let (status, _) = ask(&plane, "DELETE", JOB, "").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(start().await, Ok(()));
    assert!(!running(&plane));
    // Nor after another transfer of the VM, as etcd may have been away for as long.
    let own = json!({ "size": "3 GB", "deadline": "1 h" }).to_string();
    let (status, _) = ask(&plane, "PUT", JOB, &own).await;
    assert_eq!(status, StatusCode::CREATED);
    let (status, _) = ask(&plane, "DELETE", JOB, "").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(start().await, Ok(()));
    assert!(!running(&plane));
}

#[tokio::test(start_paused = true)]
async fn a_recorded_start_is_refused_where_it_cannot_be_carried_out() {
    let (plane, membership, _checked) = with_recorded_starts();
    let late = membership.start_recorded("oltp", 1, HOUR, placed_ago(3600));
    let refused = late.await.expect_err("late");
    assert!(
        refused.is_final && refused.why.contains("passed before it could be started"),
        "{refused:?}"
    );
    let huge = membership.start_recorded("oltp", u64::MAX, HOUR, placed_ago(1));
    let refused = huge.await.expect_err("out of range");
    assert!(refused.why.contains("out of range"), "{refused:?}");
    let unknown = membership.start_recorded("nobody", 1, HOUR, placed_ago(1));
    let refused = unknown.await.expect_err("no such VM");
    assert!(refused.is_final, "{refused:?}");
    let own = json!({ "size": "3 GB", "deadline": "1 h" }).to_string();
    let (status, begun) = ask(&plane, "PUT", JOB, &own).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    let beside = membership.start_recorded("oltp", 1, HOUR, placed_ago(1));
    let refused = beside.await.expect_err("the operator's runs");
    assert!(refused.is_final, "{refused:?}");
    let (_, shown) = ask(&plane, "GET", JOB, "").await;
    assert_eq!(shown["job"]["size_bytes"], 3_000_000_000_u64, "{shown}");
}
