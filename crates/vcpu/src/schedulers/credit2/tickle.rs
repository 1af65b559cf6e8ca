//! Which pCPU is told that somebody waits.

use super::{Credit2, Credits};
use crate::machine::{CpuSet, Machine, PcpuId, VcpuId};
use tidegate_core::time::Nanos;

/// Somebody who has run so much less than the rate limit can be preempted already.
const TOLERANCE: Nanos = Nanos::from_micros(50);

impl<C: Credits> Credit2<C> {
    /// Tells the pCPU where `v`, which waits from now on, should run: one that idles, first of all
    /// the one it ran on; else that one if it may preempt there, which is one switch; else the one
    /// where it leads by most.
    pub(super) fn tickle(&mut self, machine: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        if let Some(p) = self.where_to(machine, now, v) {
            let entity = &mut self.entities[v.at()];
            entity.kicked = Some(p);
            self.queues[entity.queue].kicked.insert(p);
            kicks.insert(p);
        } else if self.params.looks_again {
            self.look_again(machine, now, v);
        }
    }

    /// Has the pCPU look again, where `v` has more credit than who runs, once that one has run for
    /// the rate limit: the pCPU where this is soonest.
    fn look_again(&mut self, machine: &Machine, now: Nanos, v: VcpuId) {
        let queue = &self.queues[self.entities[v.at()].queue];
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
            self.looks[p.at()] = self.looks[p.at()].min(at);
            self.timer = self.timer.min(at);
        }
    }

    fn where_to(&mut self, machine: &Machine, now: Nanos, v: VcpuId) -> Option<PcpuId> {
        let home = self.entities[v.at()].home;
        let queue = &self.queues[self.entities[v.at()].queue];
        let allowed = queue.cpus.and(machine.vcpu(v).affinity);
        let open = allowed.without(queue.kicked);
        let idle = open.and(queue.idle);
        if !idle.is_empty() {
            return match idle.has(home) {
                true => Some(home),
                false => idle.after(home),
            };
        }
        let busy = open.without(queue.idle);
        if busy.has(home) && self.score(machine, now, v, home) > 0 {
            return Some(home);
        }
        let mut best = (0, None);
        for p in busy.iter().filter(|&p| p != home) {
            let score = self.score(machine, now, v, p);
            if score > best.0 {
                best = (score, Some(p));
            }
        }
        best.1
    }

    /// By how much `v` leads over who runs on `p`; below 0 it cannot preempt there.
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

    /// By how much `v` leads over `running`, on `p`, less what moving it there must be worth.
    fn lead(&mut self, now: Nanos, v: VcpuId, p: PcpuId, running: VcpuId) -> i64 {
        self.burn(now, running);
        let lead = self.rank(v) - self.rank(running);
        match self.entities[v.at()].home == p {
            true => lead,
            false => lead - self.params.migrate_resist.0 as i64,
        }
    }
}
