//! Client of the control API, with a connection for each request.

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidegate_api::error::ErrorBody;
use tidegate_api::health::Health;
use tidegate_server::tls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

use crate::problem::{Problem, Problems};

/// Time-out of most requests; the daemon itself answers within 5 s, if only with an error.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time-out of requests that open, create or resize files; the daemon's own is a minute.
const LONG_TIMEOUT: Duration = Duration::from_secs(70);

/// Context of the error of a request that may have been carried out although no answer came;
/// displays why none did.
#[derive(Debug)]
pub(crate) struct Unanswered(String);

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Unanswered {
    fn closed() -> Unanswered {
        Unanswered("the daemon closed the connection".to_owned())
    }
}

/// Returns the body of a successful answer, or the daemon's errors.
fn answered((status, body): (StatusCode, Bytes)) -> Result<Value> {
    if status.is_success() {
        return serde_json::from_slice(&body)
            .context("the daemon's answer is not JSON: is it another version?");
    }
    match serde_json::from_slice::<ErrorBody>(&body) {
        Ok(body) => Err(Problems::from(body).into()),
        Err(_) => Err(Problem::new(format!("the daemon answered {status}")).into()),
    }
}

/// Client of a daemon's control API.
#[derive(Debug)]
pub(crate) struct Client {
    endpoint: Endpoint,
    runtime: Runtime,
}

/// Place of the control API.
#[derive(Debug)]
enum Endpoint {
    Unix(PathBuf),
    Tcp {
        address: ApiAddress,
        /// Header `Authorization`, marked as sensitive.
        authorization: HeaderValue,
        /// `None` without TLS.
        tls: Option<EndpointTls>,
    },
}

/// TLS of a client.
#[derive(Debug)]
struct EndpointTls {
    /// Authorities of the daemon's certificate, and the client's own certificate.
    config: Arc<ClientConfig>,
    /// Name that the daemon's certificate has to have.
    name: ServerName<'static>,
    /// The client has a certificate.
    has_certificate: bool,
}

/// Address of the control API on TCP: an IP address or a name, and a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ApiAddress {
    host: String,
    port: u16,
}

impl ApiAddress {
    /// Returns true if only processes of this host are reached. A name may stand for any address.
    fn is_loopback(&self) -> bool {
        let ip: Result<IpAddr, _> = self.host.parse();
        ip.is_ok_and(|ip| ip.to_canonical().is_loopback())
    }
}

impl FromStr for ApiAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ApiAddress, &'static str> {
        const ALLOWED: &str = "write HOST:PORT, such as 127.0.0.1:9808, [::1]:9808 or, with \
                               --tls-ca, storage.example:9808";
        let (host, port) = text.rsplit_once(':').ok_or(ALLOWED)?;
        let port = port.parse().map_err(|_| ALLOWED)?;
        let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let host = match inner {
            Some(ip) if ip.contains(':') => ip,
            None if !host.contains(':') => host,
            _ => return Err(ALLOWED),
        };
        // A name that no certificate can have would fail later, with a less clear message.
        ServerName::try_from(host).map_err(|_| ALLOWED)?;
        Ok(ApiAddress {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for ApiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ApiAddress { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

/// Files for TLS as typed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TlsFiles<'a> {
    /// Authorities of the daemon's certificate; without it there is no TLS.
    pub(crate) ca: Option<&'a Path>,
    /// Certificate of this client.
    pub(crate) certificate: Option<&'a Path>,
    /// Private key of this client.
    pub(crate) key: Option<&'a Path>,
}

impl TlsFiles<'_> {
    /// Reads the files; `None` without TLS.
    fn read(&self) -> Result<Option<Arc<ClientConfig>>> {
        let own = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let problem =
                    Problem::new("a client's certificate and its private key go together");
                let help = "name both: --tls-certificate PATH --tls-key PATH";
                return Err(problem.help(help).into());
            }
        };
        match (self.ca, own) {
            (Some(ca), own) => Ok(Some(tls::client_config(ca, own)?)),
            (None, None) => Ok(None),
            (None, Some(_)) => {
                let problem = Problem::new("a client's certificate is for TLS");
                let help = "add --tls-ca PATH, the authority of the daemon's certificate";
                Err(problem.help(help).into())
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => path.display().fmt(f),
            Endpoint::Tcp { address, .. } => address.fmt(f),
        }
    }
}

/// Reads the token of a file into the header that sends it.
fn authorization(file: &Path) -> Result<HeaderValue> {
    let failed = |what: String| Problem::new(what).at(file.display().to_string());
    let text = fs::read_to_string(file)
        .map_err(|error| failed(format!("cannot read the token: {error}")))?;
    let value = HeaderValue::from_str(&format!("Bearer {}", text.trim()));
    let mut value = value.map_err(|_| failed("the file holds no token".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

impl Client {
    /// Makes a client of a control socket.
    pub(crate) fn new(socket: &Path) -> Result<Client> {
        Client::of(Endpoint::Unix(socket.to_owned()))
    }

    /// Makes a client of the control API on TCP, with the token in a file.
    ///
    /// # Errors
    /// If the address is not loopback and there is no TLS: the token could be read on the way. Or
    /// if no file is named, the file holds no token, or a file for TLS cannot be used.
    pub(crate) fn with_token(
        address: &ApiAddress,
        file: Option<&Path>,
        tls: &TlsFiles<'_>,
    ) -> Result<Client> {
        let config = tls.read()?;
        if config.is_none() && !address.is_loopback() {
            let problem = Problem::new("a token is sent to this host alone, without TLS");
            let help = "add --tls-ca PATH, the authority of the daemon's certificate, or use an \
                        address of loopback, such as 127.0.0.1:9808";
            return Err(problem.at(address.to_string()).help(help).into());
        }
        let Some(file) = file else {
            let problem = Problem::new("the control API on TCP needs a token");
            let help = "name its file with --token-file PATH or TIDEGATE_TOKEN_FILE; \
                        `tidegate token add` makes one";
            return Err(problem.at(address.to_string()).help(help).into());
        };
        let authorization = authorization(file)?;
        let name = ServerName::try_from(address.host.clone())?;
        Client::of(Endpoint::Tcp {
            address: address.clone(),
            authorization,
            tls: config.map(|config| EndpointTls {
                config,
                name,
                has_certificate: tls.certificate.is_some(),
            }),
        })
    }

    fn of(endpoint: Endpoint) -> Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(Client { endpoint, runtime })
    }

    /// Sends a `GET` request.
    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        answered(self.ask(Method::GET, path, Bytes::new(), TIMEOUT)?)
    }

    /// Asks for the daemon's health, which is also an answer where the daemon cannot go on (503).
    ///
    /// # Errors
    /// If the daemon does not answer, or answers otherwise.
    pub(crate) fn health(&self) -> Result<Health> {
        let (status, body) = self.ask(Method::GET, "/healthz", Bytes::new(), TIMEOUT)?;
        let is_health = status.is_success() || status == StatusCode::SERVICE_UNAVAILABLE;
        match serde_json::from_slice(&body) {
            Ok(health) if is_health => Ok(health),
            _ => read(answered((status, body))?),
        }
    }

    /// Asks whether the daemon is ready, which is also an answer where it is not (503). `None`: the
    /// daemon is of a version without readiness.
    ///
    /// # Errors
    /// If the daemon does not answer, or answers otherwise.
    pub(crate) fn readiness(&self) -> Result<Option<Value>> {
        let (status, body) = self.ask(Method::GET, "/readyz", Bytes::new(), TIMEOUT)?;
        match (status, serde_json::from_slice::<Value>(&body)) {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (StatusCode::SERVICE_UNAVAILABLE, Ok(body)) if body.get("ready").is_some() => {
                Ok(Some(body))
            }
            _ => answered((status, body)).map(Some),
        }
    }

    /// Returns the place of the control API, for people.
    pub(crate) fn place(&self) -> String {
        self.endpoint.to_string()
    }

    /// Sends a `GET` request. The inner `Err` has the daemon's message if it cannot read the
    /// request (400), as an older one that does not know a part of the query.
    pub(crate) fn get_if_known(&self, path: &str) -> Result<Result<Value, anyhow::Error>> {
        let (status, body) = self.ask(Method::GET, path, Bytes::new(), TIMEOUT)?;
        match status {
            StatusCode::BAD_REQUEST => Ok(answered((status, body))),
            _ => answered((status, body)).map(Ok),
        }
    }

    /// Sends a `GET` request and waits at most `timeout` for the answer.
    pub(crate) fn get_within(&self, path: &str, timeout: Duration) -> Result<Value> {
        answered(self.ask(Method::GET, path, Bytes::new(), timeout)?)
    }

    /// Sends a request that changes something quickly.
    pub(crate) fn change(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Value> {
        let body = serde_json::to_vec(body)?.into();
        answered(self.ask(method, path, body, TIMEOUT)?)
    }

    /// Sends a request that may take as long as opening or creating files.
    pub(crate) fn change_slowly(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Value> {
        let body = serde_json::to_vec(body)?.into();
        answered(self.ask(method, path, body, LONG_TIMEOUT)?)
    }

    /// Sends a `DELETE` request. The inner `Err` has the daemon's message if the object does not
    /// exist (404).
    pub(crate) fn remove(&self, path: &str) -> Result<Result<Value, anyhow::Error>> {
        let (status, body) = self.ask(Method::DELETE, path, Bytes::new(), LONG_TIMEOUT)?;
        match status {
            StatusCode::NOT_FOUND => Ok(answered((status, body))),
            _ => answered((status, body)).map(Ok),
        }
    }

    /// Sends a `GET` request and passes the pieces of a successful answer to `take` as they arrive,
    /// until it wants no more. Waits at most `timeout` for each.
    ///
    /// # Errors
    /// The daemon's, those of `take`, or that the answer is not whole.
    pub(crate) fn download(
        &self,
        path: &str,
        timeout: Duration,
        mut take: impl FnMut(&[u8]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let late = || Problem::new(format!("no more data in {} s", timeout.as_secs()));
        self.runtime.block_on(async {
            let ask = self.begin(Method::GET, path, Bytes::new());
            let answer = tokio::time::timeout(timeout, ask).await;
            let answer = answer.map_err(|_| late())??;
            let (status, mut body) = (answer.status(), answer.into_body());
            if !status.is_success() {
                return answered((status, body.collect().await?.to_bytes())).map(drop);
            }
            while let Some(frame) = tokio::time::timeout(timeout, body.frame())
                .await
                .map_err(|_| late())?
            {
                let frame = frame.context("the daemon closed the connection")?;
                if let Some(bytes) = frame.data_ref()
                    && take(bytes)?.is_break()
                {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Sends a request and returns the status and body of the answer, within `timeout`.
    fn ask(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        timeout: Duration,
    ) -> Result<(StatusCode, Bytes)> {
        let answer = self.runtime.block_on(async {
            tokio::time::timeout(timeout, self.exchange(method, path, body)).await
        });
        let Ok(answer) = answer else {
            let what = format!("the daemon did not answer in {} s", timeout.as_secs());
            let problem = Problem::new(what.clone()).at(self.endpoint.to_string());
            return Err(anyhow::Error::from(problem).context(Unanswered(what)));
        };
        answer
    }

    async fn exchange(
        &self,
        method: Method,
        path_and_query: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes)> {
        let answer = self.begin(method, path_and_query, body).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await;
        let body = body.with_context(Unanswered::closed)?;
        Ok((status, body.to_bytes()))
    }

    /// Sends a request and returns the answer, whose body is still to be read.
    async fn begin(
        &self,
        method: Method,
        path_and_query: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let unreachable = |error| self.cannot_connect(&error);
        match &self.endpoint {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(unreachable)?;
                send(stream, method, path_and_query, body, None).await
            }
            Endpoint::Tcp {
                address: ApiAddress { host, port },
                authorization,
                tls,
            } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await;
                let stream = stream.map_err(unreachable)?;
                let Some(tls) = tls else {
                    return send(stream, method, path_and_query, body, Some(authorization)).await;
                };
                let connector = TlsConnector::from(tls.config.clone());
                let stream = connector.connect(tls.name.clone(), stream).await;
                let stream = stream.map_err(|error| self.no_tls(&error))?;
                let answer = send(stream, method, path_and_query, body, Some(authorization)).await;
                answer.map_err(|error| self.cut_off(&error, tls.has_certificate).into())
            }
        }
    }

    /// Returns the error for a TLS handshake that failed, before which no token is sent.
    fn no_tls(&self, error: &io::Error) -> Problem {
        Problem::new(format!("no TLS with the daemon: {error}"))
            .at(self.endpoint.to_string())
            .help(
                "--tls-ca has to name the authority of the daemon's certificate, and --tcp the \
                 name or address that is in it",
            )
    }

    /// Returns the error for a connection that ended behind the TLS handshake: in TLS 1.3 a client
    /// is done before the daemon has looked at its certificate.
    fn cut_off(&self, error: &anyhow::Error, has_certificate: bool) -> Problem {
        let help = if has_certificate {
            "the daemon may not accept the certificate of --tls-certificate: it has to come from \
             an authority of the listener's client_ca, and be neither expired nor in its \
             client_crl; the daemon's log has the reason"
        } else {
            "the daemon may need a certificate of this client, where the listener has client_ca: \
             --tls-certificate PATH --tls-key PATH"
        };
        Problem::new(format!("{error:#}"))
            .at(self.endpoint.to_string())
            .help(help)
    }

    /// Returns the error for a socket that cannot be connected to, with its remedy.
    fn cannot_connect(&self, error: &io::Error) -> Problem {
        let socket = self.endpoint.to_string();
        match error.kind() {
            io::ErrorKind::ConnectionRefused if matches!(self.endpoint, Endpoint::Tcp { .. }) => {
                Problem::new("no daemon listens at the address of the control API")
                    .at(socket)
                    .help(
                        "name the `tcp` of a [[control.listen]] with --tcp HOST:PORT or \
                         TIDEGATE_TCP, and start the daemon with `tidegate serve FILE`",
                    )
            }
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                Problem::new("no daemon listens at the control socket")
                    .at(socket)
                    .help(
                        "start one with `tidegate serve FILE`, or name its [control] socket \
                           with --socket PATH or TIDEGATE_SOCKET",
                    )
            }
            io::ErrorKind::PermissionDenied => {
                Problem::new("permission denied for the control socket")
                    .at(socket)
                    .help(
                        "run this as the daemon's user, or name a socket of [[control.listen]] \
                           that gives yours a role",
                    )
            }
            _ => Problem::new(format!("cannot reach the daemon: {error}")).at(socket),
        }
    }
}

/// Sends a request on a connection of its own and returns the answer.
async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: Method,
    path: &str,
    body: Bytes,
    authorization: Option<&HeaderValue>,
) -> Result<Response<Incoming>> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Drives the connection until it closes; its errors show up in `sender` below.
    tokio::spawn(connection);
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        // HTTP/1.1 requires the header; the daemon does not look at it.
        .header("host", "tidegate")
        .header("content-type", "application/json");
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    sender
        .send_request(request.body(Full::new(body))?)
        .await
        .with_context(Unanswered::closed)
}

/// Parses an answer.
pub(crate) fn read<T: DeserializeOwned>(answer: Value) -> Result<T> {
    serde_json::from_value(answer)
        .context("the daemon's answer has an unknown form: is it another version?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let parse = |text: &str| text.parse::<ApiAddress>();
        for (text, is_loopback) in [
            ("127.0.0.1:9808", true),
            ("127.9.9.9:1", true),
            ("[::1]:9808", true),
            ("[::ffff:127.0.0.1]:9808", true),
            ("192.0.2.1:9808", false),
            ("0.0.0.0:9808", false),
            ("[2001:db8::1]:9808", false),
            // A name may be resolved to any address.
            ("localhost:9808", false),
            ("storage.example:65535", false),
        ] {
            let address = parse(text).expect(text);
            assert_eq!(address.to_string(), text);
            assert_eq!(address.is_loopback(), is_loopback, "{text}");
        }
        for text in [
            "",
            "9808",
            "127.0.0.1",
            ":9808",
            "a:b",
            "a:65536",
            "::1:9808",
            "[a]:1",
            "a b:1",
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains("HOST:PORT"), "{text}: {error}");
        }
    }

    #[test]
    fn a_token_is_not_sent_to_other_hosts_without_tls() {
        let none = TlsFiles {
            ca: None,
            certificate: None,
            key: None,
        };
        let address: ApiAddress = "storage.example:9808".parse().expect("an address");
        let refused = |tls: &TlsFiles<'_>| {
            let made = Client::with_token(&address, Some(Path::new("/nonexistent")), tls);
            made.expect_err("refused").to_string()
        };
        assert!(
            refused(&none).contains("--tls-ca PATH"),
            "{}",
            refused(&none)
        );
        let path = Some(Path::new("/nonexistent.pem"));
        let half = TlsFiles { key: path, ..none };
        assert!(refused(&half).contains("--tls-certificate PATH"));
        let own = TlsFiles {
            certificate: path,
            ..half
        };
        assert!(refused(&own).contains("add --tls-ca PATH"));
        let missing = TlsFiles { ca: path, ..none };
        assert!(refused(&missing).contains("/nonexistent.pem: No such file"));
    }

    #[test]
    fn an_address_at_which_nobody_listens_is_named_with_its_remedy() {
        // A port that is free, because its listener is gone.
        let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = gone.local_addr().expect("bound").to_string();
        drop(gone);
        let token = tempfile::NamedTempFile::new().expect("a file");
        fs::write(token.path(), "secret").expect("it is ours");
        let none = TlsFiles {
            ca: None,
            certificate: None,
            key: None,
        };
        let parsed = address.parse().expect("an address");
        let client = Client::with_token(&parsed, Some(token.path()), &none).expect("a runtime");
        let error = client.get("/v1/vms").expect_err("nobody listens");
        let error = error.to_string();
        assert!(error.contains(&address), "{error}");
        assert!(error.contains("--tcp HOST:PORT"), "{error}");
        assert!(!error.contains("--socket"), "{error}");
    }

    #[test]
    fn a_missing_daemon_is_named_with_its_remedy() {
        let client = Client::new(Path::new("/nonexistent/c.sock")).expect("a runtime");
        let error = client
            .get("/v1/vms")
            .expect_err("no daemon listens")
            .to_string();
        assert!(
            error.contains("/nonexistent/c.sock") && error.contains("--socket"),
            "{error}"
        );
    }
}
