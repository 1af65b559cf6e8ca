//! A cap below the device is recognised, kept, followed and forgotten.

use super::lab::*;
use std::sync::Arc;
use tidegate_core::device_monitor::{DeviceAlert, LearntCap};
use tidegate_core::learnt_state::{Blob, BlobError};
use tidegate_core::objective::Objective;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_device::cap::CapFigures;
use tidegate_device::catalogue;

const SSD: &str = "ssd-sata-300gb";

fn learning(model: &str, cap: Option<&CapFigures>, policy: &str, profiled: bool) -> Lab {
    let entry = catalogue::load(model).expect("of the catalogue");
    let mut lab = Lab::new(&entry, cap, 32, policy);
    if profiled {
        lab.driver
            .engine
            .device_mut()
            .set_profile(Some(Arc::new(profile(&entry, 32))));
    }
    lab.driver.engine.device_mut().learn_cap(true);
    lab
}

fn capped(figures: &CapFigures, policy: &str) -> Lab {
    learning(SSD, Some(figures), policy, true)
}

fn iops(cap: Option<LearntCap>) -> f64 {
    cap.and_then(|cap| cap.iops).unwrap_or(f64::NAN)
}

fn mb_per_s(cap: Option<LearntCap>) -> f64 {
    let bytes = cap.and_then(|cap| cap.bytes_per_s);
    bytes.map_or(f64::NAN, |bytes| bytes as f64 / 1e6)
}

/// A guest that waits for each small read beside one that writes all it can.
fn neighbours(lab: &mut Lab) {
    lab.guest(&Objective::default(), reads(1, 8 * KIB));
    lab.guest(&Objective::default(), writes(32, MIB));
}

#[test]
fn a_cap_that_was_kept_is_in_force_at_once_and_another_one_is_found() {
    let figures = cap(0, 50_000_000, 0);
    let mut first = capped(&figures, "sfq");
    let export = |lab: &Lab| lab.driver.engine.device().export_cap();
    assert_eq!(export(&first), None);
    neighbours(&mut first);
    first.seconds(20);
    let kept = export(&first).expect("it is known");
    let known = first
        .driver
        .engine
        .device()
        .learnt_cap()
        .expect("it is known");

    let starts = |figures: &CapFigures, with: bool| {
        let mut lab = capped(figures, "sfq");
        if with {
            (lab.driver
                .engine
                .device_mut()
                .import_cap(lab.driver.now, &kept))
            .expect("its own");
        }
        neighbours(&mut lab);
        let p99 = lab.seconds(3)[0].p99();
        lab.seconds(120);
        let now = lab.driver.engine.device().learnt_cap();
        (p99, now)
    };
    let (without, _) = starts(&figures, false);
    let (with, now) = starts(&figures, true);
    assert!(Nanos(with.0 * 4) < without, "{with}, {without}");
    let part = mb_per_s(now) / mb_per_s(Some(known));
    assert!((part - 1.0).abs() < 0.05, "{now:?}");
    for other in [25, 100] {
        let (_, now) = starts(&cap(0, other * 1_000_000, 0), true);
        let part = mb_per_s(now) / other as f64;
        assert!((0.9..1.1).contains(&part), "{other}: {now:?}");
    }
}

#[test]
fn what_is_no_cap_is_refused_and_which_of_two_it_is_stays_open() {
    let kept = |fields: [u64; 3]| {
        let mut blob = Blob::new("cap-learner", 1);
        fields.iter().for_each(|&field| {
            blob.push_u64(field);
        });
        blob
    };
    let mut lab = capped(&cap(500, 0, 0), "sfq");
    for bad in [[0, 0, 0], [0, 0, 1], [500_000, 0, 1], [500_000, 7, 2]] {
        let refused = lab
            .driver
            .engine
            .device_mut()
            .import_cap(lab.driver.now, &kept(bad));
        assert!(matches!(refused, Err(BlobError::Value { .. })), "{bad:?}");
        assert_eq!(lab.driver.engine.device().learnt_cap(), None);
    }
    let either = kept([500_000, 4_000_000, 1]);
    lab.driver
        .engine
        .device_mut()
        .import_cap(lab.driver.now, &either)
        .expect("good");
    assert_eq!(lab.driver.engine.device().export_cap(), Some(either));
    assert!(
        lab.driver
            .engine
            .device()
            .learnt_cap()
            .is_some_and(|cap| cap.either)
    );
    lab.driver.engine.device_mut().learn_cap(false);
    let refused = lab
        .driver
        .engine
        .device_mut()
        .import_cap(lab.driver.now, &kept([500_000, 0, 0]));
    assert!(matches!(refused, Err(BlobError::Unwanted(_))));
}

#[test]
fn with_a_learnt_cap_the_dispatcher_decides_and_not_the_bucket() {
    for policy in ["sfq", "mclock"] {
        let figures = cap(500, 50_000_000, 0);
        let entry = catalogue::load(SSD).expect("of the catalogue");
        let mut without = Lab::new(&entry, Some(&figures), 32, policy);
        neighbours(&mut without);
        without.seconds(10);
        let before = without.seconds(60);
        // 31 I/Os of a mebibyte at 50 MB/s.
        assert!(before[0].p99() > Nanos::from_millis(600), "{policy}");

        let mut with = capped(&figures, policy);
        neighbours(&mut with);
        with.seconds(10);
        let after = with.seconds(60);
        let p99 = after[0].p99();
        assert!(p99 < Nanos::from_millis(50), "{policy}: {p99}");
        assert!(after[0].ios() > 10 * before[0].ios(), "{policy}");
        // An I/O takes 2 ms of the cap, or what its bytes do: how much of it was used.
        let used = |had: &[Had]| had[0].ios() as f64 * 0.002 + had[1].bytes as f64 / 50e6;
        let (used, all) = (used(&after), used(&before));
        assert!(used > 0.95 * all, "{policy}: {used} of {all} s");
    }
}

#[test]
fn which_of_the_two_is_capped_shows_as_soon_as_sizes_change() {
    // Only I/Os, only bytes, and both.
    for (figures, ios, bytes) in [
        (cap(500, 0, 0), true, false),
        (cap(0, 20_000_000, 0), false, true),
        (cap(500, 20_000_000, 0), true, true),
    ] {
        let mut lab = capped(&figures, "fifo");
        lab.guest(&Objective::default(), reads(32, 16 * KIB));
        lab.seconds(10);
        let first = lab
            .driver
            .engine
            .device()
            .learnt_cap()
            .expect("all I/Os have one size");
        assert!(first.either && first.iops.is_some() && first.bytes_per_s.is_some());
        for size in [128 * KIB, 4 * KIB] {
            lab.works(0, reads(32, size));
            lab.seconds(15);
        }
        let learnt = lab.driver.engine.device().learnt_cap();
        assert!(
            !learnt.expect("still there").either,
            "{figures:?}: {learnt:?}"
        );
        let within = |found: f64, of: f64| (found / of - 1.0).abs() < 0.05;
        assert_eq!(within(iops(learnt), 500.0), ios, "{figures:?}: {learnt:?}");
        assert_eq!(
            within(mb_per_s(learnt), 20.0),
            bytes,
            "{figures:?}: {learnt:?}"
        );
    }
}

#[test]
fn another_cap_is_found_within_the_time_that_the_guide_states() {
    let mut lab = capped(&cap(500, 0, 2), "sfq");
    lab.guest(&Objective::default(), reads(1, 8 * KIB));
    lab.guest(&Objective::default(), reads(32, 16 * KIB));
    // Of these 2 s are the burst.
    lab.seconds(10);
    let near = |lab: &Lab, of: f64| {
        let learnt = iops(lab.driver.engine.device().learnt_cap());
        assert!((learnt / of - 1.0).abs() < 0.03, "{learnt} is not {of}");
    };
    near(&lab, 500.0);
    lab.set_cap(&cap(250, 0, 2));
    lab.seconds(10);
    near(&lab, 250.0);
    lab.set_cap(&cap(1000, 0, 2));
    lab.seconds(35);
    near(&lab, 1000.0);
    // It is lifted: the device itself is the limit.
    lab.set_cap(&cap(1_000_000, 0, 0));
    lab.seconds(45);
    let had = lab.seconds(4);
    let all: u64 = had.iter().map(|had| had.bytes).sum();
    assert!(all > 1_000_000_000, "{all}");
    assert_eq!(lab.driver.engine.device().learnt_cap(), None);
    let lifted = lab
        .alerts
        .iter()
        .rfind(|said| matches!(said.1, DeviceAlert::Capped(_) | DeviceAlert::Uncapped));
    assert_eq!(lifted.map(|said| said.1), Some(DeviceAlert::Uncapped));
}

#[test]
fn without_a_profile_what_the_device_did_before_tells() {
    let mut lab = learning("nvme-1tb", Some(&cap(2000, 0, 10)), "fifo", false);
    lab.guest(&Objective::default(), reads(4, 8 * KIB));
    // 20,000 I/Os are saved up, and last half a second; so the first second does ten times as much.
    lab.seconds(15);
    let learnt = lab.driver.engine.device().learnt_cap();
    assert!((iops(learnt) / 2000.0 - 1.0).abs() < 0.02, "{learnt:?}");
    // Without a burst nothing tells the cap from a device that can do no more.
    let mut lab = learning("nvme-1tb", Some(&cap(2000, 0, 0)), "fifo", false);
    lab.guest(&Objective::default(), reads(4, 8 * KIB));
    lab.seconds(15);
    assert_eq!(lab.driver.engine.device().learnt_cap(), None);
}

#[test]
fn a_device_without_a_cap_has_none_and_loses_nothing() {
    for (model, profiled) in [(SSD, true), ("hdd-7200-1tb", true), (SSD, false)] {
        let entry = catalogue::load(model).expect("of the catalogue");
        let mut with = learning(model, None, "fifo", profiled);
        let mut without = Lab::new(&entry, None, 32, "fifo");
        for lab in [&mut with, &mut without] {
            lab.guest(&Objective::default(), reads(2, 8 * KIB));
        }
        let mixed = Work {
            op: Op::Write,
            ..reads(20, 64 * KIB)
        };
        for work in [
            reads(2, 8 * KIB),
            reads(32, 8 * KIB),
            writes(32, MIB),
            mixed,
        ] {
            with.works(0, work);
            without.works(0, work);
            let (learning, plain) = (with.seconds(6), without.seconds(6));
            assert!(
                learning[0].latencies == plain[0].latencies,
                "{model}, {}",
                work.size
            );
        }
        assert_eq!(with.driver.engine.device().learnt_cap(), None);
    }
}

#[test]
fn a_devices_own_interface_is_no_cap_where_sizes_grow() {
    // Of one power of two; the larger ones are fewer a second, as the interface lets so many bytes
    // pass.
    let mut lab = learning(SSD, None, "fifo", false);
    lab.guest(&Objective::default(), reads(32, 68 * KIB));
    for size in [68 * KIB, 124 * KIB] {
        lab.works(0, reads(32, size));
        lab.seconds(40);
        assert_eq!(lab.driver.engine.device().learnt_cap(), None, "{size}");
    }
}

#[test]
fn time_held_back_for_the_cap_is_time_with_the_device() {
    let mut lab = capped(&cap(100, 0, 0), "fifo");
    lab.guest(&Objective::default(), reads(8, 8 * KIB));
    lab.seconds(15);
    assert!(lab.driver.engine.device().learnt_cap().is_some());
    // One after the other, each is held for the cap alone.
    lab.works(0, reads(1, 8 * KIB));
    lab.seconds(2);
    let had = lab.seconds(10);
    let (whole, device) = (had[0].mean(), had[0].device_mean());
    assert!(whole > Nanos::from_millis(9), "{whole}");
    assert_eq!(whole, device);
}

#[test]
fn a_depth_that_is_looked_for_hides_no_cap() {
    for (most, work) in [
        (400, writes(32, 128 * KIB)),
        (3000, reads(32, 16 * KIB)),
        (8000, reads(32, 16 * KIB)),
    ] {
        // The cap is there from the beginning, and comes when the depth is found.
        for first in [most, 1_000_000] {
            let mut lab = capped(&cap(first, 0, 0), "sfq");
            lab.driver
                .engine
                .device_mut()
                .adapt_depth(Nanos::ZERO, true);
            lab.guest(&Objective::default(), work);
            lab.seconds(10);
            lab.set_cap(&cap(most, 0, 0));
            lab.seconds(10);
            let learnt = iops(lab.driver.engine.device().learnt_cap());
            let of = most as f64;
            assert!((learnt / of - 1.0).abs() < 0.03, "{learnt} is not {of}");
        }
    }
    // Where there is none a depth is found, however small, and no cap.
    let mut lab = learning(SSD, None, "sfq", true);
    lab.driver
        .engine
        .device_mut()
        .adapt_depth(Nanos::ZERO, true);
    lab.guest(&Objective::default(), writes(32, 128 * KIB));
    lab.seconds(10);
    let depth = lab.driver.engine.device().adapted_depth();
    assert!(depth.is_some_and(|depth| depth < 4), "{depth:?}");
    assert_eq!(lab.driver.engine.device().learnt_cap(), None);
}
