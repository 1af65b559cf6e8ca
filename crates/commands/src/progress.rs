//! Progress bars of long commands, on standard error if it is a terminal.

use std::fmt;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Redraws of a bar per second.
const REDRAWS_PER_S: u8 = 10;

/// Creates a bar of `total` steps with the label `what`. Nothing is drawn if standard error is not
/// a terminal.
pub(crate) fn bar(total: u64, what: &'static str) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_S);
    let style = ProgressStyle::with_template(
        "{prefix} [{bar:30}] {percent:>3} %, {elapsed} elapsed, {left} left  {msg}",
    )
    .expect("the template is well formed")
    .with_key("left", write_left)
    .progress_chars("=> ");
    ProgressBar::with_draw_target(Some(total), target)
        .with_style(style)
        .with_prefix(what)
}

/// Writes the time that is left at the mean pace so far: `{eta}` has the pace of the last seconds,
/// which is endless for a bar that appears with its first steps done.
fn write_left(state: &ProgressState, to: &mut dyn fmt::Write) {
    let left = time_left(
        state.elapsed(),
        state.pos(),
        state.len().unwrap_or_default(),
    );
    // A bar that is drawn without it is better than none.
    let _ = match left {
        Some(left) => write!(to, "{:#}", HumanDuration(left)),
        None => write!(to, "?"),
    };
}

/// Returns the time for the rest of `total` steps, if all take as long as those done so far took on
/// average; at least a second while steps are left. `None`: no step is done.
fn time_left(elapsed: Duration, done: u64, total: u64) -> Option<Duration> {
    let left = total.saturating_sub(done);
    if done == 0 {
        return None;
    }
    let time = elapsed.mul_f64(left as f64 / done as f64);
    Some(time.max(Duration::from_secs(u64::from(left > 0))))
}

/// Creates a line with the label `what` and the time that has passed, for work of unknown length.
fn line(what: &'static str) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_S);
    let style = ProgressStyle::with_template("{prefix}, {elapsed} elapsed  {msg}");
    ProgressBar::with_draw_target(None, target)
        .with_style(style.expect("the template is well formed"))
        .with_prefix(what)
}

/// Progress bar that appears only after two seconds, because most commands are done by then.
pub(crate) struct DelayedBar {
    bar: Option<ProgressBar>,
    /// Number of steps; `None`: not known.
    total: Option<u64>,
    what: &'static str,
    began: std::time::Instant,
}

impl DelayedBar {
    pub(crate) fn new(total: u64, what: &'static str) -> DelayedBar {
        DelayedBar::of(Some(total), what)
    }

    /// Creates a progress line for work of unknown length, with its time and messages.
    pub(crate) fn without_total(what: &'static str) -> DelayedBar {
        DelayedBar::of(None, what)
    }

    fn of(total: Option<u64>, what: &'static str) -> DelayedBar {
        DelayedBar {
            bar: None,
            total,
            what,
            began: std::time::Instant::now(),
        }
    }

    /// Sets the number of steps.
    pub(crate) fn set_total(&mut self, total: u64) {
        self.total = Some(total);
    }

    /// Sets the number of steps done; `message` is shown behind the bar.
    pub(crate) fn set(&mut self, done: u64, message: impl FnOnce() -> String) {
        if self.bar.is_none() && self.began.elapsed() >= Duration::from_secs(2) {
            let new = match self.total {
                Some(total) => bar(total, self.what),
                None => line(self.what),
            };
            self.bar = Some(new.with_elapsed(self.began.elapsed()));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(message());
        }
    }
}

impl Drop for DelayedBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_steps_done_and_never_0_before_the_end() {
        let elapsed = Duration::from_secs(10);
        assert_eq!(time_left(elapsed, 0, 100), None);
        assert_eq!(time_left(elapsed, 25, 100), Some(Duration::from_secs(30)));
        assert_eq!(time_left(elapsed, 99, 100), Some(Duration::from_secs(1)));
        assert_eq!(time_left(elapsed, 100, 100), Some(Duration::ZERO));
    }
}
