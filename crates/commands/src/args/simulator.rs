//! Options of the commands that simulate in virtual time.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, ValueHint};
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_vcpu::spec::SchedulerSpec;

use super::value::{parse_minutes, parse_policy, parse_time, whole};
use super::vcpu::{named_with_note, scheduler_names};
use crate::completion;

/// Options that override parts of a scenario.
#[derive(Debug, ClapArgs)]
pub(crate) struct ChangeArgs {
    /// Device model for all devices: a name of the catalogue, or a TOML file
    #[arg(long, value_name = "MODEL", add = completion::models())]
    pub(crate) device: Option<String>,
    /// Duration of the run, such as "60 s"
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) duration: Option<Nanos>,
    /// Ignore unsupported options of a fio job file, with a warning
    #[arg(long)]
    pub(crate) lenient: bool,
}

/// Simulation of the host CPU of a scenario with `[host.cpu]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Processors {
    /// No CPU: guests and the driver domain take no time.
    None,
    /// CPU with this vCPU scheduler.
    Under(SchedulerSpec),
}

/// Returns a parser of [`Processors`]: a scheduler's name or `none`.
pub(super) fn processors() -> impl TypedValueParser<Value = Processors> {
    let none =
        PossibleValue::new("none").help("no host CPU: guests and the driver domain take no time");
    let names = scheduler_names().chain([none]);
    PossibleValuesParser::new(names).map(|name| match named_with_note(&name) {
        Some(scheduler) => Processors::Under(scheduler),
        None => Processors::None,
    })
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimArgs {
    /// Scenario or the daemon's configuration (.toml), or fio job file (any other extension)
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Policy for all devices
    #[arg(long, value_name = "NAME", value_parser = parse_policy, add = completion::policies())]
    pub(crate) policy: Option<PolicySpec>,
    /// vCPU scheduler, for a scenario with [host.cpu]
    #[arg(long, value_name = "NAME", value_parser = processors())]
    pub(crate) scheduler: Option<Processors>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Also print a row for each VM and interval, such as "1 s"
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) interval: Option<Nanos>,
    /// Write a CSV line for each replayed request and each transfer with a deadline to FILE
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) responses: Option<PathBuf>,
    /// Record every request in FILE with the times of its stages
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) record: Option<PathBuf>,
    /// Write the results to FILE in the JSON of fio, a job for each VM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) fio_json: Option<PathBuf>,
    /// Write the latencies of each VM and interval (1 s, or --interval) to FILE as HdrHistograms
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) hdr_log: Option<PathBuf>,
    /// Write promises, latencies and loads over time to FILE as a page for a browser
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
    /// Draw throughput and latency over time on the terminal
    #[arg(long)]
    pub(crate) plot: bool,
    #[command(flatten)]
    pub(crate) plots: PlotArgs,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompareArgs {
    /// Scenario (.toml), configuration with workloads, or fio job file (any other extension)
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Policies to compare, each on all devices
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          default_value = "fifo,mclock,slo", value_parser = parse_policy,
          add = completion::policies())]
    pub(crate) policies: Vec<PolicySpec>,
    /// Further policies, with adaptive_depth = false and max_io_shared = "off": a device queue
    /// that is always full, as with other schedulers
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = parse_policy,
          add = completion::policies())]
    pub(crate) fixed_depth: Vec<PolicySpec>,
    /// VM whose latency is shown [default: the first with a latency bound, else the first]
    #[arg(long, value_name = "NAME")]
    pub(crate) vm: Option<String>,
    /// Interval between points of the curves [default: 1 % of the duration]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) interval: Option<Nanos>,
    /// Seed of all random choices
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: Option<u64>,
    /// Draw the curves on the terminal
    #[arg(long)]
    pub(crate) plot: bool,
    #[command(flatten)]
    pub(crate) plots: PlotArgs,
    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}

/// Options for drawing curves.
#[derive(Debug, ClapArgs)]
pub(crate) struct PlotArgs {
    /// Write the curves to FILE as SVG
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
    /// Draw curves in ASCII (the default where the locale is not UTF-8)
    #[arg(long)]
    pub(crate) ascii: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReproduceArgs {
    /// Paper to reproduce [default: list all papers]
    #[arg(value_name = "PAPER", add = completion::paper_names())]
    pub(crate) paper: Option<String>,
    /// Only this table of the paper and its claims
    #[arg(long, value_name = "N", requires = "paper")]
    pub(crate) table: Option<String>,
    /// Only this figure of the paper and its claims
    #[arg(long, value_name = "N", requires = "paper", conflicts_with = "table")]
    pub(crate) figure: Option<String>,
    /// Fit the free parameters of the models again, and print the calibration
    #[arg(long, requires = "paper",
          conflicts_with_all = ["table", "figure", "plot", "svg", "details"])]
    pub(crate) calibrate: bool,
    /// Print every figure and claim, with reasons and ablations, instead of one screen
    #[arg(long, requires = "paper")]
    pub(crate) details: bool,
    /// Write figures, verdicts with their reasons, curves and the calibration to FILE as a page
    /// for a browser
    #[arg(long, value_name = "FILE", requires = "paper", conflicts_with = "calibrate",
          value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
    /// Draw the curves on the terminal
    #[arg(long, requires = "paper")]
    pub(crate) plot: bool,
    /// Replay the paper's original traces, as far as they are in DIR
    #[arg(long, value_name = "DIR", requires = "paper", conflicts_with = "calibrate",
          value_hint = ValueHint::DirPath)]
    pub(crate) traces: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) plots: PlotArgs,
    /// Parallel simulations [default: number of CPUs]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Run vFair's table 5 live, on three daemons of this machine that share an emulated disk and
    /// exchange shares over NATS, and compare with the simulator
    #[arg(long, requires = "paper",
          conflicts_with_all = ["table", "figure", "calibrate", "details", "report", "plot",
                                "traces", "svg", "ascii", "jobs"])]
    pub(crate) distributed: bool,
    /// Only this row of the table, such as sysbench:ftp:scp
    #[arg(long, value_name = "NAME", requires = "distributed")]
    pub(crate) row: Option<String>,
    /// Seconds that each live run is measured, after a third as many that are not [default: 30]
    #[arg(long, value_name = "N", requires = "distributed", value_parser = whole::<u64>(1..=3600))]
    pub(crate) seconds: Option<u64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TortureArgs {
    /// Number of seeds [default: 1000, or unlimited with --minutes]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=1 << 40))]
    pub(crate) seeds: Option<u64>,
    /// First seed
    #[arg(long, value_name = "SEED", default_value_t = 0,
          value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) start_seed: u64,
    /// Start no more seeds after M minutes
    #[arg(long, value_name = "M", value_parser = parse_minutes)]
    pub(crate) minutes: Option<Duration>,
    /// Parallel runs [default: number of CPUs]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Run only this seed
    #[arg(long, value_name = "SEED", value_parser = whole::<u64>(0..=u64::MAX),
          conflicts_with_all = ["seeds", "start_seed", "minutes", "jobs", "resume"])]
    pub(crate) seed: Option<u64>,
    /// Policies to test [default: all, and all combinations of parts]
    #[arg(long = "policy", value_name = "NAME,...", value_delimiter = ',',
          value_parser = parse_policy, add = completion::policies())]
    pub(crate) policies: Vec<PolicySpec>,
    /// Print every event
    #[arg(long, requires = "seed")]
    pub(crate) trace: bool,
    /// Record passed seeds in FILE and skip them next time; valid for one build and one choice of
    /// policies
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) resume: Option<PathBuf>,
}
