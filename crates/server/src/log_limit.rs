//! Rate limits on log lines that clients can cause, so that no client can fill the disk with the
//! log.
//!
//! Each [`LogLimit`] covers one cause: a kind of line that a client of NBD or of the control API
//! can provoke, or a machine that stalls. It lets [`LINES_PER_WINDOW`] lines through in each
//! [`WINDOW`]. Suppressed lines are counted, and their number is logged once the window is over.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines of one cause that are let through in one window.
pub(crate) const LINES_PER_WINDOW: u32 = 20;
/// Length of the window in which lines of one cause are counted.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// Rate limit on the log lines of one cause.
#[derive(Debug)]
pub(crate) struct LogLimit {
    /// Name of the lines in the plural, for the report of suppressed ones.
    lines_name: &'static str,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Start of the window; `None` before its first line.
    since: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

/// Handshakes that failed for a protocol violation or a broken connection.
pub(crate) static HANDSHAKE_FAILED: LogLimit = LogLimit::new("clients cut off in the handshake");
/// Handshakes that timed out before the client chose an export.
pub(crate) static HANDSHAKE_SLOW: LogLimit = LogLimit::new("clients that chose no export in time");
/// Clients that were refused an export.
pub(crate) static REFUSED: LogLimit = LogLimit::new("clients refused");
/// Clients that could not be passed to the thread that serves them: no descriptor is free.
pub(crate) static LOST: LogLimit = LogLimit::new("clients lost");
/// Failures of `accept`.
pub(crate) static NOT_ACCEPTED: LogLimit = LogLimit::new("listeners that cannot accept");
/// Clients whose connection broke.
pub(crate) static GONE: LogLimit = LogLimit::new("clients gone");
/// Clients that were cut off for a protocol violation or for making no progress.
pub(crate) static CUT_OFF: LogLimit = LogLimit::new("clients cut off");
/// Queues with requests that an earlier session left in flight.
pub(crate) static RECOVERED: LogLimit = LogLimit::new("queues recovered");
/// Requests of the control API whose client has too low a role.
pub(crate) static FORBIDDEN: LogLimit = LogLimit::new("control requests refused");
/// Requests of the control API without a valid token.
pub(crate) static UNAUTHORIZED: LogLimit = LogLimit::new("control requests without a valid token");
/// Timers of the control thread that came late. Apart from those of event loops, of which there may
/// be many, and whose lines would leave none for this thread.
pub(crate) static CONTROL_STALLED: LogLimit = LogLimit::new("stalls of the control thread");
/// Timers of event loops that came late.
pub(crate) static LOOP_STALLED: LogLimit = LogLimit::new("stalls of event loops");
/// Connections to the servers of disks that were lost, not to be had, or made again.
pub(crate) static SERVER_LOST: LogLimit = LogLimit::new("connections to NBD servers");
/// Jumps of the wall clock.
pub(crate) static JUMPED: LogLimit = LogLimit::new("jumps of the wall clock");

/// Messages of other hosts that do not count.
pub(crate) static MESSAGES_IGNORED: LogLimit = LogLimit::new("messages of hosts ignored");

/// Every limit: the suppressed lines of one that is missing here are never reported.
static ALL: [&LogLimit; 15] = [
    &HANDSHAKE_FAILED,
    &HANDSHAKE_SLOW,
    &REFUSED,
    &LOST,
    &NOT_ACCEPTED,
    &GONE,
    &CUT_OFF,
    &RECOVERED,
    &FORBIDDEN,
    &UNAUTHORIZED,
    &CONTROL_STALLED,
    &LOOP_STALLED,
    &SERVER_LOST,
    &JUMPED,
    &MESSAGES_IGNORED,
];

impl LogLimit {
    /// Creates a limit for one cause; `lines_name` names its lines in the plural.
    const fn new(lines_name: &'static str) -> LogLimit {
        let state = State {
            since: None,
            lines: 0,
            suppressed: 0,
        };
        LogLimit {
            lines_name,
            state: Mutex::new(state),
        }
    }

    /// Returns true if one more line may be written at `now`; otherwise counts it as suppressed.
    pub(crate) fn allows(&self, now: Instant) -> bool {
        let mut state = self.lock();
        // The suppressed lines of a window are reported before the next one starts: losing a line
        // is better than losing a count.
        if state.suppressed == 0 && state.is_over(now) {
            state.since = Some(now);
            state.lines = 0;
        }
        let allowed = state.lines < LINES_PER_WINDOW;
        if allowed {
            state.lines += 1;
        } else {
            state.suppressed += 1;
        }
        allowed
    }

    /// Takes the number of suppressed lines, once their window is over at `now`; `None` if there
    /// are none to report yet.
    fn take_suppressed(&self, now: Instant) -> Option<u64> {
        let mut state = self.lock();
        if state.suppressed == 0 || !state.is_over(now) {
            return None;
        }
        state.since = None;
        state.lines = 0;
        Some(std::mem::take(&mut state.suppressed))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under the lock panics, so that a poisoned lock still holds a whole state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_over(&self, now: Instant) -> bool {
        self.since
            .is_none_or(|since| now.saturating_duration_since(since) >= WINDOW)
    }
}

/// Logs the suppressed lines of windows that are over, once a second, until the future is dropped.
pub(crate) async fn report_suppressed() {
    const REPORT_INTERVAL: Duration = Duration::from_secs(1);
    loop {
        tokio::time::sleep(REPORT_INTERVAL).await;
        report(Instant::now());
    }
}

/// Logs all suppressed lines that were not reported yet; called when the daemon ends.
pub(crate) fn report_remaining() {
    // From then on, every window counts as over.
    report(Instant::now() + WINDOW);
}

fn report(now: Instant) {
    for limit in ALL {
        if let Some(lines) = limit.take_suppressed(now) {
            let name = limit.lines_name;
            tracing::warn!("{lines} more lines were left out of the log: {name}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_short_and_counted_and_then_lines_are_let_through_again() {
        let limit = LogLimit::new("tests");
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let through = |from: u64, n: u64| (0..n).filter(|i| limit.allows(at(from + i))).count();
        assert_eq!(through(0, 1000), LINES_PER_WINDOW as usize);
        assert_eq!(
            limit.take_suppressed(at(1000)),
            None,
            "the window is not over"
        );
        assert_eq!(through(1000, 7), 0);
        let suppressed = 1000 - u64::from(LINES_PER_WINDOW) + 7;
        assert_eq!(limit.take_suppressed(at(10_000)), Some(suppressed));
        assert_eq!(limit.take_suppressed(at(10_000)), None, "it was reported");
        assert_eq!(through(10_000, 1000), LINES_PER_WINDOW as usize);
    }

    #[test]
    fn lines_that_come_now_and_then_are_all_let_through() {
        let limit = LogLimit::new("tests");
        let start = Instant::now();
        for second in 0..1000 {
            let now = start + Duration::from_secs(second);
            assert!(limit.allows(now), "second {second}");
            assert_eq!(limit.take_suppressed(now), None);
        }
    }

    #[test]
    fn suppressed_lines_are_reported_during_a_continuous_flood() {
        let limit = LogLimit::new("tests");
        let start = Instant::now();
        let mut reported = 0;
        let mut through = 0;
        for millis in 0..60_000 {
            let now = start + Duration::from_millis(millis);
            through += u64::from(limit.allows(now));
            // Reports come every 0.7 s, the longest delay expected on a busy machine.
            if millis % 700 == 0 {
                reported += limit.take_suppressed(now).unwrap_or_default();
            }
        }
        let unreported = limit.lock().suppressed;
        assert_eq!(through + reported + unreported, 60_000);
        assert!(
            through <= 6 * u64::from(LINES_PER_WINDOW) && reported > 40_000,
            "{through}, {reported}"
        );
    }
}
