//! Removal, resizing and moves of disks.

use super::{EventKind, TortureWorld};
use crate::checker::ledger::SECTOR;
use crate::checker::{Verdict, ensure};

impl TortureWorld<'_, '_> {
    pub(super) fn remove_random_disk(&mut self) -> Verdict {
        if self.inventory.disks.is_empty() {
            return Ok(());
        }
        let number = self.draws.resizes.index(self.inventory.disks.len());
        let disk = &self.inventory.disks[number];
        let (id, vm) = (disk.id, self.inventory.vms[disk.vm].id);
        let there = self.checks.ledger.has_disk(number as u32);
        let figures = [number as u64, vm.index() as u64, 0, 0, 0];
        self.record(EventKind::DiskRemoved, figures);
        let clock = self.faults.clock(self.now);
        let removed = self.engine.vms_mut().remove_disk(clock, id);
        ensure!(
            Refusals,
            removed.is_ok() == there,
            "removing disk {number} returned {removed:?}; the disk exists: {there}"
        );
        if !there {
            return Ok(());
        }
        self.checks.ledger.disk_removed(number as u32);
        self.checks.connection_closed(&self.engine);
        self.inventory.disconnect_disk(number);
        Ok(())
    }

    /// Resizes a disk, in place or with a move; a disk that outgrows its room always moves.
    pub(super) fn resize_random_disk(&mut self) -> Verdict {
        if self.inventory.disks.is_empty() {
            return Ok(());
        }
        let rng = &mut self.draws.resizes;
        let number = rng.index(self.inventory.disks.len());
        let plan = self.swarm.disk(rng);
        let moves = rng.chance(300);
        let disk = &self.inventory.disks[number];
        // Drawn in any case, so that the stream does not depend on the disk.
        let size = if rng.chance(200) {
            disk.spec.size
        } else {
            plan.sectors * SECTOR
        };
        let (id, vm) = (disk.id, self.inventory.vms[disk.vm].id);
        let there = self.checks.ledger.has_disk(number as u32);
        // Addresses that no disk has had, so that former I/Os cannot hit the disk.
        let base = if moves || size > disk.room {
            self.inventory.next_base + plan.gap
        } else {
            disk.spec.base
        };
        let figures = [number as u64, vm.index() as u64, size, base, 0];
        self.record(EventKind::DiskResized, figures);
        let clock = self.faults.clock(self.now);
        let resized = self.engine.vms_mut().resize_disk(clock, id, base, size);
        ensure!(
            Refusals,
            resized.is_ok() == there,
            "resizing disk {number} returned {resized:?}; the disk exists: {there}"
        );
        if !there {
            return Ok(());
        }
        // A moved disk takes fresh addresses, so I/Os of its former place cannot be confused with
        // new ones.
        if self.inventory.disks[number].resize(base, size) {
            self.inventory.next_base = base + size;
            // Dispatchers see a moved disk as removed and added.
            self.checks.starvation.reset(&self.engine);
        }
        self.checks.ledger.disk_resized(number as u32, base, size);
        // Requests that wait beyond the new end are to be answered.
        self.checks.connection_closed(&self.engine);
        Ok(())
    }
}
