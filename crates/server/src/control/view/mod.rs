//! What the API says, as JSON. Figures carry their unit in their name; rates and sizes that
//! were configured are text with units, exactly as the configuration takes them.

mod device;
mod fault;
mod job;
mod policy;
mod schedule;

use serde::{Deserialize, Serialize};
use tidegate_config::told::TuningView;
use tidegate_core::objective::Objective;
use tidegate_core::part::Honours;

use crate::command::{DeviceSnapshot, VmSnapshot};
use crate::config;

pub use crate::config::{BurstView, ExpectsView, GroupView, LimitView, ObjectiveView};
pub use device::{CapView, CostView, CostsView, DriftView};
pub use fault::{DiskFaultsView, FaultView};
pub(crate) use job::At;
pub use job::{EndedJobView, EndedJobsView, JobView, VmJobsView};
pub use policy::{ParamValue, ParamView, PolicyInfoView, PolicyPartView, PolicyView};
pub use schedule::{NextView, ScheduleView};

/// A device as it stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeviceView {
    /// Its name.
    pub name: String,
    /// What it is made of, for people.
    pub backing: String,
    /// The policy in force.
    pub policy: PolicyView,
    /// I/Os in flight at most.
    pub depth: u32,
    /// The largest device I/O.
    pub max_io_bytes: u32,
    /// I/Os with the device now.
    pub in_flight: u32,
    /// I/Os with the device that do not count against its queue depth, because their disks hang.
    #[serde(default)]
    pub uncounted: u32,
    /// Age of the oldest I/O with the device in nanoseconds; absent while there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_io_ns: Option<u64>,
    /// Guest requests inside the engine.
    pub requests: u32,
    /// Units waiting for the device.
    pub queued: u32,
    /// I/Os handed to the device since the start.
    pub started: u64,
    /// I/Os that ended.
    pub ended: u64,
    /// I/Os that failed.
    pub errors: u64,
    /// Time in which room was left unused on purpose.
    pub deliberate_ns: u64,
    /// How often the policy in force waited for a request that might come; absent where it never
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitsView>,
    /// How it compares with its profile; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftView>,
    /// The cap below it that was learnt; absent where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learnt_cap: Option<CapView>,
    /// I/Os in flight that were found to be enough for its throughput; absent where the depth is as
    /// it was configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapted_depth: Option<u32>,
    /// What requests cost of it, as far as it was learnt; absent where the policy does not reckon with it,
    /// or there is a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learnt_costs: Option<CostsView>,
    /// Its VMs.
    pub vms: Vec<String>,
    /// Exports that misbehave on purpose; absent where none does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks_with_faults: Vec<String>,
    /// What was promised to them and is not enforced.
    pub not_enforced: Vec<DevicePart>,
    /// The loop's clock when this was taken.
    pub taken_at_ns: u64,
}

/// Waits for requests that might come, since the policy took over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WaitsView {
    /// Waits begun.
    pub begun: u64,
    /// Those that such a request ended.
    pub succeeded: u64,
}

/// A part of a VM's objective that its device's policy does not enforce.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DevicePart {
    /// The VM.
    pub vm: String,
    /// The part.
    #[serde(flatten)]
    pub part: PartView,
}

/// A part of an objective that is not enforced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PartView {
    /// Such as `limit.burst`.
    pub part: String,
    /// What was promised.
    pub value: String,
    /// Policies that would enforce it.
    pub enforced_by: Vec<String>,
}

/// Request slots and payload memory of a VM, as its incoming requests take them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct IntakeView {
    /// Request slots that the VM holds.
    pub slots: u64,
    /// Guaranteed part of the device's request slots.
    pub slots_part: u64,
    /// Payload memory that the VM holds, in bytes.
    pub payload_bytes: u64,
    /// Guaranteed part of the payload memory for writes, in bytes; reads have as much again.
    pub payload_part_bytes: u64,
    /// Connections that are not read from because the VM has no request slot or payload memory
    /// left.
    pub waiting_connections: u32,
}

/// A VM as it stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VmView {
    /// Its name.
    pub name: String,
    /// Its device.
    pub device: String,
    /// The policy in force there.
    pub policy: String,
    /// A process of the host, such as a backup: it has what the VMs leave.
    pub background: bool,
    /// The objective in force.
    pub objective: ObjectiveView,
    /// What of it changes by the clock; absent where nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleView>,
    /// What of it the policy in force does not enforce.
    pub not_enforced: Vec<PartView>,
    /// Its disks.
    pub disks: Vec<DiskView>,
    /// Connected clients.
    pub clients: u32,
    /// Most NBD connections to the VM at a time.
    #[serde(default = "default_max_connections")]
    pub max_connections: u32,
    /// Connections refused since the VM was added, for the VM's maximum or the device's.
    #[serde(default)]
    pub connections_refused: u64,
    /// Requests waiting.
    pub pending: u32,
    /// Device I/Os in flight.
    pub in_flight: u32,
    /// Request slots and payload memory; all zero from daemons without these figures.
    #[serde(default)]
    pub intake: IntakeView,
    /// How it is tuned to its target; absent where nothing tunes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<TuningView>,
    /// Its job that runs; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobView>,
    /// What somebody has to do for the change that was just made to last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A disk as it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskView {
    /// NBD export name.
    pub export: String,
    /// Its size.
    pub size_bytes: u64,
    /// Why it refuses requests; `null` while it is well.
    pub failed: Option<String>,
    /// Age of the disk's oldest I/O with the device in nanoseconds; absent while it has none there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_io_ns: Option<u64>,
    /// Nanoseconds since an I/O of the disk last ended, while the disk hangs; absent otherwise. A
    /// hung disk gets one I/O at a time and other disks go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hung_for_ns: Option<u64>,
    /// Rules by which it misbehaves on purpose.
    #[serde(default)]
    pub fault_rules: u32,
    /// Requests that these, and earlier ones, have struck since the daemon started.
    #[serde(default)]
    pub faults_injected: u64,
}

impl DeviceView {
    /// Shows a snapshot.
    pub fn new(snapshot: &DeviceSnapshot) -> DeviceView {
        let facts = &snapshot.facts;
        let not_enforced = snapshot.vms.iter().flat_map(|vm| {
            parts(&vm.objective, &vm.honours, vm.background)
                .into_iter()
                .map(|part| DevicePart {
                    vm: vm.name.clone(),
                    part,
                })
        });
        DeviceView {
            name: snapshot.name.clone(),
            backing: snapshot.backing.clone(),
            policy: PolicyView::new(&*snapshot.policy),
            depth: facts.spec.depth,
            max_io_bytes: facts.spec.max_io,
            in_flight: facts.in_flight,
            uncounted: snapshot.uncounted,
            oldest_io_ns: snapshot.oldest_io.map(|age| age.0),
            requests: facts.requests,
            queued: facts.queued,
            started: facts.started,
            ended: facts.ended,
            errors: facts.errors,
            deliberate_ns: facts.deliberate.0,
            waits: snapshot.waits.map(|waits| WaitsView {
                begun: waits.begun,
                succeeded: waits.succeeded,
            }),
            drift: snapshot.drift.as_ref().map(DriftView::new),
            learnt_cap: snapshot.learnt_cap.as_ref().map(CapView::new),
            adapted_depth: snapshot.adapted_depth,
            learnt_costs: snapshot.learnt_costs.as_ref().map(CostsView::new),
            vms: snapshot.vms.iter().map(|vm| vm.name.clone()).collect(),
            disks_with_faults: (snapshot.vms.iter())
                .flat_map(|vm| &vm.disks)
                .filter(|disk| !disk.faults.is_empty())
                .map(|disk| disk.export.clone())
                .collect(),
            not_enforced: not_enforced.collect(),
            taken_at_ns: snapshot.taken_at.0,
        }
    }
}

impl VmView {
    /// Shows a snapshot, which knows of no schedule and not what time of day it is.
    pub fn new(snapshot: &VmSnapshot) -> VmView {
        let connections = snapshot.connections.counts();
        VmView {
            name: snapshot.name.clone(),
            device: snapshot.device.clone(),
            policy: snapshot.policy.clone(),
            background: snapshot.background,
            objective: ObjectiveView::new(&snapshot.objective),
            schedule: None,
            not_enforced: parts(&snapshot.objective, &snapshot.honours, snapshot.background),
            disks: (snapshot.disks.iter())
                .map(|disk| DiskView {
                    export: disk.export.clone(),
                    size_bytes: disk.size,
                    failed: disk.failed.clone(),
                    oldest_io_ns: disk.oldest_io.map(|age| age.0),
                    hung_for_ns: disk.hung.map(|silence| silence.0),
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
            tuning: snapshot.tuning.as_ref().map(TuningView::new),
            job: None,
            notes: Vec::new(),
        }
    }
}

/// Returns the maximum assumed for a daemon that does not report `max_connections`.
fn default_max_connections() -> u32 {
    config::vm::DEFAULT_MAX_CONNECTIONS
}

/// What of an objective is not enforced.
pub(crate) fn parts(objective: &Objective, honours: &Honours, background: bool) -> Vec<PartView> {
    let view = |part: config::Unenforced| PartView {
        part: part.part.to_owned(),
        value: part.value,
        enforced_by: part
            .enforced_by
            .iter()
            .map(|&name| name.to_owned())
            .collect(),
    };
    config::unenforced(objective, honours, background)
        .into_iter()
        .map(view)
        .collect()
}
