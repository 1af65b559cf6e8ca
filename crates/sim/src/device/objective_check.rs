//! Compliance with objectives: reservations by the second, latencies by the request.

use tidegate_core::objective::{Objective, Rate};
use tidegate_core::time::Nanos;

/// Check of a VM's service against its objective.
///
/// A reservation holds for a VM that asks: it is judged over whole seconds in which the VM had
/// something outstanding all the time. One request less is no breach, for a second begins anywhere
/// between two of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ObjectiveCheck {
    reservation: Rate,
    latency: Option<Nanos>,
    /// Requests answered this second, and their bytes.
    ops: u64,
    bytes: u64,
    largest: u64,
    /// Requests answered this second in the units of the reservation's rate.
    units: u64,
    /// Something was outstanding since the second began, under the same reservation.
    asked: bool,
    compliance: Compliance,
}

/// Counts of how often an objective was met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compliance {
    /// Whole seconds in which the VM asked all the time.
    pub asked_s: u64,
    /// Seconds among `asked_s` in which the VM got less than its reservation.
    pub short_s: u64,
    /// Requests whose latency was judged: all but flushes that were answered, and those that wait
    /// for longer already.
    pub judged: u64,
    /// Requests among `judged` that took longer than the objective's latency.
    pub late: u64,
}

impl Compliance {
    /// Counts another span as well.
    pub fn add(&mut self, other: &Compliance) {
        self.asked_s += other.asked_s;
        self.short_s += other.short_s;
        self.judged += other.judged;
        self.late += other.late;
    }
}

impl ObjectiveCheck {
    /// Check of an objective from now on.
    pub(super) fn new(objective: &Objective) -> ObjectiveCheck {
        ObjectiveCheck {
            reservation: objective.reservation,
            latency: objective.latency,
            ..ObjectiveCheck::default()
        }
    }

    /// Counts a request that was answered, flushes aside.
    pub(super) fn answered(&mut self, len: u32, latency: Nanos) {
        self.ops += 1;
        self.bytes += u64::from(len);
        self.largest = self.largest.max(len.into());
        let norm = self.reservation.ops.and_then(|o| o.norm);
        self.units += norm.map_or(1, |norm| u64::from(len.max(norm)));
        self.compliance.judged += 1;
        if self.latency.is_some_and(|bound| latency > bound) {
            self.compliance.late += 1;
        }
    }

    /// Notes that nothing is outstanding any more: the VM does not ask.
    pub(super) fn quiet(&mut self) {
        self.asked = false;
    }

    /// Replaces the objective and returns the compliance with the one before, unless reservation
    /// and latency stay the same. The second that has begun is neither's.
    pub(super) fn replace(&mut self, objective: &Objective) -> Option<Compliance> {
        let same = self.reservation == objective.reservation && self.latency == objective.latency;
        (!same).then(|| core::mem::replace(self, ObjectiveCheck::new(objective)).compliance)
    }

    /// Compliance with the objective in force.
    pub(super) fn compliance(&self) -> Compliance {
        self.compliance
    }

    /// Ends a second; `busy`: something is outstanding.
    pub(super) fn second(&mut self, busy: bool) {
        let reservation = &self.reservation;
        if self.asked && !reservation.is_none() {
            self.compliance.asked_s += 1;
            let ops_short = reservation.ops.is_some_and(|rate| {
                let unit = u64::from(rate.norm.unwrap_or(1));
                let one = if rate.norm.is_some() {
                    self.largest.max(unit)
                } else {
                    1
                };
                self.units + one < rate.per_s * unit
            });
            let bytes_short = reservation
                .bytes_per_s
                .is_some_and(|per_s| self.bytes + self.largest < per_s);
            // A floor holds as soon as either rate is given.
            let short = match (reservation.ops, reservation.bytes_per_s) {
                (Some(_), Some(_)) => ops_short && bytes_short,
                _ => ops_short || bytes_short,
            };
            self.compliance.short_s += u64::from(short);
        }
        *self = ObjectiveCheck {
            ops: 0,
            bytes: 0,
            largest: 0,
            units: 0,
            asked: busy,
            ..*self
        };
    }

    /// Forgets all counts; `second`: one begins right now.
    pub(super) fn forget(&mut self, second: bool) {
        self.asked &= second;
        self.compliance = Compliance::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(check: &mut ObjectiveCheck, ops: u64, len: u32) {
        for _ in 0..ops {
            check.answered(len, Nanos::ZERO);
        }
        check.second(true);
    }

    #[test]
    fn a_reservation_is_short_where_more_than_one_request_is_missing() {
        let objective = Objective {
            reservation: Rate::iops(100),
            ..Objective::default()
        };
        let mut check = ObjectiveCheck::new(&objective);
        check.second(true);
        second(&mut check, 100, 4096);
        second(&mut check, 99, 4096);
        assert_eq!((check.compliance.asked_s, check.compliance.short_s), (2, 0));
        second(&mut check, 98, 4096);
        assert_eq!((check.compliance.asked_s, check.compliance.short_s), (3, 1));
    }

    #[test]
    fn a_second_in_which_nobody_asked_is_not_judged() {
        let objective = Objective {
            reservation: Rate::bytes(1_000_000),
            ..Objective::default()
        };
        let mut check = ObjectiveCheck::new(&objective);
        check.second(true);
        check.quiet();
        second(&mut check, 1, 4096);
        assert_eq!(check.compliance.asked_s, 0);
        second(&mut check, 1, 4096);
        assert_eq!((check.compliance.asked_s, check.compliance.short_s), (1, 1));
    }

    #[test]
    fn late_requests_are_counted_one_by_one() {
        let objective = Objective {
            latency: Some(Nanos(1000)),
            ..Objective::default()
        };
        let mut check = ObjectiveCheck::new(&objective);
        for ns in [999, 1000, 1001, 5000] {
            check.answered(512, Nanos(ns));
        }
        assert_eq!(check.compliance.late, 2);
    }

    #[test]
    fn another_objective_begins_with_counts_of_its_own() {
        let mut check = ObjectiveCheck::new(&Objective::default());
        check.answered(512, Nanos(7));
        assert!(check.replace(&Objective::default()).is_none());
        let bounded = Objective {
            latency: Some(Nanos(5)),
            ..Objective::default()
        };
        let before = check.replace(&bounded).map(|it| (it.judged, it.late));
        assert_eq!(before, Some((1, 0)));
        check.answered(512, Nanos(7));
        assert_eq!((check.compliance().judged, check.compliance().late), (1, 1));
    }
}
