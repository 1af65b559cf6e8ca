//! VMs that use a device at the same time: long I/Os go in parts, and a place is kept for who is
//! about to come again.

use super::lab::*;
use std::sync::Arc;
use tidegate_core::objective::Objective;
use tidegate_core::splitting::MaxIoShared;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, Entry};

fn bottleneck() -> Entry {
    let text = include_str!("../../../../../examples/bottleneck.toml");
    catalogue::parse(text, "bottleneck.toml").expect("an example")
}

/// Guest that waits for each answer, and thinks this long before it submits again.
fn patient(think: Nanos) -> Work {
    Work {
        think,
        ..reads(1, 16 * KIB)
    }
}

fn lab(entry: &Entry, policy: &str, depth: u32, part: u32) -> Lab {
    let mut lab = Lab::new(entry, None, depth, policy);
    lab.driver
        .engine
        .device_mut()
        .set_max_io_shared(MaxIoShared::Bytes(part));
    lab
}

/// MiB a second of one who waits for each answer and of one with a deep queue of longer requests.
fn together(policy: &str, depth: u32, part: u32, think: Nanos) -> [f64; 2] {
    let mut lab = lab(&bottleneck(), policy, depth, part);
    lab.guest(&Objective::default(), patient(think));
    lab.guest(&Objective::default(), reads(32, 128 * KIB));
    lab.seconds(1);
    let had = lab.seconds(10);
    [0, 1].map(|guest| had[guest].bytes as f64 / 10.0 / f64::from(MIB))
}

#[test]
fn equal_weights_are_equal_shares_for_who_waits_for_each_answer() {
    for policy in ["sfq", "mclock"] {
        for micros in [20, 60, 120] {
            let think = Nanos::from_micros(micros);
            let [a, b] = together(policy, 2, 16 * KIB, think);
            assert!(a >= 45.0, "{policy}, {think}: {a:.1} and {b:.1}");
            assert!(a + b >= 99.0, "{policy}, {think}: {a:.1} and {b:.1}");
        }
        // Neither parts alone nor the place alone would do.
        let whole = together(policy, 2, 0, Nanos::from_micros(60));
        assert!(whole[0] < 10.0, "{policy}: {whole:?}");
        let deep = together(policy, 32, 16 * KIB, Nanos::from_micros(60));
        assert!(deep[0] < 10.0, "{policy}: {deep:?}");
    }
}

/// Depth and length of parts are found by themselves, by a profile and without one.
#[test]
fn equal_weights_are_equal_shares_by_default() {
    let entry = bottleneck();
    for profiled in [true, false] {
        let mut lab = Lab::new(&entry, None, 32, "slo");
        let mut device = lab.driver.engine.device_mut();
        let profile = profiled.then(|| Arc::new(profile(&entry, 32)));
        device.set_profile(profile);
        device.set_max_io_shared(MaxIoShared::Auto);
        device.adapt_depth(Nanos::ZERO, true);
        lab.guest(&Objective::default(), patient(Nanos::from_micros(60)));
        lab.guest(&Objective::default(), reads(32, 128 * KIB));
        lab.seconds(10);
        let had = lab.seconds(20);
        let [a, b] = [0, 1].map(|guest| had[guest].bytes as f64 / 20.0 / f64::from(MIB));
        assert!(
            a >= 45.0 && a + b >= 95.0,
            "with a profile {profiled}: {a:.1} and {b:.1}"
        );
    }
}

/// With one in flight the pipe itself does 95.4: what is lost beyond is the policy's.
#[test]
fn credits_in_slices_leave_no_gap_that_hides_the_depth_that_is_needed() {
    for micros in [20, 120] {
        let entry = bottleneck();
        let mut lab = lab(&entry, "vfair", 32, 16 * KIB);
        lab.driver
            .engine
            .device_mut()
            .set_profile(Some(Arc::new(profile(&entry, 32))));
        lab.driver
            .engine
            .device_mut()
            .adapt_depth(Nanos::ZERO, true);
        lab.guest(&Objective::default(), patient(Nanos::from_micros(micros)));
        lab.guest(&Objective::default(), reads(32, 128 * KIB));
        lab.seconds(5);
        let had = lab.seconds(20);
        let [a, b] = [0, 1].map(|guest| had[guest].bytes as f64 / 20.0 / f64::from(MIB));
        let depth = lab.driver.engine.device().adapted_depth();
        assert!(
            a >= 45.0 && a + b >= 94.0,
            "{micros} us: {a:.1} and {b:.1} at {depth:?}"
        );
    }
}

#[test]
fn weights_decide_as_ever_among_those_who_always_wait() {
    let mut lab = lab(&bottleneck(), "sfq", 2, 16 * KIB);
    for weight in [100, 300] {
        let objective = Objective {
            weight,
            ..Objective::default()
        };
        lab.guest(&objective, reads(32, 128 * KIB));
    }
    lab.seconds(1);
    let had = lab.seconds(10);
    let ratio = had[1].bytes as f64 / had[0].bytes as f64;
    assert!((ratio - 3.0).abs() < 0.02, "{ratio}");
    assert!(lab.parts(0) > 0 && lab.parts(1) > 0);
}

#[test]
fn who_is_alone_is_not_split_and_who_waits_long_is_not_waited_for() {
    let mut alone = lab(&bottleneck(), "sfq", 2, 16 * KIB);
    alone.guest(&Objective::default(), reads(32, 128 * KIB));
    alone.seconds(1);
    assert_eq!(alone.parts(0), 0);
    // A neighbour comes, and goes.
    alone.guest(&Objective::default(), patient(Nanos::from_micros(50)));
    alone.seconds(1);
    let beside = alone.parts(0);
    assert!(beside > 1000, "{beside}");
    alone.works(1, reads(0, 16 * KIB));
    alone.seconds(1);
    let after = alone.parts(0);
    alone.seconds(1);
    assert_eq!(alone.parts(0), after);
    // One that thinks for 5 ms costs its neighbour what it moves, and nothing else.
    let [a, b] = together("sfq", 2, 16 * KIB, Nanos::from_millis(5));
    assert!(a < 4.0 && a + b > 99.5, "{a} and {b}");
}

#[test]
fn what_costs_a_disk_seeks_stays_whole() {
    for (name, splits) in [("hdd-7200-1tb", false), ("ssd-sata-300gb", true)] {
        let entry = catalogue::load(name).expect("of the catalogue");
        let mut lab = lab(&entry, "sfq", 4, 16 * KIB);
        lab.driver
            .engine
            .device_mut()
            .set_profile(Some(Arc::new(profile(&entry, 8))));
        lab.guest(&Objective::default(), patient(Nanos::from_micros(50)));
        lab.guest(&Objective::default(), reads(32, 128 * KIB));
        lab.seconds(5);
        assert_eq!(lab.parts(1) > 0, splits, "{name}");
    }
}
