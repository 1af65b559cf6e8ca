//! Backing in a file or block device: the system calls of an I/O go through the ring one after the
//! other, and range locks order writes that share a block.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tidegate_core::request::{DeviceIo, Op, Outcome};

use super::activation::{Activation, Found};
use super::dsync::Durably;
use super::extents::{ExtentQuery, ExtentThread, FileQuery, QueryError};
use super::file::OpenFile;
use super::file_io::{FileIo, ZEROES};
use super::file_mapping::FileMapping;
use super::interface::{Backing, Operation, Port, Reports, ResizeWork};
use super::range_lock::RangeLocks;
use crate::buffer::{Mem, Region};
use crate::disk_file_monitor::Watched;
#[cfg(test)]
use crate::ring::faults::Injected;
use crate::ring::{Completion, FileId, Ring, Step, sys};

/// Shortest read in bytes of a file in memory that is copied from a mapping: for a shorter one, the
/// question whether its pages are there costs more than the system call of a read.
const COPIED_MIN: usize = 16 << 10;

/// Disk in a file or block device.
#[derive(Debug)]
pub(crate) struct FileBacking {
    open: OpenFile,
    /// Index of the file in the ring's table.
    entry: Option<FileId>,
    /// Ranges locked by writes; empty unless a write in flight covers a block only in part.
    locks: RangeLocks,
    /// Handle for extent queries, once there was one.
    survey: Option<Arc<File>>,
    /// Second descriptor of the file, which was in the ring's table; set when the event loop gives
    /// the disk back, so that both are closed where that may block.
    registered: Option<OwnedFd>,
    /// View of a file in memory, as long as it was when it was opened. What it grows by is read
    /// with a copy, since replies may still be sent from here.
    mapping: Option<Box<FileMapping>>,
    /// Another view of the same bytes, for copies.
    copied: Option<Box<FileMapping>>,
    /// Number of I/Os that went through a bounce buffer.
    bounced: u64,
}

/// I/Os on the files of a device.
#[derive(Debug)]
pub(crate) struct FileIos {
    /// I/Os by index.
    slots: Vec<Slot>,
    zeroes: Region,
    scratch: Vec<Mem>,
    granted: Vec<u32>,
    extent_thread: Option<ExtentThread>,
}

/// State of one I/O on a file.
#[derive(Debug)]
struct Slot {
    io: FileIo,
    disk: u32,
    /// True while the I/O has an entry in the disk's range locks.
    locked: bool,
    /// True while the I/O is in flight and changes bytes of the file.
    changing: bool,
}

impl FileIos {
    /// Creates room for `io_slots` I/Os at a time.
    ///
    /// # Errors
    /// Fails if the address space is exhausted.
    pub(crate) fn new(io_slots: u32) -> io::Result<FileIos> {
        let slot = |_| Slot {
            io: FileIo::new(),
            disk: 0,
            locked: false,
            changing: false,
        };
        Ok(FileIos {
            slots: (0..io_slots).map(slot).collect(),
            zeroes: Region::new(ZEROES)?,
            scratch: Vec::new(),
            granted: Vec::new(),
            extent_thread: None,
        })
    }

    /// Reports the answers of the extent thread.
    pub(crate) fn collect(&mut self, reports: &mut Reports) {
        while let Some(status) = self.extent_thread.as_ref().and_then(ExtentThread::answer) {
            reports.extent_answers.push(status);
        }
    }
}

impl FileBacking {
    /// Creates the backing of an open file.
    pub(crate) fn new(open: OpenFile) -> FileBacking {
        FileBacking {
            mapping: open.map(FileMapping::new),
            copied: open.map(FileMapping::guarded),
            open,
            entry: None,
            locks: RangeLocks::default(),
            survey: None,
            registered: None,
            bounced: 0,
        }
    }

    /// Locks the blocks of a write; returns true if it may proceed at once. The first write that
    /// covers a block only in part finds no locks, so the writes already in flight are recorded
    /// first.
    fn lock(&mut self, ios: &mut FileIos, disk: u32, index: u32) -> bool {
        let facts = &self.open.facts;
        if self.locks.is_empty() {
            for (other, slot) in (0u32..).zip(&mut ios.slots) {
                if other != index && slot.disk == disk && slot.changing {
                    let (from, to) = slot.io.span(facts);
                    slot.locked = true;
                    self.locks.adopt(other, from, to);
                }
            }
        }
        let slot = &mut ios.slots[index as usize];
        let (from, to) = slot.io.span(facts);
        slot.locked = true;
        self.locks.acquire(index, from, to)
    }

    /// Makes a long read of a file in memory by a copy, which takes a third of the time of a system
    /// call. Returns the number of bytes; `None` if the read has to be a system call.
    fn copy(&self, offset: u64, to: &[Mem]) -> Option<u32> {
        let len: usize = to.iter().map(Mem::len).sum();
        let mapping = self.copied.as_ref().filter(|_| len >= COPIED_MIN)?;
        // The length is asked for behind the copy: what follows the end in the last page of a file
        // that was cut short is zeroes.
        (mapping.copy(offset, to) && self.is_whole()).then_some(len as u32)
    }

    /// Returns true if the file is as long as the disk.
    fn is_whole(&self) -> bool {
        let now = self.open.file.metadata();
        now.is_ok_and(|now| now.len() >= self.open.facts.size)
    }

    /// Submits the next system call of an I/O, or ends the I/O.
    fn step(&mut self, ios: &mut FileIos, port: &mut Port<'_>, index: u32) {
        let slot = &mut ios.slots[index as usize];
        let id = self.entry.expect("a file is in the table from the start");
        let token = Operation::Io(index).encode();
        loop {
            let step = slot.io.step(&self.open.facts, &mut ios.scratch);
            let has_fault = false;
            #[cfg(test)]
            let has_fault = match port.ring.inject_fault(id, step, &mut ios.scratch, token) {
                Injected::Nothing => has_fault,
                Injected::Altered => true,
                Injected::Replaced => return,
            };
            match step {
                Step::Bounce(len) => {
                    self.bounced += 1;
                    slot.io.give_bounce(port.plumbing.get(len));
                }
                Step::Read(offset) => {
                    let copied = (!has_fault).then(|| self.copy(offset, &ios.scratch));
                    let Some(n) = copied.flatten() else {
                        return port.ring.read(id, &ios.scratch, offset, token);
                    };
                    slot.io.advance(&mut self.open.facts, Ok(n));
                }
                Step::Write { offset, dsync } => {
                    return port.ring.write(id, &ios.scratch, offset, dsync, token);
                }
                Step::Sync => return port.ring.sync_data(id, token),
                Step::Allocate { mode, offset, len } => {
                    return port.ring.allocate(id, mode, offset, len, token);
                }
                Step::Done(outcome) => return self.end(ios, port, index, outcome),
            }
        }
    }

    /// Ends an I/O and continues those that waited for its range.
    fn end(&mut self, ios: &mut FileIos, port: &mut Port<'_>, index: u32, outcome: Outcome) {
        let slot = &mut ios.slots[index as usize];
        if let Some(bounce) = slot.io.take_bounce() {
            port.plumbing.put(bounce);
        }
        slot.changing = false;
        if std::mem::take(&mut slot.locked) {
            // The list is taken out, because `step` may end I/Os and so come back here.
            let mut granted = std::mem::take(&mut ios.granted);
            granted.clear();
            self.locks.release(index, &mut granted);
            for &next in &granted {
                self.step(ios, port, next);
            }
            granted.clear();
            ios.granted = granted;
        }
        port.end_io(index, outcome);
    }
}

impl Backing for FileBacking {
    type Shared = FileIos;

    fn submit(
        &mut self,
        ios: &mut FileIos,
        port: &mut Port<'_>,
        io: &DeviceIo,
        ranges: impl Iterator<Item = Mem>,
    ) -> Option<Outcome> {
        let index = io.id.index() as u32;
        let facts = &self.open.facts;
        let slot = &mut ios.slots[index as usize];
        slot.disk = port.disk;
        slot.io.begin(facts, io, ranges, ios.zeroes.mem(0, ZEROES));
        if matches!(io.op, Op::Write | Op::WriteZeroes | Op::Discard) {
            slot.changing = true;
            let partial = slot.io.has_partial_blocks(facts);
            // Whole-block writes take a lock only while some write in flight needs one.
            if (partial || !self.locks.is_empty()) && !self.lock(ios, port.disk, index) {
                return None;
            }
        }
        self.step(ios, port, index);
        None
    }

    fn handle(
        &mut self,
        ios: &mut FileIos,
        port: &mut Port<'_>,
        operation: Operation,
        completion: Completion,
    ) {
        let Operation::Io(index) = operation else {
            unreachable!("a file has operations of I/Os only");
        };
        let slot = &mut ios.slots[index as usize];
        slot.io.advance(&mut self.open.facts, completion.result);
        self.step(ios, port, index);
    }

    /// Passes the query to a thread of its own, because the file system may block.
    fn query_extents(&mut self, ios: &mut FileIos, port: &mut Port<'_>, query: ExtentQuery) {
        if !self.open.facts.active {
            return port.answer_extents(query.answer(Err(QueryError::TryAgain)));
        }
        let asked = match &self.survey {
            Some(file) => Ok(file.clone()),
            None => self.open.file.try_clone().map(Arc::new),
        };
        let asked = asked.and_then(|file| {
            if ios.extent_thread.is_none() {
                ios.extent_thread = Some(ExtentThread::start(port.wake.clone())?);
            }
            Ok(file)
        });
        let (Ok(file), Some(extent_thread)) = (asked, &ios.extent_thread) else {
            return port.answer_extents(query.answer(Err(QueryError::TryAgain)));
        };
        self.survey = Some(file.clone());
        extent_thread.ask(FileQuery { file, query });
    }

    fn attach(&mut self, ring: &mut Ring) -> io::Result<()> {
        let entry = ring.add_file(self.open.file.try_clone()?.into())?;
        if self.open.facts.durably == Durably::Sync {
            // An unknown file system may call its server at submission, as FUSE does for a file's
            // attributes. A server that does not answer would stop the loop with every disk on it.
            ring.force_async(entry);
        }
        if self.open.facts.in_memory {
            ring.expect_instant(entry);
        }
        self.entry = Some(entry);
        Ok(())
    }

    fn detach(&mut self, ring: &mut Ring) {
        if let Some(entry) = self.entry.take() {
            // Dropped with the disk on a thread that may block, because closing can block.
            self.registered = Some(ring.remove_file(entry));
        }
    }

    fn sync(&self) -> io::Result<()> {
        // One that was handed over was flushed before; by now it is another daemon's.
        let activation = self.open.activation.as_ref();
        if activation.is_none_or(|activation| activation.is_locked()) {
            sys::sync_data(&self.open.file)
        } else {
            Ok(())
        }
    }

    fn sync_failed(&mut self, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        self.open.facts.errors.fail(errno, "last flush");
    }

    fn is_instant(&self) -> bool {
        self.open.facts.in_memory
    }

    fn resident(&self, offset: u64, len: usize) -> Option<Mem> {
        let (mapping, facts) = (self.mapping.as_ref()?, &self.open.facts);
        // A read of a file that lost bytes has to fail, and what follows the end in its last page
        // would be read as zeroes.
        let memory = facts
            .takes(false)
            .then(|| mapping.resident(offset, len))??;
        self.is_whole().then_some(memory)
    }

    fn physical_block(&self) -> u32 {
        self.open.facts.align.max(4096)
    }

    fn size_unit(&self) -> u32 {
        self.open.facts.align
    }

    fn zeroes_fast(&self, keep_allocated: bool) -> bool {
        let facts = &self.open.facts;
        facts.can_zero || (!keep_allocated && facts.can_punch)
    }

    fn failure(&self) -> Option<String> {
        let facts = &self.open.facts;
        (facts.errors.failed.clone()).or_else(|| facts.watched.problem())
    }

    fn no_space(&self) -> Option<String> {
        self.open.facts.errors.no_space()
    }

    fn bounced(&self) -> u64 {
        self.bounced
    }

    fn watched(&self) -> Option<&Arc<Watched>> {
        Some(&self.open.facts.watched)
    }

    fn identity(&self) -> Option<(bool, u64, u64)> {
        Some(self.open.facts.identity)
    }

    fn activation(&self) -> Option<&Arc<Activation>> {
        self.open.activation.as_ref()
    }

    fn deactivate(&mut self) {
        self.open.facts.active = false;
    }

    fn activate(&mut self, found: Option<Found>) {
        self.open.facts.active = true;
        if let Some(Found { can_punch }) = found {
            self.open.facts.can_punch = can_punch;
        }
    }

    fn first_address(&self) -> Option<u64> {
        sys::first_extent(&self.open.file)
    }

    fn resize_work(&self, _: u64) -> Result<ResizeWork, String> {
        let file = self.open.file.try_clone();
        let file =
            file.map_err(|error| format!("cannot duplicate the descriptor of its file: {error}"))?;
        Ok(ResizeWork {
            file: Some(file),
            tail: None,
        })
    }

    fn expect_size(&mut self, size: u64) {
        self.open.facts.set_size(size);
    }

    fn resize(&mut self, size: u64) -> io::Result<()> {
        self.open.facts.set_size(size);
        Ok(())
    }
}
