//! Device driver of a loop: takes device I/Os from the engine to their backings and their results
//! back.
//!
//! ```text
//!   poll_dispatch --> backing of the disk: reads or writes the bytes --+--> handle_completion
//!                 --> emulated: service time of the disk model is over --+
//!   on a disk with fault rules each I/O is judged first (`fault_injection`)
//! ```
//!
//! Storage of the bytes, and the way to it, is behind the [`Backing`](crate::backing::interface)
//! trait.

mod activation;
mod add_disk;
mod fault_injection;
mod hung;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use tidegate_core::engine::Engine;
use tidegate_core::request::{DeviceIo, DiskId, IoId, Op, Outcome};
use tidegate_core::time::Nanos;
use tidegate_device::{Model, ModelIo};

use super::slab::Slab;
use crate::backing::extents::{ExtentAnswer, ExtentQuery};
use crate::backing::interface::{Operation, Port, Reports};
use crate::backing::layout::Layout;
use crate::backing::{AnyBacking, Disk, Shared};
use crate::buffer::{Mem, Pool};
use crate::fault::Faults;
use crate::frontend::interface::Kind;
use crate::frontend::request_table::{Payload, Requests, Slot};
use crate::ring::{Completion, Ring, Wake};

use activation::PendingDeactivation;
use add_disk::SharedLimit;
use fault_injection::Stalls;
pub(super) use hung::OldestIos;
use hung::Workers;

/// Shortest read in bytes that is answered from memory of the disk itself: for a shorter one, the
/// question whether its pages are there costs more than the copy.
const IN_PLACE_MIN: usize = 16 << 10;
/// Bytes of I/Os that end at once after which a dispatch leaves the rest to the next turn: to copy
/// them takes a tenth of a millisecond, for which the loop looks at nothing else and its time
/// stands still.
const COPIED_A_TURN: u64 = 1 << 20;

/// Disks of a device, their I/Os in flight, and the disk model of an emulated device.
pub(super) struct Device {
    pub(super) disks: Slab<DiskState>,
    /// Ranges of the device's addresses that disks occupy.
    pub(super) layout: Layout,
    /// Index into `disks` by the engine's [`DiskId`]; `usize::MAX` if there is none.
    pub(super) by_id: Vec<usize>,
    /// Device I/Os by [`IoId`] index, one entry for each that may be in flight.
    pub(super) ios: Vec<Io>,
    pub(super) model: Option<Box<dyn Model>>,
    /// Limits that disks share.
    pub(super) limit_groups: Vec<SharedLimit>,
    /// I/Os that wait for room in the model. Only I/Os of hung disks, which no longer count against
    /// the depth, can fill it.
    pub(super) waits_for_model: VecDeque<u32>,
    /// I/Os that fault rules stall.
    stalls: Stalls,
    /// Memory of the disk for the requests of a read, while it is looked for.
    in_place: Vec<Mem>,
    /// Kind of device, for log messages and the control API.
    pub(super) description: String,
    /// State that backings share, and what they report back.
    shared: Shared,
    reports: Reports,
    workers: Workers,
    /// Disks whose I/O in flight has to end before another daemon may have them.
    pending_deactivations: Vec<PendingDeactivation>,
    /// Bytes of the I/Os that this dispatch has started and that ended at once.
    copied: u64,
}

/// Parts of the loop that the device driver borrows for one call.
pub(super) struct LoopParts<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) requests: &'a mut Requests,
    pub(super) ring: &'a mut Ring,
    pub(super) plumbing: &'a mut Pool,
    pub(super) now: Nanos,
    pub(super) wake: &'a Arc<Wake>,
    /// False once the loop drains: fault rules then stall nothing, and no connection is added.
    pub(super) may_stall: bool,
}

/// Open disk inside the loop.
pub(super) struct DiskState {
    pub(super) disk: Disk,
    /// Number that no other disk of this process ever has.
    pub(super) serial: u32,
    /// First address on the device.
    pub(super) base: u64,
    /// Index into the loop's VMs.
    pub(super) vm: usize,
    pub(super) id: DiskId,
    /// True while the disk is being resized.
    pub(super) resizing: bool,
    /// I/Os with the backing, not counting those that only the model or a stall still holds.
    pub(super) in_flight: u32,
    /// Loop time since which the disk hangs, as last logged.
    pub(super) hung: Option<Nanos>,
    /// Fault rules; `None` without any.
    pub(super) faults: Option<Box<Faults>>,
    /// Number of requests struck by fault rules, including rules that were removed.
    pub(super) injected: u64,
}

/// Device I/O in flight, in the place of its [`IoId`] index. It ends once the backing, the model
/// and a stall have all let it go.
#[derive(Debug)]
pub(super) struct Io {
    io: Option<DeviceIo>,
    pub(super) disk: usize,
    /// Result of the backing; `None` while it works on the bytes.
    pub(super) medium: Option<Outcome>,
    /// True while the model has not finished the I/O.
    pub(super) held: bool,
    /// True while a fault rule stalls the I/O.
    pub(super) stalled: bool,
    /// Result if the backing succeeds: a fault rule may make it an error all the same.
    pub(super) answer: Outcome,
}

impl Io {
    pub(super) fn new() -> Io {
        Io {
            io: None,
            disk: 0,
            medium: None,
            held: false,
            stalled: false,
            answer: Ok(()),
        }
    }

    /// Returns true if the I/O is in flight on this disk and reaches beyond `end`.
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
    ///
    /// # Panics
    /// If `io_slots` is 0.
    pub(super) fn new(
        layout: Layout,
        io_slots: u32,
        model: Option<Box<dyn Model>>,
        description: String,
    ) -> io::Result<Device> {
        assert!(io_slots > 0, "a device without I/O slots serves nothing");
        Ok(Device {
            disks: Slab::default(),
            layout,
            by_id: Vec::new(),
            ios: (0..io_slots).map(|_| Io::new()).collect(),
            model,
            limit_groups: Vec::new(),
            waits_for_model: VecDeque::new(),
            stalls: Stalls::new(io_slots),
            in_place: Vec::new(),
            description,
            shared: Shared::new(io_slots)?,
            reports: Reports::default(),
            workers: Workers::UNKNOWN,
            pending_deactivations: Vec::new(),
            copied: 0,
        })
    }

    pub(super) fn vm_of(&self, disk: usize) -> usize {
        self.disks[disk].vm
    }

    /// Returns the earliest time at which the model, a stall or a backing's timer is due; `None`
    /// without any.
    pub(super) fn next_completion(&self) -> Option<Nanos> {
        let model = (self.model.as_ref()).and_then(|model| model.next_completion());
        let others = self
            .stalls
            .next()
            .into_iter()
            .chain(self.reports.next_timer());
        model.into_iter().chain(others).min()
    }

    /// Returns true if the disk has I/Os whose completions come with the next turn.
    pub(super) fn answers_soon(&self, disk: usize) -> bool {
        self.disks[disk].disk.medium.is_instant() && self.disks[disk].in_flight > 0
    }
}

impl Device {
    /// Starts an I/O that the engine has picked.
    pub(super) fn start(&mut self, parts: &mut LoopParts<'_>, mut io: DeviceIo) {
        let index = io.id.index();
        let disk = self.by_id[io.disk.index()];
        self.disks[disk].in_flight += 1;
        let entry = &mut self.ios[index];
        assert!(
            entry.io.is_none(),
            "an I/O was started in a place that is taken"
        );
        (entry.io, entry.disk, entry.medium, entry.answer) = (Some(io), disk, None, Ok(()));
        // With a model, the I/O ends when both the backing and the model have finished it.
        entry.held = self.model.is_some();
        if let Some(model) = &mut self.model {
            if model.has_room() {
                model.submit(parts.now, model_io(model.as_ref(), &io));
            } else {
                self.waits_for_model.push_back(index as u32);
            }
        }
        if io.op == Op::Read {
            self.take_read_memory(parts, disk, io.id);
        }
        // Out of line: a disk without rules costs this test only.
        if self.disks[disk].faults.is_some() {
            let Some(len) = self.inject(parts, index, disk, &io) else {
                return;
            };
            io.len = len;
        }
        self.begin(parts, index, disk, &io);
    }

    /// Gives each request of a read memory if it has none: of the disk itself where that saves a
    /// copy, otherwise a buffer. The engine dispatches a read only after it has reserved the memory
    /// for one.
    fn take_read_memory(&mut self, parts: &mut LoopParts<'_>, disk: usize, io: IoId) {
        let state = &self.disks[disk];
        // Rules may change bytes, and a new size may move them.
        let untouched = state.faults.is_none() && !state.resizing;
        let is_long = |read: &Slot| read.kind == Kind::Read && read.len as usize >= IN_PLACE_MIN;
        self.in_place.clear();
        let requests = &mut *parts.requests;
        // All or none: the bytes that are transferred must be one range. Each request is asked
        // about once, since pages may go between two questions.
        let all = parts.engine.io_segments(io).all(|segment| {
            let read = requests.get(requests.by_tag(segment.tag));
            let memory = match &read.payload {
                // Only the first request of an I/O has memory of the disk already, for an earlier
                // part.
                Payload::Disk(memory) => Some(*memory),
                Payload::None if untouched && is_long(read) => {
                    let medium = &state.disk.medium;
                    medium.resident(read.offset, read.len as usize)
                }
                _ => None,
            };
            self.in_place.extend(memory);
            memory.is_some()
        });
        for (at, segment) in parts.engine.io_segments(io).enumerate() {
            if is_in_place(requests, segment.tag) {
                debug_assert_eq!(at, 0, "a part of a later request was sent before");
            } else if all {
                requests.answer_from_disk(segment.tag, self.in_place[at]);
            } else {
                requests.give_read_buffer(segment.tag);
            }
        }
    }

    /// Takes off the front of a read what needs no transfer, because the reply is sent from memory
    /// of the disk. Returns false if nothing is left.
    fn skip_in_place(parts: &LoopParts<'_>, io: &mut DeviceIo) -> bool {
        let segments = parts.engine.io_segments(io.id);
        let in_place = segments.map_while(|segment| {
            let stays = is_in_place(parts.requests, segment.tag);
            stays.then_some(segment.len)
        });
        let skipped: u32 = in_place.sum();
        io.addr += u64::from(skipped);
        io.offset += u64::from(skipped);
        io.len -= skipped;
        io.len > 0
    }

    /// Submits an I/O to its backing, without the requests at its front that are answered from
    /// memory of the disk. `io` may be shorter than the engine's I/O only if that carries one
    /// request, as after a torn write.
    fn begin(&mut self, parts: &mut LoopParts<'_>, index: usize, disk: usize, io: &DeviceIo) {
        let mut io = *io;
        if io.op == Op::Read && !Device::skip_in_place(parts, &mut io) {
            return self.medium_ended(parts, index, Ok(()));
        }
        let requests = &parts.requests;
        let ranges = parts.engine.io_segments(io.id).flat_map(|segment| {
            let len = segment.len.min(io.len) as usize;
            requests.ranges(segment.tag, segment.offset as usize, len)
        });
        let mut port = Port {
            ring: parts.ring,
            plumbing: parts.plumbing,
            now: parts.now,
            wake: parts.wake,
            disk: disk as u32,
            reports: &mut self.reports,
        };
        let medium = &mut self.disks[disk].disk.medium;
        let ended = medium.submit(&mut self.shared, &mut port, &io, ranges);
        if ended.is_some() || !self.reports.ended.is_empty() {
            self.copied += u64::from(io.len);
        }
        if let Some(outcome) = ended {
            self.medium_ended(parts, index, outcome);
        }
        self.take_ended(parts);
    }

    /// Begins a dispatch.
    #[inline]
    pub(super) fn begin_dispatch(&mut self) {
        self.copied = 0;
    }

    /// Returns true if the dispatch has copied so much that the rest has to wait for the next turn.
    #[inline]
    pub(super) fn has_copied_enough(&self) -> bool {
        self.copied >= COPIED_A_TURN
    }

    /// Returns true if the kernel works on nothing for the backings.
    pub(super) fn is_at_rest(&self) -> bool {
        let mut disks = self.disks.iter();
        disks.all(|(_, state)| state.disk.medium.is_at_rest())
    }

    /// Calls the backing of a disk, then takes the I/Os that the call ended.
    fn with_medium(
        &mut self,
        parts: &mut LoopParts<'_>,
        disk: usize,
        call: impl FnOnce(&mut AnyBacking, &mut Shared, &mut Port<'_>),
    ) {
        let mut port = Port {
            ring: parts.ring,
            plumbing: parts.plumbing,
            now: parts.now,
            wake: parts.wake,
            disk: disk as u32,
            reports: &mut self.reports,
        };
        let medium = &mut self.disks[disk].disk.medium;
        call(medium, &mut self.shared, &mut port);
        self.take_ended(parts);
    }

    /// Takes the I/Os that backings have finished.
    #[inline]
    fn take_ended(&mut self, parts: &mut LoopParts<'_>) {
        if self.reports.ended.is_empty() {
            return;
        }
        // The list is taken out and put back, so that its memory is used again.
        let mut ended = std::mem::take(&mut self.reports.ended);
        for (index, outcome) in ended.drain(..) {
            self.medium_ended(parts, index as usize, outcome);
        }
        debug_assert!(
            self.reports.ended.is_empty(),
            "the end of an I/O that came meanwhile would be lost"
        );
        self.reports.ended = ended;
    }

    /// Passes the completion of a ring operation to the backing that submitted it.
    pub(super) fn operation_ended(
        &mut self,
        parts: &mut LoopParts<'_>,
        operation: Operation,
        completion: Completion,
    ) {
        let disk = match operation {
            Operation::Io(index) => self.ios[index as usize].disk,
            Operation::Own { disk, .. } => disk as usize,
        };
        self.with_medium(parts, disk, |medium, shared, port| {
            medium.handle(shared, port, operation, completion);
        });
    }

    /// Lets backings send what they queued during this turn. Returns true if a backing was called:
    /// I/Os may have ended, such as those of a disk that has failed.
    #[inline]
    pub(super) fn send_queued(&mut self, parts: &mut LoopParts<'_>) -> bool {
        let is_queued = !self.reports.unsent.is_empty();
        while let Some(disk) = self.reports.unsent.pop() {
            self.with_medium(parts, disk as usize, |medium, shared, port| {
                medium.send(shared, port);
            });
        }
        is_queued
    }

    /// Calls the backings whose timers have expired.
    fn timers_due(&mut self, parts: &mut LoopParts<'_>) {
        while let Some(disk) = self.reports.pop_timer(parts.now) {
            let disk = disk as usize;
            // A timer may outlive the disk that set it.
            if self.disks.is_taken(disk) {
                self.with_medium(parts, disk, |medium, shared, port| {
                    medium.handle_timeout(shared, port);
                });
            }
        }
    }

    /// Prepares the end of a disk, or of all: none waits for storage that is away any more.
    pub(super) fn begin_close(&mut self, parts: &mut LoopParts<'_>, of: Option<usize>) {
        for disk in 0..self.disks.slots() {
            if of.is_none_or(|only| only == disk) && self.disks.is_taken(disk) {
                self.with_medium(parts, disk, |medium, shared, port| {
                    medium.begin_close(shared, port);
                });
            }
        }
    }

    /// Queries the extents of a disk; [`Device::take_extent_answers`] returns the answer.
    pub(super) fn query_extents(
        &mut self,
        parts: &mut LoopParts<'_>,
        disk: usize,
        query: ExtentQuery,
    ) {
        self.with_medium(parts, disk, |medium, shared, port| {
            medium.query_extents(shared, port, query);
        });
    }

    /// Collects the results of helper threads.
    pub(super) fn collect_extent_answers(&mut self) {
        self.shared.collect(&mut self.reports);
    }

    /// Returns true if there are answers to extent queries.
    #[inline]
    pub(super) fn has_extent_answers(&self) -> bool {
        !self.reports.extent_answers.is_empty()
    }

    /// Takes the answers to extent queries, oldest first.
    pub(super) fn take_extent_answers(&mut self) -> Vec<ExtentAnswer> {
        std::mem::take(&mut self.reports.extent_answers)
    }

    /// Takes the emptied list back, so that its memory is used again.
    pub(super) fn put_extent_answers(&mut self, extent_answers: Vec<ExtentAnswer>) {
        assert!(
            extent_answers.is_empty() && self.reports.extent_answers.is_empty(),
            "an answer that was not taken would be lost"
        );
        self.reports.extent_answers = extent_answers;
    }

    /// Records the result of the backing, and ends the I/O unless the model or a stall still holds
    /// it.
    pub(super) fn medium_ended(
        &mut self,
        parts: &mut LoopParts<'_>,
        index: usize,
        outcome: Outcome,
    ) {
        let entry = &mut self.ios[index];
        debug_assert!(
            entry.io.is_some() && entry.medium.is_none(),
            "the backing ends I/O {index} twice, or one that was never started"
        );
        // An error of the backing takes precedence over a rule's result.
        entry.medium = Some(outcome.and(entry.answer));
        self.disks[entry.disk].in_flight -= 1;
        if !(entry.held || entry.stalled) {
            self.io_ended(parts, index);
        }
    }

    /// Releases the I/Os that the model has finished, and those whose stall is over.
    pub(super) fn take_due(&mut self, parts: &mut LoopParts<'_>) {
        self.stalls_due(parts);
        self.timers_due(parts);
        let Some(model) = &mut self.model else {
            return;
        };
        if model.next_completion().is_none_or(|at| at > parts.now) {
            return;
        }
        while let Some(model) = &mut self.model
            && let Some(completion) = model.pop_completed(parts.now)
        {
            let entry = &mut self.ios[completion.id as usize];
            debug_assert!(entry.held, "the model ends an I/O that it was not given");
            entry.held = false;
            if entry.medium.is_some() && !entry.stalled {
                self.io_ended(parts, completion.id as usize);
            }
        }
        while let Some(model) = &mut self.model
            && model.has_room()
            && let Some(index) = self.waits_for_model.pop_front()
        {
            let io = self.ios[index as usize].io;
            let io = io.expect("what waits for the model is in flight");
            model.submit(parts.now, model_io(model.as_ref(), &io));
        }
    }

    /// Reports the end of an I/O to the engine and frees its entry.
    pub(super) fn io_ended(&mut self, parts: &mut LoopParts<'_>, index: usize) {
        let entry = &mut self.ios[index];
        debug_assert!(
            !entry.held && !entry.stalled,
            "an I/O is answered while its model or a fault rule holds it back"
        );
        let outcome = entry
            .medium
            .take()
            .expect("its bytes are where they belong");
        let id = entry.id();
        entry.io = None;
        parts.engine.handle_completion(parts.now, id, outcome);
    }
}

/// Returns true if the request with this tag is answered from memory of its disk.
fn is_in_place(requests: &Requests, tag: u64) -> bool {
    matches!(requests.get(requests.by_tag(tag)).payload, Payload::Disk(_))
}

/// Converts an I/O for the model: extended to whole logical blocks, cut to the model's longest.
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
    debug_assert!(
        io.addr + u64::from(io.len) <= spec.capacity,
        "an I/O beyond the device's end"
    );
    let from = io.addr / block * block;
    // The device's capacity may end within a block.
    let end = (io.addr + u64::from(io.len))
        .next_multiple_of(block)
        .min(spec.capacity);
    let mut len = end - from;
    if io.op != Op::Discard {
        len = len.min(u64::from(spec.max_io));
    }
    // A discard may be longer than `max_io`, but its length must fit 32 bits.
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
