//! Three VMs, I/O by I/O.

use crate::common::{Driver, Guest, MS, config};
use tidegate_core::objective::{Objective, Priority};
use tidegate_core::request::{DeviceIo, Op};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

/// Three VMs on a disk of depth 1, and whose I/O goes when; each takes a millisecond.
pub(crate) struct Duel {
    pub(crate) driver: Driver,
    pub(crate) guests: [Guest; 3],
}

impl Duel {
    /// The first two disks begin so far apart, the third a long way behind.
    pub(crate) fn new(spec: &PolicySpec, apart: u64) -> Duel {
        Duel::deep(spec, apart, 1)
    }

    /// Creates a duel on a disk with a queue of `depth` I/Os.
    pub(crate) fn deep(spec: &PolicySpec, apart: u64, depth: u32) -> Duel {
        let mut config = config(depth, 0);
        config.device.positioning = Nanos(8 * MS);
        let mut driver = Driver::new(config, spec);
        let vms = [(); 3].map(|()| driver.vm(&Objective::default()));
        let guests = [0, 1, 2].map(|n| {
            let base = [0, apart, 1 << 40][n];
            driver.guest_at(vms[n], base, apart)
        });
        Duel {
            driver: driver.with_clock_at(Nanos::SECOND),
            guests,
        }
    }

    pub(crate) fn ask(&mut self, whose: usize, op: Op, block: u64) {
        let client = self.guests[whose].client;
        let taken = self.driver.ask(client, op, block * 4096, 4096);
        taken.expect("room");
    }

    pub(crate) fn set_priority(&mut self, whose: usize, priority: Priority) {
        let objective = Objective {
            priority,
            ..Objective::default()
        };
        self.driver.set_objective(self.guests[whose].vm, &objective);
    }

    /// Serves I/Os as long as VM and operation stay the same. Returns their number.
    pub(crate) fn turn(&mut self) -> usize {
        let first = self.serve();
        1 + (0..).take_while(|_| self.serve() == first).count()
    }

    /// Starts all I/Os that may start at once, without idling.
    pub(crate) fn start(&mut self) -> Vec<DeviceIo> {
        self.driver.start_all()
    }

    pub(crate) fn end(&mut self, io: &DeviceIo) {
        self.driver.end(io, Ok(()));
    }

    /// Serves the next I/O. Returns its VM and operation, or `None` if none starts within a second.
    pub(crate) fn serve(&mut self) -> Option<(usize, Op)> {
        let end = self.driver.now + Nanos::SECOND;
        let io = loop {
            if let Some(io) = self.driver.start() {
                break io;
            }
            let next = self.driver.engine.next_timeout();
            let next = next.filter(|&next| next <= end)?;
            assert!(next > self.driver.now);
            self.driver.now = next;
        };
        self.driver.now += Nanos(MS);
        self.driver.end(&io, Ok(()));
        let whose = self.guests.iter().position(|guest| guest.vm == io.vm);
        Some((whose.expect("one of them"), io.op))
    }
}
