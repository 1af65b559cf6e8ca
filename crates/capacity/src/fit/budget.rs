//! Budget: the largest promises that a device has room for.

use super::nearest::{BANDWIDTH_STEP, rounded_up};
use super::{Assumed, Device, PlannedVm, evaluate};
use tidegate_base::objective::{Objective, Rate};
use tidegate_base::time::Nanos;

/// Requests per second for which [`Budget::latency`] is computed: a database that commits one
/// transaction each 10 ms.
pub const LATENCY_PROBE_OPS: u64 = 100;
/// Size of these requests in bytes.
const LATENCY_PROBE_SIZE: u32 = 4096;

/// Largest number of steps that is tried: 1.1 PB/s, more than any device has.
const STEPS_MAX: u64 = 1 << 40;
/// Relative precision of a result: one part in this many.
const PRECISION: u64 = 256;
/// Shortest latency bound that is tried.
const LATENCY_MIN: Nanos = Nanos::from_micros(1);
/// Longest latency bound that is tried, longer than any that can be configured.
const LATENCY_MAX: Nanos = Nanos::from_secs(3600);

/// Largest promises that one more VM could get on a device. Each holds by itself: a VM that gets
/// one of them leaves less of the others. Results are on the safe side, rates by at most 0.4 % and
/// the latency by at most 1.4 %.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Requests of 4 KiB per second as a reservation or a target, which need the same time.
    pub ops: u64,
    /// Bytes per second as a reservation or a target, in requests of 128 KiB.
    pub bytes_per_s: u64,
    /// Shortest bound for the 99th percentile of the latency of [`LATENCY_PROBE_OPS`] requests of
    /// 4 KiB per second; `None`: none of up to an hour can be promised.
    pub latency: Option<Nanos>,
    /// Bytes per second that a deadline transfer may need, beside what its VM is promised.
    pub transfer: u64,
}

impl Budget {
    /// Budget of a device that can promise nothing more.
    pub const NONE: Budget = Budget {
        ops: 0,
        bytes_per_s: 0,
        latency: None,
        transfer: 0,
    };
}

/// Returns the largest promises that one more VM could get on a device. They fit beside the VMs of
/// each situation, such as those of the times at which schedules change objectives.
///
/// Properties of requests that a promise leaves open are assumed as by [`evaluate`]: random, and
/// reads or writes, whichever cost more.
///
/// # Panics
/// If the depth of the device is 0.
pub fn budget(device: &Device<'_>, situations: &[Vec<PlannedVm<'_>>], assumed: &Assumed) -> Budget {
    let fits = |new: PlannedVm<'_>| {
        situations.iter().all(|vms| {
            let mut all: Vec<PlannedVm<'_>> = vms.clone();
            all.push(new);
            evaluate(device, &all, assumed).fits()
        })
    };
    let reserves = |reservation: Rate| {
        let objective = Objective {
            reservation,
            ..Objective::default()
        };
        fits(PlannedVm::new("", &objective))
    };
    let holds = |bound: Nanos| {
        let mut objective = Objective {
            latency: Some(bound),
            ..Objective::default()
        };
        objective.expects.iops = Some(LATENCY_PROBE_OPS);
        objective.expects.size = Some(LATENCY_PROBE_SIZE);
        fits(PlannedVm::new("", &objective))
    };
    let transfers = |bytes: u64| {
        fits(PlannedVm {
            transfer: bytes,
            ..PlannedVm::new("", &Objective::default())
        })
    };
    let bandwidth = |steps: u64| Rate {
        ops: None,
        bytes_per_s: Some(steps * BANDWIDTH_STEP),
    };
    Budget {
        ops: largest_about(|ops| reserves(Rate::iops(ops))),
        bytes_per_s: BANDWIDTH_STEP * largest_about(|steps| reserves(bandwidth(steps))),
        latency: shortest_about(holds),
        transfer: BANDWIDTH_STEP * largest_about(|steps| transfers(steps * BANDWIDTH_STEP)),
    }
}

/// Returns the largest number for which `holds` is true, or one that is smaller by at most one part
/// in [`PRECISION`]; 0 if it is false for 1. It must be monotone: true up to some number and false
/// beyond.
fn largest_about(holds: impl Fn(u64) -> bool) -> u64 {
    let mut true_at = 0;
    let mut false_at = 1;
    while holds(false_at) {
        true_at = false_at;
        if true_at >= STEPS_MAX {
            return true_at;
        }
        false_at *= 2;
    }
    while false_at - true_at > (true_at / PRECISION).max(1) {
        let middle = true_at + (false_at - true_at) / 2;
        *(if holds(middle) {
            &mut true_at
        } else {
            &mut false_at
        }) = middle;
    }
    true_at
}

/// Returns the shortest time for which `holds` is true, or one that is longer by at most one part
/// in [`PRECISION`], rounded up to three digits; `None` if it is false for [`LATENCY_MAX`]. It must
/// be monotone: false up to some time and true beyond.
fn shortest_about(holds: impl Fn(Nanos) -> bool) -> Option<Nanos> {
    let mut fails = 0;
    let mut true_at = LATENCY_MIN.0;
    while !holds(Nanos(true_at)) {
        if true_at >= LATENCY_MAX.0 {
            return None;
        }
        fails = true_at;
        true_at = (true_at * 2).min(LATENCY_MAX.0);
    }
    while true_at - fails > (true_at / PRECISION).max(1) {
        let middle = fails + (true_at - fails) / 2;
        *(if holds(Nanos(middle)) {
            &mut true_at
        } else {
            &mut fails
        }) = middle;
    }
    Some(rounded_up(Nanos(true_at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fit::Queueing;
    use crate::profile::{Access, Curve, DepthPoint, Direction, Profile};
    use proptest::prelude::*;

    fn profile(reads: f64, writes: f64) -> Profile {
        let curve = |iops| Curve::new(&[(4096, iops), (128 << 10, iops)]).expect("a curve");
        let both = |iops| [curve(iops), curve(iops)];
        Profile::new(both(reads), Some(both(writes)), Vec::new(), Vec::new())
    }

    fn device(profile: &Profile) -> Device<'_> {
        Device {
            profile,
            depth: 32,
            max_io: 128 << 10,
            merge_limit: 0,
            capacity: None,
            queueing: Queueing::default(),
        }
    }

    fn reserving(per_s: u64) -> Objective {
        Objective {
            reservation: Rate::iops(per_s),
            ..Objective::default()
        }
    }

    #[test]
    fn a_device_without_vms_can_promise_its_headroom() {
        let profile = profile(8000.0, 2000.0);
        let all = budget(&device(&profile), &[Vec::new()], &Assumed::default());
        // 80 % of the costlier direction, to within 1/256.
        assert!((1594..=1600).contains(&all.ops), "{all:?}");
        let bytes = 1600 * (128 << 10);
        assert!(
            (bytes - bytes / 200..=bytes).contains(&all.bytes_per_s),
            "{all:?}"
        );
        assert!(
            (bytes - bytes / 200..=bytes).contains(&all.transfer),
            "{all:?}"
        );
    }

    #[test]
    fn the_smallest_of_all_situations_counts_and_promises_too_large_leave_nothing() {
        let profile = profile(2000.0, 2000.0);
        let (little, most, all) = (reserving(100), reserving(1500), reserving(1700));
        let with = |objective| vec![PlannedVm::new("a", objective)];
        let of = |situations: &[Vec<PlannedVm<'_>>]| {
            budget(&device(&profile), situations, &Assumed::default())
        };
        let both = of(&[with(&little), with(&most)]);
        assert!((99..=100).contains(&both.ops), "{both:?}");
        assert_eq!(both, of(&[with(&most)]));
        assert_eq!(of(&[with(&little), with(&all)]), Budget::NONE);
    }

    proptest! {
        #[test]
        fn what_is_in_the_budget_fits_and_much_more_does_not(
            (reads, writes) in (200.0..50_000.0, 200.0..50_000.0),
            promised in prop::collection::vec(0_u64..2000, 0..4),
        ) {
            let profile = profile(reads, writes);
            let device = device(&profile);
            let objectives: Vec<_> = promised.into_iter().map(reserving).collect();
            let vms: Vec<_> = objectives.iter().map(|it| PlannedVm::new("a", it)).collect();
            let assumed = Assumed::default();
            let left = budget(&device, std::slice::from_ref(&vms), &assumed);
            let fits = |objective: &Objective, transfer| {
                let mut all = vms.clone();
                all.push(PlannedVm { transfer, ..PlannedVm::new("b", objective) });
                evaluate(&device, &all, &assumed).fits()
            };
            let more = |value: u64| value + value / 100 + 1;
            prop_assert!(left.ops == 0 || fits(&reserving(left.ops), 0));
            prop_assert!(!fits(&reserving(more(left.ops)), 0));
            let none = Objective::default();
            prop_assert!(left.transfer == 0 || fits(&none, left.transfer));
            prop_assert!(!fits(&none, more(left.transfer) + BANDWIDTH_STEP));
        }
    }

    #[test]
    fn a_bound_in_the_budget_can_be_promised_and_half_of_it_cannot() {
        let curve = |iops| Curve::new(&[(4096, iops), (1 << 20, iops)]).expect("a curve");
        let points = vec![DepthPoint {
            direction: Direction::Read,
            access: Access::Random,
            size: 4096,
            depth: 1,
            iops: 1000.0,
            mean: Nanos::from_millis(1),
            p50: Nanos::from_millis(1),
            p99: Nanos::from_millis(2),
        }];
        let both = || [curve(1000.0), curve(1000.0)];
        let profile = Profile::new(both(), None, Vec::new(), points);
        let device = device(&profile);
        let other = reserving(300);
        let vms = vec![PlannedVm::new("a", &other)];
        let left = budget(&device, std::slice::from_ref(&vms), &Assumed::default());
        let bound = left.latency.expect("one fits");
        let fits = |bound: Nanos| {
            let mut objective = Objective {
                latency: Some(bound),
                ..Objective::default()
            };
            objective.expects.iops = Some(LATENCY_PROBE_OPS);
            objective.expects.size = Some(LATENCY_PROBE_SIZE);
            let all = [vms[0], PlannedVm::new("b", &objective)];
            evaluate(&device, &all, &Assumed::default()).fits()
        };
        assert!(fits(bound), "{bound}");
        assert!(!fits(Nanos(bound.0 * 99 / 100)), "{bound}");
    }
}
