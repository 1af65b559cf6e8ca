//! Tests of background processes under dispatchers without support for them: they get what VMs
//! leave.

use crate::common::{KIB, MS, SECOND, World, config, limited, total};
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::policy::Policy;
use tidegate_core::request::{Op, Request};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::{PolicySpec, registry};

/// Returns every named policy whose dispatcher leaves the background to the engine.
fn policies() -> impl Iterator<Item = &'static str> {
    let left = |name: &&'static str| {
        let spec = PolicySpec::named(name).expect("it is registered");
        spec.params()
            .iter()
            .copied()
            .any(|(info, _)| info.name == "background_after")
    };
    registry().iter().map(|info| info.name).filter(left)
}

#[test]
fn a_saturated_device_gives_the_background_one_io_each_half_second() {
    for policy in policies() {
        let mut w = World::new(policy, MS);
        let vm = w.guest(&Objective::default());
        let backup = w.background();
        w.load(vm, Op::Read, 4 * KIB, 8);
        w.load(backup, Op::Read, 64 * KIB, 8);
        w.run(10 * SECOND);
        let (background_ios, vm_ios) = (total(&w.ops(backup)), total(&w.ops(vm)));
        assert!(
            (19..=20).contains(&background_ios),
            "{policy}: {background_ios} of the background"
        );
        // Credits are too few until the device's rate is known, a fraction of a second here.
        let spec = PolicySpec::named(policy).expect("it is registered");
        let idle = if spec.parts().1 == "circ" { 100 } else { 1 };
        let all = background_ios + vm_ios;
        assert!(all >= 10_000 - idle, "{policy}: the device was busy: {all}");
    }
}

#[test]
fn without_promotion_a_saturated_device_gives_the_background_nothing() {
    let mut w = World::new("fifo", MS);
    let policy = PolicySpec::behind(&**w.driver.engine.policy());
    let mut spec = policy.expect("composed of parts").clone();
    spec.set("background_after", 0)
        .expect("it has this parameter");
    w.driver.engine.set_policy(Nanos::ZERO, &spec);
    let vm = w.guest(&Objective::default());
    let backup = w.background();
    w.load(backup, Op::Read, 64 * KIB, 8);
    w.run(100 * MS);
    let before = total(&w.ops(backup));
    assert!(before > 90, "alone it has the device: {before}");
    w.load(vm, Op::Read, 4 * KIB, 8);
    w.run(10 * SECOND);
    let during = total(&w.ops(backup)) - before;
    assert!(during <= 1, "{during} went beside a saturating VM");
}

#[test]
fn background_alone_has_the_whole_device_up_to_its_depth() {
    for policy in policies() {
        let mut w = World::with_config(config(8, 0), policy, MS);
        w.guest(&Objective::default());
        let backup = w.background();
        w.load(backup, Op::Write, 64 * KIB, 16);
        w.run(SECOND);
        assert!(total(&w.ops(backup)) >= 990, "{policy}");
        assert_eq!(
            w.driver.engine.vms().in_flight(backup.vm),
            // The default of `background_depth`.
            4,
            "{policy}: background_depth"
        );
    }
}

#[test]
fn background_waits_for_a_quiet_vm_only_where_positioning_costs_time() {
    for (positioning, at_least, at_most) in
        [(Nanos::from_millis(12), 0, 4), (Nanos::ZERO, 500, 1001)]
    {
        let mut config = config(8, 0);
        config.device.positioning = positioning;
        let mut w = World::with_config(config, "mclock", MS);
        let vm = w.guest(&Objective::default());
        let backup = w.background();
        // One request at a time, the next at once: the device always has one of it.
        w.load(vm, Op::Read, 4 * KIB, 1);
        w.load(backup, Op::Read, 64 * KIB, 8);
        w.run(2 * SECOND);
        let background_ios = total(&w.ops(backup));
        assert!(
            (at_least..=at_most).contains(&background_ios),
            "{background_ios} at {positioning}"
        );
        // The VM stops asking: after the grace all of the device is the background's.
        w.unload(vm);
        let before = total(&w.ops(backup));
        w.run(SECOND);
        assert!(total(&w.ops(backup)) - before >= 990);
    }
}

/// Returns the background's I/Os in ten seconds in which a VM issues one request at a time, 0.1 ms
/// each, with a pause after each.
fn beside_pauses(positioning: Nanos, pause: u64) -> u64 {
    let mut config = config(8, 0);
    config.device.positioning = positioning;
    let mut w = World::with_config(config, "mclock", MS / 10);
    let vm = w.guest(&Objective::default());
    let backup = w.background();
    w.load(backup, Op::Read, 64 * KIB, 8);
    w.load(vm, Op::Read, 4 * KIB, 1);
    while w.time() < Nanos(10 * SECOND) {
        w.run(1);
        w.pause(vm, pause);
    }
    total(&w.ops(backup))
}

#[test]
fn in_pauses_shorter_than_the_grace_only_promotion_serves_the_background() {
    let seek = Nanos::from_millis(12);
    // Every completion restarts the grace of 2 ms, so only promotion (one I/O per 500 ms) lets the
    // background run.
    let short = beside_pauses(seek, 3 * MS / 2);
    assert!((19..=20).contains(&short), "{short}");
    let long = beside_pauses(seek, 4 * MS);
    assert!(long > 20_000, "{long}");
    // Without positioning time the background runs beside the VM's I/O, one for each; the pause
    // after it is shorter than the grace.
    let beside = beside_pauses(Nanos::ZERO, 3 * MS / 2);
    assert!((6_000..=7_000).contains(&beside), "{beside}");
}

#[test]
fn a_vm_held_by_its_limit_leaves_the_device_to_the_background() {
    for policy in ["limit", "mclock"] {
        let mut w = World::new(policy, MS);
        let vm = w.guest(&limited(Rate::iops(10)));
        let backup = w.background();
        w.load(vm, Op::Read, 4 * KIB, 4);
        w.load(backup, Op::Read, 64 * KIB, 4);
        w.run(10 * SECOND);
        let (background_ios, vm_ios) = (total(&w.ops(backup)), total(&w.ops(vm)));
        assert!(
            (100..=101).contains(&vm_ios),
            "{policy}: {vm_ios} within the limit"
        );
        assert!(
            background_ios > 9_000,
            "{policy}: {background_ios} of the background"
        );
    }
}

#[test]
fn background_limit_holds_under_a_regulator_of_limits() {
    let mut w = World::new("limit", MS);
    w.guest(&Objective::default());
    let backup = w.background();
    w.set(backup, &limited(Rate::iops(50)));
    w.load(backup, Op::Read, 64 * KIB, 4);
    w.run(10 * SECOND);
    let background_ios = total(&w.ops(backup));
    assert!(
        (500..=501).contains(&background_ios),
        "{background_ios} under a limit of 50 a second"
    );
}

#[test]
fn background_is_served_across_policy_changes_and_removals() {
    let mut w = World::with_config(config(4, 0), "fifo", MS);
    let vm = w.guest(&Objective::default());
    let backup = w.background();
    w.load(vm, Op::Read, 4 * KIB, 1);
    w.load(backup, Op::Write, 4 * KIB, 8);
    for policy in policies().chain(policies()) {
        let before = (total(&w.ops(backup)), total(&w.ops(vm)));
        w.swap(policy);
        w.run(50 * MS);
        let after = (total(&w.ops(backup)), total(&w.ops(vm)));
        assert!(after.0 > before.0 && after.1 > before.1, "{policy}");
    }
    w.remove_vm(vm);
    let later = w.guest(&Objective::default());
    w.load(later, Op::Read, 4 * KIB, 1);
    w.run(50 * MS);
    assert!(total(&w.ops(later)) > 0);
    w.remove_vm(backup);
    let again = w.background();
    w.load(again, Op::Read, 4 * KIB, 1);
    w.run(50 * MS);
    assert!(total(&w.ops(again)) > 0);
}

#[test]
fn a_flush_of_the_background_goes_and_its_client_may_vanish() {
    let mut w = World::new("sfq", MS);
    w.keep_done = true;
    let vm = w.guest(&Objective::default());
    let backup = w.background();
    w.load(vm, Op::Read, 4 * KIB, 2);
    for request in [
        Request::write(0, 4096, 70),
        Request::flush(71),
        Request::write(8192, 4096, 72),
    ] {
        let taken = w.driver.request(backup.client, request);
        taken.expect("there is room");
    }
    w.run(5 * MS);
    assert!(w.done.iter().any(|d| d.tag == 71 && d.outcome.is_ok()));
    w.driver.disconnect(backup.client);
    w.run(5 * MS);
    let ended: Vec<u64> = w.done.iter().map(|d| d.tag).filter(|&t| t >= 70).collect();
    assert_eq!(ended.len(), 3, "each was answered once: {ended:?}");
}

#[test]
fn the_device_is_never_left_idle_for_ever_with_background_waiting() {
    // The grace has a timer of its own: nothing else would wake the engine.
    let mut w = World::new("drr", MS);
    let vm = w.guest(&Objective::default());
    let backup = w.background();
    w.load(vm, Op::Read, 4 * KIB, 1);
    w.run(10 * MS);
    w.unload(vm);
    w.load(backup, Op::Read, 4 * KIB, 1);
    w.run(MS);
    assert_eq!(total(&w.ops(backup)), 0, "the grace");
    w.run(4 * MS);
    assert!(total(&w.ops(backup)) > 0);
}
