//! Use of limits, which goes to another daemon with the clients: a takeover buys no burst.

use tidegate_core::engine::LimitId;
use tidegate_core::roles::Consumed;
use tidegate_core::time::Nanos;

use super::Loop;
use crate::command::{LimitName, LimitUse};

/// Returns what is used up of all limits that have a rate, with the time.
pub(super) fn export(event_loop: &mut Loop) -> (Nanos, Vec<LimitUse>) {
    let now = event_loop.now;
    let limits = named_limits(event_loop);
    let mut vms = event_loop.engine.vms_mut();
    let used = limits.into_iter().filter_map(|(limit, id)| {
        let consumed = vms.consumed(now, id);
        (consumed != Consumed::default()).then_some(LimitUse { limit, consumed })
    });
    (now, used.collect())
}

/// Has limits owe what was used up of them at `at` in another daemon.
pub(super) fn import(event_loop: &mut Loop, at: Nanos, used: &[LimitUse]) {
    let now = event_loop.now;
    let limits = named_limits(event_loop);
    let mut vms = event_loop.engine.vms_mut();
    for (limit, id) in limits {
        if let Some(of_limit) = used.iter().find(|it| it.limit == limit) {
            vms.adopt_consumed(now, id, &of_limit.consumed, now - at);
        }
    }
}

/// Returns the names of all VMs, disks and limit groups, which may have limits.
fn named_limits(event_loop: &Loop) -> Vec<(LimitName, LimitId)> {
    let vms = event_loop.vms.iter().filter(|(_, vm)| !vm.is_removed);
    let vms = vms.map(|(_, vm)| (LimitName::Vm(vm.name.clone()), LimitId::Vm(vm.id)));
    let disks = event_loop.device.disks.iter();
    let disks = disks.map(|(_, state)| {
        let export = state.disk.export.clone();
        (LimitName::Disk(export), LimitId::Disk(state.id))
    });
    let groups = event_loop.device.limit_groups.iter();
    let groups = groups.map(|group| {
        let name = group.config.name.clone();
        (LimitName::Group(name), LimitId::Shared(group.id))
    });
    vms.chain(disks).chain(groups).collect()
}
