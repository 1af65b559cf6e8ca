//! Event loop's side of a recording: requests as they end, and changes between them.

use std::sync::mpsc;

use tidegate_core::request::Done;
use tidegate_core::time::Nanos;
use tidegate_recording::{Change, DISKS_MAX, DiskFacts, Request, VmFacts};

use super::ring::{Reader, WORDS, Writer, Written, ring};
use crate::frontend::interface::Kind;
use crate::frontend::request_table::Slot;

/// Entries of a ring, 64 bytes each: 0.4 s of 300,000 requests a second.
pub(super) const RING_ENTRIES: usize = 1 << 17;

/// Number of what has none in the recording.
const UNKNOWN: u32 = DISKS_MAX;

/// Change with its place among the requests.
#[derive(Debug)]
pub(super) struct PlacedChange {
    /// Number of entries of the ring before it.
    pub(super) place: u64,
    /// Loop time.
    pub(super) at: Nanos,
    pub(super) change: Change,
}

/// Recorder's ends of the two queues that an event loop fills.
#[derive(Debug)]
pub struct Queues {
    pub(super) requests: Reader,
    pub(super) changes: mpsc::Receiver<PlacedChange>,
}

/// Numbers of requests since a recording was switched on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordingCounts {
    /// Requests that the event loop has passed to the recorder.
    pub written: u64,
    /// Requests that it has dropped, because the recorder did not keep up.
    pub dropped: u64,
}

/// Recording of an event loop while it is on. Without one, recording costs a branch a request.
#[derive(Debug)]
pub struct Producer {
    requests: Writer,
    /// Unbounded, because changes come from the control API alone, one at a time.
    changes: mpsc::Sender<PlacedChange>,
    /// Number of each disk in the recording, by its index in the loop.
    disks: Vec<u32>,
    /// Number of each VM in the recording, by its index in the loop.
    vms: Vec<u32>,
    next_disk: u32,
    next_vm: u32,
}

impl Producer {
    /// Creates a producer with its queues, whose memory is taken and touched here.
    pub(crate) fn new() -> (Box<Producer>, Queues) {
        Producer::with_entries(RING_ENTRIES)
    }

    /// Creates a producer whose ring has this number of entries.
    pub(super) fn with_entries(entries: usize) -> (Box<Producer>, Queues) {
        let (writer, reader) = ring(entries);
        let (sender, receiver) = mpsc::channel();
        let producer = Producer {
            requests: writer,
            changes: sender,
            disks: Vec::new(),
            vms: Vec::new(),
            next_disk: 0,
            next_vm: 0,
        };
        let queues = Queues {
            requests: reader,
            changes: receiver,
        };
        (Box::new(producer), queues)
    }

    /// Records a request that the engine has finished in this turn. `now` is the loop's time. Its
    /// reply is sent in the same turn, so that no later time is recorded. Returns false once nobody
    /// reads the recording any more.
    #[inline]
    pub(crate) fn request(&mut self, now: Nanos, slot: &Slot, done: &Done) -> bool {
        let blank = Request {
            disk: self.disk(slot.disk as usize),
            op: done.op,
            fua: slot.fua,
            keep_allocated: matches!(
                slot.kind,
                Kind::WriteZeroes {
                    keep_allocated: true,
                    ..
                }
            ),
            outcome: done.outcome,
            offset: slot.offset,
            len: slot.len,
            arrived: now,
            admitted: now,
            sent: now,
            done: now,
        };
        // Times count from the start of the host, before which nothing arrives.
        let request = blank.timed(now, &done.account).unwrap_or(blank);
        self.requests.write(to_words(&request)) != Written::Abandoned
    }

    /// Records a request as it is.
    #[cfg(test)]
    pub(super) fn write(&mut self, request: &Request) -> bool {
        self.requests.write(to_words(request)) != Written::Abandoned
    }

    /// Numbers a VM and its disks, with their indices in the loop, and returns its facts.
    pub(crate) fn number_vm(&mut self, index: usize, vm: VmFacts, disks: &[usize]) -> VmFacts {
        let number = self.next_vm;
        self.next_vm = self.next_vm.saturating_add(1);
        put(&mut self.vms, index, number);
        let disks = vm.disks.into_iter().zip(disks);
        VmFacts {
            number,
            disks: disks
                .map(|(disk, &index)| self.number_disk(index, disk))
                .collect(),
            ..vm
        }
    }

    /// Numbers a disk with its index in the loop, and returns its facts.
    pub(crate) fn number_disk(&mut self, index: usize, disk: DiskFacts) -> DiskFacts {
        let number = self.next_disk;
        // The last number stands for all disks beyond it, whose requests the recorder drops.
        self.next_disk = (self.next_disk + 1).min(DISKS_MAX);
        put(&mut self.disks, index, number);
        DiskFacts { number, ..disk }
    }

    /// Returns the number of the VM at an index of the loop.
    pub(crate) fn vm(&self, index: usize) -> u32 {
        // A VM that was being removed when the recording began has none.
        self.vms.get(index).copied().unwrap_or(UNKNOWN)
    }

    /// Returns the number of the disk at an index of the loop.
    #[inline]
    pub(crate) fn disk(&self, index: usize) -> u32 {
        self.disks.get(index).copied().unwrap_or(UNKNOWN)
    }

    /// Records a change that is in force from now on.
    pub(crate) fn change(&mut self, now: Nanos, change: Change) {
        let place = self.requests.written();
        let at = now;
        // Without a receiver the recording is about to end.
        let _ = self.changes.send(PlacedChange { place, at, change });
    }

    /// Makes room for the number of a disk, which stays unknown.
    pub(crate) fn reserve(&mut self, index: usize) {
        if index >= self.disks.len() {
            self.disks.resize(index + 1, UNKNOWN);
        }
    }

    /// Returns the numbers of requests written and dropped.
    pub(crate) fn counts(&self) -> RecordingCounts {
        RecordingCounts {
            written: self.requests.written(),
            dropped: self.requests.dropped(),
        }
    }
}

/// Puts a number at an index that may be new.
fn put(numbers: &mut Vec<u32>, index: usize, number: u32) {
    if index >= numbers.len() {
        numbers.resize(index + 1, UNKNOWN);
    }
    numbers[index] = number;
}

/// Packs a request for the ring.
#[inline]
fn to_words(request: &Request) -> [u64; WORDS - 1] {
    [
        request.arrived.0,
        request.admitted.0,
        request.sent.0,
        request.done.0,
        request.offset,
        u64::from(request.len) | u64::from(request.disk) << 32,
        request.kind().into(),
    ]
}

/// Unpacks a request of the ring, with the number of requests dropped before it.
pub(super) fn from_words(words: [u64; WORDS]) -> (Request, u64) {
    let [arrived, admitted, sent, done, offset, packed, kind, dropped] = words;
    let blank = Request {
        disk: (packed >> 32) as u32,
        op: tidegate_core::request::Op::Read,
        fua: false,
        keep_allocated: false,
        outcome: Ok(()),
        offset,
        len: packed as u32,
        arrived: Nanos(arrived),
        admitted: Nanos(admitted),
        sent: Nanos(sent),
        done: Nanos(done),
    };
    let request = blank.with_kind(kind as u8);
    (request.expect("a kind that was packed here"), dropped)
}
