//! Verdicts on a floor: a reservation or a target.

use super::LATE;
use super::due_ring::{ClosedSecond, Due, DueRing};
use super::part::{Cause, Verdict};
use tidegate_base::objective::Rate;
use tidegate_base::pace::{FirstServed, RatePacer};
use tidegate_base::seconds::Seconds;
use tidegate_base::time::Nanos;

/// Judge of a floor.
#[derive(Clone, Debug)]
pub(super) struct Floor {
    /// Tag of the next request.
    pacer: RatePacer,
    ring: DueRing,
    /// Time that requests of this second take of the rate.
    asked: Nanos,
    /// A request that was answered this second was late by [`LATE`] or more.
    very_late: bool,
}

impl Floor {
    /// Creates the judge of a rate from `now` on.
    pub(super) fn new(rate: &Rate, now: Nanos) -> Floor {
        Floor {
            pacer: RatePacer::new(rate, now),
            ring: DueRing::new(Seconds::number(now)),
            asked: Nanos::ZERO,
            very_late: false,
        }
    }

    /// Takes a request of `len` bytes that came at `since`. Returns its tag, and the time by which
    /// it is due with the device's `blocking` time.
    pub(super) fn arrived(&mut self, since: Nanos, len: u32, blocking: Nanos) -> (Nanos, Due) {
        self.pacer.forget_before(since);
        // A floor with two rates holds as soon as either is given: the later tag counts.
        let tag = self.pacer.all_due();
        let first = FirstServed {
            ops: 1,
            bytes: len.into(),
        };
        self.pacer.spend(len.into(), first);
        let end = self.pacer.all_due();
        self.asked += end.since(tag);
        (tag, Due::counted_in(&mut self.ring, end + blocking))
    }

    /// Takes the answer to a request. Returns by how much it is late.
    pub(super) fn answered(&mut self, now: Nanos, due: Due) -> Nanos {
        let late = due.answer(&mut self.ring, now);
        self.very_late |= late >= LATE;
        late
    }

    pub(super) fn ring_mut(&mut self) -> &mut DueRing {
        &mut self.ring
    }

    /// Returns whether a second may pass without anything to judge.
    pub(super) fn is_quiet(&self) -> bool {
        self.ring.is_empty() && self.asked == Nanos::ZERO && !self.very_late
    }

    /// Ends a second; `cause`: of a miss.
    pub(super) fn close(&mut self, cause: Cause) -> Verdict {
        let ClosedSecond { due, late, hanging } = self.ring.close();
        let very_late = core::mem::take(&mut self.very_late);
        let asked = core::mem::take(&mut self.asked);
        if late > 1 || hanging || very_late {
            return Verdict::Missed(cause);
        }
        match due {
            0 => Verdict::Idle,
            // A second begins anywhere between two requests: hence one of them is not missing.
            _ => Verdict::Kept {
                asked_less: asked.0 + asked.0 / u64::from(due) < Nanos::SECOND.0,
            },
        }
    }
}
