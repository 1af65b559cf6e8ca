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

/// Number of disks from which on faults add no more, so that a run stays short.
pub(super) const DISKS_MAX: usize = 64;

/// Length of a disk's hot spot, in sectors.
pub(super) const HOT: u64 = 32;

/// VM that exists or existed.
pub(super) struct Vm {
    pub(super) id: VmId,
    /// Every objective so far; the last one is in force.
    pub(super) objectives: Vec<Objective>,
    /// Numbers of requests and of bytes that it asked for.
    pub(super) asked: (u64, u64),
    /// Bytes that went to the device for it, repetitions included.
    pub(super) started: u64,
}

impl Vm {
    /// VM that has just come.
    pub(super) fn new(id: VmId, objective: Objective) -> Vm {
        Vm {
            id,
            objectives: vec![objective],
            asked: (0, 0),
            started: 0,
        }
    }

    /// Objective in force.
    pub(super) fn objective(&self) -> &Objective {
        self.objectives.last().expect("it has one")
    }
}

/// Disk that exists or existed, numbered as in the ledger.
pub(super) struct Disk {
    pub(super) id: DiskId,
    /// Number of its VM.
    pub(super) vm: usize,
    pub(super) spec: DiskSpec,
    /// Bytes reserved for the disk from its base on.
    pub(super) room: u64,
    pub(super) media: Media,
    pub(super) shadow: Shadow,
    pub(super) durable: Durable,
    /// First sector of the hot spot.
    pub(super) hot: u64,
}

impl Disk {
    /// Blank disk of a VM, with this number and hot spot.
    pub(super) fn new(id: DiskId, vm: usize, spec: DiskSpec, number: u32, hot: u64) -> Disk {
        let sectors = (spec.size / SECTOR) as usize;
        Disk {
            id,
            vm,
            spec,
            room: spec.size,
            // Media, shadow and floors count sectors from the disk's begin, wherever the disk is.
            media: Media::new(sectors),
            shadow: Shadow::new(number, sectors),
            durable: Durable::new(sectors),
            hot,
        }
    }

    /// Resizes the disk and moves it to byte `base` of the device. Returns `true` if the base
    /// changed.
    pub(super) fn resize(&mut self, base: u64, size: u64) -> bool {
        let moved = base != self.spec.base;
        if moved {
            // In place the room stays: the disk may grow into it again.
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
    /// Number of its disk.
    pub(super) disk: usize,
    /// Handle, or the last one that it had.
    pub(super) id: ClientId,
    pub(super) connected: bool,
    pub(super) work: Work,
    /// Number of open requests that it knows of.
    pub(super) open: u32,
    /// `true` if its next request is scheduled.
    pub(super) armed: bool,
    /// `true` if its last request was refused for lack of room.
    pub(super) waits: bool,
    pub(super) quiet_until: Nanos,
    pub(super) left_in_burst: u32,
    /// Sector at which its stream continues.
    pub(super) next: u64,
    pub(super) deaf_until: Nanos,
    /// Number of answers that it has not read.
    pub(super) unread: u32,
}

impl Client {
    /// Client that has just connected, whose stream begins at sector `next`.
    pub(super) fn new(disk: usize, id: ClientId, work: Work, next: u64) -> Client {
        Client {
            disk,
            id,
            connected: true,
            work,
            open: 0,
            armed: false,
            waits: false,
            quiet_until: Nanos::ZERO,
            left_in_burst: work.burst,
            next,
            deaf_until: Nanos::ZERO,
            unread: 0,
        }
    }

    /// Disconnects the client and clears its requests.
    pub(super) fn leave(&mut self) {
        self.connected = false;
        (self.open, self.unread, self.waits) = (0, 0, false);
    }

    /// Connects again.
    pub(super) fn reconnect(&mut self, id: ClientId) {
        (self.id, self.connected) = (id, true);
        // A new connection reads its answers.
        self.deaf_until = Nanos::ZERO;
    }

    /// Counts a request that was accepted now. A silence begins where a burst is over.
    pub(super) fn asked(&mut self, now: Nanos) {
        self.open += 1;
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
    /// Number of the newest disk by the slot of its handle.
    by_slot: Vec<u32>,
    /// First byte of the device that no disk has had.
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

    /// Adds a disk, behind all others.
    pub(super) fn add_disk(&mut self, disk: Disk) {
        let slot = disk.id.index();
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, 0);
        }
        self.by_slot[slot] = self.disks.len() as u32;
        self.next_base = disk.spec.base + disk.spec.size;
        self.disks.push(disk);
    }

    /// Number of an I/O's disk. Removed disks keep their number; the newest disk of the handle's
    /// slot is meant.
    pub(super) fn disk_of(&self, io: &DeviceIo) -> usize {
        self.by_slot[io.disk.index()] as usize
    }

    /// Number of the newest disk by the slot of its handle.
    pub(super) fn by_slot(&self) -> &[u32] {
        &self.by_slot
    }

    /// Handle of a client's VM.
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
    pub(super) fn arm(&mut self, schedule: &mut Schedule, client: u32, at: Nanos) {
        let it = &mut self.clients[client as usize];
        // One event for each client: more would make its load depend on how often it was armed.
        if !it.armed {
            it.armed = true;
            schedule.plan(at.max(it.quiet_until), Event::SubmitRequest(client));
        }
    }

    /// Schedules requests of clients that found no room, if the load goes on.
    pub(super) fn room_again(&mut self, schedule: &mut Schedule, now: Nanos, running: bool) {
        for client in 0..self.clients.len() {
            let waited = core::mem::take(&mut self.clients[client].waits);
            if waited && running {
                self.arm(schedule, client as u32, now);
            }
        }
    }

    /// Objectives of all VMs that may hold something in the engine, `vm`'s first.
    pub(super) fn objectives(&self, engine: &Engine, vm: VmId) -> Vec<Objective> {
        let of = |id: VmId| {
            let found = self.vms.iter().find(|vm| vm.id == id);
            *found.expect("it was added").objective()
        };
        // A removed VM keeps its part until its last request is out.
        let view = engine.view();
        let there = |id: VmId| id.index() < view.vm_slots() && view.vm_at(id.index()) == id;
        let others = self.vms.iter().map(|vm| vm.id);
        let others = others.filter(|&id| id != vm && there(id));
        core::iter::once(vm).chain(others).map(of).collect()
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
    /// Blank disk of so many sectors, at the begin of the device.
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
    fn a_client_asks_once_and_after_its_silence() {
        let (mut inventory, mut schedule) = (inventory(), Schedule::new());
        [1, 2]
            .into_iter()
            .for_each(|now| inventory.clients[1].asked(Nanos(now)));
        for _ in 0..2 {
            inventory.arm(&mut schedule, 1, Nanos(5));
        }
        assert_eq!(schedule.due(Nanos(101)), None);
        assert_eq!(schedule.due(Nanos(102)), Some(Event::SubmitRequest(1)));
        assert_eq!(schedule.due(Nanos::MAX), None);
    }

    #[test]
    fn clients_of_a_vm_that_goes_leave_and_wait_for_nothing() {
        let (mut inventory, mut schedule) = (inventory(), Schedule::new());
        inventory.clients.iter_mut().for_each(|it| it.waits = true);
        inventory.disconnect_vm(0);
        inventory.room_again(&mut schedule, Nanos(7), true);
        assert_eq!(schedule.due(Nanos(7)), Some(Event::SubmitRequest(1)));
        assert_eq!(schedule.due(Nanos::MAX), None);
        let connected = inventory.clients.iter().map(|it| it.connected);
        assert_eq!(connected.collect::<Vec<_>>(), [false, true]);
        assert_eq!(inventory.vm_of(1), VmId::from_bits(1));
    }

    #[test]
    fn a_disk_that_moves_has_the_room_that_it_takes() {
        let mut disk = Disk::blank(64);
        assert!(!disk.resize(0, 32 * SECTOR));
        assert_eq!(disk.room, 64 * SECTOR, "it may grow again in its place");
        assert!(disk.resize(1 << 20, 128 * SECTOR));
        assert_eq!((disk.room, disk.media.current().len()), (128 * SECTOR, 128));
    }
}
