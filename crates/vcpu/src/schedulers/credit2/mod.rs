//! Credit2, Xen's default scheduler, by the rules of Xen 4.12 (`xen/common/sched_credit2.c`; the
//! rules, none of the code), generic over the credit accounts so that ISACS can build on it.
//!
//! A run-queue serves one or more pCPUs. A running vCPU burns credit in inverse proportion to its
//! weight; the vCPU with the most credit runs next. When that one has no credit left, every vCPU
//! assigned to the run-queue gets the same amount added (a reset), and the run-queue's load is
//! balanced against another one. [`Release`] has the two rules by which releases of Xen decide that
//! no credit is left.
//!
//! ```text
//!            wake                    choose                    choose, left
//!  Blocked --------> Waiting -----------------> Running
//!            tickle: which pCPU is kicked
//! ```
//!
//! A vCPU that leaves its pCPU becomes
//! - *waiting*, if it is still runnable; in another run-queue if it is being moved,
//! - *blocked*, if its guest has nothing to do,
//! - *parked*, if its VM's cap is used up, until the VM has CPU time again.

mod balance;
mod cap;
mod choose;
pub mod credits;
mod load;
mod queue;
mod tickle;

use crate::machine::{CpuSet, Machine, PcpuId, VcpuId};
use crate::scheduler::{Choice, Counts, Scheduler};
use crate::spec::{ParamGroup, ParamInfo, ParamKind, SchedulerInfo, SchedulerSpec};
use cap::Budget;
use credits::{Credits, PlainCredits};
use load::{Load, ONE};
use queue::{Entity, RunQueue};
use tidegate_core::time::Nanos;

/// Assignment of pCPUs to run-queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunQueues {
    /// One run-queue per pCPU (`credit2_runqueue=core`).
    Core,
    /// One run-queue per socket, Xen's default.
    Socket,
    /// One run-queue for the whole machine.
    All,
}

/// Xen release whose rule of resets is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// Xen 4.12.3 (May 2020, commit c1a1c4e8fb) and later: a reset when the next vCPU to run and
    /// the first that waits have no credit; a vCPU's debt is at most the credit of a reset.
    V4_12_3,
    /// Xen 4.12.0 to 4.12.2: a reset when the next vCPU to run has no credit and none was passed
    /// over for it, also within the rate limit and while others wait with credit; debt is not
    /// bounded.
    V4_12_0,
}

/// Parameters of Credit2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Assignment of pCPUs to run-queues.
    pub run_queues: RunQueues,
    /// Credit that a reset adds.
    pub credit: Nanos,
    /// Longest time that a vCPU runs before the scheduler decides again.
    pub max_slice: Nanos,
    /// Minimum time that a vCPU runs before it may be preempted.
    pub rate_limit: Nanos,
    /// Extra credit that a vCPU needs to be moved to another pCPU of its run-queue.
    pub migrate_resist: Nanos,
    /// Decide again at the end of the rate limit if a vCPU with more credit woke within it. Xen
    /// lets such a vCPU wait until the slice ends.
    pub looks_again: bool,
    /// Release whose rule of resets is followed.
    pub release: Release,
}

/// Registry entry of Credit2.
pub static SCHEDULER: SchedulerInfo = SchedulerInfo {
    name: NAME,
    summary: "credit burnt by weight, largest credit first; Xen's default",
    source: "Xen 4.12, xen/common/sched_credit2.c",
    old_names: &[],
    groups: &[PARAMS, LOOKS_AGAIN],
    build: |spec, machine| Box::new(Credit2::new(Params::from_spec(spec), machine)),
};

/// Name in the registry.
const NAME: &str = "credit2";

/// Parameters of Credit2 and of all schedulers built on it.
pub const PARAMS: ParamGroup = ParamGroup {
    shared: Some(NAME),
    params: &[
        ParamInfo {
            name: "run_queues",
            kind: ParamKind::Choice(&["core", "socket", "all"]),
            default: RunQueues::Socket as u64,
            min: 0,
            max: 2,
            help: "pCPUs that share a run-queue: none (`core`), those of a socket, all",
        },
        ParamInfo::duration(
            "credit",
            Nanos::from_millis(10),
            DURATION_RANGE,
            "credit that each vCPU gets at a reset",
        ),
        ParamInfo::duration(
            "max_slice",
            Nanos::from_millis(10),
            DURATION_RANGE,
            "longest time slice",
        ),
        ParamInfo::RATE_LIMIT,
        ParamInfo::duration(
            "migrate_resist",
            Nanos::from_micros(500),
            (Nanos::ZERO, Nanos::SECOND),
            "lead in credit that a vCPU needs to move to another pCPU of its run-queue",
        ),
        ParamInfo {
            name: "release",
            kind: ParamKind::Choice(&["4.12.3", "4.12.0"]),
            default: Release::V4_12_3 as u64,
            min: 0,
            max: 1,
            help: "Xen release whose rule of resets is followed; until 4.12.2 a vCPU that has \
                   used up its credit causes one although others have some",
        },
    ],
};

/// Range of durations that must not be zero; far below and above Xen's defaults of some
/// milliseconds.
const DURATION_RANGE: (Nanos, Nanos) = (Nanos::from_millis(1), Nanos::SECOND);

/// Parameter `looks_again` with Xen's behaviour as default.
pub const LOOKS_AGAIN: ParamGroup = ParamGroup {
    shared: None,
    params: &[looks_again(false)],
};

/// Declares `looks_again`, whose default differs between schedulers.
pub const fn looks_again(default: bool) -> ParamInfo {
    let help = "decide again at the end of the rate limit if a vCPU with more credit woke within \
                it; in Xen it waits for the end of the slice";
    ParamInfo::flag("looks_again", default, help)
}

impl Params {
    /// Reads the parameters from a scheduler that declares [`PARAMS`] and `looks_again`.
    pub fn from_spec(spec: &SchedulerSpec) -> Params {
        let run_queues = match spec.get("run_queues") {
            0 => RunQueues::Core,
            1 => RunQueues::Socket,
            _ => RunQueues::All,
        };
        Params {
            run_queues,
            credit: spec.duration("credit"),
            max_slice: spec.duration("max_slice"),
            rate_limit: spec.duration("rate_limit"),
            migrate_resist: spec.duration("migrate_resist"),
            looks_again: spec.flag("looks_again"),
            release: match spec.get("release") {
                0 => Release::V4_12_3,
                _ => Release::V4_12_0,
            },
        }
    }

    /// Credit in nanoseconds below which debt is forgiven.
    pub fn least_credit(&self) -> i64 {
        match self.release {
            Release::V4_12_3 => -(self.credit.0 as i64),
            // Far below any debt of a run, and far enough from the type's minimum to subtract from.
            Release::V4_12_0 => i64::MIN / 2,
        }
    }

    /// Sets these parameters in the spec of a scheduler built on Credit2.
    pub fn put(&self, spec: SchedulerSpec) -> SchedulerSpec {
        spec.with_all(&[
            ("run_queues", self.run_queues as u64),
            ("credit", self.credit.0),
            ("max_slice", self.max_slice.0),
            ("rate_limit", self.rate_limit.0),
            ("migrate_resist", self.migrate_resist.0),
            ("looks_again", self.looks_again.into()),
            ("release", self.release as u64),
        ])
    }

    /// Returns the spec of Credit2 with these parameters.
    pub fn spec(&self) -> SchedulerSpec {
        self.put(SchedulerSpec::new(&SCHEDULER))
    }
}

impl Default for Params {
    /// Defaults of the registry.
    fn default() -> Params {
        Params::from_spec(&SchedulerSpec::new(&SCHEDULER))
    }
}

/// Shortest time between two decisions, and largest credit carried over a reset (Xen's
/// `CSCHED2_MIN_TIMER`).
pub const MIN_TIMER: Nanos = Nanos::from_micros(500);
/// Credit in nanoseconds given to a vCPU that moved to another pCPU (Xen's
/// `CSCHED2_MIGRATE_COMPENSATION`).
const MIGRATE_COMPENSATION: i64 = 50_000;
/// Rank of an idle pCPU, below that of every vCPU (Xen's `CSCHED2_IDLE_CREDIT`).
const IDLE_RANK: i64 = -(1 << 30);

/// Credit2 scheduler with the credit accounts `C`.
#[derive(Debug)]
pub struct Credit2<C> {
    params: Params,
    credits: C,
    entities: Vec<Entity>,
    queues: Vec<RunQueue>,
    /// Run-queue of each pCPU.
    queue_of: Vec<usize>,
    /// Cap budget by VM; `None`: no cap.
    budgets: Vec<Option<Budget>>,
    /// Time at which each pCPU is to decide again early; [`Nanos::MAX`]: at the end of its slice.
    early_decisions: Vec<Nanos>,
    /// Lower bound of the next entry of `early_decisions` and of the next replenishment of a
    /// budget; may be too early.
    timer: Nanos,
    counts: Counts,
}

impl Credit2<PlainCredits> {
    /// Creates Credit2 for a machine whose vCPUs are all blocked.
    pub fn new(params: Params, machine: &Machine) -> Credit2<PlainCredits> {
        let credits = PlainCredits::new(params.credit, MIN_TIMER);
        let credits = credits.with_least(params.least_credit());
        Credit2::with(params, credits, machine)
    }
}

impl<C: Credits> Credit2<C> {
    /// Creates Credit2 with empty credit accounts, for a machine whose vCPUs are all blocked.
    pub fn with(params: Params, credits: C, machine: &Machine) -> Credit2<C> {
        // pCPUs of equal keys share a run-queue.
        let key = |p: PcpuId| match params.run_queues {
            RunQueues::Core => p.0,
            RunQueues::Socket => machine.pcpu(p).socket,
            RunQueues::All => 0,
        };
        let mut keys: Vec<u8> = machine.all_pcpus().iter().map(key).collect();
        // Equal keys are adjacent: sockets are numbered along with the pCPUs.
        keys.dedup();
        let cpus_with = |wanted: u8| {
            machine
                .all_pcpus()
                .iter()
                .filter(move |&p| key(p) == wanted)
        };
        let queues = keys.iter().map(|&wanted| cpus_with(wanted).collect());
        let queues: Vec<RunQueue> = queues
            .map(|cpus| RunQueue::new(cpus, machine.vcpus.len()))
            .collect();
        let queue_of = |p: PcpuId| queues.iter().position(|queue| queue.cpus.has(p));
        let queue_of = machine.all_pcpus().iter().filter_map(queue_of).collect();
        let mut scheduler = Credit2 {
            params,
            credits,
            entities: Vec::with_capacity(machine.vcpus.len()),
            queues,
            queue_of,
            budgets: (machine.vms.iter())
                .map(|vm| Budget::new(vm.cap, vm.vcpus.len(), MIN_TIMER))
                .collect(),
            early_decisions: vec![Nanos::MAX; machine.pcpus.len()],
            timer: Nanos::MAX,
            counts: Counts::default(),
        };
        scheduler.set_timer();
        (0..machine.vcpus.len()).for_each(|v| scheduler.add(machine, VcpuId(v as u32)));
        scheduler
    }

    /// Credit accounts.
    pub fn credits(&self) -> &C {
        &self.credits
    }

    /// Number of run-queues.
    pub fn run_queues(&self) -> usize {
        self.queues.len()
    }

    /// vCPUs assigned to a run-queue.
    pub fn members(&self, queue: usize) -> &[VcpuId] {
        &self.queues[queue].members
    }

    /// Adds a vCPU and assigns it to the least loaded run-queue among those it may run on.
    fn add(&mut self, machine: &Machine, v: VcpuId) {
        let affinity = machine.vcpu(v).affinity;
        let allowed = |q: &usize| !self.queues[*q].cpus.and(affinity).is_empty();
        let least = (0..self.queues.len())
            .filter(allowed)
            .min_by_key(|&q| self.queues[q].load.average());
        // An affinity is never empty, so there always is one.
        let queue = least.unwrap_or(0);
        let home = self.queues[queue].next_cpu(affinity);
        let budget = match self.budgets[machine.vcpu(v).vm.index()] {
            // A capped vCPU takes its first quota when it is first chosen.
            Some(_) => 0,
            None => i64::MAX,
        };
        self.entities.push(Entity {
            weight: u64::from(machine.vm_of(v).weight.max(1)),
            residual: 0,
            start: Nanos::ZERO,
            last_pcpu: home.unwrap_or(PcpuId(0)),
            queue,
            on: false,
            kicked: None,
            moving: None,
            // No history yet: assume half a vCPU.
            load: Load::new(ONE / 2),
            budget,
            parked: false,
        });
        self.credits.add(queue);
        self.assign(v, queue);
    }

    fn rank(&self, v: VcpuId) -> i64 {
        self.credits.rank(v)
    }

    /// Time that `running` may stay on its pCPU although `waits` would preempt it.
    fn rate_limit(&self, running: VcpuId, waits: VcpuId) -> Nanos {
        (self.credits).rate_limit(running, waits, self.params.rate_limit)
    }

    /// Recomputes the time of the next early decision or replenishment.
    fn set_timer(&mut self) {
        let budgets = self.budgets.iter().flatten().map(Budget::next);
        let next = budgets.chain(self.early_decisions.iter().copied()).min();
        let next = next.unwrap_or(Nanos::MAX);
        self.timer = next.min(self.credits.next_raise());
    }

    /// Burns the credit, and the cap budget, that `v` has used up to `now`.
    fn burn(&mut self, now: Nanos, v: VcpuId) {
        let entity = &mut self.entities[v.index()];
        let ran = now.since(entity.start);
        entity.start = now;
        let amount = entity.credit_of(ran, self.queues[entity.queue].max_weight);
        // `i64::MAX` marks a vCPU without a cap.
        if entity.budget != i64::MAX {
            entity.budget -= ran.0 as i64;
        }
        self.credits.burn(v, amount);
    }

    /// Burns the credit of every vCPU that runs on a pCPU of `queue`.
    fn burn_running(&mut self, machine: &Machine, now: Nanos, queue: usize) {
        for p in self.queues[queue].cpus.iter() {
            if let Some(v) = machine.pcpu(p).running {
                self.burn(now, v);
            }
        }
    }

    /// Takes a quota for `v` from its VM's budget if it has used up the last one. Parks `v` if
    /// there is none. Returns whether `v` may run under its VM's cap.
    fn take_budget_or_park(&mut self, machine: &Machine, v: VcpuId) -> bool {
        let entity = &mut self.entities[v.index()];
        if entity.budget > 0 {
            return true;
        }
        let Some(budget) = &mut self.budgets[machine.vcpu(v).vm.index()] else {
            return true;
        };
        entity.budget = budget.take(entity.budget);
        if entity.budget <= 0 {
            entity.parked = true;
            budget.parked.push(v);
        }
        entity.budget > 0
    }

    /// Re-queues the vCPUs of `vm` that were parked because the budget was empty.
    fn unpark(&mut self, machine: &Machine, now: Nanos, vm: usize, kicks: &mut CpuSet) {
        let parked = match &mut self.budgets[vm] {
            Some(budget) => std::mem::take(&mut budget.parked),
            None => return,
        };
        for v in parked {
            self.entities[v.index()].parked = false;
            // One that still runs is re-queued by `left` if it is runnable then.
            if !self.entities[v.index()].on && machine.vcpu(v).is_runnable() {
                self.enqueue(machine, now, v, true, kicks);
            }
        }
    }

    /// Inserts `v` into its run-queue and kicks a pCPU if needed; `woke`: `v` became runnable,
    /// otherwise it has left a pCPU or run-queue.
    fn enqueue(
        &mut self,
        machine: &Machine,
        now: Nanos,
        v: VcpuId,
        woke: bool,
        kicks: &mut CpuSet,
    ) {
        let queue = self.entities[v.index()].queue;
        // Ranks must be current before the new order is computed.
        if self.credits.would_reorder(v, woke) {
            self.burn_running(machine, now, queue);
            self.credits.woke(v);
            self.queues[queue].sort(&self.credits);
        }
        self.count_load(now, v, 1);
        self.queues[queue].insert(&self.credits, v);
        self.tickle(machine, now, v, kicks);
    }

    /// Moves `v` to its new place in its run-queue, because its rank has risen.
    fn requeue(&mut self, machine: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        let queue = self.entities[v.index()].queue;
        // Only a vCPU that waits has a place to be moved from.
        if self.queues[queue].remove(v) {
            self.queues[queue].insert(&self.credits, v);
            self.tickle(machine, now, v, kicks);
        }
    }

    /// Accounts in the load averages that `v` became runnable (`change` 1) or stopped being so
    /// (-1).
    fn count_load(&mut self, now: Nanos, v: VcpuId, change: i64) {
        let entity = &mut self.entities[v.index()];
        entity.load.update(now, change);
        self.queues[entity.queue].load.update(now, change);
    }
}

impl<C: Credits> Scheduler for Credit2<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn wake(&mut self, machine: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        self.enqueue(machine, now, v, true, kicks);
    }

    fn choose(&mut self, machine: &Machine, now: Nanos, p: PcpuId, kicks: &mut CpuSet) -> Choice {
        let queue = self.queue_of[p.index()];
        self.queues[queue].kicked.remove(p);
        let current = machine.pcpu(p).running;
        if let Some(v) = current {
            self.burn(now, v);
            if machine.vcpu(v).is_runnable() {
                self.take_budget_or_park(machine, v);
            }
        }
        let (next, did_reset) = self.candidate_with_credit(machine, now, p);
        // The accounts see the end of a run before the begin of the next.
        if let Some(v) = current.filter(|_| next != current) {
            let ran = now.since(machine.pcpu(p).since);
            let could_run = machine.vcpu(v).is_runnable();
            self.credits.stopped(now, v, ran, could_run);
        }
        let Some(v) = next else {
            self.queues[queue].idle.insert(p);
            // Advances the average; the number of runnable vCPUs is unchanged.
            self.queues[queue].load.update(now, 0);
            return Choice::IDLE;
        };
        self.queues[queue].idle.remove(p);
        if next == current {
            self.credits
                .goes_on(now, v, now.since(machine.pcpu(p).since));
        } else {
            self.queues[queue].remove(v);
            self.credits.began(now, v);
            // The pending early decision concerned the vCPU that ran before.
            self.early_decisions[p.index()] = Nanos::MAX;
        }
        let entity = &mut self.entities[v.index()];
        entity.on = true;
        entity.start = now;
        entity.kicked = None;
        // Cold caches cost the vCPU time, which Xen compensates with credit.
        if entity.last_pcpu != p {
            entity.last_pcpu = p;
            self.credits.compensate(v, MIGRATE_COMPENSATION);
        }
        // Xen balances load when credits are reset.
        if did_reset {
            self.balance(machine, now, queue, kicks);
            self.balance_io(machine, now, queue, kicks);
        }
        self.timer = self.timer.min(self.credits.next_raise());
        Choice {
            run: Some(v),
            until: now + self.slice(machine, now, p, v),
        }
    }

    fn left(&mut self, machine: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        let vm = machine.vcpu(v).vm.index();
        let entity = &mut self.entities[v.index()];
        entity.on = false;
        if let Some(budget) = &mut self.budgets[vm]
            && entity.budget > 0
        {
            // A vCPU that stops returns its unused quota, so that its siblings can use it.
            let rest = std::mem::take(&mut entity.budget);
            if budget.give_back(rest) {
                self.unpark(machine, now, vm, kicks);
            }
        }
        // `v` counted as runnable while it ran; `enqueue` counts it again if it still is.
        self.count_load(now, v, -1);
        if let Some(to) = self.entities[v.index()].moving.take() {
            self.reassign(machine, v, to);
        }
        if machine.vcpu(v).is_runnable() && !self.entities[v.index()].parked {
            self.enqueue(machine, now, v, false, kicks);
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        (self.timer < Nanos::MAX).then_some(self.timer)
    }

    fn on_timer(&mut self, machine: &Machine, now: Nanos, kicks: &mut CpuSet) {
        for vm in 0..self.budgets.len() {
            let due = self.budgets[vm].as_mut().filter(|b| b.next() <= now);
            if due.is_some_and(|budget| budget.replenish(now)) {
                self.unpark(machine, now, vm, kicks);
            }
        }
        while let Some(v) = self.credits.raise_next(now) {
            self.requeue(machine, now, v, kicks);
        }
        for p in machine.all_pcpus().iter() {
            // The kick makes the pCPU choose again, which is the decision.
            if self.early_decisions[p.index()] <= now {
                self.early_decisions[p.index()] = Nanos::MAX;
                self.queues[self.queue_of[p.index()]].kicked.insert(p);
                kicks.insert(p);
            }
        }
        self.set_timer();
    }

    fn io_event(&mut self, machine: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        let Entity {
            on,
            last_pcpu: home,
            ..
        } = self.entities[v.index()];
        let ran = on.then(|| now.since(machine.pcpu(home).since));
        if self.credits.io_event(now, v, ran) {
            self.requeue(machine, now, v, kicks);
        }
        self.timer = self.timer.min(self.credits.next_raise());
    }

    fn io_answered(&mut self, machine: &Machine, now: Nanos, v: VcpuId, kicks: &mut CpuSet) {
        let entity = &self.entities[v.index()];
        let (p, queue) = (entity.last_pcpu, entity.queue);
        let ran = now.since(machine.pcpu(p).since);
        if entity.on && self.credits.io_answered(v, ran) {
            self.queues[queue].kicked.insert(p);
            kicks.insert(p);
        }
    }

    fn counts(&self) -> Counts {
        let mut counts = self.counts;
        self.credits.count(&mut counts);
        counts
    }

    fn credit(&self, v: VcpuId) -> i64 {
        self.rank(v)
    }
}
