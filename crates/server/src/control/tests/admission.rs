//! Objectives and deadline transfers that are admitted together, at noon of Sunday 2026-11-22.
//!
//! The device serves 1000 requests per second, of which 800 may be promised, and VM `oltp` has a
//! reservation of 120.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::*;

const JOB: &str = "/v1/vms/bulk/job";
const OBJECTIVE: &str = "/v1/vms/oltp/objective";
const SCHEDULE: &str = "/v1/vms/oltp/schedule";

fn api() -> Api<Pretended> {
    let curve = || Curve::new(&[(4096, 1000.0), (128 << 10, 1000.0)]).expect("a curve");
    let mut plane = Pretended::new();
    let profile = Profile::new([curve(), curve()], None, Vec::new(), Vec::new());
    plane.profile = Some(Arc::new(profile));
    let noon: Timestamp = "2026-11-22T12:00:00Z".parse().expect("a time");
    Api::new(plane, Clock::from_fn(move || noon).in_zone(TimeZone::UTC))
}

/// Returns a transfer that needs `permille` of the device's time until `hours` from now, in the
/// requests of 128 KiB that are assumed.
fn transfer(permille: u64, hours: u64) -> Value {
    let bytes = permille * (128 << 10) * 3600 * hours;
    json!({ "size": format!("{bytes} B"), "deadline": format!("{hours} h") })
}

async fn put(api: &Api<Pretended>, transfer: &Value) -> (StatusCode, Value) {
    ask_api(api, "PUT", JOB, &transfer.to_string()).await
}

async fn reserve(api: &Api<Pretended>, iops: u64) -> (StatusCode, Value) {
    let body = json!({ "reservation": format!("{iops} IOPS") });
    ask_api(api, "PATCH", OBJECTIVE, &body.to_string()).await
}

async fn schedule(api: &Api<Pretended>, from: &str, iops: u64) -> (StatusCode, Value) {
    let entry = json!({
        "from": from, "until": "21:00", "reservation": format!("{iops} IOPS"), "timezone": "UTC",
    });
    ask_api(api, "POST", SCHEDULE, &entry.to_string()).await
}

fn text<'a>(body: &'a Value, field: &str) -> &'a str {
    body["error"][field].as_str().expect("text")
}

/// Returns the part of a hint that gives a key of a transfer.
fn hinted(allowed: &str, key: &str) -> String {
    let (_, rest) = allowed
        .split_once(&format!("{key} = \""))
        .expect("it is named");
    rest.split('"').next().expect("it ends").to_owned()
}

#[tokio::test]
async fn an_objective_is_admitted_beside_running_transfers() {
    let api = api();
    let (status, begun) = put(&api, &transfer(600, 1)).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    let (status, refused) = reserve(&api, 250).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let what = text(&refused, "what");
    assert!(what.contains("the promises need 85."), "{what}");
    assert!(
        what.ends_with("; deadline transfers that run need 78.7 MB/s"),
        "{what}"
    );
    // What the answer names fits beside the transfer, and the whole once that has ended.
    let near = hinted(text(&refused, "allowed"), "reservation");
    let body = json!({ "reservation": near });
    let (status, set) = ask_api(&api, "PATCH", OBJECTIVE, &body.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{set}");
    ask_api(&api, "DELETE", JOB, "").await;
    assert_eq!(reserve(&api, 250).await.0, StatusCode::OK);
}

#[tokio::test]
async fn an_entry_of_a_schedule_is_admitted_beside_transfers_that_run_by_then() {
    let api = api();
    let (status, begun) = put(&api, &transfer(600, 6)).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    let (status, refused) = schedule(&api, "17:59", 500).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let what = text(&refused, "what");
    assert!(what.contains("from Sun 2026-11-22 17:59 UTC on "), "{what}");
    // The transfer is due at 18:00.
    let (status, set) = schedule(&api, "18:00", 500).await;
    assert_eq!(status, StatusCode::OK, "{set}");
}

#[tokio::test]
async fn a_transfer_is_admitted_beside_the_schedules_until_it_is_due() {
    let api = api();
    assert_eq!(schedule(&api, "18:00", 500).await.0, StatusCode::OK);
    let (status, begun) = put(&api, &transfer(500, 6)).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    ask_api(&api, "DELETE", JOB, "").await;
    let seven_hours = transfer(500, 7);
    let (status, refused) = put(&api, &seven_hours).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let what = text(&refused, "what");
    // 300 requests of 128 KiB are left from then on.
    assert!(what.contains("it needs 65.5 MB/s, and 39"), "{what}");
    assert!(what.contains("the promises need 100"), "{what}");
    // Each of the alternatives is admitted.
    let allowed = text(&refused, "allowed");
    for key in ["size", "deadline"] {
        let mut other = seven_hours.clone();
        other[key] = hinted(allowed, key).into();
        let (status, begun) = put(&api, &other).await;
        assert_eq!(status, StatusCode::CREATED, "{key}: {begun}");
        ask_api(&api, "DELETE", JOB, "").await;
    }
}

/// A later deadline needs a lower rate, for which other entries of the schedule leave less.
#[tokio::test]
async fn the_rate_that_fits_holds_until_a_transfer_at_that_rate_ends() {
    let api = api();
    assert_eq!(schedule(&api, "14:00", 500).await.0, StatusCode::OK);
    // Due before that entry, it has 680 of 1000 requests. At that rate it would end after it.
    let two_hours = transfer(800, 2);
    let (_, refused) = put(&api, &two_hours).await;
    let what = text(&refused, "what");
    assert!(what.contains("it needs 105 MB/s, and 39"), "{what}");
    let mut later = two_hours;
    later["deadline"] = hinted(text(&refused, "allowed"), "deadline").into();
    let (status, begun) = put(&api, &later).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
}

#[tokio::test]
async fn an_entry_that_is_due_is_not_held_back_by_a_transfer_that_was_forced() {
    let api = api();
    assert_eq!(schedule(&api, "18:00", 500).await.0, StatusCode::OK);
    let path = format!("{JOB}?force=true");
    let (status, begun) = ask_api(&api, "PUT", &path, &transfer(500, 7).to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    let evening: Timestamp = "2026-11-22T18:00:00Z".parse().expect("a time");
    let then = Api {
        clock: Clock::from_fn(move || evening).in_zone(TimeZone::UTC),
        ..api
    };
    then.apply_due_changes().await;
    let (_, vm) = ask_api(&then, "GET", "/v1/vms/oltp", "").await;
    assert_eq!(vm["objective"]["reservation"], "500 IOPS", "{vm}");
}

#[tokio::test]
async fn a_budget_counts_running_transfers_at_later_times_of_schedules() {
    let api = api();
    assert_eq!(schedule(&api, "18:00", 500).await.0, StatusCode::OK);
    let left = async || {
        // Another API, because one uses a budget for a second.
        let asked = Api::new(api.plane.clone(), api.clock.clone());
        let (_, all) = ask_api(&asked, "GET", "/v1/budget", "").await;
        let left = all[0]["available"]["reservation_iops"].as_u64();
        left.expect("a number")
    };
    let without = left().await;
    assert!((298..=300).contains(&without), "{without}");
    assert_eq!(put(&api, &transfer(200, 7)).await.0, StatusCode::CREATED);
    let beside = left().await;
    assert!((98..=100).contains(&beside), "{beside}");
}
