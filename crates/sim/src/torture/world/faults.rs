//! Faults strike: from time to time, or by chance.

use super::{Event, What, World};
use crate::checker::Verdict;
use crate::fault::{Kind, Plan};
use tidegate_core::policy::Policy;
use tidegate_core::time::Nanos;

impl World<'_, '_> {
    pub(super) fn begin_faults(&mut self) {
        for kind in Kind::ALL {
            self.schedule(kind);
        }
        self.schedule_look();
    }

    fn schedule(&mut self, kind: Kind) {
        if let Some(wait) = self.swarm.plan.next(kind, &mut self.chance) {
            self.at(self.now + wait, Event::Fault(kind));
        }
    }

    /// Whether a fault that comes by chance comes now.
    pub(super) fn strikes(&mut self, kind: Kind) -> bool {
        let strikes = self.swarm.plan.strikes(kind, &mut self.chance);
        self.tally.faults += strikes as u64;
        strikes
    }

    /// No more faults, and nobody asks for anything new.
    pub(super) fn stop_faults(&mut self) {
        self.running = false;
        self.swarm.plan = Plan::none();
        // What a fault has put off happens now.
        self.device.blocked_until = Nanos::ZERO;
        self.device.slow_until = Nanos::ZERO;
        self.hung.stop();
        self.wake = (Nanos::MAX, Nanos::MAX);
    }

    pub(super) fn fault(&mut self, kind: Kind) -> Verdict {
        if !self.running {
            return Ok(());
        }
        self.tally.faults += 1;
        let long = self.swarm.plan.how_long(&mut self.chance);
        self.write(What::Fault, [kind as u64, long.0, 0, 0, 0]);
        match kind {
            Kind::Slow => {
                self.device.slow_until = self.now + long;
                self.device.slowness = self.chance.octaves(2, 64);
            }
            Kind::Stall | Kind::Stuck => {
                self.device.blocked_until = self.now + long;
                self.device.trickles = match kind {
                    Kind::Stall => Nanos(long.0 / 4),
                    _ => Nanos::ZERO,
                };
            }
            Kind::Vanish => self.vanish_one(long)?,
            Kind::Storm => self.vanish_all(long)?,
            Kind::Deaf => {
                let client = self.chance.index(self.clients.len());
                self.clients[client].deaf_until = self.now + long;
                // It looks at what has come, later.
                self.at(self.now + long, Event::Ask(client as u32));
            }
            Kind::ClockStall => self.now += long,
            Kind::Swap => self.swap(),
            Kind::Objective => self.change_objective()?,
            Kind::VmChurn => self.remove_a_vm(long)?,
            Kind::DiskChurn => self.add_a_disk()?,
            Kind::PowerCut => self.cut_power()?,
            Kind::DiskRemoved => self.remove_a_disk()?,
            Kind::DiskResized => self.resize_a_disk()?,
            Kind::DiskHung => self.hang_a_disk(long),
            Kind::Error
            | Kind::Short
            | Kind::Late
            | Kind::Duplicate
            | Kind::Nonsense
            | Kind::ClockBack
            | Kind::LateTimeout => {}
        }
        self.schedule(kind);
        Ok(())
    }

    fn vanish_one(&mut self, long: Nanos) -> Verdict {
        let client = self.chance.index(self.clients.len());
        self.vanish(client);
        self.at(self.now + long, Event::Back(client as u32));
        Ok(())
    }

    fn vanish_all(&mut self, long: Nanos) -> Verdict {
        for client in 0..self.clients.len() {
            self.vanish(client);
            self.at(self.now + long, Event::Back(client as u32));
        }
        Ok(())
    }

    fn swap(&mut self) {
        let policy = self.swarm.another_policy(&mut self.policies);
        let (_, regulator, dispatcher) = policy.parts();
        let names = [regulator, dispatcher];
        self.journal
            .write_named(self.now, What::Swap, [0; 5], names);
        // What was charged by one profile and what by another have no common bound, but roles that
        // begin anew have charged nothing.
        if self.profiles.chance(300) {
            self.engine
                .set_profile(crate::torture::swarm::profile(&mut self.profiles));
        }
        let clock = self.clock();
        self.credits.announce(&policy);
        self.engine.set_policy(clock, &policy);
        self.promises_changed();
    }

    fn change_objective(&mut self) -> Verdict {
        let guest = self.chance.index(self.guests.len());
        let objective = self.swarm.objective(&mut self.fresh);
        self.set_objective(guest, &objective)
    }

    /// If the power failed now: what the medium would hold must be legal, be it what is durable
    /// or what the cache has.
    pub(super) fn cut_power(&mut self) -> Verdict {
        for disk in &self.disks {
            let media = [disk.media.durable(), disk.media.current()];
            for survives in media {
                disk.durable.check(&self.ledger, &disk.shadow, survives)?;
            }
        }
        Ok(())
    }
}
