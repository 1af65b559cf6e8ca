//! Tests of vFair as a whole: controller, regulator and dispatcher on a device with its own service
//! times.

use crate::common::*;
use proptest::prelude::*;
use std::sync::Arc;
use tidegate_core::objective::{Group, Objective};
use tidegate_core::profile::{Curve, Profile};
use tidegate_core::request::{Op, Request};
use tidegate_core::splitting::MaxIoShared;
use tidegate_policies::policy::PolicySpec;

/// Returns the nanoseconds that the device takes for a random read.
fn time(bytes: u32) -> u64 {
    120_000 + 5 * u64::from(bytes)
}

/// Returns the device's profile with all rates wrong by a factor; above 1 it claims a faster
/// device.
fn profile(wrong: f64) -> Arc<Profile> {
    let sizes = [4096, 16384, 65536, 131_072];
    let points = sizes.map(|size| (size, 1e9 / time(size) as f64 * wrong));
    let curve = || Curve::new(&points).expect("a curve");
    let profile = Profile::new([curve(), curve()], None, Vec::new(), Vec::new());
    Arc::new(profile)
}

fn world(policy: &PolicySpec, wrong: f64) -> World {
    let mut world = World::with_policy(config(64, 0), policy, 0);
    world.device.takes = Some(|io| time(io.len));
    world
        .driver
        .engine
        .device_mut()
        .set_profile(Some(profile(wrong)));
    world
}

/// Returns the part of the time since `since` that the device was busy, and each VM's part of that.
fn used(world: &World, guests: &[Guest], since: u64) -> (f64, Vec<f64>) {
    let log = || world.driver.log.iter().filter(|s| s.at >= since);
    let of = |guest: &Guest| {
        let its = log().filter(|s| s.io.vm == guest.vm);
        its.map(|s| time(s.io.len)).sum::<u64>() as f64
    };
    let all: Vec<f64> = guests.iter().map(of).collect();
    let sum: f64 = all.iter().sum();
    let parts = all.iter().map(|of| of / sum).collect();
    (sum / (world.now() - since) as f64, parts)
}

/// Creates VMs of these weights and request sizes that always want more. Each keeps enough requests
/// inside to fill the queue of depth 32 alone.
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
            let (mut world, guests) = backlogged(&crate::common::policy(policy), wrong, &vms);
            world.run(5 * SECOND);
            let since = world.now();
            world.run(5 * SECOND);
            let (busy, parts) = used(&world, &guests, since);
            assert_fair(wrong, &vms, busy, &parts);
        }
    }
}

/// Checks shares by learnt costs. The estimator knows a cost for each power of two and interpolates
/// between them; it is not told that the device's times are linear.
#[test]
fn without_a_profile_shares_are_fair_once_costs_are_learnt() {
    for policy in ["vfair", "vfair-bops"] {
        let vms = [(100, 16 * KIB), (200, 64 * KIB), (300, 128 * KIB)];
        let (mut world, guests) = backlogged(&crate::common::policy(policy), 1.0, &vms);
        world.driver.engine.device_mut().set_profile(None);
        world.run(20 * SECOND);
        let since = world.now();
        world.run(10 * SECOND);
        let (busy, parts) = used(&world, &guests, since);
        assert_fair(1.0, &vms, busy, &parts);
        let learnt = world
            .driver
            .engine
            .device()
            .learnt_costs()
            .expect("there is no profile");
        assert!(learnt.relative_half_width() < 0.1, "{policy}: {learnt:?}");
        // With a profile there is nothing to be learnt.
        world
            .driver
            .engine
            .device_mut()
            .set_profile(Some(profile(1.0)));
        assert_eq!(world.driver.engine.device().learnt_costs(), None);
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
        let since = world.now();
        world.run(4 * SECOND);
        let (busy, parts) = used(&world, &guests, since);
        assert_fair(wrong, &vms, busy, &parts);
    }
}

/// Checks a profile that claims a device ten times as fast: at first everything that the guests
/// have is inside, a third of it each VM's, and the scale falls. The heavy VM, which has less
/// inside than its part then, must not keep its scale while those of the others fall.
#[test]
fn a_heavy_vm_does_not_keep_its_scale_while_all_requests_are_inside() {
    let vms = [(116, 4 * KIB), (20, 4 * KIB), (20, 4 * KIB)];
    for correction in ["per-vm", "common"] {
        let place = u64::from(correction == "common");
        let mut policy = policy("vfair");
        policy.set("correction", place).expect("a choice");
        let (mut world, guests) = backlogged(&policy, 9.86, &vms);
        world.run(5 * SECOND);
        let since = world.now();
        world.run(4 * SECOND);
        let (busy, parts) = used(&world, &guests, since);
        assert_fair(9.86, &vms, busy, &parts);
    }
}

/// Checks that the scale exceeds its bound of 20 while the device stands idle.
#[test]
fn a_profile_that_is_wrong_beyond_all_bounds_does_not_leave_the_device_idle() {
    let vms = [(100, 16 * KIB), (200, 64 * KIB)];
    let (mut world, guests) = backlogged(&policy("vfair"), 0.001, &vms);
    world.run(15 * SECOND);
    let since = world.now();
    world.run(5 * SECOND);
    let (busy, parts) = used(&world, &guests, since);
    assert_fair(0.001, &vms, busy, &parts);
}

/// Checks that a guest with a flush always in flight, like a database, does not prevent learning.
#[test]
fn costs_are_learnt_beside_flushes() {
    let policy = policy("vfair");
    let (mut world, _) = backlogged(&policy, 1.0, &[(1000, 16 * KIB), (100, 128 * KIB)]);
    world.driver.engine.device_mut().set_profile(None);
    let database = world.guest(&weighted(100));
    world.load(database, Op::Flush, 0, 1);
    world.run(30 * SECOND);
    let learnt = world
        .driver
        .engine
        .device()
        .learnt_costs()
        .expect("there is no profile");
    assert!(learnt.windows > 100, "{learnt:?}");
}

/// Checks that a part of a request costs its part of one where requests are counted. Otherwise all
/// parts of a request would go in a row once the first was paid for.
#[test]
fn parts_of_a_request_are_paid_for_one_by_one() {
    let mut world = world(&policy("vfair"), 1.0);
    world.driver.engine.device_mut().set_profile(None);
    world
        .driver
        .engine
        .device_mut()
        .set_max_io_shared(MaxIoShared::Bytes(16 * KIB));
    let [small, large] = [world.guest(&weighted(100)), world.guest(&weighted(100))];
    world.load(small, Op::Read, 16 * KIB, 64);
    world.load(large, Op::Read, 1024 * KIB, 64);
    world.run(20 * SECOND);
    let since = world.now();
    world.run(5 * SECOND);
    let log: Vec<_> = world.driver.log.iter().filter(|s| s.at >= since).collect();
    let rows = log.chunk_by(|a, b| a.io.vm == b.io.vm);
    let of_large = rows.filter(|row| row[0].io.vm == large.vm);
    let rows: Vec<usize> = of_large.map(<[_]>::len).collect();
    let mean = rows.iter().sum::<usize>() / rows.len();
    assert!(mean <= 8, "{mean} parts of 64 in a row");
}

/// Checks shares where guests keep fewer requests outstanding than the depth. With all of them
/// inside, no VM would ever be held.
#[test]
fn shares_hold_where_guests_queues_are_shorter_than_the_depth() {
    for queue in [10, 16, 24, 40] {
        for policy in ["vfair", "vfair-bops", "vfair-bsps"] {
            let mut world = world(&crate::common::policy(policy), 1.0);
            let guests = [1000, 100].map(|weight| world.guest(&weighted(weight)));
            world.load(guests[0], Op::Read, 16 * KIB, queue);
            world.load(guests[1], Op::Read, 128 * KIB, queue);
            world.run(20 * SECOND);
            let since = world.now();
            world.run(10 * SECOND);
            let (busy, parts) = used(&world, &guests, since);
            assert!(busy >= 0.98, "{policy}, {queue} each: {busy} busy");
            // The strict strategy swings a little.
            let least = if policy == "vfair-bsps" { 0.04 } else { 0.08 };
            let near = (least..=0.1).contains(&parts[1]);
            assert!(near, "{policy}, {queue} each: {parts:?}, due is 0.091");
        }
    }
}

/// Checks a background process: its queue waits for what VMs leave and is held by no credits, so it
/// must not count as admitted in excess.
#[test]
fn a_background_process_has_what_vms_leave_however_deep_its_queue() {
    for depth in [4, 16, 64] {
        let vms = [(100, 16 * KIB), (300, 64 * KIB)];
        let (mut world, guests) = backlogged(&policy("vfair"), 1.0, &vms);
        let background = world.background();
        world.load(background, Op::Read, 16 * KIB, depth);
        world.run(10 * SECOND);
        let since = world.now();
        world.run(5 * SECOND);
        let (busy, parts) = used(&world, &[guests[0], guests[1], background], since);
        assert!(busy >= 0.98, "depth {depth}: {busy} busy");
        assert!(parts[2] <= 0.05, "depth {depth}: {parts:?}");
        let first = parts[0] / (parts[0] + parts[1]);
        assert!((first - 0.25).abs() <= 0.0125, "depth {depth}: {parts:?}");
    }
}

/// Runs a VM that reads in sequence, one request at a time, beside two with deep random queues, on
/// a device whose profile has sequential reads at a tenth of the cost; returns the reads a second
/// of each, and the mean number of requests inside.
fn beside_a_stream(strategy: &str, correction: u64) -> ([f64; 3], f64) {
    let mut policy = policy(strategy);
    policy.set("correction", correction).expect("a choice");
    policy.set("lend", 0).expect("a flag");
    let sizes = [4096, 16384, 65536, 131_072];
    let curve = |cheaper: f64| {
        let points = sizes.map(|size| (size, 1e9 / time(size) as f64 * cheaper));
        Curve::new(&points).expect("a curve")
    };
    let profile = Profile::new([curve(10.0), curve(1.0)], None, Vec::new(), Vec::new());
    let mut world = world(&policy, 1.0);
    let device = &mut world.driver.engine.device_mut();
    device.set_profile(Some(Arc::new(profile)));
    let guests = [16, 64, 64].map(|kib| (world.guest(&weighted(100)), kib * KIB));
    world.load_in_order(guests[0].0, guests[0].1, 1);
    world.load(guests[1].0, Op::Read, guests[1].1, 64);
    world.load(guests[2].0, Op::Read, guests[2].1, 64);
    world.run(10 * SECOND);
    let before = guests.map(|(guest, _)| total(&world.ops(guest)));
    let (mut inside, mut samples) = (0, 0);
    for _ in 0..1000 {
        world.run(7 * MS);
        inside += world.driver.engine.device_stats().inside();
        samples += 1;
    }
    let rates = [0, 1, 2].map(|at| (total(&world.ops(guests[at].0)) - before[at]) as f64 / 7.0);
    (rates, f64::from(inside) / f64::from(samples))
}

#[test]
fn the_three_strategies_differ_in_what_they_let_in_beside_a_stream() {
    let [bops, baps, bsps] =
        ["vfair-bops", "vfair", "vfair-bsps"].map(|strategy| beside_a_stream(strategy, 0));
    // The deduction of BAPS leaves the stream more than BOPS does, and the cut of BSPS more still.
    assert!(baps.0[0] > 1.05 * bops.0[0], "{bops:?} {baps:?}");
    assert!(bsps.0[0] > 1.05 * baps.0[0], "{baps:?} {bsps:?}");
    assert!(baps.1 < bops.1, "{bops:?} {baps:?}");
    // With one scale for all, the feedback undoes the deduction.
    let [bops, baps] = ["vfair-bops", "vfair"].map(|strategy| beside_a_stream(strategy, 1));
    assert!(
        (baps.0[0] / bops.0[0] - 1.0).abs() < 0.05,
        "{bops:?} {baps:?}"
    );
}

/// Checks that a VM which asks for little keeps only a small part of the queue free, though its
/// requests take longer than its share would allow: the device is used nearly as with one scale for
/// all.
#[test]
fn a_vm_that_gets_all_it_asks_for_does_not_waste_the_device() {
    let busy = |correction| {
        let mut policy = policy("vfair");
        for (name, value) in [("correction", correction), ("lend", 0)] {
            policy.set(name, value).expect("a parameter");
        }
        policy.set("latency_target", 5 * MS).expect("a time");
        let mut world = world(&policy, 1.0);
        let [light, heavy] = [0, 1].map(|_| world.guest(&weighted(100)));
        world.load(heavy, Op::Read, 64 * KIB, 256);
        let mut since = 0;
        for number in 0..2000_u64 {
            if number == 1000 {
                since = world.now();
            }
            let request = Request::read(number * (1 << 20), 16 * KIB, u64::MAX);
            world.ask(light, request);
            world.run(5 * MS);
        }
        let (busy, parts) = used(&world, &[light, heavy], since);
        // 200 requests a second of 202 us each.
        assert!((busy * parts[0] - 0.0404).abs() < 0.002, "{busy} {parts:?}");
        busy
    };
    let [own, common] = [0, 1].map(busy);
    assert!(own >= 0.93 && own >= common - 0.06, "{own} {common}");
}

#[test]
fn an_idle_vm_does_not_hold_the_others_back() {
    let vms = [(300, 16 * KIB), (100, 64 * KIB), (100, 128 * KIB)];
    let (mut world, guests) = backlogged(&policy("vfair"), 1.0, &vms);
    world.run(3 * SECOND);
    world.unload(guests[0]);
    // Four periods until the VM no longer competes, and four until no more credits are passed on.
    world.run(300 * MS);
    let since = world.now();
    world.run(SECOND);
    let (busy, parts) = used(&world, &guests, since);
    assert!(busy >= 0.98, "{busy}");
    assert_eq!(parts[0], 0.0);
    assert!((parts[1] - 0.5).abs() <= 0.025, "{parts:?}");
    // The VM gets its share again at once.
    world.load(guests[0], Op::Read, 16 * KIB, 64);
    let since = world.now();
    world.run(SECOND);
    let (busy, parts) = used(&world, &guests, since);
    assert!(busy >= 0.95 && parts[0] >= 0.55, "{busy} {parts:?}");
}

/// Checks the burst of a VM that was alone and returns among others: its former allocation does not
/// count.
#[test]
fn a_vm_that_was_alone_comes_back_with_the_burst_of_its_part_today() {
    let mut world = world(&policy("vfair"), 1.0);
    let first = world.guest(&weighted(100));
    let others = [100; 10].map(|weight| world.guest(&weighted(weight)));
    world.load(first, Op::Read, 16 * KIB, 64);
    world.run(2 * SECOND);
    world.unload(first);
    world.run(SECOND);
    assert_eq!(
        world.driver.engine.view().allocation(first.vm),
        0,
        "counted out"
    );
    for guest in others {
        world.load(guest, Op::Read, 16 * KIB, 64);
    }
    world.run(2 * SECOND);
    let before = world.driver.engine.device_stats().inside();
    world.load(first, Op::Read, 16 * KIB, 500);
    let at_once = world.driver.engine.device_stats().inside() - before;
    // An eleventh of the device for two periods, and for the rest of this one.
    let part = 3.0 * 0.03 * 1e9 / time(16 * KIB) as f64 / 11.0;
    assert!(
        (1.0..=1.2 * part).contains(&f64::from(at_once)),
        "{at_once} at once, {part} are due"
    );
    let allocation = world.driver.engine.view().allocation(first.vm);
    let other = world.driver.engine.view().allocation(others[0].vm);
    assert!(allocation <= other * 11 / 10, "{allocation} beside {other}");
}

#[test]
fn a_group_has_one_share_however_many_of_its_vms_want_something() {
    let in_group = |weight| Objective {
        group: Some(Group::named("servers".parse().expect("short"))),
        ..weighted(weight)
    };
    let mut world = world(&policy("vfair"), 1.0);
    let alone = world.guest(&weighted(100));
    let group = [100, 300, 100].map(|weight| world.guest(&in_group(weight)));
    let guests = [alone, group[0], group[1], group[2]];
    world.load(alone, Op::Read, 16 * KIB, 64);
    world.load(group[0], Op::Read, 64 * KIB, 64);
    world.load(group[1], Op::Read, 64 * KIB, 64);
    let parts = |world: &mut World| {
        world.run(SECOND);
        let since = world.now();
        world.run(2 * SECOND);
        used(world, &guests, since).1
    };
    let near = |parts: &[f64], expected: [f64; 4]| {
        let off = parts
            .iter()
            .zip(expected)
            .any(|(p, e)| (p - e).abs() > 0.02);
        assert!(!off, "{parts:?} is not {expected:?}");
    };
    // One of the group's three VMs has no requests.
    near(&parts(&mut world), [0.5, 0.125, 0.375, 0.0]);
    world.load(group[2], Op::Read, 64 * KIB, 64);
    near(&parts(&mut world), [0.5, 0.1, 0.3, 0.1]);
    // A larger group weight takes effect when it is set, and so does leaving the group.
    let heavier = Group {
        weight: 300,
        ..Group::named("servers".parse().expect("short"))
    };
    world.set(
        group[1],
        &Objective {
            group: Some(heavier),
            ..weighted(300)
        },
    );
    near(&parts(&mut world), [0.25, 0.15, 0.45, 0.15]);
    for (guest, weight) in group.into_iter().zip([100, 300, 100]) {
        world.set(guest, &weighted(weight));
    }
    near(&parts(&mut world), [1.0 / 6.0, 1.0 / 6.0, 0.5, 1.0 / 6.0]);
}

/// Checks that the group of a VM that leaves its share uses that share first.
#[test]
fn a_group_keeps_its_share_where_most_of_its_vms_only_trickle() {
    let in_group = |weight| Objective {
        group: Some(Group::named("servers".parse().expect("short"))),
        ..weighted(weight)
    };
    let mut world = world(&policy("vfair"), 1.0);
    let alone = world.guest(&weighted(100));
    let group = [100; 4].map(|weight| world.guest(&in_group(weight)));
    world.load(alone, Op::Read, 64 * KIB, 64);
    world.load(group[0], Op::Read, 64 * KIB, 64);
    for &guest in &group[1..] {
        world.load(guest, Op::Read, 4 * KIB, 1);
    }
    world.run(10 * SECOND);
    let since = world.now();
    world.run(10 * SECOND);
    let guests = [alone, group[0], group[1], group[2], group[3]];
    let (busy, parts) = used(&world, &guests, since);
    assert!(busy >= 0.98, "{busy} busy");
    assert!((parts[0] - 0.5).abs() <= 0.025, "{parts:?}");
}

/// VM of the oracle: its weight, its group, the size of its requests, and `true` if it wants any.
#[derive(Clone, Debug)]
struct Wants {
    weight: u32,
    group: Option<Group>,
    len: u32,
    wants: bool,
}

impl Wants {
    fn objective(&self) -> Objective {
        Objective {
            group: self.group,
            ..weighted(self.weight)
        }
    }
}

fn wants() -> impl Strategy<Value = Wants> {
    let group = prop_oneof![
        2 => Just(None),
        1 => (0usize..2, 1u32..=500).prop_map(|(name, weight)| Some((name, weight))),
    ];
    let size = prop::sample::select(vec![4 * KIB, 16 * KIB, 64 * KIB, 128 * KIB]);
    (1u32..=1000, group, size, prop::bool::weighted(0.7)).prop_map(|(weight, group, len, wants)| {
        let group = group.map(|(name, weight)| Group {
            name: ["a", "b"][name].parse().expect("short"),
            weight,
        });
        Wants {
            weight,
            group,
            len,
            wants,
        }
    })
}

/// Returns a VM's part of the device, computed from all others.
fn part(all: &[Wants], of: usize) -> f64 {
    let competing = || all.iter().filter(|vm| vm.wants);
    let share = |vm: &Wants| match vm.group {
        None => f64::from(vm.weight),
        Some(Group { name, .. }) => {
            let same = |other: &&Wants| other.group.is_some_and(|group| group.name == name);
            // All VMs of the group determine its weight, whether they have requests or not.
            let named = all.iter().filter(same).filter_map(|vm| vm.group);
            let weight = named.map(|group| group.weight).max().expect("its own");
            let members: u32 = competing().filter(same).map(|vm| vm.weight).sum();
            f64::from(weight) * f64::from(vm.weight) / f64::from(members)
        }
    };
    if all[of].wants {
        share(&all[of]) / competing().map(share).sum::<f64>()
    } else {
        0.0
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 16,
        ..ProptestConfig::default()
    })]

    /// Checks allocations to a thousandth of a request a second where each VM has requests of one
    /// kind: by weight and by the kind's own saturation rate, all times the same scale.
    #[test]
    fn allocations_are_those_of_the_slow_oracle(
        first in prop::collection::vec(wants(), 2..8),
        then in prop::collection::vec(wants(), 8),
    ) {
        // Lending is off, because lent time would add to the allocations.
        let mut policy = policy("vfair");
        policy.set("lend", 0).expect("a flag");
        // One scale for all, or VMs with unused credits would have less than the oracle says.
        policy.set("correction", 1).expect("a choice");
        let mut world = world(&policy, 1.0);
        let guests: Vec<Guest> = first.iter().map(|vm| world.guest(&vm.objective())).collect();
        for (round, all) in [&first[..], &then[..first.len()]].into_iter().enumerate() {
            for (guest, vm) in guests.iter().zip(all) {
                world.set(*guest, &vm.objective());
                world.unload(*guest);
                if vm.wants {
                    world.load(*guest, Op::Read, vm.len, 16);
                }
            }
            // Requests of the round before are answered by then, and weigh only 0.7^40 in the
            // means.
            world.run(4 * SECOND);
            let rate = |at: usize| {
                world.driver.engine.view().allocation(guests[at].vm) as f64
            };
            let alone = |at: usize| 1e9 / time(all[at].len) as f64;
            let due: Vec<f64> = (0..all.len()).map(|at| part(all, at) * alone(at)).collect();
            let Some(some) = (0..all.len()).max_by(|&a, &b| due[a].total_cmp(&due[b])) else {
                continue;
            };
            if due[some] == 0.0 {
                prop_assert!((0..all.len()).all(|at| rate(at) == 0.0));
                continue;
            }
            let scale = rate(some) / due[some];
            for (at, due) in due.iter().enumerate() {
                let expected = match *due {
                    0.0 => 0.0,
                    // The smallest allocation is one request a second.
                    due => (due * scale).max(1000.0),
                };
                // But a VM that is held to a few requests a second may still have old ones: of
                // another kind, or all 16 if it wants none now.
                let had = round == 1 && first[at].wants;
                let other = had && first[at].len != all[at].len && expected < 40_000.0;
                let undone = had && !all[at].wants && rate(at) < 5_000.0;
                if other || undone {
                    continue;
                }
                let off = (rate(at) - expected).abs();
                let (got, most) = (rate(at), 2.0 + expected * 1e-4);
                prop_assert!(off <= most, "{at} of {all:?}: {got} is not {expected}");
            }
        }
    }
}
