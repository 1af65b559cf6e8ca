//! Failures of the driver.

use crate::daemons::DaemonError;
use crate::state::HostError;
use crate::store::StoreError;

/// Failure of an operation on a cluster. Nothing of it is stored then.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A new transfer has the name of another one.
    #[error("there is a job {transfer:?} already")]
    NameTaken {
        /// Name of both.
        transfer: String,
    },
    /// A new transfer has an empty name.
    #[error("a job's name is empty")]
    NameEmpty,
    /// No transfer has this name.
    #[error("there is no job {transfer:?}")]
    UnknownTransfer {
        /// Name that was asked for.
        transfer: String,
        /// Names of all transfers.
        known: Vec<String>,
    },
    /// Progress was reported of a transfer that waits.
    #[error("job {transfer:?} waits: nothing of it can have moved")]
    Waits {
        /// Name of the transfer.
        transfer: String,
    },
    /// Fewer bytes were reported than before.
    #[error("{bytes} bytes of {transfer:?} are fewer than were told before")]
    MovedBack {
        /// Name of the transfer.
        transfer: String,
        /// Bytes of this report.
        bytes: u64,
        /// Bytes of the last report, and of the whole transfer.
        allowed: (u64, u64),
    },
    /// More bytes were reported than the transfer has.
    #[error("{bytes} bytes are more than {transfer:?} has")]
    MovedBeyond {
        /// Name of the transfer.
        transfer: String,
        /// Bytes of this report.
        bytes: u64,
        /// Bytes of the last report, and of the whole transfer.
        allowed: (u64, u64),
    },
    /// A transfer is managed by its host's daemon.
    #[error("job {transfer:?} is known from its host's daemon, which says how it stands")]
    DaemonOwns {
        /// Name of the transfer.
        transfer: String,
        /// Control socket of the daemon.
        socket: String,
    },
    /// A change of hosts is refused.
    #[error(transparent)]
    Host(#[from] HostError),
    /// No daemon serves the VM whose transfer is to be started.
    #[error("no host has a VM {vm:?}, so its job cannot be started")]
    NotServed {
        /// Name of the VM.
        vm: String,
        /// Names of the hosts with a daemon.
        with_daemon: Vec<String>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A daemon failed.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}
