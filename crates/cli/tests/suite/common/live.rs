//! Daemon with guests that send requests to it over NBD while a test asks it.

use std::path::Path;
use std::process::{Child, Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::nbd::Disk;
use super::{drain_stderr, serve, stderr, stdout, tidegate};

/// Daemon of the configuration `t.toml` in a directory, with the sockets `control.sock` and
/// `nbd.sock` there.
pub(crate) struct Daemon<'a> {
    child: Child,
    pub(crate) dir: &'a Path,
}

impl Daemon<'_> {
    pub(crate) fn start(dir: &Path) -> Daemon<'_> {
        let (child, log) = serve(&dir.join("t.toml"));
        drain_stderr(log);
        Daemon { child, dir }
    }

    /// Ends the daemon in order: it writes the last points of its history.
    pub(crate) fn stop(mut self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(sent.expect("kill runs").success());
        assert!(self.child.wait().expect("a child").success());
    }

    /// Runs a command against the daemon.
    pub(crate) fn ask(&self, args: &[&str]) -> Output {
        let socket = self.dir.join("control.sock");
        tidegate(&[&["--socket", socket.to_str().expect("plain")], args].concat())
    }

    /// Runs a command that succeeds, and returns what it prints.
    pub(crate) fn text(&self, args: &[&str]) -> String {
        let output = self.ask(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stdout(&output)
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let text = self.text(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&text).expect("JSON")
    }

    /// Intervals of a VM's history.
    pub(crate) fn windows(&self, vm: &str) -> usize {
        let history = self.json(&["history", vm, "--step", "10s"]);
        history["intervals"].as_array().expect("a list").len()
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Guests that send requests until they are told to stop.
#[derive(Default)]
pub(crate) struct Guests {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Guests {
    /// Begins a guest with one request after the other; `request` sends its request of this
    /// number, until it fails.
    pub(crate) fn begin(
        &mut self,
        dir: &Path,
        vm: &'static str,
        request: impl Fn(&mut Disk, u64) -> std::io::Result<()> + Send + 'static,
    ) {
        let (socket, stop) = (dir.join("nbd.sock"), self.stop.clone());
        self.threads.push(thread::spawn(move || {
            let mut disk = Disk::open(&socket, vm);
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) && request(&mut disk, number).is_ok() {
                number += 1;
            }
        }));
    }

    /// Begins a guest that writes 4 KiB by the clock, whether or not earlier writes are done.
    pub(crate) fn begin_by_the_clock(&mut self, dir: &Path, vm: &'static str, every: Duration) {
        let (socket, stop) = (dir.join("nbd.sock"), self.stop.clone());
        self.threads.push(thread::spawn(move || {
            let mut disk = Disk::open(&socket, vm);
            let answers = disk.discard_answers();
            let (begun, mut number) = (Instant::now(), 0);
            while !stop.load(Ordering::Relaxed) {
                let at = begun + every * number;
                thread::sleep(at.saturating_duration_since(Instant::now()));
                let offset = u64::from(number) % 4096 * 4096;
                if disk.send_write(offset, 4096).is_err() {
                    break;
                }
                number += 1;
            }
            drop(disk);
            answers.join().expect("no reader panics");
        }));
    }

    pub(crate) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no guest panics");
        }
    }
}

/// Waits until something holds, for at most two minutes.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(
            begun.elapsed() < Duration::from_secs(120),
            "{what}: not in two minutes"
        );
        thread::sleep(Duration::from_millis(200));
    }
}

/// Place of a random read of 4 KiB in a disk of `size` bytes.
pub(crate) fn scattered(number: u64, size: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (size / 4096) * 4096
}
