//! TLS of listeners that share threads: opened at the start, and read again on SIGHUP.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{ListenerTls, TlsFileError, TlsThreads};
use crate::config::{self, Config, ListenConfig, Place, TlsClientConfig, TlsConfig};

/// TLS of those listeners of a kind that have it.
#[derive(Debug, Default)]
pub(crate) struct TlsListeners {
    /// Indices of the listeners in the configuration, with the TLS of each.
    listeners: Vec<(usize, Arc<ListenerTls>)>,
    /// Threads and signal where a listener has TLS; a process without one keeps the usual effect of
    /// SIGHUP, which ends it.
    running: Option<(Arc<TlsThreads>, Signal)>,
    /// Configuration with the exports of clients.
    file: Option<PathBuf>,
}

/// Listener with TLS in the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Configured<'a> {
    /// Index of the listener among those of its kind.
    pub(crate) at: usize,
    /// Address, for messages.
    pub(crate) name: String,
    /// Files.
    pub(crate) tls: &'a TlsConfig,
}

/// Error of opening the TLS of listeners.
#[derive(Debug, thiserror::Error)]
pub enum TlsOpenError {
    /// Files of a listener cannot be used.
    #[error("TLS of a listener: {source}")]
    Files {
        /// Place of the section in the configuration.
        place: Option<Box<Place>>,
        /// Reason.
        source: TlsFileError,
    },
    /// The threads could not be started.
    #[error("cannot start the threads for TLS: {0}")]
    Threads(io::Error),
    /// Signals cannot be received.
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
}

impl TlsOpenError {
    /// Returns the place in the configuration; `None` if the error concerns no part of it, or the
    /// configuration was not read from a file.
    pub fn place(&self) -> Option<&Place> {
        match self {
            TlsOpenError::Files { place, .. } => place.as_deref(),
            TlsOpenError::Threads(_) | TlsOpenError::Signals(_) => None,
        }
    }

    /// Returns what would be right; `None` if the configuration is not the cause.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            TlsOpenError::Files { source, .. } => Some(source.help()),
            TlsOpenError::Threads(_) | TlsOpenError::Signals(_) => None,
        }
    }
}

/// Reads the configuration again; `None` if it has errors, which are logged.
fn read_again(file: &Path) -> Option<Config> {
    match config::load(file) {
        Ok(loaded) => Some(loaded.config),
        Err(errors) => {
            tracing::error!(
                file = %file.display(),
                "SIGHUP: which exports clients have stays as it was, because the configuration \
                 has errors (`tidegate check`): {errors}"
            );
            None
        }
    }
}

/// Returns the clients of a listener in a configuration that was read again; `None` if the listener
/// is another one there, which is logged.
fn clients_of(tls: &ListenerTls, listen: &ListenConfig) -> Option<Vec<TlsClientConfig>> {
    let fresh = listen
        .tls
        .as_ref()
        .filter(|_| listen.description() == tls.name);
    if fresh.is_none() {
        tracing::error!(
            listener = %tls.name,
            "SIGHUP: which exports clients have stays as it was: the configuration has another \
             listener in this place, so restart the daemon"
        );
    }
    fresh.map(|tls| tls.clients.clone())
}

impl TlsListeners {
    /// Reads the files of listeners, and starts the threads if there are any: confined, if
    /// `is_confined`. `file` is the configuration that says which exports clients have, if they
    /// have some. Must be called within
    /// a tokio runtime, which receives SIGHUP from then on.
    ///
    /// # Errors
    /// If a file cannot be used, or a thread cannot be started.
    pub(crate) fn open(
        configured: &[Configured<'_>],
        is_confined: bool,
        file: Option<PathBuf>,
    ) -> Result<TlsListeners, TlsOpenError> {
        if configured.is_empty() {
            return Ok(TlsListeners::default());
        }
        let hangup = signal(SignalKind::hangup()).map_err(TlsOpenError::Signals)?;
        let threads = Arc::new(TlsThreads::start(is_confined).map_err(TlsOpenError::Threads)?);
        let open = |Configured { at, name, tls }: &Configured<'_>| {
            let opened = ListenerTls::open(name.clone(), (*tls).clone(), threads.clone());
            let opened = opened.map_err(|source| TlsOpenError::Files {
                place: tls.place.clone().map(Box::new),
                source,
            })?;
            Ok((*at, Arc::new(opened)))
        };
        Ok(TlsListeners {
            listeners: configured.iter().map(open).collect::<Result<_, _>>()?,
            running: Some((threads.clone(), hangup)),
            file,
        })
    }

    /// Returns the TLS of the listener at an index of the configuration.
    pub(crate) fn of(&self, at: usize) -> Option<Arc<ListenerTls>> {
        let listener = self.listeners.iter().find(|(index, _)| *index == at);
        listener.map(|(_, tls)| tls.clone())
    }

    /// Returns the threads, if there are any.
    pub(crate) fn threads(&self) -> Option<Arc<TlsThreads>> {
        self.running.as_ref().map(|(threads, _)| threads.clone())
    }

    /// Waits for SIGHUP; for ever where nothing has TLS.
    pub(crate) async fn hung_up(&mut self) {
        match &mut self.running {
            Some((_, hangup)) => _ = hangup.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Reads the files again, on another thread because a file system may hang, and logs the
    /// outcome. Which exports clients have is read from the configuration, where there is one.
    pub(crate) fn reload(&self) {
        let (listeners, file) = (self.listeners.clone(), self.file.clone());
        tokio::task::spawn_blocking(move || {
            let config = file.and_then(|file| read_again(&file));
            for (at, tls) in &listeners {
                let listen = config.as_ref().and_then(|config| config.listeners.get(*at));
                tls.reload_and_log(listen.and_then(|listen| clients_of(tls, listen)));
            }
        });
    }
}
