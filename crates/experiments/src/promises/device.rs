//! Devices on which promises are judged.

use crate::ExperimentError;
use crate::folder::embedded;
use serde::Deserialize;
use std::sync::Arc;
use tidegate_config::profile;
use tidegate_core::profile::Profile;
use tidegate_core::time::Nanos;
use tidegate_units::parse_duration;

const FILE: &str = "devices.toml";

/// Device of the catalogue, with the figures to which mixes are scaled.
#[derive(Clone, Debug)]
pub struct PromiseDevice {
    /// Name of its device model.
    pub model: String,
    /// True for a flash disk, false for a hard disk.
    pub flash: bool,
    /// Blocking time, by which a request within a reservation or target may be late (see
    /// `docs/promises.md`): 99th percentile of a read during four random writes of 64 KiB, by the
    /// profile.
    pub blocking: Nanos,
    /// Base latency bound; mixes use multiples of it.
    pub bound: Nanos,
    /// Base duration of deadline transfers; mixes use multiples of it.
    pub span: Nanos,
    /// Time before judging begins.
    pub warm_up: Nanos,
    /// Profile for costs, used by the judge even where the scheduler has none.
    pub profile: Arc<Profile>,
}

/// Cell of the grid, without its mix.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Device.
    pub device: PromiseDevice,
    /// True if the scheduler has the device's profile.
    pub profiled: bool,
    /// Mean round trip of guests in microseconds, exponentially distributed.
    pub rtt_us: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    device: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    model: String,
    flash: bool,
    bound: String,
    span: String,
    warm_up: String,
}

/// All devices, in the order of their file.
///
/// # Errors
/// When the file is not valid.
pub fn devices() -> Result<Vec<PromiseDevice>, ExperimentError> {
    let wrong = |what: String| ExperimentError::data(FILE, what);
    let document: Document =
        toml::from_str(embedded!("promises", "devices.toml")).map_err(|e| wrong(e.to_string()))?;
    let devices = document.device.into_iter().map(|entry| {
        let time = |text: &str| parse_duration(text).map_err(|error| wrong(error.to_string()));
        let measured = profile::built_in(&entry.model)
            .ok_or_else(|| wrong(format!("no built-in profile of model {}", entry.model)))?;
        let profile = measured
            .profile()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(PromiseDevice {
            flash: entry.flash,
            blocking: profile.blocking_time().ok_or_else(|| {
                wrong(format!(
                    "the profile of model {} has no reads during writes",
                    entry.model
                ))
            })?,
            bound: time(&entry.bound)?,
            span: time(&entry.span)?,
            warm_up: time(&entry.warm_up)?,
            profile: Arc::new(profile),
            model: entry.model,
        })
    });
    devices.collect()
}
