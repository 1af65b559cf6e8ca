//! Tests that replace every policy by every other under load, with merges, splits, background and
//! flushes in flight: nothing is lost, and consumed limits stay consumed.

use crate::attacks::rig::{Draws, config, limiting, policies};
use crate::common::{Driver, Guest, limited};
use tidegate_core::objective::{Limit, Objective, Rate};
use tidegate_core::request::{ClientId, IoError, Op};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::{PolicySpec, registry};

const KIB: u32 = 1 << 10;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn ask_some(rig: &mut Driver, clients: &[ClientId], next: &mut [u64], draws: &mut Draws) {
    for (n, &client) in clients.iter().enumerate() {
        for _ in 0..draws.below(6) {
            let (op, len) = match draws.below(10) {
                0..=3 => (Op::Read, 4 * KIB),
                4..=6 => (Op::Write, 12 * KIB),
                7 => (Op::Read, 300 * KIB),
                8 => (Op::Discard, 1 << 20),
                _ => (Op::Flush, 0),
            };
            let offset = if op == Op::Flush { 0 } else { next[n] };
            if rig.ask(client, op, offset, len).is_ok() {
                next[n] += len as u64;
            }
        }
    }
}

#[test]
fn nothing_is_lost_between_any_two_policies() {
    let named = registry().iter().map(|p| PolicySpec::named(p.name));
    let all: Vec<_> = named.map(|p| p.expect("is listed")).collect();
    for (n, from) in all.iter().enumerate() {
        for (m, to) in all.iter().enumerate() {
            let mut draws = Draws::new((n * all.len() + m) as u64);
            let depth = 1 + draws.below(8) as u32;
            let mut rig = Driver::new(config(depth, 64 * KIB, 64 * KIB), from);
            let reserved = Objective {
                reservation: Rate::iops(500),
                latency: Some(Nanos(20 * MS)),
                ..Objective::default()
            };
            let objectives = [Objective::default(), reserved, limited(Rate::iops(400))];
            let mut clients: Vec<ClientId> = Vec::new();
            for objective in objectives {
                clients.push(rig.guest(&objective).client);
            }
            let backup = rig.try_background(&Objective::default()).expect("room");
            let disk = rig.disk(backup);
            clients.push(rig.client(disk));
            let mut next = [0u64; 4];
            for turn in 0..40 {
                ask_some(&mut rig, &clients, &mut next, &mut draws);
                rig.dispatch(usize::MAX);
                if !rig.in_flight.is_empty() && draws.below(3) > 0 {
                    let which = draws.below(rig.in_flight.len() as u64) as usize;
                    let failed = draws.below(8) == 0;
                    rig.end_nth(which, if failed { Err(IoError::Io) } else { Ok(()) });
                }
                rig.now.0 += draws.below(2 * MS);
                if turn % 5 == 0 {
                    let policy = if turn % 10 == 0 { to } else { from };
                    let inside = rig.ledger.unanswered();
                    let now = rig.now;
                    rig.engine.set_policy(now, policy);
                    _ = rig.answers();
                    assert_eq!(rig.ledger.unanswered(), inside, "a swap answers nothing");
                    let requests = rig.engine.device_stats().requests;
                    assert_eq!(requests as usize, inside);
                }
            }
            let begun = rig.now.0;
            rig.drain();
            assert!(rig.now.0 - begun < 60 * SECOND, "{from:?} to {to:?}");
            assert!(rig.tallies.values().all(|t| t.answered() > 0));
        }
    }
}

/// Returns the largest number of requests first served in 100 ms.
fn most_in_100_ms(times: &[u64]) -> u64 {
    let mut first = 0;
    let mut most = 0;
    for (n, &at) in times.iter().enumerate() {
        while times[first] + 100 * MS <= at {
            first += 1;
        }
        most = most.max(n - first + 1);
    }
    most as u64
}

/// Returns the start times of the requests of a VM with one limit that always has requests waiting,
/// while the policy is replaced every `period`.
fn under_swaps(from: &PolicySpec, to: &PolicySpec, iops: u64, period: u64) -> Vec<u64> {
    let mut rig = Driver::new(config(4, 0, 64 * KIB), from);
    let Guest { client, .. } = rig.guest(&limited(Rate::iops(iops)));
    let (mut next, mut swaps, mut swapped) = (0u64, 0u64, 0u64);
    while rig.now.0 < SECOND {
        while rig.ledger.unanswered() < 16 {
            let op = if next % 2 == 0 { Op::Read } else { Op::Write };
            rig.ask(client, op, next % 4096 * 8192, 4096).expect("room");
            next += 1;
        }
        if rig.now.0 >= swapped + period {
            (swaps, swapped) = (swaps + 1, rig.now.0);
            let now = rig.now;
            let policy = if swaps % 2 == 1 { to } else { from };
            rig.engine.set_policy(now, policy);
        }
        rig.dispatch(usize::MAX);
        rig.now.0 += 500_000;
        rig.end_all();
    }
    let served = rig.log.iter().filter(|s| s.io.first_ops > 0);
    let times = served.map(|s| s.at).collect();
    rig.drain();
    times
}

#[test]
fn limits_hold_over_swaps_and_lose_nothing() {
    let all = limiting();
    for (n, from) in all.iter().enumerate() {
        for (m, to) in all.iter().enumerate() {
            // Often, and now and then.
            let (iops, period) = [(200, 3 * MS), (370, 170 * MS)][(n + m) % 2];
            let times = under_swaps(from, to, iops, period);
            let most = most_in_100_ms(&times);
            let allowed = iops * 101 / 1000 + 1;
            assert!(
                most <= allowed,
                "{most} in 100 ms where {allowed} may: {from:?}, {to:?}"
            );
            let (got, due) = (times.len() as u64, iops);
            // A dispatch is at most 500 us late, which is made good.
            assert!(
                (due - due / 50..=due + 1).contains(&got),
                "{got} of {due}: {from:?}, {to:?}"
            );
        }
    }
}

/// Checks that requests charged to a limit stay charged while another policy, even one without
/// limits, is in force for a moment.
#[test]
fn a_moment_under_another_policy_buys_nothing() {
    for to in limiting() {
        for between in policies() {
            let mut rig = Driver::new(config(4, 0, 64 * KIB), &to);
            let Guest { client, .. } = rig.guest(&limited(Rate::iops(10)));
            for n in 0..4u64 {
                rig.ask(client, Op::Read, n << 20, 4096).expect("room");
            }
            assert_eq!(rig.dispatch(9), 1);
            rig.end_all();
            for policy in [&between, &to] {
                let now = rig.now;
                rig.engine.set_policy(now, policy);
            }
            assert_eq!(rig.dispatch(9), 0, "{to:?}, {between:?} in between");
            rig.now.0 = 99 * MS;
            assert_eq!(rig.dispatch(9), 0, "{to:?}, {between:?} in between");
            rig.now.0 = 101 * MS;
            assert_eq!(rig.dispatch(9), 1, "{to:?}, {between:?} in between");
            rig.end_all();
            rig.drain();
        }
    }
}

/// Checks that a limit that changes while no policy enforces it keeps its debt, at its new rate.
#[test]
fn what_is_spent_follows_a_limit_that_nobody_keeps() {
    let [limit, fifo] = ["limit", "fifo"].map(|p| PolicySpec::named(p).expect("is listed"));
    // After one request at 10 a second: when the next one goes, in milliseconds.
    for (change, next) in [
        (Some(Rate::iops(10)), 100),
        (Some(Rate::iops(5)), 200),
        (Some(Rate::iops(20)), 50),
        // Lifted, and new.
        (None, 0),
    ] {
        let mut rig = Driver::new(config(4, 0, 64 * KIB), &limit);
        let Guest { vm, client, .. } = rig.guest(&limited(Rate::iops(10)));
        for n in 0..4u64 {
            rig.ask(client, Op::Read, n << 20, 4096).expect("room");
        }
        assert_eq!(rig.dispatch(9), 1);
        rig.end_all();
        let now = rig.now;
        rig.engine.set_policy(now, &fifo);
        for rate in [
            change.unwrap_or(Rate::NONE),
            change.unwrap_or(Rate::iops(10)),
        ] {
            let changed = rig.engine.vms_mut().set_objective(now, vm, &limited(rate));
            changed.expect("is valid");
        }
        rig.engine.set_policy(now, &limit);
        if next > 0 {
            rig.now.0 = next * MS - 1;
            assert_eq!(rig.dispatch(9), 0, "{change:?}");
        }
        rig.now.0 = next * MS;
        assert_eq!(rig.dispatch(9), 1, "{change:?}");
        rig.end_all();
        rig.drain();
    }
}

/// Checks that requests charged to a direction's limit stay charged under mClock, which enforces
/// only the total.
#[test]
fn what_a_direction_has_spent_outlives_a_policy_that_keeps_the_total() {
    let [limit, mclock] = ["limit", "mclock"].map(|p| PolicySpec::named(p).expect("is listed"));
    let mut rig = Driver::new(config(4, 0, 64 * KIB), &limit);
    let Guest { client, .. } = rig.guest(&Objective {
        limit: Limit {
            total: Rate::iops(1000),
            write: Rate::iops(10),
            ..Limit::NONE
        },
        ..Objective::default()
    });
    for n in 0..2u64 {
        rig.ask(client, Op::Write, n << 20, 4096).expect("room");
    }
    assert_eq!(rig.dispatch(9), 1);
    rig.end_all();
    for policy in [&mclock, &limit] {
        let now = rig.now;
        rig.engine.set_policy(now, policy);
    }
    rig.now.0 = 99 * MS;
    assert_eq!(rig.dispatch(9), 0);
    rig.now.0 = 100 * MS;
    assert_eq!(rig.dispatch(9), 1);
    rig.end_all();
    rig.drain();
}
