//! Figures with units (sizes, durations, bandwidths, rotational speeds): exact parsing, and
//! formatting for people.

use core::fmt;

use crate::time::Nanos;

/// Kind of a figure, which determines its units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// Size in bytes.
    Bytes,
    /// Duration in nanoseconds.
    Duration,
    /// Bandwidth in bytes per second.
    Bandwidth,
    /// Rotational speed in revolutions per minute.
    Rotation,
}

impl Quantity {
    /// Returns the name with its indefinite article, for messages.
    pub const fn with_article(self) -> &'static str {
        match self {
            Quantity::Bytes => "a size",
            Quantity::Duration => "a duration",
            Quantity::Bandwidth => "a bandwidth",
            Quantity::Rotation => "a rotational speed",
        }
    }

    /// Returns the accepted units as a list for messages: in ascending order, decimal units before
    /// binary ones.
    pub const fn allowed(self) -> &'static str {
        match self {
            Quantity::Bytes => "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
            Quantity::Duration => "ns, us, ms, s, min, h",
            Quantity::Bandwidth => "B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s, TiB/s",
            Quantity::Rotation => "rpm",
        }
    }

    /// Iterates over all accepted spellings of units: those of [`Quantity::allowed`], and spellings
    /// that are read but never written.
    pub fn spellings(self) -> impl Iterator<Item = &'static str> {
        // People write KB for kB, and both the micro sign and the Greek letter for micro.
        let others: &[&str] = match self {
            Quantity::Bytes => &["KB"],
            Quantity::Duration => &["\u{b5}s", "\u{3bc}s"],
            Quantity::Bandwidth => &["KB/s"],
            Quantity::Rotation => &[],
        };
        self.allowed().split(", ").chain(others.iter().copied())
    }

    /// Returns a valid figure, for messages.
    pub const fn example(self) -> &'static str {
        match self {
            Quantity::Bytes => "32 MiB",
            Quantity::Duration => "8.9 ms",
            Quantity::Bandwidth => "175 MB/s",
            Quantity::Rotation => "7200 rpm",
        }
    }

    /// Name of the base unit, the smallest step of a figure.
    const fn base(self) -> &'static str {
        match self {
            Quantity::Bytes => "bytes",
            Quantity::Duration => "nanoseconds",
            Quantity::Bandwidth => "bytes per second",
            Quantity::Rotation => "revolutions per minute",
        }
    }

    /// Returns the number of base units in one `unit`; `None` for an unknown unit.
    pub(crate) fn scale(self, unit: &str) -> Option<u64> {
        match self {
            Quantity::Bytes => bytes_scale(unit),
            Quantity::Bandwidth => bytes_scale(unit.strip_suffix("/s")?),
            Quantity::Duration => Some(match unit {
                "ns" => 1,
                "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
                "ms" => 1_000_000,
                "s" => 1_000_000_000,
                "min" => 60_000_000_000,
                "h" => 3_600_000_000_000,
                _ => return None,
            }),
            Quantity::Rotation => (unit == "rpm").then_some(1),
        }
    }
}

fn bytes_scale(unit: &str) -> Option<u64> {
    Some(match unit {
        "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    })
}

/// Reason why a text is no figure with a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitErrorKind {
    /// No plain decimal number at the beginning.
    NotANumber,
    /// Number without a unit.
    NoUnit,
    /// Unit that this quantity does not have.
    UnknownUnit,
    /// Value that is not a whole number of the base unit.
    NotWhole,
    /// Value that does not fit 64 bits.
    TooLarge,
}

/// Refusal of a text that is not a figure; its message states what was found and what is allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitError {
    /// Reason of the refusal.
    pub kind: UnitErrorKind,
    /// Kind of figure that was expected.
    pub quantity: Quantity,
    /// Text that was found.
    pub found: String,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (found, q) = (&self.found, self.quantity);
        let (units, example) = (q.allowed(), q.example());
        match self.kind {
            UnitErrorKind::NotANumber => write!(
                f,
                "found \"{found}\", expected {}: a decimal number and a unit ({units}), such as \
                 \"{example}\"",
                q.with_article()
            ),
            UnitErrorKind::NoUnit => write!(
                f,
                "found \"{found}\" without a unit, allowed are {units}, such as \"{example}\""
            ),
            UnitErrorKind::UnknownUnit => write!(
                f,
                "found \"{found}\" with an unknown unit, allowed for {} are {units}, such as \
                 \"{example}\"",
                q.with_article()
            ),
            UnitErrorKind::NotWhole => {
                write!(
                    f,
                    "found \"{found}\", which is not a whole number of {}",
                    q.base()
                )
            }
            UnitErrorKind::TooLarge => {
                write!(
                    f,
                    "found \"{found}\", allowed are at most {} {}",
                    u64::MAX,
                    q.base()
                )
            }
        }
    }
}

impl std::error::Error for UnitError {}

/// Parses a figure into its base unit, exactly.
fn parse(text: &str, quantity: Quantity) -> Result<u64, UnitError> {
    let fail = |kind| UnitError {
        kind,
        quantity,
        found: text.to_owned(),
    };
    let trimmed = text.trim();
    let split = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        // `1.` is refused rather than guessed.
        Some(_) => return Err(fail(UnitErrorKind::NotANumber)),
        None => (number, ""),
    };
    // `.5` is refused too, as is a second point.
    if whole.is_empty() || fraction.contains('.') {
        return Err(fail(UnitErrorKind::NotANumber));
    }
    let unit = unit.trim_start();
    if unit.is_empty() {
        return Err(fail(UnitErrorKind::NoUnit));
    }
    let scale = quantity
        .scale(unit)
        .ok_or_else(|| fail(UnitErrorKind::UnknownUnit))?;

    // Only digits are left, so the one possible error is a number beyond 64 bits.
    let whole: u64 = whole.parse().map_err(|_| fail(UnitErrorKind::TooLarge))?;
    // Long multiplication by `scale`, from the last decimal: 2^20 B in TiB have 20 decimals, and
    // 10^20 does not fit 64 bits. The carry stays below `scale`.
    let mut carry = 0;
    for digit in fraction.bytes().rev() {
        let product = u128::from(digit - b'0') * u128::from(scale) + carry;
        // A remainder can never be made whole by the decimals to its left.
        if !product.is_multiple_of(10) {
            return Err(fail(UnitErrorKind::NotWhole));
        }
        carry = product / 10;
    }
    let total = u128::from(whole) * u128::from(scale) + carry;
    // 128 bits hold the product of any two 64-bit numbers.
    u64::try_from(total).map_err(|_| fail(UnitErrorKind::TooLarge))
}

/// Parses a size such as `"32 MiB"` into bytes.
///
/// # Errors
/// If the text is not a number with a unit of size, or not a whole number of bytes.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    parse(text, Quantity::Bytes)
}

/// Parses a duration such as `"8.9 ms"`.
///
/// # Errors
/// If the text is not a number with a unit of time, or not a whole number of nanoseconds.
pub fn parse_duration(text: &str) -> Result<Nanos, UnitError> {
    parse(text, Quantity::Duration).map(Nanos)
}

/// Parses a bandwidth such as `"175 MB/s"` into bytes per second.
///
/// # Errors
/// If the text is not a number with a unit of bandwidth, or not a whole number of bytes per second.
pub fn parse_bandwidth(text: &str) -> Result<u64, UnitError> {
    parse(text, Quantity::Bandwidth)
}

/// Parses a rotational speed such as `"7200 rpm"` into revolutions per minute.
///
/// # Errors
/// If the text is not a whole number with the unit rpm.
pub fn parse_rotation(text: &str) -> Result<u64, UnitError> {
    parse(text, Quantity::Rotation)
}

/// Decimal units of size above the byte, in descending order.
const DECIMAL: [(u64, &str); 4] = [
    (1_000_000_000_000, "TB"),
    (1_000_000_000, "GB"),
    (1_000_000, "MB"),
    (1_000, "kB"),
];
/// Binary units of size, in descending order.
pub(crate) const BINARY: [(u64, &str); 4] = [
    (1 << 40, "TiB"),
    (1 << 30, "GiB"),
    (1 << 20, "MiB"),
    (1 << 10, "KiB"),
];
/// Units of time above the nanosecond in which durations are formatted, in descending order.
const TIME: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];

/// Returns the largest of `units`, which grow by a factor of 1000 and stand in descending order, in
/// which `value` is at least 1 when rounded to three decimals; `None`: less than every unit.
fn rounded_unit(value: u64, units: &[(u64, &'static str)]) -> Option<(u64, &'static str)> {
    // From half a thousandth of the next smaller unit below `scale` on, that unit would show 1000.
    let fits = |(scale, _): &&(u64, &str)| value >= *scale - *scale / 2_000_000;
    units.iter().find(fits).copied()
}

/// Formats `value` in units of `scale`, rounded half up to at most three decimals, without trailing
/// zeroes.
fn decimals(value: u64, scale: u64, unit: &str) -> String {
    // 128 bits: 1000 times a size above 16 PiB does not fit 64. Half the scale rounds half up.
    let thousandths = (u128::from(value) * 1_000 + u128::from(scale) / 2) / u128::from(scale);
    let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
    if rest == 0 {
        return format!("{whole} {unit}");
    }
    let digits = format!("{rest:03}");
    format!("{whole}.{} {unit}", digits.trim_end_matches('0'))
}

/// Formats a size for people: in a binary unit if it is a whole number of the largest that fits
/// (`"32 MiB"`), else in a decimal unit with at most three decimals (`"1 TB"`).
pub fn format_bytes(bytes: u64) -> String {
    whole_binary(bytes).unwrap_or_else(|| match rounded_unit(bytes, &DECIMAL) {
        Some((scale, unit)) => decimals(bytes, scale, unit),
        None => format!("{bytes} B"),
    })
}

/// Formats a size exactly: as [`format_bytes`], but in a smaller unit if three decimals are not
/// enough (`"1234567 B"`). For text that is read back as the same size.
pub fn exact_bytes(bytes: u64) -> String {
    whole_binary(bytes).unwrap_or_else(|| match exact_unit(bytes, &DECIMAL) {
        Some((scale, unit)) => decimals(bytes, scale, unit),
        None => format!("{bytes} B"),
    })
}

/// Formats a size in the largest binary unit that fits; `None`: it is no whole number of it.
fn whole_binary(bytes: u64) -> Option<String> {
    let (scale, unit) = BINARY
        .iter()
        .find(|(scale, _)| bytes >= *scale)
        // Only the largest unit: 1 TB is not 976562500 KiB, although a KiB divides it.
        .filter(|(scale, _)| bytes.is_multiple_of(*scale))?;
    Some(format!("{} {unit}", bytes / scale))
}

/// Formats a bandwidth in bytes per second for people, in the unit that [`format_bytes`] chooses
/// (`"175 MB/s"`, `"1 MiB/s"`).
pub fn format_bandwidth(bytes_per_second: u64) -> String {
    format!("{}/s", format_bytes(bytes_per_second))
}

/// Formats a bandwidth in bytes per second exactly, in decimal units: at most three decimals, in a
/// smaller unit if three are not enough (`"1048.577 kB/s"`).
pub(crate) fn format_decimal_bandwidth(bytes_per_second: u64) -> String {
    // GB/s is the largest unit: 1000 GB/s is read more easily than 1 TB/s.
    match exact_unit(bytes_per_second, &DECIMAL[1..]) {
        Some((scale, unit)) => format!("{}/s", decimals(bytes_per_second, scale, unit)),
        None => format!("{bytes_per_second} B/s"),
    }
}

/// Returns the largest of `units`, which stand in descending order, in which `value` is at least 1
/// and has at most three decimals; `None`: there is none.
fn exact_unit(value: u64, units: &[(u64, &'static str)]) -> Option<(u64, &'static str)> {
    let is_exact =
        |(scale, _): &&(u64, &str)| value >= *scale && value.is_multiple_of(scale / 1_000);
    units.iter().find(is_exact).copied()
}

/// Formats a duration exactly, in units up to seconds: at most three decimals, in a smaller unit if
/// three are not enough (`"1500.25 ms"`). For text that is read back as the same duration.
pub fn exact_duration(span: Nanos) -> String {
    match exact_unit(span.0, &TIME) {
        Some((scale, unit)) => decimals(span.0, scale, unit),
        None => format!("{} ns", span.0),
    }
}

/// Formats a duration for people, in the largest unit up to seconds that gives at least 1, with at
/// most three decimals (`"8.9 ms"`).
pub fn format_duration(span: Nanos) -> String {
    match rounded_unit(span.0, &TIME) {
        Some((scale, unit)) => decimals(span.0, scale, unit),
        None => format!("{} ns", span.0),
    }
}

/// Formats a rotational speed in revolutions per minute for people.
pub fn format_rotation(rpm: u64) -> String {
    format!("{rpm} rpm")
}

/// Declares a type of figures with a unit, which deserializes from a string and refuses a number.
macro_rules! figure {
    ($(#[$doc:meta])* $name:ident($inner:ty), $quantity:expr, $parse:ident, $format:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&$format(self.0))
            }
        }

        impl core::str::FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                $parse(text).map($name)
            }
        }

        #[cfg(feature = "serde")]
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl serde::de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        let q = $quantity;
                        write!(
                            f,
                            "{} with its unit ({}), in quotes, such as \"{}\"",
                            q.with_article(),
                            q.allowed(),
                            q.example()
                        )
                    }
                    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                source.deserialize_str(Visitor)
            }
        }
    };
}

figure! {
    /// Size in bytes, written `"32 MiB"`.
    Bytes(u64), Quantity::Bytes, parse_bytes, format_bytes
}
figure! {
    /// Duration, written `"8.9 ms"`.
    Duration(Nanos), Quantity::Duration, parse_duration, format_duration
}
figure! {
    /// Bandwidth in bytes per second, written `"175 MB/s"`.
    Bandwidth(u64), Quantity::Bandwidth, parse_bandwidth, format_bandwidth
}
figure! {
    /// Rotational speed in revolutions per minute, written `"7200 rpm"`.
    Rotation(u64), Quantity::Rotation, parse_rotation, format_rotation
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_spelling_of_a_unit_is_read() {
        let quantities = [
            Quantity::Bytes,
            Quantity::Duration,
            Quantity::Bandwidth,
            Quantity::Rotation,
        ];
        for quantity in quantities {
            for unit in quantity.spellings() {
                assert!(quantity.scale(unit).is_some(), "{quantity:?}: {unit}");
            }
        }
    }

    #[test]
    fn reads_what_people_write() {
        assert_eq!(parse_bytes("32 MiB"), Ok(32 << 20));
        assert_eq!(parse_bytes("20GiB"), Ok(20 << 30));
        assert_eq!(parse_bytes("1.5 kB"), Ok(1_500));
        assert_eq!(parse_bytes("0.5 KiB"), Ok(512));
        // 1 MiB and 1 B in TiB have 20 and 40 decimals.
        assert_eq!(parse_bytes("0.00000095367431640625 TiB"), Ok(1 << 20));
        assert_eq!(
            parse_bytes("0.0000000000009094947017729282379150390625 TiB"),
            Ok(1)
        );
        assert_eq!(parse_bytes("1.50000000000000000000000000 KiB"), Ok(1_536));
        assert_eq!(parse_bytes("1.50000000000000000000000000 kB"), Ok(1_500));
        assert_eq!(parse_duration("8.9 ms"), Ok(Nanos(8_900_000)));
        assert_eq!(parse_duration("60 \u{b5}s"), Ok(Nanos(60_000)));
        assert_eq!(parse_duration(" 2 min "), Ok(Nanos(120_000_000_000)));
        assert_eq!(parse_bandwidth("175 MB/s"), Ok(175_000_000));
        assert_eq!(parse_bandwidth("30 MiB/s"), Ok(30 << 20));
        assert_eq!(parse_rotation("7200 rpm"), Ok(7_200));
        assert_eq!(parse_bytes("18446744073709551615 B"), Ok(u64::MAX));
    }

    #[test]
    fn refuses_what_could_mean_anything() {
        use UnitErrorKind::*;
        let kind = |r: Result<u64, UnitError>| r.unwrap_err().kind;
        assert_eq!(kind(parse_bytes("4096")), NoUnit);
        assert_eq!(kind(parse_bytes("0")), NoUnit);
        assert_eq!(kind(parse_bytes("4096 ")), NoUnit);
        assert_eq!(kind(parse_bytes("")), NotANumber);
        assert_eq!(kind(parse_bytes("MiB")), NotANumber);
        assert_eq!(kind(parse_bytes("-1 MiB")), NotANumber);
        assert_eq!(kind(parse_bytes("1. MiB")), NotANumber);
        assert_eq!(kind(parse_bytes(".5 MiB")), NotANumber);
        assert_eq!(kind(parse_bytes("1.2.3 MiB")), NotANumber);
        assert_eq!(kind(parse_bytes("1e3 B")), UnknownUnit);
        assert_eq!(kind(parse_bytes("1 mb")), UnknownUnit);
        assert_eq!(kind(parse_bytes("1 M")), UnknownUnit);
        assert_eq!(kind(parse_bandwidth("175 MB")), UnknownUnit);
        assert_eq!(kind(parse_bandwidth("175 Mb/s")), UnknownUnit);
        assert_eq!(kind(parse_bytes("1.5 B")), NotWhole);
        assert_eq!(kind(parse_bytes("0.1 KiB")), NotWhole);
        assert_eq!(
            kind(parse_bytes("0.00000000000000000000000001 TB")),
            NotWhole
        );
        assert_eq!(kind(parse_bytes("18446744073709551616 B")), TooLarge);
        assert_eq!(kind(parse_bytes("99999999 TiB")), TooLarge);
        assert_eq!(kind(parse_rotation("7200.5 rpm")), NotWhole);
    }

    #[test]
    fn errors_say_what_was_found_and_what_is_allowed() {
        let message = parse_bandwidth("175").unwrap_err().to_string();
        assert!(
            message.starts_with("found \"175\" without a unit, allowed are B/s"),
            "{message}"
        );
        let message = parse_duration("8.9 msec").unwrap_err().to_string();
        assert!(
            message.contains("\"8.9 msec\"") && message.contains("ns, us, ms"),
            "{message}"
        );
    }

    #[test]
    fn formats_for_people() {
        assert_eq!(format_bytes(0), "0 B");
        assert_eq!(format_bytes(512), "512 B");
        assert_eq!(format_bytes(4_096), "4 KiB");
        assert_eq!(format_bytes(32 << 20), "32 MiB");
        assert_eq!(format_bytes(1_000_204_886_016), "1 TB");
        assert_eq!(format_bytes(1_500), "1.5 kB");
        assert_eq!(format_bandwidth(175_000_000), "175 MB/s");
        assert_eq!(format_duration(Nanos(8_900_000)), "8.9 ms");
        assert_eq!(format_duration(Nanos(17)), "17 ns");
        assert_eq!(format_duration(Nanos(1_500_000_000)), "1.5 s");
        assert_eq!(format_rotation(7_200), "7200 rpm");
    }

    #[test]
    fn rounding_up_moves_to_the_next_unit() {
        assert_eq!(format_bytes(999_999_499), "999.999 MB");
        assert_eq!(format_bytes(999_999_500), "1 GB");
        assert_eq!(format_bandwidth(999_999_999_999), "1 TB/s");
        assert_eq!(format_duration(Nanos(999_999)), "999.999 us");
        assert_eq!(format_duration(Nanos(999_999_999)), "1 s");
        assert_eq!(format_duration(Nanos(999)), "999 ns");
    }

    #[cfg(feature = "serde")]
    #[test]
    fn deserializes_and_names_the_field_of_a_bare_number() {
        #[derive(serde::Deserialize, Debug)]
        struct Raw {
            rpm: Rotation,
        }
        assert_eq!(
            toml::from_str::<Raw>("rpm = \"7200 rpm\"").unwrap().rpm,
            Rotation(7_200)
        );
        let message = toml::from_str::<Raw>("rpm = 7200").unwrap_err().to_string();
        assert!(message.contains("rpm = 7200"), "{message}");
        assert!(
            message.contains("a rotational speed with its unit (rpm)"),
            "{message}"
        );
    }

    proptest! {
        #[test]
        fn whole_figures_survive_printing(n in 0_u64..1_024, e in 0_usize..4) {
            let bytes = n << (10 * e);
            prop_assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
            let ns = Nanos(n * 1_000_u64.pow(e as u32));
            prop_assert_eq!(parse_duration(&format_duration(ns)), Ok(ns));
        }

        #[test]
        fn what_is_rounded_is_off_by_half_of_its_last_digit(n in 0..u64::MAX / 2, by in 0_u32..63) {
            let n = n >> by;
            for (text, quantity) in [
                (format_bytes(n), Quantity::Bytes),
                (format_bandwidth(n), Quantity::Bandwidth),
                (format_duration(Nanos(n)), Quantity::Duration),
                (format_rotation(n), Quantity::Rotation),
            ] {
                let read = parse(&text, quantity).expect("it is a figure");
                let unit = text.split_once(' ').expect("it has a unit").1;
                let scale = quantity.scale(unit).expect("it is one that is read");
                prop_assert!(read.abs_diff(n) <= scale / 2_000, "{n}: {text}");
            }
        }

        #[test]
        fn decimal_bandwidths_are_exact(n: u64, by in 0_u32..63, zeroes in 0_u32..12) {
            let n = (n >> by) / 10_u64.pow(zeroes) * 10_u64.pow(zeroes);
            prop_assert_eq!(parse_bandwidth(&format_decimal_bandwidth(n)), Ok(n));
        }

        #[test]
        fn sizes_that_are_read_back_are_exact(n: u64, by in 0_u32..63, zeroes in 0_u32..12) {
            for n in [n >> by, (n >> by) / 10_u64.pow(zeroes) * 10_u64.pow(zeroes)] {
                prop_assert_eq!(parse_bytes(&exact_bytes(n)), Ok(n));
                // For people, too, where no more decimals are needed.
                if parse_bytes(&format_bytes(n)) == Ok(n) {
                    prop_assert_eq!(exact_bytes(n), format_bytes(n));
                }
            }
        }

        #[test]
        fn durations_that_are_read_back_are_exact(n: u64, by in 0_u32..63, zeroes in 0_u32..12) {
            let n = Nanos((n >> by) / 10_u64.pow(zeroes) * 10_u64.pow(zeroes));
            prop_assert_eq!(parse_duration(&exact_duration(n)), Ok(n));
            // For people, too, where no more decimals are needed.
            if parse_duration(&format_duration(n)) == Ok(n) {
                prop_assert_eq!(exact_duration(n), format_duration(n));
            }
        }

        #[test]
        fn never_panics(text in ".{0,40}") {
            let _ = (parse_bytes(&text), parse_duration(&text), parse_bandwidth(&text));
        }
    }
}
