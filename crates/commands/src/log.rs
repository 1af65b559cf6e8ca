//! Writer of the daemon's log: a thread of its own that writes to standard error.
//!
//! ```text
//!   event loops, control thread --line--> queue, bounded --> writer thread --> standard error
//! ```
//!
//! A reader of standard error may stop reading without closing it, such as a pager or a terminal
//! stopped with Ctrl-S. An event loop that wrote directly would block, and with it every disk of
//! its device. So lines wait in a bounded queue; lines that do not fit are lost and counted.
//!
//! tracing-appender's `NonBlocking` (0.2) has the same design with two flaws: it never writes the
//! number of lost lines, and with a full queue at the end its guard gives up after 100 ms with a
//! `println!` that may block or panic.

mod json;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_report::printable_line;
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

use crate::args::LogFormat;
pub(crate) use json::Json;

/// Maximum number of waiting lines.
const MAX_LINES: usize = 4096;
/// Time that the end of the process waits for remaining lines.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    /// Lines lost since the last written one.
    lost: u64,
    /// True once no further lines are added.
    closed: bool,
    /// True once all lines are written.
    done: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    /// Locks the queue. A panic never leaves it inconsistent, so poisoning is ignored.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let line = one_line(line);
        let mut queue = self.queue();
        if queue.lines.len() < MAX_LINES {
            queue.lines.push_back(line);
            self.changed.notify_all();
        } else {
            queue.lost += 1;
        }
    }

    /// Writes lines until the queue is closed and empty; `format` is theirs.
    fn write(&self, out: &mut impl Write, format: LogFormat) {
        let mut queue = self.queue();
        loop {
            // All at once, so that the lock is not held while standard error blocks.
            let lines = std::mem::take(&mut queue.lines);
            let lost = std::mem::take(&mut queue.lost);
            if lines.is_empty() && lost == 0 {
                if queue.closed {
                    break;
                }
                queue = (self.changed.wait(queue)).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            drop(queue);
            for line in lines {
                // A closed standard error leaves no way to report a failure.
                let _ = out.write_all(&line);
            }
            if lost > 0 {
                let lost =
                    format!("{lost} log lines lost, because standard error was not read in time");
                let _ = match format {
                    LogFormat::Text => writeln!(out, "{lost}"),
                    LogFormat::Json => out.write_all(json::line(Level::WARN, &lost).as_bytes()),
                };
            }
            queue = self.queue();
        }
        queue.done = true;
        self.changed.notify_all();
    }
}

/// Returns a line as it is written: names from clients, files and the control API can neither end
/// it nor give orders to a terminal.
fn one_line(line: &[u8]) -> Vec<u8> {
    match str::from_utf8(line) {
        Ok(text) => printable_line(text).into_owned().into_bytes(),
        // A writer of lines writes text; anything else keeps no control characters either.
        Err(_) => printable_line(&String::from_utf8_lossy(line))
            .into_owned()
            .into(),
    }
}

/// Open log; dropping it writes the remaining lines.
pub(crate) struct Log(Arc<Shared>);

impl Log {
    /// Starts the thread that writes to `out`, lines in `format`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn to(mut out: impl Write + Send + 'static, format: LogFormat) -> io::Result<Log> {
        let shared = Arc::new(Shared::default());
        let writer = shared.clone();
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writer.write(&mut out, format))?;
        Ok(Log(shared))
    }

    /// Returns a writer of lines for the log.
    pub(crate) fn lines(&self) -> Lines {
        Lines(self.0.clone())
    }
}

impl Drop for Log {
    /// Waits for the last lines, at most [`DRAIN_TIMEOUT`].
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.closed = true;
        self.0.changed.notify_all();
        let waited = (self.0.changed).wait_timeout_while(queue, DRAIN_TIMEOUT, |queue| !queue.done);
        drop(waited);
    }
}

/// Writer of log lines that never blocks; each line must be one write.
#[derive(Clone)]
pub(crate) struct Lines(Arc<Shared>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows what was written.
    #[derive(Clone, Default)]
    pub(super) struct Page(Arc<Mutex<Vec<u8>>>);

    impl Page {
        pub(super) fn text(&self) -> String {
            let written = self.0.lock().expect("no test thread has panicked").clone();
            String::from_utf8(written).expect("text")
        }
    }

    impl Write for Page {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0
                .lock()
                .expect("no test thread has panicked")
                .write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_line_is_written_in_order_before_the_log_is_gone() {
        let page = Page::default();
        let log = Log::to(page.clone(), LogFormat::Text).expect("a thread");
        let mut lines = log.lines();
        for i in 0..1000 {
            writeln!(lines, "{i}").expect("never fails");
        }
        drop(log);
        let expected: String = (0..1000).map(|i| format!("{i}\n")).collect();
        assert_eq!(page.text(), expected);
    }

    #[test]
    fn names_in_a_line_cannot_forge_another_or_move_the_cursor() {
        let shared = Shared::default();
        let mut lines = Lines(Arc::new(shared));
        let hostile = "client refused: \u{1b}[2J\n2026 ERROR forged\r\u{9b}A\u{202e}txt\n";
        lines.write_all(hostile.as_bytes()).expect("never fails");
        lines
            .write_all(b"not text: \xff\x1b]0;title\x07\n")
            .expect("never fails");
        lines.0.queue().closed = true;
        let mut out = Vec::new();
        lines.0.write(&mut out, LogFormat::Text);
        let written = String::from_utf8(out).expect("text");
        assert_eq!(written.lines().count(), 2, "{written:?}");
        let moves = |c: char| c.is_control() && c != '\n';
        assert!(!written.contains(moves), "{written:?}");
        assert!(
            written.contains("\\u001b[2J\\n2026 ERROR forged\\u000d"),
            "{written:?}"
        );
    }

    /// Fills a queue by three lines too many, and returns what is written.
    fn overflown(line: &[u8], format: LogFormat) -> String {
        let shared = Shared::default();
        for _ in 0..MAX_LINES + 3 {
            shared.push(line);
        }
        shared.queue().closed = true;
        let mut out = Vec::new();
        shared.write(&mut out, format);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn lines_beyond_the_queue_are_counted_and_said() {
        let written = overflown(b"x\n", LogFormat::Text);
        let lines = written.lines().filter(|line| *line == "x");
        assert_eq!(lines.count(), MAX_LINES);
        let lost = "3 log lines lost, because standard error was not read in time";
        assert!(written.ends_with(&format!("{lost}\n")), "{lost}");

        let written = overflown(b"{}\n", LogFormat::Json);
        let last = written.lines().last().expect("a line");
        let last: serde_json::Value = serde_json::from_str(last).expect("JSON");
        assert_eq!(
            (&last["level"], &last["message"]),
            (&"warn".into(), &lost.into())
        );
    }
}
