//! Connections that end on SIGHUP, because their client has lost the right to them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use tidegate_server::config::{self, Config, ListenAddress, TlsConfig};

use super::authority::{Authority, Identity, VALID, write};
use super::bridge::TlsClient;
use super::certificates::{hang_up, reload_until};
use super::control::Controlled;
use super::{tls, with_tls};
use crate::common::control::http;
use crate::common::{Client, Server};

const MIB: u64 = 1 << 20;

/// Opens an export over TLS.
fn open(server: &Server, authority: &Authority, identity: &Identity, export: &str) -> Client {
    let client = TlsClient::new(authority, Some(identity));
    let bridge = client.connect(&server.addresses[1]).expect("admitted");
    Client::on(bridge.greet(), export, true)
}

/// Files of a listener that revokes certificates by `crl.pem`.
fn with_list(dir: &Path, authority: &Authority) -> TlsConfig {
    TlsConfig {
        client_ca: Some(write(dir, "client-ca.pem", &authority.pem())),
        client_crl: Some(write(dir, "crl.pem", &authority.revoke(&[], VALID))),
        ..tls(dir, authority)
    }
}

#[test]
fn connections_of_a_revoked_certificate_end_and_others_stay() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let [good, bad] = [0, 1].map(|_| authority.issue(&["host.example"], VALID));
    let config = with_tls(dir.path(), MIB, with_list(dir.path(), &authority));
    let server = Server::start(config);
    let [mut stays, mut idle, busy] =
        [&good, &bad, &bad].map(|identity| open(&server, &authority, identity, "disk"));
    stays.write(0, b"kept");
    idle.write(512, b"kept");
    // Requests without an end: the connection has always something to move.
    let busy = std::thread::spawn(move || {
        let mut busy = busy;
        while busy.read_if_open(0, 64 << 10).is_some() {}
    });
    // Nothing is withdrawn by a list that revokes nobody.
    hang_up();
    assert_eq!(idle.read(512, 4), b"kept");

    write(dir.path(), "crl.pem", &authority.revoke(&[&bad], VALID));
    reload_until("revoked", || idle.read_if_open(512, 4).is_none());
    busy.join().expect("it has ended, too");
    assert_eq!(stays.read(0, 4), b"kept");
    assert_eq!(stays.read(512, 4), b"kept");
    server.stop().unwrap();
}

#[test]
fn connections_of_an_outdated_list_stay_unless_it_revokes_them() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let [good, bad] = [0, 1].map(|_| authority.issue(&["host.example"], VALID));
    let config = with_tls(dir.path(), MIB, with_list(dir.path(), &authority));
    let server = Server::start(config);
    let [mut stays, mut ends] =
        [&good, &bad].map(|identity| open(&server, &authority, identity, "disk"));
    let outdated = authority.revoke(&[&bad], super::authority::OVER);
    write(dir.path(), "crl.pem", &outdated);
    reload_until("revoked", || ends.read_if_open(0, 4).is_none());
    assert_eq!(stays.read(0, 4), [0; 4]);
    server.stop().unwrap();
}

#[test]
fn connections_of_the_control_api_end_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let [good, bad] = [0, 1].map(|_| authority.issue(&["host.example"], VALID));
    let daemon = Controlled::start(dir.path(), &with_list(dir.path(), &authority));
    let token = daemon.token("t");
    let open = |identity: &Identity| {
        let client = TlsClient::new(&authority, Some(identity));
        let tcp = TcpStream::connect(&daemon.control).expect("it listens");
        client.start_tls(tcp).expect("admitted")
    };
    let (mut stays, mut ends) = (open(&good), open(&bad));
    let header = format!("authorization: Bearer {token}\r\n");
    for bridge in [&mut stays, &mut ends] {
        // Only an answer shows that the daemon has verified the certificate.
        let request = format!("GET /v1/vms HTTP/1.1\r\nhost: t\r\n{header}\r\n");
        bridge
            .stream
            .write_all(request.as_bytes())
            .expect("it is open");
        let mut answer = [0; 12];
        bridge.stream.read_exact(&mut answer).expect("it answers");
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
    write(dir.path(), "crl.pem", &authority.revoke(&[&bad], VALID));
    hang_up();
    // Cut off, and not idle for too long, after which the API says goodbye.
    ends.ended().expect_err("no close_notify");
    // Behind the rest of the first answer.
    let answers = http(&mut stays.stream, "GET", "/v1/vms", &header, "");
    assert!(answers.expect("it is open").contains("HTTP/1.1 200"));
}

/// Configuration in a file, whose clients have VMs as `clients` says.
fn in_file(dir: &Path, clients: &str) -> Config {
    let text = format!(
        "[[listen]]\nunix = \"nbd\"\n[[listen]]\ntcp = \"127.0.0.1:0\"\n[listen.tls]\n\
         certificate = \"server.pem\"\nprivate_key = \"server.key\"\n\
         client_ca = \"client-ca.pem\"\n{clients}\
         [[device]]\nname = \"device\"\nkind = \"memory\"\npolicy = \"fifo\"\n\
         [[vm]]\nname = \"a\"\n[[vm.disk]]\nexport = \"a\"\nsize = \"1 MiB\"\n\
         [[vm]]\nname = \"b\"\n[[vm.disk]]\nexport = \"b\"\nsize = \"1 MiB\"\n"
    );
    let path = write(dir, "tidegate.toml", &text);
    config::load(&path).expect("valid").config
}

#[test]
fn connections_of_an_export_that_a_client_does_not_have_any_more_end() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    drop(tls(dir.path(), &authority));
    write(dir.path(), "client-ca.pem", &authority.pem());
    let host = authority.issue(&["host.example"], VALID);
    let client =
        |vms: &str| format!("[[listen.tls.client]]\nnames = [\"host.example\"]\nvms = [{vms}]\n");
    let config = in_file(dir.path(), &client("\"a\", \"b\""));
    assert!(matches!(
        config.listeners[0].address,
        ListenAddress::Unix { .. }
    ));
    let server = Server::start(config);
    let [mut a, mut b] = ["a", "b"].map(|export| open(&server, &authority, &host, export));
    a.write(0, b"kept");
    // A configuration with errors changes nothing.
    write(dir.path(), "tidegate.toml", "[[listen]]\n");
    hang_up();
    assert_eq!(b.read(0, 4), [0; 4]);

    in_file(dir.path(), &client("\"a\""));
    reload_until("withdrawn", || b.read_if_open(0, 4).is_none());
    assert_eq!(a.read(0, 4), b"kept");
    // New connections go by the same rules, which a later change gives back.
    let certified = TlsClient::new(&authority, Some(&host));
    let offered = |export: &str| {
        let mut bridge = certified.connect(&server.addresses[1]).expect("admitted");
        let go = super::bridge::named(export);
        let replies = super::bridge::ask(&mut bridge.stream, 6, &go).expect("answered");
        replies.last().expect("a reply").0 == 1
    };
    assert!(offered("a") && !offered("b"));
    in_file(dir.path(), &client("\"a\", \"b\""));
    reload_until("given back", || offered("b"));
    assert_eq!(a.read(0, 4), b"kept");
    server.stop().unwrap();
}
