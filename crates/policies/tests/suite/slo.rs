//! Tests of the policy `slo`: every part of an objective, alone and beside the others.

use crate::common::{Guest, KIB, SECOND, World, config, total, within};
use tidegate_core::expected_workload::ExpectedWorkload;
use tidegate_core::objective::{Group, Limit, Objective, OpsRate, Priority, Rate};
use tidegate_core::precision;
use tidegate_core::request::Op;
use tidegate_core::roles::SteppedDown;
use tidegate_core::time::Nanos;
use tidegate_core::transfers::TransferSpec;

const MB: u64 = 1_000_000;
/// Service time of one I/O of the device: 1,000 a second.
const MS: u64 = 1_000_000;

fn reserved(iops: u64) -> Objective {
    Objective {
        reservation: Rate::iops(iops),
        ..Objective::default()
    }
}

/// Creates a world in which each of these VMs keeps as many requests of 4 KiB waiting as its depth.
fn crowd(vms: &[(Objective, u32)]) -> (World, Vec<Guest>) {
    let mut world = World::new("slo", MS);
    let guests: Vec<Guest> = vms.iter().map(|(vm, _)| world.guest(vm)).collect();
    for (&guest, &(_, depth)) in guests.iter().zip(vms) {
        world.load(guest, Op::Read, 4 * KIB, depth);
    }
    (world, guests)
}

/// Returns the requests of each guest in `seconds`, after a second of warm-up.
fn served(world: &mut World, guests: &[Guest], seconds: u64) -> Vec<u64> {
    world.run(SECOND);
    world.driver.log.clear();
    world.run(seconds * SECOND);
    guests
        .iter()
        .map(|&guest| total(&world.ops(guest)))
        .collect()
}

fn assert_near(got: u64, due: u64, permille: u64) {
    let off = got.abs_diff(due);
    assert!(off * 1000 <= due * permille, "{got} instead of {due}");
}

#[test]
fn a_floor_is_kept_beside_weights_and_what_is_left_goes_by_weight() {
    let weighted = |weight| Objective {
        weight,
        ..Objective::default()
    };
    let floor = Objective {
        weight: 1,
        ..reserved(400)
    };
    let vms = [(floor, 8), (weighted(100), 8), (weighted(200), 8)];
    let (mut world, guests) = crowd(&vms);
    let got = served(&mut world, &guests, 10);
    assert_near(got[0], 4000, 5);
    assert_near(got[1], 2000, 10);
    assert_near(got[2], 4000, 10);
}

#[test]
fn a_request_within_its_rate_is_answered_by_its_latency_behind_a_deep_queue() {
    let bounded = Objective {
        latency: Some(Nanos::from_millis(4)),
        ..reserved(100)
    };
    let (mut world, guests) = crowd(&[(bounded, 0), (Objective::default(), 64)]);
    world.keep_done = true;
    for n in 0..500 {
        let request = tidegate_core::request::Request::read(n * (1 << 20), 4 * KIB, u64::MAX);
        world.ask(guests[0], request);
        world.run(10 * MS + 137);
    }
    let mine = world.done.iter().filter(|done| done.vm == guests[0].vm);
    let latest = mine.map(|done| done.account.total()).max();
    // One I/O is with the device when it comes, and its own takes 1 ms.
    assert!(
        latest.is_some_and(|latest| latest <= Nanos(2 * MS)),
        "{latest:?}"
    );
}

/// VM with a latency bound for `iops` requests a second that it expects, of which `burst` may come
/// at once. Its share is next to nothing beside a VM of weight 10,000.
fn expecting(latency_ms: u64, iops: u64, burst: u32) -> Objective {
    Objective {
        latency: Some(Nanos::from_millis(latency_ms)),
        weight: 1,
        expects: ExpectedWorkload {
            iops: Some(iops),
            burst: Some(burst),
            ..ExpectedWorkload::NOTHING
        },
        ..Objective::default()
    }
}

fn heavy() -> Objective {
    Objective {
        weight: 10_000,
        ..Objective::default()
    }
}

#[test]
fn a_burst_inside_an_expected_envelope_is_answered_by_its_latency_beside_a_heavy_vm() {
    let (mut world, guests) = crowd(&[(expecting(12, 100, 8), 0), (heavy(), 64)]);
    world.keep_done = true;
    for burst in 0..50 {
        for n in 0..8 {
            let offset = (8 * burst + n) * (1 << 20);
            let request = tidegate_core::request::Request::read(offset, 4 * KIB, u64::MAX);
            world.ask(guests[0], request);
        }
        world.run(80 * MS);
    }
    let mine = world.done.iter().filter(|done| done.vm == guests[0].vm);
    let latest = mine.map(|done| done.account.total()).max();
    // One I/O is with the device when they come, and each of the eight takes 1 ms.
    assert!(
        latest.is_some_and(|latest| latest <= Nanos(9 * MS)),
        "{latest:?}"
    );
}

#[test]
fn beyond_its_expected_envelope_a_vm_takes_nothing_from_a_floor() {
    let floor = Objective {
        weight: 1,
        ..reserved(500)
    };
    let vms = [(expecting(4, 100, 4), 64), (floor, 8), (heavy(), 16)];
    let (mut world, guests) = crowd(&vms);
    let got = served(&mut world, &guests, 10);
    assert_eq!(
        world.driver.engine.device().stepped_down(),
        SteppedDown::default()
    );
    assert_near(got[0], 1000, 15);
    assert_near(got[1], 5000, 10);
    assert_near(got[2], 4000, 15);
}

#[test]
fn an_expected_envelope_beside_a_reservation_adds_nothing_to_the_faster_rate() {
    for (iops, floor) in [(50, 200), (200, 50)] {
        let both = Objective {
            reservation: Rate::iops(floor),
            ..expecting(4, iops, 1)
        };
        let (mut world, guests) = crowd(&[(both, 16), (heavy(), 16)]);
        let got = served(&mut world, &guests, 10);
        assert_near(got[0], 2000, 20);
    }
}

#[test]
fn a_latency_without_a_rate_buys_no_more_than_the_share() {
    let bounded = Objective {
        latency: Some(Nanos::from_millis(2)),
        ..Objective::default()
    };
    let (mut world, guests) = crowd(&[(bounded, 16), (Objective::default(), 16)]);
    let got = served(&mut world, &guests, 10);
    assert_near(got[0], 5000, 20);
    assert_near(got[1], 5000, 20);
}

#[test]
fn a_latency_without_a_rate_takes_nothing_from_a_floor_and_makes_no_promise_step_down() {
    let bounded = Objective {
        latency: Some(Nanos::from_millis(2)),
        weight: 10_000,
        ..Objective::default()
    };
    let floor = Objective {
        weight: 1,
        ..reserved(300)
    };
    let promised = Objective {
        latency: Some(Nanos::from_millis(4)),
        weight: 1,
        ..reserved(100)
    };
    let (mut world, guests) = crowd(&[(bounded, 64), (floor, 8), (promised, 1)]);
    let mut got = [0; 3];
    for _ in 0..50 {
        world.driver.log.clear();
        world.run(SECOND / 5);
        for (got, &guest) in got.iter_mut().zip(&guests) {
            *got += total(&world.ops(guest));
        }
        let stepped_down = world.driver.engine.device().stepped_down();
        assert_eq!(stepped_down, SteppedDown::default());
    }
    assert_near(got[1], 3000, 10);
    assert!(got[2] >= 990, "{got:?}");
}

#[test]
fn a_latency_without_a_rate_is_kept_within_the_share_beside_a_floor_and_a_deep_queue() {
    let bounded = Objective {
        latency: Some(Nanos::from_millis(10)),
        ..Objective::default()
    };
    let vms = [(bounded, 0), (reserved(300), 8), (Objective::default(), 64)];
    let (mut world, guests) = crowd(&vms);
    world.keep_done = true;
    for n in 0..500 {
        let request = tidegate_core::request::Request::read(n * (1 << 20), 4 * KIB, u64::MAX);
        world.ask(guests[0], request);
        world.run(10 * MS + 137);
    }
    let mine = world.done.iter().filter(|done| done.vm == guests[0].vm);
    let latest = mine.map(|done| done.account.total()).max();
    // One I/O is with the device when it comes, one may be due by the floor.
    assert!(
        latest.is_some_and(|latest| latest <= Nanos(4 * MS)),
        "{latest:?}"
    );
}

#[test]
fn classes_go_one_before_the_other_and_none_before_a_promise() {
    let of = |priority| Objective {
        priority,
        ..Objective::default()
    };
    let vms = [
        (of(Priority::RealTime), 4),
        (of(Priority::DEFAULT), 4),
        (of(Priority::Idle), 4),
        (reserved(300), 4),
    ];
    let (mut world, guests) = crowd(&vms);
    let got = served(&mut world, &guests, 5);
    assert_near(got[3], 1500, 5);
    assert_near(got[0] + got[1] + got[2], 3500, 5);
    // Nobody starves: one every 500 ms goes of a class that is passed over.
    assert!(
        (8..=10).contains(&got[1]) && (8..=10).contains(&got[2]),
        "{got:?}"
    );
    world.unload(guests[0]);
    let got = served(&mut world, &guests, 5);
    assert!(
        (8..=10).contains(&got[2]),
        "idle waits for best effort: {got:?}"
    );
    assert_near(got[1] + got[3], 4990, 2);
    assert!(got[1] >= 2000, "{got:?}");
}

#[test]
fn levels_of_best_effort_are_factors_of_the_weight() {
    let of = |level| Objective {
        priority: Priority::BestEffort(level),
        ..Objective::default()
    };
    let (mut world, guests) = crowd(&[(of(0), 8), (of(4), 8), (of(7), 8)]);
    let got = served(&mut world, &guests, 13);
    for (got, due) in got.iter().zip([8000, 4000, 1000]) {
        assert_near(*got, due, 10);
    }
}

#[test]
fn a_group_counts_as_one_vm_whoever_of_it_asks() {
    let grouped = |weight| Objective {
        weight,
        group: Some(Group::named("files".parse().expect("a name"))),
        ..Objective::default()
    };
    let vms = [
        (grouped(100), 8),
        (grouped(300), 8),
        (Objective::default(), 8),
    ];
    let (mut world, guests) = crowd(&vms);
    let got = served(&mut world, &guests, 10);
    for (got, due) in got.iter().zip([1250, 3750, 5000]) {
        assert_near(*got, due, 10);
    }
    // The one that leads the group goes; the other has all of its weight.
    world.remove_vm(guests[0]);
    let got = served(&mut world, &guests[1..], 10);
    for got in got {
        assert_near(got, 5000, 10);
    }
}

#[test]
fn a_member_of_a_group_is_served_beside_a_floor_that_takes_the_share_of_the_group() {
    let grouped = |objective| Objective {
        group: Some(Group::named("files".parse().expect("a name"))),
        ..objective
    };
    let vms = [
        (grouped(reserved(600)), 8),
        (grouped(Objective::default()), 8),
        (grouped(Objective::default()), 0),
        (Objective::default(), 16),
    ];
    let (mut world, guests) = crowd(&vms);
    world.run(20 * SECOND);
    world.driver.log.clear();
    world.keep_done = true;
    for n in 0..10 {
        let request = tidegate_core::request::Request::read(n * (1 << 20), 4 * KIB, u64::MAX);
        world.ask(guests[2], request);
        world.run(SECOND);
    }
    assert_near(total(&world.ops(guests[0])), 6000, 5);
    // The other VM has the bound, twice the largest cost, for each turn of the group: some four a
    // second, of which the members without a promise have one each in turn.
    assert!(total(&world.ops(guests[1])) >= 20);
    let mine = world.done.iter().filter(|done| done.vm == guests[2].vm);
    let waits: Vec<Nanos> = mine.map(|done| done.account.total()).collect();
    assert_eq!(waits.len(), 10, "{waits:?}");
    assert!(waits.iter().all(|&wait| wait < Nanos(SECOND)), "{waits:?}");
}

#[test]
fn a_target_is_held_from_above_and_from_below() {
    let target = Objective {
        target: Rate::bytes(20 * MB),
        ..Objective::default()
    };
    let mut world = World::with_config(config(4, 0), "slo", 0);
    world.device.takes = Some(|io| 20_000 + u64::from(io.len) * 10);
    let (vm, other) = (world.guest(&target), world.guest(&Objective::default()));
    world.load(vm, Op::Read, 64 * KIB, 8);
    world.load(other, Op::Read, 64 * KIB, 32);
    world.run(31 * SECOND);
    let bytes = world.bytes(vm);
    let seconds: Vec<u64> = (1..31)
        .map(|s| within(&bytes, s * SECOND, (s + 1) * SECOND))
        .collect();
    let error = precision::error(&seconds, 20 * MB).expect("there are samples");
    let variability = precision::variability(&seconds).expect("there are samples");
    assert!(error.abs() < 2_000, "{error} millionths");
    assert!(variability < 5_000, "{variability} millionths");
}

#[test]
fn a_stall_takes_nothing_from_a_target_and_repays_it_slowly() {
    let target = Objective {
        target: Rate::iops(100),
        ..Objective::default()
    };
    let (mut world, guests) = crowd(&[(target, 4)]);
    world.run(2 * SECOND);
    world.stall(SECOND);
    world.driver.log.clear();
    world.run(20 * SECOND);
    let ops = world.ops(guests[0]);
    let start = world.now() - 20 * SECOND;
    assert!(within(&ops, start, start + SECOND) <= 111);
    assert_near(total(&ops), 2100, 10);
}

#[test]
fn a_target_repays_no_time_before_the_first_request() {
    let target = Objective {
        target: Rate::iops(100),
        ..Objective::default()
    };
    let mut world = World::new("slo", MS);
    let vm = world.guest(&target);
    world.run(5 * SECOND);
    world.load(vm, Op::Read, 4 * KIB, 4);
    world.run(10 * SECOND);
    assert_near(total(&world.ops(vm)), 1000, 10);
}

#[test]
fn a_deadline_transfer_ends_in_time_and_takes_no_more_than_it_needs() {
    let greedy = Objective {
        weight: 10_000,
        ..Objective::default()
    };
    let meek = Objective {
        weight: 1,
        ..Objective::default()
    };
    let (mut world, guests) = crowd(&[(meek, 8), (greedy, 8)]);
    let spec = TransferSpec {
        bytes: 300 * 10 * u64::from(4 * KIB),
        deadline: Nanos::from_secs(10),
    };
    let (now, vm) = (world.time(), guests[0].vm);
    let began = world
        .driver
        .engine
        .transfers_mut()
        .begin_transfer(now, vm, &spec);
    began.expect("the VM has no transfer yet");
    world.run(12 * SECOND);
    let end = world.driver.engine.transfers_mut().poll_transfer_end();
    let end = end.expect("300 requests a second of 1,000");
    assert_eq!(end.late, Nanos::ZERO, "{end:?}");
    assert!(end.ended >= Nanos::from_secs(8), "{end:?}");
}

#[test]
fn a_reservation_in_iops_is_kept_while_a_slow_transfer_runs() {
    let greedy = Objective {
        weight: 10_000,
        ..Objective::default()
    };
    let floor = Objective {
        weight: 1,
        ..reserved(400)
    };
    let (mut world, guests) = crowd(&[(floor, 8), (greedy, 64)]);
    let spec = TransferSpec {
        bytes: 256 << 20,
        deadline: Nanos::from_secs(3600),
    };
    let (now, vm) = (world.time(), guests[0].vm);
    let began = world
        .driver
        .engine
        .transfers_mut()
        .begin_transfer(now, vm, &spec);
    began.expect("the VM has no transfer yet");
    let got = served(&mut world, &guests, 10);
    assert_near(got[0], 4000, 5);
}

#[test]
fn a_limit_holds_over_a_floor_and_over_being_alone() {
    let limited = Objective {
        limit: Limit::of_all(Rate::iops(200)),
        ..reserved(200)
    };
    let (mut world, guests) = crowd(&[(limited, 8)]);
    let got = served(&mut world, &guests, 10);
    assert_near(got[0], 2000, 2);
}

#[test]
fn the_background_takes_a_few_per_cent_of_a_saturated_device_and_all_of_a_quiet_one() {
    let (mut world, guests) = crowd(&[(Objective::default(), 8), (reserved(300), 8)]);
    let backup = world.background();
    world.load(backup, Op::Read, 4 * KIB, 8);
    world.run(5 * SECOND);
    world.driver.log.clear();
    world.run(20 * SECOND);
    let got = total(&world.ops(backup));
    assert!((40..=1000).contains(&got), "{got} of 20,000");
    assert!(total(&world.ops(guests[1])) >= 5998);
    guests.iter().for_each(|&guest| world.unload(guest));
    world.run(SECOND);
    world.driver.log.clear();
    world.run(SECOND);
    assert_near(total(&world.ops(backup)), 1000, 5);
}

#[test]
fn floors_beyond_the_device_are_kept_in_proportion() {
    let (mut world, guests) = crowd(&[(reserved(1500), 8), (reserved(500), 8)]);
    let got = served(&mut world, &guests, 20);
    assert_near(got[0], 15_000, 20);
    assert_near(got[1], 5_000, 20);
}

#[test]
fn a_large_request_goes_by_its_floor_as_a_whole() {
    let mut config = config(1, 0);
    config.device.max_io = 64 << 10;
    let mut world = World::with_config(config, "slo", MS);
    // Ten requests of 1 MiB a second, each in 16 parts.
    let floor = Objective {
        reservation: Rate {
            ops: Some(OpsRate {
                per_s: 640,
                norm: Some(16 << 10),
            }),
            bytes_per_s: None,
        },
        weight: 1,
        ..Objective::default()
    };
    let greedy = Objective {
        weight: 10_000,
        ..Objective::default()
    };
    let (vm, other) = (world.guest(&floor), world.guest(&greedy));
    world.load(other, Op::Read, 4 * KIB, 64);
    world.keep_done = true;
    for n in 0..100 {
        let request = tidegate_core::request::Request::read(n * (1 << 20), 1 << 20, u64::MAX);
        world.ask(vm, request);
        world.run(100 * MS + 137);
    }
    let mine = world.done.iter().filter(|done| done.vm == vm.vm);
    let waits: Vec<Nanos> = mine.map(|done| done.account.total()).collect();
    assert_eq!(waits.len(), 100);
    assert!(
        waits.iter().all(|&wait| wait <= Nanos(20 * MS)),
        "{waits:?}"
    );
}

#[test]
fn a_floor_is_kept_for_a_vm_that_waits_for_each_answer() {
    let (mut world, guests) = crowd(&[(reserved(300), 1), (Objective::default(), 64)]);
    let got = served(&mut world, &guests, 10);
    assert!(got[0] >= 2999, "{got:?}");
}
