//! Errors of starting and running the daemon.

use std::io;

use crate::config::Place;
use crate::event_loop::SetupError;
use crate::exchange::ExchangeError;
use crate::listener::BindError;
use crate::store::StoreError;
use crate::takeover::TakeoverError;
use crate::tls::TlsOpenError;

/// Error of starting the daemon, which has released everything.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A device, its disks or its event loop could not be set up.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A listener could not be bound.
    #[error("listener {source}")]
    Bind {
        /// Place of the listener in the configuration.
        place: Option<Box<Place>>,
        /// Reason.
        source: BindError,
    },
    /// TLS of a listener could not be set up.
    #[error(transparent)]
    Tls(#[from] TlsOpenError),
    /// The exchange with other hosts could not be set up.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The threads of the history could not be started.
    #[error("cannot start the threads of the history: {0}")]
    History(io::Error),
    /// Signals cannot be received.
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    /// The running daemon cannot be taken over.
    #[error(transparent)]
    Takeover(#[from] TakeoverError),
    /// The store could not be opened.
    #[error("store {source}")]
    Store {
        /// Place of the store in the configuration.
        place: Option<Box<Place>>,
        /// Reason.
        source: StoreError,
    },
}

impl StartError {
    /// Returns the place in the configuration of what failed; `None` if the error concerns no part
    /// of it, or the configuration was not read from a file.
    pub fn place(&self) -> Option<&Place> {
        match self {
            StartError::Setup(error) => error.place(),
            StartError::Bind { place, .. } | StartError::Store { place, .. } => place.as_deref(),
            StartError::Tls(error) => error.place(),
            StartError::Exchange(ExchangeError::Client { place, .. }) => place.as_deref(),
            StartError::Signals(_) | StartError::History(_) | StartError::Takeover(_) => None,
        }
    }
}

/// Error that ended the daemon before it was told to end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An event loop panicked, which is a bug. Its clients were disconnected.
    #[error("the event loop of device {0:?} panicked")]
    Panicked(String),
    /// An event loop could not continue.
    #[error("the event loop of device {device:?} failed: {source}")]
    Failed {
        /// Name of the device.
        device: String,
        /// Reason.
        source: io::Error,
    },
}
