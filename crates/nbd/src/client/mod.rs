//! The client's side, as much of it as a demonstration and the tests need; sans-I/O too.
//!
//! [`Handshake`] opens an export with `NBD_OPT_GO`; [`encode_request`] and [`decode_reply`] are
//! the transmission phase, of which the caller keeps the books (which cookie is in flight, and
//! how much data a simple reply to it brings).

mod handshake;

#[cfg(test)]
pub(crate) use handshake::put_option;
pub use handshake::{Handshake, Negotiated, Progress, Wishes};

use crate::error::NbdError;
use crate::export::BlockSizeError;
use crate::reply::{EXTENTS_MAX, Extent};
use crate::request::{Command, Request};
use crate::wire::*;
use thiserror::Error;

/// Longest chunk, data apart, that is taken from a server: the longest block status.
const CHUNK_LEN_MAX: usize = 4 + 8 * EXTENTS_MAX;

/// Why a client gives up on a server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A message that does not start as it must.
    #[error("{message} starts with {found:#x}, not with {expected:#x}")]
    BadMagic {
        /// Which message.
        message: &'static str,
        /// What it starts with.
        found: u64,
        /// What it must start with.
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
        /// What the server said to a human reader.
        message: String,
    },
    /// A message whose parts do not fit together.
    #[error("malformed message from the server: {0}")]
    Malformed(&'static str),
    /// Block sizes that break the specification's rules.
    #[error("server advertised block sizes that cannot be: {0}")]
    BlockSize(#[from] BlockSizeError),
}

/// The header of a request ("Request message"). For a write, send `request.len` bytes after it.
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

/// `NBD_CMD_DISC`: the last thing a client sends.
pub fn encode_disconnect() -> [u8; REQUEST_LEN] {
    header(0, NBD_CMD_DISC, 0, 0, 0)
}

/// Any request header, valid or not.
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

/// What [`decode_reply`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// Nothing yet: so many bytes are needed, in all.
    NeedMore(usize),
    /// A reply, and how many bytes it took.
    Reply(usize, Reply<'a>),
}

/// A simple reply or one chunk of a structured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// "Simple reply message". If it answers a read and there is no error, the data follow.
    Simple {
        /// The request.
        cookie: u64,
        /// How it failed, if it did.
        error: Option<NbdError>,
    },
    /// `NBD_REPLY_TYPE_NONE`: nothing further.
    None {
        /// The request.
        cookie: u64,
    },
    /// `NBD_REPLY_TYPE_OFFSET_DATA`; the data follow.
    OffsetData {
        /// The request.
        cookie: u64,
        /// Where in the export they are.
        offset: u64,
        /// How many bytes they are.
        len: u32,
        /// `NBD_REPLY_FLAG_DONE`.
        last: bool,
    },
    /// `NBD_REPLY_TYPE_OFFSET_HOLE`: zeroes.
    OffsetHole {
        /// The request.
        cookie: u64,
        /// Where in the export they are.
        offset: u64,
        /// How many bytes they are.
        len: u32,
        /// `NBD_REPLY_FLAG_DONE`.
        last: bool,
    },
    /// `NBD_REPLY_TYPE_BLOCK_STATUS`.
    BlockStatus {
        /// The request.
        cookie: u64,
        /// The metadata context.
        context: u32,
        /// Consecutive extents from the request's offset on.
        extents: Extents<'a>,
        /// `NBD_REPLY_FLAG_DONE`.
        last: bool,
    },
    /// `NBD_REPLY_TYPE_ERROR`, `NBD_REPLY_TYPE_ERROR_OFFSET`, or an error of unknown type.
    Error {
        /// The request.
        cookie: u64,
        /// How it failed.
        error: NbdError,
        /// For a human reader; may be empty.
        message: &'a str,
        /// Where it failed, if that is known.
        offset: Option<u64>,
        /// `NBD_REPLY_FLAG_DONE`.
        last: bool,
    },
}

/// The extents of a block status, read as they are asked for.
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

/// Reads one reply off the front of `input`.
pub fn decode_reply(input: &[u8]) -> Result<Decoded<'_>, ClientError> {
    let mut r = Reader(input);
    match r.u32() {
        None => Ok(Decoded::NeedMore(16)),
        Some(NBD_SIMPLE_REPLY_MAGIC) => Ok(match (r.u32(), r.u64()) {
            (Some(code), Some(cookie)) => Decoded::Reply(
                16,
                Reply::Simple {
                    cookie,
                    error: NbdError::from_code(code),
                },
            ),
            _ => Decoded::NeedMore(16),
        }),
        Some(NBD_STRUCTURED_REPLY_MAGIC) => match (r.u16(), r.u16(), r.u64(), r.u32()) {
            (Some(flags), Some(kind), Some(cookie), Some(len)) => {
                let last = flags & NBD_REPLY_FLAG_DONE != 0;
                decode_chunk(kind, last, cookie, len, r.0)
            }
            _ => Ok(Decoded::NeedMore(20)),
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
    // Of data, only the offset belongs to the decoded part.
    let need = if kind == NBD_REPLY_TYPE_OFFSET_DATA {
        8
    } else {
        len as usize
    };
    if need > CHUNK_LEN_MAX {
        return malformed("a chunk longer than any the protocol has");
    }
    let Some(payload) = rest.get(..need) else {
        return Ok(Decoded::NeedMore(20 + need));
    };
    let reply = if kind & NBD_REPLY_FLAG_ERROR != 0 {
        decode_error(kind, last, cookie, payload)
    } else {
        decode_content(kind, last, cookie, len, payload)
    };
    match reply {
        Some(reply) => Ok(Decoded::Reply(20 + need, reply)),
        None => malformed("a chunk of unknown type, or whose parts do not add up"),
    }
}

/// Any chunk but an error; of data, `payload` is the offset only, `len` counts all.
fn decode_content(
    kind: u16,
    last: bool,
    cookie: u64,
    len: u32,
    payload: &[u8],
) -> Option<Reply<'_>> {
    let mut r = Reader(payload);
    Some(match (kind, len) {
        (NBD_REPLY_TYPE_NONE, 0) if last => Reply::None { cookie },
        (NBD_REPLY_TYPE_OFFSET_DATA, 9..) => Reply::OffsetData {
            cookie,
            offset: r.u64()?,
            len: len - 8,
            last,
        },
        (NBD_REPLY_TYPE_OFFSET_HOLE, 12) => {
            let (offset, len) = (r.u64()?, r.u32().filter(|len| *len > 0)?);
            Reply::OffsetHole {
                cookie,
                offset,
                len,
                last,
            }
        }
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

/// An error chunk, of a known type or not.
fn decode_error(kind: u16, last: bool, cookie: u64, payload: &[u8]) -> Option<Reply<'_>> {
    let mut r = Reader(payload);
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
