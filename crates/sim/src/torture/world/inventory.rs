//! Inventory of a torture run: VMs, their disks and clients, including those that have gone.

use super::schedule::{Event, Schedule};
use crate::checker::Verdict;
use crate::checker::content::Shadow;
use crate::checker::durability::Durable;
use crate::checker::ledger::{Ledger, SECTOR};
use crate::torture::swarm::Work;
use crate::torture::volatile_medium::Media;
use tidegate_core::engine::{DiskSpec, Engine};
use tidegate_core::objective::Objective;
use tidegate_core::request::{ClientId, DeviceIo, DiskId, VmId};
use tidegate_core::time::Nanos;

/// Number of disks from which on faults add none, so that a run stays short.
pub(super) const DISKS_MAX: usize = 64;

/// Length in sectors of a disk's hot spot, on which many requests fall.
pub(super) const HOT_SPOT_SECTORS: u64 = 32;

/// VM that exists or existed.
pub(super) struct Vm {
    pub(super) id: VmId,
    /// Every objective so far; the last one is in force.
    pub(super) objectives: Vec<Objective>,
    /// Number of requests that the engine accepted from the VM's clients.
    pub(super) requests: u64,
    /// Bytes of these requests.
    pub(super) request_bytes: u64,
    /// Bytes of the VM's I/Os that were started on the device, repetitions included.
    pub(super) device_bytes: u64,
}

impl Vm {
    /// Creates a VM that was just added.
    pub(super) fn new(id: VmId, objective: Objective) -> Vm {
        Vm {
            id,
            objectives: vec![objective],
            requests: 0,
            request_bytes: 0,
            device_bytes: 0,
        }
    }

    /// Returns the objective in force.
    pub(super) fn objective(&self) -> &Objective {
        self.objectives
            .last()
            .expect("a VM has an objective from the start")
    }
}

/// Disk that exists or existed, numbered as in the ledger.
pub(super) struct Disk {
    pub(super) id: DiskId,
    /// Index of the disk's VM in [`Inventory::vms`].
    pub(super) vm: usize,
    pub(super) spec: DiskSpec,
    /// Bytes reserved for the disk from its base on; the disk may grow into them in place.
    pub(super) room: u64,
    /// Content of the simulated medium, with its volatile cache.
    pub(super) media: Media,
    /// Content that reads may return.
    pub(super) shadow: Shadow,
    /// Content that must survive a power cut.
    pub(super) durable: Durable,
    /// First sector of the hot spot.
    pub(super) hot_spot: u64,
}

impl Disk {
    /// Creates a blank disk of the VM with index `vm`; `number` is the disk's own, `hot_spot` the
    /// first sector of its hot spot.
    pub(super) fn new(id: DiskId, vm: usize, spec: DiskSpec, number: u32, hot_spot: u64) -> Disk {
        let sectors = (spec.size / SECTOR) as usize;
        Disk {
            id,
            vm,
            spec,
            room: spec.size,
            // Sectors are counted from the disk's first byte, so a move does not change them.
            media: Media::new(sectors),
            shadow: Shadow::new(number, sectors),
            durable: Durable::new(sectors),
            hot_spot,
        }
    }

    /// Resizes the disk and moves it to byte `base` of the device. Returns `true` if the base
    /// changed.
    pub(super) fn resize(&mut self, base: u64, size: u64) -> bool {
        let moved = base != self.spec.base;
        if moved {
            // A disk that is resized in place keeps its room, and may grow into it again.
            self.room = size;
        }
        (self.spec.base, self.spec.size) = (base, size);
        let sectors = (size / SECTOR) as usize;
        self.media.grow(sectors);
        self.shadow.grow(sectors);
        self.durable.grow(sectors);
        moved
    }
}

/// Client of a disk.
pub(super) struct Client {
    /// Index of the client's disk in [`Inventory::disks`].
    pub(super) disk: usize,
    /// Handle of the present connection, or of the last one.
    pub(super) id: ClientId,
    pub(super) connected: bool,
    /// Load that the client generates.
    pub(super) work: Work,
    /// Number of requests without an answer that the client has read.
    pub(super) outstanding: u32,
    /// `true` if the client's next request is scheduled.
    pub(super) is_scheduled: bool,
    /// `true` if the last request was refused because the engine had no room.
    pub(super) found_no_room: bool,
    /// End of the silence after a burst of requests.
    pub(super) quiet_until: Nanos,
    /// Number of requests until the next silence.
    pub(super) left_in_burst: u32,
    /// Sector at which the sequential stream continues.
    pub(super) next_sector: u64,
    /// Time until which the client reads no answers (a fault).
    pub(super) reads_again_at: Nanos,
    /// Number of answers that the client has not read.
    pub(super) unread: u32,
}

impl Client {
    /// Creates a client that has just connected, whose stream begins at sector `next_sector`.
    pub(super) fn new(disk: usize, id: ClientId, work: Work, next_sector: u64) -> Client {
        Client {
            disk,
            id,
            connected: true,
            work,
            outstanding: 0,
            is_scheduled: false,
            found_no_room: false,
            quiet_until: Nanos::ZERO,
            left_in_burst: work.burst,
            next_sector,
            reads_again_at: Nanos::ZERO,
            unread: 0,
        }
    }

    /// Disconnects the client and clears its requests.
    pub(super) fn leave(&mut self) {
        self.connected = false;
        (self.outstanding, self.unread, self.found_no_room) = (0, 0, false);
    }

    /// Connects the client again, under a new handle.
    pub(super) fn reconnect(&mut self, id: ClientId) {
        (self.id, self.connected) = (id, true);
        // A new connection reads its answers.
        self.reads_again_at = Nanos::ZERO;
    }

    /// Counts a request that the engine accepted at `now`. After the last one of a burst the client
    /// is silent for a while.
    pub(super) fn record_accepted(&mut self, now: Nanos) {
        self.outstanding += 1;
        if self.work.burst > 0 {
            self.left_in_burst -= 1;
            if self.left_in_burst == 0 {
                self.left_in_burst = self.work.burst;
                self.quiet_until = now + self.work.silence;
            }
        }
    }
}

/// VMs, disks and clients, each by its number.
pub(super) struct Inventory {
    pub(super) vms: Vec<Vm>,
    pub(super) disks: Vec<Disk>,
    pub(super) clients: Vec<Client>,
    /// Number of the newest disk with a handle of each slot.
    by_slot: Vec<u32>,
    /// First byte of the device behind all disks so far.
    pub(super) next_base: u64,
}

impl Inventory {
    /// Creates an empty inventory; the first disk begins at byte `base` or behind it.
    pub(super) fn new(base: u64) -> Inventory {
        Inventory {
            vms: Vec::new(),
            disks: Vec::new(),
            clients: Vec::new(),
            by_slot: Vec::new(),
            next_base: base,
        }
    }

    /// Adds a disk, which lies behind all others.
    pub(super) fn add_disk(&mut self, disk: Disk) {
        let slot = disk.id.index();
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, 0);
        }
        self.by_slot[slot] = self.disks.len() as u32;
        self.next_base = disk.spec.base + disk.spec.size;
        self.disks.push(disk);
    }

    /// Returns the number of an I/O's disk: of the disks that had the slot of its handle, the
    /// newest. Removed disks keep their number.
    pub(super) fn disk_of(&self, io: &DeviceIo) -> usize {
        self.by_slot[io.disk.index()] as usize
    }

    /// Returns the number of the newest disk with a handle of each slot.
    pub(super) fn by_slot(&self) -> &[u32] {
        &self.by_slot
    }

    /// Returns the handle of a client's VM.
    pub(super) fn vm_of(&self, client: u32) -> VmId {
        let disk = &self.disks[self.clients[client as usize].disk];
        self.vms[disk.vm].id
    }

    /// Disconnects the clients of a VM, given by its index.
    pub(super) fn disconnect_vm(&mut self, vm: usize) {
        for client in &mut self.clients {
            if self.disks[client.disk].vm == vm {
                client.leave();
            }
        }
    }

    /// Disconnects the clients of a disk, given by its index.
    pub(super) fn disconnect_disk(&mut self, disk: usize) {
        for client in self.clients.iter_mut().filter(|c| c.disk == disk) {
            client.leave();
        }
    }

    /// Schedules a client's next request at `at`, or after its silence, unless one is scheduled.
    pub(super) fn schedule_request(&mut self, schedule: &mut Schedule, client: u32, at: Nanos) {
        let state = &mut self.clients[client as usize];
        // One event for each client: with more, its load would depend on the number of calls.
        if !state.is_scheduled {
            state.is_scheduled = true;
            schedule.plan(at.max(state.quiet_until), Event::SubmitRequest(client));
        }
    }

    /// Schedules the next requests of clients whose last one found no room; with `running` unset
    /// the load has ended, and none are scheduled.
    pub(super) fn schedule_refused_clients(
        &mut self,
        schedule: &mut Schedule,
        now: Nanos,
        running: bool,
    ) {
        for client in 0..self.clients.len() {
            let found_no_room = core::mem::take(&mut self.clients[client].found_no_room);
            if found_no_room && running {
                self.schedule_request(schedule, client as u32, now);
            }
        }
    }

    /// Returns the objectives of all VMs that may have requests in the engine, that of `vm` first.
    pub(super) fn objectives(&self, engine: &Engine, vm: VmId) -> Vec<Objective> {
        let objective = |id: VmId| {
            let found = self.vms.iter().find(|vm| vm.id == id);
            *found.expect("it was added").objective()
        };
        // A removed VM keeps its slot until its last request has ended.
        let view = engine.view();
        let has_slot = |id: VmId| id.index() < view.vm_slots() && view.vm_at(id.index()) == id;
        let others = self.vms.iter().map(|vm| vm.id);
        let others = others.filter(|&id| id != vm && has_slot(id));
        core::iter::once(vm).chain(others).map(objective).collect()
    }

    /// Checks what would survive a power cut now: the durable content, or all of the cache.
    pub(super) fn cut_power(&self, ledger: &Ledger) -> Verdict {
        for disk in &self.disks {
            let media = [disk.media.durable(), disk.media.current()];
            for survives in media {
                disk.durable.check(ledger, &disk.shadow, survives)?;
            }
        }
        Ok(())
    }

    /// Checks the content of the media once everything has drained.
    pub(super) fn check_settled(&self, ledger: &Ledger) -> Verdict {
        for disk in &self.disks {
            disk.shadow.settled(ledger, disk.media.current())?;
        }
        Ok(())
    }
}

#[cfg(test)]
impl Disk {
    /// Creates a blank disk of `sectors` sectors at the beginning of the device.
    pub(super) fn blank(sectors: u64) -> Disk {
        let spec = DiskSpec {
            base: 0,
            size: sectors * SECTOR,
            read_only: false,
        };
        Disk::new(DiskId::from_bits(0), 0, spec, 0, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::request::Op;

    fn inventory() -> Inventory {
        let work = Work {
            depth: 1,
            mix: [1; Op::ALL.len()],
            fua: 0,
            keep: 0,
            sequential: 0,
            downwards: false,
            hot: 0,
            sectors: (1, 1),
            think: Nanos::ZERO,
            burst: 2,
            silence: Nanos(100),
        };
        let mut inventory = Inventory::new(0);
        for n in 0..2 {
            let id = VmId::from_bits(n);
            inventory.vms.push(Vm::new(id, Objective::default()));
            let mut disk = Disk::blank(64);
            (disk.id, disk.vm) = (DiskId::from_bits(n), n as usize);
            inventory.add_disk(disk);
            let client = Client::new(n as usize, ClientId::from_bits(n), work, 0);
            inventory.clients.push(client);
        }
        inventory
    }

    #[test]
    fn a_client_has_one_scheduled_request_and_none_in_its_silence() {
        let (mut inventory, mut schedule) = (inventory(), Schedule::new());
        // A burst of two requests, then a silence of 100 ns.
        [1, 2]
            .into_iter()
            .for_each(|now| inventory.clients[1].record_accepted(Nanos(now)));
        for _ in 0..2 {
            inventory.schedule_request(&mut schedule, 1, Nanos(5));
        }
        assert_eq!(schedule.due(Nanos(101)), None);
        assert_eq!(schedule.due(Nanos(102)), Some(Event::SubmitRequest(1)));
        assert_eq!(schedule.due(Nanos::MAX), None);
    }

    #[test]
    fn clients_of_a_removed_vm_disconnect_and_submit_nothing_more() {
        let (mut inventory, mut schedule) = (inventory(), Schedule::new());
        inventory
            .clients
            .iter_mut()
            .for_each(|client| client.found_no_room = true);
        inventory.disconnect_vm(0);
        inventory.schedule_refused_clients(&mut schedule, Nanos(7), true);
        assert_eq!(schedule.due(Nanos(7)), Some(Event::SubmitRequest(1)));
        assert_eq!(schedule.due(Nanos::MAX), None);
        let connected = inventory.clients.iter().map(|it| it.connected);
        assert_eq!(connected.collect::<Vec<_>>(), [false, true]);
        assert_eq!(inventory.vm_of(1), VmId::from_bits(1));
    }

    #[test]
    fn a_disk_that_moves_gets_room_of_its_new_size() {
        let mut disk = Disk::blank(64);
        assert!(!disk.resize(0, 32 * SECTOR));
        assert_eq!(disk.room, 64 * SECTOR, "it may grow again in its place");
        assert!(disk.resize(1 << 20, 128 * SECTOR));
        assert_eq!((disk.room, disk.media.current().len()), (128 * SECTOR, 128));
    }
}
