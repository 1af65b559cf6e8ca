//! The control API and metrics over TLS: who is admitted, and how connections end.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tidegate_api::access::Role;
use tidegate_core::time::Nanos;
use tidegate_server::config::{
    AccessConfig, Config, ControlListenConfig, DeviceKind, ListenAddress, MetricsConfig,
    SocketOwner, StoreConfig, TlsConfig,
};

use super::authority::{Authority, Identity, OVER, VALID, write};
use super::bridge::{PATIENCE, TlsClient};
use super::tls;
use crate::common::control::{ControlApi, http};
use crate::common::{Server, read, single};

const MIB: u64 = 1 << 20;

/// Daemon with the control API and metrics over TLS.
pub(super) struct Controlled {
    /// Socket of administrators.
    socket: PathBuf,
    pub(super) control: String,
    pub(super) metrics: String,
    // Dropped in this order: the API, then the daemon.
    _api: ControlApi,
    pub(super) server: Server,
}

impl Controlled {
    pub(super) fn start(dir: &Path, tls: &TlsConfig) -> Controlled {
        Controlled::serve(config(dir, tls))
    }

    /// Starts a daemon with an administrators' socket, and the API and metrics over TLS.
    pub(super) fn serve(config: Config) -> Controlled {
        let server = Server::start(config.clone());
        let api = ControlApi::start(config, &server);
        let [socket, control, metrics] = &api.names[..] else {
            panic!("{:?}", api.names);
        };
        Controlled {
            socket: socket.into(),
            control: control.clone(),
            metrics: metrics.clone(),
            _api: api,
            server,
        }
    }

    /// Adds a token and returns its secret.
    pub(super) fn token(&self, name: &str) -> String {
        let body = format!("{{\"name\": \"{name}\", \"role\": \"read\"}}");
        let answer = self.as_admin("POST", "/v1/tokens", &body);
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        let (_, secret) = answer.split_once("\"secret\": \"").expect("a secret");
        secret.split('"').next().expect("its end").to_owned()
    }

    fn as_admin(&self, method: &str, path: &str, body: &str) -> String {
        let stream = UnixStream::connect(&self.socket).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        http(stream, method, path, "", body).expect("an answer")
    }
}

pub(super) fn config(dir: &Path, tls: &TlsConfig) -> Config {
    let address = || ListenAddress::Tcp(([127, 0, 0, 1], 0).into());
    let mut config = single(dir, DeviceKind::Memory, None, MIB);
    config.control.others.push(ControlListenConfig {
        address: address(),
        owner: SocketOwner::default(),
        access: AccessConfig::everyone(Role::Read),
        tls: Some(tls.clone()),
        place: None,
    });
    config.metrics.push(MetricsConfig {
        address: address(),
        owner: SocketOwner::default(),
        tls: Some(tls.clone()),
        place: None,
    });
    config.store = Some(StoreConfig {
        path: dir.join("s.redb"),
        learnt_every: Nanos::from_secs(3600),
        place: None,
    });
    config
}

/// Returns the status of the answer to a request over TLS; an error if there is none.
pub(super) fn status(
    client: &TlsClient,
    address: &str,
    path: &str,
    token: Option<&str>,
) -> io::Result<u16> {
    status_on(client, TcpStream::connect(address)?, path, token)
}

/// Returns the status of the answer to a request over TLS on a connection; an error if there is
/// none.
pub(super) fn status_on(
    client: &TlsClient,
    tcp: TcpStream,
    path: &str,
    token: Option<&str>,
) -> io::Result<u16> {
    let mut bridge = client.start_tls(tcp)?;
    let header = token.map(|token| format!("authorization: Bearer {token}\r\n"));
    let answer = http(
        &mut bridge.stream,
        "GET",
        path,
        &header.unwrap_or_default(),
        "",
    )?;
    let code = answer.strip_prefix("HTTP/1.1 ").and_then(|it| it.get(..3));
    code.and_then(|code| code.parse().ok())
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn needing_certificates(dir: &Path, authority: &Authority) -> TlsConfig {
    TlsConfig {
        client_ca: Some(write(dir, "client-ca.pem", &authority.pem())),
        ..tls(dir, authority)
    }
}

#[test]
fn the_control_api_admits_valid_certificates_with_a_valid_token_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, other) = (Authority::new("ca"), Authority::new("ca"));
    let daemon = Controlled::start(dir.path(), &needing_certificates(dir.path(), &authority));
    let (good, revoked) = (daemon.token("good"), daemon.token("revoked"));
    let identity = authority.issue(&["host.example"], VALID);
    let client = |identity: Option<&Identity>| TlsClient::new(&authority, identity);
    let ask =
        |client: &TlsClient, token: Option<&str>| status(client, &daemon.control, "/v1/vms", token);
    let certified = client(Some(&identity));
    assert_eq!(ask(&certified, Some(&good)).unwrap(), 200);
    assert_eq!(ask(&certified, None).unwrap(), 401);
    assert_eq!(ask(&certified, Some("guessed")).unwrap(), 401);
    assert_eq!(ask(&certified, Some(&revoked)).unwrap(), 200);
    let answer = daemon.as_admin("DELETE", "/v1/tokens/revoked", "");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(ask(&certified, Some(&revoked)).unwrap(), 401);
    // The role is that of the token.
    let forbidden = status(&certified, &daemon.control, "/v1/tokens", Some(&good));
    assert_eq!(forbidden.unwrap(), 403);

    let expired = authority.issue(&["host.example"], OVER);
    let foreign = other.issue(&["host.example"], VALID);
    for (identity, why) in [
        (None, "no certificate"),
        (Some(&expired), "expired"),
        (Some(&foreign), "of another authority"),
    ] {
        ask(&client(identity), Some(&good)).expect_err(why);
        let metrics = status(&client(identity), &daemon.metrics, "/metrics", None);
        metrics.expect_err(why);
    }
    // Metrics need a certificate and no token.
    let metrics = |path: &str| status(&certified, &daemon.metrics, path, None).unwrap();
    let page = daemon.as_admin("GET", "/metrics", "");
    assert!(
        page.contains("tidegate_sandbox_violations_total 0.0"),
        "{page}"
    );
    assert_eq!((metrics("/metrics"), metrics("/v1/vms")), (200, 404));
    // A client that speaks plain text gets no HTTP.
    let tcp = TcpStream::connect(&daemon.control).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let header = format!("authorization: Bearer {good}\r\n");
    match http(tcp, "GET", "/v1/vms", &header, "") {
        // At most an alert of TLS.
        Ok(answer) => assert!(!answer.contains("HTTP"), "{answer}"),
        Err(error) => assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "it stays open"),
    }
    assert_eq!(ask(&certified, Some(&good)).unwrap(), 200);
}

#[test]
fn connections_of_the_api_end_in_order_when_the_daemon_stops() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let daemon = Controlled::start(dir.path(), &tls(dir.path(), &authority));
    let token = daemon.token("t");
    let client = TlsClient::new(&authority, None);
    let tcp = TcpStream::connect(&daemon.control).unwrap();
    let mut bridge = client.start_tls(tcp).expect("TLS");
    let request =
        format!("GET /v1/vms HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {token}\r\n\r\n");
    bridge.stream.write_all(request.as_bytes()).unwrap();
    // A first byte of the answer, so that the connection is served.
    bridge.stream.read_exact(&mut [0]).expect("an answer");
    drop(daemon);
    // The thread for TLS has sent all that it had, and its goodbye.
    bridge.ended().expect("with close_notify");
}

#[test]
fn a_handshake_that_stalls_is_cut_off_at_the_api_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let daemon = Controlled::start(dir.path(), &tls(dir.path(), &authority));
    let counts = || daemon.server.handle.half_open().counts();
    let mut tcp = TcpStream::connect(&daemon.control).expect("it listens");
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    // The head of a record with a handshake message, and no more of it.
    tcp.write_all(&[22, 3, 1, 2, 0]).expect("it reads");
    assert_eq!(read(&mut tcp, &mut [0; 64]).expect("its end"), 0);
    // The connection is closed first, and counted then.
    let begun = Instant::now();
    while (counts().half_open, counts().timed_out) != (0, 1) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", counts());
        std::thread::yield_now();
    }
}

#[test]
fn answers_of_any_length_and_several_requests_pass_a_connection() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new("ca");
    let daemon = Controlled::start(dir.path(), &tls(dir.path(), &authority));
    let token = daemon.token("t");
    let mut client = TlsClient::new(&authority, None);
    for cuts in [None, Some(3)] {
        client.cuts = cuts;
        let tcp = TcpStream::connect(&daemon.control).unwrap();
        let mut bridge = client.start_tls(tcp).expect("TLS");
        let more =
            format!("GET /metrics HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {token}\r\n\r\n");
        bridge.stream.write_all(more.repeat(7).as_bytes()).unwrap();
        let header = format!("authorization: Bearer {token}\r\n");
        let answers = http(&mut bridge.stream, "GET", "/v1/vms", &header, "").unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 8, "{answers}");
        assert_eq!(answers.matches("# EOF").count(), 7);
        bridge.ended().expect("with close_notify");
    }
}
