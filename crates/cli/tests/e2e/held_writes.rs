//! A daemon that is killed while the medium holds one of its requests: the next one does the
//! guest's requests again only once that has ended. An old write could otherwise come after a newer
//! one, and an old read into memory that the guest uses for something else.

use std::fs;
use std::path::PathBuf;

use crate::daemon::{Daemon, Scratch, wait_for};
use crate::fuse::mounted;
use crate::power::vhost_driver::vhost_guest::{ALL, Guest, IN, OUT};
use crate::tool::{Running, arg, have, run, skipped};

/// nbdkit's script: a file, of which the first request that finds `hold` waits for `release`.
const SCRIPT: &str = r#"
cd "$DIRECTORY"
if { [ "$1" = pread ] || [ "$1" = pwrite ]; } && mv hold held 2>/dev/null; then
    until [ -e release ]; do sleep 0.01; done
fi
case "$1" in
    thread_model) echo parallel ;;
    get_size) stat -c %s medium ;;
    can_write | can_flush) ;;
    pread) dd if=medium skip="$4" count="$3" iflag=skip_bytes,count_bytes status=none ;;
    pwrite) dd of=medium seek="$4" oflag=seek_bytes conv=notrunc status=none ;;
    flush) ;;
    *) exit 2 ;;
esac
"#;
const BYTES: u64 = 4 << 20;

/// Medium behind nbdkit and nbdfuse whose writes can be held.
struct SlowMedium {
    scratch: Scratch,
    server: Running,
    fuse: Running,
    /// Loop device on the file, if there is one.
    device: Option<String>,
}

impl SlowMedium {
    /// `None` where the machine, or who runs the test, may have no such medium.
    fn new(as_device: bool) -> Option<SlowMedium> {
        if !have(&["nbdkit", "nbdfuse", "fusermount3", "losetup"]) {
            return None;
        }
        let mut both = fs::OpenOptions::new();
        if let Err(error) = both.read(true).write(true).open("/dev/fuse") {
            skipped(&format!("/dev/fuse cannot be opened: {error}"));
            return None;
        }
        let scratch = Scratch::new();
        let file = fs::File::create(scratch.join("medium")).expect("the directory is ours");
        file.set_len(BYTES).expect("room");
        let script = format!("DIRECTORY='{}'\n{SCRIPT}", scratch.path().display());
        fs::write(scratch.join("script"), script).expect("the directory is ours");
        run(&scratch, "chmod", &["+x", "script"]);
        let socket = scratch.join("medium.sock");
        let script = scratch.join("script");
        let args = ["--foreground", "--unix", arg(&socket), "sh", arg(&script)];
        let server = Running::start(&scratch, "nbdkit", &args);
        wait_for("nbdkit", || socket.exists());
        let fuse = mounted(&scratch, &socket);
        let mut medium = SlowMedium {
            scratch,
            server,
            fuse,
            device: None,
        };
        if as_device {
            let file = medium.file();
            let args = ["--find", "--show", arg(&file)];
            let done = Running::start(&medium.scratch, "losetup", &args).wait();
            if !done.status.success() {
                skipped(&format!("no loop device to be had: {}", done.err.trim()));
                return None;
            }
            medium.device = Some(done.out.trim().to_owned());
        }
        Some(medium)
    }

    fn file(&self) -> PathBuf {
        self.scratch.join("shown/nbd")
    }

    /// Path of the disk.
    fn path(&self) -> PathBuf {
        self.device.as_ref().map_or(self.file(), PathBuf::from)
    }

    /// Has the next request held.
    fn hold(&self) {
        fs::write(self.scratch.join("hold"), "").expect("the directory is ours");
    }

    fn wait_until_it_holds(&self) {
        let held = self.scratch.join("held");
        wait_for("the request to be held", || held.exists());
    }

    /// Serves the medium as a disk. `more`: further fields of the disk.
    fn serve(&self, more: &str) -> Daemon {
        Daemon::start(&format!(
            "[[listen]]\nvhost_user = \"{{vm}}.vhost\"\n\
             [[device]]\nname = \"disk\"\nkind = \"file\"\n\
             [[vm]]\nname = \"a\"\n[[vm.disk]]\npath = \"{}\"\nformat = \"raw\"\n{more}",
            self.path().display()
        ))
    }

    fn release(&self) {
        fs::write(self.scratch.join("release"), "").expect("the directory is ours");
    }
}

impl Drop for SlowMedium {
    fn drop(&mut self) {
        self.release();
        if let Some(device) = &self.device {
            Running::start(&self.scratch, "losetup", &["--detach", device]).wait();
        }
        self.fuse.kill();
        self.server.kill();
        let shown = self.scratch.join("shown");
        let args = ["-u", "-z", arg(&shown)];
        Running::start(&self.scratch, "fusermount3", &args).wait();
    }
}

fn a_newer_write_is_not_overtaken(as_device: bool) {
    let Some(medium) = SlowMedium::new(as_device) else {
        return;
    };
    let daemon = medium.serve("");
    let socket = daemon.path("a.vhost");
    let mut guest = Guest::start_recorded(&socket, ALL, 1);
    guest.write(0, &[1; 4096]);
    medium.hold();
    guest.submit(0, OUT, 0, &[2; 4096]);
    guest.kick(0, 1);
    wait_for("the write to be held", || {
        medium.scratch.join("held").exists()
    });
    let daemon = daemon.crash_while(|next| {
        // The next daemon has found out that it must wait, and serves no client.
        assert_eq!(
            next.log().matches("listening on").count(),
            2,
            "the first alone"
        );
        assert!(guest.take_answers(0).is_empty(), "no answer yet");
        medium.release();
    });
    goes_on(&medium, daemon, guest);
}

/// Has a guest, whose write was held, go on with the next daemon.
fn goes_on(medium: &SlowMedium, daemon: Daemon, mut guest: Guest) {
    guest.reconnect(&daemon.path("a.vhost"));
    let answers = guest.answers(0);
    assert_eq!((answers.len(), answers[0].status), (1, 0), "the old write");
    guest.write(0, &[3; 4096]);
    assert_eq!(guest.read(0, 4096), [3; 4096]);
    guest.leave();
    daemon.stop();
    let bytes = fs::read(medium.scratch.join("medium")).expect("the directory is ours");
    assert_eq!(bytes[..4096], [3; 4096]);
}

#[test]
fn a_newer_write_is_not_overtaken_on_a_file() {
    a_newer_write_is_not_overtaken(false);
}

#[test]
fn a_newer_write_is_not_overtaken_on_a_block_device() {
    a_newer_write_is_not_overtaken(true);
}

/// Next daemon that has the open file, and its lock with it, so that another sign has to say when
/// the last write of the killed one has ended.
#[test]
fn a_newer_write_is_not_overtaken_where_the_next_daemon_was_about_to_take_over() {
    let Some(medium) = SlowMedium::new(true) else {
        return;
    };
    let mut daemon = medium.serve("");
    let socket = daemon.path("a.vhost");
    let mut guest = Guest::start_recorded(&socket, ALL, 1);
    guest.write(0, &[1; 4096]);
    medium.hold();
    guest.submit(0, OUT, 0, &[2; 4096]);
    guest.kick(0, 1);
    medium.wait_until_it_holds();
    let next = daemon.spawn_next();
    // The next one has begun, and asks for a pause, in which the write does not end.
    wait_for("the next daemon to prepare", || {
        daemon.log().matches("control API at").count() == 2
    });
    daemon.signal("KILL");
    daemon.wait();
    daemon.replace(next);
    wait_for("the next daemon to wait", || {
        daemon.logged(&["I/O of the daemon that has ended is still with the kernel"])
    });
    assert_eq!(daemon.log().matches("INFO serving").count(), 1, "the first");
    assert!(guest.take_answers(0).is_empty(), "no answer yet");
    medium.release();
    wait_for("the next daemon to serve", || {
        daemon.log().matches("INFO serving").count() == 2
    });
    goes_on(&medium, daemon, guest);
}

/// The lock of a disk that is read-only is shared, and keeps no other daemon away.
#[test]
fn an_old_read_has_ended_before_it_is_done_again() {
    let Some(medium) = SlowMedium::new(true) else {
        return;
    };
    let mut bytes = vec![0; BYTES as usize];
    bytes[2 << 20..][..4096].fill(7);
    fs::write(medium.scratch.join("medium"), bytes).expect("the directory is ours");
    let daemon = medium.serve("read_only = true\n");
    let socket = daemon.path("a.vhost");
    let mut guest = Guest::start_recorded(&socket, ALL, 1);
    medium.hold();
    // Far from the beginning, which a process that opens the disk looks at.
    let slot = guest.submit(0, IN, (2 << 20) / 512, &[0; 4096]);
    guest.kick(0, 1);
    medium.wait_until_it_holds();
    let daemon = daemon.crash();
    guest
        .begin_again(&socket)
        .expect_err("the read has not ended");
    medium.release();
    guest.reconnect(&socket);
    let answers = guest.answers(0);
    assert_eq!((answers.len(), answers[0].status), (1, 0), "the old read");
    assert_eq!(guest.read_data(0, slot, 4096), [7; 4096]);
    guest.leave();
    daemon.stop();
}
