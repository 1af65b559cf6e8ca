//! Calculations: what-if runs and reports that the daemon has a process of its own make.
//!
//! ```text
//!   daemon                              child: the same program, idle priority, bounded
//!   Calculation::begin --spawn------->  bound_process
//!                      --stdin: Order as a line, then bytes-->
//!   watch <------------- stdout: Line after Line ---  progress, at last Done or Problem
//!   Calculation::end ----SIGKILL----->
//! ```
//!
//! A process instead of a thread: its memory has a bound of its own, the system takes it before the
//! daemon when memory runs out, a panic or an abort ends it alone, and it can be ended at any time
//! (`docs/adr/0016-calculations-in-a-process.md`).
//! Nothing of it is on the path of an I/O. The daemon starts the program that it is, so that both
//! speak the same protocol whatever has been installed since.

mod lines;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_api::error::Problem;
use tidegate_api::what_if::WhatIfBounds;
use tokio::sync::oneshot;

use crate::ring::sys;

/// Bounds of a calculation. Its address space holds the program, some 100 bytes for each request of
/// the largest recording, and as much again for its results.
pub const BOUNDS: WhatIfBounds = WhatIfBounds {
    cpu_s: 300,
    time_s: 600,
    memory_bytes: 1 << 30,
    recording_bytes: 32 << 20,
};

/// Work of a calculation: the first line on its standard input, in JSON.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Replay of the recording that follows on standard input.
    WhatIf(WhatIfOrder),
    /// Report of the daemon's history.
    Report(ReportOrder),
}

/// Replays of a recording.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WhatIfOrder {
    /// Name of the recording for people.
    pub name: String,
    /// Names of the policies to try.
    pub policies: Vec<String>,
    /// Changes of objectives by VM, as the control API takes them.
    pub objectives: BTreeMap<String, Value>,
    /// Model of the catalogue; `None`: the recording's.
    pub model: Option<String>,
    /// True to replay a recording with gaps.
    pub allow_gaps: bool,
}

/// Report of a span of the history.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReportOrder {
    /// Control socket of the daemon.
    pub socket: PathBuf,
    /// Begin of the span, as in a query of the history.
    pub from: String,
    /// End of the span.
    pub to: String,
}

/// Line that a calculation writes to standard output, in JSON.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Part that is done, 0 to 1, and the present step in words.
    Progress(f64, String),
    /// Results, which end the calculation.
    Done(Results),
    /// Reason why there are no results.
    Problem(Problem),
}

/// Results of a calculation.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Answer in JSON; null for a report.
    pub answer: Value,
    /// Page for a browser.
    pub page: String,
}

/// Program that makes calculations, with its arguments.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Names the running program, also where its file has been replaced since.
    pub fn this(arguments: &[&str]) -> Program {
        Program::new("/proc/self/exe", arguments)
    }

    /// Names a program.
    pub fn new(path: impl Into<PathBuf>, arguments: &[&str]) -> Program {
        Program {
            path: path.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
        }
    }
}

/// Bounds and lowers the calling process, which a daemon has started for a calculation: idle CPU
/// and disk priority, first to go when memory runs out, and the limits of [`BOUNDS`].
///
/// # Errors
/// If the system refuses a limit.
pub fn bound_process() -> io::Result<()> {
    sys::lower_process();
    // A container may have no /proc that can be written; the limit of memory holds all the same.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    sys::limit_process(BOUNDS.memory_bytes, BOUNDS.cpu_s, BOUNDS.time_s)
}

/// Running calculation; dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Calculation(Arc<Mutex<Child>>);

/// Parts of a calculation that has begun.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) calculation: Calculation,
    /// Standard input behind the order; the process waits for its end.
    pub(crate) input: ChildStdin,
    pub(crate) results: oneshot::Receiver<Result<Results, Problem>>,
}

impl Calculation {
    /// Starts the process and passes it its order. `progress` is called with each report of
    /// progress, on the thread that reads them.
    ///
    /// The process is made without a copy of the daemon's page tables, which `fork` would make:
    /// every page that an event loop then wrote would be a fault. So nothing may be set between
    /// fork and exec; the process bounds itself.
    ///
    /// # Errors
    /// If there is no process or thread.
    pub(crate) fn begin(
        program: &Program,
        order: &Order,
        progress: impl Fn(f64, String) + Send + 'static,
    ) -> io::Result<Begun> {
        let (output, writer) = io::pipe()?;
        let mut command = Command::new(&program.path);
        command
            .args(&program.arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(writer.try_clone()?)
            // Between the lines: what it says last is the reason of a failure.
            .stderr(writer);
        // The time zone of reports, and backtraces.
        for name in ["TZ", "RUST_BACKTRACE"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let mut child = command.spawn()?;
        // The command holds the ends of the pipe that the child has.
        drop(command);
        let mut input = child.stdin.take().expect("it is a pipe");
        let calculation = Calculation(Arc::new(Mutex::new(child)));
        let (sender, results) = oneshot::channel();
        let watched = calculation.0.clone();
        let watch = move || {
            let read = lines::read(BufReader::new(output), progress);
            let mut child = watched.lock().unwrap_or_else(PoisonError::into_inner);
            if read.is_over_long() {
                let _ = child.kill();
            }
            let result = match child.wait() {
                Ok(status) => read.result(status),
                Err(error) => Err(problem(format!("cannot be waited for: {error}"))),
            };
            // A client that has left does not wait for it.
            let _ = sender.send(result);
        };
        let thread = std::thread::Builder::new().name("calculation".to_owned());
        thread.spawn(watch)?;
        let mut line = serde_json::to_vec(order).expect("plain data");
        line.push(b'\n');
        // A process that has ended at once says why on its output.
        let _ = input.write_all(&line);
        Ok(Begun {
            calculation,
            input,
            results,
        })
    }

    /// Ends the process, if it has not ended by itself.
    pub(crate) fn end(&self) {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Refused only for a process that has ended.
        let _ = child.kill();
    }
}

impl Drop for Calculation {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes the problem of a calculation that is not the client's fault.
pub(crate) fn problem(what: String) -> Problem {
    Problem {
        what,
        at: "calculation".to_owned(),
        allowed: None,
    }
}

/// Returns the reason why a process ended without results; `last` is what it said last.
fn reason(status: ExitStatus, last: &str) -> Problem {
    let (what, allowed) = match status.signal() {
        Some(libc::SIGXCPU) => (
            format!("it took more than {} s of CPU time", BOUNDS.cpu_s),
            Some("a shorter span, or fewer policies"),
        ),
        Some(libc::SIGALRM) => (
            format!("it took longer than {} s", BOUNDS.time_s),
            Some("a shorter span, or fewer policies"),
        ),
        Some(libc::SIGABRT) if last.starts_with("memory allocation") => (
            format!("it needed more than {} MiB", BOUNDS.memory_bytes >> 20),
            Some("a shorter span"),
        ),
        Some(libc::SIGKILL) => (
            "the system ended it, most likely for want of memory".to_owned(),
            Some("a shorter span"),
        ),
        _ if last.is_empty() => (format!("it ended without results: {status}"), None),
        _ => (format!("it ended without results: {status}: {last}"), None),
    };
    Problem {
        allowed: allowed.map(str::to_owned),
        ..problem(what)
    }
}
