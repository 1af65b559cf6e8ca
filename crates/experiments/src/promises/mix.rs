//! Mixes of VMs: typical workloads of hosts, scaled to the device.

mod check;

use super::device::{Cell, PromiseDevice};
use super::{random_mix, template};
use crate::ExperimentError;
use crate::folder::named;
use serde::Deserialize;
use std::borrow::Cow;
use std::path::Path;
use tidegate_config::{ConfigErrors, document, model};
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::scenario::{self, Scenario};
use toml::{Table, Value};

/// Demands of a mix beyond the promises to its VMs.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Demand {
    /// Name of the VM whose 99th percentile over all requests must be within its latency bound.
    pub p99_within_bound: Option<String>,
    /// VM that must get a part of its bandwidth under `fifo`.
    pub of_fifo: Option<OfFifo>,
}

/// Part of its bandwidth under `fifo` that a VM must get.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfFifo {
    /// Name of the VM.
    pub vm: String,
    /// Required part of the bandwidth, in percent.
    pub percent: f64,
}

/// Mix of VMs: embedded in the program, read from a file, or drawn at random.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Name in tables and results, and of a built-in mix also on the command line.
    pub name: Cow<'static, str>,
    /// File name of a built-in mix, path of a user's file; for messages.
    file: Cow<'static, str>,
    text: Cow<'static, str>,
}

macro_rules! mixes {
    ($($name:literal),* $(,)?) => {
        &[$({
            let (file, text) = named!("promises/mixes", $name);
            Mix {
                name: Cow::Borrowed(stem(file)),
                file: Cow::Borrowed(file),
                text: Cow::Borrowed(text),
            }
        }),*]
    };
}

/// File name without its extension.
const fn stem(file: &'static str) -> &'static str {
    file.split_at(file.len() - ".toml".len()).0
}

const MIXES: &[Mix] = mixes![
    "p1-floors.toml",
    "p1-latency.toml",
    "p2-background.toml",
    "ordinary-host.toml",
    "demo.toml",
    "oltp.toml",
    "etcd.toml",
    "boot-storm.toml",
    "backup-window.toml",
    "bulk-import.toml",
    "web.toml",
    "mail.toml",
    "video.toml",
    "batch-deadline.toml",
    "noisy-writer.toml",
    "tenants.toml",
    "latency-only.toml",
    "nightly-export.toml",
    "large-floors.toml",
    "target-weights.toml",
    "priorities.toml",
    "bursty-limit.toml",
    "pages.toml",
];

/// All built-in mixes.
pub fn mixes() -> &'static [Mix] {
    MIXES
}

/// Name of the table with a mix's demands, which is not part of its scenario.
pub(super) const DEMAND: &str = "demand";

impl Mix {
    /// Reads the mix of a file, named by the file's stem. [`Mix::check`] says if it is valid.
    ///
    /// # Errors
    /// Returns a message with the file and the reason if it cannot be read or is no text.
    pub fn from_file(path: &Path) -> Result<Mix, String> {
        let text = document::read_text(path)?;
        let stem = path.file_stem().unwrap_or(path.as_os_str());
        Ok(Mix {
            name: stem.to_string_lossy().into_owned().into(),
            file: path.display().to_string().into(),
            text: text.into(),
        })
    }

    /// Creates a mix of a text, as if it had been read from `own.toml`.
    #[cfg(test)]
    pub(super) fn own(text: &str) -> Mix {
        Mix {
            name: "own".into(),
            file: "own.toml".into(),
            text: text.to_owned().into(),
        }
    }

    /// Draws a random mix. Seed and number alone determine it.
    pub fn random(seed: u64, number: u64) -> Mix {
        let name = format!("random-{seed}-{number}");
        Mix {
            file: format!("{name}.toml").into(),
            text: random_mix::text(seed, number).into(),
            name: name.into(),
        }
    }

    /// Checks the mix on a device, for runs of up to `seconds` judged seconds.
    ///
    /// # Errors
    /// Returns every mistake with its line, the value found and the allowed values.
    pub fn check(&self, device: &PromiseDevice, seconds: u64) -> Result<(), ConfigErrors> {
        check::check(self, device, seconds)
    }

    /// Name of the mix's file in messages.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Text of the mix, with figures relative to a device.
    pub(super) fn template(&self) -> &str {
        &self.text
    }

    /// Returns the demands beyond the promises to its VMs.
    ///
    /// # Errors
    /// When the mix is not valid.
    pub fn demand(&self) -> Result<Demand, ExperimentError> {
        let wrong = |error: toml::de::Error| ExperimentError::data(self.file.clone(), error);
        let mut root: Table = self.text.parse().map_err(wrong)?;
        let demand = root.remove(DEMAND).map(Value::try_into).transpose();
        Ok(demand.map_err(wrong)?.unwrap_or_default())
    }

    /// Returns the scenario of this mix in a cell, as text for `tidegate sim`. `adaptive_queue`:
    /// with `adaptive_depth` and `max_io_shared`; `seconds`: judged time.
    ///
    /// # Errors
    /// When the mix is not valid.
    pub fn text(
        &self,
        cell: &Cell,
        (adaptive_queue, seconds, seed): (bool, u64, u64),
    ) -> Result<String, ExperimentError> {
        let wrong = |what: String| ExperimentError::data(self.file.clone(), what);
        let device = &cell.device;
        let text = template::expand(&self.text, device).map_err(|error| wrong(error.what))?;
        let mut root: Table = text
            .parse()
            .map_err(|e: toml::de::Error| wrong(e.to_string()))?;
        let until = device.warm_up.as_secs_f64() + seconds as f64;
        // The reader of scenarios would refuse the table.
        root.remove(DEMAND);
        root.insert("duration".to_owned(), format!("{until} s").into());
        let warm_up = format!("{} s", device.warm_up.as_secs_f64());
        root.insert("warm_up".to_owned(), warm_up.into());
        // TOML has signed integers; seeds of runs are small.
        root.insert("seed".to_owned(), Value::Integer(seed as i64));
        let mut disk = Table::new();
        disk.insert("name".to_owned(), "disk".into());
        disk.insert("model".to_owned(), device.model.as_str().into());
        if cell.profiled {
            disk.insert("profile".to_owned(), device.model.as_str().into());
        }
        if adaptive_queue {
            disk.insert("adaptive_depth".to_owned(), true.into());
            disk.insert("max_io_shared".to_owned(), "64 KiB".into());
        }
        root.insert("device".to_owned(), Value::Array(vec![disk.into()]));
        let vms = root.get_mut("vm").and_then(Value::as_array_mut);
        for vm in vms.into_iter().flatten().filter_map(Value::as_table_mut) {
            let mut drawn = Table::new();
            drawn.insert("distribution".to_owned(), "exponential".into());
            drawn.insert("mean".to_owned(), format!("{} us", cell.rtt_us).into());
            let mut delay = Table::new();
            delay.insert("submit".to_owned(), drawn.into());
            vm.insert("delay".to_owned(), delay.into());
        }
        Ok(root.to_string())
    }

    /// Returns the scenario of this mix in a cell under a policy.
    ///
    /// # Errors
    /// When the mix is not valid, or the policy is not available in the cell.
    pub(super) fn scenario(
        &self,
        cell: &Cell,
        policy: &PolicySpec,
        run: (bool, u64, u64),
    ) -> Result<Scenario, ExperimentError> {
        let text = self.text(cell, run)?;
        let read = scenario::read(&text, &self.file, &model::built_in, Some(policy))?;
        Ok(read.config)
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::devices;
    use super::*;

    /// Percentage of a figure such as `{iops 10 % random read 8 KiB}`.
    fn percent(figure: &Value) -> f64 {
        let mut words = figure.as_str().expect("a text").split_whitespace();
        words.nth(1).and_then(|n| n.parse().ok()).expect("a part")
    }

    #[test]
    fn every_mix_is_a_scenario_on_every_device() {
        let policy = PolicySpec::named("mclock").expect("it is registered");
        for device in devices().expect("they are read") {
            for mix in mixes() {
                for (profiled, rtt_us) in [(true, 0), (false, 500)] {
                    let device = device.clone();
                    let cell = Cell {
                        device,
                        profiled,
                        rtt_us,
                    };
                    let read = mix.scenario(&cell, &policy, (!profiled, 5, 1));
                    let scenario = read.expect("it is sound");
                    assert_eq!(scenario.devices[0].scheduling.profile.is_some(), profiled);
                    let mut vms = scenario.vms.iter().filter(|vm| !vm.background);
                    assert!(vms.all(|vm| vm.delay.submit.is_some()));
                }
                mix.demand().expect("it is sound");
            }
        }
    }

    #[test]
    fn no_mix_promises_more_than_half_of_a_device() {
        for mix in mixes() {
            let root: Table = mix.text.parse().expect("it is TOML");
            let vms = root["vm"].as_array().expect("tables");
            let promised = |vm: &Value| {
                let count = vm
                    .get("count")
                    .map_or(1, |n| n.as_integer().expect("a number"));
                let objective = vm.get("objective");
                let floor = objective.and_then(|it| it.get("target").or(it.get("reservation")));
                let workloads = vm["workload"].as_array().expect("tables").iter();
                let transfers = workloads.filter(|it| it.get("deadline").is_some());
                let transfers = transfers.map(|it| percent(&it["io_size"])).sum::<f64>();
                count as f64 * (floor.map_or(0.0, percent) + transfers)
            };
            let promised: f64 = vms.iter().map(promised).sum();
            assert!(
                (5.0..=50.0).contains(&promised),
                "{}: {promised} %",
                mix.name
            );
        }
    }
}
