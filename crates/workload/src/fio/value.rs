//! Parsers of fio's values: integers with units, times, percentages, lists.

use tidegate_core::time::Nanos;

/// Forms of an integer, for messages.
pub(super) const INTEGER: &str = "a whole number, with k, m, g, t or p for powers of 1024 \
     (kb_base=1024) or 1000 (kb_base=1000)";
pub(super) const SIZE: &str = "whole bytes such as 4096, 4k, 1m or 10g";
pub(super) const TIME: &str = "a whole number and us, ms, s, m, h or d, such as 500ms";

/// Size in bytes, or in percent of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Extent {
    Bytes(u64),
    Percent(u64),
}

/// Parses an integer: decimal or `0x`, with a unit in powers of `kb_base`.
///
/// fio's units are the reverse of the standard: by default `k` and `kb` are 1024 and `kib` is 1000;
/// with `kb_base=1000` they are as in the standard. `ki` equals `k`: fio's documentation says
/// otherwise, but its code does this.
pub(super) fn integer(text: &str, kb_base: u64) -> Option<u64> {
    let (digits, radix) = match text.get(..2) {
        Some("0x" | "0X") => (&text[2..], 16),
        _ => (text, 10),
    };
    let end = digits.find(|c: char| !c.is_digit(radix));
    let (digits, unit) = digits.split_at(end.unwrap_or(digits.len()));
    // The search above excludes a sign, which from_str_radix would accept.
    let number = u64::from_str_radix(digits, radix).ok()?;
    let unit = unit.to_ascii_lowercase();
    // In hexadecimal, `b` is a digit and does not reach this.
    if let "" | "b" = unit.as_str() {
        return Some(number);
    }
    let mut letters = unit.chars();
    // The place of the letter in the list is the power, less one.
    let power = "kmgtp".find(letters.next()?)? as u32 + 1;
    let base = match letters.as_str() {
        "" | "b" | "i" => kb_base,
        "ib" if kb_base == 1000 => 1024,
        "ib" => 1000,
        _ => return None,
    };
    // 5 is the largest power: 1024^5 fits 64 bits.
    number.checked_mul(u64::pow(base, power))
}

/// Parses an integer number of bytes, or of percent.
pub(super) fn extent(text: &str, kb_base: u64) -> Option<Extent> {
    match text.strip_suffix('%') {
        // `parse` alone would accept a plus sign.
        Some(percent) => percent
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| percent.parse().ok().map(Extent::Percent))?,
        None => integer(text, kb_base).map(Extent::Bytes),
    }
}

/// Parses a time; a number without a unit counts in units of `bare`.
pub(super) fn time(text: &str, bare: Nanos) -> Option<Nanos> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" => bare,
        "us" | "usec" => Nanos::from_micros(1),
        "ms" | "msec" => Nanos::from_millis(1),
        "s" | "sec" => Nanos::SECOND,
        "m" => Nanos::from_secs(60),
        "h" => Nanos::from_secs(3600),
        "d" => Nanos::from_secs(86_400),
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit.0).map(Nanos)
}

/// Parses comma-separated values for reads, writes and trims. A value that is left out is `None`;
/// without a comma behind it the last value applies to the rest.
pub(super) fn triple<T: Copy>(
    text: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<[Option<T>; 3]> {
    let mut values = [None; 3];
    let mut n = 0;
    for part in text.split(',') {
        let part = part.trim();
        if !part.is_empty() {
            *values.get_mut(n)? = Some(parse(part)?);
        }
        n += 1;
    }
    // The third value may have a comma behind it, too.
    if n > 4 || values.iter().all(Option::is_none) {
        return None;
    }
    // fio: the last value given is used for the operations that have none.
    let last = n - 1;
    for i in n..3 {
        values[i] = values[last];
    }
    Some(values)
}

/// Parses a decimal number without sign, exponent or `inf`.
pub(super) fn decimal(text: &str) -> Option<f64> {
    let plain = |c: char| c.is_ascii_digit() || c == '.';
    (text.chars().all(plain)).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024_and_kib_is_1000() {
        for (text, value) in [
            ("0", 0),
            ("4096", 4096),
            ("4096b", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4kb", 4096),
            ("4KB", 4096),
            ("4ki", 4096),
            ("4KiB", 4000),
            ("1m", 1 << 20),
            ("1mib", 1_000_000),
            ("1g", 1 << 30),
            ("1t", 1 << 40),
            ("1P", 1 << 50),
            ("1tib", 1_000_000_000_000),
            ("0x10", 16),
            ("0X1000k", 4096 << 10),
            ("0xab", 0xab),
        ] {
            assert_eq!(integer(text, 1024), Some(value), "{text}");
        }
    }

    #[test]
    fn kb_base_1000_sets_the_units_right() {
        assert_eq!(integer("4k", 1000), Some(4000));
        assert_eq!(integer("4kb", 1000), Some(4000));
        assert_eq!(integer("4kib", 1000), Some(4096));
        assert_eq!(integer("1m", 1000), Some(1_000_000));
    }

    #[test]
    fn what_fio_would_misread_is_no_integer() {
        for text in [
            "",
            "k",
            "-1",
            "+1",
            "4 k",
            "4kx",
            "1.5g",
            "4kk",
            "0x",
            "(4*1k)",
            "i",
            "4i",
            "4ib",
            "4e3",
            "é",
            "99999999999999999999",
            "99999999p",
        ] {
            assert_eq!(integer(text, 1024), None, "{text}");
        }
    }

    #[test]
    fn an_extent_may_be_a_percentage() {
        assert_eq!(extent("50%", 1024), Some(Extent::Percent(50)));
        assert_eq!(extent("1k", 1024), Some(Extent::Bytes(1024)));
        for text in ["%", "+5%", "5k%", "5 %"] {
            assert_eq!(extent(text, 1024), None, "{text}");
        }
    }

    #[test]
    fn a_time_has_the_unit_of_its_option_unless_it_says_one() {
        assert_eq!(time("30", Nanos::SECOND), Some(Nanos::from_secs(30)));
        assert_eq!(time("30", Nanos(1000)), Some(Nanos::from_micros(30)));
        for (text, ns) in [
            ("5us", 5_000),
            ("5usec", 5_000),
            ("5ms", 5_000_000),
            ("5MSEC", 5_000_000),
            ("5s", 5_000_000_000),
            ("5sec", 5_000_000_000),
            ("5m", 300_000_000_000),
            ("1H", 3_600_000_000_000),
            ("1d", 86_400_000_000_000),
        ] {
            assert_eq!(time(text, Nanos(1)), Some(Nanos(ns)), "{text}");
        }
        for text in ["", "s", "-5", "+5", "1.5s", "5 s", "5min", "999999999999d"] {
            assert_eq!(time(text, Nanos::SECOND), None, "{text}");
        }
    }

    #[test]
    fn a_triple_goes_on_unless_a_comma_ends_it() {
        let triple = |text| triple(text, |part| integer(part, 1024));
        assert_eq!(triple("1"), Some([Some(1); 3]));
        assert_eq!(triple("1,2"), Some([Some(1), Some(2), Some(2)]));
        assert_eq!(triple("1,2,"), Some([Some(1), Some(2), None]));
        assert_eq!(triple("1,"), Some([Some(1), None, None]));
        assert_eq!(triple(",2"), Some([None, Some(2), Some(2)]));
        assert_eq!(triple(",2,"), Some([None, Some(2), None]));
        assert_eq!(triple("1, 2, 3"), Some([Some(1), Some(2), Some(3)]));
        assert_eq!(triple("1,2,3,"), Some([Some(1), Some(2), Some(3)]));
        for text in ["", ",", ",,", "1,2,3,4", "1,2,3,,", "1,x"] {
            assert_eq!(triple(text), None, "{text}");
        }
    }

    #[test]
    fn a_decimal_is_plain() {
        assert_eq!(decimal("1.2"), Some(1.2));
        for text in ["", "-1", "1e3", "inf", "NaN", "1.2.3", "."] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }
}
