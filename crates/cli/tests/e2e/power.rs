//! Durability of acknowledged FUA writes over a power cut, on a file system that ignores
//! `RWF_DSYNC`.

use crate::daemon::Scratch;
use crate::tool::{Running, have, skipped};

/// Exit status of the power-cut lab where the machine lacks what it needs.
const CANNOT: i32 = 77;

#[test]
fn nothing_acknowledged_as_durable_on_fuse_is_lost_in_a_power_cut() {
    if !have(&["python3", "nbdkit", "nbdfuse", "fusermount3"]) {
        return;
    }
    let lab = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/durability");
    let daemon = env!("CARGO_BIN_EXE_tidegate");
    let few = ["--cuts", "4", "--pause", "0.7"];
    let args = [&[lab, "--on", "fuse", "--tidegate", daemon], &few[..]].concat();
    let scratch = Scratch::new();
    let lab = Running::start(&scratch, "python3", &args).wait();
    if lab.status.code() == Some(CANNOT) {
        return skipped(lab.out.lines().last().unwrap_or("the lab does not say why"));
    }
    let message = format!("{}\n{}{}", lab.status, lab.out, lab.err);
    assert!(lab.status.success(), "{message}");
    assert!(lab.out.contains("lost none"), "{message}");
}
