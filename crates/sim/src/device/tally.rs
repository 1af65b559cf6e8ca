//! Tally of a VM: requests, bytes and latencies in a span of time.

use super::transfers::TransferTally;
use hdrhistogram::Histogram;
use tidegate_core::request::{Account, Op};
use tidegate_core::stats;
use tidegate_core::time::Nanos;

/// Longest latency told apart: an hour. What takes longer counts as an hour in quantiles.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Shortest latency told apart: a microsecond.
const SHORTEST_NS: u64 = 1_000;
/// Significant digits of quantiles, which are within 1 %.
const DIGITS: u8 = 2;

/// Distribution of spans of time.
#[derive(Clone, Debug)]
pub struct Times {
    all: Histogram<u32>,
    /// Sum of all spans, in nanoseconds.
    sum: u128,
    /// Longest span, exact.
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
    /// Counts a span.
    pub fn record(&mut self, time: Nanos) {
        // Saturates: longer spans are still in the sum and in `longest`.
        self.all.saturating_record(time.0);
        self.sum += u128::from(time.0);
        self.longest = self.longest.max(time);
    }

    /// Counts the spans of another distribution as well.
    pub fn add(&mut self, other: &Times) {
        self.all.add(&other.all).expect("both have the same bounds");
        self.sum += other.sum;
        self.longest = self.longest.max(other.longest);
    }

    /// Forgets all spans.
    pub fn clear(&mut self) {
        self.all.reset();
        (self.sum, self.longest) = (0, Nanos::ZERO);
    }

    /// Number of spans.
    pub fn count(&self) -> u64 {
        self.all.len()
    }

    /// Shortest span, at most 1 % below it; zero when nothing was counted.
    pub fn shortest(&self) -> Nanos {
        match self.all.is_empty() {
            true => Nanos::ZERO,
            false => Nanos(self.all.min()).min(self.longest),
        }
    }

    /// Standard deviation in nanoseconds; zero when nothing was counted.
    pub fn deviation(&self) -> f64 {
        match self.all.is_empty() {
            true => 0.0,
            false => self.all.stdev(),
        }
    }

    /// Buckets with at least one span: upper bound and number of spans.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> {
        let recorded = self.all.iter_recorded();
        recorded.map(|it| {
            (
                Nanos(it.value_iterated_to()),
                it.count_since_last_iteration(),
            )
        })
    }

    /// Histogram, with spans in nanoseconds.
    pub fn histogram(&self) -> &Histogram<u32> {
        &self.all
    }

    /// Longest span; zero when nothing was counted.
    pub fn longest(&self) -> Nanos {
        self.longest
    }

    /// Upper bound of a quantile, at most 1 % above it; zero when nothing was counted.
    pub fn quantile(&self, q: f64) -> Nanos {
        if self.all.is_empty() {
            return Nanos::ZERO;
        }
        // A bucket's upper end may lie above the longest span that was counted.
        Nanos(self.all.value_at_quantile(q)).min(self.longest)
    }

    /// Mean; zero when nothing was counted.
    pub fn mean(&self) -> Nanos {
        let mean = self.sum.checked_div(u128::from(self.count()));
        Nanos(mean.unwrap_or(0) as u64)
    }
}

/// Counts of a VM in a span of time.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Requests that ended well, by operation.
    pub ops: [u64; Op::ALL.len()],
    /// Bytes of these requests, by operation.
    pub bytes: [u64; Op::ALL.len()],
    /// Requests that failed.
    pub errors: u64,
    /// Latency from the guest's wish to the guest's answer.
    pub latency: Times,
    /// Time from arrival at the scheduler to the answer there, in the buckets of the daemon.
    pub served: stats::Histogram,
    /// Time between the scheduler and the device by its cause, summed over all requests.
    pub account: Account,
    /// Counts of its transfers; `None`: it has none.
    pub transfers: Option<Box<TransferTally>>,
    /// Latency by operation, in the order of [`Op::ALL`]; `None`: not kept.
    pub by_op: Option<Box<[Times; Op::ALL.len()]>>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            ops: [0; Op::ALL.len()],
            bytes: [0; Op::ALL.len()],
            errors: 0,
            latency: Times::default(),
            served: stats::Histogram::default(),
            account: Account::default(),
            transfers: None,
            by_op: None,
        }
    }
}

impl Tally {
    /// Counts a request that ended well.
    pub(super) fn answered(&mut self, op: Op, len: u32, latency: Nanos) {
        self.ops[op as usize] += 1;
        self.bytes[op as usize] += u64::from(len);
        self.latency.record(latency);
        if let Some(by_op) = &mut self.by_op {
            by_op[op as usize].record(latency);
        }
    }

    /// Counts the time of a request between the scheduler and the device, well or with an error.
    pub(super) fn served(&mut self, account: &Account, well: bool) {
        self.account(account);
        if well {
            self.served.record(account.total());
        }
    }

    /// Adds an account of time.
    fn account(&mut self, account: &Account) {
        self.account.admission += account.admission;
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
        self.served.add(&other.served);
        self.account(&other.account);
        if let Some(transfers) = &other.transfers {
            self.transfers.get_or_insert_default().add(transfers);
        }
        if let Some(by_op) = &other.by_op {
            let own = self.by_op.get_or_insert_default();
            own.iter_mut()
                .zip(by_op.iter())
                .for_each(|(own, other)| own.add(other));
        }
    }

    /// Sets all counts to zero.
    pub fn clear(&mut self) {
        self.ops = [0; Op::ALL.len()];
        self.bytes = [0; Op::ALL.len()];
        self.errors = 0;
        self.latency.clear();
        self.served.clear();
        self.account = Account::default();
        if let Some(transfers) = &mut self.transfers {
            **transfers = TransferTally::default();
        }
        if let Some(by_op) = &mut self.by_op {
            by_op.iter_mut().for_each(Times::clear);
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

    /// Quantile of the latency: see [`Times::quantile`].
    pub fn quantile(&self, q: f64) -> Nanos {
        self.latency.quantile(q)
    }

    /// Mean latency; zero when nothing was counted.
    pub fn mean(&self) -> Nanos {
        self.latency.mean()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
