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

/// Logs what each SIGHUP has read again, until the future is dropped. `has_tls` is true if a
/// listener for clients of disks has TLS.
pub(super) async fn log_hangups(has_tls: bool) {
    let mut hangups = match signal(SignalKind::hangup()) {
        Ok(hangups) => hangups,
        Err(error) => return tracing::warn!("SIGHUP cannot be received: {error}"),
    };
    let what = if has_tls {
        "certificates of TLS are read again, and nothing else"
    } else {
        "no listener of disks has TLS, so there is nothing to be read again"
    };
    while hangups.recv().await.is_some() {
        tracing::info!(
            "SIGHUP: {what}; a new daemon applies a changed configuration: a restart, or tidegate \
             serve --takeover"
        );
    }
}
