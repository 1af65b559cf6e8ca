//! Changes of objectives, and removal of VMs.

use super::inventory::MANY_DISKS;
use super::schedule::Event;
use super::vms::in_short;
use super::{TortureWorld, What};
use crate::checker::{Verdict, ensure};
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;

impl TortureWorld<'_, '_> {
    pub(super) fn set_objective(&mut self, guest: usize, objective: &Objective) -> Verdict {
        let vm = self.inventory.vms[guest].id;
        let live = self.checks.ledger.is_live(vm);
        self.write(What::Objective, in_short(vm, objective));
        let clock = self.faults.clock(self.now);
        let set = self.engine.vms_mut().set_objective(clock, vm, objective);
        ensure!(
            Refusals,
            set.is_ok() == live,
            "an objective for {vm:?}: {set:?}, though its being there is {live}"
        );
        if live {
            self.inventory.vms[guest].objectives.push(*objective);
            (self.checks).promises_changed(&self.engine, &self.inventory.vms);
        }
        Ok(())
    }

    pub(super) fn remove_a_vm(&mut self, long: Nanos) -> Verdict {
        if self.inventory.disks.len() >= MANY_DISKS {
            return Ok(());
        }
        let guest = self.faults.rng.index(self.inventory.vms.len());
        self.schedule.plan(self.now + long, Event::NewVm);
        self.remove_vm(guest)
    }

    pub(super) fn remove_vm(&mut self, guest: usize) -> Verdict {
        let vm = self.inventory.vms[guest].id;
        let live = self.checks.ledger.is_live(vm);
        if live {
            self.take_answers()?;
            self.checks.charges_of(&self.engine, vm)?;
        }
        self.write(What::VmRemoved, [vm.index() as u64, 0, 0, 0, 0]);
        let clock = self.faults.clock(self.now);
        let removed = self.engine.vms_mut().remove_vm(clock, vm);
        ensure!(
            Refusals,
            removed.is_ok() == live,
            "{vm:?} was removed: {removed:?}, though its being there is {live}"
        );
        if !live {
            return Ok(());
        }
        self.checks.ledger.vm_removed(vm);
        self.give_up_replies(Some(vm))?;
        self.checks.vm_removed(&self.engine, vm);
        self.inventory.vm_left(guest);
        self.hear_of_transfers()
    }
}
