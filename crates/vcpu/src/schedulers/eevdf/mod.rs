//! Model of Linux's EEVDF (Earliest Eligible Virtual Deadline First), by its published algorithm:
//! Stoica, Abdel-Wahab: Earliest Eligible Virtual Deadline First (Old Dominion University,
//! TR-95-22), and the kernel's documentation (`Documentation/scheduler/sched-eevdf.rst`); the
//! rules, none of the code.
//!
//! Each pCPU has a run-queue. A vCPU is *eligible* if its virtual run-time is not ahead of the
//! queue's weighted average, which is the same as a lag of 0 or more; of the eligible ones that
//! with the earliest virtual deadline runs. Decisions fall at wake-ups, blocks and ticks.
//!
//! | feature of Linux  | rule here                                                               |
//! |-------------------|-------------------------------------------------------------------------|
//! | `RUN_TO_PARITY`   | the running vCPU stays until its deadline or until it is not eligible    |
//! | `PLACE_LAG`       | a vCPU that wakes or moves keeps the lag with which it left              |
//! | `DELAY_DEQUEUE`   | a vCPU that blocks ahead of the average stays until its lag is 0         |
//! | `DELAY_ZERO`      | such a vCPU earns no positive lag                                        |
//! | CFS bandwidth     | a cap is CPU time per 100 ms, checked at ticks and decisions             |
//!
//! vCPUs are threads of one group: there is no group per VM, and a weight is that of each vCPU. A
//! waking vCPU takes an idle pCPU of its socket, otherwise the one it ran on. A pCPU that would
//! idle pulls a waiting vCPU, and the load is evened out every 16 ms per pCPU.

mod balance;
mod queue;
#[cfg(test)]
mod tests;

use crate::machine::{CpuSet, Machine, PcpuId, VcpuId};
use crate::scheduler::{Choice, Counts, Scheduler};
use crate::spec::{ParamGroup, ParamInfo, SchedulerInfo, SchedulerSpec};
use queue::{Entity, Queues};
use tidegate_core::time::Nanos;

/// Parameters of EEVDF.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// CPU time of a request: a vCPU's virtual deadline lies this far ahead of its virtual
    /// run-time.
    pub slice: Nanos,
    /// Period of the tick, at which a running vCPU may be replaced without a wake-up.
    pub tick: Nanos,
    /// Keeps the running vCPU until its deadline while it is eligible (`RUN_TO_PARITY`); otherwise
    /// for 0.7 ms.
    pub run_to_parity: bool,
}

/// Registry entry of EEVDF.
pub static SCHEDULER: SchedulerInfo = SchedulerInfo {
    name: "eevdf",
    summary: "Linux's EEVDF: of the vCPUs behind their share, the earliest virtual deadline first",
    source: "Stoica, Abdel-Wahab, TR-95-22, 1995; Linux, Documentation/scheduler/sched-eevdf.rst",
    old_names: &[],
    groups: &[ParamGroup {
        shared: None,
        params: &[
            ParamInfo::duration(
                "base_slice",
                Nanos::from_micros(2_800),
                (Nanos::from_micros(100), Nanos::from_millis(100)),
                "CPU time of a request, as `sched_setattr` sets it; the default is that of 8 pCPUs",
            ),
            ParamInfo::duration(
                "tick_period",
                Nanos::from_millis(4),
                (Nanos::from_micros(100), Nanos::from_millis(100)),
                "period of the tick: 4 ms is HZ 250, 1 ms is HZ 1000",
            ),
            ParamInfo::flag(
                "run_to_parity",
                true,
                "keep the running vCPU until its deadline while it is eligible",
            ),
        ],
    }],
    build: |spec, machine| Box::new(Eevdf::new(Params::from_spec(spec), machine)),
};

/// Protection of the running vCPU without `RUN_TO_PARITY`: Linux's base slice on one pCPU.
const LEAST_SLICE: Nanos = Nanos::from_micros(700);
/// Period of CPU bandwidth, Linux's default `cpu.cfs_period_us`.
const BANDWIDTH_PERIOD: Nanos = Nanos::from_millis(100);
/// Time between the load balancing of one pCPU and of the next, so that each balances once in that
/// many times 16 ms as the machine has pCPUs: Linux's interval of 1 ms a pCPU, times `busy_factor`.
const BALANCE_INTERVAL: Nanos = Nanos::from_millis(16);

impl Params {
    /// Reads the parameters from a scheduler that declares them.
    pub fn from_spec(spec: &SchedulerSpec) -> Params {
        Params {
            slice: spec.duration("base_slice"),
            tick: spec.duration("tick_period"),
            run_to_parity: spec.flag("run_to_parity"),
        }
    }

    /// Returns the spec of EEVDF with these parameters.
    pub fn spec(&self) -> SchedulerSpec {
        SchedulerSpec::new(&SCHEDULER).with_all(&[
            ("base_slice", self.slice.0),
            ("tick_period", self.tick.0),
            ("run_to_parity", self.run_to_parity.into()),
        ])
    }
}

impl Default for Params {
    /// Defaults of the registry.
    fn default() -> Params {
        Params::from_spec(&SchedulerSpec::new(&SCHEDULER))
    }
}

/// EEVDF scheduler.
#[derive(Debug)]
pub struct Eevdf {
    params: Params,
    queues: Queues,
    /// CPU time in nanoseconds that each VM may use in this bandwidth period; `None`: no cap.
    bandwidth: Vec<Option<i64>>,
    /// pCPUs whose running vCPU a queued one replaces at the next decision.
    preempted: CpuSet,
    next_tick: Nanos,
    next_period: Nanos,
    next_balance: Nanos,
    /// pCPU that balances its load next.
    balancing: PcpuId,
    counts: Counts,
}

impl Eevdf {
    /// Creates EEVDF for a machine whose vCPUs are all blocked.
    pub fn new(params: Params, machine: &Machine) -> Eevdf {
        // The pCPU after the largest number is the first one.
        let mut last = PcpuId(u8::MAX);
        let entities = machine.vcpus.iter().enumerate().map(|(v, vcpu)| {
            // Round robin over the allowed pCPUs spreads the vCPUs at start.
            last = vcpu.affinity.after(last).unwrap_or(PcpuId(0));
            let weight = machine.vm_of(VcpuId(v as u32)).weight;
            Entity::new(weight, params.slice, last)
        });
        let entities = entities.collect();
        Eevdf {
            params,
            queues: Queues::new(entities, machine.pcpus.len(), params.slice + params.tick),
            bandwidth: (machine.vms.iter())
                .map(|vm| (vm.cap > 0).then(|| quota(vm.cap)))
                .collect(),
            preempted: CpuSet::EMPTY,
            next_tick: params.tick,
            next_period: BANDWIDTH_PERIOD,
            next_balance: BALANCE_INTERVAL,
            balancing: PcpuId(0),
            counts: Counts::default(),
        }
    }

    /// Accounts the run-time of `v`, which runs, up to `now`.
    fn charge(&mut self, machine: &Machine, now: Nanos, v: VcpuId) {
        let ran = self.queues.charge(v, now);
        if let Some(left) = &mut self.bandwidth[machine.vcpu(v).vm.index()] {
            *left -= ran.0 as i64;
        }
    }

    /// Returns whether the VM of `v` has used up its bandwidth.
    fn is_over_cap(&self, machine: &Machine, v: VcpuId) -> bool {
        self.bandwidth[machine.vcpu(v).vm.index()].is_some_and(|left| left <= 0)
    }

    /// Returns the vCPU that should run on `p`, whose running vCPU is up to date: the running one
    /// while it is protected, otherwise the eligible one with the earliest deadline.
    fn pick(&self, machine: &Machine, p: PcpuId) -> Option<VcpuId> {
        let running = machine.pcpu(p).running;
        let stays = running.filter(|&v| {
            machine.vcpu(v).is_runnable()
                && self.queues.is_queued_on(v, p)
                && self.queues.is_protected(v)
                && self.queues.is_eligible(v)
        });
        stays.or_else(|| self.queues.earliest_eligible(p, running))
    }

    /// Queues `v`, which is runnable, on `p`, and kicks `p` if `v` should run there now.
    fn enqueue(&mut self, machine: &Machine, now: Nanos, v: VcpuId, p: PcpuId, kicks: &mut CpuSet) {
        if let Some(running) = machine.pcpu(p).running {
            // The average is that of this moment only after the running vCPU is charged.
            self.charge(machine, now, running);
        }
        self.queues.place(v, p);
        self.kick_if_next(machine, v, p, kicks);
    }

    /// Kicks `p` if it idles, or if `v`, which is queued there, should run instead of the running
    /// vCPU.
    fn kick_if_next(&mut self, machine: &Machine, v: VcpuId, p: PcpuId, kicks: &mut CpuSet) {
        if machine.pcpu(p).running.is_none() {
            kicks.insert(p);
        } else if self.pick(machine, p) == Some(v) {
            self.preempted.insert(p);
            kicks.insert(p);
        }
    }

    /// Returns whether `v`, which runs on `p`, continues without a choice: a tick replaces it only
    /// after its deadline, even if it is not eligible.
    fn goes_on(&self, machine: &Machine, p: PcpuId, v: VcpuId) -> bool {
        machine.vcpu(v).is_runnable()
            && self.queues.is_queued_on(v, p)
            && self.queues.is_protected(v)
            && !self.preempted.has(p)
    }

    /// pCPU for `v`, which wakes: the one it ran on if that is free, otherwise a free one of its
    /// socket, otherwise the one it ran on.
    fn home_of(&self, machine: &Machine, v: VcpuId) -> PcpuId {
        let home = self.queues.entity(v).home;
        let socket = machine.pcpu(home).socket;
        let is_free = |p: &PcpuId| {
            let pcpu = machine.pcpu(*p);
            pcpu.socket == socket && pcpu.running.is_none() && self.queues.load(*p) == 0
        };
        let free: CpuSet = machine.vcpu(v).affinity.and(machine.all_pcpus());
        let free: CpuSet = free.iter().filter(is_free).collect();
        if free.has(home) {
            home
        } else {
            free.after(home).unwrap_or(home)
        }
    }

    /// Takes `v`, which has left its queue for lack of bandwidth, back to the queues.
    fn unpark(&mut self, machine: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        self.queues.entity_mut(v).parked = false;
        if machine.vcpu(v).is_runnable() {
            let home = self.home_of(machine, v);
            self.enqueue(machine, now, v, home, kicks);
        }
    }

    /// Adds a period's bandwidth to all capped VMs.
    fn refill(&mut self, machine: &Machine, now: Nanos, kicks: &mut CpuSet) {
        for (vm, left) in machine.vms.iter().zip(&mut self.bandwidth) {
            if let Some(left) = left {
                // Unused time is lost, an overrun is paid back.
                *left = (*left + quota(vm.cap)).min(quota(vm.cap));
            }
        }
        for v in (0..machine.vcpus.len()).map(|v| VcpuId(v as u32)) {
            if self.queues.entity(v).parked && !self.is_over_cap(machine, v) {
                self.unpark(machine, now, v, kicks);
            }
        }
    }

    /// Returns the next vCPU for `p`. vCPUs whose VM has no bandwidth, and those that are blocked
    /// and have worked off their lead, leave the queue when their turn comes.
    fn take_next(&mut self, machine: &Machine, p: PcpuId) -> Option<VcpuId> {
        loop {
            let v = self.pick(machine, p)?;
            if self.queues.entity(v).delayed {
                self.queues.remove_delayed(v);
            } else if self.is_over_cap(machine, v) {
                self.queues.remove(v);
                self.queues.entity_mut(v).parked = true;
            } else {
                return Some(v);
            }
        }
    }
}

/// CPU time in nanoseconds of a bandwidth period for a cap in hundredths of a pCPU.
fn quota(cap: u32) -> i64 {
    BANDWIDTH_PERIOD.0 as i64 / 100 * i64::from(cap)
}

impl Scheduler for Eevdf {
    fn name(&self) -> &'static str {
        SCHEDULER.name
    }

    fn wake(&mut self, machine: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        let entity = *self.queues.entity(v);
        if entity.delayed {
            // Still queued where it blocked: it is not moved.
            if let Some(running) = machine.pcpu(entity.home).running {
                self.charge(machine, now, running);
            }
            self.queues.resume_delayed(v);
            self.kick_if_next(machine, v, entity.home, kicks);
        } else if self.is_over_cap(machine, v) {
            self.queues.entity_mut(v).parked = true;
        } else {
            let home = self.home_of(machine, v);
            self.enqueue(machine, now, v, home, kicks);
        }
    }

    fn choose(&mut self, machine: &Machine, now: Nanos, p: PcpuId, _kicks: &mut CpuSet) -> Choice {
        let current = machine.pcpu(p).running;
        if let Some(v) = current {
            self.charge(machine, now, v);
            if !machine.vcpu(v).is_runnable() {
                self.queues.block(v);
            } else if self.is_over_cap(machine, v) {
                self.queues.remove(v);
                self.queues.entity_mut(v).parked = true;
            }
        }
        let next = match current.filter(|&v| self.goes_on(machine, p, v)) {
            Some(v) => Some(v),
            None => (self.take_next(machine, p)).or_else(|| self.pull(machine, now, p)),
        };
        self.preempted.remove(p);
        let Some(v) = next else {
            return Choice::IDLE;
        };
        let is_same = next == current;
        if !is_same || !self.queues.is_protected(v) {
            let protected = (!self.params.run_to_parity).then_some(LEAST_SLICE);
            self.queues.protect(v, protected);
        }
        if !is_same {
            self.queues.entity_mut(v).start = now;
        }
        // Ticks of all pCPUs fall at the same times.
        let ticks = now.0 / self.params.tick.0;
        Choice {
            run: next,
            until: Nanos((ticks + 1) * self.params.tick.0),
        }
    }

    fn left(&mut self, _machine: &Machine, _now: Nanos, _v: VcpuId, _kicks: &mut CpuSet) {}

    fn next_timer(&self) -> Option<Nanos> {
        Some(self.next_tick.min(self.next_period))
    }

    fn on_timer(&mut self, machine: &Machine, now: Nanos, kicks: &mut CpuSet) {
        if now >= self.next_period {
            self.next_period = now + BANDWIDTH_PERIOD;
            self.refill(machine, now, kicks);
        }
        if now >= self.next_tick {
            self.next_tick = now + self.params.tick;
            self.wake_idle(machine, kicks);
            if now >= self.next_balance {
                self.next_balance = now + BALANCE_INTERVAL;
                let all = machine.all_pcpus();
                self.balancing = all.after(self.balancing).unwrap_or(PcpuId(0));
                self.balance(machine, now, self.balancing, kicks);
            }
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    /// Lag of `v` in nanoseconds of its CPU time; positive: `v` has had less than its share.
    fn credit(&self, v: VcpuId) -> i64 {
        self.queues.lag_ns(v)
    }
}
