//! When the engine wants to be woken, and what it then does.

use super::Engine;
use crate::roles::Event;
use tidegate_base::request::Lane;
use tidegate_base::time::Nanos;

impl Engine {
    /// When [`Engine::handle_timeout`] and [`Engine::poll_dispatch`] want to be called next,
    /// if nothing else happens before.
    pub fn next_timeout(&self) -> Option<Nanos> {
        let mut next = self.active.next_timer(&self.facts);
        if self.facts.queues.device.in_flight < self.config.device.depth {
            next = next.min(self.facts.pick_at);
        }
        (next != Nanos::MAX).then_some(next)
    }

    /// Time has come to [`Engine::next_timeout`]. Calling it early or late is harmless:
    /// what is due is done, and [`Engine::poll_dispatch`] does it itself when it is late.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.facts.queues.advance(now);
        let now = self.facts.queues.now;
        while has_come(self.active.regulator_timer(), now) {
            let ended = self
                .active
                .roles
                .regulator
                .on_timer(&self.facts, &mut self.active.fan_out.reopened);
            // First the controller, so that the new interval begins with what it says.
            match ended {
                Some(interval) => self
                    .active
                    .emit(&mut self.facts, &Event::IntervalEnded(interval)),
                None => break,
            }
        }
        self.active.ask_reopened(&mut self.facts);
        if has_come(self.facts.measure_at, now) {
            self.active.measure_jobs(&mut self.facts);
        }
        if has_come(self.active.controller_timer(), now)
            && let Some(controller) = &mut self.active.roles.controller
        {
            controller.on_timer(&self.facts, &mut self.active.fan_out.knobs);
            self.active.follow_up(&mut self.facts);
        }
        while let Some((due, lane)) = self.active.gates.peek() {
            if due > now {
                break;
            }
            self.active.gates.remove(lane);
            self.active
                .ask_gate(&mut self.facts, (lane / 2) as u32, Lane::ALL[lane % 2]);
        }
    }
}

/// Whether a timer is due. [`Nanos::MAX`] is never, also to a clock that has come that far.
fn has_come(due: Nanos, now: Nanos) -> bool {
    due <= now && due != Nanos::MAX
}
