//! Run-queue of Credit2: the vCPUs that share one or more pCPUs.

use super::credits::Credits;
use super::load::Load;
use crate::machine::{CpuSet, PcpuId, VcpuId};
use tidegate_core::time::Nanos;

/// Run-queue.
#[derive(Clone, Debug)]
pub(super) struct RunQueue {
    /// pCPUs that the run-queue serves.
    pub(super) cpus: CpuSet,
    /// Idle pCPUs among `cpus`.
    pub(super) idle: CpuSet,
    /// pCPUs among `cpus` that were kicked and have not chosen since.
    pub(super) kicked: CpuSet,
    /// All vCPUs assigned to the run-queue, blocked ones too.
    pub(super) members: Vec<VcpuId>,
    /// Members that wait for a pCPU, by falling rank; equal ranks in order of arrival.
    pub(super) waiting: Vec<VcpuId>,
    /// Largest weight of a member.
    pub(super) max_weight: u64,
    pub(super) load: Load,
    /// pCPU that the last assigned vCPU was placed on; start of the next cyclic search.
    pub(super) bias: PcpuId,
}

impl RunQueue {
    pub(super) fn new(cpus: CpuSet, vcpus: usize) -> RunQueue {
        RunQueue {
            cpus,
            idle: cpus,
            kicked: CpuSet::EMPTY,
            members: Vec::with_capacity(vcpus),
            waiting: Vec::with_capacity(vcpus),
            max_weight: 1,
            load: Load::new(0),
            bias: cpus.first().unwrap_or(PcpuId(0)),
        }
    }

    /// Inserts `v` behind waiting vCPUs of the same rank.
    pub(super) fn insert(&mut self, credits: &impl Credits, v: VcpuId) {
        let rank = credits.rank(v);
        // `>=`: first come, first served among equal ranks.
        let place = self.waiting.partition_point(|&w| credits.rank(w) >= rank);
        self.waiting.insert(place, v);
    }

    /// Removes `v`; returns `false` if it was not waiting.
    pub(super) fn remove(&mut self, v: VcpuId) -> bool {
        let place = self.waiting.iter().position(|&w| w == v);
        if let Some(place) = place {
            self.waiting.remove(place);
        }
        place.is_some()
    }

    /// Sorts the waiting vCPUs after ranks have changed; stable among equal ranks.
    pub(super) fn sort(&mut self, credits: &impl Credits) {
        self.waiting.sort_by_key(|&v| -credits.rank(v));
    }

    /// Returns the next pCPU of the run-queue among `allowed`, in round-robin order.
    pub(super) fn next_cpu(&mut self, allowed: CpuSet) -> Option<PcpuId> {
        let next = self.cpus.and(allowed).after(self.bias)?;
        self.bias = next;
        Some(next)
    }
}

/// State of a vCPU in Credit2 apart from its credit.
#[derive(Clone, Debug)]
pub(super) struct Entity {
    /// Share of CPU time relative to other vCPUs, at least 1.
    pub(super) weight: u64,
    /// Remainder of the last division of run-time by weight.
    pub(super) residual: u64,
    /// Start of the run-time that has not been burnt yet.
    pub(super) start: Nanos,
    /// pCPU on which the vCPU runs or ran last.
    pub(super) last_pcpu: PcpuId,
    /// Run-queue that the vCPU is assigned to.
    pub(super) queue: usize,
    /// Set from the choice of the vCPU until it has left its pCPU.
    pub(super) on: bool,
    /// pCPU that was kicked to fetch the vCPU.
    pub(super) kicked: Option<PcpuId>,
    /// Run-queue to which the vCPU moves once it has left its pCPU.
    pub(super) moving: Option<usize>,
    /// Average of the time for which the vCPU was runnable.
    pub(super) load: Load,
    /// CPU time in nanoseconds left under the cap; `i64::MAX` without a cap.
    pub(super) budget: i64,
    /// Parked because the VM's budget is empty; waits for a replenishment.
    pub(super) parked: bool,
}

impl Entity {
    /// Returns the credit in nanoseconds that running for `time` burns, if the largest weight is
    /// `max_weight`. Keeps the remainder of the division for the next call.
    pub(super) fn credit_of(&mut self, time: Nanos, max_weight: u64) -> i64 {
        // 64 bits suffice for all but very long times; a 128-bit division is far slower.
        let whole = time.0.checked_mul(max_weight);
        if let Some(all) = whole.and_then(|whole| whole.checked_add(self.residual)) {
            self.residual = all % self.weight;
            return (all / self.weight) as i64;
        }
        let all = u128::from(time.0) * u128::from(max_weight) + u128::from(self.residual);
        let weight = u128::from(self.weight);
        self.residual = (all % weight) as u64;
        (all / weight) as i64
    }

    /// CPU time in nanoseconds that `credit` allows.
    pub(super) fn time_of(&self, credit: i64, max_weight: u64) -> u64 {
        // A vCPU in debt has no time left.
        let credit = u128::from(credit.max(0) as u64);
        (credit * u128::from(self.weight) / u128::from(max_weight)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::credits::PlainCredits;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Order of the waiting vCPUs: by credit, equal ones by arrival.
        #[test]
        fn those_with_more_credit_go_first_and_among_equals_the_earlier(
            burnt in prop::collection::vec(0_i64..4, 1..30), leaves in 0_usize..30,
        ) {
            let mut credits = PlainCredits::new(Nanos::from_millis(10), Nanos::from_micros(500));
            let mut queue = RunQueue::new(CpuSet::first_n(1), burnt.len());
            for (v, burnt) in burnt.iter().enumerate() {
                let v = VcpuId(v as u32);
                credits.add(0);
                credits.burn(v, *burnt);
                queue.insert(&credits, v);
            }
            let gone = VcpuId((leaves % burnt.len()) as u32);
            prop_assert!(queue.remove(gone) && !queue.remove(gone));
            let mut due: Vec<VcpuId> = (0..burnt.len() as u32).map(VcpuId).collect();
            due.retain(|&v| v != gone);
            due.sort_by_key(|v| (burnt[v.index()], v.index()));
            prop_assert_eq!(&queue.waiting, &due);
            queue.sort(&credits);
            prop_assert_eq!(&queue.waiting, &due);
        }
    }
}
