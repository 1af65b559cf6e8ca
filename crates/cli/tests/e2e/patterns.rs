//! Request by request: `qemu-io`.

use crate::daemon::{Backing, Daemon};
use crate::on_every_backing;
use crate::tool::{Running, have, qemu_io};

on_every_backing!(
    what_was_written_is_read,
    zeroes_and_discards_read_as_zeroes,
    any_range_can_be_addressed_when_the_disk_says_so,
    fua_and_flush_are_answered,
);

fn start(backing: Backing, disk: &str) -> Daemon {
    Daemon::start(&[backing.device(""), backing.vm("a", "64 MiB", disk)].concat())
}

fn what_was_written_is_read(backing: Backing) {
    if !have(&["qemu-io"]) {
        return;
    }
    let daemon = start(backing, "");
    let commands = [
        "read -P 0 0 4M",
        "write -P 1 0 512",
        "write -P 2 512 4096",
        "write -P 3 1M 3M",
        "write -P 4 2M 64k",
        // The very end of the disk.
        "write -P 5 67108352 512",
        "read -P 1 0 512",
        "read -P 2 512 4096",
        "read -P 0 4608 4k",
        "read -P 3 1M 1M",
        "read -P 4 2M 64k",
        "read -P 3 2162688 64k",
        "read -P 0 4M 4k",
        "read -P 5 67108352 512",
        // Vectored, and many at once.
        "writev -P 6 8M 4k 12k 64k",
        "readv -P 6 8M 40k 40k",
        "aio_write -P 7 16M 1M",
        "aio_write -P 8 17M 1M",
        "aio_write -P 9 18M 64k",
        "aio_flush",
        "aio_read -P 7 16M 1M",
        "aio_read -P 8 17M 1M",
        "aio_read -P 9 18M 64k",
        "aio_flush",
    ];
    let out = qemu_io(daemon.scratch(), &daemon.uri("a"), &commands);
    assert!(
        out.contains("wrote 3145728/3145728 bytes at offset 1048576"),
        "{out}"
    );
    // Another connection sees the same, and the pattern check itself can tell.
    qemu_io(daemon.scratch(), &daemon.uri("a"), &["read -P 8 17M 1M"]);
    let uri = daemon.uri("a");
    let wrong = ["-f", "raw", "-c", "read -P 9 17M 1M", &uri];
    let done = Running::start(daemon.scratch(), "qemu-io", &wrong).wait();
    assert!(
        done.out.contains("Pattern verification failed"),
        "{}",
        done.out
    );
    daemon.stop();
}

fn zeroes_and_discards_read_as_zeroes(backing: Backing) {
    if !have(&["qemu-io"]) {
        return;
    }
    let daemon = start(backing, "");
    let commands = [
        "write -P 0xaa 0 8M",
        "write -z 1M 1M",
        // It may make a hole of it.
        "write -z -u 3M 64k",
        // In odd pieces.
        "write -z 4195328 512",
        "discard 5M 1M",
        "discard 6292480 3584",
        "read -P 0xaa 0 1M",
        "read -P 0 1M 1M",
        "read -P 0xaa 2M 1M",
        "read -P 0 3M 64k",
        "read -P 0xaa 3211264 983040",
        "read -P 0xaa 4M 1024",
        "read -P 0 4195328 512",
        "read -P 0xaa 4195840 4k",
        "read -P 0 5M 1M",
        "read -P 0xaa 6M 1024",
        "read -P 0xaa 6296064 4k",
        "read -P 0xaa 7M 1M",
    ];
    qemu_io(daemon.scratch(), &daemon.uri("a"), &commands);
    daemon.stop();
}

fn any_range_can_be_addressed_when_the_disk_says_so(backing: Backing) {
    if !have(&["qemu-io"]) {
        return;
    }
    let daemon = start(backing, "block_size = \"1 B\"");
    let commands = [
        "write -P 1 0 64k",
        "write -P 2 511 3",
        "write -P 3 4095 8194",
        "write -z 20001 77",
        "read -P 1 0 511",
        "read -P 2 511 3",
        "read -P 1 514 3581",
        "read -P 3 4095 8194",
        "read -P 1 12289 7712",
        "read -P 0 20001 77",
        "read -P 1 20078 45458",
        // Neighbours in one block at the same time: neither loses its bytes.
        "aio_write -P 4 65537 100",
        "aio_write -P 5 65637 100",
        "aio_write -P 6 65737 100",
        "aio_flush",
        "read -P 4 65537 100",
        "read -P 5 65637 100",
        "read -P 6 65737 100",
        "read -P 0 65536 1",
        "read -P 0 65837 100",
    ];
    qemu_io(daemon.scratch(), &daemon.uri("a"), &commands);
    daemon.stop();
}

fn fua_and_flush_are_answered(backing: Backing) {
    if !have(&["qemu-io"]) {
        return;
    }
    let daemon = start(backing, "");
    let commands = [
        "write -f -P 1 0 4k",
        "write -f -P 2 1M 1M",
        "write -f -z 1M 64k",
        "flush",
        "flush",
        "read -P 1 0 4k",
        "read -P 0 1M 64k",
        "read -P 2 1114112 64k",
    ];
    qemu_io(daemon.scratch(), &daemon.uri("a"), &commands);
    daemon.stop();
}

#[test]
fn a_read_only_disk_refuses_writes() {
    if !have(&["qemu-io"]) {
        return;
    }
    let daemon = start(Backing::Memory, "read_only = true");
    let uri = daemon.uri("a");
    let read = ["-r", "-f", "raw", "-c", "read -P 0 0 64k", &uri];
    Running::start(daemon.scratch(), "qemu-io", &read).succeed();
    let write = ["-f", "raw", "-c", "write -P 1 0 64k", &uri];
    let done = Running::start(daemon.scratch(), "qemu-io", &write).wait();
    assert!(!done.status.success(), "{}", done.out);
    daemon.stop();
}
