//! Caps: the processor time that a virtual machine may have in each period.

use crate::machine::VcpuId;
use tidegate_core::time::Nanos;

/// How often a capped VM is given time anew.
const PERIOD: Nanos = Nanos::from_millis(10);

/// The time that the vCPUs of one VM may still run.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    /// What it is given in a period.
    total: i64,
    /// What one vCPU takes at a time, so that others have some, too.
    quota: i64,
    /// What nobody has taken. Below 0 they ran longer than they should have.
    pool: i64,
    next: Nanos,
    /// Those that wait for some.
    pub(super) parked: Vec<VcpuId>,
}

impl Budget {
    /// That of a VM with so many vCPUs and a cap in hundredths of a pCPU; a vCPU takes `least` at
    /// least. `None`: it has no cap.
    pub(super) fn new(cap: u32, vcpus: usize, least: Nanos) -> Option<Budget> {
        let total = PERIOD.0 as i64 * i64::from(cap) / 100;
        (cap > 0).then(|| Budget {
            total,
            quota: (total / vcpus.max(1) as i64).max(least.0 as i64),
            pool: total,
            next: PERIOD,
            parked: Vec::with_capacity(vcpus),
        })
    }

    /// What a vCPU has that had `rest`, 0 or less, left: 0 where there is none.
    pub(super) fn take(&mut self, rest: i64) -> i64 {
        self.pool += rest;
        let taken = self.pool.clamp(0, self.quota);
        self.pool -= taken;
        taken
    }

    /// Gives back what a vCPU did not use. True: those that are parked can ask again.
    pub(super) fn give_back(&mut self, rest: i64) -> bool {
        self.pool += rest;
        self.pool > 0
    }

    /// When it is given time next.
    pub(super) fn next(&self) -> Nanos {
        self.next
    }

    /// Gives it what is due at `now`. True: those that are parked can ask again.
    pub(super) fn replenish(&mut self, now: Nanos) -> bool {
        while self.next <= now {
            self.pool = (self.pool + self.total).min(self.total);
            self.next += PERIOD;
        }
        self.pool > 0
    }
}
