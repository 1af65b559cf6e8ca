//! Limits: answers of a second against the allowed rate.

use super::due::ops_of_norm;
use tidegate_core::objective::{Limit, Rate};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// Predicate of the operations that a rate counts.
type Counts = fn(Op) -> bool;

/// One rate of a limit, with the level of its token bucket.
#[derive(Clone, Debug)]
struct Bucket {
    counts: Counts,
    rate: f64,
    /// Rate during a burst, and its credit: QEMU's bucket, which holds `length` of that rate
    /// (`throttle_compute_wait`) and leaks at the limit's rate.
    burst: Option<(f64, f64)>,
    /// Bytes of a request that counts as one; `None`: every request counts as one.
    norm: Option<u32>,
    in_bytes: bool,
    used: f64,
    largest: f64,
    /// Units served above the rate and not yet compensated.
    level: f64,
}

impl Bucket {
    fn count(&mut self, op: Op, len: u32) {
        if !(self.counts)(op) {
            return;
        }
        let units = if self.in_bytes {
            f64::from(len)
        } else {
            ops_of_norm(self.norm, len)
        };
        self.used += units;
        self.largest = self.largest.max(units);
    }

    /// Ends a second, and returns whether it was kept.
    fn end_second(&mut self, blocking: Nanos) -> bool {
        // Answers of I/Os that the device delayed come together: those of the blocking time belong
        // to the second.
        let span = 1.0 + blocking.as_secs_f64();
        let (rate, credit) = self.burst.unwrap_or((self.rate, 0.0));
        // Whole seconds, so that the rate is what leaks in one.
        self.level = (self.level + self.used - self.rate).max(0.0);
        let slack = self.largest + self.rate * blocking.as_secs_f64();
        let kept = self.used <= rate * span + self.largest && self.level <= credit + slack;
        (self.used, self.largest) = (0.0, 0.0);
        // The slack applies to each second by itself: a second that used it leaves no debt to the
        // next, whose answers come a request sooner or later.
        self.level = self.level.min(credit);
        kept
    }
}

/// All rates of a VM's limit.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    buckets: Vec<Bucket>,
    blocking: Nanos,
}

impl Limits {
    /// Creates buckets for the rates of a limit; `None`: it has none.
    pub(super) fn new(limit: &Limit, blocking: Nanos) -> Option<Limits> {
        let burst = limit.burst.as_ref();
        let kinds: [(Counts, &Rate, Rate); 3] = [
            (
                |op| op != Op::Flush,
                &limit.total,
                burst.map_or(Rate::NONE, |b| b.total),
            ),
            (
                |op| op == Op::Read,
                &limit.read,
                burst.map_or(Rate::NONE, |b| b.read),
            ),
            (
                |op| !matches!(op, Op::Read | Op::Flush),
                &limit.write,
                burst.map_or(Rate::NONE, |b| b.write),
            ),
        ];
        let length = burst.map_or(0.0, |burst| burst.length.as_secs_f64());
        let mut buckets = Vec::new();
        for (counts, rate, burst) in kinds {
            let mut push = |rate: u64, norm: Option<u32>, in_bytes, burst: Option<u64>| {
                let rate = rate as f64;
                let burst = burst.map(|burst| (burst as f64, burst as f64 * length));
                buckets.push(Bucket {
                    counts,
                    rate,
                    burst,
                    norm,
                    in_bytes,
                    used: 0.0,
                    largest: 0.0,
                    level: 0.0,
                });
            };
            if let Some(ops) = rate.ops {
                push(ops.per_s, ops.norm, false, burst.ops.map(|ops| ops.per_s));
            }
            if let Some(bytes) = rate.bytes_per_s {
                push(bytes, None, true, burst.bytes_per_s);
            }
        }
        (!buckets.is_empty()).then_some(Limits { buckets, blocking })
    }

    /// Counts an answered request.
    pub(super) fn count(&mut self, op: Op, len: u32) {
        self.buckets.iter_mut().for_each(|it| it.count(op, len));
    }

    /// Ends a second, and returns whether every rate was kept.
    pub(super) fn end_second(&mut self) -> bool {
        let blocking = self.blocking;
        // No short circuit: every bucket has to end its second.
        let mut kept = true;
        for bucket in &mut self.buckets {
            kept &= bucket.end_second(blocking);
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::objective::Burst;

    fn second(limits: &mut Limits, reads: u32) -> bool {
        (0..reads).for_each(|_| limits.count(Op::Read, 4096));
        limits.end_second()
    }

    #[test]
    fn a_limit_is_kept_up_to_one_request() {
        let limit = Limit {
            read: Rate::iops(100),
            ..Limit::NONE
        };
        let mut limits = Limits::new(&limit, Nanos::ZERO).expect("there is a rate");
        limits.count(Op::Write, 4096);
        assert!(second(&mut limits, 101));
        assert!(!second(&mut limits, 102));
        assert!(Limits::new(&Limit::NONE, Nanos::ZERO).is_none());
    }

    #[test]
    fn a_burst_is_used_up() {
        let limit = Limit {
            total: Rate::iops(100),
            burst: Some(Burst {
                total: Rate::iops(200),
                read: Rate::NONE,
                write: Rate::NONE,
                length: Nanos::from_secs(2),
            }),
            ..Limit::NONE
        };
        let mut limits = Limits::new(&limit, Nanos::ZERO).expect("there is a rate");
        // Bucket of 400 that fills by 100 a second.
        for _ in 0..4 {
            assert!(second(&mut limits, 200));
        }
        assert!(!second(&mut limits, 200), "its credit is gone");
        for answers in [101, 99, 101, 100, 101] {
            assert!(second(&mut limits, answers), "one request sooner or later");
        }
        assert!(!second(&mut limits, 103), "and no more than that");
        for _ in 0..3 {
            assert!(second(&mut limits, 0));
        }
        assert!(second(&mut limits, 200), "idle seconds give it back");
        assert!(!second(&mut limits, 202), "faster than the burst");
    }
}
