//! Devices that promises are judged on.

use crate::ExperimentError;
use crate::folder::embedded;
use serde::Deserialize;
use std::sync::Arc;
use tidegate_config::profile;
use tidegate_core::profile::Profile;
use tidegate_core::time::Nanos;
use tidegate_units::parse_duration;

const FILE: &str = "devices.toml";

/// Device of the catalogue with the figures that mixes are scaled by.
#[derive(Clone, Debug)]
pub struct PromiseDevice {
    /// Name of its model.
    pub model: String,
    /// Flash disk, not a hard disk.
    pub flash: bool,
    /// Time that a request may have to wait for what the device has begun.
    pub blocking: Nanos,
    /// Unit of time of transfers.
    pub span: Nanos,
    /// Time before anything is judged.
    pub warm_up: Nanos,
    /// Profile by which costs are reckoned, also where the scheduler has none.
    pub profile: Arc<Profile>,
}

/// Place of the grid.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Device.
    pub device: PromiseDevice,
    /// The scheduler has the device's profile.
    pub profiled: bool,
    /// Mean round trip of guests in microseconds, drawn exponentially.
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
    blocking: String,
    span: String,
    warm_up: String,
}

/// All devices, in the order of their file.
///
/// # Errors
/// When the file is not as it should be.
pub fn devices() -> Result<Vec<PromiseDevice>, ExperimentError> {
    let wrong = |what: String| ExperimentError::data(FILE, what);
    let document: Document =
        toml::from_str(embedded!("promises", "devices.toml")).map_err(|e| wrong(e.to_string()))?;
    let devices = document.device.into_iter().map(|entry| {
        let time = |text: &str| parse_duration(text).map_err(|error| wrong(error.to_string()));
        let measured = profile::built_in(&entry.model)
            .ok_or_else(|| wrong(format!("there is no profile of {}", entry.model)))?;
        let profile = measured
            .profile()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(PromiseDevice {
            flash: entry.flash,
            blocking: time(&entry.blocking)?,
            span: time(&entry.span)?,
            warm_up: time(&entry.warm_up)?,
            profile: Arc::new(profile),
            model: entry.model,
        })
    });
    devices.collect()
}
