//! What becomes of a configuration with what its store keeps: for the daemon when it starts, and
//! for whoever wants to know before.
//!
//! ```text
//!   VMs of the configuration --kept objectives win--> served
//!   kept VMs ---the configuration names none so-----> served beside them
//! ```

use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::command::ControlError;
use crate::config::{
    self, Config, ConfigErrors, Create, DeviceConfig, DiskConfig, Schedule, VmConfig,
};
use crate::store::{Scope, VmRecord};

/// What is to be said of one VM that is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// Its name.
    pub vm: String,
    /// Whether it is as it ought to be.
    pub how: How,
    /// What, in one sentence.
    pub what: String,
}

/// Whether what is kept of a VM is as it ought to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// It is.
    Well,
    /// It is passed over for a reason that somebody may not have thought of.
    PassedOver,
    /// It cannot be had.
    Lost,
}

/// Puts the objectives that are kept in place of those of the configuration.
pub fn overlay(records: &[VmRecord], vms: &mut [VmConfig]) -> Vec<Said> {
    let mut all = Vec::new();
    for record in records {
        let configured = vms.iter_mut().find(|vm| vm.name == record.name);
        let (how, what) = match (record.scope, configured) {
            (Scope::Whole, None) => continue,
            (Scope::Whole, Some(_)) => (
                How::PassedOver,
                "kept, and in the configuration: the configuration wins".to_owned(),
            ),
            (Scope::Objective, None) => (
                How::PassedOver,
                "an objective is kept of a VM that is not configured".to_owned(),
            ),
            (Scope::Objective, Some(configured)) => {
                match kept_over(record, &configured.promised()) {
                    Ok(kept) if kept == configured.promised() => continue,
                    Ok(kept) => {
                        configured.promise(kept);
                        let what = "its kept objective wins over the configuration's";
                        (How::Well, what.to_owned())
                    }
                    Err(why) => {
                        let what =
                            "what is kept of its objective cannot be had, the configuration's is";
                        (How::Lost, format!("{what}: {why}"))
                    }
                }
            }
        };
        let vm = record.name.clone();
        all.push(Said { vm, how, what });
    }
    all
}

/// The objective that is kept, over that of the configuration. A record names every part that there
/// was when it was written, also what was not promised; what came to be since is the
/// configuration's.
fn kept_over(record: &VmRecord, configured: &Schedule) -> Result<Schedule, String> {
    let words = record.words()?;
    config::schedule::merge(configured, &words).map_err(|errors| in_line(&errors))
}

fn in_line(errors: &ConfigErrors) -> String {
    let said = errors.0.iter().map(|d| match d.field.as_str() {
        "" => d.what.clone(),
        field => format!("{field}: {}", d.what),
    });
    said.collect::<Vec<_>>().join("; ")
}

/// The VMs that are kept whole and not in the configuration, by name; or why one cannot be read.
/// `base`: what relative paths are relative to.
pub fn whole<'a>(
    records: &'a [VmRecord],
    is_configured: impl Fn(&str) -> bool + 'a,
    devices: &'a [DeviceConfig],
    base: &'a Path,
) -> impl Iterator<Item = (&'a str, Result<VmConfig, String>)> {
    let whole = records
        .iter()
        .filter(move |record| record.scope == Scope::Whole && !is_configured(&record.name));
    whole.map(move |record| {
        let vm = record.words().and_then(|words| {
            let read = config::vm::from_json(&words, devices, base);
            read.map_err(|errors| in_line(&errors))
        });
        (record.name.as_str(), vm)
    })
}

/// How a VM that was served before is served again: its files have to be there, and have the size
/// that they have. An empty disk in place of one that is gone would be the worst of answers.
pub fn as_served_again(vm: &VmConfig) -> VmConfig {
    let mut there = vm.clone();
    for disk in &mut there.disks {
        if let Some(path) = &disk.path {
            disk.create = Create::No;
            if !is_block_device(path) {
                disk.size = None;
            }
        }
    }
    there
}

fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
}

/// Refuses disks whose exports these VMs have already.
pub(crate) fn refuse_taken(vms: &[VmConfig], disks: &[DiskConfig]) -> Result<(), ControlError> {
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

/// What a daemon of this configuration would make of what is kept: VMs and objectives come into the
/// configuration as they would be served. That a disk is in use, or is not what it seems, is only
/// found where it is opened.
pub fn foresee(records: &[VmRecord], config: &mut Config) -> Vec<Said> {
    let configured: BTreeSet<String> = config.vms.iter().map(|vm| vm.name.clone()).collect();
    let mut said = overlay(records, &mut config.vms);
    let is_configured = |name: &str| configured.contains(name);
    for (name, vm) in whole(records, is_configured, &config.devices, &config.base) {
        let served = vm.and_then(|vm| {
            refuse_taken(&config.vms, &vm.disks).map_err(|error| error.to_string())?;
            let mut vm = as_served_again(&vm);
            for disk in &mut vm.disks {
                let Some(path) = &disk.path else { continue };
                let meta = std::fs::metadata(path);
                let meta = meta.map_err(|error| format!("{}: {error}", path.display()))?;
                if meta.is_file() {
                    disk.size = Some(meta.len());
                }
            }
            Ok(vm)
        });
        let (how, what) = match served {
            Ok(vm) => {
                config.vms.push(vm);
                (How::Well, SERVED_AGAIN.to_owned())
            }
            Err(why) => (How::Lost, cannot_be_served(&why)),
        };
        let vm = name.to_owned();
        said.push(Said { vm, how, what });
    }
    said
}

/// What is said of a kept VM that is served.
pub(crate) const SERVED_AGAIN: &str = "kept, and served again";

/// What is said of one that is not.
pub(crate) fn cannot_be_served(why: &str) -> String {
    format!("kept, and cannot be served: {why}")
}
