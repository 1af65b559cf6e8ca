//! The policy in force: its roles, what they hear, the gates they shut, and the units they order.

mod fan_out;
mod gates;
mod memory;
mod swap;
mod transfers;
mod units;

pub(super) use units::IoStarted;

use crate::limit_accounts::LimitAccounts;
use crate::policy::Policy;
use crate::roles::{Event, Interests, Knob, Roles, Stage};
use crate::view::View;
use fan_out::FanOut;
use std::sync::Arc;
use tidegate_base::heap::IndexedHeap;
use tidegate_base::request::{DeviceIo, Lane, VmId};
use tidegate_base::time::Nanos;

/// Function that wraps the roles of a policy, such as in a checker.
pub(in crate::engine) type WrapRoles = Box<dyn Fn(Roles) -> Roles + Send>;

/// Policy in force, with all state that lasts as long as the policy.
pub(in crate::engine) struct ActivePolicy {
    pub policy: Arc<dyn Policy>,
    pub roles: Roles,
    pub fan_out: FanOut,
    pub stage: Stage,
    /// Times at which shut gates are to be asked again, by lane (dispatch) or VM's first lane
    /// (admission). Without room while the regulator holds nothing back.
    pub gates: IndexedHeap<Nanos>,
    /// Debts under limits from the time before a policy that enforces none, for the next one that
    /// does. Nothing is charged here.
    pub spent_before: LimitAccounts,
    /// Wrapper of every policy's roles; see [`super::Engine::wrap_roles`].
    pub wrap: Option<WrapRoles>,
}

/// Checks that the roles of a policy answer within the ranges that their traits state.
///
/// # Panics
/// If the dispatcher lets no I/O be in flight, so that requests wait for ever, or the regulator
/// wants I/Os filled beyond their limit, so that a request is cut for each of them.
fn check_roles(policy: &dyn Policy, roles: &Roles) {
    assert!(
        roles.dispatcher.depth() > 0,
        "the dispatcher of {} lets no I/O be in flight",
        policy.name()
    );
    let fill = roles.regulator.fill();
    assert!(
        fill <= 100,
        "the regulator of {} wants I/Os filled to {fill} per cent",
        policy.name()
    );
}

impl ActivePolicy {
    /// Puts a policy in force whose roles are new; gates have no timers before
    /// [`ActivePolicy::make_gates`].
    ///
    /// # Panics
    /// As [`check_roles`].
    pub(super) fn new(policy: &dyn Policy, roles: Roles) -> ActivePolicy {
        check_roles(policy, &roles);
        ActivePolicy {
            policy: policy.to_shared(),
            fan_out: FanOut::new(&roles, 0),
            stage: roles.regulator.stage(),
            roles,
            gates: IndexedHeap::with_capacity(0),
            spent_before: LimitAccounts::default(),
            wrap: None,
        }
    }

    /// Tells an event to the roles, and carries out what they ask for in turn.
    pub(super) fn emit(&mut self, view: &mut View, event: &Event) {
        self.fan_out.tell(&mut self.roles, view, event);
        self.follow_up(view);
    }

    /// Carries out what roles asked for while they were told of an event: mostly nothing.
    #[inline]
    pub(super) fn follow_up(&mut self, view: &mut View) {
        if self.fan_out.knobs.is_pending || !self.fan_out.reopened.0.is_empty() {
            self.apply_knobs(view);
            self.ask_reopened(view);
        }
    }

    /// Applies the controller's settings to queues, regulator and dispatcher.
    pub(super) fn apply_knobs(&mut self, view: &mut View) {
        self.fan_out.knobs.is_pending = false;
        if let Some(rate_ppm) = self.fan_out.knobs.device_time.take() {
            self.roles.dispatcher.bound_device_time(view, rate_ppm);
        }
        while let Some((vm, knob)) = self.fan_out.knobs.of_vms.pop() {
            match knob {
                Knob::MergeLimit(u32::MAX) => self.bound_by_regulator(view, vm.index()),
                Knob::MergeLimit(bytes) => view.queues.bound_ios(vm.index(), bytes),
                Knob::Class(_) => self.class_changed(view, vm),
                _ => {}
            }
            if let Knob::Allocation(allocation) = knob {
                view.allocations[vm.index()] = allocation;
            }
            self.roles.regulator.set(view, vm, knob);
            self.roles.dispatcher.set(view, vm, knob);
            if let Knob::Throttle(_) = knob {
                // Another throttle may let a gate open, or shut, at another time.
                self.fan_out.reopened.push(vm);
            }
        }
    }

    /// Asks the gates of all VMs that a role reopened.
    pub(super) fn ask_reopened(&mut self, view: &mut View) {
        // Admitting a unit is an event, after which this function runs again: a recursion as deep
        // as the number of reopened VMs would overflow the stack.
        if core::mem::replace(&mut self.fan_out.asking, true) {
            return;
        }
        while let Some(vm) = self.fan_out.reopened.0.pop() {
            for lane in Lane::ALL {
                self.ask_gate(view, vm.index, lane);
            }
        }
        self.fan_out.asking = false;
    }

    /// Returns whether any role subscribed to such events; saves building events that none did.
    pub(super) fn hears(&self, interest: Interests) -> bool {
        self.fan_out.any.has(interest)
    }

    #[inline]
    pub(super) fn emit_started(&mut self, view: &mut View, io: &DeviceIo) {
        let event = Event::Started(io);
        self.fan_out.tell(&mut self.roles, view, &event);
        self.follow_up(view);
    }

    /// Earliest timer of gates, measurements and roles; [`Nanos::MAX`]: none.
    #[inline]
    pub(super) fn next_timer(&self, view: &View) -> Nanos {
        let gate = self.gates.peek().map_or(Nanos::MAX, |(due, _)| due);
        let gate = gate.min(view.timers.next());
        if !self.fan_out.timers {
            return gate;
        }
        gate.min(self.regulator_timer())
            .min(self.controller_timer())
    }

    pub(super) fn regulator_timer(&self) -> Nanos {
        if !self.fan_out.regulator.has(Interests::TIMERS) {
            return Nanos::MAX;
        }
        self.roles.regulator.next_timer()
    }

    pub(super) fn controller_timer(&self) -> Nanos {
        self.roles
            .controller
            .as_ref()
            .map_or(Nanos::MAX, |c| c.next_timer())
    }

    /// Sets the size to which a VM's requests are merged to the regulator's default, which holds
    /// for VMs that no controller tunes; background processes are not bounded.
    pub(super) fn bound_by_regulator(&mut self, view: &mut View, slot: usize) {
        let bytes = if view.queues.vms[slot].background {
            u32::MAX
        } else {
            self.roles.regulator.merge_limit()
        };
        view.queues.bound_ios(slot, bytes);
    }

    /// Updates the engine's own accounts of limits to a VM's objective: the policy in force may
    /// enforce no limits.
    pub(super) fn tell_limits(&mut self, view: &mut View, vm: VmId) {
        let objective = &view.objectives[vm.index()];
        self.spent_before.set(view.queues.now, vm, objective);
    }
}
