//! What is known of every request that was accepted: the book all checkers look into.
//!
//! Moments are counted in calls, not in time, so that what happens at one time keeps its order.

mod entry;

use super::{Verdict, ensure};
pub use entry::Entry;
use tidegate_core::engine::{DiskSpec, EngineConfig};
use tidegate_core::request::{ClientId, DeviceIo, DiskId, Op, Request, Segment, VmId};
use tidegate_core::time::Nanos;

/// Not yet.
pub const NEVER: u64 = u64::MAX;

/// Bytes of a sector: contents are told apart sector by sector.
pub const SECTOR: u64 = 512;

/// A disk there is or was.
#[derive(Clone, Copy, Debug)]
pub struct KnownDisk {
    /// Its handle.
    pub id: DiskId,
    /// Whose it is.
    pub vm: VmId,
    /// Where it lies, or lay last.
    pub spec: DiskSpec,
    /// It was not removed by itself; it may have gone with its VM.
    live: bool,
}

/// A VM there is or was, by its slot.
#[derive(Clone, Copy, Debug)]
struct KnownVm {
    id: VmId,
    /// Neither removed nor about to go.
    live: bool,
    /// Its requests inside the engine.
    inside: u32,
    /// Its requests that hold payload memory. Replies hold it until they are sent, so it may
    /// outlast `inside`.
    fed: u32,
}

/// A piece of a request in a device I/O: number, first byte, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The request's number.
    pub number: u32,
    /// First byte within it.
    pub from: u32,
    /// Bytes.
    pub len: u32,
}

/// The book.
#[derive(Debug)]
pub struct Ledger {
    config: EngineConfig,
    /// Every request ever accepted, by its number, which is its tag.
    pub entries: Vec<Entry>,
    /// Numbers of those not answered yet, in no order.
    pub open: Vec<u32>,
    /// Every disk there was.
    pub disks: Vec<KnownDisk>,
    vms: Vec<Option<KnownVm>>,
    /// Connected clients and their disks' numbers, by slot.
    clients: Vec<Option<(ClientId, u32)>>,
    moment: u64,
    inside: u32,
}

impl Ledger {
    /// An empty book for an engine.
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

    /// The moment that begins now.
    pub fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// A VM was added, or refused.
    pub fn vm_added(&mut self, vm: Option<VmId>) -> Verdict {
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

    /// A VM was removed: its clients are gone.
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
            entry.gone |= entry.vm == vm;
        }
        self.forget(vm);
    }

    /// A removed VM's slot is free once its last request is over and it holds no payload memory.
    fn forget(&mut self, vm: VmId) {
        let slot = &mut self.vms[vm.index()];
        if slot.is_some_and(|v| v.id == vm && !v.live && v.inside == 0 && v.fed == 0) {
            *slot = None;
        }
    }

    /// A VM's request got payload memory.
    pub fn memory_taken(&mut self, vm: VmId) {
        if let Some(known) = self.vms[vm.index()].as_mut().filter(|v| v.id == vm) {
            known.fed += 1;
        }
    }

    /// A VM's request gave its payload memory back, to the engine.
    pub fn memory_returned(&mut self, vm: VmId) {
        if let Some(known) = self.vms[vm.index()].as_mut().filter(|v| v.id == vm) {
            known.fed -= 1;
        }
        self.forget(vm);
    }

    /// Whether the VM is there, and not about to go.
    pub fn is_live(&self, vm: VmId) -> bool {
        self.vms[vm.index()].is_some_and(|v| v.id == vm && v.live)
    }

    /// VM slots that are free.
    pub fn free_vms(&self) -> usize {
        self.vms.iter().filter(|v| v.is_none()).count()
    }

    /// Notes whether a request is over, and puts it to those that are to be answered if so.
    pub fn note_over(&mut self, number: u32, now: Nanos, over: &mut Vec<u32>) {
        let entry = &mut self.entries[number as usize];
        if entry.over_at.is_some() || !entry.is_over() {
            return;
        }
        entry.over_at = Some(now);
        let vm = entry.vm;
        over.push(number);
        self.inside -= 1;
        if let Some(known) = &mut self.vms[vm.index()] {
            known.inside -= 1;
        }
        self.forget(vm);
    }

    /// Somebody has gone: notes which requests are over.
    pub fn note_all_over(&mut self, now: Nanos, over: &mut Vec<u32>) {
        for place in 0..self.open.len() {
            self.note_over(self.open[place], now, over);
        }
    }

    /// A disk was added; returns its number.
    pub fn disk_added(&mut self, id: DiskId, vm: VmId, spec: DiskSpec) -> u32 {
        let live = true;
        self.disks.push(KnownDisk { id, vm, spec, live });
        self.disks.len() as u32 - 1
    }

    /// Whether a disk is there: a removed VM keeps its disks until its last request is over.
    pub fn has_disk(&self, disk: u32) -> bool {
        let known = &self.disks[disk as usize];
        known.live && self.vms[known.vm.index()].is_some_and(|v| v.id == known.vm)
    }

    /// Whether a disk may be opened.
    pub fn is_disk_live(&self, disk: u32) -> bool {
        let known = &self.disks[disk as usize];
        known.live && self.is_live(known.vm)
    }

    /// A disk was removed: its clients are gone.
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

    /// A disk lies elsewhere, or has another size. What waits beyond its end has failed.
    pub fn disk_resized(&mut self, disk: u32, base: u64, size: u64) {
        let spec = &mut self.disks[disk as usize].spec;
        (spec.base, spec.size) = (base, size);
        for &number in &self.open {
            let entry = &mut self.entries[number as usize];
            if entry.disk == disk && !entry.is_handed_out() {
                entry.cut_off(size);
            }
        }
    }

    /// A client has connected to a disk.
    pub fn connected(&mut self, client: ClientId, disk: u32) {
        if self.clients.len() <= client.index() {
            self.clients.resize(client.index() + 1, None);
        }
        self.clients[client.index()] = Some((client, disk));
    }

    /// A client has gone.
    pub fn disconnected(&mut self, client: ClientId) {
        if self.disk_of(client).is_none() {
            return;
        }
        self.clients[client.index()] = None;
        for &number in &self.open {
            let entry = &mut self.entries[number as usize];
            entry.gone |= entry.client == client;
        }
    }

    /// The number of the disk a connected client is on.
    pub fn disk_of(&self, client: ClientId) -> Option<u32> {
        let known = self.clients.get(client.index()).copied().flatten();
        known.filter(|(id, _)| *id == client).map(|(_, disk)| disk)
    }

    /// Requests of a VM inside the engine, and of all VMs.
    pub fn inside(&self, vm: VmId) -> (u32, u32) {
        let known = self.vms[vm.index()].filter(|v| v.id == vm);
        (known.map_or(0, |v| v.inside), self.inside)
    }

    /// The next request's number: its tag.
    pub fn next_number(&self) -> u64 {
        self.entries.len() as u64
    }

    /// A request was accepted; returns its number.
    pub fn accepted(&mut self, client: ClientId, request: &Request, arrived: Nanos) -> u32 {
        let disk = self.disk_of(client).expect("its client is connected");
        let vm = self.disks[disk as usize].vm;
        let number = self.entries.len() as u32;
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

    /// A request was answered.
    pub fn closed(&mut self, number: u32) {
        let answered = self.tick();
        let entry = &mut self.entries[number as usize];
        entry.answered = answered;
        let place = entry.place;
        self.open.swap_remove(place as usize);
        if let Some(&moved) = self.open.get(place as usize) {
            self.entries[moved as usize].place = place;
        }
    }

    /// Lists what a device I/O carries. A flush carries all of its disk that wait.
    pub fn parts(&self, io: &DeviceIo, segments: &[Segment], parts: &mut Vec<Part>) -> Verdict {
        parts.clear();
        if io.op == Op::Flush {
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
