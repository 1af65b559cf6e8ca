//! Bytes over TLS: those that were written are read, in whatever pieces they come, and both sides
//! learn how a connection ended.

use std::io::Write;
use std::net::Shutdown;

use tidegate_nbd::Command;
use tidegate_nbd::client::{encode_disconnect, encode_request};

use super::authority::Authority;
use super::bridge::{Bridge, TlsClient, ask, named, option};
use super::{tls, with_tls};
use crate::common::shadow::{Plan, run};
use crate::common::{Client, Server, disk, request, vm};

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
    let versions = [&rustls::version::TLS12, &rustls::version::TLS13];
    let parts = [(1, 0), (8, 1), (32, 2), (100, 3)];
    std::thread::scope(|scope| {
        for (depth, part) in parts {
            let (server, authority) = (&server, &authority);
            let version = versions[part as usize % 2];
            scope.spawn(move || {
                let mut tls = TlsClient::of_versions(authority, None, &[version]);
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
    let stays = raw(&server, &authority);
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
