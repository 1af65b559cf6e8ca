//! Sockets of the control API, and the listeners of metrics and of the dashboard.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use super::access::{Caller, Rules};
use super::connections::{CONNECTIONS_MAX, Connections, places};
use super::dashboard::{self, VISITORS_MAX};
use super::error::ApiResult;
use super::events::{Events, SubscribersMax};
use super::recorded_starts::follow_recorded_starts;
use super::reload::Reload;
use super::routes;
use super::schedule::Clock;
use super::scrapes::{self, SCRAPERS_MAX};
use super::tls_clients::TlsClients;
use super::{Api, Maker};
use crate::calculation::Program;
use crate::config::{
    Config, ControlListenConfig, DashboardConfig, ListenAddress, Place, SocketOwner,
};
use crate::daemon::DaemonHandle;
use crate::listener::{BindError, Bound, InheritedSockets, Listener, Peer, Stream};
use crate::log_limit;
use crate::ring::sys;
use crate::tls::{Configured, TlsListeners, TlsOpenError};
use crate::tokens::Tokens;

/// Pause after a failed `accept`, which most likely found no free file descriptor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Bound sockets of the control API, of metrics and of the dashboard.
#[derive(Debug)]
pub struct Sockets {
    /// Sockets of the API; those on TCP have no rules, because their clients have tokens.
    control: Vec<(Arc<Bound>, Option<Rules>)>,
    metrics: Vec<Arc<Bound>>,
    /// Listeners of the dashboard, with their names of `[[dashboard]]`.
    dashboards: Vec<(Arc<Bound>, Vec<String>)>,
    /// TLS of the sockets of the API, and of those of metrics: each with threads of its own, so
    /// that handshakes with one delay none with the other.
    control_tls: TlsListeners,
    metrics_tls: TlsListeners,
    /// Signals to read the configuration again, from before it is in force.
    hangups: io::Result<Signal>,
    /// Program that makes what-if runs and reports, and the socket that it asks.
    maker: Option<Maker>,
}

/// Error of opening a socket of the control API or of metrics.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// A socket could not be bound.
    #[error("cannot open the {what}: {source}")]
    Bind {
        /// Name of the socket.
        what: &'static str,
        /// Reason.
        source: BindError,
        /// Place of the socket in the configuration.
        place: Option<Place>,
        /// Setting that names another socket.
        setting: &'static str,
    },
    /// TLS of a socket could not be set up.
    #[error("{what}: {source}")]
    Tls {
        /// Name of the sockets.
        what: &'static str,
        /// Reason.
        source: TlsOpenError,
    },
}

impl SocketError {
    /// Returns the place in the configuration of what failed; `None` if the error concerns no part
    /// of it, or the configuration was not read from a file.
    pub fn place(&self) -> Option<&Place> {
        match self {
            SocketError::Bind { place, .. } => place.as_ref(),
            SocketError::Tls { source, .. } => source.place(),
        }
    }

    /// Returns what would be right, if that is known.
    pub fn help(&self) -> Option<String> {
        match self {
            SocketError::Bind {
                source, setting, ..
            } => source.help().map(|help| format!("{help}: {setting}")),
            SocketError::Tls { source, .. } => source.help().map(str::to_owned),
        }
    }
}

impl Sockets {
    /// Binds all sockets that the configuration names. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If another process listens on one, the files of TLS cannot be used, or a system call fails;
    /// none is bound then.
    pub fn bind(config: &Config) -> Result<Sockets, Box<SocketError>> {
        Sockets::bind_or_inherit(config, &InheritedSockets::default())
    }

    /// Takes the sockets of another daemon that the configuration names, and binds the others. Must
    /// be called within a tokio runtime.
    ///
    /// # Errors
    /// As for [`Sockets::bind`].
    pub fn bind_or_inherit(
        config: &Config,
        inherited: &InheritedSockets,
    ) -> Result<Sockets, Box<SocketError>> {
        // The listener of `[control]` comes first.
        let settings = std::iter::once("`socket` in [control]")
            .chain(std::iter::repeat("`unix` or `tcp` in [[control.listen]]"));
        let control = (config.control.listeners().zip(settings))
            .map(|(listen, setting)| {
                bind(listen, inherited).map_err(|source| {
                    Box::new(SocketError::Bind {
                        what: "control socket",
                        source,
                        place: listen.place.clone(),
                        setting,
                    })
                })
            })
            .collect::<Result<_, _>>()?;
        let metrics = config.metrics.iter().map(|metrics| {
            let bound = Bound::new_or_inherited(&metrics.address, &metrics.owner, inherited);
            bound.map(Arc::new).map_err(|source| {
                Box::new(SocketError::Bind {
                    what: "listener of metrics",
                    source,
                    place: metrics.place.clone(),
                    setting: "`tcp` or `unix` in [[metrics]]",
                })
            })
        });
        let metrics = metrics.collect::<Result<_, _>>()?;
        let dashboards =
            (config.dashboards.iter()).map(|dashboard| bind_dashboard(dashboard, inherited));
        let dashboards = dashboards.collect::<Result<_, _>>()?;
        Ok(Sockets {
            control,
            metrics,
            dashboards,
            control_tls: open_tls(config, "control API", control_with_tls)?,
            metrics_tls: open_tls(config, "metrics", metrics_with_tls)?,
            hangups: signal(SignalKind::hangup()),
            maker: None,
        })
    }

    /// Names the program that makes what-if runs and reports; without it there are none.
    /// `config` is that of the sockets.
    pub fn with_calculations(self, config: &Config, program: Program) -> Sockets {
        let mut paths = (config.control.listeners()).filter_map(|listen| match &listen.address {
            ListenAddress::Unix { path, .. } => Some(path.clone()),
            ListenAddress::Tcp(_) | ListenAddress::VhostUser { .. } => None,
        });
        let maker = paths.next().map(|socket| Maker { program, socket });
        Sockets { maker, ..self }
    }

    /// Returns all sockets, to hand them over to another daemon.
    pub fn bound(&self) -> Vec<Arc<Bound>> {
        let control = self.control.iter().map(|(bound, _)| bound);
        let dashboards = self.dashboards.iter().map(|(bound, _)| bound);
        control
            .chain(&self.metrics)
            .chain(dashboards)
            .cloned()
            .collect()
    }

    /// Returns the addresses and paths: of the API in the order of the configuration, then of
    /// metrics and of the dashboard. A port that the kernel has chosen is filled in.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let control = self.control.iter().map(|(bound, _)| bound.name());
        let dashboards = self.dashboards.iter().map(|(bound, _)| bound.name());
        control
            .chain(self.metrics.iter().map(|bound| bound.name()))
            .chain(dashboards)
    }

    /// Logs the addresses.
    pub fn log(&self) {
        for (bound, _) in &self.control {
            tracing::info!("control API at {}", bound.name());
        }
        for bound in &self.metrics {
            tracing::info!("metrics at {}", bound.name());
        }
        for (bound, _) in &self.dashboards {
            tracing::info!("dashboard at http://{}", bound.name());
        }
    }

    /// Serves the API, metrics and the dashboard, applies schedules, and applies the configuration
    /// file again on SIGHUP, until `stop` is done, and then closes all connections and waits until
    /// the replies of those over TLS are sent, or should be. Dropping the future closes everything
    /// at once. The files of the sockets are removed at the end.
    ///
    /// # Errors
    /// If the runtime cannot register a socket.
    pub async fn serve(
        self,
        daemon: DaemonHandle,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let Sockets {
            control,
            metrics,
            dashboards,
            control_tls,
            metrics_tls,
            hangups,
            maker,
        } = self;
        let tokens = Tokens::load(daemon.store().cloned());
        let files = sys::raise_open_files() as usize;
        let max = places(CONNECTIONS_MAX, files, control.len());
        let visitors_max = places(VISITORS_MAX, files, dashboards.len());
        let api = Api::new(daemon.clone(), Clock::system())
            .with_tokens(tokens)
            .with_maker(maker)
            .with_events(Events::new(SubscribersMax::beside(max, visitors_max)));
        // Dropping the task set, with this future, ends all connections and the schedules.
        let mut tasks = JoinSet::new();
        serve_metrics(&mut tasks, &metrics, &metrics_tls, (&api, &daemon), files)?;
        let router = routes::router(api.clone());
        serve_dashboards(&mut tasks, &dashboards, &router, visitors_max)?;
        for ((bound, rules), at) in control.iter().zip(0..) {
            let connections = match rules {
                Some(_) => Connections::new(router.clone(), max),
                None => Connections::that_need_tokens(router.clone(), max),
            };
            let (listener, name) = (Listener::new(bound)?, bound.name().to_owned());
            if let Some(tls) = control_tls.of(at) {
                let clients = TlsClients::new(tls, daemon.half_open().control.clone());
                tasks.spawn(accept_tls(
                    listener,
                    name,
                    connections,
                    clients,
                    Caller::Remote,
                ));
                continue;
            }
            let rules = rules.clone();
            let caller = move |stream: &Stream, peer: &Peer| match (&rules, peer) {
                (Some(rules), _) => rules.caller(stream.credentials().as_ref()).admitted(),
                (None, Peer::Tcp(address)) => Ok(Caller::Remote(*address)),
                (None, Peer::Unix { .. }) => unreachable!("a unix socket has rules"),
            };
            tasks.spawn(accept(listener, name, connections, caller));
        }
        tasks.spawn(follow_recorded_starts(api.clone()));
        match hangups {
            Ok(hangups) => drop(tasks.spawn(Reload::new(api.clone()).follow_hangups(hangups))),
            Err(error) => tracing::warn!("SIGHUP cannot be received: {error}"),
        }
        tasks.spawn(async move { api.follow_schedules().await });
        tokio::select! {
            () = log_failures(&mut tasks) => {}
            () = stop => {}
        }
        tasks.shutdown().await;
        // Nobody is accepted any more.
        drop((control, metrics, dashboards));
        // The last replies are with the threads for TLS.
        tokio::join!(control_tls.finished(), metrics_tls.finished());
        Ok(())
    }
}

/// Begins to serve the listeners of metrics. `files` is the number of descriptors that the process
/// may have.
fn serve_metrics(
    tasks: &mut JoinSet<()>,
    metrics: &[Arc<Bound>],
    tls: &TlsListeners,
    (api, daemon): (&Api<DaemonHandle>, &DaemonHandle),
    files: usize,
) -> io::Result<()> {
    let scrapes = scrapes::router(api.clone());
    let max = places(SCRAPERS_MAX, files, metrics.len());
    for (bound, at) in metrics.iter().zip(0..) {
        let connections = Connections::new(scrapes.clone(), max);
        let (listener, name) = (Listener::new(bound)?, bound.name().to_owned());
        match tls.of(at) {
            Some(tls) => {
                let clients = TlsClients::new(tls, daemon.half_open().metrics.clone());
                tasks.spawn(accept_tls(listener, name, connections, clients, |_| ()))
            }
            None => tasks.spawn(accept(listener, name, connections, |_, _| Ok(()))),
        };
    }
    Ok(())
}

/// Begins to serve the listeners of the dashboard, each at most `max` connections at a time.
fn serve_dashboards(
    tasks: &mut JoinSet<()>,
    dashboards: &[(Arc<Bound>, Vec<String>)],
    api: &Router,
    max: usize,
) -> io::Result<()> {
    for (bound, host_names) in dashboards {
        let router = dashboard::router(api.clone(), host_names);
        let connections = Connections::new(router, max);
        let (listener, name) = (Listener::new(bound)?, bound.name().to_owned());
        let caller = |_: &Stream, peer: &Peer| match peer {
            Peer::Tcp(address) => Ok(dashboard::visitor(*address)),
            Peer::Unix { .. } => unreachable!("a dashboard has a TCP address"),
        };
        tasks.spawn(accept(listener, name, connections, caller));
    }
    Ok(())
}

/// Logs tasks that fail. None of them ends by itself.
async fn log_failures(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!("a task of the control API failed: {error}");
        }
    }
}

/// Opens the TLS of the sockets that `find` finds.
fn open_tls(
    config: &Config,
    what: &'static str,
    find: fn(&Config) -> Vec<Configured<'_>>,
) -> Result<TlsListeners, Box<SocketError>> {
    let opened = TlsListeners::open(config, what, find);
    opened.map_err(|source| Box::new(SocketError::Tls { what, source }))
}

/// Returns the listeners of the API that have TLS.
fn control_with_tls(config: &Config) -> Vec<Configured<'_>> {
    let control = config.control.listeners().enumerate();
    let with_tls = control.filter_map(|(at, listen)| {
        let name = listen.description();
        Configured::new(at, &listen.address, name, listen.tls.as_ref())
    });
    with_tls.collect()
}

/// Returns the listeners of metrics that have TLS.
fn metrics_with_tls(config: &Config) -> Vec<Configured<'_>> {
    let metrics = config.metrics.iter().enumerate();
    let with_tls = metrics.filter_map(|(at, metrics)| {
        let name = metrics.description();
        Configured::new(at, &metrics.address, name, metrics.tls.as_ref())
    });
    with_tls.collect()
}

/// Binds a listener of the dashboard.
fn bind_dashboard(
    dashboard: &DashboardConfig,
    inherited: &InheritedSockets,
) -> Result<(Arc<Bound>, Vec<String>), Box<SocketError>> {
    let owner = SocketOwner::default();
    let bound = Bound::new_or_inherited(&dashboard.address, &owner, inherited);
    let bound = bound.map_err(|source| {
        Box::new(SocketError::Bind {
            what: "listener of the dashboard",
            source,
            place: dashboard.place.clone(),
            setting: "`tcp` in [[dashboard]]",
        })
    })?;
    Ok((Arc::new(bound), dashboard.host_names.clone()))
}

/// Binds a listener of the control API and looks the accounts of its roles up.
fn bind(
    listen: &ControlListenConfig,
    inherited: &InheritedSockets,
) -> Result<(Arc<Bound>, Option<Rules>), BindError> {
    // First, so that an account that is not known leaves no socket behind.
    let rules = match &listen.address {
        ListenAddress::Unix { path, .. } => Some(Rules::look_up(&listen.access, path)?),
        ListenAddress::Tcp(_) => None,
        ListenAddress::VhostUser { .. } => unreachable!("the control API has no vhost-user"),
    };
    let bound = Bound::new_or_inherited(&listen.address, &listen.owner, inherited)?;
    Ok((Arc::new(bound), rules))
}

/// Logs that a listener cannot accept, and waits before the next attempt.
async fn cannot_accept(listener: &str, error: &io::Error) {
    if log_limit::NOT_ACCEPTED.allows(Instant::now()) {
        tracing::warn!(listener, %error, "cannot accept");
    }
    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
}

/// Accepts the clients of a listener with TLS until the future is dropped. `caller` describes a
/// client by its address.
async fn accept_tls<C: Clone + Send + Sync + 'static>(
    listener: Listener,
    name: String,
    mut connections: Connections,
    mut clients: TlsClients,
    caller: impl Fn(SocketAddr) -> C,
) {
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer @ Peer::Tcp(address))) => clients.begin(stream, peer, address),
                Ok((_, Peer::Unix { .. })) => unreachable!("unix sockets have no TLS"),
                Err(error) => {
                    clients.make_room_after(&error);
                    cannot_accept(&name, &error).await;
                }
            },
            client = clients.next() => if let Some((stream, address)) = client {
                let key = Peer::Tcp(address).account_key();
                connections.add(stream, key, caller(address));
            },
        }
    }
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
                Ok(caller) => connections.add(stream, peer.account_key(), caller),
                Err(refusal) => connections.refuse(stream, peer.account_key(), refusal),
            },
            Err(error) => cannot_accept(&name, &error).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;
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
