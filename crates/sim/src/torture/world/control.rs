//! Objectives change, VMs go.

use super::guests::{MANY_DISKS, in_short};
use super::{Event, What, World};
use crate::checker::{Verdict, ensure};
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;

impl World<'_, '_> {
    pub(super) fn set_objective(&mut self, guest: usize, objective: &Objective) -> Verdict {
        let vm = self.guests[guest].id;
        let live = self.ledger.is_live(vm);
        self.write(What::Objective, in_short(vm, objective));
        let clock = self.clock();
        let set = self.engine.set_objective(clock, vm, objective);
        ensure!(
            Refusals,
            set.is_ok() == live,
            "an objective for {vm:?}: {set:?}, though its being there is {live}"
        );
        if live {
            self.guests[guest].objectives.push(*objective);
            self.promises_changed();
        }
        Ok(())
    }

    /// An objective or the policy has changed, or a VM has come.
    pub(super) fn promises_changed(&mut self) {
        let now = self.engine.view().now();
        let policy = self.engine.policy();
        let [of_vms, of_background] = [false, true].map(|of| policy.honours_for(of));
        for guest in &self.guests {
            if self.ledger.is_live(guest.id) {
                let objective = guest.objectives.last().expect("it has one");
                let honours = match self.engine.view().is_background(guest.id) {
                    true => &of_background,
                    false => &of_vms,
                };
                self.limits
                    .set(now, guest.id, objective, &**policy, honours);
            }
        }
        self.starvation.forget(&self.engine);
    }

    pub(super) fn remove_a_vm(&mut self, long: Nanos) -> Verdict {
        if self.disks.len() >= MANY_DISKS {
            return Ok(());
        }
        let guest = self.chance.index(self.guests.len());
        self.at(self.now + long, Event::NewVm);
        self.remove_vm(guest)
    }

    pub(super) fn remove_vm(&mut self, guest: usize) -> Verdict {
        let vm = self.guests[guest].id;
        let live = self.ledger.is_live(vm);
        if live {
            self.take_answers()?;
            self.charges.check(vm, self.engine.vm_stats(vm))?;
        }
        self.write(What::VmRemoved, [vm.index() as u64, 0, 0, 0, 0]);
        let clock = self.clock();
        let removed = self.engine.remove_vm(clock, vm);
        ensure!(
            Refusals,
            removed.is_ok() == live,
            "{vm:?} was removed: {removed:?}, though its being there is {live}"
        );
        if !live {
            return Ok(());
        }
        self.ledger.vm_removed(vm);
        self.give_up_replies(Some(vm))?;
        self.jobs.cancelled(self.engine.view().now(), vm);
        self.somebody_has_gone();
        self.limits.removed(vm);
        self.starvation.forget(&self.engine);
        for client in &mut self.clients {
            if self.disks[client.disk].guest == guest {
                client.leave();
            }
        }
        self.hear_of_jobs()
    }
}
