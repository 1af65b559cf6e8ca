//! `tidegate place`, as its users meet it.

#[cfg(feature = "cluster")]
mod etcd;
mod fixture;
mod hosts;
mod jobs;
mod start;
mod times;
mod whole;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::stderr;

/// A directory with a file of hosts.
struct Site(tempfile::TempDir);

const HOSTS: &str = r#"
[[host]]
name = "a"
bandwidth = "60 MB/s"
[[host]]
name = "b"
bandwidth = "50 MB/s"
loss = ["0 B/s", "10 MB/s"]
"#;

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("place.toml"), HOSTS).expect("writable");
        Site(dir)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .arg("place")
            .args(args)
            .current_dir(self.0.path())
            .env_remove("TIDEGATE_PLACE_DB")
            .env_remove("TIDEGATE_ETCD");
        command
    }

    fn place(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary runs")
    }

    fn good(&self, args: &[&str]) -> String {
        let output = self.place(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.good(&[args, &["-o", "json"]].concat())).expect("JSON")
    }

    fn bad(&self, args: &[&str]) -> String {
        let output = self.place(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        stderr(&output)
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        Path::join(self.0.path(), name)
    }
}

/// A job that needs 40 MB/s: 144 GB in an hour.
const LARGE: [&str; 4] = ["--size", "144 GB", "--deadline", "1 h"];

fn job<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["job", name][..], &LARGE, more].concat()
}

#[test]
fn jobs_go_to_hosts_wait_and_are_placed_when_one_ends() {
    let site = Site::new();
    let placed = site.json(&job("x", &["--hosts", "place.toml"]));
    assert_eq!(
        (&placed["outcome"], &placed["class"]),
        (&"placed".into(), &"best-effort".into())
    );
    assert_eq!(placed["host"]["host"], "a");
    let forecast = &placed["host"]["jobs"][0];
    // 60 MB/s: 2,400 s, and 1,200 s early.
    assert_eq!(
        (&forecast["done_in_s"], &forecast["early_s"]),
        (&2400.0.into(), &1200.0.into())
    );
    // The hosts are known from then on.
    assert_eq!(site.json(&job("y", &[]))["host"]["host"], "b");
    let waiting = site.json(&job("z", &[]));
    assert_eq!(waiting["outcome"], "waiting");
    let why = &waiting["why"];
    assert_eq!(
        (&why["hosts"][0]["misses"], &why["hosts"][0]["takes"]),
        (&"x".into(), &false.into())
    );
    let listed = site.json(&["list"]);
    assert_eq!(listed["waiting"][0]["name"], "z");
    assert_eq!(listed["hosts"][1]["jobs"][0]["name"], "y");
    // It ends; the one that waits takes its place.
    let ended = site.place(&["end", "y"]);
    assert!(
        stderr(&ended).contains("z goes to host b"),
        "{}",
        stderr(&ended)
    );
    let listed = site.json(&["list"]);
    assert_eq!(listed["hosts"][1]["jobs"][0]["name"], "z");
    assert_eq!(listed["waiting"], Value::Array(Vec::new()));
}

#[test]
fn a_dry_run_keeps_nothing() {
    let site = Site::new();
    let message = site.good(&job("x", &["--hosts", "place.toml", "--dry-run"]));
    assert!(
        message.contains("x would go to host a, I/O class best-effort"),
        "{message}"
    );
    assert!(!site.file("tidegate-place.redb").exists());
    site.good(&job("x", &["--hosts", "place.toml"]));
    site.good(&job("y", &["--dry-run"]));
    let listed = site.json(&["list"]);
    assert_eq!(listed["hosts"][1]["jobs"], Value::Array(Vec::new()));
}

#[test]
fn what_cannot_be_is_refused_with_what_would_be_right() {
    let site = Site::new();
    let message = site.bad(&job("x", &[]));
    assert!(
        message.contains("no hosts yet") && message.contains("--hosts place.toml"),
        "{message}"
    );
    // 60 MB/s do 120 GB in 2,000 s.
    let tight = [
        "job",
        "x",
        "--size",
        "120 GB",
        "--deadline",
        "30 min",
        "--hosts",
        "place.toml",
    ];
    let message = site.bad(&tight);
    assert!(
        message.contains("even an empty host") && message.contains("2000 s"),
        "{message}"
    );
    site.good(&job("x", &[]));
    assert!(site.bad(&job("x", &[])).contains("already"));
    let message = site.bad(&["end", "y"]);
    assert!(
        message.contains("no job \"y\"") && message.contains("there are: x"),
        "{message}"
    );
    assert!(site.bad(&["moved", "x=200 GB"]).contains("more than"));
    site.good(&["moved", "x=10 GB"]);
    assert!(site.bad(&["moved", "x=1 GB"]).contains("fewer"));
    // A host with jobs stays.
    std::fs::write(
        site.file("other.toml"),
        "[[host]]\nname = \"c\"\nbandwidth = \"1 GB/s\"\n",
    )
    .expect("writable");
    let message = site.bad(&job("y", &["--hosts", "other.toml"]));
    assert!(message.contains("place end x"), "{message}");
    std::fs::write(site.file("other.toml"), "[[host]]\nname = \"a\"\n").expect("writable");
    let message = site.bad(&job("y", &["--hosts", "other.toml"]));
    assert!(
        message.contains("other.toml:1") && message.contains("bandwidth"),
        "{message}"
    );
    let message = site.bad(&["db", "none.redb"]);
    assert!(message.contains("no such file"), "{message}");
}

#[test]
fn what_is_known_of_hosts_is_shown() {
    let site = Site::new();
    site.good(&job("x", &["--hosts", "place.toml"]));
    let message = site.good(&["db"]);
    assert!(
        message.contains("host a: 60 MB/s") && message.contains("nothing is learnt yet"),
        "{message}"
    );
    let known = site.json(&["db", "tidegate-place.redb"]);
    assert_eq!(known[1]["host"], "b");
    assert_eq!(known[1]["lost_bytes_per_s"][1], 10_000_000);
    assert_eq!(known[1]["entries"], Value::Array(Vec::new()));
}

/// Answers every request at a socket with this.
fn daemon(socket: &Path, body: &'static str) {
    let listener = UnixListener::bind(socket).expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut line = String::new();
            let mut lines = BufReader::new(&stream);
            lines.read_line(&mut line).expect("a request");
            // As a daemon of a version without readiness.
            let is_known = line != "GET /readyz HTTP/1.1\r\n";
            if is_known {
                assert_eq!(line, "GET /v1/jobs HTTP/1.1\r\n");
            }
            while line != "\r\n" {
                line.clear();
                lines.read_line(&mut line).expect("a header");
            }
            let (status, body) = if is_known {
                ("200 OK", body)
            } else {
                ("404 Not Found", "{}")
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
fn jobs_that_a_hosts_daemon_runs_count_as_well() {
    let site = Site::new();
    let hosts =
        "[[host]]\nname = \"a\"\nbandwidth = \"60 MB/s\"\nsocket = \"c.sock\"\ndevice = \"sdb\"\n";
    std::fs::write(site.file("live.toml"), hosts).expect("writable");
    let message = site.bad(&job("x", &["--hosts", "live.toml"]));
    assert!(
        message.contains("c.sock") && message.contains("no daemon listens"),
        "{message}"
    );
    let jobs = r#"[
        {"vm": "dss", "device": "sdb", "job": {"size_bytes": 144000000000,
         "moved_bytes": 36000000000, "due_in_s": 2700.0, "class": "realtime", "given_up": false}},
        {"vm": "idle", "device": "sdb"},
        {"vm": "far", "device": "sdc", "job": {"size_bytes": 1, "moved_bytes": 0, "due_in_s": 1.0,
         "class": "idle"}}
    ]"#;
    daemon(&site.file("c.sock"), jobs);
    // It needs 40 MB/s, of 30 for each of two.
    let waiting = site.json(&job("x", &["--hosts", "live.toml"]));
    assert_eq!(waiting["outcome"], "waiting");
    assert_eq!(waiting["why"]["hosts"][0]["misses"], "a/dss");
    let listed = site.json(&["list"]);
    let there = &listed["hosts"][0]["jobs"];
    assert_eq!(there.as_array().map(Vec::len), Some(1));
    assert_eq!(
        (&there[0]["name"], &there[0]["class"]),
        (&"a/dss".into(), &"realtime".into())
    );
    let message = site.bad(&["end", "a/dss"]);
    assert!(message.contains("c.sock transfer --help"), "{message}");
    site.good(&["end", "x"]);
    // One that is placed under the name of a VM is that VM's.
    let small = ["job", "dss", "--size", "1 GB", "--deadline", "1 h"];
    std::fs::remove_file(site.file("c.sock")).expect("there");
    daemon(&site.file("c.sock"), "[]");
    assert_eq!(site.json(&small)["outcome"], "placed");
    std::fs::remove_file(site.file("c.sock")).expect("there");
    let half = r#"[{"vm": "dss", "device": "sdb", "job": {"size_bytes": 1000000000,
                    "moved_bytes": 500000000, "due_in_s": 3000.0, "class": "idle"}}]"#;
    daemon(&site.file("c.sock"), half);
    let listed = site.json(&["list"]);
    let there = &listed["hosts"][0]["jobs"][0];
    assert_eq!(
        (&there["name"], &there["moved_bytes"]),
        (&"dss".into(), &500_000_000.into())
    );
    assert_eq!(there["class"], "idle");
}

#[test]
fn a_data_centre_is_simulated_the_same_each_time() {
    let site = Site::new();
    let args = [
        "sim",
        "--hosts",
        "5",
        "--arrivals",
        "1",
        "--length",
        "60 s",
        "--warm-up",
        "10 s",
    ];
    let message = site.good(&args);
    for strategy in ["pcos", "first-fit", "best-fit", "random"] {
        assert!(message.contains(strategy), "{message}");
    }
    assert_eq!(site.good(&args), message);
    let timed = site.json(&[&args[..], &["--strategy", "pcos", "--times"]].concat());
    assert_eq!(timed[0]["strategy"], "pcos");
    assert!(
        timed[0]["times"]["arrival"]["decisions"]
            .as_u64()
            .is_some_and(|n| n > 0)
    );
    let message = site.place(&["sim", "--strategy", "worst-fit"]);
    assert!(
        stderr(&message).contains("one of pcos, first-fit"),
        "{}",
        stderr(&message)
    );
}

#[test]
fn a_cluster_in_a_file_has_a_status_and_hosts_that_are_drained() {
    let site = Site::new();
    site.good(&job("x", &["--hosts", "place.toml"]));
    let cluster = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let command = command.arg("cluster").args(args).current_dir(site.file(""));
        let command = command
            .env_remove("TIDEGATE_PLACE_DB")
            .env_remove("TIDEGATE_ETCD");
        command.output().expect("the binary runs")
    };
    let json = |args: &[&str]| {
        let output = cluster(&[args, &["-o", "json"]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let status = json(&["status"]);
    assert_eq!(
        (
            &status["hosts"],
            &status["jobs_running"],
            &status["jobs_late"]
        ),
        (&2.into(), &1.into(), &0.into())
    );
    // 20 MB/s of 60 are left on a, beside the 50 of b; a little more with each second.
    let free = status["free_bytes_per_s"].as_u64().expect("a rate");
    assert!((70_000_000..71_000_000).contains(&free), "{free}");
    assert_eq!(status["store"], "tidegate-place.redb");
    assert_eq!(json(&["drain", "b"])[1]["drained"], true);
    let drained = json(&["status"]);
    assert_eq!(drained["hosts_drained"], 1);
    assert!(drained["revision"].as_u64() > status["revision"].as_u64());
    assert_eq!(json(&["resume", "b"])[1]["drained"], false);
    let table = String::from_utf8(cluster(&["hosts"]).stdout).expect("text");
    assert!(
        table.contains("HOST") && table.contains("1 of 64"),
        "{table}"
    );
    let table = String::from_utf8(cluster(&["status"]).stdout).expect("text");
    assert!(
        table.starts_with("cluster in tidegate-place.redb\n"),
        "{table}"
    );
    let refused = stderr(&cluster(&["drain", "c"]));
    assert!(
        refused.contains("no host \"c\"") && refused.contains("a, b"),
        "{refused}"
    );
    let refused = cluster(&["status", "--watch"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("--etcd"), "{}", stderr(&refused));
}

#[cfg(not(feature = "cluster"))]
#[test]
fn a_build_without_etcd_says_which_one_has_it() {
    let site = Site::new();
    let message = site.bad(&["list", "--etcd", "http://127.0.0.1:9"]);
    assert!(
        message.contains("has no etcd") && message.contains("--features cluster"),
        "{message}"
    );
    assert!(!site.file("tidegate-place.redb").exists());
}

#[test]
fn a_file_and_etcd_exclude_each_other() {
    let site = Site::new();
    let output = site.place(&["list", "--db", "x", "--etcd", "http://127.0.0.1:9"]);
    assert_eq!(output.status.code(), Some(2));
    let output = site.place(&["list", "--etcd", "127.0.0.1:9"]);
    assert!(
        stderr(&output).contains("http://HOST:PORT"),
        "{}",
        stderr(&output)
    );
}
