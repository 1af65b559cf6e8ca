//! Options of `tidegate promises`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args as ClapArgs, ValueEnum, ValueHint};
use tidegate_core::time::Nanos;
use tidegate_experiments::promises::{REQUESTS, SECONDS, mixes};
use tidegate_policies::policy::PolicySpec;
use tidegate_units as units;

use super::value::{Seeds, parse_param, parse_policy, parse_seeds, whole};
use crate::completion;

/// Use of the device's profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Profiled {
    /// With the device's profile
    Yes,
    /// Without a profile
    No,
    /// With and without the profile
    Both,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PromisesArgs {
    /// Policy to test
    #[arg(long, value_name = "NAME", default_value = "slo", value_parser = parse_policy,
          add = completion::policies())]
    pub(crate) policy: PolicySpec,
    /// Policy parameter with its unit; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_param)]
    pub(crate) params: Vec<(String, String)>,
    /// Set adaptive_depth = true and max_io_shared = "64 KiB" on the devices: Tidegate then
    /// adapts the queue depth, and splits long I/Os while VMs share a device
    #[arg(long)]
    pub(crate) adaptive: bool,
    /// Old name of `--adaptive`, accepted for one release
    #[arg(long, hide = true)]
    pub(crate) steered: bool,
    /// Device models [default: all]
    #[arg(long = "device", value_name = "MODEL,...", value_delimiter = ',',
          add = completion::catalogue_models())]
    pub(crate) devices: Vec<String>,
    /// Use of the device's profile
    #[arg(long, value_enum, default_value_t = Profiled::Both)]
    pub(crate) profile: Profiled,
    /// Mixes of VMs [default: all]
    #[arg(long = "mix", value_name = "NAME,...", value_delimiter = ',',
          value_parser = PossibleValuesParser::new(mixes().iter().map(|mix| mix.name)))]
    pub(crate) mixes: Vec<String>,
    /// Mean round-trip times of guests, in whole microseconds
    #[arg(long = "rtt", value_name = "TIME,...", value_delimiter = ',',
          default_value = "0 us,100 us,500 us", value_parser = parse_round_trip)]
    pub(crate) round_trips: Vec<Nanos>,
    /// Seeds: 1..3 (both included), or 1,2,3
    #[arg(long, value_name = "N..N|N,...", default_value = "1..3", value_parser = parse_seeds)]
    pub(crate) seeds: Seeds,
    /// Maximum number of judged seconds of a run
    #[arg(long, value_name = "N", default_value_t = SECONDS,
          value_parser = whole::<u64>(5..=86_400))]
    pub(crate) seconds: u64,
    /// Requests after which a run ends, at the end of the second
    #[arg(long, value_name = "N", default_value_t = REQUESTS,
          value_parser = whole::<u64>(1..=1 << 40))]
    pub(crate) requests: u64,
    /// Compare every cell with all other policies
    #[arg(long)]
    pub(crate) compare: bool,
    /// Print the scenario of the first cell for `tidegate sim`, and simulate nothing
    #[arg(long, conflicts_with = "compare")]
    pub(crate) scenario: bool,
    /// Store results in this file, and reuse those of the same build
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) results: Option<PathBuf>,
    /// Build to which stored results belong [default: digest of this program]
    #[arg(long, value_name = "TEXT", requires = "results")]
    pub(crate) build: Option<String>,
    /// Parallel simulations [default: number of CPUs]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024))]
    pub(crate) jobs: Option<u16>,
}

impl PromisesArgs {
    /// Returns `true` if queue depths and lengths of I/Os are to be adapted at run time.
    pub(crate) fn is_adaptive(&self) -> bool {
        self.adaptive || self.steered
    }
}

/// Parses a round-trip time, in whole microseconds; 0 is allowed.
fn parse_round_trip(text: &str) -> Result<Nanos, String> {
    let time = units::parse_duration(text).map_err(|error| error.to_string())?;
    match time.0 % 1000 {
        0 => Ok(time),
        _ => Err("whole microseconds, such as \"100 us\"".to_owned()),
    }
}
