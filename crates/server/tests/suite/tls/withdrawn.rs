//! Connections that end on SIGHUP, because their client has lost the right to them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use tidegate_server::config::{self, Config, TlsConfig};

use super::authority::{Authority, Identity, VALID, write};
use super::bridge::{Bridge, TlsClient, ask, named};
use super::certificates::{admitted, hang_up, read_all_again, reload_until};
use super::control::Controlled;
use super::{tls, with_tls};
use crate::common::control::http;
use crate::common::{Client, Server};

const MIB: u64 = 1 << 20;
const GO: u32 = 7;

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
    read_all_again(&server.addresses[1], dir.path(), Some(&good));
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
fn a_certificate_in_any_list_of_its_authority_reads_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let [good, first, second] = [0, 1, 2].map(|_| authority.issue(&["host.example"], VALID));
    // No certificate says of which part it is, so the verifier looks at the first list alone.
    let lists = [("1", &first), ("2", &second)].map(|(number, revoked)| {
        let part = format!("http://ca.example/{number}.crl");
        authority.revoke_in_part(Some(&part), &[revoked], VALID)
    });
    let files = with_list(dir.path(), &authority);
    write(dir.path(), "crl.pem", &lists.concat());
    let server = Server::start(with_tls(dir.path(), MIB, files));
    let reads = |identity: &Identity| {
        let client = TlsClient::new(&authority, Some(identity));
        let mut bridge = client.connect(&server.addresses[1])?;
        ask(&mut bridge.stream, GO, &named("disk"))?;
        // A read of four bytes at the beginning.
        let (magic, rest) = (0x2560_9513_u32.to_be_bytes(), [0; 20]);
        let request = [&magic[..], &rest, &4_u32.to_be_bytes()].concat();
        bridge.stream.write_all(&request)?;
        bridge.stream.read_exact(&mut [0; 16 + 4])
    };
    reads(&good).expect("in no list");
    reads(&first).expect_err("in the first list");
    reads(&second).expect_err("in the second list");
    server.stop().unwrap();
}

#[test]
fn connections_of_the_control_api_end_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let [good, bad] = [0, 1].map(|_| authority.issue(&["host.example"], VALID));
    let daemon = Controlled::start(dir.path(), &with_list(dir.path(), &authority));
    let token = daemon.token("t");
    let [mut stays, ends] = [&good, &bad].map(|identity| {
        served(
            &daemon.control,
            &TlsClient::new(&authority, Some(identity)),
            &token,
        )
    });
    write(dir.path(), "crl.pem", &authority.revoke(&[&bad], VALID));
    hang_up();
    // Cut off, and not idle for too long, after which the API says goodbye.
    ends.ended().expect_err("no close_notify");
    assert!(is_served(&mut stays, &token));
}

/// Connects to the control API, whose first answer shows that the daemon has verified the client's
/// certificate.
fn served(address: &str, client: &TlsClient, token: &str) -> Bridge {
    let tcp = TcpStream::connect(address).expect("it listens");
    let mut bridge = client.start_tls(tcp).expect("TLS");
    let header = format!("authorization: Bearer {token}\r\n");
    let request = format!("GET /v1/vms HTTP/1.1\r\nhost: t\r\n{header}\r\n");
    bridge
        .stream
        .write_all(request.as_bytes())
        .expect("it is open");
    let mut answer = [0; 12];
    bridge.stream.read_exact(&mut answer).expect("it answers");
    assert_eq!(&answer, b"HTTP/1.1 200");
    bridge
}

/// Makes the last request of a connection to the control API.
fn is_served(bridge: &mut Bridge, token: &str) -> bool {
    let header = format!("authorization: Bearer {token}\r\n");
    let answers = http(&mut bridge.stream, "GET", "/v1/vms", &header, "");
    // Behind the rest of the first answer.
    answers.expect("it is open").contains("HTTP/1.1 200")
}

const UNIX: &str = "[[listen]]\nunix = \"nbd\"\n";

/// Writes a configuration whose last listener has TLS with `client-ca.pem` and further keys, behind
/// other sections.
fn in_file(dir: &Path, sections: &str, tls: &str) -> Config {
    let text = format!(
        "{sections}[[listen]]\ntcp = \"127.0.0.1:0\"\n[listen.tls]\n{FILES}{tls}\
         [[device]]\nname = \"device\"\nkind = \"memory\"\npolicy = \"fifo\"\n\
         [[vm]]\nname = \"a\"\n[[vm.disk]]\nexport = \"a\"\nsize = \"1 MiB\"\n\
         [[vm]]\nname = \"b\"\n[[vm.disk]]\nexport = \"b\"\nsize = \"1 MiB\"\n"
    );
    let path = write(dir, "tidegate.toml", &text);
    config::load(&path).expect("valid").config
}

const FILES: &str = "certificate = \"server.pem\"\nprivate_key = \"server.key\"\n\
                     client_ca = \"client-ca.pem\"\n";
const LIST: &str = "client_crl = \"crl.pem\"\n";

/// Section that gives clients named `host.example` some VMs.
fn client(vms: &str) -> String {
    format!("[[listen.tls.client]]\nnames = [\"host.example\"]\nvms = [{vms}]\n")
}

/// Writes the files of [`in_file`].
fn write_files(dir: &Path, authority: &Authority) {
    drop(tls(dir, authority));
    write(dir, "client-ca.pem", &authority.pem());
}

/// Returns true if an export exists for a client.
fn is_offered(server: &Server, client: &TlsClient, export: &str) -> bool {
    let mut bridge = client.connect(&server.addresses[1]).expect("admitted");
    let replies = ask(&mut bridge.stream, 6, &named(export)).expect("answered");
    replies.last().expect("a reply").0 == 1
}

#[test]
fn connections_of_an_export_that_a_client_does_not_have_any_more_end() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    write_files(dir.path(), &authority);
    let host = authority.issue(&["host.example"], VALID);
    let config = in_file(dir.path(), UNIX, &client("\"a\", \"b\""));
    let server = Server::start(config);
    let [mut a, mut b] = ["a", "b"].map(|export| open(&server, &authority, &host, export));
    a.write(0, b"kept");
    // A configuration with errors changes nothing, and the files are read nevertheless.
    write(dir.path(), "tidegate.toml", "[[listen]]\n");
    let other = read_all_again(&server.addresses[1], dir.path(), Some(&host));
    assert_eq!(b.read(0, 4), [0; 4]);

    // Without the listener in front: listeners are found by their address.
    in_file(dir.path(), "", &client("\"a\""));
    reload_until("withdrawn", || b.read_if_open(0, 4).is_none());
    assert_eq!(a.read(0, 4), b"kept");
    // New connections go by the same rules, which a later change gives back.
    let certified = TlsClient::new(&other, Some(&host));
    let offered = |export: &str| is_offered(&server, &certified, export);
    assert!(offered("a") && !offered("b"));
    in_file(dir.path(), UNIX, &client("\"a\", \"b\""));
    reload_until("given back", || offered("b"));
    assert_eq!(a.read(0, 4), b"kept");
    server.stop().unwrap();
}

/// A section that is deleted by mistake would give every disk to every client.
#[test]
fn deleting_the_last_client_gives_nobody_more_exports() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    write_files(dir.path(), &authority);
    let host = authority.issue(&["host.example"], VALID);
    let server = Server::start(in_file(dir.path(), UNIX, &client("\"a\"")));
    in_file(dir.path(), UNIX, "");
    let other = read_all_again(&server.addresses[1], dir.path(), Some(&host));
    let certified = TlsClient::new(&other, Some(&host));
    let offered = |export: &str| is_offered(&server, &certified, export);
    assert!(offered("a") && !offered("b"));
    // What the configuration has later is taken over.
    in_file(dir.path(), UNIX, &client("\"b\""));
    reload_until("changed", || offered("b"));
    assert!(!offered("a"));
    server.stop().unwrap();
}

#[test]
fn a_list_that_the_configuration_names_later_revokes_clients() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    write_files(dir.path(), &authority);
    let [good, bad] = [0, 1].map(|_| authority.issue(&["host.example"], VALID));
    let server = Server::start(in_file(dir.path(), UNIX, ""));
    let [mut stays, mut ends] =
        [&good, &bad].map(|identity| open(&server, &authority, identity, "a"));
    write(dir.path(), "crl.pem", &authority.revoke(&[&bad], VALID));
    in_file(dir.path(), UNIX, LIST);
    reload_until("revoked", || ends.read_if_open(0, 4).is_none());
    assert_eq!(stays.read(0, 4), [0; 4]);
    let client = |identity: &Identity| TlsClient::new(&authority, Some(identity));
    admitted(&server, &client(&bad)).expect_err("revoked");
    admitted(&server, &client(&good)).expect("not revoked");
    server.stop().unwrap();
}

#[test]
fn a_list_that_the_configuration_names_later_concerns_the_control_api() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    write_files(dir.path(), &authority);
    let control = |list: &str| {
        format!(
            "[control]\nsocket = \"control.sock\"\n[store]\npath = \"s.redb\"\n\
             [[control.listen]]\ntcp = \"127.0.0.1:0\"\n[control.listen.tls]\n{FILES}{list}\
             [[metrics]]\ntcp = \"127.0.0.1:0\"\n[metrics.tls]\n{FILES}{UNIX}"
        )
    };
    let [good, bad] = [0, 1].map(|_| authority.issue(&["host.example"], VALID));
    let daemon = Controlled::serve(in_file(dir.path(), &control(""), ""));
    let token = daemon.token("t");
    let [mut stays, ends] = [&good, &bad].map(|identity| {
        served(
            &daemon.control,
            &TlsClient::new(&authority, Some(identity)),
            &token,
        )
    });
    write(dir.path(), "crl.pem", &authority.revoke(&[&bad], VALID));
    in_file(dir.path(), &control(LIST), "");
    hang_up();
    ends.ended().expect_err("no close_notify");
    assert!(is_served(&mut stays, &token));
}

#[test]
fn connections_of_an_authority_that_is_trusted_no_more_end() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, leaves) = (Authority::new("ca"), Authority::new("leaves"));
    let both = authority.pem() + &leaves.pem();
    let config = TlsConfig {
        client_ca: Some(write(dir.path(), "client-ca.pem", &both)),
        ..tls(dir.path(), &authority)
    };
    let server = Server::start(with_tls(dir.path(), MIB, config));
    let [good, bad] = [&authority, &leaves].map(|issuer| issuer.issue(&["host.example"], VALID));
    let [mut stays, mut ends] =
        [&good, &bad].map(|identity| open(&server, &authority, identity, "disk"));
    write(dir.path(), "client-ca.pem", &authority.pem());
    reload_until("withdrawn", || ends.read_if_open(0, 4).is_none());
    assert_eq!(stays.read(0, 4), [0; 4]);
    server.stop().unwrap();
}
