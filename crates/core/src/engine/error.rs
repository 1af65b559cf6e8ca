//! Errors of the engine: refused requests and refused control calls.

use tidegate_base::objective::ObjectiveError;

/// Reason for which a request was not taken. Nothing has changed; the frontend answers it or waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// `max_requests` or `max_pending_per_vm` is reached: try again after the next
    /// [`Done`](tidegate_base::request::Done). [`AdmissionMut::room`](super::AdmissionMut::room)
    /// gives the room beforehand.
    #[error("no room: the queue is full")]
    Full,
    /// The client was disconnected, or its VM removed.
    #[error("the client is not connected")]
    NotConnected,
    /// The request lies beyond the end of the disk.
    #[error("bytes {offset}..{end} lie beyond the disk's end at {size}")]
    OutOfRange {
        /// First byte.
        offset: u64,
        /// One past the last byte.
        end: u64,
        /// Size of the disk in bytes.
        size: u64,
    },
    /// The request has no bytes and is not a flush.
    #[error("a request of no bytes")]
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
    /// All slots are taken.
    #[error("no room for another {what}: there are {max}")]
    Full {
        /// VM, disk or client.
        what: &'static str,
        /// Maximum number.
        max: u64,
    },
    /// The handle names nothing that is there.
    #[error("{what} is not there (any more)")]
    Unknown {
        /// VM, disk or client.
        what: &'static str,
    },
    /// A deadline transfer was asked for a background process.
    #[error("a background tenant has no job: it has what the VMs leave, by whenever that is")]
    BackgroundTransfer,
    /// A disk's range is empty or overflows.
    #[error("a disk of {size} bytes at {base} does not fit 64 bits, or is empty")]
    DiskRange {
        /// First byte on the device.
        base: u64,
        /// Bytes.
        size: u64,
    },
}
