//! Choice of the vCPU that runs next on a pCPU, and of the length of its slice.

use super::credits::{Credits, Members, Renewal};
use super::{Credit2, IDLE_RANK, MIN_TIMER, Release};
use crate::machine::{Machine, PcpuId, VcpuId};
use tidegate_core::time::Nanos;

impl<C: Credits> Credit2<C> {
    /// Returns the vCPU that should run on `p`: the current one, or a waiting one with more credit;
    /// and whether any that waits was passed over.
    fn candidate(&mut self, machine: &Machine, now: Nanos, p: PcpuId) -> (Option<VcpuId>, bool) {
        let pcpu = machine.pcpu(p);
        let stays = pcpu.running.filter(|&v| {
            let entity = &self.entities[v.index()];
            machine.vcpu(v).is_runnable() && !entity.parked && entity.moving.is_none()
        });
        let queue = self.queue_of[p.index()];
        let first = self.queues[queue].waiting.first();
        if let (Some(v), Some(&first)) = (stays, first)
            && now.since(pcpu.since) < self.rate_limit(v, first)
        {
            return (stays, false);
        }
        let rank = stays.map_or(IDLE_RANK, |v| self.rank(v));
        let resist = self.params.migrate_resist.0 as i64;
        // Waiting vCPUs are in order of credit, so the first eligible one is the best.
        let mut place = 0;
        while let Some(&v) = self.queues[queue].waiting.get(place) {
            let entity = &self.entities[v.index()];
            let kicked = self.queues[queue].kicked;
            // Another pCPU was kicked to fetch this vCPU; taking it here would idle that pCPU.
            let elsewhere = entity.kicked.is_some_and(|k| k != p && kicked.has(k));
            let stands = entity.last_pcpu != p && rank + resist > self.rank(v);
            if elsewhere || stands || !machine.vcpu(v).affinity.has(p) {
                place += 1;
                continue;
            }
            // All later ones have even less credit.
            if self.rank(v) <= rank {
                break;
            }
            if self.take_budget_or_park(machine, v) {
                return (Some(v), place > 0);
            }
            // A vCPU without budget was parked, so it no longer waits.
            self.queues[queue].waiting.remove(place);
            self.count_load(now, v, -1);
        }
        (stays, place > 0)
    }

    /// Returns the candidate for `p`, after a reset of its run-queue's credits if an epoch has
    /// ended; the flag tells whether there was a reset.
    pub(super) fn candidate_with_credit(
        &mut self,
        machine: &Machine,
        now: Nanos,
        p: PcpuId,
    ) -> (Option<VcpuId>, bool) {
        let queue = self.queue_of[p.index()];
        let mut began = false;
        // At most three steps: CPU-BOOST begins, a reallocation, the choice after it.
        for _ in 0..3 {
            let (next, passed_over) = self.candidate(machine, now, p);
            let waits = self.queues[queue].waiting.first();
            let is_spent = |&v: &VcpuId| self.credits.is_spent(v);
            let none_passed_over = match self.params.release {
                Release::V4_12_3 => waits.is_none_or(is_spent),
                Release::V4_12_0 => !passed_over,
            };
            let Some(v) = next.filter(is_spent).filter(|_| none_passed_over) else {
                return (next, began);
            };
            let renewal = self.renew(machine, now, queue, v);
            began |= matches!(renewal, Renewal::Reset | Renewal::Reallocated);
            if matches!(renewal, Renewal::Kept | Renewal::Reset) {
                return (next, began);
            }
        }
        (self.candidate(machine, now, p).0, began)
    }

    fn renew(&mut self, machine: &Machine, now: Nanos, queue: usize, next: VcpuId) -> Renewal {
        self.burn_running(machine, now, queue);
        let entities = &self.entities;
        let is_runnable = |v: VcpuId| machine.vcpu(v).is_runnable() && !entities[v.index()].parked;
        let members = Members {
            queue,
            all: &self.queues[queue].members,
            is_runnable: &is_runnable,
        };
        let renewal = self.credits.renew(now, next, &members);
        match renewal {
            Renewal::Reset => self.counts.resets += 1,
            Renewal::Reallocated => {
                self.counts.resets += 1;
                self.queues[queue].sort(&self.credits);
            }
            Renewal::Boosted => {
                self.counts.boosts += 1;
                self.queues[queue].sort(&self.credits);
            }
            Renewal::Kept => {}
        }
        renewal
    }

    /// Length of the slice of `v` on `p`: its turn, or the time until its credit falls to that of
    /// the next vCPU or to 0.
    pub(super) fn slice(&self, machine: &Machine, now: Nanos, p: PcpuId, v: VcpuId) -> Nanos {
        let entity = &self.entities[v.index()];
        let queue = &self.queues[entity.queue];
        let pcpu = machine.pcpu(p);
        let since = if pcpu.running == Some(v) {
            pcpu.since
        } else {
            now
        };
        // A turn counts from the time the vCPU began to run, not from this decision.
        if let Some(turn) = self.credits.turn(v) {
            return (since + turn).since(now);
        }
        let ends = since + self.params.rate_limit;
        let least = ends.since(now).max(MIN_TIMER);
        let waits = queue.waiting.first().map_or(0, |&w| self.rank(w).max(0));
        let credit = if self.credits.has_long_slices(v) {
            (self.rank(v) - waits).min(self.credits.usable(v))
        } else {
            0
        };
        let time = entity.time_of(credit, queue.max_weight);
        // A capped vCPU stops when its quota is used up.
        let time = Nanos(time.min(entity.budget.max(0) as u64));
        // The minimum wins over `max_slice`: shorter slices would be spent on decisions.
        time.max(least).min(self.params.max_slice.max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{CpuSet, State};
    use crate::scheduler::Scheduler;
    use crate::schedulers::credit2::Params;

    /// Number of resets after a light vCPU has overdrawn its credit within the rate limit while
    /// another one waits with all of its credit; and the debt that is left.
    fn resets_beside_credit(release: Release) -> (u64, i64) {
        let (mut machine, mut kicks) = (Machine::new(1, 1), CpuSet::default());
        let cpu = machine.all_pcpus();
        machine.add_vm("light", 1, cpu, 1, 0);
        machine.add_vm("heavy", 1, cpu, 1_000, 0);
        let params = Params {
            release,
            ..Params::default()
        };
        let mut credit2 = Credit2::new(params, &machine);
        let (light, heavy) = (VcpuId(0), VcpuId(1));
        machine.vcpus[0].state = State::Waiting;
        credit2.wake(&machine, Nanos::ZERO, light, &mut kicks);
        let choice = credit2.choose(&machine, Nanos::ZERO, PcpuId(0), &mut kicks);
        assert_eq!(choice.run, Some(light));
        machine.vcpus[0].state = State::Running;
        machine.pcpus[0].running = Some(light);
        machine.vcpus[1].state = State::Waiting;
        credit2.wake(&machine, Nanos::ZERO, heavy, &mut kicks);
        // 100 us of the light vCPU are 100 ms of credit, of which it had 10.
        let now = Nanos::from_micros(100);
        let choice = credit2.choose(&machine, now, PcpuId(0), &mut kicks);
        assert_eq!(choice.run, Some(light), "it is within its rate limit");
        (credit2.counts().resets, credit2.credit(light))
    }

    /// Ten resets at once, as many as it takes to pay 90 ms of debt, raise the light vCPU to 10 ms.
    #[test]
    fn until_4_12_2_a_vcpu_without_credit_causes_a_reset_although_others_have_some() {
        assert_eq!(resets_beside_credit(Release::V4_12_3), (0, -10_000_000));
        assert_eq!(resets_beside_credit(Release::V4_12_0), (1, 10_000_000));
    }
}
