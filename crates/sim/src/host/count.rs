//! What is counted of a tenant.

use super::tasks::TaskTally;
use hdrhistogram::Histogram;
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::request::{Account, Op};
use tidegate_core::time::Nanos;

/// Longest latency told apart: an hour. What takes longer counts as an hour in quantiles.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Shortest: a microsecond.
const SHORTEST_NS: u64 = 1_000;
/// Quantiles are within 1 %.
const DIGITS: u8 = 2;

/// How long things took.
#[derive(Clone, Debug)]
pub struct Times {
    all: Histogram<u32>,
    /// The sum, in nanoseconds.
    sum: u128,
    /// The longest, exact.
    longest: Nanos,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            all: Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, DIGITS)
                .expect("the bounds are in the library's range"),
            sum: 0,
            longest: Nanos::ZERO,
        }
    }
}

impl Times {
    /// One more took so long.
    pub(crate) fn took(&mut self, time: Nanos) {
        self.all.saturating_record(time.0);
        self.sum += u128::from(time.0);
        self.longest = self.longest.max(time);
    }

    /// Counts others as well.
    pub fn add(&mut self, other: &Times) {
        self.all.add(&other.all).expect("both have the same bounds");
        self.sum += other.sum;
        self.longest = self.longest.max(other.longest);
    }

    /// Counts nothing yet, as when it was new.
    pub fn clear(&mut self) {
        self.all.reset();
        (self.sum, self.longest) = (0, Nanos::ZERO);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.all.len()
    }

    /// The longest; zero when nothing was counted.
    pub fn longest(&self) -> Nanos {
        self.longest
    }

    /// An upper bound of a quantile, at most 1 % above it; zero when nothing was counted.
    pub fn quantile(&self, q: f64) -> Nanos {
        if self.all.is_empty() {
            return Nanos::ZERO;
        }
        Nanos(self.all.value_at_quantile(q)).min(self.longest)
    }

    /// The mean; zero when nothing was counted.
    pub fn mean(&self) -> Nanos {
        let mean = self.sum.checked_div(u128::from(self.count()));
        Nanos(mean.unwrap_or(0) as u64)
    }
}

/// What was counted in a span of time.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Requests that ended well, by operation.
    pub ops: [u64; Op::ALL.len()],
    /// Their bytes, by operation.
    pub bytes: [u64; Op::ALL.len()],
    /// Requests that failed.
    pub errors: u64,
    /// From the guest's wish to the guest's answer.
    pub latency: Times,
    /// Where the time between the scheduler and the device went, summed.
    pub account: Account,
    /// What it asks for in many requests; `None`: nothing.
    pub tasks: Option<Box<TaskTally>>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            ops: [0; Op::ALL.len()],
            bytes: [0; Op::ALL.len()],
            errors: 0,
            latency: Times::default(),
            account: Account::default(),
            tasks: None,
        }
    }
}

impl Tally {
    pub(super) fn answered(&mut self, op: Op, len: u32, latency: Nanos) {
        self.ops[op as usize] += 1;
        self.bytes[op as usize] += u64::from(len);
        self.latency.took(latency);
    }

    pub(super) fn account(&mut self, account: &Account) {
        self.account.regulated += account.regulated;
        self.account.queued += account.queued;
        self.account.merged_wait += account.merged_wait;
        self.account.deliberate += account.deliberate;
        self.account.device += account.device;
    }

    /// Counts another span as well.
    pub fn add(&mut self, other: &Tally) {
        for op in 0..Op::ALL.len() {
            self.ops[op] += other.ops[op];
            self.bytes[op] += other.bytes[op];
        }
        self.errors += other.errors;
        self.latency.add(&other.latency);
        self.account(&other.account);
        if let Some(tasks) = &other.tasks {
            self.tasks.get_or_insert_default().add(tasks);
        }
    }

    /// Counts nothing yet, as when it was new.
    pub fn clear(&mut self) {
        self.ops = [0; Op::ALL.len()];
        self.bytes = [0; Op::ALL.len()];
        self.errors = 0;
        self.latency.clear();
        self.account = Account::default();
        if let Some(tasks) = &mut self.tasks {
            **tasks = TaskTally::default();
        }
    }

    /// Requests that ended well, of all operations.
    pub fn total_ops(&self) -> u64 {
        self.ops.iter().sum()
    }

    /// Bytes read and written.
    pub fn data_bytes(&self) -> u64 {
        self.bytes[Op::Read as usize] + self.bytes[Op::Write as usize]
    }

    /// A quantile of the latency: see [`Times::quantile`].
    pub fn quantile(&self, q: f64) -> Nanos {
        self.latency.quantile(q)
    }

    /// The mean latency; zero when nothing was counted.
    pub fn mean(&self) -> Nanos {
        self.latency.mean()
    }
}

/// Watches whether a tenant gets what it was promised.
///
/// A reservation is a promise to a tenant that asks: it is judged over whole seconds in which the
/// tenant had something outstanding all the time. One request less is no breach, for a second
/// begins anywhere between two of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    reservation: Rate,
    latency: Option<Nanos>,
    /// Requests answered this second, and their bytes.
    ops: u64,
    bytes: u64,
    largest: u64,
    /// The same in the units of the reservation's rate.
    units: u64,
    /// Something was outstanding since the second began, under the same reservation.
    asked: bool,
    kept: Kept,
}

/// How often a promise was kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Whole seconds in which the tenant asked all the time.
    pub asked_s: u64,
    /// Those of them in which it got less than its reservation.
    pub short_s: u64,
    /// Requests whose latency was judged: all but flushes that were answered, and those that wait
    /// for longer already.
    pub judged: u64,
    /// Those of them that took longer than the tenant was promised.
    pub late: u64,
}

impl Kept {
    /// Counts another span as well.
    pub fn add(&mut self, other: &Kept) {
        self.asked_s += other.asked_s;
        self.short_s += other.short_s;
        self.judged += other.judged;
        self.late += other.late;
    }
}

impl Watch {
    pub(super) fn new(objective: &Objective) -> Watch {
        Watch {
            reservation: objective.reservation,
            latency: objective.latency,
            ..Watch::default()
        }
    }

    pub(super) fn answered(&mut self, len: u32, latency: Nanos) {
        self.ops += 1;
        self.bytes += u64::from(len);
        self.largest = self.largest.max(len.into());
        let norm = self.reservation.ops.and_then(|o| o.norm);
        self.units += norm.map_or(1, |norm| u64::from(len.max(norm)));
        self.kept.judged += 1;
        if self.latency.is_some_and(|bound| latency > bound) {
            self.kept.late += 1;
        }
    }

    /// Nothing is outstanding any more: the tenant does not ask.
    pub(super) fn quiet(&mut self) {
        self.asked = false;
    }

    /// The promises change: what was found about those before them, unless they stay the same.
    /// The second that has begun is neither's.
    pub(super) fn promise(&mut self, objective: &Objective) -> Option<Kept> {
        let same = self.reservation == objective.reservation && self.latency == objective.latency;
        (!same).then(|| core::mem::replace(self, Watch::new(objective)).kept)
    }

    /// What was found about the promises in force.
    pub(super) fn kept(&self) -> Kept {
        self.kept
    }

    /// A second is over and another begins; `busy`: something is outstanding.
    pub(super) fn second(&mut self, busy: bool) {
        let reservation = &self.reservation;
        if self.asked && !reservation.is_none() {
            self.kept.asked_s += 1;
            let ops_short = reservation.ops.is_some_and(|rate| {
                let unit = u64::from(rate.norm.unwrap_or(1));
                let one = if rate.norm.is_some() {
                    self.largest.max(unit)
                } else {
                    1
                };
                self.units + one < rate.per_s * unit
            });
            let bytes_short = reservation
                .bytes_per_s
                .is_some_and(|per_s| self.bytes + self.largest < per_s);
            // A floor holds as soon as either rate is given.
            let short = match (reservation.ops, reservation.bytes_per_s) {
                (Some(_), Some(_)) => ops_short && bytes_short,
                _ => ops_short || bytes_short,
            };
            self.kept.short_s += u64::from(short);
        }
        *self = Watch {
            ops: 0,
            bytes: 0,
            largest: 0,
            units: 0,
            asked: busy,
            ..*self
        };
    }

    /// What was before does not count; `second`: one begins right now.
    pub(super) fn forget(&mut self, second: bool) {
        self.asked &= second;
        self.kept = Kept::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(watch: &mut Watch, ops: u64, len: u32) {
        for _ in 0..ops {
            watch.answered(len, Nanos::ZERO);
        }
        watch.second(true);
    }

    #[test]
    fn a_reservation_is_short_where_more_than_one_request_is_missing() {
        let objective = Objective {
            reservation: Rate::iops(100),
            ..Objective::default()
        };
        let mut watch = Watch::new(&objective);
        watch.second(true);
        second(&mut watch, 100, 4096);
        second(&mut watch, 99, 4096);
        assert_eq!((watch.kept.asked_s, watch.kept.short_s), (2, 0));
        second(&mut watch, 98, 4096);
        assert_eq!((watch.kept.asked_s, watch.kept.short_s), (3, 1));
    }

    #[test]
    fn a_second_in_which_nobody_asked_is_not_judged() {
        let objective = Objective {
            reservation: Rate::bytes(1_000_000),
            ..Objective::default()
        };
        let mut watch = Watch::new(&objective);
        watch.second(true);
        watch.quiet();
        second(&mut watch, 1, 4096);
        assert_eq!(watch.kept.asked_s, 0);
        second(&mut watch, 1, 4096);
        assert_eq!((watch.kept.asked_s, watch.kept.short_s), (1, 1));
    }

    #[test]
    fn late_requests_are_counted_one_by_one() {
        let objective = Objective {
            latency: Some(Nanos(1000)),
            ..Objective::default()
        };
        let mut watch = Watch::new(&objective);
        for ns in [999, 1000, 1001, 5000] {
            watch.answered(512, Nanos(ns));
        }
        assert_eq!(watch.kept.late, 2);
    }

    #[test]
    fn quantiles_are_within_a_hundredth_and_never_above_the_longest() {
        let mut tally = Tally::default();
        for us in 1..=1000u64 {
            tally.answered(Op::Read, 4096, Nanos::from_micros(us));
        }
        let p99 = tally.quantile(0.99).0 as f64;
        assert!((990_000.0..=990_000.0 * 1.01).contains(&p99), "{p99}");
        assert_eq!(tally.quantile(1.0), Nanos::from_micros(1000));
        assert_eq!(tally.mean(), Nanos(500_500));
        let mut twice = tally.clone();
        twice.add(&tally);
        assert_eq!(twice.total_ops(), 2000);
        assert_eq!(twice.mean(), tally.mean());
        twice.clear();
        assert_eq!(twice.quantile(0.5), Nanos::ZERO);
    }
}
