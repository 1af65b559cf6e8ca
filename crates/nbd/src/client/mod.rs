//! NBD client without I/O.
//!
//! [`Handshake`] opens an export with `NBD_OPT_GO`; [`encode_request`] and [`decode_reply`] cover
//! the transmission phase. The caller tracks requests: which cookies are in flight, and how much
//! data follows a simple reply. [`recovery`] does so for an export whose server may restart.

mod handshake;
pub mod recovery;
mod uri;

#[cfg(test)]
pub(crate) use handshake::put_option;
pub use handshake::{Handshake, Negotiated, Progress, Wishes};
pub use uri::{Address, NbdUri, UriError};

use crate::error::NbdError;
use crate::export::BlockSizeError;
use crate::reply::{CHUNK_HEAD_LEN, EXTENTS_MAX, Extent};
use crate::request::{Command, Request};
use crate::wire::*;
use thiserror::Error;

/// Length of a simple reply in bytes, without the data that may follow.
const SIMPLE_REPLY_LEN: usize = 16;
/// Longest chunk payload accepted from a server, without read data, in bytes: a block status with
/// [`EXTENTS_MAX`] extents.
const CHUNK_LEN_MAX: usize = 4 + 8 * EXTENTS_MAX;

/// Error that makes a client give up on a server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Message with a wrong magic number.
    #[error("{message} starts with {found:#x}, not with {expected:#x}")]
    BadMagic {
        /// Kind of the message.
        message: &'static str,
        /// Value at its beginning.
        found: u64,
        /// Required magic number.
        expected: u64,
    },
    /// The server is too old to choose an export with `NBD_OPT_GO`.
    #[error("server does not offer the fixed newstyle handshake")]
    NotFixedNewstyle,
    /// The server answered an option that must succeed with an error.
    #[error("server refused option {option} with {kind:#x}: {message}")]
    Refused {
        /// The option's number.
        option: u32,
        /// `NBD_REP_ERR_*`.
        kind: u32,
        /// Message of the server for a human reader.
        message: String,
    },
    /// The server refused `NBD_OPT_STARTTLS`, with this reply type and message.
    #[error(
        "the server does not offer TLS (it answered NBD_OPT_STARTTLS with {kind:#x}): have it \
         offer TLS, or write nbd:// for a connection that others can read and change"
    )]
    NoTls {
        /// `NBD_REP_ERR_*`.
        kind: u32,
    },
    /// The server serves the export over TLS alone (`NBD_REP_ERR_TLS_REQD`).
    #[error("the server requires TLS: write nbds:// with its host and port")]
    TlsRequired,
    /// Message whose parts are inconsistent.
    #[error("malformed message from the server: {0}")]
    Malformed(&'static str),
    /// Export of more than 2^63 - 1 bytes, the largest offset in a file: its length in bytes.
    #[error("server offers an export of {0} bytes, and at most 2^63 - 1 can be addressed")]
    Size(u64),
    /// Block sizes that break the specification's rules.
    #[error("server advertised block sizes that cannot be: {0}")]
    BlockSize(#[from] BlockSizeError),
}

/// Encodes a request header ("Request message"). The caller sends `request.len` bytes of payload
/// after the header of a write.
pub fn encode_request(request: &Request) -> [u8; REQUEST_LEN] {
    let (command, own) = match request.command {
        Command::Read { df } => (NBD_CMD_READ, if df { NBD_CMD_FLAG_DF } else { 0 }),
        Command::Write => (NBD_CMD_WRITE, 0),
        Command::Flush => (NBD_CMD_FLUSH, 0),
        Command::Trim => (NBD_CMD_TRIM, 0),
        Command::WriteZeroes { no_hole, fast_zero } => {
            let no_hole = if no_hole { NBD_CMD_FLAG_NO_HOLE } else { 0 };
            let fast_zero = if fast_zero { NBD_CMD_FLAG_FAST_ZERO } else { 0 };
            (NBD_CMD_WRITE_ZEROES, no_hole | fast_zero)
        }
        Command::Cache => (NBD_CMD_CACHE, 0),
        Command::BlockStatus { one } => (
            NBD_CMD_BLOCK_STATUS,
            if one { NBD_CMD_FLAG_REQ_ONE } else { 0 },
        ),
    };
    let fua = if request.fua { NBD_CMD_FLAG_FUA } else { 0 };
    header(
        own | fua,
        command,
        request.cookie,
        request.offset,
        request.len,
    )
}

/// Encodes `NBD_CMD_DISC`, the last message of a client.
pub fn encode_disconnect() -> [u8; REQUEST_LEN] {
    header(0, NBD_CMD_DISC, 0, 0, 0)
}

/// Encodes a request header; accepts any field values, also invalid ones.
pub(crate) fn header(
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    len: u32,
) -> [u8; REQUEST_LEN] {
    let mut out = [0; REQUEST_LEN];
    let mut w = Writer::new(&mut out);
    w.u32(NBD_REQUEST_MAGIC)
        .u16(flags)
        .u16(command)
        .u64(cookie)
        .u64(offset)
        .u32(len);
    out
}

/// Result of [`decode_reply`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// Incomplete reply; the total number of bytes that the next call must be given.
    NeedMore(usize),
    /// Complete reply and its length in bytes, without the data that follows.
    Reply(usize, Reply<'a>),
}

/// Simple reply or one chunk of a structured reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Simple reply ("Simple reply message"). Data follows if it answers a read without error.
    Simple {
        /// Identifier of the request.
        cookie: u64,
        /// Error of the request; `None` on success.
        error: Option<NbdError>,
    },
    /// End of a reply without further data (`NBD_REPLY_TYPE_NONE`).
    None {
        /// Identifier of the request.
        cookie: u64,
    },
    /// Header of read data, which follows (`NBD_REPLY_TYPE_OFFSET_DATA`).
    OffsetData {
        /// Identifier of the request.
        cookie: u64,
        /// Offset of the data in the export.
        offset: u64,
        /// Length of the data in bytes.
        len: u32,
        /// `NBD_REPLY_FLAG_DONE`.
        last: bool,
    },
    /// Range that reads as zeroes (`NBD_REPLY_TYPE_OFFSET_HOLE`).
    OffsetHole {
        /// Identifier of the request.
        cookie: u64,
        /// Offset of the range in the export.
        offset: u64,
        /// Length of the range in bytes.
        len: u32,
        /// `NBD_REPLY_FLAG_DONE`.
        last: bool,
    },
    /// Allocation state of a range (`NBD_REPLY_TYPE_BLOCK_STATUS`).
    BlockStatus {
        /// Identifier of the request.
        cookie: u64,
        /// Identifier of the metadata context.
        context: u32,
        /// Consecutive extents, from the request's offset on.
        extents: Extents<'a>,
        /// `NBD_REPLY_FLAG_DONE`.
        last: bool,
    },
    /// Error: `NBD_REPLY_TYPE_ERROR`, `NBD_REPLY_TYPE_ERROR_OFFSET`, or an error chunk of unknown
    /// type.
    Error {
        /// Identifier of the request.
        cookie: u64,
        /// Error of the request.
        error: NbdError,
        /// Message for a human reader; may be empty.
        message: &'a str,
        /// Offset of the error in the export, if known.
        offset: Option<u64>,
        /// `NBD_REPLY_FLAG_DONE`.
        last: bool,
    },
}

/// Iterator over the extents of a block status, which decodes them on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents<'a>(&'a [u8]);

impl Iterator for Extents<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let mut r = Reader(self.0);
        let (len, flags) = (r.u32()?, r.u32()?);
        self.0 = r.0;
        let (hole, zero) = (flags & NBD_STATE_HOLE != 0, flags & NBD_STATE_ZERO != 0);
        Some(Extent { len, hole, zero })
    }
}

/// Decodes one reply at the front of `input`.
///
/// # Errors
/// The bytes are not a valid reply; the stream cannot be resynchronised.
pub fn decode_reply(input: &[u8]) -> Result<Decoded<'_>, ClientError> {
    let mut r = Reader(input);
    match r.u32() {
        // The shorter of the two heads; the magic number decides on the longer one.
        None => Ok(Decoded::NeedMore(SIMPLE_REPLY_LEN)),
        Some(NBD_SIMPLE_REPLY_MAGIC) => Ok(match (r.u32(), r.u64()) {
            (Some(code), Some(cookie)) => Decoded::Reply(
                SIMPLE_REPLY_LEN,
                Reply::Simple {
                    cookie,
                    error: NbdError::from_code(code),
                },
            ),
            _ => Decoded::NeedMore(SIMPLE_REPLY_LEN),
        }),
        Some(NBD_STRUCTURED_REPLY_MAGIC) => match (r.u16(), r.u16(), r.u64(), r.u32()) {
            (Some(flags), Some(kind), Some(cookie), Some(len)) => {
                let last = flags & NBD_REPLY_FLAG_DONE != 0;
                decode_chunk(kind, last, cookie, len, r.0)
            }
            _ => Ok(Decoded::NeedMore(CHUNK_HEAD_LEN)),
        },
        Some(found) => Err(ClientError::BadMagic {
            message: "reply",
            found: u64::from(found),
            expected: u64::from(NBD_SIMPLE_REPLY_MAGIC),
        }),
    }
}

fn decode_chunk(
    kind: u16,
    last: bool,
    cookie: u64,
    len: u32,
    rest: &[u8],
) -> Result<Decoded<'_>, ClientError> {
    let malformed = |what| Err(ClientError::Malformed(what));
    // The data itself stays in the caller's stream; only its offset is decoded.
    let need = if kind == NBD_REPLY_TYPE_OFFSET_DATA {
        8
    } else {
        len as usize
    };
    // Checked before waiting for data, so that a hostile length cannot make the caller buffer it.
    if need > CHUNK_LEN_MAX {
        return malformed("a chunk longer than any the protocol has");
    }
    let Some(payload) = rest.get(..need) else {
        return Ok(Decoded::NeedMore(CHUNK_HEAD_LEN + need));
    };
    let reply = if kind & NBD_REPLY_FLAG_ERROR != 0 {
        decode_error(kind, last, cookie, payload)
    } else {
        decode_content(kind, last, cookie, len, payload)
    };
    match reply {
        Some(reply) => Ok(Decoded::Reply(CHUNK_HEAD_LEN + need, reply)),
        None => malformed("a chunk of unknown type, or whose parts do not add up"),
    }
}

/// Decodes a chunk that is not an error. For read data `payload` is only the offset, while `len`
/// counts offset and data.
fn decode_content(
    kind: u16,
    last: bool,
    cookie: u64,
    len: u32,
    payload: &[u8],
) -> Option<Reply<'_>> {
    let mut r = Reader(payload);
    Some(match (kind, len) {
        // The specification allows this type only for the last chunk.
        (NBD_REPLY_TYPE_NONE, 0) if last => Reply::None { cookie },
        // Offset (8 bytes) and at least one byte of data.
        (NBD_REPLY_TYPE_OFFSET_DATA, 9..) => Reply::OffsetData {
            cookie,
            offset: r.u64()?,
            len: len - 8,
            last,
        },
        // Offset (8 bytes) and length (4), which must not be 0.
        (NBD_REPLY_TYPE_OFFSET_HOLE, 12) => {
            let (offset, len) = (r.u64()?, r.u32().filter(|len| *len > 0)?);
            Reply::OffsetHole {
                cookie,
                offset,
                len,
                last,
            }
        }
        // Context (4 bytes) and one or more extents of 8 bytes.
        (NBD_REPLY_TYPE_BLOCK_STATUS, 12..) if len % 8 == 4 => {
            let context = r.u32()?;
            Reply::BlockStatus {
                cookie,
                context,
                extents: Extents(r.0),
                last,
            }
        }
        _ => return None,
    })
}

/// Decodes an error chunk of a known or unknown type.
fn decode_error(kind: u16, last: bool, cookie: u64, payload: &[u8]) -> Option<Reply<'_>> {
    let mut r = Reader(payload);
    // The code 0 is no error, so a chunk with it is malformed.
    let error = NbdError::from_code(r.u32()?)?;
    let len = usize::from(r.u16()?);
    let message = string(r.bytes(len)?).ok()?;
    let offset = if kind == NBD_REPLY_TYPE_ERROR_OFFSET {
        Some(r.u64()?)
    } else {
        None
    };
    Some(Reply::Error {
        cookie,
        error,
        message,
        offset,
        last,
    })
}
