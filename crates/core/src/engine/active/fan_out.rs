//! Telling roles what happened, and doing what they ask for in turn.

use crate::facts::Facts;
use crate::roles::Roles;
use crate::roles::{Event, Interests, Knobs, Reopened};

/// Which roles hear of what, and what they asked for while they were told.
pub(in crate::engine) struct FanOut {
    pub(in crate::engine) regulator: Interests,
    pub(in crate::engine) dispatcher: Interests,
    pub(in crate::engine) controller: Interests,
    pub(in crate::engine) any: Interests,
    /// Regulator or controller have timers of their own.
    pub(in crate::engine) timers: bool,
    /// See [`Dispatcher::by_lane`](crate::roles::Dispatcher::by_lane).
    pub(in crate::engine) by_lane: bool,
    /// See [`Controller::allocates`](crate::roles::Controller::allocates): a request's parts are
    /// charged apart.
    pub(in crate::engine) allocates: bool,
    pub(in crate::engine) reopened: Reopened,
    /// The gates of those are being asked.
    pub(in crate::engine) asking: bool,
    pub(in crate::engine) knobs: Knobs,
}

impl FanOut {
    /// `vms`: how many slots of VMs there are. All of them may be reopened at once.
    pub(in crate::engine) fn new(roles: &Roles, vms: usize) -> FanOut {
        let regulator = roles.regulator.interests();
        let dispatcher = roles.dispatcher.interests();
        let controller = roles
            .controller
            .as_ref()
            .map_or(Interests::NONE, |c| c.interests());
        FanOut {
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
    pub(in crate::engine) fn reserve(&mut self, vms: usize) {
        self.reopened.0.reserve(vms);
        self.knobs.0.reserve(vms);
    }

    /// Tells the roles that asked to hear of it. [`Engine::follow_up`] does what they ask for.
    #[inline(always)]
    pub(in crate::engine) fn tell(&mut self, roles: &mut Roles, facts: &Facts, event: &Event) {
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
