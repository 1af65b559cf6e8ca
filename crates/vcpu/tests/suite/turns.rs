//! Bounds of turns for I/O, as docs/vcpu-turns.md states them.

use proptest::prelude::*;
use tidegate_core::time::Nanos;
use tidegate_vcpu::guest::{GuestCpu, Token};
use tidegate_vcpu::machine::{Machine, State, VcpuId};
use tidegate_vcpu::schedulers::credit2::MIN_TIMER;
use tidegate_vcpu::schedulers::io_turns::Params;
use tidegate_vcpu::world::VcpuWorld;

/// Interval at which the tests deliver events and observe.
const STEP: Nanos = Nanos::from_micros(20);
/// Time that a vCPU may be preempted before its rate limit is over, in Credit2.
const TOLERANCE: Nanos = Nanos::from_micros(50);

/// vCPU that computes without end: weight, and steps between two notifications of I/O (0: none).
type Busy = (u32, u64);

fn busy(most: usize) -> impl Strategy<Value = Vec<Busy>> {
    let every = prop_oneof![Just(0_u64), 1_u64..400];
    prop::collection::vec((64_u32..1_024, every), 2..most)
}

/// One pCPU with these vCPUs under turns for I/O.
fn world_of(vcpus: &[Busy]) -> VcpuWorld {
    let mut machine = Machine::new(1, 1);
    let all = machine.all_pcpus();
    for (n, &(weight, _)) in vcpus.iter().enumerate() {
        machine.add_vm(&format!("vm{n}"), 1, all, weight, 0);
    }
    let mut guests = vec![GuestCpu::default(); vcpus.len()];
    for guest in &mut guests {
        let task = guest.add_task();
        let token = Token {
            flow: 0,
            stage: 0,
            data: 0,
        };
        guest.wake(task, Nanos::MAX, token);
    }
    let scheduler = Params::default().spec().build(&machine);
    let mut world = VcpuWorld::new(machine, guests, Vec::new(), scheduler, Nanos::ZERO);
    for v in 0..vcpus.len() {
        world.deliver(VcpuId(v as u32), Nanos(1_000), 0, false);
    }
    world
}

/// Runs `world` up to `until` with an event of 5 us for each vCPU at its interval; calls `look`
/// after each step.
fn run(
    world: &mut VcpuWorld,
    vcpus: &[Busy],
    until: Nanos,
    mut look: impl FnMut(&VcpuWorld) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let mut step = 0;
    while world.now() < until {
        step += 1;
        world.run_until(Nanos(step * STEP.0));
        for (v, &(_, every)) in vcpus.iter().enumerate() {
            if every > 0 && step % every == 0 {
                world.deliver(VcpuId(v as u32), Nanos::from_micros(5), 0, true);
            }
        }
        look(world)?;
    }
    Ok(())
}

/// CPU time that a vCPU gets in an epoch, in nanoseconds.
fn epoch_share(vcpus: &[Busy], v: usize) -> f64 {
    let largest = vcpus.iter().map(|vcpu| vcpu.0).max().unwrap_or(1);
    let credit = Params::default().credit2.credit.0 as f64;
    credit * f64::from(vcpus[v].0) / f64::from(largest)
}

/// Longest wait of `v` in nanoseconds: two epochs of the others, and a lead and a turn of each that
/// has turns. One that has turns itself may have used its lead, which it pays for in further
/// epochs.
fn longest_wait(vcpus: &[Busy], v: usize) -> f64 {
    let params = Params::default();
    let rate_limit = (params.credit2.rate_limit + MIN_TIMER).0 as f64;
    let lead = params.lead.0 as f64;
    let ahead = if vcpus[v].1 > 0 {
        (lead / epoch_share(vcpus, v)).ceil()
    } else {
        0.0
    };
    let others = (0..vcpus.len()).filter(|&n| n != v);
    let of = |n: usize| {
        let turns = if vcpus[n].1 > 0 {
            lead + params.io_turn.0 as f64
        } else {
            0.0
        };
        (2.0 + ahead) * (epoch_share(vcpus, n) + rate_limit) + turns
    };
    others.map(of).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Over any time, a vCPU is from its fair share by at most two resets' credit, its lead, a
    /// turn and a rate limit.
    #[test]
    fn shares_are_fair_but_for_a_lead(vcpus in busy(7)) {
        let params = Params::default();
        let bound = 2 * params.credit2.credit.0 + params.lead.0 + params.io_turn.0
            + params.credit2.rate_limit.0;
        let mut world = world_of(&vcpus);
        let weights: u64 = vcpus.iter().map(|vcpu| u64::from(vcpu.0)).sum();
        run(&mut world, &vcpus, Nanos::from_secs(3), |world| {
            for (v, &(weight, _)) in vcpus.iter().enumerate() {
                let due = world.now().0 * u64::from(weight) / weights;
                let had = world.ran(VcpuId(v as u32)).0;
                let error = Nanos(had.abs_diff(due));
                prop_assert!(error.0 <= bound, "{v}: {error} of {}", Nanos(bound));
            }
            Ok(())
        })?;
    }

    /// A vCPU has a turn in each gap at most, and each turn brings two preemptions at most beyond
    /// those at the rate limit.
    #[test]
    fn turns_are_a_gap_apart_and_preemptions_bounded(vcpus in busy(7)) {
        let params = Params::default();
        let until = Nanos::from_secs(1);
        let mut world = world_of(&vcpus);
        run(&mut world, &vcpus, until, |_| Ok(()))?;
        let notified = vcpus.iter().filter(|vcpu| vcpu.1 > 0).count() as u64;
        let turns = world.counts().turns;
        prop_assert!(turns <= notified * (until.0 / params.gap.0 + 1), "{turns} turns");
        prop_assert!((turns > 0) == (notified > 0), "{turns} turns of {notified}");
        let usual = until.0 / params.credit2.rate_limit.since(TOLERANCE).0 + 1;
        let all = world.preemptions();
        prop_assert!(all <= usual + 2 * turns, "{all} preemptions, {turns} turns");
    }

    /// Nobody starves.
    #[test]
    fn waits_are_bounded(vcpus in busy(7)) {
        let mut world = world_of(&vcpus);
        let bounds: Vec<f64> = (0..vcpus.len()).map(|v| longest_wait(&vcpus, v)).collect();
        let mut since = vec![(Nanos::ZERO, Nanos::ZERO); vcpus.len()];
        run(&mut world, &vcpus, Nanos::from_secs(2), |world| {
            for (v, (begin, ran)) in since.iter_mut().enumerate() {
                let id = VcpuId(v as u32);
                let waits = world.machine().vcpu(id).state == State::Waiting;
                if !waits || world.ran(id) > *ran {
                    (*begin, *ran) = (world.now(), world.ran(id));
                    continue;
                }
                let waited = world.now().since(*begin);
                let bound = bounds[v];
                prop_assert!(waited.0 as f64 <= bound, "{v} waited {waited} of {bound} ns");
            }
            Ok(())
        })?;
    }
}

/// A vCPU that is notified all the time waits as long as it has run ahead, and no longer.
#[test]
fn who_is_notified_without_end_pays_for_its_lead() {
    let vcpus = [(64, 5), (256, 0), (256, 0)];
    let mut world = world_of(&vcpus);
    let mut longest = Nanos::ZERO;
    let mut since = Nanos::ZERO;
    let look = |world: &VcpuWorld| {
        if world.machine().vcpu(VcpuId(0)).state == State::Running {
            since = world.now();
        }
        longest = longest.max(world.now().since(since));
        Ok(())
    };
    run(&mut world, &vcpus, Nanos::from_secs(4), look).expect("no bound is checked");
    let share = world.ran(VcpuId(0)).as_secs_f64() / 4.0;
    assert!((share - 1.0 / 9.0).abs() < 0.01, "{share}");
    assert!(longest > Nanos::from_millis(2), "{longest}");
    assert!((longest.0 as f64) <= longest_wait(&vcpus, 0), "{longest}");
}
