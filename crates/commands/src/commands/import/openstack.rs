//! Extra specs of Nova's flavors and QoS specs of Cinder.
//!
//! Nova takes `quota:disk_*` and Cinder's front-end keys to libvirt's `<iotune>` of each disk.

use anyhow::Result;
use serde_json::Value;
use tidegate_config::other_systems::{ForeignKey, ForeignUnit, foreign_key};
use tidegate_core::objective::Objective;

use super::guest::{Guest, GuestDisk};
use super::{Input, shown};
use crate::args::OpenstackArgs;

/// Bytes of the unit that limits "per GB" count in, as Cinder calculates them.
const GB: u64 = 1 << 30;
/// Shares of a disk in VMware at the level `normal`.
const NORMAL_SHARES: u32 = 1000;
/// Endings of keys whose limit grows with the volume, and of their bounds.
const PER_GB: &str = "_per_gb";
const PER_GB_MIN: &str = "_per_gb_min";
const MAX: &str = "_max";
/// Keys of a disk's shares in VMware.
const SHARES_LEVEL: &str = "io_shares_level";
const SHARES: &str = "io_shares_share";
/// Level of shares that are a number.
const CUSTOM: &str = "custom";

/// Key with its value and place.
struct Spec {
    key: String,
    value: String,
    place: String,
}

impl Spec {
    /// Returns the key without the words that Nova has before it.
    fn name(&self) -> &str {
        let key = self.key.strip_prefix("quota:").unwrap_or(&self.key);
        key.strip_prefix("disk_").unwrap_or(key)
    }
}

/// Specs with what else their source says.
#[derive(Default)]
struct Specs {
    all: Vec<Spec>,
    name: Option<String>,
    /// Consumer of QoS specs: `front-end`, `back-end` or `both`.
    consumer: Option<String>,
}

/// Reads specs.
///
/// # Errors
/// If a file cannot be read.
pub(super) fn read(args: &OpenstackArgs) -> Result<Guest> {
    let mut specs = Specs::default();
    for (index, word) in args.specs.iter().enumerate() {
        match word.split_once('=') {
            Some((key, value)) if !std::path::Path::new(word).exists() => {
                specs.add(key, value, format!("argument {}", index + 1));
            }
            _ => specs.read_file(&Input::read(std::path::Path::new(word))?),
        }
    }
    Ok(specs.guest(args))
}

impl Specs {
    fn add(&mut self, key: &str, value: &str, place: String) {
        let quotes: &[char] = &['\'', '"'];
        let (key, value) = (key.trim(), value.trim().trim_matches(quotes));
        if key == "consumer" {
            self.consumer = Some(value.to_owned());
        } else {
            self.all.push(Spec {
                key: key.to_owned(),
                value: value.to_owned(),
                place: format!("{place} {}", shown(key)),
            });
        }
    }

    /// Reads what OpenStack's client prints as JSON, or lines of `KEY=VALUE`.
    fn read_file(&mut self, input: &Input) {
        let Ok(Value::Object(printed)) = serde_json::from_str(&input.text) else {
            for (index, line) in input.text.lines().enumerate() {
                if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#'))
                {
                    self.add(key, value, input.line(index));
                }
            }
            return;
        };
        let text = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.name = printed.get("name").map(text).or(self.name.take());
        if let Some(consumer) = printed.get("consumer") {
            self.consumer = Some(text(consumer));
        }
        for table in ["properties", "specs", "extra_specs"] {
            match printed.get(table) {
                Some(Value::Object(all)) => {
                    for (key, value) in all {
                        let line = line_of(input, key);
                        self.add(key, &text(value), line);
                    }
                }
                // Older clients print them as text: key='value', key='value'.
                Some(Value::String(all)) => {
                    for pair in all.split(", ") {
                        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                        self.add(key, value, line_of(input, key));
                    }
                }
                _ => {}
            }
        }
    }

    fn guest(&self, args: &OpenstackArgs) -> Guest {
        let name = args
            .name
            .clone()
            .or_else(|| self.name.clone())
            .unwrap_or_else(|| "flavor".to_owned());
        let mut guest = Guest {
            place: format!("specs of {}", shown(&name)),
            name,
            ..Guest::default()
        };
        let mut disk = GuestDisk {
            label: "disk".to_owned(),
            place: guest.place.clone(),
            created_with: args.size,
            ..GuestDisk::default()
        };
        if self.consumer.as_deref() == Some("back-end") {
            let what = "consumer back-end: keys are those of the storage's driver, and only \
                        minIOPS, maxIOPS and burstIOPS are known";
            guest.remark(guest.place.clone(), what);
        }
        for spec in &self.all {
            if let Err(what) = self.set(spec, args.size, &mut disk, &mut guest) {
                guest.remark(&*spec.place, what);
            }
        }
        match &args.path {
            Some(path) => disk.path = Some(path.to_string_lossy().into_owned()),
            None => {
                disk.path = Some(format!(
                    "/var/lib/tidegate/{}.raw",
                    guest.name.replace('/', "-")
                ));
                let what = "specs name no disk: set the path of one (--path), and of every other \
                            volume, which has the same limits of its own";
                guest.remark(guest.place.clone(), what);
            }
        }
        guest.disks.push(disk);
        guest
    }

    /// Returns the value of the last spec with a key, which is without `quota:` and `disk_`.
    fn value(&self, key: &str) -> Option<&str> {
        let mut with_key = self.all.iter().rev().filter(|spec| spec.name() == key);
        with_key.next().map(|spec| spec.value.as_str())
    }

    /// Takes one key.
    ///
    /// # Errors
    /// The reason why it has no counterpart.
    fn set(
        &self,
        spec: &Spec,
        size: Option<u64>,
        disk: &mut GuestDisk,
        guest: &mut Guest,
    ) -> Result<(), String> {
        let key = spec.name();
        let throttle = &mut disk.throttle;
        if let Some(base) = key.strip_suffix(PER_GB_MIN) {
            return match (foreign_key(base), self.value(&format!("{base}{PER_GB}"))) {
                // Taken with the limit that it is the minimum of.
                (Some(_), Some(_)) => Ok(()),
                (Some(_), None) => Err(format!(
                    "left out: a minimum counts beside {base}{PER_GB} alone"
                )),
                (None, _) => Err("has no counterpart".to_owned()),
            };
        }
        if let Some(base) = key.strip_suffix(PER_GB) {
            return self.per_gb(base, &spec.value, size, disk);
        }
        // Beside a limit per GB Cinder takes this for its maximum, and not for a burst.
        let per_gb = format!("{}{PER_GB}", key.strip_suffix(MAX).unwrap_or(key));
        if self.value(&per_gb).is_some() {
            return if key.ends_with(MAX) {
                Ok(())
            } else {
                Err(format!("left out: {per_gb} counts in its place"))
            };
        }
        match key {
            "minIOPS" | "io_reservation" => {
                throttle.set_rate("reservation", ForeignUnit::Iops, &spec.value)
            }
            "maxIOPS" | "io_limit" => {
                throttle.set_rate("limit.total", ForeignUnit::Iops, &spec.value)
            }
            "burstIOPS" => throttle.set_rate("limit.burst.total", ForeignUnit::Iops, &spec.value),
            SHARES_LEVEL => self.shares_level(&spec.value, guest),
            SHARES => self.shares(&spec.value, guest),
            _ => {
                if throttle.set(key, &spec.value)? {
                    Ok(())
                } else {
                    Err("has no counterpart".to_owned())
                }
            }
        }
    }

    /// Takes the level of a disk's shares.
    fn shares_level(&self, level: &str, guest: &mut Guest) -> Result<(), String> {
        guest.weight = Some(match level {
            "low" => Objective::DEFAULT_WEIGHT / 2,
            "normal" => Objective::DEFAULT_WEIGHT,
            "high" => Objective::DEFAULT_WEIGHT * 2,
            CUSTOM if self.value(SHARES).is_some() => return Ok(()),
            CUSTOM => return Err(format!("left out: {CUSTOM} needs {SHARES}")),
            other => return Err(format!("{} is no level: left out", shown(other))),
        });
        Ok(())
    }

    /// Takes a disk's shares, which Nova hands on at the level `custom` alone.
    fn shares(&self, shares: &str, guest: &mut Guest) -> Result<(), String> {
        if self.value(SHARES_LEVEL) != Some(CUSTOM) {
            return Err(format!(
                "left out: shares count with {SHARES_LEVEL}={CUSTOM} alone"
            ));
        }
        let number: u32 = shares.parse().map_err(|_| no_number(shares))?;
        let part = u64::from(number) * u64::from(Objective::DEFAULT_WEIGHT);
        let weight = part / u64::from(NORMAL_SHARES);
        guest.weight = Some(weight.clamp(1, u64::from(Objective::MAX_WEIGHT)) as u32);
        Ok(())
    }

    /// Takes a limit that grows with the size of the volume, within its minimum and its maximum,
    /// of which the maximum is the stronger one.
    fn per_gb(
        &self,
        base: &str,
        value: &str,
        size: Option<u64>,
        disk: &mut GuestDisk,
    ) -> Result<(), String> {
        let Some(ForeignKey::Rate(place, unit)) = foreign_key(base) else {
            return Err("has no counterpart".to_owned());
        };
        let Some(size) = size else {
            return Err("a limit per GB: give the size of the volume with --size".to_owned());
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| no_number(text));
        let bound = |ending| self.value(&format!("{base}{ending}")).map(number);
        let limit = number(value)?.saturating_mul(size.div_ceil(GB));
        let limit = limit.max(bound(PER_GB_MIN).transpose()?.unwrap_or(0));
        let limit = limit.min(bound(MAX).transpose()?.unwrap_or(u64::MAX));
        disk.throttle.set_rate(place, unit, &limit.to_string())
    }
}

/// Returns the reason why a value is not taken.
fn no_number(value: &str) -> String {
    format!("{} is no number: left out", shown(value))
}

/// Returns the place of a key in a file, for messages.
fn line_of(input: &Input, key: &str) -> String {
    let line = input.text.lines().position(|line| line.contains(key));
    input.line(line.unwrap_or_default())
}
