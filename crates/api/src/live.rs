//! Live figures of devices and VMs, as server-sent events.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::objective::ObjectiveView;
use crate::stats::AccountView;

/// Data of an event `sample` of `GET /v1/events`, which is sent once a second.
///
/// Rates, latencies and times are those since the event before. A figure of that kind is absent in
/// the first event and for a VM without requests in between.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LiveView {
    /// Time of the event in milliseconds since 1970.
    pub at_ms: u64,
    /// Devices in the order of the configuration.
    pub devices: Vec<LiveDeviceView>,
    /// VMs in the order of the devices.
    pub vms: Vec<LiveVmView>,
}

/// Live figures of a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LiveDeviceView {
    /// Name of the device.
    pub name: String,
    /// Kind of the device, for people: `emulated hdd-7200-1tb`, `files`, `memory`.
    pub backing: String,
    /// Name of the policy in force.
    pub policy: String,
    /// Queue depth in force.
    pub depth: u32,
    /// Device I/Os in flight.
    pub in_flight: u32,
    /// Units (requests after merging) waiting in the scheduler.
    pub queued: u32,
    /// Age of the oldest I/O in flight in nanoseconds; absent while none is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_io_ns: Option<u64>,
    /// I/Os a second that ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ios_per_s: Option<f64>,
    /// I/Os that failed since the daemon started.
    pub errors: u64,
    /// True if all promises on the device fit it; absent while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fits: Option<bool>,
}

/// Live figures of a VM, or of a background process of the host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LiveVmView {
    /// Name of the VM.
    pub vm: String,
    /// Name of its device.
    pub device: String,
    /// True for a process of the host, which gets what the VMs leave.
    pub background: bool,
    /// Objective in force.
    pub objective: ObjectiveView,
    /// Judged parts of the objective.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attainment: Vec<LiveAttainmentView>,
    /// True if the policy in force does not enforce the whole objective.
    pub unenforced: bool,
    /// Disks that refuse requests.
    pub failed_disks: u32,
    /// NBD connections to the VM.
    pub clients: u32,
    /// Requests waiting in the scheduler.
    pub pending: u32,
    /// Device I/Os in flight.
    pub in_flight: u32,
    /// Requests that failed since the VM was added.
    pub errors: u64,
    /// Successful requests of all operations a second: reads, writes, flushes, discards and zeroes;
    /// absent from older daemons as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<f64>,
    /// Successful reads a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_per_s: Option<f64>,
    /// Successful writes a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_per_s: Option<f64>,
    /// Bytes read a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes_per_s: Option<u64>,
    /// Bytes written a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bytes_per_s: Option<u64>,
    /// Median of the latencies in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    /// 99th percentile of the latencies in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// Time of the requests by what they waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountView>,
}

/// Attainment of one part of an objective, in short.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LiveAttainmentView {
    /// Part of the objective: `reservation`, `latency`, `target`, `limit` or `transfer`.
    pub part: String,
    /// True if the part is kept; absent while there was nothing to judge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<bool>,
    /// Share of judged seconds that were kept, in per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_percent: Option<f64>,
    /// Seconds missed in the last five minutes.
    pub missed_lately_s: u32,
    /// True for a latency bound without a reservation or target, which is best effort.
    pub best_effort: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::round_trip;

    #[test]
    fn figures_that_are_not_there_are_absent() {
        let vm = LiveVmView {
            vm: "db".to_owned(),
            device: "disk0".to_owned(),
            background: false,
            objective: ObjectiveView::default(),
            attainment: Vec::new(),
            unenforced: false,
            failed_disks: 0,
            clients: 1,
            pending: 2,
            in_flight: 3,
            errors: 0,
            requests_per_s: None,
            reads_per_s: None,
            writes_per_s: None,
            read_bytes_per_s: None,
            write_bytes_per_s: None,
            p50_ns: None,
            p99_ns: None,
            account: None,
        };
        let device = LiveDeviceView {
            name: "disk0".to_owned(),
            backing: "memory".to_owned(),
            policy: "slo".to_owned(),
            depth: 32,
            in_flight: 3,
            queued: 2,
            oldest_io_ns: None,
            ios_per_s: Some(7.5),
            errors: 0,
            fits: None,
        };
        let (devices, vms) = (vec![device], vec![vm]);
        let live = LiveView {
            at_ms: 7,
            devices,
            vms,
        };
        let objective = serde_json::to_string(&ObjectiveView::default()).expect("plain data");
        let text = format!(
            "{}{}{}{}{}",
            concat!(
                r#"{"at_ms":7,"devices":[{"name":"disk0","backing":"memory","#,
                r#""policy":"slo","depth":32,"#
            ),
            r#""in_flight":3,"queued":2,"ios_per_s":7.5,"errors":0}],"#,
            r#""vms":[{"vm":"db","device":"disk0","background":false,"objective":"#,
            objective,
            concat!(
                r#","unenforced":false,"failed_disks":0,"clients":1,"pending":2,"in_flight":3,"#,
                r#""errors":0}]}"#
            ),
        );
        round_trip(&live, &text);
    }
}
