//! Bounds on log lines of one cause, so that no client can fill the disk that the log is on.
//!
//! Of each cause [`LINES`] lines are let through in [`WINDOW`]; what is left out is counted, and the count
//! is logged once the window is over. Causes are few and fixed: one a kind of line that a client of NBD or
//! of the control API can cause at will.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines of one cause that are let through in one window.
pub(crate) const LINES: u32 = 20;
/// Time in which lines of one cause are counted together.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);

/// Lines of one cause.
#[derive(Debug)]
pub(crate) struct LogLimit {
    /// The lines, for the one that says how many were left out.
    what: &'static str,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// When the window began; `None`: before the first line.
    since: Option<Instant>,
    lines: u32,
    left_out: u64,
}

/// Handshakes that broke a rule, or whose connection broke.
pub(crate) static HANDSHAKE_FAILED: LogLimit = LogLimit::new("clients cut off in the handshake");
/// Clients that chose no export in time.
pub(crate) static HANDSHAKE_SLOW: LogLimit = LogLimit::new("clients that chose no export in time");
/// Clients that were refused an export.
pub(crate) static REFUSED: LogLimit = LogLimit::new("clients refused");
/// Listeners that could not accept.
pub(crate) static NOT_ACCEPTED: LogLimit = LogLimit::new("listeners that cannot accept");
/// Clients whose connection broke.
pub(crate) static GONE: LogLimit = LogLimit::new("clients gone");
/// Clients that broke a rule, or were stuck.
pub(crate) static CUT_OFF: LogLimit = LogLimit::new("clients cut off");

static ALL: [&LogLimit; 6] = [
    &HANDSHAKE_FAILED,
    &HANDSHAKE_SLOW,
    &REFUSED,
    &NOT_ACCEPTED,
    &GONE,
    &CUT_OFF,
];

impl LogLimit {
    /// A limit of its own; `what` names the lines, in the plural.
    const fn new(what: &'static str) -> LogLimit {
        let state = State {
            since: None,
            lines: 0,
            left_out: 0,
        };
        LogLimit {
            what,
            state: Mutex::new(state),
        }
    }

    /// Returns true where one more line may be written at `now`, and counts it as left out elsewhere.
    pub(crate) fn allows(&self, now: Instant) -> bool {
        let mut state = self.lock();
        // What was left out in a window is said before lines of the next one are let through: a line
        // too few is better than a count that nobody hears of.
        if state.left_out == 0 && state.is_over(now) {
            state.since = Some(now);
            state.lines = 0;
        }
        let allowed = state.lines < LINES;
        match allowed {
            true => state.lines += 1,
            false => state.left_out += 1,
        }
        allowed
    }

    /// Returns how many lines were left out since this was asked last, once their window is over at `now`.
    fn take_left_out(&self, now: Instant) -> Option<u64> {
        let mut state = self.lock();
        if state.left_out == 0 || !state.is_over(now) {
            return None;
        }
        state.since = None;
        state.lines = 0;
        Some(std::mem::take(&mut state.left_out))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is whole, whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_over(&self, now: Instant) -> bool {
        self.since
            .is_none_or(|since| now.saturating_duration_since(since) >= WINDOW)
    }
}

/// Logs what was left out of windows that are over, whenever there is something, until it is dropped.
pub(crate) async fn report_left_out() {
    const LOOKED_AT_EACH: Duration = Duration::from_secs(1);
    loop {
        tokio::time::sleep(LOOKED_AT_EACH).await;
        report(Instant::now());
    }
}

/// Logs what was left out of all windows, at the end of the daemon.
pub(crate) fn report_the_rest() {
    report(Instant::now() + WINDOW);
}

fn report(now: Instant) {
    for limit in ALL {
        if let Some(lines) = limit.take_left_out(now) {
            let what = limit.what;
            tracing::warn!("{lines} more lines were left out of the log: {what}");
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
        assert_eq!(through(0, 1000), LINES as usize);
        assert_eq!(
            limit.take_left_out(at(1000)),
            None,
            "the window is not over"
        );
        assert_eq!(through(1000, 7), 0);
        let left_out = 1000 - u64::from(LINES) + 7;
        assert_eq!(limit.take_left_out(at(10_000)), Some(left_out));
        assert_eq!(limit.take_left_out(at(10_000)), None, "it was said");
        assert_eq!(through(10_000, 1000), LINES as usize);
    }

    #[test]
    fn lines_that_come_now_and_then_are_all_let_through() {
        let limit = LogLimit::new("tests");
        let start = Instant::now();
        for second in 0..1000 {
            let now = start + Duration::from_secs(second);
            assert!(limit.allows(now), "second {second}");
            assert_eq!(limit.take_left_out(now), None);
        }
    }

    #[test]
    fn what_was_left_out_is_said_even_where_lines_go_on_and_on() {
        let limit = LogLimit::new("tests");
        let start = Instant::now();
        let mut said = 0;
        let mut through = 0;
        for millis in 0..60_000 {
            let now = start + Duration::from_millis(millis);
            through += u64::from(limit.allows(now));
            // The report is late, as it may be on a busy machine.
            if millis % 700 == 0 {
                said += limit.take_left_out(now).unwrap_or_default();
            }
        }
        let unsaid = limit.lock().left_out;
        assert_eq!(through + said + unsaid, 60_000);
        assert!(
            through <= 6 * u64::from(LINES) && said > 40_000,
            "{through}, {said}"
        );
    }
}
