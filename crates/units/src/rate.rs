//! Rates in requests per second, bytes per second or both: `500 IOPS`, `120 IOPS @ 16 KiB`, `30
//! MB/s`, `500 IOPS, 30 MB/s`, `none`.

use core::fmt;

use crate::figure::{UnitError, format_decimal_bandwidth, parse_bandwidth, parse_bytes};
use crate::human;

/// Rate in requests per second, bytes per second, or both; then both figures apply.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Rate {
    /// Guest requests per second; `None`: not part of the rate.
    pub ops: Option<OpsRate>,
    /// Bytes per second; `None`: not part of the rate.
    pub bytes_per_s: Option<u64>,
}

/// Rate in requests per second, with the size that counts as one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpsRate {
    /// Requests per second, at least 1.
    pub per_s: u64,
    /// Normalisation size in bytes: a request of `len` bytes counts `max(1, len / norm)`. `None`:
    /// every request counts one, whatever its size.
    pub norm: Option<u32>,
}

impl Rate {
    /// Rate with neither figure.
    pub const NONE: Rate = Rate {
        ops: None,
        bytes_per_s: None,
    };

    /// Creates a rate in requests per second that each count one.
    pub const fn iops(per_s: u64) -> Rate {
        Rate {
            ops: Some(OpsRate { per_s, norm: None }),
            bytes_per_s: None,
        }
    }

    /// Creates a rate in bytes per second.
    pub const fn bytes(per_s: u64) -> Rate {
        Rate {
            ops: None,
            bytes_per_s: Some(per_s),
        }
    }

    /// Returns true if neither figure is set.
    pub const fn is_none(&self) -> bool {
        self.ops.is_none() && self.bytes_per_s.is_none()
    }

    /// Formats the rate for tables: as [`Display`](fmt::Display) does, but a bandwidth of more than
    /// four digits is rounded to three (`513 MB/s` for 512,829,712 B/s).
    pub fn rounded(&self) -> String {
        match (self.ops, self.bytes_per_s) {
            (ops, Some(b)) => {
                let bandwidth = rounded_bandwidth(b);
                ops.map_or(bandwidth.clone(), |ops| format!("{ops}, {bandwidth}"))
            }
            _ => self.to_string(),
        }
    }

    /// Largest accepted figure, of requests or bytes per second (2^50): about a million units per
    /// nanosecond, far above any device.
    pub const MAX: u64 = 1 << 50;
}

/// Formats a bandwidth in bytes per second: exactly if four digits are enough, else rounded to
/// three.
fn rounded_bandwidth(bytes_per_s: u64) -> String {
    /// Number of digits that are read at a glance: a rate that a user wrote stays as it was.
    const GLANCE_DIGITS: usize = 4;
    let exact = format_decimal_bandwidth(bytes_per_s);
    match exact.bytes().filter(u8::is_ascii_digit).count() {
        0..=GLANCE_DIGITS => exact,
        _ => human::bytes_per_s(bytes_per_s as f64),
    }
}

impl fmt::Display for OpsRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.norm {
            // KiB where they are exact, as `parse_rate` reads the text back.
            Some(n) if n % 1024 == 0 => write!(f, "{} IOPS @ {} KiB", self.per_s, n / 1024),
            Some(n) => write!(f, "{} IOPS @ {n} B", self.per_s),
            None => write!(f, "{} IOPS", self.per_s),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ops, self.bytes_per_s) {
            (None, None) => f.write_str("none"),
            (Some(o), None) => o.fmt(f),
            (None, Some(b)) => f.write_str(&format_decimal_bandwidth(b)),
            (Some(o), Some(b)) => write!(f, "{o}, {}", format_decimal_bandwidth(b)),
        }
    }
}

/// Reason why a text is not a rate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RateErrorKind {
    /// Two figures in IOPS.
    OpsTwice,
    /// Two figures in bytes per second.
    BandwidthTwice,
    /// Normalisation size behind a figure that is not in IOPS.
    SizeWithoutOps,
    /// Number of requests per second, as found, that is not a whole number from 1 to [`Rate::MAX`].
    OpsNumber(String),
    /// Normalisation size that is not a size.
    Norm(UnitError),
    /// Normalisation size, as found, that is 0 or does not fit 32 bits.
    NormRange(String),
    /// Bandwidth, as found, that is 0 or above [`Rate::MAX`].
    BandwidthRange(String),
    /// Empty figure before or behind a comma.
    EmptyFigure,
    /// Figure that is neither IOPS nor a bandwidth.
    Bandwidth(UnitError),
}

/// Refusal of a text that is not a rate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateError {
    /// Reason of the refusal.
    pub kind: RateErrorKind,
    /// Text that was found, as a whole.
    pub found: String,
}

impl fmt::Display for RateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = &self.found;
        match &self.kind {
            RateErrorKind::OpsTwice => write!(f, "{found:?} names IOPS twice"),
            RateErrorKind::BandwidthTwice => write!(f, "{found:?} names a bandwidth twice"),
            RateErrorKind::SizeWithoutOps => {
                write!(
                    f,
                    "{found:?}: only a figure in IOPS can have a size behind `@`"
                )
            }
            RateErrorKind::OpsNumber(number) => {
                write!(
                    f,
                    "{found:?}: {number:?} is not a whole number of requests per second from 1 to \
                     2^50"
                )
            }
            RateErrorKind::Norm(error) => {
                write!(f, "{found:?}: the size that counts as one request: {error}")
            }
            RateErrorKind::NormRange(norm) => {
                write!(
                    f,
                    "{found:?}: a size of {norm} cannot count as one request, allowed are 1 B to \
                     less than 4 GiB"
                )
            }
            RateErrorKind::BandwidthRange(rate) => {
                write!(
                    f,
                    "{found:?}: a bandwidth of {rate}, allowed are 1 B/s to 2^50 B/s"
                )
            }
            RateErrorKind::EmptyFigure => {
                write!(f, "{found:?} has an empty figure before or behind a comma")
            }
            RateErrorKind::Bandwidth(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RateError {}

/// Parses a rate such as `500 IOPS @ 16 KiB, 30 MB/s`, or `none`.
///
/// # Errors
/// The first mistake in the text; see [`RateErrorKind`].
pub fn parse_rate(text: &str) -> Result<Rate, RateError> {
    let fail = |kind| RateError {
        kind,
        found: text.to_owned(),
    };
    let mut rate = Rate::NONE;
    // A word of its own: an empty text would hide a figure that was forgotten.
    if text.trim().eq_ignore_ascii_case("none") {
        return Ok(rate);
    }
    for part in text.split(',').map(str::trim) {
        match parse_ops(part).map_err(fail)? {
            Some(_) if rate.ops.is_some() => return Err(fail(RateErrorKind::OpsTwice)),
            Some(ops) => rate.ops = Some(ops),
            // A figure without IOPS is taken for a bandwidth, whose parser names the mistake.
            None if rate.bytes_per_s.is_some() => return Err(fail(RateErrorKind::BandwidthTwice)),
            None => rate.bytes_per_s = Some(parse_bytes_per_s(part).map_err(fail)?),
        }
    }
    Ok(rate)
}

/// Parses `120 IOPS` or `120 IOPS @ 16 KiB`; `None` if the unit is not IOPS.
fn parse_ops(part: &str) -> Result<Option<OpsRate>, RateErrorKind> {
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
            Some(_) => Err(RateErrorKind::SizeWithoutOps),
            None => Ok(None),
        };
    }
    let number = number.trim();
    // Digits alone: `u64::from_str` would accept a sign.
    let per_s = (number.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| number.parse().ok())
        .flatten()
        .filter(|n| (1..=Rate::MAX).contains(n))
        .ok_or_else(|| RateErrorKind::OpsNumber(number.to_owned()))?;
    let norm = norm.map(parse_norm).transpose()?;
    Ok(Some(OpsRate { per_s, norm }))
}

fn parse_norm(text: &str) -> Result<u32, RateErrorKind> {
    let bytes = parse_bytes(text).map_err(RateErrorKind::Norm)?;
    let fits = u32::try_from(bytes).ok().filter(|&norm| norm > 0);
    fits.ok_or_else(|| RateErrorKind::NormRange(text.to_owned()))
}

fn parse_bytes_per_s(part: &str) -> Result<u64, RateErrorKind> {
    match parse_bandwidth(part) {
        Ok(rate) if (1..=Rate::MAX).contains(&rate) => Ok(rate),
        Ok(_) => Err(RateErrorKind::BandwidthRange(part.to_owned())),
        Err(_) if part.is_empty() => Err(RateErrorKind::EmptyFigure),
        Err(error) => Err(RateErrorKind::Bandwidth(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_print_as_people_write_them() {
        assert_eq!(Rate::bytes(30_000_000).to_string(), "30 MB/s");
        assert_eq!(Rate::bytes(1_500_000).to_string(), "1.5 MB/s");
        assert_eq!(Rate::bytes(1_048_577).to_string(), "1048.577 kB/s");
        let both = Rate {
            ops: Some(OpsRate {
                per_s: 150,
                norm: Some(16384),
            }),
            bytes_per_s: Some(1000),
        };
        assert_eq!(both.to_string(), "150 IOPS @ 16 KiB, 1 kB/s");
    }

    #[test]
    fn four_digits_are_exact_and_more_are_rounded_to_three() {
        for (exact, rounded) in [
            ("6.144 MB/s", "6.144 MB/s"),
            ("30 MB/s", "30 MB/s"),
            ("512829.712 kB/s", "513 MB/s"),
            ("134999.965 kB/s", "135 MB/s"),
            ("500 IOPS", "500 IOPS"),
            (
                "120 IOPS @ 16 KiB, 1048577 B/s",
                "120 IOPS @ 16 KiB, 1.05 MB/s",
            ),
            ("none", "none"),
        ] {
            let rate = parse_rate(exact).expect("a rate");
            assert_eq!(rate.rounded(), rounded);
        }
    }

    #[test]
    fn errors_name_the_faulty_figure_and_what_is_allowed() {
        let message = |text| parse_rate(text).expect_err("no rate").to_string();
        assert_eq!(
            message("5 IOPS, 6 iops"),
            "\"5 IOPS, 6 iops\" names IOPS twice"
        );
        assert_eq!(
            message("1 B/s, 2 B/s"),
            "\"1 B/s, 2 B/s\" names a bandwidth twice"
        );
        assert_eq!(
            message("5 MB/s @ 4 KiB"),
            "\"5 MB/s @ 4 KiB\": only a figure in IOPS can have a size behind `@`"
        );
        assert_eq!(
            message("0 IOPS"),
            "\"0 IOPS\": \"0\" is not a whole number of requests per second from 1 to 2^50"
        );
        assert_eq!(
            message("+5 IOPS"),
            "\"+5 IOPS\": \"+5\" is not a whole number of requests per second from 1 to 2^50"
        );
        assert_eq!(
            message("5 IOPS @ 4 GiB"),
            "\"5 IOPS @ 4 GiB\": a size of 4 GiB cannot count as one request, allowed are 1 B to \
             less than 4 GiB"
        );
        assert_eq!(
            message("5 IOPS,"),
            "\"5 IOPS,\" has an empty figure before or behind a comma"
        );
        assert_eq!(
            message("0 B/s"),
            "\"0 B/s\": a bandwidth of 0 B/s, allowed are 1 B/s to 2^50 B/s"
        );
        assert!(message("5 IOPS @ 4").contains("one request: found \"4\" without a unit"));
        assert!(message("5").starts_with("found \"5\" without a unit"));
    }

    proptest! {
        #[test]
        fn rates_survive_printing(
            ops in proptest::option::of((1..=Rate::MAX, proptest::option::of(1_u32..))),
            bytes_per_s in proptest::option::of(1..=Rate::MAX),
        ) {
            let ops = ops.map(|(per_s, norm)| OpsRate { per_s, norm });
            let rate = Rate { ops, bytes_per_s };
            prop_assert_eq!(parse_rate(&rate.to_string()), Ok(rate));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            let _ = parse_rate(&text);
        }
    }
}
