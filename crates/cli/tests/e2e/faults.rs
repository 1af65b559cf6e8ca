//! Clients that misbehave: others must not notice.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use crate::control::requests;
use crate::daemon::{Backing, Daemon, noise, wait_for};
use crate::on_every_backing;
use crate::tool::{Running, fio, fio_result, have, qemu_io, run};

on_every_backing!(a_killed_client_takes_nobody_along);

/// A daemon with two VMs, one of them with two disks.
fn start(backing: Backing) -> Daemon {
    Daemon::start(
        &[
            backing.device(""),
            backing.vm("noisy", "64 MiB", ""),
            backing.disk("noisy-data", "64 MiB", ""),
            backing.vm("steady", "64 MiB", ""),
        ]
        .concat(),
    )
}

/// Client that goes on sending requests and checks the replies.
fn steady(daemon: &Daemon, export: &str, size: &str) -> Running {
    let size = format!("--size={size}");
    let args = [
        "--rw=randwrite",
        "--bs=4k",
        "--iodepth=8",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_backlog=32",
        &size,
    ];
    fio(daemon.scratch(), &daemon.uri(export), &args)
}

fn assert_verified(running: Running) {
    let result = fio_result(running);
    assert_eq!(result.reads, result.writes, "not all was verified");
}

fn a_killed_client_takes_nobody_along(backing: Backing) {
    if !have(&["fio", "qemu-io"]) {
        return;
    }
    let daemon = start(backing);
    let size = if backing.is_slow() { "512k" } else { "16m" };
    let others = [
        steady(&daemon, "steady", size),
        steady(&daemon, "noisy-data", size),
    ];
    for rw in ["--rw=randwrite", "--rw=randread", "--rw=randwrite"] {
        let args = [
            rw,
            "--bs=64k",
            "--iodepth=64",
            "--time_based",
            "--runtime=50",
            "--size=64m",
        ];
        let mut doomed = fio(daemon.scratch(), &daemon.uri("noisy"), &args);
        // Once its requests are under way.
        let before = requests(&daemon, "noisy");
        wait_for("the client to work", || {
            assert!(doomed.is_running(), "it ended by itself");
            requests(&daemon, "noisy") > before + 10
        });
        doomed.kill();
    }
    others.into_iter().for_each(assert_verified);
    // Its disk is there for whoever comes next.
    let commands = ["write -P 3 0 1M", "read -P 3 0 1M", "flush"];
    qemu_io(daemon.scratch(), &daemon.uri("noisy"), &commands);
    daemon.stop();
}

pub(crate) fn connect(daemon: &Daemon) -> UnixStream {
    daemon.connect("nbd.sock").expect("it listens")
}

/// Connects and goes through the handshake, with simple replies.
pub(crate) fn attach(daemon: &Daemon, export: &str) -> UnixStream {
    choose(connect(daemon), export)
}

/// Goes through the handshake on a connection, with simple replies.
pub(crate) fn choose(mut stream: UnixStream, export: &str) -> UnixStream {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).expect("it greets");
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    // Client flags, then NBD_OPT_GO with the export's name and no information requests.
    let name_len = export.len() as u32;
    let mut go = 3u32.to_be_bytes().to_vec();
    go.extend(b"IHAVEOPT");
    go.extend(7u32.to_be_bytes());
    go.extend((name_len + 6).to_be_bytes());
    go.extend(name_len.to_be_bytes());
    go.extend(export.as_bytes());
    go.extend([0, 0]);
    stream.write_all(&go).expect("it reads");
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head).expect("it answers");
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four"));
        let mut rest = vec![0; word(16) as usize];
        stream.read_exact(&mut rest).expect("it answers");
        match word(12) {
            1 => return stream, // NBD_REP_ACK
            3 => {}             // NBD_REP_INFO
            error => panic!("refused with {error:#x}"),
        }
    }
}

pub(crate) fn request(command: u16, cookie: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

const READ: u16 = 0;
const WRITE: u16 = 1;

/// Reads until the other side closes.
fn drain(stream: &mut UnixStream) {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("the daemon keeps the connection: {error}"),
        }
    }
}

/// Sends until all is sent or the other side closes, then waits for that.
fn send_and_drain(mut stream: UnixStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    drain(&mut stream);
}

#[test]
fn garbage_ends_only_who_sent_it() {
    if !have(&["fio"]) {
        return;
    }
    let daemon = start(Backing::Memory);
    let other = steady(&daemon, "steady", "16m");

    for seed in 0..20 {
        send_and_drain(connect(&daemon), &noise(seed, 1 << 16));
    }
    // Another protocol.
    send_and_drain(
        connect(&daemon),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    // An option as long as can be said.
    let mut long = 3u32.to_be_bytes().to_vec();
    long.extend(b"IHAVEOPT");
    long.extend([0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff]);
    send_and_drain(connect(&daemon), &long);
    wait_for("a word on why", || {
        daemon.logged(&["WARN", "client cut off"])
    });

    // The same in the transmission phase.
    let cut_off = |daemon: &Daemon| daemon.log().matches("client cut off").count();
    let before = cut_off(&daemon);
    for seed in 0..20 {
        send_and_drain(attach(&daemon, "noisy"), &noise(seed, 1 << 16));
    }
    wait_for("a word on each", || cut_off(&daemon) >= before + 20);
    assert!(daemon.logged(&["WARN", "noisy", "client cut off"]));

    assert_verified(other);
    daemon.stop();
}

#[test]
fn what_is_half_sent_changes_nothing() {
    if !have(&["fio", "qemu-io"]) {
        return;
    }
    let daemon = start(Backing::Memory);
    let other = steady(&daemon, "steady", "16m");
    // In the handshake, in a request's header, and in a payload. They stay, and do nothing.
    let mut idle = vec![connect(&daemon)];
    for len in [1, 27] {
        let mut stream = attach(&daemon, "noisy");
        let bytes = request(READ, 1, 0, 4096);
        stream.write_all(&bytes[..len]).expect("it reads");
        idle.push(stream);
    }
    let mut stream = attach(&daemon, "noisy");
    let mut bytes = request(WRITE, 1, 0, 1 << 20);
    bytes.extend(vec![0xff; 300_000]);
    stream.write_all(&bytes).expect("it reads");
    idle.push(stream);
    assert_verified(other);
    // Nor do they once they are gone: the write was never whole.
    drop(idle);
    qemu_io(daemon.scratch(), &daemon.uri("noisy"), &["read -P 0 0 1M"]);
    daemon.stop();
}

#[test]
fn who_never_reads_costs_bounded_memory() {
    if !have(&["fio"]) {
        return;
    }
    let backing = Backing::Memory;
    let daemon = Daemon::start(
        &[
            backing.device("buffer_memory = \"64 MiB\"\nbuffer_memory_per_vm = \"16 MiB\""),
            backing.vm("noisy", "64 MiB", ""),
            backing.vm("steady", "64 MiB", ""),
        ]
        .concat(),
    );
    let other = steady(&daemon, "steady", "16m");
    // Four clients ask for 4 GiB each and take none of it. All that a disk of 64 MiB has is never
    // written, so that its own memory does not count.
    let mut deaf: Vec<UnixStream> = Vec::new();
    for _ in 0..4 {
        let mut stream = attach(&daemon, "noisy");
        stream.set_nonblocking(true).expect("a plain socket");
        let requests: Vec<u8> = (0..4096)
            .flat_map(|cookie| request(READ, cookie, (cookie % 64) << 20, 1 << 20))
            .collect();
        // As much as it takes: it stops reading once it has enough to do.
        let mut sent = 0;
        while sent < requests.len() {
            match stream.write(&requests[sent..]) {
                Ok(n) => sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        deaf.push(stream);
    }
    assert_verified(other);
    // Both buffers' budgets, the steady VM's disk, and room for the program.
    let max = (64 + 64 + 64) << 20;
    assert!(daemon.resident() < max, "{} MiB", daemon.resident() >> 20);
    drop(deaf);
    daemon.stop();
}

/// A limit on the size of files (`ulimit -f`, `LimitFSIZE=`) is a full disk to the guest that meets
/// it. The kernel also sends a signal that would end the daemon with all of its disks.
#[test]
fn a_limit_on_file_sizes_ends_nobody() {
    if !have(&["qemu-io", "prlimit"]) {
        return;
    }
    let backing = Backing::File;
    let daemon = Daemon::start(&[backing.device(""), backing.vm("a", "8 MiB", "")].concat());
    let pid = format!("--pid={}", daemon.pid());
    run(daemon.scratch(), "prlimit", &[&pid, "--fsize=2097152"]);
    qemu_io(daemon.scratch(), &daemon.uri("a"), &["write -P 1 1M 1M"]);
    for beyond in [
        "write -P 2 1M 2M",
        "write -P 2 4M 64k",
        "write -f -P 2 5000 2M",
    ] {
        let args = ["-f", "raw", "-c", beyond, &daemon.uri("a")];
        let done = Running::start(daemon.scratch(), "qemu-io", &args).wait();
        let message = done.out + &done.err;
        assert!(message.contains("No space left"), "{beyond}: {message}");
    }
    let commands = ["write -f -P 3 0 1M", "read -P 3 0 1M", "flush"];
    qemu_io(daemon.scratch(), &daemon.uri("a"), &commands);
    daemon.stop();
}

#[test]
fn who_never_reads_does_not_hold_up_the_end() {
    let daemon = start(Backing::Memory);
    let mut deaf = attach(&daemon, "noisy");
    let requests: Vec<u8> = (0..64)
        .flat_map(|cookie| request(READ, cookie, 0, 1 << 20))
        .collect();
    deaf.write_all(&requests).expect("it reads");
    daemon.stop();
}

#[test]
fn a_storm_of_nonsense_does_not_fill_the_log() {
    let daemon = start(Backing::Memory);
    for round in 0..500 {
        let mut stream = match round % 2 {
            0 => connect(&daemon),
            _ => attach(&daemon, "noisy"),
        };
        // The daemon may close the connection before all bytes are sent.
        let _ = stream.write_all(&[0xff; 4096]);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    let cut_off = || daemon.log().matches("client cut off").count();
    wait_for("the rest to be counted", || {
        daemon.logged(&["more lines were left out of the log: clients cut off in the handshake"])
            && (daemon.log().lines()).any(|line| line.ends_with("of the log: clients cut off"))
    });
    // The log limit lets 20 lines of each of two causes through in 10 s; on a slow machine the
    // flood lasts longer than that.
    let lines = cut_off();
    assert!((2..400).contains(&lines), "{lines} lines");
    daemon.stop();
}

#[test]
fn a_reconnect_storm_leaves_nothing_behind() {
    if !have(&["nbdinfo"]) {
        return;
    }
    let daemon = start(Backing::Memory);
    let descriptors = || {
        let path = format!("/proc/{}/fd", daemon.pid());
        std::fs::read_dir(path).expect("it runs").count()
    };
    // Once it has served a client, with all descriptors that this takes.
    run(
        daemon.scratch(),
        "nbdinfo",
        &["--size", &daemon.uri("steady")],
    );
    let before = descriptors();
    // Never many at once, or what that takes would hide what each leaves behind.
    let storm = || {
        for round in 0..50 {
            let mut stream = match round % 5 {
                0 => {
                    connect(&daemon);
                    continue;
                }
                _ => attach(&daemon, "noisy"),
            };
            let bytes: Vec<u8> = match round % 5 {
                1 => Vec::new(),
                2 => (0..8).flat_map(|c| request(READ, c, 0, 4096)).collect(),
                // A write of which there is but a part.
                3 => [request(WRITE, 1, 0, 4096), vec![0; 1000]].concat(),
                _ => [request(WRITE, 1, 0, 4096), vec![0; 4096]].concat(),
            };
            stream.write_all(&bytes).expect("it reads");
        }
        wait_for("all connections to be closed", || descriptors() <= before);
    };
    (0..40).for_each(|_| storm());
    let warm = daemon.resident();
    // Not even a few hundred bytes of each.
    (0..200).for_each(|_| storm());
    wait_for("memory to be given back", || {
        daemon.resident() < warm + (2 << 20)
    });
    let size = run(
        daemon.scratch(),
        "nbdinfo",
        &["--size", &daemon.uri("steady")],
    );
    assert_eq!(size.trim(), (64 << 20).to_string());
    daemon.stop();
}
