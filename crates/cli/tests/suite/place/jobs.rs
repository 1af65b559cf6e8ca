//! `tidegate place jobs`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use super::Site;
use crate::common::stderr;

const JOBS: &str = "# three that fit, one that waits, one that is refused
{\"name\": \"x\", \"size\": \"144 GB\", \"deadline\": \"1 h\"}
name = \"y\", size = \"144 GB\", deadline = \"1 h\"

name = \"z\", size = \"144 GB\", deadline = \"1 h\"
name = \"w\", size = \"1 TB\", deadline = \"1 s\"
size = \"1 GB\", deadline = \"1 h\", limit = \"20 MB/s\"
";

#[test]
fn jobs_of_a_file_are_placed_wait_or_are_refused_each_on_its_line() {
    let site = Site::new();
    std::fs::write(site.file("jobs"), JOBS).expect("writable");
    let output = site.place(&["jobs", "jobs", "--hosts", "place.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("refused: 1 of 5 jobs"),
        "{}",
        stderr(&output)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "x goes to host a, I/O class best-effort");
    assert_eq!(lines[1], "y goes to host b, I/O class best-effort");
    assert_eq!(lines[2], "z waits: no host has room for it now");
    assert!(
        lines[3].starts_with("w is refused: even an empty host"),
        "{text}"
    );
    assert!(lines[4].starts_with("job-1 "), "{text}");
    // Once more: what is there already is refused, and nothing is placed twice.
    let again = site.place(&["jobs", "jobs", "-o", "json"]);
    let text = String::from_utf8_lossy(&again.stdout).into_owned();
    let all: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let reason = all[0]["reason"].as_str().expect("a reason");
    assert_eq!(
        (&all[0]["outcome"], &all[4]["job"]),
        (&"refused".into(), &"job-2".into())
    );
    assert!(reason.contains("already exists"), "{reason}");
    assert_eq!(site.json(&["list"])["hosts"][0]["jobs"][0]["name"], "x");
}

/// Daemon of a VM `dss` that refuses to start its job.
fn refusing_daemon(socket: &Path) {
    let listener = UnixListener::bind(socket).expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut lines = BufReader::new(&stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                lines.read_line(&mut head).expect("a header");
            }
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.parse::<usize>().expect("a number"))
            });
            let mut body = vec![0; length.unwrap_or_default()];
            lines.read_exact(&mut body).expect("a body");
            let (status, body) = match head.split(' ').nth(1) {
                Some("/readyz") => ("200 OK", r#"{"ready": true, "problems": []}"#),
                Some("/v1/jobs") => ("200 OK", "[]"),
                Some("/v1/vms") => ("200 OK", r#"[{"name": "dss", "device": "ram"}]"#),
                _ => (
                    "409 Conflict",
                    r#"{"error": {"what": "the device is full", "where": "dss",
                        "allowed": "a smaller size"}}"#,
                ),
            };
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .expect("written");
        }
    });
}

#[test]
fn a_line_that_cannot_be_started_is_refused_with_the_reason_and_the_others_are_placed() {
    let site = Site::new();
    refusing_daemon(&site.file("c.sock"));
    let hosts = "[[host]]\nname = \"a\"\nbandwidth = \"60 MB/s\"\nsocket = \"c.sock\"\n";
    std::fs::write(site.file("live.toml"), hosts).expect("writable");
    let small = "size = \"1 GB\", deadline = \"1 h\"";
    let lines = format!(
        "name = \"oltp\", {small}, start = true\nname = \"dss\", {small}, start = true\n\
         name = \"x\", {small}\n"
    );
    std::fs::write(site.file("jobs"), lines).expect("writable");
    let output = site.place(&["jobs", "jobs", "--hosts", "live.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "oltp is refused: no host has a VM \"oltp\", so its job cannot be started (a started \
             job must have the name of a VM of the daemon of a; without --start it is only placed)",
            "dss is refused: the device is full (a smaller size)",
            "x goes to host a, I/O class best-effort",
        ]
    );
    let message = stderr(&output);
    assert!(message.contains("refused: 2 of 3 jobs"), "{message}");
    // The placement of the one that was not started is gone.
    let there = site.json(&["list"])["hosts"][0]["jobs"].take();
    let names: Vec<_> = there.as_array().expect("a list").iter().collect();
    assert_eq!((names.len(), &names[0]["name"]), (1, &"x".into()));
}

#[test]
fn a_wrong_line_is_named_before_anything_is_placed() {
    let site = Site::new();
    let wrong = format!("{JOBS}name = \"v\", size = \"1 GB\"\n");
    std::fs::write(site.file("jobs"), wrong).expect("writable");
    let message = site.bad(&["jobs", "jobs", "--hosts", "place.toml"]);
    assert!(
        message.contains("jobs:8") && message.contains("`deadline` is missing"),
        "{message}"
    );
    assert!(!site.file("tidegate-place.redb").exists());
}

#[test]
fn jobs_come_from_standard_input_and_a_dry_run_stores_none() {
    let site = Site::new();
    let run = |more: &[&str]| -> String {
        let mut command = site.command(&[&["jobs", "-", "--hosts", "place.toml"], more].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let mut input = child.stdin.take().expect("piped");
        let line = "name = \"x\", size = \"1 GB\", deadline = \"1 h\"\n";
        input.write_all(line.as_bytes()).expect("it reads");
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(
        run(&["--dry-run"]),
        "x would go to host a, I/O class best-effort\n"
    );
    assert_eq!(run(&[]), "x goes to host a, I/O class best-effort\n");
}
