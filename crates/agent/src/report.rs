//! Targets given to the agent, and its events and reports.

use std::io;

use tidegate_core::time::Nanos;
use tidegate_core::transfers::{Class, Forecast, Transfer};

use crate::host::{Target, TaskId};

/// Deadline transfer of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferSpec {
    /// Bytes to move.
    pub bytes: u64,
    /// Time allowed from the agent's start.
    pub deadline: Nanos,
}

/// Target to observe, with its deadline transfer.
#[derive(Clone, Debug)]
pub struct TargetSpec {
    /// Name for reports; unique.
    pub name: String,
    /// Processes of the target.
    pub target: Target,
    /// Deadline transfer; `None`: the target has no deadline.
    pub transfer: Option<TransferSpec>,
}

/// State of a deadline transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Bytes remain and processes run.
    Running,
    /// All bytes have moved.
    Done {
        /// Duration from start to end.
        took: Nanos,
        /// Time left until the deadline; 0 if it was missed.
        early: Nanos,
        /// Time past the deadline; 0 if it was met.
        late: Nanos,
        /// Bytes that remained when the processes ended; small enough that they may have moved
        /// since the last observation.
        unseen: u64,
    },
    /// The processes ended before all bytes had moved.
    EndedEarly {
        /// Bytes that remained.
        left: u64,
    },
}

/// Event for the log.
#[derive(Debug)]
pub enum Event {
    /// A process of a target was found.
    Found {
        /// Name of the target.
        name: String,
        /// Identity of the process.
        process: TaskId,
    },
    /// All processes of a target have ended.
    Exited {
        /// Name of the target.
        name: String,
    },
    /// The class of a target changes, or would change in a dry run.
    Class {
        /// Name of the target.
        name: String,
        /// New class.
        class: Class,
    },
    /// A transfer cannot meet its deadline, whatever the others give up. It gets no more help until
    /// a transfer starts or ends.
    GivenUp {
        /// Name of the target.
        name: String,
    },
    /// A transfer still runs after its deadline; reported once per transfer.
    Late {
        /// Name of the target.
        name: String,
        /// Bytes still to be moved.
        left: u64,
    },
    /// A transfer has ended.
    Ended {
        /// Name of the target.
        name: String,
        /// State that it ended in, never [`State::Running`].
        state: State,
    },
    /// The I/O priority of a thread of a target cannot be set, for instance without the right to.
    Refused {
        /// Name of the target.
        name: String,
        /// Thread that keeps its class.
        thread: TaskId,
        /// Error of the system call.
        error: io::Error,
    },
}

/// Current state of a target.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the target.
    pub name: String,
    /// I/O class.
    pub class: Class,
    /// Processes of the target run.
    pub present: bool,
    /// Rate in bytes per second over the last interval; `None`: not measured yet.
    pub bytes_per_s: Option<u64>,
    /// Transfer with its progress and state.
    pub transfer: Option<(Transfer, State)>,
    /// Forecast at the current rate, while the transfer runs.
    pub forecast: Option<Forecast>,
}
