//! Messages for mistakes in figures with units.

use tidegate_units::{self as units, RateError, RateErrorKind, UnitError, UnitErrorKind};

use crate::diagnostic::one_of;
use crate::unit_spelling;

/// Valid rates, for messages.
pub(crate) const RATE_EXAMPLES: &str =
    "\"500 IOPS\", \"120 IOPS @ 16 KiB\", \"30 MB/s\", \"500 IOPS, 30 MB/s\" or \"none\"";

/// Returns the problem of a rate that could not be parsed, and what is allowed instead.
pub(crate) fn explain_rate(error: &RateError) -> (String, String) {
    let problem = error.to_string();
    match &error.kind {
        RateErrorKind::OpsTwice | RateErrorKind::BandwidthTwice => {
            let allowed = "one figure in IOPS, one in B/s, or both";
            (problem, allowed.to_owned())
        }
        RateErrorKind::SizeWithoutOps => (problem, "\"120 IOPS @ 16 KiB\"".to_owned()),
        RateErrorKind::OpsNumber(_) => {
            // The maximum is `Rate::MAX`, which as a decimal number no reader would recognise.
            let allowed =
                "a whole number from 1 to 2^50, such as \"500 IOPS\", or \"none\" for no rate";
            (problem, allowed.to_owned())
        }
        RateErrorKind::Norm(size) => {
            let (problem, allowed) = explain_unit(size);
            let found = &error.found;
            let problem = format!("{found:?}: the size that counts as one request: {problem}");
            (problem, allowed)
        }
        RateErrorKind::NormRange(_) => {
            let allowed = "1 B to less than 4 GiB, such as \"16 KiB\"";
            (problem, allowed.to_owned())
        }
        RateErrorKind::BandwidthRange(_) => (problem, "1 B/s to 1 PiB/s".to_owned()),
        RateErrorKind::EmptyFigure => (problem, format!("a rate such as {RATE_EXAMPLES}")),
        RateErrorKind::Bandwidth(bandwidth) => {
            let (problem, _) = explain_unit(bandwidth);
            let examples = format!("a rate such as {RATE_EXAMPLES}");
            // The rate's own spellings include those of bandwidths, so one question suffices.
            match unit_spelling::meant_rate(&bandwidth.found) {
                Some(meant) => (
                    problem,
                    format!("did you mean {meant:?}? Allowed: {examples}"),
                ),
                None => (problem, examples),
            }
        }
    }
}

/// Returns the problem of a figure that could not be parsed, and what is allowed instead.
pub(crate) fn explain_unit(error: &UnitError) -> (String, String) {
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
            format!("{found:?} is not {}", quantity.with_article()),
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
            format!("{} such as {example:?}", quantity.with_article()),
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
