//! The client of the control API: one request, one connection.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tidegate_api::error::ErrorBody;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

use crate::problem::{Problem, Problems};

/// The daemon answers within five seconds or says that it could not.
const PATIENCE: Duration = Duration::from_secs(10);

/// A change of who is served takes as long as its files do; the daemon gives it a minute.
const LONG_PATIENCE: Duration = Duration::from_secs(70);

/// What the daemon says, or says is wrong.
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

/// Asks the daemon.
#[derive(Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    runtime: Runtime,
}

impl Client {
    pub(crate) fn new(socket: &Path) -> Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(Client {
            socket: socket.to_owned(),
            runtime,
        })
    }

    /// Looks at something.
    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        answered(self.ask(Method::GET, path, Bytes::new(), PATIENCE)?)
    }

    /// Changes something.
    pub(crate) fn change(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Value> {
        let body = serde_json::to_vec(body)?.into();
        answered(self.ask(method, path, body, PATIENCE)?)
    }

    /// Changes who is served.
    pub(crate) fn change_slowly(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Value> {
        let body = serde_json::to_vec(body)?.into();
        answered(self.ask(method, path, body, LONG_PATIENCE)?)
    }

    /// Removes something. `Err` within: it is not there, and what the daemon says of that.
    pub(crate) fn remove(&self, path: &str) -> Result<Result<Value, anyhow::Error>> {
        let (status, body) = self.ask(Method::DELETE, path, Bytes::new(), LONG_PATIENCE)?;
        match status {
            StatusCode::NOT_FOUND => Ok(answered((status, body))),
            _ => answered((status, body)).map(Ok),
        }
    }

    fn ask(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<(StatusCode, Bytes)> {
        let answer = self.runtime.block_on(async {
            tokio::time::timeout(patience, self.exchange(method, path, body)).await
        });
        let Ok(answer) = answer else {
            let what = format!("the daemon did not answer in {} s", patience.as_secs());
            return Err(Problem::new(what)
                .at(self.socket.display().to_string())
                .into());
        };
        answer
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes)> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|error| self.nobody(&error))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "tidegate")
            .header("content-type", "application/json")
            .body(Full::new(body))?;
        let answer = sender
            .send_request(request)
            .await
            .context("the daemon hung up")?;
        let status = answer.status();
        let body = answer
            .into_body()
            .collect()
            .await
            .context("the daemon hung up")?;
        Ok((status, body.to_bytes()))
    }

    fn nobody(&self, error: &io::Error) -> Problem {
        let socket = self.socket.display().to_string();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                Problem::new("no daemon listens at the control socket")
                    .at(socket)
                    .help(
                        "start one with `tidegate serve FILE`, or name its [control] socket \
                           with --socket PATH or TIDEGATE_SOCKET",
                    )
            }
            io::ErrorKind::PermissionDenied => Problem::new("the control socket may not be opened")
                .at(socket)
                .help(
                    "run this as the daemon's user, or give the socket another mode: \
                           [control] mode = \"0660\"",
                ),
            _ => Problem::new(format!("cannot reach the daemon: {error}")).at(socket),
        }
    }
}

/// Understands an answer.
pub(crate) fn read<T: DeserializeOwned>(answer: Value) -> Result<T> {
    serde_json::from_value(answer)
        .context("the daemon's answer has an unknown form: is it another version?")
}

/// A name as part of a path.
pub(crate) fn escape(name: &str) -> String {
    let mut escaped = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                escaped.push(char::from(byte));
            }
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_place_in_the_path() {
        assert_eq!(escape("oltp-1.a_b"), "oltp-1.a_b");
        assert_eq!(escape("a/../b c?é"), "a%2F..%2Fb%20c%3F%C3%A9");
    }

    #[test]
    fn a_missing_daemon_is_named_with_its_remedy() {
        let client = Client::new(Path::new("/nonexistent/c.sock")).expect("a runtime");
        let error = client
            .get("/v1/vms")
            .expect_err("nobody is there")
            .to_string();
        assert!(
            error.contains("/nonexistent/c.sock") && error.contains("--socket"),
            "{error}"
        );
    }
}
