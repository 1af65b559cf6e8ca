//! Reasons why a daemon was not taken over.

use std::io;
use std::path::PathBuf;

/// Reason why a daemon was not taken over. The running one goes on as before.
#[derive(Debug, thiserror::Error)]
pub enum TakeoverError {
    /// No daemon listens at the socket.
    #[error("{}: no daemon to take over: {source}", path.display())]
    NoDaemon {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The running daemon belongs to another user.
    #[error("{}: the daemon there is user {user}'s, not this user's", path.display())]
    NotAllowed {
        /// Path of the socket.
        path: PathBuf,
        /// User of the running daemon.
        user: u32,
    },
    /// One of both daemons refuses.
    #[error("{what}")]
    Refused {
        /// Mistake or obstacle.
        what: String,
        /// Advice for the operator.
        help: String,
    },
    /// The connection to the running daemon failed.
    #[error("the connection to the running daemon failed: {0}")]
    Io(#[from] io::Error),
}

impl TakeoverError {
    /// Makes a refusal.
    pub(crate) fn refused(what: impl Into<String>, help: impl Into<String>) -> TakeoverError {
        TakeoverError::Refused {
            what: what.into(),
            help: help.into(),
        }
    }

    /// Returns the error in the words of the running daemon: its connection is to the new one.
    pub(crate) fn of_running(&self) -> String {
        match self {
            TakeoverError::Io(source) => {
                format!("the connection to the new daemon failed: {source}")
            }
            _ => self.to_string(),
        }
    }

    /// Returns what to do.
    pub fn help(&self) -> Option<String> {
        let help = match self {
            TakeoverError::NoDaemon { .. } => {
                "start it without --takeover; the running one must not have `takeover = false` in \
                 [daemon], and both need the same `socket` in [control]"
                    .to_owned()
            }
            TakeoverError::NotAllowed { .. } => "run it as that user, or as root".to_owned(),
            TakeoverError::Refused { help, .. } => help.clone(),
            TakeoverError::Io(_) => return None,
        };
        Some(help)
    }
}
