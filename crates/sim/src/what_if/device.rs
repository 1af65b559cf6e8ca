//! Device of a recording as a scenario has it.

use super::WhatIfError;
use crate::scenario::{Device, Exchange, Path, default_distances};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use tidegate_api::policy::PolicyView;
use tidegate_config::device::Scheduling;
use tidegate_config::library::Beside;
use tidegate_config::{ConfigErrors, Section, document};
use tidegate_core::profile::Profile;
use tidegate_device::catalogue;
use tidegate_policies::policy::PolicySpec;
use tidegate_recording::DeviceFacts;
use tidegate_units::format_bytes;

/// Reads a policy with its parameters.
pub(super) fn policy(view: &PolicyView) -> Result<PolicySpec, WhatIfError> {
    let mut json = Map::new();
    if PolicySpec::named(&view.name).is_ok() {
        json.insert("name".to_owned(), json!(view.name));
    } else {
        if let Some(controller) = &view.controller {
            json.insert("controller".to_owned(), json!(controller));
        }
        json.insert("regulator".to_owned(), json!(view.regulator));
        json.insert("dispatcher".to_owned(), json!(view.dispatcher));
    }
    for param in &view.params {
        json.insert(param.name.clone(), value(&param.value));
    }
    let read = tidegate_config::policy::read(&Value::Object(json));
    read.map_err(|error| facts("policy", error))
}

/// Reads the device, on `model` with a saturation profile.
pub(super) fn read(
    recorded: &DeviceFacts,
    model: &catalogue::Entry,
    profile: Option<Arc<Profile>>,
) -> Result<Device, WhatIfError> {
    let policy = policy(&recorded.policy)?;
    let mut keys = Map::new();
    keys.insert("depth".to_owned(), json!(recorded.depth));
    let max_io = format_bytes(recorded.max_io_bytes.into());
    keys.insert("max_io".to_owned(), json!(max_io));
    for (key, text) in &recorded.keys {
        keys.insert(key.clone(), value(text));
    }
    // Without a model: the recording's keys were right for its own one, and are fitted later.
    // Under a policy that needs no profile: the recording has only the digest of its own one, and
    // the replay's is checked with the scenario.
    let open = PolicySpec::named("fifo").expect("registered");
    let scheduling = document::read_json(&Value::Object(keys), "device", |field| {
        let mut section = Section::open(field)?;
        let nowhere = Beside(std::path::Path::new(""));
        let scheduling = Scheduling::read(&mut section, Some(open), None, &nowhere);
        section.finish();
        scheduling
    });
    let scheduling = scheduling.map_err(|error| facts("device", error))?;
    Ok(Device {
        name: recorded.name.clone(),
        model: model.clone(),
        scheduling: Scheduling {
            policy,
            profile,
            ..scheduling
        },
        bounded: true,
        exchange: Exchange::default(),
        path: Path::default(),
        limit_groups: Vec::new(),
        distances: default_distances(),
    })
}

/// Returns a value as a configuration has it: numbers and flags without quotes.
fn value(text: &str) -> Value {
    match text {
        "true" => json!(true),
        "false" => json!(false),
        _ => text
            .parse::<u64>()
            .map_or_else(|_| json!(text), |number| json!(number)),
    }
}

fn facts(what: &str, error: ConfigErrors) -> WhatIfError {
    let what = what.to_owned();
    WhatIfError::Facts { what, error }
}
