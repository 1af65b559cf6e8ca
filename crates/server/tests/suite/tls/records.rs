//! Records of TLS 1.3 that a client encrypts itself, so that it can send what no library does.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use rustls::crypto::cipher::{AeadKey, MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::crypto::tls13::OkmBlock;
use rustls::{ClientConnection, ContentType, KeyLog, ProtocolVersion, Tls13CipherSuite};
use tidegate_nbd::Command;
use tidegate_nbd::client::encode_request;

use super::authority::Authority;
use super::bridge::{STARTTLS, TlsClient, ask, named, plain};
use super::{tls, with_tls};
use crate::common::{Server, request};

const MIB: u64 = 1 << 20;
const GO: u32 = 7;

/// Encrypts records in one direction, with the keys of RFC 8446, section 7.
struct Records {
    suite: &'static Tls13CipherSuite,
    secret: Vec<u8>,
    encrypter: Box<dyn MessageEncrypter>,
    sequence: u64,
}

impl Records {
    fn new(suite: &'static Tls13CipherSuite, secret: Vec<u8>) -> Records {
        let mut key = [0; 32];
        assert_eq!(suite.aead_alg.key_len(), key.len());
        expand_label(suite, &secret, b"key", &mut key);
        let mut iv = [0; 12];
        expand_label(suite, &secret, b"iv", &mut iv);
        let encrypter = suite.aead_alg.encrypter(AeadKey::from(key), iv.into());
        Records {
            suite,
            secret,
            encrypter,
            sequence: 0,
        }
    }

    fn record(&mut self, typ: ContentType, payload: &[u8]) -> Vec<u8> {
        let plain = OutboundPlainMessage {
            typ,
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(payload),
        };
        let record = self.encrypter.encrypt(plain, self.sequence).unwrap();
        self.sequence += 1;
        record.encode()
    }

    /// Returns a record without content.
    fn empty(&mut self) -> Vec<u8> {
        self.record(ContentType::ApplicationData, b"")
    }

    /// Changes the keys, and returns the record that announces it.
    fn key_update(&mut self) -> Vec<u8> {
        // KeyUpdate with `update_not_requested`.
        let record = self.record(ContentType::Handshake, &[24, 0, 0, 1, 0]);
        let mut secret = vec![0; self.secret.len()];
        expand_label(self.suite, &self.secret, b"traffic upd", &mut secret);
        *self = Records::new(self.suite, secret);
        record
    }
}

/// HKDF-Expand-Label without context.
fn expand_label(suite: &Tls13CipherSuite, secret: &[u8], label: &[u8], to: &mut [u8]) {
    let expander = suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret));
    let (len, label_len) = ((to.len() as u16).to_be_bytes(), [6 + label.len() as u8]);
    let info = [&len[..], &label_len, b"tls13 ", label, &[0]];
    expander.expand_slice(&info, to).unwrap();
}

/// Secret of the client's first keys behind the handshake.
#[derive(Debug, Default)]
struct Secret(Mutex<Vec<u8>>);

impl KeyLog for Secret {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == "CLIENT_TRAFFIC_SECRET_0" {
            *self.0.lock().unwrap() = secret.to_vec();
        }
    }
}

/// Connection over TLS whose written bytes become one record at a time.
struct Crafted {
    tcp: TcpStream,
    tls: ClientConnection,
    records: Records,
}

impl Crafted {
    fn connect(authority: &Authority, address: &str) -> Crafted {
        let mut tcp = plain(address);
        assert_eq!(ask(&mut tcp, STARTTLS, b"").unwrap(), [(1, vec![])]);
        let client = TlsClient::new(authority, None);
        let secret = Arc::new(Secret::default());
        let mut config = (*client.config).clone();
        config.key_log = secret.clone();
        let name = client.server.try_into().unwrap();
        let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
        while tls.is_handshaking() || tls.wants_write() {
            tls.complete_io(&mut tcp).unwrap();
        }
        let suite = tls
            .negotiated_cipher_suite()
            .and_then(|suite| suite.tls13());
        let secret = secret.0.lock().unwrap().clone();
        let records = Records::new(suite.expect("TLS 1.3"), secret);
        Crafted { tcp, tls, records }
    }
}

impl Read for Crafted {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        rustls::Stream::new(&mut self.tls, &mut self.tcp).read(to)
    }
}

impl Write for Crafted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let record = self.records.record(ContentType::ApplicationData, bytes);
        self.tcp.write_all(&record)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Changes of keys and empty records, each in moderation, are no breach of a rule, and have no
/// content whose receiver could slow the client down.
#[test]
fn a_flood_of_records_without_content_ends_the_connection() {
    // More than all sockets and buffers on the way hold.
    const FLOOD: usize = 32 << 20;
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let server = Server::start(with_tls(dir.path(), MIB, tls(dir.path(), &authority)));
    let mut client = Crafted::connect(&authority, &server.addresses[1]);
    let opened = ask(&mut client, GO, &named("disk")).unwrap();
    assert_eq!(opened.last().expect("a reply").0, 1);
    let round = |records: &mut Records| {
        let update = records.key_update();
        let empty: Vec<_> = (0..16).map(|_| records.empty()).collect();
        [update, empty.concat()].concat()
    };
    // Some between requests, and many in total, are all right.
    let mut some = 0;
    for cookie in 0..8 {
        for _ in 0..40 {
            let round = round(&mut client.records);
            client.tcp.write_all(&round).unwrap();
            some += round.len();
        }
        let read = request(Command::Read { df: false }, cookie, 0, 512);
        client.write_all(&encode_request(&read)).unwrap();
        // A simple reply has 16 bytes.
        client.read_exact(&mut [0; 16 + 512]).unwrap();
    }
    let mut sent = 0;
    let error = loop {
        let round = round(&mut client.records);
        if let Err(error) = client.tcp.write_all(&round) {
            break error;
        }
        sent += round.len();
        assert!(sent < FLOOD, "the server takes it all");
    };
    let closed = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    assert!(closed.contains(&error.kind()), "{error}");
    assert!(some > 64 << 10, "{some} bytes were all right in total");
    server.connect("disk").disconnect();
    server.stop().unwrap();
}
