//! Client of the control API, with a connection for each request.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidegate_api::error::ErrorBody;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;

use crate::problem::{Problem, Problems};

/// Time-out of most requests; the daemon itself answers within 5 s, if only with an error.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Time-out of requests that open, create or resize files; the daemon's own is a minute.
const LONG_TIMEOUT: Duration = Duration::from_secs(70);

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
        address: SocketAddr,
        /// Header `Authorization`, marked as sensitive.
        authorization: HeaderValue,
    },
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
    /// If the address is not loopback: the token could be read on the way. Or if no file is named,
    /// or the file holds no token.
    pub(crate) fn with_token(address: SocketAddr, file: Option<&Path>) -> Result<Client> {
        if !address.ip().to_canonical().is_loopback() {
            let problem = Problem::new("a token is sent to this host alone, without TLS");
            let help = "use an address of loopback, and a tunnel such as `ssh -L` to another host";
            return Err(problem.at(address.to_string()).help(help).into());
        }
        let Some(file) = file else {
            let problem = Problem::new("the control API on TCP needs a token");
            let help = "name its file with --token-file PATH or TIDEGATE_TOKEN_FILE; \
                        `tidegate token add` makes one";
            return Err(problem.at(address.to_string()).help(help).into());
        };
        let authorization = authorization(file)?;
        Client::of(Endpoint::Tcp {
            address,
            authorization,
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
            return Err(Problem::new(what).at(self.endpoint.to_string()).into());
        };
        answer
    }

    async fn exchange(
        &self,
        method: Method,
        path_and_query: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes)> {
        let unreachable = |error| self.cannot_connect(&error);
        match &self.endpoint {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(unreachable)?;
                send(stream, method, path_and_query, body, None).await
            }
            Endpoint::Tcp {
                address,
                authorization,
            } => {
                let stream = TcpStream::connect(address).await.map_err(unreachable)?;
                send(stream, method, path_and_query, body, Some(authorization)).await
            }
        }
    }

    /// Returns the error for a socket that cannot be connected to, with its remedy.
    fn cannot_connect(&self, error: &io::Error) -> Problem {
        let socket = self.endpoint.to_string();
        match error.kind() {
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

/// Sends a request on a connection of its own and returns the status and body of the answer.
async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: Method,
    path: &str,
    body: Bytes,
    authorization: Option<&HeaderValue>,
) -> Result<(StatusCode, Bytes)> {
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
    let answer = sender
        .send_request(request.body(Full::new(body))?)
        .await
        .context("the daemon closed the connection")?;
    let status = answer.status();
    let body = answer
        .into_body()
        .collect()
        .await
        .context("the daemon closed the connection")?;
    Ok((status, body.to_bytes()))
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
