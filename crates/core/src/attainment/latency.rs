//! Verdicts on a latency bound.

use super::due_ring::{ClosedSecond, Due, DueRing};
use super::part::{Cause, Verdict};
use super::second_of;
use tidegate_base::time::Nanos;

/// Reciprocal of the share of a second's requests that may be late: 1 %.
const REQUESTS_PER_LATE_ONE: u64 = 100;

/// Number of requests by the part of their latency bound that they used up, over all VMs of a
/// device, and of VMs by the requests of the present second.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct BoundUse {
    /// Answered requests with a latency bound.
    pub(crate) answered: u32,
    /// Requests that took more than a quarter of their bound, or were late by their reservation.
    pub(crate) over_quarter: u32,
    /// Requests that took more than half of it, or were late by their reservation.
    pub(crate) over_half: u32,
    /// Requests that took more than three quarters of it, or were late by their reservation.
    pub(crate) nearly_late: u32,
    /// VMs of which more than 1 % of this second's requests took more than a quarter. A VM with few
    /// requests is lost among those of others.
    pub(crate) vms_over_quarter: u32,
    /// VMs of which more than 1 % took more than half.
    pub(crate) vms_over_half: u32,
    /// VMs of which more than 1 % took more than three quarters.
    pub(crate) vms_nearly_late: u32,
    /// Number of this second, which tells a VM that its own counts are of one before.
    pub(crate) second: u32,
}

impl BoundUse {
    /// Adds the requests of another time.
    pub(crate) fn add(&mut self, more: BoundUse) {
        self.answered = self.answered.saturating_add(more.answered);
        self.over_quarter = self.over_quarter.saturating_add(more.over_quarter);
        self.over_half = self.over_half.saturating_add(more.over_half);
        self.nearly_late = self.nearly_late.saturating_add(more.nearly_late);
    }

    /// Returns what has been counted, and begins anew: with the requests alone, or with a second.
    pub(crate) fn take(&mut self, second_ends: bool) -> BoundUse {
        let taken = *self;
        *self = if second_ends {
            BoundUse {
                second: taken.second.wrapping_add(1),
                ..BoundUse::default()
            }
        } else {
            BoundUse {
                answered: 0,
                over_quarter: 0,
                over_half: 0,
                nearly_late: 0,
                ..taken
            }
        };
        taken
    }
}

/// Requests of one VM in one second, by the part of their bound that they used up.
#[derive(Clone, Copy, Default, Debug)]
struct OwnUse {
    second: u32,
    answered: u32,
    over_quarter: u32,
    over_half: u32,
    nearly_late: u32,
}

impl OwnUse {
    /// Counts a request that is answered at `now` and was due, `bound` after its envelope allowed
    /// it, at `due`, here and in `all`. `floor_late`: it was late by its reservation.
    fn count(
        &mut self,
        all: &mut BoundUse,
        (now, due, bound): (Nanos, Nanos, Nanos),
        floor_late: bool,
    ) {
        if self.second != all.second {
            *self = OwnUse {
                second: all.second,
                ..OwnUse::default()
            };
        }
        let left = due.since(now).0;
        let over_quarter = u32::from(left < bound.0 - bound.0 / 4 || floor_late);
        let over_half = u32::from(left < bound.0 / 2 || floor_late);
        let nearly_late = u32::from(left < bound.0 / 4 || floor_late);
        all.answered += 1;
        all.over_quarter += over_quarter;
        all.over_half += over_half;
        all.nearly_late += nearly_late;
        let before = self.are_many();
        self.answered += 1;
        self.over_quarter += over_quarter;
        self.over_half += over_half;
        self.nearly_late += nearly_late;
        let after = self.are_many();
        let vms = [
            &mut all.vms_over_quarter,
            &mut all.vms_over_half,
            &mut all.vms_nearly_late,
        ];
        for (vms, (before, after)) in vms.into_iter().zip(before.into_iter().zip(after)) {
            *vms = *vms + u32::from(after) - u32::from(before);
        }
    }

    /// Returns for a quarter of the bound, half of it and three quarters `true` if more than 1 % of
    /// the requests took longer.
    fn are_many(&self) -> [bool; 3] {
        [self.over_quarter, self.over_half, self.nearly_late]
            .map(|slow| u64::from(slow) * REQUESTS_PER_LATE_ONE > u64::from(self.answered))
    }
}

/// Judge of a bound on the time from arrival to answer.
#[derive(Clone, Debug)]
pub(super) struct Latency {
    bound: Nanos,
    ring: DueRing,
    used: OwnUse,
}

impl Latency {
    /// Creates the judge of a bound from `now` on.
    pub(super) fn new(bound: Nanos, now: Nanos) -> Latency {
        Latency {
            bound,
            ring: DueRing::new(second_of(now)),
            used: OwnUse::default(),
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
            let times = (now, due.time(), self.bound);
            self.used.count(used, times, floor_late);
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
                over_quarter: 8,
                over_half: 6,
                nearly_late: 4,
                vms_over_quarter: 1,
                vms_over_half: 1,
                vms_nearly_late: 1,
                second: 0,
            }
        );
    }

    #[test]
    fn a_vm_with_few_requests_is_not_lost_among_those_of_others() {
        let mut used = BoundUse::default();
        let answer = |judge: &mut Latency, took: u64, used: &mut BoundUse| {
            let due = judge.arrived(Nanos(1000));
            judge.answered(Nanos(1000 + took), due, false, used);
        };
        let [mut busy, mut rare] = [(); 2].map(|()| Latency::new(Nanos(80), Nanos::ZERO));
        for _ in 0..1000 {
            answer(&mut busy, 10, &mut used);
        }
        answer(&mut rare, 50, &mut used);
        assert_eq!((used.vms_over_quarter, used.vms_over_half), (1, 1));
        answer(&mut busy, 70, &mut used);
        assert_eq!(used.vms_nearly_late, 0, "one in a thousand");
        answer(&mut rare, 70, &mut used);
        assert_eq!(used.vms_nearly_late, 1);
        for _ in 0..198 {
            answer(&mut rare, 10, &mut used);
        }
        assert_eq!(used.vms_nearly_late, 0, "one in two hundred");
        used.take(false);
        assert_eq!(used.answered, 0);
        answer(&mut rare, 30, &mut used);
        assert_eq!(used.vms_over_quarter, 1, "three of a second's 201");
        used.take(true);
        assert_eq!(used.vms_over_quarter, 0);
        answer(&mut rare, 70, &mut used);
        assert_eq!(used.vms_nearly_late, 1, "a second of its own");
    }

    #[test]
    fn a_request_that_is_not_judged_uses_nothing() {
        let mut used = BoundUse::default();
        let mut judge = Latency::new(Nanos(80), Nanos::ZERO);
        judge.answered(Nanos(9000), Due::NEVER, true, &mut used);
        assert_eq!(used, BoundUse::default());
    }
}
