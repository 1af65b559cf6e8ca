//! Verdicts on a floor: a reservation or a target, as the rate that a VM is promised at least.
//!
//! Each request has a [tag](super::tags), the time from which the floor owes it service, and is due
//! what it takes at the rate and the blocking time of the device after that.
//!
//! A floor promises a rate and no order, so a second in which the whole rate was answered is kept
//! even if single requests were late: a disk that orders its queue passes some of a VM's requests
//! over for longer than the floor's due times allow, while it serves others of the same VM.

use super::due_ring::{ClosedSecond, Due, DueRing};
use super::part::{Cause, Verdict};
use super::tags::Tags;
use super::{LATE, second_of};
use tidegate_base::objective::Rate;
use tidegate_base::time::Nanos;

/// Requests of a second at the promised rate from which on one of them may be missing.
const REQUESTS_MIN: u64 = 10;
/// Judge of a floor.
#[derive(Clone, Debug)]
pub(super) struct Floor {
    tags: Tags,
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
            tags: Tags::new(rate, now),
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
        let cost = self.tags.cost(len);
        let (tag, next) = self.tags.arrived(since, cost);
        self.asked += cost;
        (tag, Due::counted_in(&mut self.ring, next + blocking))
    }

    /// Takes the answer to a request of `len` bytes. Returns by how much it is late.
    #[inline(always)]
    pub(super) fn answered(&mut self, now: Nanos, due: Due, len: u32) -> Nanos {
        let cost = self.tags.cost(len);
        self.tags.answered(now, cost, Nanos::ZERO);
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
        self.tags.withdraw(self.tags.cost(len));
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
