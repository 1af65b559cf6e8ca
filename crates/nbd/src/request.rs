//! Requests as the driver sees them, and the reasons for which one is refused.

use crate::error::NbdError;

/// A request that was parsed, validated, and lies within its export ("Request message").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's name for it, repeated in the reply.
    pub cookie: u64,
    /// What to do.
    pub command: Command,
    /// `NBD_CMD_FLAG_FUA`: no reply before what was written is on stable storage. Clients may
    /// set it on commands that write nothing; there it has no effect.
    pub fua: bool,
    /// First byte; a multiple of the minimum block size.
    pub offset: u64,
    /// How many bytes; a multiple of the minimum block size, not zero except for
    /// [`Command::Flush`]. For a `Write`, as many bytes of payload follow in the stream.
    pub len: u32,
}

/// What a request asks for ("Request types"). `NBD_CMD_DISC` is
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

/// A request that is answered with an error without being tried. If it had a payload, the
/// session skips that itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The client's name for it, repeated in the reply.
    pub cookie: u64,
    /// `NBD_CMD_*` as sent, for the log.
    pub command: u16,
    /// The error to reply with.
    pub error: NbdError,
    /// Why; its [`message`](Reason::message) may accompany the error.
    pub reason: Reason,
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// No such `NBD_CMD_*`.
    UnknownCommand,
    /// A flag that does not exist, does not belong to the command, or was not negotiated.
    UnknownFlag,
    /// The command's transmission flag was not advertised.
    NotAdvertised,
    /// `NBD_CMD_BLOCK_STATUS` without a metadata context selected for this export.
    NoMetaContext,
    /// It would change a read-only export.
    ReadOnly,
    /// A length of zero; the specification leaves the answer open.
    ZeroLength,
    /// `NBD_CMD_FLUSH` with an offset or a length.
    ReservedNotZero,
    /// Not a multiple of the minimum block size.
    Unaligned,
    /// It reaches past the end of the export.
    PastEnd,
    /// Longer than the maximum payload.
    TooLong,
    /// [`Session::shut_down`](crate::Session::shut_down) was called.
    ShuttingDown,
}

impl Reason {
    /// One sentence for a human reader, for the error chunk.
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
