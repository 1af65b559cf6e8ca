//! Telling roles what happened, and doing what they ask for in turn.

use super::Engine;
use crate::facts::Facts;
use crate::roles::Roles;
use crate::roles::{Event, Interests, Knob, Knobs, PeerShare, Reopened};
use tidegate_base::request::Lane;
use tidegate_base::time::Nanos;

/// Which roles hear of what, and what they asked for while they were told.
pub(super) struct Ears {
    pub(super) regulator: Interests,
    pub(super) dispatcher: Interests,
    pub(super) controller: Interests,
    pub(super) any: Interests,
    /// Regulator or controller have timers of their own.
    pub(super) timers: bool,
    /// See [`Dispatcher::by_lane`](crate::roles::Dispatcher::by_lane).
    pub(super) by_lane: bool,
    /// See [`Controller::allocates`](crate::roles::Controller::allocates): a request's parts are charged
    /// apart.
    pub(super) allocates: bool,
    pub(super) reopened: Reopened,
    /// The gates of those are being asked.
    pub(super) asking: bool,
    pub(super) knobs: Knobs,
}

impl Ears {
    /// `vms`: how many slots of VMs there are. All of them may be reopened at once.
    pub(super) fn new(roles: &Roles, vms: usize) -> Ears {
        let regulator = roles.regulator.interests();
        let dispatcher = roles.dispatcher.interests();
        let controller = roles
            .controller
            .as_ref()
            .map_or(Interests::NONE, |c| c.interests());
        Ears {
            regulator,
            dispatcher,
            controller,
            any: regulator.and(dispatcher).and(controller),
            timers: regulator.has(Interests::TIMERS) || roles.controller.is_some(),
            by_lane: roles.dispatcher.by_lane(),
            allocates: roles.controller.as_ref().is_some_and(|c| c.allocates()),
            reopened: Reopened(Vec::with_capacity(vms.max(64))),
            asking: false,
            knobs: Knobs(Vec::with_capacity(vms.max(64))),
        }
    }

    /// Room for every VM among so many.
    pub(super) fn reserve(&mut self, vms: usize) {
        self.reopened.0.reserve(vms);
        self.knobs.0.reserve(vms);
    }

    /// Tells the roles that asked to hear of it. [`Engine::follow_up`] does what they ask for.
    #[inline(always)]
    pub(super) fn tell(&mut self, roles: &mut Roles, facts: &Facts, event: &Event) {
        let interest = event.interest();
        if self.regulator.has(interest) {
            roles.regulator.on_event(facts, event, &mut self.reopened);
        }
        if self.dispatcher.has(interest) {
            roles.dispatcher.on_event(facts, event);
        }
        if self.controller.has(interest)
            && let Some(controller) = &mut roles.controller
        {
            controller.on_event(facts, event, &mut self.knobs);
        }
    }
}

impl Engine {
    /// Another host that shares the device says how it is: what its [`Engine::poll_share`] returned, after
    /// however long, if it arrives at all. `host` is the same for all that it says, and nobody else's.
    pub fn handle_peer(&mut self, now: Nanos, host: u32, share: &PeerShare) {
        self.advance(now);
        self.emit(&Event::Peer { host, share });
    }

    /// What the other hosts that share the device are to be told; to be asked after every event, until
    /// `None`. Where nobody shares it, nobody need ask.
    pub fn poll_share(&mut self) -> Option<PeerShare> {
        self.roles.controller.as_mut()?.poll_share()
    }

    pub(super) fn emit(&mut self, event: &Event) {
        self.ears.tell(&mut self.roles, &self.facts, event);
        self.follow_up();
    }

    /// What roles asked for while they were told of an event: mostly nothing.
    #[inline]
    pub(super) fn follow_up(&mut self) {
        if !self.ears.knobs.0.is_empty() || !self.ears.reopened.0.is_empty() {
            self.apply_knobs();
            self.ask_reopened();
        }
    }

    pub(super) fn apply_knobs(&mut self) {
        while let Some((vm, knob)) = self.ears.knobs.0.pop() {
            match knob {
                Knob::MergeLimit(u32::MAX) => self.bound_by_regulator(vm.index()),
                Knob::MergeLimit(bytes) => self.bound_ios(vm.index(), bytes),
                Knob::Class(_) => self.class_turned(vm),
                _ => {}
            }
            if let Knob::Allocation(allocation) = knob {
                self.facts.allocations[vm.index()] = allocation;
            }
            self.roles.regulator.set(&self.facts, vm, knob);
            self.roles.dispatcher.set(&self.facts, vm, knob);
            if let Knob::Throttle(_) = knob {
                self.ears.reopened.push(vm);
            }
        }
    }

    pub(super) fn ask_reopened(&mut self) {
        // Letting a unit in is an event, after which this is called again: with as many calls
        // inside each other as VMs were reopened, the stack would not hold them.
        if core::mem::replace(&mut self.ears.asking, true) {
            return;
        }
        while let Some(vm) = self.ears.reopened.0.pop() {
            for lane in Lane::ALL {
                self.ask_gate(vm.index, lane);
            }
        }
        self.ears.asking = false;
    }
}
