//! Options of `tidegate promises`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args as ClapArgs, ValueEnum, ValueHint};
use tidegate_core::time::Nanos;
use tidegate_experiments::promises::{REQUESTS, SECONDS, mixes};
use tidegate_policies::policy::PolicySpec;
use tidegate_units as units;

use super::value::{Seeds, parse_param, parse_policy, parse_seeds, whole};

/// Knowledge that the scheduler has of its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Profiled {
    /// The device's profile
    Yes,
    /// None
    No,
    /// Each of them
    Both,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PromisesArgs {
    /// Policy that is judged
    #[arg(long, value_name = "NAME", default_value = "slo", value_parser = parse_policy)]
    pub(crate) policy: PolicySpec,
    /// A parameter of it with its unit; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_param)]
    pub(crate) params: Vec<(String, String)>,
    /// With adaptive_depth and max_io_shared = "64 KiB"
    #[arg(long)]
    pub(crate) steered: bool,
    /// Device models to judge; all unless given
    #[arg(long = "device", value_name = "MODEL,...", value_delimiter = ',')]
    pub(crate) devices: Vec<String>,
    /// With the device's profile, without it, or both
    #[arg(long, value_enum, default_value_t = Profiled::Both)]
    pub(crate) profile: Profiled,
    /// Mixes of VMs to judge; all unless given
    #[arg(long = "mix", value_name = "NAME,...", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(mixes().iter().map(|mix| mix.name)))]
    pub(crate) mixes: Vec<String>,
    /// Mean round trips of guests, in whole microseconds
    #[arg(long = "rtt", value_name = "TIME,...", value_delimiter = ',',
          default_value = "0 us,100 us,500 us", value_parser = parse_round_trip)]
    pub(crate) round_trips: Vec<Nanos>,
    /// Seeds: 1..3 (both included), or 1,2,3
    #[arg(long, value_name = "N..N|N,...", default_value = "1..3", value_parser = parse_seeds)]
    pub(crate) seeds: Seeds,
    /// Seconds that are judged of each run at most
    #[arg(long, value_name = "N", default_value_t = SECONDS,
          value_parser = whole::<u64>(5..=86_400))]
    pub(crate) seconds: u64,
    /// Requests after which a run ends, with the second that it is in
    #[arg(long, value_name = "N", default_value_t = REQUESTS,
          value_parser = whole::<u64>(1..=1 << 40))]
    pub(crate) requests: u64,
    /// Set every cell beside those of all other policies
    #[arg(long)]
    pub(crate) compare: bool,
    /// Print the scenario of the first cell, which `tidegate sim` takes, and simulate nothing
    #[arg(long, conflicts_with = "compare")]
    pub(crate) scenario: bool,
    /// Keep results in this file, and use those in it that are of the same build
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) results: Option<PathBuf>,
    /// Build that other policies' results are kept for; this program's digest unless said
    #[arg(long, value_name = "TEXT", requires = "results")]
    pub(crate) build: Option<String>,
    /// Simulations at once; as many as there are cores unless said
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024))]
    pub(crate) jobs: Option<u16>,
}

/// Round trip, which may be no time at all.
fn parse_round_trip(text: &str) -> Result<Nanos, String> {
    let time = units::parse_duration(text).map_err(|error| error.to_string())?;
    match time.0 % 1000 {
        0 => Ok(time),
        _ => Err("whole microseconds, such as \"100 us\"".to_owned()),
    }
}
