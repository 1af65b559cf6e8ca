//! Merge of the configuration with the store's records, for the daemon's start and for `tidegate
//! check`.
//!
//! ```text
//!   VMs of the configuration --objectives in the store replace theirs--> served
//!   VMs in the store alone ---------------------------------------------> served beside them
//! ```

use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::command::ControlError;
use crate::config::{
    self, Config, ConfigErrors, Create, DeviceConfig, DiskConfig, PathsConfig, Schedule, VmConfig,
};
use crate::store::{Scope, VmRecord};

/// Report on one VM of which the store has a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordReport {
    /// Name of the VM.
    pub vm: String,
    /// Outcome for the record.
    pub outcome: RecordOutcome,
    /// Explanation in one sentence.
    pub what: String,
}

/// Outcome for a VM's record in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordOutcome {
    /// The record is in force.
    Applied,
    /// The record is ignored, possibly against the operator's expectation.
    Ignored,
    /// The record cannot be put in force.
    Failed,
}

/// Replaces the objectives of configured VMs by those in the store's records, and returns a report
/// for each record that changed or ignored something.
pub fn overlay(records: &[VmRecord], vms: &mut [VmConfig]) -> Vec<RecordReport> {
    let mut all = Vec::new();
    for record in records {
        let configured = vms.iter_mut().find(|vm| vm.name == record.name);
        let (outcome, what) = match (record.scope, configured) {
            // Served by `restorable_vms`, which reports it.
            (Scope::Whole, None) => continue,
            (Scope::Whole, Some(_)) => (
                RecordOutcome::Ignored,
                "in the store and in the configuration file: the file is used".to_owned(),
            ),
            (Scope::Objective, None) => (
                RecordOutcome::Ignored,
                "the store has an objective for a VM that is not in the configuration file"
                    .to_owned(),
            ),
            (Scope::Objective, Some(configured)) => {
                match stored_objective(record, &configured.promised()) {
                    // Nothing changes, so there is nothing to report.
                    Ok(kept) if kept == configured.promised() => continue,
                    Ok(kept) => {
                        configured.promise(kept);
                        let what =
                            "the objective in the store replaces that of the configuration file";
                        (RecordOutcome::Applied, what.to_owned())
                    }
                    Err(why) => {
                        let what = "the configured objective is used, the stored one cannot be";
                        (RecordOutcome::Failed, format!("{what}: {why}"))
                    }
                }
            }
        };
        let vm = record.name.clone();
        all.push(RecordReport { vm, outcome, what });
    }
    all
}

/// Returns the objective of a record, completed by the configured one. A record holds every part
/// that existed when it was written, including those that were not set; parts that were introduced
/// since come from the configuration.
fn stored_objective(record: &VmRecord, configured: &Schedule) -> Result<Schedule, String> {
    let words = record.words()?;
    config::schedule::merge(configured, &words).map_err(|errors| join_errors(&errors))
}

fn join_errors(errors: &ConfigErrors) -> String {
    let reports = errors.0.iter().map(|d| match d.field.as_str() {
        "" => d.what.clone(),
        field => format!("{field}: {}", d.what),
    });
    reports.collect::<Vec<_>>().join("; ")
}

/// Returns the VMs that are in the store and not in the configuration, ordered by name, each with
/// its configuration or the reason why it cannot be read. Relative paths are relative to `base`.
pub fn restorable_vms<'a>(
    records: &'a [VmRecord],
    is_configured: impl Fn(&str) -> bool + 'a,
    devices: &'a [DeviceConfig],
    paths: &'a PathsConfig,
) -> impl Iterator<Item = (&'a str, Result<VmConfig, String>)> {
    let whole = records
        .iter()
        .filter(move |record| record.scope == Scope::Whole && !is_configured(&record.name));
    whole.map(move |record| {
        let vm = record.words().and_then(|words| {
            let read = config::vm::from_json(&words, devices, paths);
            read.map_err(|errors| join_errors(&errors))
        });
        let vm = vm.map(|mut vm| {
            if !record.is_confined() {
                free_old_paths(&mut vm);
            }
            vm
        });
        (record.name.as_str(), vm)
    })
}

/// Lets disks stay where a build without `[paths]` accepted them: their VMs are in use. A disk that
/// was added since is in the list by its name, and stays confined.
fn free_old_paths(vm: &mut VmConfig) {
    for disk in &mut vm.disks {
        let within = disk.path.as_ref().zip(disk.within.as_ref());
        if within.is_some_and(|(path, within)| !within.names(path)) {
            disk.within = None;
        }
    }
}

/// Returns the configuration with which a VM from the store is served again: its files must exist
/// and keep their sizes. Creating an empty file in place of a lost one would present the guest with
/// a blank disk.
pub fn restored_with_existing_files(vm: &VmConfig) -> VmConfig {
    let mut there = vm.clone();
    for disk in &mut there.disks {
        if let Some(path) = &disk.path {
            disk.create = Create::No;
            if !is_block_device(path) {
                // The file's size counts: it may have grown since the record was written.
                disk.size = None;
            }
        }
    }
    there
}

fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
}

/// Checks that no disk has an export name that one of these VMs uses already.
pub(crate) fn refuse_taken_exports(
    vms: &[VmConfig],
    disks: &[DiskConfig],
) -> Result<(), ControlError> {
    for disk in disks {
        let has = |vm: &&VmConfig| vm.disks.iter().any(|other| other.export == disk.export);
        if let Some(other) = vms.iter().find(has) {
            return Err(ControlError::Taken {
                what: "export",
                name: disk.export.clone(),
                by: format!("VM {:?}", other.name),
            });
        }
    }
    Ok(())
}

/// Previews a start with these records: changes VMs and objectives in `config` as the daemon would.
/// Disks are not opened, so one that is in use or has a wrong size is not found.
pub fn preview_start(records: &[VmRecord], config: &mut Config) -> Vec<RecordReport> {
    let configured: BTreeSet<String> = config.vms.iter().map(|vm| vm.name.clone()).collect();
    let mut reports = overlay(records, &mut config.vms);
    let is_configured = |name: &str| configured.contains(name);
    for (name, vm) in restorable_vms(records, is_configured, &config.devices, &config.paths) {
        let served = vm.and_then(|vm| {
            // Against the VMs restored so far as well, as the daemon adds them one after the other.
            refuse_taken_exports(&config.vms, &vm.disks).map_err(|error| error.to_string())?;
            let mut vm = restored_with_existing_files(&vm);
            for disk in &mut vm.disks {
                let Some(path) = &disk.path else { continue };
                let within = disk.check_path(path);
                within.map_err(|error| format!("{}: {error}", path.display()))?;
                let meta = std::fs::metadata(path);
                let meta = meta.map_err(|error| format!("{}: {error}", path.display()))?;
                if meta.is_file() {
                    // Opening the file would find the same size.
                    disk.size = Some(meta.len());
                }
            }
            Ok(vm)
        });
        let (outcome, what) = match served {
            Ok(vm) => {
                let report = restored(&vm);
                config.vms.push(vm);
                (RecordOutcome::Applied, report)
            }
            Err(why) => (RecordOutcome::Failed, restore_failure(&why)),
        };
        let vm = name.to_owned();
        reports.push(RecordReport { vm, outcome, what });
    }
    reports
}

/// Returns the report for a VM of the store that is served.
pub(crate) fn restored(vm: &VmConfig) -> String {
    let is_free = |disk: &&DiskConfig| disk.path.is_some() && disk.within.is_none();
    let free = vm
        .disks
        .iter()
        .find(is_free)
        .and_then(|disk| disk.path.as_ref());
    match free {
        None => "restored from the store".to_owned(),
        Some(path) => format!(
            "restored from the store; {} was accepted by an earlier version and is in no directory \
             for disks of the control API: add its directory to `allow` under [paths]",
            path.display()
        ),
    }
}

/// Returns the report for a VM of the store that cannot be served.
pub(crate) fn restore_failure(why: &str) -> String {
    format!("in the store, but cannot be served: {why}")
}
