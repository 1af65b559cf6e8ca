//! Torture keeps its own promises: seeds pass, repeat to the last bit, and leave nothing out.

use std::collections::BTreeSet;
use tidegate_core::policy::Policy;
use tidegate_policies::policy::dispatchers;
use tidegate_sim::fault::{Kind, Rate};
use tidegate_sim::torture::{self, EventKind, Line, Options, Swarm, Timing};

/// Few where they are slow; `scripts/test torture` runs the many in release.
const SEEDS: u64 = if cfg!(debug_assertions) { 60 } else { 600 };

#[test]
fn seeds_pass() {
    for seed in 0..SEEDS {
        if let Err(failure) = torture::run(seed) {
            panic!("{failure}");
        }
    }
}

#[test]
fn a_seed_does_the_same_every_time() {
    let lines = |seed| {
        let mut all: Vec<Line> = Vec::new();
        let mut sink = |line: &Line| all.push(*line);
        let options = Options {
            sink: Some(&mut sink),
            ..Options::default()
        };
        let passed = torture::run_with(seed, options);
        (passed.map(|passed| passed.digest).ok(), all)
    };
    let mut digests = BTreeSet::new();
    for seed in [3, 4711, u64::MAX] {
        let (first, second) = (lines(seed), lines(seed));
        assert!(first.1.iter().any(|line| line.kind == EventKind::Answered));
        assert_eq!(first.1, second.1, "seed {seed}");
        assert_eq!(first.0, second.0, "seed {seed}");
        digests.insert(first.0);
    }
    assert_eq!(digests.len(), 3, "different seeds do different things");
}

#[test]
fn the_swarm_reaches_every_part_and_every_kind_of_fault() {
    let swarms: Vec<Swarm> = (0..400).map(|seed| Swarm::draw(seed, &[])).collect();
    let any = |what: &str, is: &dyn Fn(&Swarm) -> bool| {
        let (with, all) = (swarms.iter().filter(|s| is(s)).count(), swarms.len());
        assert!((1..all).contains(&with), "{what}: {with} of {all} runs");
    };
    for part in dispatchers() {
        any(part.name, &|s| s.policy.parts().2 == part.name);
    }
    for kind in Kind::ALL {
        any(kind.name(), &|s| s.plan.rate(kind) != Rate::Off);
    }
    any("models", &|s| matches!(s.timing, Timing::Catalogue(_)));
    any("no merging", &|s| s.config.merge_limit == 0);
    any("one I/O at a time", &|s| s.config.device.depth == 1);
    any("admission", &|s| s.window.is_some());
    any("fickle merge limits", &|s| s.fickle);
    any("jobs", &|s| s.transfers);
    any("one VM", &|s| s.vms.len() == 1);
    any("limits", &|s| {
        s.vms.iter().any(|vm| !vm.objective.limit.is_none())
    });
    any("bursts", &|s| {
        s.vms.iter().any(|vm| vm.objective.limit.burst.is_some())
    });
    any("reservations", &|s| {
        s.vms.iter().any(|vm| !vm.objective.reservation.is_none())
    });
}
