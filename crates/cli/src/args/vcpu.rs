//! Commands about the vCPUs of a host.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Subcommand, ValueHint};
use tidegate_core::time::Nanos;
use tidegate_vcpu::schedulers::{SCHEDULERS, named};
use tidegate_vcpu::spec::SchedulerSpec;

use super::value::{parse_time, whole};

/// `tidegate vcpu`.
#[derive(Debug, Subcommand)]
pub(crate) enum VcpuCommand {
    /// Simulate a host's vCPUs under a scheduler
    #[command(
        after_help = "docs/vcpu.md says what a scenario is. The same scenario and seed give the \
                      same results on every machine.\n\nExamples:
  tidegate vcpu sim examples/vcpu/mixed.toml
  tidegate vcpu sim examples/vcpu/mixed.toml --scheduler credit2
  tidegate vcpu sim examples/vcpu/mixed.toml -o json | jq '.vms[].round_trips.p99_ms'"
    )]
    Sim(Box<VcpuSimArgs>),
    /// vCPU schedulers with their parameters, defaults and ranges
    List,
}

/// `tidegate vcpu sim`.
#[derive(Debug, ClapArgs)]
pub(crate) struct VcpuSimArgs {
    /// A scenario, TOML
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// This scheduler, with its usual parameters where the scenario names another
    #[arg(long, value_name = "NAME", value_parser = scheduler())]
    pub(crate) scheduler: Option<SchedulerSpec>,
    /// This seed
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// This long, such as "10 s"
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) duration: Option<Nanos>,
}

/// Names of all vCPU schedulers, each with its summary for `--help`.
pub(super) fn scheduler_names() -> impl Iterator<Item = PossibleValue> {
    let all = SCHEDULERS.iter();
    all.map(|info| PossibleValue::new(info.name).help(info.summary))
}

fn scheduler() -> impl TypedValueParser<Value = SchedulerSpec> {
    let names = PossibleValuesParser::new(scheduler_names());
    names.try_map(|name| named(&name).ok_or("there is no such scheduler"))
}
