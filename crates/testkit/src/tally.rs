//! Counts of each VM's requests, compared with the engine's own statistics.

use tidegate_core::request::{DeviceIo, Done, IoError, Lane, Op};
use tidegate_core::stats::VmStats;

/// Counts of one VM. Arrays are by operation, in the order of [`Op::ALL`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Requests that the engine accepted.
    pub arrived: [u64; 5],
    /// Requests that succeeded.
    pub ok: [u64; 5],
    /// Bytes of requests that succeeded.
    pub ok_bytes: [u64; 5],
    /// Requests that failed, other than by cancellation.
    pub failed: [u64; 5],
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Requests that were served for the first time, as the device I/Os report.
    pub first_ops: u64,
    /// Bytes of device I/Os that were started.
    pub device_bytes: u64,
}

fn index(op: Op) -> usize {
    let place = Op::ALL.iter().position(|&other| other == op);
    place.expect("ALL has every operation")
}

impl Tally {
    /// Number of requests that were answered, with any outcome.
    pub fn answered(&self) -> u64 {
        self.ok.iter().sum::<u64>() + self.failed.iter().sum::<u64>() + self.cancelled
    }

    /// Counts a request that the engine accepted.
    pub fn arrives(&mut self, op: Op) {
        self.arrived[index(op)] += 1;
    }

    /// Counts a device I/O that was started.
    pub fn starts(&mut self, io: &DeviceIo) {
        // Limits and device statistics exclude flushes.
        if io.op != Op::Flush {
            self.first_ops += u64::from(io.first_ops);
        }
        self.device_bytes += u64::from(io.len);
    }

    /// Counts the answer to a request of `len` bytes.
    pub fn answers(&mut self, done: &Done, len: u32) {
        let op = index(done.op);
        match done.outcome {
            Ok(()) => {
                self.ok[op] += 1;
                self.ok_bytes[op] += u64::from(len);
            }
            Err(IoError::Cancelled) => self.cancelled += 1,
            Err(_) => self.failed[op] += 1,
        }
    }

    /// Compares the engine's statistics of a VM with this tally.
    ///
    /// # Panics
    /// If they differ, or a request is not answered yet.
    pub fn assert_agrees(&self, stats: &VmStats) {
        for (n, op) in Op::ALL.into_iter().enumerate() {
            let count = stats.op(op);
            assert_eq!(count.arrived, self.arrived[n], "{op:?}");
            assert_eq!(count.ops, self.ok[n], "{op:?}");
            assert_eq!(count.bytes, self.ok_bytes[n], "{op:?}");
            assert_eq!(count.errors, self.failed[n], "{op:?}");
        }
        assert_eq!(stats.cancelled, self.cancelled);
        assert_eq!(stats.total_ops(), self.ok.iter().sum::<u64>());
        assert_eq!(stats.latency.count(), stats.total_ops());
        let lanes = Lane::ALL.map(|lane| {
            let (queue, service) = (stats.queue_time(lane), stats.service_time(lane));
            assert_eq!(queue.count(), service.count(), "{lane:?}");
            queue.count()
        });
        assert_eq!(lanes.iter().sum::<u64>(), stats.total_ops());
        let buckets: u64 = stats.latency.iter().map(|(_, n)| n).sum();
        assert_eq!(buckets, stats.latency.count());
        let arrived: u64 = self.arrived.iter().sum();
        assert_eq!(stats.sizes.iter().sum::<u64>(), arrived);
        assert_eq!(self.answered(), arrived);
    }
}
