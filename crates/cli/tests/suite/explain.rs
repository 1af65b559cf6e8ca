//! `tidegate explain` and `tidegate interference` against a daemon whose disks are as slow as a
//! model says: who was planted is named, also by the daemon's next run.

use std::path::Path;

use serde_json::Value;

use crate::common::live::{Daemon, Guests, scattered, until};
use crate::common::{stderr, stdout, tidegate};

/// Disks that turn so slowly that a late thread of this test is no matter.
const CONFIG: &str = r#"
[control]
socket = "control.sock"
[[control.listen]]
unix = "read.sock"
role = "read"
root_role = "read"
[[listen]]
unix = "nbd.sock"
[store]
path = "state.redb"
[[device]]
name = "busy"
kind = "emulated"
model = "slow.toml"
policy = "fifo"
max_io_shared = "off"
[[device]]
name = "calm"
kind = "emulated"
model = "slow.toml"
policy = "limit"
[[device]]
name = "alone"
kind = "emulated"
model = "slow.toml"
policy = "limit"
[[vm]]
name = "db"
device = "busy"
[[vm.disk]]
size = "64 MiB"
[[vm]]
name = "backup"
device = "busy"
[[vm.disk]]
size = "64 MiB"
[[vm]]
name = "web"
device = "alone"
[[vm.disk]]
size = "64 MiB"
[[vm]]
name = "idle"
device = "calm"
[[vm.disk]]
size = "64 MiB"
[[vm]]
name = "capped"
device = "calm"
objective = { limit = "1 IOPS" }
[[vm.disk]]
size = "64 MiB"
"#;

/// Prints an explanation.
fn explain(daemon: &Daemon, vm: &str) -> String {
    daemon.text(&["explain", vm])
}

fn make(dir: &Path) {
    let model = include_str!("../../../../devices/hdd-7200-1tb.toml");
    let slow = model.replace(r#"rotation = "7200 rpm""#, r#"rotation = "300 rpm""#);
    assert_ne!(slow, model);
    let slow = slow.replace(r#"name = "hdd-7200-1tb""#, r#"name = "slow""#);
    std::fs::write(dir.join("slow.toml"), slow).expect("writable");
    std::fs::write(dir.join("t.toml"), CONFIG).expect("writable");
}

/// Returns true if the culprit alone is named.
fn is_named(answer: &Value) -> bool {
    answer["diagnosis"]["culprits"] == serde_json::json!(["backup"])
}

/// Asserts what each VM and the matrix say while the culprit is at work.
fn assert_explained(daemon: &Daemon, span: &[&str]) {
    let text = daemon.text(span);
    assert!(text.starts_with("p99 rose from"), "{text}");
    assert!(
        text.contains("behind `backup` (1 MiB writes, no limit)"),
        "{text}"
    );
    assert!(text.contains("To try: a limit on `backup`"), "{text}");
    assert!(!text.contains("tidegate record on"), "{text}");
    let text = explain(daemon, "capped");
    assert!(text.contains("held by its own limit"), "{text}");
    // The device of `capped` is not recorded.
    let gaps = &daemon.json(&["explain", "capped"])["diagnosis"]["gaps"];
    let gaps = gaps.as_array().expect("a list");
    assert!(gaps.contains(&"no_recording".into()), "{gaps:?}");
    assert!(!text.contains("simulated"), "{text}");
    // No VM delays `web`: its time is service. A few requests of a disk that turns may be slower
    // than others by chance, and what they have more of is the device's.
    let web = &daemon.json(&["explain", "web"])["diagnosis"];
    assert_eq!(web["culprits"], serde_json::json!([]), "{web:#}");
    let cause = match web["basis"].as_str() {
        Some("increase") => "device",
        _ => "service",
    };
    assert_eq!(web["findings"][0]["cause"], cause, "{web:#}");
    let text = explain(daemon, "idle");
    assert!(text.starts_with("`idle` had no request answered"), "{text}");
    let unknown = daemon.ask(&["explain", "nobody"]);
    assert!(
        stderr(&unknown).contains("there is no VM \"nobody\"")
            && stderr(&unknown).contains("backup"),
        "{}",
        stderr(&unknown)
    );
    let wrong = daemon.ask(&["explain", "db", "--from", "yesterday"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("15 min"), "{}", stderr(&wrong));
    let long = daemon.ask(&["explain", "db", "--from", "2 d"]);
    assert!(stderr(&long).contains("24 hours"), "{}", stderr(&long));
    assert_matrix(daemon);
}

/// Asserts that the matrix has the culprit in the row of its victim.
fn assert_matrix(daemon: &Daemon) {
    let matrix = daemon.json(&["interference", "busy"]);
    let mut rows = matrix["vms"].as_array().expect("a list").iter();
    let row = rows.find(|row| row["vm"] == "db").expect("it is there");
    assert_eq!(row["behind"][0]["vm"], "backup");
    let table = stdout(&daemon.ask(&["interference", "busy"]));
    assert!(
        table.contains("BEHIND") && table.contains("backup"),
        "{table}"
    );
    let several = daemon.ask(&["interference"]);
    assert!(
        stderr(&several).contains("one of: busy, calm, alone"),
        "{}",
        stderr(&several)
    );
}

/// Asserts that an answer has the sentence about limits of the culprit.
fn assert_has_limits(text: &str) {
    let limits = text.lines().find(|line| line.starts_with("A limit of "));
    let limits = limits.unwrap_or_else(|| panic!("{text}"));
    for part in [
        " on `backup` under the policy `slo` would have kept p99 at ",
        "(simulated on the recording, which it reproduces within ",
    ] {
        assert!(limits.contains(part), "{part}: {text}");
    }
    assert!(text.contains("is not enforced by `fifo`"), "{text}");
}

/// Asserts that limits of the culprit are tried on the daemon's own recording without being asked,
/// and that the answer says why where they are not.
fn assert_tried_unasked(daemon: &Daemon, span: &[&str]) {
    let model = daemon.dir.join("slow.toml");
    let model = ["--device", model.to_str().expect("plain")];
    assert_has_limits(&daemon.text(&[span, &model].concat()));
    let answer = daemon.json(&[span, &model].concat());
    assert_eq!(answer["simulated"]["model"], "slow", "{answer:#}");
    assert_eq!(answer["simulated"]["changes"][0]["vm"], "backup");
    assert!(answer.get("not_simulated").is_none());

    let none = daemon.text(&[span, &["--no-simulate"]].concat());
    assert!(none.contains("To try: a limit on `backup`"), "{none}");
    assert!(!none.contains("simulated on"), "{none}");
    assert!(!none.contains("not tried"), "{none}");

    // The recording names a model that is not of the catalogue.
    let unknown = daemon.text(span);
    for part in [
        "To try: a limit on `backup`",
        "Changes were not tried: no device is called \"slow\"",
        "the path of a .toml file",
    ] {
        assert!(unknown.contains(part), "{part}: {unknown}");
    }
    let unknown = daemon.json(span);
    let why = unknown["not_simulated"].as_str().expect("a reason");
    assert!(why.starts_with("Changes were not tried: "), "{why}");

    // A client that may read, and not operate.
    let socket = daemon.dir.join("read.sock");
    let reader = ["--socket", socket.to_str().expect("plain")];
    let reader = tidegate(&[&reader, span, &model].concat());
    assert!(reader.status.success(), "{}", stderr(&reader));
    let reader = stdout(&reader);
    assert!(reader.contains("To try: a limit on `backup`"), "{reader}");
    assert!(
        reader.contains("is for clients with the role `operate`."),
        "{reader}"
    );
}

/// Asserts that an answer says what it lacks once the recordings of its time are gone.
fn assert_not_recorded(daemon: &Daemon, span: &[&str]) {
    let of_device = daemon.dir.join("recordings/busy");
    for entry in std::fs::read_dir(of_device).expect("a directory") {
        std::fs::remove_file(entry.expect("an entry").path()).expect("removed");
    }
    let text = daemon.text(span);
    for part in [
        "To try: a limit on `backup`",
        "Not all requests of that time were recorded",
        "`tidegate record on busy`",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("simulated"), "{text}");
    let answer = daemon.json(span);
    for field in ["simulated", "not_simulated"] {
        assert!(answer.get(field).is_none(), "{answer:#}");
    }
}

/// Asserts that limits of the culprit are tried on a recording of the span that is explained.
fn assert_tried(daemon: &Daemon, span: &[&str], [from, to]: [&str; 2]) {
    let file = |name: &str| daemon.dir.join(name).to_str().expect("plain").to_owned();
    let (recording, model) = (file("slow.tgrec"), file("slow.toml"));
    let dump = [
        "record", "dump", "--device", "busy", "--from", from, "--to", to,
    ];
    daemon.text(&[&dump[..], &[&recording]].concat());
    let on_it = ["--recording", &recording, "--device", &model];
    assert_has_limits(&daemon.text(&[span, &on_it[..]].concat()));
    // A recording of another time is refused.
    let other = daemon.ask(
        &[
            &["explain", "db", "--from", "-2h", "--to", "-1h"],
            &on_it[..],
        ]
        .concat(),
    );
    assert!(!other.status.success());
    assert!(
        stderr(&other).contains(": recorded from "),
        "{}",
        stderr(&other)
    );
}

#[test]
fn a_planted_culprit_is_named_and_still_is_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    make(dir);
    let daemon = Daemon::start(dir);
    daemon.text(&["record", "on", "busy"]);
    let mut guests = Guests::default();
    for vm in ["db", "web", "capped"] {
        guests.begin(dir, vm, |disk, number| {
            disk.read(scattered(number, 64 << 20), 4096)
        });
    }
    // Usual latencies are known after some windows.
    until("two windows are whole", || daemon.windows("db") >= 3);
    let mut culprit = Guests::default();
    for stream in 0..7 {
        culprit.begin(dir, "backup", move |disk, number| {
            disk.write((stream * 8 + number % 8) << 20, 1 << 20)
        });
    }
    let mut answer = Value::Null;
    until("the culprit is named", || {
        answer = daemon.json(&["explain", "db"]);
        // The slow part, not all of the time that was asked for.
        is_named(&answer) && answer["explained"] != answer["asked"]
    });
    let explained = |key: &str| answer["explained"][key].as_u64().expect("a time");
    let [from, to] = ["from_ms", "to_ms"].map(|key| (explained(key) / 1000).to_string());
    let span = ["explain", "db", "--from", &from, "--to", &to];

    assert_explained(&daemon, &span);

    // The culprit's windows become whole, and the daemon ends.
    culprit.end();
    guests.end();
    daemon.stop();
    let daemon = Daemon::start(dir);
    until("the files are read", || {
        let answer = daemon.json(&span);
        answer["diagnosis"]["verdict"] != "no_requests"
    });
    let answer = daemon.json(&span);
    assert!(is_named(&answer), "{answer:#}");
    assert_eq!(answer["searched"], false);
    let finding = &answer["diagnosis"]["findings"][0];
    assert_eq!(
        (
            &finding["cause"],
            &finding["vm"],
            &finding["culprit"]["mostly"]
        ),
        (&"vm".into(), &"backup".into(), &"writes".into())
    );
    assert!(finding["share"].as_f64().is_some_and(|share| share > 0.5));
    assert_tried(&daemon, &span, [&from, &to]);
    assert_tried_unasked(&daemon, &span);
    assert_not_recorded(&daemon, &span);
}
