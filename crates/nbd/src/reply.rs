//! Encoders of transmission-phase replies, which write to the caller's buffers without allocation.
//!
//! Each function writes to the front of `out` and returns the number of bytes written. It panics if
//! `out` is too small, which the constants of this module rule out. Payload is never copied: this
//! module encodes a read's header, and the driver sends its own buffer after it.
//!
//! | reply | simple | structured |
//! |---|---|---|
//! | success without data | [`ReplyStyle::done`] | [`ReplyStyle::done`] |
//! | all of a read | [`ReplyStyle::data`], then the data | header and data, one final chunk |
//! | part of a read | not available | [`offset_data`], [`offset_hole`] |
//! | failure | [`ReplyStyle::error`] | [`ReplyStyle::error`], [`error_offset`] |
//! | block status | not available | [`block_status`] |

use crate::error::NbdError;
use crate::wire::*;

/// Buffer size in bytes that fits every reply of this module with an empty message and without
/// extents. The longest is [`error_offset`].
pub const HEAD_LEN: usize = ERROR_HEAD_LEN + 8;

/// Buffer size in bytes that fits an error with any [`Reason`](crate::Reason)'s message. Longer
/// messages are clipped to the buffer.
pub const ERROR_LEN: usize = 128;

/// Largest number of extents in one [`block_status`] chunk (2^20).
pub const EXTENTS_MAX: usize = 1 << 20;

/// Length of a structured chunk's header in bytes.
pub(crate) const CHUNK_HEAD_LEN: usize = 20;
/// Length of a structured error in bytes without message and offset.
const ERROR_HEAD_LEN: usize = CHUNK_HEAD_LEN + 6;

/// Form of replies, decided by `NBD_OPT_STRUCTURED_REPLY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReplyStyle {
    /// Simple replies ("Simple reply message").
    #[default]
    Simple,
    /// Structured replies ("Structured reply chunk message").
    Structured,
}

impl ReplyStyle {
    /// Encodes success without data, or the end of a chunked reply (`NBD_REPLY_TYPE_NONE`).
    pub fn done(self, cookie: u64, out: &mut [u8]) -> usize {
        let mut w = Writer::new(out);
        match self {
            ReplyStyle::Simple => simple(&mut w, 0, cookie),
            ReplyStyle::Structured => chunk(&mut w, NBD_REPLY_TYPE_NONE, true, cookie, 0),
        }
        w.len()
    }

    /// Encodes the header of a complete read; `len` bytes of data must follow in the stream. The
    /// chunk is final and cannot report a later error, so all data must have been read already.
    pub fn data(self, cookie: u64, offset: u64, len: u32, out: &mut [u8]) -> usize {
        match self {
            ReplyStyle::Simple => {
                let mut w = Writer::new(out);
                simple(&mut w, 0, cookie);
                w.len()
            }
            ReplyStyle::Structured => offset_data(cookie, offset, len, true, out),
        }
    }

    /// Encodes an error as the final chunk. `message` is for a human reader and may be empty;
    /// simple replies cannot carry it, and it is clipped if `out` is too small.
    pub fn error(self, cookie: u64, error: NbdError, message: &str, out: &mut [u8]) -> usize {
        match self {
            ReplyStyle::Simple => {
                let mut w = Writer::new(out);
                simple(&mut w, error.code(), cookie);
                w.len()
            }
            ReplyStyle::Structured => {
                let message = clip_to_fit(message, out.len(), ERROR_HEAD_LEN);
                let mut w = Writer::new(out);
                // Error (4 bytes), length of the message (2), message.
                let len = 6 + message.len();
                chunk(&mut w, NBD_REPLY_TYPE_ERROR, true, cookie, len);
                w.u32(error.code())
                    .u16(message.len() as u16)
                    .put(message.as_bytes());
                w.len()
            }
        }
    }
}

/// Encodes `NBD_REPLY_TYPE_OFFSET_DATA`: the header of `len` bytes (not 0) of a read, which must
/// follow in the stream. `last` marks the final chunk of the reply.
pub fn offset_data(cookie: u64, offset: u64, len: u32, last: bool, out: &mut [u8]) -> usize {
    assert!(len > 0, "a content chunk describes at least one byte");
    let mut w = Writer::new(out);
    chunk(
        &mut w,
        NBD_REPLY_TYPE_OFFSET_DATA,
        last,
        cookie,
        // Offset (8 bytes) and data.
        8 + len as usize,
    );
    w.u64(offset);
    w.len()
}

/// Encodes `NBD_REPLY_TYPE_OFFSET_HOLE`: `len` bytes (not 0) of a read that are zero and not sent.
pub fn offset_hole(cookie: u64, offset: u64, len: u32, last: bool, out: &mut [u8]) -> usize {
    assert!(len > 0, "a content chunk describes at least one byte");
    let mut w = Writer::new(out);
    // Offset (8 bytes) and length (4).
    chunk(&mut w, NBD_REPLY_TYPE_OFFSET_HOLE, last, cookie, 12);
    w.u64(offset).u32(len);
    w.len()
}

/// Encodes `NBD_REPLY_TYPE_ERROR_OFFSET`: an error at a known offset. Not valid for
/// `NBD_CMD_FLUSH`.
pub fn error_offset(
    cookie: u64,
    error: NbdError,
    offset: u64,
    message: &str,
    last: bool,
    out: &mut [u8],
) -> usize {
    let message = clip_to_fit(message, out.len(), ERROR_HEAD_LEN + 8);
    let mut w = Writer::new(out);
    chunk(
        &mut w,
        NBD_REPLY_TYPE_ERROR_OFFSET,
        last,
        cookie,
        // Error (4 bytes), length of the message (2), message, offset (8).
        14 + message.len(),
    );
    w.u32(error.code())
        .u16(message.len() as u16)
        .put(message.as_bytes())
        .u64(offset);
    w.len()
}

/// Extent of the `base:allocation` metadata context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, never 0.
    pub len: u32,
    /// `NBD_STATE_HOLE`: the extent is not allocated.
    pub hole: bool,
    /// `NBD_STATE_ZERO`: the extent reads as zeroes.
    pub zero: bool,
}

/// Length in bytes of a [`block_status`] chunk with `extents` extents.
pub const fn block_status_len(extents: usize) -> usize {
    CHUNK_HEAD_LEN + 4 + 8 * extents
}

/// Encodes `NBD_REPLY_TYPE_BLOCK_STATUS` as the final chunk: consecutive extents from the request's
/// offset on.
///
/// At least 1 and at most [`EXTENTS_MAX`] extents, else the function panics. Only the last extent
/// may reach past the request, and none may if the request set
/// [`one`](crate::Command::BlockStatus::one).
pub fn block_status(
    cookie: u64,
    context: u32,
    extents: impl ExactSizeIterator<Item = Extent>,
    out: &mut [u8],
) -> usize {
    let count = extents.len();
    assert!(
        (1..=EXTENTS_MAX).contains(&count),
        "{count} extents in a block status chunk"
    );
    let mut w = Writer::new(out);
    chunk(
        &mut w,
        NBD_REPLY_TYPE_BLOCK_STATUS,
        true,
        cookie,
        // Context (4 bytes), then length and flags (4 each) of every extent.
        4 + 8 * count,
    );
    w.u32(context);
    for e in extents {
        assert!(e.len > 0, "an extent describes at least one byte");
        let hole = if e.hole { NBD_STATE_HOLE } else { 0 };
        let zero = if e.zero { NBD_STATE_ZERO } else { 0 };
        w.u32(e.len).u32(hole | zero);
    }
    w.len()
}

fn simple(w: &mut Writer<'_>, error: u32, cookie: u64) {
    w.u32(NBD_SIMPLE_REPLY_MAGIC).u32(error).u64(cookie);
}

fn chunk(w: &mut Writer<'_>, kind: u16, last: bool, cookie: u64, len: usize) {
    // The flag tells the client that no further chunk of this reply follows.
    let flags = if last { NBD_REPLY_FLAG_DONE } else { 0 };
    let len = u32::try_from(len).expect("a chunk's length fits 32 bits; split longer reads");
    w.u32(NBD_STRUCTURED_REPLY_MAGIC)
        .u16(flags)
        .u16(kind)
        .u64(cookie)
        .u32(len);
}

/// Clips `message` to the protocol's limit, which bounds all strings alike (4096 bytes), and to the
/// space after `head` bytes in a buffer of `room` bytes.
fn clip_to_fit(message: &str, room: usize, head: usize) -> &str {
    clip(message, NAME_LEN_MAX.min(room.saturating_sub(head)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Decoded, Reply, decode_reply};
    use ReplyStyle::{Simple, Structured};

    const C: u64 = 0x0102_0304_0506_0708;

    #[track_caller]
    fn decoded(bytes: &[u8]) -> Reply<'_> {
        for end in 0..bytes.len() {
            let cut = decode_reply(&bytes[..end]);
            assert!(matches!(cut, Ok(Decoded::NeedMore(n)) if n > end && n <= bytes.len()));
        }
        match decode_reply(bytes).unwrap() {
            Decoded::Reply(n, reply) if n == bytes.len() => reply,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn simple_replies_are_16_bytes() {
        let mut out = [0; HEAD_LEN];
        let bytes = b"\x67\x44\x66\x98\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08";
        assert_eq!(Simple.done(C, &mut out), 16);
        assert_eq!(&out[..16], bytes);
        assert_eq!(Simple.data(C, 9, 9, &mut out), 16);
        assert_eq!(&out[..16], bytes);
        assert_eq!(Simple.error(C, NbdError::Enospc, "not sent", &mut out), 16);
        let error = Some(NbdError::Enospc);
        assert_eq!(decoded(&out[..16]), Reply::Simple { cookie: C, error });
    }

    #[test]
    fn structured_chunks_have_their_layout() {
        let mut out = [0; HEAD_LEN];
        let n = Structured.data(C, 0x1000, 512, &mut out);
        let head = b"\x66\x8e\x33\xef\0\x01\0\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\x02\x08";
        assert_eq!(
            (&out[..20], &out[20..n]),
            (&head[..], &0x1000_u64.to_be_bytes()[..])
        );
        let data = Reply::OffsetData {
            cookie: C,
            offset: 0x1000,
            len: 512,
            last: true,
        };
        assert_eq!(decoded(&out[..n]), data);
        let n = Structured.done(C, &mut out);
        assert_eq!(decoded(&out[..n]), Reply::None { cookie: C });
        let n = offset_hole(C, 5, 7, false, &mut out);
        assert_eq!(n, CHUNK_HEAD_LEN + 12);
        let hole = Reply::OffsetHole {
            cookie: C,
            offset: 5,
            len: 7,
            last: false,
        };
        assert_eq!(decoded(&out[..n]), hole);
    }

    #[test]
    fn replies_without_message_and_extents_fit_a_head() {
        let mut out = [0; HEAD_LEN];
        let lengths = [
            Structured.done(C, &mut out),
            Structured.data(C, 0, 1, &mut out),
            Structured.error(C, NbdError::Eio, "", &mut out),
            offset_hole(C, 0, 1, true, &mut out),
            error_offset(C, NbdError::Eio, 0, "", true, &mut out),
        ];
        assert_eq!(lengths.iter().max(), Some(&HEAD_LEN));
    }

    #[test]
    fn errors_carry_message_and_offset() {
        let mut out = [0; ERROR_LEN];
        let error = NbdError::Eio;
        let n = Structured.error(C, error, "bad sector", &mut out);
        let message = "bad sector";
        let plain = Reply::Error {
            cookie: C,
            error,
            message,
            offset: None,
            last: true,
        };
        assert_eq!(decoded(&out[..n]), plain);
        let n = error_offset(C, error, 77, message, false, &mut out);
        let at = Reply::Error {
            cookie: C,
            error,
            message,
            offset: Some(77),
            last: false,
        };
        assert_eq!(decoded(&out[..n]), at);
    }

    #[test]
    fn messages_are_clipped_to_whole_characters() {
        let long = "ö".repeat(4000);
        for room in [26, 27, 28, 34, 35, 100, 10_000] {
            let mut out = vec![0; room.max(HEAD_LEN)];
            let n = Structured.error(C, NbdError::Eio, &long, &mut out[..room]);
            let Reply::Error { message, .. } = decoded(&out[..n]) else {
                panic!()
            };
            assert_eq!(message.len(), (room - 26).min(4096) / 2 * 2);
            let n = error_offset(C, NbdError::Eio, 1, &long, true, &mut out);
            assert!(matches!(
                decoded(&out[..n]),
                Reply::Error {
                    offset: Some(1),
                    ..
                }
            ));
        }
    }

    #[test]
    fn messages_of_this_crate_fit() {
        use crate::Reason::*;
        let reasons = [
            UnknownCommand,
            UnknownFlag,
            NotAdvertised,
            NoMetaContext,
            ReadOnly,
            ZeroLength,
            ReservedNotZero,
            Unaligned,
            PastEnd,
            TooLong,
            ShuttingDown,
        ];
        for reason in reasons {
            let room = ERROR_LEN - ERROR_HEAD_LEN - 8;
            assert!(reason.message().len() <= room, "{reason:?}");
        }
    }

    #[test]
    fn block_status_lists_extents() {
        let list = [
            Extent {
                len: 4096,
                hole: false,
                zero: false,
            },
            Extent {
                len: 512,
                hole: true,
                zero: true,
            },
            Extent {
                len: 1,
                hole: false,
                zero: true,
            },
        ];
        let mut out = vec![0; block_status_len(3)];
        assert_eq!(
            block_status(C, 1, list.iter().copied(), &mut out),
            out.len()
        );
        let Reply::BlockStatus {
            cookie: C,
            context: 1,
            extents,
            last: true,
        } = decoded(&out)
        else {
            panic!("{out:?}")
        };
        assert!(extents.eq(list));
    }
}
