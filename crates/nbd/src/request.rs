//! Validated requests as the driver sees them, and the reasons for rejecting others.

use crate::error::NbdError;

/// Request that was parsed, validated, and lies within its export ("Request message").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Identifier chosen by the client and repeated in the reply.
    pub cookie: u64,
    /// Operation to perform.
    pub command: Command,
    /// `NBD_CMD_FLAG_FUA`: no reply before the written data is on stable storage. Clients may set
    /// it on commands that write nothing; there it has no effect.
    pub fua: bool,
    /// Offset of the first byte; a multiple of the minimum block size.
    pub offset: u64,
    /// Length in bytes; a multiple of the minimum block size, 0 only for [`Command::Flush`]. The
    /// payload of a `Write` has this length and follows in the stream.
    pub len: u32,
}

/// Operation of a request ("Request types"). `NBD_CMD_DISC` becomes
/// [`Step::Disconnect`](crate::Step::Disconnect).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `NBD_CMD_READ`.
    Read {
        /// `NBD_CMD_FLAG_DF`: answer with at most one content chunk.
        df: bool,
    },
    /// `NBD_CMD_WRITE`; the payload follows in the stream.
    Write,
    /// `NBD_CMD_FLUSH`.
    Flush,
    /// `NBD_CMD_TRIM`.
    Trim,
    /// `NBD_CMD_WRITE_ZEROES`.
    WriteZeroes {
        /// `NBD_CMD_FLAG_NO_HOLE`: the range must stay provisioned.
        no_hole: bool,
        /// `NBD_CMD_FLAG_FAST_ZERO`: `NBD_ENOTSUP` at once unless faster than writing.
        fast_zero: bool,
    },
    /// `NBD_CMD_CACHE`.
    Cache,
    /// `NBD_CMD_BLOCK_STATUS`, for the context in
    /// [`Opened::allocation_context`](crate::Opened::allocation_context).
    BlockStatus {
        /// `NBD_CMD_FLAG_REQ_ONE`: exactly one extent, not longer than the request.
        one: bool,
    },
}

/// Request to answer with an error and not to perform. The session skips its payload, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Identifier chosen by the client and repeated in the reply.
    pub cookie: u64,
    /// `NBD_CMD_*` as sent, for the log.
    pub command: u16,
    /// Error of the reply.
    pub error: NbdError,
    /// Violated rule; [`message`](Reason::message) may accompany the error.
    pub reason: Reason,
}

/// Reason for rejecting a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Unknown `NBD_CMD_*`.
    UnknownCommand,
    /// A flag that does not exist, does not belong to the command, or was not negotiated.
    UnknownFlag,
    /// The command's transmission flag was not advertised.
    NotAdvertised,
    /// `NBD_CMD_BLOCK_STATUS` without a metadata context selected for this export.
    NoMetaContext,
    /// Write, trim or write-zeroes on a read-only export.
    ReadOnly,
    /// Length of zero, for which the specification leaves the answer open.
    ZeroLength,
    /// `NBD_CMD_FLUSH` with an offset or a length.
    ReservedNotZero,
    /// Offset or length that is not a multiple of the minimum block size.
    Unaligned,
    /// Range that reaches past the end of the export.
    PastEnd,
    /// Length above the maximum payload.
    TooLong,
    /// [`Session::shut_down`](crate::Session::shut_down) was called.
    ShuttingDown,
}

impl Reason {
    /// Message for a human reader, sent in the error chunk.
    pub const fn message(self) -> &'static str {
        match self {
            Reason::UnknownCommand => "unknown command",
            Reason::UnknownFlag => "command flag unknown, not negotiated, or not for this command",
            Reason::NotAdvertised => "command not advertised in the transmission flags",
            Reason::NoMetaContext => "no metadata context was selected for this export",
            Reason::ReadOnly => "export is read-only",
            Reason::ZeroLength => "length is zero",
            Reason::ReservedNotZero => "offset and length of a flush must be zero",
            Reason::Unaligned => "offset or length is not a multiple of the minimum block size",
            Reason::PastEnd => "request reaches past the end of the export",
            Reason::TooLong => "length is over the maximum payload size",
            Reason::ShuttingDown => "server is shutting down",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message())
    }
}
