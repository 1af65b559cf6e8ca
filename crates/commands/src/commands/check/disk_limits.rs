//! Limits of disks and limit groups, beside the objectives of VMs.

use serde::Serialize;
use tidegate_api::objective::LimitView;
use tidegate_config::objective_view::limit_view;
use tidegate_report::{Align, Table};
use tidegate_server::config::{Config, DiskConfig, VmConfig};

use crate::objective_line;

/// Disk with the limits that it has beside those of its VM.
#[derive(Serialize)]
pub(super) struct Disk<'a> {
    export: &'a str,
    /// Limit of the disk; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<LimitView>,
    /// Name of the limit that it shares with other disks of its device; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_group: Option<&'a str>,
}

/// Limit that disks of a device share.
#[derive(Serialize)]
pub(super) struct LimitGroup<'a> {
    device: &'a str,
    name: &'a str,
    limit: Option<LimitView>,
}

/// Returns the disks of a VM with their limits.
pub(super) fn disks(vm: &VmConfig) -> Vec<Disk<'_>> {
    let disks = vm.disks.iter().map(|disk| Disk {
        export: &disk.export,
        limit: limit_view(&disk.limit),
        limit_group: disk.limit_group.as_deref(),
    });
    disks.collect()
}

/// Returns the limit groups of all devices.
pub(super) fn groups(config: &Config) -> Vec<LimitGroup<'_>> {
    let groups = config.devices.iter().flat_map(|device| {
        device.limit_groups.iter().map(|group| LimitGroup {
            device: &device.name,
            name: &group.name,
            limit: limit_view(&group.limit),
        })
    });
    groups.collect()
}

/// Returns true if a disk has a limit, of its own or of a group.
pub(super) fn exist(config: &Config) -> bool {
    let mut disks = config.disks();
    disks.any(|(_, disk)| disk.limit_group.is_some() || limit_view(&disk.limit).is_some())
}

/// Returns the limits of a disk on one line; empty without one.
pub(super) fn in_words(disk: &DiskConfig) -> String {
    objective_line::disk_limits(
        limit_view(&disk.limit).as_ref(),
        disk.limit_group.as_deref(),
    )
}

/// Returns the table of all limit groups; `None` if there are none.
pub(super) fn table(config: &Config) -> Option<Table> {
    let groups = groups(config);
    if groups.is_empty() {
        return None;
    }
    let mut table = Table::new([
        ("LIMIT GROUP", Align::Left),
        ("DEVICE", Align::Left),
        ("LIMIT OF ALL ITS DISKS", Align::Left),
    ]);
    for group in groups {
        let limit = group.limit.as_ref().map(objective_line::limit);
        table.row([
            group.name.to_owned(),
            group.device.to_owned(),
            limit.unwrap_or_else(|| "none".to_owned()),
        ]);
    }
    Some(table)
}
