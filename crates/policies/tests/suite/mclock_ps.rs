//! `mclock-ps` is what mClock does among VMs that have weights and nothing else.

use crate::common::*;
use proptest::prelude::*;
use tidegate_core::objective::{Objective, Rate};
use tidegate_core::policy::Policy;
use tidegate_core::request::Op;
use tidegate_policies::dispatch::cost::CostBy;
use tidegate_policies::policy::PolicySpec;

fn mclock() -> PolicySpec {
    let mut spec = policy("mclock");
    let cost = CostBy::WORDS.iter().position(|&w| w == "size-classes");
    spec.set("cost", cost.expect("a word") as u64).expect("one");
    spec
}

/// Returns the VM of each I/O in the order of service. `vms`: weight, request size and number of
/// waiting requests of each.
fn order(policy: &PolicySpec, depth: u32, vms: &[(u32, u32, u32)]) -> Vec<usize> {
    let mut world = World::with_policy(config(depth, 0), policy, MS);
    let guests: Vec<Guest> = vms.iter().map(|vm| world.guest(&weighted(vm.0))).collect();
    for (guest, &(_, len, waiting)) in guests.iter().zip(vms) {
        world.load(*guest, Op::Read, len, waiting);
    }
    world.run(2 * SECOND);
    let whose = |start: &Start| guests.iter().position(|g| g.vm == start.io.vm);
    let order = world
        .driver
        .log
        .iter()
        .map(|s| whose(s).expect("one of them"));
    order.collect()
}

proptest! {
    #[test]
    fn it_goes_as_mclock_does_where_nobody_has_a_floor_or_a_cap(
        vms in prop::collection::vec((1u32..=10_000, 512u32..=1 << 20, 9u32..=32), 1..8),
        depth in 1u32..=8,
    ) {
        // Everybody always waits: more are asked for than the device takes.
        let vms: Vec<_> = vms.iter().map(|&(w, len, n)| (w, len / 512 * 512, n)).collect();
        let ours = order(&policy("mclock-ps"), depth, &vms);
        prop_assert_eq!(ours, order(&mclock(), depth, &vms));
    }
}

#[test]
fn a_request_counts_one_for_every_16_kib() {
    // 16 KiB, 17 KiB and 128 KiB: one, two and eight.
    let vms = [
        (100, 16 << 10, 16),
        (100, 17 << 10, 16),
        (100, 128 << 10, 16),
    ];
    let order = order(&policy("mclock-ps"), 1, &vms);
    let got = [0, 1, 2].map(|vm| order.iter().filter(|&&of| of == vm).count() as u64);
    let all: u64 = 8 + 4 + 1;
    for (got, part) in got.into_iter().zip([8, 4, 1]) {
        let fair = 2000 * part / all;
        assert!(got.abs_diff(fair) <= 2, "{got} of {fair}");
    }
}

#[test]
fn nothing_but_weights_is_promised() {
    let enforces = policy("mclock-ps").enforces();
    assert!(enforces.weight);
    assert!(!enforces.reservation && !enforces.limit);
    let mut world = World::new("mclock-ps", MS);
    let floor = world.guest(&Objective {
        reservation: Rate::iops(900),
        ..weighted(1)
    });
    let other = world.guest(&weighted(9));
    for guest in [floor, other] {
        world.load(guest, Op::Read, 4096, 8);
    }
    world.run(SECOND);
    assert!(total(&world.ops(floor)).abs_diff(100) <= 1);
}
