//! Tests of extreme values: huge rates, requests, offsets and times.
//!
//! Most calls go to the engine itself: the kit's clock and addresses would pass their own ends.

use crate::common::*;
use tidegate_core::engine::{DiskSpec, Engine, EngineConfig, Refusal};
use tidegate_core::objective::{Limit, Objective, OpsRate, Rate};
use tidegate_core::policy::Policy;
use tidegate_core::request::{ClientId, Op, Request};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

const YEAR: u64 = 365 * 24 * 3600 * SECOND;

/// Returns the names of all policies and compositions.
fn names() -> impl Iterator<Item = &'static str> {
    PolicySpec::every_composition().iter().map(PolicySpec::name)
}

fn engine(policy_name: &str, objective: &Objective, base: u64, size: u64) -> (Engine, ClientId) {
    engine_with(config(1, 128 << 10), policy_name, objective, base, size)
}

fn engine_with(
    config: EngineConfig,
    policy_name: &str,
    objective: &Objective,
    base: u64,
    size: u64,
) -> (Engine, ClientId) {
    let mut engine = Engine::new(config, &policy(policy_name)).expect("sound");
    let vm = engine
        .vms_mut()
        .add_vm(Nanos::ZERO, objective)
        .expect("room");
    let disk = engine
        .vms_mut()
        .add_disk(
            vm,
            DiskSpec {
                base,
                size,
                read_only: false,
            },
        )
        .expect("fits");
    let client = engine.connect(disk).expect("there");
    (engine, client)
}

/// Serves everything that is due at `now`. Returns the bytes that went to the device.
fn serve(engine: &mut Engine, now: Nanos) -> u64 {
    let mut bytes = 0;
    while let Some(io) = engine.poll_dispatch(now) {
        bytes += io.len as u64;
        engine.handle_completion(now, io.id, Ok(()));
    }
    bytes
}

fn close(mut engine: Engine, now: Nanos, client: ClientId) {
    engine.handle_disconnect(now, client);
    while engine.poll_done().is_some() {}
    assert!(engine.is_idle());
}

#[test]
fn an_offset_near_the_end_of_64_bits_is_refused() {
    for op in Op::ALL {
        let (mut engine, client) = engine("fifo", &Objective::default(), 1 << 40, 1 << 30);
        let request = Request {
            op,
            offset: u64::MAX - 7,
            ..Request::read(0, 4096, 1)
        };
        match engine.handle_request(Nanos::ZERO, client, request) {
            Err(Refusal::OutOfRange { .. }) => {}
            Ok(_) if op == Op::Flush => {}
            other => panic!("{op:?}: {other:?}"),
        }
        close(engine, Nanos::ZERO, client);
    }
}

#[test]
fn a_disk_may_lie_at_the_very_end_of_64_bits() {
    for policy in names() {
        let base = u64::MAX - (1 << 33);
        let (mut engine, client) = engine(policy, &Objective::default(), base, 1 << 33);
        let last = (1 << 33) - (4 << 20);
        // Three that merge, one that splits, one too long by a byte.
        for (offset, len) in [(last, 4096), (last + 4096, 4096), (last - 4096, 4096)] {
            let taken = engine.handle_request(Nanos::ZERO, client, Request::write(offset, len, 0));
            taken.expect("inside");
        }
        let split = Request::read(last, 4 << 20, 0);
        engine
            .handle_request(Nanos::ZERO, client, split)
            .expect("inside");
        let beyond = Request::read(last, (4 << 20) + 1, 0);
        assert!(engine.handle_request(Nanos::ZERO, client, beyond).is_err());
        assert_eq!(serve(&mut engine, Nanos::ZERO), 3 * 4096 + (4 << 20));
        close(engine, Nanos::ZERO, client);
    }
}

#[test]
fn a_clock_that_steps_back_loses_no_wake_up() {
    let (mut engine, client) = engine("limit", &limited(Rate::iops(1)), 0, 1 << 30);
    engine
        .handle_request(Nanos::ZERO, client, Request::read(0, 4096, 1))
        .expect("taken");
    let io = engine.poll_dispatch(Nanos::ZERO).expect("goes at once");
    engine
        .handle_request(Nanos::ZERO, client, Request::read(0, 4096, 2))
        .expect("taken");
    // The engine has seen 2 s; the driver's next reading is earlier than the gate's due time.
    engine.handle_completion(Nanos::from_secs(2), io.id, Ok(()));
    let io = engine.poll_dispatch(Nanos::from_millis(500));
    let io = io.expect("by the engine's own time the second has been due for a second");
    engine.handle_completion(Nanos::from_secs(2), io.id, Ok(()));
    close(engine, Nanos::ZERO, client);
}

#[test]
fn the_longest_requests_are_served_whole() {
    for policy in names() {
        for op in [Op::Discard, Op::WriteZeroes, Op::Read] {
            let mut config = config(1, 128 << 10);
            config.device.zeroes_are_writes = true;
            config.device.max_io = 1 << 30;
            let norm = Some(OpsRate {
                per_s: 1_000_000_000,
                norm: Some(4096),
            });
            let rate = Rate {
                ops: norm,
                bytes_per_s: Some(1 << 50),
            };
            let objective = Objective {
                reservation: rate,
                weight: 1,
                ..limited(rate)
            };
            let (mut engine, client) = engine_with(config, policy, &objective, 4096, 1 << 40);
            let mut now = Nanos::ZERO;
            let mut got = 0;
            for tag in 0..4 {
                let request = Request {
                    op,
                    ..Request::read(tag << 34, u32::MAX, tag)
                };
                engine.handle_request(now, client, request).expect("inside");
                // Credits for as much may take a second to come, a slice of them at a time.
                for _ in 0..1000 {
                    got += serve(&mut engine, now);
                    if got == (tag + 1) * u64::from(u32::MAX) {
                        break;
                    }
                    now = now.max(engine.next_timeout().unwrap_or(now));
                }
            }
            assert_eq!(got, 4 * u32::MAX as u64, "{policy}: {op:?}");
            close(engine, now, client);
        }
    }
}

#[test]
fn the_slowest_limit_holds_the_longest_request_for_as_long_as_it_takes() {
    // 136 years at a byte a second.
    for policy in ["limit", "mclock"] {
        let mut config = config(1, 0);
        config.device.max_io = 1 << 30;
        let objective = limited(Rate::bytes(1));
        let (mut engine, client) = engine_with(config, policy, &objective, 0, 1 << 40);
        let read = Request::read(0, u32::MAX, 0);
        engine
            .handle_request(Nanos::ZERO, client, read)
            .expect("inside");
        let mut now = Nanos::ZERO;
        for part in 0..4u64 {
            assert!(serve(&mut engine, now) > 0, "{policy}: part {part}");
            assert_eq!(serve(&mut engine, now), 0);
            now = engine.next_timeout().unwrap_or(now);
        }
        assert_eq!(now, Nanos::from_secs(3 << 30), "{policy}");
        close(engine, now, client);
    }
}

#[test]
fn the_highest_rates_are_kept() {
    for policy in ["limit", "mclock", "token-bucket+mclock"] {
        let mut world = World::new(policy, 1);
        let guest = world.guest(&limited(Rate::iops(1_000_000_000)));
        let other = world.guest(&limited(Rate::bytes(1 << 50)));
        world.load(guest, Op::Read, 4096, 4);
        world.load(other, Op::Write, 1 << 20, 4);
        world.run(20_000);
        assert!(
            world.driver.log.len() >= 19_990,
            "{policy}: {} in 20 us",
            world.driver.log.len()
        );
        assert!(
            world.ops(guest).len() > 1000 && world.ops(other).len() > 100,
            "{policy}"
        );
    }
}

#[test]
fn a_year_passes_and_limits_still_hold() {
    for policy in ["limit", "mclock", "token-bucket+mclock"] {
        let mut world = World::new(policy, 1000);
        let guest = world.guest(&limited(Rate::iops(1000)));
        let slow = world.guest(&Objective {
            limit: Limit::of_all(Rate::bytes(1)),
            weight: 1,
            ..Objective::default()
        });
        for _ in 0..3 {
            world.stall(YEAR);
            world.load(guest, Op::Read, 4096, 8);
            world.load(slow, Op::Read, 4096, 1);
            world.run(SECOND);
            world.unload(guest);
            world.run(SECOND);
        }
        assert_below(&world.ops(guest), 1000, 1);
        assert_eq!(
            total(&world.ops(guest)).div_ceil(1000),
            4,
            "three seconds' worth"
        );
        assert_eq!(world.ops(slow).len(), 3, "one a year at a byte a second");
    }
}

#[test]
fn the_extreme_weights_share_as_they_say() {
    let mut world = World::new("mclock", 1000);
    let of = |weight| Objective {
        weight,
        ..Objective::default()
    };
    let (light, heavy) = (world.guest(&of(1)), world.guest(&of(10_000)));
    world.load(light, Op::Read, 4096, 4);
    world.load(heavy, Op::Read, 4096, 4);
    world.run(50_000 * 1000);
    let (light, heavy) = (total(&world.ops(light)), total(&world.ops(heavy)));
    assert!(
        (5..=6).contains(&light) && light + heavy >= 49_999,
        "{light} and {heavy}"
    );
}

#[test]
fn the_end_of_time_neither_panics_nor_loses_a_request() {
    for policy_name in names() {
        for left in [0, 1, 1000, SECOND] {
            let objective = Objective {
                reservation: Rate::iops(10),
                ..limited(Rate::iops(100))
            };
            let (mut engine, client) = engine(policy_name, &objective, 0, 1 << 30);
            let now = Nanos(u64::MAX - left);
            for tag in 0..4 {
                let request = Request::read(tag << 21, 4096, tag);
                engine.handle_request(now, client, request).expect("taken");
            }
            engine
                .handle_request(now, client, Request::flush(9))
                .expect("taken");
            engine.handle_timeout(now);
            serve(&mut engine, now);
            engine.set_policy(now, &policy("mclock"));
            engine.set_policy(now, &policy(policy_name));
            serve(&mut engine, Nanos::MAX);
            let answered = std::iter::from_fn(|| engine.poll_done()).count();
            assert!(answered >= 2, "{policy_name}: the first read and the flush");
            engine.handle_disconnect(Nanos::MAX, client);
            let cancelled = std::iter::from_fn(|| engine.poll_done()).count();
            assert_eq!(answered + cancelled, 5, "{policy_name}");
        }
    }
}
