//! Results of a VM by operation.

use crate::device::{Tally, Times};
use tidegate_core::request::Op;

/// Counts and latencies of a VM's requests by operation.
#[derive(Clone, Debug)]
pub struct Operations {
    /// Reads.
    pub read: OperationReport,
    /// Writes, with those of zeroes.
    pub write: OperationReport,
    /// Discards.
    pub discard: OperationReport,
    /// Flushes.
    pub flush: OperationReport,
}

/// Counts and latencies of the requests of an operation.
#[derive(Clone, Debug)]
pub struct OperationReport {
    /// Requests that ended well.
    pub requests: u64,
    /// Bytes of these requests.
    pub bytes: u64,
    /// Latency from the guest's issue to its answer.
    pub latency: Times,
}

impl Operations {
    /// Returns the results of a tally; `None` if operations were not kept apart.
    pub fn new(tally: &Tally) -> Option<Operations> {
        let by_op = tally.by_op.as_deref()?;
        let of = |ops: &[Op]| {
            let mut sum = OperationReport {
                requests: 0,
                bytes: 0,
                latency: Times::default(),
            };
            for &op in ops {
                sum.requests += tally.ops[op as usize];
                sum.bytes += tally.bytes[op as usize];
                sum.latency.add(&by_op[op as usize]);
            }
            sum
        };
        Some(Operations {
            read: of(&[Op::Read]),
            write: of(&[Op::Write, Op::WriteZeroes]),
            discard: of(&[Op::Discard]),
            flush: of(&[Op::Flush]),
        })
    }
}
