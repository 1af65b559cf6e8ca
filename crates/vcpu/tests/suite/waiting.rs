//! Bound on the wait for an event to which a scheduler does not react.
//!
//! A vCPU that can always run, has the share s of a pCPU and runs in pieces of at least r, waits
//! r (1 - s)^2 / (2 s) on average from a random time to its next piece: in a time T it has at most
//! s T / r pieces, so at most that many gaps, which last (1 - s) T together, and the mean of half
//! their squares is least if they are equal. Only a scheduler that reacts to the event itself does
//! better.

use crate::common::{every_scheduler, hog, scenario};
use proptest::prelude::*;
use tidegate_core::time::Nanos;
use tidegate_vcpu::machine::{CpuSet, State, VcpuId};
use tidegate_vcpu::scenario::{SchedulerSpec, Simulation};

/// Shortest piece of all schedulers: the rate limit, less what Credit2 tolerates.
const PIECE: Nanos = Nanos::from_micros(950);
/// Time that a run lasts.
const LASTS: Nanos = Nanos::from_secs(3);

/// Share of a pCPU and mean wait in seconds from a random time on, of the first of the VMs that
/// compute on one pCPU with these weights.
fn share_and_wait(scheduler: SchedulerSpec, weights: &[u32]) -> (f64, f64) {
    let vm = |(n, &weight): (usize, &u32)| {
        let mut vm = hog(&format!("vm{n}"), CpuSet::range(1, 1));
        vm.cpu.weight = weight;
        vm
    };
    let vms = weights.iter().enumerate().map(vm).collect();
    let mut scenario = scenario(scheduler, 2, vms);
    scenario.frame.duration = LASTS;
    let mut simulation = Simulation::new(scenario);
    // VM 0 is the driver domain with one vCPU.
    let first = VcpuId(1);
    let (mut since, mut squares) = (None::<Nanos>, 0.0);
    while simulation.world().now() < LASTS {
        simulation.step_event();
        let world = simulation.world();
        let waits = world.machine().vcpu(first).state == State::Waiting;
        match since {
            None if waits => since = Some(world.now()),
            Some(begin) if !waits => {
                squares += world.now().since(begin).as_secs_f64().powi(2);
                since = None;
            }
            _ => {}
        }
    }
    let lasted = simulation.world().now().as_secs_f64();
    let share = simulation.world().ran(first).as_secs_f64() / lasted;
    (share, squares / 2.0 / lasted)
}

fn bound(piece: Nanos, share: f64) -> f64 {
    piece.as_secs_f64() * (1.0 - share).powi(2) / (2.0 * share)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn nobody_waits_less_for_an_event_that_a_scheduler_does_not_react_to(
        weights in prop::collection::vec(64_u32..1_024, 2..7),
    ) {
        for scheduler in every_scheduler() {
            let (share, wait) = share_and_wait(scheduler, &weights);
            // The first wait and the one at the end are cut off.
            let least = 0.97 * bound(PIECE, share);
            prop_assert!(wait >= least, "{}: {wait} s of {least} s", scheduler.name());
        }
    }
}
