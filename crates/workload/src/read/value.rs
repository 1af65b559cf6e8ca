//! Readers of values that several tables of a scenario have in common.

use super::keys::times::{self as keys, Drawn};
use super::keys::{SECTOR, TIME};
use crate::time::TimeDistribution;
use tidegate_config::keys::{KeyDefault, KeyInfo};
use tidegate_config::node::Value;
use tidegate_config::{Field, Section};
use tidegate_core::time::Nanos;

/// Size of the largest disk in bytes, equal to the daemon's.
pub const LARGEST_DISK: u64 = 1 << 60;

/// Reads a duration or its distribution: the value of a [`TIME`] of any name. `None`: a mistake was
/// found and reported.
pub fn times(field: &Field<'_>) -> Option<TimeDistribution> {
    if !is_table(field) {
        let fixed = field.number(&TIME);
        return fixed.map(|time| TimeDistribution::Fixed(Nanos(time)));
    }
    // The keys that the table may have depend on the distribution.
    let mut section = Section::open(field)?;
    let kind = section.word(&keys::KIND, &keys::DISTRIBUTIONS);
    let mut figure = |key: &KeyInfo, example: &str| {
        let time = section.need(key.name, example)?.number(key);
        time.map(Nanos)
    };
    // With an unknown distribution the allowed keys are unknown, too, so nothing else is reported.
    let drawn = match kind? {
        Drawn::Uniform => {
            let from = figure(&keys::FROM, "from = \"1 ms\"");
            let to = figure(&keys::TO, "to = \"3 ms\"");
            (from.zip(to)).map(|(from, to)| TimeDistribution::Uniform { from, to })
        }
        Drawn::Exponential => {
            let mean = figure(&keys::MEAN, "mean = \"2 ms\"");
            mean.map(|mean| TimeDistribution::Exponential { mean })
        }
        Drawn::Normal => {
            let mean = figure(&keys::MEAN, "mean = \"2 ms\"");
            let deviation = figure(&keys::DEVIATION, "deviation = \"500 us\"");
            let both = mean.zip(deviation);
            both.map(|(mean, deviation)| TimeDistribution::Normal { mean, deviation })
        }
        Drawn::LogNormal => {
            let median = figure(&keys::MEDIAN, "median = \"2 ms\"");
            let example = "the logarithm's standard deviation: sigma = 0.5";
            let sigma = section.need(keys::SIGMA.name, example);
            let sigma = sigma.and_then(|field| field.plain_number(&keys::SIGMA));
            let both = median.zip(sigma);
            both.map(|(median, sigma)| TimeDistribution::LogNormal { median, sigma })
        }
    };
    section.finish();
    drawn
}

/// Returns true if the value is a table.
pub(crate) fn is_table(field: &Field<'_>) -> bool {
    matches!(field.node().value, Value::Table(_))
}

/// Reads the bytes of a key, in whole sectors.
pub(super) fn sectors(field: &Field<'_>, key: &KeyInfo) -> Option<u64> {
    let bytes = field.number(key)?;
    if !bytes.is_multiple_of(SECTOR) {
        field.error(
            format!("{} is not in whole sectors", field.describe()),
            "a multiple of 512 B",
        );
        return None;
    }
    Some(bytes)
}

/// Reads the bytes of a key that is required or has a number as its default, in whole sectors.
pub(super) fn whole(section: &mut Section<'_>, key: &KeyInfo) -> Option<u64> {
    let default = match key.default {
        KeyDefault::Value(default) => default,
        // A required key: a value is there, or its absence was reported.
        _ => 0,
    };
    section.value(key, default, |field| sectors(field, key))
}

/// Reads the bytes of an optional key, in whole sectors.
pub(super) fn whole_if_any(section: &mut Section<'_>, key: &KeyInfo) -> Option<Option<u64>> {
    section.value(key, None, |field| sectors(field, key).map(Some))
}
