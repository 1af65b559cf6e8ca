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
    // A comma also stands between two figures, so the whole text decides.
    if let Some(plain) = without_separators(&error.found)
        && units::parse_rate(&plain).is_ok()
    {
        let problem = format!("{:?} has separators of thousands", error.found);
        return (problem, format!("{plain:?}, without them"));
    }
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
    if let Some(plain) = without_separators(found) {
        let problem = format!("{found:?} has separators of thousands");
        return (problem, format!("{plain:?}, without them"));
    }
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

/// Returns a figure without the separators before groups of three digits, `10000 IOPS` for
/// `10,000 IOPS`; `None` if it has none.
fn without_separators(found: &str) -> Option<String> {
    // A comma, as in English; space, apostrophe, underscore; no point, which begins decimals.
    let is_separator = |c: char| {
        matches!(
            c,
            ',' | '_' | '\'' | ' ' | '\u{a0}' | '\u{2009}' | '\u{202f}'
        )
    };
    let chars: Vec<char> = found.trim().chars().collect();
    let is_digit = |at: usize| chars.get(at).is_some_and(char::is_ascii_digit);
    let groups = |at: usize| {
        is_separator(chars[at])
            && at.checked_sub(1).is_some_and(is_digit)
            && (1..=3).all(|n| is_digit(at + n))
            && !is_digit(at + 4)
    };
    let kept = (0..chars.len()).filter(|&at| !groups(at));
    let plain: String = kept.map(|at| chars[at]).collect();
    (plain.chars().count() < chars.len()).then_some(plain)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_of_thousands_are_named_with_the_figure_without_them() {
        let plain = [
            ("10,000 IOPS", "10000 IOPS"),
            ("1 000 000 IOPS", "1000000 IOPS"),
            ("1'500 MB/s", "1500 MB/s"),
            ("10_000 IOPS, 1,000 MB/s", "10000 IOPS, 1000 MB/s"),
        ];
        for (found, plain) in plain {
            let error = units::parse_rate(found).expect_err("separators");
            let (what, allowed) = explain_rate(&error);
            assert!(what.contains("separators of thousands"), "{what}");
            assert_eq!(allowed, format!("{plain:?}, without them"));
        }
        let error = units::parse_bytes("2,048 MiB").expect_err("a separator");
        assert_eq!(explain_unit(&error).1, "\"2048 MiB\", without them");
        for found in ["10,00 IOPS", "1,2345 IOPS", "500 IOPS, 300", "x,000"] {
            assert_eq!(without_separators(found), None, "{found}");
        }
        // Decimals stay what they are.
        let error = units::parse_rate("1.000 IOPS").expect_err("no whole number");
        assert!(!explain_rate(&error).0.contains("separators"));
    }
}
