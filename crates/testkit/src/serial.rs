//! Device that serves one I/O at a time, in the order of submission.

use std::collections::VecDeque;

use tidegate_core::request::{DeviceIo, IoId};

/// Device with one server: an I/O begins when the one before it has ended.
pub struct SerialDevice {
    /// Service time of an I/O in nanoseconds, where `takes` is `None`.
    pub service: u64,
    /// Service time in nanoseconds as a function of the I/O.
    pub takes: Option<fn(&DeviceIo) -> u64>,
    queue: VecDeque<(u64, IoId)>,
}

impl SerialDevice {
    /// Returns an idle device that takes `service` nanoseconds for an I/O.
    pub fn new(service: u64) -> SerialDevice {
        SerialDevice {
            service,
            takes: None,
            queue: VecDeque::new(),
        }
    }

    /// Submits an I/O at a time in nanoseconds.
    pub fn submit(&mut self, now: u64, io: &DeviceIo) {
        // One server: the last I/O of the queue ends last, so it alone decides when this one
        // begins.
        let begin = self.queue.back().map_or(now, |last| last.0.max(now));
        let time = self.takes.map_or(self.service, |takes| takes(io));
        self.queue.push_back((begin + time, io.id));
    }

    /// Returns the time at which the next I/O ends, in nanoseconds.
    pub fn next_completion(&self) -> Option<u64> {
        self.queue.front().map(|first| first.0)
    }

    /// Removes the next I/O that has ended by a time in nanoseconds.
    pub fn pop_completed(&mut self, now: u64) -> Option<IoId> {
        let ended = self.queue.pop_front_if(|first| first.0 <= now);
        ended.map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::request::{DiskId, Op, VmId};
    use tidegate_core::time::Nanos;

    fn io(id: u64, len: u32) -> DeviceIo {
        DeviceIo {
            id: IoId::from_bits(id),
            vm: VmId::from_bits(0),
            disk: DiskId::from_bits(0),
            op: Op::Read,
            addr: 0,
            offset: 0,
            len,
            fua: false,
            keep_allocated: false,
            first_ops: 1,
            first_bytes: u64::from(len),
            whole_len: len,
            arrived: Nanos::ZERO,
        }
    }

    #[test]
    fn an_io_begins_when_the_one_before_it_has_ended() {
        let mut device = SerialDevice::new(10);
        assert_eq!(device.next_completion(), None);
        device.submit(5, &io(1, 4096));
        device.submit(7, &io(2, 4096));
        assert_eq!(device.next_completion(), Some(15));
        assert_eq!(device.pop_completed(14), None);
        assert_eq!(device.pop_completed(15), Some(IoId::from_bits(1)));
        assert_eq!(device.next_completion(), Some(25));
        device.submit(100, &io(3, 4096));
        assert_eq!(device.pop_completed(200), Some(IoId::from_bits(2)));
        assert_eq!(device.next_completion(), Some(110));
    }

    #[test]
    fn time_may_depend_on_the_io() {
        let mut device = SerialDevice::new(10);
        device.takes = Some(|io| u64::from(io.len));
        device.submit(0, &io(1, 512));
        device.submit(0, &io(2, 4096));
        assert_eq!(device.pop_completed(512), Some(IoId::from_bits(1)));
        assert_eq!(device.next_completion(), Some(4608));
    }
}
