//! Learnt costs of requests on a device that was never measured.

use super::lab::*;
use std::sync::Arc;
use tidegate_core::estimator::LearntCost;
use tidegate_core::learnt_state::{Blob, BlobError};
use tidegate_core::objective::Objective;
use tidegate_core::profile::{Curve, Pattern, Profile};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue;
use tidegate_policies::policy::PolicySpec;

fn pattern(work: &Work) -> Pattern {
    let sequential = f64::from(u8::from(work.sequential));
    Pattern {
        reads: match work.op {
            Op::Read => 1.0 - f64::from(work.writes) / 100.0,
            _ => 0.0,
        },
        sequential_reads: sequential,
        sequential_writes: sequential,
        size: work.size.into(),
    }
}

fn learning(model: &str, policy: &str) -> Lab {
    let entry = catalogue::load(model).expect("of the catalogue");
    let mut lab = Lab::new(&entry, None, 32, policy);
    lab.driver.engine.device_mut().learn_costs(true);
    lab
}

fn learnt(lab: &Lab, work: &Work) -> LearntCost {
    let estimator = lab.driver.engine.view().estimator().expect("it learns");
    estimator.cost(&pattern(work))
}

/// Picoseconds of the device that one takes where nothing else is there and the device is full.
fn alone(model: &str, work: &Work) -> f64 {
    let entry = catalogue::load(model).expect("of the catalogue");
    let mut lab = Lab::new(&entry, None, 32, "fifo");
    lab.guest(&Objective::default(), Work { depth: 40, ..*work });
    lab.seconds(5);
    let seconds = 20;
    let had = lab.seconds(seconds);
    1e12 * seconds as f64 / had[0].ios() as f64
}

#[test]
fn what_comes_alone_is_learnt_in_seconds_and_the_rest_is_said_to_be_unknown() {
    let works = [
        reads(40, 4 * KIB),
        writes(40, 128 * KIB),
        Work {
            writes: 30,
            ..reads(40, 32 * KIB)
        },
    ];
    for (model, seconds) in [("ssd-sata-300gb", 5), ("hdd-7200-1tb", 20)] {
        for work in works {
            let truth = alone(model, &work);
            let mut lab = learning(model, "fifo");
            lab.guest(&Objective::default(), work);
            let before = learnt(&lab, &work);
            assert!(
                before.relative_half_width.is_infinite() && before.time_ps > 0.0,
                "{before:?}"
            );
            lab.seconds(seconds);
            let cost = learnt(&lab, &work);
            let off = cost.time_ps / truth - 1.0;
            assert!(off.abs() < 0.1, "{model}, {} bytes: {off}", work.size);
            assert!(cost.is_known(), "{model}, {} bytes: {cost:?}", work.size);
            // The other way, and of another size.
            let op = if work.op == Op::Read {
                Op::Write
            } else {
                Op::Read
            };
            let unseen = Work {
                op,
                writes: 0,
                sequential: false,
                ..reads(1, MIB)
            };
            let unseen = learnt(&lab, &unseen);
            assert!(
                !unseen.is_known(),
                "{model}, {} bytes: {unseen:?}",
                work.size
            );
        }
    }
}

/// Three VMs that are always backlogged, each by what its requests are taken to cost, varied as the
/// estimator asks. What it says after so many seconds, in parts of what is true.
fn together(model: &str, seconds: u64) -> [(f64, LearntCost); 3] {
    let sizes = [16 * KIB, 64 * KIB, 128 * KIB];
    let works = sizes.map(|size| Work {
        writes: 40,
        ..reads(32, size)
    });
    let mut lab = learning(model, "sfq");
    for work in works {
        lab.guest(&Objective::default(), work);
    }
    for _ in 0..seconds * 1000 / 30 {
        let first = learnt(&lab, &works[0]).time_ps;
        for (guest, work) in works.iter().enumerate() {
            let cost = learnt(&lab, work);
            let estimator = lab.driver.engine.view().estimator().expect("it learns");
            let dither = 1.0 + estimator.share_variation(lab.vm(guest), cost.relative_half_width);
            let weight = (1000.0 * first / cost.time_ps * dither).clamp(1.0, 10_000.0) as u32;
            lab.promise(
                guest,
                &Objective {
                    weight,
                    ..Objective::default()
                },
            );
        }
        lab.pass(Nanos::from_millis(30));
    }
    works.map(|work| {
        let cost = learnt(&lab, &work);
        (cost.time_ps / alone(model, &work), cost)
    })
}

#[test]
fn costs_of_vms_that_are_always_there_are_told_apart() {
    for (part, cost) in together("ssd-sata-300gb", 15) {
        assert!((0.9..1.1).contains(&part), "{part}, {cost:?}");
        assert!(cost.is_known(), "{cost:?}");
    }
    // On a disk with arms an I/O among those of others lies farther off than among its own kind,
    // the more so the fewer come with it: what it costs there is not what it costs alone.
    let said = together("hdd-7200-1tb", 90);
    for (part, cost) in said {
        assert!((0.8..1.4).contains(&part), "{part}, {cost:?}");
    }
    // All three had the device for about as long, so this is what their mix costs.
    let mix = 3.0 / said.iter().map(|(part, _)| 1.0 / part).sum::<f64>();
    assert!((0.85..1.15).contains(&mix), "{said:?}");
}

#[test]
fn costs_are_learnt_with_so_few_in_flight_as_the_dispatcher_keeps_there() {
    // The device takes 32, and has all that the policy ever gives it.
    for depth in [1, 4, 17, 18, 24] {
        let entry = catalogue::load("ssd-sata-300gb").expect("of the catalogue");
        let mut lab = Lab::new(&entry, None, 32, "vfair");
        let policy = PolicySpec::behind(&**lab.driver.engine.policy());
        let mut spec = policy.expect("composed of parts").clone();
        spec.set("depth", depth).expect("it has this parameter");
        lab.driver.engine.set_policy(lab.driver.now, &spec);
        let work = reads(48, 64 * KIB);
        lab.guest(&Objective::default(), work);
        lab.seconds(5);
        let had = lab.seconds(5);
        // Device time of an I/O at this depth.
        let truth = 1e12 * 5.0 / had[0].ios() as f64;
        let cost = learnt(&lab, &work);
        let off = cost.time_ps / truth - 1.0;
        assert!(cost.is_known(), "depth {depth}: {cost:?}");
        assert!(off.abs() < 0.1, "depth {depth}: {off}");
        // A guest that asks for less than that leaves the device idle: then nothing is learnt.
        let before = lab
            .driver
            .engine
            .device()
            .learnt_costs()
            .expect("it learns")
            .windows;
        lab.works(
            0,
            Work {
                depth: depth as u32 / 2,
                ..work
            },
        );
        lab.seconds(1);
        let few = lab
            .driver
            .engine
            .device()
            .learnt_costs()
            .expect("it learns")
            .windows;
        lab.seconds(2);
        let after = lab
            .driver
            .engine
            .device()
            .learnt_costs()
            .expect("it learns")
            .windows;
        assert!(
            few <= before + 2 && after == few,
            "depth {depth}: {before}, {few}, {after}"
        );
    }
}

/// Three VMs of one weight under vFair, by a profile or by what is learnt: what each has in a
/// second, after so many.
fn served(model: &str, works: &[Work; 3], by: Option<Profile>, after: u64) -> [f64; 3] {
    let entry = catalogue::load(model).expect("of the catalogue");
    let mut lab = Lab::new(&entry, None, 32, "vfair");
    lab.driver.engine.device_mut().set_profile(by.map(Arc::new));
    for work in works {
        lab.guest(&Objective::default(), *work);
    }
    lab.seconds(after);
    let seconds = 20;
    let had = lab.seconds(seconds);
    [0, 1, 2].map(|guest| had[guest].ios() as f64 / seconds as f64)
}

/// Three VMs of unlike requests under vFair, which learns what those cost, for so many seconds.
fn under_vfair(model: &str, kept: Option<&Blob>, seconds: u64) -> Lab {
    let entry = catalogue::load(model).expect("of the catalogue");
    let mut lab = Lab::new(&entry, None, 32, "vfair");
    if let Some(kept) = kept {
        lab.driver
            .engine
            .device_mut()
            .import_costs(kept)
            .expect("its own");
    }
    for work in UNLIKE {
        lab.guest(&Objective::default(), work);
    }
    lab.seconds(seconds);
    lab
}

const UNLIKE: [Work; 3] = [
    reads(48, 16 * KIB),
    reads(48, 64 * KIB),
    reads(48, 128 * KIB),
];

#[test]
fn costs_that_were_kept_count_at_once_and_are_less_sure_until_they_are_seen_again() {
    let ssd = "ssd-sata-300gb";
    let first = under_vfair(ssd, None, 30);
    let kept = first
        .driver
        .engine
        .device()
        .export_costs()
        .expect("it has learnt");
    let before = UNLIKE.map(|work| learnt(&first, &work));

    let again = under_vfair(ssd, Some(&kept), 0);
    assert_eq!(
        again.driver.engine.device().export_costs(),
        None,
        "nothing is new"
    );
    for (work, before) in UNLIKE.iter().zip(before) {
        let cost = learnt(&again, work);
        assert!(
            (cost.time_ps / before.time_ps - 1.0).abs() < 1e-9,
            "{cost:?}"
        );
        assert!(before.is_known(), "{before:?}");
        assert!(
            !cost.is_known() && cost.relative_half_width < 1.0,
            "{cost:?}"
        );
    }
    let again = under_vfair(ssd, Some(&kept), 3);
    for (work, before) in UNLIKE.iter().zip(before) {
        let cost = learnt(&again, work);
        assert!(cost.is_known(), "{cost:?}");
        assert!(
            (cost.time_ps / before.time_ps - 1.0).abs() < 0.1,
            "{cost:?}, {before:?}"
        );
    }
    assert!(again.driver.engine.device().export_costs().is_some());
}

#[test]
fn kept_costs_of_what_is_another_device_by_now_are_learnt_anew() {
    let first = under_vfair("hdd-7200-1tb", None, 60);
    let kept = first
        .driver
        .engine
        .device()
        .export_costs()
        .expect("it has learnt");
    let ssd = "ssd-sata-300gb";
    let (fresh, other) = (
        under_vfair(ssd, None, 40),
        under_vfair(ssd, Some(&kept), 40),
    );
    for work in UNLIKE {
        let (truth, cost) = (learnt(&fresh, &work), learnt(&other, &work));
        let part = cost.time_ps / truth.time_ps;
        assert!((0.9..1.1).contains(&part), "{part}: {cost:?}, {truth:?}");
    }
}

#[test]
fn what_are_no_costs_is_refused_and_changes_nothing() {
    let mut lab = under_vfair("ssd-sata-300gb", None, 10);
    let kept = lab
        .driver
        .engine
        .device()
        .export_costs()
        .expect("it has learnt");
    let before = UNLIKE.map(|work| learnt(&lab, &work));
    let bytes = kept.as_bytes();
    // A float each, from the end: covariances; and what is cut short, or too long.
    let broken = |at: usize, value: f64| {
        let (mut bytes, at) = (bytes.to_vec(), bytes.len() - 8 * at);
        bytes[at..at + 8].copy_from_slice(&value.to_bits().to_le_bytes());
        bytes
    };
    for bad in [
        broken(1, f64::NAN),
        broken(1, -1.0),
        broken(2, 1e300),
        broken(36 * 37 / 2 + 1, 0.0),
        broken(36 * 37 / 2 + 2, f64::INFINITY),
        bytes[..bytes.len() - 8].to_vec(),
        [bytes, &[0; 8]].concat(),
        Blob::new("credit-feedback", 1).as_bytes().to_vec(),
    ] {
        let refused = lab
            .driver
            .engine
            .device_mut()
            .import_costs(&Blob::from_bytes(bad));
        refused.expect_err("taken over");
    }
    assert_eq!(UNLIKE.map(|work| learnt(&lab, &work)), before);
    lab.driver
        .engine
        .device_mut()
        .import_costs(&kept)
        .expect("its own");
    // Where nothing is to be learnt, nothing is taken over.
    let entry = catalogue::load("ssd-sata-300gb").expect("of the catalogue");
    let mut other = Lab::new(&entry, None, 32, "fifo");
    let refused = other.driver.engine.device_mut().import_costs(&kept);
    assert!(matches!(refused, Err(BlobError::Unwanted(_))));
}

#[test]
fn vfair_gives_by_learnt_costs_what_it_gives_by_a_profile() {
    for (model, seconds) in [("ssd-sata-300gb", 20), ("hdd-7200-1tb", 120)] {
        let sizes = [16 * KIB, 64 * KIB, 128 * KIB];
        let works = sizes.map(|size| Work {
            writes: 40,
            ..reads(48, size)
        });
        let points = works.map(|work| (work.size, 1e12 / alone(model, &work)));
        let curve = || Curve::new(&points).expect("a curve");
        let both = || [curve(), curve()];
        let profile = Profile::new(both(), Some(both()), Vec::new(), Vec::new()).with_depth(32);
        let by_profile = served(model, &works, Some(profile), 5);
        let by_learnt = served(model, &works, None, seconds);
        println!("{model} {by_profile:?} {by_learnt:?}");
        for (learnt, profiled) in by_learnt.iter().zip(by_profile) {
            let part = learnt / profiled;
            assert!(
                (0.9..1.1).contains(&part),
                "{model}: {by_profile:?}, {by_learnt:?}"
            );
        }
    }
}
