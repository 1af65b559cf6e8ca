//! A client sees its own exports; all others are as unknown to it as names of none.

use std::io::{Read, Write};
use std::path::Path;

use tidegate_server::config::{ClientName, Config, TlsClientConfig, TlsConfig};

use super::authority::{Authority, VALID, write};
use super::bridge::{TlsClient, ask, named, option, plain};
use super::{tls, with_tls};
use crate::common::{Client, Server, disk, read, vm};

const MIB: u64 = 1 << 20;
const LIST: u32 = 3;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const LIST_META_CONTEXT: u32 = 9;
const SET_META_CONTEXT: u32 = 10;
const ACK: u32 = 1;
const ERR_TLS_REQD: u32 = 1 << 31 | 5;
const ERR_UNKNOWN: u32 = 1 << 31 | 6;

fn client(names: &[&str], vms: &[&str], exports: &[&str]) -> TlsClientConfig {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    TlsClientConfig {
        names: names
            .iter()
            .filter_map(|name| ClientName::parse(name))
            .collect(),
        vms: owned(vms),
        exports: owned(exports),
    }
}

/// VMs `disk`, `oltp` with two disks, and `iso`.
fn several(dir: &Path, tls: TlsConfig) -> Config {
    let mut config = with_tls(dir, MIB, tls);
    let disks = vec![disk("oltp-data", None, MIB), disk("oltp-logs", None, MIB)];
    config.vms.push(vm("oltp", 0, disks));
    config.vms.push(vm("iso", 0, vec![disk("iso", None, MIB)]));
    config
}

fn listed(stream: &mut (impl Read + Write)) -> Vec<String> {
    let mut replies = ask(stream, LIST, b"").unwrap();
    assert_eq!(replies.pop(), Some((ACK, vec![])));
    let name = |(_, data): (u32, Vec<u8>)| {
        let len = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
        String::from_utf8(data[4..4 + len].to_vec()).unwrap()
    };
    replies.into_iter().map(name).collect()
}

/// Payload of the options of metadata contexts.
fn meta(name: &str) -> Vec<u8> {
    let mut data = named(name);
    data.truncate(data.len() - 2);
    data.extend(0u32.to_be_bytes());
    data
}

/// Asserts that a stream answers about `foreign` as about a name of no export.
fn assert_unknown(stream: &mut (impl Read + Write), foreign: &str) {
    // Of one length, so that the texts can be equal once the names are.
    let none = "x".repeat(foreign.len());
    let anonymous = |text: &[u8], name: &str| String::from_utf8_lossy(text).replace(name, "NAME");
    let mut both = |number, of: fn(&str) -> Vec<u8>| {
        [foreign, &none].map(|name| {
            let replies = ask(stream, number, &of(name)).unwrap();
            assert_eq!(replies.len(), 1, "{name}: an error alone");
            (replies[0].0, anonymous(&replies[0].1, name))
        })
    };
    for (number, of) in [
        (INFO, named as fn(&str) -> Vec<u8>),
        (GO, named),
        (LIST_META_CONTEXT, meta),
        (SET_META_CONTEXT, meta),
    ] {
        let [real, unreal] = both(number, of);
        assert_eq!(real.0, ERR_UNKNOWN, "{foreign}");
        assert_eq!(real, unreal, "{foreign}");
    }
}

#[test]
fn clients_see_and_open_their_own_exports_alone() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let config = TlsConfig {
        client_ca: Some(write(dir.path(), "client-ca.pem", &authority.pem())),
        clients: vec![
            client(&["a.example"], &["oltp"], &[]),
            client(
                &["spiffe://example/b", "b.example"],
                &[],
                &["iso", "oltp-logs"],
            ),
            client(&["a.example"], &[], &["iso"]),
        ],
        ..tls(dir.path(), &authority)
    };
    let server = Server::start(several(dir.path(), config));
    let all = ["disk", "oltp-data", "oltp-logs", "iso"];
    let refused = || server.handle.half_open().counts().refused;
    for (names, own) in [
        (&["a.example"][..], &["oltp-data", "oltp-logs", "iso"][..]),
        // Names of DNS have no case.
        (&["A.Example"], &["oltp-data", "oltp-logs", "iso"]),
        (
            &["other.example", "spiffe://example/b"],
            &["oltp-logs", "iso"],
        ),
        (&["b.example"], &["oltp-logs", "iso"]),
        // Of a VM alone, by another client's name, and by no name: nothing.
        (
            &["other.example", "spiffe://example/bb", "spiffe://Example/b"],
            &[],
        ),
        // A wildcard is no client's name.
        (&["*.example"], &[]),
        (&["oltp", "iso"], &[]),
        // A URI is no DNS name, whatever its text: name constraints for DNS do not concern it.
        (&["URI:a.example", "URI:b.example"], &[]),
        (&[], &[]),
    ] {
        let identity = authority.issue(names, VALID);
        let tls = TlsClient::new(&authority, Some(&identity));
        let mut stream = tls.connect(&server.addresses[1]).expect("TLS").stream;
        assert_eq!(listed(&mut stream), own, "{names:?}");
        ask(&mut stream, STRUCTURED_REPLY, b"").unwrap();
        for name in all {
            if own.contains(&name) {
                let replies = ask(&mut stream, INFO, &named(name)).unwrap();
                assert_eq!(replies.last().expect("a reply").0, ACK);
                let bridge = tls.connect(&server.addresses[1]).expect("TLS");
                Client::on(bridge.greet(), name, true).disconnect();
            } else {
                let before = refused();
                assert_unknown(&mut stream, name);
                // The operator learns of each of the four options.
                assert_eq!(refused(), before + 4);
                // NBD_OPT_EXPORT_NAME has no error reply.
                let mut stream = tls.connect(&server.addresses[1]).expect("TLS").stream;
                stream.write_all(&option(1, name.as_bytes())).unwrap();
                assert_eq!(read(&mut stream, &mut [0; 16]).expect("closed"), 0);
            }
        }
    }
    // A disk that is added belongs to whom its VM does.
    server.stop().unwrap();
}

#[test]
fn forced_serves_nothing_in_plain_text() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::start(several(dir.path(), tls(dir.path(), &authority)));
    let mut stream = plain(&server.addresses[1]);
    for (number, data) in [(LIST, vec![]), (INFO, named("disk")), (GO, named("disk"))] {
        let replies = ask(&mut stream, number, &data).unwrap();
        assert_eq!((replies.len(), replies[0].0), (1, ERR_TLS_REQD));
    }
    stream.write_all(&option(1, b"disk")).unwrap();
    assert_eq!(read(&mut stream, &mut [0; 16]).expect("closed"), 0);
    // Other listeners are not concerned.
    server.connect("disk").disconnect();
    server.stop().unwrap();
}

#[test]
fn selective_serves_in_plain_text_what_it_names() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let config = TlsConfig {
        client_ca: Some(write(dir.path(), "client-ca.pem", &authority.pem())),
        clients: vec![client(&["a.example"], &["oltp"], &[])],
        plain_exports: vec!["iso".to_owned()],
        ..tls(dir.path(), &authority)
    };
    let server = Server::start(several(dir.path(), config));
    let mut stream = plain(&server.addresses[1]);
    assert_eq!(listed(&mut stream), ["iso"]);
    for number in [INFO, GO] {
        let foreign = ask(&mut stream, number, &named("oltp-data")).unwrap();
        assert_eq!((foreign.len(), foreign[0].0), (1, ERR_TLS_REQD));
        assert_eq!(ask(&mut stream, number, &named("none")).unwrap(), foreign);
    }
    assert_eq!(
        ask(&mut stream, GO, &named("iso"))
            .unwrap()
            .last()
            .unwrap()
            .0,
        ACK
    );
    // Over TLS a client has its own beside it, and no others.
    let identity = authority.issue(&["a.example"], VALID);
    let tls = TlsClient::new(&authority, Some(&identity));
    let mut stream = tls.connect(&server.addresses[1]).expect("TLS").stream;
    assert_eq!(listed(&mut stream), ["oltp-data", "oltp-logs", "iso"]);
    ask(&mut stream, STRUCTURED_REPLY, b"").unwrap();
    assert_unknown(&mut stream, "disk");
    server.stop().unwrap();
}
