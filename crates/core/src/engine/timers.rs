//! When the engine wants to be woken, and what it then does.

use super::Engine;
use crate::roles::{Event, Interests};
use tidegate_base::request::Lane;
use tidegate_base::time::Nanos;

impl Engine {
    /// When [`Engine::handle_timeout`] and [`Engine::poll_dispatch`] want to be called next,
    /// if nothing else happens before.
    pub fn next_timeout(&self) -> Option<Nanos> {
        let mut next = self.next_timer();
        if self.facts.device.in_flight < self.config.device.depth {
            next = next.min(self.pick_at);
        }
        (next != Nanos::MAX).then_some(next)
    }

    /// Time has come to [`Engine::next_timeout`]. Calling it early or late is harmless:
    /// what is due is done, and [`Engine::poll_dispatch`] does it itself when it is late.
    pub fn handle_timeout(&mut self, now: Nanos) {
        self.advance(now);
        let now = self.facts.now;
        while has_come(self.regulator_timer(), now) {
            let ended = self
                .roles
                .regulator
                .on_timer(&self.facts, &mut self.ears.reopened);
            // First the controller, so that the new interval begins with what it says.
            match ended {
                Some(interval) => self.emit(&Event::IntervalEnded(interval)),
                None => break,
            }
        }
        self.ask_reopened();
        if has_come(self.measure_at, now) {
            self.measure_jobs();
        }
        if has_come(self.controller_timer(), now)
            && let Some(controller) = &mut self.roles.controller
        {
            controller.on_timer(&self.facts, &mut self.ears.knobs);
            self.follow_up();
        }
        while let Some((due, lane)) = self.gates.peek() {
            if due > now {
                break;
            }
            self.gates.remove(lane);
            self.ask_gate((lane / 2) as u32, Lane::ALL[lane % 2]);
        }
    }

    #[inline]
    pub(super) fn next_timer(&self) -> Nanos {
        let gate = self.gates.peek().map_or(Nanos::MAX, |(due, _)| due);
        let gate = gate.min(self.measure_at);
        if !self.ears.timers {
            return gate;
        }
        gate.min(self.regulator_timer())
            .min(self.controller_timer())
    }

    fn regulator_timer(&self) -> Nanos {
        if !self.ears.regulator.has(Interests::TIMERS) {
            return Nanos::MAX;
        }
        self.roles.regulator.next_timer()
    }

    fn controller_timer(&self) -> Nanos {
        self.roles
            .controller
            .as_ref()
            .map_or(Nanos::MAX, |c| c.next_timer())
    }
}

/// Whether a timer is due. [`Nanos::MAX`] is never, also to a clock that has come that far.
fn has_come(due: Nanos, now: Nanos) -> bool {
    due <= now && due != Nanos::MAX
}
