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
/// Endings of keys whose limit grows with the volume.
const PER_GB: &str = "_per_gb";
const PER_GB_MIN: &str = "_per_gb_min";

/// Key with its value and place.
struct Spec {
    key: String,
    value: String,
    place: String,
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

    fn guest(self, args: &OpenstackArgs) -> Guest {
        let name = args
            .name
            .clone()
            .or(self.name)
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
            if let Err(what) = set(spec, args.size, &mut disk, &mut guest) {
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
}

/// Returns the place of a key in a file, for messages.
fn line_of(input: &Input, key: &str) -> String {
    let line = input.text.lines().position(|line| line.contains(key));
    input.line(line.unwrap_or_default())
}

/// Takes one key.
///
/// # Errors
/// The reason why it has no counterpart.
fn set(
    spec: &Spec,
    size: Option<u64>,
    disk: &mut GuestDisk,
    guest: &mut Guest,
) -> Result<(), String> {
    let key = spec.key.strip_prefix("quota:").unwrap_or(&spec.key);
    let key = key.strip_prefix("disk_").unwrap_or(key);
    if let Some(base) = key.strip_suffix(PER_GB_MIN) {
        return Err(match foreign_key(base) {
            Some(_) => "the minimum of a limit per GB has no counterpart: left out".to_owned(),
            None => "has no counterpart".to_owned(),
        });
    }
    if let Some(base) = key.strip_suffix(PER_GB) {
        return per_gb(base, &spec.value, size, disk);
    }
    match key {
        "minIOPS" => disk
            .throttle
            .set_rate("reservation", ForeignUnit::Iops, &spec.value),
        "maxIOPS" | "io_limit" => {
            disk.throttle
                .set_rate("limit.total", ForeignUnit::Iops, &spec.value)
        }
        "burstIOPS" => disk
            .throttle
            .set_rate("limit.burst.total", ForeignUnit::Iops, &spec.value),
        "io_reservation" => disk
            .throttle
            .set_rate("reservation", ForeignUnit::Iops, &spec.value),
        "io_shares_level" => {
            guest.weight = match spec.value.as_str() {
                "low" => Some(Objective::DEFAULT_WEIGHT / 2),
                "normal" => Some(Objective::DEFAULT_WEIGHT),
                "high" => Some(Objective::DEFAULT_WEIGHT * 2),
                "custom" => guest.weight,
                other => return Err(format!("{} is no level: left out", shown(other))),
            };
            Ok(())
        }
        "io_shares_share" => {
            let shares: Option<u32> = spec.value.parse().ok();
            let weight = shares.map(|shares| {
                let part = u64::from(shares) * u64::from(Objective::DEFAULT_WEIGHT);
                let weight = part / u64::from(NORMAL_SHARES);
                weight.clamp(1, u64::from(Objective::MAX_WEIGHT)) as u32
            });
            guest.weight = weight.or(guest.weight);
            weight
                .map(|_| ())
                .ok_or_else(|| format!("{} is no number: left out", shown(&spec.value)))
        }
        _ => {
            if disk.throttle.set(key, &spec.value)? {
                Ok(())
            } else {
                Err("has no counterpart".to_owned())
            }
        }
    }
}

/// Takes a limit that grows with the size of the volume.
fn per_gb(base: &str, value: &str, size: Option<u64>, disk: &mut GuestDisk) -> Result<(), String> {
    let Some(ForeignKey::Rate(place, unit)) = foreign_key(base) else {
        return Err("has no counterpart".to_owned());
    };
    let Some(size) = size else {
        return Err("a limit per GB: give the size of the volume with --size".to_owned());
    };
    let number: u64 = value
        .parse()
        .map_err(|_| format!("{} is no number: left out", shown(value)))?;
    let limit = number.saturating_mul(size.div_ceil(GB));
    disk.throttle.set_rate(place, unit, &limit.to_string())
}
