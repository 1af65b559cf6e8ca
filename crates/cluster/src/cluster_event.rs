//! Events of transfers and hosts that an operation did not ask for.

use tidegate_core::time::Nanos;
use tidegate_core::transfers::Class;

/// Event to report to the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClusterEvent {
    /// A waiting transfer was placed.
    Placed {
        /// Name of the transfer.
        transfer: String,
        /// Name of the host.
        host: String,
        /// Time that the transfer waited.
        waited: Nanos,
        /// Class of the transfer on the host.
        class: Class,
        /// Result of starting it on the host's daemon.
        started: Started,
    },
    /// A transfer is stored on a host whose daemon did not start it, and could not be removed from
    /// the store again.
    NotStarted {
        /// Name of the transfer.
        transfer: String,
        /// Host whose daemon, which has joined the cluster, goes on trying to start it.
        tried_by: Option<String>,
    },
    /// A transfer is stored on a host whose daemon has joined the cluster. It is not known whether
    /// it has begun; if it has not, the daemon starts it when it is registered.
    StartLeftToDaemon {
        /// Name of the transfer.
        transfer: String,
        /// Name of the host.
        host: String,
        /// Reason why it is not known.
        why: String,
    },
    /// A transfer waited until its deadline and was dropped.
    Discarded {
        /// Name of the transfer.
        transfer: String,
    },
    /// A waiting transfer was withdrawn.
    Withdrawn {
        /// Name of the transfer.
        transfer: String,
    },
    /// The daemon of a drained host did not answer.
    DrainedDaemonUnreachable {
        /// Name of the host.
        host: String,
    },
    /// The daemon of a host that is not drained did not answer, so the operation fails.
    DaemonUnreachable {
        /// Name of the host.
        host: String,
    },
    /// The daemon of a host that is registered in the cluster does not answer here, as on another
    /// machine. Its transfers count as the cluster knows them.
    DaemonNotReached {
        /// Name of the host.
        host: String,
        /// Reason; the text of the error.
        why: String,
        /// Time that the oldest progress of its transfers refers to; `None`: none is known.
        as_of: Option<Nanos>,
    },
    /// A transfer was dropped together with its host, as requested.
    Lost {
        /// Name of the transfer.
        transfer: String,
    },
    /// A transfer had moved all its bytes when its host was removed.
    Done {
        /// Name of the transfer.
        transfer: String,
    },
    /// A transfer was past its deadline when its host was removed, and was dropped.
    Overdue {
        /// Name of the transfer.
        transfer: String,
    },
    /// A transfer of a removed host continues on another host.
    Moved {
        /// Name of the transfer.
        transfer: String,
        /// Name of the new host.
        host: String,
        /// Bytes still to be moved.
        left: u64,
        /// Class on the new host.
        class: Class,
    },
    /// A transfer of a removed host waits for another host.
    Requeued {
        /// Name of the transfer.
        transfer: String,
        /// Bytes still to be moved.
        left: u64,
    },
    /// A transfer of a removed host was dropped, because no other host would meet its deadline.
    Unplaced {
        /// Name of the transfer.
        transfer: String,
        /// Bytes still to be moved.
        left: u64,
    },
}

/// Result of starting a transfer on its host's daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Started {
    /// The daemon was not asked to start it.
    NotAsked,
    /// The daemon has started it.
    Yes,
    /// The daemon could not be reached or refused; the text of the error.
    Failed(String),
    /// The daemon could not be reached or refused, and goes on trying, because it has joined the
    /// cluster; the text of the error.
    LeftToDaemon(String),
}
