//! Bytes over TLS: those that were written are read, in whatever pieces they come, and both sides
//! learn how a connection ended.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Instant;

use tidegate_core::objective::Objective;
use tidegate_nbd::Command;
use tidegate_nbd::client::{encode_disconnect, encode_request};
use tidegate_server::config::{ListenAddress, ListenConfig};

use super::authority::Authority;
use super::bridge::{Bridge, PATIENCE, TlsClient, ask, named, option};
use super::{tls, with_tls};
use crate::common::shadow::{Plan, run};
use crate::common::{Client, Server, disk, request, vm, wait};
use crate::isolation::{crowd, fill, is_served};

const MIB: u64 = 1 << 20;
const GO: u32 = 7;

fn opened(client: &TlsClient, server: &Server, export: &str) -> Client {
    let bridge = client.connect(&server.addresses[1]).expect("TLS");
    Client::on(bridge.greet(), export, true)
}

#[test]
fn bytes_in_any_pieces_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::start(with_tls(dir.path(), 4 * MIB, tls(dir.path(), &authority)));
    let parts = [(1, 0), (8, 1), (32, 2), (100, 3)];
    std::thread::scope(|scope| {
        for (depth, part) in parts {
            let (server, authority) = (&server, &authority);
            scope.spawn(move || {
                let mut tls = TlsClient::new(authority, None);
                tls.cuts = Some(part);
                let mut client = opened(&tls, server, "disk");
                let plan = Plan {
                    seed: 31 + part,
                    start: part * MIB,
                    size: MIB,
                    block: 1,
                    blocks_max: 100_000,
                    depth,
                    requests: 600,
                };
                run(&mut client, &plan);
                client.disconnect();
            });
        }
    });
    server.stop().unwrap();
}

/// A client that takes nothing holds up itself alone, and loses nothing.
#[test]
fn replies_wait_for_a_client_that_takes_none() {
    const LEN: u32 = 1 << 20;
    // More than all sockets and buffers on the way hold.
    const READS: u64 = 48;
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let mut config = with_tls(dir.path(), 2 * MIB, tls(dir.path(), &authority));
    // Has payload memory of its own.
    let other = vm("other", 0, vec![disk("other", None, 2 * MIB)]);
    config.vms.push(other);
    let server = Server::start(config);
    let mut plain = server.connect("other");
    let pattern: Vec<u8> = (0..LEN).map(|i| (i / 251) as u8 ^ i as u8).collect();
    plain.write(0, &pattern);
    server.connect("disk").write(0, &pattern);
    let client = TlsClient::new(&authority, None);
    let mut slow = opened(&client, &server, "disk");
    for cookie in 0..READS {
        slow.send(request(Command::Read { df: false }, cookie, 0, LEN), &[]);
    }
    // Served beside it, also over TLS.
    assert_eq!(plain.read(0, LEN), pattern);
    assert_eq!(opened(&client, &server, "other").read(0, LEN), pattern);
    for _ in 0..READS {
        assert!(slow.receive().result.expect("read") == pattern);
    }
    slow.disconnect();
    server.stop().unwrap();
}

/// Bridge to the opened disk, without a client of its own.
fn raw(server: &Server, authority: &Authority) -> Bridge {
    let mut bridge = TlsClient::new(authority, None)
        .connect(&server.addresses[1])
        .expect("TLS");
    let replies = ask(&mut bridge.stream, GO, &named("disk")).expect("opened");
    assert_eq!(replies.last().expect("a reply").0, 1);
    bridge
}

#[test]
fn an_orderly_end_is_told_apart_from_one_that_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::start(with_tls(dir.path(), MIB, tls(dir.path(), &authority)));
    // The client leaves in order: by NBD, by TLS, and during the handshake.
    let mut left = raw(&server, &authority);
    left.stream.write_all(&encode_disconnect()).unwrap();
    left.ended().expect("close_notify");
    let closed = raw(&server, &authority);
    closed.stream.shutdown(Shutdown::Write).unwrap();
    closed.ended().expect("close_notify");
    let client = TlsClient::new(&authority, None);
    let mut aborted = client.connect(&server.addresses[1]).expect("TLS");
    aborted.stream.write_all(&option(2, b"")).unwrap();
    aborted.ended().expect("close_notify");
    // The client breaks a rule of NBD, and is closed as with NBD_CMD_DISC.
    let mut broken = raw(&server, &authority);
    broken.stream.write_all(&[7; 28]).unwrap();
    broken.ended().expect("close_notify");
    // The server ends.
    let mut stays = raw(&server, &authority);
    // Once a request is answered the loop has the connection. A simple reply has 16 bytes.
    let read = request(Command::Read { df: false }, 1, 0, 512);
    stays.stream.write_all(&encode_request(&read)).unwrap();
    stays.stream.read_exact(&mut [0; 16 + 512]).unwrap();
    server.stop().unwrap();
    stays.ended().expect("close_notify");
}

#[test]
fn requests_before_a_close_notify_are_carried_out() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::start(with_tls(dir.path(), 4 * MIB, tls(dir.path(), &authority)));
    let mut bridge = TlsClient::new(&authority, None)
        .connect(&server.addresses[1])
        .expect("TLS");
    // All in one: option, writes, disconnect, end. Nothing waits for an answer.
    let mut bytes = option(GO, &named("disk"));
    for at in 0..64u64 {
        bytes.extend(encode_request(&request(
            Command::Write,
            at,
            at << 16,
            1 << 16,
        )));
        bytes.extend(vec![at as u8 + 1; 1 << 16]);
    }
    bytes.extend(encode_disconnect());
    bridge.stream.write_all(&bytes).unwrap();
    bridge.stream.shutdown(Shutdown::Write).unwrap();
    bridge.ended().expect("close_notify");
    let mut client = server.connect("disk");
    for at in 0..64u64 {
        assert!(client.read(at << 16, 1 << 16) == vec![at as u8 + 1; 1 << 16]);
    }
    server.stop().unwrap();
}

/// The loop's messages name the client, not the tunnel, and a client that it cuts off is told.
#[test]
fn a_loop_knows_the_address_of_the_client_and_cuts_it_off() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::start(with_tls(dir.path(), MIB, tls(dir.path(), &authority)));
    let mut bridge = raw(&server, &authority);
    // Once a request is answered the loop has the connection. A simple reply has 16 bytes.
    let read = request(Command::Read { df: false }, 1, 0, 512);
    bridge.stream.write_all(&encode_request(&read)).unwrap();
    bridge.stream.read_exact(&mut [0; 16 + 512]).unwrap();
    let address = bridge.tcp.local_addr().unwrap().to_string();
    let refused = wait(server.handle.remove_vm("disk", false)).expect_err("it is in use");
    assert!(refused.to_string().contains(&address), "{refused}");
    wait(server.handle.remove_vm("disk", true)).expect("by force");
    bridge.ended().expect("close_notify");
    server.stop().unwrap();
}

/// A connection that breaks below TLS is closed, whatever was under way.
#[test]
fn connections_that_are_cut_below_tls_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::start(with_tls(dir.path(), 2 * MIB, tls(dir.path(), &authority)));
    let connections = || {
        let vm = wait(server.handle.vm_snapshot("disk"));
        vm.expect("served").connections.counts().open
    };
    for n in [0, 1, 28, 29, 5000, 70_000] {
        let mut bridge = raw(&server, &authority);
        let read = request(Command::Read { df: false }, 1, 0, 1 << 20);
        let write = request(Command::Write, 2, 0, 100_000);
        let mut bytes = encode_request(&write).to_vec();
        bytes.resize(bytes.len() + 60_000, 1);
        // Half of them while replies are on the way.
        let first = if n % 2 == 0 {
            encode_request(&read).to_vec()
        } else {
            Vec::new()
        };
        let bytes = [first, bytes].concat();
        bridge
            .stream
            .write_all(&bytes[..n.min(bytes.len())])
            .unwrap();
        bridge.tcp.shutdown(Shutdown::Both).unwrap();
        bridge.ended().expect_err("no close_notify");
        let begun = Instant::now();
        while connections() > 0 {
            assert!(
                begun.elapsed() < PATIENCE,
                "{n} bytes: the connection stays"
            );
            std::thread::yield_now();
        }
    }
    // Writes that did not come whole have changed nothing.
    assert_eq!(server.connect("disk").read(0, 1 << 20), vec![0; 1 << 20]);
    server.stop().unwrap();
}

/// Clients that take no replies have no more of the device's memory over TLS than without.
#[test]
fn another_vm_is_served_beside_clients_that_take_no_replies() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let mut config = crowd(dir.path(), 8, Objective::default());
    let listeners = with_tls(dir.path(), MIB, tls(dir.path(), &authority)).listeners;
    config.listeners = listeners;
    let server = Server::start(config);
    let client = TlsClient::new(&authority, None);
    let busy = (0..8).map(|n| {
        let mut busy = opened(&client, &server, &format!("busy{n}"));
        fill(&mut busy, Command::Read { df: false }, 64, 1 << 20);
        busy
    });
    let busy: Vec<_> = busy.collect();
    is_served(&server);
    server.stop().unwrap();
    drop(busy);
}

/// A daemon that ends does not wait for a client that takes nothing for longer than a while.
#[test]
fn the_end_does_not_wait_for_a_client_that_takes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::start(with_tls(dir.path(), 2 * MIB, tls(dir.path(), &authority)));
    let mut stuck = opened(&TlsClient::new(&authority, None), &server, "disk");
    for cookie in 0..48 {
        stuck.send(
            request(Command::Read { df: false }, cookie, 0, 1 << 20),
            &[],
        );
    }
    // Ends, or the test hangs; the client is still there.
    server.stop().unwrap();
    drop(stuck);
}

/// Over TLS the memory of its own VM is all that a client that stops can hold, as without.
#[test]
fn a_client_that_stops_in_a_write_is_closed_once_another_vm_waits() {
    const LEN: u32 = 32 << 20;
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let mut config = crowd(dir.path(), 2, Objective::default());
    // The VM's part is smaller than the largest request, so that the write is held in the reserve.
    config.devices[0].scheduling.buffer_memory = 64 << 20;
    config.listeners.push(ListenConfig {
        address: ListenAddress::Tcp(([127, 0, 0, 1], 0).into()),
        tls: Some(tls(dir.path(), &authority)),
        ..config.listeners[0].clone()
    });
    let server = Server::start(config);
    let client = TlsClient::new(&authority, None);
    let mut slow = opened(&client, &server, "busy0");
    slow.send(request(Command::Write, 7, 0, LEN), &[5; 1000]);
    // While no other VM waits for the reserve, the connection stays open.
    assert_eq!(server.connect("good").read(0, 4), [0; 4]);
    slow.stream.write_all(&[5; 1000]).unwrap();
    let mut other = opened(&client, &server, "busy1");
    other.write(0, &vec![3; LEN as usize]);
    // The end of the stream: a read that times out would panic.
    assert_eq!(slow.receive_if_any_whole(), None);
    let mut again = opened(&client, &server, "busy0");
    assert_eq!(again.read(0, 4096), [0; 4096], "it never came whole");
    server.stop().unwrap();
}
