//! Recordings of scenarios.

use super::read;
use std::collections::BTreeMap;
use tidegate_config::model;
use tidegate_core::objective::Objective;
use tidegate_policies::policy::PolicySpec;
use tidegate_recording::Recording;
use tidegate_sim::report::Report;
use tidegate_sim::what_if::WhatIf;
use tidegate_sim::world::World;

/// Runs a scenario; returns its recording and its report.
pub(crate) fn recorded(text: &str) -> (Recording, Report) {
    // Not every policy enforces the limit, which a warning says.
    let loaded = read(text).unwrap_or_else(|errors| panic!("{errors}"));
    let mut world = World::new(loaded.config, None);
    world.record(0);
    let mut bytes = Vec::new();
    while !world.is_over() {
        world.step(&mut |_| {});
        world.take_recording(0, &mut bytes);
    }
    let report = world.report();
    world.end_recording(0, &mut bytes);
    let recording = Recording::read(&bytes[..], usize::MAX).expect("just written");
    assert!(recording.is_whole());
    (recording, report)
}

/// Returns a recording ready to be replayed on its own model.
pub(crate) fn prepared(recording: &Recording) -> WhatIf {
    let name = recording.header.device.model.as_deref();
    let model = model::built_in(name.expect("a simulated device has a model"));
    let model = model.expect("of the catalogue");
    WhatIf::new(recording, &model, None).expect("it can be replayed")
}

/// Replays a recording, or a part of it, with other settings; returns the report.
pub(crate) fn replayed(
    what_if: &WhatIf,
    policy: Option<&str>,
    objectives: &BTreeMap<usize, Objective>,
) -> Report {
    let policy = policy.map(|name| PolicySpec::named(name).expect("registered"));
    let scenario = what_if.scenario(policy.as_ref(), objectives);
    let mut world = World::new(scenario.expect("it is right"), None);
    world.run(&mut |_| {});
    world.report()
}
