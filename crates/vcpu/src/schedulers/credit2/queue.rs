//! A run-queue: the vCPUs of one or several pCPUs.

use super::credits::Credits;
use super::load::Load;
use crate::machine::{CpuSet, PcpuId, VcpuId};
use tidegate_core::time::Nanos;

/// A run-queue.
#[derive(Clone, Debug)]
pub(super) struct RunQueue {
    /// Its pCPUs.
    pub(super) cpus: CpuSet,
    /// Those of them that idle.
    pub(super) idle: CpuSet,
    /// Those of them that were told to choose anew and have not yet.
    pub(super) kicked: CpuSet,
    /// Every vCPU that is assigned to it, sleepers too.
    pub(super) members: Vec<VcpuId>,
    /// Those of them that could run and do not, by rank; among equals the earlier first.
    pub(super) waiting: Vec<VcpuId>,
    /// The largest weight among its members.
    pub(super) max_weight: u64,
    pub(super) load: Load,
    /// The pCPU that the last one who came was sent to.
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

    /// Takes `v` in behind those of its rank.
    pub(super) fn insert(&mut self, credits: &impl Credits, v: VcpuId) {
        let rank = credits.rank(v);
        let place = self.waiting.partition_point(|&w| credits.rank(w) >= rank);
        self.waiting.insert(place, v);
    }

    /// Takes `v` out; false where it was not waiting.
    pub(super) fn remove(&mut self, v: VcpuId) -> bool {
        let place = self.waiting.iter().position(|&w| w == v);
        if let Some(place) = place {
            self.waiting.remove(place);
        }
        place.is_some()
    }

    /// Puts those that wait in order, after ranks have changed.
    pub(super) fn sort(&mut self, credits: &impl Credits) {
        self.waiting.sort_by_key(|&v| -credits.rank(v));
    }

    /// The next of its pCPUs among `allowed`, each in its turn.
    pub(super) fn next_cpu(&mut self, allowed: CpuSet) -> Option<PcpuId> {
        let next = self.cpus.and(allowed).after(self.bias)?;
        self.bias = next;
        Some(next)
    }
}

/// What Credit2 knows of a vCPU beside its credit.
#[derive(Clone, Debug)]
pub(super) struct Entity {
    pub(super) weight: u64,
    /// What was left when the time it ran was last divided by its weight.
    pub(super) residual: u64,
    /// From when on what it runs has not been burnt yet.
    pub(super) start: Nanos,
    /// Where it runs, or ran last.
    pub(super) home: PcpuId,
    /// Its run-queue.
    pub(super) queue: usize,
    /// Chosen to run, until it has left its pCPU.
    pub(super) on: bool,
    /// The pCPU that was told to fetch it.
    pub(super) kicked: Option<PcpuId>,
    /// The run-queue that it goes to once it has left its pCPU.
    pub(super) moving: Option<usize>,
    pub(super) load: Load,
    /// Time it may run before it has to ask for more; only with a cap.
    pub(super) budget: i64,
    /// There was none: it waits for its VM to have some again.
    pub(super) parked: bool,
}

impl Entity {
    /// Credit that running for `time` costs, where the largest weight is `max_weight`.
    pub(super) fn credit_of(&mut self, time: Nanos, max_weight: u64) -> i64 {
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

    /// How long `credit` lasts.
    pub(super) fn time_of(&self, credit: i64, max_weight: u64) -> u64 {
        let credit = u128::from(credit.max(0) as u64);
        (credit * u128::from(self.weight) / u128::from(max_weight)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::credits::Plain;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Who waits is in the order of credit, and among equals in that of arrival.
        #[test]
        fn those_with_more_credit_go_first_and_among_equals_the_earlier(
            burnt in prop::collection::vec(0_i64..4, 1..30), leaves in 0_usize..30,
        ) {
            let mut credits = Plain::new(Nanos::from_millis(10), Nanos::from_micros(500));
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
            due.sort_by_key(|v| (burnt[v.at()], v.at()));
            prop_assert_eq!(&queue.waiting, &due);
            queue.sort(&credits);
            prop_assert_eq!(&queue.waiting, &due);
        }
    }
}
