//! Queue of finished requests from an event loop to the recorder: bounded, for one writer and one
//! reader, without locks and system calls.
//!
//! An entry is eight words, one cache line. All words are atomic, so that no unsafe code is needed;
//! loads and stores of single words cost the same as plain ones. The writer publishes an entry by
//! the release store of `written`, the reader frees it by that of `read`.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Words of an entry; the last is the number of requests that were dropped before it.
pub(super) const WORDS: usize = 8;
/// Words of an entry that the writer gives.
const GIVEN: usize = WORDS - 1;

/// Entry of the ring in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Entry([AtomicU64; WORDS]);

/// Counter in a cache line of its own, so that the two sides do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

#[derive(Debug)]
struct Shared {
    entries: Box<[Entry]>,
    /// Entries written since the beginning.
    written: Counter,
    /// Entries read since the beginning.
    read: Counter,
    /// Requests dropped since the beginning, because the ring was full.
    dropped: Counter,
    /// The writer is gone: nothing follows.
    has_ended: AtomicBool,
    /// The reader is gone: nobody reads what is written.
    is_abandoned: AtomicBool,
}

/// Creates a ring of `capacity` entries, a power of two. Its memory is touched here, so that the
/// writer takes no page faults.
pub(super) fn ring(capacity: usize) -> (Writer, Reader) {
    assert!(capacity.is_power_of_two(), "{capacity} entries");
    let shared = Arc::new(Shared {
        entries: (0..capacity).map(|_| Entry::default()).collect(),
        written: Counter::default(),
        read: Counter::default(),
        dropped: Counter::default(),
        has_ended: AtomicBool::new(false),
        is_abandoned: AtomicBool::new(false),
    });
    let writer = Writer {
        shared: shared.clone(),
        written: 0,
        full_at: capacity as u64,
        dropped: 0,
    };
    (writer, Reader { shared, read: 0 })
}

/// Outcome of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Written {
    Yes,
    /// The ring is full; the request is counted as dropped.
    Dropped,
    /// The ring is full and its reader is gone.
    Abandoned,
}

/// Event loop's end of a ring.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    written: u64,
    /// Number of written entries at which the ring is full, as last looked up.
    full_at: u64,
    dropped: u64,
}

impl Writer {
    /// Writes an entry unless the ring is full.
    #[inline]
    pub(super) fn write(&mut self, words: [u64; GIVEN]) -> Written {
        if self.written == self.full_at {
            let refused = self.look_up_room();
            if refused != Written::Yes {
                return refused;
            }
        }
        let mask = self.shared.entries.len() as u64 - 1;
        let entry = &self.shared.entries[(self.written & mask) as usize];
        for (to, word) in entry.0.iter().zip(words) {
            to.store(word, Relaxed);
        }
        entry.0[GIVEN].store(self.dropped, Relaxed);
        self.written += 1;
        self.shared.written.0.store(self.written, Release);
        Written::Yes
    }

    #[cold]
    fn look_up_room(&mut self) -> Written {
        let capacity = self.shared.entries.len() as u64;
        self.full_at = self.shared.read.0.load(Acquire) + capacity;
        if self.written < self.full_at {
            return Written::Yes;
        }
        if self.shared.is_abandoned.load(Relaxed) {
            return Written::Abandoned;
        }
        self.dropped += 1;
        self.shared.dropped.0.store(self.dropped, Relaxed);
        Written::Dropped
    }

    /// Returns the number of entries written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the number of requests that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Release: the reader that sees it also sees every entry.
        self.shared.has_ended.store(true, Release);
    }
}

/// Recorder's end of a ring.
#[derive(Debug)]
pub(super) struct Reader {
    shared: Arc<Shared>,
    read: u64,
}

impl Reader {
    /// Returns the number of entries that can be read up to now, from the beginning.
    pub(super) fn written(&self) -> u64 {
        self.shared.written.0.load(Acquire)
    }

    /// Returns the number of entries that were read.
    pub(super) fn read(&self) -> u64 {
        self.read
    }

    /// Passes the entries up to number `end` of [`Reader::written`] to `take`, and frees them.
    pub(super) fn take(&mut self, end: u64, mut take: impl FnMut([u64; WORDS])) {
        let mask = self.shared.entries.len() as u64 - 1;
        while self.read < end {
            let entry = &self.shared.entries[(self.read & mask) as usize];
            take(std::array::from_fn(|word| entry.0[word].load(Relaxed)));
            self.read += 1;
            // Every 64 entries, so that a long batch makes room while it is encoded.
            if self.read.is_multiple_of(64) {
                self.shared.read.0.store(self.read, Release);
            }
        }
        self.shared.read.0.store(self.read, Release);
    }

    /// Returns the number of requests that were dropped up to now.
    pub(super) fn dropped(&self) -> u64 {
        self.shared.dropped.0.load(Relaxed)
    }

    /// Returns true if the writer is gone. What it has written before can still be read.
    pub(super) fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Acquire)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.is_abandoned.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(number: u64) -> [u64; GIVEN] {
        std::array::from_fn(|at| number * 100 + at as u64)
    }

    /// Reads all that is there.
    fn all(reader: &mut Reader) -> Vec<[u64; WORDS]> {
        let mut taken = Vec::new();
        reader.take(reader.written(), |words| taken.push(words));
        taken
    }

    #[test]
    fn a_full_ring_drops_and_says_how_many_before_the_next_entry() {
        let (mut writer, mut reader) = ring(4);
        for number in 0..4 {
            assert_eq!(writer.write(words(number)), Written::Yes);
        }
        for _ in 0..3 {
            assert_eq!(writer.write(words(9)), Written::Dropped);
        }
        let taken = all(&mut reader);
        assert_eq!(taken.len(), 4);
        assert_eq!(taken[3], [300, 301, 302, 303, 304, 305, 306, 0]);
        assert_eq!((reader.dropped(), writer.dropped()), (3, 3));
        assert_eq!(writer.write(words(4)), Written::Yes);
        let [entry] = all(&mut reader)[..] else {
            panic!("one entry")
        };
        assert_eq!((entry[0], entry[GIVEN]), (400, 3));
        assert_eq!((writer.written(), reader.read()), (5, 5));
    }

    #[test]
    fn each_side_knows_that_the_other_is_gone() {
        let (mut writer, reader) = ring(2);
        drop(reader);
        assert_eq!(writer.write(words(0)), Written::Yes, "there is room");
        writer.write(words(1));
        assert_eq!(writer.write(words(2)), Written::Abandoned);
        let (mut writer, mut reader) = ring(2);
        writer.write(words(7));
        assert!(!reader.has_ended());
        drop(writer);
        assert!(reader.has_ended());
        assert_eq!(all(&mut reader).len(), 1, "what was written is there");
    }

    #[test]
    fn a_thread_reads_every_entry_once_while_another_writes() {
        const ENTRIES: u64 = 200_000;
        let (mut writer, mut reader) = ring(1024);
        let writing = std::thread::spawn(move || {
            for number in 0..ENTRIES {
                while writer.write(words(number)) != Written::Yes {
                    std::thread::yield_now();
                }
            }
        });
        let mut next = 0;
        while next < ENTRIES {
            for entry in all(&mut reader) {
                assert_eq!(entry[..GIVEN], words(next));
                next += 1;
            }
            std::thread::yield_now();
        }
        writing.join().expect("it writes to its end");
        assert!(reader.has_ended());
    }
}
