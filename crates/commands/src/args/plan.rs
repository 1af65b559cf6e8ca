//! Options of `tidegate plan`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum, ValueHint};
use tidegate_core::fit::Streams;
use tidegate_units::Thousandths;

use super::objective_parts::PartArgs;

#[derive(Debug, ClapArgs)]
pub(crate) struct PlanArgs {
    /// Configuration or scenario (TOML)
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Only this device; with --vm, the device of that VM
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Share of a device's capacity that may be promised, up to "100 %"
    #[arg(long, value_name = "PERCENT", default_value = "80 %", value_parser = parse_headroom)]
    pub(crate) headroom: Thousandths,
    /// Write the plan to FILE as a page for a browser
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<PathBuf>,
    /// Cost of sequential requests where VMs share a device
    #[arg(long, value_enum, default_value = "blended")]
    pub(crate) streams: StreamsArg,
    /// Plan with this VM added, or with the objective given by the options below
    #[arg(long, value_name = "NAME")]
    pub(crate) vm: Option<String>,
    #[command(flatten)]
    pub(crate) parts: PartArgs,
}

/// Cost of sequential requests where VMs share a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum StreamsArg {
    /// Equal to random requests, because VMs are served by turns
    Blended,
    /// Lower: sequential requests stay sequential
    Kept,
}

impl From<StreamsArg> for Streams {
    fn from(streams: StreamsArg) -> Streams {
        match streams {
            StreamsArg::Blended => Streams::Blended,
            StreamsArg::Kept => Streams::Kept,
        }
    }
}

/// Parses a percentage above 0.
fn parse_headroom(text: &str) -> Result<Thousandths, String> {
    let part = text.parse().ok().filter(|part: &Thousandths| part.0 > 0);
    part.ok_or_else(|| "allowed: \"0.1 %\" to \"100 %\"".to_owned())
}
