//! Oracle of what an engine owes: every accepted request, every I/O in flight, every handle.
//!
//! Each call of a driver and its outcome is reported to the ledger, which panics at the first that
//! breaks a promise of [`tidegate_core::engine`]. It reads nothing from the engine except for the
//! comparison in [`Ledger::check`].

use std::collections::{BTreeMap, BTreeSet};
use tidegate_core::engine::{DiskSpec, Engine, EngineConfig, Refusal};
use tidegate_core::request::{ClientId, DeviceIo, DiskId, Done, IoError, IoId, Op, Outcome};
use tidegate_core::request::{ReqId, Request, Segment, VmId};
use tidegate_core::time::Nanos;

/// Accepted request that is not answered yet.
struct Owed {
    tag: u64,
    client: ClientId,
    disk: DiskId,
    vm: VmId,
    op: Op,
    addr: u64,
    len: u32,
    fua: bool,
    keep_allocated: bool,
    arrived: Nanos,
    /// `true` once the client has disconnected: the request may be answered as cancelled.
    cancellable: bool,
    /// `true` once it was served at least in part, and therefore charged.
    served: bool,
    /// `true` from the failure of a merged I/O until the request starts again, which it does once
    /// none of its I/Os is in flight.
    repeat_pending: bool,
    /// `true` once the request is repeated; it must not be merged any more.
    repeated_alone: bool,
    /// Ranges that the device has moved; all ranges are moved again in a repetition.
    moved_ranges: Vec<(u32, u32)>,
    /// Number of I/Os in flight that carry a part of it.
    ios_in_flight: u32,
    /// Bytes of the request in these I/Os.
    bytes_in_flight: u32,
    /// Errors of I/Os of this request alone.
    errors: Vec<IoError>,
    /// For a flush: `true` once the device's flush for it has started.
    flushed: bool,
}

struct Flight {
    io: DeviceIo,
    /// Requests that the I/O carries, with the ranges of each.
    parts: Vec<(ReqId, u32, u32)>,
}

struct Disk {
    vm: VmId,
    spec: DiskSpec,
    /// `false` once the disk was removed by itself. It may also have gone with its VM.
    live: bool,
}

struct Client {
    disk: DiskId,
    vm: VmId,
    connected: bool,
}

/// Record of an engine's promises, from the calls of its driver.
pub struct Ledger {
    config: EngineConfig,
    owed: BTreeMap<ReqId, Owed>,
    flights: BTreeMap<IoId, Flight>,
    /// VMs that exist; `false` for one that was removed and is not empty yet.
    vms: BTreeMap<VmId, bool>,
    disks: BTreeMap<DiskId, Disk>,
    /// Most disks held at once; raised only when a disk gets a slot index above it.
    most_disks: usize,
    /// `true` once a VM or a disk was removed.
    any_removed: bool,
    clients: BTreeMap<ClientId, Client>,
}

impl Ledger {
    /// Returns an empty ledger of an engine with this configuration.
    pub fn new(config: EngineConfig) -> Ledger {
        Ledger {
            config,
            owed: BTreeMap::new(),
            flights: BTreeMap::new(),
            vms: BTreeMap::new(),
            disks: BTreeMap::new(),
            most_disks: 0,
            any_removed: false,
            clients: BTreeMap::new(),
        }
    }

    /// Records that a VM was added, or refused.
    ///
    /// # Panics
    /// Panics if the VM was refused although a slot was free, or the other way round.
    pub fn add_vm(&mut self, vm: Option<VmId>) {
        let room = self.vms.len() < self.config.max_vms as usize;
        assert_eq!(
            vm.is_some(),
            room,
            "a VM fits while fewer than max_vms are there"
        );
        if let Some(vm) = vm {
            assert!(self.vms.insert(vm, true).is_none(), "a handle names one VM");
        }
    }

    /// Records that a VM is removed; returns `true` if it was there.
    pub fn remove_vm(&mut self, vm: VmId) -> bool {
        let live = self.is_live(vm);
        self.any_removed |= live;
        if live {
            self.vms.insert(vm, false);
            for client in self.clients.values_mut().filter(|c| c.vm == vm) {
                client.connected = false;
            }
            // In flight they end as they would; what waits may be answered as cancelled from here
            // on.
            self.owed
                .values_mut()
                .filter(|o| o.vm == vm)
                .for_each(|o| o.cancellable = true);
            self.forget_vm(vm);
        }
        live
    }

    /// Returns `true` if the VM was added and not removed.
    pub fn is_live(&self, vm: VmId) -> bool {
        self.vms.get(&vm) == Some(&true)
    }

    /// Records a disk that was added.
    pub fn add_disk(&mut self, disk: DiskId, vm: VmId, spec: DiskSpec) {
        let live = true;
        let new = Disk { vm, spec, live };
        assert!(
            self.disks.insert(disk, new).is_none(),
            "a handle names one disk"
        );
        // Counting the disks in use walks over all requests, which only a new slot makes necessary.
        if disk.index() < self.most_disks {
            return;
        }
        // Removed disks are held by their requests only; their slots are reused.
        let held = if self.any_removed {
            let asked: BTreeSet<DiskId> = self.owed.values().map(|o| o.disk).collect();
            let held = |disk: &&DiskId| self.has_disk(**disk) || asked.contains(disk);
            self.disks.keys().filter(held).count()
        } else {
            self.disks.len()
        };
        self.most_disks = self.most_disks.max(held);
        assert!(
            disk.index() < self.most_disks,
            "{disk:?}, and never were more than {} held: a slot is lost",
            self.most_disks
        );
    }

    /// Returns `true` if the disk exists. A removed VM keeps its disks until its last request is
    /// answered.
    fn has_disk(&self, disk: DiskId) -> bool {
        let there = |d: &Disk| d.live && self.vms.contains_key(&d.vm);
        self.disks.get(&disk).is_some_and(there)
    }

    /// Returns `true` if the disk and its VM are there.
    pub fn disk_is_live(&self, disk: DiskId) -> bool {
        self.has_disk(disk) && self.is_live(self.disks[&disk].vm)
    }

    /// Returns the present or last place of a disk.
    pub fn spec(&self, disk: DiskId) -> DiskSpec {
        self.disks[&disk].spec
    }

    /// Records that a disk is removed; returns `true` if it was there.
    pub fn remove_disk(&mut self, disk: DiskId) -> bool {
        let there = self.has_disk(disk);
        self.any_removed |= there;
        if there {
            self.disks.get_mut(&disk).expect("it is there").live = false;
            for client in self.clients.values_mut().filter(|c| c.disk == disk) {
                client.connected = false;
            }
            let theirs = self.owed.values_mut().filter(|o| o.disk == disk);
            theirs.for_each(|o| o.cancellable = true);
        }
        there
    }

    /// Records that a disk is resized or moved; returns `true` if it is there and the range valid.
    pub fn resize_disk(&mut self, disk: DiskId, base: u64, size: u64) -> bool {
        // The engine refuses the same, and its answer is compared with this one.
        if !self.has_disk(disk) || size == 0 || base.checked_add(size).is_none() {
            return false;
        }
        let spec = &mut self.disks.get_mut(&disk).expect("it is there").spec;
        let before = spec.base;
        (spec.base, spec.size) = (base, size);
        let of_disk = |o: &&mut Owed| o.disk == disk && o.op != Op::Flush;
        for owed in self.owed.values_mut().filter(of_disk) {
            owed.addr = owed.addr.wrapping_sub(before).wrapping_add(base);
        }
        // Requests that the device has in full finish where they are; only what waits is cut off.
        let cut: Vec<ReqId> = (self.owed.iter())
            .filter(|(_, o)| o.disk == disk && o.waits() && o.is_beyond(base, size))
            .map(|(&req, _)| req)
            .collect();
        for req in cut {
            let owed = self.owed.get_mut(&req).expect("seen above");
            owed.errors.push(IoError::BeyondEnd);
        }
        true
    }

    /// Records a client that has opened a disk.
    pub fn connect(&mut self, client: ClientId, disk: DiskId) {
        let new = Client {
            disk,
            vm: self.disks[&disk].vm,
            connected: true,
        };
        assert!(
            self.clients.insert(client, new).is_none(),
            "a handle names one client"
        );
    }

    /// Returns the disk that a client has opened.
    pub fn disk_of(&self, client: ClientId) -> DiskId {
        self.clients[&client].disk
    }

    /// Records that a client has disconnected: its requests may be cancelled.
    pub fn disconnect(&mut self, client: ClientId) {
        self.clients.get_mut(&client).expect("known").connected = false;
        self.owed
            .values_mut()
            .filter(|o| o.client == client)
            .for_each(|o| o.cancellable = true);
    }

    /// Returns the VM that a client belongs to.
    pub fn vm_of(&self, client: ClientId) -> VmId {
        self.clients[&client].vm
    }

    /// Returns the number of a VM's requests inside the engine.
    pub fn inside(&self, vm: VmId) -> u32 {
        self.owed.values().filter(|o| o.vm == vm).count() as u32
    }

    /// Returns the number of further requests for which the configured bounds leave room.
    pub fn room(&self, client: ClientId) -> u32 {
        let client = &self.clients[&client];
        if !client.connected {
            return 0;
        }
        // Both bounds count requests that are in flight too: a slot is free when the answer is
        // taken.
        let of_vm = self.inside(client.vm);
        let in_all = self.owed.len() as u32;
        (self.config.max_pending_per_vm - of_vm).min(self.config.max_requests - in_all)
    }

    /// Returns the refusal that a request must meet, given the number of `available` slots that the
    /// engine reports.
    pub fn refusal(&self, client: ClientId, request: &Request, available: u32) -> Option<Refusal> {
        let known = &self.clients[&client];
        if !known.connected {
            return Some(Refusal::NotConnected);
        }
        let spec = &self.disks[&known.disk].spec;
        let end = request.offset.saturating_add(request.len as u64);
        // A flush has no range. Checks are in the engine's order, as the first refusal is compared.
        if request.op != Op::Flush {
            if request.len == 0 {
                return Some(Refusal::Empty);
            }
            if end > spec.size {
                let (offset, size) = (request.offset, spec.size);
                return Some(Refusal::OutOfRange { offset, end, size });
            }
            if spec.read_only && request.op != Op::Read {
                return Some(Refusal::ReadOnly);
            }
        }
        (available == 0).then_some(Refusal::Full)
    }

    /// Records a request that the engine has accepted under this handle.
    pub fn accepted(&mut self, arrived: Nanos, client: ClientId, req: ReqId, request: &Request) {
        let known = &self.clients[&client];
        let owed = Owed {
            tag: request.tag,
            client,
            disk: known.disk,
            vm: known.vm,
            op: request.op,
            addr: self.disks[&known.disk].spec.base + request.offset,
            len: request.len,
            // The engine drops the flag where a device has no use for it: reads and flushes.
            fua: request.fua && !matches!(request.op, Op::Read | Op::Flush),
            keep_allocated: request.keep_allocated,
            arrived,
            cancellable: false,
            served: false,
            repeat_pending: false,
            repeated_alone: false,
            moved_ranges: Vec::new(),
            ios_in_flight: 0,
            bytes_in_flight: 0,
            errors: Vec::new(),
            flushed: false,
        };
        let before = self.owed.insert(req, owed);
        assert!(before.is_none(), "a handle names one request");
    }

    /// Returns the handle of the `n`th I/O in flight, modulo their number.
    pub fn in_flight(&self, n: u8) -> Option<IoId> {
        self.flights
            .keys()
            .nth(n as usize % self.flights.len().max(1))
            .copied()
    }

    /// Records a device I/O that was dispatched, with the requests that it carries.
    pub fn started(&mut self, io: &DeviceIo, segments: &[Segment]) {
        assert_eq!(io.vm, self.disks[&io.disk].vm, "the disk is the VM's");
        let parts = if io.op == Op::Flush {
            self.flush_started(io, segments)
        } else {
            self.data_started(io, segments)
        };
        let (mut first_ops, mut first_bytes) = (0, 0);
        for &(req, from, to) in &parts {
            let owed = self.owed.get_mut(&req).expect("checked above");
            // Later parts of a split request, and repetitions, were charged with the first part.
            if !owed.served {
                owed.served = true;
                first_ops += 1;
                first_bytes += owed.len as u64;
            }
            owed.ios_in_flight += 1;
            owed.bytes_in_flight += to - from;
        }
        assert_eq!(
            (io.first_ops, io.first_bytes),
            (first_ops, first_bytes),
            "charged once: {io:?}"
        );
        assert!(
            self.flights
                .insert(io.id, Flight { io: *io, parts })
                .is_none()
        );
    }

    fn flush_started(&mut self, io: &DeviceIo, segments: &[Segment]) -> Vec<(ReqId, u32, u32)> {
        assert!(io.len == 0 && segments.is_empty());
        let on_disk = |f: &&Flight| f.io.op == Op::Flush && f.io.disk == io.disk;
        assert_eq!(
            self.flights.values().filter(on_disk).count(),
            0,
            "one flush a disk"
        );
        let mut parts = Vec::new();
        // A flush covers every flush of the disk that waits at its start; later ones need another.
        for (&req, owed) in &mut self.owed {
            if owed.op == Op::Flush && owed.disk == io.disk && !owed.flushed {
                owed.flushed = true;
                parts.push((req, 0, 0));
            }
        }
        assert!(!parts.is_empty(), "a flush without a request");
        parts
    }

    fn data_started(&self, io: &DeviceIo, segments: &[Segment]) -> Vec<(ReqId, u32, u32)> {
        // Such a device writes the zeroes as payload, so the largest I/O holds for them as well.
        let writes = io.op == Op::WriteZeroes && self.config.device.zeroes_are_writes;
        if writes || matches!(io.op, Op::Read | Op::Write) {
            assert!(io.len <= self.config.device.max_io, "{io:?}");
        }
        assert!(segments.len() == 1 || io.op.merges(), "{io:?} never merges");
        assert_eq!(io.offset, io.addr - self.disks[&io.disk].spec.base);
        let mut addr = io.addr;
        let mut parts = Vec::new();
        for (n, segment) in segments.iter().enumerate() {
            let Some(owed) = self.owed.get(&segment.req) else {
                panic!("{segment:?} of a request that is not owed anything");
            };
            assert_eq!((owed.client, owed.op), (segment.client, io.op));
            assert_eq!(owed.tag, segment.tag, "the frontend's own tag");
            assert_eq!(
                (owed.disk, owed.vm),
                (io.disk, io.vm),
                "merged requests are of one disk"
            );
            assert_eq!((owed.fua, owed.keep_allocated), (io.fua, io.keep_allocated));
            assert!(
                !owed.cancellable,
                "a request of a vanished client went to the device"
            );
            assert!(
                owed.errors.is_empty(),
                "a request that failed asks for no more"
            );
            assert_eq!(owed.addr + segment.offset as u64, addr, "contiguous");
            let end = segment
                .offset
                .checked_add(segment.len)
                .expect("inside its request");
            assert!(
                segment.len > 0 && end <= owed.len,
                "{segment:?} inside its request"
            );
            // The first request may have begun in an earlier I/O, the last may continue in a later
            // one.
            let begins = n == 0 || segment.offset == 0;
            let ends = n + 1 == segments.len() || end == owed.len;
            assert!(
                segments.len() == 1
                    || (begins && ends && !owed.repeated_alone && !owed.repeat_pending),
                "merged: {segment:?}"
            );
            let on_block = |at: u32| {
                (owed.addr + at as u64).is_multiple_of(u64::from(self.config.device.physical_block))
            };
            assert!(
                segment.offset == 0 || on_block(segment.offset),
                "{segment:?}"
            );
            assert!(
                end == owed.len || on_block(end),
                "splits end on blocks: {segment:?}"
            );
            addr += segment.len as u64;
            parts.push((segment.req, segment.offset, end));
        }
        assert_eq!(addr, io.addr + io.len as u64, "the segments are the I/O");
        parts
    }

    /// Records the outcome of a device I/O.
    pub fn ended(&mut self, id: IoId, outcome: Outcome) {
        let Flight { io, parts } = self.flights.remove(&id).expect("in flight");
        // A flush may answer several requests, but its failure is the failure of each of them.
        let is_merged = parts.len() > 1 && io.op != Op::Flush;
        for (req, from, to) in parts {
            let owed = self
                .owed
                .get_mut(&req)
                .expect("not answered while in flight");
            owed.ios_in_flight -= 1;
            owed.bytes_in_flight -= to - from;
            match outcome {
                Ok(()) => owed.record_moved(from, to),
                Err(_) if is_merged => {
                    // The error may be another request's: each is repeated alone, and the bytes
                    // count as moved until then.
                    owed.record_moved(from, to);
                    owed.repeat_pending = true;
                }
                Err(error) => owed.errors.push(error),
            }
            let over = owed.cancellable || !owed.errors.is_empty();
            if owed.repeat_pending && owed.ios_in_flight == 0 && !over {
                // The repetition moves all ranges again, also those of I/Os that succeeded.
                owed.moved_ranges.clear();
                (owed.repeat_pending, owed.repeated_alone) = (false, true);
                let spec = &self.disks[&owed.disk].spec;
                if owed.is_beyond(spec.base, spec.size) {
                    owed.errors.push(IoError::BeyondEnd);
                }
            }
        }
    }

    /// Checks an answer; returns the length of its request in bytes.
    pub fn answered(&mut self, now: Nanos, done: &Done) -> u32 {
        let owed = self
            .owed
            .remove(&done.req)
            .unwrap_or_else(|| panic!("answered twice or never asked: {done:?}"));
        assert_eq!(
            (done.client, done.vm, done.op, done.tag),
            (owed.client, owed.vm, owed.op, owed.tag)
        );
        assert_eq!(
            owed.ios_in_flight, 0,
            "answered while the device has its memory"
        );
        match done.outcome {
            Ok(()) => assert!(owed.is_complete(), "success before every byte was done"),
            Err(IoError::Cancelled) => assert!(owed.cancellable, "cancelled for no reason"),
            Err(error) => assert!(owed.errors.contains(&error), "an error of another request"),
        }
        assert!(
            done.outcome.is_err() || owed.errors.is_empty(),
            "an error was swallowed"
        );
        assert_eq!(
            done.account.total(),
            now.since(owed.arrived),
            "{:?}",
            done.account
        );
        let vm = owed.vm;
        self.forget_vm(vm);
        owed.len
    }

    /// Drops a removed VM that has no unanswered request; it holds its slot until then.
    fn forget_vm(&mut self, vm: VmId) {
        if self.vms.get(&vm) == Some(&false) && self.owed.values().all(|o| o.vm != vm) {
            self.vms.remove(&vm);
        }
    }

    /// Compares the engine's gauges with the ledger. Valid between any two calls, once all answers
    /// were taken.
    pub fn check(&mut self, engine: &Engine) {
        // A VM that was removed with nothing inside has no last answer that would forget it.
        let leaving: Vec<VmId> = self.vms.iter().filter(|v| !v.1).map(|v| *v.0).collect();
        leaving.into_iter().for_each(|vm| self.forget_vm(vm));
        for (req, owed) in &self.owed {
            // Memory of a request belongs to the device until its last I/O has ended.
            let over = owed.cancellable || !owed.errors.is_empty() || owed.is_complete();
            assert!(
                !over || owed.ios_in_flight > 0,
                "request {req:?} should have been answered"
            );
        }
        let stats = engine.device_stats();
        // I/Os of hung disks are in flight, but not in the gauge.
        let counted = |id: &&IoId| engine.device().is_counted(**id);
        let counted = self.flights.keys().filter(counted).count();
        assert_eq!(stats.in_flight as usize, counted);
        // What limits of disks hold has not arrived for the scheduler yet.
        let limited: u32 = (self.vms.keys().map(|&vm| engine.vms().limited(vm))).sum();
        assert_eq!((stats.requests + limited) as usize, self.owed.len());
        let by_slot = self.counts_by_slot();
        for (&vm, _) in self.vms.iter().filter(|(_, live)| **live) {
            let counts = by_slot.get(vm.index()).copied().unwrap_or_default();
            assert_eq!(engine.vms().in_flight(vm), counts.in_flight);
            assert_eq!(engine.vms().pending(vm), counts.waiting);
        }
    }

    /// Returns the counts of all VMs by slot. A slot has no other VM until all that its last one
    /// asked for is answered.
    fn counts_by_slot(&self) -> Vec<Counts> {
        let slots = self.vms.keys().map(|vm| vm.index() + 1).max().unwrap_or(0);
        let mut counts = vec![Counts::default(); slots];
        for flight in self.flights.values() {
            counts[flight.io.vm.index()].in_flight += 1;
        }
        for owed in self.owed.values().filter(|owed| owed.waits()) {
            counts[owed.vm.index()].waiting += 1;
        }
        counts
    }

    /// Returns the number of requests that are not answered yet.
    pub fn unanswered(&self) -> usize {
        self.owed.len()
    }

    /// Returns the clients that are connected.
    pub fn connected(&self) -> Vec<ClientId> {
        let connected = self.clients.iter().filter(|(_, client)| client.connected);
        connected.map(|(&id, _)| id).collect()
    }

    /// Returns `true` if a request waits that can start; a flush that waits for another flush of
    /// its disk does not count.
    pub fn anything_waits(&self) -> bool {
        let flushes = self.flights.values().filter(|f| f.io.op == Op::Flush);
        let flushing: Vec<DiskId> = flushes.map(|f| f.io.disk).collect();
        let blocked = |o: &Owed| o.op == Op::Flush && flushing.contains(&o.disk);
        self.owed.values().any(|o| o.waits() && !blocked(o))
    }

    /// Returns `true` if every request was answered.
    pub fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }
}

/// Counts of what a VM has inside the engine.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Device I/Os in flight.
    in_flight: u32,
    /// Requests with bytes that the device was not given yet.
    waiting: u32,
}

impl Owed {
    /// Returns `true` if the device still has to be given bytes of the request.
    fn waits(&self) -> bool {
        if self.cancellable || !self.errors.is_empty() {
            return false;
        }
        if self.op == Op::Flush {
            return !self.flushed;
        }
        self.bytes_in_flight + self.moved_bytes() < self.len
    }

    /// Returns `true` if the request reaches beyond the end of its disk, which may have shrunk
    /// since.
    fn is_beyond(&self, base: u64, size: u64) -> bool {
        // After a move, a range that was cut off in flight may lie beyond 64 bits.
        self.op != Op::Flush && self.addr.wrapping_sub(base) + self.len as u64 > size
    }

    fn record_moved(&mut self, from: u32, to: u32) {
        if from == to {
            return; // a flush
        }
        let overlaps = self.moved_ranges.iter().any(|&(a, b)| from < b && a < to);
        assert!(!overlaps, "bytes {from}..{to} went to the device twice");
        self.moved_ranges.push((from, to));
    }

    fn moved_bytes(&self) -> u32 {
        self.moved_ranges.iter().map(|(from, to)| to - from).sum()
    }

    fn is_complete(&self) -> bool {
        let all = match self.op {
            Op::Flush => self.flushed && self.errors.is_empty(),
            _ => self.moved_bytes() == self.len,
        };
        all && !self.repeat_pending && self.ios_in_flight == 0
    }
}

#[cfg(test)]
mod tests;
