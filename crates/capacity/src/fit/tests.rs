//! Tests of device time, latency bounds, queue depth and nearest objectives. "The paper" is vFair
//! (Lu et al., SoCC 2015).

mod by_direction;
mod near_limit;

use super::*;
use crate::profile::{Access, BesideWrites, Curve, DepthPoint, Direction};
use tidegate_base::expected_workload::ExpectedWorkload;
use tidegate_base::objective::{Limit, OpsRate, Rate};

fn flat(iops: f64) -> Curve {
    Curve::new(&[(4096, iops), (1 << 20, iops)]).expect("a curve")
}

/// Figures 4 and 7 of the paper: 8000 IOPS if sequential, 1200 if random.
fn paper() -> Profile {
    let reads = [flat(8000.0), flat(1200.0)];
    Profile::new(reads.clone(), Some(reads), Vec::new(), Vec::new())
}

fn device_with(profile: &Profile) -> Device<'_> {
    Device {
        profile,
        depth: 32,
        max_io: 1 << 20,
        merge_limit: 0,
        capacity: None,
        queueing: Queueing::default(),
    }
}

fn iops(per_s: u64, sequential: u32) -> Objective {
    Objective {
        reservation: Rate::iops(per_s),
        expects: ExpectedWorkload {
            reads: Some(1000),
            sequential: Some(sequential),
            size: Some(4096),
            ..ExpectedWorkload::NOTHING
        },
        ..Objective::default()
    }
}

fn vms(objectives: &[Objective]) -> Vec<PlannedVm<'_>> {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let named = objectives.iter().zip(names);
    named
        .map(|(objective, name)| PlannedVm::new(name, objective))
        .collect()
}

fn fit(profile: &Profile, objectives: &[Objective], streams: Streams) -> Fit {
    let assumed = Assumed {
        streams,
        ..Assumed::default()
    };
    evaluate(&device_with(profile), &vms(objectives), &assumed)
}

#[test]
fn the_papers_two_vms_need_the_whole_device_until_their_streams_meet() {
    // Figure 4: half of 8000 and half of 1200 are a whole device while the stream stays sequential.
    let both = [iops(4000, 1000), iops(600, 0)];
    let kept = fit(&paper(), &both, Streams::Kept);
    assert_eq!(kept.needs[0].time_ps, SECOND_PS / 2);
    // 600 times 833,333,333 ps, as the profile rounds 1/1200 s.
    assert_eq!(kept.needs[1].time_ps, 499_999_999_800);
    assert_eq!(kept.short_of(), Some(Resource::DeviceTime));
    // Figure 7: blended, the stream's 4000 requests need 4000 / 1200 devices.
    let blended = fit(&paper(), &both, Streams::Blended);
    assert_eq!(blended.needs[0].time_ps, 4000 * 833_333_333);
    // A VM that is alone keeps its stream sequential.
    let alone = fit(&paper(), &both[..1], Streams::Blended);
    assert_eq!((alone.time_ps, alone.fits()), (SECOND_PS / 2, true));
}

#[test]
fn rates_are_requests_of_the_expected_size() {
    let profile = Profile::new([flat(1000.0), flat(1000.0)], None, Vec::new(), Vec::new());
    let requests_and_size = |objective: Objective| {
        let fit = fit(&profile, &[objective], Streams::Blended);
        (fit.needs[0].load.requests(), fit.needs[0].load.size)
    };
    let reserve = |reservation| Objective {
        reservation,
        ..Objective::default()
    };
    let ops = |per_s, norm| Some(OpsRate { per_s, norm });
    let rate = |ops, bytes_per_s| Rate { ops, bytes_per_s };
    assert_eq!(
        requests_and_size(reserve(Rate::iops(100))),
        (100_000_000, 4096)
    );
    let normal = rate(ops(100, Some(16384)), None);
    assert_eq!(requests_and_size(reserve(normal)), (100_000_000, 16384));
    assert_eq!(
        requests_and_size(reserve(Rate::bytes(1 << 20))),
        (8_000_000, 128 << 10)
    );
    // Both figures of a rate are given: they meet at 10 kB.
    assert_eq!(
        requests_and_size(reserve(rate(ops(100, None), Some(1_000_000)))),
        (100_000_000, 10_000)
    );
    // Requests of four times the size that counts as one: a quarter of the requests.
    let expects = ExpectedWorkload {
        size: Some(65536),
        ..ExpectedWorkload::NOTHING
    };
    let longer = Objective {
        expects,
        ..reserve(normal)
    };
    assert_eq!(requests_and_size(longer), (25_000_000, 65536));
    // A target counts like a reservation, and no VM counts for more than its limit.
    let target = Objective {
        target: Rate::iops(300),
        ..reserve(Rate::iops(100))
    };
    assert_eq!(requests_and_size(target).0, 300_000_000);
    let limited = Objective {
        limit: Limit::of_all(Rate::bytes(16384 * 50)),
        ..reserve(normal)
    };
    assert_eq!(requests_and_size(limited).0, 50_000_000);
    // Without `expects.reads` a limit of reads leaves all requests to be writes.
    let few_reads = Objective {
        limit: Limit {
            read: Rate::iops(10),
            ..Limit::NONE
        },
        ..reserve(normal)
    };
    assert_eq!(requests_and_size(few_reads).0, 100_000_000);
}

fn mixes() -> Profile {
    // In a mix of halves requests take twice as long as in reads or writes alone.
    Profile::new(
        [flat(1000.0), flat(1000.0)],
        Some([flat(1000.0), flat(1000.0)]),
        vec![(500, flat(500.0))],
        Vec::new(),
    )
}

#[test]
fn reads_and_writes_that_meet_are_dearer_by_their_mix() {
    let reserve = |per_s, reads| Objective {
        expects: ExpectedWorkload {
            reads: Some(reads),
            ..ExpectedWorkload::NOTHING
        },
        ..iops(per_s, 0)
    };
    let halves = fit(
        &mixes(),
        &[reserve(200, 1000), reserve(200, 0)],
        Streams::Blended,
    );
    assert_eq!(halves.time_ps, SECOND_PS / 10 * 8);
    assert!(halves.fits());
    // Few writes and many reads make no mix of halves. 404 requests take 40.4 % unmixed, and would
    // take 80.8 % in halves; with 1 % of writes the costs rise by about a quarter at most.
    let few = fit(
        &mixes(),
        &[reserve(400, 1000), reserve(4, 0)],
        Streams::Blended,
    );
    assert!(few.time_ps > SECOND_PS / 10 * 4, "{few:?}");
    assert!(few.time_ps < SECOND_PS / 100 * 51, "{few:?}");
}

#[test]
fn a_shallow_queue_does_less_than_the_profile_says() {
    let point = |depth, iops| DepthPoint {
        direction: Direction::Read,
        access: Access::Random,
        size: 4096,
        depth,
        iops,
        mean: Nanos::from_millis(5),
        p50: Nanos::from_millis(5),
        p99: Nanos::from_millis(10),
    };
    let curves = [flat(8000.0), flat(1200.0)];
    let profile = Profile::new(
        curves,
        None,
        Vec::new(),
        vec![point(1, 400.0), point(32, 1200.0)],
    );
    let vms = [iops(400, 0)];
    let at = |depth| {
        let device = Device {
            depth,
            ..device_with(&profile)
        };
        evaluate(&device, &self::vms(&vms), &Assumed::default()).time_ps
    };
    let third = SECOND_PS / 3;
    // Factors of cost are rounded up to millionths, twice: at most 2/1,000,000 of a second more.
    let near = |time: u64, to: u64| (to - 1000..to + SECOND_PS / 500_000).contains(&time);
    assert!(near(at(32), third) && near(at(64), third));
    // Between measured depths the shallower one counts.
    assert!(near(at(1), SECOND_PS) && near(at(31), SECOND_PS));
}

/// Disk with 4 ms per read, 8 ms at the 99th percentile; at depth 2 twice as long.
fn disk() -> Profile {
    let point = |depth: u32| DepthPoint {
        direction: Direction::Read,
        access: Access::Random,
        size: 4096,
        depth,
        iops: 250.0,
        mean: Nanos::from_millis(4 * u64::from(depth)),
        p50: Nanos::from_millis(4 * u64::from(depth)),
        p99: Nanos::from_millis(8 * u64::from(depth)),
    };
    let curves = [flat(250.0), flat(250.0)];
    Profile::new(curves, None, Vec::new(), vec![point(1), point(2)])
}

fn within(ms: u64, per_s: u64) -> Objective {
    Objective {
        latency: Some(Nanos::from_millis(ms)),
        ..iops(per_s, 0)
    }
}

/// Worst-case latency of each VM in milliseconds, with the whole device promised.
fn worst_case_ms(profile: &Profile, depth: u32, objectives: &[Objective]) -> Vec<Option<f64>> {
    let device = Device {
        depth,
        ..device_with(profile)
    };
    let all = Assumed {
        headroom: 1000,
        ..Assumed::default()
    };
    let fit = evaluate(&device, &vms(objectives), &all);
    let bounds = fit.needs.iter().map(|need| need.bound);
    bounds
        .map(|bound| Some(bound?.takes?.as_millis_f64()))
        .collect()
}

#[test]
fn a_bound_waits_for_the_device_its_turn_and_its_service() {
    // Depth 1: 8 ms until the device is free, and 8 ms of its own.
    assert_eq!(worst_case_ms(&disk(), 1, &[within(30, 25)]), [Some(16.0)]);
    // Depth 2: one of two slots is free within 8 ms as well; then the request is one of two.
    assert_eq!(worst_case_ms(&disk(), 2, &[within(30, 25)]), [Some(24.0)]);
    // A request of another VM with the same bound goes first: 4 ms more.
    let two = [within(30, 25), within(30, 25)];
    assert_eq!(worst_case_ms(&disk(), 1, &two), [Some(20.0); 2]);
    // A request with a longer bound waits for 8 ms in flight, 8 ms of its own and 4 ms of the
    // other's request, and for the other's floor (25 x 4 ms = a tenth) over the 20 ms by which its
    // bound is longer: 2 ms.
    let apart = [within(30, 25), within(50, 20)];
    assert_eq!(worst_case_ms(&disk(), 1, &apart), [Some(16.0), Some(22.0)]);
    // At 25 IOPS the floor is due every 40 ms, before the bound of 50 ms, and takes a tenth too: 3
    // ms of the first 30, so 16 + 3, and for the second VM 20 ms and a tenth of 30.
    let floor_first = [within(30, 25), within(50, 25)];
    assert_eq!(
        worst_case_ms(&disk(), 1, &floor_first),
        [Some(19.0), Some(23.0)]
    );
    // Floors of VMs without a bound count as far as they are due by then.
    let floor = [within(30, 25), iops(50, 0)];
    assert_eq!(worst_case_ms(&disk(), 1, &floor), [Some(22.0), None]);
    // A long request of a VM without promises may be in flight.
    let silent = Objective::default();
    let mut dear = disk();
    assert_eq!(
        worst_case_ms(&dear, 1, &[within(30, 25), silent]),
        [Some(16.0), None]
    );
    let slow = Curve::new(&[(4096, 250.0), (1 << 20, 50.0)]).expect("a curve");
    dear = Profile::new(
        [slow.clone(), slow],
        None,
        Vec::new(),
        dear.latency().to_vec(),
    );
    assert_eq!(
        worst_case_ms(&dear, 1, &[within(30, 25), silent]),
        [Some(48.0), None]
    );
}

#[test]
fn bounds_without_measured_latencies_are_not_known() {
    let fit = fit(&paper(), &[within(1, 10)], Streams::Blended);
    let bound = fit.needs[0].bound.expect("it has one");
    assert_eq!((bound.takes, bound.holds()), (None, true));
}

#[test]
fn disks_may_be_too_large_together() {
    let profile = paper();
    let device = Device {
        capacity: Some(100),
        ..device_with(&profile)
    };
    let objectives = [iops(1, 0), iops(1, 0)];
    let mut all = vms(&objectives);
    all[0].disk_bytes = 60;
    all[1].disk_bytes = 40;
    let fit = evaluate(&device, &all, &Assumed::default());
    assert_eq!(
        (fit.short_of(), fit.tightest()),
        (None, (Resource::Capacity, 1000))
    );
    all[1].disk_bytes = 41;
    let fit = evaluate(&device, &all, &Assumed::default());
    assert_eq!(fit.short_of(), Some(Resource::Capacity));
}

#[test]
fn refusal_names_the_short_resource_and_the_nearest_objective() {
    let profile = paper();
    let objectives = [iops(600, 0), iops(480, 0)];
    let all = vms(&objectives);
    let (why, instead) =
        refusal(&device_with(&profile), &all, 1, &Assumed::default()).expect("it does not fit");
    assert_eq!(
        why,
        "the promises need 90 % of the device's time, of which at most 80 % may be promised; VM b \
         alone needs 40 %"
    );
    assert_eq!(instead, "the nearest that fits: reservation = \"360 IOPS\"");
    let late = [within(10, 25)];
    let disk = disk();
    let device = Device {
        depth: 1,
        ..device_with(&disk)
    };
    let (why, instead) =
        refusal(&device, &vms(&late), 0, &Assumed::default()).expect("it does not fit");
    assert_eq!(
        why,
        "the latency bound of 10 ms of VM a cannot be met: what is due within it takes up to \
         20 ms (8 ms alone on the device)"
    );
    assert_eq!(instead, "the nearest that fits: latency = \"20 ms\"");
}

#[test]
fn promises_beyond_the_device_may_shrink_but_not_grow() {
    let reserve = |ops: [u64; 2]| fit(&paper(), &ops.map(|per_s| iops(per_s, 0)), Streams::Blended);
    let before = reserve([1000, 500]);
    assert!(!before.fits());
    assert!(!before.is_worse_than(&before));
    assert!(!reserve([1000, 400]).is_worse_than(&before));
    assert!(reserve([1000, 501]).is_worse_than(&before));
    // A load that fits is never worse.
    assert!(!reserve([500, 460]).is_worse_than(&reserve([1, 1])));
    let bound = |ms| {
        let bounds = [within(ms, 25), Objective::default()];
        evaluate(&device_with(&disk()), &vms(&bounds), &Assumed::default())
    };
    assert!(bound(9).is_worse_than(&bound(10)));
    assert!(!bound(11).is_worse_than(&bound(10)));
    let alone = evaluate(
        &device_with(&disk()),
        &vms(&[within(10, 25)]),
        &Assumed::default(),
    );
    assert!(!bound(10).is_worse_than(&alone));
}

/// Device with 1 ms of device time per request, for any size and depth.
fn serial_device() -> Profile {
    let point = |depth: u32| DepthPoint {
        direction: Direction::Read,
        access: Access::Random,
        size: 4096,
        depth,
        iops: 1000.0,
        mean: Nanos::from_millis(depth.into()),
        p50: Nanos::from_millis(depth.into()),
        p99: Nanos::from_millis(depth.into()),
    };
    let curves = [flat(1000.0), flat(1000.0)];
    Profile::new(
        curves,
        None,
        Vec::new(),
        [1, 2, 4, 8, 16, 32].map(point).into(),
    )
}

fn with_adaptive_queue(profile: &Profile) -> Device<'_> {
    Device {
        queueing: Queueing {
            least_depth: Some(1),
            part: Some(64 << 10),
            background_part: Some(Nanos::from_millis(1)),
        },
        ..device_with(profile)
    }
}

#[test]
fn the_depth_bound_is_the_deepest_queue_that_keeps_the_tightest_bound() {
    let profile = serial_device();
    let of = |ms| {
        let objectives = [within(ms, 25), iops(100, 0)];
        evaluate(
            &with_adaptive_queue(&profile),
            &vms(&objectives),
            &Assumed::default(),
        )
    };
    // 32 in flight and one of its own are 33 ms; floors take 100 ms of every second.
    assert_eq!((of(100).depth_bound, of(100).fits()), (32, true));
    // 0.8 x 20 ms hold 2 ms of floors, 1 ms of its own and 13 in flight.
    let fit = of(20);
    assert_eq!((fit.depth_bound, fit.fits()), (13, true));
    assert_eq!(fit.blocking, Nanos::from_millis(13));
    assert_eq!(
        fit.needs[0].bound.and_then(|b| b.takes),
        Some(Nanos::from_millis(20))
    );
    // Not even depth 1 holds it: 1 ms in flight, 1 ms of its own and 0.2 ms of floors. So the depth
    // is not lowered.
    let fit = of(2);
    assert_eq!(
        (fit.depth_bound, fit.short_of()),
        (32, Some(Resource::Latency))
    );
    assert_eq!(
        fit.needs[0].bound.and_then(|b| b.takes),
        Some(Nanos(2_750_000))
    );
    // The bound that can hold still lowers the depth beside it.
    let objectives = [within(20, 25), within(2, 25)];
    let fit = evaluate(
        &with_adaptive_queue(&profile),
        &vms(&objectives),
        &Assumed::default(),
    );
    assert_eq!(fit.short_of(), Some(Resource::Latency));
    let alone = evaluate(
        &with_adaptive_queue(&profile),
        &vms(&objectives[..1]),
        &Assumed::default(),
    );
    // Lowered, but not to depth 1, at which only the dropped bound would nearly hold.
    assert!(
        alone.fits() && (2..32).contains(&fit.depth_bound),
        "{fit:?}"
    );
    assert!(fit.depth_bound <= alone.depth_bound, "{fit:?}, {alone:?}");
    // A depth that is not adapted keeps only bounds that hold with 32 in flight.
    let fixed = evaluate(
        &device_with(&profile),
        &vms(&[within(20, 25)]),
        &Assumed::default(),
    );
    assert_eq!((fixed.depth_bound, fixed.fits()), (32, false));
}

#[test]
fn a_depth_below_which_floors_are_short_is_not_gone_below() {
    let mut points = serial_device().latency().to_vec();
    // At depth 1 the device delivers a tenth of its saturated rate, at depth 2 half.
    (points[0].iops, points[1].iops) = (100.0, 500.0);
    let curves = [flat(1000.0), flat(1000.0)];
    let profile = Profile::new(curves, None, Vec::new(), points);
    let of = |ms, per_s| {
        let objectives = [within(ms, 1), iops(per_s, 0)];
        evaluate(
            &with_adaptive_queue(&profile),
            &vms(&objectives),
            &Assumed::default(),
        )
    };
    assert_eq!((of(12, 300).depth_bound, of(12, 300).fits()), (5, true));
    // Depth 2 would keep the bound but not the floor; depth 4 misses the bound.
    let fit = of(9, 500);
    assert_eq!(
        (fit.depth_bound, fit.short_of()),
        (32, Some(Resource::Latency))
    );
}

#[test]
fn background_is_one_short_part_where_the_policy_cuts_it() {
    let profile = serial_device();
    let objectives = [within(100, 25), Objective::default()];
    let mut all = vms(&objectives);
    all[1].background = true;
    let fit = evaluate(&with_adaptive_queue(&profile), &all, &Assumed::default());
    let millisecond = SECOND_PS / 1000;
    assert_eq!(fit.blocked_by.background, millisecond);
    // The part takes the place of one of 32 in flight, and no longer than that one.
    assert_eq!(fit.blocked_by.background_excess(), 0);
    assert_eq!(fit.blocking, Nanos::from_millis(32));
    // One part per 500 ms counts, beside 25 requests of 1 ms.
    assert_eq!(fit.needs[1].time_ps, 2 * millisecond);
    assert_eq!(fit.time_ps, 27 * millisecond);
}

#[test]
fn reads_that_the_device_holds_up_behind_writes_count() {
    let beside = |depth, ms| BesideWrites {
        access: Access::Random,
        size: 65536,
        depth,
        p50: Nanos::from_millis(1),
        p99: Nanos::from_millis(ms),
    };
    let profile = serial_device().with_beside_writes(vec![beside(1, 40), beside(8, 90)]);
    let writer = |reads| Objective {
        expects: ExpectedWorkload {
            reads: Some(reads),
            size: Some(65536),
            ..ExpectedWorkload::NOTHING
        },
        ..Objective::default()
    };
    let blocking = |reads, depth| {
        let objectives = [within(500, 25), writer(reads)];
        let device = Device {
            depth,
            ..device_with(&profile)
        };
        evaluate(&device, &vms(&objectives), &Assumed::default()).blocked_by
    };
    // 40 ms without the read's own latency and without the I/O in flight.
    let millisecond = SECOND_PS / 1000;
    assert_eq!(blocking(0, 1).held_up, 38 * millisecond);
    assert_eq!(blocking(0, 4).held_up, 85 * millisecond);
    // No VM writes.
    assert_eq!(blocking(1000, 1).held_up, 0);
}

#[test]
fn transfers_need_their_rate_and_floors_are_part_of_it() {
    let profile = Profile::new([flat(1000.0), flat(1000.0)], None, Vec::new(), Vec::new());
    let of = |reservation, transfer| {
        let objective = Objective {
            reservation,
            ..Objective::default()
        };
        let vm = PlannedVm {
            transfer,
            ..PlannedVm::new("a", &objective)
        };
        evaluate(&device_with(&profile), &[vm], &Assumed::default())
    };
    // 500 requests of 128 KiB per second.
    let half = SECOND_PS / 2;
    assert_eq!(of(Rate::NONE, 500 * (128 << 10)).time_ps, half);
    assert_eq!(
        of(Rate::bytes(200 * (128 << 10)), 500 * (128 << 10)).time_ps,
        half
    );
    assert_eq!(
        of(Rate::bytes(500 * (128 << 10)), 200 * (128 << 10)).time_ps,
        half
    );
    assert!(!of(Rate::NONE, 900 * (128 << 10)).fits());
}

#[test]
fn a_bound_holds_inside_its_envelope() {
    let with = |iops: Option<u64>, burst| Objective {
        latency: Some(Nanos::from_millis(100)),
        expects: ExpectedWorkload {
            reads: Some(1000),
            size: Some(4096),
            iops,
            burst,
            ..ExpectedWorkload::NOTHING
        },
        ..Objective::default()
    };
    let profile = serial_device();
    let of = |objective: Objective| {
        let device = Device {
            depth: 1,
            ..device_with(&profile)
        };
        let assumed = Assumed {
            headroom: 1000,
            ..Assumed::default()
        };
        evaluate(&device, &vms(&[objective]), &assumed).needs[0]
    };
    let takes = |need: Need| need.bound.and_then(|bound| bound.takes);
    // 1 ms in flight and a burst of 8; 200 requests per second need a fifth of the device.
    let need = of(with(Some(200), Some(8)));
    assert_eq!(takes(need), Some(Nanos::from_millis(9)));
    assert_eq!(need.time_ps, SECOND_PS / 5);
    assert!(!need.bound.expect("it has one").best_effort);
    // Without a rate nothing is promised, and one request at a time is assumed.
    let need = of(with(None, None));
    assert_eq!(
        (takes(need), need.time_ps),
        (Some(Nanos::from_millis(2)), 0)
    );
    assert!(need.bound.expect("it has one").best_effort);
}

/// The figures are those of a case that the property tests of `policies/tests/suite/fit.rs` found.
#[test]
fn a_floor_that_fits_with_no_assumed_size_is_left_out() {
    // Writes of 128 KiB are measured as far costlier than those of 1 MiB.
    let one = |size, iops| Curve::new(&[(size, iops)]).expect("a curve");
    let falling = Curve::new(&[(4096, 17_409.0), (128 << 10, 278.0), (1 << 20, 7885.0)]);
    let reads = [one(16 << 10, 15_015.0), one(1 << 20, 9425.0)];
    let writes = [falling.expect("a curve"), one(1 << 20, 3910.0)];
    let latency = DepthPoint {
        direction: Direction::Write,
        access: Access::Sequential,
        size: 4096,
        depth: 2,
        iops: 2759.0,
        mean: Nanos(25_000),
        p50: Nanos(25_000),
        p99: Nanos(50_000),
    };
    let profile = Profile::new(reads, Some(writes), Vec::new(), vec![latency]);
    let objectives = [
        Objective {
            latency: Some(Nanos(271_829_000)),
            ..Objective::default()
        },
        Objective {
            target: Rate::bytes(1),
            ..Objective::default()
        },
    ];
    let device = Device {
        depth: 5,
        merge_limit: 128 << 10,
        ..device_with(&profile)
    };
    let assumed = Assumed {
        headroom: 347,
        ..Assumed::default()
    };
    let near = nearest(&device, &vms(&objectives), 1, &assumed);
    assert_eq!(near, Some(Objective::default()));
}

/// The envelope of a latency bound takes 90 % of the device, and is not lowered with the floors.
#[test]
fn floors_are_not_lowered_where_envelopes_alone_exceed_the_device() {
    let profile = serial_device();
    let device = device_with(&profile);
    let enveloped = |iops| Objective {
        latency: Some(Nanos::from_millis(100)),
        expects: ExpectedWorkload {
            reads: Some(1000),
            size: Some(4096),
            iops: Some(iops),
            ..ExpectedWorkload::NOTHING
        },
        ..Objective::default()
    };
    let lowered = |envelope| {
        let objectives = [enveloped(envelope), iops(400, 0)];
        let fit = evaluate(&device, &vms(&objectives), &Assumed::default());
        assert_eq!(fit.short_of(), Some(Resource::DeviceTime));
        nearest_of_all(&device, &vms(&objectives), &Assumed::default()).map(|it| it.0)
    };
    assert_eq!(lowered(900), None);
    // 200 of 800 requests are left for the floor of 400: a half, and up to 0.4 % more, which a
    // whole number of IOPS leaves out.
    assert_eq!(lowered(600), Some(502));
}
