//! A file on a FUSE file system that can be suspended: every system call on it then blocks.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::daemon::{Scratch, wait_for};
use crate::tool::{Running, arg, have, run, skipped};

/// Disk image behind nbdkit and nbdfuse; unmounted on drop.
pub(crate) struct Fuse {
    scratch: Scratch,
    medium: Running,
    fuse: Running,
    /// Control files of fusectl in the scratch directory, where the system has none mounted.
    own_control: Option<PathBuf>,
    /// File with the number of requests that wait for, or are with, the FUSE process.
    waiting: PathBuf,
}

/// Mounts an NBD export as the file `shown/nbd` in a directory.
pub(crate) fn mounted(scratch: &Scratch, socket: &Path) -> Running {
    std::fs::create_dir(scratch.join("shown")).expect("the directory is ours");
    let shown = format!("{}/", scratch.join("shown").display());
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let fuse = Running::start(scratch, "nbdfuse", &[&shown, &uri]);
    wait_for("nbdfuse", || scratch.join("shown/nbd").exists());
    fuse
}

impl Fuse {
    /// Mounts the file system; returns `None`, and prints the reason, where the tools are missing.
    pub(crate) fn start() -> Option<Fuse> {
        if !have(&["nbdkit", "nbdfuse", "fusermount3"]) {
            return None;
        }
        let mut both = std::fs::OpenOptions::new();
        if let Err(error) = both.read(true).write(true).open("/dev/fuse") {
            skipped(&format!("/dev/fuse cannot be opened: {error}"));
            return None;
        }
        let scratch = Scratch::new();
        let socket = scratch.join("medium.sock");
        let args = ["--foreground", "--unix", arg(&socket), "memory", "16M"];
        let medium = Running::start(&scratch, "nbdkit", &args);
        wait_for("nbdkit", || socket.exists());
        let fuse = mounted(&scratch, &socket);
        let shown = scratch.join("shown").metadata().expect("it is mounted");
        let connection = rustix::fs::minor(shown.dev()).to_string();
        let mut control = PathBuf::from("/sys/fs/fuse/connections");
        let mut own_control = None;
        if !control.join(&connection).exists() {
            control = scratch.join("control");
            std::fs::create_dir(&control).expect("the directory is ours");
            let args = ["-t", "fusectl", "fusectl", arg(&control)];
            let mount = Running::start(&scratch, "mount", &args).wait();
            if !mount.status.success() {
                skipped(&format!("fusectl cannot be mounted: {}", mount.err));
                return None;
            }
            own_control = Some(control.clone());
        }
        Some(Fuse {
            scratch,
            medium,
            fuse,
            own_control,
            waiting: control.join(connection).join("waiting"),
        })
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.scratch.join("shown/nbd")
    }

    /// Suspends the FUSE process: system calls on the file block from now on. The process has
    /// no request then: one that it had read would block its caller for good, because the kernel
    /// ends a wait by SIGKILL only while the server has not read the request.
    pub(crate) fn hang(&self) {
        wait_for("nbdfuse to stop without a request", || {
            self.signal("STOP");
            // The signal is sent before all threads have stopped.
            wait_for("nbdfuse to stop", || self.all_threads_stopped());
            let waiting = std::fs::read_to_string(&self.waiting).expect("it is mounted");
            let idle = waiting.trim() == "0";
            if !idle {
                self.go_on();
            }
            idle
        });
    }

    fn all_threads_stopped(&self) -> bool {
        let tasks = format!("/proc/{}/task", self.fuse.pid());
        let mut tasks = std::fs::read_dir(tasks).expect("it runs");
        tasks.all(|task| {
            let stat = task.map(|task| task.path().join("stat"));
            let stat = stat.and_then(std::fs::read_to_string).unwrap_or_default();
            // The state follows the name, which is in brackets.
            let state = stat.rsplit(')').next().unwrap_or_default();
            state.trim_start().starts_with('T')
        })
    }

    /// Resumes the FUSE process: system calls that were blocked complete.
    pub(crate) fn go_on(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let line = format!("kill -{name} {}", self.fuse.pid());
        run(&self.scratch, "sh", &["-c", &line]);
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        // Killing the FUSE process fails the calls that still wait for it, so that their threads
        // can end.
        self.fuse.kill();
        self.medium.kill();
        let shown = self.scratch.join("shown");
        let args = ["-u", "-z", arg(&shown)];
        Running::start(&self.scratch, "fusermount3", &args).wait();
        if let Some(control) = &self.own_control {
            let args = ["--lazy", arg(control)];
            Running::start(&self.scratch, "umount", &args).wait();
        }
    }
}
