//! Tests of extreme values for every policy: objectives, sizes, places and times.

use crate::attacks::rig::{config, limiting, policies};
use crate::common::{Driver, Guest, limited};
use tidegate_core::engine::{DiskSpec, Engine};
use tidegate_core::objective::{Burst, Objective, OpsRate, Priority, Rate};
use tidegate_core::policy::Policy;
use tidegate_core::request::{Lane, Op, Request};
use tidegate_core::time::Nanos;

const SECOND: u64 = 1_000_000_000;
const YEAR: u64 = 365 * 24 * 3600 * SECOND;
const KIB: u32 = 1 << 10;
/// Requests that may be outstanding while objectives are replaced.
const BACKLOG_MAX: usize = 500;

/// Returns objectives with the smallest and the largest of all values.
fn extremes() -> Vec<Objective> {
    let none = Objective::default();
    let mut all = Vec::new();
    for per_s in [1, u32::MAX as u64, 1_000_000_000, Rate::MAX] {
        for rate in [Rate::iops(per_s), Rate::bytes(per_s)] {
            all.push(limited(rate));
            let reservation = rate;
            all.push(Objective {
                reservation,
                ..none
            });
            all.push(Objective {
                reservation,
                ..limited(rate)
            });
            let target = rate;
            all.push(Objective { target, ..none });
        }
        let target = Rate {
            bytes_per_s: Some(Rate::MAX - per_s + 1),
            ..Rate::iops(per_s)
        };
        all.push(Objective { target, ..none });
    }
    for norm in [1, u32::MAX] {
        let rate = Rate {
            ops: Some(OpsRate {
                per_s: 1 << 28,
                norm: Some(norm),
            }),
            bytes_per_s: None,
        };
        let reservation = rate;
        all.push(Objective {
            reservation,
            ..limited(rate)
        });
    }
    for latency in [1, u64::MAX] {
        let latency = Some(Nanos(latency));
        all.push(Objective { latency, ..none });
    }
    for weight in [1, 10_000] {
        all.push(Objective { weight, ..none });
    }
    for length in [Nanos::from_millis(1), Nanos::from_secs(3600)] {
        let burst = Some(Burst {
            total: Rate::iops(Rate::MAX),
            read: Rate::NONE,
            write: Rate::NONE,
            length,
        });
        let mut objective = limited(Rate::iops(1));
        objective.limit.burst = burst;
        all.push(objective);
    }
    for priority in [Priority::RealTime, Priority::BestEffort(7), Priority::Idle] {
        all.push(Objective { priority, ..none });
    }
    all
}

#[test]
fn extreme_objectives_beside_each_other_drain() {
    for policy in policies() {
        let mut rig = Driver::new(config(3, 64 * KIB, 64 * KIB), &policy);
        let all = extremes();
        for objective in &all {
            objective.validate().expect("sound");
            let Guest { client, .. } = rig.guest(objective);
            for n in 0..6 {
                let op = if n % 2 == 0 { Op::Read } else { Op::Write };
                rig.ask(client, op, n << 13, 8192).expect("room");
            }
            rig.ask(client, Op::Flush, 0, 0).expect("room");
        }
        rig.drain();
        assert!(rig.tallies.values().all(|t| t.answered() == 7));
    }
}

#[test]
fn objectives_can_be_replaced_by_any_other() {
    let all = extremes();
    for policy in policies() {
        let mut rig = Driver::new(config(2, 64 * KIB, 64 * KIB), &policy);
        let guests = [0, 1].map(|_| rig.guest(&Objective::default()));
        for (n, from) in all.iter().enumerate() {
            for (m, to) in all.iter().enumerate() {
                let Guest { vm, client, .. } = guests[(n + m) % 2];
                for objective in [from, to] {
                    let now = rig.now;
                    rig.engine
                        .vms_mut()
                        .set_objective(now, vm, objective)
                        .expect("sound");
                    let offset = (m as u64) << 20;
                    rig.ask(client, Op::Read, offset, 4096).expect("room");
                    rig.dispatch(2);
                    rig.now.0 += 1000;
                    rig.end_all();
                }
                if rig.ledger.unanswered() > BACKLOG_MAX {
                    // Drains the backlog before it takes simulated years at the smallest limits.
                    let none = Objective::default();
                    for Guest { vm, .. } in guests {
                        let now = rig.now;
                        rig.engine
                            .vms_mut()
                            .set_objective(now, vm, &none)
                            .expect("sound");
                    }
                    rig.drain();
                }
            }
        }
        for Guest { vm, .. } in guests {
            let (now, none) = (rig.now, Objective::default());
            rig.engine
                .vms_mut()
                .set_objective(now, vm, &none)
                .expect("sound");
        }
        let before = rig.now.0;
        rig.drain();
        assert!(rig.now.0 - before < 60 * SECOND, "{policy:?}");
    }
}

/// Checks that debt is kept in requests across changes of the limit: a VM that spent one request at
/// 1 IOPS waits out that second, not the time of a request at a huge limit.
#[test]
fn debt_survives_limit_changes() {
    for policy in limiting() {
        for high in [1000, u32::MAX as u64, 1_000_000_000, Rate::MAX] {
            for rate in [Rate::iops as fn(u64) -> Rate, Rate::bytes] {
                let mut rig = Driver::new(config(4, 0, 64 * KIB), &policy);
                let low = limited(rate(1));
                let Guest { vm, client, .. } = rig.guest(&low);
                rig.ask(client, Op::Read, 0, 1).expect("room");
                rig.ask(client, Op::Read, 1 << 20, 1).expect("room");
                assert_eq!(rig.dispatch(2), 1, "{policy:?}");
                rig.end_all();
                for _ in 0..10 {
                    for objective in [limited(rate(high)), low] {
                        let now = rig.now;
                        rig.engine
                            .vms_mut()
                            .set_objective(now, vm, &objective)
                            .expect("sound");
                    }
                }
                assert_eq!(rig.dispatch(1), 0, "nothing was bought: {policy:?}");
                let due = rig.engine.next_timeout().expect("it waits").0;
                assert!(
                    due <= SECOND + SECOND / 100,
                    "1 a second, and {high} a second in between: held until {due} ns by {policy:?}"
                );
                rig.drain();
            }
        }
    }
}

#[test]
fn the_longest_requests_pass_the_slowest_limit_one_at_a_time() {
    for policy in limiting() {
        let mut rig = Driver::new(config(32, 128 * KIB, 32 << 20), &policy);
        let Guest { vm, client, .. } = rig.guest(&limited(Rate::bytes(1)));
        for n in 0..3u64 {
            rig.ask(client, Op::Read, n << 26, 32 << 20).expect("room");
        }
        let each = (32u64 << 20) * SECOND;
        for n in 0..3 {
            assert_eq!(rig.dispatch(9), 1, "the first goes at once: {policy:?}");
            rig.end_all();
            assert_eq!(rig.dispatch(9), 0, "{policy:?}");
            if n < 2 {
                let due = rig.engine.next_timeout().expect("held").0;
                assert_eq!(due, (n + 1) * each, "a second a byte: {policy:?}");
                rig.now.0 = due;
            }
        }
        assert_eq!(rig.tallies[&vm].answered(), 3);
        rig.assert_drained();
    }
}

#[test]
fn requests_are_served_after_a_clock_jump_of_centuries() {
    for policy in policies() {
        for step in [YEAR, 500 * YEAR] {
            let mut rig = Driver::new(config(2, 64 * KIB, 64 * KIB), &policy);
            let mut clients = Vec::new();
            for objective in [
                Objective::default(),
                limited(Rate::iops(50)),
                Objective {
                    reservation: Rate::iops(100),
                    weight: 10_000,
                    ..Objective::default()
                },
            ] {
                clients.push(rig.guest(&objective).client);
            }
            let backup = rig.try_background(&Objective::default()).expect("room");
            let disk = rig.disk(backup);
            clients.push(rig.client(disk));
            for turn in 0..2 {
                for &client in &clients {
                    for n in 0..10u64 {
                        let offset = (turn * 10 + n) << 20;
                        rig.ask(client, Op::Write, offset, 128 << 10).expect("room");
                    }
                }
                // Some are in flight, others wait, while the ages pass.
                rig.dispatch(2);
                if turn == 0 {
                    rig.now.0 += step;
                    rig.end_all();
                    let before = rig.now.0;
                    rig.drain();
                    assert!(rig.now.0 - before < 60 * SECOND, "{policy:?}");
                }
            }
            rig.drain();
            assert!(rig.tallies.values().all(|t| t.answered() == 20));
        }
    }
}

#[test]
fn latency_sums_saturate() {
    let policy = &policies()[0];
    let mut rig = Driver::new(config(1, 0, 64 * KIB), policy);
    let Guest { vm, client, .. } = rig.guest(&Objective::default());
    for n in 0..8 {
        rig.ask(client, Op::Read, n << 20, 4096).expect("room");
    }
    rig.dispatch(1);
    rig.now.0 = 500 * YEAR;
    rig.drain();
    // All eight were inside for 500 years: the sum saturates at `Nanos::MAX`.
    let stats = rig.engine.vms().vm_stats(vm);
    assert_eq!(stats.latency.max().0 / YEAR, 500);
    assert_eq!(stats.latency.sum(), Nanos::MAX);
    assert_eq!(stats.account.queued, Nanos::MAX);
    assert!(stats.latency.mean().0 >= u64::MAX / 8);
    assert!(stats.queue_time(Lane::Read).quantile(0.5).0 > 0);
}

#[test]
fn a_disk_of_half_of_64_bits_is_served_to_its_last_byte() {
    for policy in policies() {
        let mut config = config(2, 64 * KIB, 64 * KIB);
        config.device.positioning = Nanos::from_millis(8);
        config.device.bytes_per_s = 100_000_000;
        let mut engine = Engine::new(config, &policy).expect("sound");
        let mut clients = Vec::new();
        for base in [0, 1 << 63] {
            let vm = engine
                .vms_mut()
                .add_vm(Nanos::ZERO, &Objective::default())
                .expect("room");
            let spec = DiskSpec {
                base,
                size: (1 << 63) - 1,
                read_only: false,
            };
            let disk = engine.vms_mut().add_disk(vm, spec).expect("fits");
            clients.push(engine.connect(disk).expect("there"));
            let beyond = DiskSpec {
                size: 1 << 63,
                ..spec
            };
            assert_eq!(engine.vms_mut().add_disk(vm, beyond).is_ok(), base == 0);
        }
        let end = (1u64 << 63) - 1;
        let mut bytes = 0;
        for (n, &client) in clients.iter().enumerate() {
            // From both ends, merged, split, and the very last byte.
            for (offset, len) in [
                (0, 4096),
                (end - 1, 1),
                (end - 8192, 4096),
                (end >> 1, 1 << 20),
            ] {
                for op in [Op::Read, Op::Write] {
                    let request = Request {
                        op,
                        ..Request::read(offset, len, n as u64)
                    };
                    engine
                        .handle_request(Nanos::ZERO, client, request)
                        .expect("inside");
                    bytes += len as u64;
                }
            }
            let beyond = Request::read(end, 1, 0);
            assert!(engine.handle_request(Nanos::ZERO, client, beyond).is_err());
        }
        let (mut now, mut answered) = (0, 0);
        while answered < 16 {
            match engine.poll_dispatch(Nanos(now)) {
                Some(io) => {
                    bytes -= io.len as u64;
                    engine.handle_completion(Nanos(now), io.id, Ok(()));
                    answered += std::iter::from_fn(|| engine.poll_done()).count();
                }
                None => now = engine.next_timeout().expect("it will go").0,
            }
        }
        assert_eq!(bytes, 0, "{policy:?}");
        assert!(engine.is_idle());
    }
}

#[test]
fn requests_are_served_with_a_frozen_clock() {
    for policy in policies() {
        let mut rig =
            Driver::new(config(4, 64 * KIB, 64 * KIB), &policy).with_clock_at(Nanos(YEAR));
        let guests: Vec<_> = (0..8).map(|_| rig.guest(&Objective::default())).collect();
        let mut asked = 0;
        for turn in 0..50u64 {
            for &Guest { client, .. } in &guests {
                for n in 0..4 {
                    let offset = (turn * 4 + n) << 20;
                    rig.ask(client, Op::Read, offset, 4096).expect("room");
                    asked += 1;
                }
            }
            for _ in 0..40 {
                rig.dispatch(4);
                rig.end_all();
            }
        }
        let served: u64 = rig.tallies.values().map(|t| t.answered()).sum();
        let (_, regulator, dispatcher) = policy.parts();
        // These wait for what a VM may ask next, or for credits, and both take time.
        if !matches!(regulator, "vbc" | "circ") && !matches!(dispatcher, "cfq" | "bd-edf") {
            assert_eq!(served, asked, "{policy:?}");
        }
        rig.drain();
    }
}
