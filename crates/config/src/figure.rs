//! Reading words and figures of a value's text: names, figures with units, rates.

use tidegate_core::objective::{OpsRate, Rate};
use tidegate_units::{self as units, UnitError, UnitErrorKind};

use crate::diagnose::one_of;

pub(crate) const RATE_EXAMPLES: &str =
    "\"500 IOPS\", \"120 IOPS @ 16 KiB\", \"30 MB/s\", \"500 IOPS, 30 MB/s\" or \"none\"";

/// What a name may be, in words.
pub const NAMES: &str = "1 to 64 letters, digits, '-', '_' or '.', not beginning with '.'";

/// Whether something can stand in a URL, a metric and a table.
pub fn is_name(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.chars().all(good) && (1..=64).contains(&text.len()) && !text.starts_with('.')
}

/// Reads a rate such as `500 IOPS @ 16 KiB, 30 MB/s`, or `none`.
///
/// # Errors
/// What was found, and what is allowed.
pub fn parse_rate(text: &str) -> Result<Rate, (String, String)> {
    let mut rate = Rate::NONE;
    if text.trim().eq_ignore_ascii_case("none") {
        return Ok(rate);
    }
    for part in text.split(',').map(str::trim) {
        let twice = |what| {
            let allowed = "one figure in IOPS, one in bytes a second, or both".to_owned();
            (format!("{text:?} names {what} twice"), allowed)
        };
        match parse_ops(part, text)? {
            Some(_) if rate.ops.is_some() => return Err(twice("IOPS")),
            Some(ops) => rate.ops = Some(ops),
            None if rate.bytes_per_s.is_some() => return Err(twice("a bandwidth")),
            None => rate.bytes_per_s = Some(parse_bytes_per_s(part, text)?),
        }
    }
    Ok(rate)
}

/// `120 IOPS` or `120 IOPS @ 16 KiB`; `None` for what names no IOPS.
fn parse_ops(part: &str, whole: &str) -> Result<Option<OpsRate>, (String, String)> {
    let (figure, norm) = match part.split_once('@') {
        Some((figure, norm)) => (figure.trim(), Some(norm.trim())),
        None => (part, None),
    };
    let unit = figure
        .find(|c: char| c.is_alphabetic())
        .unwrap_or(figure.len());
    let (number, unit) = figure.split_at(unit);
    if !unit.eq_ignore_ascii_case("iops") {
        return match norm {
            Some(_) => Err((
                format!("{whole:?}: only IOPS are counted at a size"),
                "\"120 IOPS @ 16 KiB\"".to_owned(),
            )),
            None => Ok(None),
        };
    }
    let per_s = number
        .trim()
        .parse()
        .ok()
        .filter(|n| (1..=Rate::MAX).contains(n));
    let Some(per_s) = per_s else {
        return Err((
            format!(
                "{whole:?}: {:?} is not a number of requests a second",
                number.trim()
            ),
            format!(
                "a whole number from 1 to {}, such as \"500 IOPS\"",
                Rate::MAX
            ),
        ));
    };
    let norm = match norm {
        None => None,
        Some(norm) => {
            let bytes = units::parse_bytes(norm).map_err(|error| {
                let (what, allowed) = explain(&error);
                (
                    format!("{whole:?}: the size that counts as one request: {what}"),
                    allowed,
                )
            })?;
            let fits = u32::try_from(bytes).ok().filter(|&norm| norm > 0);
            Some(fits.ok_or_else(|| {
                let what = format!("{whole:?}: a size of {norm} cannot count as one request");
                (
                    what,
                    "1 B to less than 4 GiB, such as \"16 KiB\"".to_owned(),
                )
            })?)
        }
    };
    Ok(Some(OpsRate { per_s, norm }))
}

fn parse_bytes_per_s(part: &str, whole: &str) -> Result<u64, (String, String)> {
    match units::parse_bandwidth(part) {
        Ok(rate) if (1..=Rate::MAX).contains(&rate) => Ok(rate),
        Ok(_) => Err((
            format!("{whole:?}: a bandwidth of {part}"),
            "1 B/s to 1 PiB/s".to_owned(),
        )),
        Err(error) => {
            let (what, _) = match part {
                "" => (format!("{whole:?} leaves a figure out"), String::new()),
                _ => explain(&error),
            };
            Err((what, format!("a rate such as {RATE_EXAMPLES}")))
        }
    }
}

/// What was found and what is allowed instead, of a figure.
pub(crate) fn explain(error: &UnitError) -> (String, String) {
    let (found, quantity) = (&error.found, error.quantity);
    let example = quantity.example();
    let units = || {
        format!(
            "with one of the units {}, such as {example:?}",
            quantity.allowed()
        )
    };
    match error.kind {
        UnitErrorKind::NoUnit => {
            let what = format!("{found:?} is a bare number, its unit is missing");
            (what, suggest(quantity, found.trim()))
        }
        UnitErrorKind::NotANumber => (
            format!("{found:?} is not {}", quantity.name()),
            format!("a decimal number {}", units()),
        ),
        UnitErrorKind::UnknownUnit => (format!("{found:?} has an unknown unit"), units()),
        UnitErrorKind::NotWhole | UnitErrorKind::TooLarge => (
            error.to_string(),
            format!("{} such as {example:?}", quantity.name()),
        ),
    }
}

/// A bare number with the units it may have been meant in.
pub(crate) fn suggest(quantity: units::Quantity, number: &str) -> String {
    let likely = match quantity {
        units::Quantity::Bytes => ["B", "KiB", "MiB", "GiB"].as_slice(),
        units::Quantity::Duration => &["us", "ms", "s"],
        units::Quantity::Bandwidth => &["kB/s", "MB/s"],
        units::Quantity::Rotation => &["rpm"],
    };
    let figures: Vec<String> = likely
        .iter()
        .map(|unit| format!("{number} {unit}"))
        .collect();
    one_of(figures.iter().map(String::as_str))
}
