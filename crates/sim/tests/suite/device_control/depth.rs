//! The device's queue is kept as deep as its throughput needs, and no deeper.

use super::lab::*;
use std::sync::Arc;
use tidegate_core::expected_workload::ExpectedWorkload;
use tidegate_core::objective::{Objective, OpsRate, Rate};
use tidegate_core::queue_depth::{DepthBound, DepthReason};
use tidegate_core::request::Op;
use tidegate_core::splitting::MaxIoShared;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};

fn bottleneck() -> Entry {
    let text = include_str!("../../../../../examples/bottleneck.toml");
    catalogue::parse(text, "bottleneck.toml").expect("an example")
}

fn adapting(entry: &Entry, depth: u32, adapts: bool) -> Lab {
    let mut lab = Lab::new(entry, None, depth, "fifo");
    lab.driver
        .engine
        .device_mut()
        .adapt_depth(Nanos::ZERO, adapts);
    lab
}

/// Bytes that a load moves in so many seconds after the depth was found, and the depth.
fn moved(entry: &Entry, work: Work, depth: u32, adapts: bool, times: [u64; 2]) -> (u64, u32) {
    let mut lab = adapting(entry, depth, adapts);
    lab.guest(&Objective::default(), work);
    lab.seconds(times[0]);
    let bytes = lab.seconds(times[1])[0].bytes;
    let found = lab.driver.engine.device().adapted_depth().unwrap_or(depth);
    (bytes, found)
}

/// Loads with more outstanding than any depth: small and large, random and sequential, read,
/// written and mixed.
fn loads() -> [Work; 9] {
    let random_writes = |size| Work {
        op: Op::Write,
        ..reads(64, size)
    };
    let mixed = |size, writes| Work {
        writes,
        ..reads(64, size)
    };
    [
        reads(64, 4 * KIB),
        reads(64, 16 * KIB),
        reads(64, 128 * KIB),
        reads(64, MIB),
        random_writes(16 * KIB),
        writes(64, 128 * KIB),
        writes(64, MIB),
        mixed(8 * KIB, 30),
        mixed(64 * KIB, 50),
    ]
}

/// Part of the work of the whole depth that an adapted one delivers, by spans of time.
fn kept(entry: &Entry, work: Work, spans: [u64; 3]) -> [(f64, u32); 3] {
    let run = |adapts| {
        let mut lab = adapting(entry, 32, adapts);
        lab.guest(&Objective::default(), work);
        spans.map(|seconds| {
            let bytes = lab.seconds(seconds)[0].bytes;
            (
                bytes,
                lab.driver.engine.device().adapted_depth().unwrap_or(32),
            )
        })
    };
    let (all, adapted) = (run(false), run(true));
    core::array::from_fn(|n| (adapted[n].0 as f64 / all[n].0 as f64, adapted[n].1))
}

#[test]
fn flash_does_90_percent_in_the_first_second_and_97_from_the_third_on() {
    for name in ["ssd-sata-300gb", "nvme-1tb"] {
        let entry = catalogue::load(name).expect("of the catalogue");
        for (n, work) in loads().into_iter().enumerate() {
            let [first, _, later] = kept(&entry, work, [1, 1, 2]);
            println!("{name}, load {n}: {first:.3?}, {later:.3?}");
            assert!(first.0 >= 0.9, "{name}, load {n}: {first:?} at first");
            assert!(later.0 >= 0.97, "{name}, load {n}: {later:?} later");
        }
    }
}

#[test]
fn disks_with_seeks_do_90_percent_from_ten_seconds_on() {
    for name in [
        "hdd-7200-1tb",
        "hdd-7200-1tb-cached",
        "hdd-7200-250gb",
        "raid0-16x250gb",
    ] {
        let entry = catalogue::load(name).expect("of the catalogue");
        for (n, work) in loads().into_iter().enumerate() {
            // The array does so much of what is sequential that a test has no time for it.
            if name.starts_with("raid0") && work.sequential {
                continue;
            }
            let [_, later, _] = kept(&entry, work, [10, 20, 0]);
            println!("{name}, load {n}: {later:.3?}");
            assert!(later.0 >= 0.9, "{name}, load {n}: {later:?}");
        }
    }
}

#[test]
fn a_device_that_does_one_thing_at_a_time_needs_hardly_a_queue() {
    let (all, _) = moved(&bottleneck(), reads(64, 128 * KIB), 64, false, [1, 4]);
    let (kept, depth) = moved(&bottleneck(), reads(64, 128 * KIB), 64, true, [1, 4]);
    assert!(depth <= 2, "{depth}");
    assert!(kept * 100 >= all * 98, "{kept} of {all}");
}

#[test]
fn who_waits_for_each_answer_waits_for_less() {
    let entry = bottleneck();
    let latency = |adapts| {
        let mut lab = Lab::new(&entry, None, 64, "sfq");
        lab.driver
            .engine
            .device_mut()
            .adapt_depth(Nanos::ZERO, adapts);
        let patient = Work {
            think: Nanos::from_micros(50),
            ..reads(1, 16 * KIB)
        };
        lab.guest(&Objective::default(), patient);
        lab.guest(&Objective::default(), reads(32, 128 * KIB));
        lab.seconds(1);
        let had = lab.seconds(10);
        (had[0].p99(), had[0].bytes + had[1].bytes)
    };
    let ((before, all), (after, kept)) = (latency(false), latency(true));
    assert!(
        after.0 * 10 < before.0,
        "{after} is not a tenth of {before}"
    );
    assert!(kept * 100 >= all * 98, "{kept} of {all}");
}

#[test]
fn another_load_finds_another_depth() {
    let entry = catalogue::load("nvme-1tb").expect("of the catalogue");
    let mut lab = adapting(&entry, 64, true);
    // In sequence a few fill the interface.
    lab.guest(&Objective::default(), reads(64, 512 * KIB));
    lab.seconds(1);
    let few = lab
        .driver
        .engine
        .device()
        .adapted_depth()
        .expect("adapting");
    assert!(few <= 8, "{few}");
    // Small ones at random need many dies at once.
    lab.works(0, reads(64, 16 * KIB));
    lab.seconds(1);
    let many = lab
        .driver
        .engine
        .device()
        .adapted_depth()
        .expect("adapting");
    let kept = lab.seconds(1)[0].bytes;
    let (all, _) = moved(&entry, reads(64, 16 * KIB), 64, false, [1, 1]);
    assert!(
        many > few && kept * 20 >= all * 19,
        "{many} of {few}: {kept} of {all}"
    );
}

#[test]
fn a_depth_that_nobody_fills_stays_as_it_began() {
    let entry = catalogue::load("nvme-1tb").expect("of the catalogue");
    let mut lab = adapting(&entry, 32, true);
    let now_and_then = Work {
        think: Nanos::from_millis(1),
        ..reads(1, 4 * KIB)
    };
    lab.guest(&Objective::default(), now_and_then);
    lab.seconds(10);
    assert_eq!(lab.driver.engine.device().adapted_depth(), Some(4));
    // Nor does one grow whose guests are held by their limits.
    let mut limited = Lab::new(&entry, None, 32, "limit");
    limited
        .driver
        .engine
        .device_mut()
        .adapt_depth(Nanos::ZERO, true);
    let mut objective = Objective::default();
    objective.limit.total.ops = Some(OpsRate {
        per_s: 2000,
        norm: None,
    });
    limited.guest(&objective, reads(32, 4 * KIB));
    limited.seconds(10);
    assert_eq!(limited.driver.engine.device().adapted_depth(), Some(4));
    // Off again, it is the device's own depth that holds.
    lab.driver
        .engine
        .device_mut()
        .adapt_depth(lab.driver.now, false);
    assert_eq!(lab.driver.engine.device().adapted_depth(), None);
}

/// DEFECTS P1: a database's 500 reads a second beside a writer of 1 MiB x 16, with the device
/// control of a configuration that says nothing of it.
#[test]
fn a_patient_reader_beside_a_bulk_writer_waits_for_little() {
    for (name, most) in [("ssd-sata-300gb", 4), ("nvme-1tb", 1)] {
        let entry = catalogue::load(name).expect("of the catalogue");
        for delay in [0, 100, 500].map(Nanos::from_micros) {
            for profiled in [false, true] {
                let run = |policy, adapted| {
                    let mut lab = Lab::new(&entry, None, 32, policy);
                    let mut device = lab.driver.engine.device_mut();
                    if profiled {
                        device.set_profile(Some(Arc::new(profile(&entry, 32))));
                        device.learn_cap(true);
                    }
                    if adapted {
                        device.adapt_depth(Nanos::ZERO, true);
                        device.set_max_io_shared(MaxIoShared::Auto);
                    }
                    let reader = Work {
                        think: Nanos::from_millis(2),
                        ..reads(1, 8 * KIB)
                    };
                    let bulk = Work {
                        think: delay,
                        ..writes(16, MIB)
                    };
                    lab.guest(&Objective::default(), reader);
                    lab.guest(&Objective::default(), bulk);
                    lab.seconds(10)
                };
                let (fifo, adapted) = (run("fifo", false), run("mclock", true));
                let (p99, bulk) = (adapted[0].p99(), adapted[1].bytes);
                println!(
                    "{name}, {delay}, {profiled}: {p99}, {bulk} of {}",
                    fifo[1].bytes
                );
                assert!(p99 <= Nanos::from_millis(most), "{name}, {delay}: {p99}");
                assert!(bulk * 100 >= fifo[1].bytes * 99, "{name}, {delay}: {bulk}");
            }
        }
    }
}

#[test]
fn a_latency_objective_bounds_what_is_in_flight() {
    let entry = catalogue::load("ssd-sata-300gb").expect("of the catalogue");
    let mut lab = adapting(&entry, 32, true);
    lab.driver
        .engine
        .device_mut()
        .set_max_io_shared(MaxIoShared::Auto);
    let promised = Objective {
        latency: Some(Nanos(400_000)),
        ..Objective::default()
    };
    lab.guest(&Objective::default(), reads(64, 16 * KIB));
    lab.seconds(1);
    let did = lab.seconds(1)[0].bytes;
    let free = lab.driver.engine.device().adapted().expect("it adapts");
    assert_eq!(free.reason, DepthReason::Product);
    lab.guest(&promised, reads(0, 4 * KIB));
    lab.seconds(1);
    // Half of 0.4 ms is three of 16 KiB at 270 MB/s.
    let bound = lab.driver.engine.device().adapted().expect("it adapts");
    assert!(bound.depth < free.depth, "{bound:?}, {free:?}");
    let vm = lab.vm(1);
    assert!(
        matches!(bound.reason, DepthReason::Bound { vm: whose, .. } if whose == Some(vm)),
        "{bound:?}"
    );
    lab.promise(1, &Objective::default());
    lab.seconds(1);
    // Several depths do as much, and the one that is found depends on where the search begins.
    let does = lab.seconds(1)[0].bytes;
    let again = lab.driver.engine.device().adapted().expect("it adapts");
    assert_eq!(again.reason, DepthReason::Product);
    assert!(
        does * 100 >= did * 98,
        "{does} of {did}: {again:?}, {free:?}"
    );
}

/// A promise of reads of 8 KiB within a bound.
fn reads_within(bound: Nanos) -> Objective {
    Objective {
        reservation: Rate::iops(200),
        latency: Some(bound),
        expects: ExpectedWorkload {
            reads: Some(1000),
            size: Some(8 * KIB),
            ..ExpectedWorkload::default()
        },
        ..Objective::default()
    }
}

/// Reader without promises, with so many requests outstanding, beside one with a latency bound of
/// 100 ms, on a SATA SSD.
fn reader_beside_a_bounded_one(outstanding: u32) -> Lab {
    let entry = catalogue::load("ssd-sata-300gb").expect("of the catalogue");
    let mut lab = adapting(&entry, 32, true);
    lab.driver
        .engine
        .device_mut()
        .set_max_io_shared(MaxIoShared::Auto);
    lab.guest(&Objective::default(), reads(outstanding, 16 * KIB));
    lab.guest(&reads_within(Nanos::from_millis(100)), reads(1, 8 * KIB));
    lab.seconds(1);
    lab
}

/// Gives the device the profile of a SATA SSD.
fn give_profile(lab: &mut Lab) {
    let measured = tidegate_config::profile::built_in("ssd-sata-300gb").expect("built in");
    let profile = measured.profile().expect("sound");
    lab.driver
        .engine
        .device_mut()
        .set_profile(Some(Arc::new(profile)));
}

#[test]
fn the_tightest_bound_by_the_profile_lowers_the_depth_and_the_blocking_time() {
    let mut lab = reader_beside_a_bounded_one(64);
    let device = lab.driver.engine.device();
    let of_kind = device.blocking_time();
    assert_eq!(
        device.feasibility(),
        None,
        "without a profile, before costs are learnt"
    );
    give_profile(&mut lab);
    let mut at = |bound| {
        lab.promise(1, &reads_within(bound));
        // A check comes 100 ms after the one before, and too little is measured soon after it.
        lab.pass(Nanos::from_millis(110));
        let device = lab.driver.engine.device();
        let found = device.feasibility().expect("there is a profile");
        let depth = device.adapted_depth().expect("it adapts");
        // By the pace of the device floors are judged more strictly than by the worst of all mixes.
        assert!(device.blocking_time() <= found.blocking.max(of_kind));
        assert!(depth <= found.depth_bound, "{depth}, {found:?}");
        (found, lab.vm(1))
    };
    let (wide, _) = at(Nanos::from_millis(400));
    assert!(wide.fits && wide.depth_bound == 32, "{wide:?}");
    assert!(wide.blocking > of_kind, "{wide:?}");
    let (tight, vm) = at(Nanos::from_millis(40));
    assert!(tight.fits && tight.depth_bound < 16, "{tight:?}");
    assert_eq!(tight.tightest, Some(vm));
    assert!(tight.blocking < wide.blocking, "{tight:?}, {wide:?}");
    // No depth holds it, so none is lowered for it.
    let (beyond, _) = at(Nanos::from_millis(1));
    assert!(!beyond.fits && beyond.depth_bound == 32, "{beyond:?}");
    let (again, _) = at(Nanos::from_millis(400));
    // The blocking time goes by the depth in force, which follows the load.
    assert_eq!((again.fits, again.depth_bound), (true, 32));
}

#[test]
fn short_latencies_deepen_the_queue_beyond_the_worst_case() {
    let mut lab = reader_beside_a_bounded_one(8);
    give_profile(&mut lab);
    let bound = Nanos::from_millis(14);
    lab.promise(1, &reads_within(bound));
    // A check comes at most 100 ms after the promise has changed.
    lab.pass(Nanos::from_millis(105));
    let worst_case = lab.pass(Nanos::from_millis(20))[0].bytes * 50;
    let depth_bound = |lab: &Lab| {
        let found = lab.driver.engine.device().feasibility();
        found.expect("there is a profile").depth_bound
    };
    let begun = depth_bound(&lab);
    lab.seconds(4);
    let had = lab.seconds(1);
    assert!(begun < depth_bound(&lab), "{begun}");
    assert!(worst_case < had[0].bytes, "{worst_case}, {}", had[0].bytes);
    assert!(had[1].p99() < bound, "{}", had[1].p99());
}

#[test]
fn a_bounded_vm_whose_guest_is_off_costs_others_nothing() {
    let throughput = |latency| {
        let entry = catalogue::load("ssd-sata-300gb").expect("of the catalogue");
        let mut lab = adapting(&entry, 32, true);
        let mut device = lab.driver.engine.device_mut();
        device.set_max_io_shared(MaxIoShared::Auto);
        give_profile(&mut lab);
        lab.guest(&Objective::default(), reads(32, 4 * KIB));
        let promised = Objective {
            latency,
            ..reads_within(Nanos::from_millis(10))
        };
        lab.guest(&promised, reads(0, 4 * KIB));
        lab.seconds(2);
        (lab.seconds(2)[0].bytes, lab)
    };
    let (without, _) = throughput(None);
    let (beside, lab) = throughput(Some(Nanos::from_millis(10)));
    let depth = lab.driver.engine.device().adapted_depth();
    assert!(
        beside * 100 >= without * 97,
        "{beside} of {without}: {depth:?}"
    );
}

#[test]
fn promises_are_known_once_costs_are_learnt() {
    let entry = catalogue::load("ssd-sata-300gb").expect("of the catalogue");
    let mut lab = adapting(&entry, 32, true);
    lab.driver
        .engine
        .device_mut()
        .set_max_io_shared(MaxIoShared::Auto);
    let of_kind = lab.driver.engine.device().blocking_time();
    lab.guest(&reads_within(Nanos::from_millis(100)), reads(64, 16 * KIB));
    assert_eq!(lab.driver.engine.device().feasibility(), None);
    lab.seconds(10);
    let found = lab.driver.engine.device().feasibility().expect("learnt");
    assert!(found.is_learnt && found.fits, "{found:?}");
    assert!(
        found.blocking >= of_kind,
        "no latencies are learnt: {found:?}"
    );
}

#[test]
fn what_is_promised_and_due_waits_for_no_place_in_a_short_queue() {
    let entry = catalogue::load("nvme-1tb").expect("of the catalogue");
    let promised = Objective {
        reservation: Rate::iops(10_000),
        latency: Some(Nanos::from_millis(1)),
        ..Objective::default()
    };
    let run = |policy: &str| {
        let mut lab = Lab::new(&entry, None, 1024, policy);
        let mut device = lab.driver.engine.device_mut();
        device.adapt_depth(Nanos::ZERO, true);
        device.set_max_io_shared(MaxIoShared::Bytes(64 << 10));
        let (depth, vm) = (1, None);
        device.set_depth_bound(Some(DepthBound { depth, vm }));
        let reader = Work {
            think: Nanos::from_micros(200),
            ..reads(1, 8 * KIB)
        };
        lab.guest(&promised, reader);
        lab.guest(&Objective::default(), writes(16, MIB));
        lab.seconds(1);
        let had = lab.seconds(2);
        (had[0].p99(), had[1].bytes)
    };
    let (slo, mclock) = (run("slo"), run("mclock"));
    assert!(slo.0 < mclock.0, "{slo:?}, {mclock:?}");
}
