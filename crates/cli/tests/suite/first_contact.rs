//! `serve --file`: disks without a configuration.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{drain_stderr, stderr, stdout, tidegate};

/// Runs the program with a runtime directory of its own. As root sockets have names in it, too.
fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).current_dir(dir);
    command
        .env("XDG_RUNTIME_DIR", dir)
        .env_remove("TIDEGATE_SOCKET");
    command
}

/// Daemon that is ended when the test ends, also by a panic.
struct Served {
    child: Child,
    lines: String,
}

impl Served {
    /// Starts `serve --file` and reads what it prints, until it has said how to watch it.
    fn start(dir: &Path, args: &[&str]) -> Served {
        let mut command = command(dir, &[&["serve"], args].concat());
        let spawned = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.expect("the binary runs");
        let mut printed = BufReader::new(child.stdout.take().expect("piped"));
        let mut lines = String::new();
        while !lines.contains("tidegate vm set") {
            if printed.read_line(&mut lines).expect("readable") == 0 {
                let mut log = String::new();
                let mut stderr = child.stderr.take().expect("piped");
                stderr.read_to_string(&mut log).expect("text");
                panic!("the daemon ended: {log}");
            }
        }
        drain_stderr(BufReader::new(child.stderr.take().expect("piped")));
        Served { child, lines }
    }

    fn stop(mut self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("it runs");
        let ended = self.child.wait().expect("it ends");
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn one_disk_is_served_without_a_file_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path();
    let served = Served::start(
        base,
        &[
            "--file",
            "disk.raw",
            "--size",
            "8 MiB",
            "--limit",
            "40 MB/s",
            "--listen",
            "n.sock",
            "--control-socket",
            "c.sock",
        ],
    );
    let at = |name: &str| base.join(name).display().to_string();
    let uri = format!("  nbd+unix:///disk?socket={}\n", at("n.sock"));
    assert!(served.lines.contains(&uri), "{}", served.lines);
    let socket = at("c.sock");
    let export = format!("export TIDEGATE_SOCKET={socket}\n");
    assert!(served.lines.contains(&export), "{}", served.lines);
    let qemu = stdout(&tidegate(&["--socket", &socket, "export", "qemu", "disk"]));
    assert!(
        !qemu.is_empty() && served.lines.contains(&qemu),
        "{}",
        served.lines
    );
    let set = tidegate(&[
        "--socket", &socket, "vm", "set", "disk", "--limit", "50 MB/s",
    ]);
    assert!(set.status.success(), "{}", stderr(&set));
    served.stop();
    let left: Vec<_> = fs::read_dir(base).expect("there").flatten().collect();
    let left: Vec<_> = left.iter().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["disk.raw"]);
}

#[test]
fn several_disks_are_vms_with_the_same_objective() {
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["a b.raw", "other"] {
        fs::write(dir.path().join(name), vec![0; 1 << 20]).expect("writable");
    }
    let served = Served::start(
        dir.path(),
        &[
            "--file",
            "a b.raw",
            "--file",
            "other",
            "--weight",
            "7",
            "--read-only",
            "--listen",
            "127.0.0.1:0",
            "--control-socket",
            "c.sock",
        ],
    );
    let socket = dir.path().join("c.sock").display().to_string();
    let shown = stdout(&tidegate(&[
        "--socket", &socket, "-o", "json", "vm", "list",
    ]));
    for part in ["\"a-b\"", "\"other\"", "\"weight\": 7"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    served.stop();
}

#[test]
fn what_would_be_served_is_printed_as_a_configuration_that_grows() {
    let dir = tempfile::tempdir().expect("a directory");
    let args = [
        "serve",
        "--file",
        "disk.raw",
        "--size",
        "8 MiB",
        "--latency",
        "5 ms",
    ];
    let printed = command(dir.path(), &[&args[..], &["--print-config"]].concat()).output();
    let printed = printed.expect("it runs");
    assert!(printed.status.success(), "{}", stderr(&printed));
    let file = dir.path().join("t.toml");
    fs::write(&file, &printed.stdout).expect("writable");
    let checked = tidegate(&["-o", "json", "check", file.to_str().expect("text")]);
    assert!(checked.status.success(), "{}", stdout(&checked));
    let checked = stdout(&checked);
    assert!(checked.contains("\"latency\": \"5 ms\""), "{checked}");
    assert!(!dir.path().join("disk.raw").exists(), "nothing is made");
}

#[test]
fn disks_that_cannot_be_served_are_refused_in_words_of_the_command_line() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(
        dir.path().join("x.qcow2"),
        [b"QFI\xfb".as_slice(), &[0; 4092]].concat(),
    )
    .expect("writable");
    for (args, parts) in [
        (
            &["--file", "none.raw"][..],
            &["where: --file", "--size \"10 GiB\" creates"][..],
        ),
        (
            &["--file", "x.qcow2"],
            &["looks like a qcow2 image", "qemu-img convert"],
        ),
        (
            &["--file", "no/none.raw", "--size", "1 MiB"],
            &["does not exist", "mkdir -p"],
        ),
        (
            &["--file", "a", "--limit", "40 MB"],
            &["limit", "did you mean \"40 MB/s\"?"],
        ),
        (
            &["t.toml", "--limit", "40 MB/s"],
            &["--limit is for disks of --file"],
        ),
        (&["t.toml", "--file", "a"], &["cannot be used with"]),
        (&[], &["required"]),
    ] {
        let sockets = ["--listen", "n.sock", "--control-socket", "c.sock"];
        let with_file = args.first() == Some(&"--file");
        let sockets = if with_file { &sockets[..] } else { &[] };
        let output = command(dir.path(), &[&["serve"], args, sockets].concat()).output();
        let output = output.expect("it runs");
        assert!(!output.status.success(), "{args:?}");
        let message = stderr(&output);
        for part in parts {
            assert!(message.contains(part), "{args:?}: {message}");
        }
    }
}
