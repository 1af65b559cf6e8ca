//! Messages for mistakes in figures with units, and the form of names.

use tidegate_units::{self as units, RateError, RateErrorKind, UnitError, UnitErrorKind};

use crate::diagnostic::one_of;
use crate::unit_spelling;

pub(crate) const RATE_EXAMPLES: &str =
    "\"500 IOPS\", \"120 IOPS @ 16 KiB\", \"30 MB/s\", \"500 IOPS, 30 MB/s\" or \"none\"";

/// Form of a name, for messages.
pub const NAMES: &str = "1 to 64 letters, digits, '-', '_' or '.', not beginning with '.'";

/// Returns true if `text` is valid as a name in URLs, metric labels and tables.
pub fn is_name(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.chars().all(good) && (1..=64).contains(&text.len()) && !text.starts_with('.')
}

/// Returns the problem of a rate that could not be parsed, and what is allowed instead.
pub(crate) fn explain_rate(error: &RateError) -> (String, String) {
    let what = error.to_string();
    match &error.kind {
        RateErrorKind::OpsTwice | RateErrorKind::BandwidthTwice => {
            let allowed = "one figure in IOPS, one in bytes a second, or both";
            (what, allowed.to_owned())
        }
        RateErrorKind::SizeWithoutOps => (what, "\"120 IOPS @ 16 KiB\"".to_owned()),
        RateErrorKind::OpsNumber(_) => {
            // The maximum is `Rate::MAX`, which as a decimal number no reader would recognise.
            let allowed =
                "a whole number from 1 to 2^50, such as \"500 IOPS\", or \"none\" for no rate";
            (what, allowed.to_owned())
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
            let examples = format!("a rate such as {RATE_EXAMPLES}");
            // The rate's own spellings include those of bandwidths, so one question suffices.
            match unit_spelling::meant_rate(&bandwidth.found) {
                Some(meant) => (what, format!("did you mean {meant:?}? Allowed: {examples}")),
                None => (what, examples),
            }
        }
    }
}

/// Returns the problem of a figure that could not be parsed, and what is allowed instead.
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
        UnitErrorKind::UnknownUnit => {
            let allowed = match unit_spelling::meant(quantity, found) {
                Some(meant) => format!("did you mean {meant:?}? Allowed: {}", quantity.allowed()),
                None => units(),
            };
            (format!("{found:?} has an unknown unit"), allowed)
        }
        UnitErrorKind::NotWhole | UnitErrorKind::TooLarge => (
            error.to_string(),
            format!("{} such as {example:?}", quantity.name()),
        ),
    }
}

/// Returns a bare number with its likely units: `"4 B", "4 KiB", "4 MiB" or "4 GiB"`.
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
