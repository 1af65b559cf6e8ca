//! The guests: VMs, their disks and clients, as they come and go.

use super::{What, World};
use crate::checker::content::Shadow;
use crate::checker::durability::Durable;
use crate::checker::ledger::SECTOR;
use crate::checker::{Verdict, ensure};
use crate::torture::media::Media;
use crate::torture::swarm::{DiskPlan, VmPlan, Work};
use tidegate_core::engine::DiskSpec;
use tidegate_core::objective::Objective;
use tidegate_core::request::{ClientId, DiskId, VmId};
use tidegate_core::time::Nanos;

/// A VM there is or was.
pub(super) struct Guest {
    pub(super) id: VmId,
    /// Every objective it had, the last one in force.
    pub(super) objectives: Vec<Objective>,
    /// Requests and bytes it has asked for.
    pub(super) asked: (u64, u64),
    /// Bytes that went to the device for it, again or not.
    pub(super) started: u64,
}

/// A disk there is or was, numbered as in the ledger.
pub(super) struct Disk {
    pub(super) id: DiskId,
    pub(super) guest: usize,
    pub(super) spec: DiskSpec,
    /// Bytes that are its own from where it lies on.
    pub(super) room: u64,
    pub(super) media: Media,
    pub(super) shadow: Shadow,
    pub(super) durable: Durable,
    /// Where its hot spot begins, in sectors.
    pub(super) hot: u64,
}

/// A client.
pub(super) struct Client {
    pub(super) disk: usize,
    /// Its handle, or the last one it had.
    pub(super) id: ClientId,
    pub(super) connected: bool,
    pub(super) work: Work,
    /// Requests it knows to be open.
    pub(super) open: u32,
    /// It will ask.
    pub(super) armed: bool,
    /// It was told that there is no room.
    pub(super) waits: bool,
    pub(super) quiet_until: Nanos,
    pub(super) left_in_burst: u32,
    /// The sector where its stream goes on.
    pub(super) next: u64,
    pub(super) deaf_until: Nanos,
    /// Answers that it has not looked at.
    pub(super) unread: u32,
}

impl Client {
    /// It is not connected any more, and knows of no request.
    pub(super) fn leave(&mut self) {
        self.connected = false;
        (self.open, self.unread, self.waits) = (0, 0, false);
    }
}

/// No faults add to so many: a run is to stay short.
pub(super) const MANY_DISKS: usize = 64;

/// How much of a disk its hot spot is, in sectors.
pub(super) const HOT: u64 = 32;

impl World<'_, '_> {
    pub(super) fn add_vm(&mut self, plan: &VmPlan) -> Verdict {
        let clock = self.clock();
        let added = match plan.background {
            true => self.engine.add_background(clock, &plan.objective),
            false => self.engine.add_vm(clock, &plan.objective),
        };
        let added = added.ok();
        self.ledger.vm_added(added)?;
        let Some(id) = added else { return Ok(()) };
        self.write(What::VmAdded, in_short(id, &plan.objective));
        self.guests.push(Guest {
            id,
            objectives: vec![plan.objective],
            asked: (0, 0),
            started: 0,
        });
        self.promises_changed();
        let guest = self.guests.len() - 1;
        for disk in &plan.disks {
            self.add_disk(guest, disk)?;
        }
        Ok(())
    }

    pub(super) fn add_a_disk(&mut self) -> Verdict {
        if self.disks.len() >= MANY_DISKS {
            return Ok(());
        }
        let guest = self.chance.index(self.guests.len());
        let plan = self.swarm.disk(&mut self.fresh);
        self.add_disk(guest, &plan)
    }

    fn add_disk(&mut self, guest: usize, plan: &DiskPlan) -> Verdict {
        let vm = self.guests[guest].id;
        let spec = DiskSpec {
            base: self.next_base + plan.gap,
            size: plan.sectors * SECTOR,
            read_only: plan.read_only,
        };
        let added = self.engine.add_disk(vm, spec).ok();
        let live = self.ledger.is_live(vm);
        ensure!(
            Refusals,
            added.is_some() == live,
            "a disk for {vm:?}: {added:?}, though its being there is {live}"
        );
        let Some(id) = added else { return Ok(()) };
        self.next_base = spec.base + spec.size;
        let number = self.ledger.disk_added(id, vm, spec);
        let figures = [number.into(), vm.index() as u64, spec.size, spec.base, 0];
        self.write(What::DiskAdded, figures);
        if self.by_slot.len() <= id.index() {
            self.by_slot.resize(id.index() + 1, 0);
        }
        self.by_slot[id.index()] = number;
        let sectors = plan.sectors as usize;
        self.disks.push(Disk {
            id,
            guest,
            spec,
            room: spec.size,
            media: Media::new(sectors),
            shadow: Shadow::new(number, sectors),
            durable: Durable::new(sectors),
            hot: self.fresh.below(plan.sectors.saturating_sub(HOT)),
        });
        for work in &plan.clients {
            self.add_client(number as usize, *work)?;
        }
        Ok(())
    }

    fn add_client(&mut self, disk: usize, work: Work) -> Verdict {
        let client = self.clients.len() as u32;
        let opened = self.engine.connect(self.disks[disk].id);
        ensure!(
            Refusals,
            opened.is_ok(),
            "disk {disk} cannot be opened: {opened:?}"
        );
        let Ok(id) = opened else { return Ok(()) };
        self.ledger.connected(id, disk as u32);
        self.write(What::Connected, [client.into(), disk as u64, 0, 0, 0]);
        self.clients.push(Client {
            disk,
            id,
            connected: true,
            work,
            open: 0,
            armed: false,
            waits: false,
            quiet_until: Nanos::ZERO,
            left_in_burst: work.burst,
            next: self.fresh.below(self.disks[disk].spec.size / SECTOR),
            deaf_until: Nanos::ZERO,
            unread: 0,
        });
        let begin = self.load.below(self.swarm.span.0 / 16 + 1);
        self.arm(client, self.now + Nanos(begin));
        Ok(())
    }

    pub(super) fn vanish(&mut self, number: usize) {
        let client = &mut self.clients[number];
        client.leave();
        let id = client.id;
        self.write(What::Vanished, [number as u64, 0, 0, 0, 0]);
        let clock = self.clock();
        self.engine.handle_disconnect(clock, id);
        self.ledger.disconnected(id);
        self.somebody_has_gone();
    }

    pub(super) fn somebody_has_gone(&mut self) {
        let now = self.engine.view().now();
        self.ledger.note_all_over(now, &mut self.over);
    }

    pub(super) fn come_back(&mut self, number: u32) -> Verdict {
        let client = &self.clients[number as usize];
        let disk = client.disk;
        let (connected, vm) = (client.connected, self.guests[self.disks[disk].guest].id);
        if connected || !self.running {
            return Ok(());
        }
        let live = self.ledger.is_disk_live(disk as u32);
        let opened = self.engine.connect(self.disks[disk].id).ok();
        ensure!(
            Refusals,
            opened.is_some() == live,
            "client {number} opens a disk of {vm:?}: {opened:?}, though its being there is {live}"
        );
        let Some(id) = opened else { return Ok(()) };
        self.ledger.connected(id, disk as u32);
        self.write(What::Connected, [number.into(), disk as u64, 0, 0, 0]);
        let client = &mut self.clients[number as usize];
        (client.id, client.connected) = (id, true);
        client.deaf_until = Nanos::ZERO;
        self.arm(number, self.now);
        Ok(())
    }
}

/// An objective in the journal's figures.
pub(super) fn in_short(vm: VmId, objective: &Objective) -> [u64; 5] {
    let limit = objective.limit.total;
    let (ops, bytes) = (limit.ops.map_or(0, |ops| ops.per_s), limit.bytes_per_s);
    let weight = objective.weight.into();
    [vm.index() as u64, weight, ops, bytes.unwrap_or(0), 0]
}
