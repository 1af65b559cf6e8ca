//! Errors of the control plane: refusals by an event loop and by the daemon.

use tidegate_core::time::Nanos;
use tidegate_units::human::{self, bytes_and_count};

use crate::backing::layout::NoRoom;
use crate::transfer::TransferOrder;

/// Refusal of a command by an event loop, which has changed nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommandError {
    /// The device has no VM of this name.
    #[error("no VM named {0:?} on this device")]
    UnknownVm(String),
    /// The device has no disk with this export name.
    #[error("no export named {0:?} on this device")]
    UnknownExport(String),
    /// The disk has no fault rule of this number.
    #[error("the disk has no fault rule {0}")]
    UnknownFault(u32),
    /// The VM has no disk with this export name.
    #[error("VM {vm:?} has no disk that is exported as {export:?}")]
    UnknownDisk {
        /// Name of the VM.
        vm: String,
        /// NBD export name.
        export: String,
    },
    /// NBD clients are connected and `force` was not given; lists their peers.
    #[error("{} connected: {}", clients_are(.0.len()), .0.join(", "))]
    InUse(Vec<String>),
    /// The new size cuts off bytes and `force` was not given.
    #[error(
        "{} is less than the present {}: the data beyond would be lost",
        bytes_and_count(*size),
        bytes_and_count(*now)
    )]
    Shrinks {
        /// Present size in bytes.
        now: u64,
        /// Requested size in bytes.
        size: u64,
    },
    /// The VM has a transfer that is running, and `replace` was not given.
    #[error(
        "VM {vm:?} has a transfer in progress: {} of {} moved",
        human::bytes(*moved),
        human::bytes(*bytes)
    )]
    HasTransfer {
        /// Name of the VM.
        vm: String,
        /// Bytes of the transfer that have moved.
        moved: u64,
        /// Bytes in total.
        bytes: u64,
    },
    /// The rate that the transfer needs does not fit beside the objectives on the device.
    #[error(
        "does not fit: it needs {}, and {} beside the other objectives{}",
        human::bytes_per_s(*needs as f64),
        fits(*most),
        if in_the_way.is_empty() { String::new() } else { format!("; {in_the_way}") }
    )]
    TransferTooMuch {
        /// Rate that it needs, in bytes per second.
        needs: u64,
        /// Highest rate that fits, in bytes per second.
        most: u64,
        /// Bytes of the transfer.
        bytes: u64,
        /// Time from its beginning to its deadline.
        deadline: Nanos,
        /// Promise that the transfer would break; empty if it is not known.
        in_the_way: String,
    },
    /// The deadline depends on the device's speed, which has not been measured yet.
    #[error("the throughput of the device has not been measured yet")]
    Unmeasured,
    /// The VM has no transfer that is running.
    #[error("VM {0:?} has no transfer in progress")]
    NoTransfer(String),
    /// The disk does not fit on the device.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The engine or a system call refused; holds the reason.
    #[error("{0}")]
    Refused(String),
}

impl CommandError {
    /// Checks that a transfer with this time to its deadline needs no more than its maximum rate.
    ///
    /// # Errors
    /// [`CommandError::TransferTooMuch`] if it needs more.
    pub fn check_transfer(order: &TransferOrder, deadline: Nanos) -> Result<(), CommandError> {
        let needs = order.needs(deadline);
        // `most` is `None` if the rate fits, with `force`, and without a profile.
        match order.most.filter(|&most| needs > most) {
            None => Ok(()),
            Some(most) => Err(CommandError::TransferTooMuch {
                needs,
                most,
                bytes: order.bytes,
                deadline,
                in_the_way: String::new(),
            }),
        }
    }
}

/// Error of a control request. Nothing has changed, except with [`ControlError::NotDurable`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ControlError {
    /// No device has this name or index.
    #[error("no device {0}")]
    UnknownDevice(String),
    /// No VM of this name is served.
    #[error("no VM named {0:?}")]
    UnknownVm(String),
    /// The device's event loop has ended.
    #[error("device {0:?} has shut down")]
    Gone(String),
    /// The name of a VM or an export is in use.
    #[error("{what} {name:?} exists already: {by} has it")]
    Taken {
        /// `VM` or `export`.
        what: &'static str,
        /// The name.
        name: String,
        /// Device or VM that has it.
        by: String,
    },
    /// The disk is the last one of its VM, which needs at least one.
    #[error("{0:?} is the only disk of its VM")]
    LastDisk(String),
    /// A disk could not be opened or resized.
    #[error("{what}")]
    Disk {
        /// Disk and reason.
        what: String,
        /// Hint, if there is one.
        help: Option<String>,
    },
    /// The path of a disk leads out of the directories and devices that `[paths]` allows.
    #[error("{0}")]
    NotAllowed(String),
    /// A file system call did not return before the deadline. A result that comes later is dropped.
    #[error("{what}")]
    GaveUp {
        /// Name of the call and the deadline, as one sentence.
        what: String,
    },
    /// A disk was resized, but the new size may be lost in a crash.
    #[error("{0}")]
    NotDurable(String),
    /// The configuration names no store.
    #[error("the configuration names no store, so nothing survives a restart")]
    NoStore,
    /// The VM is in the configuration file, so that the next start would bring it back.
    #[error("VM {0:?} is in the configuration, which brings it back at the next start")]
    Configured(String),
    /// A recording could not be switched on, or read.
    #[error("{0}")]
    Recording(String),
    /// The store could not be read or written.
    #[error("{what}")]
    Store {
        /// Record and reason.
        what: String,
        /// Hint, if there is one.
        help: Option<String>,
    },
    /// Learnt state of a VM cannot be exported or imported.
    #[error("{what}")]
    Learnt {
        /// Reason.
        what: String,
        /// Hint, if there is one.
        help: Option<String>,
    },
    /// The event loop refused.
    #[error(transparent)]
    Refused(#[from] CommandError),
}

impl ControlError {
    /// Adds the promise that is in the way of a transfer to the refusal of that transfer. `promise`
    /// gets the rate that the transfer needs, in bytes per second.
    pub(crate) fn naming_promise(mut self, promise: impl FnOnce(u64) -> String) -> ControlError {
        if let ControlError::Refused(CommandError::TransferTooMuch {
            needs, in_the_way, ..
        }) = &mut self
        {
            *in_the_way = promise(*needs);
        }
        self
    }
}

fn fits(most: u64) -> String {
    match most {
        0 => "nothing fits".to_owned(),
        most => format!("{} fit", human::bytes_per_s(most as f64)),
    }
}

fn clients_are(clients: usize) -> String {
    match clients {
        1 => "1 client is".to_owned(),
        n => format!("{n} clients are"),
    }
}
