//! Record of every request that was accepted; all checkers read it.
//!
//! Moments count calls rather than time, so that events of the same nanosecond keep their order.

mod entry;

use super::{Verdict, ensure};
pub use entry::Entry;
use tidegate_core::engine::{DiskSpec, EngineConfig};
use tidegate_core::request::{ClientId, DeviceIo, DiskId, Op, Request, Segment, VmId};
use tidegate_core::time::Nanos;

/// Moment of an answer that has not come yet.
pub const NEVER: u64 = u64::MAX;

/// Bytes of a sector, the granularity at which content is compared.
pub const SECTOR: u64 = 512;

/// Disk that exists or existed.
#[derive(Clone, Copy, Debug)]
pub struct KnownDisk {
    /// Handle of the disk.
    pub id: DiskId,
    /// VM that owns the disk.
    pub vm: VmId,
    /// Place and size of the disk, at present or last.
    pub spec: DiskSpec,
    /// `false` once the disk was removed by itself. It may also have gone with its VM.
    live: bool,
}

/// VM that occupies a slot, or did.
#[derive(Clone, Copy, Debug)]
struct KnownVm {
    id: VmId,
    /// `false` once the VM was removed or is draining.
    live: bool,
    /// Number of its requests inside the engine.
    inside: u32,
    /// Number of its requests that hold payload memory. Replies hold it until they are sent, so
    /// this may outlast `inside`.
    fed: u32,
}

/// Piece of a request that a device I/O carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Number of the request.
    pub number: u32,
    /// First byte within the request.
    pub from: u32,
    /// Number of bytes.
    pub len: u32,
}

/// Requests, disks, VMs and connections of one engine.
#[derive(Debug)]
pub struct Ledger {
    config: EngineConfig,
    /// Every request ever accepted, indexed by its number, which is its tag.
    pub entries: Vec<Entry>,
    /// Numbers of requests that are not answered yet, in no order.
    pub open: Vec<u32>,
    /// Every disk that exists or existed, indexed by number.
    pub disks: Vec<KnownDisk>,
    vms: Vec<Option<KnownVm>>,
    /// Connected clients and their disks' numbers, by slot.
    clients: Vec<Option<(ClientId, u32)>>,
    moment: u64,
    inside: u32,
}

impl Ledger {
    /// Creates an empty ledger for an engine.
    pub fn new(config: EngineConfig) -> Ledger {
        Ledger {
            config,
            entries: Vec::new(),
            open: Vec::new(),
            disks: Vec::new(),
            vms: vec![None; config.max_vms as usize],
            clients: Vec::new(),
            // The first moment is older than any request.
            moment: 1,
            inside: 0,
        }
    }

    /// The engine's configuration.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Begins the next moment and returns it.
    pub fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Records that a VM was added, or refused (`None`).
    pub fn vm_added(&mut self, vm: Option<VmId>) -> Verdict {
        // Slots of removed VMs are taken until they have drained.
        let free = self.vms.iter().filter(|v| v.is_none()).count();
        ensure!(
            Refusals,
            vm.is_some() == (free > 0),
            "a VM was {}, while {free} of {} slots were free",
            if vm.is_some() { "added" } else { "refused" },
            self.config.max_vms
        );
        let Some(id) = vm else { return Ok(()) };
        let slot = &mut self.vms[id.index()];
        ensure!(
            Refusals,
            slot.is_none(),
            "{id:?} was given out while {slot:?} holds its slot"
        );
        *slot = Some(KnownVm {
            id,
            live: true,
            inside: 0,
            fed: 0,
        });
        Ok(())
    }

    /// Records that a VM was removed, and its connections with it.
    pub fn vm_removed(&mut self, vm: VmId) {
        if let Some(known) = &mut self.vms[vm.index()] {
            known.live = false;
        }
        for client in &mut self.clients {
            if client.is_some_and(|(_, disk)| self.disks[disk as usize].vm == vm) {
                *client = None;
            }
        }
        for &number in &self.open {
            let entry = &mut self.entries[number as usize];
            // `or`: what is gone by its connection stays gone.
            entry.gone |= entry.vm == vm;
        }
        self.free_slot_if_unused(vm);
    }

    /// Frees a removed VM's slot once its last request is over and it holds no payload memory.
    fn free_slot_if_unused(&mut self, vm: VmId) {
        let slot = &mut self.vms[vm.index()];
        if slot.is_some_and(|v| v.id == vm && !v.live && v.inside == 0 && v.fed == 0) {
            *slot = None;
        }
    }

    /// Records that a request of a VM got payload memory.
    pub fn memory_taken(&mut self, vm: VmId) {
        if let Some(known) = self.vms[vm.index()].as_mut().filter(|v| v.id == vm) {
            known.fed += 1;
        }
    }

    /// Records that a request of a VM returned its payload memory to the engine.
    pub fn memory_returned(&mut self, vm: VmId) {
        if let Some(known) = self.vms[vm.index()].as_mut().filter(|v| v.id == vm) {
            known.fed -= 1;
        }
        self.free_slot_if_unused(vm);
    }

    /// Returns `true` if the VM exists and is not draining.
    pub fn is_live(&self, vm: VmId) -> bool {
        self.vms[vm.index()].is_some_and(|v| v.id == vm && v.live)
    }

    /// Number of free VM slots.
    pub fn free_vms(&self) -> usize {
        self.vms.iter().filter(|v| v.is_none()).count()
    }

    /// Determines if a request is over at `now`; if so, pushes it onto `over`, the requests to be
    /// answered.
    pub fn note_over(&mut self, number: u32, now: Nanos, over: &mut Vec<u32>) {
        let entry = &mut self.entries[number as usize];
        // Once only: the counts below must not fall twice.
        if entry.over_at.is_some() || !entry.is_over() {
            return;
        }
        entry.over_at = Some(now);
        let vm = entry.vm;
        over.push(number);
        // The engine's slot is free from here on, before the answer is taken.
        self.inside -= 1;
        if let Some(known) = &mut self.vms[vm.index()] {
            known.inside -= 1;
        }
        self.free_slot_if_unused(vm);
    }

    /// Determines which open requests are over, after a connection, disk or VM has gone.
    pub fn note_all_over(&mut self, now: Nanos, over: &mut Vec<u32>) {
        for place in 0..self.open.len() {
            self.note_over(self.open[place], now, over);
        }
    }

    /// Records a disk that was added; returns its number.
    pub fn disk_added(&mut self, id: DiskId, vm: VmId, spec: DiskSpec) -> u32 {
        let live = true;
        self.disks.push(KnownDisk { id, vm, spec, live });
        self.disks.len() as u32 - 1
    }

    /// Returns `true` if a disk exists. A removed VM keeps its disks until its last request is
    /// over.
    pub fn has_disk(&self, disk: u32) -> bool {
        let known = &self.disks[disk as usize];
        known.live && self.vms[known.vm.index()].is_some_and(|v| v.id == known.vm)
    }

    /// Returns `true` if a disk may be opened.
    pub fn is_disk_live(&self, disk: u32) -> bool {
        let known = &self.disks[disk as usize];
        known.live && self.is_live(known.vm)
    }

    /// Records that a disk was removed, and its connections with it.
    pub fn disk_removed(&mut self, disk: u32) {
        self.disks[disk as usize].live = false;
        for client in &mut self.clients {
            if client.is_some_and(|(_, of)| of == disk) {
                *client = None;
            }
        }
        for &number in &self.open {
            let entry = &mut self.entries[number as usize];
            entry.gone |= entry.disk == disk;
        }
    }

    /// Records a new place and size of a disk. Requests that wait beyond the new end fail.
    pub fn disk_resized(&mut self, disk: u32, base: u64, size: u64) {
        let spec = &mut self.disks[disk as usize].spec;
        (spec.base, spec.size) = (base, size);
        for &number in &self.open {
            let entry = &mut self.entries[number as usize];
            // A request that the device has in full is served where it was.
            if entry.disk == disk && !entry.is_handed_out() {
                entry.cut_off(size);
            }
        }
    }

    /// Records that a client has connected to a disk.
    pub fn connected(&mut self, client: ClientId, disk: u32) {
        if self.clients.len() <= client.index() {
            self.clients.resize(client.index() + 1, None);
        }
        self.clients[client.index()] = Some((client, disk));
    }

    /// Records that a client has disconnected.
    pub fn disconnected(&mut self, client: ClientId) {
        // It may have gone with its disk or VM before.
        if self.disk_of(client).is_none() {
            return;
        }
        self.clients[client.index()] = None;
        for &number in &self.open {
            let entry = &mut self.entries[number as usize];
            entry.gone |= entry.client == client;
        }
    }

    /// Number of the disk that a connected client uses.
    pub fn disk_of(&self, client: ClientId) -> Option<u32> {
        let known = self.clients.get(client.index()).copied().flatten();
        known.filter(|(id, _)| *id == client).map(|(_, disk)| disk)
    }

    /// Numbers of requests inside the engine: of a VM, and of all VMs.
    pub fn inside(&self, vm: VmId) -> (u32, u32) {
        let known = self.vms[vm.index()].filter(|v| v.id == vm);
        (known.map_or(0, |v| v.inside), self.inside)
    }

    /// Number, and therefore tag, of the next request.
    pub fn next_number(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Records that a request was accepted; returns its number.
    pub fn accepted(&mut self, client: ClientId, request: &Request, arrived: Nanos) -> u32 {
        let disk = self.disk_of(client).expect("its client is connected");
        let vm = self.disks[disk as usize].vm;
        let number = self.entries.len() as u32;
        // Each acceptance and each answer is a moment of its own, which orders them.
        let submitted = self.tick();
        self.entries.push(Entry {
            client,
            disk,
            vm,
            request: *request,
            arrived,
            submitted,
            answered: NEVER,
            handed: 0,
            moved: 0,
            outstanding: 0,
            gone: false,
            served: false,
            again: false,
            alone: false,
            flushed: false,
            over_at: None,
            error: None,
            place: self.open.len() as u32,
        });
        self.open.push(number);
        self.inside += 1;
        if let Some(known) = &mut self.vms[vm.index()] {
            known.inside += 1;
        }
        number
    }

    /// Records that a request was answered.
    pub fn closed(&mut self, number: u32) {
        let answered = self.tick();
        let entry = &mut self.entries[number as usize];
        entry.answered = answered;
        let place = entry.place;
        // Constant time: the last open request takes the freed place.
        self.open.swap_remove(place as usize);
        if let Some(&moved) = self.open.get(place as usize) {
            self.entries[moved as usize].place = place;
        }
    }

    /// Lists the parts that a device I/O carries. A flush carries all waiting flushes of its disk.
    pub fn parts(&self, io: &DeviceIo, segments: &[Segment], parts: &mut Vec<Part>) -> Verdict {
        parts.clear();
        if io.op == Op::Flush {
            // The engine joins all of them; each later flush gets its own I/O.
            let waits = |e: &Entry| e.request.op == Op::Flush && !e.flushed && !e.gone;
            let here = |e: &Entry| self.disks[e.disk as usize].id == io.disk;
            let open = self.open.iter().copied();
            parts.extend(
                open.filter(|&n| {
                    waits(&self.entries[n as usize]) && here(&self.entries[n as usize])
                })
                .map(|number| Part {
                    number,
                    from: 0,
                    len: 0,
                }),
            );
            return Ok(());
        }
        for segment in segments {
            let known = self.entries.get(segment.tag as usize);
            ensure!(
                Answers,
                known.is_some_and(|e| e.answered == NEVER),
                "the device is asked to serve request {}, which is not open",
                segment.tag
            );
            parts.push(Part {
                number: segment.tag as u32,
                from: segment.offset,
                len: segment.len,
            });
        }
        Ok(())
    }
}
