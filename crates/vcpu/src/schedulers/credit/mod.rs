//! Credit, Xen's first credit scheduler, by the rules of Xen 4.12 (`xen/common/sched_credit.c`; the
//! rules, none of the code).
//!
//! Each pCPU has a run-queue with three classes: BOOST for vCPUs that wake with credit left, UNDER
//! for vCPUs with credit, OVER for vCPUs without; first in, first out within a class. Credits are
//! distributed every 30 ms by weight among active vCPUs. A pCPU that is about to idle or to run a
//! vCPU in OVER first tries to steal a vCPU of a higher class from other pCPUs.

mod account;

use crate::machine::{CpuSet, Machine, PcpuId, VcpuId};
use crate::scheduler::{Choice, Counts, Scheduler};
use crate::spec::{ParamGroup, ParamInfo, SchedulerInfo, SchedulerSpec};
use account::{Account, Class};
use std::collections::VecDeque;
use tidegate_core::time::Nanos;

/// Parameters of Credit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Longest time that a vCPU runs before the scheduler decides again, and period of distributing
    /// credits.
    pub slice: Nanos,
    /// Period of charging the running vCPUs, which also ends their boost.
    pub tick: Nanos,
    /// Minimum time that a vCPU runs before it may be preempted.
    pub rate_limit: Nanos,
}

/// Registry entry of Credit.
pub static SCHEDULER: SchedulerInfo = SchedulerInfo {
    name: "credit",
    summary: "classes BOOST, UNDER and OVER; credits distributed by weight every 30 ms",
    source: "Xen 4.12, xen/common/sched_credit.c",
    old_names: &[],
    groups: &[ParamGroup {
        shared: None,
        params: &[
            ParamInfo::duration(
                "slice",
                Nanos::from_millis(30),
                DURATION_RANGE,
                "longest time slice, and period of distributing credits",
            ),
            ParamInfo::duration(
                "tick",
                Nanos::from_millis(10),
                DURATION_RANGE,
                "period of charging the running vCPUs, which also ends their boost",
            ),
            ParamInfo::RATE_LIMIT,
        ],
    }],
    build: |spec, machine| Box::new(Credit::new(Params::from_spec(spec), machine)),
};

/// Range of slices and ticks.
const DURATION_RANGE: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::SECOND);

impl Params {
    /// Reads the parameters from a scheduler that declares them.
    pub fn from_spec(spec: &SchedulerSpec) -> Params {
        Params {
            slice: spec.duration("slice"),
            tick: spec.duration("tick"),
            rate_limit: spec.duration("rate_limit"),
        }
    }
}

/// Credit scheduler.
#[derive(Debug)]
pub struct Credit {
    params: Params,
    accounts: Vec<Account>,
    /// Waiting vCPUs by pCPU, sorted by class, then arrival.
    queues: Vec<VecDeque<VcpuId>>,
    idle: CpuSet,
    next_tick: Nanos,
    next_slice: Nanos,
    /// Sum of the negative credits of active vCPUs, distributed on top of the regular amount.
    owed: i64,
    counts: Counts,
}

impl Credit {
    /// Creates Credit for a machine whose vCPUs are all blocked.
    pub fn new(params: Params, machine: &Machine) -> Credit {
        // The pCPU after the largest number is the first one.
        let mut last = PcpuId(u8::MAX);
        let accounts = machine.vcpus.iter().map(|vcpu| {
            // Round robin over the allowed pCPUs spreads the vCPUs at start.
            last = vcpu.affinity.after(last).unwrap_or(PcpuId(0));
            Account::new(last)
        });
        Credit {
            params,
            accounts: accounts.collect(),
            queues: vec![VecDeque::with_capacity(machine.vcpus.len()); machine.pcpus.len()],
            idle: machine.all_pcpus(),
            next_tick: params.tick,
            next_slice: params.slice,
            owed: 0,
            counts: Counts::default(),
        }
    }

    fn class(&self, v: VcpuId) -> Class {
        self.accounts[v.index()].class
    }

    /// Inserts `v` into its pCPU's run-queue, behind vCPUs of its class.
    fn insert(&mut self, v: VcpuId) {
        let class = self.class(v);
        let home = self.accounts[v.index()].home;
        let queue = &self.queues[home.index()];
        let place = queue.partition_point(|w| self.accounts[w.index()].class >= class);
        self.queues[home.index()].insert(place, v);
    }

    /// Kicks pCPUs because `v` waits: its own if that idles or `v` may preempt there, and otherwise
    /// also an idle one, which can steal it.
    fn tickle(&mut self, machine: &Machine, v: VcpuId, kicks: &mut CpuSet) {
        let home = self.accounts[v.index()].home;
        let running = machine.pcpu(home).running;
        if running.is_none_or(|w| self.class(v) > self.class(w)) {
            kicks.insert(home);
        }
        // Where the own pCPU idles, it takes `v` without help.
        if running.is_some() {
            let idle = self.idle.and(machine.vcpu(v).affinity).without(*kicks);
            if let Some(p) = idle.after(home) {
                kicks.insert(p);
            }
        }
    }

    /// Takes a waiting vCPU of a class above `class` (`None`: of any class) that may run on `p`
    /// from another pCPU's run-queue, and moves it to `p`.
    fn steal(&mut self, machine: &Machine, p: PcpuId, class: Option<Class>) -> Option<VcpuId> {
        let peers = machine.all_pcpus();
        // Xen walks the other pCPUs in cyclic order from its own.
        let mut peer = p;
        while let Some(next) = peers.after(peer).filter(|&next| next != p) {
            peer = next;
            let may = |v: &&VcpuId| machine.vcpu(**v).affinity.has(p);
            let above = |v: &&VcpuId| class.is_none_or(|class| self.class(**v) > class);
            let found = self.queues[peer.index()]
                .iter()
                .find(|v| may(v) && above(v));
            if let Some(&v) = found {
                self.take(v);
                self.accounts[v.index()].home = p;
                self.counts.balanced += 1;
                return Some(v);
            }
        }
        None
    }

    /// Removes `v` from its run-queue.
    fn take(&mut self, v: VcpuId) {
        let home = self.accounts[v.index()].home.index();
        self.queues[home].retain(|&w| w != v);
    }

    /// Charges the vCPU that runs on `p`, ends its boost and marks it active.
    fn tick(&mut self, machine: &Machine, now: Nanos, p: PcpuId) {
        if let Some(v) = machine.pcpu(p).running {
            let account = &mut self.accounts[v.index()];
            account.burn(now);
            account.is_active = true;
            if account.class == Class::Boost {
                account.class = Class::Under;
            }
        }
    }
}

impl Scheduler for Credit {
    fn name(&self) -> &'static str {
        SCHEDULER.name
    }

    fn wake(&mut self, machine: &Machine, _now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        let account = &mut self.accounts[v.index()];
        if account.parked {
            return;
        }
        // Only a vCPU with credit left is boosted at wake-up.
        if account.class == Class::Under {
            account.class = Class::Boost;
        }
        self.insert(v);
        self.tickle(machine, v, kicks);
    }

    fn choose(&mut self, machine: &Machine, now: Nanos, p: PcpuId, _kicks: &mut CpuSet) -> Choice {
        let pcpu = *machine.pcpu(p);
        let could = |v: &VcpuId| machine.vcpu(*v).is_runnable();
        if let Some(v) = pcpu.running {
            self.accounts[v.index()].burn(now);
        }
        let stays = pcpu.running.filter(could);
        let stays = stays.filter(|v| !self.accounts[v.index()].parked);
        let ran = now.since(pcpu.since);
        // Decides again when the rest of the rate limit is over.
        if stays.is_some() && ran < self.params.rate_limit {
            return Choice {
                run: stays,
                until: now + self.params.rate_limit.since(ran),
            };
        }
        // A vCPU that could continue yields to waiting ones of its own class.
        let waits = self.queues[p.index()].front().copied();
        let next = match (stays, waits) {
            (Some(v), Some(w)) if self.class(v) > self.class(w) => Some(v),
            (stays, waits) => waits.or(stays),
        };
        let class = next.map(|v| self.class(v));
        let stolen = match class {
            Some(Class::Under | Class::Boost) => None,
            // Rather than run a vCPU without credit, look for one with credit elsewhere.
            over_or_idle => self.steal(machine, p, over_or_idle),
        };
        let next = stolen.or(next);
        if stolen.is_none() && next == waits {
            self.queues[p.index()].pop_front();
        }
        let Some(v) = next else {
            self.idle.insert(p);
            return Choice::IDLE;
        };
        self.idle.remove(p);
        self.accounts[v.index()].start = now;
        Choice {
            run: Some(v),
            until: now + self.params.slice,
        }
    }

    fn left(&mut self, machine: &Machine, _now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        if machine.vcpu(v).is_runnable() && !self.accounts[v.index()].parked {
            self.insert(v);
            // An idle pCPU may steal it.
            let idle = self.idle.and(machine.vcpu(v).affinity);
            if let Some(p) = idle.after(self.accounts[v.index()].home) {
                kicks.insert(p);
            }
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        Some(self.next_tick.min(self.next_slice))
    }

    fn on_timer(&mut self, machine: &Machine, now: Nanos, kicks: &mut CpuSet) {
        // Before the distribution, which serves the vCPUs that a tick has marked active.
        if now >= self.next_tick {
            self.next_tick = now + self.params.tick;
            machine
                .all_pcpus()
                .iter()
                .for_each(|p| self.tick(machine, now, p));
        }
        if now >= self.next_slice {
            self.next_slice = now + self.params.slice;
            self.distribute(machine, now, kicks);
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn credit(&self, v: VcpuId) -> i64 {
        self.accounts[v.index()].credit
    }
}
