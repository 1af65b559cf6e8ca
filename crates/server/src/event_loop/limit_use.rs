//! Use of limits, which goes to another daemon with the clients: a takeover buys no burst.

use std::collections::HashMap;

use tidegate_core::engine::LimitId;
use tidegate_core::limit_accounts::convert;
use tidegate_core::objective::Limit;
use tidegate_core::roles::Consumed;
use tidegate_core::time::Nanos;

use super::Loop;
use crate::command::{LimitName, LimitUse};

/// Limit in force.
struct NamedLimit {
    name: LimitName,
    id: LimitId,
    limit: Limit,
}

/// Returns what is used up of all limits that have a rate, with the time.
pub(super) fn export(event_loop: &mut Loop) -> (Nanos, Vec<LimitUse>) {
    let now = event_loop.now;
    let limits = named_limits(event_loop);
    let mut vms = event_loop.engine.vms_mut();
    let used = limits.into_iter().filter_map(|named| {
        let consumed = vms.consumed(now, named.id);
        (consumed != Consumed::default()).then_some(LimitUse {
            limit: named.name,
            consumed,
            under: Some(named.limit),
        })
    });
    (now, used.collect())
}

/// Has limits owe what was used up of them at `at` in another daemon. The operator may have changed
/// them in the file since.
pub(super) fn import(event_loop: &mut Loop, at: Nanos, used: &[LimitUse]) {
    let now = event_loop.now;
    // Clients are paused meanwhile, and there may be thousands of limits.
    let used: HashMap<_, _> = used.iter().map(|it| (&it.limit, it)).collect();
    let limits = named_limits(event_loop);
    let mut vms = event_loop.engine.vms_mut();
    for named in limits {
        if let Some(of_limit) = used.get(&named.name) {
            let consumed = of_limit.consumed.after(now - at);
            let consumed = match &of_limit.under {
                Some(was) => convert(&consumed, was, &named.limit),
                None => consumed,
            };
            vms.adopt_consumed(now, named.id, &consumed);
        }
    }
}

/// Returns the limits of all VMs, disks and limit groups, also those without a rate.
fn named_limits(event_loop: &Loop) -> Vec<NamedLimit> {
    let engine = event_loop.engine.vms();
    let vms = event_loop.vms.iter().filter(|(_, vm)| !vm.is_removed);
    let vms = vms.map(|(_, vm)| NamedLimit {
        name: LimitName::Vm(vm.name.clone()),
        id: LimitId::Vm(vm.id),
        limit: engine.objective(vm.id).limit,
    });
    let disks = event_loop.device.disks.iter();
    let disks = disks.map(|(_, state)| NamedLimit {
        name: LimitName::Disk(state.disk.export.clone()),
        id: LimitId::Disk(state.id),
        limit: state.disk.limit,
    });
    let groups = event_loop.device.limit_groups.iter();
    let groups = groups.map(|group| NamedLimit {
        name: LimitName::Group(group.config.name.clone()),
        id: LimitId::Shared(group.id),
        limit: group.config.limit,
    });
    vms.chain(disks).chain(groups).collect()
}
