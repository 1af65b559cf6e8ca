//! Service of a VM under a limit, counted exactly over a long time: with merges, splits, errors
//! that repeat a unit's requests one by one, and units that are cancelled in part.

use crate::attacks::rig::{config, limiting};
use crate::common::{Driver, Guest, Start, limited};
use tidegate_core::engine::EngineConfig;
use tidegate_core::objective::{Objective, OpsRate, Rate};
use tidegate_core::request::{ClientId, DeviceIo, IoError, Op, Outcome};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

const KIB: u32 = 1 << 10;
const SECOND: u64 = 1_000_000_000;

/// Duration of a device I/O in ns.
const SERVICE: u64 = 10_000;

/// Drives one guest that always has `depth` requests inside, until `end`. `verdict` gives the
/// outcome of each device I/O.
fn saturate(
    rig: &mut Driver,
    end: u64,
    mut refill: impl FnMut(&mut Driver),
    mut verdict: impl FnMut(&DeviceIo) -> Outcome,
) {
    let begin = rig.now.0;
    while rig.now.0 < end {
        refill(rig);
        rig.dispatch(usize::MAX);
        if rig.in_flight.is_empty() {
            let next = rig.engine.next_timeout().expect("something waits").0;
            assert!(next > rig.now.0);
            rig.now.0 = next;
        } else {
            rig.now.0 += SERVICE;
            while let Some(io) = rig.in_flight.front().copied() {
                let outcome = verdict(&io);
                rig.end_nth(0, outcome);
            }
        }
    }
    assert!(rig.now.0 > begin);
}

/// Returns a guest that issues sequential requests of `len`, with `depth` inside.
fn stream(client: ClientId, op: Op, len: u32, depth: usize, gap: u32) -> impl FnMut(&mut Driver) {
    let mut next = 0;
    move |rig| {
        while rig.ledger.unanswered() < depth {
            rig.ask(client, op, next % (1 << 35), len).expect("room");
            next += (len + gap) as u64;
        }
    }
}

/// Returns requests served first before `end`, the most of them in one unit, and bytes.
fn first_served(rig: &Driver, end: u64) -> (u64, u64, u64) {
    let before = rig.log.iter().filter(|s| s.at < end);
    before.fold((0, 0, 0), |(ops, most, bytes), Start { io, .. }| {
        let first = io.first_ops as u64;
        (ops + first, most.max(first), bytes + io.len as u64)
    })
}

struct Case {
    merge: u32,
    max_io: u32,
    len: u32,
    depth: usize,
    gap: u32,
}

/// Requests alone; merging; splitting; both, with units larger than an I/O.
const CASES: [Case; 4] = [
    Case {
        merge: 0,
        max_io: 1 << 20,
        len: 4 * KIB,
        depth: 4,
        gap: 8 * KIB,
    },
    Case {
        merge: 64 * KIB,
        max_io: 1 << 20,
        len: 4 * KIB,
        depth: 32,
        gap: 0,
    },
    Case {
        merge: 0,
        max_io: 64 * KIB,
        len: 1 << 20,
        depth: 2,
        gap: 4 * KIB,
    },
    Case {
        merge: 256 * KIB,
        max_io: 64 * KIB,
        len: 48 * KIB,
        depth: 16,
        gap: 0,
    },
];

impl Case {
    fn config(&self) -> EngineConfig {
        config(4, self.merge, self.max_io)
    }
}

fn each(mut run: impl FnMut(&PolicySpec, &Case, Op)) {
    for policy in limiting() {
        for case in &CASES {
            for op in [Op::Read, Op::Write] {
                run(&policy, case, op);
            }
        }
    }
}

/// Asserts that `got` is the amount of a rate over a time, in which a unit may run it into debt.
fn assert_exact(got: u64, rate: u64, end: u64, unit: u64, what: &dyn std::fmt::Debug) {
    let due = rate * (end / SECOND);
    assert!(
        (due..=due + unit).contains(&got),
        "{got}, and {due} to {} are due: {what:?}",
        due + unit
    );
}

#[test]
fn requests_are_charged_once_however_they_are_merged_and_split() {
    each(|policy, case, op| {
        let (rate, end) = (90, 20 * SECOND);
        let mut rig = Driver::new(case.config(), policy);
        let Guest { client, .. } = rig.guest(&limited(Rate::iops(rate)));
        let refill = stream(client, op, case.len, case.depth, case.gap);
        saturate(&mut rig, end, refill, |_| Ok(()));
        let (ops, most, _) = first_served(&rig, end);
        assert_exact(ops, rate, end, most, policy);
        rig.drain();
    });
}

#[test]
fn bytes_are_charged_once_however_they_are_merged_and_split() {
    each(|policy, case, op| {
        let (rate, end) = (3_000_000, 20 * SECOND);
        let mut rig = Driver::new(case.config(), policy);
        let Guest { client, .. } = rig.guest(&limited(Rate::bytes(rate)));
        let refill = stream(client, op, case.len, case.depth, case.gap);
        saturate(&mut rig, end, refill, |_| Ok(()));
        let (.., bytes) = first_served(&rig, end);
        assert_exact(bytes, rate, end, case.config().device.max_io as u64, policy);
        rig.drain();
    });
}

#[test]
fn a_normalised_request_counts_its_size_once() {
    each(|policy, case, op| {
        let (per_s, end) = (400, 20 * SECOND);
        let rate = Rate {
            ops: Some(OpsRate {
                per_s,
                norm: Some(16 * KIB),
            }),
            bytes_per_s: None,
        };
        let mut rig = Driver::new(case.config(), policy);
        let Guest { client, .. } = rig.guest(&limited(rate));
        let refill = stream(client, op, case.len, case.depth, case.gap);
        saturate(&mut rig, end, refill, |_| Ok(()));
        // In units of 16 KiB, at least one a request.
        let unit = case.len.max(16 * KIB) as u64;
        let (ops, most, _) = first_served(&rig, end);
        let norm = 16 * KIB as u64;
        let due = per_s * norm * (end / SECOND);
        let got = ops * unit;
        assert!(
            (due..=due + most * unit).contains(&got),
            "{got} bytes of {due}: {policy:?}"
        );
        rig.drain();
    });
}

#[test]
fn what_is_repeated_after_an_error_is_not_counted_again() {
    each(|policy, case, op| {
        let (rate, end) = (90, 20 * SECOND);
        let mut rig = Driver::new(case.config(), policy);
        let Guest { vm, client, .. } = rig.guest(&limited(Rate::iops(rate)));
        let refill = stream(client, op, case.len, case.depth, case.gap);
        let (mut n, mut errors) = (0, 0);
        saturate(&mut rig, end, refill, |_| {
            n += 1;
            errors += (n % 3 == 0) as u64;
            if n % 3 == 0 { Err(IoError::Io) } else { Ok(()) }
        });
        assert!(errors > 100, "{errors}");
        let (ops, most, _) = first_served(&rig, end);
        assert_exact(ops, rate, end, most, policy);
        rig.drain();
        let tally = rig.tallies[&vm];
        assert_eq!(tally.first_ops, tally.answered(), "each was charged, once");
    });
}

#[test]
fn bytes_that_are_repeated_after_an_error_are_charged_again() {
    each(|policy, case, op| {
        let (rate, end) = (3_000_000, 20 * SECOND);
        let mut rig = Driver::new(case.config(), policy);
        let Guest { client, .. } = rig.guest(&limited(Rate::bytes(rate)));
        let refill = stream(client, op, case.len, case.depth, case.gap);
        let mut n = 0;
        saturate(&mut rig, end, refill, |_| {
            n += 1;
            if n % 3 == 0 { Err(IoError::Io) } else { Ok(()) }
        });
        let (.., bytes) = first_served(&rig, end);
        assert_exact(bytes, rate, end, case.config().device.max_io as u64, policy);
        rig.drain();
    });
}

/// Checks that cancelled requests cost nothing: two clients of one disk take turns, so that units
/// hold requests of both, and every so often the second vanishes with requests that wait.
#[test]
fn what_is_cancelled_before_it_starts_costs_nothing() {
    for policy in limiting() {
        for merge in [0, 64 * KIB] {
            let (rate, end) = (90, 20 * SECOND);
            let mut rig = Driver::new(config(4, merge, 1 << 20), &policy);
            let vm = rig.vm(&limited(Rate::iops(rate)));
            let disk = rig.disk(vm);
            let stays = rig.client(disk);
            let mut goes = rig.client(disk);
            let (mut next, mut turns) = (0, 0u64);
            let refill = |rig: &mut Driver| {
                turns += 1;
                if turns % 5 == 0 {
                    rig.disconnect(goes);
                    goes = rig.client(disk);
                }
                while rig.ledger.unanswered() < 32 {
                    for client in [stays, goes] {
                        rig.ask(client, Op::Write, next % (1 << 35), 4096)
                            .expect("room");
                        next += 4096;
                    }
                }
            };
            saturate(&mut rig, end, refill, |_| Ok(()));
            let (ops, most, _) = first_served(&rig, end);
            assert_exact(ops, rate, end, most, &policy);
            assert!(rig.tallies[&vm].cancelled > 300);
            rig.drain();
            let tally = rig.tallies[&vm];
            assert_eq!(tally.first_ops + tally.cancelled, tally.answered());
        }
    }
}

/// Checks that a unit costs as many credits as it has requests, and that repetitions and parts cost
/// no more. Two VMs that always ask thus share by their reservations, whatever becomes of their
/// requests.
#[test]
fn credits_are_charged_once_however_requests_are_merged_split_and_repeated() {
    for name in ["flubber", "edf-credit"] {
        for case in &CASES {
            let mut policy = PolicySpec::named(name).expect("is there");
            policy.set("feedback", 0).expect("is there");
            let mut rig = Driver::new(case.config(), &policy);
            let guests = [100, 300].map(|per_s| {
                let reserved = Objective {
                    reservation: Rate::iops(per_s),
                    ..Objective::default()
                };
                rig.guest(&reserved)
            });
            let mut next = [0u64; 2];
            let refill = |rig: &mut Driver| {
                for (n, Guest { vm, client, .. }) in guests.into_iter().enumerate() {
                    while rig
                        .engine
                        .admission_mut()
                        .available_slots(Nanos::ZERO, client)
                        > 1024 - case.depth as u32
                    {
                        rig.ask(client, Op::Read, next[n] % (1 << 35), case.len)
                            .expect("room");
                        next[n] += (case.len + case.gap) as u64;
                    }
                    assert!(rig.engine.view().requests(vm) > 0);
                }
            };
            let mut n = 0;
            saturate(&mut rig, SECOND / 4, refill, |_| {
                n += 1;
                if n % 7 == 0 { Err(IoError::Io) } else { Ok(()) }
            });
            let [few, many] = guests.map(|guest| rig.tallies[&guest.vm].first_ops);
            assert!(few > 400, "{few}");
            // An interval is 32 and 96 requests, and a unit may run a VM into debt.
            let off = (3 * few).abs_diff(many);
            assert!(off <= 3 * 96 + 3 * 64, "{few} and {many}: {policy:?}");
            rig.drain();
        }
    }
}
