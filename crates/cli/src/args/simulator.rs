//! Options of the commands that run the engine in virtual time.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, ValueHint};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_vcpu::schedulers::named;
use tidegate_vcpu::spec::SchedulerSpec;

use super::value::{Seeds, parse_minutes, parse_policy, parse_seeds, parse_time, whole};
use super::vcpu::scheduler_names;

/// What changes a scenario for one run.
#[derive(Debug, ClapArgs)]
pub(crate) struct ChangeArgs {
    /// This model under every device: a name of the catalogue, or a TOML file
    #[arg(long, value_name = "MODEL")]
    pub(crate) device: Option<String>,
    /// This long, such as "60 s"
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) duration: Option<Nanos>,
    /// Leave out what is not understood of a fio job file, with a warning
    #[arg(long)]
    pub(crate) lenient: bool,
}

/// Who runs on the processors of a scenario that has some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Processors {
    /// They are left out: guests and the driver domain take no time.
    None,
    /// Whom this scheduler lets.
    Under(SchedulerSpec),
}

fn processors() -> impl TypedValueParser<Value = Processors> {
    let none = PossibleValue::new("none").help("processors are left out");
    let names = scheduler_names().chain([none]);
    PossibleValuesParser::new(names).map(|name| match named(&name) {
        Some(scheduler) => Processors::Under(scheduler),
        None => Processors::None,
    })
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimArgs {
    /// A scenario (.toml), or a fio job file (any other ending)
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// This policy on every device
    #[arg(long, value_name = "NAME", value_parser = parse_policy)]
    pub(crate) policy: Option<PolicySpec>,
    /// This scheduler of vCPUs, in a scenario with [host.cpu]; none: without processors
    #[arg(long, value_name = "NAME", value_parser = processors())]
    pub(crate) scheduler: Option<Processors>,
    /// This seed
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// A row for each VM every so often, such as "1 s"
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) interval: Option<Nanos>,
    /// A line of CSV for each request of a trace and each job with a deadline, into this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) responses: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompareArgs {
    /// A scenario (.toml), a configuration with workloads, or a fio job file (any other ending)
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// These policies, each on every device
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          default_value = "fifo,mclock,slo", value_parser = parse_policy)]
    pub(crate) policies: Vec<PolicySpec>,
    /// Also these, with adaptive_depth = false and max_io_shared = "off": a queue that is always
    /// filled, as schedulers elsewhere have it
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = parse_policy)]
    pub(crate) fixed_depth: Vec<PolicySpec>,
    /// The VM whose latency is drawn; the first with a latency bound, or the first, unless said
    #[arg(long, value_name = "NAME")]
    pub(crate) vm: Option<String>,
    /// Time from point to point of the curves; a hundredth of the duration unless said
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) interval: Option<Nanos>,
    /// This seed
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Draw the curves, too
    #[arg(long)]
    pub(crate) plot: bool,
    #[command(flatten)]
    pub(crate) plots: PlotArgs,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SweepArgs {
    /// Scenarios (.toml) and fio job files
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// These policies, each on every device; the scenarios' own unless said
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = parse_policy)]
    pub(crate) policies: Vec<PolicySpec>,
    /// These schedulers of vCPUs, in scenarios with [host.cpu]; none: without processors
    #[arg(long = "scheduler", value_name = "NAME,...", value_delimiter = ',',
          value_parser = processors())]
    pub(crate) schedulers: Vec<Processors>,
    /// Seeds: 1..20 (both included), or 1,2,3
    #[arg(long, value_name = "N..N|N,...", default_value = "1..10", value_parser = parse_seeds)]
    pub(crate) seeds: Seeds,
    /// Where results are kept, a line of JSON each
    #[arg(long, value_name = "FILE", default_value = "sweep.jsonl",
          value_hint = ValueHint::FilePath)]
    pub(crate) results: PathBuf,
    /// Simulate everything anew, whatever the results file holds
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Simulations at once; as many as there are cores unless said
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024))]
    pub(crate) jobs: Option<u16>,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}

/// How curves are drawn.
#[derive(Debug, ClapArgs)]
pub(crate) struct PlotArgs {
    /// Write the curves to this file, as SVG
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
    /// Draw curves with ASCII alone, as where the locale is not UTF-8
    #[arg(long)]
    pub(crate) ascii: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReproduceArgs {
    /// The paper; a list of them unless said
    #[arg(value_name = "PAPER")]
    pub(crate) paper: Option<String>,
    /// Only this table of the paper, and what is claimed about it
    #[arg(long, value_name = "N", requires = "paper")]
    pub(crate) table: Option<String>,
    /// Only this figure of the paper, and what is claimed about it
    #[arg(long, value_name = "N", requires = "paper", conflicts_with = "table")]
    pub(crate) figure: Option<String>,
    /// Fit the free figures of the models again, and print the calibration
    #[arg(long, requires = "paper", conflicts_with_all = ["table", "figure", "plot", "svg"])]
    pub(crate) calibrate: bool,
    /// Draw the curves there are, too
    #[arg(long, requires = "paper")]
    pub(crate) plot: bool,
    /// Replay the traces in this directory that the paper was measured with, as far as they are
    /// there
    #[arg(long, value_name = "DIR", requires = "paper", conflicts_with = "calibrate",
          value_hint = ValueHint::DirPath)]
    pub(crate) traces: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) plots: PlotArgs,
    /// Simulations at once; as many as there are cores unless said
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024))]
    pub(crate) jobs: Option<u16>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TortureArgs {
    /// How many seeds; 1000 unless --minutes is given
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=1 << 40))]
    pub(crate) seeds: Option<u64>,
    /// The first of them
    #[arg(long, value_name = "SEED", default_value_t = 0,
          value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) start_seed: u64,
    /// Begin no more seeds after so many minutes
    #[arg(long, value_name = "M", value_parser = parse_minutes)]
    pub(crate) minutes: Option<Duration>,
    /// How many at a time; all processors unless said
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Only this seed
    #[arg(long, value_name = "SEED", value_parser = whole::<u64>(0..=u64::MAX),
          conflicts_with_all = ["seeds", "start_seed", "minutes", "jobs", "resume"])]
    pub(crate) seed: Option<u64>,
    /// Only these policies; all of them, and all compositions, unless said
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = parse_policy)]
    pub(crate) policies: Vec<PolicySpec>,
    /// Show everything that happens, as it happens
    #[arg(long, requires = "seed")]
    pub(crate) trace: bool,
    /// Remember in this file which seeds have passed, and leave those out; a file belongs to one
    /// build and one choice of policies
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) resume: Option<PathBuf>,
}
