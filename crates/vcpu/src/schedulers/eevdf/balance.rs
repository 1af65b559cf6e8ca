//! Movement of waiting vCPUs between the run-queues of EEVDF.

use super::Eevdf;
use crate::machine::{CpuSet, Machine, PcpuId, VcpuId};
use tidegate_core::time::Nanos;

impl Eevdf {
    /// vCPUs that wait in the queue of `from` and may run on `to`, the least recently run first, as
    /// Linux keeps them.
    fn movable(&self, machine: &Machine, from: PcpuId, to: PcpuId) -> Vec<VcpuId> {
        let running = machine.pcpu(from).running;
        let members = self.queues.members(from).iter().copied();
        let may = |&v: &VcpuId| {
            Some(v) != running && !self.queues.entity(v).delayed && machine.vcpu(v).affinity.has(to)
        };
        let mut all: Vec<VcpuId> = members.filter(may).collect();
        all.sort_by_key(|&v| self.queues.entity(v).start);
        all
    }

    /// pCPU with the largest load that has a vCPU for `to`.
    fn busiest(&self, machine: &Machine, to: PcpuId) -> Option<PcpuId> {
        let others = machine.all_pcpus().iter().filter(|&p| p != to);
        let some = others.filter(|&p| !self.movable(machine, p, to).is_empty());
        // Reversed, because `max_by_key` returns the last of equal elements.
        let all: Vec<PcpuId> = some.collect();
        all.into_iter().rev().max_by_key(|&p| self.queues.load(p))
    }

    /// Moves `v`, which waits, to the queue of `to`; its lag moves with it.
    fn migrate(&mut self, machine: &Machine, now: Nanos, v: VcpuId, to: PcpuId) {
        for p in [self.queues.entity(v).home, to] {
            if let Some(running) = machine.pcpu(p).running
                && self.queues.is_queued_on(running, p)
            {
                self.charge(machine, now, running);
            }
        }
        self.queues.remove(v);
        self.queues.place(v, to);
        self.counts.balanced += 1;
    }

    /// Takes a waiting vCPU from the busiest other pCPU, for `p`, which would idle.
    pub(super) fn pull(&mut self, machine: &Machine, now: Nanos, p: PcpuId) -> Option<VcpuId> {
        let from = self.busiest(machine, p)?;
        let all = self.movable(machine, from, p);
        let v = all.into_iter().find(|&v| !self.is_over_cap(machine, v))?;
        self.migrate(machine, now, v, p);
        Some(v)
    }

    /// Has idle pCPUs choose again if there is a waiting vCPU for them, which they then pull.
    pub(super) fn wake_idle(&self, machine: &Machine, kicks: &mut CpuSet) {
        for p in machine.all_pcpus().iter() {
            if machine.pcpu(p).running.is_none() && self.busiest(machine, p).is_some() {
                kicks.insert(p);
            }
        }
    }

    /// Moves a waiting vCPU from the busiest pCPU to `p`, if that does not leave `p` with a larger
    /// lead than the other has now.
    pub(super) fn balance(&mut self, machine: &Machine, now: Nanos, p: PcpuId, kicks: &mut CpuSet) {
        let Some(from) = self.busiest(machine, p) else {
            return;
        };
        let difference = self.queues.load(from).saturating_sub(self.queues.load(p));
        // A move of the whole difference turns it round: unequal queues take turns, as in Linux
        // after some failed attempts.
        let fits = |v: &VcpuId| self.queues.weight(*v) <= difference;
        if let Some(v) = self.movable(machine, from, p).into_iter().find(fits) {
            self.migrate(machine, now, v, p);
            self.kick_if_next(machine, v, p, kicks);
        }
    }
}
