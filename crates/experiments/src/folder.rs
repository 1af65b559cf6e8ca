//! Files of the experiments' folders: embedded texts, device models, schedulers.

use crate::ExperimentError;
use std::fmt::Debug;
use tidegate_config::{Field, Section, document, model, policy};
use tidegate_device::catalogue::{self, Entry};
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::scenario::Scenario;

/// Embeds the text of a file below `experiments/`.
macro_rules! embedded {
    ($folder:literal, $name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../experiments/",
            $folder,
            "/",
            $name
        ))
    };
}
pub(crate) use embedded;

/// Embeds a file below `experiments/` as a pair of name and text.
macro_rules! named {
    ($folder:literal, $name:literal) => {
        ($name, $crate::folder::embedded!($folder, $name))
    };
}
pub(crate) use named;

/// Name and text of a file.
pub(crate) type File = (&'static str, &'static str);

const SCHEDULERS: &str = "schedulers.toml";

/// Returns the device model that a scenario names: `../` and one of the folder's `own` files, or a
/// name of the catalogue.
///
/// Describes the mistake if there is no such model.
pub(crate) fn model(name: &str, own: &[(&str, &str)]) -> Result<Entry, String> {
    // Scenarios are one folder below the models of their paper.
    let file = name.strip_prefix("../");
    let own = file.and_then(|file| own.iter().find(|(name, _)| *name == file));
    match own {
        Some((file, text)) => catalogue::parse(text, file).map_err(|error| error.to_string()),
        None => model::built_in(name),
    }
}

/// Returns the device model of a file with some of its figures replaced, each by its path of keys.
///
/// # Errors
/// Fails when the file has no such path, or the resulting model is invalid.
pub(crate) fn model_with(
    (file, text): File,
    figures: &[(&[&str], String)],
) -> Result<Entry, ExperimentError> {
    let mut root: toml::Table =
        (text.parse()).map_err(|error: toml::de::Error| ExperimentError::data(file, error))?;
    for (path, figure) in figures {
        let unknown = || ExperimentError::data(file, format!("there is no {}", path.join(".")));
        *value_at(&mut root, path).ok_or_else(unknown)? = figure.as_str().into();
    }
    // Parsed again as a whole, so that the figures pass the checks of a model file.
    catalogue::parse(&root.to_string(), file).map_err(|error| ExperimentError::data(file, error))
}

fn value_at<'a>(root: &'a mut toml::Table, path: &[&str]) -> Option<&'a mut toml::Value> {
    let (key, tables) = path.split_last()?;
    let mut tables = tables.iter();
    let table = tables.try_fold(root, |table, key| table.get_mut(*key)?.as_table_mut());
    table?.get_mut(*key)
}

/// Reads the scheduler `name` of a `schedulers.toml`: its policy, to which `read` adds the other
/// keys.
///
/// Fails when there is no such scheduler, or it is malformed.
pub(crate) fn scheduler<T>(
    text: &str,
    name: &'static str,
    read: impl FnOnce(&mut Section<'_>, PolicySpec) -> Option<T>,
) -> Result<T, ExperimentError> {
    let from = |root: &Field<'_>| {
        let mut root = Section::open(root)?;
        let needed = root.need(name, "a table with its policy")?;
        let mut section = Section::open(&needed)?;
        let policy = section.need("policy", "policy = \"cfq\"");
        let policy = policy.and_then(|field| policy::from_field(&field))?;
        let scheduler = read(&mut section, policy);
        section.finish();
        scheduler
    };
    Ok(document::read(text, SCHEDULERS, from)?.config)
}

/// Puts all devices under this policy.
pub(crate) fn set_policy(scenario: &mut Scenario, policy: &PolicySpec) {
    for device in &mut scenario.devices {
        device.scheduling.policy = policy.clone();
    }
}

/// Sets a parameter of all devices' policies.
///
/// # Errors
/// Fails when a policy has no such parameter, or the value is out of range.
pub(crate) fn set_param(
    scenario: &mut Scenario,
    name: &str,
    value: u64,
) -> Result<(), ExperimentError> {
    let mut devices = scenario.devices.iter_mut();
    let set = devices.try_for_each(|device| device.scheduling.policy.set(name, value));
    set.map_err(|error| ExperimentError::data(SCHEDULERS, error))
}

/// Checks the scenario of a run that was made from `file`.
///
/// # Errors
/// Returns the scenario's first mistake.
pub(crate) fn checked(
    scenario: Scenario,
    file: &'static str,
    run: &impl Debug,
) -> Result<Scenario, ExperimentError> {
    match scenario.check() {
        Ok(()) => Ok(scenario),
        Err(error) => Err(ExperimentError::data(file, format!("{run:?}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: File = named!("flubber", "disk.toml");

    #[test]
    fn a_model_is_altered_only_where_it_has_something() {
        let alter = |path: &[&str]| model_with(DISK, &[(path, "7 us".to_owned())]);
        let entry = alter(&["hdd", "command_overhead"]).expect("a disk");
        let written = model_with(DISK, &[]).expect("a disk");
        assert_ne!(format!("{entry:?}"), format!("{written:?}"));
        let error = alter(&["hdd", "command_overhea"]).expect_err("no such figure");
        assert_eq!(
            error.to_string(),
            "disk.toml: there is no hdd.command_overhea"
        );
        // It is there, and a text is no size.
        assert!(alter(&["hdd", "capacity"]).is_err());
    }
}
