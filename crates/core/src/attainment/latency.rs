//! Verdicts on a latency bound.

use super::due_ring::{ClosedSecond, Due, DueRing};
use super::part::{Cause, Verdict};
use super::second_of;
use tidegate_base::time::Nanos;

/// Reciprocal of the share of a second's requests that may be late: 1 %.
const REQUESTS_PER_LATE_ONE: u64 = 100;

/// Judge of a bound on the time from arrival to answer.
#[derive(Clone, Debug)]
pub(super) struct Latency {
    bound: Nanos,
    ring: DueRing,
}

impl Latency {
    /// Creates the judge of a bound from `now` on.
    pub(super) fn new(bound: Nanos, now: Nanos) -> Latency {
        Latency {
            bound,
            ring: DueRing::new(second_of(now)),
        }
    }

    /// Takes a request that the envelope allows from `from` on. Returns its due time.
    pub(super) fn arrived(&mut self, from: Nanos) -> Due {
        Due::counted_in(&mut self.ring, from + self.bound)
    }

    /// Takes the answer to a request. Returns by how much it is late.
    pub(super) fn answered(&mut self, now: Nanos, due: Due) -> Nanos {
        due.answer(&mut self.ring, now)
    }

    /// Takes back a request.
    pub(super) fn withdraw(&mut self, due: Due) {
        due.withdraw(&mut self.ring);
    }

    pub(super) fn ring_mut(&mut self) -> &mut DueRing {
        &mut self.ring
    }

    pub(super) fn ring(&self) -> &DueRing {
        &self.ring
    }

    /// Ends a second; `cause`: of a miss.
    pub(super) fn close(&mut self, cause: Cause) -> Verdict {
        let ClosedSecond { due, late, hanging } = self.ring.close();
        // A request that hangs through the whole second means no service, however few are late.
        if hanging || u64::from(late) * REQUESTS_PER_LATE_ONE > u64::from(due) {
            return Verdict::Missed(cause);
        }
        match due {
            0 => Verdict::Idle,
            _ => Verdict::Kept { asked_less: false },
        }
    }
}
