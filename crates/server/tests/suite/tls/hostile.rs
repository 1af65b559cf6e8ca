//! Peers that break rules of TLS, or inject bytes: they are cut off, and nobody else notices.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tidegate_server::config::TlsConfig;

use super::authority::{Authority, VALID, write};
use super::bridge::{PATIENCE, STARTTLS, TlsClient, ask, named, option, plain};
use super::{tls, with_tls};
use crate::common::{Client, Server};

const MIB: u64 = 1 << 20;
const GO: u32 = 7;

/// Reads to the end of a connection and returns what came.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => rest,
        // Bytes that the server left unread make its close a reset.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => rest,
        Err(error) => panic!("the server has not closed the connection: {error}"),
    }
}

fn is_served(server: &Server, authority: &Authority) {
    let bridge = TlsClient::new(authority, None)
        .connect(&server.addresses[1])
        .expect("TLS");
    let mut client = Client::on(bridge.greet(), "disk", true);
    client.write(0, b"served");
    assert_eq!(client.read(0, 6), b"served");
    client.disconnect();
}

#[test]
fn plain_text_before_tls_is_never_taken_into_it() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let config = TlsConfig {
        // What is injected would be answered, were it interpreted in plain text.
        plain_exports: vec!["disk".to_owned()],
        ..tls(dir.path(), &authority)
    };
    let server = Server::start(with_tls(dir.path(), MIB, config));
    let address = &server.addresses[1];
    let injected = option(GO, &named("disk"));
    for n in [1, 15, injected.len()] {
        // In one segment with the option: there is no answer.
        let mut stream = plain(address);
        let bytes = [option(STARTTLS, b""), injected[..n].to_vec()].concat();
        stream.write_all(&bytes).unwrap();
        assert_eq!(rest(&mut stream), b"", "{n} bytes");
        // Behind the acknowledgement: no record of TLS, so at most an alert comes.
        let mut stream = plain(address);
        assert_eq!(ask(&mut stream, STARTTLS, b"").unwrap(), [(1, vec![])]);
        stream.write_all(&injected[..n]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let answer = rest(&mut stream);
        assert!(
            answer.is_empty() || answer[0] == 21,
            "{n} bytes: {answer:?}"
        );
    }
    // A client that keeps the rules, with the same bytes in its own plain text before.
    let mut stream = plain(address);
    ask(&mut stream, 8, b"").unwrap();
    assert_eq!(ask(&mut stream, STARTTLS, b"").unwrap(), [(1, vec![])]);
    let mut bridge = TlsClient::new(&authority, None)
        .start_tls(stream)
        .expect("TLS");
    // Structured replies are forgotten, without which there are no contexts.
    let meta = [&named("disk")[..8], &[0; 4]].concat();
    let refused = ask(&mut bridge.stream, 10, &meta).unwrap();
    assert_eq!(refused[0].0, 1 << 31 | 3);
    server.stop().unwrap();
}

#[test]
fn garbage_ends_a_connection_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::start(with_tls(dir.path(), MIB, tls(dir.path(), &authority)));
    let mut rng = Pcg64::seed_from_u64(5);
    let bridge = TlsClient::new(&authority, None)
        .connect(&server.addresses[1])
        .expect("TLS");
    let mut other = Client::on(bridge.greet(), "disk", true);
    for round in 0..64 {
        let mut stream = plain(&server.addresses[1]);
        assert_eq!(ask(&mut stream, STARTTLS, b"").unwrap(), [(1, vec![])]);
        let mut garbage = vec![0; rng.random_range(1..3000)];
        rng.fill_bytes(&mut garbage);
        if round % 2 == 0 {
            // Head of a record with a handshake message, so that it is looked into.
            let len = (garbage.len() as u16).to_be_bytes();
            garbage.splice(..0, [22, 3, 1, len[0], len[1]]);
        }
        // The server may have closed it meanwhile.
        let _ = stream.write_all(&garbage);
        let _ = stream.shutdown(Shutdown::Write);
        let answer = rest(&mut stream);
        assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
        assert_eq!(other.read(0, 512), [0; 512]);
    }
    is_served(&server, &authority);
    server.stop().unwrap();
}

/// Passes on what client and server send each other, and turns one bit of the client's bytes.
fn tamper(mut client: TcpStream, mut server: TcpStream, at: usize) {
    let (mut back, mut replies) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let down = std::thread::spawn(move || {
        // Either may be closed at any time.
        let _ = std::io::copy(&mut replies, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    let (mut seen, mut piece) = (0, [0; 4096]);
    while let Ok(n @ 1..) = client.read(&mut piece) {
        if (seen..seen + n).contains(&at) {
            piece[at - seen] ^= 1;
        }
        seen += n;
        if server.write_all(&piece[..n]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Write);
    down.join().unwrap();
}

/// A bit that turns on the way is noticed by the server, which carries out no such request.
#[test]
fn records_that_were_changed_are_not_carried_out() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::start(with_tls(dir.path(), MIB, tls(dir.path(), &authority)));
    let mut plainly = server.connect("disk");
    // In the handshake, in the options and in the payload of the write.
    for at in [10, 300, 1000, 5000, 20_000] {
        let between = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = between.local_addr().unwrap().to_string();
        let target = TcpStream::connect(&server.addresses[1]).unwrap();
        let middle = std::thread::spawn(move || {
            let (client, _) = between.accept().unwrap();
            // Counted from TLS on: flags and option come first, 20 bytes.
            tamper(client, target, 20 + at);
        });
        let tampered = TlsClient::new(&authority, None)
            .connect(&address)
            .and_then(|mut bridge| {
                ask(&mut bridge.stream, GO, &named("disk"))?;
                let write = crate::common::request(tidegate_nbd::Command::Write, 1, 0, 64 << 10);
                let mut bytes = tidegate_nbd::client::encode_request(&write).to_vec();
                bytes.extend(vec![0xaa; 64 << 10]);
                // The connection may end before all is sent.
                let _ = bridge.stream.write_all(&bytes);
                bridge.stream.read_exact(&mut [0; 16])
            });
        tampered.expect_err("no reply");
        middle.join().unwrap();
        assert_eq!(plainly.read(0, 64 << 10), vec![0; 64 << 10], "{at}");
    }
    is_served(&server, &authority);
    server.stop().unwrap();
}

/// Clients that stall in the handshake of TLS keep nobody from being served, and are cut off.
#[test]
fn a_handshake_that_stalls_is_cut_off_and_delays_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::start(with_tls(dir.path(), MIB, tls(dir.path(), &authority)));
    let mut stalled: Vec<TcpStream> = (0..100)
        .map(|i| {
            let mut stream = plain(&server.addresses[1]);
            assert_eq!(ask(&mut stream, STARTTLS, b"").unwrap(), [(1, vec![])]);
            // Nothing, or the beginning of a record.
            stream.write_all(&[22, 3, 1, 2, 0, 1][..i % 7]).unwrap();
            stream
        })
        .collect();
    is_served(&server, &authority);
    let before = server.handle.half_open().counts();
    assert_eq!(before.half_open, 100);
    for stream in &mut stalled {
        assert_eq!(rest(stream), b"");
    }
    // Counted once the socket is closed.
    let begun = Instant::now();
    while server.handle.half_open().counts().timed_out < 100 {
        assert!(begun.elapsed() < PATIENCE, "not every one has timed out");
        std::thread::yield_now();
    }
    is_served(&server, &authority);
    server.stop().unwrap();
}

/// Options of a client count only once its certificate was verified.
#[test]
fn a_client_without_a_certificate_learns_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let config = TlsConfig {
        client_ca: Some(write(dir.path(), "client-ca.pem", &authority.pem())),
        ..tls(dir.path(), &authority)
    };
    let server = Server::start(with_tls(dir.path(), MIB, config));
    let nobody = TlsClient::new(&authority, None);
    // In TLS 1.3 it may send options before it is refused.
    if let Ok(mut bridge) = nobody.connect(&server.addresses[1]) {
        let answer = ask(&mut bridge.stream, 3, b"");
        answer.expect_err("nothing is listed");
    }
    let identity = authority.issue(&["a.example"], VALID);
    let known = TlsClient::new(&authority, Some(&identity));
    let bridge = known.connect(&server.addresses[1]).expect("TLS");
    Client::on(bridge.greet(), "disk", true).disconnect();
    server.stop().unwrap();
}
