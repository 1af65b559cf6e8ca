//! How far a long command has come, on standard error where somebody looks.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Looking more often shows nothing more.
const LOOKS_PER_S: u8 = 10;

/// A bar over `total` of whatever; `what` says what is done. Nothing is drawn where standard
/// error is not a terminal.
pub(crate) fn bar(total: u64, what: &'static str) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(LOOKS_PER_S);
    let style = ProgressStyle::with_template(
        "{prefix} [{bar:30}] {percent:>3} %, {elapsed} gone, {eta} left  {msg}",
    )
    .expect("the template is well formed")
    .progress_chars("=> ");
    ProgressBar::with_draw_target(Some(total), target)
        .with_style(style)
        .with_prefix(what)
}

/// The same, which appears only once the command has taken two seconds: most are done by then.
pub(crate) struct Patient {
    bar: Option<ProgressBar>,
    total: u64,
    what: &'static str,
    began: std::time::Instant,
}

impl Patient {
    pub(crate) fn new(total: u64, what: &'static str) -> Patient {
        Patient {
            bar: None,
            total,
            what,
            began: std::time::Instant::now(),
        }
    }

    /// There is so much to do, which is known only now.
    pub(crate) fn of(&mut self, total: u64) {
        self.total = total;
    }

    /// It has come so far; `message` says more.
    pub(crate) fn at(&mut self, done: u64, message: impl FnOnce() -> String) {
        if self.bar.is_none() && self.began.elapsed() >= Duration::from_secs(2) {
            self.bar = Some(bar(self.total, self.what).with_elapsed(self.began.elapsed()));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(message());
        }
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
