//! Drift alerts: comparison of a device with its profile.

use super::lab::*;
use std::sync::Arc;
use tidegate_core::device_monitor::{DeviceAlert, DriftDirection};
use tidegate_core::objective::Objective;
use tidegate_core::request::Op;
use tidegate_device::catalogue;

fn plain(model: &str, depth: u32) -> Lab {
    let entry = catalogue::load(model).expect("of the catalogue");
    let mut lab = Lab::new(&entry, None, depth, "fifo");
    lab.driver
        .engine
        .device_mut()
        .set_profile(Some(Arc::new(profile(&entry, 32))));
    lab
}

#[test]
fn a_device_that_does_what_its_profile_says_agrees_with_it() {
    let work = |op, sequential, size| Work {
        op,
        sequential,
        ..reads(40, size)
    };
    for model in ["ssd-sata-300gb", "nvme-1tb", "hdd-7200-1tb"] {
        let mut lab = plain(model, 32);
        lab.guest(&Objective::default(), reads(40, 4 * KIB));
        for work in [
            work(Op::Read, false, 4 * KIB),
            work(Op::Read, true, 64 * KIB),
            work(Op::Write, true, MIB),
        ] {
            lab.works(0, work);
            lab.seconds(10);
            let drift = lab
                .driver
                .engine
                .device()
                .drift()
                .expect("it has a profile");
            let (ratio, windows) = (drift.ratio, drift.windows);
            assert!(windows > 0, "{model}: no second was judged");
            assert!(
                (0.9..1.1).contains(&ratio),
                "{model}, {} bytes: {ratio}",
                work.size
            );
            assert_eq!(drift.direction, None, "{model}");
        }
        assert_eq!(lab.alerts, []);
    }
}

#[test]
fn a_model_agrees_with_its_own_profile_whatever_sizes_reads_and_writes_have() {
    // Mixes were measured with one size for reads and writes. Small random writes beside large
    // random reads are none of these.
    let model = "ssd-sata-300gb";
    let entry = catalogue::load(model).expect("of the catalogue");
    let small_writes = |writes, depth| Work {
        writes,
        ..reads(depth, 4 * KIB)
    };
    for (writes, depth) in [(50, 8), (100, 4)] {
        let mut lab = Lab::new(&entry, None, 32, "mclock");
        let profile = tidegate_config::profile::built_in(model).expect("built in");
        let profile = profile.profile().expect("it has every curve");
        lab.driver
            .engine
            .device_mut()
            .set_profile(Some(Arc::new(profile)));
        lab.driver.engine.device_mut().learn_cap(true);
        let bulk = Work {
            sequential: true,
            ..reads(8, MIB)
        };
        for work in [
            reads(16, 8 * KIB),
            small_writes(writes, depth),
            reads(8, MIB),
            bulk,
        ] {
            lab.guest(&Objective::default(), work);
        }
        lab.seconds(10);
        let drift = lab
            .driver
            .engine
            .device()
            .drift()
            .expect("it has a profile");
        assert!(drift.windows >= 8, "{drift:?}");
        assert!((0.9..1.1).contains(&drift.ratio), "{writes} %: {drift:?}");
        assert_eq!(lab.driver.engine.device().learnt_cap(), None, "{writes} %");
        assert_eq!(lab.alerts, []);
    }
}

#[test]
fn a_device_that_is_held_back_parts_from_its_profile_and_agrees_again() {
    let entry = catalogue::load("ssd-sata-300gb").expect("of the catalogue");
    let mut lab = Lab::new(&entry, Some(&cap(1_000_000, 0, 0)), 32, "fifo");
    lab.driver
        .engine
        .device_mut()
        .set_profile(Some(Arc::new(profile(&entry, 32))));
    lab.guest(&Objective::default(), reads(40, 4 * KIB));
    lab.seconds(10);
    assert_eq!(lab.alerts, []);
    lab.set_cap(&cap(10_000, 0, 0));
    lab.seconds(10);
    let drift = lab
        .driver
        .engine
        .device()
        .drift()
        .expect("it has a profile");
    assert_eq!(drift.direction, Some(DriftDirection::Slower));
    // 39,500 I/Os a second by the profile.
    assert!((3.6..4.1).contains(&drift.ratio), "{drift:?}");
    lab.set_cap(&cap(1_000_000, 0, 0));
    lab.seconds(30);
    let said: Vec<_> = lab.alerts.drain(..).collect();
    let [
        (parted, DeviceAlert::Drifted(_)),
        (agrees, DeviceAlert::DriftEnded(_)),
    ] = said[..]
    else {
        panic!("{said:?}");
    };
    let seconds = [parted.as_secs_f64(), agrees.as_secs_f64()];
    assert!((15.0..17.0).contains(&seconds[0]), "{seconds:?}");
    assert!((25.0..40.0).contains(&seconds[1]), "{seconds:?}");
}

#[test]
fn a_profile_of_a_slower_device_is_told_from_one_of_a_faster() {
    for (of, parting) in [
        ("hdd-7200-1tb", DriftDirection::Faster),
        ("nvme-1tb", DriftDirection::Slower),
    ] {
        let mut lab = plain("ssd-sata-300gb", 32);
        let other = catalogue::load(of).expect("of the catalogue");
        let other = profile(&other, 32);
        lab.driver
            .engine
            .device_mut()
            .set_profile(Some(Arc::new(other)));
        lab.guest(&Objective::default(), reads(40, 4 * KIB));
        lab.seconds(10);
        let drift = lab
            .driver
            .engine
            .device()
            .drift()
            .expect("it has a profile");
        assert_eq!(drift.direction, Some(parting), "{drift:?}");
    }
}

#[test]
fn a_device_that_has_too_little_to_do_says_nothing() {
    let mut lab = plain("ssd-sata-300gb", 32);
    lab.guest(&Objective::default(), reads(8, 4 * KIB));
    lab.seconds(10);
    let drift = lab
        .driver
        .engine
        .device()
        .drift()
        .expect("it has a profile");
    assert_eq!(
        (drift.windows, drift.ratio, drift.direction),
        (0, 1.0, None)
    );
    assert_eq!((drift.saturating_depth, drift.too_shallow), (32, false));
    // And one that never has as much as it was measured with says so.
    let lab = plain("ssd-sata-300gb", 8);
    let drift = lab
        .driver
        .engine
        .device()
        .drift()
        .expect("it has a profile");
    assert!(drift.too_shallow);
}
