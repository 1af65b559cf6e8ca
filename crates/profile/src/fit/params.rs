//! Figures of a device description that a fit changes, in its TOML.

use super::rotation::SPEEDS;
use tidegate_core::time::Nanos;
use tidegate_device::catalogue::{self, CatalogueError, Entry};
use tidegate_device::hdd::HddFigures;
use tidegate_units::{
    format_bandwidth, format_duration, format_rotation, parse_bandwidth, parse_bytes,
    parse_duration,
};
use toml::{Table, Value};

/// Unit of a figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Time,
    Bandwidth,
    Size,
    Count,
    /// Common spindle speeds.
    Speed,
}

/// Figure of a device description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Param {
    /// Path of keys: `hdd.seek.average`.
    pub path: &'static str,
    unit: Unit,
}

const fn param(path: &'static str, unit: Unit) -> Param {
    Param { path, unit }
}

/// Figures of all models, those with the largest effect first. A description has those of its own
/// model.
const PARAMS: [Param; 23] = [
    param(ROTATION, Unit::Speed),
    param("hdd.seek.average", Unit::Time),
    param("hdd.command_overhead", Unit::Time),
    param("hdd.seek.track_to_track", Unit::Time),
    param("hdd.seek.full_stroke", Unit::Time),
    param("hdd.write_settle", Unit::Time),
    param(OUTER_RATE, Unit::Bandwidth),
    param(INNER_RATE, Unit::Bandwidth),
    param("hdd.surfaces.head_switch", Unit::Time),
    param("hdd.surfaces.cylinder_switch", Unit::Time),
    param("hdd.write_cache.size", Unit::Size),
    param("ssd.read", Unit::Time),
    param("ssd.read_overhead", Unit::Time),
    param("ssd.write_overhead", Unit::Time),
    param("ssd.program", Unit::Time),
    param("ssd.channels", Unit::Count),
    param("ssd.dies_per_channel", Unit::Count),
    param("ssd.channel_rate", Unit::Bandwidth),
    param("ssd.interface_rate", Unit::Bandwidth),
    param("ssd.read_interval", Unit::Time),
    param("ssd.write_interval", Unit::Time),
    param("ssd.interface_command", Unit::Time),
    param("ssd.write_buffer.size", Unit::Size),
];

/// Spindle speed.
const ROTATION: &str = "hdd.rotation";
/// Sustained rates of the outermost and the innermost zone.
const OUTER_RATE: &str = "hdd.outer_rate";
const INNER_RATE: &str = "hdd.inner_rate";
/// Digits of fitted figures.
const DIGITS: u32 = 4;

/// Device description that can be changed.
#[derive(Clone, PartialEq, Debug)]
pub struct Description(Table);

impl Description {
    /// Parses a description, such as one of the catalogue; `None` if it is no TOML.
    pub fn parse(text: &str) -> Option<Description> {
        text.parse().ok().map(Description)
    }

    /// Returns the device.
    ///
    /// # Errors
    /// If the figures contradict each other.
    pub fn entry(&self) -> Result<Entry, CatalogueError> {
        catalogue::parse(&self.to_toml(), "fit")
    }

    /// Returns the description as text.
    pub fn to_toml(&self) -> String {
        self.0.to_string()
    }

    /// Names and describes the device.
    pub fn rename(&mut self, name: &str, description: &str) {
        for (key, text) in [("name", name), ("description", description)] {
            self.0.insert(key.to_owned(), text.into());
        }
    }

    /// Returns the figures that the description has, and that a fit may change.
    pub fn params(&self) -> Vec<Param> {
        let has = |param: &Param| self.find(param.path).is_some();
        PARAMS.into_iter().filter(has).collect()
    }

    /// Returns a figure as text.
    pub fn text(&self, param: Param) -> String {
        match self.find(param.path) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        }
    }

    /// Returns descriptions in which a figure is larger and smaller by `factor`, or has its other
    /// values.
    pub fn around(&self, param: Param, factor: f64) -> Vec<Description> {
        let now = self.text(param);
        let texts: Vec<String> = match param.unit {
            Unit::Speed => SPEEDS.map(format_rotation).into(),
            unit => [factor, 1.0 / factor]
                .iter()
                .filter_map(|factor| scaled(&now, unit, *factor))
                .collect(),
        };
        let texts = texts.into_iter().filter(|text| *text != now);
        texts.filter_map(|text| self.with(param, text)).collect()
    }

    /// Returns the description of a device of another capacity, with as large a part of spare
    /// flash; `None` if it states none.
    pub fn with_capacity(&self, capacity: u64) -> Option<Description> {
        let mut scaled = self.clone();
        let table = ["hdd", "ssd"]
            .into_iter()
            .find(|table| self.0.contains_key(*table))?;
        let path = |key: &str| format!("{table}.{key}");
        let bytes = |path: &str| match self.find(path)? {
            Value::String(text) => parse_bytes(text).ok(),
            _ => None,
        };
        let old = bytes(&path("capacity"))?;
        let block = bytes(&path("physical_block"))?;
        let capacity = capacity.checked_next_multiple_of(block)?;
        for key in [
            "capacity",
            "garbage_collection.spare",
            "garbage_collection.filled",
        ] {
            let path = path(key);
            let Some(value) = bytes(&path) else { continue };
            let new = u128::from(value) * u128::from(capacity) / u128::from(old);
            let new = u64::try_from(new).ok()? / block * block;
            // Exact: a rounded size would not be whole blocks.
            *scaled.find_mut(&path)? = format!("{new} B").into();
        }
        Some(scaled)
    }

    /// Returns the description with another spindle speed, in revolutions per minute; `None` if the
    /// device does not turn.
    pub(super) fn with_speed(&self, speed: u64) -> Option<Description> {
        self.with(param(ROTATION, Unit::Speed), format_rotation(speed))
    }

    /// Returns the figures of a hard disk; `None` if the device is none.
    pub(super) fn hdd(&self) -> Option<HddFigures> {
        self.0.get("hdd")?.clone().try_into().ok()
    }

    /// Returns the description with other rates of the outermost and the innermost zone, in bytes
    /// per second; `None` if the device has no zones.
    pub(super) fn with_rates(&self, outer: u64, inner: u64) -> Option<Description> {
        let rate = |path: &'static str| param(path, Unit::Bandwidth);
        self.with(rate(OUTER_RATE), exact_bandwidth(outer))?
            .with(rate(INNER_RATE), exact_bandwidth(inner))
    }

    /// Returns true if a figure is the spindle speed.
    pub(super) fn is_speed(param: Param) -> bool {
        param.path == ROTATION
    }

    fn with(&self, param: Param, text: String) -> Option<Description> {
        let mut changed = self.clone();
        let value = changed.find_mut(param.path)?;
        *value = match value {
            Value::Integer(_) => Value::Integer(text.parse().ok()?),
            _ => Value::String(text),
        };
        Some(changed)
    }

    fn find(&self, path: &str) -> Option<&Value> {
        let (first, mut rest) = keys(path);
        let top = self.0.get(first)?;
        rest.try_fold(top, |value, key| value.get(key))
    }

    fn find_mut(&mut self, path: &str) -> Option<&mut Value> {
        let (first, mut rest) = keys(path);
        let top = self.0.get_mut(first)?;
        rest.try_fold(top, |value, key| value.get_mut(key))
    }
}

fn keys(path: &str) -> (&str, impl Iterator<Item = &str>) {
    let mut keys = path.split('.');
    (keys.next().unwrap_or_default(), keys)
}

/// Returns a figure multiplied by a factor; `None` if it is none.
fn scaled(text: &str, unit: Unit, factor: f64) -> Option<String> {
    let value = match unit {
        Unit::Time => parse_duration(text).ok()?.0,
        Unit::Bandwidth => parse_bandwidth(text).ok()?,
        Unit::Size => parse_bytes(text).ok()?,
        Unit::Count => text.parse().ok()?,
        Unit::Speed => return None,
    };
    // A figure of 0 has no larger ones: a small step leads away from it.
    let start = match (value, unit) {
        (0, Unit::Time) => 1_000.0,
        (value, _) => value as f64,
    };
    let new = libm::round(start * factor);
    let value = match unit {
        // Small counts have no small steps.
        Unit::Count if new as u64 == value && factor > 1.0 => value + 1,
        Unit::Count if new as u64 == value => value.saturating_sub(1),
        Unit::Size => (new as u64) / 4096 * 4096,
        _ => rounded(new),
    };
    Some(match unit {
        Unit::Time => format_duration(Nanos(value)),
        Unit::Bandwidth => format_bandwidth(value),
        // Exact: a rounded size would not be whole blocks.
        Unit::Size => format!("{value} B"),
        Unit::Count | Unit::Speed => value.to_string(),
    })
}

/// Formats a rate without loss: the angles of all tracks depend on each digit of it.
fn exact_bandwidth(rate: u64) -> String {
    let text = format_bandwidth(rate);
    match parse_bandwidth(&text) {
        Ok(read) if read == rate => text,
        _ => format!("{rate} B/s"),
    }
}

/// Rounds a figure to four digits.
fn rounded(value: f64) -> u64 {
    let value = value as u64;
    let digits = value.checked_ilog10().unwrap_or(0);
    let unit = 10u64.pow((digits + 1).saturating_sub(DIGITS));
    (value + unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_one_of_a_model_of_the_catalogue_and_can_be_changed() {
        let mut seen = Vec::new();
        for name in catalogue::names() {
            let description = Description::parse(catalogue::text(name).expect("built in"));
            let description = description.expect("TOML");
            for param in description.params() {
                let changed = description.around(param, 1.02);
                assert!(!changed.is_empty(), "{name}: {}", param.path);
                let entries: Vec<_> = changed.iter().map(Description::entry).collect();
                let is_valid = entries.iter().any(Result::is_ok);
                assert!(is_valid, "{name}: {}: {entries:?}", param.path);
                seen.push(param.path);
            }
        }
        // Optional ones that no model of the catalogue states.
        let missing = PARAMS.iter().filter(|param| !seen.contains(&param.path));
        let missing: Vec<&str> = missing.map(|param| param.path).collect();
        assert_eq!(missing, ["ssd.interface_command"]);
    }

    #[test]
    fn a_description_is_the_device_that_it_was_read_from() {
        for name in ["hdd-7200-1tb", "nvme-1tb", "ssd-sata-300gb"] {
            let text = catalogue::text(name).expect("built in");
            let description = Description::parse(text).expect("TOML");
            let (entry, original) = (description.entry(), catalogue::load(name));
            assert_eq!(
                entry.expect("right").spec(),
                original.expect("built in").spec()
            );
            let half = description
                .with_capacity(100_000_000_000)
                .expect("one device");
            let half = half
                .entry()
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(half.spec().capacity.abs_diff(100_000_000_000) < 4096);
        }
    }

    #[test]
    fn figures_are_scaled_in_their_units() {
        for (text, unit, factor, expected) in [
            ("8.5 ms", Unit::Time, 2.0, "17 ms"),
            ("0 ns", Unit::Time, 1.5, "1.5 us"),
            ("175 MB/s", Unit::Bandwidth, 0.5, "87.5 MB/s"),
            ("32 MiB", Unit::Size, 2.0, "67108864 B"),
            ("8", Unit::Count, 1.02, "9"),
            ("8", Unit::Count, 0.98, "7"),
        ] {
            let scaled = scaled(text, unit, factor).expect("a figure");
            assert_eq!(scaled, expected, "{text} times {factor}");
        }
    }
}
