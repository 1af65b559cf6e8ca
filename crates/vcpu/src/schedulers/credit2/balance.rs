//! Load balancing between run-queues: vCPUs are pushed, pulled or swapped.

use super::credits::Members;
use super::load::ONE;
use super::{Credit2, Credits};
use crate::machine::{CpuSet, Machine, VcpuId};
use tidegate_core::time::Nanos;

/// Difference in load below which nothing moves while the busier run-queue has spare pCPUs: the
/// load of one vCPU that is always runnable, Xen's `opt_underload_balance_tolerance` of 2^0.
const UNDERLOAD_TOLERANCE: i64 = ONE;
/// Difference in load below which nothing moves while the busier run-queue has no spare pCPU: Xen's
/// `opt_overload_balance_tolerance` of 2^-3.
const OVERLOAD_TOLERANCE: i64 = ONE / 8;

/// Best exchange of vCPUs found so far.
struct Exchange {
    /// Absolute difference of the two loads after the exchange.
    difference: i64,
    push: Option<VcpuId>,
    pull: Option<VcpuId>,
}

impl<C: Credits> Credit2<C> {
    /// Balances `queue` against the run-queue whose load differs most, if it differs enough.
    pub(super) fn balance(
        &mut self,
        machine: &Machine,
        now: Nanos,
        queue: usize,
        kicks: &mut CpuSet,
    ) {
        (self.queues.iter_mut()).for_each(|queue| queue.load.update(now, 0));
        let load = |q: usize| self.queues[q].load.average();
        let difference = |q: &usize| (load(queue) - load(*q)).abs();
        let others = (0..self.queues.len()).filter(|&q| q != queue);
        // Reversed, because `max_by_key` returns the last of equal elements.
        let Some(other) = others.rev().max_by_key(difference) else {
            return;
        };
        let most = load(queue).max(load(other));
        let cpus = |q: usize| self.queues[q].cpus.len();
        let tolerance = if most < cpus(queue).max(cpus(other)) as i64 * ONE {
            UNDERLOAD_TOLERANCE
        } else {
            OVERLOAD_TOLERANCE
        };
        if difference(&other) < tolerance {
            return;
        }
        let best = self.best_exchange(machine, now, queue, other);
        for (v, to) in [(best.push, other), (best.pull, queue)] {
            if let Some(v) = v {
                self.counts.balanced += 1;
                self.migrate(machine, now, v, to, kicks);
            }
        }
    }

    /// Returns the exchange of at most one vCPU each way that leaves the smallest difference of
    /// loads. Tries all pairs, so its time is the product of the two queues' lengths.
    fn best_exchange(
        &mut self,
        machine: &Machine,
        now: Nanos,
        here: usize,
        there: usize,
    ) -> Exchange {
        for q in [here, there] {
            for place in 0..self.queues[q].members.len() {
                let v = self.queues[q].members[place];
                self.entities[v.index()].load.update(now, 0);
            }
        }
        let load = |q: usize| self.queues[q].load.average();
        let load_of = |v: Option<VcpuId>| v.map_or(0, |v| self.entities[v.index()].load.average());
        let difference_now = load(here) - load(there);
        let mut best = Exchange {
            difference: difference_now.abs(),
            push: None,
            pull: None,
        };
        let may_move = |v: &VcpuId, to: usize| self.may_migrate(machine, *v, to);
        let movable = |from: usize, to: usize| {
            let members = self.queues[from].members.iter().copied();
            let all = members.filter(move |v| may_move(v, to)).map(Some);
            all.chain([None])
        };
        for push in movable(here, there) {
            for pull in movable(there, here) {
                // Moving a load from one side to the other changes the difference by twice its
                // size.
                let difference = (difference_now - 2 * load_of(push) + 2 * load_of(pull)).abs();
                if difference < best.difference {
                    best = Exchange {
                        difference,
                        push,
                        pull,
                    };
                }
            }
        }
        best
    }

    /// Balances the I/O of `queue` after a reset, if the credit accounts track I/O.
    pub(super) fn balance_io(
        &mut self,
        machine: &Machine,
        now: Nanos,
        queue: usize,
        kicks: &mut CpuSet,
    ) {
        let members = Members {
            queue,
            all: &self.queues[queue].members,
            is_runnable: &|v| machine.vcpu(v).is_runnable(),
        };
        let may = |v: VcpuId, to: usize| self.may_migrate(machine, v, to);
        if let Some((v, to)) = self.credits.io_move(&members, &may) {
            self.counts.io_balanced += 1;
            self.migrate(machine, now, v, to, kicks);
        }
    }

    /// Returns whether `v` may run on a pCPU of run-queue `to` and is not already moving.
    fn may_migrate(&self, machine: &Machine, v: VcpuId, to: usize) -> bool {
        let allowed = self.queues[to].cpus.and(machine.vcpu(v).affinity);
        self.entities[v.index()].moving.is_none() && !allowed.is_empty()
    }

    /// Moves `v` to another run-queue: at once, or when it has left its pCPU if it runs.
    fn migrate(&mut self, machine: &Machine, now: Nanos, v: VcpuId, to: usize, kicks: &mut CpuSet) {
        let entity = &mut self.entities[v.index()];
        let from = entity.queue;
        // A running vCPU cannot change queues: kick its pCPU, and `left` completes the move.
        if entity.on {
            entity.moving = Some(to);
            self.queues[from].kicked.insert(entity.last_pcpu);
            kicks.insert(entity.last_pcpu);
            return;
        }
        let waited = self.queues[from].remove(v);
        if waited {
            self.count_load(now, v, -1);
        }
        self.reassign(machine, v, to);
        if waited {
            self.enqueue(machine, now, v, false, kicks);
        }
    }

    /// Moves `v`, which neither runs nor waits, to another run-queue.
    pub(super) fn reassign(&mut self, machine: &Machine, v: VcpuId, to: usize) {
        let from = self.entities[v.index()].queue;
        let average = self.entities[v.index()].load.average();
        let entities = &self.entities;
        let queue = &mut self.queues[from];
        queue.members.retain(|&member| member != v);
        queue.load.shift(-average);
        // The leaving vCPU may have had the largest weight.
        let weights = queue.members.iter().map(|m| entities[m.index()].weight);
        queue.max_weight = weights.max().unwrap_or(1);
        self.weigh_members(from);
        let home = self.queues[to].next_cpu(machine.vcpu(v).affinity);
        let entity = &mut self.entities[v.index()];
        entity.queue = to;
        entity.last_pcpu = home.unwrap_or(entity.last_pcpu);
        // The kicked pCPU serves the old run-queue.
        entity.kicked = None;
        self.credits.moved(v, to);
        self.assign(v, to);
    }

    /// Adds `v` to the members of `queue`.
    pub(super) fn assign(&mut self, v: VcpuId, queue_number: usize) {
        let entity = &self.entities[v.index()];
        let queue = &mut self.queues[queue_number];
        queue.load.shift(entity.load.average());
        queue.max_weight = queue.max_weight.max(entity.weight);
        queue.members.push(v);
        self.weigh_members(queue_number);
    }

    /// Tells the accounts the weights of all members of `queue`.
    fn weigh_members(&mut self, queue: usize) {
        let queue = &self.queues[queue];
        for &v in &queue.members {
            let weight = self.entities[v.index()].weight;
            self.credits.weigh(v, weight, queue.max_weight);
        }
    }
}
