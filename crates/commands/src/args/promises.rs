//! Options of `tidegate promises`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args as ClapArgs, Command, ValueEnum, ValueHint};
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

/// Mix on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MixName {
    /// Name of a built-in mix.
    BuiltIn(String),
    /// Random mix with its seed and number.
    Random(u64, u64),
    /// File with a mix of the user's own.
    File(PathBuf),
}

impl MixName {
    /// Parses the name of a random mix, `random-SEED-NUMBER`.
    fn random(text: &str) -> Option<MixName> {
        let (seed, number) = text.strip_prefix("random-")?.split_once('-')?;
        Some(MixName::Random(seed.parse().ok()?, number.parse().ok()?))
    }
}

/// Parser of mixes: a text with a `/`, or that ends with `.toml`, is a file, any other the name of
/// a random or a built-in mix.
#[derive(Clone, Debug)]
struct MixParser;

impl MixParser {
    fn names() -> PossibleValuesParser {
        PossibleValuesParser::new(mixes().iter().map(|mix| &*mix.name))
    }
}

impl TypedValueParser for MixParser {
    type Value = MixName;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<MixName, clap::Error> {
        let text = value.to_string_lossy();
        if text.contains('/') || text.ends_with(".toml") {
            return Ok(MixName::File(Path::new(value).to_owned()));
        }
        if let Some(random) = MixName::random(&text) {
            return Ok(random);
        }
        let name = MixParser::names().parse_ref(command, arg, value)?;
        Ok(MixName::BuiltIn(name))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = mixes().iter().map(|mix| PossibleValue::new(&*mix.name));
        Some(Box::new(names))
    }
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
    /// Mixes of VMs: names, or TOML files with mixes of your own (FILE.toml, or a path with a /)
    /// [default: all built-in ones]
    #[arg(long = "mix", value_name = "NAME|FILE,...", value_delimiter = ',',
          value_parser = MixParser, add = completion::mixes())]
    pub(crate) mixes: Vec<MixName>,
    /// Judge N random mixes instead, random-SEED-1 to random-SEED-N
    #[arg(long, value_name = "N", conflicts_with = "mixes",
          value_parser = whole::<u64>(1..=10_000))]
    pub(crate) random: Option<u64>,
    /// Seed of random mixes: seed and number alone determine a mix
    #[arg(long, value_name = "SEED", default_value_t = 1, requires = "random",
          value_parser = whole::<u64>(0..=u64::MAX))]
    pub(crate) mix_seed: u64,
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
