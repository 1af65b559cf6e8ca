//! Daemons with `[cluster]`: `tidegate serve` joins, is seen, and is fenced.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::{Site, stderr};
use super::server::{Server, is_installed};
use crate::common::{drain_stderr, serve};

/// Time in which everything that is waited for happens, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Cluster of one host, whose daemon the test starts.
struct Member {
    site: Site,
    server: Server,
    daemon: Option<Child>,
}

impl Member {
    fn new(server: Server) -> Member {
        let site = Site::new();
        let hosts = "[[host]]\nname = \"a\"\nbandwidth = \"60 MB/s\"\nsocket = \"control.sock\"\n";
        std::fs::write(site.file("live.toml"), hosts).expect("writable");
        let config = format!(
            "[control]\nsocket = \"control.sock\"\n[[listen]]\nunix = \"nbd.sock\"\n\
             [[device]]\nname = \"disk0\"\nkind = \"file\"\n\
             [[vm]]\nname = \"dss\"\n[vm.objective]\nreservation = \"10 MB/s\"\n\
             [[vm.disk]]\npath = \"dss.raw\"\nsize = \"8 MiB\"\ncreate = \"sparse\"\n\
             [cluster]\nhost = \"a\"\netcd = [\"{}\"]\nprefix = \"/cli/\"\nlease = \"2 s\"\n",
            server.url()
        );
        std::fs::write(site.file("t.toml"), config).expect("writable");
        Member {
            site,
            server,
            daemon: None,
        }
    }

    fn serve(&mut self) {
        let (child, log) = serve(&self.site.file("t.toml"));
        drain_stderr(log);
        self.daemon = Some(child);
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(words)
            .current_dir(self.site.file(""))
            .env_remove("TIDEGATE_PLACE_DB")
            .env("TIDEGATE_ETCD", self.server.url())
            .env("TIDEGATE_ETCD_PREFIX", "/cli/");
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the binary runs")
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.run(&[words, &["-o", "json"]].concat());
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Returns what `cluster status` has of the daemon; null before it has joined.
    fn status(&self) -> Value {
        self.json(&["cluster", "status"])["daemons"][0].clone()
    }

    /// Sends a request to the control API. Returns the status and the body.
    fn ask(&self, method: &str, path: &str, body: &str) -> (String, String) {
        let stream = UnixStream::connect(self.site.file("control.sock"));
        let mut stream = stream.expect("the daemon listens");
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
        let status = head.split(' ').nth(1).expect("a status");
        (status.to_owned(), body.to_owned())
    }

    /// Returns what `/readyz`, which answers 200 all the time, says of the cluster.
    fn readiness(&self) -> Value {
        let (code, ready) = self.ask("GET", "/readyz", "");
        let ready: Value = serde_json::from_str(&ready).expect("JSON");
        assert_eq!((code.as_str(), &ready["ready"]), ("200", &json!(true)));
        ready["cluster"].clone()
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let end = Instant::now() + LIMIT;
        while !is_so() {
            assert!(Instant::now() < end, "never: {what}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn await_state(&self, state: &str) {
        self.until(state, || self.status()["state"] == state);
    }

    fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("it runs");
        daemon.kill().expect("it is ours");
        daemon.wait().expect("it ends");
    }

    /// Ends the daemon in order.
    fn stop(&mut self) {
        let mut daemon = self.daemon.take().expect("it runs");
        let pid = daemon.id().to_string();
        let sent = Command::new("kill").arg(pid).status().expect("installed");
        assert!(sent.success());
        assert!(daemon.wait().expect("it ends").success());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

const START: [&str; 8] = [
    "place",
    "job",
    "dss",
    "--size",
    "1 GB",
    "--deadline",
    "1 h",
    "--start",
];

#[test]
fn a_daemon_joins_is_seen_and_its_vms_count() {
    if !is_installed() {
        return;
    }
    let mut member = Member::new(Server::start());
    member.serve();
    member.await_state("joined");
    // Not a host until the operator says how fast it is.
    assert_eq!(member.status()["defined"], false);
    let placed = member.json(&[&START[..], &["--hosts", "live.toml"]].concat());
    assert_eq!(placed["host"]["host"], "a");
    let hosts = member.json(&["cluster", "hosts"]);
    let host = &hosts[0];
    assert_eq!(
        (&host["member"], &host["reserved_bytes_per_s"]),
        (&json!("joined"), &json!(10_000_000))
    );
    let table = member.run(&["cluster", "hosts"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(
        table.contains("RESERVED") && table.contains("joined"),
        "{table}"
    );
    assert_eq!(member.readiness()["state"], "joined");
    let (_, metrics) = member.ask("GET", "/metrics", "");
    assert!(metrics.contains("tidegate_cluster_joined 1.0"), "{metrics}");
    // A VM that is promised more leaves less for jobs.
    let socket = ["--socket", "control.sock"];
    let set = [
        &socket[..],
        &["vm", "set", "dss", "--reservation", "40 MB/s"],
    ]
    .concat();
    let set = member.run(&set);
    assert!(set.status.success(), "{}", stderr(&set));
    let reserved = || member.json(&["cluster", "hosts"])[0]["reserved_bytes_per_s"].clone();
    member.until("published", || reserved() == 40_000_000);
    let refused = member.run(&[
        "place",
        "job",
        "big",
        "--size",
        "3 GB",
        "--deadline",
        "100 s",
        "--dry-run",
    ]);
    let message = stderr(&refused);
    assert!(
        message.contains("even an empty host"),
        "30 of 20 MB/s: {message}"
    );
    member.stop();
    let left = member.status();
    assert_eq!(
        (&left["state"], &left["defined"]),
        (&json!("left"), &json!(true))
    );
    let waits = member.json(&[
        "place",
        "job",
        "later",
        "--size",
        "1 MB",
        "--deadline",
        "1 h",
    ]);
    assert!(waits["host"].is_null(), "{waits}");
}

#[test]
fn a_start_for_a_placement_that_has_ended_is_refused() {
    if !is_installed() {
        return;
    }
    let mut member = Member::new(Server::start());
    member.serve();
    let defined = member.run(&[
        "place",
        "job",
        "x",
        "--size",
        "1 MB",
        "--deadline",
        "1 h",
        "--hosts",
        "live.toml",
    ]);
    assert!(defined.status.success(), "{}", stderr(&defined));
    member.await_state("joined");
    let late = |reserved: u64, host: &str| {
        let placement = json!({ "host": host, "begun_ns": 1, "reserved_bytes_per_s": reserved });
        let body = json!({ "size": "1 GB", "deadline": "1 h", "placement": placement });
        member.ask("PUT", "/v1/vms/dss/job", &body.to_string())
    };
    let (code, body) = late(10_000_000, "a");
    assert!(code == "409" && body.contains("has ended"), "{code} {body}");
    let (code, body) = late(10_000_000, "b");
    assert!(
        code == "409" && body.contains("this daemon is host"),
        "{code} {body}"
    );
    // A transfer that an operator starts is no placement.
    let (code, body) = member.ask(
        "PUT",
        "/v1/vms/dss/job",
        "{\"size\": \"1 GB\", \"deadline\": \"1 h\"}",
    );
    assert_eq!(code, "201", "{body}");
    let (code, _) = member.ask("DELETE", "/v1/vms/dss/job", "");
    assert_eq!(code, "200");
    // Of a placement that was decided before the VM was promised more.
    let placed = member.json(&["place", "job", "dss", "--size", "1 GB", "--deadline", "1 h"]);
    assert_eq!(placed["host"]["host"], "a");
    let key = member
        .server
        .etcdctl(&["get", "/cli/placements/dss", "--print-value-only"]);
    let key: Value = serde_json::from_str(key.trim()).expect("JSON");
    let placement = |reserved: u64| {
        let begun = &key["begun_ns"];
        let claim = json!({ "host": "a", "begun_ns": begun, "reserved_bytes_per_s": reserved });
        let body = json!({ "size": "1 GB", "deadline": "1 h", "placement": claim });
        member.ask("PUT", "/v1/vms/dss/job", &body.to_string())
    };
    let (code, body) = placement(9_999_999);
    assert!(
        code == "409" && body.contains("reserve 10000000 B/s"),
        "{code} {body}"
    );
    let (code, body) = placement(10_000_000);
    assert_eq!(code, "201", "{body}");
    let (_, metrics) = member.ask("GET", "/metrics", "");
    assert!(
        metrics.contains("tidegate_cluster_starts_refused_total 3.0"),
        "{metrics}"
    );
}

#[test]
fn a_daemon_serves_without_etcd_and_one_that_was_killed_joins_again() {
    if !is_installed() {
        return;
    }
    let mut member = Member::new(Server::not_started());
    // Disks are served at once, without etcd.
    member.serve();
    let says_why = || member.readiness()["reason"] == "etcd does not answer";
    member.until("it says why", says_why);
    assert_eq!(member.readiness()["state"], "waiting");
    let (code, health) = member.ask("GET", "/healthz", "");
    assert!(
        code == "200" && health.contains("not_in_cluster"),
        "{health}"
    );
    member.server.restart();
    member.await_state("joined");
    let first = member.status()["instance"].clone();
    member.kill();
    member.serve();
    let is_another = || {
        let status = member.status();
        status["state"] == "joined" && status["instance"] != first
    };
    member.until("another instance", is_another);
    member.server.kill();
    member.until("lost", || member.readiness()["state"] == "lost");
}

#[test]
fn a_daemon_that_takes_over_keeps_the_registration() {
    if !is_installed() {
        return;
    }
    let mut member = Member::new(Server::start());
    member.serve();
    member.await_state("joined");
    let created = || {
        let fields = member
            .server
            .etcdctl(&["get", "/cli/members/a", "-w", "fields"]);
        let line = fields.lines().find(|line| line.contains("CreateRevision"));
        line.map(str::to_owned)
    };
    let (before, first) = (
        created().expect("there"),
        member.status()["instance"].clone(),
    );
    let mut command = member.command(&["serve", "--takeover", "t.toml"]);
    let new = command
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let old = member.daemon.replace(new);
    assert!(old.expect("it runs").wait().expect("it ends").success());
    member.until("the new one", || member.status()["instance"] != first);
    let created = member
        .server
        .etcdctl(&["get", "/cli/members/a", "-w", "fields"]);
    assert!(
        created.contains(&before),
        "the key was never gone: {created}"
    );
    member.stop();
}

#[test]
fn a_start_whose_placer_or_daemon_was_killed_is_carried_out_once() {
    if !is_installed() {
        return;
    }
    let mut member = Member::new(Server::start());
    let config = member.site.file("t.toml");
    let text = std::fs::read_to_string(&config).expect("readable");
    let stored = format!("[store]\npath = \"store.redb\"\n{text}");
    std::fs::write(&config, stored).expect("writable");
    member.serve();
    member.await_state("joined");
    // Placed and recorded, and then the placer is killed.
    let placed = member.run(&[
        "place",
        "job",
        "dss",
        "--size",
        "1 GB",
        "--deadline",
        "1 h",
        "--hosts",
        "live.toml",
    ]);
    assert!(placed.status.success(), "{}", stderr(&placed));
    let get = |key: &str| {
        let words = ["get", key, "--print-value-only"];
        member.server.etcdctl(&words).trim().to_owned()
    };
    let placement: Value = serde_json::from_str(&get("/cli/placements/dss")).expect("JSON");
    let start = json!({
        "schema": 1, "host": "a", "begun_ns": placement["begun_ns"], "bytes": 1_000_000_000,
        "deadline_ns": 3_600_000_000_000_u64, "reserved_bytes_per_s": 10_000_000, "device": null,
    });
    let record = || {
        let words = ["put", "/cli/starts/a/dss", &start.to_string()];
        member.server.etcdctl(&words);
    };
    let job = |member: &Member| {
        let (_, body) = member.ask("GET", "/v1/vms/dss/job", "");
        let transfers: Value = serde_json::from_str(&body).expect("JSON");
        transfers["job"].clone()
    };
    record();
    member.until("it runs", || !job(&member).is_null());
    member.until("the record is gone", || get("/cli/starts/a/dss").is_empty());
    let begun = job(&member)["begun"].clone();
    assert!(begun.is_string(), "{begun}");
    // As if the daemon was killed between the beginning and the removal of the record.
    record();
    member.kill();
    member.serve();
    member.until("the record is gone", || {
        member
            .server
            .etcdctl(&["get", "/cli/starts/a/dss", "--print-value-only"])
            .trim()
            .is_empty()
    });
    assert_eq!(job(&member)["begun"], begun, "another one was started");
}
