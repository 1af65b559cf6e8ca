//! Tests of starvation: a VM that keeps asking is served within its policy's bound, beside a
//! thousand others.
//!
//! The device takes 1 ms an I/O and one at a time, so a bound in I/Os is one in milliseconds.

use crate::attacks::rig::{config, policies};
use crate::common::{MS, SECOND, World};
use tidegate_core::engine::{DeviceSpec, EngineConfig};
use tidegate_core::objective::{Objective, Priority};
use tidegate_core::policy::Policy;
use tidegate_core::request::Op;
use tidegate_core::starvation::{Bound, Draws, Due, Lead};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

const OTHERS: u64 = 1000;
const LEN: u32 = 16 << 10;
const SERVICE: u64 = MS;

fn many() -> EngineConfig {
    config(1, 0, 1 << 20)
}

/// Returns the I/Os of `n` others that may go before one of a waiting VM, at equal weights and
/// sizes, if each VM has one request inside at a time.
fn bound(policy: &PolicySpec, n: u64) -> u64 {
    let (_, regulator, dispatcher) = policy.parts();
    let of_dispatcher = match dispatcher {
        // SFQ and the two below have tighter bounds among equals than they state for all VMs.
        "sfq" => 2 * n,
        // R is 1, a quantum 64 KiB to twice that, a cost 16 KiB; twice for the scale.
        "drr" => 2 * (2 * 8 + 1) * n,
        // A slice is 100 ms and idling 8 ms; all others' slices, and three more.
        "cfq" => 108 * (2 * n + 4),
        _ => stated(policy, n),
    };
    match regulator {
        // An interval is 32 requests a VM, at most 20,000 and one each.
        "vbc" => of_dispatcher + 2 * (32 * n).min(20_000 + n),
        // While costs are learnt a share may be half of what is due, and credits may have to wait
        // for the end of a period, 30 ms.
        "circ" => 2 * of_dispatcher + 30,
        _ => of_dispatcher,
    }
}

/// Returns the dispatcher's starvation bound among `n` VMs, in I/Os of `LEN`.
fn stated(policy: &PolicySpec, n: u64) -> u64 {
    let device = DeviceSpec {
        max_io: LEN,
        ..many().device
    };
    let ios = |time: Nanos| time.0.div_ceil(SERVICE);
    match policy.starvation(&device, None) {
        // Requests that arrived earlier: each of the others has issued its own.
        Bound::Arrival => 2 * n,
        Bound::Deadline(Due { before: None, .. }) => 2 * n,
        // A batch may go before requests that are not due yet.
        Bound::Deadline(due) => ios(due.deadlines.best_effort_latency) + 2 * n,
        Bound::Shares(shares) => {
            let each = match shares.lead {
                Lead::Ahead { ahead, once } => ahead + once,
                Lead::Turns { quantum } => 2 * (2 * quantum + shares.largest),
            };
            each.div_ceil(shares.largest) * n
        }
        // Draws among equals take longer only with a probability below 2^-64.
        Bound::Draws(_) => Draws::WINS * (n + 1),
        // Behind all older requests, once it has expired.
        Bound::Age(expiry) => ios(expiry.after[0]) + expiry.batch * 2 * (n + 1),
        Bound::Slices(slices) => ios(slices.longest + slices.idle) * (2 * n + 4),
        Bound::Unbounded => panic!("{policy:?}: a registered policy states a bound"),
    }
}

#[test]
fn every_policy_states_a_bound() {
    for policy in PolicySpec::every_composition() {
        let bound = policy.starvation(&many().device, None);
        assert_ne!(bound, Bound::Unbounded, "{policy:?}");
    }
}

/// Returns the largest number of VMs up to `most` whose bound is well within the 15 s of a run; a
/// larger bound could not be broken in that time.
fn as_many(most: u64, bound: impl Fn(u64) -> u64) -> u64 {
    let fits = |&n: &u64| bound(n) <= 12_000;
    (1..=most).rev().find(fits).expect("a few fit")
}

/// Returns the longest time between two I/Os of the first guest.
fn longest_wait(world: &World, vm: tidegate_core::request::VmId) -> u64 {
    let starts = world
        .driver
        .log
        .iter()
        .filter(|s| s.io.vm == vm)
        .map(|s| s.at);
    let times: Vec<u64> = std::iter::once(0)
        .chain(starts)
        .chain([world.now()])
        .collect();
    times.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0)
}

#[test]
fn one_that_keeps_asking_is_served_beside_a_thousand_that_do() {
    for policy in policies() {
        let others = as_many(OTHERS, |n| bound(&policy, n));
        let mut world = World::with_policy(many(), &policy, SERVICE);
        let victim = world.guest(&Objective::default());
        for _ in 0..others {
            let other = world.guest(&Objective::default());
            world.load(other, Op::Read, LEN, 1);
        }
        world.run(20 * MS);
        world.load(victim, Op::Read, LEN, 1);
        world.run(15 * SECOND);
        let longest = longest_wait(&world, victim.vm) / MS;
        let bound = bound(&policy, others);
        assert!(longest <= bound, "{longest} I/Os of {bound}: {policy:?}");
    }
}

/// Checks the bound beside flushes. They pass data by, but never take two turns in a row, so they
/// at most double a bound; each flush has its turn, too.
#[test]
fn a_storm_of_flushes_takes_every_other_turn_at_most() {
    for policy in policies() {
        let bound = |n| 2 * bound(&policy, 2 * n + 1);
        let others = as_many(OTHERS / 25, bound);
        let mut world = World::with_policy(many(), &policy, SERVICE);
        let victim = world.guest(&Objective::default());
        let flusher = world.guest(&Objective::default());
        for _ in 0..others {
            let other = world.guest(&Objective::default());
            world.load(other, Op::Flush, 0, 4);
            let reader = world.guest(&Objective::default());
            world.load(reader, Op::Read, LEN, 1);
        }
        world.load(flusher, Op::Flush, 0, 1);
        world.load(victim, Op::Read, LEN, 1);
        world.run(15 * SECOND);
        let longest = longest_wait(&world, victim.vm) / MS;
        let bound = bound(others);
        assert!(longest <= bound, "{longest} I/Os of {bound}: {policy:?}");
        // A flush waits for those that came before, each with a turn of data beside it.
        let longest = longest_wait(&world, flusher.vm) / MS;
        assert!(longest <= 2 * (others + 2), "{longest}: {policy:?}");
    }
}

/// Checks that the background goes once in `background_after`, or by its dispatcher's rule: due
/// after 10 s (`edf`), overdue after 5 s and then between two turns (`cfq`), promoted (`bd-edf`).
#[test]
fn the_background_is_served_beside_a_thousand_that_never_stop() {
    for policy in policies() {
        let bound = match policy.parts().2 {
            "edf" => 12_000 + 2 * OTHERS,
            "cfq" => 5_000 + 4 * 108,
            "bd-edf" => 1_000 + 100,
            _ => 500 + 3,
        };
        let mut world = World::with_policy(many(), &policy, SERVICE);
        let backup = world.background();
        world.load(backup, Op::Read, LEN, 4);
        for _ in 0..OTHERS {
            let other = world.guest(&Objective::default());
            world.load(other, Op::Read, LEN, 1);
        }
        world.run(20 * SECOND);
        let longest = longest_wait(&world, backup.vm) / MS;
        assert!(longest <= bound, "{longest} ms of {bound}: {policy:?}");
    }
}

/// Checks VMs below others that never stop: one of level 7 in the same class has its slice, and an
/// idle VM one I/O when it is overdue.
#[test]
fn the_lowest_priorities_are_served_beside_the_highest_of_their_class() {
    for policy in policies() {
        let mut world = World::with_policy(many(), &policy, SERVICE);
        let with = |priority| Objective {
            priority,
            ..Objective::default()
        };
        let low = world.guest(&with(Priority::BestEffort(7)));
        let idle = world.guest(&with(Priority::Idle));
        world.load(low, Op::Read, LEN, 1);
        world.load(idle, Op::Read, LEN, 1);
        for _ in 0..10 {
            let high = world.guest(&with(Priority::BestEffort(0)));
            world.load(high, Op::Read, LEN, 2);
        }
        world.run(15 * SECOND);
        // Slices of 180 ms.
        let turn = 180 + 8 + 16;
        let (of_low, of_idle) = match policy.parts().2 {
            "cfq" => (turn * (2 * 11 + 4), 5_000 + 2 * turn),
            _ => (bound(&policy, 22), bound(&policy, 22)),
        };
        for (guest, bound) in [(low, of_low), (idle, of_idle)] {
            let longest = longest_wait(&world, guest.vm) / MS;
            assert!(longest <= bound, "{longest} ms of {bound}: {policy:?}");
        }
    }
}
