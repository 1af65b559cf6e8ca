//! vFair as a whole: its controller, its regulator and its dispatcher on a device that takes its time.

mod common;

use common::*;
use proptest::prelude::*;
use std::sync::Arc;
use tidegate_core::policy::PolicySpec;
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::request::{DeviceIo, Op};

/// Nanoseconds that the device takes for a random read.
fn time(bytes: u32) -> u64 {
    120_000 + 5 * u64::from(bytes)
}

/// The profile of that, all of it wrong by a factor: above 1 it says that the device is faster.
fn profile(wrong: f64) -> Arc<Profile> {
    let sizes = [4096, 16384, 65536, 131_072];
    let points = sizes.map(|size| (size, 1e9 / time(size) as f64 * wrong));
    let curve = || Curve::new(&points).expect("a curve");
    let profile = Profile::new([curve(), curve()], None, Vec::new(), Vec::new());
    Arc::new(profile)
}

fn world(policy: &PolicySpec, wrong: f64) -> World {
    let mut world = World::of(config(64, 0), policy, 0);
    world.takes = Some(Box::new(|io: &DeviceIo| time(io.len)));
    world.engine.set_profile(Some(profile(wrong)));
    world
}

/// Part of the time since then that the device was busy, and of its time each VM's part.
fn used(world: &World, guests: &[Guest], since: u64) -> (f64, Vec<f64>) {
    let log = || world.log.iter().filter(|s| s.at >= since);
    let of = |guest: &Guest| {
        let its = log().filter(|s| s.io.vm == guest.vm);
        its.map(|s| time(s.io.len)).sum::<u64>() as f64
    };
    let all: Vec<f64> = guests.iter().map(of).collect();
    let sum: f64 = all.iter().sum();
    let parts = all.iter().map(|of| of / sum).collect();
    (sum / (world.now - since) as f64, parts)
}

/// Three VMs of these weights that always want more, with requests of these sizes; each keeps so many
/// inside that what is in flight at the depth of 32 may all be its own.
fn backlogged(policy: &PolicySpec, wrong: f64, vms: &[(u32, u32)]) -> (World, Vec<Guest>) {
    let mut world = world(policy, wrong);
    let guests: Vec<Guest> = vms.iter().map(|vm| world.guest(&weighted(vm.0))).collect();
    for (guest, &(_, len)) in guests.iter().zip(vms) {
        world.load(*guest, Op::Read, len, 64);
    }
    (world, guests)
}

fn assert_fair(wrong: f64, vms: &[(u32, u32)], busy: f64, parts: &[f64]) {
    assert!(busy >= 0.9, "{vms:?}, wrong by {wrong}: {busy} busy");
    let all: u32 = vms.iter().map(|vm| vm.0).sum();
    for (part, &(weight, _)) in parts.iter().zip(vms) {
        let fair = f64::from(weight) / f64::from(all);
        let off = (part / fair - 1.0).abs();
        assert!(off <= 0.05, "{vms:?}, wrong by {wrong}: {parts:?}");
    }
}

#[test]
fn a_profile_that_is_wrong_all_over_still_gives_fair_shares_after_five_seconds() {
    for wrong in [0.1, 0.3, 1.0, 3.0, 10.0] {
        for policy in ["vfair", "vfair-bops", "vfair-bsps"] {
            let vms = [(100, 16 * KIB), (200, 64 * KIB), (300, 128 * KIB)];
            let (mut world, guests) = backlogged(&common::policy(policy), wrong, &vms);
            world.run(5 * SECOND);
            let since = world.now;
            world.run(5 * SECOND);
            let (busy, parts) = used(&world, &guests, since);
            assert_fair(wrong, &vms, busy, &parts);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 16,
        ..ProptestConfig::default()
    })]

    #[test]
    fn shares_are_fair_whatever_weights_sizes_and_errors(
        vms in prop::collection::vec((20u32..=500, 1u32..=32), 2..6),
        wrong in -1.0f64..=1.0,
    ) {
        let vms: Vec<(u32, u32)> = vms.iter().map(|&(w, n)| (w, n * 4 * KIB)).collect();
        let wrong = 10f64.powf(wrong);
        let (mut world, guests) = backlogged(&policy("vfair"), wrong, &vms);
        world.run(5 * SECOND);
        let since = world.now;
        world.run(4 * SECOND);
        let (busy, parts) = used(&world, &guests, since);
        assert_fair(wrong, &vms, busy, &parts);
    }
}

#[test]
fn an_idle_vm_does_not_hold_the_others_back() {
    let vms = [(300, 16 * KIB), (100, 64 * KIB), (100, 128 * KIB)];
    let (mut world, guests) = backlogged(&policy("vfair"), 1.0, &vms);
    world.run(3 * SECOND);
    world.unload(guests[0]);
    // Four periods until it is counted out, and four until nothing is passed on any more.
    world.run(300 * MS);
    let since = world.now;
    world.run(SECOND);
    let (busy, parts) = used(&world, &guests, since);
    assert!(busy >= 0.98, "{busy}");
    assert_eq!(parts[0], 0.0);
    assert!((parts[1] - 0.5).abs() <= 0.025, "{parts:?}");
    // It is back at once.
    world.load(guests[0], Op::Read, 16 * KIB, 64);
    let since = world.now;
    world.run(SECOND);
    let (busy, parts) = used(&world, &guests, since);
    assert!(busy >= 0.95 && parts[0] >= 0.55, "{busy} {parts:?}");
}
