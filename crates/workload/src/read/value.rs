//! Values that several tables of a scenario have in common, with their bounds.

use crate::time::TimeDistribution;
use tidegate_config::{Field, Section};
use tidegate_core::time::Nanos;

/// Sizes and offsets are whole sectors.
pub(crate) const SECTOR: u64 = 512;
pub(crate) const LARGEST_REQUEST: u64 = 1 << 30;
pub(crate) const LARGEST: u64 = 1 << 60;
pub(crate) const LONGEST: Nanos = Nanos(365 * 24 * 3_600 * 1_000_000_000);
/// An open loop that does not say holds so many outstanding: as many as the engine takes of a
/// VM unless told otherwise.
pub(crate) const OPEN_DEPTH: u32 = 1024;
pub(crate) const MOST_DEPTH: u64 = 1 << 16;
/// The largest disk: as the daemon's.
pub const LARGEST_DISK: u64 = 1 << 60;

/// A time, or how times are drawn.
pub fn times(field: &Field<'_>) -> Option<TimeDistribution> {
    let any = Nanos::ZERO..=LONGEST;
    if let Some(Some(mut section)) = is_table(field).then(|| Section::of(field)) {
        let kind = section
            .need("distribution", "distribution = \"exponential\"")
            .and_then(|field| {
                field.choice(&[
                    ("uniform", 0),
                    ("exponential", 1),
                    ("normal", 2),
                    ("lognormal", 3),
                ])
            });
        let mut time = |key, example: &str| {
            let field = section.need(key, example)?;
            field.duration(any.clone())
        };
        let drawn = match kind {
            Some(0) => {
                let (from, to) = (time("from", "from = \"1 ms\""), time("to", "to = \"3 ms\""));
                from.zip(to)
                    .map(|(from, to)| TimeDistribution::Uniform { from, to })
            }
            Some(1) => {
                let mean = time("mean", "mean = \"2 ms\"");
                mean.map(|mean| TimeDistribution::Exponential { mean })
            }
            Some(2) => {
                let mean = time("mean", "mean = \"2 ms\"");
                let deviation = time("deviation", "deviation = \"500 us\"");
                let both = mean.zip(deviation);
                both.map(|(mean, deviation)| TimeDistribution::Normal { mean, deviation })
            }
            Some(_) => {
                let median = time("median", "median = \"2 ms\"");
                let sigma = section
                    .need("sigma", "the logarithm's standard deviation: sigma = 0.5")
                    .and_then(|field| field.decimal(0.0..=10.0));
                let both = median.zip(sigma);
                both.map(|(median, sigma)| TimeDistribution::LogNormal { median, sigma })
            }
            None => None,
        };
        // Where the kind is unknown nobody can say which keys belong there.
        if kind.is_some() {
            section.finish();
        }
        return drawn;
    }
    field.duration(any).map(TimeDistribution::Fixed)
}

pub(crate) fn is_table(field: &Field<'_>) -> bool {
    matches!(field.node().value, tidegate_config::node::Value::Table(_))
}

pub(crate) fn sectors(field: &Field<'_>, range: core::ops::RangeInclusive<u64>) -> Option<u64> {
    let bytes = field.bytes(range)?;
    if !bytes.is_multiple_of(SECTOR) {
        field.error(
            format!("{} is not in whole sectors", field.describe()),
            "a multiple of 512 B",
        );
        return None;
    }
    Some(bytes)
}
