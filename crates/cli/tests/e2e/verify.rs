//! Many requests at once: fio with checksums in every block.

use crate::daemon::{Backing, Daemon};
use crate::on_every_backing;
use crate::tool::{FioResult, Running, fio, fio_result, have};

on_every_backing!(
    one_at_a_time,
    a_few_at_a_time,
    deep_queues_and_many_clients,
    mixed_sizes_with_flushes,
);

/// Bytes written by each job: enough to overlap, few enough for a disk that seeks.
fn size(backing: Backing, fast: &'static str, slow: &'static str) -> &'static str {
    if backing.is_slow() { slow } else { fast }
}

fn start(backing: Backing) -> Daemon {
    Daemon::start(&[backing.device(""), backing.vm("a", "256 MiB", "")].concat())
}

/// Writes with checksums and reads them all back.
fn verify(daemon: &Daemon, export: &str, args: &[&str]) -> Running {
    let mut all = vec!["--verify=crc32c", "--verify_fatal=1", "--do_verify=1"];
    all.extend(args);
    fio(daemon.scratch(), &daemon.uri(export), &all)
}

fn verified(running: Running) {
    let FioResult {
        reads,
        writes,
        bytes_read,
        bytes_written,
        ..
    } = fio_result(running);
    assert_eq!(
        (reads, bytes_read),
        (writes, bytes_written),
        "not all was verified"
    );
}

fn one_at_a_time(backing: Backing) {
    if !have(&["fio"]) {
        return;
    }
    let daemon = start(backing);
    let size = size(backing, "--size=8m", "--size=256k");
    verified(verify(
        &daemon,
        "a",
        &["--rw=randwrite", "--bs=4k", "--iodepth=1", size],
    ));
    daemon.stop();
}

fn a_few_at_a_time(backing: Backing) {
    if !have(&["fio"]) {
        return;
    }
    let daemon = start(backing);
    let size = size(backing, "--size=32m", "--size=1m");
    let args = [
        "--rw=randwrite",
        "--bs=8k",
        "--iodepth=8",
        "--verify_backlog=64",
        size,
    ];
    verified(verify(&daemon, "a", &args));
    let args = ["--rw=write", "--bs=128k", "--iodepth=8", size];
    verified(verify(&daemon, "a", &args));
    daemon.stop();
}

fn deep_queues_and_many_clients(backing: Backing) {
    if !have(&["fio"]) {
        return;
    }
    let daemon = start(backing);
    let size = size(backing, "--size=16m", "--size=512k");
    let args = [
        "--rw=randwrite",
        "--bs=4k",
        "--iodepth=128",
        "--numjobs=4",
        "--offset_increment=64m",
        size,
    ];
    verified(verify(&daemon, "a", &args));
    daemon.stop();
}

fn mixed_sizes_with_flushes(backing: Backing) {
    if !have(&["fio"]) {
        return;
    }
    let daemon = start(backing);
    let size = size(backing, "--size=32m", "--size=2m");
    let args = [
        "--rw=randwrite",
        "--bssplit=512/20:4k/40:20k/20:256k/15:1m/5",
        "--bs_unaligned=0",
        "--iodepth=32",
        "--numjobs=2",
        "--offset_increment=64m",
        "--fsync=32",
        size,
    ];
    verified(verify(&daemon, "a", &args));
    daemon.stop();
}
