//! From the engine to the backing and back: device I/Os.
//!
//! ```text
//!   poll_dispatch --> memory: copied at once --------------------+--> handle_completion
//!                 --> file: locks, system calls through the ring -+
//!                 --> emulated: either of these, and the model's time is over
//!   on a disk with fault rules each I/O meets them first (`inject`)
//! ```

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use tidegate_core::request::{DeviceIo, DiskId, IoId, Op, Outcome};
use tidegate_core::time::Nanos;
use tidegate_device::{Model, ModelIo};

use super::inject::Stalls;
use super::places::Places;
use super::{Loop, Token};
use crate::backing::file_io::{FileIo, ZEROES};
use crate::backing::layout::Layout;
use crate::backing::range_lock::RangeLocks;
use crate::backing::{Disk, Medium, Memory};
use crate::buffer::{Mem, copy_ranges};
use crate::fault::Faults;
use crate::ring::{FileId, Step};

/// What the engine calls the device.
pub(super) struct Device {
    pub(super) disks: Places<DiskState>,
    /// Where they lie.
    pub(super) layout: Layout,
    /// The loop's number of each of the engine's disks.
    pub(super) by_id: Vec<usize>,
    /// One for each I/O that may be in flight.
    pub(super) ios: Vec<Io>,
    pub(super) model: Option<Box<dyn Model>>,
    /// I/Os that wait for room in the model, which I/Os of hung disks still occupy.
    pub(super) waits_for_model: VecDeque<u32>,
    /// I/Os that fault rules hold up.
    pub(super) stalls: Stalls,
    /// For people.
    pub(super) description: String,
}

/// An opened disk inside the loop.
pub(super) struct DiskState {
    pub(super) disk: Disk,
    /// No other disk of this process ever has the same.
    pub(super) serial: u32,
    /// Its first address on the device.
    pub(super) base: u64,
    /// Index into the loop's VMs.
    pub(super) vm: usize,
    pub(super) id: DiskId,
    /// Its file in the ring's table.
    pub(super) file: Option<FileId>,
    /// Ranges locked by writes; empty unless a write in flight covers a block only in part.
    pub(super) locks: RangeLocks,
    /// True while the disk is being resized.
    pub(super) resizing: bool,
    /// Its I/Os end as soon as they are submitted.
    pub(super) instant: bool,
    pub(super) in_flight: u32,
    /// Loop time since which the disk hangs, as last logged.
    pub(super) hung: Option<Nanos>,
    /// For questions about extents.
    pub(super) survey: Option<Arc<File>>,
    /// What goes wrong with it on purpose.
    pub(super) faults: Option<Box<Faults>>,
    /// How often something did, over all rules that it ever had.
    pub(super) injected: u64,
}

/// A device I/O.
#[derive(Debug)]
pub(super) struct Io {
    io: Option<DeviceIo>,
    pub(super) disk: usize,
    file: FileIo,
    /// How its bytes fared, once they did.
    pub(super) medium: Option<Outcome>,
    /// The model has not let it go.
    pub(super) held: bool,
    /// A fault rule has not let it go.
    pub(super) stalled: bool,
    /// How it ends where all went well: a fault rule may have it otherwise.
    pub(super) answer: Outcome,
    /// True while the range of the I/O is in the disk's locks.
    locked: bool,
    /// True while the I/O changes bytes of a file.
    changing: bool,
}

impl Io {
    pub(super) fn new() -> Io {
        Io {
            io: None,
            disk: 0,
            file: FileIo::new(),
            medium: None,
            held: false,
            stalled: false,
            answer: Ok(()),
            locked: false,
            changing: false,
        }
    }

    /// Whether it is in flight on this disk beyond `end`.
    pub(super) fn is_beyond(&self, disk: usize, end: u64) -> bool {
        let io = self.io.filter(|_| self.disk == disk);
        io.is_some_and(|io| io.offset + u64::from(io.len) > end)
    }

    fn id(&self) -> IoId {
        self.io.expect("the I/O is in flight").id
    }
}

impl Device {
    pub(super) fn vm_of(&self, disk: usize) -> usize {
        self.disks[disk].vm
    }

    pub(super) fn next_completion(&self) -> Option<Nanos> {
        let model = (self.model.as_ref()).and_then(|model| model.next_completion());
        model.into_iter().chain(self.stalls.next()).min()
    }

    /// The disk has I/Os whose completions come with the next turn.
    pub(super) fn answers_soon(&self, disk: usize) -> bool {
        self.disks[disk].instant && self.disks[disk].in_flight > 0
    }
}

impl DiskState {
    /// Zeroing is faster than writing zeroes.
    pub(super) fn zeroes_fast(&self, keep_allocated: bool) -> bool {
        match &self.disk.medium {
            Medium::Memory(_) => true,
            Medium::File(file) if keep_allocated => file.facts.can_zero,
            Medium::File(file) => file.facts.can_punch || file.facts.can_zero,
        }
    }
}

impl Loop {
    /// Starts what the engine chooses and takes what it has finished, until there is neither.
    pub(super) fn dispatch(&mut self) {
        loop {
            while let Some(io) = self.engine.poll_dispatch(self.now) {
                self.start(io);
            }
            let mut idle = true;
            while let Some(done) = self.engine.poll_done() {
                idle = false;
                self.done(&done);
            }
            if idle {
                return;
            }
        }
    }

    fn start(&mut self, mut io: DeviceIo) {
        let index = io.id.index();
        let disk = self.device.by_id[io.disk.index()];
        self.device.disks[disk].in_flight += 1;
        let entry = &mut self.device.ios[index];
        assert!(
            entry.io.is_none(),
            "an I/O was started in a place that is taken"
        );
        (entry.io, entry.disk, entry.medium, entry.answer) = (Some(io), disk, None, Ok(()));
        entry.held = self.device.model.is_some();
        if let Some(model) = &mut self.device.model {
            if model.has_room() {
                model.submit(self.now, model_io(model.as_ref(), &io));
            } else {
                self.device.waits_for_model.push_back(index as u32);
            }
        }
        if io.op == Op::Read {
            self.take_read_buffers(io.id);
        }
        if self.device.disks[disk].faults.is_some() {
            let Some(len) = self.inject(index, disk, &io) else {
                return;
            };
            io.len = len;
        }
        self.begin(index, disk, &io);
    }

    /// Gives each request of a read a buffer if it has none. The engine dispatches a read only
    /// after it has reserved the memory.
    fn take_read_buffers(&mut self, io: IoId) {
        for segment in self.engine.io_segments(io) {
            let slot = self.slots.get_mut(self.slots.by_tag(segment.tag));
            if slot.buffer.is_none() {
                slot.buffer = Some(self.pool.get(slot.len as usize));
            }
        }
    }

    /// Begins the work on an I/O's bytes. It may be shorter than it was started only where it
    /// carries one request.
    fn begin(&mut self, index: usize, disk: usize, io: &DeviceIo) {
        let entry = &mut self.device.ios[index];
        let slots = &self.slots;
        let ranges = self.engine.io_segments(io.id).filter_map(|segment| {
            let buffer = slots.get(slots.by_tag(segment.tag)).buffer.as_ref()?;
            Some(
                buffer
                    .mem()
                    .slice(segment.offset as usize, segment.len.min(io.len) as usize),
            )
        });
        let state = &mut self.device.disks[disk];
        match &state.disk.medium {
            Medium::Memory(memory) => {
                self.scratch.clear();
                self.scratch.extend(ranges);
                memory_io(memory, io, &self.scratch);
                self.medium_ended(index, Ok(()));
            }
            Medium::File(file) => {
                entry
                    .file
                    .begin(&file.facts, io, ranges, self.zeroes.mem(0, ZEROES));
                if matches!(io.op, Op::Write | Op::WriteZeroes | Op::Discard) {
                    entry.changing = true;
                    let partial = entry.file.has_partial_blocks(&file.facts);
                    if (partial || !state.locks.is_empty()) && !self.lock(index, disk) {
                        return;
                    }
                }
                self.step(index);
            }
        }
    }

    /// Locks the blocks of a write; returns true if it may proceed at once. The first write that
    /// covers a block only in part finds no locks, so the writes already in flight are recorded
    /// first.
    fn lock(&mut self, index: usize, disk: usize) -> bool {
        let state = &mut self.device.disks[disk];
        let Medium::File(file) = &state.disk.medium else {
            unreachable!("only files have blocks");
        };
        if state.locks.is_empty() {
            for (other, entry) in self.device.ios.iter_mut().enumerate() {
                if other != index && entry.disk == disk && entry.changing {
                    let (from, to) = entry.file.span(&file.facts);
                    entry.locked = true;
                    state.locks.adopt(other as u32, from, to);
                }
            }
        }
        let entry = &mut self.device.ios[index];
        let (from, to) = entry.file.span(&file.facts);
        entry.locked = true;
        state.locks.acquire(index as u32, from, to)
    }

    /// Submits an I/O's next system call.
    fn step(&mut self, index: usize) {
        let entry = &mut self.device.ios[index];
        let state = &mut self.device.disks[entry.disk];
        let Medium::File(file) = &state.disk.medium else {
            unreachable!("only files take steps");
        };
        let id = state.file.expect("a file is in the table from the start");
        let token = Token::Device(index as u32).encode();
        loop {
            let step = entry.file.step(&file.facts, &mut self.scratch);
            #[cfg(test)]
            if self.ring.disturb(id, step, &mut self.scratch, token) {
                return;
            }
            match step {
                Step::Bounce(len) => entry.file.give_bounce(self.plumbing.get(len)),
                Step::Read(offset) => {
                    return self.ring.read(id, &self.scratch, offset, token);
                }
                Step::Write { offset, dsync } => {
                    return self.ring.write(id, &self.scratch, offset, dsync, token);
                }
                Step::Sync => return self.ring.sync_data(id, token),
                Step::Allocate { mode, offset, len } => {
                    return self.ring.allocate(id, mode, offset, len, token);
                }
                Step::Done(outcome) => return self.medium_ended(index, outcome),
            }
        }
    }

    /// A system call of an I/O ended.
    pub(super) fn device_answered(&mut self, index: u32, result: Result<u32, i32>) {
        let entry = &mut self.device.ios[index as usize];
        let Medium::File(file) = &mut self.device.disks[entry.disk].disk.medium else {
            unreachable!("only files take steps");
        };
        entry.file.advance(&mut file.facts, result);
        self.step(index as usize);
    }

    /// An I/O's bytes are where they belong.
    pub(super) fn medium_ended(&mut self, index: usize, outcome: Outcome) {
        let entry = &mut self.device.ios[index];
        entry.medium = Some(outcome.and(entry.answer));
        if let Some(bounce) = entry.file.take_bounce() {
            self.plumbing.put(bounce);
        }
        let state = &mut self.device.disks[entry.disk];
        state.in_flight -= 1;
        entry.changing = false;
        let held = entry.held || entry.stalled;
        if std::mem::take(&mut entry.locked) {
            let mut granted = std::mem::take(&mut self.granted);
            granted.clear();
            state.locks.release(index as u32, &mut granted);
            for &next in &granted {
                self.step(next as usize);
            }
            granted.clear();
            self.granted = granted;
        }
        if !held {
            self.io_ended(index);
        }
    }

    /// Lets go what the model has finished, and what has stalled for long enough.
    pub(super) fn device_due(&mut self) {
        self.stalls_due();
        let Some(model) = &mut self.device.model else {
            return;
        };
        if model.next_completion().is_none_or(|at| at > self.now) {
            return;
        }
        while let Some(model) = &mut self.device.model
            && let Some(completion) = model.pop_completed(self.now)
        {
            let entry = &mut self.device.ios[completion.id as usize];
            entry.held = false;
            if entry.medium.is_some() && !entry.stalled {
                self.io_ended(completion.id as usize);
            }
        }
        while let Some(model) = &mut self.device.model
            && model.has_room()
            && let Some(index) = self.device.waits_for_model.pop_front()
        {
            let io = self.device.ios[index as usize].io;
            let io = io.expect("what waits for the model is in flight");
            model.submit(self.now, model_io(model.as_ref(), &io));
        }
    }

    pub(super) fn io_ended(&mut self, index: usize) {
        let entry = &mut self.device.ios[index];
        let outcome = entry
            .medium
            .take()
            .expect("its bytes are where they belong");
        let id = entry.id();
        entry.io = None;
        self.engine.handle_completion(self.now, id, outcome);
    }
}

/// An I/O as a model takes it: in whole blocks, within its longest.
fn model_io(model: &dyn Model, io: &DeviceIo) -> ModelIo {
    let spec = model.spec();
    if io.op == Op::Flush {
        return ModelIo {
            id: io.id.index() as u64,
            op: io.op,
            addr: 0,
            len: 0,
            fua: false,
        };
    }
    let block = u64::from(spec.logical_block);
    let from = io.addr / block * block;
    let end = (io.addr + u64::from(io.len))
        .next_multiple_of(block)
        .min(spec.capacity);
    let mut len = end - from;
    if io.op != Op::Discard {
        len = len.min(u64::from(spec.max_io));
    }
    let longest = u64::from(u32::MAX) / block * block;
    let len = len.min(longest) as u32;
    ModelIo {
        id: io.id.index() as u64,
        op: io.op,
        addr: from,
        len,
        fua: io.fua,
    }
}

/// An I/O on bytes in memory.
fn memory_io(memory: &Memory, io: &DeviceIo, ranges: &[Mem]) {
    let (offset, len) = (io.offset as usize, io.len as usize);
    match io.op {
        Op::Read => copy_ranges(ranges, &[memory.mem(offset, len)]),
        Op::Write => copy_ranges(&[memory.mem(offset, len)], ranges),
        // Nothing is ever allocated in memory for good, so there is nothing to keep: filling
        // gigabytes page by page would only hold up everybody else for seconds.
        Op::Discard | Op::WriteZeroes => memory.discard(offset, len),
        Op::Flush => {}
    }
}
