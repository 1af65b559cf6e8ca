//! A cluster in etcd, with several processes at once.

// The fixture of the store's own tests; these use a part of it.
#[allow(dead_code)]
#[path = "../../../../cluster/tests/suite/etcd/proxy.rs"]
mod proxy;
#[allow(dead_code)]
#[path = "../../../../cluster/tests/suite/etcd/server.rs"]
mod server;

mod elsewhere;
mod member;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::{HOSTS, LARGE, Site, stderr};
use proxy::{Loss, Proxy};
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
fn three_processes_that_place_the_same_jobs_place_each_once() {
    if !is_installed() {
        return;
    }
    let cluster = Cluster::start();
    let lines: String = (0..12)
        .map(|n| format!("{{\"name\": \"m-{n}\", \"size\": \"1 GB\", \"deadline\": \"1 h\"}}\n"))
        .collect();
    std::fs::write(cluster.site.file("jobs.jsonl"), lines).expect("writable");
    let spawn = |_| {
        let mut command = cluster.command(&["place", "jobs", "jobs.jsonl"], &["-o", "json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary runs")
    };
    let children: Vec<_> = (0..3).map(spawn).collect();
    let mut placed = BTreeMap::<String, usize>::new();
    for child in children {
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(text.lines().count(), 12, "{}", stderr(&output));
        for line in text.lines() {
            let answer: Value = serde_json::from_str(line).expect("JSON");
            let name = answer["job"].as_str().expect("a name").to_owned();
            match answer["outcome"].as_str() {
                Some("placed") => *placed.entry(name).or_default() += 1,
                Some("refused") => {
                    let reason = answer["reason"].as_str().expect("a reason");
                    assert!(reason.contains("already exists"), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(placed.len(), 12);
    assert!(placed.values().all(|times| *times == 1), "{placed:?}");
    // And the one of the fixture.
    assert_eq!(cluster.json(&["cluster", "status"])["jobs_running"], 13);
}

#[test]
fn a_job_that_etcd_may_have_stored_is_named_and_the_file_can_be_given_again() {
    if !is_installed() {
        return;
    }
    for (loss, is_stored) in [(Loss::Answers, true), (Loss::Request, false)] {
        let cluster = Cluster::start();
        let line = |name| format!("name = \"{name}\", size = \"1 GB\", deadline = \"1 h\"\n");
        let lines = ["before", "lost", "after"].map(line).concat();
        std::fs::write(cluster.site.file("jobs"), lines).expect("writable");
        let proxy = Proxy::start(cluster.server.client_port());
        proxy.lose_from("transfers/lost", loss);
        let mut command = cluster.command(&["place", "jobs", "jobs"], &[]);
        let command = command.env("TIDEGATE_ETCD", proxy.url());
        let output = command.output().expect("the binary runs");
        let text = String::from_utf8_lossy(&output.stdout);
        // No line for the one that is not known, nor for those after it.
        assert!(text.starts_with("before goes to host "), "{text}");
        assert_eq!((text.lines().count(), output.status.code()), (1, Some(1)));
        let message = stderr(&output);
        for part in [
            "job \"lost\"",
            "tidegate place list",
            "stopped at job 2 of 3; those after it were not placed",
        ] {
            assert!(message.contains(part), "{loss:?}: {message}");
        }
        let names = || {
            let hosts = cluster.json(&["place", "list"])["hosts"].take();
            let jobs = hosts.as_array().expect("a list").iter();
            let jobs = jobs.flat_map(|host| host["jobs"].as_array().expect("a list").clone());
            let names = jobs.map(|job| job["name"].as_str().expect("text").to_owned());
            names.collect::<BTreeSet<_>>()
        };
        assert_eq!(names().contains("lost"), is_stored, "{loss:?}");
        let again = cluster.run(&["place", "jobs", "jobs"], &["-o", "json"]);
        let text = String::from_utf8_lossy(&again.stdout).into_owned();
        let outcomes: Vec<_> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["outcome"].take())
            .collect();
        let lost = if is_stored { "refused" } else { "placed" };
        assert_eq!(outcomes, ["refused", lost, "placed"], "{loss:?}");
        let all = ["first", "before", "lost", "after"].map(str::to_owned);
        assert_eq!(names(), all.into());
    }
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
