//! Differences between an existing VM or disk and a PUT of the same name, which PUT cannot change.

use std::path::PathBuf;

use axum::http::StatusCode;
use tidegate_api::error::Problem;
use tidegate_units::format_bytes;
use tidegate_units::human::exact_bytes;

use super::error::ApiError;
use crate::command::VmSnapshot;
use tidegate_config::objective::limit;

use crate::config::{DeviceConfig, DiskConfig, VmConfig};

/// Returns the differences between an existing VM and the requested one, apart from the objective
/// and `max_connections`, which PUT may change.
pub(super) fn vm_differences(
    config: &VmConfig,
    now: &VmSnapshot,
    vm: &VmConfig,
    devices: &[DeviceConfig],
) -> Vec<Problem> {
    let mut all = Vec::new();
    if config.device != vm.device {
        let name = devices.get(vm.device).map(|device| device.name.as_str());
        all.push(differs("device", &now.device, name.unwrap_or("another")));
    }
    if config.background != vm.background {
        all.push(differs("background", config.background, vm.background));
    }
    for disk in &vm.disks {
        match config.disks.iter().find(|old| old.export == disk.export) {
            Some(old) => all.extend(disk_differences(old, now, disk)),
            None => all.push(Problem {
                what: format!("it has no disk with the export name {:?}", disk.export),
                at: "disk".to_owned(),
                allowed: Some("PUT the disk by itself".to_owned()),
            }),
        }
    }
    for old in &config.disks {
        if vm.disks.iter().all(|disk| disk.export != old.export) {
            all.push(Problem {
                what: format!("it has another disk, with the export name {:?}", old.export),
                at: "disk".to_owned(),
                allowed: Some("DELETE the disk by itself".to_owned()),
            });
        }
    }
    all
}

fn differs(at: &str, now: impl ToString, asked: impl ToString) -> Problem {
    let (now, asked) = (now.to_string(), asked.to_string());
    Problem {
        what: format!("{at} is {now:?}, not {asked:?}"),
        at: at.to_owned(),
        allowed: Some("remove it and add it again".to_owned()),
    }
}

/// Returns a disk's absolute path. Paths from the store are absolute, those of a request need not
/// be.
fn absolute_path(disk: &DiskConfig) -> Option<PathBuf> {
    let path = disk.path.as_ref()?;
    Some(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
}

/// Returns the differences between the servers of an existing disk and the requested one.
fn server_differences(old: &DiskConfig, disk: &DiskConfig) -> Vec<Problem> {
    let mut all = Vec::new();
    let at = |field: &str| format!("disk {:?}: {field}", disk.export);
    let uri = |disk: &DiskConfig| match &disk.nbd {
        Some(nbd) => nbd.uri.to_string(),
        None => "none".to_owned(),
    };
    if uri(old) != uri(disk) {
        all.push(differs(&at("uri"), uri(old), uri(disk)));
    }
    let tls = |disk: &DiskConfig| match disk.nbd.as_ref().and_then(|nbd| nbd.tls.as_ref()) {
        Some(tls) => {
            let files = tls.files().map(|file| file.display().to_string());
            let name = tls.server_name.iter().cloned();
            files.chain(name).collect::<Vec<_>>().join(", ")
        }
        None => "none".to_owned(),
    };
    if tls(old) != tls(disk) {
        all.push(differs(&at("tls"), tls(old), tls(disk)));
    }
    let connections = |disk: &DiskConfig| disk.nbd.as_ref().map_or(1, |nbd| nbd.connections);
    if connections(old) != connections(disk) {
        let at = at("connections");
        all.push(differs(&at, connections(old), connections(disk)));
    }
    let unflushed = |disk: &DiskConfig| match &disk.nbd {
        Some(nbd) => exact_bytes(nbd.unflushed),
        None => "none".to_owned(),
    };
    if unflushed(old) != unflushed(disk) {
        all.push(differs(&at("unflushed"), unflushed(old), unflushed(disk)));
    }
    all
}

/// Returns the differences between an existing disk and the requested one of the same export name.
pub(super) fn disk_differences(
    old: &DiskConfig,
    now: &VmSnapshot,
    disk: &DiskConfig,
) -> Vec<Problem> {
    let mut all = Vec::new();
    let at = |field: &str| format!("disk {:?}: {field}", disk.export);
    let path = |disk: &DiskConfig| match &disk.path {
        Some(path) => path.display().to_string(),
        None => "none".to_owned(),
    };
    if absolute_path(old) != absolute_path(disk) {
        all.push(differs(&at("path"), path(old), path(disk)));
    }
    all.extend(server_differences(old, disk));
    if old.read_only != disk.read_only {
        all.push(differs(&at("read_only"), old.read_only, disk.read_only));
    }
    if old.block_size != disk.block_size {
        all.push(differs(&at("block_size"), old.block_size, disk.block_size));
    }
    let is = now.disks.iter().find(|now| now.export == disk.export);
    if let Some(is) = is
        && is.limit_group != disk.limit_group
    {
        let [is, wanted] = [&is.limit_group, &disk.limit_group]
            .map(|group| group.as_deref().unwrap_or("none").to_owned());
        all.push(limits_differ(differs(&at("limit_group"), is, wanted)));
    }
    if let Some(is) = is
        && is.limit != disk.limit
    {
        let words = [is.limit, disk.limit].map(|limit| limit::in_a_line(&limit));
        let [is, wanted] = words;
        all.push(limits_differ(differs(&at("limit"), is, wanted)));
    }
    // A request without a size keeps the present one.
    if let (Some(is), Some(size)) = (is, disk.size)
        && is.size != size
    {
        let mut problem = differs(&at("size"), format_bytes(is.size), format_bytes(size));
        problem.allowed = Some("PATCH the disk's size".to_owned());
        all.push(problem);
    }
    all
}

/// Adds the way to change the limits of a disk.
fn limits_differ(mut problem: Problem) -> Problem {
    problem.allowed = Some("PATCH the disk's limits".to_owned());
    problem
}

/// Returns the error 409 that lists the differences; `None` if there are none.
pub(super) fn conflict(name: &str, differences: Vec<Problem>) -> Option<ApiError> {
    if differences.is_empty() {
        return None;
    }
    let what = format!("{name:?} exists already, and differs");
    let mut error = ApiError::new(StatusCode::CONFLICT, what, name);
    error.body.also = differences;
    Some(error)
}
