//! Disks and their clients come, change and go at run time.

use super::{Engine, EngineError};
use crate::facts::{Facts, Life, NIL, state};
use tidegate_base::request::{ClientId, DiskId, IoError, Lane, Op, VmId};
use tidegate_base::time::Nanos;

/// A disk of a VM: a range of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpec {
    /// First byte on the device. Disks do not overlap; the driver sees to it.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// Refuse changes.
    pub read_only: bool,
}

impl DiskSpec {
    fn check(&self) -> Result<(), EngineError> {
        let (base, size) = (self.base, self.size);
        match size > 0 && base.checked_add(size).is_some() {
            true => Ok(()),
            false => Err(EngineError::DiskRange { base, size }),
        }
    }
}

pub(super) struct Disk {
    pub generation: u32,
    pub live: bool,
    /// Removed; its last client's last request is not out yet.
    pub leaving: bool,
    pub vm: u32,
    /// Clients that have it open, or had it and have requests inside the engine still.
    pub clients: u32,
    pub spec: DiskSpec,
    /// Waiting flushes, linked by `chain_next`.
    pub flush_first: u32,
    pub flush_last: u32,
    pub flushes: u32,
    /// A flush is in flight.
    pub flushing: bool,
    pub next_free: u32,
}

impl Disk {
    pub(super) fn id(&self, slot: u32) -> DiskId {
        DiskId {
            index: slot,
            generation: self.generation,
        }
    }
}

pub(super) struct Client {
    pub generation: u32,
    pub connected: bool,
    pub vm: u32,
    pub disk: u32,
    /// Its requests inside the engine.
    pub requests: u32,
    pub next_free: u32,
}

impl Client {
    pub(super) fn id(&self, slot: u32) -> ClientId {
        ClientId {
            index: slot,
            generation: self.generation,
        }
    }
}

impl Engine {
    /// Gives a VM a disk.
    ///
    /// # Errors
    /// When there is no such VM, or the range is empty or beyond 64 bits.
    pub fn add_disk(&mut self, vm: VmId, spec: DiskSpec) -> Result<DiskId, EngineError> {
        self.check_vm(vm)?;
        spec.check()?;
        let disk = |generation| Disk {
            generation,
            live: true,
            leaving: false,
            vm: vm.index,
            clients: 0,
            spec,
            flush_first: NIL,
            flush_last: NIL,
            flushes: 0,
            flushing: false,
            next_free: NIL,
        };
        let slot = self.free_disk;
        let slot = if slot == NIL {
            self.disks.push(disk(0));
            self.express.reserve(self.disks.len());
            if let Some(hung) = &mut self.hung {
                hung.make_room(self.disks.len());
            }
            self.disks.len() as u32 - 1
        } else {
            self.free_disk = self.disks[slot as usize].next_free;
            self.disks[slot as usize] = disk(self.disks[slot as usize].generation);
            slot
        };
        Ok(self.disks[slot as usize].id(slot))
    }

    /// Removes a disk of a VM with its clients: what waits is answered as cancelled, what is in
    /// flight is answered when it ends. The VM's other disks go on.
    ///
    /// # Errors
    /// When there is no such disk.
    pub fn remove_disk(&mut self, now: Nanos, disk: DiskId) -> Result<(), EngineError> {
        self.advance(now);
        let vm = self.disk(disk)?.vm;
        let index = disk.index;
        let of_disk = &mut self.disks[disk.index()];
        (of_disk.live, of_disk.leaving) = (false, true);
        // As if it had one more client: its slot must not be free before the last is looked at.
        of_disk.clients += 1;
        self.cancel_waiting(vm, IoError::Cancelled, |facts, slot| {
            facts.cold[slot as usize].disk == index
        });
        self.cancel_flushes(index, None);
        for slot in 0..self.clients.len() as u32 {
            let client = &self.clients[slot as usize];
            if client.connected && client.disk == index {
                self.release_client(slot);
            }
        }
        let of_disk = &mut self.disks[disk.index()];
        of_disk.clients -= 1;
        if of_disk.clients == 0 {
            self.free_disk_slot(index);
        }
        Ok(())
    }

    /// Changes where a disk lies and how long it is; its bytes keep their offsets. What waits
    /// beyond a new end that is nearer fails with [`IoError::BeyondEnd`]; what is in flight
    /// there ends as it does, and is not repeated.
    ///
    /// # Errors
    /// When there is no such disk, or the range is empty or beyond 64 bits.
    pub fn resize_disk(
        &mut self,
        now: Nanos,
        disk: DiskId,
        base: u64,
        size: u64,
    ) -> Result<(), EngineError> {
        self.advance(now);
        let of_disk = self.disk(disk)?;
        let (vm, before) = (of_disk.vm, of_disk.spec);
        let after = DiskSpec {
            base,
            size,
            ..before
        };
        after.check()?;
        if size < before.size {
            self.cancel_waiting(vm, IoError::BeyondEnd, |facts, slot| {
                let hot = &facts.hot[slot as usize];
                facts.cold[slot as usize].disk == disk.index
                    && hot.addr - before.base + u64::from(hot.len) > size
            });
        }
        if base != before.base {
            self.move_requests(vm, disk.index, base.wrapping_sub(before.base));
        }
        self.disks[disk.index()].spec = after;
        Ok(())
    }

    /// Moves everything inside the engine that is for a disk by so much. Dispatchers that order by
    /// address see it go and come again; to regulators nothing has happened.
    fn move_requests(&mut self, vm: u32, disk: u32, by: u64) {
        self.unshelve(vm);
        let mut waiting = Vec::new();
        for lane in Lane::ALL {
            let mut unit = self.facts.vms[vm as usize].lanes[lane.index()].head;
            while unit != NIL {
                // A unit's requests are all of one disk.
                if self.facts.cold[unit as usize].disk == disk {
                    waiting.push(unit);
                }
                unit = self.facts.hot[unit as usize].next;
            }
        }
        for &unit in &waiting {
            self.withdraw(unit);
        }
        let Facts { hot, cold, .. } = &mut self.facts;
        for (hot, cold) in hot.iter_mut().zip(cold) {
            // Also what is in flight: it may have to be repeated. A flush has no address.
            if hot.state != state::FREE && hot.op != Op::Flush && cold.disk == disk {
                hot.addr = hot.addr.wrapping_add(by);
            }
        }
        for unit in waiting {
            self.announce(unit);
        }
    }

    /// Whether a request of a disk reaches beyond its end, which may have come nearer since.
    pub(super) fn is_beyond_end(&self, slot: u32) -> bool {
        let hot = &self.facts.hot[slot as usize];
        let spec = &self.disks[self.facts.cold[slot as usize].disk as usize].spec;
        // What was cut off in flight may lie beyond the last address since its disk moved.
        hot.addr.wrapping_sub(spec.base) + u64::from(hot.len) > spec.size
    }

    /// A client opens a disk.
    ///
    /// # Errors
    /// When there is no such disk.
    pub fn connect(&mut self, disk: DiskId) -> Result<ClientId, EngineError> {
        let vm = self.disk(disk)?.vm;
        if self.facts.vms[vm as usize].life != Life::Live {
            return Err(EngineError::Unknown { what: "the VM" });
        }
        let client = |generation| Client {
            generation,
            connected: true,
            vm,
            disk: disk.index,
            requests: 0,
            next_free: NIL,
        };
        let slot = self.free_client;
        let slot = if slot == NIL {
            self.clients.push(client(0));
            self.clients.len() as u32 - 1
        } else {
            self.free_client = self.clients[slot as usize].next_free;
            self.clients[slot as usize] = client(self.clients[slot as usize].generation);
            slot
        };
        self.disks[disk.index()].clients += 1;
        Ok(self.clients[slot as usize].id(slot))
    }

    /// The connection is gone; the slot is free once its last request is out.
    pub(super) fn release_client(&mut self, slot: u32) {
        let client = &mut self.clients[slot as usize];
        client.connected = false;
        if client.requests == 0 {
            self.free_client_slot(slot);
        }
    }

    pub(super) fn free_client_slot(&mut self, slot: u32) {
        let client = &mut self.clients[slot as usize];
        client.generation = client.generation.wrapping_add(1);
        client.next_free = self.free_client;
        let disk = client.disk;
        self.free_client = slot;
        let of_disk = &mut self.disks[disk as usize];
        of_disk.clients -= 1;
        if of_disk.leaving && of_disk.clients == 0 {
            self.free_disk_slot(disk);
        }
    }

    pub(super) fn free_disk_slot(&mut self, slot: u32) {
        let disk = &mut self.disks[slot as usize];
        disk.live = false;
        disk.leaving = false;
        disk.generation = disk.generation.wrapping_add(1);
        disk.next_free = self.free_disk;
        self.free_disk = slot;
    }
}
