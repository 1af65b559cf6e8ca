//! Words that the control API and the metrics have in common.

use tidegate_core::estimator::LearntKind;
use tidegate_core::profile::{Access, Direction};
use tidegate_core::request::Op;

/// Name of an operation in answers of the API and in metrics.
pub(crate) fn op_name(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Flush => "flush",
        Op::Discard => "discard",
        Op::WriteZeroes => "write_zeroes",
    }
}

/// Words for a kind of request of which the cost is learnt, such as `random read`.
pub(crate) fn kind_name(kind: &LearntKind) -> String {
    let access = match kind.access {
        Access::Sequential => "sequential",
        Access::Random => "random",
    };
    let direction = match kind.direction {
        Direction::Read => "read",
        Direction::Write => "write",
    };
    format!("{access} {direction}")
}
