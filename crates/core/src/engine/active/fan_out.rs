//! Event fan-out: telling roles what happened, and collecting what they ask for in turn.

use crate::roles::Roles;
use crate::roles::{Event, Interests, Knobs, Reopened};
use crate::view::View;

/// Event subscriptions of the roles, and the requests that roles made while they handled events.
pub(in crate::engine) struct FanOut {
    pub(in crate::engine) regulator: Interests,
    pub(in crate::engine) dispatcher: Interests,
    pub(in crate::engine) controller: Interests,
    /// Union of the above: an event outside it need not be built.
    pub(in crate::engine) any: Interests,
    /// Regulator or controller has timers of its own.
    pub(in crate::engine) timers: bool,
    /// See [`Dispatcher::by_lane`](crate::roles::Dispatcher::by_lane).
    pub(in crate::engine) by_lane: bool,
    /// See [`Dispatcher::depth`](crate::roles::Dispatcher::depth).
    pub(in crate::engine) depth: u32,
    /// See [`Controller::allocates`](crate::roles::Controller::allocates): a request's parts are
    /// charged apart.
    pub(in crate::engine) allocates: bool,
    /// VMs whose gates are to be asked again.
    pub(in crate::engine) reopened: Reopened,
    /// The gates of `reopened` are being asked: guards against recursion.
    pub(in crate::engine) asking: bool,
    /// Settings of the controller that are not applied yet.
    pub(in crate::engine) knobs: Knobs,
}

impl FanOut {
    /// Creates the fan-out of these roles. `vms`: number of VM slots, all of which may be reopened
    /// at once.
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
            any: regulator.union(dispatcher).union(controller),
            timers: regulator.has(Interests::TIMERS)
                || roles.controller.as_ref().is_some_and(|c| c.has_timer()),
            by_lane: roles.dispatcher.by_lane(),
            depth: roles.dispatcher.depth(),
            allocates: roles.controller.as_ref().is_some_and(|c| c.allocates()),
            // Room in advance, so that events on the request path allocate nothing.
            reopened: Reopened(Vec::with_capacity(vms.max(64))),
            asking: false,
            knobs: Knobs::with_room(vms.max(64)),
        }
    }

    /// Makes room for the requests of `vms` VMs.
    pub(in crate::engine) fn reserve(&mut self, vms: usize) {
        self.reopened.0.reserve(vms);
        self.knobs.of_vms.reserve(vms);
    }

    /// Returns whether no role asks for anything that was not carried out.
    pub(in crate::engine) fn is_settled(&self) -> bool {
        self.reopened.0.is_empty() && !self.knobs.is_pending && !self.asking
    }

    /// Checks that the roles answer as they did when the fan-out was created.
    ///
    /// # Panics
    /// If one of them has changed what must never change: it has missed events, or an index was
    /// kept as it is no longer read.
    pub(in crate::engine) fn assert_unchanged(&self, roles: &Roles) {
        let now = FanOut::new(roles, 0);
        assert_eq!(
            [now.regulator, now.dispatcher, now.controller],
            [self.regulator, self.dispatcher, self.controller],
            "a role hears other events than when it came"
        );
        assert_eq!(
            (now.by_lane, now.allocates),
            (self.by_lane, self.allocates),
            "the dispatcher indexes, or the controller allocates, otherwise than when it came"
        );
    }

    /// Tells an event to the roles that subscribed to it.
    /// [`ActivePolicy::follow_up`](super::ActivePolicy::follow_up) then carries out their requests.
    #[inline(always)]
    pub(in crate::engine) fn tell(&mut self, roles: &mut Roles, view: &View, event: &Event) {
        let interest = event.interest();
        if self.regulator.has(interest) {
            roles.regulator.on_event(view, event, &mut self.reopened);
        }
        if self.dispatcher.has(interest) {
            roles.dispatcher.on_event(view, event);
        }
        if self.controller.has(interest)
            && let Some(controller) = &mut roles.controller
        {
            controller.on_event(view, event, &mut self.knobs);
        }
    }
}
