//! Options of `tidegate vcpu`.

use std::io::Write;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Subcommand, ValueHint};
use tidegate_core::time::Nanos;
use tidegate_vcpu::compare::{CELLS, Cell};
use tidegate_vcpu::schedulers::{SCHEDULERS, named};
use tidegate_vcpu::spec::SchedulerSpec;

use super::value::{parse_time, whole};

/// Commands of `tidegate vcpu`.
#[derive(Debug, Subcommand)]
pub(crate) enum VcpuCommand {
    /// Simulate a host's vCPUs under a scheduler
    #[command(
        after_help = "docs/vcpu.md describes scenarios. The same scenario and seed give the same \
                      results on every machine.\n\nExamples:
  tidegate vcpu sim examples/vcpu/mixed.toml
  tidegate vcpu sim examples/vcpu/mixed.toml --scheduler credit2
  tidegate vcpu sim examples/vcpu/mixed.toml -o json | jq '.vms[].round_trips'"
    )]
    Sim(Box<VcpuSimArgs>),
    /// Compare all vCPU schedulers on a fixed grid of hosts
    #[command(
        after_help = "docs/vcpu-compare.md describes the cells and the columns. Cells that are \
                      held out were not looked at\nwhile a scheduler was tuned; they are marked \
                      with *.\n\nExamples:
  tidegate vcpu compare
  tidegate vcpu compare mixed flooder
  tidegate vcpu compare -o json | jq '.held_out'"
    )]
    Compare(VcpuCompareArgs),
    /// List vCPU schedulers with their parameters, defaults and ranges
    List,
}

/// Options of `tidegate vcpu compare`.
#[derive(Debug, ClapArgs)]
pub(crate) struct VcpuCompareArgs {
    /// Cells of the grid; without a name, all
    #[arg(value_name = "CELL", value_parser = cell())]
    pub(crate) cells: Vec<&'static Cell>,
    /// Leave out the cells that are held out from tuning
    #[arg(long, conflicts_with = "cells")]
    pub(crate) tuning: bool,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: u64,
}

/// Options of `tidegate vcpu sim`.
#[derive(Debug, ClapArgs)]
pub(crate) struct VcpuSimArgs {
    /// Scenario (TOML)
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// vCPU scheduler; with default parameters if the scenario names another
    #[arg(long, value_name = "NAME", value_parser = scheduler())]
    pub(crate) scheduler: Option<SchedulerSpec>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Duration of the run, such as "10 s"
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) duration: Option<Nanos>,
}

/// Iterates over the names of all vCPU schedulers, with their summaries for `--help`.
pub(super) fn scheduler_names() -> impl Iterator<Item = PossibleValue> {
    let all = SCHEDULERS.iter();
    all.map(|info| {
        let value = PossibleValue::new(info.name).help(info.summary);
        value.aliases(info.old_names.iter().copied())
    })
}

/// Returns the scheduler named `name`; a name of an earlier release gives a note.
pub(super) fn named_with_note(name: &str) -> Option<SchedulerSpec> {
    let spec = named(name)?;
    if spec.name() != name {
        let new = spec.name();
        // The note is lost if standard error is closed; the command goes on.
        _ = writeln!(std::io::stderr(), "note: {name} is the old name of {new}");
    }
    Some(spec)
}

/// Returns a parser of a vCPU scheduler's name.
fn scheduler() -> impl TypedValueParser<Value = SchedulerSpec> {
    let names = PossibleValuesParser::new(scheduler_names());
    names.try_map(|name| named_with_note(&name).ok_or("no such scheduler"))
}

/// Returns a parser of the name of a cell.
fn cell() -> impl TypedValueParser<Value = &'static Cell> {
    let all = CELLS.iter();
    let names = all.map(|cell| PossibleValue::new(cell.name).help(cell.what));
    let names = PossibleValuesParser::new(names);
    names.try_map(|name| {
        let found = CELLS.iter().find(|cell| cell.name == name);
        found.ok_or("no such cell")
    })
}
