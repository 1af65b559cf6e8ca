//! A running daemon as its users meet it: commands that ask it, its sockets, its log, its end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use crate::common::{CONFIG, drain_stderr, examples, page, serve, stderr, stdout, tidegate};
use serde_json::Value;

/// A daemon with two VMs in memory, ended when it goes out of scope.
struct Daemon {
    child: Child,
    dir: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Daemon {
        let (daemon, log) = Daemon::start_with_log();
        drain_stderr(log);
        daemon
    }

    /// Starts the daemon and returns it with the rest of its log.
    fn start_with_log() -> (Daemon, BufReader<ChildStderr>) {
        Daemon::configured(CONFIG)
    }

    /// Starts the daemon with this configuration and returns it with the rest of its log.
    fn configured(text: &str) -> (Daemon, BufReader<ChildStderr>) {
        let dir = tempfile::tempdir().expect("a directory");
        let config = dir.path().join("t.toml");
        std::fs::write(&config, text).expect("writable");
        let (child, log) = serve(&config);
        (Daemon { child, dir }, log)
    }

    fn ask(&self, args: &[&str]) -> Output {
        let socket = self.dir.path().join("control.sock");
        let socket = socket.to_str().expect("plain");
        tidegate(&[&["--socket", socket], args].concat())
    }

    /// Runs a command against the daemon and returns its JSON output.
    fn json(&self, args: &[&str]) -> Value {
        let output = self.ask(&[args, &["-o", "json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn terminate(&mut self) -> std::process::ExitStatus {
        send("-TERM", &self.child);
        self.child.wait().expect("it ends")
    }
}

fn send(signal: &str, child: &Child) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([signal, &pid]).status();
    assert!(sent.expect("kill runs").success());
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_missing_daemon_is_said_with_its_socket() {
    let output = tidegate(&["--socket", "/nonexistent/c.sock", "vm", "list"]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.starts_with("error: no daemon listens"), "{message}");
    assert!(
        message.contains("where: /nonexistent/c.sock") && message.contains("help:"),
        "{message}"
    );
}

#[test]
fn a_running_daemon_is_looked_at_and_changed() {
    let daemon = Daemon::start();
    let vms = daemon.json(&["vm", "list"]);
    assert_eq!(vms[0]["name"], "oltp");
    assert_eq!(vms[0]["not_enforced"], Value::Array(Vec::new()));
    is_looked_at(&daemon);

    let vm = daemon.json(&[
        "vm",
        "set",
        "oltp",
        "--limit",
        "500 IOPS",
        "--latency",
        "none",
    ]);
    assert_eq!(vm["objective"]["limit"]["total"], "500 IOPS");
    assert_eq!(vm["objective"]["reservation"], "120 IOPS");
    assert_eq!(vm["not_enforced"], Value::Array(Vec::new()));

    let output = daemon.ask(&["policy", "set", "ram", "fifo"]);
    assert!(stdout(&output).contains("policy fifo does not enforce reservation (120 IOPS)"));
    let lost = "a restart of the daemon would lose this change: set the policy of [[device]]";
    assert!(stdout(&output).contains(lost), "{}", stdout(&output));
    let output = daemon.ask(&["stats", "--follow", "--interval", "100 ms", "--count", "1"]);
    let message = stdout(&output);
    assert!(
        message.contains("not enforced: reservation, limit"),
        "{message}"
    );
    let device = daemon.json(&[
        "policy",
        "set",
        "ram",
        "mclock",
        "--param",
        "cost_size=64 KiB",
    ]);
    let params = device["policy"]["params"].as_array().expect("a list");
    let cost = params.iter().find(|param| param["name"] == "cost_size");
    assert_eq!(cost.expect("it has one")["value"], "64 KiB");

    // Of the two only Flubber leaves a device waiting for what may come.
    assert_eq!(device["waits"], Value::Null);
    let device = daemon.json(&["policy", "set", "ram", "flubber"]);
    assert_eq!(device["waits"]["begun"], 0);
    let output = daemon.ask(&["policy", "set", "ram", "mclock"]);
    assert!(!stdout(&output).contains("waits"), "{}", stdout(&output));

    let output = daemon.ask(&["vm", "set", "oltp", "--reservation", "900 IOPS"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("above limit (500 IOPS)"),
        "{}",
        stderr(&output)
    );
    for command in [&["vm", "show", "olpt"][..], &["export", "qemu", "olpt"]] {
        let output = daemon.ask(command);
        assert!(
            stderr(&output).contains("there are: oltp, bulk"),
            "{}",
            stderr(&output)
        );
    }
    assert_eq!(
        daemon.json(&["vm", "show", "oltp"])["objective"]["reservation"],
        "120 IOPS"
    );
}

/// Looks at a daemon by each command that shows something.
fn is_looked_at(daemon: &Daemon) {
    for args in [
        &["vm", "list"][..],
        &["vm", "show", "oltp"],
        &["device", "list"],
        &["device", "show", "ram"],
        &["stats"],
        &["stats", "--follow", "--interval", "100 ms", "--count", "2"],
    ] {
        let output = daemon.ask(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        assert!(
            stdout(&output).contains("oltp"),
            "{args:?}: {}",
            stdout(&output)
        );
        assert!(
            !stdout(&output).contains('\x1b'),
            "colours without a terminal: {args:?}"
        );
    }

    let output = daemon.ask(&["stats", "--follow", "--interval", "100 ms", "--count", "1"]);
    let message = stdout(&output);
    assert!(
        message.contains("at least 120 IOPS; within 30 ms"),
        "{message}"
    );
    assert!(!message.contains("not enforced"), "{message}");
}

#[test]
fn a_disk_that_is_added_has_to_be_where_paths_allow() {
    let sockets = "[control]\nsocket = \"control.sock\"\n[[listen]]\nunix = \"nbd.sock\"\n";
    let device = "[[device]]\nname = \"files\"\nkind = \"file\"\n";
    let (daemon, log) = Daemon::configured(&format!("{sockets}{device}"));
    drain_stderr(log);
    let add = |name: &str, path: &Path| {
        let disk = format!("path={},size=1 MiB,create=sparse", path.display());
        daemon.ask(&["vm", "add", name, "--device", "files", "--disk", &disk])
    };
    let elsewhere = tempfile::tempdir().expect("a directory");
    let secret = elsewhere.path().join("secret");
    std::fs::write(&secret, vec![7; 1 << 20]).expect("writable");
    let link = daemon.dir.path().join("link.raw");
    std::os::unix::fs::symlink(&secret, &link).expect("writable");
    for path in [secret.clone(), elsewhere.path().join("new.raw"), link] {
        let refused = add("spy", &path);
        assert_eq!(refused.status.code(), Some(1), "{}", path.display());
        let message = stderr(&refused);
        assert!(
            message.contains("add its directory to `allow` under [paths]"),
            "{message}"
        );
    }
    let configuration = add("spy", &daemon.dir.path().join("t.toml"));
    assert_eq!(
        configuration.status.code(),
        Some(1),
        "the daemon's own configuration"
    );
    assert!(
        !elsewhere.path().join("new.raw").exists(),
        "created outside"
    );
    assert_eq!(std::fs::read(&secret).expect("there"), vec![7; 1 << 20]);
    let added = add("web", &daemon.dir.path().join("web.raw"));
    assert!(added.status.success(), "{}", stderr(&added));
}

#[test]
fn a_second_daemon_leaves_the_first_its_sockets() {
    let daemon = Daemon::start();
    let config = daemon.dir.path().join("t.toml");
    let output = tidegate(&["serve", config.to_str().expect("plain")]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(
        message.contains("control.sock") && message.contains("fuser"),
        "{message}"
    );
    assert_eq!(daemon.json(&["vm", "list"])[1]["name"], "bulk");
}

/// Runs `serve` with the tests' configuration, partly replaced, and returns its error.
fn refusal(dir: &Path, changes: &[(&str, &str)]) -> String {
    let text = (changes.iter()).fold(CONFIG.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    let path = dir.join("refused.toml");
    std::fs::write(&path, text).expect("writable");
    let output = tidegate(&["serve", path.to_str().expect("plain")]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    stderr(&output)
}

#[test]
fn what_keeps_a_daemon_from_starting_comes_with_a_remedy() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = format!("tcp = \"{}\"", taken.local_addr().expect("bound"));
    std::fs::write(dir.join("plain"), "text").expect("writable");
    let file = ("kind = \"memory\"", "kind = \"file\"");
    let second = "[[vm]]\nname = \"bulk\"\n[[vm.disk]]\nsize = \"8 MiB\"\n";
    let on = |disk: &'static str| [file, (second, ""), ("size = \"8 MiB\"", disk)];
    for (message, part, place) in [
        (
            refusal(dir, &[("unix = \"nbd.sock\"", &taken)]),
            "help: another process has this port",
            "refused.toml:5:7",
        ),
        (
            refusal(dir, &[("unix = \"nbd.sock\"", "tcp = \"192.0.2.1:1\"")]),
            "help: this machine does not have that address",
            "refused.toml:5:7",
        ),
        (
            refusal(dir, &[("nbd.sock", "plain")]),
            "help: remove it if it is not needed",
            "refused.toml:5:8",
        ),
        (
            refusal(dir, &[("control.sock", "plain")]),
            "choose another place: `socket` in [control]",
            "refused.toml:3:10",
        ),
        (
            refusal(dir, &[("nbd.sock", "none/nbd.sock")]),
            "none does not exist: create it (mkdir -p)",
            "refused.toml:5:8",
        ),
        (
            refusal(dir, &on("path = \"/\"")[..]),
            "help: name a file in it",
            "refused.toml:15:8",
        ),
        (
            refusal(dir, &on("path = \"plain\"\nsize = \"8 MiB\"")[..]),
            "help: size = \"4 B\", or leave it out",
            "refused.toml:15:8",
        ),
    ] {
        assert!(message.contains(part), "{part}: {message}");
        let place = format!("--> {}/{place}\n", dir.display());
        assert!(message.contains(&place), "{place}: {message}");
    }
}

#[test]
fn clients_that_misbehave_at_the_control_socket_keep_nobody_out() {
    let daemon = Daemon::start();
    let socket = daemon.dir.path().join("control.sock");
    let half = b"PATCH /v1/vms/oltp/objective HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n\r\n{";
    let garbage = [0xff; 4096];
    let open: Vec<UnixStream> = (0..200)
        .map(|i| {
            let mut stream = UnixStream::connect(&socket).expect("it listens");
            // One that was cut off already may not be written to: all the same here.
            let _ = match i % 3 {
                0 => stream.write_all(half),
                1 => stream.write_all(&garbage),
                _ => Ok(()),
            };
            stream
        })
        .collect();
    assert_eq!(
        daemon.json(&["vm", "list"])[0]["objective"]["reservation"],
        "120 IOPS"
    );
    drop(open);
    assert_eq!(daemon.json(&["vm", "list"])[1]["name"], "bulk");
}

#[test]
fn sigterm_ends_it_in_order_and_takes_its_sockets_along() {
    let mut daemon = Daemon::start();
    let sockets = ["control.sock", "nbd.sock"].map(|name| daemon.dir.path().join(name));
    assert!(sockets.iter().all(|socket| socket.exists()));
    let status = daemon.terminate();
    assert!(status.success(), "{status}");
    assert!(!sockets.iter().any(|socket| socket.exists()));
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(stderr(&output).is_empty(), "{}", stderr(&output));
    assert!(output.status.success(), "{}", output.status);
}

#[test]
fn nobody_reading_standard_error_is_no_error_either() {
    let file = examples().join("mixed.fio");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["sim", "--duration", "10 ms", file.to_str().expect("plain")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stderr.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", output.status);
    assert!(stdout(&output).contains("IOPS"), "{}", stdout(&output));
}

#[test]
fn a_daemon_whose_log_nobody_reads_serves_on_and_ends_in_order() {
    let (mut daemon, log) = Daemon::start_with_log();
    drop(log);
    // Each of these is logged.
    for policy in ["fifo", "mclock"] {
        let device = daemon.json(&["policy", "set", "ram", policy]);
        assert_eq!(device["policy"]["name"], policy);
    }
    let status = daemon.terminate();
    assert!(status.success(), "{status}");
}

#[test]
fn a_daemon_whose_log_is_not_read_waits_for_nobody() {
    let (mut daemon, mut log) = Daemon::start_with_log();
    // A pipe holds 64 KiB; each change is logged with all its parameters, more than 300 bytes.
    let socket = daemon.dir.path().join("control.sock");
    for _ in 0..600 {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        stream
            .set_read_timeout(Some(std::time::Duration::from_secs(30)))
            .expect("a time-out");
        write!(
            stream,
            "PUT /v1/devices/ram/policy HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-length: 9\r\n\r\n\"flubber\""
        )
        .expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(daemon.json(&["vm", "list"])[0]["name"], "oltp");
    let rest = std::thread::spawn(move || {
        let mut text = String::new();
        log.read_to_string(&mut text).map(|_| text)
    });
    let status = daemon.terminate();
    assert!(status.success(), "{status}");
    let message = rest.join().expect("no panic").expect("text");
    assert!(
        message.len() > 3 << 16,
        "too little was said: {}",
        message.len()
    );
    assert!(message.ends_with("every disk flushed\n"), "{message}");
}

#[test]
fn a_demo_that_is_interrupted_says_so_and_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["demo", "--seconds", "600"])
        .env("TMPDIR", dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut log = BufReader::new(child.stderr.take().expect("piped"));
    let mut message = String::new();
    // By then its daemon runs, and waits for the signal as well.
    log.read_line(&mut message).expect("readable");
    assert!(message.contains("running for"), "{message}");
    send("-INT", &child);
    log.read_to_string(&mut message).expect("readable");
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(1), "{status}: {message}");
    assert!(
        message.contains("error: stopped before all policies were shown"),
        "{message}"
    );
    assert!(!message.contains("connection"), "{message}");
    let left = std::fs::read_dir(dir.path()).expect("there").count();
    assert_eq!(left, 0, "it left files behind");
}

#[test]
fn a_demo_begins_with_the_address_of_its_dashboard_and_ends_with_a_report() {
    let dir = tempfile::tempdir().expect("a directory");
    let report = dir.path().join("demo.html");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["demo", "--seconds", "8", "--policy", "slo", "--report"])
        .arg(&report)
        .env("TMPDIR", dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut first = String::new();
    output.read_line(&mut first).expect("readable");
    let (words, address) = first.trim().rsplit_once("http://").expect("an address");
    assert_eq!(words, "Watch it in a browser until the end of the demo: ");
    let mut stream = TcpStream::connect(address).expect("it is served");
    let request = format!("GET / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("<title>Tidegate</title>"), "{answer}");
    std::io::copy(&mut output, &mut std::io::sink()).expect("readable");
    let mut said = String::new();
    let mut log = child.stderr.take().expect("piped");
    log.read_to_string(&mut said).expect("text");
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status}: {said}");
    let last = said.lines().last().unwrap_or_default();
    assert_eq!(last, format!("wrote {}", report.display()), "{said}");
    let html = std::fs::read_to_string(&report).expect("a report");
    page::assert_loads_nothing(&html);
    // All VMs of both devices have sent requests while their history was recorded.
    assert!(html.contains("7, of which 7 had requests"), "{html}");
}
