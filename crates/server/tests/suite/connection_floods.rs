//! Floods of connections, and connections that send nothing, do not lock out other clients.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Client, Server, disk, read, single, vm, wait};
use tidegate_nbd::client::{ClientError, Handshake, Progress, Wishes};
use tidegate_server::config::{Config, DeviceKind};

const MIB: u64 = 1 << 20;

/// Number of connections without a handshake that the flood keeps open, more than the daemon
/// allows.
const SILENT_CONNECTIONS: usize = 1500;

/// Deadline for a condition that is expected to come true.
const PATIENCE: Duration = Duration::from_secs(30);

/// Configuration with the VM `disk`, which may have `max_connections` connections, and the VM
/// `other`, each with one disk of its name.
fn two_vms(dir: &Path, max_connections: u32) -> Config {
    let mut config = single(dir, DeviceKind::Memory, None, MIB);
    config.vms[0].max_connections = max_connections;
    config
        .vms
        .push(vm("other", 0, vec![disk("other", None, MIB)]));
    config
}

/// Performs the handshake for an export that must be refused; returns the message to the client.
fn refusal(socket: &Path, export: &str) -> String {
    let mut stream = UnixStream::connect(socket).expect("a listener");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut handshake = Handshake::new(export, Wishes::default());
    let mut input = Vec::new();
    loop {
        match handshake.handle(&input) {
            Ok((used, progress)) => {
                input.drain(..used);
                match progress {
                    Progress::NeedMore(_) => {
                        let mut piece = [0; 4096];
                        let n = read(&mut stream, &mut piece).expect("the server answers");
                        assert!(n > 0, "closed without a word");
                        input.extend_from_slice(&piece[..n]);
                    }
                    Progress::StartTls => unreachable!("TLS is not required"),
                    Progress::Send => {
                        stream.write_all(handshake.output()).unwrap();
                        handshake.consume_output(handshake.output().len());
                    }
                    Progress::Ready(_) => panic!("the client was admitted"),
                }
            }
            Err(error @ ClientError::Refused { .. }) => return error.to_string(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until a condition holds; `what` describes it if it does not hold within [`PATIENCE`].
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_vm_at_its_maximum_of_connections_refuses_only_its_own_clients() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(two_vms(dir.path(), 3));
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect("disk")).collect();
    let message = refusal(&server.socket, "disk");
    assert!(
        message.contains("3 connections already") && message.contains("max_connections"),
        "{message}"
    );
    server.connect("other").write(0, b"not concerned");
    for client in &mut clients {
        client.write(0, b"nor those who were there before");
    }
    let counts = || {
        wait(server.handle.vm_snapshot("disk"))
            .unwrap()
            .connections
            .counts()
    };
    assert_eq!((counts().max, counts().open, counts().refused), (3, 3, 1));
    clients.pop();
    wait_until("the place is given back", || counts().open == 2);
    clients.push(server.connect("disk"));
    // A changed maximum applies to connections that are opened after the change.
    wait(server.handle.set_max_connections("disk", 4)).unwrap();
    clients.push(server.connect("disk"));
    refusal(&server.socket, "disk");
    assert_eq!(server.handle.half_open().counts().refused, 2);
}

#[test]
fn connections_are_reserved_for_vms_without_any() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(two_vms(dir.path(), 4096));
    // 16 of the device's 4096 connections are reserved for the other VM.
    let greedy: Vec<Client> = (0..4080).map(|_| server.connect("disk")).collect();
    let message = refusal(&server.socket, "disk");
    assert!(message.contains("reserved for other VMs"), "{message}");
    let others: Vec<Client> = (0..16).map(|_| server.connect("other")).collect();
    refusal(&server.socket, "other");
    drop((greedy, others));
}

#[test]
fn silent_connections_do_not_lock_out_clients() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(two_vms(dir.path(), 64));
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, socket) = (stop.clone(), server.socket.clone());
    // Keeps the maximum of connections open, and reopens those that are closed.
    let silent = std::thread::spawn(move || {
        let mut all: Vec<UnixStream> = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            all.retain_mut(|stream| {
                let mut piece = [0; 64];
                match stream.read(&mut piece) {
                    Ok(n) => n > 0,
                    Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
                }
            });
            while all.len() < SILENT_CONNECTIONS {
                let stream = UnixStream::connect(&socket).expect("a listener");
                stream.set_nonblocking(true).unwrap();
                all.push(stream);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let counts = || server.handle.half_open().counts();
    wait_until("there are many silent ones", || counts().half_open >= 64);
    for _ in 0..5 {
        server.connect("disk").write(0, b"served");
    }
    wait_until("silent ones gave way", || {
        counts().displaced + counts().displaced_by_peer > 0
    });
    stop.store(true, Ordering::Relaxed);
    silent.join().unwrap();
    wait_until("no connection is half-open", || counts().half_open == 0);
}
