//! What the agent is told, and what it tells.

use std::io;

use tidegate_core::jobs::{Class, Forecast, Job};
use tidegate_core::time::Nanos;

use crate::host::{Target, Thread};

/// Somebody to be watched.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What people call it; unique.
    pub name: String,
    /// Its processes.
    pub target: Target,
    /// Bytes and how long from now they may take; `None`: it has all the time there is.
    pub job: Option<(u64, Nanos)>,
}

/// What became of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It runs.
    Running,
    /// All its bytes have moved; how much before its deadline, and behind it.
    Done {
        /// How long it took.
        took: Nanos,
        /// Before its deadline by so much.
        early: Nanos,
        /// Behind it by so much.
        late: Nanos,
        /// Its processes ended with these bytes left, which is no more than they may have moved
        /// since they were looked at last.
        unseen: u64,
    },
    /// Its processes ended before its bytes had moved.
    Gone {
        /// So many were left.
        left: u64,
    },
}

/// Something people may want to know.
#[derive(Debug)]
pub enum Event {
    /// A process was found.
    Found {
        /// Whose.
        name: String,
        /// Which.
        process: Thread,
    },
    /// Somebody's processes have all ended.
    Left {
        /// Whose.
        name: String,
    },
    /// Somebody's class is another from now on, or would be.
    Class {
        /// Whose.
        name: String,
        /// Which.
        class: Class,
    },
    /// A job cannot be met, whatever others give up; it is no more helped until a job begins or
    /// ends.
    GivenUp {
        /// Whose.
        name: String,
    },
    /// A job is still running after its deadline; reported once per job.
    Late {
        /// Name of the VM or process that the job belongs to.
        name: String,
        /// Bytes that the job has still to transfer.
        left: u64,
    },
    /// A job has ended.
    Ended {
        /// Whose.
        name: String,
        /// How.
        state: State,
    },
    /// A thread's priority cannot be changed.
    Refused {
        /// Whose.
        name: String,
        /// Which.
        thread: Thread,
        /// Why.
        error: io::Error,
    },
}

/// How somebody stands.
#[derive(Clone, Debug)]
pub struct Report {
    /// Who.
    pub name: String,
    /// Its class.
    pub class: Class,
    /// It has processes.
    pub present: bool,
    /// What it moved a second in the last interval; `None`: not measured yet.
    pub bytes_per_s: Option<u64>,
    /// Its job, as far as it has come, and how it stands.
    pub job: Option<(Job, State)>,
    /// What comes of the job as things are, while it runs.
    pub forecast: Option<Forecast>,
}
