//! Accounts of limits: the part of its limits, in requests and bytes a second, that each VM has
//! used up, for reads, writes and both together.
//!
//! The `token-bucket` regulator gates by such accounts. The engine keeps one beside every policy,
//! so that debts survive a switch to a policy that enforces no limits.

use crate::roles::{Consumed, Spent};
use tidegate_base::objective::{Limit, Objective, Rate};
use tidegate_base::pace::{FirstServed, Pacer, RatePacer};
use tidegate_base::request::{DeviceIo, Lane, VmId};
use tidegate_base::time::Nanos;

/// Number of limits of a VM: total, reads, writes.
const SCOPES: usize = 3;
/// Index of the limit on all requests; the lanes' limits follow it.
const TOTAL: usize = 0;

/// Rates of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rates {
    /// No rate is set.
    None,
    /// A steady rate of requests alone: no bytes and no burst.
    Requests,
    Any,
}

/// One limit: a pacer at its steady rate and, while a burst is allowed, one at the burst's rate.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    steady: RatePacer,
    /// Time by which the steady pace may be overdrawn: (requests, bytes).
    tolerance: (Nanos, Nanos),
    burst: RatePacer,
    /// Rates that the two pacers have.
    rates: Rates,
}

impl Bucket {
    fn new(limit: &Rate, burst: Option<(&Rate, Nanos)>, now: Nanos) -> Bucket {
        let mut bucket = Bucket {
            steady: RatePacer::new(limit, now),
            tolerance: (Nanos::ZERO, Nanos::ZERO),
            burst: RatePacer::NONE,
            rates: Rates::None,
        };
        bucket.set_burst(limit, burst, now);
        bucket
    }

    fn set_rate(&mut self, limit: &Rate, burst: Option<(&Rate, Nanos)>, now: Nanos) {
        let fast = burst.map_or(&Rate::NONE, |(rate, _)| rate);
        let unchanged = self.tolerance == tolerance(per_s(limit), burst);
        // An objective may change in other parts only; the accounts then go on.
        if unchanged && self.steady.has_rate(limit) && self.burst.has_rate(fast) {
            return;
        }
        // Slack lent at the old rate may already fill a window: the new rate must not add to it.
        self.steady.revoke_forgiven();
        self.burst.revoke_forgiven();
        // First the burst at the old rate, then the rate: what is owed is kept in requests.
        let (ops, bytes) = tolerance(self.steady.per_s(), burst);
        self.steady.ops.shrink_tolerance(self.tolerance.0, ops, now);
        self.steady
            .bytes
            .shrink_tolerance(self.tolerance.1, bytes, now);
        self.steady.set_rate(limit, now);
        let bursting = self.burst;
        self.set_burst(limit, burst, now);
        for (was, burst, steady) in [
            (bursting.ops, &mut self.burst.ops, &mut self.steady.ops),
            (
                bursting.bytes,
                &mut self.burst.bytes,
                &mut self.steady.bytes,
            ),
        ] {
            match (was.is_set(), burst.is_set()) {
                // A burst that is taken away leaves what it let go last and was not paid for yet.
                (true, false) => steady.take_over(&was, now),
                // One that is new begins with what the limit let go last.
                (false, true) => burst.take_over(steady, now),
                _ => {}
            }
        }
    }

    fn set_burst(&mut self, limit: &Rate, burst: Option<(&Rate, Nanos)>, now: Nanos) {
        let fast = burst.map_or(&Rate::NONE, |(rate, _)| rate);
        self.burst.set_rate(fast, now);
        self.tolerance = tolerance(per_s(limit), burst);
        let is_single = !self.steady.bytes.is_set() && !self.burst.is_set();
        self.rates = match self.steady.ops.is_set() {
            true if is_single => Rates::Requests,
            false if is_single => Rates::None,
            _ => Rates::Any,
        };
    }

    #[inline(always)]
    fn due(&self) -> Nanos {
        match self.rates {
            Rates::None => Nanos::ZERO,
            // Without a burst there is no tolerance.
            Rates::Requests => self.steady.ops.due(),
            Rates::Any => self.due_of_all(),
        }
    }

    #[inline(never)]
    fn due_of_all(&self) -> Nanos {
        let ops = self.steady.ops.due() - self.tolerance.0;
        let bytes = self.steady.bytes.due() - self.tolerance.1;
        ops.max(bytes).max(self.burst.all_due())
    }

    #[inline(always)]
    fn spend(&mut self, charge: &Charge, now: Nanos, slack: Nanos) {
        match self.rates {
            Rates::None => {}
            Rates::Requests => {
                let asked = [charge.arrived, now];
                (self.steady).spend_late(0, charge.first, asked, slack);
            }
            Rates::Any => {
                self.spend_of_all(charge.bytes, charge.first, [charge.arrived, now], slack)
            }
        }
    }

    #[inline(never)]
    fn spend_of_all(
        &mut self,
        bytes: u64,
        first: FirstServed,
        [arrived, now]: [Nanos; 2],
        slack: Nanos,
    ) {
        // While idle nothing is saved up beyond the tolerance, which `due` applies. With that, the
        // steady pace makes good what waited as it is.
        let asked = if self.burst.ops.is_set() {
            now
        } else {
            arrived
        };
        if self.steady.is_set() {
            self.steady.spend_late(bytes, first, [asked, now], slack);
        }
        if self.burst.is_set() {
            self.burst.spend_late(bytes, first, [arrived, now], slack);
        }
    }
}

/// Requests and bytes a second; 0: no rate.
fn per_s(rate: &Rate) -> (u64, u64) {
    (
        rate.ops.map_or(0, |o| o.per_s),
        rate.bytes_per_s.unwrap_or(0),
    )
}

/// Time by which steady rates in requests and bytes a second may be overdrawn with this burst.
fn tolerance(slow: (u64, u64), burst: Option<(&Rate, Nanos)>) -> (Nanos, Nanos) {
    let (rate, length) = burst.unwrap_or((&Rate::NONE, Nanos::ZERO));
    let fast = per_s(rate);
    (
        saved_up(slow.0, fast.0, length),
        saved_up(slow.1, fast.1, length),
    )
}

/// Time in which the steady rate saves up a burst of `length` at the fast rate.
fn saved_up(slow: u64, fast: u64, length: Nanos) -> Nanos {
    if slow == 0 || fast == 0 {
        return Nanos::ZERO;
    }
    // 128 bits: bytes a second times nanoseconds overflow 64 bits from 18 GB/s and 1 s on.
    let wait = fast as u128 * length.0 as u128 / slow as u128;
    Nanos(u64::try_from(wait).unwrap_or(u64::MAX))
}

/// Amount that is charged to an account.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    /// Lane of the requests.
    pub lane: Lane,
    /// Arrival time of the oldest of the requests.
    pub arrived: Nanos,
    /// Guest requests that are served for the first time.
    pub first: FirstServed,
    /// Bytes that count.
    pub bytes: u64,
}

/// Account of one limit, of a VM, a disk or several disks: its rates for reads, writes and both.
#[derive(Clone, Debug)]
pub(crate) struct LimitAccount([Bucket; SCOPES]);

impl LimitAccount {
    /// Opens an account of which nothing is used up.
    pub(crate) fn new(now: Nanos, limit: &Limit) -> LimitAccount {
        LimitAccount(scopes(limit).map(|(rate, burst)| Bucket::new(rate, burst, now)))
    }

    /// Changes the limit; what is owed stays owed.
    pub(crate) fn set(&mut self, now: Nanos, limit: &Limit) {
        for (bucket, (rate, burst)) in self.0.iter_mut().zip(scopes(limit)) {
            bucket.set_rate(rate, burst, now);
        }
    }

    /// Earliest time at which the next request in `lane` may go.
    #[inline(always)]
    pub(crate) fn due(&self, lane: Lane) -> Nanos {
        self.0[TOTAL].due().max(self.0[1 + lane.index()].due())
    }

    /// Charges requests that go at `now`. Late ones are made good for `slack`, or for longer where
    /// 100 ms have room.
    #[inline(always)]
    pub(crate) fn charge(&mut self, now: Nanos, charge: &Charge, slack: Nanos) {
        let [total, reads, writes] = &mut self.0;
        total.spend(charge, now, slack);
        match charge.lane {
            Lane::Read => reads.spend(charge, now, slack),
            Lane::Write => writes.spend(charge, now, slack),
        }
    }

    /// Returns the part of the limit that is used up at `now`.
    pub(crate) fn consumed(&self, now: Nanos) -> Consumed {
        Consumed(self.0.each_ref().map(|bucket| {
            let (mut steady, mut burst) = (bucket.steady, bucket.burst);
            steady.revoke_forgiven();
            burst.revoke_forgiven();
            let (ops, bytes) = bucket.tolerance;
            [
                spent_of(&steady.ops, &burst.ops, ops, now),
                spent_of(&steady.bytes, &burst.bytes, bytes, now),
            ]
        }))
    }

    /// Takes over at `now` the debts of another account of the limit.
    pub(crate) fn adopt(&mut self, now: Nanos, consumed: &Consumed) {
        for ([ops, bytes], bucket) in consumed.0.iter().zip(&mut self.0) {
            let (steady, burst) = (&mut bucket.steady, &mut bucket.burst);
            let tolerance = bucket.tolerance;
            adopt_one(ops, &mut steady.ops, &mut burst.ops, tolerance.0, now);
            adopt_one(bytes, &mut steady.bytes, &mut burst.bytes, tolerance.1, now);
        }
    }
}

/// Returns the rates of a limit with their bursts, by scope.
fn scopes(limit: &Limit) -> [(&Rate, Option<(&Rate, Nanos)>); SCOPES] {
    let burst = limit.burst.as_ref();
    [
        (&limit.total, burst.map(|b| (&b.total, b.length))),
        (&limit.read, burst.map(|b| (&b.read, b.length))),
        (&limit.write, burst.map(|b| (&b.write, b.length))),
    ]
}

/// Accounts of the limits of all VMs, by VM slot; VMs without limits take one pointer each.
#[derive(Debug, Default)]
pub struct LimitAccounts {
    vms: Vec<Option<Box<LimitAccount>>>,
}

impl LimitAccounts {
    /// Bytes that the accounts of one VM take.
    pub const BYTES_PER_VM: usize = size_of::<Option<Box<()>>>() + size_of::<LimitAccount>();

    /// Opens or changes the accounts of a VM at `now`; what is owed stays owed.
    pub fn set(&mut self, now: Nanos, vm: VmId, objective: &Objective) {
        if self.vms.len() <= vm.index() {
            self.vms.resize_with(vm.index() + 1, || None);
        }
        let limit = &objective.limit;
        match &mut self.vms[vm.index()] {
            Some(account) => account.set(now, limit),
            // An open account stays open when its limits are lifted: debts must outlive a change to
            // no limit and back.
            empty if *limit == Limit::NONE => *empty = None,
            empty => *empty = Some(Box::new(LimitAccount::new(now, limit))),
        }
    }

    /// Closes the accounts of a removed VM, so that the slot's next VM owes nothing.
    pub fn remove(&mut self, vm: VmId) {
        if let Some(account) = self.vms.get_mut(vm.index()) {
            *account = None;
        }
    }

    /// Earliest time at which the limits of a VM let its next request in `lane` go; `None`: no
    /// limit is set.
    #[inline]
    pub fn due(&self, vm: VmId, lane: Lane) -> Option<Nanos> {
        Some(self.vms.get(vm.index())?.as_ref()?.due(lane))
    }

    /// Charges an I/O that started at `now` with `bytes` to its VM. Late dispatches are made good
    /// for `slack`, or for longer where 100 ms have room.
    #[inline(always)]
    pub fn charge(&mut self, now: Nanos, io: &DeviceIo, bytes: u64, slack: Nanos) {
        let Some(Some(account)) = self.vms.get_mut(io.vm.index()) else {
            return;
        };
        let charge = Charge {
            lane: io.op.lane(),
            arrived: io.arrived,
            first: io.first_served(),
            bytes,
        };
        account.charge(now, &charge, slack);
    }

    /// Returns the part of a VM's limits that is used up at `now`.
    pub fn consumed(&self, now: Nanos, vm: VmId) -> Consumed {
        match self.vms.get(vm.index()) {
            Some(Some(account)) => account.consumed(now),
            _ => Consumed::default(),
        }
    }

    /// Takes over at `now` the debts under another policy's limits.
    pub fn adopt(&mut self, now: Nanos, vm: VmId, consumed: &Consumed) {
        if let Some(Some(account)) = self.vms.get_mut(vm.index()) {
            account.adopt(now, consumed);
        }
    }
}

/// Returns the use of the limit `is` after a change from the limit `was`, of which `consumed` was
/// used up. As [`LimitAccounts::set`] has it: what is owed stays owed in requests and bytes, and a
/// burst that is new or longer begins whole.
pub fn convert(consumed: &Consumed, was: &Limit, is: &Limit) -> Consumed {
    if was == is {
        return *consumed;
    }
    let mut all = convert_tracked(consumed, was, is);
    // A burst allowance that was not tracked is no credit: a longer burst must not pay a debt.
    let steady = |limit: &Limit| Limit {
        burst: None,
        ..*limit
    };
    let debts = convert_tracked(consumed, &steady(was), &steady(is));
    let untracked = consumed.0.iter().flatten().zip(debts.0.iter().flatten());
    for (it, (before, debt)) in all.0.iter_mut().flatten().zip(untracked) {
        if let (Some(it), Some(Spent { saved: None, .. }), Some(debt)) = (it, before, debt) {
            (it.owed, it.saved) = (debt.owed, None);
        }
    }
    all
}

/// [`convert`] where burst allowances that are not tracked count as used up.
fn convert_tracked(consumed: &Consumed, was: &Limit, is: &Limit) -> Consumed {
    // Uses are relative to the time, so that any time does.
    let now = Nanos::ZERO;
    let mut account = LimitAccount::new(now, was);
    account.adopt(now, &consumed.or_unused());
    account.set(now, is);
    account.consumed(now)
}

/// Debts of one rate: beyond its tolerance (`owed`, 0 while there is none) and of the burst.
fn spent_of(steady: &Pacer, burst: &Pacer, tolerance: Nanos, now: Nanos) -> Option<Spent> {
    let ahead = steady.due() - now;
    steady.is_set().then(|| Spent {
        owed: ahead - tolerance,
        saved: Some(tolerance - ahead),
        burst_owed: burst.due() - now,
    })
}

fn adopt_one(
    spent: &Option<Spent>,
    steady: &mut Pacer,
    burst: &mut Pacer,
    tolerance: Nanos,
    now: Nanos,
) {
    let spent = spent.unwrap_or_default();
    // Burst allowance that was saved up under another policy stays available.
    let used = tolerance - spent.saved.unwrap_or(Nanos::ZERO);
    // Never earlier than the account says itself: adopting must not forgive what was let go here.
    steady.forget_before(now + spent.owed + used);
    burst.forget_before(now + spent.burst_owed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tidegate_base::objective::{Burst, OpsRate};

    fn limit(per_s: Option<u64>, bytes: Option<u64>, burst: Option<(u64, u64)>) -> Limit {
        let rate = |times: u64| Rate {
            ops: per_s.map(|per_s| OpsRate {
                per_s: times * per_s,
                norm: None,
            }),
            bytes_per_s: bytes.map(|bytes| times * bytes),
        };
        Limit {
            total: rate(1),
            burst: burst.map(|(times, length)| Burst {
                total: rate(times),
                read: Rate::NONE,
                write: Rate::NONE,
                length: Nanos(length),
            }),
            ..Limit::NONE
        }
    }

    fn limits() -> impl Strategy<Value = Limit> {
        let rate = || proptest::option::of(1_000..1_000_000_u64);
        let burst = proptest::option::of((1..100_u64, 1_000_000..100_000_000_000_u64));
        (rate(), rate(), burst).prop_map(|(ops, bytes, burst)| limit(ops, bytes, burst))
    }

    #[test]
    fn a_debt_that_was_not_tracked_with_its_burst_is_not_paid_by_a_longer_one() {
        let was = limit(Some(10), None, Some((10, 1_000_000_000)));
        let is = limit(Some(20), None, Some((10, 60_000_000_000)));
        let spent = |owed| {
            let mut consumed = Consumed::default();
            consumed.0[0][0] = Some(Spent {
                owed,
                ..Spent::default()
            });
            consumed
        };
        let left = convert(&spent(Nanos::SECOND), &was, &is);
        assert_eq!(left, spent(Nanos::from_millis(500)));
    }

    proptest! {
        /// Whatever another daemon sends; the limits are checked before.
        #[test]
        fn any_use_can_be_converted(
            figures: [[Option<(u64, Option<u64>, u64)>; 2]; 3],
            [was, is] in [limits(), limits()],
            at: u64,
        ) {
            let spent = |(owed, saved, burst): (u64, Option<u64>, u64)| Spent {
                owed: Nanos(owed),
                saved: saved.map(Nanos),
                burst_owed: Nanos(burst),
            };
            let consumed = Consumed(figures.map(|rates| rates.map(|it| it.map(spent))));
            let left = convert(&consumed, &was, &is);
            LimitAccount::new(Nanos(at), &is).adopt(Nanos(at), &left);
        }

        /// A use that is converted is that of an account whose limit is changed.
        #[test]
        fn a_use_is_converted_as_an_account_is_changed(
            [was, is] in [limits(), limits()],
            requests in prop::collection::vec((0..3_000_000_000_u64, 1..1_000_000_u64), 0..20),
        ) {
            let mut now = Nanos::SECOND;
            let mut account = LimitAccount::new(now, &was);
            for (wait, bytes) in requests {
                now = account.due(Lane::Read).max(now + Nanos(wait));
                let charge = Charge {
                    lane: Lane::Read,
                    arrived: now,
                    first: FirstServed { ops: 1, bytes },
                    bytes,
                };
                account.charge(now, &charge, Nanos::ZERO);
            }
            let left = convert(&account.consumed(now), &was, &is);
            account.set(now, &is);
            let rates = left.0.iter().flatten().zip(account.consumed(now).0.into_iter().flatten());
            for (left, changed) in rates {
                let figures = |it: &Spent| [it.owed, it.saved.unwrap_or(Nanos::MAX), it.burst_owed];
                let figures = [left.as_ref(), changed.as_ref()].map(|it| it.map(figures));
                let [Some(left), Some(changed)] = figures else {
                    prop_assert_eq!(figures, [None, None]);
                    continue;
                };
                for (left, changed) in left.into_iter().zip(changed) {
                    // A use has no fractions of a nanosecond, and rates differ up to 10^5 times.
                    prop_assert!(left.0.abs_diff(changed.0) <= 200_000, "{left:?} {changed:?}");
                }
            }
        }
    }
}
