//! Fault of a disk that hangs for a while, and the periodic check by which the engine detects it.

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

/// Figures of a check for hung disks in the journal; other time-outs have zeroes.
const HUNG_CHECK_FIGURES: [u64; 5] = [1, 0, 0, 0, 0];

/// Disk that hangs, at most one at a time, with the checker of its neighbours.
pub(super) struct HungDisk {
    rng: TortureRng,
    /// Silence time-outs of the engine; `None` disables hung-disk detection.
    timeouts: Option<SilenceTimeouts>,
    /// Number of the disk that hangs until `until`; [`u32::MAX`]: none has hung yet.
    disk: u32,
    /// Time at which the hang ends, or has ended.
    until: Nanos,
    /// `true` if the engine took a disk as hung at the last call of
    /// [`HungDisk::hangs_or_hung_before`].
    hung_before: bool,
    checker: Neighbours,
}

impl HungDisk {
    pub(super) fn new(swarm: &Swarm, mut rng: TortureRng) -> HungDisk {
        // Time-outs in the time scale of the run: most disks answer within it, some do not. A hang
        // ends well within the bound on draining.
        let data = Nanos(rng.octaves(10_000, (swarm.span.0 / 4).clamp(20_000, 500_000_000)));
        // The daemon's defaults have the same proportion.
        let timeouts = SilenceTimeouts {
            data,
            other: Nanos(5 * data.0),
        };
        // Without hanging disks the engine runs as it does where no time-outs are configured.
        let hangs = swarm.plan.rate(Kind::DiskHung) != Rate::Off;
        HungDisk {
            rng,
            timeouts: hangs.then_some(timeouts),
            disk: u32::MAX,
            until: Nanos::ZERO,
            hung_before: false,
            checker: Neighbours::new(timeouts),
        }
    }

    /// Returns the silence time-outs of the engine; `None` disables hung-disk detection.
    pub(super) fn silence_timeouts(&self) -> Option<SilenceTimeouts> {
        self.timeouts
    }

    /// Hangs one of `disks` disks from `now` on, for `duration` (4 time-outs at most) and up to 8
    /// time-outs more.
    pub(super) fn hang_one(&mut self, now: Nanos, duration: Nanos, disks: usize) {
        let Some(timeouts) = self.timeouts else {
            return;
        };
        if disks == 0 {
            return;
        }
        // In most cases the hang lasts longer than the engine needs to detect it.
        let longer = self.rng.below(8 * timeouts.data.0);
        self.disk = self.rng.index(disks) as u32;
        // At most twelve time-outs, within the bound on draining.
        self.until = now + duration.min(Nanos(4 * timeouts.data.0)) + Nanos(longer);
    }

    /// Ends a hang.
    pub(super) fn stop(&mut self) {
        self.until = Nanos::ZERO;
    }

    /// Records whether the engine takes a disk as hung now. Returns `true` if it does, or did at
    /// the last call.
    pub(super) fn hangs_or_hung_before(&mut self, hangs: bool) -> bool {
        core::mem::replace(&mut self.hung_before, hangs) || hangs
    }

    /// Checks an I/O that is started on the device.
    pub(super) fn started(&mut self, engine: &Engine, disk: u32, io: &DeviceIo) -> Verdict {
        match self.timeouts {
            Some(_) => self.checker.started(engine, disk, io),
            None => Ok(()),
        }
    }

    /// Time until which no I/O of a disk ends because the disk hangs; `None` if it does not hang.
    pub(super) fn hangs_until(&self, now: Nanos, disk: u32) -> Option<Nanos> {
        (now < self.until && disk == self.disk).then_some(self.until)
    }

    /// Records that an I/O of a disk has ended.
    pub(super) fn ended(&mut self, disk: u32, now: Nanos) {
        if self.timeouts.is_some() {
            self.checker.ended(disk, now);
        }
    }
}

impl TortureWorld<'_, '_> {
    /// Schedules the next check for hung disks, unless detection is disabled.
    pub(super) fn schedule_hung_check(&mut self) {
        if let Some(timeouts) = self.hung.timeouts {
            self.schedule
                .plan(self.now + timeouts.data, Event::CheckHungDisks);
        }
    }

    /// Has the engine look for hung disks, as the daemon does every second, and checks the result.
    pub(super) fn detect_hung_disks(&mut self) -> Verdict {
        if !self.running {
            return Ok(());
        }
        self.schedule_hung_check();
        let clock = self.faults.clock(self.now);
        self.record(EventKind::Timeout, HUNG_CHECK_FIGURES);
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
