//! Linux guests whose disks are served by vhost-user: a queue for each CPU, discards, a reset, and
//! two of them with what they were promised.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;

use serde_json::Value;

use crate::control::{tidegate, tidegate_json};
use crate::daemon::{Backing, Daemon, Scratch, wait_at_most, wait_for};
use crate::guest::vhost_user_disk;
use crate::guest_linux::{DISK, Guest, Kit, MACHINE, MIB, PATIENCE, assert_found, bytes, start};
use crate::tool::{Running, arg, have, qemu_io, skipped};

/// Bytes that a file takes of its file system.
fn allocated(daemon: &Daemon) -> u64 {
    let meta = fs::metadata(daemon.path("guest.raw")).expect("the daemon made it");
    meta.blocks() * 512
}

/// Returns true if files of the test's directory can have holes punched into them.
fn punches_holes(scratch: &Scratch) -> bool {
    let probe = scratch.join("probe");
    fs::write(&probe, [1; 65536]).expect("the directory is ours");
    let words = ["-p", "-o", "0", "-l", "4096", arg(&probe)];
    let done = Running::start(scratch, "fallocate", &words).wait();
    done.status.success()
}

/// A guest of four CPUs writes by four queues, and what it discards is given back by the file.
#[test]
fn a_guest_writes_by_four_queues_and_discards() {
    if !have(&["fallocate", "qemu-io"]) {
        return;
    }
    let scratch = Scratch::new();
    if !punches_holes(&scratch) {
        return skipped("the file system of the temporary directory punches no holes");
    }
    let Some(kit) = Kit::new(&scratch) else {
        return;
    };
    let daemon = start(scratch, Backing::File);
    let disk = vhost_user_disk(&daemon.path("guest.vhost"), 256, "num-queues=4");
    let machine = format!("{MACHINE} -smp 4");
    let mut guest = Guest::start_on(&daemon, &kit, "queues", &machine, &disk);
    guest.wait_for("written", 1);
    let cpus = |n: usize| format!("{n} of CPUs {n}");
    assert_eq!(
        guest.reported("queue"),
        (0..4).map(cpus).collect::<Vec<_>>()
    );
    let interrupts = guest.reported("interrupts");
    assert_eq!(interrupts.len(), 4, "{interrupts:?}");
    for queue in &interrupts {
        assert!(!queue.ends_with(" 0"), "no answers: {interrupts:?}");
    }

    let before = allocated(&daemon);
    assert!(before >= 32 * MIB as u64, "{before} bytes");
    let go = daemon.path("go");
    fs::write(&go, "go").expect("the directory is ours");
    let write = format!("write -s {} {} 4k", arg(&go), DISK - 4096);
    qemu_io(daemon.scratch(), &daemon.uri("guest"), &[&write]);
    guest.succeeds();
    // But for the block that told it to go on.
    let after = allocated(&daemon) - 4096;
    assert!(
        after + 24 * MIB as u64 <= before,
        "{before} bytes, then {after}"
    );
    // The part behind it is as it was.
    let found = fs::read(daemon.path("guest.raw")).expect("the daemon made it");
    assert!(found[..24 * MIB].iter().all(|byte| *byte == 0));
    assert_eq!(found[24 * MIB..32 * MIB], bytes().repeat(4));
    daemon.stop();
}

#[test]
fn a_guest_that_is_reset_while_it_writes_goes_on() {
    let scratch = Scratch::new();
    let Some(kit) = Kit::new(&scratch) else {
        return;
    };
    let daemon = start(scratch, Backing::File);
    let monitor = daemon.path("monitor");
    let disk = vhost_user_disk(&daemon.path("guest.vhost"), 256, "num-queues=2");
    let machine = MACHINE.replace(" -no-reboot", "");
    let machine = format!(
        "{machine} -monitor unix:{},server=on,wait=off",
        arg(&monitor)
    );
    let mut guest = Guest::start_on(&daemon, &kit, "reset", &machine, &disk);
    guest.wait_for("kept", 10);
    let mut monitor = UnixStream::connect(&monitor).expect("QEMU listens");
    monitor.write_all(b"system_reset\n").expect("QEMU reads");
    guest.succeeds();
    assert_found(&guest.reported("kept"), &guest);
    daemon.stop();
}

/// Attainment of the reservation of the VM `steady`.
fn reservation(daemon: &Daemon) -> Value {
    let vm = tidegate_json(daemon, &["vm", "show", "steady"]);
    let parts = vm["attainment"].as_array().expect("a list");
    let part = parts.iter().find(|part| part["part"] == "reservation");
    part.cloned().unwrap_or_else(|| panic!("none in {vm}"))
}

/// Sets a reservation, whose seconds count from then on, and returns the share of them that were
/// kept, in per cent, once some were judged.
fn kept_percent(daemon: &Daemon, iops: u32, seconds: u64) -> f64 {
    let iops = format!("{iops} IOPS");
    tidegate(daemon, &["vm", "set", "steady", "--reservation", &iops]);
    let judged = || {
        let part = reservation(daemon);
        let count = |field: &str| part[field].as_u64().expect("a number");
        count("kept_s") + count("missed_s")
    };
    wait_at_most(PATIENCE, "seconds to be judged", || judged() >= seconds);
    let part = reservation(daemon);
    part["kept_percent"]
        .as_f64()
        .unwrap_or_else(|| panic!("{part}"))
}

/// Requests of a VM that were answered.
fn answered(daemon: &Daemon, vm: &str) -> u64 {
    let stats: Value = tidegate_json(daemon, &["stats", vm]);
    let operations = stats["vms"][0]["operations"].as_array().expect("a list");
    let requests = operations.iter().filter_map(|op| op["requests"].as_u64());
    requests.sum()
}

/// On a hard disk, a guest with a reservation beside one that keeps the disk's queue full. Under
/// `fifo` the same guests show that without a scheduler it would be missed.
#[test]
#[ignore = "two machines with fio, more than a minute"]
fn a_guest_with_a_reservation_has_it_beside_a_noisy_one() {
    let scratch = Scratch::new();
    let Some(kit) = Kit::with_fio(&scratch) else {
        return;
    };
    let backing = Backing::Emulated;
    let names = ["steady", "noisy"];
    let vms = names.map(|name| backing.vm(name, "1 GiB", ""));
    let listen = "[[listen]]\nvhost_user = \"{vm}.vhost\"\n";
    let device = backing.device("policy = \"slo\"");
    let daemon = Daemon::start_in(scratch, &[listen, &device, &vms.concat()].concat());
    let machine = MACHINE.replace("-m 256", "-m 512");
    let mut guests = names.map(|name| {
        let socket = daemon.path(&format!("{name}.vhost"));
        let disk = vhost_user_disk(&socket, 512, "num-queues=1");
        Guest::start_on(&daemon, &kit, name, &machine, &disk)
    });
    for (guest, name) in guests.iter_mut().zip(names) {
        guest.wait_for("load", 1);
        wait_for("requests", || answered(&daemon, name) > 100);
    }
    let noisy = answered(&daemon, "noisy");
    let kept = kept_percent(&daemon, 60, 20);
    assert!(kept >= 90.0, "{kept} % under slo: {}", reservation(&daemon));
    assert!(
        answered(&daemon, "noisy") > noisy,
        "the rest is the noisy one's"
    );
    tidegate(&daemon, &["policy", "set", "disk", "fifo"]);
    let kept = kept_percent(&daemon, 61, 10);
    assert!(
        kept <= 50.0,
        "{kept} % under fifo: {}",
        reservation(&daemon)
    );
    guests.iter_mut().for_each(Guest::kill);
    daemon.stop();
}
