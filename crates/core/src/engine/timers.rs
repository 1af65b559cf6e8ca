//! Timers: the time at which the engine wants to be called, and the work that is due then.

use super::{Engine, disk_limits};
use crate::roles::Event;
use crate::view::View;
use tidegate_base::request::Lane;
use tidegate_base::time::Nanos;

impl Engine {
    /// Returns the time at which [`Engine::handle_timeout`] and [`Engine::poll_dispatch`] are to be
    /// called next, if nothing else happens before; `None`: never.
    pub fn next_timeout(&self) -> Option<Nanos> {
        let mut next = self.active.next_timer(&self.view);
        // With a full device the dispatcher cannot start anything; the next completion asks it.
        if self.view.queues.device.in_flight < self.config.device.depth {
            next = next.min(self.view.pick_at);
        }
        (next != Nanos::MAX).then_some(next)
    }

    /// Handles all timers that are due at `now`. Calls that are early or late are harmless:
    /// [`Engine::poll_dispatch`] calls this itself when a timer is overdue.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.view.queues.advance(now);
        let now = self.view.queues.now;
        // First, because they arrive for the roles, whose timers may be due by that.
        if has_come(self.view.timers.release_at(), now) {
            disk_limits::release_due(self);
        }
        // A late call may have passed several intervals; each one ends by itself.
        while has_come(self.active.regulator_timer(), now) {
            let ended = self
                .active
                .roles
                .regulator
                .on_timer(&self.view, &mut self.active.fan_out.reopened);
            // The controller hears of the end first, so that the new interval begins with its
            // settings.
            match ended {
                Some(interval) => self
                    .active
                    .emit(&mut self.view, &Event::IntervalEnded(interval)),
                None => break,
            }
        }
        self.active.ask_reopened(&mut self.view);
        // Before the controller's own timer, which may use what was measured.
        if has_come(self.view.timers.measure_at(), now) {
            self.active.measure_transfers(&mut self.view);
        }
        let due = self.active.controller_timer();
        if has_come(due, now)
            && let Some(controller) = &mut self.active.roles.controller
        {
            let time_use = self.active.roles.dispatcher.device_time_use(&self.view);
            self.view.queues.device.time_use = time_use;
            controller.on_timer(&self.view, &mut self.active.fan_out.knobs);
            debug_assert!(
                controller.next_timer() > due || due == Nanos::MAX,
                "the controller's timer of {due:?} is due again after it has run"
            );
            self.active.follow_up(&mut self.view);
        }
        while let Some((due, lane)) = self.active.gates.peek() {
            // Asking a gate sets its timer anew if it is still shut, so removing it first is safe.
            if due > now {
                break;
            }
            self.active.gates.remove(lane);
            self.active
                // Timers are numbered by VM slot times two lanes, plus the lane.
                .ask_gate(&mut self.view, (lane / 2) as u32, Lane::ALL[lane % 2]);
        }
    }
}

/// Checks in debug builds that a role which holds units back until `due` names a time to come: its
/// timer would be due again as soon as it was handled, without end. `what`: what is held back.
#[inline(always)]
pub(super) fn debug_assert_to_come(view: &View, due: Nanos, what: &str) {
    debug_assert!(
        due > view.now() || due == Nanos::MAX,
        "{what} waits until {due:?}, and it is {:?} already",
        view.now()
    );
}

/// Returns whether a timer is due. [`Nanos::MAX`] never is, even if the clock has come that far.
fn has_come(due: Nanos, now: Nanos) -> bool {
    due <= now && due != Nanos::MAX
}
