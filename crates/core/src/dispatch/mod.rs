//! Dispatchers: which of the admitted units goes to the device next.

pub mod background;
pub mod bd_edf;
pub mod by_deadline;
pub mod cfq;
pub mod cost;
pub mod deadline;
pub mod drr;
pub mod edf;
pub mod fifo;
pub mod lottery;
pub mod mclock;
pub mod sfq;
mod virtual_time;

use crate::facts::Facts;
use crate::request::Op;

/// Bytes of `len` that an operation moves through the device: none for what it does by its
/// tables alone.
pub(crate) fn moved(facts: &Facts, op: Op, len: u32) -> u32 {
    match op {
        Op::Read | Op::Write => len,
        Op::WriteZeroes if facts.device().spec.zeroes_are_writes => len,
        Op::WriteZeroes | Op::Discard | Op::Flush => 0,
    }
}
