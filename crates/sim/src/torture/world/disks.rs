//! Disks go, change their size, and come to lie elsewhere.

use super::{What, World};
use crate::checker::ledger::SECTOR;
use crate::checker::{Verdict, ensure};

impl World<'_, '_> {
    pub(super) fn remove_a_disk(&mut self) -> Verdict {
        if self.disks.is_empty() {
            return Ok(());
        }
        let number = self.resizes.index(self.disks.len());
        let disk = &self.disks[number];
        let (id, vm) = (disk.id, self.guests[disk.guest].id);
        let there = self.ledger.has_disk(number as u32);
        let figures = [number as u64, vm.index() as u64, 0, 0, 0];
        self.write(What::DiskRemoved, figures);
        let clock = self.clock();
        let removed = self.engine.remove_disk(clock, id);
        ensure!(
            Refusals,
            removed.is_ok() == there,
            "disk {number} was removed: {removed:?}, though its being there is {there}"
        );
        if !there {
            return Ok(());
        }
        self.ledger.disk_removed(number as u32);
        self.somebody_has_gone();
        for client in self.clients.iter_mut().filter(|c| c.disk == number) {
            client.leave();
        }
        Ok(())
    }

    /// Longer or shorter, where it lies or elsewhere: where there is no room, elsewhere.
    pub(super) fn resize_a_disk(&mut self) -> Verdict {
        if self.disks.is_empty() {
            return Ok(());
        }
        let dice = &mut self.resizes;
        let number = dice.index(self.disks.len());
        let plan = self.swarm.disk(dice);
        let moves = dice.chance(300);
        let disk = &self.disks[number];
        let size = match dice.chance(200) {
            true => disk.spec.size,
            false => plan.sectors * SECTOR,
        };
        let (id, vm) = (disk.id, self.guests[disk.guest].id);
        let there = self.ledger.has_disk(number as u32);
        let base = match moves || size > disk.room {
            true => self.next_base + plan.gap,
            false => disk.spec.base,
        };
        let figures = [number as u64, vm.index() as u64, size, base, 0];
        self.write(What::DiskResized, figures);
        let clock = self.clock();
        let resized = self.engine.resize_disk(clock, id, base, size);
        ensure!(
            Refusals,
            resized.is_ok() == there,
            "disk {number} was resized: {resized:?}, though its being there is {there}"
        );
        if !there {
            return Ok(());
        }
        let disk = &mut self.disks[number];
        if base != disk.spec.base {
            disk.room = size;
            self.next_base = base + size;
            // Dispatchers have seen it go and come.
            self.starvation.forget(&self.engine);
        }
        (disk.spec.base, disk.spec.size) = (base, size);
        let sectors = (size / SECTOR) as usize;
        disk.media.grow(sectors);
        disk.shadow.grow(sectors);
        disk.durable.grow(sectors);
        self.ledger.disk_resized(number as u32, base, size);
        // Who waited beyond the end is to be answered.
        self.somebody_has_gone();
        Ok(())
    }
}
