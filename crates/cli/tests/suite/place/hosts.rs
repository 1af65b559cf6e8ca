//! Hosts one by one, and jobs that cannot take all they are given.

use std::process::Command;

use serde_json::Value;

use super::{Site, daemon, job, stderr};

fn names(listed: &Value) -> Vec<&str> {
    let all = listed.as_array().expect("a list").iter();
    all.filter_map(|host| host["host"].as_str()).collect()
}

#[test]
fn hosts_come_one_by_one_and_are_drained() {
    let site = Site::new();
    assert!(site.good(&["host", "list"]).contains("no hosts yet"));
    let add = [
        "host",
        "add",
        "c",
        "--bandwidth",
        "54 MB/s",
        "--loss",
        "0 B/s",
        "--loss",
        "17 MB/s",
    ];
    site.good(&add);
    let message = site.bad(&add);
    assert!(message.contains("host named \"c\" already"), "{message}");
    let message = site.bad(&[
        "host",
        "add",
        "d",
        "--bandwidth",
        "1 MB/s",
        "--loss",
        "1 MB/s",
    ]);
    assert!(
        message.contains("leaves nothing") && message.contains("--loss"),
        "{message}"
    );
    assert_eq!(site.json(&job("x", &[]))["host"]["host"], "c");
    assert_eq!(site.json(&job("y", &[]))["outcome"], "waiting");
    let listed = site.json(&["host", "drain", "c"]);
    assert_eq!(
        (&listed[0]["drained"], &listed[0]["jobs"]),
        (&true.into(), &1.into())
    );
    // On a drained host no job takes the place of one that ends, and new ones wait.
    let ended = site.place(&["end", "x"]);
    assert!(!stderr(&ended).contains("y goes"), "{}", stderr(&ended));
    let waiting = site.json(&job("z", &[]));
    assert_eq!(waiting["why"]["hosts"][0]["reason"], "it is drained");
    let resumed = site.place(&["host", "resume", "c"]);
    assert!(
        stderr(&resumed).contains("y goes to host c"),
        "{}",
        stderr(&resumed)
    );
    let message = site.place(&["host", "add", "a b", "--bandwidth", "1 MB/s"]);
    assert!(
        stderr(&message).contains("1 to 64 letters"),
        "{}",
        stderr(&message)
    );
    let message = site.bad(&["host", "drain", "e"]);
    assert!(
        message.contains("no host \"e\"") && message.contains("there are: c"),
        "{message}"
    );
}

#[test]
fn jobs_of_a_host_that_died_look_for_another_one_or_are_lost() {
    let site = Site::new();
    site.good(&job("x", &["--hosts", "place.toml"]));
    site.good(&job("y", &[]));
    site.good(&["moved", "x=100 GB"]);
    let message = site.bad(&["host", "remove", "a"]);
    assert!(
        message.contains("a job runs on host \"a\": x")
            && message.contains("--requeue")
            && message.contains("--lose"),
        "{message}"
    );
    let removed = site.place(&["host", "remove", "a", "--requeue"]);
    assert!(removed.status.success());
    let text = stderr(&removed);
    // It needs 44 GB of an hour on a disk that does 20 MB/s for each of two, of which the other
    // needs 40.
    assert!(
        text.contains("x waits for a host with the 4") && text.contains("that are left"),
        "{text}"
    );
    let hosts = site.json(&["host", "list"]);
    assert_eq!(names(&hosts), ["b"]);
    let ended = site.place(&["end", "y"]);
    assert!(
        stderr(&ended).contains("x goes to host b"),
        "{}",
        stderr(&ended)
    );
    let listed = site.json(&["list"]);
    let there = &listed["hosts"][0]["jobs"][0];
    let size = there["size_bytes"].as_u64().expect("a size");
    assert!((40_000_000_000..=44_000_000_000).contains(&size), "{size}");
    let removed = site.place(&["host", "remove", "b", "--lose"]);
    assert!(
        stderr(&removed).contains("x is lost with its host"),
        "{}",
        stderr(&removed)
    );
    assert!(site.bad(&["list"]).contains("no hosts yet"));
}

#[test]
fn a_host_whose_daemon_is_gone_is_drained_or_removed_and_the_others_go_on() {
    let site = Site::new();
    site.good(&["host", "add", "a", "--bandwidth", "60 MB/s"]);
    let add = [
        "host",
        "add",
        "b",
        "--bandwidth",
        "90 MB/s",
        "--daemon",
        "b.sock",
    ];
    let message = site.bad(&add);
    assert!(
        message.contains("b.sock") && !message.contains("drain"),
        "{message}"
    );
    assert_eq!(names(&site.json(&["host", "list"])), ["a"]);
    daemon(&site.file("b.sock"), "[]");
    site.good(&add);
    assert_eq!(site.json(&job("x", &[]))["host"]["host"], "b");
    std::fs::remove_file(site.file("b.sock")).expect("there");
    let message = site.bad(&job("y", &[]));
    assert!(
        message.contains("no daemon listens") && message.contains("place host drain b"),
        "{message}"
    );
    site.good(&["host", "drain", "b"]);
    assert_eq!(site.json(&job("y", &[]))["host"]["host"], "a");
    let removed = site.place(&["host", "remove", "b", "--requeue"]);
    assert!(
        stderr(&removed).contains("x waits for a host"),
        "{}",
        stderr(&removed)
    );
    assert_eq!(names(&site.json(&["host", "list"])), ["a"]);
}

#[test]
fn what_a_daemon_says_that_all_jobs_had_teaches_the_database() {
    let site = Site::new();
    let jobs = r#"[
        {"vm": "dss", "device": "sdb", "job": {"size_bytes": 144000000000,
         "moved_bytes": 36000000000, "due_in_s": 2700.0, "class": "realtime",
         "bytes_per_s": 41000000}},
        {"vm": "bulk", "device": "sdb", "job": {"size_bytes": 1000000000, "moved_bytes": 0,
         "due_in_s": 9000.0, "class": "idle", "bytes_per_s": 3000000}}
    ]"#;
    daemon(&site.file("c.sock"), jobs);
    site.good(&[
        "host",
        "add",
        "c",
        "--bandwidth",
        "60 MB/s",
        "--daemon",
        "c.sock",
    ]);
    // It is kept: the daemon may be gone.
    std::fs::remove_file(site.file("c.sock")).expect("there");
    site.good(&["host", "drain", "c"]);
    let known = site.json(&["db"]);
    let entry = &known[0]["entries"][0];
    assert_eq!(
        (
            &entry["real_time"]["bytes_per_s"],
            &entry["idle"]["bytes_per_s"]
        ),
        (&41_000_000.into(), &3_000_000.into())
    );
    // Where it does not say so of all of them nothing is learnt.
    let jobs = r#"[
        {"vm": "dss", "device": "sdb", "job": {"size_bytes": 144000000000,
         "moved_bytes": 36000000000, "due_in_s": 2700.0, "class": "realtime",
         "bytes_per_s": 41000000}},
        {"vm": "bulk", "device": "sdb", "job": {"size_bytes": 1000000000, "moved_bytes": 0,
         "due_in_s": 9000.0, "class": "idle"}}
    ]"#;
    daemon(&site.file("d.sock"), jobs);
    site.good(&[
        "host",
        "add",
        "d",
        "--bandwidth",
        "60 MB/s",
        "--daemon",
        "d.sock",
    ]);
    let known = site.json(&["db"]);
    assert_eq!(known[1]["entries"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_job_says_what_it_takes_at_most() {
    let site = Site::new();
    let message = site.bad(&job("x", &["--limit", "39 MB/s", "--hosts", "place.toml"]));
    assert!(
        message.contains("needs 40 MB/s") && message.contains("--limit"),
        "{message}"
    );
    site.good(&job("x", &["--limit", "45 MB/s", "--hosts", "place.toml"]));
    // 60 MB/s are there, of which it takes 45: another one has 15.
    let listed = site.json(&["list"]);
    assert_eq!(listed["hosts"][0]["jobs"][0]["bytes_per_s"], 45_000_000);
    site.good(&["host", "drain", "b"]);
    let waiting = site.json(&["job", "y", "--size", "144 GB", "--deadline", "2 h"]);
    assert_eq!(waiting["outcome"], "waiting");
    let reasons = waiting["why"]["hosts"].as_array().expect("both");
    assert_eq!(reasons[1]["reason"], "it is drained");
}

#[test]
fn check_knows_a_file_of_hosts_and_reports_its_mistakes() {
    let site = Site::new();
    let check = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args([&["check", "place.toml"], more].concat());
        command
            .current_dir(site.0.path())
            .output()
            .expect("the binary runs")
    };
    let output = check(&[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    for expected in ["HOST", "60 MB/s", "0 B/s, 10 MB/s"] {
        assert!(table.contains(expected), "{expected}: {table}");
    }
    let json: Value = serde_json::from_slice(&check(&["-o", "json"]).stdout).expect("JSON");
    assert_eq!(
        json["hosts"][1]["loss_bytes_per_s"][1], 10_000_000,
        "{json}"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(["vcpu", "sim", "place.toml"])
        .current_dir(site.0.path());
    let refusal = stderr(&command.output().expect("the binary runs"));
    assert!(
        refusal.contains("a file of hosts for `tidegate place`, not a scenario of vCPUs"),
        "{refusal}"
    );
    // Also where only the hosts' section tells what the file is.
    std::fs::write(
        site.file("place.toml"),
        "[[host]]\nname = \"a\"\nspeed = 1\n",
    )
    .expect("written");
    let output = check(&[]);
    assert_eq!(output.status.code(), Some(1));
    let refusal = stderr(&output);
    assert!(refusal.contains("place.toml:3"), "{refusal}");
    assert!(refusal.contains("bandwidth"), "{refusal}");
}
