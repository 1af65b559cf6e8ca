//! Disks that misbehave by rule: struck guests get what the rule says, other guests notice nothing,
//! and when the rules are gone all is well.

use crate::control::{tidegate, tidegate_json};
use crate::daemon::{Backing, Daemon, wait_for};
use crate::on_every_backing;
use crate::tool::{Running, fio, fio_result, have, qemu_io};

on_every_backing!(
    a_dying_disk_is_its_own_guests_trouble,
    late_answers_are_right_answers,
    a_torn_write_leaves_the_promised_prefix,
);

/// A daemon with the disks of two VMs. `more`: further fields of the first one's.
fn start(backing: Backing, more: &str) -> Daemon {
    Daemon::start(
        &[
            backing.device(""),
            backing.vm("sick", "32 MiB", more),
            backing.vm("well", "32 MiB", ""),
        ]
        .concat(),
    )
}

fn verified(daemon: &Daemon, export: &str, backing: Backing, more: &[&str]) -> Running {
    let size = if backing.is_slow() { "512k" } else { "8m" };
    let size = format!("--size={size}");
    let args = [
        "--rw=randwrite",
        "--bs=4k",
        "--iodepth=16",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_backlog=32",
        &size,
    ];
    fio(
        daemon.scratch(),
        &daemon.uri(export),
        &[&args, more].concat(),
    )
}

fn assert_verified(running: Running) {
    let result = fio_result(running);
    assert_eq!(result.reads, result.writes, "not all was verified");
}

/// Runs one `qemu-io` command, which must fail with this error.
fn fails(daemon: &Daemon, command: &str, error: &str) {
    let uri = daemon.uri("sick");
    let args = ["-f", "raw", "-c", command, &uri];
    let done = Running::start(daemon.scratch(), "qemu-io", &args).wait();
    let message = done.out + &done.err;
    assert!(
        !done.status.success() && message.contains(error),
        "{command}: {message}"
    );
}

fn works(daemon: &Daemon, commands: &[&str]) {
    qemu_io(daemon.scratch(), &daemon.uri("sick"), commands);
}

fn fault(daemon: &Daemon, args: &[&str]) -> serde_json::Value {
    tidegate_json(daemon, &[&["disk", "fault"], args].concat())
}

fn a_dying_disk_is_its_own_guests_trouble(backing: Backing) {
    if !have(&["fio", "qemu-io"]) {
        return;
    }
    let daemon = start(backing, "");
    works(&daemon, &["write -P 1 0 1M"]);
    for rule in [
        &[
            "--on", "read", "--from", "64 KiB", "--length", "4 KiB", "--error", "EIO",
        ][..],
        &[
            "--on", "write", "--from", "128 KiB", "--length", "4 KiB", "--error", "ENOSPC",
        ],
    ] {
        fault(&daemon, &[&["add", "sick"], rule].concat());
    }
    let others = [
        verified(&daemon, "well", backing, &[]),
        // Beside the places that are bad.
        verified(&daemon, "sick", backing, &["--offset=16m"]),
    ];
    fails(&daemon, "read 0 1M", "Input/output error");
    fails(&daemon, "write -P 2 64k 128k", "No space left");
    // `qemu-io` does not say why a flush failed, and flushes once more when it ends.
    fault(&daemon, &["add", "sick", "--on", "flush", "--error", "EIO"]);
    fails(&daemon, "flush", "");
    fault(&daemon, &["clear", "sick", "3"]);
    works(&daemon, &["read -P 1 0 64k", "read -P 1 68k 956k", "flush"]);
    others.into_iter().for_each(assert_verified);

    // The fault is visible to operators.
    let listed = fault(&daemon, &["list", "sick"]);
    let count = |rule: usize, what: &str| listed["rules"][rule][what].as_u64().expect("a count");
    assert!(
        count(0, "injected") > 0 && count(1, "injected") > 0,
        "{listed}"
    );
    let shown = tidegate(&daemon, &["vm", "show", "sick"]);
    assert!(shown.contains("fault injection: 2 fault rules"), "{shown}");
    let shown = tidegate(&daemon, &["device", "show", "disk"]);
    assert!(shown.contains("active for disks: sick"), "{shown}");
    wait_for("a word in the log", || {
        daemon.logged(&["WARN", "fault injected into a read", "sick"])
    });

    let clear = tidegate(&daemon, &["disk", "fault", "clear", "sick"]);
    assert!(
        clear.starts_with("sick has no fault rules; earlier rules struck "),
        "{clear}"
    );
    works(&daemon, &["write -P 3 0 1M", "flush", "read -P 3 0 1M"]);
    daemon.stop();
}

fn late_answers_are_right_answers(backing: Backing) {
    if !have(&["fio"]) {
        return;
    }
    let stalls = "[[vm.disk.fault]]\nprobability = \"5 %\"\nseed = 3\nstall = \"20 ms\"\n";
    let daemon = start(backing, stalls);
    wait_for("a word in the log", || {
        daemon.logged(&["WARN", "sick", "fault injection is active"])
    });
    let guests = ["sick", "well"].map(|vm| verified(&daemon, vm, backing, &[]));
    guests.into_iter().for_each(assert_verified);
    let listed = fault(&daemon, &["list", "sick"]);
    assert!(listed["injected"].as_u64() > Some(0), "{listed}");
    assert_eq!(fault(&daemon, &["list", "well"])["injected"], 0);
    daemon.stop();
}

fn a_torn_write_leaves_the_promised_prefix(backing: Backing) {
    if !have(&["qemu-io"]) {
        return;
    }
    let daemon = start(backing, "");
    works(&daemon, &["write -P 1 0 1M"]);
    fault(
        &daemon,
        &["add", "sick", "--on", "write", "--torn", "1536 B"],
    );
    fails(&daemon, "write -P 2 4k 64k", "Input/output error");
    // One that is not longer is written.
    works(&daemon, &["write -P 4 1022k 1536"]);
    let left = [
        "read -P 1 0 4k",
        "read -P 2 4k 1536",
        "read -P 1 5632 1000k",
    ];
    works(&daemon, &[&left[..], &["read -P 4 1022k 1536"]].concat());
    fault(&daemon, &["clear", "sick", "1"]);
    works(&daemon, &["write -P 2 4k 64k", "read -P 2 4k 64k"]);
    daemon.stop();
}

/// Rehearsal of a power cut: from one moment on the disk acknowledges writes and loses them, and
/// that is what is there afterwards.
#[test]
fn a_disk_that_lies_keeps_what_was_written_before() {
    if !have(&["qemu-io"]) {
        return;
    }
    let daemon = start(Backing::File, "");
    works(&daemon, &["write -P 1 0 1M", "flush"]);
    let lost = [
        "--on",
        "write,discard,write-zeroes",
        "--torn",
        "0 B",
        "--error",
        "none",
    ];
    fault(&daemon, &[&["add", "sick"][..], &lost].concat());
    works(
        &daemon,
        &[
            "write -P 2 0 64k",
            "write -z 64k 64k",
            "discard 128k 64k",
            "write -f -P 2 1M 4k",
            "flush",
        ],
    );
    // Rules that were set while it ran go with it.
    let daemon = daemon.crash();
    works(&daemon, &["read -P 1 0 1M", "read -P 0 1M 4k"]);
    assert_eq!(
        fault(&daemon, &["list", "sick"])["rules"],
        serde_json::json!([])
    );
    daemon.stop();
}

#[test]
fn a_rule_that_cannot_be_is_refused_with_its_reason() {
    let daemon = start(Backing::Memory, "");
    let socket = daemon.path("control.sock");
    for (args, message) in [
        (&["add", "sick", "--stall", "2"][..], "its unit is missing"),
        (&["add", "sick", "--error", "ETIMEDOUT"], "\"EIO\""),
        (&["add", "sick", "--torn", "512 B"], "cannot be torn"),
        (
            &["add", "sick", "--error", "EIO", "--from", "1 GiB"],
            "past the disk's end",
        ),
        (&["add", "sock", "--error", "EIO"], "no export \"sock\""),
        (&["clear", "sick", "7"], "no fault rule 7"),
    ] {
        let first = ["--socket", crate::tool::arg(&socket), "disk", "fault"];
        let args = [&first, args].concat();
        let program = env!("CARGO_BIN_EXE_tidegate");
        let done = Running::start(daemon.scratch(), program, &args).wait();
        assert!(!done.status.success(), "{args:?}");
        assert!(done.err.contains(message), "{args:?}: {}", done.err);
    }
    assert_eq!(
        fault(&daemon, &["list", "sick"])["rules"],
        serde_json::json!([])
    );
    daemon.stop();
}
