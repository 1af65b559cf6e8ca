//! Types exchanged between an [`Export`](super::Export) and its caller.

use thiserror::Error;

use super::ZEROES_MAX;
use crate::error::NbdError;
use crate::request::{Command, Request};

/// Longest trim or write-zeroes command in bytes; a longer change is sent in parts. A multiple of
/// every block size.
const RANGE_MAX: u32 = 1 << 30;

/// Change of an export's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Writes bytes.
    Write,
    /// Makes a range read as zeroes.
    Zeroes {
        /// The range must stay allocated.
        no_hole: bool,
    },
    /// Deallocates a range; its content is undefined afterwards.
    Trim,
}

impl Change {
    /// Returns the bytes that a change of `len` bytes takes in the log.
    pub(super) fn logged_bytes(self, len: u32) -> u32 {
        if self == Change::Write { len } else { 0 }
    }
}

/// Operation of an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads a range.
    Read,
    /// Changes a range.
    Change(Change),
    /// Makes everything that ended before durable.
    Flush,
}

/// Request to an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The caller's name for it; no two that have not ended have the same.
    pub tag: u32,
    /// Operation.
    pub operation: Operation,
    /// First byte; 0 for a flush.
    pub offset: u64,
    /// Length in bytes; 0 for a flush alone.
    pub len: u32,
    /// The change must be durable before it ends.
    pub fua: bool,
}

/// Abilities of the server on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Longest read or write in bytes, not zero.
    pub max_payload: u32,
    /// The server has `NBD_CMD_WRITE_ZEROES`; zeroes are written as data otherwise.
    pub can_zero: bool,
    /// The server has `NBD_CMD_TRIM`; trims do nothing otherwise.
    pub can_trim: bool,
    /// The server has `NBD_CMD_FLUSH`; flushes succeed without it while no change was acknowledged,
    /// as of a read-only disk, and fail the export otherwise.
    pub can_flush: bool,
}

impl Terms {
    /// Returns command, length and data for the next part of a change of which `rest` bytes are
    /// left; `data` are those of a write. A trim needs a server that has it.
    pub(super) fn part(&self, change: Change, rest: u64, data: Data) -> (Command, u32, Data) {
        let at_most = |len: u32| rest.min(len.into()) as u32;
        match change {
            Change::Write => (Command::Write, at_most(self.max_payload), data),
            Change::Zeroes { no_hole } if self.can_zero => {
                let fast_zero = false;
                let command = Command::WriteZeroes { no_hole, fast_zero };
                (command, at_most(RANGE_MAX), Data::None)
            }
            Change::Zeroes { .. } => {
                let len = at_most(self.max_payload.min(ZEROES_MAX));
                (Command::Write, len, Data::Zeroes)
            }
            Change::Trim => (Command::Trim, at_most(RANGE_MAX), Data::None),
        }
    }
}

/// Request to be put on the wire, after all earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Head of the request.
    pub request: Request,
    /// Bytes that follow the head; [`Request::len`] of them unless there are none.
    pub data: Data,
}

/// Origin of the bytes that follow a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// No bytes follow.
    None,
    /// Bytes of a request.
    Ask {
        /// The caller's name of the request.
        tag: u32,
        /// First of its bytes.
        from: u32,
    },
    /// Bytes of the caller's ring of logged data.
    Log {
        /// Position of the first one: byte `at % unflushed` of the ring.
        at: u64,
    },
    /// Zeroes, at most [`ZEROES_MAX`](super::ZEROES_MAX).
    Zeroes,
}

/// Work of the caller that a reply brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No work.
    Done,
    /// Data follow in the stream: `len` bytes of the request `tag`, from its byte `from` on. The
    /// caller calls [`Export::take_data`](super::Export::take_data) when they are there.
    Data {
        /// The caller's name of the request.
        tag: u32,
        /// First of its bytes.
        from: u32,
        /// Number of bytes.
        len: u32,
    },
    /// All bytes of the request `tag` are to be copied to the ring of logged data, from position
    /// `at` on, before the request ends.
    Log {
        /// The caller's name of the request.
        tag: u32,
        /// Position of the first byte.
        at: u64,
    },
}

/// Reason to cut a connection, by what the server sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Cut {
    /// The reply answers no request of the connection.
    #[error("the server answered a request that was not sent, or answered it twice")]
    UnknownCookie,
    /// The reply answers a request that was not sent whole.
    #[error("the server answered a request before it was sent whole")]
    TooEarly,
    /// The server is shutting down (`NBD_ESHUTDOWN`).
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The export has failed: see [`Export::failure`](super::Export::failure).
    #[error("the export has failed")]
    Failed,
}

/// Reason why an export takes no more changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server answered a flush with an error, or has none ([`NbdError::Enotsup`]).
    Flush(NbdError),
    /// The server answered an acknowledged change with an error that was sent again after a cut.
    Replay(NbdError),
    /// The caller gave up ([`Export::give_up`](super::Export::give_up)).
    GivenUp,
}
