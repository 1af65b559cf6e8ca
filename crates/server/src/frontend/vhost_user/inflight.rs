//! Requests in flight, recorded in memory that the front-end keeps when the daemon is killed
//! (`INFLIGHT_SHMFD`; "Inflight I/O tracking" in the vhost-user specification).
//!
//! ```text
//!   queue 0               queue 1        ...   cache mode, guest has run?
//!   | features 0 | version 1 | entries | last batch | used index |   16 bytes
//!   | in flight? | padding   | next    | counter    |                16 bytes for each descriptor
//! ```
//!
//! | step | stores, in this order |
//! |---|---|
//! | request taken | its counter; its mark |
//! | request answered | `next` of its entry: the last batch; last batch: its head |
//! | answers published | the ring's used index; marks of the batch cleared; used index here |
//!
//! A process that is killed has made all stores up to some point and none after it. Whatever the
//! point, the marks name the requests that the driver has seen no answer to, with one exception: if
//! the used indices differ, the answers of the last batch were published and its marks are stale.
//! The list that begins at the last batch names them.
//!
//! The kernel may still work on requests of a process that was killed, and write to the disk or to
//! guest memory. Each session therefore locks the memory, by a file that is also in the ring: the
//! kernel frees a ring, and with it the lock, once its last I/O has ended. The next session waits
//! for that before it reads the record.
//!
//! The front-end may change every byte at any time. [`InflightQueue::recover`] reads each one once
//! and checks it; afterwards the memory is only written.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::guest_memory::Mapping;
use crate::buffer::{Mem, PAGE};
use crate::ownership::Ownership;
use crate::ring::sys;
use crate::vm_resources::VmResources;

/// Bytes before the entries of a queue, and of an entry.
const HEAD: usize = 16;
const ENTRY: usize = 16;
/// Alignment of a queue's part in bytes, as in other back-ends.
const QUEUE_ALIGN: usize = 64;
/// Offsets of a queue's fields.
const FEATURES: usize = 0;
const VERSION: usize = 8;
const ENTRIES: usize = 10;
const LAST_BATCH: usize = 12;
const USED_INDEX: usize = 14;
/// Offsets of an entry's fields.
const MARK: usize = 0;
const NEXT: usize = 6;
const COUNTER: usize = 8;
/// First counter that no record has, so that counters never wrap around.
const COUNTERS: u64 = 1 << 63;
/// Version of the format of queues; 0 in memory that no back-end has used yet.
const QUEUE_VERSION: u16 = 1;

/// Bytes behind the last queue, which only Tidegate uses: a word that marks them, their version,
/// the cache mode, and whether the guest has run.
const TAIL: usize = 64;
const TAIL_WORD: [u8; 8] = *b"tidegate";
const TAIL_VERSION: [u8; 2] = 1u16.to_le_bytes();
/// Offsets of the tail's fields.
const TAIL_VERSION_AT: usize = 8;
const CACHE_MODE: usize = 10;
const GUEST_HAS_RUN: usize = 11;
/// Cache modes in the tail.
const UNKNOWN: u8 = 0;
const WRITE_THROUGH: u8 = 1;
const WRITE_BACK: u8 = 2;

/// Reason why a record cannot be one of its queue.
pub(super) type Invalid = &'static str;

/// Time for which a session waits until the I/O of the one before has ended; shorter where no I/O
/// outlives its session.
const LOCK_TIMEOUT: Duration = Duration::from_millis(if cfg!(any(test, feature = "fuzzing")) {
    50
} else {
    5000
});
/// Pause between two attempts to lock.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Number of queues and of entries for each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    queues: u16,
    entries: u16,
}

impl Layout {
    /// Makes the layout for `queues` queues of up to `entries` entries, at least one of each.
    pub(super) fn new(queues: u16, entries: u16) -> Layout {
        assert!(queues > 0 && entries > 0, "{queues} queues of {entries}");
        Layout { queues, entries }
    }

    /// Returns the number of bytes of a queue's part.
    fn queue_bytes(self) -> usize {
        (HEAD + ENTRY * usize::from(self.entries)).next_multiple_of(QUEUE_ALIGN)
    }

    /// Returns the number of bytes that any back-end needs.
    fn queues_bytes(self) -> usize {
        self.queue_bytes() * usize::from(self.queues)
    }

    /// Returns the number of bytes of memory that this back-end makes.
    pub(super) fn bytes(self) -> u64 {
        (self.queues_bytes() + TAIL) as u64
    }

    /// Makes memory of this layout that records nothing yet.
    ///
    /// # Errors
    /// A message if the system has no memory or no descriptor left.
    pub(super) fn create(self) -> Result<File, String> {
        sys::sealed_memory_file(c"tidegate-inflight", self.bytes())
            .map_err(|error| format!("no memory for requests in flight: {error}"))
    }
}

/// Opens the file of a record anew by the number of its descriptor, because the file that was
/// passed is the front-end's own, whose lock would outlive this process. `None` if this process may
/// not open it, or it is no file in memory, which a record is.
pub(super) fn open_own(number: RawFd) -> Option<File> {
    // One that was opened for reading, such as a disk's, is none, and not to become writable.
    if !sys::is_read_and_written(number) {
        return None;
    }
    let path = format!("/proc/self/fd/{number}");
    // First, because opening a device or a pipe may have effects.
    if !std::fs::metadata(&path).ok()?.is_file() {
        return None;
    }
    let file = File::options().read(true).write(true).open(path).ok()?;
    // The descriptor may have become another file's meanwhile. A record has no name: it was made
    // without one, or its front-end has removed it. A disk's file has one, also on tmpfs.
    let in_memory = [libc::TMPFS_MAGIC, libc::HUGETLBFS_MAGIC];
    let is_in_memory = in_memory.contains(&sys::filesystem(&file).ok()?);
    let found = file.metadata().ok()?;
    (is_in_memory && found.is_file() && found.nlink() == 0).then_some(file)
}

/// Locks the file of a record, once nobody else has locked it. Returns the open file that has the
/// lock.
fn lock(own: Option<File>) -> Result<Option<File>, String> {
    let Some(own) = own else {
        return Ok(None);
    };
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match sys::lock(&own, true) {
            Ok(true) => return Ok(Some(own)),
            Ok(false) if Instant::now() < until => std::thread::sleep(LOCK_RETRY_INTERVAL),
            Ok(false) => {
                return Err(format!(
                    "I/O of the session before has not ended in {} s",
                    LOCK_TIMEOUT.as_secs_f64()
                ));
            }
            Err(error) => return Err(format!("requests in flight cannot be locked: {error}")),
        }
    }
}

/// Record of requests in flight, as another daemon takes it over. `F` is a file, or its number in a
/// message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RecordState<F> {
    /// File as it was opened for the session, which has the lock.
    pub(crate) file: F,
    /// First byte in the file, and number of bytes.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Number of queues, and of entries for each of them.
    pub(crate) queues: u16,
    pub(crate) entries: u16,
}

/// Memory that records the requests in flight of a device's queues.
#[derive(Debug)]
pub(super) struct InflightRegion {
    layout: Layout,
    mem: Mem,
    mapping: Mapping,
    /// True if the memory ends with a tail of this back-end's version.
    has_tail: bool,
    /// First byte in the file, and number of bytes, as the front-end gave them.
    range: (u64, u64),
    /// File with the session's lock on the memory; `None` if this process may not open it.
    lock: Option<File>,
    /// Ownership of the lock, which ends when another daemon goes on with the session.
    ownership: Ownership,
}

impl Drop for InflightRegion {
    fn drop(&mut self) {
        // The loop has let go of the memory, though the kernel may not have freed the ring's file.
        if let Some(lock) = self.lock.as_ref().filter(|_| self.ownership.is_own()) {
            sys::unlock(lock);
        }
    }
}

impl InflightRegion {
    /// Maps a record as [`InflightRegion::map_with`] does, on a thread that may open files.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn map(
        layout: Layout,
        file: &File,
        offset: u64,
        bytes: u64,
        limits: &Arc<VmResources>,
    ) -> Result<InflightRegion, String> {
        InflightRegion::map_with(open_own, layout, file, (offset, bytes), limits)
    }

    /// Maps memory of `bytes` bytes from `offset` on in a file. Waits until no other session has
    /// it, for [`LOCK_TIMEOUT`] at most. `open` is [`open_own`], on a thread that may open files.
    ///
    /// # Errors
    /// A message if the memory is too short for its layout or not inside the file, its beginning is
    /// no page, the VM has as much mapped as it may, it cannot be mapped, or another session still
    /// has it.
    pub(super) fn map_with(
        open: impl FnOnce(RawFd) -> Option<File>,
        layout: Layout,
        file: &File,
        (offset, bytes): (u64, u64),
        limits: &Arc<VmResources>,
    ) -> Result<InflightRegion, String> {
        const WHAT: &str = "memory for requests in flight";
        let needed = layout.queues_bytes() as u64;
        let range = (offset, bytes);
        if bytes < needed {
            return Err(format!(
                "{WHAT} of {bytes} bytes, where {needed} are needed"
            ));
        }
        // Bytes behind the tail are not used, whatever length the front-end gives.
        let len = bytes.min(layout.bytes());
        if !offset.is_multiple_of(PAGE as u64) {
            return Err(format!("{WHAT} at offset {offset}, which is no page"));
        }
        let (mapping, mem) = Mapping::of_file(WHAT, file, offset, len, limits)?;
        let mut region = InflightRegion {
            layout,
            mem,
            mapping,
            has_tail: false,
            range,
            ownership: Ownership::default(),
            // Only now: a file in memory opens at once.
            lock: lock(open(file.as_raw_fd()))?,
        };
        region.has_tail = len == layout.bytes() && region.claim_tail();
        Ok(region)
    }

    /// Maps the record of a session of another daemon, whose lock is that of the open `file`. It
    /// is this daemon's once `ownership` is.
    ///
    /// # Errors
    /// As for [`InflightRegion::map_with`], and if a queue or an entry of the record's layout is
    /// none.
    pub(super) fn resumed(
        record: RecordState<OwnedFd>,
        layout: Layout,
        ownership: Ownership,
        limits: &Arc<VmResources>,
    ) -> Result<InflightRegion, String> {
        let file = File::from(record.file);
        let own = file.try_clone().map_err(|error| error.to_string())?;
        let range = (record.offset, record.bytes);
        // Locked once more, which changes nothing.
        let mut region = InflightRegion::map_with(|_| Some(own), layout, &file, range, limits)?;
        region.ownership = ownership;
        Ok(region)
    }

    /// Returns the record for another daemon; `None` if it has no lock, which would go over with
    /// it.
    ///
    /// # Errors
    /// If the process has no free descriptor.
    pub(super) fn state(&self) -> io::Result<Option<RecordState<OwnedFd>>> {
        let Some(file) = self.lock()? else {
            return Ok(None);
        };
        let (offset, bytes) = self.range;
        Ok(Some(RecordState {
            file: file.into(),
            offset,
            bytes,
            queues: self.layout.queues,
            entries: self.layout.entries,
        }))
    }

    /// Returns the ownership of the lock.
    pub(super) fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// Returns a file that keeps the session's lock while it is open, if there is a lock.
    ///
    /// # Errors
    /// If the process has no free descriptor.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        self.lock.as_ref().map(File::try_clone).transpose()
    }

    fn tail(&self) -> Mem {
        self.mem.slice(self.layout.queues_bytes(), TAIL)
    }

    /// Writes a tail that is empty. Returns true if there is a tail that this version knows.
    fn claim_tail(&self) -> bool {
        let tail = self.tail();
        let (word, version) = (tail.read_once(0), tail.read_once(TAIL_VERSION_AT));
        if word == [0; 8] {
            tail.write_once(CACHE_MODE, [UNKNOWN]);
            tail.write_once(GUEST_HAS_RUN, [0]);
            tail.write_once(TAIL_VERSION_AT, TAIL_VERSION);
            // Last, because the word makes the rest valid.
            tail.write_once(0, TAIL_WORD);
            return true;
        }
        word == TAIL_WORD && version == TAIL_VERSION
    }

    /// Returns whether the driver knows a write-back cache, as an earlier session recorded it;
    /// `None` if none did.
    pub(super) fn writeback(&self) -> Option<bool> {
        if !self.has_tail {
            return None;
        }
        match self.tail().read_once(CACHE_MODE) {
            [WRITE_BACK] => Some(true),
            [WRITE_THROUGH] => Some(false),
            _ => None,
        }
    }

    /// Records whether the driver knows a write-back cache, for the next session; `None` if that is
    /// unknown.
    pub(super) fn set_writeback(&self, writeback: Option<bool>) {
        if self.has_tail {
            let mode = match writeback {
                Some(true) => WRITE_BACK,
                Some(false) => WRITE_THROUGH,
                None => UNKNOWN,
            };
            self.tail().write_once(CACHE_MODE, [mode]);
        }
    }

    /// Returns true if the guest has run with this record, in this session or in an earlier one.
    /// False in a record without a tail of this back-end's version. A record stays on its host: a
    /// guest that migrates gets a new one.
    pub(super) fn guest_has_run(&self) -> bool {
        self.has_tail && self.tail().read_once(GUEST_HAS_RUN) != [0]
    }

    /// Records that the guest runs, for the next session.
    pub(super) fn note_guest_runs(&self) {
        if self.has_tail {
            self.tail().write_once(GUEST_HAS_RUN, [1]);
        }
    }

    /// Returns true if the file has become shorter than the memory, or a page of it is lost.
    pub(super) fn is_truncated(&self) -> bool {
        self.mapping.is_truncated()
    }
}

/// Record of a queue that is about to start.
#[derive(Clone, Debug)]
pub(super) struct QueueRecord {
    region: Arc<InflightRegion>,
    queue: usize,
}

impl QueueRecord {
    /// Returns the record of a queue with `size` entries.
    ///
    /// # Errors
    /// A message if the memory has no room for the queue.
    pub(super) fn new(
        region: &Arc<InflightRegion>,
        queue: usize,
        size: u16,
    ) -> Result<QueueRecord, String> {
        let Layout { queues, entries } = region.layout;
        if queue >= usize::from(queues) || size > entries {
            return Err(format!(
                "queue {queue} of {size} entries with memory for requests in flight of {queues} \
                 queues with {entries} entries"
            ));
        }
        Ok(QueueRecord {
            region: region.clone(),
            queue,
        })
    }

    fn mem(&self) -> Mem {
        let bytes = self.region.layout.queue_bytes();
        self.region.mem.slice(self.queue * bytes, bytes)
    }
}

/// Writer of a queue's record.
#[derive(Debug)]
pub(super) struct InflightQueue {
    mem: Mem,
    /// Counter of the next request that is taken.
    counter: u64,
    /// Head of the last request that was answered.
    last_batch: u16,
    /// Heads of the requests that were answered and not published, at most the queue's entries.
    batch: Vec<u16>,
    /// Keeps the memory mapped.
    region: Arc<InflightRegion>,
}

/// Requests that an earlier session left in flight.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// The memory is new, and says nothing about the queue.
    Unknown,
    /// Heads of the requests, the one that was taken last in front.
    Requests(Vec<u16>),
}

impl InflightQueue {
    /// Reads the record of a queue with `size` entries, whose ring has the used index `used`, and
    /// goes on with it.
    ///
    /// # Errors
    /// If the record cannot be one of this queue.
    pub(super) fn recover(
        record: QueueRecord,
        size: u16,
        used: u16,
    ) -> Result<(InflightQueue, Left), Invalid> {
        let mut queue = InflightQueue {
            mem: record.mem(),
            counter: 0,
            last_batch: 0,
            batch: Vec::with_capacity(size.into()),
            region: record.region,
        };
        let entries = queue.region.layout.entries;
        let left = match queue.mem.load_le16(VERSION) {
            0 => {
                queue.initialize(entries, used);
                Left::Unknown
            }
            QUEUE_VERSION => Left::Requests(queue.read(entries, size, used)?),
            _ => return Err("requests in flight are recorded in an unknown version"),
        };
        if queue.is_truncated() {
            return Err("the memory for requests in flight is gone");
        }
        Ok((queue, left))
    }

    fn initialize(&self, entries: u16, used: u16) {
        for head in 0..entries {
            self.set_mark(head, 0);
        }
        self.mem.write_once(FEATURES, [0; 8]);
        self.mem.store_le16(ENTRIES, entries);
        self.mem.store_le16(LAST_BATCH, 0);
        self.mem.store_le16(USED_INDEX, used);
        // Last, because the version makes the rest valid.
        self.mem.store_le16(VERSION, QUEUE_VERSION);
    }

    /// Returns the heads of the requests that are in flight, the one taken last in front.
    fn read(&mut self, entries: u16, size: u16, used: u16) -> Result<Vec<u16>, Invalid> {
        if self.mem.read_once(FEATURES) != [0; 8] {
            return Err("requests in flight are recorded with unknown features");
        }
        if self.mem.load_le16(ENTRIES) != entries {
            return Err("requests in flight are recorded for a queue of another size");
        }
        let mut requests = Vec::new();
        for head in 0..entries {
            let at = Self::entry(head);
            let counter = u64::from_le_bytes(self.mem.read_once(at + COUNTER));
            match self.mem.read_once(at + MARK) {
                [0] => {}
                [1] if head < size && counter < COUNTERS => requests.push((counter, head)),
                _ => return Err("a request in flight is recorded that the queue cannot have"),
            }
        }
        // More than 0 if a session ended between the two stores of the index.
        let batch = used.wrapping_sub(self.mem.load_le16(USED_INDEX));
        self.last_batch = self.mem.load_le16(LAST_BATCH);
        if batch != 0 {
            // Without a mark the index alone is old: the driver has begun its ring anew.
            if !requests.is_empty() {
                let answered = self.last_answered(size, batch)?;
                requests.retain(|&(_, head)| !answered[usize::from(head)]);
                let heads = (0..size).filter(|&head| answered[usize::from(head)]);
                heads.for_each(|head| self.set_mark(head, 0));
            }
            // Only now: until here a process that is killed leaves the batch as it was.
            self.mem.store_le16(USED_INDEX, used);
        }
        requests.sort_unstable_by(|a, b| b.cmp(a));
        if requests.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err("two requests in flight are recorded at one place in their order");
        }
        self.counter = requests.first().map_or(0, |(last, _)| last + 1);
        Ok(requests.into_iter().map(|(_, head)| head).collect())
    }

    /// Returns for each head whether it is in the list of the last batch, of `count` answers.
    fn last_answered(&self, size: u16, count: u16) -> Result<Vec<bool>, Invalid> {
        if count > size {
            return Err("requests in flight are recorded for another ring");
        }
        let mut head = self.last_batch;
        // By head, because searches of a list would keep the loop busy where the list is long.
        let mut answered = vec![false; size.into()];
        for _ in 0..count {
            match answered.get_mut(usize::from(head)) {
                Some(is_answered) if !*is_answered => *is_answered = true,
                _ => return Err("the last batch of answers is recorded as no list"),
            }
            head = self.mem.load_le16(Self::entry(head) + NEXT);
        }
        Ok(answered)
    }

    fn entry(head: u16) -> usize {
        HEAD + ENTRY * usize::from(head)
    }

    fn set_mark(&self, head: u16, mark: u8) {
        self.mem.write_once(Self::entry(head) + MARK, [mark]);
    }

    /// Records that a request was taken.
    #[inline]
    pub(super) fn take(&mut self, head: u16) {
        let at = Self::entry(head) + COUNTER;
        self.mem.write_once(at, self.counter.to_le_bytes());
        self.counter += 1;
        // Behind the counter: both are volatile, and a process sees its own stores in their order.
        self.set_mark(head, 1);
    }

    /// Records that a request was answered, which the driver does not see yet.
    #[inline]
    pub(super) fn end(&mut self, head: u16) {
        self.mem
            .store_le16(Self::entry(head) + NEXT, self.last_batch);
        self.mem.store_le16(LAST_BATCH, head);
        self.last_batch = head;
        self.batch.push(head);
    }

    /// Records that the driver sees all answers, by the ring's index `used`.
    #[inline]
    pub(super) fn publish(&mut self, used: u16) {
        // The ring's index must be stored before a mark is cleared.
        fence(Ordering::SeqCst);
        for &head in &self.batch {
            self.mem.write_once(Self::entry(head) + MARK, [0]);
        }
        self.batch.clear();
        self.mem.store_le16(USED_INDEX, used);
    }

    /// Returns true if the file has become shorter than the memory, or a page of it is lost.
    pub(super) fn is_truncated(&self) -> bool {
        self.region.is_truncated()
    }
}

#[cfg(test)]
#[path = "inflight_tests.rs"]
mod tests;
