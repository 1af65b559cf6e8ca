//! Deadline transfers, with a simulated clock.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_core::transfers::{Class, TransferOutcome};

use super::simulated_daemon::{ended_transfer, running_transfer};
use super::*;
use crate::transfer::Outlook;

const JOB: &str = "/v1/vms/oltp/job";
const NOW: &str = "2026-11-22T12:00:00Z";

fn api(plane: &Pretended) -> Api<Pretended> {
    let now: Timestamp = NOW.parse().expect("a time");
    Api::new(plane.clone(), Clock::from_fn(move || now))
}

/// Formats the time of day `seconds` from now, in the time zone of the test host.
fn clock(seconds: i64) -> String {
    let now: Timestamp = NOW.parse().expect("a time");
    let then = now + jiff::SignedDuration::from_secs(seconds);
    let local = then.to_zoned(TimeZone::system());
    local.strftime("%H:%M:%S").to_string()
}

async fn put(api: &Api<Pretended>, path: &str, transfer: Value) -> (StatusCode, Value) {
    ask_api(api, "PUT", path, &transfer.to_string()).await
}

#[tokio::test]
async fn a_transfer_begins_is_forecast_and_is_cancelled() {
    let plane = Pretended::new();
    let api = api(&plane);
    let (status, none) = ask_api(&api, "GET", JOB, "").await;
    assert_eq!((status, none.get("job")), (StatusCode::OK, None), "{none}");
    assert_eq!(ask_api(&api, "GET", "/v1/jobs", "").await.1, json!([]));

    // 2 GB at half of 100 MB/s are 40 s.
    let (status, begun) = put(&api, JOB, json!({ "size": "2 GB", "deadline": "60 s" })).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    let transfer = &begun["job"];
    assert_eq!(transfer["size_bytes"], 2_000_000_000_u64);
    assert_eq!(
        (&transfer["early_s"], &transfer["done_in_s"]),
        (&json!(20.0), &json!(40.0))
    );
    assert_eq!(
        transfer["forecast"],
        format!("done at {}, 20 s early", clock(40))
    );
    assert_eq!(
        (&transfer["possible"], &transfer["given_up"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(transfer["class"], "best-effort");
    // The policy in force is mClock, which does not enforce deadlines.
    assert_eq!(transfer["enforced"], false);
    let notes = transfer["notes"].as_array().expect("a note");
    assert_eq!(notes.len(), 1, "{transfer}");
    let note = notes[0].as_str().expect("text");
    assert!(
        note.contains("policy mclock does not enforce deadlines") && note.contains("\"pridyn\""),
        "{note}"
    );

    let (_, vm) = ask_api(&api, "GET", "/v1/vms/oltp", "").await;
    assert_eq!(
        vm["job"], *transfer,
        "it is among what there is to know of its VM"
    );
    let (_, all) = ask_api(&api, "GET", "/v1/jobs", "").await;
    assert_eq!(all, json!([ask_api(&api, "GET", JOB, "").await.1]));

    let (status, over) = ask_api(&api, "DELETE", JOB, "").await;
    assert_eq!((status, over.get("job")), (StatusCode::OK, None), "{over}");
    assert_eq!(over["last"]["outcome"], "cancelled");
    assert_eq!(over["last"]["begun"], transfer["begun"]);
    assert_eq!(
        over["ended"],
        json!({ "met": 0, "missed": 0, "cancelled": 1 })
    );
    let (_, all) = ask_api(&api, "GET", "/v1/jobs", "").await;
    assert_eq!(all[0]["last"]["outcome"], "cancelled", "{all}");
}

#[tokio::test]
async fn what_cannot_be_met_is_said_at_once_with_what_could_be() {
    let plane = Pretended::new();
    let api = api(&plane);
    let (_, begun) = put(&api, JOB, json!({ "size": "2 GB", "deadline": "19 s" })).await;
    let transfer = &begun["job"];
    let forecast = transfer["forecast"].as_str().expect("text");
    let expected = format!("misses by 21 s: done at {}, due at", clock(40));
    assert!(forecast.starts_with(&expected), "{forecast}");
    assert_eq!(
        (&transfer["early_s"], &transfer["possible"]),
        (&json!(-21.0), &json!(false))
    );
    assert_eq!(transfer["least_deadline_s"], 20.0);
    let note = transfer["notes"][1].as_str().expect("a note");
    let nearest = format!(
        "the earliest possible deadline is 20 s from its beginning, {}",
        clock(20)
    );
    assert!(
        note.contains("at 100 MB/s 2 GB take 20 s") && note.contains(&nearest),
        "{note}"
    );
    // `by` a time of day that passed an hour ago means tomorrow.
    let due = put(
        &api,
        "/v1/vms/bulk/job",
        json!({ "size": "1 B", "by": clock(-3600) }),
    )
    .await;
    assert_eq!(due.1["job"]["due_in_s"], 23.0 * 3600.0, "{}", due.1);
}

/// Returns the text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).expect("it begins").1;
    rest.split_once(after).expect("it ends").0
}

#[tokio::test]
async fn a_transfer_that_does_not_fit_is_refused_with_what_would_unless_it_is_forced() {
    let mut plane = Pretended::new();
    let curve = Curve::new(&[(4096, 1000.0), (128 << 10, 1000.0)]).expect("a curve");
    let profile = Profile::new([curve.clone(), curve], None, Vec::new(), Vec::new());
    plane.profile = Some(Arc::new(profile));
    let api = api(&plane);
    // The reservation implies requests of 4 KiB: 80 % of 1000 of them a second are 3.3 MB/s.
    let transfer = json!({ "size": "2 GB", "deadline": "2 s" });
    let (status, refused) = put(&api, JOB, transfer.clone()).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let what = refused["error"]["what"].as_str().expect("text");
    assert!(
        what.starts_with("does not fit: it needs 1 GB/s, and 3."),
        "{what}"
    );
    // 2 GB in 2 s are 244140.6 requests of the 1000 a second.
    let broken = "the promises need 24414.1 % of the device's time, of which at most 80 % may be \
                  promised; requests of 4 KiB are assumed for VM oltp, which has a promise without \
                  expects.size";
    assert!(what.contains(broken), "what is in the way: {what}");
    let allowed = refused["error"]["allowed"].as_str().expect("text");
    let longer = between(allowed, "deadline = \"", "\"").to_owned();
    let smaller = between(allowed, "size = \"", "\"").to_owned();
    assert!(
        allowed.ends_with("or ?force=true, to begin it anyway"),
        "{allowed}"
    );
    // Nobody waits a hundred times longer, and for hours.
    let slow = json!({ "size": "200 GB", "deadline": "20 s" });
    let (status, refused) = put(&api, JOB, slow).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let useless = refused["error"]["allowed"].as_str().expect("text");
    assert_eq!(
        useless,
        "lower the promise that is in the way; or ?force=true, to begin it anyway"
    );
    // The size that the hint names is admitted.
    let (status, begun) = put(&api, JOB, json!({ "size": smaller, "deadline": "2 s" })).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    let instead = format!("{JOB}?replace=true");
    let (status, begun) = put(
        &api,
        &instead,
        json!({ "size": "2 GB", "deadline": longer }),
    )
    .await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    // Beside that transfer a second one does not fit, and is refused instead of slowing the first.
    let bulk = "/v1/vms/bulk/job";
    let more = json!({ "size": "1 GB", "deadline": "20 s" });
    let (status, refused) = put(&api, bulk, more.clone()).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    ask_api(&api, "DELETE", JOB, "").await;
    let (status, begun) = put(&api, bulk, more).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
    let (status, begun) = put(&api, &format!("{JOB}?force=true"), transfer).await;
    assert_eq!(status, StatusCode::CREATED, "{begun}");
}

#[tokio::test]
async fn a_transfer_is_seen_in_every_state_that_it_can_be_in() {
    let plane = Pretended::new();
    let api = api(&plane);
    let now: Timestamp = NOW.parse().expect("a time");
    let minute = Nanos::from_secs(60);
    let shown = |change: fn(&mut crate::transfer::RunningTransfer)| {
        let mut transfer = running_transfer(2_000_000_000, minute, now);
        change(&mut transfer);
        plane.change("oltp", |vm| vm.transfers.running = Some(transfer));
    };
    let field_of = async |field: &str| {
        let (_, transfers) = ask_api(&api, "GET", JOB, "").await;
        transfers["job"][field].clone()
    };
    shown(|transfer| transfer.outlook = Outlook::Unknown);
    let forecast = field_of("forecast").await;
    assert!(
        forecast
            .as_str()
            .is_some_and(|field_of| field_of.starts_with("unknown until")),
        "{forecast}"
    );
    assert_eq!(
        (field_of("early_s").await, field_of("done").await),
        (Value::Null, Value::Null)
    );

    shown(|transfer| transfer.outlook = Outlook::Never);
    let forecast = field_of("forecast").await;
    assert!(
        forecast
            .as_str()
            .is_some_and(|field_of| field_of.starts_with("never done")),
        "{forecast}"
    );

    shown(|transfer| {
        (transfer.status.given_up, transfer.enforced) = (true, true);
        transfer.status.class = Class::Idle;
    });
    let notes = field_of("notes").await;
    assert!(
        notes[0]
            .as_str()
            .is_some_and(|note| note.contains("no precedence any more")),
        "{notes}"
    );
    assert_eq!(
        (field_of("class").await, field_of("enforced").await),
        (json!("idle"), json!(true))
    );

    // The VM's own bandwidth exceeds the measured bandwidth of the device.
    shown(|transfer| transfer.status.bandwidth = Some(200_000_000));
    assert_eq!(field_of("least_deadline_s").await, 10.0);

    // Half of the data moved before this daemon resumed the transfer, 10 s after its deadline.
    shown(|transfer| {
        transfer.since.moved = 2_000_000_000;
        transfer.since.overdue = Nanos::from_secs(10);
    });
    assert_eq!(field_of("size_bytes").await, 4_000_000_000_u64);
    assert_eq!(field_of("least_deadline_s").await, 20.0);
    assert_eq!(field_of("moved_bytes").await, 2_000_000_000_u64);
    assert_eq!(field_of("early_s").await, -10.0);
}

#[tokio::test]
async fn what_became_of_transfers_is_told_in_words_and_counted() {
    let plane = Pretended::new();
    let api = api(&plane);
    let now: Timestamp = NOW.parse().expect("a time");
    let transfer = running_transfer(1 << 20, Nanos::from_secs(60), now);
    for (late, outcome, result, field_of) in [
        (
            0,
            TransferOutcome::Done,
            "met",
            format!("met at {}, 0 ms early", clock(60)),
        ),
        (
            5,
            TransferOutcome::Done,
            "missed",
            format!("missed by 5 s: done at {}", clock(65)),
        ),
        (
            0,
            TransferOutcome::Cancelled,
            "cancelled",
            format!("cancelled at {}, after 0 B of 1 MiB", clock(60)),
        ),
    ] {
        let ended = ended_transfer(&transfer, outcome, Nanos::from_secs(late));
        plane.change("oltp", |vm| {
            vm.transfers.ended.count(ended.result());
            vm.transfers.last = Some(ended);
        });
        let (_, transfers) = ask_api(&api, "GET", JOB, "").await;
        assert_eq!(transfers["last"]["outcome"], result, "{transfers}");
        assert_eq!(transfers["last"]["said"], field_of, "{transfers}");
        assert_eq!(transfers["ended"][result], 1, "{transfers}");
    }
    let (_, metrics) = ask_api(&api, "GET", "/metrics", "").await;
    let metrics = metrics.as_str().expect("text");
    let of_oltp = "vm=\"oltp\",device=\"disk0\"";
    assert!(
        metrics.contains(&format!(
            "tidegate_vm_transfers_ended_total{{{of_oltp},outcome=\"missed\"}} 1.0"
        )),
        "{metrics}"
    );
    assert!(
        !metrics.contains("tidegate_vm_transfer_size_bytes{"),
        "it has none: {metrics}"
    );
    plane.change("oltp", |vm| vm.transfers.running = Some(transfer));
    let (_, metrics) = ask_api(&api, "GET", "/metrics", "").await;
    let metrics = metrics.as_str().expect("text");
    for line in [
        "tidegate_vm_transfer_size_bytes{OF} 1048576.0",
        "tidegate_vm_transfer_moved_bytes{OF} 0.0",
        "tidegate_vm_transfer_late_seconds{OF} 0.0",
        "tidegate_vm_transfer_given_up{OF} 0.0",
        "tidegate_vm_transfer_class{OF,class=\"best-effort\"} 1.0",
        "tidegate_vm_transfer_class{OF,class=\"idle\"} 0.0",
    ] {
        let line = line.replace("OF", of_oltp);
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }
}

/// Request that must be refused: method, path, body; status, `where`, and parts of `what` and
/// `allowed` of the answer.
type Refused<'a> = (&'a str, &'a str, &'a str, u16, &'a str, &'a str, &'a str);

async fn assert_refused(api: &Api<Pretended>, request: Refused<'_>) {
    let (method, path, body, status, at, what, allowed) = request;
    let (got, answer) = ask_api(api, method, path, body).await;
    assert_eq!(got.as_u16(), status, "{method} {path}: {answer}");
    assert_eq!(answer["error"]["where"], at, "{method} {path}: {answer}");
    let field_of = |field: &str| {
        let text = answer["error"][field].as_str();
        text.unwrap_or_default().to_owned()
    };
    assert!(field_of("what").contains(what), "{method} {path}: {answer}");
    assert!(
        field_of("allowed").contains(allowed),
        "{method} {path}: {answer}"
    );
}

#[tokio::test]
async fn what_is_no_transfer_is_refused_and_changes_nothing() {
    let plane = Pretended::new();
    let api = api(&plane);
    let good = json!({ "size": "2 GB", "deadline": "60 s" });
    let (status, _) = put(&api, "/v1/vms/bulk/job", good.clone()).await;
    assert_eq!(status, StatusCode::CREATED);
    let before = ask_api(&api, "GET", "/v1/jobs", "").await;
    let good = good.to_string();
    for request in refused_requests(&good) {
        assert_refused(&api, request).await;
    }
    assert_eq!(ask_api(&api, "GET", "/v1/jobs", "").await, before);
    let again = ask_api(&api, "PUT", "/v1/vms/bulk/job?replace=true", &good).await;
    assert_eq!(again.0, StatusCode::CREATED, "{}", again.1);
}

/// Returns requests that must be refused; `good` is a valid body.
fn refused_requests(good: &str) -> [Refused<'_>; 11] {
    let later = "{\"size\": \"1 B\", \"tolerance\": 1}";
    [
        (
            "GET",
            "/v1/vms/olpt/job",
            "",
            404,
            "vm",
            "no VM \"olpt\"",
            "oltp",
        ),
        (
            "PUT",
            "/v1/vms/olpt/job",
            good,
            404,
            "vm",
            "no VM \"olpt\"",
            "oltp",
        ),
        ("PUT", JOB, "{", 400, "body", "not JSON", "\"size\""),
        ("PUT", JOB, "{}", 422, "", "`size` is missing", "2 GiB"),
        (
            "PUT",
            JOB,
            "{\"size\": \"0 B\", \"deadline\": \"1 s\"}",
            422,
            "size",
            "out of range",
            "from 1 B",
        ),
        (
            "PUT",
            JOB,
            later,
            409,
            "oltp",
            "has not been measured yet",
            "deadline",
        ),
        (
            "PUT",
            "/v1/vms/bulk/job",
            good,
            409,
            "bulk",
            "has a transfer in progress",
            "?replace=true",
        ),
        (
            "PUT",
            "/v1/vms/oltp/job?persist=true",
            good,
            400,
            "query",
            "force",
            "?replace=true",
        ),
        ("DELETE", JOB, "", 404, "oltp", "no transfer", "/v1/jobs"),
        ("POST", JOB, good, 405, "method", "POST", "GET, PUT or"),
        ("DELETE", "/v1/jobs", "", 405, "method", "DELETE", "GET"),
    ]
}

#[tokio::test]
async fn a_transfer_that_is_not_kept_begins_all_the_same_and_says_so() {
    let plane = Pretended::new();
    plane.with(|devices| {
        devices[1]
            .vms
            .append(&mut snapshot("disk1", &["unkept"]).vms)
    });
    let unkept = simulated_daemon::pretended_vm("unkept", 1, Objective::default());
    plane.vms(|vms| vms.push(unkept));
    let api = api(&plane);
    for (vm, why) in [("dss", "names no store"), ("unkept", "the disk is full")] {
        let path = format!("/v1/vms/{vm}/job");
        let (status, begun) = put(&api, &path, json!({ "size": "1 GB", "deadline": "1 h" })).await;
        assert_eq!(status, StatusCode::CREATED, "{begun}");
        let notes = begun["job"]["notes"].to_string();
        assert!(
            notes.contains("a restart") && notes.contains(why),
            "{notes}"
        );
        let (status, over) = ask_api(&api, "DELETE", &path, "").await;
        assert_eq!(status, StatusCode::OK, "{over}");
    }
}
