//! Log of changes that the server has acknowledged and not yet made durable.
//!
//! A ring of records in order of acknowledgement. The bytes of writes are with the caller, in a
//! ring as well: position `p` is byte `p % capacity`. Positions grow until the log is empty.

use std::collections::VecDeque;
use std::ops::Range;

use super::Change;

/// Bytes of the log for which there is one record: the size of a usual write.
const BYTES_PER_RECORD: u64 = 4096;
/// Fewest records of a log.
const RECORDS_MIN: u64 = 64;

/// Change that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) change: Change,
    /// Position of the first byte of a write.
    pub(super) data: u64,
}

/// Ring of records. Its memory is reserved by [`Log::new`].
#[derive(Debug)]
pub(super) struct Log {
    records: VecDeque<Record>,
    records_max: usize,
    /// Number of records that were ever dropped, so that the sequence number of the first one.
    dropped: u64,
    /// Bytes that the data ring has room for.
    capacity: u64,
    /// Positions of the data of all records.
    data: Range<u64>,
    /// Bytes and records that changes in flight will take.
    reserved_bytes: u64,
    reserved_records: usize,
}

impl Log {
    /// Creates a log for `capacity` bytes of written data.
    pub(super) fn new(capacity: u64) -> Log {
        let records_max = (capacity / BYTES_PER_RECORD).max(RECORDS_MIN) as usize;
        Log {
            records: VecDeque::with_capacity(records_max),
            records_max,
            dropped: 0,
            capacity,
            data: 0..0,
            reserved_bytes: 0,
            reserved_records: 0,
        }
    }

    /// Reserves room for a change; returns false if there is none.
    pub(super) fn reserve(&mut self, bytes: u32) -> bool {
        let used = self.bytes() + self.reserved_bytes;
        let fits = used + u64::from(bytes) <= self.capacity
            && self.records.len() + self.reserved_records < self.records_max;
        if fits {
            self.reserved_bytes += u64::from(bytes);
            self.reserved_records += 1;
        }
        fits
    }

    /// Gives back the room of a change that is not acknowledged.
    pub(super) fn release(&mut self, bytes: u32) {
        self.reserved_bytes -= u64::from(bytes);
        self.reserved_records -= 1;
    }

    /// Appends a change for which room was reserved, and returns the position of its data.
    pub(super) fn push(&mut self, offset: u64, len: u32, change: Change) -> u64 {
        let bytes = change.logged_bytes(len);
        self.release(bytes);
        let data = self.data.end;
        self.data.end += u64::from(bytes);
        self.records.push_back(Record {
            offset,
            len,
            change,
            data,
        });
        data
    }

    /// Returns the sequence number of the next record.
    pub(super) fn end(&self) -> u64 {
        self.dropped + self.records.len() as u64
    }

    /// Drops all records before a sequence number: they are durable.
    pub(super) fn drop_until(&mut self, end: u64) {
        while self.dropped < end {
            let record = self
                .records
                .pop_front()
                .expect("the end was one of this log");
            self.dropped += 1;
            self.data.start = record.data + u64::from(record.change.logged_bytes(record.len));
        }
        if self.records.is_empty() {
            // The front of the ring is in the CPU's cache, and the rest may never be touched.
            self.data = 0..0;
        }
    }

    /// Returns true if every acknowledged change is durable.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the number of acknowledged changes that may not be durable.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the bytes of written data in the log.
    fn bytes(&self) -> u64 {
        self.data.end - self.data.start
    }

    /// Returns a record, counted from the oldest one.
    pub(super) fn record(&self, at: usize) -> Record {
        self.records[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_back_with_what_is_dropped_and_released() {
        let mut log = Log::new(8192);
        assert!(log.reserve(4096) && log.reserve(4096) && !log.reserve(1));
        assert!(log.reserve(0), "a change without data");
        log.release(0);
        log.release(4096);
        assert_eq!(log.push(0, 4096, Change::Write), 0);
        let end = log.end();
        assert!(log.reserve(4096));
        assert_eq!(log.push(4096, 4096, Change::Write), 4096);
        assert!(!log.reserve(1));
        log.drop_until(end);
        assert!(log.reserve(4096));
        assert_eq!(log.push(0, 4096, Change::Write), 8192);
        assert_eq!((log.len(), log.is_empty()), (2, false));
        log.drop_until(log.end());
        assert!(log.is_empty() && log.reserve(8192));
        assert_eq!(log.push(0, 8192, Change::Write), 0);
    }

    #[test]
    fn records_are_bounded_as_bytes_are() {
        let mut log = Log::new(4096);
        for _ in 0..RECORDS_MIN {
            assert!(log.reserve(0));
            log.push(0, 1 << 30, Change::Trim);
        }
        assert!(!log.reserve(0));
    }
}
