//! Disks that hang for a while, and the driver that has the engine look for them.

use super::schedule::Event;
use super::{EventKind, TortureWorld};
use crate::checker::hung_neighbours::Neighbours;
use crate::checker::{Verdict, hung_neighbours};
use crate::fault::{Kind, Rate};
use crate::torture::TortureRng;
use crate::torture::swarm::Swarm;
use tidegate_core::engine::{Engine, SilenceTimeouts};
use tidegate_core::request::DeviceIo;
use tidegate_core::time::Nanos;

/// Hung disk of a run, with the checker of its neighbours.
pub(super) struct Hung {
    rng: TortureRng,
    /// Silence time-outs of the engine; `None` disables hung-disk detection.
    patience: Option<SilenceTimeouts>,
    /// Number of the disk that hangs.
    disk: u32,
    until: Nanos,
    /// `true` if a disk was out of the depth count at the last call of [`Hung::hangs_or_did`].
    did: bool,
    checker: Neighbours,
}

impl Hung {
    pub(super) fn new(swarm: &Swarm, mut rng: TortureRng) -> Hung {
        // Time-outs in the time scale of the run: most disks answer within it, some do not. A hang
        // ends well within the bound on draining.
        let data = Nanos(rng.octaves(10_000, (swarm.span.0 / 4).clamp(20_000, 500_000_000)));
        // The daemon's defaults have the same proportion.
        let patience = SilenceTimeouts {
            data,
            other: Nanos(5 * data.0),
        };
        // Without hanging disks the engine runs as it does where no time-outs are configured.
        let hangs = swarm.plan.rate(Kind::DiskHung) != Rate::Off;
        Hung {
            rng,
            patience: hangs.then_some(patience),
            disk: u32::MAX,
            until: Nanos::ZERO,
            did: false,
            checker: Neighbours::new(patience),
        }
    }

    pub(super) fn patience(&self) -> Option<SilenceTimeouts> {
        self.patience
    }

    /// Hangs one of `disks` disks from `now` on, for about `long`.
    pub(super) fn hang_one(&mut self, now: Nanos, long: Nanos, disks: usize) {
        let Some(patience) = self.patience else {
            return;
        };
        if disks == 0 {
            return;
        }
        // In most cases longer than the driver needs to detect it.
        let longer = self.rng.below(8 * patience.data.0);
        self.disk = self.rng.index(disks) as u32;
        // At most twelve time-outs, within the bound on draining.
        self.until = now + long.min(Nanos(4 * patience.data.0)) + Nanos(longer);
    }

    /// Ends a hang.
    pub(super) fn stop(&mut self) {
        self.until = Nanos::ZERO;
    }

    /// Returns `true` if a disk is out of the depth count, or was at the last call.
    pub(super) fn hangs_or_did(&mut self, hangs: bool) -> bool {
        core::mem::replace(&mut self.did, hangs) || hangs
    }

    /// Checks an I/O that goes to the device.
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

    /// Records that an I/O of a disk has ended.
    pub(super) fn ended(&mut self, disk: u32, now: Nanos) {
        if self.patience.is_some() {
            self.checker.ended(disk, now);
        }
    }
}

impl TortureWorld<'_, '_> {
    pub(super) fn schedule_hung_check(&mut self) {
        if let Some(patience) = self.hung.patience {
            self.schedule
                .plan(self.now + patience.data, Event::CheckHungDisks);
        }
    }

    /// Has the engine look for hung disks, as the daemon does every second, and checks the result.
    pub(super) fn detect_hung_disks(&mut self) -> Verdict {
        if !self.running {
            return Ok(());
        }
        self.schedule_hung_check();
        let clock = self.faults.clock(self.now);
        self.record(EventKind::Timeout, [1, 0, 0, 0, 0]);
        if self.plant.runs_hung_check() {
            self.engine.device_mut().detect_hung_disks(clock);
        }
        let seen = clock.max(self.engine.view().now());
        hung_neighbours::check(
            &self.hung.checker,
            &self.engine,
            self.inventory.by_slot(),
            self.flights.ios(),
            seen,
        )
    }
}
