//! The token bucket against leaky buckets in exact arithmetic, as QEMU's `throttle.txt` defines
//! them: water leaks at the limit's rate; with a burst the bucket holds burst rate x length, and
//! water comes in no faster than the burst rate.
//!
//! The oracle is told of each I/O between its dispatch and its end, so the one loop over the engine
//! stands here.

use crate::common::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use tidegate_core::engine::{DiskSpec, Engine, EngineConfig};
use tidegate_core::objective::{Burst, Limit, Objective, OpsRate, Rate};
use tidegate_core::request::{Op, Request};
use tidegate_core::time::Nanos;

/// Default of the parameter `slack`, in ns.
const SLACK: u64 = 900_000;
/// Tolerance in ns: the engine rounds due times, and the length of a burst.
const ROUNDING: u128 = 2;

/// Leaky bucket. Levels are in units times nanoseconds, so no rounding occurs.
struct Leaky {
    rate: u128,
    size: u128,
    level: i128,
    then: u64,
}

impl Leaky {
    fn new(rate: u128, size: u128) -> Leaky {
        Leaky {
            rate,
            size,
            level: 0,
            then: 0,
        }
    }

    /// Returns the time until the bucket is no more than full, rounded down.
    fn wait(&self, now: u64) -> u128 {
        let level = self.level - ((now - self.then) as u128 * self.rate) as i128;
        (level - self.size as i128).max(0) as u128 / self.rate
    }

    /// Adds units. An empty bucket makes good the time from `from` to `now`.
    fn add(&mut self, now: u64, from: u64, units: u128) {
        self.level -= ((now - self.then) as u128 * self.rate) as i128;
        let late = (now - from) as u128;
        self.level = self.level.max(-((late * self.rate) as i128));
        self.level += (units * SECOND as u128) as i128;
        self.then = now;
    }
}

/// Buckets of one scope: requests (of a normalised size) and bytes, steady and burst.
struct Scope {
    norm: Option<u32>,
    ops: Vec<Leaky>,
    bytes: Vec<Leaky>,
}

impl Scope {
    fn new(limit: &Rate, burst: Option<(&Rate, Nanos)>) -> Scope {
        let norm = limit.ops.and_then(|o| o.norm);
        let unit = norm.unwrap_or(1) as u128;
        let buckets = |slow: Option<u128>, fast: Option<u128>, length: Nanos| match (slow, fast) {
            (None, _) => vec![],
            (Some(slow), None) => vec![Leaky::new(slow, 0)],
            (Some(slow), Some(fast)) => {
                vec![
                    Leaky::new(slow, fast * length.0 as u128),
                    Leaky::new(fast, 0),
                ]
            }
        };
        let ops = |rate: &Rate| rate.ops.map(|o| o.per_s as u128 * unit);
        let bytes = |rate: &Rate| rate.bytes_per_s.map(u128::from);
        let (fast, length) = burst.unwrap_or((&Rate::NONE, Nanos::ZERO));
        Scope {
            norm,
            ops: buckets(ops(limit), ops(fast), length),
            bytes: buckets(bytes(limit), bytes(fast), length),
        }
    }

    fn wait(&self, now: u64) -> u128 {
        let all = self.ops.iter().chain(&self.bytes);
        all.map(|b| b.wait(now)).max().unwrap_or(0)
    }

    /// `asked`: when it arrived.
    fn add(&mut self, [asked, now]: [u64; 2], first: Option<u32>, bytes: u32) {
        // (The engine's time begins at zero: before it there is nothing to be late for.)
        let slack = now.saturating_sub(SLACK);
        if let Some(len) = first {
            let units = self.norm.map_or(1, |norm| len.max(norm) as u128);
            let bursts = self.ops.len() > 1;
            for (n, bucket) in self.ops.iter_mut().enumerate() {
                // Single requests that waited, unless a burst is saved up anyhow.
                let whole = self.norm.is_none() && (n == 1 || !bursts);
                let from = if whole {
                    now.saturating_sub(max_lateness(bucket.rate as u64))
                        .max(asked.saturating_sub(SLACK))
                } else {
                    slack
                };
                bucket.add(now, from, units);
            }
        }
        for bucket in &mut self.bytes {
            bucket.add(now, slack, bytes as u128);
        }
    }
}

/// Total, reads, writes; and what waits in both lanes: (operation, length, bytes gone, since).
struct Oracle {
    scopes: [Scope; 3],
    lanes: [VecDeque<(Op, u32, u32, u64)>; 2],
}

impl Oracle {
    fn new(limit: &Limit) -> Oracle {
        let burst = |pick: fn(&Burst) -> &Rate| limit.burst.as_ref().map(|b| (pick(b), b.length));
        Oracle {
            scopes: [
                Scope::new(&limit.total, burst(|b| &b.total)),
                Scope::new(&limit.read, burst(|b| &b.read)),
                Scope::new(&limit.write, burst(|b| &b.write)),
            ],
            lanes: [VecDeque::new(), VecDeque::new()],
        }
    }

    /// Returns for each lane the time that its first request has to wait; `None` if it is empty.
    fn waits(&self, now: u64) -> [Option<u128>; 2] {
        [0, 1].map(|lane| {
            let wait = self.scopes[0]
                .wait(now)
                .max(self.scopes[1 + lane].wait(now));
            self.lanes[lane].front().map(|_| wait)
        })
    }

    fn started(&mut self, now: u64, lane: usize, len: u32) {
        let &mut (op, whole, ref mut gone, asked) =
            self.lanes[lane].front_mut().expect("something waits");
        let first = (*gone == 0).then_some(whole);
        let bytes = if matches!(op, Op::Read | Op::Write) {
            len
        } else {
            0
        };
        *gone += len;
        if *gone == whole {
            self.lanes[lane].pop_front();
        }
        self.scopes[0].add([asked, now], first, bytes);
        self.scopes[1 + lane].add([asked, now], first, bytes);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Request(Op, u32),
    Wait(u64),
    /// To the engine's next wake-up, and so much later.
    WakeUp(u64),
}

fn rate(norm: Option<u32>) -> impl Strategy<Value = Rate> {
    let ops = prop::option::weighted(0.5, 1u64..=5000);
    let bytes = prop::option::weighted(0.5, 1000u64..=200_000_000);
    (ops, bytes).prop_map(move |(ops, bytes_per_s)| Rate {
        ops: ops.map(|per_s| OpsRate { per_s, norm }),
        bytes_per_s,
    })
}

/// A rate of the same kind, so many times as fast.
fn faster(rate: &Rate, times: u64) -> Rate {
    Rate {
        ops: rate.ops.map(|o| OpsRate {
            per_s: o.per_s * times,
            norm: o.norm,
        }),
        bytes_per_s: rate.bytes_per_s.map(|b| b * times),
    }
}

fn limit() -> impl Strategy<Value = Limit> {
    let norm = prop::option::of(512u32..=65536);
    let rates = norm.prop_flat_map(|norm| (rate(norm), rate(norm), rate(norm)));
    let burst = prop::option::of((1u64..=20, 1u64..=2000));
    (rates, burst).prop_map(|((total, read, write), burst)| Limit {
        total,
        read,
        write,
        burst: burst.map(|(times, length)| Burst {
            total: faster(&total, times),
            read: faster(&read, times),
            write: faster(&write, times),
            length: Nanos::from_millis(length),
        }),
    })
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop_oneof![
        4 => Just(Op::Read),
        4 => Just(Op::Write),
        1 => Just(Op::Discard),
        1 => Just(Op::WriteZeroes),
    ];
    let len = prop_oneof![
        3 => 1u32..=65536, 1 => 65536u32..=4 << 20
    ];
    prop_oneof![
        4 => (op, len).prop_map(|(op, len)| Step::Request(op, len)),
        1 => (0u64..=200_000_000).prop_map(Step::Wait),
        3 => Just(Step::WakeUp(0)),
        1 => (0u64..=3_000_000).prop_map(Step::WakeUp),
        1 => (0u64..=30_000_000).prop_map(Step::WakeUp),
    ]
}

/// Everything that may go goes, and ends at once; the oracle must agree on each.
fn dispatch(engine: &mut Engine, oracle: &mut Oracle, now: u64) {
    while let Some(io) = engine.poll_dispatch(Nanos(now)) {
        let lane = io.op.lane().index();
        let wait = oracle.waits(now)[lane].expect("something waits in this lane");
        assert!(wait <= ROUNDING, "{io:?} went {wait} ns early at {now}");
        oracle.started(now, lane, io.len);
        engine.handle_completion(Nanos(now), io.id, Ok(()));
        while engine.poll_done().is_some() {}
    }
    let waits = oracle.waits(now).into_iter().flatten().min();
    let next = engine.next_timeout().map(|t| (t.0 - now) as u128);
    assert!(
        waits.is_none_or(|w| w > 0 || next.is_some_and(|n| n <= ROUNDING)),
        "late at {now}"
    );
    assert_eq!(
        waits.is_some(),
        next.is_some(),
        "a wake-up where something waits"
    );
    if let (Some(wait), Some(next)) = (waits, next) {
        assert!(
            next.abs_diff(wait) <= ROUNDING,
            "wakes in {next} ns, due in {wait} ns"
        );
    }
}

fn engine_with(limit: Limit) -> (Engine, tidegate_core::request::ClientId) {
    let config = EngineConfig {
        max_requests: 8192,
        ..config(8, 0)
    };
    let mut engine = Engine::new(config, &policy("limit")).expect("sound");
    let objective = Objective {
        limit,
        ..Objective::default()
    };
    let vm = engine
        .vms_mut()
        .add_vm(Nanos::ZERO, &objective)
        .expect("valid by construction");
    let spec = DiskSpec {
        base: 0,
        size: 1 << 40,
        read_only: false,
    };
    let disk = engine.vms_mut().add_disk(vm, spec).expect("fits");
    let client = engine.connect(disk).expect("there");
    (engine, client)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        // A third of the limits contradict themselves.
        max_global_rejects: u32::MAX,
        ..ProptestConfig::default()
    })]

    #[test]
    fn requests_go_when_the_leaky_buckets_let_them(
        limit in limit(),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let objective = Objective { limit, ..Objective::default() };
        prop_assume!(objective.validate().is_ok());
        let (mut engine, client) = engine_with(limit);
        let (mut oracle, mut now) = (Oracle::new(&limit), 0);
        for (tag, step) in steps.into_iter().enumerate() {
            match step {
                Step::Request(op, len) => {
                    let offset = (tag as u64) << 24;
                    let request = Request { op, ..Request::read(offset, len, tag as u64) };
                    engine.handle_request(Nanos(now), client, request).expect("room");
                    oracle.lanes[op.lane().index()].push_back((op, len, 0, now));
                }
                Step::Wait(nanos) => now += nanos,
                Step::WakeUp(late) => now = engine.next_timeout().map_or(now, |t| t.0 + late),
            }
            dispatch(&mut engine, &mut oracle, now);
        }
        engine.handle_disconnect(Nanos(now), client);
        while engine.poll_done().is_some() {}
    }
}

/// Returns the requests and bytes that an always backlogged VM gets in an hour.
fn in_an_hour(limit: Limit, op: Op, len: u32) -> (u64, u64) {
    let mut world = World::new("limit", 1000);
    let guest = world.guest(&Objective {
        limit,
        ..Objective::default()
    });
    world.load(guest, op, len, 4);
    world.run(3600 * SECOND);
    (total(&world.ops(guest)), total(&world.bytes(guest)))
}

#[test]
fn the_rate_over_an_hour_is_exact() {
    let total = |total| Limit::of_all(total);
    let (ops, _) = in_an_hour(total(Rate::iops(7)), Op::Read, 4096);
    assert!(ops.abs_diff(7 * 3600) <= 1, "{ops}");
    let (_, bytes) = in_an_hour(total(Rate::bytes(1_234_567)), Op::Write, 65536);
    assert!(bytes.abs_diff(1_234_567 * 3600) <= 65536, "{bytes}");
    let read = Limit {
        read: Rate::iops(13),
        ..Limit::NONE
    };
    let (ops, _) = in_an_hour(read, Op::Read, 4096);
    assert!(ops.abs_diff(13 * 3600) <= 1, "{ops}");
    let ops = Some(OpsRate {
        per_s: 100,
        norm: Some(4096),
    });
    let write = Limit {
        write: Rate {
            ops,
            bytes_per_s: None,
        },
        ..Limit::NONE
    };
    let (ops, _) = in_an_hour(write, Op::Write, 6144); // counts one and a half
    assert!(ops.abs_diff(66 * 3600 + 2400) <= 1, "{ops}");
}

#[test]
fn a_read_over_its_limit_does_not_hold_the_writes() {
    let mut world = World::new("limit", MS);
    let read = Limit {
        read: Rate::iops(1),
        ..Limit::NONE
    };
    let guest = world.guest(&Objective {
        limit: read,
        ..Objective::default()
    });
    world.load(guest, Op::Read, 4096, 4);
    world.load(guest, Op::Write, 4096, 4);
    world.run(10 * SECOND);
    let of = |op| world.driver.log.iter().filter(|s| s.io.op == op).count();
    assert!((10..=11).contains(&of(Op::Read)), "{}", of(Op::Read));
    assert!(of(Op::Write) >= 9980, "{}", of(Op::Write));
}

#[test]
fn a_flush_passes_a_limit_that_holds_everything() {
    let mut world = World::new("limit", MS);
    let guest = world.guest(&limited(Rate::bytes(1)));
    world.load(guest, Op::Write, 4096, 2);
    world.run(SECOND);
    world.keep_done = true;
    let flush = Request::flush(u64::MAX);
    world.driver.request(guest.client, flush).expect("room");
    world.run(2 * MS);
    assert_eq!(
        world.done.iter().map(|d| d.op).collect::<Vec<_>>(),
        [Op::Flush]
    );
}

#[test]
fn a_burst_is_as_long_as_qemu_says() {
    // throttle.txt's own example, a tenth as long: 2000 IOPS until 12000 are in the bucket,
    // from which 100 a second leak.
    let mut world = World::new("limit", 1000);
    let burst = bursting(Rate::iops(100), Rate::iops(2000), Nanos::from_secs(6));
    let guest = world.guest(&burst);
    world.load(guest, Op::Read, 4096, 8);
    world.run(20 * SECOND);
    let ops = world.ops(guest);
    let full = 12_000 * SECOND / 1900;
    assert!(within(&ops, 0, full).abs_diff(2000 * full / SECOND) <= 3);
    let after = within(&ops, full, 20 * SECOND);
    assert!(
        after.abs_diff((20 * SECOND - full) / (10 * MS)) <= 3,
        "{after}"
    );
    assert_below(&ops, 2000, 1);
    // After 3 s of quiet 300 have leaked: as many may come at once, at the burst rate.
    world.unload(guest);
    world.run(SECOND);
    world.run(3 * SECOND);
    world.driver.log.clear();
    world.load(guest, Op::Read, 4096, 8);
    world.run(SECOND);
    let again = total(&world.ops(guest));
    assert!(
        (480..=510).contains(&again),
        "{again} after four quiet seconds, and one of refill"
    );
}
