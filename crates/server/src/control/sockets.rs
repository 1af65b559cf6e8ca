//! Sockets of the control API, and the listeners of metrics.

use std::io;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Api;
use super::access::{Caller, Rules};
use super::connections::{CONNECTIONS_MAX, Connections};
use super::error::ApiResult;
use super::routes;
use super::schedule::Clock;
use super::scrapes::{self, SCRAPERS_MAX};
use crate::config::{Config, ControlListenConfig, ListenAddress, Place};
use crate::daemon::DaemonHandle;
use crate::listener::{BindError, Bound, Listener, Peer, Stream};
use crate::log_limit;
use crate::tokens::Tokens;

/// Pause after a failed `accept`, which most likely found no free file descriptor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Bound sockets of the control API and of metrics.
#[derive(Debug)]
pub struct Sockets {
    /// Sockets of the API; those on TCP have no rules, because their clients have tokens.
    control: Vec<(Bound, Option<Rules>)>,
    metrics: Vec<Bound>,
}

/// Error of binding a socket of the control API or of metrics.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the {what}: {source}")]
pub struct SocketError {
    what: &'static str,
    /// Reason.
    pub source: BindError,
    /// Place of the socket in the configuration.
    pub place: Option<Place>,
    /// Setting that names another socket.
    pub setting: &'static str,
}

impl Sockets {
    /// Binds all sockets that the configuration names.
    ///
    /// # Errors
    /// If another process listens on one, or a system call fails; none is bound then.
    pub fn bind(config: &Config) -> Result<Sockets, Box<SocketError>> {
        // The listener of `[control]` comes first.
        let settings = std::iter::once("`socket` in [control]")
            .chain(std::iter::repeat("`unix` in [[control.listen]]"));
        let control = (config.control.listeners().zip(settings))
            .map(|(listen, setting)| {
                bind(listen).map_err(|source| {
                    Box::new(SocketError {
                        what: "control socket",
                        source,
                        place: listen.place.clone(),
                        setting,
                    })
                })
            })
            .collect::<Result<_, _>>()?;
        let metrics = config.metrics.iter().map(|metrics| {
            let bound = Bound::new(&metrics.address, &metrics.owner);
            bound.map_err(|source| {
                Box::new(SocketError {
                    what: "listener of metrics",
                    source,
                    place: metrics.place.clone(),
                    setting: "`tcp` or `unix` in [[metrics]]",
                })
            })
        });
        let metrics = metrics.collect::<Result<_, _>>()?;
        Ok(Sockets { control, metrics })
    }

    /// Logs the addresses.
    pub fn log(&self) {
        for (bound, _) in &self.control {
            tracing::info!("control API at {}", bound.name());
        }
        for bound in &self.metrics {
            tracing::info!("metrics at {}", bound.name());
        }
    }

    /// Serves the API and metrics and applies schedules until the future is dropped, which also
    /// removes the files of the sockets.
    ///
    /// # Errors
    /// If the runtime cannot register a socket.
    pub async fn serve(self, daemon: DaemonHandle) -> io::Result<()> {
        let tokens = Tokens::load(daemon.store().cloned());
        let api = Api::new(daemon, Clock::system()).with_tokens(tokens);
        // Dropping the task set, with this future, ends all connections and the schedules.
        let mut tasks = JoinSet::new();
        let scrapes = scrapes::router(api.clone());
        for bound in &self.metrics {
            let connections = Connections::new(scrapes.clone(), SCRAPERS_MAX);
            let (listener, name) = (Listener::new(bound)?, bound.name().to_owned());
            tasks.spawn(accept(listener, name, connections, |_, _| Ok(())));
        }
        let router = routes::router(api.clone());
        for (bound, rules) in &self.control {
            let connections = Connections::new(router.clone(), CONNECTIONS_MAX);
            let (listener, name) = (Listener::new(bound)?, bound.name().to_owned());
            let rules = rules.clone();
            let caller = move |stream: &Stream, peer: &Peer| match (&rules, peer) {
                (Some(rules), _) => rules.caller(stream.credentials().as_ref()).admitted(),
                (None, Peer::Tcp(address)) => Ok(Caller::Remote(*address)),
                (None, Peer::Unix { .. }) => unreachable!("a unix socket has rules"),
            };
            tasks.spawn(accept(listener, name, connections, caller));
        }
        tasks.spawn(async move { api.follow_schedules().await });
        while let Some(ended) = tasks.join_next().await {
            // None of them ends by itself.
            if let Err(error) = ended {
                tracing::error!("a task of the control API failed: {error}");
            }
        }
        Ok(())
    }
}

/// Binds a listener of the control API and looks the accounts of its roles up.
fn bind(listen: &ControlListenConfig) -> Result<(Bound, Option<Rules>), BindError> {
    // First, so that an account that is not known leaves no socket behind.
    let rules = match &listen.address {
        ListenAddress::Unix { path, .. } => Some(Rules::look_up(&listen.access, path)?),
        ListenAddress::Tcp(_) => None,
        ListenAddress::VhostUser { .. } => unreachable!("the control API has no vhost-user"),
    };
    Ok((Bound::new(&listen.address, &listen.owner)?, rules))
}

/// Accepts the clients of a listener until the future is dropped. `caller` describes a client, or
/// is the error with which it is refused.
async fn accept<C: Clone + Send + Sync + 'static>(
    listener: Listener,
    name: String,
    mut connections: Connections,
    caller: impl Fn(&Stream, &Peer) -> ApiResult<C>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match caller(&stream, &peer) {
                Ok(caller) => connections.add(stream, peer.account_key(), caller).await,
                Err(refusal) => connections.refuse(stream, refusal),
            },
            Err(error) => {
                if log_limit::NOT_ACCEPTED.allows(Instant::now()) {
                    tracing::warn!(listener = name, %error, "cannot accept");
                }
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;
    use crate::config::SocketOwner;
    use crate::control::access::Caller;

    /// Sends a request at a socket whose clients are all `caller`, and reads until the end of the
    /// connection.
    async fn ask_as(caller: Caller) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("c.sock");
        let address = ListenAddress::Unix {
            path: path.clone(),
            mode: 0o600,
        };
        let bound = Bound::new(&address, &SocketOwner::default()).expect("a free path");
        let listener = Listener::new(&bound).expect("a runtime");
        let router = Router::new().route("/", get(async || "served"));
        let connections = Connections::new(router, CONNECTIONS_MAX);
        let accepting = accept(
            listener,
            "c".to_owned(),
            connections,
            |_: &Stream, _: &Peer| caller.clone().admitted(),
        );
        let client = async {
            let mut stream = UnixStream::connect(&path).await.expect("it listens");
            let request = b"GET / HTTP/1.1\r\nhost: t\r\n\r\n";
            stream.write_all(request).await.expect("it reads");
            if matches!(caller, Caller::Process { role: Some(_), .. }) {
                // The daemon keeps the connection for further requests: the client ends it.
                stream.shutdown().await.expect("it is open");
            }
            let mut answer = String::new();
            let all = stream.read_to_string(&mut answer).await;
            all.expect("an answer and the end");
            answer
        };
        tokio::select! {
            answer = client => answer,
            () = accepting => unreachable!("it accepts without end"),
        }
    }

    #[tokio::test]
    async fn a_process_without_a_role_is_told_so_and_its_connection_is_closed() {
        let answer = ask_as(Caller::with(None)).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
        assert!(answer.contains("user 1000 has no role"), "{answer}");
        let answer = ask_as(Caller::admin()).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.ends_with("served"), "{answer}");
    }
}
