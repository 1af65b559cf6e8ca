//! Body of the fuzz target `scenario`.

use crate::scenario::{self, Scenario};
use crate::world::World;
use tidegate_config::model;
use tidegate_core::time::Nanos;
use tidegate_workload::spec::Flow;

/// Simulated time of each input: 1 ms.
const SPAN: Nanos = Nanos(1_000_000);
/// Largest number of outstanding requests that is simulated; more would be slower without reaching
/// new code.
const MAX_OUTSTANDING: u64 = 2_000;

/// Reads `data` as a scenario and simulates it for [`SPAN`]. Panics if it is refused without a
/// message, or if the simulation breaks.
pub fn scenario(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    match scenario::read(text, "fuzz.toml", &model::built_in, None) {
        Ok(loaded) if outstanding(&loaded.config) <= MAX_OUTSTANDING => run(loaded.config),
        Ok(_) => {}
        Err(errors) => {
            assert!(!errors.0.is_empty(), "refused without a reason");
            assert!(!errors.to_string().is_empty());
        }
    }
}

/// Upper bound of the requests that are outstanding at once.
fn outstanding(scenario: &Scenario) -> u64 {
    let workloads = scenario.vms.iter().flat_map(|vm| &vm.workloads);
    workloads
        .map(|workload| {
            let (Flow::Closed { iodepth, .. } | Flow::Open { iodepth, .. }) = workload.flow;
            u64::from(workload.numjobs) * u64::from(iodepth)
        })
        .sum()
}

fn run(mut scenario: Scenario) {
    // A warm-up would be longer than what is simulated.
    scenario.frame.warm_up = Nanos::ZERO;
    scenario.frame.duration = scenario.frame.duration.min(SPAN);
    let mut world = World::new(scenario, Some(SPAN));
    let mut rows = 0;
    world.run(&mut |_| rows += 1);
    let report = world.report();
    assert_eq!(rows, report.vms.len());
    let figures = report
        .vms
        .iter()
        .map(|vm| vm.rates.iops + vm.rates.bytes_per_s);
    assert!(figures.into_iter().all(f64::is_finite));
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_example_is_survived_also_with_a_piece_missing() {
        let text = include_str!("../../../examples/noisy-neighbour.toml");
        for cut in (0..text.len()).step_by(17) {
            let end = (cut + 23).min(text.len());
            super::scenario([&text[..cut], &text[end..]].concat().as_bytes());
        }
    }
}
