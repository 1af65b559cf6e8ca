//! Other people's programs.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{env, io, thread};

use serde_json::Value;

use crate::daemon::{Scratch, kill, wait_for};

/// Returns true if all programs are installed. A test that needs them returns early otherwise.
pub(crate) fn have(programs: &[&str]) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let missing = programs.iter().find(|program| {
        !env::split_paths(&path).any(|directory| directory.join(program).is_file())
    });
    missing.is_none_or(|missing| lacking(missing))
}

/// Says that the test is skipped, for what it needs is missing; false, as [`have`] then says.
pub(crate) fn lacking(missing: &str) -> bool {
    assert!(
        env::var_os("CI").as_deref() != Some(OsStr::new("true")),
        "needs {missing}, and nothing is skipped in CI: make setup"
    );
    skipped(&format!("needs {missing}"));
    false
}

/// Says that the test is skipped for what this machine cannot do, in CI or not.
pub(crate) fn skipped(why: &str) {
    // Past the test runner, which shows nothing of what a passing test prints.
    let test = thread::current().name().unwrap_or("?").to_owned();
    // In one write, or the lines of tests that run at the same time get mixed.
    let line = format!("skipped: {why} ({test})\n");
    let _ = io::stderr().write_all(line.as_bytes());
}

/// A program that runs; killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    line: String,
    out: PathBuf,
    err: PathBuf,
}

/// Result of a program.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Running {
    /// Starts a program in the test's directory.
    pub(crate) fn start(scratch: &Scratch, program: &str, args: &[&str]) -> Running {
        Running::start_with(scratch, program, args, Stdio::null())
    }

    pub(crate) fn start_with(
        scratch: &Scratch,
        program: &str,
        args: &[&str],
        input: Stdio,
    ) -> Running {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (
            scratch.join(&format!("{n}.out")),
            scratch.join(&format!("{n}.err")),
        );
        let create = |path: &Path| File::create(path).expect("the directory is ours");
        let child = Command::new(program)
            .args(args)
            .current_dir(scratch.path())
            .stdin(input)
            .stdout(create(&out))
            .stderr(create(&err))
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
        let line = format!("{program} {}", args.join(" "));
        Running {
            child,
            line,
            out,
            err,
        }
    }

    /// Returns the standard output so far.
    pub(crate) fn out(&self) -> String {
        read(&self.out)
    }

    /// Returns the standard error so far.
    pub(crate) fn err(&self) -> String {
        read(&self.err)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Kills the program with SIGKILL.
    pub(crate) fn kill(&mut self) {
        kill(&mut self.child, &self.line);
    }

    pub(crate) fn wait(mut self) -> Finished {
        let mut status = None;
        wait_for(&self.line, || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        Finished {
            status: status.expect("waited for"),
            out: read(&self.out),
            err: read(&self.err),
        }
    }

    /// Waits; what it printed if it succeeded, a panic if not.
    pub(crate) fn succeed(self) -> String {
        let line = self.line.clone();
        let done = self.wait();
        assert!(
            done.status.success(),
            "{line}\n{}\n{}{}",
            done.status,
            done.out,
            done.err
        );
        done.out
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        kill(&mut self.child, &self.line);
    }
}

fn read(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs a program that must succeed; what it printed.
pub(crate) fn run(scratch: &Scratch, program: &str, args: &[&str]) -> String {
    Running::start(scratch, program, args).succeed()
}

/// Runs a program that must succeed and print JSON.
pub(crate) fn run_json(scratch: &Scratch, program: &str, args: &[&str]) -> Value {
    json(&run(scratch, program, args))
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// A path as an argument.
pub(crate) fn arg(path: &Path) -> &str {
    path.to_str().expect("our directories have plain names")
}

/// Runs `qemu-io` commands on an export. They must all succeed, their patterns included.
pub(crate) fn qemu_io(scratch: &Scratch, uri: &str, commands: &[&str]) -> String {
    let mut args = vec!["-f", "raw"];
    for command in commands {
        args.extend(["-c", command]);
    }
    args.push(uri);
    let out = run(scratch, "qemu-io", &args);
    // Its exit status does not tell of every failure.
    let failed = |line: &&str| {
        let line = line.to_lowercase();
        ["fail", "error", "invalid", "non-numeric", "not found"]
            .iter()
            .any(|word| line.contains(word))
    };
    if let Some(line) = out.lines().find(failed) {
        panic!("qemu-io: {line}\nof {out}");
    }
    out
}

/// Runs one `qemu-io` command on an export; returns its output, also where it fails.
pub(crate) fn run_qemu_io(scratch: &Scratch, uri: &str, command: &str) -> String {
    let done = Running::start(scratch, "qemu-io", &["-f", "raw", "-c", command, uri]).wait();
    done.out + &done.err
}

/// fio on an export. The job runs as a thread of its process, so that this is all there is to kill.
pub(crate) fn fio(scratch: &Scratch, uri: &str, args: &[&str]) -> Running {
    let uri = format!("--uri={uri}");
    let mut all = vec![
        "--name=e2e",
        "--ioengine=nbd",
        &uri,
        "--thread=1",
        "--group_reporting=1",
        "--output-format=json",
        "--verify_state_save=0",
    ];
    all.extend(args);
    Running::start(scratch, "fio", &all)
}

/// Parses the result of fio, after checking that it did I/O without errors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FioResult {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    /// Time from the first read to the last one.
    pub(crate) read_time: Duration,
}

/// Waits for fio, which must have succeeded.
pub(crate) fn fio_result(fio: Running) -> FioResult {
    let out = fio.succeed();
    // Lines such as "connected to NBD server" come first.
    let start = out.find('{').expect("fio prints JSON");
    let report = json(&out[start..]);
    let job = &report["jobs"][0];
    assert_eq!(job["error"], 0, "{out}");
    let number = |what: &str, name: &str| job[what][name].as_u64().expect("fio counts");
    let result = FioResult {
        reads: number("read", "total_ios"),
        writes: number("write", "total_ios"),
        bytes_read: number("read", "io_bytes"),
        bytes_written: number("write", "io_bytes"),
        read_time: Duration::from_millis(number("read", "runtime")),
    };
    assert!(result.reads + result.writes > 0, "fio did nothing: {out}");
    result
}
