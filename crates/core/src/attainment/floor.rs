//! Verdicts on a floor: a reservation or a target, as the rate that a VM is promised at least.
//!
//! Each request has a tag, the time from which the floor owes it service:
//!
//! ```text
//!   tag(i) = max(arrival(i), tag(i-1) + cost(i-1))      cost: the time that it takes at the rate
//!   due(i) = tag(i) + cost(i) + blocking time of the device
//! ```
//!
//! A request that is answered before the tag of the VM's first outstanding request was served by
//! the VM's share, not by its floor, and must not use the floor up (mClock, Gulati et al., OSDI
//! 2010): its cost is taken back from the next tag. Otherwise the tags of a VM that gets more than
//! its floor would run ahead of time, and nothing would be late when it is starved afterwards.
//!
//! A floor promises a rate and no order, so a second in which the whole rate was answered is kept
//! even if single requests were late: a disk that orders its queue passes some of a VM's requests
//! over for longer than the floor's due times allow, while it serves others of the same VM.

use super::due_ring::{ClosedSecond, Due, DueRing};
use super::part::{Cause, Verdict};
use super::{LATE, second_of};
use tidegate_base::objective::Rate;
use tidegate_base::time::Nanos;

/// Requests of a second at the promised rate from which on one of them may be missing.
const REQUESTS_MIN: u64 = 10;
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
    fn request_time(&self, len: u32) -> Nanos {
        // Plain IOPS: each request counts as one, and the product below is saved.
        if self.byte == 0 {
            return Nanos(self.request);
        }
        let scaled = u128::from(len.max(self.size_min)) * u128::from(self.byte);
        let bytes_time = u64::try_from(scaled >> BYTE_TIME_FRACTION_BITS).unwrap_or(u64::MAX);
        Nanos(self.request.max(bytes_time))
    }
}

/// Judge of a floor.
#[derive(Clone, Debug)]
pub(super) struct Floor {
    costs: Costs,
    /// Tag of the next request.
    tag: Nanos,
    /// Time that all outstanding requests take at the rate. As long as each of them arrived before
    /// the time of the one before it was over, the tag of the first is `tag - outstanding`.
    outstanding: Nanos,
    ring: DueRing,
    /// Time that the requests of this second take at the rate.
    asked: Nanos,
    /// A request that was answered this second was late by [`LATE`] or more.
    very_late: bool,
    /// Time that the requests answered this second take at the rate, and the longest time of one of
    /// them.
    served: [Nanos; 2],
}

impl Floor {
    /// Creates the judge of a rate from `now` on.
    pub(super) fn new(rate: &Rate, now: Nanos) -> Floor {
        Floor {
            costs: Costs::new(rate),
            tag: now,
            outstanding: Nanos::ZERO,
            ring: DueRing::new(second_of(now)),
            asked: Nanos::ZERO,
            very_late: false,
            served: [Nanos::ZERO; 2],
        }
    }

    /// Takes a request of `len` bytes that came at `since`. Returns its tag, and the time by which
    /// it is due with the device's `blocking` time.
    #[inline(always)]
    pub(super) fn arrived(&mut self, since: Nanos, len: u32, blocking: Nanos) -> (Nanos, Due) {
        // A VM that was idle starts from its request's arrival: idle time earns nothing.
        let (tag, cost) = (self.tag.max(since), self.costs.request_time(len));
        self.tag = tag + cost;
        self.outstanding += cost;
        self.asked += cost;
        (tag, Due::counted_in(&mut self.ring, self.tag + blocking))
    }

    /// Takes the answer to a request of `len` bytes. Returns by how much it is late.
    #[inline(always)]
    pub(super) fn answered(&mut self, now: Nanos, due: Due, len: u32) -> Nanos {
        let cost = self.costs.request_time(len);
        // Answered before the tag of the first outstanding request: served by the share, not the
        // floor. Where requests arrived with gaps, the bound lies later than that tag, in the VM's
        // favour.
        if now + self.outstanding < self.tag {
            self.tag = self.tag - cost;
        }
        self.outstanding = self.outstanding - cost;
        let [all, longest] = &mut self.served;
        *all += cost;
        *longest = cost.max(*longest);
        let late = due.answer(&mut self.ring, now);
        if late > Nanos::ZERO {
            // Judged with the second in which the answer came, since the one it was due in may be
            // closed.
            self.very_late |= late >= LATE;
        }
        late
    }

    /// Takes back a request of `len` bytes.
    pub(super) fn withdraw(&mut self, due: Due, len: u32) {
        let cost = self.costs.request_time(len);
        self.tag = self.tag - cost;
        self.outstanding = self.outstanding - cost;
        due.withdraw(&mut self.ring);
    }

    pub(super) fn ring_mut(&mut self) -> &mut DueRing {
        &mut self.ring
    }

    /// Returns whether a second may pass without anything to judge.
    pub(super) fn is_quiet(&self) -> bool {
        self.ring.is_empty()
            && self.asked == Nanos::ZERO
            && self.served[0] == Nanos::ZERO
            && !self.very_late
    }

    /// Ends a second, and returns the verdict on it; a miss is attributed to `cause`.
    pub(super) fn close(&mut self, cause: Cause) -> Verdict {
        let ClosedSecond { due, late, hanging } = self.ring.close();
        let very_late = core::mem::take(&mut self.very_late);
        let asked = core::mem::take(&mut self.asked);
        let [all, longest] = core::mem::take(&mut self.served);
        // The second's boundaries cut the answers anywhere, so one of them may be missing, if that
        // is no large part of the rate.
        let missing = if longest.0 <= Nanos::SECOND.0 / REQUESTS_MIN {
            longest
        } else {
            Nanos::ZERO
        };
        if all + missing >= Nanos::SECOND {
            return Verdict::Kept { asked_less: false };
        }
        // One late request is forgiven, but not if it is late by `LATE` or more.
        if late > 1 || hanging || very_late {
            return Verdict::Missed(cause);
        }
        match due {
            // No request was due, so nothing could be missed.
            0 => Verdict::Idle,
            // The second's boundaries cut the request stream anywhere, so up to one request's worth
            // of time is allowed to be missing before the VM counts as asking less.
            _ => Verdict::Kept {
                asked_less: asked.0 + asked.0 / u64::from(due) < Nanos::SECOND.0,
            },
        }
    }
}
