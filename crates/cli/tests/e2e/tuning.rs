//! Tuning of a VM to its target and the resulting precision, as users see them; and what
//! was learnt of it, taken to another daemon.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::control::{tidegate, tidegate_json};
use crate::daemon::{Backing, Daemon, wait_for};
use crate::tool::{Running, arg, fio, have};

/// A hard disk, whose VM is to have what no such disk does; everything that is learnt is learnt
/// soon.
fn config() -> String {
    let policy = "policy = { name = \"vcup-drr\", tuner = \"window\", \
                  statistical_interval = \"1 s\", window_max = \"100 ms\", \
                  profiling = true, max_ml = 2 }";
    let objective = "[vm.objective]\ntarget = \"200 MB/s\"\n";
    let (device, vm) = (
        Backing::Emulated.device(policy),
        Backing::Emulated.vm("a", "64 MiB", ""),
    );
    format!("{device}{vm}{objective}")
}

/// Runs a command that has to fail; what it says.
fn refused(daemon: &Daemon, args: &[&str]) -> String {
    let socket = daemon.path("control.sock");
    let args = [&["--socket", arg(&socket)], args].concat();
    let done = Running::start(daemon.scratch(), env!("CARGO_BIN_EXE_tidegate"), &args).wait();
    assert_eq!(done.status.code(), Some(1), "{args:?}: {}", done.err);
    done.err
}

fn shown(daemon: &Daemon) -> Value {
    tidegate_json(daemon, &["vm", "show", "a"])
}

#[test]
fn what_is_tuned_is_told_and_goes_to_another_daemon() {
    if !have(&["fio"]) {
        return;
    }
    let here = Daemon::start(&config());
    let file = here.path("learnt.json");
    let export = ["vm", "export", "a", arg(&file)];
    let message = refused(&here, &export);
    assert!(
        message.contains("has learnt nothing of VM \"a\""),
        "{message}"
    );
    assert!(message.contains("vcup"), "{message}");
    assert!(!file.exists());

    let load = [
        "--rw=randread",
        "--bs=64k",
        "--iodepth=8",
        "--time_based",
        "--runtime=60",
    ];
    let mut load = fio(here.scratch(), &here.uri("a"), &load);
    wait_for("the capacity to be found too small", || {
        !shown(&here)["tuning"]["inadequate"].is_null()
    });
    wait_for("that to be logged", || {
        here.logged(&["capacity is inadequate", "vm=\"a\"", "200 MB/s"])
    });
    wait_for("whole seconds", || {
        shown(&here)["precision"]["seconds"].as_u64() > Some(2)
    });
    how_precise_it_is_is_told(&here);

    let message = tidegate(&here, &export);
    assert!(message.contains("tuner, policy vcup-drr"), "{message}");
    load.kill();
    let printed = tidegate(&here, &["vm", "export", "a"]);
    assert!(
        printed.contains("\"format\": \"tidegate-learnt\""),
        "{printed}"
    );
    let range = shown(&here)["tuning"]["range"].clone();
    assert!(range.is_object(), "{range}");

    let there = Daemon::start(&config());
    let text = fs::read_to_string(&file).expect("it was written");
    what_was_changed_is_refused(&there, &text);
    assert_eq!(
        shown(&there)["tuning"]["range"],
        Value::Null,
        "nothing has changed"
    );
    let file = learnt_file(&there, &text);
    let vm = tidegate_json(&there, &["vm", "import", "a", arg(&file)]);
    assert_eq!(vm["tuning"]["range"], range, "{vm}");
    let vm = tidegate_json(&there, &["vm", "import", "a", arg(&file), "--disk-moved"]);
    assert_eq!(vm["tuning"]["range"], Value::Null, "{vm}");
    assert_eq!(vm["tuning"]["profiling"]["done"], 0);
    tidegate(&there, &["policy", "set", "disk", "mclock"]);
    let message = refused(&there, &["vm", "import", "a", arg(&file)]);
    assert!(
        message.contains("the policy has no controller"),
        "{message}"
    );
    there.stop();
    here.stop();
}

/// Checks what `vm show` and `stats` say of a target that the device does not do.
fn how_precise_it_is_is_told(here: &Daemon) {
    let vm = shown(here);
    let error = vm["precision"]["error_percent"].as_f64();
    assert!(error.is_some_and(|error| error < -50.0), "{vm}");
    let message = tidegate(here, &["vm", "show", "a"]);
    for part in [
        "too small for the target",
        "possible range",
        "merge limit",
        "B -",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let message = tidegate(here, &["stats", "--precision", "--interval", "2 s"]);
    assert!(
        message.contains("BETA, 2 s") && message.contains("200 MB/s"),
        "{message}"
    );
    let stats = tidegate_json(here, &["stats", "a", "--precision"]);
    assert_eq!(stats["vms"][0]["vm"], "a", "{stats}");
    assert_eq!(stats["vms"][0]["interval_s"], 30);
    let message = refused(here, &["stats", "--precision", "--interval", "500 ms"]);
    assert!(message.contains("whole seconds up to 300 s"), "{message}");
}

/// Writes what was learnt into a file that a daemon can read.
fn learnt_file(daemon: &Daemon, text: &str) -> PathBuf {
    let file = daemon.path("learnt.json");
    fs::write(&file, text).expect("the directory is ours");
    file
}

fn what_was_changed_is_refused(there: &Daemon, text: &str) {
    for (text, message) in [
        (text.replace("\"a\"", "\"b\""), "changed or damaged"),
        (text[..text.len() / 2].to_owned(), "not JSON"),
        (
            text.replace("\"version\": 1", "\"version\": 2"),
            "version 2",
        ),
    ] {
        let file = learnt_file(there, &text);
        let refused = refused(there, &["vm", "import", "a", arg(&file)]);
        assert!(refused.contains(message), "{message}: {refused}");
    }
}
