//! Changes of limits of disks, and of limits that disks share.

use tidegate_core::objective::Limit;

use super::{Loop, respond};
use crate::command::{CommandError, DeviceSnapshot, LimitChange, VmSnapshot};

/// Makes a change and answers it.
pub(super) fn change(event_loop: &mut Loop, change: LimitChange) {
    match change {
        LimitChange::Disk {
            vm,
            export,
            limit,
            group,
            reply,
        } => respond(reply, set_disk(event_loop, [&vm, &export], &limit, group)),
        LimitChange::Group {
            group,
            limit,
            reply,
        } => respond(reply, set_group(event_loop, &group, &limit)),
    }
}

/// Replaces the limits of a disk; changes nothing if they are refused.
fn set_disk(
    event_loop: &mut Loop,
    [vm, export]: [&str; 2],
    limit: &Limit,
    group: Option<String>,
) -> Result<VmSnapshot, CommandError> {
    event_loop.check_running()?;
    let (index, at) = event_loop.find_disk(vm, export)?;
    let (device, now) = (&mut event_loop.device, event_loop.now);
    let id = device.disks[at].id;
    let set = device.limit_disk(&mut event_loop.engine, now, id, limit, group.as_deref());
    set.map_err(|error| CommandError::Refused(error.to_string()))?;
    let disk = &mut device.disks[at].disk;
    (disk.limit, disk.limit_group) = (*limit, group);
    Ok(event_loop.vm_snapshot(index))
}

/// Replaces a limit that disks share.
fn set_group(
    event_loop: &mut Loop,
    group: &str,
    limit: &Limit,
) -> Result<DeviceSnapshot, CommandError> {
    event_loop.check_running()?;
    let (device, now) = (&mut event_loop.device, event_loop.now);
    let set = device.set_group_limit(&mut event_loop.engine, now, group, limit);
    set.map_err(|error| CommandError::Refused(error.to_string()))?;
    Ok(event_loop.snapshot())
}
