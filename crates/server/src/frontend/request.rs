//! Requests in the words of loops: what a frontend reads, and how it ends.

use tidegate_core::request::{Lane, Op};

use super::Failure;

/// A connection's place in its loop, and which of the place's users is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionRef {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnectionRef {
    /// Bits of a generation.
    pub(crate) const GENERATIONS: u32 = 0xff_ffff;
}

/// Request of a guest, without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Incoming<T> {
    pub(crate) kind: Kind,
    /// First byte on the disk.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u32,
    /// True if what is written must be durable before the answer.
    pub(crate) fua: bool,
    pub(crate) token: T,
}

impl<T: Word> Incoming<T> {
    /// Returns the request with its token as a word.
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
        /// The range must stay allocated.
        keep_allocated: bool,
        /// Refused unless that is faster than writing zeroes.
        only_if_fast: bool,
    },
    /// A read whose data nobody gets.
    Cache,
    /// Question which parts of the range are holes.
    Extents {
        /// Largest number of extents in the answer, at least 1 and at most
        /// [`EXTENTS_MAX`](crate::backing::extents::EXTENTS_MAX).
        most: u32,
        /// Bytes of the reply. So much of the loop's payload memory bounds the questions under way,
        /// also for connections with memory of their own, which offer as much.
        reply_len: u32,
    },
}

impl Kind {
    /// Engine operation of the request; `None` if the loop answers it without the engine.
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

    /// Direction in which the request counts in the VM's statistics.
    pub(crate) fn lane(self) -> Lane {
        match self {
            Kind::Read | Kind::Cache | Kind::Extents { .. } => Lane::Read,
            Kind::Write | Kind::Flush | Kind::Discard | Kind::WriteZeroes { .. } => Lane::Write,
        }
    }

    /// Returns true if the answer has data for the connection.
    pub(crate) fn answers_data(self) -> bool {
        matches!(self, Kind::Read | Kind::Extents { .. })
    }

    /// Answer to a request that reaches beyond the end of its disk.
    pub(crate) fn beyond_end(self) -> Answer {
        let error = match self {
            Kind::Write | Kind::WriteZeroes { .. } => Failure::NoSpace,
            _ => Failure::Invalid,
        };
        Answer::Error(error, "outside of the disk")
    }
}

/// Outcome of a request, with a message for people where it failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Ok,
    Error(Failure, &'static str),
}

/// Token of a protocol as the word that the request table keeps.
pub(crate) trait Word: Copy {
    /// Returns the token as a word.
    fn to_word(self) -> u64;
    /// Returns the token that became `word`.
    fn from_word(word: u64) -> Self;
}
