//! Identifier of a request in the loop: its queue and the head of its chain.

use crate::frontend::interface::Word;

/// Request's queue and the head of its chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token {
    pub(super) queue: u16,
    pub(super) head: u16,
}

impl Word for Token {
    #[inline]
    fn to_word(self) -> u64 {
        u64::from(self.queue) << 16 | u64::from(self.head)
    }

    #[inline]
    fn from_word(word: u64) -> Token {
        Token {
            queue: (word >> 16) as u16,
            head: word as u16,
        }
    }
}
