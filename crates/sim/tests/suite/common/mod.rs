//! Scenarios written as their users write them.

pub(crate) mod what_if;

use tidegate_config::{ConfigErrors, Loaded, model};
use tidegate_sim::report::{Report, Row, VmReport};
use tidegate_sim::scenario::{self, Scenario};
use tidegate_sim::world::World;

pub(crate) fn read(text: &str) -> Result<Loaded<Scenario>, ConfigErrors> {
    scenario::read(text, "test.toml", &model::built_in, None)
}

pub(crate) fn good(text: &str) -> Scenario {
    let loaded = read(text).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(loaded.warnings, []);
    loaded.config
}

/// Messages about `text`, as one text.
pub(crate) fn refused(text: &str) -> String {
    let errors = read(text).map(|_| ()).expect_err("refused");
    errors.to_string()
}

/// Runs a scenario to its end.
pub(crate) fn run(text: &str) -> Report {
    let mut world = World::new(good(text), None);
    world.run(&mut |_| {});
    world.report()
}

/// Runs it and keeps a row for each VM and second.
pub(crate) fn run_with_rows(text: &str) -> (Report, Vec<Row>) {
    let mut rows = Vec::new();
    let interval = Some(tidegate_core::time::Nanos::SECOND);
    let mut world = World::new(good(text), interval);
    world.run(&mut |row| rows.push(row.clone()));
    (world.report(), rows)
}

pub(crate) fn vm<'a>(report: &'a Report, name: &str) -> &'a VmReport {
    let found = report.vms.iter().find(|vm| vm.name == name);
    found.unwrap_or_else(|| panic!("no VM {name}"))
}

/// Within so many percent.
pub(crate) fn near(found: f64, expected: f64, percent: f64) {
    let off = 100.0 * (found - expected).abs() / expected.abs().max(1e-9);
    assert!(off <= percent, "{found} is {off:.2} % off {expected}");
}

/// One hard disk, one I/O at a time.
pub(crate) const DISK: &str = "
    duration = \"60 s\"
    [[device]]
    name = \"disk\"
    model = \"hdd-7200-1tb\"
    policy = \"fifo\"
    depth = 1
    merge_limit = \"0 B\"
";
