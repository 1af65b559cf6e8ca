//! Interface of a vCPU scheduler, which decides which vCPU runs next on a pCPU and for how long.

use crate::machine::{CpuSet, Machine, PcpuId, VcpuId};
use tidegate_core::time::Nanos;

/// Decision of a scheduler for one pCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// vCPU that runs; `None`: the pCPU idles.
    pub run: Option<VcpuId>,
    /// Latest time at which the scheduler must be asked again, even if nothing happens before.
    pub until: Nanos,
}

impl Choice {
    /// Idle until a vCPU wakes.
    pub const IDLE: Choice = Choice {
        run: None,
        until: Nanos::MAX,
    };
}

/// Event counters of a scheduler, for reports and tests.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Credit resets of run-queues.
    pub resets: u64,
    /// Periods of CPU-BOOST that began (ISACS only).
    pub boosts: u64,
    /// vCPUs migrated to another run-queue to balance load.
    pub balanced: u64,
    /// vCPUs migrated to another run-queue to balance I/O (ISACS only).
    pub io_balanced: u64,
    /// Turns for I/O that began (`io-turns` only).
    pub turns: u64,
    /// IVCredits that exceeded the representable range and were clamped (ISACS only).
    pub clamped: u64,
}

/// Scheduler of vCPUs.
///
/// [`VcpuWorld`](crate::world::VcpuWorld) calls a scheduler where Xen calls its own: a vCPU wakes,
/// a pCPU must choose, a vCPU has left its pCPU, a timer expires. The scheduler adds to `kicks` the
/// pCPUs that must choose anew; the world serves them at the same virtual time.
pub trait Scheduler {
    /// Name in scenarios and tables.
    fn name(&self) -> &'static str;

    /// Handles `v`, which was blocked and is now runnable.
    fn wake(&mut self, machine: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet);

    /// Chooses the vCPU that `p` runs next. `machine` still shows the current one as running on
    /// `p`; in state `Blocked` it has no more work, otherwise it could continue.
    fn choose(&mut self, machine: &Machine, now: Nanos, p: PcpuId, kicks: &mut CpuSet) -> Choice;

    /// Handles `v`, which was taken off its pCPU; the next vCPU already runs there.
    fn left(&mut self, machine: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet);

    /// Returns the time at which [`Scheduler::on_timer`] is to be called; `None`: no timer.
    fn next_timer(&self) -> Option<Nanos>;

    /// Handles the expiry of the timer.
    fn on_timer(&mut self, machine: &Machine, now: Nanos, kicks: &mut CpuSet);

    /// Handles a notification of the driver domain that an I/O of `v` has ended. If `v` is blocked,
    /// [`Scheduler::wake`] follows.
    fn io_event(&mut self, _machine: &Machine, _now: Nanos, _v: VcpuId, _kicks: &mut CpuSet) {}

    /// Handles that `v`, which runs, has handled every event and has sent as many answers as it got
    /// events.
    fn io_answered(&mut self, _machine: &Machine, _now: Nanos, _v: VcpuId, _kicks: &mut CpuSet) {}

    /// Event counters since the start.
    fn counts(&self) -> Counts;

    /// Last computed credit of `v` in nanoseconds (in credits for the Credit scheduler).
    fn credit(&self, v: VcpuId) -> i64;
}
