//! A daemon whose process is stopped for a while, as on a machine that is suspended.

use std::thread;
use std::time::Duration;

use crate::daemon::{Backing, Daemon, wait_for};
use crate::media::get;

/// Longer than the second that a timer may be late and the second for which it runs.
const STOPPED: Duration = Duration::from_millis(3500);

#[test]
fn a_process_that_was_stopped_says_for_how_long_and_goes_on() {
    let backing = Backing::Memory;
    let config = [backing.device(""), backing.vm("a", "1 MiB", "")].concat();
    let daemon = Daemon::start(&config);
    // Sockets listen before the daemon runs, and before it looks at the clocks.
    get(&daemon, "/metrics");
    daemon.signal("STOP");
    // Nothing but time tells: a process that is stopped does nothing that could be waited for.
    thread::sleep(STOPPED);
    daemon.signal("CONT");
    wait_for("the stall in the log", || {
        daemon.logged(&[
            "WARN",
            "the control thread did not run for",
            " s: the machine was suspended",
        ])
    });
    assert!(
        !daemon.logged(&["the wall clock jumped"]),
        "{}",
        daemon.log()
    );
    let (_, metrics) = get(&daemon, "/metrics");
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|value| value.trim().parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("no {name}: {metrics}"))
    };
    assert!(value("tidegate_time_stalls_total{thread=\"control\"}") >= 1.0);
    let stalled = value("tidegate_time_stalled_seconds_total{thread=\"control\"}");
    assert!(stalled >= 1.0, "{stalled}");
    daemon.stop();
}
