//! A cluster in etcd, with several processes at once.

// The fixture of the store's own tests; these use a part of it.
#[allow(dead_code)]
#[path = "../../../../cluster/tests/suite/etcd/server.rs"]
mod server;

mod member;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::{HOSTS, LARGE, Site, stderr};
use server::{Server, is_installed};

/// Arguments of a command on a prefix of the server's own.
struct Cluster {
    site: Site,
    server: Server,
}

impl Cluster {
    fn start() -> Cluster {
        let (site, server) = (Site::new(), Server::start());
        let cluster = Cluster { site, server };
        let list = cluster.run(&["place", "job", "first", "--hosts", "place.toml"], &LARGE);
        assert!(list.status.success(), "{}", stderr(&list));
        cluster
    }

    fn command(&self, words: &[&str], more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(words)
            .args(more)
            .current_dir(self.site.file(""))
            .env_remove("TIDEGATE_PLACE_DB")
            .env("TIDEGATE_ETCD", self.server.url())
            .env("TIDEGATE_ETCD_PREFIX", "/cli/");
        command
    }

    fn run(&self, words: &[&str], more: &[&str]) -> Output {
        self.command(words, more).output().expect("the binary runs")
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.run(words, &["-o", "json"]);
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

#[test]
fn processes_on_one_cluster_place_each_job_once() {
    if !is_installed() {
        return;
    }
    assert!(HOSTS.contains("name = \"b\""));
    let cluster = Cluster::start();
    // Two for each name, all at once: one of them places it, the other learns that it is there.
    let small = ["--size", "1 GB", "--deadline", "1 h", "-o", "json"];
    let names: Vec<_> = (0..6).map(|n| format!("p-{n}")).collect();
    let spawn = |name: &String| {
        let mut command = cluster.command(&["place", "job", name], &small);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary runs")
    };
    let children: Vec<_> = names.iter().chain(&names).map(spawn).collect();
    let ended: Vec<_> = children
        .into_iter()
        .map(|child| child.wait_with_output().expect("it ends"))
        .collect();
    for (at, name) in names.iter().enumerate() {
        let both = [&ended[at], &ended[at + names.len()]];
        let placed = both.iter().filter(|output| output.status.success());
        assert_eq!(
            placed.count(),
            1,
            "{name}: {} {}",
            stderr(both[0]),
            stderr(both[1])
        );
        let taken = |output: &&&Output| stderr(output).contains("already exists");
        assert_eq!(both.iter().filter(taken).count(), 1, "{name}");
    }
    let status = cluster.json(&["cluster", "status"]);
    assert_eq!(
        (&status["jobs_running"], &status["jobs_waiting"]),
        (&7.into(), &0.into())
    );
    assert_eq!(status["members"][0]["leader"], true);
    assert_eq!(cluster.json(&["cluster", "drain", "a"])[0]["drained"], true);
    let databases = cluster.json(&["place", "db"]);
    assert_eq!(databases.as_array().map(Vec::len), Some(2));
}

#[test]
fn what_waits_while_etcd_is_away_is_said() {
    if !is_installed() {
        return;
    }
    let cluster = Cluster::start();
    let mut command = cluster.command(&["cluster", "status", "--watch"], &["-o", "json"]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watch = command.spawn().expect("the binary runs");
    let mut states = BufReader::new(watch.stdout.take().expect("piped")).lines();
    let mut notes = BufReader::new(watch.stderr.take().expect("piped")).lines();
    let mut state = || -> Value {
        let line = states.next().expect("a line").expect("text");
        serde_json::from_str(&line).expect("JSON")
    };
    assert_eq!(state()["jobs_running"], 1);
    cluster.json(&["cluster", "drain", "b"]);
    assert_eq!(state()["hosts_drained"], 1);
    cluster.server.kill();
    let note = notes.next().expect("a line").expect("text");
    assert!(note.contains("etcd does not answer"), "{note}");
    let refused = cluster.run(&["place", "job", "late"], &LARGE);
    assert_eq!(refused.status.code(), Some(1));
    let message = stderr(&refused);
    for part in [
        "etcd does not answer",
        "keep their objectives",
        &cluster.server.url(),
    ] {
        assert!(message.contains(part), "{message}");
    }
    cluster.server.restart();
    assert_eq!(
        notes.next().expect("a line").expect("text"),
        "etcd answers again"
    );
    let late = cluster.json(&["place", "end", "first"]);
    assert_eq!(late["hosts"][0]["jobs"], Value::Array(Vec::new()));
    assert_eq!(state()["jobs_running"], 0);
    watch.kill().expect("it is ours");
    watch.wait().expect("it ends");
}
