//! Choice of the pCPU to kick, that is to make it schedule anew by an interrupt, when a vCPU
//! becomes runnable (Xen's `runq_tickle`).

use super::{Credit2, Credits};
use crate::machine::{CpuSet, Machine, PcpuId, VcpuId};
use tidegate_core::time::Nanos;

/// Slack of the rate limit: a vCPU this close to its end may already be preempted. Xen's
/// `CSCHED2_RATELIMIT_TICKLE_TOLERANCE`.
const TOLERANCE: Nanos = Nanos::from_micros(50);

impl<C: Credits> Credit2<C> {
    /// Kicks the pCPU on which `v`, which has just become runnable, should run. In order of
    /// preference: an idle pCPU, first the one `v` ran on last; that one if `v` may preempt there,
    /// which costs one switch; the pCPU over whose vCPU `v` leads most.
    pub(super) fn tickle(&mut self, machine: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        // Marked as kicked, so that the next wake-up looks for another pCPU.
        if let Some(p) = self.choose_pcpu(machine, now, v) {
            let entity = &mut self.entities[v.index()];
            entity.kicked = Some(p);
            self.queues[entity.queue].kicked.insert(p);
            kicks.insert(p);
        } else if self.params.looks_again {
            self.schedule_early_decision(machine, now, v);
        }
    }

    /// Schedules an early decision on the pCPU where `v` can soonest preempt a vCPU with less
    /// credit, at the end of that vCPU's rate limit.
    fn schedule_early_decision(&mut self, machine: &Machine, now: Nanos, v: VcpuId) {
        let queue = &self.queues[self.entities[v.index()].queue];
        let busy = queue.cpus.and(machine.vcpu(v).affinity);
        let busy = busy.without(queue.idle).without(queue.kicked);
        let mut soonest: Option<(Nanos, PcpuId)> = None;
        for p in busy.iter() {
            let pcpu = machine.pcpu(p);
            let Some(running) = pcpu.running else {
                continue;
            };
            let at = pcpu.since + self.rate_limit(running, v);
            let is_sooner = soonest.is_none_or(|(other, _)| at < other);
            if at > now && is_sooner && self.lead(now, v, p, running) > 0 {
                soonest = Some((at, p));
            }
        }
        if let Some((at, p)) = soonest {
            self.early_decisions[p.index()] = self.early_decisions[p.index()].min(at);
            self.timer = self.timer.min(at);
        }
    }

    /// Returns the pCPU that `tickle` kicks; `None`: `v` may preempt nowhere, and waits
    /// in the run queue.
    fn choose_pcpu(&mut self, machine: &Machine, now: Nanos, v: VcpuId) -> Option<PcpuId> {
        let home = self.entities[v.index()].last_pcpu;
        let queue = &self.queues[self.entities[v.index()].queue];
        let allowed = queue.cpus.and(machine.vcpu(v).affinity);
        // A kicked pCPU is about to choose and may take another vCPU.
        let open = allowed.without(queue.kicked);
        let idle = open.and(queue.idle);
        if !idle.is_empty() {
            return if idle.has(home) {
                Some(home)
            } else {
                idle.after(home)
            };
        }
        let busy = open.without(queue.idle);
        if busy.has(home) && self.score(machine, now, v, home) > 0 {
            return Some(home);
        }
        // Starts at 0, because `v` may preempt only where its lead is positive.
        let mut best = (0, None);
        for p in busy.iter().filter(|&p| p != home) {
            let score = self.score(machine, now, v, p);
            if score > best.0 {
                best = (score, Some(p));
            }
        }
        best.1
    }

    /// Lead in credit of `v` over the vCPU that runs on `p`; negative if it may not preempt there.
    fn score(&mut self, machine: &Machine, now: Nanos, v: VcpuId, p: PcpuId) -> i64 {
        let pcpu = machine.pcpu(p);
        let Some(running) = pcpu.running else {
            return -1;
        };
        let protected = self.rate_limit(running, v).since(TOLERANCE);
        if protected > Nanos::ZERO && now.since(pcpu.since) <= protected {
            return -1;
        }
        self.lead(now, v, p, running)
    }

    /// Lead in credit of `v` over `running` on `p`, less the migration resistance if `v` would
    /// move.
    fn lead(&mut self, now: Nanos, v: VcpuId, p: PcpuId, running: VcpuId) -> i64 {
        // The running vCPU's credit is out of date until it is charged.
        self.burn(now, running);
        let lead = self.rank(v) - self.rank(running);
        if self.entities[v.index()].last_pcpu == p {
            lead
        } else {
            lead - self.params.migrate_resist.0 as i64
        }
    }
}
