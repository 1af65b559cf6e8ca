//! Errors of the engine: refused requests and refused control calls.

use tidegate_base::objective::ObjectiveError;
use tidegate_units::human::bytes_and_count;

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
    #[error(
        "a request from {} to {} of a disk that ends at {}",
        bytes_and_count(*offset),
        bytes_and_count(*end),
        bytes_and_count(*size)
    )]
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
        "a disk of {} that begins {} into its device: it needs at least 1 byte and must end within \
         16 EiB",
        bytes_and_count(*size),
        bytes_and_count(*base)
    )]
    DiskRange {
        /// First byte on the device.
        base: u64,
        /// Bytes.
        size: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_sizes_in_units_and_single_bytes_where_they_decide() {
        let beyond = Refusal::OutOfRange {
            offset: (20 << 30) - 512,
            end: (20 << 30) + 3584,
            size: 20 << 30,
        };
        assert_eq!(
            beyond.to_string(),
            "a request from 20 GiB (21474835968 bytes) to 20 GiB (21474840064 bytes) of a disk \
             that ends at 20 GiB"
        );
        let empty = EngineError::DiskRange {
            base: 1 << 30,
            size: 0,
        };
        assert_eq!(
            empty.to_string(),
            "a disk of 0 B that begins 1 GiB into its device: it needs at least 1 byte and must \
             end within 16 EiB"
        );
    }
}
