//! Options of `tidegate profile`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueHint};
use tidegate_core::time::Nanos;

use super::PlotArgs;
use super::value::{parse_size, parse_time, whole};
use crate::completion;

#[derive(Debug, ClapArgs)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ProfileArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ProfileCommand>,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct MeasureArgs {
    /// Model of the catalogue or of a .toml file, block device, file, or directory
    #[arg(required = true, add = completion::models())]
    pub(crate) device: Option<String>,
    /// File for the profile [default: NAME.profile.toml in the current directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) results: Option<PathBuf>,
    /// Measure fewer sizes and runs, in under a minute
    #[arg(long)]
    pub(crate) quick: bool,
    /// Queue depth at saturation [default: found by measurement]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1024))]
    pub(crate) depth: Option<u32>,
    /// Measure reads only
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: u64,
    /// Start again, ignoring results of an interrupted measurement
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Measure a model in real time, as the daemon's emulated disk
    #[arg(long, help_heading = "Models")]
    pub(crate) live: bool,
    /// Size of the temporary file to measure a directory's disk with, such as "2 GiB"; for a block
    /// device, the part at its start to measure
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Disks")]
    pub(crate) size: Option<u64>,
    /// Keep the temporary file
    #[arg(long, requires = "size", help_heading = "Disks")]
    pub(crate) keep: bool,
    /// Overwrite the data on the disk
    #[arg(long, conflicts_with = "read_only", help_heading = "Disks")]
    pub(crate) overwrite: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// Show a profile: its rates and latencies, in tables and as curves
    #[command(after_help = "Examples:\n  tidegate profile show sdb.profile.toml\n  \
                            tidegate profile show nvme-1tb --svg nvme.svg")]
    Show {
        /// Profile (TOML), or the name of a model of the catalogue
        #[arg(add = completion::models())]
        file: PathBuf,
        #[command(flatten)]
        plot: PlotArgs,
    },
    /// Fit a device model to a recording, with its error for each I/O
    #[command(
        after_help = "The first 60 % of the recording are fitted; errors are those of the \
                            rest. The model is used by name of its file: `tidegate whatif \
                            RECORDING --device FILE`, `tidegate sim SCENARIO --device FILE`, \
                            `tidegate profile FILE`.\n\nExamples:
  tidegate profile fit slow.tgrec
  tidegate profile fit slow.tgrec --device nvme-1tb --results sdb.toml"
    )]
    Fit(FitArgs),
}

/// Options of `tidegate profile fit`.
#[derive(Debug, ClapArgs)]
pub(crate) struct FitArgs {
    /// Recording (`tidegate record dump`, `tidegate sim --record`)
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) recording: PathBuf,
    /// File for the model [default: NAME.model.toml in the current directory]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) results: Option<PathBuf>,
    /// Model to begin with, of the catalogue or of a .toml file [default: the nearest of the
    /// catalogue]
    #[arg(long, value_name = "MODEL", add = completion::models())]
    pub(crate) device: Option<String>,
    /// Length of the fit on an ordinary machine, such as "5 min": it sets the number of simulated
    /// I/Os, whatever the machine
    #[arg(long, value_name = "TIME", default_value = "60 s", value_parser = parse_time)]
    pub(crate) budget: Nanos,
    /// Fit to a recording from which requests are missing
    #[arg(long)]
    pub(crate) allow_gaps: bool,
}
