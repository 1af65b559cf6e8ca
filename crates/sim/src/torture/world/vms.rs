//! Arrival of VMs, disks and connections in a torture run, and connections that close and come
//! back.

use super::inventory::{Client, DISKS_MAX, Disk, HOT_SPOT_SECTORS, Vm};
use super::{EventKind, TortureWorld};
use crate::checker::ledger::SECTOR;
use crate::checker::{Verdict, ensure};
use crate::torture::swarm::{DiskPlan, VmPlan, Work};
use tidegate_core::engine::DiskSpec;
use tidegate_core::objective::Objective;
use tidegate_core::request::VmId;

impl TortureWorld<'_, '_> {
    /// Adds a VM with its disks and their connections.
    pub(super) fn add_vm(&mut self, plan: &VmPlan) -> Verdict {
        let clock = self.faults.clock(self.now);
        let mut vms = self.engine.vms_mut();
        let added = if plan.background {
            vms.add_background(clock, &plan.objective)
        } else {
            vms.add_vm(clock, &plan.objective)
        };
        let added = added.ok();
        self.checks.ledger.vm_added(added)?;
        // Refused for lack of a slot, which the ledger has confirmed.
        let Some(id) = added else { return Ok(()) };
        self.record(EventKind::VmAdded, objective_figures(id, &plan.objective));
        self.inventory.vms.push(Vm::new(id, plan.objective));
        (self.checks).promises_changed(&self.engine, &self.inventory.vms);
        let guest = self.inventory.vms.len() - 1;
        for disk in &plan.disks {
            self.add_disk(guest, disk)?;
        }
        Ok(())
    }

    /// Adds a disk to a random VM, which may be removed, unless the run has [`DISKS_MAX`].
    pub(super) fn add_random_disk(&mut self) -> Verdict {
        if self.inventory.disks.len() >= DISKS_MAX {
            return Ok(());
        }
        let guest = self.faults.rng.index(self.inventory.vms.len());
        let plan = self.swarm.disk(&mut self.draws.fresh);
        self.add_disk(guest, &plan)
    }

    fn add_disk(&mut self, guest: usize, plan: &DiskPlan) -> Verdict {
        let vm = self.inventory.vms[guest].id;
        let spec = DiskSpec {
            base: self.inventory.next_base + plan.gap,
            size: plan.sectors * SECTOR,
            read_only: plan.read_only,
        };
        let added = self.engine.vms_mut().add_disk(vm, spec).ok();
        let live = self.checks.ledger.is_live(vm);
        ensure!(
            Refusals,
            added.is_some() == live,
            "add_disk of {vm:?} returned {added:?}; the VM exists: {live}"
        );
        let Some(id) = added else { return Ok(()) };
        let number = self.checks.ledger.disk_added(id, vm, spec);
        let figures = [number.into(), vm.index() as u64, spec.size, spec.base, 0];
        self.record(EventKind::DiskAdded, figures);
        // A disk smaller than the hot spot is hot as a whole.
        let hot = self
            .draws
            .fresh
            .below(plan.sectors.saturating_sub(HOT_SPOT_SECTORS));
        let disk = Disk::new(id, guest, spec, number, hot);
        self.inventory.add_disk(disk);
        self.limit_new_disk(number as usize)?;
        for work in &plan.clients {
            self.add_client(number as usize, *work)?;
        }
        Ok(())
    }

    fn add_client(&mut self, disk: usize, work: Work) -> Verdict {
        let client = self.inventory.clients.len() as u32;
        let opened = self.engine.connect(self.inventory.disks[disk].id);
        ensure!(
            Refusals,
            opened.is_ok(),
            "disk {disk} cannot be opened: {opened:?}"
        );
        let Ok(id) = opened else { return Ok(()) };
        self.checks.ledger.connected(id, disk as u32);
        self.record(EventKind::Connected, [client.into(), disk as u64, 0, 0, 0]);
        let sectors = self.inventory.disks[disk].spec.size / SECTOR;
        let next = self.draws.fresh.below(sectors);
        let connected = Client::new(disk, id, work, next);
        self.inventory.clients.push(connected);
        let begin = self.load.begin(self.swarm.span);
        self.inventory
            .schedule_request(&mut self.schedule, client, self.now + begin);
        Ok(())
    }

    /// Closes a connection without notice, as a client that crashes does.
    pub(super) fn vanish(&mut self, number: usize) {
        let client = &mut self.inventory.clients[number];
        // The number stays: answers on their way belong to the former handle.
        client.leave();
        let id = client.id;
        self.record(EventKind::Vanished, [number as u64, 0, 0, 0, 0]);
        let clock = self.faults.clock(self.now);
        self.engine.handle_disconnect(clock, id);
        self.checks.ledger.disconnected(id);
        self.checks.connection_closed(&self.engine);
    }

    /// Connects a client again to its disk, unless it is connected or the run drains; checks that
    /// the engine accepts it exactly if the disk exists.
    pub(super) fn reconnect(&mut self, number: u32) -> Verdict {
        let client = &self.inventory.clients[number as usize];
        let disk = client.disk;
        let (connected, vm) = (
            client.connected,
            self.inventory.vms[self.inventory.disks[disk].vm].id,
        );
        // It may be back by an earlier event, as a storm and a single fault can overlap.
        if connected || !self.running {
            return Ok(());
        }
        let live = self.checks.ledger.is_disk_live(disk as u32);
        let opened = self.engine.connect(self.inventory.disks[disk].id).ok();
        ensure!(
            Refusals,
            opened.is_some() == live,
            "connect of client {number} to a disk of {vm:?} returned {opened:?}; the disk exists: \
             {live}"
        );
        let Some(id) = opened else { return Ok(()) };
        self.checks.ledger.connected(id, disk as u32);
        self.record(EventKind::Connected, [number.into(), disk as u64, 0, 0, 0]);
        self.inventory.clients[number as usize].reconnect(id);
        self.inventory
            .schedule_request(&mut self.schedule, number, self.now);
        Ok(())
    }
}

/// Figures of [`EventKind::Objective`] and [`EventKind::VmAdded`]: VM, weight, limits in IOPS and
/// in bytes per second (0: none).
pub(super) fn objective_figures(vm: VmId, objective: &Objective) -> [u64; 5] {
    let limit = objective.limit.total;
    let (ops, bytes) = (limit.ops.map_or(0, |ops| ops.per_s), limit.bytes_per_s);
    let weight = objective.weight.into();
    [vm.index() as u64, weight, ops, bytes.unwrap_or(0), 0]
}
