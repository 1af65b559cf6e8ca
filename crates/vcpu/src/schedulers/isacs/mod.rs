//! ISACS, the I/O strength-aware credit scheduler: Lee, Yu: I/O Strength-Aware Credit Scheduler for
//! Virtualized Environments (Electronics 9(12), 2020).
//!
//! ISACS extends [Credit2](super::credit2). It counts the notifications of completed I/O of each
//! vCPU ([`events`]). At a reset each vCPU gets the usual credit and an IVCredit in proportion to
//! its I/O. The IVCredit moves a vCPU ahead in the order but cannot be spent: it is *concealed*,
//! because credit is used up at `end` instead of 0. vCPUs with little I/O get a CVCredit, which
//! they may spend among themselves before the next reset (CPU-BOOST). Finally I/O is balanced
//! between run-queues.
//!
//! ```text
//!           the epoch is over,                            no vCPU of the group
//!           and a vCPU of the group is runnable           has CVCredit left
//!  normal ----------------------------------> CPU-BOOST -----------------------> reallocation
//!    ^  |                                         |                                 |   |
//!    |  +--- the epoch is over, and no vCPU of the group is runnable ---------------+   |
//!    |  <----- a vCPU with credit wakes ----------+                                     |
//!    +----------------------------------------------------------------------------------+
//! ```
//!
//! [`Algorithm1`] has the two readings of when an epoch is over, and of what a vCPU does that wakes
//! with credit: it ends CPU-BOOST, or goes before the group.

pub mod events;
#[cfg(test)]
mod printed_tests;
mod reallocate;
#[cfg(test)]
mod tests;

use super::credit2::credits::{Credits, Members, Renewal};
use super::credit2::{self, Credit2, Params as Credit2Params};
use crate::machine::{Machine, VcpuId};
use crate::scheduler::Counts;
use crate::spec::{ParamGroup, ParamInfo, ParamKind, SchedulerInfo, SchedulerSpec};
use events::EventChecker;
use tidegate_core::time::Nanos;

/// Reading of algorithm 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm1 {
    /// Line 4 mended: CPU-BOOST begins when no vCPU has credit above its end. A vCPU with credit
    /// ends it when it begins to wait, be it that it wakes or is preempted.
    Mended,
    /// Line 4 as printed: CPU-BOOST begins when the vCPU with the highest credit, IVCredit
    /// included, reaches its own end. It lasts until the group has used its CVCredit; a vCPU that
    /// wakes with credit goes before the group.
    Printed,
}

/// Parameters of ISACS in addition to those of Credit2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Parameters of the underlying Credit2.
    pub credit2: Credit2Params,
    /// Longest interval between two events that is counted; rarer events are ignored.
    pub cutoff: Nanos,
    /// Weight of a new interval in the exponential average, in thousandths.
    pub new_sample: u32,
    /// Divisor of equation 2, whose unit the paper does not state.
    pub io_credit_divisor: u64,
    /// Enables IVCredit.
    pub io_credit: bool,
    /// Conceals IVCredit; otherwise it can be spent.
    pub concealing: bool,
    /// Enables CPU-BOOST.
    pub cpu_boost: bool,
    /// Enables I/O balancing between run-queues (algorithm 2).
    pub io_balance: bool,
    /// Deducts overspent credit from the next allocation; the paper's algorithm forgives it.
    pub keeps_debt: bool,
    /// Migrates the last vCPU that meets the condition, as algorithm 2 is printed, instead of the
    /// one whose move balances I/O best.
    pub last_migrates: bool,
    /// Makes slices in CPU-BOOST as long as the lead in CVCredit. Otherwise they are the shortest
    /// possible: Credit2 computes slices from credit, which is used up during CPU-BOOST, and the
    /// paper changes only the choice of the vCPU.
    pub long_boost: bool,
    /// Reading of algorithm 1.
    pub algorithm_1: Algorithm1,
    /// Counts what CPU-BOOST burnt as consumed credit in equation 4; otherwise only what was paid
    /// with credit is, and the quotient with the default credit is about 1 at most.
    pub counts_boost: bool,
    /// Adds the credit of a reset to what is left and clips the sum, as Credit2 does; line 18 of
    /// algorithm 1 sets it.
    pub adds_credit: bool,
}

/// Registry entry of ISACS.
pub static SCHEDULER: SchedulerInfo = SchedulerInfo {
    name: NAME,
    summary: "Credit2 with concealed extra credit for I/O, and CPU-BOOST for vCPUs without I/O",
    source: "Lee, Yu: I/O Strength-Aware Credit Scheduler, Electronics 9(12), 2020",
    old_names: &[],
    groups: &[credit2::PARAMS, credit2::LOOKS_AGAIN, OWN],
    build: |spec, machine| Box::new(Isacs::scheduler(Params::from_spec(spec), machine)),
};

/// Name in the registry.
const NAME: &str = "isacs";

/// Lead in nanoseconds of a vCPU that goes before the group: far above every CVCredit.
const BEFORE_GROUP: i64 = 1 << 56;

const OWN: ParamGroup = ParamGroup {
    shared: None,
    params: &[
        ParamInfo::duration(
            "cutoff",
            Nanos::from_millis(10),
            (Nanos(1), Nanos::SECOND),
            "longest interval between two I/O events that is counted",
        ),
        ParamInfo {
            name: "new_sample",
            kind: ParamKind::Part,
            default: 900,
            min: 0,
            max: 1_000,
            help: "weight of a new interval in the exponential average",
        },
        ParamInfo {
            name: "io_credit_divisor",
            kind: ParamKind::Count,
            default: 1,
            min: 1,
            max: 1_000_000_000,
            help: "divisor of equation 2, whose result is in nanoseconds",
        },
        ParamInfo::flag("io_credit", true, "give IVCredit"),
        ParamInfo::flag(
            "concealing",
            true,
            "conceal IVCredit, so that it cannot be spent",
        ),
        ParamInfo::flag("cpu_boost", true, "enable CPU-BOOST"),
        ParamInfo::flag(
            "io_balance",
            true,
            "balance I/O between run-queues (algorithm 2)",
        ),
        ParamInfo::flag(
            "keeps_debt",
            false,
            "deduct overspent credit from the next allocation",
        ),
        ParamInfo::flag(
            "last_migrates",
            false,
            "migrate the last eligible vCPU, as algorithm 2 is printed",
        ),
        ParamInfo::flag(
            "long_boost",
            false,
            "slices in CPU-BOOST last as long as the lead in CVCredit",
        ),
        ParamInfo {
            name: "algorithm_1",
            kind: ParamKind::Choice(&["mended", "printed"]),
            default: Algorithm1::Mended as u64,
            min: 0,
            max: 1,
            help: "CPU-BOOST begins when no vCPU has credit, or as printed, when the vCPU with \
                   the most is at its own end",
        },
        ParamInfo::flag(
            "counts_boost",
            true,
            "count what CPU-BOOST burnt as consumed credit in equation 4",
        ),
        ParamInfo::flag(
            "adds_credit",
            false,
            "add the credit of a reset to the rest and clip it, as Credit2 does, instead of \
             setting it",
        ),
    ],
};

impl Params {
    /// Reads the parameters from a scheduler that declares them.
    pub fn from_spec(spec: &SchedulerSpec) -> Params {
        Params {
            credit2: Credit2Params::from_spec(spec),
            cutoff: spec.duration("cutoff"),
            new_sample: spec.get("new_sample") as u32,
            io_credit_divisor: spec.get("io_credit_divisor"),
            io_credit: spec.flag("io_credit"),
            concealing: spec.flag("concealing"),
            cpu_boost: spec.flag("cpu_boost"),
            io_balance: spec.flag("io_balance"),
            keeps_debt: spec.flag("keeps_debt"),
            last_migrates: spec.flag("last_migrates"),
            long_boost: spec.flag("long_boost"),
            algorithm_1: match spec.get("algorithm_1") {
                0 => Algorithm1::Mended,
                _ => Algorithm1::Printed,
            },
            counts_boost: spec.flag("counts_boost"),
            adds_credit: spec.flag("adds_credit"),
        }
    }

    /// Returns the spec of ISACS with these parameters.
    pub fn spec(&self) -> SchedulerSpec {
        let spec = self.credit2.put(SchedulerSpec::new(&SCHEDULER));
        spec.with_all(&[
            ("cutoff", self.cutoff.0),
            ("new_sample", self.new_sample.into()),
            ("io_credit_divisor", self.io_credit_divisor),
            ("io_credit", self.io_credit.into()),
            ("concealing", self.concealing.into()),
            ("cpu_boost", self.cpu_boost.into()),
            ("io_balance", self.io_balance.into()),
            ("keeps_debt", self.keeps_debt.into()),
            ("last_migrates", self.last_migrates.into()),
            ("long_boost", self.long_boost.into()),
            ("algorithm_1", self.algorithm_1 as u64),
            ("counts_boost", self.counts_boost.into()),
            ("adds_credit", self.adds_credit.into()),
        ])
    }
}

impl Default for Params {
    /// Defaults of the registry.
    fn default() -> Params {
        Params::from_spec(&SchedulerSpec::new(&SCHEDULER))
    }
}

/// Credit account of a vCPU. All credits are in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Account {
    /// Run-queue that the vCPU is assigned to.
    pub queue: usize,
    /// Credit by which the vCPU is ordered outside CPU-BOOST.
    pub credit: i64,
    /// Value of `credit` at which it is used up.
    pub end: i64,
    /// IVCredit of the last allocation.
    pub io_credit: i64,
    /// CVCredit: budget and order in CPU-BOOST.
    pub cpu_credit: i64,
    /// Member of the CPU-BOOST group of its run-queue.
    pub in_group: bool,
    /// Chosen by its CVCredit, which it burns as long as it runs, even if a waking vCPU ends
    /// CPU-BOOST meanwhile.
    pub runs_boosted: bool,
    /// Woke with credit in CPU-BOOST, and goes before the group as long as the credit lasts
    /// ([`Algorithm1::Printed`]).
    pub woke_boosted: bool,
    /// Credit burnt since the last reset.
    pub consumed: i64,
    /// Part of `consumed` that was burnt in CPU-BOOST.
    pub consumed_boosted: i64,
    /// Event checker, which counts notifications of I/O.
    pub events: EventChecker,
}

impl Account {
    /// Returns whether there is credit to spend outside CPU-BOOST.
    fn is_eligible(&self) -> bool {
        self.credit > self.end
    }

    /// Returns whether there is credit to spend in CPU-BOOST.
    fn has_boost(&self) -> bool {
        self.in_group && self.cpu_credit > 0
    }
}

/// State of a run-queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QueueState {
    /// CPU-BOOST is active: only vCPUs of the group are chosen.
    pub boosted: bool,
    /// Sum of the IVCredits of its vCPUs, in nanoseconds.
    pub io_load: i64,
    /// Notifications of I/O in the last epoch.
    pub events: u64,
    /// Length of the last epoch.
    pub epoch: Nanos,
    /// Time of the last reset.
    since: Nanos,
}

impl QueueState {
    /// Returns whether the rate of notifications was lower than that of `other`.
    fn is_calmer_than(&self, other: &QueueState) -> bool {
        // Cross-multiplied to stay in integers.
        let rate = |events: u64, epoch: Nanos| u128::from(events) * u128::from(epoch.0.max(1));
        rate(self.events, other.epoch) < rate(other.events, self.epoch)
    }
}

/// Credit accounts of ISACS.
#[derive(Clone, Debug)]
pub struct Isacs {
    params: Params,
    accounts: Vec<Account>,
    queues: Vec<QueueState>,
    clamped: u64,
}

impl Isacs {
    /// Creates ISACS for a machine whose vCPUs are all blocked.
    pub fn scheduler(params: Params, machine: &Machine) -> Credit2<Isacs> {
        Credit2::with(params.credit2, Isacs::new(params), machine)
    }

    /// Creates accounts without vCPUs.
    pub fn new(params: Params) -> Isacs {
        Isacs {
            params,
            accounts: Vec::new(),
            queues: Vec::new(),
            clamped: 0,
        }
    }

    /// Account of `v`.
    pub fn account(&self, v: VcpuId) -> &Account {
        &self.accounts[v.index()]
    }

    /// State of run-queue `queue`; all 0 if no vCPU was ever assigned to it.
    pub fn queue(&self, queue: usize) -> QueueState {
        self.queues.get(queue).copied().unwrap_or_default()
    }

    fn queue_mut(&mut self, queue: usize) -> &mut QueueState {
        // Accounts learn of run-queues only through the vCPUs that are assigned to them.
        if queue >= self.queues.len() {
            self.queues.resize(queue + 1, QueueState::default());
        }
        &mut self.queues[queue]
    }

    fn default_credit(&self) -> i64 {
        self.params.credit2.credit.0 as i64
    }

    /// Returns whether `account` goes before the group in CPU-BOOST.
    fn goes_first(&self, account: &Account) -> bool {
        account.woke_boosted && account.is_eligible() && self.queue(account.queue).boosted
    }

    /// Returns whether `account` is ordered, and pays, by its CVCredit.
    fn is_boosting(&self, account: &Account) -> bool {
        account.has_boost() && self.queue(account.queue).boosted && !self.goes_first(account)
    }

    /// Sort key of algorithm 1 as printed: credit, and CVCredit in CPU-BOOST.
    fn printed_rank(&self, account: &Account) -> i64 {
        if !self.queue(account.queue).boosted {
            account.credit
        } else if self.goes_first(account) {
            BEFORE_GROUP + account.credit
        } else if account.has_boost() {
            account.cpu_credit
        } else {
            // Below the group, in order of the rest of credit: only a pCPU that would idle takes
            // it. The rest is at most the default and what a migration compensates.
            (account.credit - account.end - self.default_credit()).min(0)
        }
    }
}

impl Credits for Isacs {
    const NAME: &'static str = NAME;

    fn add(&mut self, queue: usize) {
        self.queue_mut(queue);
        self.accounts.push(Account {
            queue,
            credit: self.default_credit(),
            end: 0,
            io_credit: 0,
            cpu_credit: 0,
            in_group: false,
            runs_boosted: false,
            woke_boosted: false,
            consumed: 0,
            consumed_boosted: 0,
            events: EventChecker::default(),
        });
    }

    fn rank(&self, v: VcpuId) -> i64 {
        let account = self.account(v);
        if self.params.algorithm_1 == Algorithm1::Printed {
            return self.printed_rank(account);
        }
        if self.is_boosting(account) {
            return account.cpu_credit;
        }
        if account.is_eligible() {
            account.credit
        } else {
            // Ranks below all eligible vCPUs (0 or less): only a pCPU that would idle takes it.
            account.credit - account.end
        }
    }

    fn is_spent(&self, v: VcpuId) -> bool {
        let account = self.account(v);
        match (self.params.algorithm_1, self.queue(account.queue).boosted) {
            (Algorithm1::Mended, _) => self.rank(v) <= 0,
            (Algorithm1::Printed, false) => !account.is_eligible(),
            (Algorithm1::Printed, true) => !(self.goes_first(account) || account.has_boost()),
        }
    }

    fn usable(&self, v: VcpuId) -> i64 {
        let account = self.account(v);
        if self.is_boosting(account) {
            account.cpu_credit
        } else {
            account.credit - account.end
        }
    }

    fn has_long_slices(&self, v: VcpuId) -> bool {
        // Credit2 derives slices from credit, which every vCPU has used up in CPU-BOOST.
        self.params.long_boost || !self.is_boosting(self.account(v))
    }

    fn began(&mut self, _now: Nanos, v: VcpuId) {
        self.accounts[v.index()].runs_boosted = self.is_boosting(self.account(v));
    }

    fn goes_on(&mut self, now: Nanos, v: VcpuId, _ran: Nanos) {
        self.began(now, v);
    }

    fn burn(&mut self, v: VcpuId, amount: i64) {
        let least = self.params.credit2.least_credit();
        let account = &mut self.accounts[v.index()];
        account.consumed += amount;
        if account.runs_boosted {
            account.cpu_credit -= amount;
            account.consumed_boosted += amount;
        } else {
            // Debt is bounded as in Credit2.
            account.credit = (account.credit - amount).max(account.end + least);
        }
    }

    fn compensate(&mut self, v: VcpuId, amount: i64) {
        self.accounts[v.index()].credit += amount;
    }

    fn renew(&mut self, now: Nanos, _next: VcpuId, members: &Members<'_>) -> Renewal {
        let is_runnable = |v: &&VcpuId| (members.is_runnable)(**v);
        let mut runnable = members.all.iter().filter(is_runnable);
        let boosted = self.queue(members.queue).boosted;
        let has_some = |v: &VcpuId| {
            let account = self.account(*v);
            account.has_boost() || self.goes_first(account)
        };
        match (boosted, runnable.any(has_some)) {
            // More pCPUs than runnable group members: the other pCPUs run whichever vCPU comes
            // next.
            (true, true) => Renewal::Kept,
            (false, true) => {
                self.queue_mut(members.queue).boosted = true;
                Renewal::Boosted
            }
            (_, false) => {
                self.reallocate(now, members);
                Renewal::Reallocated
            }
        }
    }

    fn would_reorder(&self, v: VcpuId, woke: bool) -> bool {
        let account = self.account(v);
        let woke = woke || self.params.algorithm_1 == Algorithm1::Mended;
        woke && self.queue(account.queue).boosted && account.is_eligible()
    }

    fn woke(&mut self, v: VcpuId) {
        match self.params.algorithm_1 {
            Algorithm1::Mended => {
                let queue = self.account(v).queue;
                self.queue_mut(queue).boosted = false;
            }
            Algorithm1::Printed => self.accounts[v.index()].woke_boosted = true,
        }
    }

    fn moved(&mut self, v: VcpuId, to: usize) {
        let account = &mut self.accounts[v.index()];
        let from = std::mem::replace(&mut account.queue, to);
        let io_credit = account.io_credit;
        // The load moves with the vCPU, so that balancing before the next epoch sees it.
        self.queue_mut(from).io_load -= io_credit;
        self.queue_mut(to).io_load += io_credit;
    }

    fn io_event(&mut self, now: Nanos, v: VcpuId, _ran: Option<Nanos>) -> bool {
        let (cutoff, new) = (self.params.cutoff, self.params.new_sample);
        self.accounts[v.index()].events.event(now, cutoff, new);
        false
    }

    fn io_move(
        &self,
        members: &Members<'_>,
        may: &dyn Fn(VcpuId, usize) -> bool,
    ) -> Option<(VcpuId, usize)> {
        if self.params.io_balance {
            self.best_io_move(members, may)
        } else {
            None
        }
    }

    fn count(&self, counts: &mut Counts) {
        counts.clamped += self.clamped;
    }
}
