//! Disks that hang for a while, and the driver that has the engine look for them.

use super::schedule::Event;
use super::{TortureWorld, What};
use crate::checker::neighbours::Neighbours;
use crate::checker::{Verdict, neighbours};
use crate::fault::{Kind, Rate};
use crate::torture::Dice;
use crate::torture::swarm::Swarm;
use tidegate_core::engine::{Engine, Patience};
use tidegate_core::request::DeviceIo;
use tidegate_core::time::Nanos;

/// What hangs, and what is known of it.
pub(super) struct Hung {
    dice: Dice,
    /// `None`: the engine is not to care.
    patience: Option<Patience>,
    /// The disk that hangs, by its number, and until when.
    disk: u32,
    until: Nanos,
    /// Whether a disk was out of the count when somebody last asked.
    did: bool,
    checker: Neighbours,
}

impl Hung {
    pub(super) fn new(swarm: &Swarm, mut dice: Dice) -> Hung {
        // In the time scale of the run: what a disk takes by itself is less in most, and more in
        // some. A hang is over well within what a run may take to drain.
        let data = Nanos(dice.octaves(10_000, (swarm.span.0 / 4).clamp(20_000, 500_000_000)));
        let patience = Patience {
            data,
            other: Nanos(5 * data.0),
        };
        let hangs = swarm.plan.rate(Kind::DiskHung) != Rate::Off;
        Hung {
            dice,
            patience: hangs.then_some(patience),
            disk: u32::MAX,
            until: Nanos::ZERO,
            did: false,
            checker: Neighbours::new(patience),
        }
    }

    pub(super) fn patience(&self) -> Option<Patience> {
        self.patience
    }

    /// Has one of so many disks hang from `now` on, for about `long`.
    pub(super) fn hang_one(&mut self, now: Nanos, long: Nanos, disks: usize) {
        let Some(patience) = self.patience else {
            return;
        };
        if disks == 0 {
            return;
        }
        // Mostly for longer than the driver needs to find out.
        let longer = self.dice.below(8 * patience.data.0);
        self.disk = self.dice.index(disks) as u32;
        self.until = now + long.min(Nanos(4 * patience.data.0)) + Nanos(longer);
    }

    /// No more faults.
    pub(super) fn stop(&mut self) {
        self.until = Nanos::ZERO;
    }

    /// Whether a disk is out of the count, or was when this was asked last.
    pub(super) fn hangs_or_did(&mut self, hangs: bool) -> bool {
        core::mem::replace(&mut self.did, hangs) || hangs
    }

    /// An I/O goes to the device.
    pub(super) fn started(&mut self, engine: &Engine, disk: u32, io: &DeviceIo) -> Verdict {
        match self.patience {
            Some(_) => self.checker.started(engine, disk, io),
            None => Ok(()),
        }
    }

    /// Time until which no I/O of a disk ends, as it hangs; `None` if it does not.
    pub(super) fn hangs_until(&self, now: Nanos, disk: u32) -> Option<Nanos> {
        (now < self.until && disk == self.disk).then_some(self.until)
    }

    /// An I/O of a disk has ended.
    pub(super) fn ended(&mut self, disk: u32, now: Nanos) {
        if self.patience.is_some() {
            self.checker.ended(disk, now);
        }
    }
}

impl TortureWorld<'_, '_> {
    pub(super) fn schedule_look(&mut self) {
        if let Some(patience) = self.hung.patience {
            self.schedule.plan(self.now + patience.data, Event::Look);
        }
    }

    /// As the daemon does once a second.
    pub(super) fn look_for_hung_disks(&mut self) -> Verdict {
        if !self.running {
            return Ok(());
        }
        self.schedule_look();
        let clock = self.faults.clock(self.now);
        self.write(What::Timeout, [1, 0, 0, 0, 0]);
        if self.plant.looks() {
            self.engine.device_mut().look_for_hung_disks(clock);
        }
        let seen = clock.max(self.engine.view().now());
        neighbours::check(
            &self.hung.checker,
            &self.engine,
            self.inventory.by_slot(),
            self.flights.ios(),
            seen,
        )
    }
}
