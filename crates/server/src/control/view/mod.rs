//! Answers of the API, built from snapshots, policies and objectives. The types are those of
//! [`tidegate_api`]; configured rates and sizes are text with units, as the configuration takes
//! them.

mod device;
mod endpoints;
mod fault;
mod live;
mod policy;
mod schedule;
mod stats;
mod transfer;

use tidegate_api::device::{DevicePart, DeviceView, LimitGroupView, WaitsView};
use tidegate_api::disk::{DiskView, Inactive};
use tidegate_api::vm::{IntakeView, PartView, VmView};
use tidegate_config::stat_views;
use tidegate_core::objective::Objective;
use tidegate_core::part::Enforces;

use crate::backing::ActivationState;
use crate::command::{DeviceSnapshot, VmSnapshot};
use crate::config;

pub use crate::config::objective_view as objective;
pub use endpoints::disk_endpoints;
pub(crate) use fault::disk_faults;
pub(crate) use live::live;
pub use policy::{params, policies, policy, policy_parts};
pub(crate) use schedule::schedule;
pub(crate) use stats::{Buckets, device_times, stats};
use tidegate_config::objective_view::limit_view;
pub(crate) use transfer::{DisplayTime, transfer, vm_transfers};

/// Returns the view of a device.
pub(crate) fn device(snapshot: &DeviceSnapshot) -> DeviceView {
    let stats = &snapshot.stats;
    let not_enforced = snapshot.vms.iter().flat_map(|vm| {
        unenforced_parts(&vm.objective, &vm.enforces, vm.background)
            .into_iter()
            .map(|part| DevicePart {
                vm: vm.name.clone(),
                part,
            })
    });
    DeviceView {
        name: snapshot.name.clone(),
        backing: snapshot.backing.clone(),
        policy: policy(&*snapshot.policy),
        depth: stats.spec.depth,
        max_io_bytes: stats.spec.max_io,
        in_flight: stats.in_flight,
        uncounted: snapshot.uncounted,
        oldest_io_ns: snapshot.oldest_io.map(|age| age.0),
        requests: stats.requests,
        queued: stats.queued,
        started: stats.started,
        ended: stats.ended,
        errors: stats.errors,
        deliberate_ns: stats.deliberate.0,
        waits: snapshot.waits.map(|waits| WaitsView {
            begun: waits.begun,
            succeeded: waits.succeeded,
        }),
        drift: snapshot.drift.as_ref().map(device::drift),
        learnt_cap: snapshot.learnt_cap.as_ref().map(device::cap),
        adapted_depth: snapshot.adapted_depth.map(|adapted| adapted.depth),
        depth_reason: (snapshot.adapted_depth)
            .map(|adapted| device::depth_reason(&adapted.reason, &snapshot.vms)),
        blocking_ns: snapshot.blocking.0,
        feasibility: snapshot.feasibility.as_ref().map(device::feasibility),
        stepped_down: device::stepped_down(snapshot.stepped_down),
        write_pace_bytes_per_s: snapshot.write_pace,
        learnt_costs: snapshot.learnt_costs.as_ref().map(device::costs),
        exchange: snapshot.exchange.as_ref().map(device::exchange),
        vms: snapshot.vms.iter().map(|vm| vm.name.clone()).collect(),
        disks_with_faults: (snapshot.vms.iter())
            .flat_map(|vm| &vm.disks)
            .filter(|disk| !disk.faults.is_empty())
            .map(|disk| disk.export.clone())
            .collect(),
        limit_groups: (snapshot.limit_groups.iter())
            .map(|group| LimitGroupView {
                name: group.name.clone(),
                limit: limit_view(&group.limit),
            })
            .collect(),
        not_enforced: not_enforced.collect(),
        taken_at_ns: snapshot.taken_at.0,
    }
}

/// Returns the view of a VM, without its schedule and its transfer, which the snapshot does not
/// hold.
pub(crate) fn vm(snapshot: &VmSnapshot) -> VmView {
    let connections = snapshot.connections.counts();
    VmView {
        name: snapshot.name.clone(),
        device: snapshot.device.clone(),
        policy: snapshot.policy.clone(),
        background: snapshot.background,
        objective: objective(&snapshot.objective),
        feasible: feasible(snapshot).map(str::to_owned),
        schedule: None,
        not_enforced: unenforced_parts(
            &snapshot.objective,
            &snapshot.enforces,
            snapshot.background,
        ),
        disks: (snapshot.disks.iter())
            .map(|disk| DiskView {
                export: disk.export.clone(),
                size_bytes: disk.size,
                failed: disk.failed.clone(),
                unreachable: disk.unreachable.clone(),
                inactive: disk.activation.and_then(inactive),
                oldest_io_ns: disk.oldest_io.map(|age| age.0),
                hung_for_ns: disk.hung.map(|silence| silence.0),
                limit: limit_view(&disk.limit),
                limit_group: disk.limit_group.clone(),
                fault_rules: disk.faults.len() as u32,
                faults_injected: disk.faults_injected,
            })
            .collect(),
        clients: snapshot.clients,
        max_connections: connections.max,
        connections_refused: connections.refused,
        pending: snapshot.pending,
        in_flight: snapshot.in_flight,
        intake: IntakeView {
            slots: snapshot.holdings.slots,
            slots_part: snapshot.holdings.slots_part,
            payload_bytes: snapshot.holdings.payload,
            payload_part_bytes: snapshot.holdings.payload_part,
            waiting_connections: snapshot.stalled,
        },
        attainment: (snapshot.attainment.iter())
            .map(stat_views::attainment::view)
            .collect(),
        tuning: snapshot.tuning.as_ref().map(stat_views::tuning),
        transfer: None,
        notes: Vec::new(),
    }
}

/// Returns the view of a disk that is not served; `None` for one that is.
fn inactive(state: ActivationState) -> Option<Inactive> {
    match state {
        ActivationState::Active => None,
        ActivationState::Incoming => Some(Inactive::Incoming),
        ActivationState::HandedOver => Some(Inactive::HandedOver),
        ActivationState::LockedElsewhere => Some(Inactive::LockedElsewhere),
    }
}

/// Returns whether the objectives on a VM's device fit together, in words; `None` if the VM has no
/// objective that takes device time.
fn feasible(vm: &VmSnapshot) -> Option<&'static str> {
    let Objective {
        reservation,
        target,
        latency,
        ..
    } = &vm.objective;
    let promised = !reservation.is_none() || !target.is_none() || latency.is_some();
    // The verdict is that of the device; it concerns only VMs that are promised device time.
    let takes_time = !vm.background && (promised || vm.transfers.running.is_some());
    let words = match vm.feasibility {
        None => "not yet known",
        Some(found) if found.fits => "fits",
        Some(_) => "does not fit",
    };
    takes_time.then_some(words)
}

/// Returns the parts of an objective that are not among those that a policy enforces.
pub(crate) fn unenforced_parts(
    objective: &Objective,
    enforces: &Enforces,
    background: bool,
) -> Vec<PartView> {
    let view = |part: config::Unenforced| PartView {
        part: part.part.to_owned(),
        value: part.value,
        enforced_by: part
            .enforced_by
            .iter()
            .map(|&name| name.to_owned())
            .collect(),
    };
    config::unenforced(objective, enforces, background)
        .into_iter()
        .map(view)
        .collect()
}
