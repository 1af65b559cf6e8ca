//! Verdicts on a latency bound.

use super::due_ring::{ClosedSecond, Due, DueRing};
use super::part::{Cause, Verdict};
use super::second_of;
use tidegate_base::time::Nanos;

/// Reciprocal of the share of a second's requests that may be late: 1 %.
const REQUESTS_PER_LATE_ONE: u64 = 100;

/// Number of requests by the part of their latency bound that they used up, over all VMs of a
/// device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct BoundUse {
    /// Answered requests with a latency bound.
    pub(crate) answered: u32,
    /// Requests that took more than a quarter of their bound.
    pub(crate) over_quarter: u32,
    /// Requests that took more than half of their bound.
    pub(crate) over_half: u32,
    /// Requests that took more than three quarters of it, or were late by their reservation.
    pub(crate) nearly_late: u32,
}

impl BoundUse {
    /// Adds the requests of another time.
    pub(crate) fn add(&mut self, more: BoundUse) {
        self.answered = self.answered.saturating_add(more.answered);
        self.over_quarter = self.over_quarter.saturating_add(more.over_quarter);
        self.over_half = self.over_half.saturating_add(more.over_half);
        self.nearly_late = self.nearly_late.saturating_add(more.nearly_late);
    }

    /// Counts a request that is answered at `now` and was due, `bound` after its envelope allowed
    /// it, at `due`. `floor_late`: it was late by its reservation.
    fn count(&mut self, now: Nanos, due: Nanos, bound: Nanos, floor_late: bool) {
        let left = due.since(now).0;
        self.answered += 1;
        self.over_quarter += u32::from(left < bound.0 - bound.0 / 4);
        self.over_half += u32::from(left < bound.0 / 2);
        self.nearly_late += u32::from(left < bound.0 / 4 || floor_late);
    }
}

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

    /// Takes the answer to a request, and counts it in `used`. `floor_late`: it was late by its
    /// reservation. Returns by how much it is late.
    pub(super) fn answered(
        &mut self,
        now: Nanos,
        due: Due,
        floor_late: bool,
        used: &mut BoundUse,
    ) -> Nanos {
        if due != Due::NEVER {
            used.count(now, due.time(), self.bound, floor_late);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_the_part_of_their_bound_that_they_use() {
        let mut used = BoundUse::default();
        let mut judge = Latency::new(Nanos(80), Nanos::ZERO);
        for answered_after in [0, 20, 21, 40, 41, 60, 61, 80, 500] {
            let due = judge.arrived(Nanos(1000));
            judge.answered(Nanos(1000 + answered_after), due, false, &mut used);
        }
        // One that is answered before its envelope allows it used nothing of the bound.
        let due = judge.arrived(Nanos(5000));
        judge.answered(Nanos(2000), due, false, &mut used);
        // The reservation may have been missed all the same.
        let due = judge.arrived(Nanos(5000));
        judge.answered(Nanos(5001), due, true, &mut used);
        assert_eq!(
            used,
            BoundUse {
                answered: 11,
                over_quarter: 7,
                over_half: 5,
                nearly_late: 4,
            }
        );
    }

    #[test]
    fn a_request_that_is_not_judged_uses_nothing() {
        let mut used = BoundUse::default();
        let mut judge = Latency::new(Nanos(80), Nanos::ZERO);
        judge.answered(Nanos(9000), Due::NEVER, true, &mut used);
        assert_eq!(used, BoundUse::default());
    }
}
