//! Rounded numbers for tables: three or four significant digits and a unit.
//!
//! Values that are to be read back exactly are formatted by [`exact_bytes`], or by functions of the
//! crate's root.

use crate::figure::BINARY;

/// Divides `value` by `step` while it is at least `threshold` and a larger unit is left; returns
/// the result and its unit.
///
/// # Panics
/// If there are no units.
pub fn scale_to_unit<'a>(
    mut value: f64,
    step: f64,
    threshold: f64,
    units: &[&'a str],
) -> (f64, &'a str) {
    let mut unit = 0;
    while value.abs() >= threshold && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    (value, units[unit])
}

/// Formats `value` in the largest of `units` that gives at least 1; one unit is `step` of the one
/// before.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    // From half below the step on, `digits` would show the step itself (1000 kB/s, 1024 KiB), which
    // is 1 of the next unit.
    let (value, unit) = scale_to_unit(value, step, step - 0.5, units);
    let space = if unit.is_empty() { "" } else { " " };
    format!("{}{space}{unit}", digits(value))
}

/// Formats a number with as many decimals as three significant digits need.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        // From 99.95 on, one decimal would show 100.0, which has four digits; 9.995 likewise.
        v if v == 0.0 || v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    // ".00" is left out: it would suggest a precision that was not measured.
    match text.split_once('.') {
        Some((whole, part)) if part.bytes().all(|b| b == b'0') => whole.to_owned(),
        _ => text,
    }
}

/// Formats a size in binary units: `128 KiB`, `1.50 GiB`.
pub fn bytes(value: u64) -> String {
    scaled(
        value as f64,
        1024.0,
        &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"],
    )
}

/// Formats a size exactly, in the largest binary unit that divides it: `20 GiB`, `1537 KiB` or
/// `513 B`. For configuration files, where the text is read back as the same size.
pub fn exact_bytes(value: u64) -> String {
    // Every unit divides 0, which is to be shown as 0 B.
    let divides = |(scale, _): &&(u64, &str)| value != 0 && value.is_multiple_of(*scale);
    match BINARY.iter().find(divides) {
        Some((scale, unit)) => format!("{} {unit}", value / scale),
        None => format!("{value} B"),
    }
}

/// Formats a size for a message in which a single byte matters: exactly in a unit where at most
/// four digits need no rounding (`20 GiB`, `1537 KiB`, `8191 B`), otherwise rounded with the count
/// behind it (`1.95 GiB (2097151999 bytes)`).
pub fn bytes_and_count(value: u64) -> String {
    let exact = exact_bytes(value);
    let number = exact.split(' ').next().unwrap_or_default();
    if number.len() <= 4 {
        return exact;
    }
    format!("{} ({value} bytes)", bytes(value))
}

/// Formats a bandwidth in bytes per second, in decimal units: `30 MB/s`.
pub fn bytes_per_s(value: f64) -> String {
    scaled(value, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"])
}

/// Formats a rate per second without its unit: `118`, `4.20k`.
pub fn rate(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G"]).replace(' ', "")
}

/// Formats a duration in nanoseconds: `850 ns`, `12.3 ms`, `1.50 s`.
pub fn duration(nanos: u64) -> String {
    if nanos >= 1_000_000_000 {
        return format!("{} s", digits(nanos as f64 / 1e9));
    }
    // Seconds too, for spans just below one that round up to it.
    scaled(nanos as f64, 1000.0, &["ns", "us", "ms", "s"])
}

/// Separator of thousands in [`count`]. It marks where digits may be grouped: whoever prints the
/// text replaces it by a space on a terminal, and removes it elsewhere, so that scripts get plain
/// digits.
pub const GROUP: char = '\u{202f}';

/// Returns a count with [`GROUP`] between its thousands.
pub fn count(value: u64) -> String {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len() * 4 / 3);
    for (i, digit) in text.chars().enumerate() {
        if i > 0 && (text.len() - i).is_multiple_of(3) {
            out.push(GROUP);
        }
        out.push(digit);
    }
    out
}

/// Formats a part of a whole in percent: `37 %`; `-` if the whole is not above 0.
pub fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 {
        format!("{:.0} %", 100.0 * part / whole)
    } else {
        "-".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Quantity, parse_bytes};
    use proptest::prelude::*;

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(131_072), "128 KiB");
        assert_eq!(bytes(1_610_612_736), "1.50 GiB");
        assert_eq!(bytes_per_s(30e6), "30 MB/s");
        assert_eq!(bytes_per_s(29_740_000.0), "29.7 MB/s");
        assert_eq!(rate(118.2), "118");
        assert_eq!(rate(4200.0), "4.20k");
        assert_eq!(duration(12_345_678), "12.3 ms");
        assert_eq!(duration(90_000_000_000), "90 s");
    }

    #[test]
    fn a_size_that_no_short_figure_tells_comes_with_its_count() {
        assert_eq!(bytes_and_count(0), "0 B");
        assert_eq!(bytes_and_count(20 << 30), "20 GiB");
        assert_eq!(bytes_and_count(8191), "8191 B");
        assert_eq!(bytes_and_count(1537 << 10), "1537 KiB");
        assert_eq!(
            bytes_and_count(2_097_151_999),
            "1.95 GiB (2097151999 bytes)"
        );
        assert_eq!(
            bytes_and_count(10_001 << 20),
            "9.77 GiB (10486808576 bytes)"
        );
    }

    #[test]
    fn rounding_up_moves_to_the_next_unit() {
        assert_eq!(bytes_per_s(999_999.0), "1 MB/s");
        assert_eq!(duration(999_999), "1 ms");
        assert_eq!(duration(999_999_999), "1 s");
        // The last value that rounds to 999 or 1023 of a unit, and the first one that does not.
        assert_eq!(bytes_per_s(999_499.0), "999 kB/s");
        assert_eq!(bytes_per_s(999_500.0), "1 MB/s");
        assert_eq!(rate(999.6), "1k");
        assert_eq!(bytes(1023 * 1024 + 511), "1023 KiB");
        assert_eq!(bytes(1023 * 1024 + 512), "1 MiB");
    }

    #[test]
    fn exact_sizes_mean_the_same_when_read_back() {
        assert_eq!(exact_bytes(20 << 30), "20 GiB");
        assert_eq!(exact_bytes((1 << 20) + 1024), "1025 KiB");
        assert_eq!(exact_bytes(513), "513 B");
        assert_eq!(exact_bytes(0), "0 B");
    }

    #[test]
    fn thousands_stand_apart() {
        let count = |value| count(value).replace(GROUP, " ");
        assert_eq!(count(7), "7");
        assert_eq!(count(1_234_567), "1 234 567");
        assert_eq!(count(u64::MAX), "18 446 744 073 709 551 615");
    }

    /// Reads a number with its unit, without asking that it be whole.
    fn approximately(text: &str, quantity: Quantity) -> f64 {
        let (number, unit) = text.split_once(' ').expect("a number and a unit");
        let scale = quantity.scale(unit).expect("a unit that is read");
        number.parse::<f64>().expect("a number") * scale as f64
    }

    proptest! {
        #[test]
        fn exact_sizes_are_read_back_whatever_they_are(bytes: u64, shift in 0_u32..64) {
            let bytes = bytes >> shift;
            prop_assert_eq!(parse_bytes(&exact_bytes(bytes)), Ok(bytes));
        }

        #[test]
        fn what_is_rounded_is_off_by_half_of_its_third_digit(n in 0_u64..1 << 49, by in 0_u32..49) {
            let n = n >> by;
            for (text, quantity) in [
                (bytes(n), Quantity::Bytes),
                (bytes_per_s(n as f64), Quantity::Bandwidth),
                (duration(n), Quantity::Duration),
            ] {
                let read = approximately(&text, quantity);
                // Half of the third digit of 1.00, and some slack for floating point.
                prop_assert!((read - n as f64).abs() <= 0.005_001 * n as f64, "{n}: {text}");
            }
        }
    }
}
