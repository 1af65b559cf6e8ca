//! Schedules, with a simulated clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::*;

/// Wall clock that follows tokio's paused time and can be set.
#[derive(Clone)]
struct Wall {
    began: Timestamp,
    start: Instant,
    /// Seconds by which the clock was set ahead.
    set: Arc<AtomicI64>,
}

impl Wall {
    fn at(text: &str) -> Wall {
        Wall {
            began: text.parse().expect("a time"),
            start: Instant::now(),
            set: Arc::default(),
        }
    }

    fn now(&self) -> Timestamp {
        let gone = SignedDuration::try_from(self.start.elapsed()).expect("short");
        self.began + gone + SignedDuration::from_secs(self.set.load(Ordering::Relaxed))
    }

    fn clock(&self) -> Clock {
        let wall = self.clone();
        Clock::from_fn(move || wall.now())
    }
}

/// Returns a simulated daemon that applies schedules, with its wall clock.
fn daemon(at: &str) -> (Api<Pretended>, Wall) {
    with(Pretended::new(), at)
}

fn with(plane: Pretended, at: &str) -> (Api<Pretended>, Wall) {
    let wall = Wall::at(at);
    let api = Api::new(plane, wall.clock());
    tokio::spawn(api.clone().follow_schedules());
    (api, wall)
}

/// Advances the paused time.
async fn minutes(minutes: u64) {
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
    // Tasks that wake at the same time run before this one continues.
    tokio::time::sleep(Duration::from_millis(10)).await;
}

async fn patch(api: &Api<Pretended>, vm: &str, change: Value) -> Value {
    let path = format!("/v1/vms/{vm}/objective");
    let (status, body) = ask_api(api, "PATCH", &path, &change.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    body
}

async fn show(api: &Api<Pretended>, vm: &str) -> Value {
    ask_api(api, "GET", &format!("/v1/vms/{vm}"), "").await.1
}

/// Returns the samples of the metric `schedule_held`.
async fn held_by_metric(api: &Api<Pretended>) -> Vec<String> {
    let (_, metrics) = ask_api(api, "GET", "/metrics", "").await;
    let lines = metrics.as_str().expect("text").lines();
    let held = lines.filter(|line| line.starts_with("tidegate_vm_schedule_not_applied{"));
    held.map(str::to_owned).collect()
}

async fn target(api: &Api<Pretended>, vm: &str) -> Value {
    show(api, vm).await["objective"]["target"].clone()
}

fn evening() -> Value {
    json!({
        "target": "10 MB/s", "timezone": "Europe/Berlin",
        "schedule": [{ "from": "18:00", "until": "23:00", "target": "50 MB/s" }]
    })
}

#[tokio::test(start_paused = true)]
async fn an_entry_comes_in_force_at_its_time_and_goes_at_its_end() {
    let (api, _) = daemon("2026-11-22T17:50+01:00");
    let vm = patch(&api, "oltp", evening()).await;
    assert_eq!(vm["objective"]["target"], "10 MB/s");
    assert_eq!(
        vm["objective"]["reservation"], "120 IOPS",
        "what was there stays"
    );
    let schedule = &vm["schedule"];
    assert_eq!(schedule["timezone"], "Europe/Berlin");
    assert_eq!(schedule["entry"], Value::Null);
    assert_eq!(schedule["entries"], evening()["schedule"]);
    assert_eq!(
        schedule["next"]["at"],
        "2026-11-22T18:00:00+01:00[Europe/Berlin]"
    );
    assert_eq!(schedule["next"]["in_s"], 600);
    assert_eq!(schedule["next"]["objective"]["target"], "50 MB/s");

    minutes(9).await;
    assert_eq!(target(&api, "oltp").await, "10 MB/s");
    minutes(1).await;
    let vm = show(&api, "oltp").await;
    assert_eq!(vm["objective"]["target"], "50 MB/s");
    assert_eq!(vm["schedule"]["entry"], 1);
    assert_eq!(vm["schedule"]["base"]["target"], "10 MB/s");
    assert_eq!(vm["schedule"]["next"]["entry"], Value::Null);
    minutes(5 * 60).await;
    assert_eq!(target(&api, "oltp").await, "10 MB/s");
    minutes(19 * 60).await;
    assert_eq!(target(&api, "oltp").await, "50 MB/s", "and every day");
    let (_, all) = ask_api(&api, "GET", "/v1/vms", "").await;
    assert_eq!(all[0]["schedule"]["entry"], 1, "{all}");
    assert_eq!(all[1].get("schedule"), None);
}

#[tokio::test(start_paused = true)]
async fn a_change_is_one_of_the_base_and_says_so_while_an_entry_is_in_force() {
    let (api, _) = daemon("2026-11-22T20:00+01:00");
    let vm = patch(&api, "oltp", evening()).await;
    assert_eq!(
        vm["objective"]["target"], "50 MB/s",
        "an entry that holds is in force at once"
    );
    let vm = patch(&api, "oltp", json!({ "target": "20 MB/s", "weight": 7 })).await;
    let objective = &vm["objective"];
    assert_eq!(
        (&objective["target"], &objective["weight"]),
        (&json!("50 MB/s"), &json!(7))
    );
    let note = vm["notes"][0].as_str().expect("a note");
    assert!(note.contains("entry 1") && note.contains("23:00"), "{note}");
    minutes(180).await;
    assert_eq!(target(&api, "oltp").await, "20 MB/s");
    let vm = patch(&api, "oltp", json!({ "weight": 8 })).await;
    assert_eq!(vm.get("notes"), None, "{vm}");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_or_slept_is_followed_within_a_minute() {
    let (api, wall) = daemon("2026-11-22T12:00+01:00");
    patch(&api, "oltp", evening()).await;
    minutes(3).await;
    // The host slept until 19:00.
    wall.set.store(7 * 3600, Ordering::Relaxed);
    minutes(1).await;
    assert_eq!(target(&api, "oltp").await, "50 MB/s");
    // The clock had been wrong and is set back.
    wall.set.store(0, Ordering::Relaxed);
    minutes(1).await;
    assert_eq!(target(&api, "oltp").await, "10 MB/s");
}

#[tokio::test(start_paused = true)]
async fn entries_are_added_and_taken_away_one_by_one() {
    let (api, _) = daemon("2026-11-22T12:00Z");
    let path = "/v1/vms/bulk/schedule";
    let entry = json!({ "from": "18:00", "weight": 7, "timezone": "UTC" });
    let (status, vm) = ask_api(&api, "POST", path, &entry.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{vm}");
    let once = json!({ "at": "2026-11-22T13:00", "until": "2026-11-22T14:00", "weight": 9 });
    let (_, vm) = ask_api(&api, "POST", path, &once.to_string()).await;
    assert_eq!(
        vm["schedule"]["entries"].as_array().map(Vec::len),
        Some(2),
        "{vm}"
    );
    assert_eq!(vm["schedule"]["timezone"], "UTC");
    minutes(60).await;
    assert_eq!(show(&api, "bulk").await["objective"]["weight"], 9);

    let wrong = json!({ "from": "18:00", "wieght": 7 });
    let (status, answer) = ask_api(&api, "POST", path, &wrong.to_string()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(answer["error"]["where"], "schedule[2]", "{answer}");
    for (number, status) in [("3", 404), ("0", 404), ("x", 404), ("2", 200)] {
        let (found, answer) = ask_api(&api, "DELETE", &format!("{path}/{number}"), "").await;
        assert_eq!(found.as_u16(), status, "{number}: {answer}");
    }
    let vm = show(&api, "bulk").await;
    assert_eq!(vm["objective"]["weight"], 100, "what held is gone at once");
    assert_eq!(vm["schedule"]["entries"].as_array().map(Vec::len), Some(1));
    let (_, vm) = ask_api(&api, "DELETE", path, "").await;
    assert_eq!(vm.get("schedule"), None, "{vm}");
    minutes(24 * 60).await;
    assert_eq!(show(&api, "bulk").await["objective"]["weight"], 100);
    let (status, _) = ask_api(&api, "POST", "/v1/vms/nobody/schedule", "{}").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_added_has_what_its_schedule_says() {
    let (api, _) = daemon("2026-11-22T20:00+01:00");
    let mut vm = json!({ "device": "disk0", "disk": [{ "size": "1 MiB" }] });
    vm["objective"] = evening();
    let (status, now) = ask_api(&api, "PUT", "/v1/vms/new", &vm.to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{now}");
    assert_eq!(now["objective"]["target"], "50 MB/s");
    let (status, again) = ask_api(&api, "PUT", "/v1/vms/new", &vm.to_string()).await;
    assert_eq!(
        (status, &again["objective"]),
        (StatusCode::OK, &now["objective"])
    );
    minutes(180).await;
    assert_eq!(target(&api, "new").await, "10 MB/s");
}

/// Returns a daemon whose device does 200 random requests a second, 160 of which may be reserved.
fn slow() -> Pretended {
    let mut plane = Pretended::new();
    let curve = Curve::new(&[(4096, 200.0)]).expect("a curve");
    let profile = Profile::new([curve.clone(), curve], None, Vec::new(), Vec::new());
    plane.profile = Some(Arc::new(profile));
    plane
}

#[tokio::test(start_paused = true)]
async fn what_would_not_fit_at_its_time_is_refused_when_it_is_asked_for() {
    let (api, _) = with(slow(), "2026-11-22T12:00Z");
    // 120 IOPS are reserved for oltp.
    let path = "/v1/vms/bulk/schedule";
    let too_much = json!({ "from": "18:00", "reservation": "100 IOPS", "timezone": "UTC" });
    let (status, answer) = ask_api(&api, "POST", path, &too_much.to_string()).await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    let what = answer["error"]["what"].as_str().expect("text");
    assert!(what.contains("from Sun 2026-11-22 18:00 UTC on"), "{what}");
    assert_eq!(show(&api, "bulk").await.get("schedule"), None);
    // With a smaller reservation of oltp from then on it fits.
    let less = json!({ "from": "18:00", "reservation": "20 IOPS", "timezone": "UTC" });
    let (status, _) = ask_api(&api, "POST", "/v1/vms/oltp/schedule", &less.to_string()).await;
    assert_eq!(status, StatusCode::OK);
    let (status, answer) = ask_api(&api, "POST", path, &too_much.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    // The result does not depend on the order in which the two changes are due.
    minutes(6 * 60).await;
    for (vm, iops) in [("oltp", "20 IOPS"), ("bulk", "100 IOPS")] {
        assert_eq!(show(&api, vm).await["objective"]["reservation"], iops);
    }
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_when_it_is_due_is_held_and_told_until_it_does() {
    let (api, _) = with(slow(), "2026-11-22T12:00Z");
    let path = "/v1/vms/bulk/schedule?force=true";
    let entry = json!({ "from": "18:00", "reservation": "100 IOPS", "timezone": "UTC" });
    let (status, answer) = ask_api(&api, "POST", path, &entry.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    minutes(6 * 60).await;
    let vm = show(&api, "bulk").await;
    assert_eq!(vm["objective"]["reservation"], Value::Null);
    assert_eq!(vm["schedule"]["entry"], 1);
    let held = vm["schedule"]["held"].as_str().expect("why");
    assert!(held.contains("does not fit"), "{held}");
    let sample = |held: u8| {
        format!("tidegate_vm_schedule_not_applied{{vm=\"bulk\",device=\"disk0\"}} {held}.0")
    };
    assert_eq!(held_by_metric(&api).await, [sample(1)]);
    patch(&api, "oltp", json!({ "reservation": "20 IOPS" })).await;
    minutes(1).await;
    assert_eq!(held_by_metric(&api).await, [sample(0)]);
    let vm = show(&api, "bulk").await;
    assert_eq!(vm["objective"]["reservation"], "100 IOPS");
    assert_eq!(vm["schedule"].get("held"), None, "{vm}");
    // The return to the base objective is applied even if it does not fit beside the others.
    minutes(6 * 60).await;
    assert_eq!(
        show(&api, "bulk").await["objective"]["reservation"],
        Value::Null
    );

    // An entry with `force` is applied although it does not fit.
    let forced = json!({
        "at": "2026-11-23T12:00", "reservation": "190 IOPS", "force": true, "timezone": "UTC"
    });
    let (status, answer) =
        ask_api(&api, "POST", "/v1/vms/oltp/schedule", &forced.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    minutes(24 * 60).await;
    assert_eq!(
        show(&api, "oltp").await["objective"]["reservation"],
        "190 IOPS"
    );
}

#[tokio::test(start_paused = true)]
async fn a_device_that_does_not_answer_is_waited_for_once_and_told_of_by_all_its_vms() {
    let plane = Pretended::new();
    plane.with(|devices| {
        let mut vms = snapshot("disk1", &["slow", "behind"]).vms;
        devices[1].vms.append(&mut vms);
    });
    for name in ["slow", "behind"] {
        let mut vm = pretended_vm(name, 1, Objective::default());
        let words = json!({ "timezone": "UTC", "schedule": [{ "from": "18:00", "weight": 7 }] });
        vm.promise(crate::config::schedule::merge(&Schedule::default(), &words).expect("good"));
        plane.vms(|vms| vms.push(vm));
    }
    let wall = Wall::at("2026-11-22T18:30Z");
    let api = Api::new(plane, wall.clock());
    let soon = json!({ "timezone": "UTC", "schedule": [{ "from": "18:30:02", "weight": 9 }] });
    patch(&api, "oltp", soon).await;
    let began = Instant::now();
    let left = api.apply_due_changes().await;
    assert_eq!(began.elapsed(), ANSWER_TIMEOUT);
    assert_eq!(left, Duration::ZERO, "something began meanwhile");
    let left = api.apply_due_changes().await;
    assert_eq!(show(&api, "oltp").await["objective"]["weight"], 9);
    assert_eq!(left, Duration::from_secs(60), "then it is tried again");
    for name in ["slow", "behind"] {
        let vm = show(&api, name).await;
        let held = vm["schedule"]["held"].as_str().expect("why");
        assert!(held.contains("did not answer in 5 s"), "{name}: {held}");
        assert_eq!(vm["objective"]["weight"], 100);
    }
}
