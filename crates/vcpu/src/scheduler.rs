//! What a vCPU scheduler is: which vCPU runs next on a pCPU, and for how long at most.

use crate::machine::{CpuSet, Machine, PcpuId, VcpuId};
use tidegate_core::time::Nanos;

/// What a pCPU does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Who runs; `None`: nobody.
    pub run: Option<VcpuId>,
    /// When the scheduler wants to be asked again at the latest.
    pub until: Nanos,
}

impl Choice {
    /// Nobody, until somebody wakes.
    pub const IDLE: Choice = Choice {
        run: None,
        until: Nanos::MAX,
    };
}

/// What was counted by a scheduler, for people and tests.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Times that the credits of a run-queue began anew.
    pub resets: u64,
    /// Times that CPU-BOOST began (ISACS alone).
    pub boosts: u64,
    /// vCPUs that were moved to another run-queue to even its load.
    pub balanced: u64,
    /// vCPUs that were moved to another run-queue to even its I/O (ISACS alone).
    pub io_balanced: u64,
    /// Times that an IVCredit was larger than can be told and was cut off (ISACS alone).
    pub clamped: u64,
}

/// A scheduler of vCPUs.
///
/// The world calls it where Xen calls its own: a vCPU wakes, a pCPU must choose, a vCPU has left
/// its pCPU, a timer. It answers which pCPUs must choose anew by `kicks`, which the world sees to
/// at the same time.
pub trait Scheduler {
    /// What it is called in scenarios and tables.
    fn name(&self) -> &'static str;

    /// `v`, that was blocked, could run.
    fn wake(&mut self, machine: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet);

    /// What `p` does next. Who runs there is still in `machine`: in state `Blocked` it has nothing
    /// to do any more, else it could go on.
    fn choose(&mut self, machine: &Machine, now: Nanos, p: PcpuId, kicks: &mut CpuSet) -> Choice;

    /// `v`, that was running, was taken off its pCPU, where the next one runs already.
    fn left(&mut self, machine: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet);

    /// When it wants [`Scheduler::on_timer`] called.
    fn next_timer(&self) -> Option<Nanos>;

    /// Its time has come.
    fn on_timer(&mut self, machine: &Machine, now: Nanos, kicks: &mut CpuSet);

    /// The driver domain has notified `v` of an I/O that ended. If it was blocked it is woken next.
    fn io_event(&mut self, _machine: &Machine, _now: Nanos, _v: VcpuId, _kicks: &mut CpuSet) {}

    /// What it has counted.
    fn counts(&self) -> Counts;

    /// The credit of `v` as it was last reckoned up, in nanoseconds (Credit: in credits).
    fn credit(&self, v: VcpuId) -> i64;
}
