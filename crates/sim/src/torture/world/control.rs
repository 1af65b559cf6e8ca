//! Changes of objectives and removal of VMs in a torture run, each checked against the ledger: the
//! engine accepts them exactly for VMs that exist. VMs are given by their index in the inventory,
//! which keeps removed ones; the handle of a removed VM must be refused.

use super::inventory::DISKS_MAX;
use super::schedule::Event;
use super::vms::objective_figures;
use super::{EventKind, TortureWorld};
use crate::checker::{Verdict, ensure};
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;

impl TortureWorld<'_, '_> {
    /// Gives a VM another objective, as an operator does, and checks that the engine takes it
    /// exactly if the VM exists.
    pub(super) fn set_objective(&mut self, index: usize, objective: &Objective) -> Verdict {
        let vm = self.inventory.vms[index].id;
        let live = self.checks.ledger.is_live(vm);
        self.record(EventKind::Objective, objective_figures(vm, objective));
        let clock = self.faults.clock(self.now);
        let set = self.engine.vms_mut().set_objective(clock, vm, objective);
        ensure!(
            Refusals,
            set.is_ok() == live,
            "set_objective of {vm:?} returned {set:?}; the VM exists: {live}"
        );
        if live {
            self.inventory.vms[index].objectives.push(*objective);
            (self.checks).promises_changed(&self.engine, &self.inventory.vms);
        }
        Ok(())
    }

    /// Removes a random VM, which may be removed already, and schedules a new one after
    /// `until_new`. Does nothing in a run that has [`DISKS_MAX`] disks: each new VM brings more.
    pub(super) fn remove_random_vm(&mut self, until_new: Nanos) -> Verdict {
        if self.inventory.disks.len() >= DISKS_MAX {
            return Ok(());
        }
        let index = self.faults.rng.index(self.inventory.vms.len());
        self.schedule.plan(self.now + until_new, Event::NewVm);
        self.remove_vm(index)
    }

    /// Removes a VM with its disks and connections, and checks that the engine does so exactly if
    /// the VM exists.
    pub(super) fn remove_vm(&mut self, index: usize) -> Verdict {
        let vm = self.inventory.vms[index].id;
        let live = self.checks.ledger.is_live(vm);
        // The engine forgets the VM's charges with the VM, so this is the last time to check them;
        // answers that were not yet taken are part of them.
        if live {
            self.process_completions()?;
            self.checks.charges_of(&self.engine, vm)?;
        }
        self.record(EventKind::VmRemoved, [vm.index() as u64, 0, 0, 0, 0]);
        let clock = self.faults.clock(self.now);
        let removed = self.engine.vms_mut().remove_vm(clock, vm);
        ensure!(
            Refusals,
            removed.is_ok() == live,
            "remove_vm of {vm:?} returned {removed:?}; the VM exists: {live}"
        );
        if !live {
            return Ok(());
        }
        self.checks.ledger.vm_removed(vm);
        // No client reads the replies any more, and they would hold payload memory.
        self.drop_replies(Some(vm))?;
        self.checks.vm_removed(&self.engine, vm);
        self.inventory.disconnect_vm(index);
        self.process_transfer_ends()
    }
}
