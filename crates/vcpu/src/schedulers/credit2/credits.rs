//! Credit accounts: the order of vCPUs by credit, in which Credit2, ISACS and `io-turns` differ.

use crate::machine::VcpuId;
use crate::scheduler::Counts;
use tidegate_core::time::Nanos;

/// Effect of [`Credits::renew`] on a run-queue at the end of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// No change: other vCPUs have credit left.
    Kept,
    /// New credit for every vCPU; the order is unchanged.
    Reset,
    /// New credit for every vCPU, in a different order.
    Reallocated,
    /// CPU-BOOST begins (ISACS), with a different order.
    Boosted,
}

/// vCPUs of a run-queue, as the credit accounts see them.
pub struct Members<'a> {
    /// Number of the run-queue.
    pub queue: usize,
    /// All vCPUs assigned to it, blocked ones too.
    pub all: &'a [VcpuId],
    /// Tells whether a vCPU runs or waits for a pCPU.
    pub is_runnable: &'a dyn Fn(VcpuId) -> bool,
}

/// Credit accounts behind [`Credit2`](super::Credit2).
///
/// Credit is CPU time in nanoseconds: a vCPU with the largest weight of its run-queue burns as much
/// as it runs, others burn proportionally more.
pub trait Credits {
    /// Name of the scheduler that uses these accounts.
    const NAME: &'static str;

    /// Adds the next vCPU, in order of number, assigned to `queue`.
    fn add(&mut self, queue: usize);

    /// Notes the weight of `v` and the largest of its run-queue, in proportion to which it burns
    /// credit.
    fn weigh(&mut self, _v: VcpuId, _weight: u64, _max_weight: u64) {}

    /// Sort key of `v` within its run-queue, largest first, in nanoseconds of credit.
    fn rank(&self, v: VcpuId) -> i64;

    /// Returns whether `v` has used up its credit, which ends the epoch if it is the next to run.
    fn is_spent(&self, v: VcpuId) -> bool {
        self.rank(v) <= 0
    }

    /// Credit that `v` may burn before it has used up what it was given.
    fn usable(&self, v: VcpuId) -> i64 {
        self.rank(v)
    }

    /// Returns whether the slice of `v` lasts as long as its lead in credit; otherwise it gets the
    /// shortest slice.
    fn has_long_slices(&self, _v: VcpuId) -> bool {
        true
    }

    /// Time that `running` may stay on its pCPU although `waits` would preempt it; `usual` is the
    /// configured rate limit.
    fn rate_limit(&self, _running: VcpuId, _waits: VcpuId, usual: Nanos) -> Nanos {
        usual
    }

    /// Length of a turn that `v` has from the time it began to run; `None`: its slice depends on
    /// credit.
    fn turn(&self, _v: VcpuId) -> Option<Nanos> {
        None
    }

    /// Notes that `v`, which waited, starts to run.
    fn began(&mut self, _now: Nanos, _v: VcpuId) {}

    /// Notes that `v` continues after it has run for `ran`.
    fn goes_on(&mut self, _now: Nanos, _v: VcpuId, _ran: Nanos) {}

    /// Notes that `v` leaves its pCPU after it has run for `ran`; `could_run`: it is still
    /// runnable.
    fn stopped(&mut self, _now: Nanos, _v: VcpuId, _ran: Nanos, _could_run: bool) {}

    /// Burns `amount` of the credit of `v`.
    fn burn(&mut self, v: VcpuId, amount: i64);

    /// Grants `v` credit for its move to another pCPU.
    fn compensate(&mut self, v: VcpuId, amount: i64);

    /// Starts a new epoch, if one is due, because `next`, the first in order, has used up its
    /// credit.
    fn renew(&mut self, now: Nanos, next: VcpuId, members: &Members<'_>) -> Renewal;

    /// Returns whether the order of the run-queue changes if `v` begins to wait there; `woke`: it
    /// became runnable, otherwise it has left a pCPU or run-queue.
    fn would_reorder(&self, _v: VcpuId, _woke: bool) -> bool {
        false
    }

    /// Notes that `v` begins to wait, after [`Credits::would_reorder`] has returned `true` for it.
    fn woke(&mut self, _v: VcpuId) {}

    /// Notes that `v` is now assigned to run-queue `to`.
    fn moved(&mut self, _v: VcpuId, _to: usize) {}

    /// Notes that the driver domain has notified `v`; `ran` is the time it has run, if it runs.
    /// Returns `true` if the rank of `v` has changed.
    fn io_event(&mut self, _now: Nanos, _v: VcpuId, _ran: Option<Nanos>) -> bool {
        false
    }

    /// Notes that `v`, which has run for `ran`, has answered all its events. Returns `true` if the
    /// scheduler is to decide again.
    fn io_answered(&mut self, _v: VcpuId, _ran: Nanos) -> bool {
        false
    }

    /// Time at which [`Credits::raise_next`] is to be called; [`Nanos::MAX`]: never.
    fn next_raise(&self) -> Nanos {
        Nanos::MAX
    }

    /// Raises the rank of a vCPU whose time for it has come at `now`, and returns it; `None`: there
    /// is no other.
    fn raise_next(&mut self, _now: Nanos) -> Option<VcpuId> {
        None
    }

    /// Chooses a vCPU of a run-queue whose credits were just reset, and the run-queue to move it to
    /// in order to balance I/O. `may` tells which vCPU may go where.
    fn io_move(
        &self,
        _members: &Members<'_>,
        _may: &dyn Fn(VcpuId, usize) -> bool,
    ) -> Option<(VcpuId, usize)> {
        None
    }

    /// Adds the accounts' own counters to `counts`.
    fn count(&self, _counts: &mut Counts) {}
}

/// Credit accounts of Credit2 itself: one credit per vCPU.
#[derive(Clone, Debug)]
pub struct PlainCredits {
    /// Credit that a reset adds.
    credit: i64,
    /// Smallest and largest credit of a vCPU.
    bounds: (i64, i64),
    credits: Vec<i64>,
}

impl PlainCredits {
    /// Burns `amount` of the credit of `v`, down to `floor`; what lies below is forgiven.
    pub fn burn_to(&mut self, v: VcpuId, amount: i64, floor: i64) {
        let credit = &mut self.credits[v.index()];
        *credit = (*credit - amount).max(floor);
    }

    /// Adds `times` the credit of a reset to `vcpus`, each up to the largest credit.
    pub fn reset(&mut self, times: i64, vcpus: &[VcpuId]) {
        for &v in vcpus {
            let credit = &mut self.credits[v.index()];
            *credit = (*credit + times * self.credit).min(self.bounds.1);
        }
    }

    /// Creates accounts whose resets add `credit` and carry over at most `carried`.
    pub fn new(credit: Nanos, carried: Nanos) -> PlainCredits {
        let credit = credit.0 as i64;
        PlainCredits {
            credit,
            bounds: (-credit, credit + carried.0 as i64),
            credits: Vec::new(),
        }
    }

    /// Replaces the credit below which debt is forgiven.
    #[must_use]
    pub fn with_least(mut self, least: i64) -> PlainCredits {
        self.bounds.0 = least;
        self
    }
}

impl Credits for PlainCredits {
    const NAME: &'static str = super::NAME;

    fn add(&mut self, _queue: usize) {
        self.credits.push(self.credit);
    }

    fn rank(&self, v: VcpuId) -> i64 {
        self.credits[v.index()]
    }

    fn burn(&mut self, v: VcpuId, amount: i64) {
        self.burn_to(v, amount, self.bounds.0);
    }

    fn compensate(&mut self, v: VcpuId, amount: i64) {
        self.credits[v.index()] += amount;
    }

    fn renew(&mut self, _now: Nanos, next: VcpuId, members: &Members<'_>) -> Renewal {
        // Add the amount often enough that `next` has positive credit again.
        let times = 1 + (-self.rank(next)).max(0) / self.credit;
        self.reset(times, members.all);
        Renewal::Reset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: i64 = 1_000_000;

    fn plain(vcpus: u32) -> (PlainCredits, Vec<VcpuId>) {
        let mut plain = PlainCredits::new(Nanos::from_millis(10), Nanos::from_micros(500));
        (0..vcpus).for_each(|_| plain.add(0));
        (plain, (0..vcpus).map(VcpuId).collect())
    }

    fn reset(plain: &mut PlainCredits, all: &[VcpuId], next: VcpuId) {
        let members = Members {
            queue: 0,
            all,
            is_runnable: &|_| true,
        };
        assert_eq!(plain.renew(Nanos::ZERO, next, &members), Renewal::Reset);
    }

    #[test]
    fn a_reset_gives_10_ms_and_carries_half_a_millisecond() {
        let (mut plain, all) = plain(4);
        for (&v, ran) in all.iter().zip([10 * MS, 9_700_000, 4 * MS, 12 * MS]) {
            plain.burn(v, ran);
        }
        reset(&mut plain, &all, all[0]);
        let found: Vec<i64> = all.iter().map(|&v| plain.rank(v)).collect();
        assert_eq!(found, [10 * MS, 10_300_000, 10_500_000, 8 * MS]);
    }

    #[test]
    fn one_at_the_minimum_has_everybody_given_twice() {
        let (mut plain, all) = plain(2);
        plain.burn(all[0], 90 * MS);
        assert_eq!(plain.rank(all[0]), -10 * MS);
        plain.burn(all[1], 18 * MS);
        reset(&mut plain, &all, all[0]);
        assert_eq!(
            (plain.rank(all[0]), plain.rank(all[1])),
            (10 * MS, 10_500_000)
        );
    }

    proptest! {
        /// Conservation of credit: balance = given - burnt - clipped at resets + forgiven at the
        /// minimum.
        #[test]
        fn credits_are_conserved(
            steps in prop::collection::vec((0_u32..4, 0_i64..15_000_000, any::<bool>()), 1..200),
        ) {
            let (mut plain, all) = plain(4);
            let sum = |plain: &PlainCredits| all.iter().map(|&v| plain.rank(v)).sum::<i64>();
            for (v, ran, resets) in steps {
                let (v, before) = (VcpuId(v), sum(&plain));
                let own = plain.rank(v);
                plain.burn(v, ran);
                let forgiven = (-10 * MS - (own - ran)).max(0);
                prop_assert_eq!(sum(&plain), before - ran + forgiven);
                if resets && plain.rank(v) <= 0 {
                    let before: Vec<i64> = all.iter().map(|&v| plain.rank(v)).collect();
                    let given = if plain.rank(v) == -10 * MS { 20 * MS } else { 10 * MS };
                    reset(&mut plain, &all, v);
                    for (&v, before) in all.iter().zip(before) {
                        prop_assert_eq!(plain.rank(v), (before + given).min(10_500_000));
                    }
                }
            }
        }
    }
}
