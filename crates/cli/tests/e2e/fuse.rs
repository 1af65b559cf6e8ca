//! A file of a FUSE file system whose server can be stopped: whoever asks for anything there waits for ever.

use std::path::PathBuf;

use crate::daemon::{Scratch, wait_for};
use crate::tool::{Running, arg, have, run, skipped};

/// A disk image behind nbdkit and nbdfuse. It goes when this is dropped.
pub(crate) struct Fuse {
    scratch: Scratch,
    medium: Running,
    fuse: Running,
}

impl Fuse {
    /// `None`: this machine has none, which was said.
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
        std::fs::create_dir(scratch.join("shown")).expect("the directory is ours");
        let socket = scratch.join("medium.sock");
        let args = ["--foreground", "--unix", arg(&socket), "memory", "16M"];
        let medium = Running::start(&scratch, "nbdkit", &args);
        wait_for("nbdkit", || socket.exists());
        let shown = format!("{}/", scratch.join("shown").display());
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let fuse = Running::start(&scratch, "nbdfuse", &[&shown, &uri]);
        wait_for("nbdfuse", || scratch.join("shown/nbd").exists());
        Some(Fuse {
            scratch,
            medium,
            fuse,
        })
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.scratch.join("shown/nbd")
    }

    /// From now on nothing asked of the file is answered.
    pub(crate) fn hang(&self) {
        self.signal("STOP");
    }

    /// Answers what was asked, after all.
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
        // What still waits for it fails, and whoever waited ends.
        self.fuse.kill();
        self.medium.kill();
        let shown = self.scratch.join("shown");
        let args = ["-u", "-z", arg(&shown)];
        Running::start(&self.scratch, "fusermount3", &args).wait();
    }
}
