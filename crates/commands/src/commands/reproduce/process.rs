//! Child process that ends with its value.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};

use crate::problem::Problem;

/// Time for an orderly end, after which a process is killed.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which the end of a process is polled.
const POLL: Duration = Duration::from_millis(5);
/// Lines of a log that an error has.
const LOG_LINES: usize = 5;

/// Running child process, which gets SIGTERM and then SIGKILL when it is dropped.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program in a folder. Its output goes to `NAME.log` there.
    ///
    /// # Errors
    /// If the program cannot be started. `ErrorKind::NotFound`: there is no such program.
    pub(super) fn start<A: AsRef<OsStr>>(
        folder: &Path,
        name: &str,
        program: &Path,
        arguments: &[A],
    ) -> io::Result<Process> {
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log)?;
        let child = Command::new(program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // A terminal's Ctrl-C reaches the command alone, which ends its children in order.
            .process_group(0)
            .spawn()?;
        Ok(Process {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// Process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Checks that the process runs.
    ///
    /// # Errors
    /// If it has ended; the error has the end of its log.
    pub(super) fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(());
        };
        let what = format!("{} has ended: {status}", self.name);
        Err(Problem::new(what).help(self.last_lines()).into())
    }

    /// Returns the last lines of its log.
    fn last_lines(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        match lines.len() {
            0 => "its log is empty".to_owned(),
            n => lines[n.saturating_sub(LOG_LINES)..].join("\n        "),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Not reaped, so the id is still this child's. Ids of processes fit.
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(POLL);
        }
    }
}

/// Returns the error of a program that could not be started.
pub(super) fn not_started(program: &str, error: &io::Error, help: &str) -> Problem {
    match error.kind() {
        ErrorKind::NotFound => Problem::new(format!("no {program} in PATH")).help(help),
        _ => Problem::new(format!("{program} cannot be started: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(folder: &Path, script: &str) -> Process {
        Process::start(folder, "test", Path::new("/bin/sh"), &["-c", script]).expect("a shell")
    }

    fn is_running(id: u32) -> bool {
        Path::new(&format!("/proc/{id}")).exists()
    }

    #[test]
    fn a_process_ends_with_its_value() {
        let folder = tempfile::tempdir().expect("a directory");
        let mut process = start(folder.path(), "exec sleep 600");
        process.check().expect("it runs");
        let id = process.id();
        assert!(is_running(id));
        drop(process);
        assert!(!is_running(id));
    }

    #[test]
    fn the_error_of_one_that_has_ended_has_its_last_words() {
        let folder = tempfile::tempdir().expect("a directory");
        let mut process = start(folder.path(), "echo no such disk >&2; exit 3");
        let error = loop {
            match process.check() {
                Ok(()) => thread::sleep(POLL),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("test has ended: exit status: 3"), "{error}");
        assert!(error.contains("no such disk"), "{error}");
    }

    #[test]
    fn a_missing_program_comes_with_the_way_to_have_it() {
        let folder = tempfile::tempdir().expect("a directory");
        let missing = Path::new("tidegate-is-no-such-program");
        let error = Process::start::<&str>(folder.path(), "test", missing, &[]);
        let problem = not_started("it", &error.expect_err("missing"), "install it");
        let message = problem.to_string();
        assert_eq!(message, "error: no it in PATH\n  help: install it");
    }
}
