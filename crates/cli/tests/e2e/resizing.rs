//! Disks that are given another size where something stands in the way, or on a block device.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use crate::control::{tidegate, tidegate_json};
use crate::daemon::{Backing, Daemon, Scratch, noise};
use crate::tool::{Running, arg, have, qemu_io, run, skipped};

const MIB: usize = 1 << 20;

fn size(daemon: &Daemon, vm: &str) -> u64 {
    let vm = tidegate_json(daemon, &["vm", "show", vm]);
    vm["disks"][0]["size_bytes"].as_u64().expect("a size")
}

/// Asks on a connection that stays open; status and body of the answer.
pub(crate) fn ask(stream: &mut UnixStream, method: &str, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {length}\r\n\r\n");
    let asked = stream.write_all((head + body).as_bytes());
    asked.expect("the daemon reads");
    let mut reader = BufReader::new(stream);
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("the daemon answers");
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => break,
            [version, code, ..] if version.starts_with("HTTP/") => {
                status = code.parse().expect("a number");
            }
            [name, n] if name.eq_ignore_ascii_case("content-length:") => {
                length = n.parse().expect("a number");
            }
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("as long as it says");
    (status, String::from_utf8(body).expect("JSON"))
}

#[test]
fn a_shrink_that_no_descriptor_is_left_for_changes_nothing() {
    if !have(&["prlimit", "qemu-io"]) {
        return;
    }
    let backing = Backing::File;
    let daemon = Daemon::start(&[backing.device(""), backing.vm("a", "64 MiB", "")].concat());
    // It is connected before there are none left.
    let mut control = daemon.connect("control.sock").expect("it listens");
    assert_eq!(ask(&mut control, "GET", "/v1/vms/a", "").0, 200);
    let pid = format!("--pid={}", daemon.pid());
    run(daemon.scratch(), "prlimit", &[&pid, "--nofile=4:"]);
    let shrink = "/v1/vms/a/disks/a?force=true";
    let (status, message) = ask(&mut control, "PATCH", shrink, "{\"size\": \"32 MiB\"}");
    assert_eq!(status, 409, "{message}");
    assert!(message.contains("Too many open files"), "{message}");
    run(daemon.scratch(), "prlimit", &[&pid, "--nofile=512:"]);
    assert_eq!(size(&daemon, "a"), 64 * MIB as u64);
    let end = ["write -P 5 60M 4M", "read -P 5 60M 4M"];
    qemu_io(daemon.scratch(), &daemon.uri("a"), &end);
    tidegate(&daemon, &["vm", "resize", "a", "32 MiB", "--shrink"]);
    assert_eq!(size(&daemon, "a"), 32 * MIB as u64);
    let file = fs::metadata(daemon.path("a.raw")).expect("it is there");
    assert_eq!(file.len(), 32 * MIB as u64);
    daemon.stop();
}

/// A file as a block device, until this is dropped.
struct LoopDevice {
    name: String,
    scratch: Scratch,
}

impl LoopDevice {
    /// `None` where the machine, or who runs this, may have none.
    fn new(file: &str, bytes: usize) -> Option<LoopDevice> {
        let scratch = Scratch::new();
        let image = scratch.join(file);
        let made = fs::File::create(&image).and_then(|made| made.set_len(bytes as u64));
        made.expect("the directory is ours");
        let args = ["--find", "--show", arg(&image)];
        let done = Running::start(&scratch, "losetup", &args).wait();
        if !done.status.success() {
            skipped(&format!("no loop device to be had: {}", done.err.trim()));
            return None;
        }
        let name = done.out.trim().to_owned();
        Some(LoopDevice { name, scratch })
    }

    fn grow(&self, file: &str, bytes: usize) {
        let image = fs::OpenOptions::new()
            .write(true)
            .open(self.scratch.join(file));
        let grown = image.and_then(|image| image.set_len(bytes as u64));
        grown.expect("the file is ours");
        run(&self.scratch, "losetup", &["--set-capacity", &self.name]);
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        Running::start(&self.scratch, "losetup", &["--detach", &self.name]).wait();
    }
}

#[test]
fn a_block_device_is_served_as_far_as_it_reaches_and_what_is_cut_off_stays() {
    if !have(&["losetup", "nbdcopy", "qemu-io"]) {
        return;
    }
    let Some(disk) = LoopDevice::new("image", 8 * MIB) else {
        return;
    };
    let vm = format!(
        "[[vm]]\nname = \"a\"\n[[vm.disk]]\npath = {:?}\n",
        disk.name
    );
    let daemon = Daemon::start(&[Backing::File.device(""), vm].concat());
    assert_eq!(size(&daemon, "a"), 8 * MIB as u64);
    let bytes = noise(3, 8 * MIB);
    let (image, back) = (daemon.path("bytes"), daemon.path("back"));
    fs::write(&image, &bytes).expect("the directory is ours");
    let copy = |from: &str, to: &str| run(daemon.scratch(), "nbdcopy", &[from, to]);
    copy(arg(&image), &daemon.uri("a"));

    let socket = daemon.path("control.sock");
    let grow = ["--socket", arg(&socket), "vm", "resize", "a", "16 MiB"];
    let program = env!("CARGO_BIN_EXE_tidegate");
    let refused = Running::start(daemon.scratch(), program, &grow).wait();
    assert!(!refused.status.success());
    assert!(
        refused.err.contains("the block device has 8 MiB"),
        "{}",
        refused.err
    );
    assert_eq!(size(&daemon, "a"), 8 * MIB as u64);
    copy(&daemon.uri("a"), arg(&back));
    assert!(
        fs::read(&back).expect("copied") == bytes,
        "other bytes after a refusal"
    );

    disk.grow("image", 16 * MIB);
    tidegate(&daemon, &["vm", "resize", "a", "16 MiB"]);
    assert_eq!(size(&daemon, "a"), 16 * MIB as u64);
    let end = ["write -P 6 15M 1M", "flush", "read -P 6 15M 1M"];
    qemu_io(daemon.scratch(), &daemon.uri("a"), &end);

    tidegate(&daemon, &["vm", "resize", "a", "4 MiB", "--shrink"]);
    copy(&daemon.uri("a"), arg(&back));
    assert!(
        fs::read(&back).expect("copied") == bytes[..4 * MIB],
        "other bytes were kept"
    );
    // A block device has lost nothing.
    tidegate(&daemon, &["vm", "resize", "a", "16 MiB"]);
    copy(&daemon.uri("a"), arg(&back));
    let whole = fs::read(&back).expect("copied");
    assert!(whole[..8 * MIB] == bytes, "other bytes were cut off");
    assert!(whole[15 * MIB..].iter().all(|&byte| byte == 6));
    daemon.stop();
}
