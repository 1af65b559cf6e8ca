//! A daemon that stands still for a while, as when its machine is paused, swaps or migrates.

use std::thread;
use std::time::Duration;

use crate::daemon::{Backing, Daemon, wait_for};
use crate::media::get;
use crate::tool::{fio, have};

/// Longer than the daemon lets clients be slow while others wait, and than its housekeeping takes.
const STALL: Duration = Duration::from_secs(3);

#[test]
fn a_daemon_that_stalls_goes_on_where_it_was_and_cuts_nobody_off() {
    if !have(&["fio"]) {
        return;
    }
    let limit = "[vm.objective]\nlimit = \"400 IOPS\"\n";
    let limited = Backing::File.vm("b", "64 MiB", "");
    let config = [
        Backing::File.device(""),
        Backing::File.vm("a", "64 MiB", ""),
        limited.replace("[[vm.disk]]", &format!("{limit}[[vm.disk]]")),
    ];
    let daemon = Daemon::start(&config.concat());
    let args = [
        "--rw=randrw",
        "--bsrange=4k-64k",
        "--iodepth=16",
        "--io_size=96m",
        "--verify=crc32c",
    ];
    let mut loads: Vec<_> = ["a", "b"]
        .map(|vm| fio(daemon.scratch(), &daemon.uri(vm), &args))
        .into();
    wait_for("both loads to run", || {
        let (_, metrics) = get(&daemon, "/metrics");
        let connected =
            |line: &&str| line.starts_with("tidegate_vm_connections{") && !line.ends_with(" 0.0");
        metrics.lines().filter(connected).count() >= 2
    });
    for _ in 0..2 {
        daemon.signal("STOP");
        thread::sleep(STALL);
        daemon.signal("CONT");
        let (status, health) = get(&daemon, "/healthz");
        assert_eq!(status, 200, "{health}");
    }
    assert!(
        loads.iter_mut().any(|load| load.is_running()),
        "stalled too late"
    );
    for load in loads {
        load.succeed();
    }
    assert!(!daemon.logged(&["client cut off"]), "{}", daemon.log());
    daemon.stop();
}
