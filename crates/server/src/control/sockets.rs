//! Sockets of the control API, and the listeners of metrics.

use std::io;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::connections::{CONNECTIONS_MAX, Connections};
use super::schedule::Clock;
use super::scrapes::{self, SCRAPERS_MAX};
use super::{Api, router};
use crate::config::{Config, ListenAddress, Place, SocketOwner};
use crate::daemon::DaemonHandle;
use crate::listener::{BindError, Bound, Listener};
use crate::log_limit;

/// Pause after a failed `accept`, which most likely found no free file descriptor.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Bound sockets of the control API and of metrics.
#[derive(Debug)]
pub struct Sockets {
    control: Bound,
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
        let control = &config.control;
        let (path, mode) = (control.socket.clone(), control.mode);
        let address = ListenAddress::Unix { path, mode };
        let control = Bound::new(&address, &SocketOwner::default()).map_err(|source| {
            Box::new(SocketError {
                what: "control socket",
                source,
                place: control.place.clone(),
                setting: "`socket` in [control]",
            })
        })?;
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
        tracing::info!("control API at {}", self.control.name());
        for bound in &self.metrics {
            tracing::info!("metrics at {}", bound.name());
        }
    }

    /// Returns the addresses of the listeners of metrics, with the port that the kernel chose for
    /// port 0.
    pub fn metrics(&self) -> impl Iterator<Item = &str> {
        self.metrics.iter().map(Bound::name)
    }

    /// Serves the API and metrics and applies schedules until the future is dropped, which also
    /// removes the files of the sockets.
    ///
    /// # Errors
    /// If the runtime cannot register a socket.
    pub async fn serve(self, daemon: DaemonHandle) -> io::Result<()> {
        let api = Api::new(daemon, Clock::system());
        let mut metrics = Vec::new();
        for bound in &self.metrics {
            metrics.push((Listener::new(bound)?, bound.name().to_owned()));
        }
        // Dropping the task set, with this future, ends all connections and the schedules.
        let mut tasks = JoinSet::new();
        let scrapes = scrapes::router(api.clone());
        for (listener, name) in metrics {
            let connections = Connections::new(scrapes.clone(), SCRAPERS_MAX);
            tasks.spawn(async move { accept(listener, connections, &name).await });
        }
        let listener = Listener::new(&self.control)?;
        let connections = Connections::new(router(api.clone()), CONNECTIONS_MAX);
        tasks.spawn(api.follow_schedules());
        accept(listener, connections, self.control.name()).await;
        Ok(())
    }
}

/// Accepts the clients of a listener until the future is dropped.
async fn accept(listener: Listener, mut connections: Connections, name: &str) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => connections.add(stream).await,
            Err(error) => {
                if log_limit::NOT_ACCEPTED.allows(Instant::now()) {
                    tracing::warn!(listener = name, %error, "cannot accept");
                }
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}
