//! Names, and mistakes in figures: what was found and what is allowed instead.

use tidegate_units::{self as units, Rate, RateError, RateErrorKind, UnitError, UnitErrorKind};

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

/// Returns what was found and what is allowed instead, of a rate.
pub(crate) fn explain_rate(error: &RateError) -> (String, String) {
    let what = error.to_string();
    match &error.kind {
        RateErrorKind::OpsTwice | RateErrorKind::BandwidthTwice => {
            let allowed = "one figure in IOPS, one in bytes a second, or both";
            (what, allowed.to_owned())
        }
        RateErrorKind::SizeWithoutOps => (what, "\"120 IOPS @ 16 KiB\"".to_owned()),
        RateErrorKind::OpsNumber(_) => {
            let max = Rate::MAX;
            let allowed = format!("a whole number from 1 to {max}, such as \"500 IOPS\"");
            (what, allowed)
        }
        RateErrorKind::Norm(size) => {
            let (what, allowed) = explain(size);
            let found = &error.found;
            let what = format!("{found:?}: the size that counts as one request: {what}");
            (what, allowed)
        }
        RateErrorKind::NormRange(_) => {
            let allowed = "1 B to less than 4 GiB, such as \"16 KiB\"";
            (what, allowed.to_owned())
        }
        RateErrorKind::BandwidthRange(_) => (what, "1 B/s to 1 PiB/s".to_owned()),
        RateErrorKind::LeftOut => (what, format!("a rate such as {RATE_EXAMPLES}")),
        RateErrorKind::Bandwidth(bandwidth) => {
            let (what, _) = explain(bandwidth);
            (what, format!("a rate such as {RATE_EXAMPLES}"))
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
