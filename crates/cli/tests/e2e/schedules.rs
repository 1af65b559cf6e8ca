//! Objectives that change by the clock, through the command line.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::control::{tidegate, tidegate_json};
use crate::daemon::{Backing, Daemon, wait_for};

/// Starts a daemon with a store and the VM `a`, whose limit is 100 IOPS, without a schedule.
fn start() -> Daemon {
    let config = [
        "[store]\npath = \"state.redb\"\n".to_owned(),
        Backing::Memory.device("policy = \"limit\""),
        "[[vm]]\nname = \"a\"\n[vm.objective]\nlimit = \"100 IOPS\"\ntimezone = \"UTC\"\n"
            .to_owned(),
        Backing::Memory.disk("a", "16 MiB", ""),
    ];
    Daemon::start(&config.concat())
}

/// Returns the limit in force for VM `a`.
fn limit_in_force(daemon: &Daemon) -> Value {
    let vm = tidegate_json(daemon, &["vm", "show", "a"]);
    vm["objective"]["limit"]["total"].clone()
}

/// Returns the UTC time in `seconds` from now, as text.
fn seconds_ahead(seconds: i64) -> String {
    let then = Timestamp::now() + SignedDuration::from_secs(seconds);
    then.strftime("%Y-%m-%dT%H:%M:%S").to_string()
}

#[test]
fn an_entry_is_in_force_from_its_begin_to_its_end() {
    let daemon = start();
    // Late enough for the command that adds it and for a look at what is announced.
    let (at, until) = (seconds_ahead(5), seconds_ahead(7));
    let add = [
        "vm", "schedule", "add", "a", "--at", &at, "--until", &until, "--limit", "500 IOPS",
    ];
    let vm = tidegate_json(&daemon, &add);
    assert_eq!(vm["objective"]["limit"]["total"], "100 IOPS", "{vm}");
    assert_eq!(
        vm["schedule"]["next"]["objective"]["limit"]["total"], "500 IOPS",
        "{vm}"
    );
    let shown = tidegate(&daemon, &["vm", "show", "a"]);
    let begin = at.replace('T', " ");
    // Seconds are shown only where there are any.
    let begin = begin.strip_suffix(":00").unwrap_or(&begin);
    let next = format!("{begin} (UTC): at most 500 IOPS");
    assert!(
        shown.contains("next change") && shown.contains(&next),
        "{next}: {shown}"
    );

    wait_for("the entry to come in force", || {
        limit_in_force(&daemon) == "500 IOPS"
    });
    let begins: Timestamp = format!("{at}Z").parse().expect("a time");
    assert!(Timestamp::now() >= begins, "in force before its begin");
    let list = tidegate(&daemon, &["vm", "schedule", "list", "a"]);
    assert!(
        list.contains("limit 500 IOPS") && list.contains("UTC"),
        "{list}"
    );
    wait_for("the entry to end", || limit_in_force(&daemon) == "100 IOPS");
    let ends: Timestamp = format!("{until}Z").parse().expect("a time");
    assert!(Timestamp::now() >= ends, "out of force before its end");
    let logged = |detail| daemon.logged(&["objective changed by its schedule", detail]);
    wait_for("the log of both changes", || {
        logged("500 IOPS") && logged("the end of an entry")
    });
    daemon.stop();
}

#[test]
fn a_schedule_that_is_persisted_survives_a_crash() {
    let daemon = start();
    let add = [
        "vm",
        "schedule",
        "add",
        "a",
        "--from",
        "00:00",
        "--limit",
        "500 IOPS",
        "--persist",
    ];
    let vm = tidegate_json(&daemon, &add);
    assert_eq!(vm["objective"]["limit"]["total"], "500 IOPS", "{vm}");
    let set = ["vm", "set", "a", "--limit", "200 IOPS", "--persist"];
    let vm = tidegate_json(&daemon, &set);
    // The base has changed; the entry, which overrides it, is in force all day.
    assert_eq!(vm["objective"]["limit"]["total"], "500 IOPS", "{vm}");
    let note = vm["notes"][0].as_str().expect("a note");
    assert!(note.contains("entry 1"), "{note}");
    let daemon = daemon.crash();
    assert_eq!(limit_in_force(&daemon), "500 IOPS");
    let clear = ["vm", "schedule", "clear", "a", "1", "--persist"];
    let vm = tidegate_json(&daemon, &clear);
    assert_eq!(vm["objective"]["limit"]["total"], "200 IOPS", "{vm}");
    let daemon = daemon.restart();
    assert_eq!(limit_in_force(&daemon), "200 IOPS");
    let none = tidegate(&daemon, &["vm", "schedule", "list", "a"]);
    assert!(!none.contains("500 IOPS"), "{none}");
    daemon.stop();
}
