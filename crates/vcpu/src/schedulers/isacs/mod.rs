//! ISACS, the I/O strength-aware credit scheduler: Lee, Yu: I/O Strength-Aware Credit Scheduler for
//! Virtualized Environments (Electronics 9(12), 2020).
//!
//! It stands on [Credit2](super::credit2). Notifications of ended I/O are counted for each vCPU
//! ([`events`]). When the credits of a run-queue begin anew, a vCPU is given the usual credit and,
//! beyond it, an IVCredit after its I/O, which moves it ahead but which it may not use: it is
//! *concealed*, for the credit is used up at `end`, not at 0. Those with little I/O are given a
//! CVCredit each, which they may use among themselves before credits begin anew (CPU-BOOST). Then
//! I/O is evened between run-queues.
//!
//! ```text
//!           nobody's credit is above its end,             nobody in the group
//!           and somebody in the group can run             has CVCredit left
//!  normal ----------------------------------> CPU-BOOST -----------------------> reallocation
//!    ^  |                                         |                                 |   |
//!    |  +--- nobody's credit is above its end, and nobody in the group can run -----+   |
//!    |  <----- somebody wakes who has credit -----+                                     |
//!    +----------------------------------------------------------------------------------+
//! ```

pub mod events;
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

/// Parameters of ISACS, beside those of Credit2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Those of the scheduler it stands on.
    pub credit2: Credit2Params,
    /// Events further apart are rare ones, which are not counted.
    pub cutoff: Nanos,
    /// What a new interval weighs in the average, in thousandths.
    pub new_sample: u32,
    /// What equation 2 comes to is divided by this: the paper does not say in what unit it is.
    pub io_credit_divisor: u64,
    /// Whether IVCredit is given.
    pub io_credit: bool,
    /// Whether it is concealed; else it can be used.
    pub concealing: bool,
    /// Whether there is CPU-BOOST.
    pub cpu_boost: bool,
    /// Whether I/O is evened between run-queues.
    pub io_balance: bool,
    /// Whether what was used beyond the credit is taken off the next; as printed it is forgiven.
    pub keeps_debt: bool,
    /// Whether a run-queue's last vCPU that meets the condition moves, as algorithm 2 is printed,
    /// not the one whose move evens I/O best.
    pub last_migrates: bool,
    /// Whether a slice in CPU-BOOST is as long as the lead in CVCredit. Else it is the shortest
    /// there is: Credit2 reckons slices by credit, which is used up then, and the paper changes who
    /// is chosen alone.
    pub long_boost: bool,
}

/// ISACS in the registry.
pub static SCHEDULER: SchedulerInfo = SchedulerInfo {
    name: NAME,
    summary: "Credit2 with more credit for vCPUs by their I/O, concealed, and CPU-BOOST for others",
    source: "Lee, Yu: I/O Strength-Aware Credit Scheduler, Electronics 9(12), 2020",
    groups: &[credit2::PARAMS, credit2::LOOKS_AGAIN, OWN],
    build: |spec, machine| Box::new(Isacs::scheduler(Params::of(spec), machine)),
};

/// Name in the registry.
const NAME: &str = "isacs";

const OWN: ParamGroup = ParamGroup {
    shared: None,
    params: &[
        ParamInfo::duration(
            "cutoff",
            Nanos::from_millis(10),
            (Nanos(1), Nanos::SECOND),
            "events further apart are not counted",
        ),
        ParamInfo {
            name: "new_sample",
            kind: ParamKind::Part,
            default: 900,
            min: 0,
            max: 1_000,
            help: "weight of a new interval in the average",
        },
        ParamInfo {
            name: "io_credit_divisor",
            kind: ParamKind::Count,
            default: 1,
            min: 1,
            max: 1_000_000_000,
            help: "equation 2, in nanoseconds, is divided by it",
        },
        ParamInfo::flag("io_credit", true, "IVCredit is given"),
        ParamInfo::flag("concealing", true, "IVCredit cannot be used"),
        ParamInfo::flag("cpu_boost", true, "there is CPU-BOOST"),
        ParamInfo::flag("io_balance", true, "there is algorithm 2"),
        ParamInfo::flag(
            "keeps_debt",
            false,
            "credit that was used beyond what was given is taken off the next",
        ),
        ParamInfo::flag("last_migrates", false, "algorithm 2 as printed"),
        ParamInfo::flag("long_boost", false, "slices in CPU-BOOST go by CVCredit"),
    ],
};

impl Params {
    /// Parameters of a scheduler that declares them.
    pub fn of(spec: &SchedulerSpec) -> Params {
        Params {
            credit2: Credit2Params::of(spec),
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
        }
    }

    /// Returns ISACS with these parameters.
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
        ])
    }
}

impl Default for Params {
    /// Those of the registry.
    fn default() -> Params {
        Params::of(&SchedulerSpec::new(&SCHEDULER))
    }
}

/// The account of a vCPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Account {
    /// Its run-queue.
    pub queue: usize,
    /// What it is ordered by outside CPU-BOOST.
    pub credit: i64,
    /// Where that is used up.
    pub end: i64,
    /// What it was given for its I/O.
    pub io_credit: i64,
    /// What it may use in CPU-BOOST, and orders it there.
    pub cpu_credit: i64,
    /// Whether it is in the CPU-BOOST group of its run-queue.
    pub in_group: bool,
    /// It was chosen by its CVCredit, and burns that for as long as it runs, also where somebody
    /// who wakes ends CPU-BOOST meanwhile.
    pub runs_boosted: bool,
    /// What it has burnt since credits began anew.
    pub consumed: i64,
    /// Of that, in CPU-BOOST.
    pub consumed_boosted: i64,
    /// The I/O it is told of.
    pub events: EventChecker,
}

impl Account {
    /// Whether it has credit that may be used outside CPU-BOOST.
    fn is_eligible(&self) -> bool {
        self.credit > self.end
    }

    /// Whether it has some that may be used in CPU-BOOST.
    fn has_boost(&self) -> bool {
        self.in_group && self.cpu_credit > 0
    }
}

/// What is kept of a run-queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QueueState {
    /// CPU-BOOST: only its group is chosen from.
    pub boosted: bool,
    /// The IVCredits of its vCPUs.
    pub io_load: i64,
    /// Notifications in the last epoch.
    pub events: u64,
    /// How long that was.
    pub epoch: Nanos,
    /// When credits began anew last.
    since: Nanos,
}

impl QueueState {
    /// Whether fewer notifications came here in each unit of time than at `other`.
    fn is_calmer_than(&self, other: &QueueState) -> bool {
        let rate = |events: u64, epoch: Nanos| u128::from(events) * u128::from(epoch.0.max(1));
        rate(self.events, other.epoch) < rate(other.events, self.epoch)
    }
}

/// The accounts of ISACS.
#[derive(Clone, Debug)]
pub struct Isacs {
    params: Params,
    accounts: Vec<Account>,
    queues: Vec<QueueState>,
    clamped: u64,
}

impl Isacs {
    /// ISACS for this machine, whose vCPUs are all blocked.
    pub fn scheduler(params: Params, machine: &Machine) -> Credit2<Isacs> {
        Credit2::with(params.credit2, Isacs::new(params), machine)
    }

    /// Accounts without vCPUs.
    pub fn new(params: Params) -> Isacs {
        Isacs {
            params,
            accounts: Vec::new(),
            queues: Vec::new(),
            clamped: 0,
        }
    }

    /// The account of `v`.
    pub fn account(&self, v: VcpuId) -> &Account {
        &self.accounts[v.at()]
    }

    /// What is kept of run-queue `queue`; all zero where nobody was ever assigned to it.
    pub fn queue(&self, queue: usize) -> QueueState {
        self.queues.get(queue).copied().unwrap_or_default()
    }

    fn queue_mut(&mut self, queue: usize) -> &mut QueueState {
        if queue >= self.queues.len() {
            self.queues.resize(queue + 1, QueueState::default());
        }
        &mut self.queues[queue]
    }

    fn default_credit(&self) -> i64 {
        self.params.credit2.credit.0 as i64
    }

    fn is_boosting(&self, account: &Account) -> bool {
        account.has_boost() && self.queue(account.queue).boosted
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
            consumed: 0,
            consumed_boosted: 0,
            events: EventChecker::default(),
        });
    }

    fn rank(&self, v: VcpuId) -> i64 {
        let account = self.account(v);
        if self.is_boosting(account) {
            return account.cpu_credit;
        }
        match account.is_eligible() {
            true => account.credit,
            // It comes after all that are: only a pCPU that would idle takes it.
            false => account.credit - account.end,
        }
    }

    fn usable(&self, v: VcpuId) -> i64 {
        let account = self.account(v);
        match self.is_boosting(account) {
            true => account.cpu_credit,
            false => account.credit - account.end,
        }
    }

    fn has_long_slices(&self, v: VcpuId) -> bool {
        // Slices go by credit, which is used up on everybody in CPU-BOOST.
        self.params.long_boost || !self.is_boosting(self.account(v))
    }

    fn began(&mut self, v: VcpuId) {
        self.accounts[v.at()].runs_boosted = self.is_boosting(self.account(v));
    }

    fn goes_on(&mut self, v: VcpuId, _ran: Nanos) {
        self.began(v);
    }

    fn burn(&mut self, v: VcpuId, amount: i64) {
        let least = -self.default_credit();
        let account = &mut self.accounts[v.at()];
        account.consumed += amount;
        if account.runs_boosted {
            account.cpu_credit -= amount;
            account.consumed_boosted += amount;
        } else {
            account.credit = (account.credit - amount).max(account.end + least);
        }
    }

    fn compensate(&mut self, v: VcpuId, amount: i64) {
        self.accounts[v.at()].credit += amount;
    }

    fn renew(&mut self, now: Nanos, _next: VcpuId, members: &Members<'_>) -> Renewal {
        let is_runnable = |v: &&VcpuId| (members.is_runnable)(**v);
        let runnable = members.all.iter().filter(is_runnable);
        let group = runnable.filter(|v| self.account(**v).has_boost()).count();
        let boosted = self.queue(members.queue).boosted;
        match (boosted, group) {
            // More pCPUs than there are in the group: the others run whom they would.
            (true, 1..) => Renewal::Kept,
            (false, 1..) => {
                self.queue_mut(members.queue).boosted = true;
                Renewal::Boosted
            }
            (_, 0) => {
                self.reallocate(now, members);
                Renewal::Reallocated
            }
        }
    }

    fn would_reorder(&self, v: VcpuId) -> bool {
        let account = self.account(v);
        self.queue(account.queue).boosted && account.is_eligible()
    }

    fn woke(&mut self, v: VcpuId) {
        let queue = self.account(v).queue;
        self.queue_mut(queue).boosted = false;
    }

    fn moved(&mut self, v: VcpuId, to: usize) {
        let account = &mut self.accounts[v.at()];
        let from = std::mem::replace(&mut account.queue, to);
        let io_credit = account.io_credit;
        self.queue_mut(from).io_load -= io_credit;
        self.queue_mut(to).io_load += io_credit;
    }

    fn io_event(&mut self, now: Nanos, v: VcpuId, _ran: Option<Nanos>) -> bool {
        let (cutoff, new) = (self.params.cutoff, self.params.new_sample);
        self.accounts[v.at()].events.event(now, cutoff, new);
        false
    }

    fn io_move(
        &self,
        members: &Members<'_>,
        may: &dyn Fn(VcpuId, usize) -> bool,
    ) -> Option<(VcpuId, usize)> {
        match self.params.io_balance {
            true => self.best_io_move(members, may),
            false => None,
        }
    }

    fn count(&self, counts: &mut Counts) {
        counts.clamped += self.clamped;
    }
}
