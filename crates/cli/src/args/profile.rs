//! Options of `tidegate profile`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueHint};

use super::PlotArgs;
use super::value::{parse_size, whole};

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
    /// A model of the catalogue or of a .toml file, a block device, a file, or a directory
    #[arg(required = true, value_hint = ValueHint::AnyPath)]
    pub(crate) device: Option<String>,
    /// Where the profile goes; NAME.profile.toml in this directory unless said
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) results: Option<PathBuf>,
    /// Fewer sizes and runs: under a minute
    #[arg(long)]
    pub(crate) quick: bool,
    /// Requests outstanding at saturation; found unless said
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=1024))]
    pub(crate) depth: Option<u32>,
    /// Measure reads alone
    #[arg(long)]
    pub(crate) read_only: bool,
    /// What all random choices follow from
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) seed: u64,
    /// Measure anew, whatever an earlier run that was stopped has left
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Measure a model in real time, as the emulated disk that the daemon serves
    #[arg(long, help_heading = "Models")]
    pub(crate) live: bool,
    /// Make a file of this size, such as "2 GiB", to measure what it lies on; of a block device,
    /// only so much of its start
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Disks")]
    pub(crate) size: Option<u64>,
    /// Leave the file that was made where it is
    #[arg(long, requires = "size", help_heading = "Disks")]
    pub(crate) keep: bool,
    /// Destroy what the disk holds: writes go all over it
    #[arg(long, conflicts_with = "read_only", help_heading = "Disks")]
    pub(crate) overwrite: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// Show a profile: its rates and times, in tables and as curves
    #[command(after_help = "Examples:\n  tidegate profile show sdb.profile.toml\n  \
                            tidegate profile show nvme-1tb --svg nvme.svg")]
    Show {
        /// The profile, TOML, or the name of a model of the catalogue
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        plot: PlotArgs,
    },
}
