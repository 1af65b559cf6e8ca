//! Notices: what happened to transfers and hosts beside what was asked for.

use tidegate_core::jobs::Class;
use tidegate_core::time::Nanos;

/// Event that an operator should hear of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A transfer that waited is placed.
    Placed {
        /// Name of the transfer.
        transfer: String,
        /// Name of the host.
        host: String,
        /// Time for which it waited.
        waited: Nanos,
        /// Class on the host.
        class: Class,
        /// Whether it was started on the host's daemon.
        started: Started,
    },
    /// A transfer waited until its deadline and is given up.
    Discarded {
        /// Name of the transfer.
        transfer: String,
    },
    /// A transfer that waited was withdrawn.
    Withdrawn {
        /// Name of the transfer.
        transfer: String,
    },
    /// The daemon of a drained host did not answer.
    SilentDrained {
        /// Name of the host.
        host: String,
    },
    /// The daemon of a host that is not drained did not answer; the operation fails.
    Silent {
        /// Name of the host.
        host: String,
    },
    /// A transfer is lost with its host, as was asked for.
    Lost {
        /// Name of the transfer.
        transfer: String,
    },
    /// A transfer had moved all its bytes when its host was removed.
    Done {
        /// Name of the transfer.
        transfer: String,
    },
    /// A transfer was past its deadline when its host was removed, and is lost.
    Overdue {
        /// Name of the transfer.
        transfer: String,
    },
    /// A transfer of a removed host goes on elsewhere.
    Moved {
        /// Name of the transfer.
        transfer: String,
        /// Name of the new host.
        host: String,
        /// Bytes that are left.
        left: u64,
        /// Class on the new host.
        class: Class,
    },
    /// A transfer of a removed host waits for another one.
    Requeued {
        /// Name of the transfer.
        transfer: String,
        /// Bytes that are left.
        left: u64,
    },
    /// A transfer of a removed host is lost: no other one would finish it in time.
    Homeless {
        /// Name of the transfer.
        transfer: String,
        /// Bytes that are left.
        left: u64,
    },
}

/// Result of starting a transfer on its host's daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Started {
    /// Nobody asked for it.
    NotAsked,
    /// It runs.
    Yes,
    /// The daemon could not be reached or refused it, with its words.
    Failed(String),
}
