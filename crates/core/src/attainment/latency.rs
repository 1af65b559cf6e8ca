//! Verdicts on a latency bound.

use super::due_ring::{ClosedSecond, Due, DueRing};
use super::part::{Cause, Verdict};
use super::second_of;
use super::tags::Tags;
use tidegate_base::expected_workload::ExpectedWorkload;
use tidegate_base::objective::Objective;
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

/// Envelope that `expects` gives: a rate of its own, or a burst.
#[derive(Clone, Debug)]
struct Expected {
    tags: Tags,
    /// Requests beyond the first that may arrive at once.
    at_once: u32,
}

impl Expected {
    /// Returns the envelope of an objective from `now` on; `None` if it has no bound, or if its
    /// target or reservation alone is the envelope.
    fn new(objective: &Objective, now: Nanos) -> Option<Expected> {
        let ExpectedWorkload { iops, burst, .. } = objective.expects;
        let is_own = iops.is_some() || burst.is_some();
        let envelope = objective.envelope().filter(|_| is_own)?;
        Some(Expected {
            tags: Tags::new(&envelope.rate, now),
            at_once: envelope.burst - 1,
        })
    }

    /// Time before its tag at which the burst allows a request that takes `cost` at the rate.
    fn ahead(&self, cost: Nanos) -> Nanos {
        Nanos(cost.0.saturating_mul(self.at_once.into()))
    }

    /// Takes a request. Returns the time from which the envelope allows it.
    fn arrived(&mut self, since: Nanos, len: u32) -> Nanos {
        let cost = self.tags.cost(len);
        let (tag, _) = self.tags.arrived(since, cost);
        since.max(tag - self.ahead(cost))
    }

    fn answered(&mut self, now: Nanos, len: u32) {
        let cost = self.tags.cost(len);
        self.tags.answered(now, cost, self.ahead(cost));
    }
}

/// Returns the promise of a latency bound as text: equal promises are judged on.
pub(super) fn text(objective: &Objective) -> Option<String> {
    let bound = objective.latency?.0;
    let expected = Expected::new(objective, Nanos::ZERO).and(objective.envelope());
    Some(match expected {
        None => bound.to_string(),
        Some(envelope) => format!("{bound} {} {}", envelope.rate, envelope.burst),
    })
}

/// Judge of a bound on the time from arrival to answer.
#[derive(Clone, Debug)]
pub(super) struct Latency {
    bound: Nanos,
    /// Envelope that `expects` gives.
    expected: Option<Expected>,
    is_best_effort: bool,
    ring: DueRing,
    used: OwnUse,
}

impl Latency {
    /// Creates the judge of an objective's bound from `now` on; `None` if it has none.
    pub(super) fn new(objective: &Objective, now: Nanos) -> Option<Latency> {
        Some(Latency {
            bound: objective.latency?,
            expected: Expected::new(objective, now),
            is_best_effort: objective.envelope().is_none(),
            ring: DueRing::new(second_of(now)),
            used: OwnUse::default(),
        })
    }

    /// Returns whether the bound has no envelope.
    pub(super) fn is_best_effort(&self) -> bool {
        self.is_best_effort
    }

    /// Takes a request of `len` bytes that came at `since`, and that the target or reservation
    /// allows from `from` on. Returns its due time.
    pub(super) fn arrived(&mut self, since: Nanos, len: u32, mut from: Nanos) -> Due {
        if let Some(expected) = &mut self.expected {
            from = expected.arrived(since, len);
        }
        Due::counted_in(&mut self.ring, from + self.bound)
    }

    /// Takes the answer to a request of `len` bytes, and counts it in `used`. `floor_late`: it was
    /// late by its reservation. Returns by how much it is late.
    pub(super) fn answered(
        &mut self,
        now: Nanos,
        (due, len): (Due, u32),
        floor_late: bool,
        used: &mut BoundUse,
    ) -> Nanos {
        if let Some(expected) = &mut self.expected {
            expected.answered(now, len);
        }
        if due != Due::NEVER {
            let times = (now, due.time(), self.bound);
            self.used.count(used, times, floor_late);
        }
        due.answer(&mut self.ring, now)
    }

    /// Takes back a request of `len` bytes.
    pub(super) fn withdraw(&mut self, due: Due, len: u32) {
        if let Some(Expected { tags, .. }) = &mut self.expected {
            tags.withdraw(tags.cost(len));
        }
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

    /// Judge of a bound of 80 ns without an envelope.
    fn judge() -> Latency {
        let bound = Objective {
            latency: Some(Nanos(80)),
            ..Objective::default()
        };
        Latency::new(&bound, Nanos::ZERO).expect("there is a bound")
    }

    #[test]
    fn requests_are_counted_by_the_part_of_their_bound_that_they_use() {
        let mut used = BoundUse::default();
        let mut judge = judge();
        for answered_after in [0, 20, 21, 40, 41, 60, 61, 80, 500] {
            let due = judge.arrived(Nanos(1000), 1, Nanos(1000));
            judge.answered(Nanos(1000 + answered_after), (due, 1), false, &mut used);
        }
        // One that is answered before its envelope allows it used nothing of the bound.
        let due = judge.arrived(Nanos(5000), 1, Nanos(5000));
        judge.answered(Nanos(2000), (due, 1), false, &mut used);
        // The reservation may have been missed all the same.
        let due = judge.arrived(Nanos(5000), 1, Nanos(5000));
        judge.answered(Nanos(5001), (due, 1), true, &mut used);
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
            let due = judge.arrived(Nanos(1000), 1, Nanos(1000));
            judge.answered(Nanos(1000 + took), (due, 1), false, used);
        };
        let [mut busy, mut rare] = [judge(), judge()];
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
        let mut judge = judge();
        judge.answered(Nanos(9000), (Due::NEVER, 1), true, &mut used);
        assert_eq!(used, BoundUse::default());
    }
}
