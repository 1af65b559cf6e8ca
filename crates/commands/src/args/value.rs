//! Parsers of values on the command line.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::Zoned;
use serde::{Deserialize, Serialize};
use tidegate_config::moment::{self, Moment};
use tidegate_core::objective::Objective;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::{self, PolicySpec};
use tidegate_units as units;

/// Keys and values of a disk as typed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DiskArg(pub(crate) Vec<(String, String)>);

/// Seeds in ascending order, without duplicates; in JSON as `--seeds` takes them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) struct Seeds(pub(crate) Vec<u64>);

impl std::fmt::Display for Seeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.range() {
            Some((first, last)) => write!(f, "{first} to {last}"),
            None => f.write_str(&self.listed(", ")),
        }
    }
}

impl Seeds {
    /// Returns the seeds as `--seeds` takes them.
    pub(crate) fn as_argument(&self) -> String {
        match self.range() {
            Some((first, last)) => format!("{first}..{last}"),
            None => self.listed(","),
        }
    }

    /// Returns the first and the last of several seeds without a gap.
    fn range(&self) -> Option<(u64, u64)> {
        let mut pairs = self.0.windows(2);
        let in_a_row = pairs.all(|two| two[0].checked_add(1) == Some(two[1]));
        match self.0.as_slice() {
            [first, .., last] if in_a_row => Some((*first, *last)),
            _ => None,
        }
    }

    fn listed(&self, separator: &str) -> String {
        let seeds: Vec<String> = self.0.iter().map(u64::to_string).collect();
        seeds.join(separator)
    }
}

impl From<Seeds> for String {
    fn from(seeds: Seeds) -> String {
        seeds.as_argument()
    }
}

impl TryFrom<String> for Seeds {
    type Error = String;

    fn try_from(text: String) -> Result<Seeds, String> {
        parse_seeds(&text)
    }
}

/// Parses a number of minutes, with decimals.
pub(super) fn parse_minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse::<f64>().ok();
    minutes
        .filter(|m| (0.01..=1_000_000.0).contains(m))
        .map(|m| Duration::from_secs_f64(m * 60.0))
        .ok_or_else(|| "allowed: 0.01 to 1000000 minutes".to_owned())
}

/// Returns a parser of whole numbers in `range`, which must fit `T`.
pub(super) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| format!("a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Parses `NAME=VALUE`.
pub(super) fn parse_param(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write NAME=VALUE, such as \"cost_size=64 KiB\"".to_owned()),
    }
}

/// Parses the keys of a disk: `path=oltp.raw,size=20 GiB`.
pub(super) fn parse_disk(text: &str) -> Result<DiskArg, String> {
    let keys = text.split(',').map(|part| {
        let known = part
            .split_once('=')
            .filter(|(key, _)| !key.trim().is_empty());
        known
            .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
            .ok_or_else(|| {
                format!(
                    "{part:?} is not KEY=VALUE; write \"path=oltp.raw,size=20 GiB,create=sparse\" \
                     (for a path with a comma, use --file)"
                )
            })
    });
    keys.collect::<Result<_, _>>().map(DiskArg)
}

/// Parses a weight; `none` is the default weight.
pub(super) fn parse_weight(text: &str) -> Result<u32, String> {
    if text.trim().eq_ignore_ascii_case("none") {
        return Ok(Objective::DEFAULT_WEIGHT);
    }
    let weight = text.trim().parse().ok();
    weight
        .filter(|weight| (1..=Objective::MAX_WEIGHT).contains(weight))
        .ok_or_else(|| {
            format!(
                "a whole number from 1 to {}, or \"none\" for the default, {}",
                Objective::MAX_WEIGHT,
                Objective::DEFAULT_WEIGHT
            )
        })
}

/// Parses a duration above 0.
pub(super) fn parse_time(text: &str) -> Result<Nanos, String> {
    match units::parse_duration(text) {
        Ok(Nanos(0)) => Err("must be more than 0".to_owned()),
        Ok(time) => Ok(time),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a moment of the past.
pub(super) fn parse_moment(text: &str) -> Result<Moment, String> {
    Moment::parse(text, &Zoned::now()).map_err(|_| format!("give {}", moment::ALLOWED))
}

/// Parses a length of time before now, such as `1m`.
pub(super) fn parse_last(text: &str) -> Result<Moment, String> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(LAST.to_owned());
    }
    parse_moment(&format!("-{text}")).map_err(|_| LAST.to_owned())
}

/// Form of a length of time before now.
const LAST: &str = "a length of time is expected, such as 15m, 1h or 1d";

/// Parses a size above 0 and returns bytes.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    match units::parse_bytes(text) {
        Ok(0) => Err("must be more than 0".to_owned()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a bandwidth above 0 and returns bytes a second.
pub(super) fn parse_bandwidth(text: &str) -> Result<u64, String> {
    match units::parse_bandwidth(text) {
        Ok(0) => Err("must be more than 0".to_owned()),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

/// Maximum number of seeds; more are taken for a typing error.
const MOST_SEEDS: u64 = 1_000_000;

/// Parses seeds: `1..20`, both included, or `1,2,3`.
pub(super) fn parse_seeds(text: &str) -> Result<Seeds, String> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let seeds: Option<Vec<u64>> = match text.split_once("..") {
        Some((from, to)) => match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to && to - from < MOST_SEEDS => {
                Some((from..=to).collect())
            }
            _ => None,
        },
        None => text.split(',').map(number).collect(),
    };
    let mut seeds = seeds.ok_or("write 1..20 (both included) or 1,2,3; at most a million")?;
    seeds.sort_unstable();
    seeds.dedup();
    Ok(Seeds(seeds))
}

/// Range of intervals between two requests to a daemon.
const INTERVALS: RangeInclusive<Nanos> = Nanos::from_millis(50)..=Nanos::from_secs(3600);

/// Parses an interval in [`INTERVALS`].
pub(super) fn parse_interval(text: &str) -> Result<Duration, String> {
    let time = units::parse_duration(text).map_err(|error| error.to_string())?;
    if !INTERVALS.contains(&time) {
        return Err("allowed: 50 ms to 1 h".to_owned());
    }
    Ok(Duration::from_nanos(time.0))
}

/// Parses a policy: a name, or parts joined by `+`.
pub(crate) fn parse_policy(text: &str) -> Result<PolicySpec, String> {
    let spec = match text.split('+').collect::<Vec<_>>().as_slice() {
        [regulator, dispatcher] => PolicySpec::composed(None, regulator, dispatcher),
        [controller, regulator, dispatcher] => {
            PolicySpec::composed(Some(controller), regulator, dispatcher)
        }
        _ => PolicySpec::named(text),
    };
    spec.map_err(|error| error.to_string())
}

/// Returns all named policies with their default parameters.
pub(crate) fn all_policies() -> Vec<PolicySpec> {
    policy::registry()
        .iter()
        .filter_map(|info| PolicySpec::named(info.name).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::policy::Policy;

    #[test]
    fn policies_are_named_or_composed() {
        assert_eq!(parse_policy("mclock").expect("registered").name(), "mclock");
        let composed = parse_policy("token-bucket+mclock").expect("known parts");
        assert_eq!(composed.parts(), (None, "token-bucket", "mclock"));
        assert!(
            parse_policy("mclok")
                .expect_err("unknown")
                .contains("mclock")
        );
        assert!(parse_policy("a+b+c+d").is_err());
    }

    #[test]
    fn seeds_are_a_range_or_a_list() {
        assert_eq!(parse_seeds("3..5"), Ok(Seeds(vec![3, 4, 5])));
        assert_eq!(parse_seeds("9,1,9"), Ok(Seeds(vec![1, 9])));
        for wrong in ["", "5..3", "1..", "1,x", "0..1000000"] {
            assert!(parse_seeds(wrong).is_err(), "{wrong}");
        }
        for text in ["7", "3..5", "1,9", "1..2"] {
            let seeds = parse_seeds(text).expect("seeds");
            assert_eq!(seeds.as_argument(), text);
        }
    }

    #[test]
    fn no_weight_is_the_default_one() {
        assert_eq!(parse_weight("none"), Ok(Objective::DEFAULT_WEIGHT));
        assert_eq!(parse_weight("10000"), Ok(10_000));
        for wrong in ["0", "10001", "heavy", "-1", "1.5"] {
            let message = parse_weight(wrong).expect_err("not a weight");
            assert!(
                message.contains("\"none\" for the default, 100"),
                "{message}"
            );
        }
    }
}
