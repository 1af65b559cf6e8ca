//! Snapshot of a device with any number of VMs, for unit tests.

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::objective::{Limit, Objective};
use tidegate_core::policy::Policy;
use tidegate_core::request::VmId;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;

use super::{DeviceSnapshot, DiskSnapshot, VmSnapshot};
use crate::connections::DeviceConnections;
use crate::transfer::VmTransfers;

/// Returns the snapshot of a device under mClock, whose first VM has a reservation and a latency.
pub(crate) fn snapshot(name: &str, vms: &[&str]) -> DeviceSnapshot {
    let policy = PolicySpec::named("mclock").expect("mclock is registered");
    let engine = Engine::new(EngineConfig::default(), &policy).expect("defaults are good");
    let vm = |(index, vm): (usize, &&str)| VmSnapshot {
        background: false,
        id: VmId::from_bits(index as u64),
        name: (*vm).to_owned(),
        device: name.to_owned(),
        policy: policy.name().to_owned(),
        objective: objective(index),
        feasibility: None,
        enforces: policy.enforces(),
        disks: vec![disk(vm)],
        clients: 1,
        pending: 0,
        in_flight: 0,
        holdings: Default::default(),
        stalled: 0,
        reply_time: Default::default(),
        stats: Box::default(),
        times: Box::default(),
        seconds: Default::default(),
        attainment: Vec::new(),
        tuning: None,
        transfers: VmTransfers::default(),
        connections: DeviceConnections::new(100).add_vm(64),
    };
    DeviceSnapshot {
        name: name.to_owned(),
        backing: "memory".to_owned(),
        policy: policy.to_shared(),
        stats: engine.device_stats(),
        waits: engine.device().waits(),
        drift: engine.device().drift(),
        learnt_cap: engine.device().learnt_cap(),
        adapted_depth: engine.device().adapted(),
        blocking: engine.device().blocking_time(),
        feasibility: engine.device().feasibility(),
        stepped_down: engine.device().stepped_down(),
        write_pace: engine.device().write_pace(),
        learnt_costs: engine.device().learnt_costs(),
        costs: engine.device().cost_source(),
        uncounted: 0,
        oldest_io: None,
        limit_groups: Vec::new(),
        recording: None,
        exchange: None,
        vms: vms.iter().enumerate().map(vm).collect(),
        taken_at: Nanos::from_secs(1),
    }
}

fn disk(export: &str) -> DiskSnapshot {
    DiskSnapshot {
        export: export.to_owned(),
        size: 1 << 30,
        failed: None,
        unreachable: None,
        no_space: None,
        activation: None,
        media: None,
        oldest_io: None,
        hung: None,
        limit: Limit::NONE,
        limit_group: None,
        faults: Vec::new(),
        faults_injected: 0,
        bounced: 0,
    }
}

/// Returns the objective of a VM: that of the first has a reservation and a latency bound.
fn objective(index: usize) -> Objective {
    match index {
        0 => Objective {
            reservation: tidegate_core::objective::Rate::iops(120),
            latency: Some(Nanos::from_millis(30)),
            ..Objective::default()
        },
        _ => Objective::default(),
    }
}
