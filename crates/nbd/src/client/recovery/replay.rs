//! Replay of the log after a cut: what is left to send, and what is on the wire.

use super::log::Piece;
use super::{Change, Data, Part, Terms};
use crate::request::Command;

/// Parts that are on the wire at a time.
const WINDOW: usize = 32;

/// Replay of the log.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// Pieces to be sent, last one first.
    pub(super) pieces: Vec<Piece>,
    /// Parts on the wire, by the low half of their cookies.
    pub(super) parts: [Option<Part>; WINDOW],
}

impl Replay {
    /// Returns true if nothing is left to send or to be answered.
    pub(super) fn is_over(&self) -> bool {
        self.pieces.is_empty() && self.parts.iter().all(Option::is_none)
    }

    /// Returns a free place among the parts on the wire.
    pub(super) fn free_slot(&self) -> Option<usize> {
        self.parts.iter().position(Option::is_none)
    }

    /// Takes the next part to send: its command, first byte, length and data.
    pub(super) fn take_next(&mut self, terms: &Terms) -> Option<(Command, u64, u32, Data)> {
        loop {
            let piece = self.pieces.last_mut()?;
            if piece.change == Change::Trim && !terms.can_trim {
                self.pieces.pop();
                continue;
            }
            let offset = piece.offset;
            let from = Data::Log { at: piece.data };
            let (command, len, data) = terms.part(piece.change, piece.len, from);
            piece.offset += u64::from(len);
            piece.len -= u64::from(len);
            piece.data += u64::from(len);
            if piece.len == 0 {
                self.pieces.pop();
            }
            return Some((command, offset, len, data));
        }
    }
}
