//! Likely meanings of figures with units that Tidegate does not have: `50 MBps`, `20G`, `10 sec`.

use tidegate_units::{Quantity, format_bandwidth};

/// Returns the figure that `found` probably means, spelled with a unit of `quantity`. `None` if the
/// unit is not a known spelling of any of its units.
pub(crate) fn meant(quantity: Quantity, found: &str) -> Option<String> {
    let (number, unit) = split(found)?;
    match quantity {
        Quantity::Bytes => Some(format!("{number} {}", size_unit(unit)?)),
        Quantity::Bandwidth => bandwidth(number, unit),
        Quantity::Duration => duration(number, unit),
        Quantity::Rotation => None,
    }
}

/// Returns the rate in IOPS or bytes a second that `found` probably means.
pub(crate) fn meant_rate(found: &str) -> Option<String> {
    let (number, unit) = split(found)?;
    let unit_of_rate = unit.to_ascii_lowercase().replace(' ', "");
    let (thousands, unit_of_rate) = match unit_of_rate.strip_prefix('k') {
        Some(rest) => (1000, rest),
        None => (1, unit_of_rate.as_str()),
    };
    let is_iops = matches!(
        unit_of_rate,
        "iops" | "iop" | "iop/s" | "io/s" | "ios" | "ios/s" | "ops" | "ops/s" | "op/s" | "req/s"
    );
    match number.parse::<u64>() {
        Ok(number) if is_iops => Some(format!("{} IOPS", number.checked_mul(thousands)?)),
        _ => bandwidth(number, unit),
    }
}

/// Splits a figure into its number and its unit; `None` if either is missing.
fn split(found: &str) -> Option<(&str, &str)> {
    let found = found.trim();
    let end = found.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = (&found[..end], found[end..].trim());
    (number.parse::<f64>().is_ok() && !unit.is_empty()).then_some((number, unit))
}

/// Unit of a size: QEMU's and Kubernetes' `G` and `Gi`, and units in the wrong case.
fn size_unit(unit: &str) -> Option<String> {
    let lower = unit.to_ascii_lowercase();
    // QEMU, LVM and `truncate` read a bare letter as a power of two.
    let is_bare = lower.len() == 1 && lower != "b";
    let unit = bytes_unit(&lower)?;
    Some(if is_bare {
        unit.replace('k', "K").replace('B', "iB")
    } else {
        unit
    })
}

/// Unit of bytes for a spelling in lower case: `mb`, `m`, `mbytes` and `mi` or `mib`.
fn bytes_unit(lower: &str) -> Option<String> {
    let prefix = ["bytes", "byte", "b"]
        .iter()
        .find_map(|end| lower.strip_suffix(end));
    Some(match prefix.unwrap_or(lower) {
        "" => "B".to_owned(),
        "k" => "kB".to_owned(),
        prefix @ ("m" | "g" | "t") => format!("{}B", prefix.to_uppercase()),
        prefix @ ("ki" | "mi" | "gi" | "ti") => {
            format!("{}iB", prefix[..1].to_uppercase())
        }
        _ => return None,
    })
}

/// Bandwidth for a spelling of bytes or bits a second, such as `MBps`, `mb/sec` or `Mbit/s`.
fn bandwidth(number: &str, unit: &str) -> Option<String> {
    let lower = unit.to_ascii_lowercase();
    let ends = ["/second", "/sec", "/s", "ps"];
    let amount = ends.iter().find_map(|end| lower.strip_suffix(end));
    let amount = amount.unwrap_or(&lower).trim();
    // `Mb/s` and `Mbit/s` are bits, `Mbytes/s` are not; `mb/s`, all in lower case, is a careless
    // `MB/s`.
    let names_bytes = amount.ends_with("byte") || amount.ends_with("bytes");
    let is_bits = amount.ends_with("bit")
        || amount.ends_with("bits")
        || (!names_bytes && unit.get(1..2) == Some("b") && unit.starts_with(['K', 'M', 'G', 'T']));
    if !is_bits {
        return Some(format!("{number} {}/s", bytes_unit(amount)?));
    }
    let power = match amount.get(..1)? {
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    // `Mibit` are 1024 x 1024 bits, `Mbit` 1000 x 1000.
    let base: f64 = if amount.get(1..2) == Some("i") {
        1024.0
    } else {
        1000.0
    };
    let bytes = number.parse::<f64>().ok()? * base.powi(power) / 8.0;
    Some(format_bandwidth(bytes.round() as u64))
}

/// Duration for a unit spelled out or abbreviated in another way: `sec`, `minutes`, `d`.
fn duration(number: &str, unit: &str) -> Option<String> {
    let unit = match unit.to_ascii_lowercase().as_str() {
        "nsec" | "nsecs" | "nanoseconds" => "ns",
        "usec" | "usecs" | "microsecond" | "microseconds" => "us",
        "msec" | "msecs" | "millisecond" | "milliseconds" => "ms",
        "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "mins" | "minute" | "minutes" => "min",
        "hr" | "hrs" | "hour" | "hours" => "h",
        "d" | "day" | "days" => {
            return Some(format!(
                "{} h",
                number.parse::<u64>().ok()?.checked_mul(24)?
            ));
        }
        _ => return None,
    };
    Some(format!("{number} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_spellings_of_units_are_understood() {
        let cases = [
            (Quantity::Bandwidth, "50 MBps", "50 MB/s"),
            (Quantity::Bandwidth, "50 mb/sec", "50 MB/s"),
            (Quantity::Bandwidth, "50MB", "50 MB/s"),
            (Quantity::Bandwidth, "1.5 GiBps", "1.5 GiB/s"),
            (Quantity::Bandwidth, "100 Mbit/s", "12.5 MB/s"),
            (Quantity::Bandwidth, "100 Mbps", "12.5 MB/s"),
            (Quantity::Bandwidth, "8 Mibit/s", "1 MiB/s"),
            (Quantity::Bandwidth, "50 Mbytes/s", "50 MB/s"),
            (Quantity::Bandwidth, "50 Mbyte/sec", "50 MB/s"),
            (Quantity::Bytes, "20G", "20 GiB"),
            (Quantity::Bytes, "64k", "64 KiB"),
            (Quantity::Bytes, "20 Gi", "20 GiB"),
            (Quantity::Bytes, "20 gb", "20 GB"),
            (Quantity::Duration, "10 seconds", "10 s"),
            (Quantity::Duration, "5m", "5 min"),
            (Quantity::Duration, "2 days", "48 h"),
        ];
        for (quantity, found, expected) in cases {
            assert_eq!(meant(quantity, found).as_deref(), Some(expected), "{found}");
        }
        let rates = [
            ("500 ops", "500 IOPS"),
            ("5k IOPS", "5000 IOPS"),
            ("5 kIOPS", "5000 IOPS"),
            ("50 MBps", "50 MB/s"),
        ];
        for (found, expected) in rates {
            assert_eq!(meant_rate(found).as_deref(), Some(expected), "{found}");
        }
        for nothing in ["", "fast", "7", "7 parsecs"] {
            assert_eq!(meant_rate(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn suggested_spellings_are_accepted() {
        for found in ["50 MBps", "1.5 GiBps", "100 Mbit/s", "7 kB/sec"] {
            let suggested = meant(Quantity::Bandwidth, found).expect("a known spelling");
            assert!(
                tidegate_units::parse_bandwidth(&suggested).is_ok(),
                "{found}: {suggested}"
            );
        }
        for found in ["20G", "64k", "1T", "20 gb", "3 mib", "512 bytes"] {
            let suggested = meant(Quantity::Bytes, found).expect("a known spelling");
            assert!(
                tidegate_units::parse_bytes(&suggested).is_ok(),
                "{found}: {suggested}"
            );
        }
    }
}
