//! Floods of connections at the control API and metrics: other clients are served meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_server::config::{ListenAddress, ListenConfig};
use tidegate_server::listener::{HALF_OPEN_CONTROL_MAX, HALF_OPEN_MAX};
use tokio::net::TcpSocket;

use super::authority::Authority;
use super::bridge::{PATIENCE, TlsClient};
use super::control::{Controlled, config, status, status_on};
use super::tls;
use crate::common::control::http;
use crate::common::read;

/// Most connections of the control API on a listener.
const CONNECTIONS_MAX: usize = 256;

/// Connects from addresses of loopback, with a runtime that is used for all.
struct Connector(tokio::runtime::Runtime);

impl Connector {
    fn new() -> Connector {
        let runtime = tokio::runtime::Builder::new_current_thread();
        Connector({ runtime }.enable_io().build().unwrap())
    }

    fn connect(&self, from: Ipv4Addr, to: &str) -> TcpStream {
        let to = to.parse().unwrap();
        let connected = self.0.block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind((from, 0).into()).unwrap();
            socket.connect(to).await?.into_std()
        });
        let stream = connected.expect("it listens");
        stream.set_nonblocking(false).unwrap();
        stream
    }
}

/// Most connections that a flood opens at a time, before it waits.
const BURST: usize = 50;

/// Keeps many connections open from two addresses that are not the operator's, and opens those
/// again that are closed, until it is dropped.
struct Flood {
    stop: Arc<AtomicBool>,
    /// Connections that the daemon has closed or answered.
    ended: Arc<AtomicUsize>,
    flooding: Option<JoinHandle<()>>,
}

impl Flood {
    /// Begins to keep `number` connections open, each of which sends `bytes` at its beginning.
    fn begin(to: &str, number: usize, bytes: &'static [u8]) -> Flood {
        let (stop, ended) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (to, stopped, counter) = (to.to_owned(), stop.clone(), ended.clone());
        let flooding = std::thread::spawn(move || {
            let connector = Connector::new();
            let hosts = [2, 3].map(|host| Ipv4Addr::new(127, 0, 0, host));
            let mut hosts = hosts.iter().cycle();
            let mut all: Vec<TcpStream> = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let before = all.len();
                all.retain_mut(|stream| {
                    let read = stream.read(&mut [0; 64]);
                    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
                });
                counter.fetch_add(before - all.len(), Ordering::Relaxed);
                for _ in all.len()..number.min(all.len() + BURST) {
                    let mut stream = connector.connect(*hosts.next().unwrap(), &to);
                    // It may be closed already.
                    let _ = stream.write_all(bytes);
                    stream.set_nonblocking(true).unwrap();
                    all.push(stream);
                }
                // Without it, the flood would take the processor from the daemon under test.
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Flood {
            stop,
            ended,
            flooding: Some(flooding),
        }
    }

    fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.flooding.take().expect("ended only here").join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn silent_handshakes_do_not_lock_clients_of_the_api_out() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let daemon = Controlled::start(dir.path(), &tls(dir.path(), &authority));
    let client = TlsClient::new(&authority, None);
    let token = daemon.token("t");
    let counts = || daemon.server.handle.half_open().counts();
    let flood = Flood::begin(&daemon.control, HALF_OPEN_CONTROL_MAX + 100, b"");
    wait_until("the flood fills the table", || counts().displaced > 0);
    for _ in 0..5 {
        let operated = status(&client, &daemon.control, "/v1/vms", Some(&token));
        assert_eq!(operated.expect("served beside the flood"), 200);
        let watched = status(&client, &daemon.metrics, "/healthz", None);
        assert_eq!(watched.expect("served beside the flood"), 200);
        assert!(counts().half_open <= HALF_OPEN_CONTROL_MAX as u64 + 1);
    }
    drop(flood);
}

/// NBD's clients are of another table: not even those that have sent something, each from another
/// address, displace one of the API that has sent nothing.
#[test]
fn handshakes_with_nbd_displace_none_with_the_api() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let mut config = config(dir.path(), &tls(dir.path(), &authority));
    config.listeners.push(ListenConfig {
        address: ListenAddress::Tcp(([127, 0, 0, 1], 0).into()),
        ..config.listeners[0].clone()
    });
    let daemon = Controlled::serve(config);
    let counts = || daemon.server.handle.half_open().counts();
    let token = daemon.token("t");
    let silent = TcpStream::connect(&daemon.control).expect("it listens");
    wait_until("it is accepted", || counts().half_open == 1);
    let connector = Connector::new();
    let flood: Vec<_> = (0..HALF_OPEN_MAX as u16 + 10)
        .map(|n| {
            let [high, low] = n.to_be_bytes();
            let from = Ipv4Addr::new(127, 1, high, low.max(1));
            let mut stream = connector.connect(from, &daemon.server.addresses[1]);
            // The flags of a client.
            stream.write_all(&3u32.to_be_bytes()).expect("it is open");
            stream
        })
        .collect();
    wait_until("the table of NBD is full", || counts().displaced > 0);
    let client = TlsClient::new(&authority, None);
    let operated = status_on(&client, silent, "/v1/vms", Some(&token));
    assert_eq!(operated.expect("it has stayed"), 200);
    drop(flood);
}

/// A client in the midst of its handshake stays, while silent ones of its address make room.
#[test]
fn a_client_of_the_api_that_has_sent_something_is_not_displaced_by_silent_ones() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let daemon = Controlled::start(dir.path(), &tls(dir.path(), &authority));
    let counts = || daemon.server.handle.half_open().counts();
    let mut first = TcpStream::connect(&daemon.control).expect("it listens");
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    // The head of a record with a handshake message.
    first.write_all(&[22, 3, 1, 0, 64]).expect("it reads");
    // The thread for handshakes has seen it once a later client is done.
    let client = TlsClient::new(&authority, None);
    status(&client, &daemon.control, "/v1/vms", None).expect("an answer");
    let begun = Instant::now();
    let mut silent = Vec::new();
    while counts().displaced == 0 {
        assert!(begun.elapsed() < PATIENCE, "the flood is not bounded");
        silent.push(TcpStream::connect(&daemon.control).expect("it listens"));
    }
    // The rest of the record is no message, and counts if the handshake is still under way.
    first.write_all(&[255; 64]).expect("it is open");
    while counts().failed == 0 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", counts());
        std::thread::yield_now();
    }
}

/// Connection for several requests.
struct Kept(TcpStream);

impl Kept {
    fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).expect("it is open");
    }

    /// Reads an answer, which must be one about a VM.
    fn hear(&mut self) {
        self.0.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"}\n") {
            let mut piece = [0; 4096];
            let n = read(&mut self.0, &mut piece).expect("an answer");
            assert!(n > 0, "closed after {}", String::from_utf8_lossy(&heard));
            heard.extend_from_slice(&piece[..n]);
        }
        let heard = String::from_utf8(heard).expect("text");
        assert!(heard.starts_with("HTTP/1.1 200"), "{heard}");
    }
}

/// Clients without a token fill every place that they can have, and take back what they lose.
#[test]
fn clients_without_a_token_do_not_lock_those_with_one_out() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let mut config = config(dir.path(), &tls(dir.path(), &authority));
    // The handshakes of TLS have floods of their own, above.
    config.control.others[0].tls = None;
    let daemon = Controlled::serve(config);
    let header = format!("authorization: Bearer {}\r\n", daemon.token("t"));
    let ask = || {
        let stream = TcpStream::connect(&daemon.control).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        http(stream, "GET", "/v1/vms", &header, "")
    };
    let mut kept = Kept(TcpStream::connect(&daemon.control).expect("it listens"));
    let request = format!("GET /v1/vms/disk HTTP/1.1\r\nhost: t\r\n{header}\r\n");
    kept.send(&request);
    kept.hear();
    // Half a request each, which holds a place for 10 s where nobody needs it.
    let flood = Flood::begin(&daemon.control, 2 * CONNECTIONS_MAX, b"GET /v1");
    for round in 1..=5 {
        wait_until("the places are taken", || flood.ended() >= round * 100);
        // One that has shown its token keeps its place, also in the midst of a request.
        let (first, rest) = request.split_at(9 * round);
        kept.send(first);
        // All addresses of loopback count as one. An attempt may come too late, if this thread is
        // not run between the connection and the request.
        let served = (0..5).any(|_| ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")));
        assert!(served, "no attempt of five");
        kept.send(rest);
        kept.hear();
    }
    drop(flood);
}
