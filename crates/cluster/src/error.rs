//! Errors of the driver. The messages say job, as the command `tidegate place job` does.

use tidegate_units::human::bytes_and_count;

use crate::clock::ClockError;
use crate::daemons::DaemonError;
use crate::state::HostError;
use crate::store::StoreError;

/// Error of a cluster operation; the stored state is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Name of a new transfer is taken.
    #[error("a job named {transfer:?} already exists")]
    NameTaken {
        /// Name of the transfer.
        transfer: String,
    },
    /// Empty name of a new transfer.
    #[error("the name of a job must not be empty")]
    NameEmpty,
    /// Unknown transfer.
    #[error("there is no job {transfer:?}")]
    UnknownTransfer {
        /// Requested name.
        transfer: String,
        /// Names of all transfers.
        known: Vec<String>,
    },
    /// Progress report of a waiting transfer.
    #[error("job {transfer:?} still waits for a host and cannot have moved any bytes")]
    StillWaiting {
        /// Name of the transfer.
        transfer: String,
    },
    /// Progress report with fewer bytes than before.
    #[error(
        "{} of {transfer:?} are fewer than the {} reported before",
        bytes_and_count(*bytes),
        bytes_and_count(*reported)
    )]
    MovedBack {
        /// Name of the transfer.
        transfer: String,
        /// Bytes of this report.
        bytes: u64,
        /// Bytes of the last report: the least that is allowed.
        reported: u64,
        /// Size of the transfer in bytes: the most that is allowed.
        size: u64,
    },
    /// Progress report with more bytes than the size of the transfer.
    #[error(
        "{} are more than the size of {transfer:?}, {}",
        bytes_and_count(*bytes),
        bytes_and_count(*size)
    )]
    MovedBeyond {
        /// Name of the transfer.
        transfer: String,
        /// Bytes of this report.
        bytes: u64,
        /// Bytes of the last report: the least that is allowed.
        reported: u64,
        /// Size of the transfer in bytes: the most that is allowed.
        size: u64,
    },
    /// Transfer that is managed by its host's daemon.
    #[error("job {transfer:?} is managed by its host's daemon, which reports its progress")]
    DaemonOwns {
        /// Name of the transfer.
        transfer: String,
        /// Control socket of the daemon.
        socket: String,
    },
    /// Daemon that did not start a transfer, whose placement could not be removed again.
    #[error("{source}; job {transfer:?} may still be placed")]
    NotRemoved {
        /// Name of the transfer.
        transfer: String,
        /// Error of the daemon.
        source: DaemonError,
    },
    /// Refused change of hosts.
    #[error(transparent)]
    Host(#[from] HostError),
    /// VM of the transfer that no daemon serves.
    #[error("no host has a VM {vm:?}, so its job cannot be started")]
    NotServed {
        /// Name of the VM.
        vm: String,
        /// Names of the hosts with a daemon.
        with_daemon: Vec<String>,
        /// Names of those hosts whose VMs are not known here.
        unknown: Vec<String>,
    },
    /// Clock of the own machine, or of another placer, that is wrong.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// Error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Error of a daemon.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
}
