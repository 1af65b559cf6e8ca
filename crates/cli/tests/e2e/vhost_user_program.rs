//! `tidegate vhost-user-blk` with QEMU as its front-end: a guest boots from its disk.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::daemon::{Scratch, wait_for};
use crate::guest::{MACHINE, TEXT, image, vhost_user_disk, vhost_user_disk_by};
use crate::tool::{Running, arg, have};

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");

/// Makes the disk of [`image`], with room behind it.
fn disk(scratch: &Scratch) -> PathBuf {
    let path = image(scratch);
    let file = File::options().write(true).open(&path).expect("ours");
    file.set_len(1 << 20).expect("room");
    path
}

/// Waits for the guest, and checks that it has copied its text to the next sector.
fn has_booted(qemu: Running, disk: &Path) {
    let done = qemu.wait();
    // QEMU ends with twice the guest's number and one.
    assert_eq!(done.status.code(), Some(0x21), "{}{}", done.out, done.err);
    let mut sector = vec![0; TEXT.len()];
    let file = File::open(disk).expect("ours");
    file.read_exact_at(&mut sector, 1024).expect("inside");
    assert_eq!(sector, TEXT.as_bytes());
}

/// Starts a program with a socket as its descriptor 3.
fn start_with(scratch: &Scratch, words: &[&str], socket: OwnedFd) -> Running {
    let shell = ["-c", "exec \"$0\" \"$@\" 3<&0 0</dev/null"];
    let words = [&shell, words].concat();
    Running::start_with(scratch, "sh", &words, Stdio::from(socket))
}

#[test]
fn guests_boot_one_after_the_other_by_a_path() {
    if !have(&["qemu-system-x86_64"]) {
        return;
    }
    let scratch = Scratch::new();
    let (disk, socket) = (disk(&scratch), scratch.join("disk.sock"));
    let words = ["vhost-user-blk", "--blk-file", arg(&disk)];
    let words = [&words[..], &["--socket-path", arg(&socket)]].concat();
    let mut program = Running::start(&scratch, TIDEGATE, &words);
    wait_for("the socket", || {
        assert!(program.is_running(), "{}", program.err());
        socket.exists()
    });
    let arguments = vhost_user_disk(&socket, 64, "bootindex=0");
    for _ in 0..2 {
        let words = MACHINE.into_iter();
        let words: Vec<_> = words.chain(arguments.iter().map(String::as_str)).collect();
        let qemu = Running::start(&scratch, "qemu-system-x86_64", &words);
        has_booted(qemu, &disk);
    }
    assert!(program.is_running(), "it waits for the next");
}

#[test]
fn a_guest_boots_by_a_socket_pair() {
    if !have(&["qemu-system-x86_64"]) {
        return;
    }
    let scratch = Scratch::new();
    let disk = disk(&scratch);
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let words = [TIDEGATE, "vhost-user-blk", "--blk-file", arg(&disk)];
    let words = [&words[..], &["--fd", "3"]].concat();
    let program = start_with(&scratch, &words, theirs.into());
    let arguments = vhost_user_disk_by("fd=3", 64, "bootindex=0");
    let words = std::iter::once("qemu-system-x86_64").chain(MACHINE);
    let words: Vec<_> = words.chain(arguments.iter().map(String::as_str)).collect();
    let qemu = start_with(&scratch, &words, ours.into());
    has_booted(qemu, &disk);
    // The program ends with its front-end.
    assert_eq!(program.succeed(), "");
}
