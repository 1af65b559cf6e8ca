//! Where the daemon's log goes: to standard error, by a thread of its own.
//!
//! ```text
//!   event loops, control thread --line--> queue, bounded --> writer thread --> standard error
//! ```
//!
//! Whoever reads standard error may stop reading without going away: a pager, a terminal held with
//! Ctrl-S. An event loop that wrote to it itself would stand still until they go on, and with it
//! every disk on its device. So lines wait here, and where too many do, some are lost and counted.
//!
//! tracing-appender's `NonBlocking` (0.2) has the same queue and thread, but serves a reader that
//! stopped worse: lost lines are counted and never written, so that the log has gaps that it does
//! not show; and where the queue is full at the end, its guard gives up after 100 ms, without the
//! last lines, by a `println!` that blocks, or panics, where standard output is the same pipe.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait at most.
const MOST_LINES: usize = 4096;
/// How long the end waits for what is still to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    /// Lines there was no room for since the last that was written.
    lost: u64,
    /// No more come.
    closed: bool,
    /// All that came are written.
    done: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    /// A thread that panicked in between left the queue whole.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut queue = self.queue();
        if queue.lines.len() < MOST_LINES {
            queue.lines.push_back(line.to_vec());
            self.changed.notify_all();
        } else {
            queue.lost += 1;
        }
    }

    /// Writes what comes until no more does.
    fn write(&self, out: &mut impl Write) {
        let mut queue = self.queue();
        loop {
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
                // Where nobody listens any more there is nothing left to do.
                let _ = out.write_all(&line);
            }
            if lost > 0 {
                let _ = writeln!(
                    out,
                    "{lost} lines of the log were lost: it was not read in time"
                );
            }
            queue = self.queue();
        }
        queue.done = true;
        self.changed.notify_all();
    }
}

/// The log, open until this is dropped.
pub(crate) struct Log(Arc<Shared>);

impl Log {
    /// Starts writing to `out`.
    ///
    /// # Errors
    /// When there can be no thread for it.
    pub(crate) fn to(mut out: impl Write + Send + 'static) -> io::Result<Log> {
        let shared = Arc::new(Shared::default());
        let writer = shared.clone();
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writer.write(&mut out))?;
        Ok(Log(shared))
    }

    /// What takes its lines.
    pub(crate) fn lines(&self) -> Lines {
        Lines(self.0.clone())
    }
}

impl Drop for Log {
    /// Waits for the last lines, not forever.
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.closed = true;
        self.0.changed.notify_all();
        let waited = (self.0.changed).wait_timeout_while(queue, LAST_WORDS, |queue| !queue.done);
        drop(waited);
    }
}

/// Takes lines of the log, each in one write, and never waits.
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
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panicked").write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_line_is_written_in_order_before_the_log_is_gone() {
        let page = Page::default();
        let log = Log::to(page.clone()).expect("a thread");
        let mut lines = log.lines();
        for i in 0..1000 {
            writeln!(lines, "{i}").expect("never fails");
        }
        drop(log);
        let said = page.0.lock().expect("nobody panicked").clone();
        let expected: String = (0..1000).map(|i| format!("{i}\n")).collect();
        assert_eq!(String::from_utf8(said).expect("text"), expected);
    }

    #[test]
    fn lines_beyond_the_queue_are_counted_and_said() {
        let shared = Shared::default();
        for _ in 0..MOST_LINES + 3 {
            shared.push(b"x\n");
        }
        shared.queue().closed = true;
        let mut out = Vec::new();
        shared.write(&mut out);
        let said = String::from_utf8(out).expect("text");
        assert_eq!(said.lines().filter(|line| *line == "x").count(), MOST_LINES);
        assert!(said.ends_with("3 lines of the log were lost: it was not read in time\n"));
    }
}
