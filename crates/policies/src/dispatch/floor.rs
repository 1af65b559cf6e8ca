//! Floors: the rates that a VM is served before shares by weight count. A floor is the VM's
//! reservation and, with the parameter `target_floor`, its target, so that a dispatcher does not
//! take away what a tuner holds by throttling from above.
//!
//! The floor lies a tenth above the target ([`repaid`](tidegate_base::pace::repaid)), because the
//! throttle repays late service by at most that much. Without the tenth, a VM could make up for a
//! stall only from its share. On average it does not get more than its target: the throttle lets no
//! more pass, and a VM that does not ask is not served.

use tidegate_base::objective::{Objective, OpsRate, Rate};
use tidegate_base::pace::catch_up_rate;
use tidegate_core::part::{ParamInfo, Params};

/// Parameter `target_floor`: a target is a floor, too.
pub(super) const TARGET_FLOOR: ParamInfo = ParamInfo {
    default: 0,
    ..ParamInfo::flag(
        "target_floor",
        "reserves 110 % of each target, for VMs that are throttled to it",
    )
};

/// Returns whether these parameters make targets floors.
pub(crate) fn targets_are_floors(params: &Params) -> bool {
    params.find(TARGET_FLOOR.name) == Some(1)
}

/// Rate that a VM is served before shares by weight count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Floor {
    /// Guaranteed IOPS and bytes per second.
    pub rate: Rate,
    /// `rate.ops` counts device I/Os, as the throttle to a target does, instead of guest requests.
    pub counts_ios: bool,
}

impl Floor {
    /// Returns the floor of an objective: for IOPS the target's where it names them, for bytes the
    /// larger of reservation and target. [`Objective::validate`] ensures that a reservation is no
    /// larger than the target in a unit that both name.
    pub(super) fn from_objective(objective: &Objective, target_is_floor: bool) -> Floor {
        let Objective {
            reservation,
            target,
            ..
        } = *objective;
        if !target_is_floor {
            return Floor {
                rate: reservation,
                counts_ios: false,
            };
        }
        let ops = target.ops.map(|ops| OpsRate {
            per_s: catch_up_rate(ops.per_s),
            ..ops
        });
        let rate = Rate {
            ops: ops.or(reservation.ops),
            bytes_per_s: target
                .bytes_per_s
                .map(catch_up_rate)
                .max(reservation.bytes_per_s),
        };
        Floor {
            rate,
            counts_ios: target.ops.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promised(reservation: Rate, target: Rate) -> Objective {
        let objective = Objective {
            reservation,
            target,
            ..Objective::default()
        };
        objective.validate().expect("no contradiction");
        objective
    }

    #[test]
    fn a_floor_is_the_larger_of_reservation_and_target_in_what_each_names() {
        let bytes = Rate::bytes;
        let both = |per_s, bytes_per_s| Rate {
            bytes_per_s: Some(bytes_per_s),
            ..Rate::iops(per_s)
        };
        for (reservation, target, rate, counts_ios) in [
            (bytes(10), Rate::NONE, bytes(10), false),
            (Rate::NONE, bytes(1000), bytes(1100), false),
            (bytes(1000), bytes(1000), bytes(1100), false),
            (Rate::iops(50), bytes(1000), both(50, 1100), false),
            (bytes(1000), Rate::iops(50), both(55, 1000), true),
            (Rate::iops(50), both(70, 300), both(77, 330), true),
            (Rate::NONE, Rate::NONE, Rate::NONE, false),
        ] {
            let objective = promised(reservation, target);
            let floor = Floor::from_objective(&objective, true);
            assert_eq!(floor, Floor { rate, counts_ios }, "{objective:?}");
            let plain = Floor::from_objective(&objective, false);
            assert_eq!((plain.rate, plain.counts_ios), (reservation, false));
        }
    }

    #[test]
    fn floor_keeps_the_targets_norm() {
        let ops = OpsRate {
            per_s: 1 << 30,
            norm: Some(1 << 30),
        };
        let target = Rate {
            ops: Some(ops),
            bytes_per_s: None,
        };
        let floor = Floor::from_objective(&promised(Rate::NONE, target), true);
        let found = floor.rate.ops.expect("a floor in IOPS");
        assert_eq!((found.per_s, found.norm), (1_181_116_007, Some(1 << 30)));
    }
}
