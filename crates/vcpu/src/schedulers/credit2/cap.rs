//! CPU caps: budgets of CPU time that a VM may use in each period.

use crate::machine::VcpuId;
use tidegate_core::time::Nanos;

/// Replenishment period of a capped VM's budget.
const PERIOD: Nanos = Nanos::from_millis(10);

/// Remaining CPU time of the vCPUs of one VM. All amounts are in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    /// Amount added per period.
    total: i64,
    /// Amount that a vCPU takes at a time, so that some is left for the others.
    quota: i64,
    /// Amount that no vCPU has taken. Negative if vCPUs have overrun their quotas.
    pool: i64,
    next: Nanos,
    /// vCPUs that wait for the next replenishment.
    pub(super) parked: Vec<VcpuId>,
}

impl Budget {
    /// Creates the budget of a VM with `vcpus` vCPUs and a cap in hundredths of a pCPU; a vCPU
    /// takes at least `least` at a time. `None`: no cap.
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

    /// Returns the new quota of a vCPU with `rest`, 0 or less, left; 0 or less if there is none.
    pub(super) fn take(&mut self, rest: i64) -> i64 {
        // `rest` is 0 or negative: an overrun is paid back from the pool.
        self.pool += rest;
        let taken = self.pool.clamp(0, self.quota);
        self.pool -= taken;
        taken
    }

    /// Returns unused time of a vCPU. `true`: parked vCPUs may ask again.
    pub(super) fn give_back(&mut self, rest: i64) -> bool {
        self.pool += rest;
        self.pool > 0
    }

    /// Time of the next replenishment.
    pub(super) fn next(&self) -> Nanos {
        self.next
    }

    /// Adds the amounts due at `now`. `true`: parked vCPUs may ask again.
    pub(super) fn replenish(&mut self, now: Nanos) -> bool {
        // Unused time does not accumulate beyond one period's amount; an overrun carries over.
        while self.next <= now {
            self.pool = (self.pool + self.total).min(self.total);
            self.next += PERIOD;
        }
        self.pool > 0
    }
}
