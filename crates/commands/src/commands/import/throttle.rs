//! Limits of another system, and the `limit` of an objective that they become.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use tidegate_config::objective;
use tidegate_config::other_systems::{ForeignKey, ForeignUnit, foreign_key};
use tidegate_core::objective::{Objective, Rate};
use tidegate_units::human::exact_bytes;

use super::shown;

/// Longest burst, in seconds: that of `limit.burst.length`.
const LENGTH_MAX_S: u64 = 3600;
/// Length of a burst that names none, in seconds, as in QEMU.
const LENGTH_S: u64 = 1;

/// Figures of one rate; absent where there is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Figures {
    iops: Option<u64>,
    bytes: Option<u64>,
}

impl Figures {
    /// Returns the figure in a unit.
    fn of(self, unit: ForeignUnit) -> Option<u64> {
        match unit {
            ForeignUnit::Iops => self.iops,
            ForeignUnit::Bytes | ForeignUnit::MiB => self.bytes,
        }
    }

    fn of_mut(&mut self, unit: ForeignUnit) -> &mut Option<u64> {
        match unit {
            ForeignUnit::Iops => &mut self.iops,
            ForeignUnit::Bytes | ForeignUnit::MiB => &mut self.bytes,
        }
    }
}

/// One figure of a limit with its burst.
#[derive(Clone, Copy, Default)]
struct Bucket {
    rate: Option<u64>,
    burst: Option<u64>,
    /// Length of the burst in seconds, where one is named.
    length: Option<u64>,
}

impl Bucket {
    /// Returns what two limits allow together. A rate without a burst allows none above itself.
    fn lower(self, other: Bucket) -> Bucket {
        let lower = |one: Option<u64>, two: Option<u64>| one.into_iter().chain(two).min();
        let (burst, length) = match (self.burst, other.burst) {
            (Some(_), Some(_)) => {
                let lengths = [self.length, other.length];
                let named = lengths.iter().any(Option::is_some);
                let shortest = lengths.map(|length| length.unwrap_or(LENGTH_S));
                let length = shortest.into_iter().min().filter(|_| named);
                (lower(self.burst, other.burst), length)
            }
            (Some(_), None) if other.rate.is_none() => (self.burst, self.length),
            (None, Some(_)) if self.rate.is_none() => (other.burst, other.length),
            _ => (None, None),
        };
        Bucket {
            rate: lower(self.rate, other.rate),
            burst,
            length,
        }
    }
}

/// Limits of a disk, a throttle group or a guest. The keys are places in an objective, such as
/// `limit.burst.read`.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Throttle {
    rates: BTreeMap<&'static str, Figures>,
    /// Lengths of bursts in seconds, by the places of their rates.
    lengths: BTreeMap<&'static str, Figures>,
    /// Size in bytes that counts as one request.
    request_size: Option<u64>,
}

/// Pairs of a limit and its burst.
const PAIRS: [(&str, &str); 3] = [
    ("limit.total", "limit.burst.total"),
    ("limit.read", "limit.burst.read"),
    ("limit.write", "limit.burst.write"),
];

/// Place of a minimum.
const RESERVATION: &str = "reservation";

impl Throttle {
    /// Returns true if there is no limit at all.
    pub(super) fn is_empty(&self) -> bool {
        self.rates.is_empty()
    }

    /// Takes a key of another system with its value; 0 is no limit. Returns false if the key is
    /// not one of limits.
    ///
    /// # Errors
    /// The reason why the value cannot be taken.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match foreign_key(key) {
            None => return Ok(false),
            Some(ForeignKey::Rate(place, unit)) => self.set_rate(place, unit, value)?,
            Some(ForeignKey::BurstLength(place, unit)) => {
                put(&mut self.lengths, place, unit, whole(value)?)
            }
            Some(ForeignKey::RequestSize) => self.request_size = whole(value)?,
        }
        Ok(true)
    }

    /// Takes a rate for a place in an objective.
    ///
    /// # Errors
    /// The reason why the value cannot be taken.
    pub(super) fn set_rate(
        &mut self,
        place: &'static str,
        unit: ForeignUnit,
        value: &str,
    ) -> Result<(), String> {
        let number = match unit {
            ForeignUnit::MiB => mebibytes(value)?,
            ForeignUnit::Iops | ForeignUnit::Bytes => whole(value)?,
        };
        let Some(number) = number else {
            return Ok(());
        };
        *self.rates.entry(place).or_default().of_mut(unit) = Some(number);
        Ok(())
    }

    /// Lowers each limit to that of `other` where it has a lower one, and takes those that only
    /// `other` has.
    pub(super) fn lower_to(&mut self, other: &Throttle) {
        for (limit, burst) in PAIRS {
            for unit in [ForeignUnit::Iops, ForeignUnit::Bytes] {
                let both = self.bucket(limit, burst, unit);
                let both = both.lower(other.bucket(limit, burst, unit));
                put(&mut self.rates, limit, unit, both.rate);
                put(&mut self.rates, burst, unit, both.burst);
                put(&mut self.lengths, burst, unit, both.length);
            }
        }
        for unit in [ForeignUnit::Iops, ForeignUnit::Bytes] {
            let figure = |throttle: &Throttle| throttle.rates.get(RESERVATION)?.of(unit);
            let lower = figure(self).into_iter().chain(figure(other)).min();
            put(&mut self.rates, RESERVATION, unit, lower);
        }
        let sizes = self.request_size.into_iter().chain(other.request_size);
        self.request_size = sizes.min();
    }

    fn bucket(&self, limit: &str, burst: &str, unit: ForeignUnit) -> Bucket {
        let figure = |figures: &BTreeMap<_, Figures>, place| figures.get(place)?.of(unit);
        Bucket {
            rate: figure(&self.rates, limit),
            burst: figure(&self.rates, burst),
            length: figure(&self.lengths, burst),
        }
    }

    /// Returns the parts of an objective that the limits become, and what could not be taken.
    pub(super) fn objective(&self) -> (Map<String, Value>, Vec<String>) {
        let mut remarks = Vec::new();
        let rates = self.consistent(&mut remarks);
        let mut parts = Map::new();
        if rates.is_empty() {
            return (parts, remarks);
        }
        parts = self.parts(&rates, self.request_size, &mut remarks);
        let refused = |parts: &Map<String, Value>| {
            objective::merge(&Objective::default(), &Value::Object(parts.clone())).err()
        };
        if refused(&parts).is_some() && self.request_size.is_some() {
            remarks
                .push("the request size cannot be combined with these rates: left out".to_owned());
            parts = self.parts(&rates, None, &mut Vec::new());
        }
        if let Some(errors) = refused(&parts) {
            let what = errors.to_string();
            let what = what
                .lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("error: ");
            remarks.push(format!(
                "the limits contradict each other ({what}): left out"
            ));
            parts = Map::new();
        }
        (parts, remarks)
    }

    /// Returns the rates without those that an objective refuses beside others.
    fn consistent(&self, remarks: &mut Vec<String>) -> BTreeMap<&'static str, Figures> {
        let mut rates = self.rates.clone();
        let figures_of =
            |rates: &BTreeMap<_, Figures>, place| rates.get(place).copied().unwrap_or_default();
        let total = figures_of(&rates, "limit.total");
        for place in ["limit.read", "limit.write"] {
            let Some(figures) = rates.get_mut(place) else {
                continue;
            };
            drop_where(
                &mut figures.iops,
                total.iops,
                |own, total| own > total,
                || {
                    remarks.push(format!("{place} in IOPS is above limit.total: left out"));
                },
            );
            drop_where(
                &mut figures.bytes,
                total.bytes,
                |own, total| own > total,
                || {
                    remarks.push(format!("{place} in bytes is above limit.total: left out"));
                },
            );
        }
        for (limit, burst) in PAIRS {
            let limits = figures_of(&rates, limit);
            let Some(figures) = rates.get_mut(burst) else {
                continue;
            };
            let mut check =
                |own: &mut Option<u64>, limit: Option<u64>, unit: &str| match (*own, limit) {
                    (Some(_), None) => {
                        *own = None;
                        remarks.push(format!(
                            "{burst} in {unit} has no limit that it exceeds: left out"
                        ));
                    }
                    (Some(high), Some(low)) if high <= low => {
                        *own = None;
                        remarks.push(format!(
                            "{burst} in {unit} is not above the limit: left out"
                        ));
                    }
                    _ => {}
                };
            check(&mut figures.iops, limits.iops, "IOPS");
            check(&mut figures.bytes, limits.bytes, "bytes");
        }
        rates.retain(|_, figures| *figures != Figures::default());
        rates
    }

    /// Returns the parts of an objective for rates.
    fn parts(
        &self,
        rates: &BTreeMap<&'static str, Figures>,
        request_size: Option<u64>,
        remarks: &mut Vec<String>,
    ) -> Map<String, Value> {
        let (mut parts, mut limit, mut burst) = (Map::new(), Map::new(), Map::new());
        for (place, figures) in rates {
            let text = Value::from(rate(*figures, request_size));
            match place.strip_prefix("limit.") {
                None => _ = parts.insert((*place).to_owned(), text),
                Some(rest) => match rest.strip_prefix("burst.") {
                    Some(direction) => _ = burst.insert(direction.to_owned(), text),
                    None => _ = limit.insert(rest.to_owned(), text),
                },
            }
        }
        if !burst.is_empty() {
            burst.insert(
                "length".to_owned(),
                format!("{} s", self.length(rates, remarks)).into(),
            );
            limit.insert("burst".to_owned(), Value::Object(burst));
        }
        // One rate of reads and writes together is the short form.
        match (limit.len(), limit.get("total")) {
            (0, _) => {}
            (1, Some(total)) => _ = parts.insert("limit".to_owned(), total.clone()),
            _ => _ = parts.insert("limit".to_owned(), Value::Object(limit)),
        }
        parts
    }

    /// Returns the length in seconds of the bursts among `rates`. Tidegate has one for all.
    fn length(&self, rates: &BTreeMap<&'static str, Figures>, remarks: &mut Vec<String>) -> u64 {
        let mut lengths = BTreeSet::new();
        for (limit, burst) in PAIRS {
            for unit in [ForeignUnit::Iops, ForeignUnit::Bytes] {
                let is_there = rates.get(burst).and_then(|figures| figures.of(unit));
                let length = self.bucket(limit, burst, unit).length.unwrap_or(LENGTH_S);
                lengths.extend(is_there.map(|_| length));
            }
        }
        let shortest = lengths.first().copied().unwrap_or(LENGTH_S);
        if lengths.len() > 1 {
            remarks.push(format!(
                "bursts of different lengths: all last {shortest} s, the shortest of them"
            ));
        }
        if shortest > LENGTH_MAX_S {
            remarks.push(format!(
                "a burst of {shortest} s is cut to {LENGTH_MAX_S} s"
            ));
        }
        shortest.min(LENGTH_MAX_S)
    }
}

/// Puts a figure in its place, which is removed when it has none.
fn put(
    figures: &mut BTreeMap<&'static str, Figures>,
    place: &'static str,
    unit: ForeignUnit,
    figure: Option<u64>,
) {
    let own = figures.entry(place).or_default();
    *own.of_mut(unit) = figure;
    if *own == Figures::default() {
        figures.remove(place);
    }
}

/// Removes a figure that is `wrong` beside another.
fn drop_where(
    own: &mut Option<u64>,
    other: Option<u64>,
    wrong: impl Fn(u64, u64) -> bool,
    removed: impl FnOnce(),
) {
    if own.zip(other).is_some_and(|(own, other)| wrong(own, other)) {
        *own = None;
        removed();
    }
}

/// Returns a rate in the notation of a configuration, exactly.
fn rate(figures: Figures, request_size: Option<u64>) -> String {
    let size = request_size.map(|size| format!(" @ {}", exact_bytes(size)));
    let size = size.unwrap_or_default();
    let iops = figures.iops.map(|iops| format!("{iops} IOPS{size}"));
    let bytes = figures.bytes.map(bandwidth);
    let both: Vec<String> = iops.into_iter().chain(bytes).collect();
    both.join(", ")
}

/// Returns a bandwidth exactly, in decimal units where they divide it.
fn bandwidth(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB")];
    let decimal = UNITS.iter().find(|(scale, _)| bytes.is_multiple_of(*scale));
    let is_binary = bytes.is_multiple_of(1 << 20);
    match decimal {
        Some((scale, unit)) if !is_binary => format!("{} {unit}/s", bytes / scale),
        _ => format!("{}/s", exact_bytes(bytes)),
    }
}

/// Parses a whole number; `None` for 0, which is no limit.
///
/// # Errors
/// If it is not a number, or larger than any rate.
fn whole(value: &str) -> Result<Option<u64>, String> {
    let text = value.trim();
    let is_whole = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if !is_whole {
        return Err(format!("{} is not a whole number: left out", shown(text)));
    }
    let number = text.parse().ok().filter(|number| *number <= Rate::MAX);
    let Some(number) = number else {
        return Err(format!("{} is above every rate: left out", shown(text)));
    };
    Ok((number != 0).then_some(number))
}

/// Parses a number of MiB, with decimals, and returns bytes; `None` for 0.
///
/// # Errors
/// As for [`whole`].
fn mebibytes(value: &str) -> Result<Option<u64>, String> {
    let text = value.trim();
    let number: f64 = text.parse().unwrap_or(f64::NAN);
    if !number.is_finite() || number < 0.0 {
        return Err(format!("{} is not a number of MiB: left out", shown(text)));
    }
    let bytes = (number * (1u64 << 20) as f64).round();
    if bytes > Rate::MAX as f64 {
        return Err(format!("{} is above every rate: left out", shown(text)));
    }
    Ok((bytes >= 1.0).then_some(bytes as u64))
}

/// Returns the limit of one rate, as an objective has it in JSON, for tests.
#[cfg(test)]
pub(super) fn limit_of(keys: &[(&str, &str)]) -> (Value, Vec<String>) {
    let mut throttle = Throttle::default();
    let mut remarks = Vec::new();
    for (key, value) in keys {
        match throttle.set(key, value) {
            Ok(known) => assert!(known, "{key}"),
            Err(remark) => remarks.push(remark),
        }
    }
    let (parts, more) = throttle.objective();
    remarks.extend(more);
    (parts.get("limit").cloned().unwrap_or(Value::Null), remarks)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rates_of_other_systems_become_a_limit() {
        for (keys, limit) in [
            (&[("total_bytes_sec", "40000000")][..], json!("40 MB/s")),
            (
                &[("iops", "500"), ("mbps", "1.5")],
                json!("500 IOPS, 1536 KiB/s"),
            ),
            (
                &[("iops_rd", "300"), ("mbps_wr", "20")],
                json!({ "read": "300 IOPS", "write": "20 MiB/s" }),
            ),
            (
                &[
                    ("throttling.iops-total", "100"),
                    ("throttling.iops-total-max", "2000"),
                    ("throttling.iops-total-max-length", "60"),
                    ("throttling.iops-size", "16384"),
                ],
                json!({ "total": "100 IOPS @ 16 KiB",
                    "burst": { "total": "2000 IOPS @ 16 KiB", "length": "60 s" } }),
            ),
            (
                &[("read_bytes_sec", "1001"), ("read_bytes_sec_max", "5000")],
                json!({ "read": "1001 B/s", "burst": { "read": "5 kB/s", "length": "1 s" } }),
            ),
            (&[("iops", "0"), ("bps_max_length", "0")], json!(null)),
        ] {
            assert_eq!(limit_of(keys), (limit, Vec::new()), "{keys:?}");
        }
    }

    #[test]
    fn what_an_objective_refuses_is_left_out_and_named() {
        for (keys, limit, remark) in [
            (
                &[("iops", "-1")][..],
                json!(null),
                "\"-1\" is not a whole number",
            ),
            (
                &[("iops", "99999999999999999999")],
                json!(null),
                "above every rate",
            ),
            (&[("mbps", "1e300")], json!(null), "above every rate"),
            (&[("mbps", "fast")], json!(null), "not a number of MiB"),
            (
                &[("iops_max", "5")],
                json!(null),
                "no limit that it exceeds",
            ),
            (
                &[("iops", "9"), ("iops_max", "9")],
                json!("9 IOPS"),
                "not above the limit",
            ),
            (
                &[("iops", "9"), ("iops_rd", "10")],
                json!("9 IOPS"),
                "above limit.total",
            ),
            (
                &[
                    ("iops", "9"),
                    ("iops_max", "10"),
                    ("iops_max_length", "7200"),
                ],
                json!({ "total": "9 IOPS", "burst": { "total": "10 IOPS", "length": "3600 s" } }),
                "cut to 3600 s",
            ),
            (
                &[
                    ("iops", "1125899906842624"),
                    ("iops_size", "1125899906842624"),
                ],
                json!("1125899906842624 IOPS"),
                "request size cannot be combined",
            ),
        ] {
            let (found, remarks) = limit_of(keys);
            assert_eq!(found, limit, "{keys:?}");
            assert!(
                remarks.iter().any(|it| it.contains(remark)),
                "{keys:?}: {remarks:?}"
            );
        }
    }

    #[test]
    fn the_lower_of_two_limits_counts() {
        let throttle = |text: &str| {
            let mut throttle = Throttle::default();
            for word in text.split_whitespace() {
                let (key, value) = word.split_once('=').expect("a key and its value");
                throttle.set(key, value).expect("a number");
            }
            throttle
        };
        for (one, other, both) in [
            (
                "iops=500 bps=7",
                "iops=100 bps_rd=5",
                "iops=100 bps=7 bps_rd=5",
            ),
            // A limit without a burst allows none, whichever of the two it is.
            ("iops=200 iops_max=2000", "iops=100", "iops=100"),
            ("iops=100", "iops=200 iops_max=2000", "iops=100"),
            ("iops=200 iops_max=2000", "iops=300", "iops=200"),
            (
                "iops=200 iops_max=2000",
                "iops=100 iops_max=500",
                "iops=100 iops_max=500",
            ),
            // The lower burst, for the shorter of their times.
            (
                "iops=200 iops_max=2000 iops_max_length=60",
                "iops=100 iops_max=500 iops_max_length=5",
                "iops=100 iops_max=500 iops_max_length=5",
            ),
            (
                "iops=200 iops_max=2000 iops_max_length=60",
                "iops=300 iops_max=500",
                "iops=200 iops_max=500 iops_max_length=1",
            ),
            // The time of a burst that is gone says nothing of others.
            (
                "iops=200 iops_max=2000 iops_max_length=2 bps=7 bps_max=9 bps_max_length=60",
                "iops=100",
                "iops=100 bps=7 bps_max=9 bps_max_length=60",
            ),
            // Limits of other figures have no part in it.
            (
                "iops=200 iops_max=2000",
                "bps=7 iops_rd=5",
                "iops=200 iops_max=2000 bps=7 iops_rd=5",
            ),
            (
                "bps=7",
                "iops=200 iops_max=2000 iops_max_length=9",
                "bps=7 iops=200 iops_max=2000 iops_max_length=9",
            ),
        ] {
            let mut own = throttle(one);
            own.lower_to(&throttle(other));
            assert_eq!(own, throttle(both), "{one} and {other}");
        }
    }

    #[test]
    fn bursts_of_different_lengths_last_the_shortest() {
        for (lengths, shortest, remark) in [
            (
                &[("iops_max_length", "7"), ("bps_max_length", "3")][..],
                "3 s",
                Some("all last 3 s"),
            ),
            // A burst without a time lasts a second.
            (&[("iops_max_length", "7")], "1 s", Some("all last 1 s")),
            // No burst is of this time.
            (
                &[
                    ("iops_max_length", "7"),
                    ("bps_max_length", "7"),
                    ("iops_rd_max_length", "2"),
                ],
                "7 s",
                None,
            ),
        ] {
            let bursts = [
                ("iops", "9"),
                ("iops_max", "10"),
                ("bps", "9"),
                ("bps_max", "10"),
            ];
            let (limit, remarks) = limit_of(&[&bursts[..], lengths].concat());
            assert_eq!(limit["burst"]["length"], shortest, "{lengths:?}");
            let remarks = remarks.join("\n");
            assert_eq!(remarks.is_empty(), remark.is_none(), "{remarks}");
            assert!(remarks.contains(remark.unwrap_or_default()), "{remarks}");
        }
    }
}
