//! The sandbox as an operator meets it, and a daemon without privileges.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};

use crate::control::tidegate;
use crate::daemon::{Backing, Daemon, Scratch, wait_for};
use crate::media::get;
use crate::tool::{fio, have, skipped};

/// User and group `nobody` of all distributions but the oldest.
const NOBODY: u32 = 65_534;

/// Writes, reads back, flushes and asks for holes, and changes VMs and disks meanwhile.
fn exercise(daemon: &Daemon) {
    let args = [
        "--rw=randrw",
        "--bsrange=512-128k",
        "--iodepth=16",
        "--io_size=32m",
        "--verify=crc32c",
        "--fsync=16",
    ];
    let load = fio(daemon.scratch(), &daemon.uri("a"), &args);
    let disk = "path=c.raw,size=8 MiB,create=sparse";
    tidegate(daemon, &["vm", "add", "c", "--disk", disk]);
    tidegate(daemon, &["vm", "show", "c"]);
    tidegate(daemon, &["vm", "resize", "c", "16 MiB"]);
    tidegate(daemon, &["vm", "remove", "c", "--force"]);
    load.succeed();
}

fn refused_calls(daemon: &Daemon) -> String {
    let (_, metrics) = get(daemon, "/metrics");
    let line = metrics
        .lines()
        .find(|line| line.starts_with("tidegate_sandbox_violations_total "));
    line.unwrap_or_else(|| panic!("no metric: {metrics}"))
        .to_owned()
}

fn config() -> String {
    [
        "[paths]\nallow = [\".\"]\n".to_owned(),
        Backing::File.device(""),
        Backing::File.vm("a", "64 MiB", ""),
    ]
    .concat()
}

#[test]
fn the_log_says_what_confines_event_loops_and_no_call_of_theirs_is_refused() {
    if !have(&["fio"]) {
        return;
    }
    let daemon = Daemon::start(&config());
    for layer in ["seccomp", "Landlock"] {
        let line = format!("event loops are confined by {layer}");
        wait_for(&line, || daemon.logged(&[&line]));
    }
    exercise(&daemon);
    assert_eq!(
        refused_calls(&daemon),
        "tidegate_sandbox_violations_total 0.0"
    );
    daemon.stop();
}

/// Returns whether the thread handles signal `number` to the process, and whether it is confined by
/// seccomp, from its status in /proc.
fn handles(status: &str, number: u32) -> (bool, bool) {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.expect("a field of every thread").trim().to_owned()
    };
    let blocked = u64::from_str_radix(&field("SigBlk:"), 16).expect("a mask in hexadecimal");
    (blocked >> (number - 1) & 1 == 0, field("Seccomp:") == "2")
}

#[test]
fn signals_go_to_threads_that_may_handle_them() {
    let daemon = Daemon::start(&config());
    let threads = format!("/proc/{}/task", daemon.pid());
    let statuses = || -> Vec<String> {
        let threads = fs::read_dir(&threads).expect("it runs");
        let paths = threads.map(|thread| thread.expect("it runs").path().join("status"));
        // Some threads end soon after the start.
        paths
            .filter_map(|path| fs::read_to_string(path).ok())
            .collect()
    };
    wait_for("a thread that is confined", || {
        statuses().iter().any(|status| handles(status, 1).1)
    });
    // SIGHUP, SIGINT and SIGTERM. Their handlers write to a socket, which confined threads may
    // not.
    for signal in [1, 2, 15] {
        let threads = statuses();
        let able = |confined| {
            let mut of_kind = threads.iter().map(|status| handles(status, signal));
            of_kind.any(|(handles, is_confined)| handles && is_confined == confined)
        };
        assert!(able(false), "signal {signal}: {threads:?}");
        assert!(!able(true), "signal {signal}: {threads:?}");
    }
    daemon.stop();
}

#[test]
fn without_the_sandbox_the_log_says_what_is_given_up() {
    let off = format!("[daemon]\nsandbox = false\n{}", config());
    let daemon = Daemon::start(&off);
    let line = ["WARN", "sandbox = false", "all rights of the daemon's user"];
    wait_for("the warning", || daemon.logged(&line));
    assert!(!daemon.logged(&["confined by"]), "{}", daemon.log());
    daemon.stop();
}

#[test]
fn an_ordinary_user_serves_disks() {
    if !have(&["fio"]) {
        return;
    }
    let scratch = Scratch::new();
    let owner = fs::metadata(scratch.path()).expect("it is there").uid();
    if owner != 0 {
        return skipped("needs root, to become another user");
    }
    chown(scratch.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
    let daemon = Daemon::start_as(NOBODY, scratch, &config());
    let of_process = fs::metadata(format!("/proc/{}", daemon.pid())).expect("it runs");
    assert_eq!(of_process.uid(), NOBODY);
    let disk = fs::metadata(daemon.path("a.raw")).expect("the daemon made it");
    assert_eq!(disk.uid(), NOBODY);
    exercise(&daemon);
    assert_eq!(
        refused_calls(&daemon),
        "tidegate_sandbox_violations_total 0.0"
    );
    daemon.stop();
}
