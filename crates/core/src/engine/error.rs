//! Errors of the engine: refused requests and refused control calls.

use tidegate_base::objective::ObjectiveError;

/// Reason for which a request was not taken. Nothing has changed; the frontend answers it or waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// `max_requests` or `max_pending_per_vm` is reached: try again after the next
    /// [`Done`](tidegate_base::request::Done).
    /// [`AdmissionMut::available_slots`](super::AdmissionMut::available_slots) gives the room
    /// beforehand.
    #[error("no free request slot: the maximum of the device or of the VM is reached")]
    Full,
    /// The connection was closed, or its VM removed.
    #[error("the connection is closed, or its VM was removed")]
    NotConnected,
    /// The request lies beyond the end of the disk.
    #[error("bytes {offset}..{end} lie beyond the disk's end at {size}")]
    OutOfRange {
        /// First byte.
        offset: u64,
        /// Offset one past the last byte.
        end: u64,
        /// Size of the disk in bytes.
        size: u64,
    },
    /// The request has no bytes and is not a flush.
    #[error("a request of 0 bytes: only a flush may be empty")]
    Empty,
    /// The request would change a read-only disk.
    #[error("the disk is read-only")]
    ReadOnly,
}

/// Reason for which a control call was refused. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EngineError {
    /// A figure of [`EngineConfig`](super::EngineConfig) out of range.
    #[error("{what} is {value}; allowed is {allowed}")]
    Config {
        /// Name of the field.
        what: &'static str,
        /// Value that was given.
        value: u64,
        /// Values that are allowed.
        allowed: &'static str,
    },
    /// The objective contradicts itself.
    #[error(transparent)]
    Objective(#[from] ObjectiveError),
    /// All slots of VMs, disks or connections are taken.
    #[error("no slot for another {what}: the maximum is {max}")]
    Full {
        /// VM, disk or connection.
        what: &'static str,
        /// Maximum number.
        max: u64,
    },
    /// The handle names nothing that exists.
    #[error("{what} does not exist or was removed")]
    Unknown {
        /// VM, disk or connection.
        what: &'static str,
    },
    /// A deadline transfer was asked for a background process.
    #[error("a background process cannot have a deadline transfer")]
    BackgroundTransfer,
    /// A disk's range is empty or overflows.
    #[error(
        "a disk of {size} bytes at byte {base}: it needs at least one byte and an end below 2^64"
    )]
    DiskRange {
        /// First byte on the device.
        base: u64,
        /// Bytes.
        size: u64,
    },
}
