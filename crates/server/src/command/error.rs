//! Why requests of the control plane are refused, by a loop and by the daemon.

use tidegate_core::time::Nanos;
use tidegate_units::format_bandwidth;

use crate::backing::layout::NoRoom;
use crate::job::JobOrder;

/// Why a command was refused. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommandError {
    /// No such VM on this device.
    #[error("no VM named {0:?} on this device")]
    UnknownVm(String),
    /// No disk of that name on this device.
    #[error("no export named {0:?} on this device")]
    UnknownExport(String),
    /// No fault rule of that number.
    #[error("the disk has no fault rule {0}")]
    UnknownFault(u32),
    /// No such disk of this VM.
    #[error("VM {vm:?} has no disk that is exported as {export:?}")]
    UnknownDisk {
        /// The VM.
        vm: String,
        /// The export.
        export: String,
    },
    /// Clients are connected, and would be cut off.
    #[error("{} connected: {}", counted(.0.len()), .0.join(", "))]
    InUse(Vec<String>),
    /// Bytes would be lost.
    #[error("{size} bytes are less than the {now} it has: what lies beyond would be lost")]
    Shrinks {
        /// Bytes that it has.
        now: u64,
        /// Bytes that it was to have.
        size: u64,
    },
    /// The VM has a job already.
    #[error("VM {vm:?} has a job that runs: {moved} of {bytes} bytes have moved")]
    HasJob {
        /// The VM.
        vm: String,
        /// Bytes of it that have moved.
        moved: u64,
        /// Bytes in all.
        bytes: u64,
    },
    /// What the job needs a second does not fit beside what is promised on the device.
    #[error("does not fit: it needs {}, and {} beside what is promised", format_bandwidth(*needs),
            fits(*most))]
    JobTooMuch {
        /// Bytes a second that it needs.
        needs: u64,
        /// Bytes a second that fit.
        most: u64,
        /// Its bytes.
        bytes: u64,
        /// Time it was to have.
        deadline: Nanos,
    },
    /// What a job would take is not known.
    #[error("nothing is known yet of what the device does")]
    Unmeasured,
    /// The VM has no job.
    #[error("VM {0:?} has no job that runs")]
    NoJob(String),
    /// The device is full.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The engine refused, or the system did.
    #[error("{0}")]
    Refused(String),
}

impl CommandError {
    /// Checks that a job which is to be done in so much time needs no more than it may.
    ///
    /// # Errors
    /// [`CommandError::JobTooMuch`] where it does.
    pub fn check_job(order: &JobOrder, deadline: Nanos) -> Result<(), CommandError> {
        let needs = order.needs(deadline);
        match order.most.filter(|&most| needs > most) {
            None => Ok(()),
            Some(most) => Err(CommandError::JobTooMuch {
                needs,
                most,
                bytes: order.bytes,
                deadline,
            }),
        }
    }
}

/// Why a control request came to nothing. Nothing has changed, but for
/// [`ControlError::NotDurable`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ControlError {
    /// No device of that name or number.
    #[error("no device {0}")]
    UnknownDevice(String),
    /// No VM of that name on any device.
    #[error("no VM named {0:?}")]
    UnknownVm(String),
    /// The device's event loop has ended.
    #[error("device {0:?} has shut down")]
    Gone(String),
    /// A name that somebody has already.
    #[error("{what} {name:?} is there already: {by} has it")]
    Taken {
        /// `VM` or `export`.
        what: &'static str,
        /// The name.
        name: String,
        /// Who has it.
        by: String,
    },
    /// A VM has at least one disk.
    #[error("{0:?} is the only disk of its VM")]
    LastDisk(String),
    /// A disk could not be opened, or not be given another size.
    #[error("{what}")]
    Disk {
        /// Which, and why.
        what: String,
        /// What would help.
        help: Option<String>,
    },
    /// A file system call did not return before the deadline. A result that comes later is dropped.
    #[error("{what}")]
    GaveUp {
        /// Name of the call and the deadline, as one sentence.
        what: String,
    },
    /// A disk was given another size, and a crash may give it the one before again.
    #[error("{0}")]
    NotDurable(String),
    /// There is nowhere to keep anything.
    #[error("the configuration names no store, so nothing survives a restart")]
    NoStore,
    /// The configuration names it.
    #[error("VM {0:?} is in the configuration, which brings it back at the next start")]
    Configured(String),
    /// It could not be kept.
    #[error("{what}")]
    Store {
        /// What was to be kept, and why it is not.
        what: String,
        /// What would help.
        help: Option<String>,
    },
    /// What was learnt of a VM cannot be had, or be taken over.
    #[error("{what}")]
    Learnt {
        /// Why.
        what: String,
        /// What would help.
        help: Option<String>,
    },
    /// The loop refused.
    #[error(transparent)]
    Refused(#[from] CommandError),
}

fn fits(most: u64) -> String {
    match most {
        0 => "nothing fits".to_owned(),
        most => format!("{} fit", format_bandwidth(most)),
    }
}

fn counted(clients: usize) -> String {
    match clients {
        1 => "1 client is".to_owned(),
        n => format!("{n} clients are"),
    }
}
