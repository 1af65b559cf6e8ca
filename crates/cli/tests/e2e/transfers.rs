//! Deadline transfers through the command line.

use serde_json::Value;

use crate::control::{tidegate, tidegate_json};
use crate::daemon::{Backing, Daemon, wait_for};
use crate::tool::{Finished, Running, arg, fio, fio_result, have};

fn start(backing: Backing, policy: &str) -> Daemon {
    let config = [
        "[store]\npath = \"kept.redb\"\n".to_owned(),
        backing.device(&format!("policy = \"{policy}\"")),
        backing.vm("a", "64 MiB", ""),
        backing.vm("b", "64 MiB", ""),
    ];
    Daemon::start(&config.concat())
}

/// Runs `tidegate` against a daemon until it is waited for.
fn begin(daemon: &Daemon, args: &[&str]) -> Running {
    let socket = daemon.path("control.sock");
    let args = [&["--socket", arg(&socket)], args].concat();
    Running::start(daemon.scratch(), env!("CARGO_BIN_EXE_tidegate"), &args)
}

fn refused(daemon: &Daemon, args: &[&str]) -> String {
    let done = begin(daemon, args).wait();
    assert_eq!(done.status.code(), Some(1), "{args:?}: {}", done.out);
    done.err
}

fn transfer(daemon: &Daemon) -> Value {
    tidegate_json(daemon, &["job", "show", "a"])["job"].clone()
}

/// Waits for a transfer of 1 MiB while `meanwhile` moves its bytes or cancels it.
fn waited_for(daemon: &Daemon, by: &[&str], meanwhile: impl FnOnce()) -> Finished {
    let start = ["job", "start", "a", "--size", "1 MiB", "--wait"];
    let waits = begin(daemon, &[&start, by].concat());
    wait_for("the job to begin", || !transfer(daemon).is_null());
    meanwhile();
    waits.wait()
}

fn write(daemon: &Daemon, size: &str) {
    let size = format!("--size={size}");
    let args = ["--rw=write", "--bs=64k", "--iodepth=4", &size];
    fio_result(fio(daemon.scratch(), &daemon.uri("a"), &args));
}

#[test]
fn a_transfer_is_waited_for_and_told_met_missed_or_cancelled() {
    if !have(&["fio"]) {
        return;
    }
    let daemon = start(Backing::Memory, "pridyn");
    let met = waited_for(&daemon, &["--deadline", "10 min"], || {
        write(&daemon, "512k");
        let half = transfer(&daemon);
        assert_eq!(half["moved_bytes"], 512 << 10, "{half}");
        let shown = tidegate(&daemon, &["vm", "show", "a"]);
        assert!(
            shown.contains("1 MiB by 2") && shown.contains("50 % done"),
            "{shown}"
        );
        let list = tidegate(&daemon, &["job", "list"]);
        assert!(
            list.contains("50 %") && list.contains("best-effort"),
            "{list}"
        );
        write(&daemon, "512k");
    });
    assert_eq!(met.status.code(), Some(0), "{}", met.err);
    assert!(
        met.out.contains("a: met at ") && met.out.contains(" min"),
        "{}",
        met.out
    );
    assert!(
        daemon.logged(&["transfer met its deadline", "vm=\"a\""]),
        "{}",
        daemon.log()
    );

    let missed = waited_for(&daemon, &["--deadline", "1 ms"], || write(&daemon, "1m"));
    assert_eq!(missed.status.code(), Some(1), "{}", missed.out);
    assert!(
        missed.err.contains("deadline not met: missed by "),
        "{}",
        missed.err
    );

    let cancelled = waited_for(&daemon, &["--deadline", "10 min", "-o", "json"], || {
        tidegate(&daemon, &["job", "cancel", "a"]);
    });
    assert_eq!(cancelled.status.code(), Some(1), "{}", cancelled.out);
    assert!(
        cancelled.err.contains("deadline not met: cancelled at "),
        "{}",
        cancelled.err
    );
    let answer: Value = serde_json::from_str(&cancelled.out).expect("one answer in JSON");
    assert_eq!(answer["last"]["outcome"], "cancelled", "{answer}");

    let shown = tidegate(&daemon, &["job", "show", "a"]);
    assert!(shown.contains("1 met, 1 missed, 1 cancelled"), "{shown}");
    let list = tidegate(&daemon, &["job", "list"]);
    assert!(list.contains("cancelled at "), "{list}");
    daemon.stop();
}

#[test]
fn what_cannot_be_met_or_is_enforced_by_nobody_is_said_at_once() {
    let daemon = start(Backing::Emulated, "fifo");
    let begin = ["job", "start", "a", "--size", "64 GB", "--deadline", "60 s"];
    let message = tidegate(&daemon, &begin);
    for part in [
        "misses by ",
        "policy fifo does not enforce deadlines, policy \"slo\" or \"pridyn\" would",
        "even with the whole device to itself it would miss its deadline",
        "the earliest possible deadline is ",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let least = transfer(&daemon)["least_deadline_s"]
        .as_f64()
        .expect("the model says it");
    // At best, in the disk's outermost zone: 175 MB/s.
    assert!((least - 64_000.0 / 175.0).abs() < 1.0, "{least}");
    // The deadline that is said to be possible is.
    tidegate(&daemon, &["policy", "set", "disk", "pridyn"]);
    let deadline = format!("{} s", least.ceil() + 1.0);
    let again = [
        "job",
        "start",
        "a",
        "--size",
        "64 GB",
        "--deadline",
        &deadline,
        "--replace",
    ];
    let now = tidegate_json(&daemon, &again);
    assert_eq!(now["job"]["possible"], true, "{now}");
    assert_eq!(
        (&now["job"]["enforced"], now["job"].get("notes")),
        (&true.into(), None),
        "{now}"
    );
    // By the device: 30 % longer than it needs for it alone, wherever on it, at 83 MB/s.
    let tolerant = ["job", "start", "b", "--size", "1 GB", "--tolerance", "0.3"];
    tidegate(&daemon, &["job", "cancel", "a"]);
    let due = tidegate_json(&daemon, &tolerant)["job"]["due_in_s"]
        .as_f64()
        .expect("a number");
    let expected = 1_000.0 / 83.0 * 1.3;
    assert!(
        (due - expected).abs() < expected * 0.1,
        "{due}, not {expected}"
    );
    daemon.stop();
}

#[test]
fn a_transfer_outlives_a_crash_and_one_that_was_cancelled_does_not() {
    let daemon = start(Backing::Memory, "pridyn");
    let begin = [
        "job",
        "start",
        "a",
        "--size",
        "1 GiB",
        "--by",
        "2400-01-01T00:00",
    ];
    let message = refused(&daemon, &begin);
    assert!(
        message.contains("too far ahead") && message.contains("where: by"),
        "{message}"
    );
    let begin = [
        "job",
        "start",
        "a",
        "--size",
        "1 GiB",
        "--deadline",
        "10 min",
    ];
    let before = tidegate_json(&daemon, &begin)["job"].clone();
    let daemon = daemon.crash();
    let after = transfer(&daemon);
    for what in ["size_bytes", "moved_bytes", "begun", "due"] {
        assert_eq!(after[what], before[what], "{what}: {after}");
    }
    assert!(
        daemon.logged(&["transfer resumed", "vm=\"a\""]),
        "{}",
        daemon.log()
    );
    tidegate(&daemon, &["job", "cancel", "a"]);
    let daemon = daemon.crash();
    assert_eq!(transfer(&daemon), Value::Null);
    daemon.stop();
}

#[test]
fn what_is_no_transfer_is_refused_with_what_would_be_right() {
    let daemon = start(Backing::Memory, "pridyn");
    for (args, message) in [
        (
            &["start", "x", "--size", "1 B", "--by", "14:03"][..],
            "there are: a, b",
        ),
        (&["start", "a", "--size", "5", "--by", "14:03"], "unit"),
        (&["start", "a", "--size", "1 B", "--by", "2pm"], "\"14:03\""),
        (
            &["start", "a", "--size", "1 B", "--tolerance", "-1"],
            "from 0 to 100",
        ),
        (
            &["start", "a", "--size", "1 B", "--tolerance", "1"],
            "deadline",
        ),
        (&["cancel", "a"], "has no transfer"),
        (&["show", "x"], "there are: a, b"),
    ] {
        let refused = refused(&daemon, &[&["job"], args].concat());
        assert!(refused.contains(message), "{args:?}: {refused}");
    }
    let none = tidegate(&daemon, &["job", "list"]);
    assert!(none.contains("no transfers since"), "{none}");
    tidegate(
        &daemon,
        &["job", "start", "a", "--size", "1 B", "--by", "14:03"],
    );
    let twice = refused(
        &daemon,
        &["job", "start", "a", "--size", "1 B", "--by", "14:03"],
    );
    assert!(
        twice.contains("0 B of 1 B moved") && twice.contains("replace"),
        "{twice}"
    );
    daemon.stop();
}
