//! Fit of promises to a device: properties that hold for any profile and any VMs.

use proptest::prelude::*;
use tidegate_core::expected_workload::ExpectedWorkload;
use tidegate_core::fit::{
    Assumed, Device, Fit, PlannedVm, Queueing, Streams, evaluate, nearest, nearest_bounds,
    nearest_of_all,
};
use tidegate_core::objective::{Limit, Objective, OpsRate, Rate};
use tidegate_core::profile::{Access, Curve, DepthPoint, Direction, Profile};
use tidegate_core::time::Nanos;

const KINDS: [(Direction, Access); 4] = [
    (Direction::Read, Access::Sequential),
    (Direction::Read, Access::Random),
    (Direction::Write, Access::Sequential),
    (Direction::Write, Access::Random),
];

/// Any valid profile, physically plausible or not: a mix may cost more or less than its parts.
fn profiles() -> impl Strategy<Value = Profile> {
    let curve = || {
        prop::collection::btree_map(
            prop::sample::select(vec![4096u32, 16384, 131072, 1 << 20]),
            50.0..20_000.0f64,
            1..4,
        )
        .prop_map(|points| Curve::new(&points.into_iter().collect::<Vec<_>>()).expect("a curve"))
    };
    let mixes = prop::collection::vec((1u32..1000, curve()), 0..4);
    let latency = prop::collection::vec(
        (0usize..4, 1u32..33, 50.0..20_000.0f64, 50u64..20_000),
        0..8,
    );
    let writes = prop::option::of([curve(), curve()]);
    ([curve(), curve()], writes, mixes, latency).prop_map(|(reads, writes, mixes, latency)| {
        let points = latency
            .into_iter()
            .map(|(kind, depth, iops, us)| DepthPoint {
                direction: KINDS[kind].0,
                access: KINDS[kind].1,
                size: 4096,
                depth,
                iops,
                mean: Nanos::from_micros(us / 2),
                p50: Nanos::from_micros(us / 2),
                p99: Nanos::from_micros(us),
            });
        Profile::new(reads, writes, mixes, points.collect())
    })
}

fn rates() -> impl Strategy<Value = Rate> {
    let norm = prop::option::of(prop::sample::select(vec![512u32, 4096, 16384, 1 << 20]));
    let ops = prop::option::of((1u64..2000, norm));
    let bytes = prop::option::of(1u64..100_000_000);
    (ops, bytes).prop_map(|(ops, bytes_per_s)| Rate {
        ops: ops.map(|(per_s, norm)| OpsRate { per_s, norm }),
        bytes_per_s,
    })
}

fn objectives() -> impl Strategy<Value = Objective> {
    let part = || prop::option::of(0u32..=1000);
    let expects = (part(), part(), prop::option::of(1u32..2_000_000));
    let latency = prop::option::of((1u64..500_000).prop_map(Nanos::from_micros));
    (rates(), rates(), rates(), latency, expects).prop_map(
        |(reservation, target, limit, latency, (reads, sequential, size))| Objective {
            reservation,
            target,
            limit: Limit::of_all(limit),
            latency,
            expects: ExpectedWorkload {
                reads,
                sequential,
                size,
                ..ExpectedWorkload::NOTHING
            },
            ..Objective::default()
        },
    )
}

fn assumptions() -> impl Strategy<Value = (Assumed, u32)> {
    (1u32..=1000, prop::bool::ANY, 1u32..64).prop_map(|(headroom, kept, depth)| {
        let streams = if kept {
            Streams::Kept
        } else {
            Streams::Blended
        };
        (Assumed { headroom, streams }, depth)
    })
}

fn device_with(profile: &Profile, depth: u32) -> Device<'_> {
    Device {
        profile,
        depth,
        max_io: 1 << 20,
        merge_limit: 128 << 10,
        capacity: None,
        queueing: Queueing::default(),
    }
}

fn planned_vms(objectives: &[Objective]) -> Vec<PlannedVm<'_>> {
    let vm = |objective| PlannedVm::new("vm", objective);
    objectives.iter().map(vm).collect()
}

/// Asserts that `more`, which has the VMs of `less` and others, fits no better than `less`.
fn no_better(less: &Fit, more: &Fit) -> Result<(), TestCaseError> {
    prop_assert!(more.time_ps >= less.time_ps, "{less:?}\n{more:?}");
    for (before, after) in less.needs.iter().zip(&more.needs) {
        let (Some(before), Some(after)) = (before.bound, after.bound) else {
            continue;
        };
        prop_assert!(after.takes >= before.takes, "{less:?}\n{more:?}");
    }
    prop_assert!(less.fits() || !more.fits());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn adding_a_vm_never_improves_the_fit(
        profile in profiles(),
        objectives in prop::collection::vec(objectives(), 2..7),
        (assumed, depth) in assumptions(),
    ) {
        let device = device_with(&profile, depth);
        let all = planned_vms(&objectives);
        let less = evaluate(&device, &all[..all.len() - 1], &assumed);
        no_better(&less, &evaluate(&device, &all, &assumed))?;
    }

    #[test]
    fn reserving_more_never_improves_the_fit(
        profile in profiles(),
        mut objectives in prop::collection::vec(objectives(), 1..7),
        (assumed, depth) in assumptions(),
        more in 1u64..1000,
    ) {
        // The size that is assumed follows from the rate, and another size is another load.
        objectives[0].expects.size.get_or_insert(8192);
        let device = device_with(&profile, depth);
        let less = evaluate(&device, &planned_vms(&objectives), &assumed);
        let Objective { reservation, target, .. } = &mut objectives[0];
        for rate in [reservation, target] {
            if let Some(ops) = &mut rate.ops {
                ops.per_s += more;
            }
            rate.bytes_per_s = rate.bytes_per_s.map(|bytes| bytes + more * 4096);
        }
        no_better(&less, &evaluate(&device, &planned_vms(&objectives), &assumed))?;
    }

    #[test]
    fn the_order_of_vms_does_not_matter(
        profile in profiles(),
        (objectives, order) in prop::collection::vec(objectives(), 1..7).prop_flat_map(|all| {
            let order: Vec<usize> = (0..all.len()).collect();
            (Just(all), Just(order).prop_shuffle())
        }),
        (assumed, depth) in assumptions(),
    ) {
        let device = device_with(&profile, depth);
        let fit = evaluate(&device, &planned_vms(&objectives), &assumed);
        let shuffled: Vec<Objective> = order.iter().map(|&at| objectives[at]).collect();
        let again = evaluate(&device, &planned_vms(&shuffled), &assumed);
        prop_assert_eq!(fit.time_ps, again.time_ps);
        prop_assert_eq!(fit.fits(), again.fits());
        for (place, &at) in order.iter().enumerate() {
            prop_assert_eq!(fit.needs[at].bound, again.needs[place].bound);
        }
    }

    #[test]
    fn the_nearest_promise_fits_and_one_step_more_does_not(
        profile in profiles(),
        objectives in prop::collection::vec(objectives(), 1..6),
        (assumed, depth) in assumptions(),
        which in 0usize..6,
    ) {
        let which = which % objectives.len();
        let device = device_with(&profile, depth);
        let all = planned_vms(&objectives);
        let with = |objective: &Objective| {
            let mut all = all.clone();
            all[which].objective = objective;
            evaluate(&device, &all, &assumed)
        };
        let asked = objectives[which];
        let Some(near) = nearest(&device, &all, which, &assumed) else {
            let nothing = Objective {
                reservation: Rate::NONE,
                target: Rate::NONE,
                latency: None,
                ..asked
            };
            prop_assert!(with(&asked).fits() || !with(&nothing).fits());
            return Ok(());
        };
        prop_assert!(with(&near).fits());
        prop_assert!(near != asked);
        let mut more = near;
        // One step more of what was lowered: 1 IOPS, or 1 kB/s of a bandwidth. A figure that was
        // lowered to nothing is missing, and returns with its first step.
        let step = |near: &mut Rate, asked: &Rate| {
            near.ops = asked.ops.map(|asked| {
                let per_s = near.ops.map_or(0, |near| near.per_s) + 1;
                OpsRate { per_s, ..asked }
            });
            near.bytes_per_s = asked.bytes_per_s.map(|_| near.bytes_per_s.unwrap_or(0) + 1000);
        };
        if (near.reservation, near.target) != (asked.reservation, asked.target) {
            let one = |rate: &Rate| rate.ops.is_none() || rate.bytes_per_s.is_none();
            // Both figures of a rate, or both floors, are lowered in proportion, in steps of the
            // larger one: with two of them, a step of one alone may still fit.
            if one(&asked.reservation) && asked.target.is_none() {
                step(&mut more.reservation, &asked.reservation);
                more.latency = None;
                prop_assert!(!with(&more).fits(), "{near:?} {more:?}");
            }
        }
        if let (Some(latency), true) = (near.latency, near.latency != asked.latency) {
            // Three digits: a hundredth less is a step less.
            let shorter = Objective { latency: Some(Nanos(latency.0 - latency.0 / 100)), ..near };
            prop_assert!(!with(&shorter).fits(), "{near:?}");
        }
    }

    #[test]
    fn objectives_lowered_alike_fit_the_devices_time(
        profile in profiles(),
        objectives in prop::collection::vec(objectives(), 1..6),
        (assumed, depth) in assumptions(),
    ) {
        let device = device_with(&profile, depth);
        let fit = evaluate(&device, &planned_vms(&objectives), &assumed);
        match nearest_of_all(&device, &planned_vms(&objectives), &assumed) {
            None => prop_assert!(fit.time_ps <= fit.budget_ps),
            Some((part, lowered)) => {
                prop_assert!(fit.time_ps > fit.budget_ps && part < 1000);
                let after = evaluate(&device, &planned_vms(&lowered), &assumed);
                prop_assert!(after.time_ps <= after.budget_ps);
            }
        }
    }

    #[test]
    fn the_shortest_bounds_lengthened_alike_fit(
        profile in profiles(),
        objectives in prop::collection::vec(objectives(), 1..6),
        (assumed, depth) in assumptions(),
    ) {
        let device = device_with(&profile, depth);
        let fit = evaluate(&device, &planned_vms(&objectives), &assumed);
        match nearest_bounds(&device, &planned_vms(&objectives), &assumed) {
            None => {
                // Longer by the largest factor that is tried; other promises may be in the way.
                let mut longest = objectives.clone();
                for objective in &mut longest {
                    let bound = objective.latency.as_mut();
                    bound.into_iter().for_each(|it| it.0 = it.0.saturating_mul(1_000_000));
                }
                let at_longest = evaluate(&device, &planned_vms(&longest), &assumed);
                prop_assert!(fit.fits() || !at_longest.fits());
            }
            Some((percent, longer)) => {
                prop_assert!(!fit.fits() && percent >= 100);
                prop_assert!(evaluate(&device, &planned_vms(&longer), &assumed).fits());
                let bounds = objectives.iter().zip(&longer);
                for (asked, longer) in bounds.filter_map(|(a, b)| a.latency.zip(b.latency)) {
                    let least = asked.0 as u128 * u128::from(percent) / 100;
                    prop_assert!(u128::from(longer.0) >= least);
                }
            }
        }
    }
}

mod kept_by_deadlines;
