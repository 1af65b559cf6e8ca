//! VMs, and background processes of the host, which have the same type.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::attainment::AttainmentView;
use crate::change::{ObjectiveChange, is_false};
use crate::disk::{DiskRequest, DiskView};
use crate::objective::ObjectiveView;
use crate::schedule::ScheduleView;
use crate::transfer::TransferView;
use crate::tuning::TuningView;

/// Default maximum number of NBD connections of a VM; assumed of daemons that do not report it.
pub const DEFAULT_MAX_CONNECTIONS: u32 = 64;

/// State of a VM at the time of the answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VmView {
    /// Name of the VM.
    pub name: String,
    /// Name of its device.
    pub device: String,
    /// Name of the policy in force on the device.
    pub policy: String,
    /// True for a process of the host, such as a backup, which gets what the VMs leave.
    pub background: bool,
    /// Objective in force.
    pub objective: ObjectiveView,
    /// Feasibility of all promises on the device together: `fits`, `does not fit`, or `not yet
    /// known` until the costs of requests are known. Absent for a VM that is promised neither a
    /// rate nor a latency, and from daemons without this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feasible: Option<String>,
    /// Schedule of the objective; absent where it does not change by the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleView>,
    /// Parts of the objective that the policy in force does not enforce.
    pub not_enforced: Vec<PartView>,
    /// Disks of the VM.
    pub disks: Vec<DiskView>,
    /// NBD connections to the VM.
    pub clients: u32,
    /// Maximum number of NBD connections to the VM at a time.
    #[serde(default = "default_max_connections")]
    pub max_connections: u32,
    /// Connections refused since the VM was added, because of the VM's maximum or the device's.
    #[serde(default)]
    pub connections_refused: u64,
    /// Requests waiting in the scheduler.
    pub pending: u32,
    /// Device I/Os in flight.
    pub in_flight: u32,
    /// Request slots and payload memory; all zero from daemons without these figures.
    #[serde(default)]
    pub intake: IntakeView,
    /// Attainment of each judged part of the objective; empty from daemons without this field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attainment: Vec<AttainmentView>,
    /// Tuner of the VM's target; absent where no tuner runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning: Option<TuningView>,
    /// Running deadline transfer; absent where none runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "job")]
    pub transfer: Option<TransferView>,
    /// Steps that remain for the operator, such as making the change in the configuration file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Part of an objective that the policy in force does not enforce.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PartView {
    /// Name of the part, such as `limit.burst`.
    pub part: String,
    /// Value that was promised, with its unit.
    pub value: String,
    /// Policies that would enforce it.
    pub enforced_by: Vec<String>,
}

/// Request slots and payload memory that a VM's requests occupy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
pub struct IntakeView {
    /// Request slots that the VM holds.
    pub slots: u64,
    /// Guaranteed share of the device's request slots.
    pub slots_part: u64,
    /// Payload memory that the VM holds, in bytes.
    pub payload_bytes: u64,
    /// Guaranteed share of the payload memory for writes, in bytes; reads have as much again.
    pub payload_part_bytes: u64,
    /// Connections that are not read from because the VM has no request slot or payload memory
    /// left.
    pub waiting_connections: u32,
}

/// Returns the maximum assumed for a daemon that does not report `max_connections`.
fn default_max_connections() -> u32 {
    DEFAULT_MAX_CONNECTIONS
}

/// Body of `PUT /v1/vms/{name}`: a `[[vm]]` of the configuration.
///
/// If the VM exists, its objective and `max_connections` are changed, and any other difference is
/// refused.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VmRequest {
    /// Name of the VM; taken from the path where left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of the device; may be left out if the daemon has one device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Marks a process of the host, which gets what the VMs leave.
    #[serde(skip_serializing_if = "is_false")]
    pub background: bool,
    /// Maximum number of NBD connections at a time, 1 to 4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// Objective to set.
    #[serde(skip_serializing_if = "ObjectiveChange::is_empty")]
    pub objective: ObjectiveChange,
    /// Disks, at least one.
    pub disk: Vec<DiskRequest>,
}

/// Answer to the removal of a VM, of a disk, or of the persisted record of a disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Removed {
    /// Name of the VM, or export name or path of the disk.
    pub removed: String,
    /// Disks that could not be flushed, and why; their last writes may be lost.
    pub not_flushed: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use crate::test_json::{refuses_unknown, round_trip};

    fn vm() -> VmView {
        VmView {
            attainment: Vec::new(),
            name: "oltp".to_owned(),
            device: "disk0".to_owned(),
            policy: "fifo".to_owned(),
            background: false,
            objective: ObjectiveView::default(),
            feasible: None,
            schedule: None,
            not_enforced: Vec::new(),
            disks: Vec::new(),
            clients: 3,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            connections_refused: 0,
            pending: 40,
            in_flight: 16,
            intake: IntakeView::default(),
            tuning: None,
            transfer: None,
            notes: Vec::new(),
        }
    }

    /// Text of [`vm`] around the objective, before `tuning`.
    fn text(connections: &str, intake: &str) -> String {
        let objective = serde_json::to_string(&ObjectiveView::default()).expect("plain data");
        let name = r#"{"name":"oltp","device":"disk0","policy":"fifo","background":false,"#;
        let disks = r#""not_enforced":[],"disks":[],"clients":3,"#;
        let now = r#""pending":40,"in_flight":16"#;
        format!(r#"{name}"objective":{objective},{disks}{connections}{now}{intake}"#)
    }

    const CONNECTIONS: &str = r#""max_connections":64,"connections_refused":0,"#;
    const INTAKE: &str = concat!(
        r#","intake":{"slots":0,"slots_part":0,"payload_bytes":0,"payload_part_bytes":0,"#,
        r#""waiting_connections":0}"#,
    );

    #[test]
    fn what_a_vm_does_not_have_is_absent() {
        round_trip(&vm(), &(text(CONNECTIONS, INTAKE) + "}"));
        // Daemons that know neither maxima of connections nor guaranteed parts.
        let early: VmView = serde_json::from_str(&(text("", "") + "}")).expect("complete");
        assert_eq!(early, vm());
    }

    #[test]
    fn a_vm_shows_whether_its_promise_can_be_kept() {
        let vm = VmView {
            feasible: Some("not yet known".to_owned()),
            ..vm()
        };
        let shown = text(CONNECTIONS, INTAKE) + "}";
        let known = r#""feasible":"not yet known","not_enforced""#;
        round_trip(&vm, &shown.replace(r#""not_enforced""#, known));
    }

    #[test]
    fn a_vm_shows_notes_and_tuning_behind_its_counters() {
        let vm = VmView {
            tuning: Some(TuningView {
                merge_limit_bytes: None,
                throttle: None,
                window_ns: 5,
                settled: false,
                aim_bytes_per_s: None,
                range: None,
                profiling: None,
                error_percent: None,
                variability_percent: None,
                inadequate: None,
            }),
            notes: vec!["a note".to_owned()],
            ..vm()
        };
        let tail = r#","tuning":{"window_ns":5,"settled":false},"notes":["a note"]}"#;
        round_trip(&vm, &(text(CONNECTIONS, INTAKE) + tail));
    }

    #[test]
    fn a_request_names_what_was_asked_for() {
        let request = VmRequest {
            disk: vec![DiskRequest::default()],
            ..VmRequest::default()
        };
        round_trip(&request, r#"{"disk":[{}]}"#);
        let request = VmRequest {
            name: Some("oltp".to_owned()),
            device: Some("disk0".to_owned()),
            background: true,
            max_connections: Some(7),
            objective: ObjectiveChange {
                weight: Change::Set(7),
                ..ObjectiveChange::default()
            },
            disk: vec![DiskRequest {
                size: Some("1 GiB".to_owned()),
                ..DiskRequest::default()
            }],
        };
        let head = r#"{"name":"oltp","device":"disk0","background":true,"max_connections":7,"#;
        let tail = r#""objective":{"weight":7},"disk":[{"size":"1 GiB"}]}"#;
        round_trip(&request, &format!("{head}{tail}"));
        refuses_unknown::<VmRequest>(r#"{"colour":"red","disk":[]}"#, "colour");
    }

    #[test]
    fn a_removal_names_what_could_not_be_flushed() {
        let removed = Removed {
            removed: "oltp".to_owned(),
            not_flushed: vec!["EIO".to_owned()],
        };
        round_trip(&removed, r#"{"removed":"oltp","not_flushed":["EIO"]}"#);
        let part = PartView {
            part: "limit.burst".to_owned(),
            value: "5 IOPS".to_owned(),
            enforced_by: vec!["token-bucket+mclock".to_owned()],
        };
        let text =
            r#"{"part":"limit.burst","value":"5 IOPS","enforced_by":["token-bucket+mclock"]}"#;
        round_trip(&part, text);
    }
}
