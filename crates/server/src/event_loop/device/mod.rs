//! From the engine to the backing and back: device I/Os.
//!
//! ```text
//!   poll_dispatch --> memory: copied at once --------------------+--> handle_completion
//!                 --> file: locks, system calls through the ring -+
//!                 --> emulated: either of these, and the model's time is over
//!   on a disk with fault rules each I/O meets them first (`inject`)
//! ```

mod add;
mod hung;
mod inject;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;

use tidegate_core::engine::Engine;
use tidegate_core::request::{DeviceIo, DiskId, IoId, Op, Outcome};
use tidegate_core::time::Nanos;
use tidegate_device::{Model, ModelIo};

use super::Token;
use super::places::Places;
use crate::backing::file_io::{FileIo, ZEROES};
use crate::backing::layout::Layout;
use crate::backing::range_lock::RangeLocks;
use crate::backing::{Disk, Medium, Memory};
use crate::buffer::{Mem, Pool, Region, copy_ranges};
use crate::fault::Faults;
use crate::frontend::table::Requests;
use crate::ring::{FileId, Ring, Step};

pub(super) use hung::OldestIos;
use hung::Workers;
use inject::Stalls;

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
    stalls: Stalls,
    /// For people.
    pub(super) description: String,
    zeroes: Region,
    scratch: Vec<Mem>,
    granted: Vec<u32>,
    workers: Workers,
}

/// What the device driver uses of its loop.
pub(super) struct Tools<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) requests: &'a mut Requests,
    pub(super) ring: &'a mut Ring,
    pub(super) plumbing: &'a mut Pool,
    pub(super) now: Nanos,
    /// False while the loop ends: fault rules hold up nothing any more.
    pub(super) may_stall: bool,
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
    /// Creates the driver of a device without disks, for `io_slots` I/Os at a time.
    ///
    /// # Errors
    /// If the address space is exhausted.
    pub(super) fn new(
        layout: Layout,
        io_slots: u32,
        model: Option<Box<dyn Model>>,
        description: String,
    ) -> io::Result<Device> {
        Ok(Device {
            disks: Places::default(),
            layout,
            by_id: Vec::new(),
            ios: (0..io_slots).map(|_| Io::new()).collect(),
            model,
            waits_for_model: VecDeque::new(),
            stalls: Stalls::new(io_slots),
            description,
            zeroes: Region::new(ZEROES)?,
            scratch: Vec::new(),
            granted: Vec::new(),
            workers: Workers::UNKNOWN,
        })
    }

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

impl Device {
    /// Starts an I/O that the engine has chosen.
    pub(super) fn start(&mut self, tools: &mut Tools<'_>, mut io: DeviceIo) {
        let index = io.id.index();
        let disk = self.by_id[io.disk.index()];
        self.disks[disk].in_flight += 1;
        let entry = &mut self.ios[index];
        assert!(
            entry.io.is_none(),
            "an I/O was started in a place that is taken"
        );
        (entry.io, entry.disk, entry.medium, entry.answer) = (Some(io), disk, None, Ok(()));
        entry.held = self.model.is_some();
        if let Some(model) = &mut self.model {
            if model.has_room() {
                model.submit(tools.now, model_io(model.as_ref(), &io));
            } else {
                self.waits_for_model.push_back(index as u32);
            }
        }
        if io.op == Op::Read {
            self.take_read_buffers(tools, io.id);
        }
        if self.disks[disk].faults.is_some() {
            let Some(len) = self.inject(tools, index, disk, &io) else {
                return;
            };
            io.len = len;
        }
        self.begin(tools, index, disk, &io);
    }

    /// Gives each request of a read a buffer if it has none. The engine dispatches a read only
    /// after it has reserved the memory.
    fn take_read_buffers(&mut self, tools: &mut Tools<'_>, io: IoId) {
        for segment in tools.engine.io_segments(io) {
            tools.requests.give_read_buffer(segment.tag);
        }
    }

    /// Begins the work on an I/O's bytes. It may be shorter than it was started only where it
    /// carries one request.
    fn begin(&mut self, tools: &mut Tools<'_>, index: usize, disk: usize, io: &DeviceIo) {
        let entry = &mut self.ios[index];
        let requests = &tools.requests;
        let ranges = tools.engine.io_segments(io.id).flat_map(|segment| {
            let len = segment.len.min(io.len) as usize;
            requests.ranges(segment.tag, segment.offset as usize, len)
        });
        let state = &mut self.disks[disk];
        match &state.disk.medium {
            Medium::Memory(memory) => {
                self.scratch.clear();
                self.scratch.extend(ranges);
                memory_io(memory, io, &self.scratch);
                self.medium_ended(tools, index, Ok(()));
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
                self.step(tools, index);
            }
        }
    }

    /// Locks the blocks of a write; returns true if it may proceed at once. The first write that
    /// covers a block only in part finds no locks, so the writes already in flight are recorded
    /// first.
    fn lock(&mut self, index: usize, disk: usize) -> bool {
        let state = &mut self.disks[disk];
        let Medium::File(file) = &state.disk.medium else {
            unreachable!("only files have blocks");
        };
        if state.locks.is_empty() {
            for (other, entry) in self.ios.iter_mut().enumerate() {
                if other != index && entry.disk == disk && entry.changing {
                    let (from, to) = entry.file.span(&file.facts);
                    entry.locked = true;
                    state.locks.adopt(other as u32, from, to);
                }
            }
        }
        let entry = &mut self.ios[index];
        let (from, to) = entry.file.span(&file.facts);
        entry.locked = true;
        state.locks.acquire(index as u32, from, to)
    }

    /// Submits an I/O's next system call.
    fn step(&mut self, tools: &mut Tools<'_>, index: usize) {
        let entry = &mut self.ios[index];
        let state = &mut self.disks[entry.disk];
        let Medium::File(file) = &state.disk.medium else {
            unreachable!("only files take steps");
        };
        let id = state.file.expect("a file is in the table from the start");
        let token = Token::Device(index as u32).encode();
        loop {
            let step = entry.file.step(&file.facts, &mut self.scratch);
            #[cfg(test)]
            if tools.ring.disturb(id, step, &mut self.scratch, token) {
                return;
            }
            match step {
                Step::Bounce(len) => entry.file.give_bounce(tools.plumbing.get(len)),
                Step::Read(offset) => {
                    return tools.ring.read(id, &self.scratch, offset, token);
                }
                Step::Write { offset, dsync } => {
                    return tools.ring.write(id, &self.scratch, offset, dsync, token);
                }
                Step::Sync => return tools.ring.sync_data(id, token),
                Step::Allocate { mode, offset, len } => {
                    return tools.ring.allocate(id, mode, offset, len, token);
                }
                Step::Done(outcome) => return self.medium_ended(tools, index, outcome),
            }
        }
    }

    /// A system call of an I/O ended.
    pub(super) fn device_answered(
        &mut self,
        tools: &mut Tools<'_>,
        index: u32,
        result: Result<u32, i32>,
    ) {
        let entry = &mut self.ios[index as usize];
        let Medium::File(file) = &mut self.disks[entry.disk].disk.medium else {
            unreachable!("only files take steps");
        };
        entry.file.advance(&mut file.facts, result);
        self.step(tools, index as usize);
    }

    /// An I/O's bytes are where they belong.
    pub(super) fn medium_ended(&mut self, tools: &mut Tools<'_>, index: usize, outcome: Outcome) {
        let entry = &mut self.ios[index];
        entry.medium = Some(outcome.and(entry.answer));
        if let Some(bounce) = entry.file.take_bounce() {
            tools.plumbing.put(bounce);
        }
        let state = &mut self.disks[entry.disk];
        state.in_flight -= 1;
        entry.changing = false;
        let held = entry.held || entry.stalled;
        if std::mem::take(&mut entry.locked) {
            let mut granted = std::mem::take(&mut self.granted);
            granted.clear();
            state.locks.release(index as u32, &mut granted);
            for &next in &granted {
                self.step(tools, next as usize);
            }
            granted.clear();
            self.granted = granted;
        }
        if !held {
            self.io_ended(tools, index);
        }
    }

    /// Lets go what the model has finished, and what has stalled for long enough.
    pub(super) fn device_due(&mut self, tools: &mut Tools<'_>) {
        self.stalls_due(tools);
        let Some(model) = &mut self.model else {
            return;
        };
        if model.next_completion().is_none_or(|at| at > tools.now) {
            return;
        }
        while let Some(model) = &mut self.model
            && let Some(completion) = model.pop_completed(tools.now)
        {
            let entry = &mut self.ios[completion.id as usize];
            entry.held = false;
            if entry.medium.is_some() && !entry.stalled {
                self.io_ended(tools, completion.id as usize);
            }
        }
        while let Some(model) = &mut self.model
            && model.has_room()
            && let Some(index) = self.waits_for_model.pop_front()
        {
            let io = self.ios[index as usize].io;
            let io = io.expect("what waits for the model is in flight");
            model.submit(tools.now, model_io(model.as_ref(), &io));
        }
    }

    pub(super) fn io_ended(&mut self, tools: &mut Tools<'_>, index: usize) {
        let entry = &mut self.ios[index];
        let outcome = entry
            .medium
            .take()
            .expect("its bytes are where they belong");
        let id = entry.id();
        entry.io = None;
        tools.engine.handle_completion(tools.now, id, outcome);
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
