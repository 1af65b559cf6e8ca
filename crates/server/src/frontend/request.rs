//! Requests and replies in the terms of loops, independent of the protocol.

use tidegate_core::request::{Lane, Op};

use super::Failure;

/// Reference to a connection of a loop; its generation tells it from others with the same index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionRef {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnectionRef {
    /// Mask of the 24 bits of a generation.
    pub(crate) const GENERATIONS: u32 = 0xff_ffff;
}

/// Request of a guest, without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Incoming<T> {
    pub(crate) kind: Kind,
    /// First byte on the disk.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u32,
    /// True if the written data must be durable before the reply (forced unit access).
    pub(crate) fua: bool,
    pub(crate) token: T,
}

impl<T: Word> Incoming<T> {
    /// Returns the request with its token as a 64-bit word.
    #[inline]
    pub(crate) fn with_word(self) -> Incoming<u64> {
        Incoming {
            kind: self.kind,
            offset: self.offset,
            len: self.len,
            fua: self.fua,
            token: self.token.to_word(),
        }
    }
}

/// Operation that a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes {
        /// True if the range must stay allocated.
        keep_allocated: bool,
        /// True if the request must fail unless zeroing is faster than writing zeroes.
        only_if_fast: bool,
    },
    /// Read whose data is not sent (`NBD_CMD_CACHE`).
    Cache,
    /// Query for the holes in the range.
    Extents {
        /// Maximum number of extents in the reply, between 1 and
        /// [`EXTENTS_MAX`](crate::backing::extents::EXTENTS_MAX).
        most: u32,
        /// Maximum length of the reply in bytes. This much payload memory of the loop is charged,
        /// so that it bounds the queries under way, also for connections with memory of their own.
        reply_len: u32,
    },
}

impl Kind {
    /// Returns the engine operation of the request; `None` if the loop answers it without the
    /// engine.
    pub(crate) fn op(self) -> Option<Op> {
        match self {
            Kind::Read | Kind::Cache => Some(Op::Read),
            Kind::Write => Some(Op::Write),
            Kind::Flush => Some(Op::Flush),
            Kind::Discard => Some(Op::Discard),
            Kind::WriteZeroes { .. } => Some(Op::WriteZeroes),
            Kind::Extents { .. } => None,
        }
    }

    /// Returns the lane whose statistics count the request.
    pub(crate) fn lane(self) -> Lane {
        match self {
            Kind::Read | Kind::Cache | Kind::Extents { .. } => Lane::Read,
            Kind::Write | Kind::Flush | Kind::Discard | Kind::WriteZeroes { .. } => Lane::Write,
        }
    }

    /// Returns true if a successful reply carries data.
    pub(crate) fn answers_data(self) -> bool {
        matches!(self, Kind::Read | Kind::Extents { .. })
    }

    /// Returns the reply to a request that reaches beyond the end of its disk.
    pub(crate) fn beyond_end(self) -> Answer {
        let error = match self {
            Kind::Write | Kind::WriteZeroes { .. } => Failure::NoSpace,
            _ => Failure::Invalid,
        };
        Answer::Error(error, "outside of the disk")
    }
}

/// Outcome of a request; an error has a message for humans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Ok,
    Error(Failure, &'static str),
}

/// Request identifier of a protocol, convertible to the 64-bit word in the request table.
pub(crate) trait Word: Copy {
    /// Returns the token as a word.
    fn to_word(self) -> u64;
    /// Returns the token that [`Word::to_word`] turned into `word`.
    fn from_word(word: u64) -> Self;
}
