//! Options of `tidegate plan`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum, ValueHint};
use tidegate_core::fit::Streams;
use tidegate_units::Thousandths;

use super::part::PartArgs;

#[derive(Debug, ClapArgs)]
pub(crate) struct PlanArgs {
    /// The configuration, or a scenario, TOML
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Only this device; with --vm, where that one would lie
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// How much of a device's time may be promised, up to "100 %"
    #[arg(long, value_name = "PERCENT", default_value = "80 %", value_parser = parse_headroom)]
    pub(crate) headroom: Thousandths,
    /// What becomes of sequential requests where VMs share a device
    #[arg(long, value_enum, default_value = "blended")]
    pub(crate) streams: StreamsArg,
    /// What if this VM were added, or had the objective that follows?
    #[arg(long, value_name = "NAME")]
    pub(crate) vm: Option<String>,
    #[command(flatten)]
    pub(crate) parts: PartArgs,
}

/// What becomes of sequential requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum StreamsArg {
    /// They cost as much as random ones: VMs are served by turns
    Blended,
    /// They stay sequential
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

fn parse_headroom(text: &str) -> Result<Thousandths, String> {
    let part = text.parse().ok().filter(|part: &Thousandths| part.0 > 0);
    part.ok_or_else(|| "a part of the whole from \"0.1 %\" to \"100 %\"".to_owned())
}
