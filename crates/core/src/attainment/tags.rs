//! Tags of a VM's requests at a rate: the times from which the rate owes them service.
//!
//! ```text
//!   tag(i) = max(arrival(i), tag(i-1) + cost(i-1))      cost: the time that it takes at the rate
//! ```
//!
//! A request that is answered before the tag of the VM's first outstanding request was served by
//! the VM's share, not by its rate, and must not use the rate up (mClock, Gulati et al., OSDI
//! 2010): its cost is taken back from the next tag. Otherwise the tags of a VM that gets more than
//! its rate would run ahead of time, and nothing would be late when it is starved afterwards.

use tidegate_base::objective::Rate;
use tidegate_base::time::Nanos;

/// Fractional bits of the time that a byte takes.
const BYTE_TIME_FRACTION_BITS: u32 = 20;

/// Time that requests take at a rate, rounded up by less than 2 ns.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// Time of a request, whatever its size.
    request: u64,
    /// Time of a byte, in nanoseconds with [`BYTE_TIME_FRACTION_BITS`].
    byte: u64,
    /// Size in bytes as which smaller requests count.
    size_min: u32,
}

impl Costs {
    fn new(rate: &Rate) -> Costs {
        let per_byte =
            |bytes_per_s: u64| (Nanos::SECOND.0 << BYTE_TIME_FRACTION_BITS).div_ceil(bytes_per_s);
        let bytes = rate.bytes_per_s.map_or(0, per_byte);
        match rate.ops {
            None => Costs {
                request: 0,
                byte: bytes,
                size_min: 0,
            },
            Some(ops) => match ops.norm {
                None => Costs {
                    request: Nanos::SECOND.0.div_ceil(ops.per_s),
                    byte: bytes,
                    size_min: 0,
                },
                Some(norm) => Costs {
                    request: 0,
                    // A floor with two rates is kept if the VM gets either of them, so a request
                    // costs the longer of both times.
                    byte: bytes.max(per_byte(ops.per_s.saturating_mul(norm.into()))),
                    size_min: norm,
                },
            },
        }
    }

    #[inline]
    pub(super) fn request_time(&self, len: u32) -> Nanos {
        // Plain IOPS: each request counts as one, and the product below is saved.
        if self.byte == 0 {
            return Nanos(self.request);
        }
        let scaled = u128::from(len.max(self.size_min)) * u128::from(self.byte);
        let bytes_time = u64::try_from(scaled >> BYTE_TIME_FRACTION_BITS).unwrap_or(u64::MAX);
        Nanos(self.request.max(bytes_time))
    }
}

/// Tags of one VM's requests at a rate.
#[derive(Clone, Debug)]
pub(super) struct Tags {
    costs: Costs,
    /// Tag of the next request.
    next: Nanos,
    /// Time that all outstanding requests take at the rate. As long as each of them arrived before
    /// the time of the one before it was over, the tag of the first is `next - outstanding`.
    outstanding: Nanos,
}

impl Tags {
    /// Creates the tags of a rate from `now` on.
    pub(super) fn new(rate: &Rate, now: Nanos) -> Tags {
        Tags {
            costs: Costs::new(rate),
            next: now,
            outstanding: Nanos::ZERO,
        }
    }

    /// Returns the time that a request of `len` bytes takes at the rate.
    #[inline]
    pub(super) fn cost(&self, len: u32) -> Nanos {
        self.costs.request_time(len)
    }

    /// Takes a request that came at `since` and takes `cost` at the rate. Returns its tag and that
    /// of the next one.
    #[inline(always)]
    pub(super) fn arrived(&mut self, since: Nanos, cost: Nanos) -> (Nanos, Nanos) {
        // A VM that was idle starts from its request's arrival: idle time earns nothing.
        let tag = self.next.max(since);
        self.next = tag + cost;
        self.outstanding += cost;
        (tag, self.next)
    }

    /// Takes the answer to a request. `ahead`: time before its tag from which on a request counts
    /// as served by the rate.
    #[inline(always)]
    pub(super) fn answered(&mut self, now: Nanos, cost: Nanos, ahead: Nanos) {
        // Where requests arrived with gaps, the bound lies later than the tag of the first
        // outstanding one, in the VM's favour.
        if now + self.outstanding + ahead < self.next {
            self.next = self.next - cost;
        }
        self.outstanding = self.outstanding - cost;
    }

    /// Takes back a request.
    pub(super) fn withdraw(&mut self, cost: Nanos) {
        self.next = self.next - cost;
        self.outstanding = self.outstanding - cost;
    }
}
