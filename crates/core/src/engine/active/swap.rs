//! Hand-over from one policy to another under load.

use super::fan_out::FanOut;
use super::{ActivePolicy, check_roles};
use crate::policy::Policy;
use crate::roles::{Consumed, Event, Roles, Stage};
use crate::view::View;
use tidegate_base::request::{DeviceIo, Lane, VmId};

impl ActivePolicy {
    /// Collects the debts of VMs under their limits, and keeps them for the policy after the next,
    /// too.
    pub(in crate::engine) fn settle_consumed(
        &mut self,
        view: &View,
        vms: &[VmId],
    ) -> Vec<Consumed> {
        let all: Vec<Consumed> = vms.iter().map(|&vm| self.consumed(view, vm)).collect();
        for (&vm, consumed) in vms.iter().zip(&all) {
            self.spent_before.adopt(view.queues.now, vm, consumed);
        }
        all
    }

    /// Returns the debts of a VM under its limits.
    pub(in crate::engine) fn consumed(&self, view: &View, vm: VmId) -> Consumed {
        // At most one role keeps limits; without one the debts of an earlier policy still hold.
        let of_regulator = self.roles.regulator.consumed(view, vm);
        let of_policy = of_regulator.or(self.roles.dispatcher.consumed(view, vm));
        of_policy.or(self.spent_before.consumed(view.queues.now, vm).debts())
    }

    /// Has a VM owe what it owed elsewhere, in this policy and in those that follow.
    pub(in crate::engine) fn adopt(&mut self, view: &View, vm: VmId, consumed: &Consumed) {
        self.spent_before.adopt(view.queues.now, vm, consumed);
        self.roles.regulator.adopt(view, vm, consumed);
        self.roles.dispatcher.adopt(view, vm, consumed);
    }

    /// Puts another policy in force, for `slots` VM slots. The caller opens and creates gates, and
    /// tells the new roles what there is.
    ///
    /// # Panics
    /// If a role of the policy that goes has answered otherwise than when it came what must never
    /// change, and for new roles as [`check_roles`].
    pub(in crate::engine) fn swap(&mut self, policy: &dyn Policy, roles: Roles, slots: usize) {
        self.fan_out.assert_unchanged(&self.roles);
        assert_eq!(
            self.roles.regulator.stage(),
            self.stage,
            "the regulator of {} gates elsewhere than when it came",
            self.policy.name()
        );
        // Requests of roles to the engine would be lost with the fan-out.
        assert!(
            self.fan_out.is_settled(),
            "{} is replaced while it is told of an event",
            self.policy.name()
        );
        check_roles(policy, &roles);
        self.policy = policy.to_shared();
        self.roles = match &self.wrap {
            Some(wrap) => wrap(roles),
            None => roles,
        };
        self.fan_out = FanOut::new(&self.roles, slots);
        self.stage = self.roles.regulator.stage();
    }

    /// Tells the roles of a new policy of everything that exists: VMs, their debts under limits,
    /// I/Os in flight, waiting units, deadline transfers.
    pub(in crate::engine) fn take_over(
        &mut self,
        view: &mut View,
        vms: &[VmId],
        consumed: &[Consumed],
        in_flight: &[DeviceIo],
    ) {
        // `zip` would leave out VMs, which the new policy then never serves.
        assert_eq!(vms.len(), consumed.len(), "debts of each VM");
        // A timer of the former policy's gates would ask the new regulator.
        assert!(
            self.gates.peek().is_none(),
            "{} takes over with gates of the policy before it",
            self.policy.name()
        );
        // Allocations of the former controller mean nothing to the new roles.
        view.allocations.fill(0);
        view.queues
            .set_all_waiting(self.stage == Stage::Admission, vms);
        if view.profile.is_some() {
            self.emit(view, &Event::ProfileChanged);
        }
        if view.learnt.is_some() {
            self.emit(view, &Event::CostsLearnt);
        }
        // Units admitted now would be inserted twice: the index is built below from all admitted
        // units.
        self.fan_out.asking = true;
        for (&vm, consumed) in vms.iter().zip(consumed) {
            self.bound_by_regulator(view, vm.index());
            self.emit(view, &Event::VmAdded(vm));
            self.roles.regulator.adopt(view, vm, consumed);
            self.roles.dispatcher.adopt(view, vm, consumed);
        }
        for io in in_flight {
            self.emit(view, &Event::Inherited(io));
        }
        // In the order of arrival, in which a dispatcher gets units otherwise, too.
        for unit in view.queues.reqs.admitted_in_order() {
            self.roles.dispatcher.insert(view, unit);
        }
        self.fan_out.asking = false;
        for vm in vms {
            for lane in Lane::ALL {
                self.ask_gate(view, vm.index, lane);
            }
        }
        // Requests for reopening were only collected while `asking` was set.
        self.ask_reopened(view);
        self.announce_running_transfers(view);
    }
}
