//! Certificates: who is admitted, and what changes on SIGHUP.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rcgen::ExtendedKeyUsagePurpose;
use tidegate_server::config::{ListenConfig, TlsConfig};

use super::authority::{Authority, Identity, OVER, VALID, write};
use super::bridge::{PATIENCE, TlsClient, ask};
use super::{tls, with_tls};
use crate::common::Server;

const MIB: u64 = 1 << 20;
const LIST: u32 = 3;

/// Returns an error unless the client is admitted, which it learns with the first reply: in TLS
/// 1.3 its own handshake ends before the server has seen its certificate.
pub(super) fn admitted(server: &Server, client: &TlsClient) -> io::Result<()> {
    admitted_at(&server.addresses[1], client)
}

fn admitted_at(address: &str, client: &TlsClient) -> io::Result<()> {
    let mut bridge = client.connect(address)?;
    ask(&mut bridge.stream, LIST, b"").map(drop)
}

fn starts(dir: &Path, tls: TlsConfig) -> Server {
    Server::start(with_tls(dir, MIB, tls))
}

fn needing_certificates(dir: &Path, authority: &Authority) -> TlsConfig {
    TlsConfig {
        client_ca: Some(write(dir, "client-ca.pem", &authority.pem())),
        ..tls(dir, authority)
    }
}

#[test]
fn only_clients_with_a_valid_certificate_are_admitted() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("ca"), Authority::new("ca"));
    let server = starts(dir.path(), needing_certificates(dir.path(), &authority));
    let client =
        |identity: Option<&Identity>| admitted(&server, &TlsClient::new(&authority, identity));
    let good = authority.issue(&["host.example"], VALID);
    client(Some(&good)).expect("admitted");
    client(None).expect_err("no certificate");
    let expired = authority.issue(&["host.example"], OVER);
    client(Some(&expired)).expect_err("expired");
    let early = authority.issue(&["host.example"], (3000, 4000));
    client(Some(&early)).expect_err("not valid yet");
    // Of an authority with the same name.
    let foreign = other.issue(&["host.example"], VALID);
    client(Some(&foreign)).expect_err("of another authority");
    client(Some(&good)).expect("still admitted");
    server.stop().unwrap();
}

/// TLS 1.2 cannot change the keys of a connection that has encrypted all that they may encrypt.
#[test]
fn clients_without_tls_1_3_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = starts(dir.path(), tls(dir.path(), &authority));
    let client = |versions: &[_]| {
        let client = TlsClient::of_versions(&authority, None, versions);
        admitted(&server, &client)
    };
    client(&[&rustls::version::TLS12]).expect_err("TLS 1.2 alone");
    client(&[&rustls::version::TLS12, &rustls::version::TLS13]).expect("TLS 1.3");
    server.stop().unwrap();
}

/// A listener's certificate from the same authority is none of a client.
#[test]
fn certificates_for_servers_alone_admit_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = starts(dir.path(), needing_certificates(dir.path(), &authority));
    let client = |purposes: &[ExtendedKeyUsagePurpose]| {
        let identity = authority.issue_for(&["host.example"], VALID, purposes);
        admitted(&server, &TlsClient::new(&authority, Some(&identity)))
    };
    use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
    client(&[ServerAuth]).expect_err("for servers");
    client(&[ClientAuth]).expect("for clients");
    client(&[ServerAuth, ClientAuth]).expect("for both");
    client(&[]).expect("for everything, as it names no purpose");
    server.stop().unwrap();
}

#[test]
fn clients_refuse_a_server_with_another_name_or_an_expired_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = starts(dir.path(), tls(dir.path(), &authority));
    let mut client = TlsClient::new(&authority, None);
    admitted(&server, &client).expect("the right name");
    client.server = "other.example";
    admitted(&server, &client).expect_err("another name");
    let stranger = TlsClient::new(&Authority::new("ca"), None);
    admitted(&server, &stranger).expect_err("another authority");
    server.stop().unwrap();
    let expired = authority.issue(&["server.example"], OVER);
    let config = TlsConfig {
        certificate: write(dir.path(), "old.pem", &expired.certificate),
        private_key: write(dir.path(), "old.key", &expired.key),
        ..tls(dir.path(), &authority)
    };
    let server = starts(dir.path(), config);
    admitted(&server, &TlsClient::new(&authority, None)).expect_err("expired");
    server.stop().unwrap();
}

#[test]
fn revoked_certificates_and_outdated_lists_admit_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let [good, bad] = [0, 1].map(|_| authority.issue(&["host.example"], VALID));
    let start = |list: &str| {
        let config = TlsConfig {
            client_crl: Some(write(dir.path(), "crl.pem", list)),
            ..needing_certificates(dir.path(), &authority)
        };
        starts(dir.path(), config)
    };
    let client = |identity: &Identity| TlsClient::new(&authority, Some(identity));
    let server = start(&authority.revoke(&[&bad], VALID));
    admitted(&server, &client(&good)).expect("not revoked");
    admitted(&server, &client(&bad)).expect_err("revoked");
    server.stop().unwrap();
    // Those that were revoked last may be missing in it.
    let server = start(&authority.revoke(&[], OVER));
    admitted(&server, &client(&good)).expect_err("the list is outdated");
    server.stop().unwrap();
    // A list of another authority says nothing of these certificates.
    let server = start(&Authority::new("other").revoke(&[], VALID));
    admitted(&server, &client(&good)).expect_err("no list of their authority");
    server.stop().unwrap();
}

/// A certificate that names no distribution point is in each list with a part of its authority's
/// certificates, as far as a verifier knows.
#[test]
fn each_list_of_an_authority_has_to_be_up_to_date_and_signed_by_it() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let forger = Authority::new("ca");
    let good = authority.issue(&["host.example"], VALID);
    let part = |issuer: &Authority, part: u8, years| {
        let part = format!("http://ca.example/{part}.crl");
        issuer.revoke_in_part(Some(&part), &[], years)
    };
    let admits = |lists: [String; 3]| {
        let config = TlsConfig {
            client_crl: Some(write(dir.path(), "crl.pem", &lists.concat())),
            ..needing_certificates(dir.path(), &authority)
        };
        let server = starts(dir.path(), config);
        let admitted = admitted(&server, &TlsClient::new(&authority, Some(&good)));
        server.stop().unwrap();
        admitted
    };
    let valid = |number| part(&authority, number, VALID);
    admits([valid(1), valid(2), valid(3)]).expect("all are up to date");
    for (at, what) in [(0, "first"), (1, "second"), (2, "third")] {
        for (issuer, years) in [(&authority, OVER), (&forger, VALID)] {
            let mut lists = [valid(1), valid(2), valid(3)];
            lists[at] = part(issuer, 9, years);
            admits(lists).expect_err(what);
        }
    }
}

/// Sends SIGHUP to this process, whose daemons handle it.
pub(super) fn hang_up() {
    // The shell's own `kill`, for not every machine has the program.
    let command = format!("kill -HUP {}", std::process::id());
    let sent = Command::new("sh").args(["-c", &command]).status().unwrap();
    assert!(sent.success());
}

/// Sends SIGHUP until it has had its effect; other tests' daemons get it as well.
pub(super) fn reload_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    hang_up();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not in {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
}

/// Has a daemon read everything again, and waits until that has had its effect, for all listeners
/// of the kind. The certificate of the listener at `address`, with its files in `dir`, shows that;
/// `identity` is for that listener. Returns the authority of its certificate from then on.
///
/// The certificate is renewed three times. Once the first is in force, a signal that was sent
/// after the call is yet to be handled or is being handled; once the second is, the configuration
/// was read after the call; once the third is, connections that end by it have been told so.
pub(super) fn read_all_again(address: &str, dir: &Path, identity: Option<&Identity>) -> Authority {
    let renew = || {
        let other = Authority::new("other");
        let fresh = other.issue(&["server.example"], VALID);
        write(dir, "server.pem", &fresh.certificate);
        write(dir, "server.key", &fresh.key);
        let client = TlsClient::new(&other, identity);
        reload_until("renewed", || admitted_at(address, &client).is_ok());
        other
    };
    [renew(), renew(), renew()]
        .into_iter()
        .next_back()
        .expect("three")
}

#[test]
fn files_are_read_again_on_sighup_and_connections_stay() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let [first, second] = [0, 1].map(|_| authority.issue(&["host.example"], VALID));
    let config = TlsConfig {
        client_crl: Some(write(dir.path(), "crl.pem", &authority.revoke(&[], VALID))),
        ..needing_certificates(dir.path(), &authority)
    };
    // Another listener, whose certificate tells that everything was read again.
    let sign = dir.path().join("sign");
    std::fs::create_dir(&sign).unwrap();
    let mut config = with_tls(dir.path(), MIB, config);
    config.listeners.push(ListenConfig {
        tls: Some(tls(&sign, &authority)),
        ..config.listeners[1].clone()
    });
    let server = Server::start(config);
    let read_all_again = || read_all_again(&server.addresses[2], &sign, None);
    let clients = [&first, &second].map(|identity| TlsClient::new(&authority, Some(identity)));
    let mut open = clients[0].connect(&server.addresses[1]).expect("TLS");
    ask(&mut open.stream, LIST, b"").expect("admitted");
    admitted(&server, &clients[1]).expect("admitted");

    write(dir.path(), "crl.pem", &authority.revoke(&[&first], VALID));
    reload_until("revoked", || admitted(&server, &clients[0]).is_err());
    admitted(&server, &clients[1]).expect("not revoked");
    ask(&mut open.stream, LIST, b"").expect("it was admitted before");

    // A new certificate of another authority: what the clients trusted, they do not any more.
    let other = Authority::new("other");
    let fresh = other.issue(&["server.example"], VALID);
    write(dir.path(), "server.pem", &fresh.certificate);
    // Certificate and key do not belong together now, so nothing changes.
    read_all_again();
    admitted(&server, &clients[1]).expect("the certificate is the earlier one");
    write(dir.path(), "server.key", &fresh.key);
    let trusting = TlsClient::new(&other, Some(&second));
    reload_until("renewed", || admitted(&server, &trusting).is_ok());
    admitted(&server, &clients[1]).expect_err("the certificate is the new one");

    // Files that are broken change nothing.
    write(dir.path(), "server.key", "broken");
    read_all_again();
    admitted(&server, &trusting).expect("the earlier files are in force");
    ask(&mut open.stream, LIST, b"").expect("the connection has stayed");
    server.stop().unwrap();
}

#[test]
fn files_that_do_not_fit_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let file = |text: &str| write(dir.path(), "broken.pem", text);
    let good = || needing_certificates(dir.path(), &authority);
    let refused = |config: TlsConfig| match Server::try_start(with_tls(dir.path(), MIB, config)) {
        Ok(_) => panic!("started"),
        Err(error) => error.to_string(),
    };
    let missing = dir.path().join("missing.pem");
    let error = refused(TlsConfig {
        certificate: missing,
        ..good()
    });
    assert!(error.contains("missing.pem: No such file"), "{error}");
    let other = authority.issue(&["server.example"], VALID);
    let error = refused(TlsConfig {
        private_key: file(&other.key),
        ..good()
    });
    assert!(error.contains("broken.pem: is not the key of"), "{error}");
    for (text, what) in [
        ("", "has no private key"),
        ("-----BEGIN PRIVATE KEY-----\n!", "PEM"),
    ] {
        let error = refused(TlsConfig {
            private_key: file(text),
            ..good()
        });
        assert!(error.contains(what), "{error}");
    }
    let error = refused(TlsConfig {
        client_ca: Some(file(&other.key)),
        ..good()
    });
    assert!(error.contains("broken.pem: has no certificate"), "{error}");
    let error = refused(TlsConfig {
        client_crl: Some(file(&authority.pem())),
        ..good()
    });
    assert!(
        error.contains("broken.pem: has no revocation list"),
        "{error}"
    );
    // The verifier would look at the first alone, and admit whom the second revokes.
    let stranger = Authority::new("stranger");
    let lists = [
        authority.revoke(&[], VALID),
        stranger.revoke(&[], VALID),
        authority.revoke(&[&other], VALID),
    ];
    let error = refused(TlsConfig {
        client_crl: Some(file(&lists.concat())),
        ..good()
    });
    let expected = "broken.pem: has two revocation lists of one authority for the same \
                    certificates: number 1 and number 3";
    assert!(error.contains(expected), "{error}");
    let apart = TlsConfig {
        client_crl: Some(file(&lists[..2].concat())),
        ..good()
    };
    for config in [good(), apart] {
        Server::start(with_tls(dir.path(), MIB, config))
            .stop()
            .unwrap();
    }
}

#[test]
fn two_lists_for_the_same_certificates_are_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let revoked = authority.issue(&["server.example"], VALID);
    // Two of one part, and one of a part beside one of all.
    for first in [Some("http://ca.example/1.crl"), None] {
        let lists = [
            authority.revoke_in_part(first, &[], VALID),
            authority.revoke_in_part(Some("http://ca.example/1.crl"), &[&revoked], VALID),
        ];
        let config = TlsConfig {
            client_crl: Some(write(dir.path(), "broken.pem", &lists.concat())),
            ..needing_certificates(dir.path(), &authority)
        };
        let error = match Server::try_start(with_tls(dir.path(), MIB, config)) {
            Ok(_) => panic!("started"),
            Err(error) => error.to_string(),
        };
        assert!(error.contains("number 1 and number 2"), "{error}");
    }
}
