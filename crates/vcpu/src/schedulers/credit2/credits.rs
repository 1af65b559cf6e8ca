//! Whose turn it is by credit, apart from who runs where: what Credit2 and ISACS differ in.

use crate::machine::VcpuId;
use crate::scheduler::Counts;
use tidegate_core::time::Nanos;

/// What became of the credits of a run-queue at the end of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// Nothing: others have some left.
    Kept,
    /// Everybody has new credit, and the order is what it was.
    Reset,
    /// Everybody has new credit, in another order.
    Reallocated,
    /// CPU-BOOST begins: the order is another one.
    Boosted,
}

/// The vCPUs of a run-queue, for those who deal out credit.
pub struct Members<'a> {
    /// Which run-queue.
    pub queue: usize,
    /// All that are assigned to it, sleepers too.
    pub all: &'a [VcpuId],
    /// Whether one of them runs or could.
    pub is_runnable: &'a dyn Fn(VcpuId) -> bool,
}

/// The accounts of credit behind [`Credit2`](super::Credit2). Credit is processor time in
/// nanoseconds, of which a vCPU with the run-queue's largest weight burns as much as it runs.
pub trait Credits {
    /// What the scheduler with them is called.
    const NAME: &'static str;

    /// One more vCPU, assigned to `queue`; they come in the order of their numbers.
    fn add(&mut self, queue: usize);

    /// By what vCPUs of a run-queue are ordered, the largest first. How far two are apart is
    /// credit; one with 0 or less has used up what it had.
    fn rank(&self, v: VcpuId) -> i64;

    /// What `v` may use before it has used up what it had.
    fn usable(&self, v: VcpuId) -> i64 {
        self.rank(v)
    }

    /// Whether `v` runs for as long as it leads; else for the shortest time there is.
    fn has_long_slices(&self, _v: VcpuId) -> bool {
        true
    }

    /// How long `running` is left on its pCPU where `waits` would take it; `usual` is the rate
    /// limit.
    fn rate_limit(&self, _running: VcpuId, _waits: VcpuId, usual: Nanos) -> Nanos {
        usual
    }

    /// How long a turn is that `v` has, from when it began to run. `None`: it runs by its credit.
    fn turn(&self, _v: VcpuId) -> Option<Nanos> {
        None
    }

    /// `v`, that waited, runs from now on.
    fn began(&mut self, _v: VcpuId) {}

    /// `v` has run for so long and goes on.
    fn goes_on(&mut self, _v: VcpuId, _ran: Nanos) {}

    /// `v` has run for so long and is taken off its pCPU; whether it could go on.
    fn stopped(&mut self, _v: VcpuId, _ran: Nanos, _could_run: bool) {}

    /// Takes away what `v` has run.
    fn burn(&mut self, v: VcpuId, amount: i64);

    /// Gives `v` what being moved to another pCPU costs it.
    fn compensate(&mut self, v: VcpuId, amount: i64);

    /// `next`, the best that there is, has used up what it had.
    fn renew(&mut self, now: Nanos, next: VcpuId, members: &Members<'_>) -> Renewal;

    /// Whether the order of its run-queue becomes another one when `v` begins to wait there.
    fn would_reorder(&self, _v: VcpuId) -> bool {
        false
    }

    /// `v` begins to wait, after [`Credits::would_reorder`] has said that this changes the order.
    fn woke(&mut self, _v: VcpuId) {}

    /// `v` is assigned to another run-queue now.
    fn moved(&mut self, _v: VcpuId, _to: usize) {}

    /// The driver domain has notified `v`, which has run for `ran` where it runs. True: its rank is
    /// another one.
    fn io_event(&mut self, _now: Nanos, _v: VcpuId, _ran: Option<Nanos>) -> bool {
        false
    }

    /// Which vCPU of a run-queue, whose credits have just begun anew, should go to which other one
    /// to even the I/O of both; `may` says who may go where.
    fn io_move(
        &self,
        _members: &Members<'_>,
        _may: &dyn Fn(VcpuId, usize) -> bool,
    ) -> Option<(VcpuId, usize)> {
        None
    }

    /// Adds what they have counted.
    fn count(&self, _counts: &mut Counts) {}
}

/// Credit2's own accounts: one credit a vCPU.
#[derive(Clone, Debug)]
pub struct Plain {
    /// What a reset gives.
    credit: i64,
    /// The least and the most that a vCPU can have.
    bounds: (i64, i64),
    credits: Vec<i64>,
}

impl Plain {
    /// Accounts whose resets give `credit`; of what was left, `carried` at most stays.
    pub fn new(credit: Nanos, carried: Nanos) -> Plain {
        let credit = credit.0 as i64;
        Plain {
            credit,
            bounds: (-credit, credit + carried.0 as i64),
            credits: Vec::new(),
        }
    }
}

impl Credits for Plain {
    const NAME: &'static str = super::NAME;

    fn add(&mut self, _queue: usize) {
        self.credits.push(self.credit);
    }

    fn rank(&self, v: VcpuId) -> i64 {
        self.credits[v.at()]
    }

    fn burn(&mut self, v: VcpuId, amount: i64) {
        let credit = &mut self.credits[v.at()];
        *credit = (*credit - amount).max(self.bounds.0);
    }

    fn compensate(&mut self, v: VcpuId, amount: i64) {
        self.credits[v.at()] += amount;
    }

    fn renew(&mut self, _now: Nanos, next: VcpuId, members: &Members<'_>) -> Renewal {
        // So many that the next one has credit again.
        let times = 1 + (-self.rank(next)).max(0) / self.credit;
        for &v in members.all {
            let credit = &mut self.credits[v.at()];
            *credit = (*credit + times * self.credit).min(self.bounds.1);
        }
        Renewal::Reset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: i64 = 1_000_000;

    fn plain(vcpus: u32) -> (Plain, Vec<VcpuId>) {
        let mut plain = Plain::new(Nanos::from_millis(10), Nanos::from_micros(500));
        (0..vcpus).for_each(|_| plain.add(0));
        (plain, (0..vcpus).map(VcpuId).collect())
    }

    fn reset(plain: &mut Plain, all: &[VcpuId], next: VcpuId) {
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
        /// Credits are conserved: what there is, is what was given less what was burnt, what was
        /// cut off at a reset and what was forgiven at the minimum.
        #[test]
        fn credits_are_conserved(
            steps in prop::collection::vec((0_u32..4, 0_i64..15_000_000, any::<bool>()), 1..200),
        ) {
            let (mut plain, all) = plain(4);
            let sum = |plain: &Plain| all.iter().map(|&v| plain.rank(v)).sum::<i64>();
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
