//! What experiments' folders hold: texts that are compiled in, device models of their own,
//! schedulers.

use crate::ExperimentError;
use std::fmt::Debug;
use tidegate_config::{Field, Section, document, model, policy};
use tidegate_device::catalogue::{self, Entry};
use tidegate_policies::policy::PolicySpec;
use tidegate_sim::scenario::Scenario;

/// The text of a file of a folder below `experiments/`.
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

/// A file of a folder below `experiments/`: its name, and its text.
macro_rules! named {
    ($folder:literal, $name:literal) => {
        ($name, $crate::folder::embedded!($folder, $name))
    };
}
pub(crate) use named;

/// What a file is called, and what it says.
pub(crate) type File = (&'static str, &'static str);

const SCHEDULERS: &str = "schedulers.toml";

/// A device model by what a scenario calls it: `../` and one of the folder's `own` files, or the
/// catalogue's.
///
/// # Errors
/// Why there is none, in words.
pub(crate) fn model(name: &str, own: &[(&str, &str)]) -> Result<Entry, String> {
    let file = name.strip_prefix("../");
    let own = file.and_then(|file| own.iter().find(|(name, _)| *name == file));
    match own {
        Some((file, text)) => catalogue::parse(text, file).map_err(|error| error.to_string()),
        None => model::built_in(name),
    }
}

/// The device model of a file, with other figures at some paths, all of which it has.
///
/// # Errors
/// When it has no such path, or the model makes no sense.
pub(crate) fn altered(
    (file, text): File,
    figures: &[(&[&str], String)],
) -> Result<Entry, ExperimentError> {
    let mut root: toml::Table =
        (text.parse()).map_err(|error: toml::de::Error| ExperimentError::data(file, error))?;
    for (path, figure) in figures {
        let unknown = || ExperimentError::data(file, format!("there is no {}", path.join(".")));
        *at(&mut root, path).ok_or_else(unknown)? = figure.as_str().into();
    }
    catalogue::parse(&root.to_string(), file).map_err(|error| ExperimentError::data(file, error))
}

fn at<'a>(root: &'a mut toml::Table, path: &[&str]) -> Option<&'a mut toml::Value> {
    let (key, tables) = path.split_last()?;
    let mut tables = tables.iter();
    let table = tables.try_fold(root, |table, key| table.get_mut(*key)?.as_table_mut());
    table?.get_mut(*key)
}

/// The scheduler `name` of a `schedulers.toml`: its policy, from which `read` makes it with what
/// else there is.
///
/// # Errors
/// When there is none, or it is not as it should be.
pub(crate) fn scheduler<T>(
    text: &str,
    name: &'static str,
    read: impl FnOnce(&mut Section<'_>, PolicySpec) -> Option<T>,
) -> Result<T, ExperimentError> {
    let from = |root: &Field<'_>| {
        let mut root = Section::of(root)?;
        let needed = root.need(name, "a table with its policy")?;
        let mut section = Section::of(&needed)?;
        let policy = section.need("policy", "policy = \"cfq\"");
        let policy = policy.and_then(|field| policy::from_field(&field))?;
        let scheduler = read(&mut section, policy);
        section.finish();
        scheduler
    };
    Ok(document::read(text, SCHEDULERS, from)?.config)
}

/// All devices are under this policy.
pub(crate) fn put_under(scenario: &mut Scenario, policy: &PolicySpec) {
    for device in &mut scenario.devices {
        device.scheduling.policy = policy.clone();
    }
}

/// Sets a parameter of all devices' policies.
///
/// # Errors
/// When a policy has none of this name, or it cannot be so.
pub(crate) fn set_param(
    scenario: &mut Scenario,
    name: &str,
    value: u64,
) -> Result<(), ExperimentError> {
    let mut devices = scenario.devices.iter_mut();
    let set = devices.try_for_each(|device| device.scheduling.policy.set(name, value));
    set.map_err(|error| ExperimentError::data(SCHEDULERS, error))
}

/// The scenario of a run, made of `file`, if it is sound.
///
/// # Errors
/// What is wrong with it.
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
        let alter = |path: &[&str]| altered(DISK, &[(path, "7 us".to_owned())]);
        let entry = alter(&["hdd", "command_overhead"]).expect("a disk");
        let written = altered(DISK, &[]).expect("a disk");
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
