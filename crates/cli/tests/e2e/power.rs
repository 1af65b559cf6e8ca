//! Durability of what was acknowledged as durable over a power cut, on a file system that ignores
//! `RWF_DSYNC`: writes with FUA of an NBD client, and writes of a guest's driver over vhost-user.

use crate::daemon::Scratch;
use crate::tool::{Running, arg, have, skipped};

#[allow(unreachable_pub)]
#[path = "../../../server/examples/vhost_driver.rs"]
pub(crate) mod vhost_driver;

/// Exit status of the power-cut lab where the machine lacks what it needs.
const CANNOT: i32 = 77;
/// Test that is the guest's driver where the lab starts this program.
const DRIVER: &str = "power::a_guests_driver";

/// Cuts the power under a daemon that is written to by an interface of the lab.
fn nothing_is_lost(over: &str, cuts: &str) {
    if !have(&["python3", "nbdkit", "nbdfuse", "fusermount3"]) {
        return;
    }
    let lab = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/durability");
    let daemon = env!("CARGO_BIN_EXE_tidegate");
    let own = std::env::current_exe().expect("a program has a path");
    let driver = format!("'{}' --ignored --exact {DRIVER} --nocapture", arg(&own));
    let few = ["--over", over, "--cuts", cuts, "--pause", "0.7"];
    let args = [
        lab,
        "--on",
        "fuse",
        "--tidegate",
        daemon,
        "--driver",
        &driver,
    ];
    let args = [&args[..], &few].concat();
    let scratch = Scratch::new();
    let lab = Running::start(&scratch, "python3", &args).wait();
    if lab.status.code() == Some(CANNOT) {
        return skipped(lab.out.lines().last().unwrap_or("the lab does not say why"));
    }
    let message = format!("{}\n{}{}", lab.status, lab.out, lab.err);
    assert!(lab.status.success(), "{message}");
    assert!(lab.out.contains("lost none"), "{message}");
}

#[test]
fn nothing_acknowledged_as_durable_on_fuse_is_lost_in_a_power_cut() {
    nothing_is_lost("nbd", "4");
}

#[test]
fn nothing_flushed_by_vhost_user_is_lost_in_a_power_cut() {
    nothing_is_lost("vhost-flush", "3");
}

#[test]
fn nothing_written_by_a_driver_without_flushes_is_lost_in_a_power_cut() {
    nothing_is_lost("vhost-no-flush", "3");
}

#[test]
fn nothing_written_through_by_vhost_user_is_lost_in_a_power_cut() {
    nothing_is_lost("vhost-write-through", "3");
}

#[test]
#[ignore = "the guest's driver of the power-cut lab, which starts it"]
fn a_guests_driver() {
    vhost_driver::run().expect("standard input is a socket");
}
