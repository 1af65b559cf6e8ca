use super::*;
use crate::profile::{Access, Curve, DepthPoint, Direction};
use tidegate_base::expect::Expects;
use tidegate_base::objective::{Limit, OpsRate, Rate};

fn flat(iops: f64) -> Curve {
    Curve::new(&[(4096, iops), (1 << 20, iops)]).expect("a curve")
}

/// The paper's figures 4 and 7: 8000 IOPS where sequential, 1200 where random.
fn paper() -> Profile {
    let reads = [flat(8000.0), flat(1200.0)];
    Profile::new(reads.clone(), Some(reads), Vec::new(), Vec::new())
}

fn on(profile: &Profile) -> Device<'_> {
    Device {
        profile,
        depth: 32,
        max_io: 1 << 20,
        merge_limit: 0,
        capacity: None,
    }
}

fn iops(per_s: u64, sequential: u32) -> Objective {
    Objective {
        reservation: Rate::iops(per_s),
        expects: Expects {
            reads: Some(1000),
            sequential: Some(sequential),
            size: Some(4096),
        },
        ..Objective::default()
    }
}

fn tenants(objectives: &[Objective]) -> Vec<Tenant<'_>> {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let named = objectives.iter().zip(names);
    named
        .map(|(objective, name)| Tenant {
            name,
            objective,
            background: false,
            disk_bytes: 0,
        })
        .collect()
}

fn fit(profile: &Profile, objectives: &[Objective], streams: Streams) -> Fit {
    let assumed = Assumed {
        streams,
        ..Assumed::default()
    };
    reckon(&on(profile), &tenants(objectives), &assumed)
}

#[test]
fn the_papers_two_vms_fit_until_their_streams_meet() {
    // Figure 4: half of 8000 and half of 1200 are a whole device while the stream is one.
    let both = [iops(4000, 1000), iops(600, 0)];
    let kept = fit(&paper(), &both, Streams::Kept);
    assert_eq!(kept.needs[0].time_ps, SECOND_PS / 2);
    // 600 times 833,333,333 ps, as the profile rounds 1/1200 s.
    assert_eq!(kept.needs[1].time_ps, 499_999_999_800);
    assert_eq!(kept.short_of(), Some(Resource::DeviceTime));
    // Figure 7: blended, 4000 of what was a stream need 4000 / 1200 devices.
    let blended = fit(&paper(), &both, Streams::Blended);
    assert_eq!(blended.needs[0].time_ps, 4000 * 833_333_333);
    // Alone a stream is one.
    let alone = fit(&paper(), &both[..1], Streams::Blended);
    assert_eq!((alone.time_ps, alone.fits()), (SECOND_PS / 2, true));
}

#[test]
fn rates_are_requests_of_the_expected_size() {
    let profile = Profile::new([flat(1000.0), flat(1000.0)], None, Vec::new(), Vec::new());
    let of = |objective: Objective| {
        let fit = fit(&profile, &[objective], Streams::Blended);
        (fit.needs[0].load.requests(), fit.needs[0].load.size)
    };
    let reserve = |reservation| Objective {
        reservation,
        ..Objective::default()
    };
    let ops = |per_s, norm| Some(OpsRate { per_s, norm });
    let rate = |ops, bytes_per_s| Rate { ops, bytes_per_s };
    assert_eq!(of(reserve(Rate::iops(100))), (100_000_000, 4096));
    let normal = rate(ops(100, Some(16384)), None);
    assert_eq!(of(reserve(normal)), (100_000_000, 16384));
    assert_eq!(of(reserve(Rate::bytes(1 << 20))), (8_000_000, 128 << 10));
    // Both figures: they meet at 10 kB.
    assert_eq!(
        of(reserve(rate(ops(100, None), Some(1_000_000)))),
        (100_000_000, 10_000)
    );
    // Four of the size that counts as one: a quarter of the requests.
    let expects = Expects {
        size: Some(65536),
        ..Expects::NOTHING
    };
    let longer = Objective {
        expects,
        ..reserve(normal)
    };
    assert_eq!(of(longer), (25_000_000, 65536));
    // A target counts like a reservation, and no VM takes more than its limit.
    let target = Objective {
        target: Rate::iops(300),
        ..reserve(Rate::iops(100))
    };
    assert_eq!(of(target).0, 300_000_000);
    let limited = Objective {
        limit: Limit {
            total: Rate::bytes(16384 * 50),
            ..Limit::NONE
        },
        ..reserve(normal)
    };
    assert_eq!(of(limited).0, 50_000_000);
    let no_reads = Objective {
        limit: Limit {
            read: Rate::iops(10),
            ..Limit::NONE
        },
        ..reserve(normal)
    };
    assert_eq!(of(no_reads).0, 10_000_000);
}

#[test]
fn what_is_not_said_is_the_dearer_direction() {
    let slow_writes = Profile::new(
        [flat(1000.0), flat(1000.0)],
        Some([flat(500.0), flat(500.0)]),
        Vec::new(),
        Vec::new(),
    );
    let objective = Objective {
        reservation: Rate::iops(100),
        ..Objective::default()
    };
    let need = fit(&slow_writes, &[objective], Streams::Blended).needs[0];
    assert_eq!((need.load.reads, need.load.writes), (0, 100_000_000));
    assert_eq!(need.time_ps, SECOND_PS / 5);
}

fn mixes() -> Profile {
    // A mix of halves takes twice what reads or writes take.
    Profile::new(
        [flat(1000.0), flat(1000.0)],
        Some([flat(1000.0), flat(1000.0)]),
        vec![(500, flat(500.0))],
        Vec::new(),
    )
}

#[test]
fn reads_and_writes_that_meet_are_dearer_by_their_mix() {
    let of = |per_s, reads| Objective {
        expects: Expects {
            reads: Some(reads),
            ..Expects::NOTHING
        },
        ..iops(per_s, 0)
    };
    let halves = fit(&mixes(), &[of(200, 1000), of(200, 0)], Streams::Blended);
    assert_eq!(halves.time_ps, SECOND_PS / 10 * 8);
    assert!(halves.fits());
    // A few writes make no mix of halves out of many reads: 400 reads alone take 40 %.
    let few = fit(&mixes(), &[of(400, 1000), of(4, 0)], Streams::Blended);
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
    let tenants = [iops(400, 0)];
    let at = |depth| {
        let device = Device {
            depth,
            ..on(&profile)
        };
        reckon(&device, &self::tenants(&tenants), &Assumed::default()).time_ps
    };
    let third = SECOND_PS / 3;
    // Factors are rounded up to millionths.
    let near = |time: u64, to: u64| (to - 1000..to + SECOND_PS / 500_000).contains(&time);
    assert!(near(at(32), third) && near(at(64), third));
    // Between measured depths that of the shallower one.
    assert!(near(at(1), SECOND_PS) && near(at(31), SECOND_PS));
}

/// One read at a time takes 4 ms, 8 ms at most; two 8 and 16.
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

fn takes(profile: &Profile, depth: u32, objectives: &[Objective]) -> Vec<Option<f64>> {
    let device = Device {
        depth,
        ..on(profile)
    };
    let all = Assumed {
        headroom: 1000,
        ..Assumed::default()
    };
    let fit = reckon(&device, &tenants(objectives), &all);
    let bounds = fit.needs.iter().map(|need| need.bound);
    bounds
        .map(|bound| Some(bound?.takes?.as_millis_f64()))
        .collect()
}

#[test]
fn a_bound_waits_for_the_device_its_turn_and_its_service() {
    // One at a time: 8 ms until the device is free, and 8 ms for itself.
    assert_eq!(takes(&disk(), 1, &[within(30, 25)]), [Some(16.0)]);
    // Two at a time: Two comes free in 8 ms as well, and then it is one of two.
    assert_eq!(takes(&disk(), 2, &[within(30, 25)]), [Some(24.0)]);
    // Another with the same bound goes before it: 4 ms more.
    let two = [within(30, 25), within(30, 25)];
    assert_eq!(takes(&disk(), 1, &two), [Some(20.0); 2]);
    // One that is due later does not; but waits for the other's next, a tenth of what comes after.
    let apart = [within(30, 25), within(50, 25)];
    assert_eq!(takes(&disk(), 1, &apart), [Some(16.0), Some(22.0)]);
    // A long request of somebody who was promised nothing may be with the device.
    let silent = Objective::default();
    let mut dear = disk();
    assert_eq!(
        takes(&dear, 1, &[within(30, 25), silent]),
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
        takes(&dear, 1, &[within(30, 25), silent]),
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
        ..on(&profile)
    };
    let objectives = [iops(1, 0), iops(1, 0)];
    let mut all = tenants(&objectives);
    all[0].disk_bytes = 60;
    all[1].disk_bytes = 40;
    let fit = reckon(&device, &all, &Assumed::default());
    assert_eq!(
        (fit.short_of(), fit.tightest()),
        (None, (Resource::Capacity, 1000))
    );
    all[1].disk_bytes = 41;
    let fit = reckon(&device, &all, &Assumed::default());
    assert_eq!(fit.short_of(), Some(Resource::Capacity));
}

#[test]
fn a_refusal_says_what_binds_and_what_would_fit() {
    let profile = paper();
    let objectives = [iops(600, 0), iops(480, 0)];
    let all = tenants(&objectives);
    let (why, instead) =
        refusal(&on(&profile), &all, 1, &Assumed::default()).expect("it does not fit");
    assert_eq!(
        why,
        "what is promised on this device needs 90 % of its time; at most 80 % may be promised, \
         and b needs 40 %"
    );
    assert_eq!(instead, "the nearest that fits: reservation = \"360 IOPS\"");
    let late = [within(10, 25)];
    let disk = disk();
    let device = Device {
        depth: 1,
        ..on(&disk)
    };
    let (why, instead) =
        refusal(&device, &tenants(&late), 0, &Assumed::default()).expect("it does not fit");
    assert_eq!(
        why,
        "a is promised its requests within 10 ms; they and what is due before them take 20 ms \
         (8 ms with the device alone)"
    );
    assert_eq!(instead, "the nearest that fits: latency = \"20 ms\"");
}

#[test]
fn what_is_too_much_already_may_become_less_but_not_more() {
    let of = |ops: [u64; 2]| fit(&paper(), &ops.map(|per_s| iops(per_s, 0)), Streams::Blended);
    let before = of([1000, 500]);
    assert!(!before.fits());
    assert!(!before.is_worse_than(&before));
    assert!(!of([1000, 400]).is_worse_than(&before));
    assert!(of([1000, 501]).is_worse_than(&before));
    // What fits is never worse.
    assert!(!of([500, 460]).is_worse_than(&of([1, 1])));
    let bound = |ms| {
        let bounds = [within(ms, 25), Objective::default()];
        reckon(&on(&disk()), &tenants(&bounds), &Assumed::default())
    };
    assert!(bound(9).is_worse_than(&bound(10)));
    assert!(!bound(11).is_worse_than(&bound(10)));
    let alone = reckon(
        &on(&disk()),
        &tenants(&[within(10, 25)]),
        &Assumed::default(),
    );
    assert!(!bound(10).is_worse_than(&alone));
}
