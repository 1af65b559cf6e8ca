//! Disks on NBD servers of other projects: servers that are killed, that come late or go away, and
//! images of other formats.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use crate::control::{requests, tidegate_json};
use crate::daemon::{Daemon, Scratch, wait_for};
use crate::tls::{PAGE, block, carry_out};
use crate::tool::{Running, arg, fio, fio_result, have, json, qemu_io, run};

const BLOCK: u64 = 4096;
/// Writes between two flushes.
const BATCH: u64 = 8;
const BLOCKS: u64 = 3000;

/// Pattern of a block; never 0.
fn pattern(block: u64) -> u8 {
    1 + (block % 251) as u8
}

/// Transport between a daemon and nbdkit.
#[derive(Clone, Copy)]
pub(crate) enum Transport {
    /// The unix socket `server.sock` of the test's directory.
    Socket,
    /// TLS on a port of loopback, with the files that [`issue`] makes.
    Tls(u16),
}

impl Transport {
    fn is_served(self, scratch: &Scratch) -> bool {
        match self {
            Transport::Socket => UnixStream::connect(scratch.join("server.sock")).is_ok(),
            Transport::Tls(port) => TcpStream::connect(("127.0.0.1", port)).is_ok(),
        }
    }
}

/// Makes a new authority, with certificates for `localhost` and for a client, as `docs/tls.md`
/// does, and a directory `server` as nbdkit and QEMU want it.
pub(crate) fn issue(scratch: &Scratch) {
    carry_out(scratch, &block(PAGE, "sh", "openssl req"));
    let copies = "mkdir -p server && cp tls/ca.pem server/ca-cert.pem && \
                  cp tls/server.pem server/server-cert.pem && \
                  cp tls/server.key server/server-key.pem";
    carry_out(scratch, copies);
}

/// Issues certificates, and returns a free port of loopback for a server with them.
pub(crate) fn port_with_tls(scratch: &Scratch) -> u16 {
    issue(scratch);
    let free = TcpListener::bind("127.0.0.1:0").expect("loopback");
    free.local_addr().expect("bound").port()
}

/// Keys of TLS with all that [`issue`] has made.
pub(crate) const WITH_CERTIFICATE: &str = "tls = { ca = \"tls/ca.pem\", certificate = \
                                           \"tls/host-a/client-cert.pem\", private_key = \
                                           \"tls/host-a/client-key.pem\" }\n";

/// Configuration of a daemon with the disk `a` on nbdkit.
pub(crate) fn config(scratch: &Scratch, transport: Transport, export: &str) -> String {
    let disk = match transport {
        Transport::Socket => {
            let socket = scratch.join("server.sock");
            format!(
                "uri = \"nbd+unix:///{export}?socket={}\"\n",
                socket.display()
            )
        }
        Transport::Tls(port) => {
            format!("uri = \"nbds://localhost:{port}/{export}\"\n{WITH_CERTIFICATE}")
        }
    };
    format!(
        "[[device]]\nname = \"disk\"\nkind = \"nbd\"\n[[vm]]\nname = \"a\"\n[[vm.disk]]\n{disk}"
    )
}

/// Starts nbdkit with a volatile cache on `disk.raw`: a kill loses what was not flushed.
pub(crate) fn nbdkit(scratch: &Scratch, transport: Transport) -> Running {
    let socket = scratch.join("server.sock");
    let port;
    let listen: &[&str] = match transport {
        Transport::Socket => {
            let _ = fs::remove_file(&socket);
            &["--unix", arg(&socket)]
        }
        Transport::Tls(number) => {
            port = format!("--port={number}");
            &[
                "--ipaddr=127.0.0.1",
                &port,
                "--tls=require",
                "--tls-certificates=server",
                "--tls-verify-peer",
            ]
        }
    };
    let disk = [
        "--foreground",
        "--filter=cache",
        "file",
        "disk.raw",
        "cache=writeback",
    ];
    let server = Running::start(scratch, "nbdkit", &[listen, &disk].concat());
    wait_for("nbdkit", || transport.is_served(scratch));
    server
}

pub(crate) fn disk(scratch: &Scratch, bytes: u64) -> File {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true);
    let file = file
        .open(scratch.join("disk.raw"))
        .expect("the directory is ours");
    file.set_len(bytes).expect("room");
    file
}

/// Starts nbdkit on an empty disk of this many bytes, and a daemon with the disk `a` there. Text
/// with further keys, or sections, follows its configuration.
pub(crate) fn served(
    scratch: Scratch,
    transport: Transport,
    bytes: u64,
    more: &str,
) -> (File, Running, Daemon) {
    let file = disk(&scratch, bytes);
    let server = nbdkit(&scratch, transport);
    let text = config(&scratch, transport, "") + more;
    let daemon = Daemon::start_in(scratch, &text);
    (file, server, daemon)
}

/// Blocks that a list of commands of qemu-io has reported as written.
fn acknowledged(out: &str) -> Vec<u64> {
    let mark = format!("wrote {BLOCK}/{BLOCK} bytes at offset ");
    let offsets = out.split(&mark).skip(1).map(|rest| {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        let offset: u64 = digits.and_then(|it| it.parse().ok()).expect("an offset");
        offset / BLOCK
    });
    offsets.collect()
}

fn assert_durable(file: &File, blocks: &[u64], when: &str) {
    for &block in blocks {
        let mut bytes = [0; BLOCK as usize];
        file.read_exact_at(&mut bytes, block * BLOCK)
            .expect("on the disk");
        assert!(
            bytes == [pattern(block); BLOCK as usize],
            "block {block} is lost {when}"
        );
    }
}

#[test]
fn no_flushed_write_is_lost_with_a_server_that_is_killed() {
    if have(&["nbdkit", "qemu-io"]) {
        write_while_the_server_is_killed(Scratch::new(), Transport::Socket, "");
    }
}

#[test]
fn no_flushed_write_is_lost_on_several_connections_with_a_server_that_is_killed() {
    if have(&["nbdkit", "qemu-io"]) {
        let several = "connections = 4\n";
        write_while_the_server_is_killed(Scratch::new(), Transport::Socket, several);
    }
}

#[test]
fn no_flushed_write_is_lost_over_tls_with_a_server_that_is_killed() {
    if have(&["nbdkit", "qemu-io", "openssl"]) {
        let scratch = Scratch::new();
        let transport = Transport::Tls(port_with_tls(&scratch));
        write_while_the_server_is_killed(scratch, transport, "connections = 2\n");
    }
}

fn write_while_the_server_is_killed(scratch: Scratch, transport: Transport, keys: &str) {
    let (file, mut server, daemon) = served(scratch, transport, BLOCKS * BLOCK, keys);
    let mut commands = String::new();
    for block in 0..BLOCKS {
        // A block after a flush is acknowledged only if the flush was.
        if block % BATCH == BATCH - 1 {
            commands.push_str("flush\n");
        }
        let (pattern, offset) = (pattern(block), block * BLOCK);
        commands.push_str(&format!("write -P {pattern} {offset} {BLOCK}\n"));
    }
    let list = daemon.path("commands");
    fs::write(&list, &commands).expect("the directory is ours");
    let input = Stdio::from(File::open(&list).expect("it was just written"));
    let uri = daemon.uri("a");
    let args = ["-oL", "qemu-io", "-f", "raw", &uri];
    let mut writer = Running::start_with(daemon.scratch(), "stdbuf", &args, input);
    for kill in 1..=4 {
        wait_for("some writes", || {
            acknowledged(&writer.out()).len() as u64 > kill * BLOCKS / 5 || !writer.is_running()
        });
        let mut flushed = acknowledged(&writer.out());
        server.kill();
        let last = flushed.iter().rposition(|block| block % BATCH == BATCH - 1);
        flushed.truncate(last.unwrap_or(0));
        assert!(
            flushed.len() as u64 > kill * BLOCKS / 6,
            "{} were flushed",
            flushed.len()
        );
        assert_durable(&file, &flushed, &format!("by kill {kill}"));
        server = nbdkit(daemon.scratch(), transport);
    }
    let out = writer.succeed();
    assert!(!out.contains("rror"), "{out}");
    let all = acknowledged(&out);
    assert_eq!(all.len() as u64, BLOCKS, "every write was acknowledged");
    qemu_io(daemon.scratch(), &uri, &["flush"]);
    assert!(!daemon.logged(&["fewer connections"]), "{}", daemon.log());
    server.kill();
    assert_durable(&file, &all, "after the last flush");
}

#[test]
fn a_guest_sees_no_error_while_the_server_is_away() {
    if have(&["nbdkit", "fio"]) {
        load_while_the_server_is_away(Scratch::new(), Transport::Socket);
    }
}

#[test]
fn a_guest_sees_no_error_while_the_server_is_away_over_tls() {
    if have(&["nbdkit", "fio", "openssl"]) {
        let scratch = Scratch::new();
        let transport = Transport::Tls(port_with_tls(&scratch));
        load_while_the_server_is_away(scratch, transport);
    }
}

/// Returns the reason why the server of the disk `a` cannot be reached, if there is one.
pub(crate) fn unreachable(daemon: &Daemon) -> Option<String> {
    let vm = tidegate_json(daemon, &["vm", "show", "a", "-o", "json"]);
    let why = vm["disks"][0]["unreachable"].as_str();
    why.map(str::to_owned)
}

fn load_while_the_server_is_away(scratch: Scratch, transport: Transport) {
    let (_, mut server, daemon) = served(scratch, transport, 64 << 20, "");
    let args = [
        "--rw=randwrite",
        "--bs=4k",
        "--iodepth=16",
        "--size=64m",
        "--fsync=64",
        "--verify=crc32c",
        "--do_verify=1",
    ];
    let load = fio(daemon.scratch(), &daemon.uri("a"), &args);
    for _ in 0..3 {
        let before = requests(&daemon, "a");
        wait_for("some requests", || requests(&daemon, "a") > before + 2000);
        server.kill();
        wait_for("the server to be missed", || unreachable(&daemon).is_some());
        server = nbdkit(daemon.scratch(), transport);
    }
    let result = fio_result(load);
    assert_eq!(result.bytes_written, 64 << 20);
    assert!(daemon.logged(&["connected again"]), "{}", daemon.log());
    assert_eq!(unreachable(&daemon), None);
    daemon.stop();
    drop(server);
}

#[test]
fn a_server_that_accepts_fewer_connections_is_used_with_those() {
    if !have(&["qemu-nbd", "qemu-io"]) {
        return;
    }
    let scratch = Scratch::new();
    disk(&scratch, 1 << 20);
    let socket = scratch.join("server.sock");
    let socket = format!("--socket={}", socket.display());
    let args = [
        "--persistent",
        "--format=raw",
        "--shared=2",
        &socket,
        "disk.raw",
    ];
    let server = Running::start(&scratch, "qemu-nbd", &args);
    let text = config(&scratch, Transport::Socket, "") + "connections = 3\n";
    let daemon = Daemon::start_in(scratch, &text);
    let fewer = ["fewer connections than are configured", "connections=2"];
    assert!(daemon.logged(&fewer), "{}", daemon.log());
    let commands = ["write -P 7 0 64k", "flush", "read -P 7 0 64k"];
    qemu_io(daemon.scratch(), &daemon.uri("a"), &commands);
    daemon.stop();
    drop(server);
}

#[test]
fn a_server_may_come_after_the_daemon() {
    if !have(&["nbdkit", "qemu-io"]) {
        return;
    }
    let scratch = Scratch::new();
    disk(&scratch, 1 << 20);
    let text = config(&scratch, Transport::Socket, "");
    let daemon = Daemon::begin_in(scratch, &text);
    wait_for("the daemon to wait", || {
        daemon.logged(&["waits", "cannot connect"])
    });
    let server = nbdkit(daemon.scratch(), Transport::Socket);
    let socket = daemon.path("nbd.sock");
    wait_for("the daemon to listen", || {
        UnixStream::connect(&socket).is_ok()
    });
    qemu_io(
        daemon.scratch(),
        &daemon.uri("a"),
        &["write -P 7 0 4096", "read -P 7 0 4096"],
    );
    daemon.stop();
    drop(server);
}

#[test]
fn a_disk_whose_server_is_its_daemon_is_refused() {
    let scratch = Scratch::new();
    let own = scratch.join("nbd.sock");
    let text = format!(
        "[[device]]\nname = \"disk\"\nkind = \"nbd\"\n[[vm]]\nname = \"a\"\n[[vm.disk]]\n\
         uri = \"nbd+unix:///a?socket={}\"\n",
        own.display()
    );
    let mut daemon = Daemon::begin_in(scratch, &text);
    assert!(!daemon.wait().success());
    assert!(
        daemon.logged(&["its server is this daemon"]),
        "{}",
        daemon.log()
    );
}

/// Sends commands of QMP to a socket and waits for their answers.
fn qmp(socket: &Path, commands: &[&str]) {
    let stream = UnixStream::connect(socket).expect("its socket");
    let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
    let mut next = || json(&lines.next().expect("a line").expect("text"));
    assert!(next()["QMP"].is_object(), "it greets");
    for command in ["{\"execute\": \"qmp_capabilities\"}"]
        .iter()
        .chain(commands)
    {
        writeln!(&stream, "{command}").expect("it listens");
        let answer = loop {
            let answer = next();
            if answer["event"].is_null() {
                break answer;
            }
        };
        assert!(answer["error"].is_null(), "{command}: {answer}");
    }
}

/// Starts qemu-storage-daemon on an image with a backing file, and makes one for a snapshot.
fn qcow2(scratch: &Scratch) -> Running {
    let base = ["create", "-q", "-f", "raw", "base.raw", "16M"];
    let disk = "create -q -f qcow2 -b base.raw -F raw disk.qcow2";
    let later = "create -q -f qcow2 -b disk.qcow2 -F qcow2 later.qcow2";
    run(scratch, "qemu-img", &base);
    let fill = ["-f", "raw", "-c", "write -P 1 0 64k", "base.raw"];
    run(scratch, "qemu-io", &fill);
    for create in [disk, later] {
        let args: Vec<&str> = create.split(' ').collect();
        run(scratch, "qemu-img", &args);
    }
    let (socket, monitor) = (scratch.join("server.sock"), scratch.join("qmp.sock"));
    let server = format!("addr.type=unix,addr.path={}", socket.display());
    let chardev = format!(
        "socket,id=qmp,server=on,wait=off,path={}",
        monitor.display()
    );
    let args = [
        "--blockdev",
        "driver=qcow2,node-name=disk,file.driver=file,file.filename=disk.qcow2",
        "--nbd-server",
        &server,
        "--export",
        "type=nbd,id=disk,node-name=disk,name=disk,writable=on",
        "--chardev",
        &chardev,
        "--monitor",
        "chardev=qmp",
    ];
    let storage = Running::start(scratch, "qemu-storage-daemon", &args);
    wait_for("qemu-storage-daemon", || {
        monitor.exists() && UnixStream::connect(&socket).is_ok()
    });
    storage
}

/// Commands that go on in `later.qcow2`, so that `disk.qcow2` is a snapshot.
const SNAPSHOT: [&str; 2] = [
    r#"{"execute": "blockdev-add", "arguments": {"driver": "qcow2", "node-name": "later",
        "backing": null, "file": {"driver": "file", "filename": "later.qcow2"}}}"#,
    r#"{"execute": "blockdev-snapshot", "arguments": {"node": "disk", "overlay": "later"}}"#,
];

#[test]
fn a_qcow2_image_with_a_backing_file_and_a_snapshot_is_a_disk() {
    if !have(&["qemu-storage-daemon", "qemu-img", "qemu-io"]) {
        return;
    }
    let scratch = Scratch::new();
    let storage = qcow2(&scratch);
    let text = config(&scratch, Transport::Socket, "disk");
    let mut daemon = Daemon::start_in(scratch, &text);
    let uri = daemon.uri("a");
    let before = ["read -P 1 0 64k", "write -P 2 64k 64k", "flush"];
    qemu_io(daemon.scratch(), &uri, &before);
    qmp(&daemon.path("qmp.sock"), &SNAPSHOT);
    let after = [
        "read -P 2 64k 64k",
        "write -P 3 64k 64k",
        "flush",
        "read -P 3 64k 64k",
    ];
    qemu_io(daemon.scratch(), &uri, &after);
    daemon.signal("TERM");
    assert!(daemon.wait().success());
    drop(storage);
    for (image, format, command) in [
        ("base.raw", "raw", "read -P 0 64k 64k"),
        ("disk.qcow2", "qcow2", "read -P 2 64k 64k"),
        ("later.qcow2", "qcow2", "read -P 3 64k 64k"),
        ("later.qcow2", "qcow2", "read -P 1 0 64k"),
    ] {
        let args = ["-f", format, "-c", command, image];
        let out = run(daemon.scratch(), "qemu-io", &args);
        assert!(!out.contains("fail"), "{image}: {out}");
    }
}
