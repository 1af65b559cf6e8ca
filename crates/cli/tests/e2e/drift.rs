//! The daemon says when a device does not do what its profile says, finds a cap below it, and
//! learns what requests cost where there is no profile.

use std::fs;

use serde_json::Value;

use crate::control::{tidegate, tidegate_json};
use crate::daemon::{Daemon, Scratch, wait_for};
use crate::tool::{Running, fio, have};

/// A flash disk of which so many I/Os a second pass, whatever their size: far fewer than it could
/// do, and so few that a busy machine keeps up.
const PASS: u32 = 400;

/// A daemon on that disk, with the profile of one that does so many.
fn start(profile_iops: u32, more: &str) -> Daemon {
    let scratch = Scratch::new();
    let mut profile = String::from("version = 1\ndevice = \"test\"\ndepth = 16\n");
    for access in ["sequential", "random"] {
        profile.push_str(&format!(
            "[[curve]]\nop = \"read\"\naccess = \"{access}\"\npoints = [\n\
             {{ size = \"4 KiB\", iops = {profile_iops}, within_percent = 1.0 }},\n\
             {{ size = \"1 MiB\", iops = {profile_iops}, within_percent = 1.0 }},\n]\n"
        ));
    }
    fs::write(scratch.join("profile.toml"), profile).expect("the directory is ours");
    let more = format!("profile = \"./profile.toml\"\npolicy = \"fifo\"\n{more}");
    start_in(scratch, &more)
}

/// Starts a daemon with further keys of the device.
fn start_in(scratch: Scratch, more: &str) -> Daemon {
    let ssd = include_str!("../../../../devices/ssd-sata-300gb.toml");
    let model = format!("{ssd}\n[cap]\niops = {PASS}\n");
    fs::write(scratch.join("capped.toml"), model).expect("the directory is ours");
    let config = format!(
        "[[device]]\nname = \"disk\"\nkind = \"emulated\"\nmodel = \"./capped.toml\"\n\
         depth = 16\n{more}\n\
         [[vm]]\nname = \"a\"\n[[vm.disk]]\nexport = \"a\"\nsize = \"64 MiB\"\n"
    );
    Daemon::start_in(scratch, &config)
}

/// Reads as long as the test goes on.
fn load(daemon: &Daemon) -> Running {
    let args = [
        "--rw=randread",
        "--bs=4k",
        "--iodepth=32",
        "--size=64m",
        "--time_based=1",
        "--runtime=300",
    ];
    fio(daemon.scratch(), &daemon.uri("a"), &args)
}

fn device(daemon: &Daemon) -> Value {
    tidegate_json(daemon, &["device", "show", "disk"])
}

fn metrics(daemon: &Daemon) -> String {
    let socket = daemon.path("control.sock");
    let socket = socket.to_str().expect("a plain name");
    let args = ["-s", "--unix-socket", socket, "http://tidegate/metrics"];
    Running::start(daemon.scratch(), "curl", &args).succeed()
}

#[test]
fn a_device_that_is_slower_than_its_profile_is_told_of() {
    if !have(&["fio", "curl"]) {
        return;
    }
    let daemon = start(PASS * 4, "learn_cap = false");
    let load = load(&daemon);
    wait_for("the alarm", || {
        device(&daemon)["drift"]["parted"] == "slower"
    });
    let ratio = device(&daemon)["drift"]["ratio"].as_f64();
    assert!(ratio.is_some_and(|ratio| ratio > 2.0), "{ratio:?}");
    let shown = tidegate(&daemon, &["device", "show", "disk"]);
    assert!(shown.contains("slower than its profile"), "{shown}");
    let metrics = metrics(&daemon);
    let drifted = "tidegate_device_profile_drifted{device=\"disk\",device_is=\"slower\"} 1.0";
    assert!(metrics.contains(drifted), "{metrics}");
    wait_for("the log", || {
        daemon.logged(&["slower than its profile says"])
    });
    // Another few seconds of the same are not told again.
    let judged = || {
        device(&daemon)["drift"]["seconds_judged"]
            .as_u64()
            .unwrap_or_default()
    };
    let until = judged() + 3;
    wait_for("three seconds more", || judged() >= until);
    let log = daemon.log();
    assert_eq!(
        log.matches("slower than its profile says").count(),
        1,
        "{log}"
    );
    drop(load);
    daemon.stop();
}

#[test]
fn a_device_that_does_what_its_profile_says_raises_no_alarm() {
    if !have(&["fio"]) {
        return;
    }
    let daemon = start(PASS, "");
    let load = load(&daemon);
    wait_for("ten seconds to be judged", || {
        let judged = &device(&daemon)["drift"]["seconds_judged"];
        judged.as_u64().is_some_and(|judged| judged >= 10)
    });
    let drift = device(&daemon)["drift"].clone();
    assert_eq!(drift.get("parted"), None, "{drift}");
    assert_eq!(device(&daemon).get("learnt_cap"), None);
    drop(load);
    daemon.stop();
}

#[test]
fn a_cap_below_the_device_is_learnt_and_shown() {
    if !have(&["fio", "curl"]) {
        return;
    }
    let daemon = start(39_500, "");
    let load = load(&daemon);
    let learnt = || device(&daemon)["learnt_cap"]["iops"].as_f64();
    wait_for("the cap", || learnt().is_some());
    let iops = learnt().unwrap_or_default();
    assert!((iops / f64::from(PASS) - 1.0).abs() < 0.1, "{iops}");
    // The queue is the engine's now: nearly nothing is with the device.
    wait_for("the queue to move", || {
        let shown = device(&daemon);
        let count = |what: &str| shown[what].as_u64().unwrap_or_default();
        count("in_flight") <= 4 && count("queued") >= 16
    });
    let metrics = metrics(&daemon);
    let cap = "tidegate_device_estimated_cap_iops{device=\"disk\"} ";
    assert!(metrics.contains(cap), "{metrics}");
    let shown = tidegate(&daemon, &["device", "show", "disk"]);
    assert!(shown.contains("learnt cap"), "{shown}");
    drop(load);
    daemon.stop();
}

#[test]
fn vfair_learns_what_requests_cost_and_says_how_sure_it_is() {
    if !have(&["fio", "curl"]) {
        return;
    }
    let daemon = start_in(Scratch::new(), "policy = \"vfair\"\n");
    let shown = || tidegate(&daemon, &["device", "show", "disk"]);
    assert!(shown().contains("none yet"), "{}", shown());
    let load = load(&daemon);
    // Now and then a random read happens to continue one: those are a kind of their own.
    let learnt = || {
        let kinds = device(&daemon)["learnt_costs"]["kinds"].clone();
        let kinds = kinds.as_array().cloned().unwrap_or_default();
        let random = kinds.into_iter().find(|of| of["kind"] == "random read");
        random.unwrap_or_default()
    };
    wait_for("costs to be known", || learnt()["known"] == true);
    let kind = learnt();
    assert_eq!(kind["size_bytes"], 4096);
    // No more than so many pass; how many less is the machine's affair.
    let least = 1e9 / f64::from(PASS) * 0.9;
    assert!(
        kind["time_ns"].as_f64().is_some_and(|ns| ns > least),
        "{kind}"
    );
    assert!(shown().contains("random read of 4 KiB"), "{}", shown());
    let metrics = metrics(&daemon);
    for name in ["estimated_io_cost_seconds", "estimated_io_cost_error_ratio"] {
        let line = format!("tidegate_device_{name}{{device=\"disk\",kind=\"random read\"}} ");
        assert!(metrics.contains(&line), "{metrics}");
    }
    drop(load);
    daemon.stop();
}
