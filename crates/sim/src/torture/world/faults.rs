//! Faults of a torture run, at intervals or by chance.

use super::schedule::Event;
use super::{EventKind, TortureWorld};
use crate::checker::Verdict;
use crate::fault::{Kind, Plan};
use crate::torture::TortureRng;
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;

/// Source of faults, by the run's plan.
pub(super) struct Faults {
    plan: Plan,
    pub(super) rng: TortureRng,
    /// Faults that struck.
    struck: u64,
}

impl Faults {
    /// Faults of a plan.
    pub(super) fn new(plan: Plan, rng: TortureRng) -> Faults {
        Faults {
            plan,
            rng,
            struck: 0,
        }
    }

    /// Draws if a fault that comes by chance strikes now.
    pub(super) fn strikes(&mut self, kind: Kind) -> bool {
        let strikes = self.plan.strikes(kind, &mut self.rng);
        self.struck += u64::from(strikes);
        strikes
    }

    /// Counts a fault that comes at intervals and returns its length.
    fn strike(&mut self) -> Nanos {
        self.struck += 1;
        self.how_long()
    }

    /// Draws the time to the next fault of a kind that comes at intervals; `None` if it never
    /// comes.
    fn next(&mut self, kind: Kind) -> Option<Nanos> {
        self.plan.next(kind, &mut self.rng)
    }

    /// Draws the length of a stall, an absence or a lateness.
    pub(super) fn how_long(&mut self) -> Nanos {
        self.plan.how_long(&mut self.rng)
    }

    /// Draws the lateness by a fault of this kind, which comes by chance; zero if it does not
    /// strike.
    pub(super) fn lateness(&mut self, kind: Kind) -> Nanos {
        if self.strikes(kind) {
            return self.how_long();
        }
        Nanos::ZERO
    }

    /// Reading of the driver's clock at `now`.
    pub(super) fn clock(&mut self, now: Nanos) -> Nanos {
        // `Nanos` stops at 0.
        now - self.lateness(Kind::ClockBack)
    }

    /// Ends all faults.
    fn stop(&mut self) {
        self.plan = Plan::none();
    }

    /// Number of faults that struck.
    pub(super) fn struck(&self) -> u64 {
        self.struck
    }
}

impl TortureWorld<'_, '_> {
    pub(super) fn begin_faults(&mut self) {
        for kind in Kind::ALL {
            self.schedule_fault(kind);
        }
        self.schedule_hung_check();
    }

    fn schedule_fault(&mut self, kind: Kind) {
        if let Some(wait) = self.faults.next(kind) {
            self.schedule.plan(self.now + wait, Event::Fault(kind));
        }
    }

    /// Ends all faults and new requests.
    pub(super) fn stop_faults(&mut self) {
        self.running = false;
        self.faults.stop();
        // Events that a fault has delayed happen now.
        self.device.blocked_until = Nanos::ZERO;
        self.device.slow_until = Nanos::ZERO;
        self.hung.stop();
        self.schedule.be_in_time();
    }

    pub(super) fn fault(&mut self, kind: Kind) -> Verdict {
        if !self.running {
            return Ok(());
        }
        let long = self.faults.strike();
        self.record(EventKind::Fault, [kind as u64, long.0, 0, 0, 0]);
        match kind {
            Kind::Slow => {
                self.device.slow_until = self.now + long;
                self.device.slowness = self.faults.rng.octaves(2, 64);
            }
            Kind::Stall | Kind::Stuck => {
                self.device.blocked_until = self.now + long;
                self.device.trickles = match kind {
                    // Completions due after a stall are spread over a quarter of it; after `Stuck`
                    // all come at once.
                    Kind::Stall => Nanos(long.0 / 4),
                    _ => Nanos::ZERO,
                };
            }
            Kind::Vanish => self.vanish_one(long)?,
            Kind::Storm => self.vanish_all(long)?,
            Kind::Deaf => {
                let client = self.faults.rng.index(self.inventory.clients.len());
                self.inventory.clients[client].reads_again_at = self.now + long;
                // The client takes the answers that have come when it recovers.
                self.schedule
                    .plan(self.now + long, Event::SubmitRequest(client as u32));
            }
            Kind::ClockStall => self.now += long,
            Kind::Swap => self.swap(),
            Kind::Objective => {
                self.change_objective()?;
                self.change_disk_limit()?;
            }
            Kind::VmChurn => self.remove_random_vm(long)?,
            Kind::DiskChurn => self.add_random_disk()?,
            Kind::PowerCut => self.inventory.cut_power(&self.checks.ledger)?,
            Kind::DiskRemoved => self.remove_random_disk()?,
            Kind::DiskResized => self.resize_random_disk()?,
            Kind::DiskHung => {
                let disks = self.inventory.disks.len();
                self.hung.hang_one(self.now, long, disks);
            }
            Kind::Error
            | Kind::Short
            | Kind::Late
            | Kind::Duplicate
            | Kind::Nonsense
            | Kind::ClockBack
            | Kind::LateTimeout => {}
        }
        // Planned one at a time, so that a stop needs no list of events.
        self.schedule_fault(kind);
        Ok(())
    }

    fn vanish_one(&mut self, long: Nanos) -> Verdict {
        let client = self.faults.rng.index(self.inventory.clients.len());
        self.vanish(client);
        self.schedule
            .plan(self.now + long, Event::Reconnect(client as u32));
        Ok(())
    }

    fn vanish_all(&mut self, long: Nanos) -> Verdict {
        for client in 0..self.inventory.clients.len() {
            self.vanish(client);
            self.schedule
                .plan(self.now + long, Event::Reconnect(client as u32));
        }
        Ok(())
    }

    fn swap(&mut self) {
        let policy = self.swarm.another_policy(&mut self.draws.policies);
        let (controller, regulator, dispatcher) = policy.parts();
        let names = [controller.unwrap_or_default(), regulator, dispatcher];
        self.journal
            .record_named(self.now, EventKind::Swap, [0; 5], names);
        // Charges by different profiles have no common bound; new roles have charged nothing yet.
        if self.draws.profiles.chance(300) {
            self.engine
                .device_mut()
                .set_profile(crate::torture::swarm::profile(&mut self.draws.profiles));
        }
        let clock = self.faults.clock(self.now);
        // Before the engine builds the roles, which the checker wraps.
        self.checks.credits.announce(&policy);
        self.engine.set_policy(clock, &policy);
        (self.checks).promises_changed(&self.engine, &self.inventory.vms);
    }

    fn change_objective(&mut self) -> Verdict {
        let guest = self.faults.rng.index(self.inventory.vms.len());
        let objective = self.swarm.objective(&mut self.draws.fresh);
        self.set_objective(guest, &objective)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_that_strike_are_counted_until_they_stop() {
        let draw = |seed| {
            Plan::draw(
                &mut TortureRng::new(seed, 0),
                &mut TortureRng::new(seed, 1),
                Nanos::SECOND,
            )
        };
        let plan = (0..100).map(draw).find(|plan| {
            let rate = plan.rate(Kind::ClockBack);
            matches!(rate, crate::fault::Rate::PerMille(100..))
        });
        let plan = plan.expect("one of a hundred turns the clock back often");
        let mut faults = Faults::new(plan, TortureRng::new(1, 5));
        let now = Nanos(1 << 40);
        let back = (0..1000).filter(|_| faults.clock(now) < now).count() as u64;
        assert!(back > 50, "{back}");
        assert_eq!(faults.struck(), back);
        assert!(faults.strike() > Nanos::ZERO);
        faults.stop();
        assert_eq!((faults.clock(now), faults.struck()), (now, back + 1));
    }
}
