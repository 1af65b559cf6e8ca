//! Progress bars of long commands, on standard error if it is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Redraws of a bar per second.
const REDRAWS_PER_S: u8 = 10;

/// Creates a bar of `total` steps with the label `what`. Nothing is drawn if standard error is not
/// a terminal.
pub(crate) fn bar(total: u64, what: &'static str) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_S);
    let style = ProgressStyle::with_template(
        "{prefix} [{bar:30}] {percent:>3} %, {elapsed} elapsed, {eta} left  {msg}",
    )
    .expect("the template is well formed")
    .progress_chars("=> ");
    ProgressBar::with_draw_target(Some(total), target)
        .with_style(style)
        .with_prefix(what)
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
