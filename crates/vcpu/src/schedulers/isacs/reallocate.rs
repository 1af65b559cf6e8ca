//! Reallocation of credits at a reset: equations 2, 3 and 4, and algorithm 2.

use super::Isacs;
use crate::machine::VcpuId;
use crate::schedulers::credit2::MIN_TIMER;
use crate::schedulers::credit2::credits::Members;
use tidegate_core::time::Nanos;

/// Largest IVCredit in nanoseconds, about two seconds.
const MAX_IO_CREDIT: u64 = 1 << 31;

impl Isacs {
    /// Reallocates the credits of a run-queue (lines 13 to 27 of algorithm 1).
    pub(super) fn reallocate(&mut self, now: Nanos, members: &Members<'_>) {
        // Sum before the event checkers are restarted below.
        let events = members.all.iter().map(|v| self.account(*v).events.total());
        let events = events.sum();
        self.give_io_credit(members);
        self.give_cpu_credit(members);
        for v in members.all {
            let account = &mut self.accounts[v.index()];
            account.events.restart();
            account.runs_boosted = false;
            account.woke_boosted = false;
            account.consumed = 0;
            account.consumed_boosted = 0;
        }
        let io_load = members.all.iter().map(|v| self.account(*v).io_credit).sum();
        let queue = self.queue_mut(members.queue);
        queue.boosted = false;
        queue.io_load = io_load;
        queue.events = events;
        queue.epoch = now.since(queue.since);
        queue.since = now;
    }

    /// Allocates the usual credit and the concealed IVCredit (equation 2).
    fn give_io_credit(&mut self, members: &Members<'_>) {
        let consumed = |v: &VcpuId| self.account(*v).consumed.max(0) as u64;
        let all: u64 = members.all.iter().map(consumed).sum();
        let (credit, params) = (self.default_credit(), self.params);
        for v in members.all {
            let account = &mut self.accounts[v.index()];
            let consumed = account.consumed.max(0) as u64;
            let share = u128::from(account.events.strength()) * u128::from(consumed);
            let given = match (params.io_credit, all) {
                (false, _) | (_, 0) => 0,
                _ => share / u128::from(all) / u128::from(params.io_credit_divisor.max(1)),
            };
            // Clamping is counted, because it distorts the order that the paper defines.
            self.clamped += u64::from(given > u128::from(MAX_IO_CREDIT));
            let given = given.min(u128::from(MAX_IO_CREDIT)) as i64;
            // Negative where the vCPU spent more than it was given.
            let rest = account.credit - account.end;
            let carried = match (params.adds_credit, params.keeps_debt) {
                (true, _) => rest.min(MIN_TIMER.0 as i64),
                (false, true) => rest.min(0),
                (false, false) => 0,
            };
            account.io_credit = given;
            account.credit = credit + given + carried;
            account.end = if params.concealing { given } else { 0 };
        }
    }

    /// Allocates CVCredit (equations 3 and 4). The group consists of the vCPUs whose IVCredit is
    /// below the mean of the nonzero IVCredits; they share the sum of all IVCredits by their
    /// run-time.
    fn give_cpu_credit(&mut self, members: &Members<'_>) {
        let given = members.all.iter().map(|v| self.account(*v).io_credit);
        let sum: i64 = given.clone().sum();
        let some = given.filter(|&io_credit| io_credit > 0).count() as i64;
        for v in members.all {
            let account = &mut self.accounts[v.index()];
            // Equation 3, (sum / some) / (io_credit + 1) > 1, without divisions.
            account.in_group = self.params.cpu_boost && sum > some * (account.io_credit + 1);
            account.cpu_credit = 0;
        }
        let group = members.all.iter().filter(|v| self.account(**v).in_group);
        let group = group.count() as i64;
        let (credit, counts_boost) = (self.default_credit(), self.params.counts_boost);
        for v in members.all {
            let account = &mut self.accounts[v.index()];
            if account.in_group {
                let boosted = if counts_boost {
                    0
                } else {
                    account.consumed_boosted
                };
                let consumed = (account.consumed - boosted).max(0);
                // 128 bits: two times in nanoseconds are multiplied.
                let share = i128::from(sum) * i128::from(consumed);
                account.cpu_credit = (share / i128::from(group) / i128::from(credit)) as i64;
            }
        }
    }

    /// Chooses a migration by algorithm 2: to the calmest run-queue that is calmer than this one,
    /// the vCPU whose move balances I/O best; `None` if no move helps.
    pub(super) fn best_io_move(
        &self,
        members: &Members<'_>,
        may: &dyn Fn(VcpuId, usize) -> bool,
    ) -> Option<(VcpuId, usize)> {
        let source = self.queue(members.queue);
        let io_credit = |v: VcpuId| self.account(v).io_credit;
        let movable = |to: usize| {
            let members = members.all.iter().copied();
            members.filter(move |&v| io_credit(v) > 0 && may(v, to))
        };
        let mut calmest: Option<usize> = None;
        for q in (0..self.queues.len()).filter(|&q| q != members.queue) {
            let best = calmest.map_or(source, |q| self.queue(q));
            if self.queue(q).is_calmer_than(&best) && movable(q).next().is_some() {
                calmest = Some(q);
            }
        }
        let to = calmest?;
        let target = self.queue(to);
        // Difference of the loads after the move; positive while the source's load stays the
        // larger.
        let after = |v: VcpuId| source.io_load - target.io_load - 2 * io_credit(v);
        let evens = movable(to).filter(|&v| after(v) > 0);
        let chosen = if self.params.last_migrates {
            evens.last()
        } else {
            evens.min_by_key(|&v| after(v))
        };
        chosen.map(|v| (v, to))
    }
}
