//! Signals that end the daemon, and SIGHUP, which does not.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, which end the daemon, as they come to this process from
/// [`Signals::install`] on.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs handlers of both signals, which do not end the process by themselves from now on,
    /// nor does SIGHUP.
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the handlers cannot be installed.
    pub fn install() -> io::Result<Signals> {
        // The handler stays when the stream is dropped.
        drop(signal(SignalKind::hangup())?);
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Logs that each SIGHUP reads nothing again, for a daemon without a configuration file, until the
/// future is dropped.
pub(super) async fn log_hangups() {
    let mut hangups = match signal(SignalKind::hangup()) {
        Ok(hangups) => hangups,
        Err(error) => return tracing::warn!("SIGHUP cannot be received: {error}"),
    };
    while hangups.recv().await.is_some() {
        tracing::info!("SIGHUP: this daemon has no configuration file that could be read again");
    }
}
