//! TLS of the daemon's listeners: opened at the start, and read again on SIGHUP.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::StartError;
use crate::config::{Config, ListenConfig, TlsConfig};
use crate::tls::{ListenerTls, TlsThreads};

/// TLS of those listeners that have it.
#[derive(Debug, Default)]
pub(super) struct TlsListeners {
    listeners: Vec<TlsListener>,
    /// Threads and signal of daemons that have such a listener; others keep the usual effect of
    /// SIGHUP, which ends them.
    running: Option<(Arc<TlsThreads>, Signal)>,
}

#[derive(Clone, Debug)]
struct TlsListener {
    /// Index of the listener in the configuration.
    at: usize,
    /// Address, for messages.
    name: String,
    tls: Arc<ListenerTls>,
}

impl TlsListeners {
    /// Reads the files of all listeners, and starts the threads if there are any.
    ///
    /// # Errors
    /// If a file cannot be used, or a thread cannot be started.
    pub(super) fn open(config: &Config) -> Result<TlsListeners, StartError> {
        let listeners = config.listeners.iter().enumerate();
        let configured: Vec<_> = listeners
            .filter_map(|(at, listen)| Some((at, listen, listen.tls.as_ref()?)))
            .collect();
        if configured.is_empty() {
            return Ok(TlsListeners::default());
        }
        let hangup = signal(SignalKind::hangup()).map_err(StartError::Signals)?;
        let threads = Arc::new(TlsThreads::start().map_err(StartError::Threads)?);
        let open = |(at, listen, tls): (_, &ListenConfig, &TlsConfig)| {
            let opened = ListenerTls::open(tls.clone(), threads.clone());
            let tls = opened.map_err(|source| StartError::Tls {
                place: tls.place.clone().map(Box::new),
                source,
            })?;
            Ok(TlsListener {
                at,
                name: listen.description(),
                tls: Arc::new(tls),
            })
        };
        Ok(TlsListeners {
            listeners: configured
                .into_iter()
                .map(open)
                .collect::<Result<_, StartError>>()?,
            running: Some((threads.clone(), hangup)),
        })
    }

    /// Returns the TLS of the listener at an index of the configuration.
    pub(super) fn of(&self, at: usize) -> Option<Arc<ListenerTls>> {
        let listener = self.listeners.iter().find(|listener| listener.at == at);
        listener.map(|listener| listener.tls.clone())
    }

    /// Returns the threads, if there are any.
    pub(super) fn threads(&self) -> Option<Arc<TlsThreads>> {
        self.running.as_ref().map(|(threads, _)| threads.clone())
    }

    /// Waits for SIGHUP; for ever where nothing has TLS.
    pub(super) async fn hung_up(&mut self) {
        match &mut self.running {
            Some((_, hangup)) => _ = hangup.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Reads the files again, on another thread because a file system may hang, and logs the
    /// outcome.
    pub(super) fn reload(&self) {
        let listeners = self.listeners.clone();
        tokio::task::spawn_blocking(move || listeners.iter().for_each(TlsListener::reload));
    }
}

impl TlsListener {
    fn reload(&self) {
        let listener = &self.name;
        match self.tls.reload() {
            Ok(()) => tracing::info!(%listener, "SIGHUP: certificates were read again"),
            Err(error) => tracing::error!(
                %listener,
                help = error.help(),
                "SIGHUP: certificates stay as they were: {error}"
            ),
        }
    }
}
