//! Removal of VMs and change of policy at run time; clients are in `disks`.

use super::transfer_accounts;
use super::{Engine, EngineError};
use crate::policy::Policy;
use crate::roles::Event;
use crate::roles::Roles;
use crate::view::{Life, Vm};
use tidegate_base::request::{DeviceIo, VmId};
use tidegate_base::time::Nanos;

impl Engine {
    /// Frees the slots of a removed VM whose last request is answered.
    pub(super) fn vm_left(&mut self, vm: u32) {
        let id = self.view.vm_at(vm as usize);
        let leaving = &self.view.queues.vms[vm as usize];
        // The slot's next VM would be charged for them.
        assert!(
            leaving.requests == 0 && leaving.in_flight == 0 && leaving.waiting == 0,
            "VM slot {vm} is freed with requests inside"
        );
        self.active.set_lacks_memory(&mut self.view, vm, false);
        self.active.spent_before.remove(id);
        self.active.emit(&mut self.view, &Event::VmRemoved(id));
        transfer_accounts::expect_no_transfers(&mut self.view, id);
        for slot in self.directory.disks_of(vm) {
            self.directory.remove_disk(slot);
        }
        self.budgets.remove(vm as usize);
        self.interference.remove(vm);
        self.budgets.feed_reads(&mut self.view, &mut self.active);
        let vacated = &mut self.view.queues.vms[vm as usize];
        vacated.life = Life::Free;
        vacated.generation = vacated.generation.wrapping_add(1);
        self.free_vm.push(vm);
        // Histograms are most of a VM's memory: after a peak of VMs the unused ones are freed.
        let there = |of_vm: &Vm| of_vm.life != Life::Free;
        let needed = self
            .view
            .queues
            .vms
            .iter()
            .rposition(there)
            .map_or(0, |i| i + 1);
        self.view.ledgers.truncate(needed);
    }

    /// Changes the policy under load: all waiting units go into the new one in the order of
    /// arrival, I/Os in flight are announced to it, and debts under limits stay.
    pub fn set_policy(&mut self, now: Nanos, policy: &dyn Policy) {
        self.view.queues.advance(now);
        let Engine { active, view, .. } = self;
        // Shelved and parked units first: the new index is built from what is in the lanes.
        active.unshelve_all(view);
        let parked = self.hung.as_mut().map(|hung| hung.take_parked(|_| true));
        for of_disk in parked.unwrap_or_default() {
            active.unpark(view, of_disk);
        }
        let vms: Vec<VmId> = view.queues.present().collect();
        // Before gates open: debts are read from the roles that are about to go.
        let consumed = active.settle_consumed(view, &vms);
        active.open_all_gates(view, &vms);
        view.queues.device.deliberate = view.queues.deliberate_time();
        view.queues.waiting_since = None;
        view.pick_at = Nanos::MAX;
        let (max_vms, max_requests) = (self.config.max_vms, self.config.max_requests);
        let roles = if vms.iter().any(|&vm| view.is_background(vm)) {
            policy.build_with_background(max_vms, max_requests)
        } else {
            policy.build(max_vms, max_requests)
        };
        active.swap(policy, roles, view.queues.vms.len());
        self.control
            .estimate_costs(&mut self.view, &self.active.roles);
        self.active.make_gates(max_vms);
        // To roles, uncounted I/Os of hung disks have ended.
        let counted = self.in_flight.iter().filter(|flight| flight.is_counted());
        let in_flight: Vec<DeviceIo> = counted.map(|flight| flight.io).collect();
        self.active
            .take_over(&mut self.view, &vms, &consumed, &in_flight);
    }

    /// Wraps the roles of the policy in force, now and after every change of policy: for a checker
    /// that watches them, or a part that is kept outside this crate.
    pub fn wrap_roles(&mut self, now: Nanos, wrap: impl Fn(Roles) -> Roles + Send + 'static) {
        self.active.wrap = Some(Box::new(wrap));
        let policy = self.active.policy.clone();
        self.set_policy(now, &*policy);
    }

    /// Checks that a handle is of a live VM.
    pub(super) fn check_vm(&self, vm: VmId) -> Result<(), EngineError> {
        if self.view.queues.knows(vm) {
            Ok(())
        } else {
            Err(EngineError::Unknown { what: "the VM" })
        }
    }
}
