//! `tidegate history` as its users meet it, and what a daemon that was killed leaves of it.

use std::path::Path;
use std::process::{Child, Output};

use serde_json::Value;

use crate::common::live::until;
use crate::common::nbd::Disk;
use crate::common::{CONFIG, drain_stderr, page, serve, stderr, stdout, tidegate};

const READS: u64 = 50;

struct Daemon<'a> {
    child: Child,
    dir: &'a Path,
}

impl Daemon<'_> {
    fn start(dir: &Path) -> Daemon<'_> {
        let (child, log) = serve(&dir.join("t.toml"));
        drain_stderr(log);
        Daemon { child, dir }
    }

    fn ask(&self, args: &[&str]) -> Output {
        let socket = self.dir.join("control.sock");
        tidegate(&[&["--socket", socket.to_str().expect("plain")], args].concat())
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.ask(&[args, &["-o", "json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Reads of `oltp` in its history.
    fn reads(&self, step: &str) -> u64 {
        let history = self.json(&["history", "oltp", "--step", step]);
        let intervals = history["intervals"].as_array().expect("a list");
        intervals
            .iter()
            .filter_map(|interval| interval["values"]["reads"].as_u64())
            .sum()
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        // SIGKILL: nothing is written in the end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads blocks of a disk, one after the other.
fn read_disk(socket: &Path, export: &str) {
    let mut disk = Disk::open(socket, export);
    for block in 0..READS {
        disk.read(4096 * block, 4096).expect("the server answers");
    }
}

#[test]
fn a_history_is_shown_and_survives_a_daemon_that_is_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = format!("{CONFIG}\n[store]\npath = \"state.redb\"\n");
    std::fs::write(dir.path().join("t.toml"), text).expect("writable");
    let daemon = Daemon::start(dir.path());
    read_disk(&dir.path().join("nbd.sock"), "oltp");
    until("the reads are sampled", || daemon.reads("1s") == READS);
    assert_eq!(daemon.reads("10s"), READS);

    let shown = daemon.ask(&["history", "oltp"]);
    let table = stdout(&shown);
    assert!(shown.status.success() && table.contains("P99.9"), "{table}");
    let last = daemon.ask(&["history", "oltp", "--last", "1m"]);
    assert!(last.status.success(), "{}", stderr(&last));
    assert!(stdout(&last).contains("IOPS"), "{}", stdout(&last));
    let both = daemon.ask(&["history", "oltp", "--last", "1m", "--from", "-2m"]);
    assert_eq!(both.status.code(), Some(2), "{}", stderr(&both));
    let csv = stdout(&daemon.ask(&["history", "oltp", "-o", "csv"]));
    assert!(csv.starts_with("from_ms,to_ms,observed_ms,p50_ns"), "{csv}");
    let idle = stdout(&daemon.ask(&["history", "bulk"]));
    assert_eq!(idle, "no requests in this span\n");
    let device = daemon.json(&["history", "--device", "ram"]);
    assert_eq!(device["device"], "ram");
    let unknown = daemon.ask(&["history", "nobody"]);
    assert!(
        stderr(&unknown).contains("there is no VM \"nobody\""),
        "{}",
        stderr(&unknown)
    );
    let wrong = daemon.ask(&["history", "oltp", "--from", "-1d", "--step", "1s"]);
    assert!(stderr(&wrong).contains("intervals"), "{}", stderr(&wrong));

    // A window is written when it ends, every ten seconds.
    until("the window is written", || {
        let files = &daemon.json(&["history", "--status"])["files"];
        assert_eq!(files["failing"], Value::Null);
        files["bytes"].as_u64().is_some_and(|bytes| bytes > 200)
    });
    let status = stdout(&daemon.ask(&["history", "--status"]));
    assert!(status.contains("state.history"), "{status}");
    drop(daemon);
    let daemon = Daemon::start(dir.path());
    until("the files are read", || daemon.reads("1s") == READS);
    assert_eq!(daemon.reads("10s"), READS);
    let recorded = daemon.json(&["history", "oltp"])["recorded"].clone();
    assert_eq!(recorded.as_array().map(Vec::len), Some(2), "{recorded}");
}

#[test]
fn a_report_shows_the_vms_of_the_span_and_loads_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("t.toml"), CONFIG).expect("it is written");
    let daemon = Daemon::start(dir.path());
    read_disk(&dir.path().join("nbd.sock"), "oltp");
    until("the reads are recorded", || daemon.reads("1s") == READS);
    let file = dir.path().join("out.html");
    let file_name = file.to_str().expect("plain");
    let output = daemon.ask(&["report", file_name, "--last", "5m"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).is_empty() && stderr(&output).contains("wrote"));
    let html = std::fs::read_to_string(&file).expect("it is written");
    let body = page::body(&html);
    let document = roxmltree::Document::parse(body).expect("well-formed");
    let sections = [
        "summary", "promises", "vms", "each-vm", "time", "delays", "devices",
    ];
    assert_eq!(page::sections(&document), sections);
    page::assert_loads_nothing(&html);
    let headings = document
        .descendants()
        .filter(|node| node.has_tag_name("h3"));
    let headings: Vec<_> = headings.filter_map(|node| node.text()).collect();
    // The other VM had no requests.
    assert_eq!(headings, ["oltp", "ram"]);
    assert!(
        html.contains("VMs without requests in this time: 1."),
        "{html}"
    );
    assert!(html.contains("at least 120 IOPS; within 30 ms"), "{html}");

    let output = daemon.ask(&["report", file_name, "--last", "soon"]);
    assert!(
        stderr(&output).contains("a length of time"),
        "{}",
        stderr(&output)
    );
    let output = daemon.ask(&["report", file_name, "--from", "yesterday"]);
    assert!(
        stderr(&output).contains("which is no time"),
        "{}",
        stderr(&output)
    );
}
