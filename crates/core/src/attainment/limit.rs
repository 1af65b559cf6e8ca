//! Verdicts on a limit: dispatched requests and bytes of a second against those allowed.

use super::part::{Cause, Verdict};
use tidegate_base::objective::{Burst, Limit, OpsRate, Rate};
use tidegate_base::pace::FirstServed;
use tidegate_base::request::Lane;
use tidegate_base::time::Nanos;

/// Number of buckets: total, reads, writes; each in requests and bytes.
const BUCKETS: usize = 6;

/// Leaky bucket that is evaluated once a second: it leaks the rate and 1 %, and overflows above a
/// burst's allowance and one request.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Units a second; 0: no limit.
    rate: u64,
    /// Size that counts as one request, in bytes; 0: requests are units, or the rate is in bytes.
    norm: u64,
    /// Units that a full burst lets pass.
    burst: u64,
    /// Units in the bucket.
    fill: u64,
    /// Largest I/O of this second, in units.
    largest: u64,
}

impl Bucket {
    const NONE: Bucket = Bucket {
        rate: 0,
        norm: 0,
        burst: 0,
        fill: 0,
        largest: 0,
    };

    fn ops(rate: Option<OpsRate>, burst: Option<(Option<OpsRate>, Nanos)>) -> Bucket {
        let Some(OpsRate { per_s, norm }) = rate else {
            return Bucket::NONE;
        };
        // With a normalisation size the bucket counts bytes, so one I/O may be several requests.
        let unit = u64::from(norm.unwrap_or(1));
        let fast = |(rate, length): (Option<OpsRate>, Nanos)| {
            units_in(
                rate.map_or(0, |rate| rate.per_s.saturating_mul(unit)),
                length,
            )
        };
        Bucket {
            rate: per_s.saturating_mul(unit),
            norm: norm.unwrap_or(0).into(),
            burst: burst.map_or(0, fast),
            ..Bucket::NONE
        }
    }

    fn bytes(rate: Option<u64>, burst: Option<(Option<u64>, Nanos)>) -> Bucket {
        Bucket {
            rate: rate.unwrap_or(0),
            burst: burst.map_or(0, |(rate, length)| units_in(rate.unwrap_or(0), length)),
            ..Bucket::NONE
        }
    }

    /// Spends units, of which one I/O had `largest` at most.
    fn spend(&mut self, units: u64, largest: u64) {
        self.fill = self.fill.saturating_add(units);
        self.largest = self.largest.max(largest);
    }

    /// Ends a second. Returns by how much it exceeded the limit: the time in nanoseconds that the
    /// limit's rate takes for the excess; 0 if it was kept.
    fn close(&mut self) -> u64 {
        let largest = core::mem::take(&mut self.largest);
        if self.rate == 0 {
            // Units count whatever the rate; a fill that never falls would never be idle.
            self.fill = 0;
            return 0;
        }
        let left = self.fill.saturating_sub(self.rate);
        // One I/O may exceed the rate: requests are counted whole when they start.
        let most = self.burst.saturating_add(largest);
        let slack = self.rate / 100;
        let beyond = left.saturating_sub(most.saturating_add(slack));
        // The 1 % is not saved up, and an excess counts only in its own second.
        self.fill = left.saturating_sub(slack).min(most);
        let ns = u128::from(beyond) * u128::from(Nanos::SECOND.0) / u128::from(self.rate);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// Units of a rate over a time.
fn units_in(per_s: u64, length: Nanos) -> u64 {
    let units = u128::from(per_s) * u128::from(length.0) / u128::from(Nanos::SECOND.0);
    u64::try_from(units).unwrap_or(u64::MAX)
}

/// Requests of a lane that went to the device in the running second.
#[derive(Clone, Copy, Default, Debug)]
struct Dispatched {
    ops: u64,
    bytes: u64,
    /// Largest number of requests of one I/O.
    largest_ops: u64,
    /// Largest number of bytes of one I/O.
    largest_bytes: u64,
}

/// Judge of a limit.
#[derive(Clone, Debug)]
pub(super) struct LimitJudge {
    buckets: [Bucket; BUCKETS],
    /// Requests by lane, spent at the second's end.
    dispatched: [Dispatched; 2],
    /// True if a limit has a normalisation size: large requests count as several, so that each I/O
    /// is charged when it starts instead of all of them at the second's end.
    normed: bool,
    /// True if something went to the device this second.
    used: bool,
}

impl LimitJudge {
    /// Creates the judge of a limit.
    pub(super) fn new(limit: &Limit) -> LimitJudge {
        let mut buckets = [Bucket::NONE; BUCKETS];
        let of_burst =
            |pick: fn(&Burst) -> &Rate| limit.burst.as_ref().map(|b| (*pick(b), b.length));
        let scopes = [
            (&limit.total, of_burst(|burst| &burst.total)),
            (&limit.read, of_burst(|burst| &burst.read)),
            (&limit.write, of_burst(|burst| &burst.write)),
        ];
        for (pair, (rate, burst)) in buckets.chunks_exact_mut(2).zip(scopes) {
            pair[0] = Bucket::ops(rate.ops, burst.map(|(rate, length)| (rate.ops, length)));
            let bytes = burst.map(|(rate, length)| (rate.bytes_per_s, length));
            pair[1] = Bucket::bytes(rate.bytes_per_s, bytes);
        }
        LimitJudge {
            buckets,
            dispatched: Default::default(),
            normed: buckets.iter().any(|bucket| bucket.norm > 0),
            used: false,
        }
    }

    /// Counts requests that go to the device for the first time.
    #[inline]
    pub(super) fn dispatched(&mut self, lane: Lane, first: FirstServed) {
        self.used = true;
        if self.normed {
            self.spend(lane, first);
            return;
        }
        let ops = u64::from(first.ops);
        let of_lane = &mut self.dispatched[lane.index()];
        of_lane.ops += ops;
        of_lane.bytes = of_lane.bytes.saturating_add(first.bytes);
        of_lane.largest_ops = of_lane.largest_ops.max(ops);
        of_lane.largest_bytes = of_lane.largest_bytes.max(first.bytes);
    }

    /// Buckets of all I/Os and of a lane's, each of requests and of bytes.
    fn buckets_of(&mut self, lane: Lane) -> [[&mut Bucket; 2]; 2] {
        let [total_ops, total_bytes, lanes @ ..] = &mut self.buckets;
        let [read_ops, read_bytes, write_ops, write_bytes] = lanes;
        let of_lane = match lane {
            Lane::Read => [read_ops, read_bytes],
            Lane::Write => [write_ops, write_bytes],
        };
        [[total_ops, total_bytes], of_lane]
    }

    /// Charges one I/O to its buckets at once.
    #[inline(never)]
    fn spend(&mut self, lane: Lane, first: FirstServed) {
        for [ops, bytes] in self.buckets_of(lane) {
            let units = match ops.norm {
                0 => u64::from(first.ops),
                // A request counts as `norm` bytes at least, a larger one by its size.
                norm => first.bytes.max(u64::from(first.ops) * norm),
            };
            ops.spend(units, units);
            bytes.spend(first.bytes, first.bytes);
        }
    }

    /// Charges the I/Os of the second that were counted by lane.
    fn settle(&mut self) {
        for lane in Lane::ALL {
            let of_lane = core::mem::take(&mut self.dispatched[lane.index()]);
            for [ops, bytes] in self.buckets_of(lane) {
                ops.spend(of_lane.ops, of_lane.largest_ops);
                bytes.spend(of_lane.bytes, of_lane.largest_bytes);
            }
        }
    }

    /// Returns whether a second without anything dispatched would change nothing.
    pub(super) fn is_idle(&self) -> bool {
        !self.used && self.buckets.iter().all(|bucket| bucket.fill == 0)
    }

    /// Ends a second. Returns the verdict and, if it is missed, the time that the rate of the
    /// limit takes for what went beyond it.
    pub(super) fn close(&mut self) -> (Verdict, Nanos) {
        self.settle();
        let beyond = (self.buckets.iter_mut()).fold(0, |most, bucket| most.max(bucket.close()));
        let used = core::mem::take(&mut self.used);
        let verdict = match (used, beyond) {
            // Nothing went, so nothing can have passed beyond the limit.
            (false, _) => Verdict::Idle,
            (true, 0) => Verdict::Kept { asked_less: false },
            (true, _) => Verdict::Missed(Cause::Policy),
        };
        (verdict, Nanos(beyond))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_one_rate_is_idle_once_its_bucket_is_empty() {
        let mut limit = Limit::default();
        limit.total.bytes_per_s = Some(1 << 20);
        let mut judge = LimitJudge::new(&limit);
        let first = FirstServed {
            ops: 1,
            bytes: 4096,
        };
        judge.dispatched(Lane::Read, first);
        assert!(!judge.is_idle());
        assert_eq!(judge.close().0, Verdict::Kept { asked_less: false });
        assert!(judge.is_idle());
    }
}
