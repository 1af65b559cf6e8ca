//! Devices.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::objective::LimitView;
use crate::policy::PolicyView;
use crate::vm::PartView;

/// State of a device at the time of the answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeviceView {
    /// Name of the device.
    pub name: String,
    /// Kind of the device, for people: `emulated hdd-7200-1tb`, `files`, `memory`.
    pub backing: String,
    /// Policy in force.
    pub policy: PolicyView,
    /// Configured queue depth: maximum number of I/Os in flight. See `adapted_depth` for the one in
    /// force.
    pub depth: u32,
    /// Size of the largest device I/O.
    pub max_io_bytes: u32,
    /// Device I/Os in flight.
    pub in_flight: u32,
    /// I/Os in flight that do not count against the queue depth, because their disks hang.
    #[serde(default)]
    pub uncounted: u32,
    /// Age of the oldest I/O in flight in nanoseconds; absent while none is in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_io_ns: Option<u64>,
    /// Guest requests inside the engine.
    pub requests: u32,
    /// Units (requests after merging) waiting in the scheduler.
    pub queued: u32,
    /// I/Os handed to the device since the daemon started.
    pub started: u64,
    /// I/Os completed since the daemon started.
    pub ended: u64,
    /// I/Os failed since the daemon started.
    pub errors: u64,
    /// Time in nanoseconds in which the policy kept the device idle on purpose.
    pub deliberate_ns: u64,
    /// Waits for requests that might arrive (anticipation); absent where the policy never waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitsView>,
    /// Comparison with the device's profile; absent where the device has no profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftView>,
    /// Throughput limit imposed by the layer under the device, such as a cloud volume's provisioned
    /// IOPS, as learnt by the device monitor; absent where none was learnt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learnt_cap: Option<CapView>,
    /// Adapted queue depth: I/Os in flight that full throughput needs, within all bounds; absent
    /// where the depth is the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapted_depth: Option<u32>,
    /// Reason for the adapted depth, for people; absent where the depth is the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth_reason: Option<String>,
    /// Upper bound, in nanoseconds, on the extra delay of a request within its reservation that
    /// I/Os already in flight cause (non-preemptive blocking).
    #[serde(default)]
    pub blocking_ns: u64,
    /// Feasibility of all promises together; absent while the costs of requests are not known,
    /// because there is no precise profile and too little was learnt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feasibility: Option<FeasibilityView>,
    /// Promises that are reduced because the device is slower than promised; absent while none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stepped_down: Option<SteppedDownView>,
    /// Rate in bytes a second that writes without a promise are held to, because promised requests
    /// are late beside them; absent where they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_pace_bytes_per_s: Option<u64>,
    /// Costs of requests learnt so far; absent where the policy does not use costs, or the device
    /// has a profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learnt_costs: Option<CostsView>,
    /// Exchange with the hosts that share the device; absent where no other does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<ExchangeView>,
    /// Names of the device's VMs.
    pub vms: Vec<String>,
    /// NBD export names of disks with fault rules; absent where no disk has any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks_with_faults: Vec<String>,
    /// Limits that disks share; absent where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limit_groups: Vec<LimitGroupView>,
    /// Parts of the VMs' objectives that the policy in force does not enforce.
    pub not_enforced: Vec<DevicePart>,
    /// Clock of the device's event loop, in nanoseconds, when the state was read.
    pub taken_at_ns: u64,
}

/// Exchange of shares with the hosts that share a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExchangeView {
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the array.
    pub array: String,
    /// Name of this host.
    pub host: String,
    /// Sum of weights in this host's last report.
    pub weight: f64,
    /// Largest sum of weights that this host may claim.
    pub weight_max: u32,
    /// True if messages can be sent and received.
    pub connected: bool,
    /// True if no other host is heard, although at least one has not withdrawn. This host then
    /// holds to its entitlement.
    pub cut_off: bool,
    /// Last error of what carries the messages; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Other hosts, ordered by name.
    pub peers: Vec<PeerView>,
    /// Messages that were ignored, by reason; reasons without any are left out.
    pub ignored: std::collections::BTreeMap<String, u64>,
}

/// Another host that shares a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PeerView {
    /// Name of the host.
    pub host: String,
    /// Presence: `live`, `silent` or `withdrawn`.
    pub presence: String,
    /// Sum of weights in its last report; 0 before the first.
    pub weight: f64,
    /// Largest sum of weights that it may claim, which it is assumed to use while it is silent.
    pub weight_max: u32,
    /// Age of its last message that counted, in nanoseconds; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ns: Option<u64>,
    /// Clock of this host less that of the other, with the delay of the last message, in
    /// nanoseconds; for diagnosis alone.
    pub skew_ns: i64,
    /// Messages that counted.
    pub accepted: u64,
}

/// Limit that disks of a device share.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitGroupView {
    /// Name of the group, which its disks have as their `limit_group`.
    pub name: String,
    /// Limit of all its disks together; `null` while it is lifted.
    pub limit: Option<LimitView>,
}

/// Feasibility of all promises on a device together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FeasibilityView {
    /// True if all promises fit the device.
    pub fits: bool,
    /// Largest number of I/Os in flight that the latency bounds leave, at most the depth.
    pub depth_bound: u32,
    /// True if the costs of requests were learnt; false if they come from the profile.
    pub learnt: bool,
}

/// Promises that are reduced on a device that is slower than promised, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SteppedDownView {
    /// True if background processes are throttled to their minimum: one chunk per 500 ms.
    pub background: bool,
    /// Number of deadline transfers that are served with no more than their VM's weighted share.
    pub transfers: u32,
    /// Number of targets that are served with no more than their VM's reservation and weighted
    /// share.
    pub targets: u32,
    /// Number of latency bounds that the scheduler ignores at present.
    pub latencies: u32,
}

/// Waits for requests that might arrive (anticipation), since the policy was put in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct WaitsView {
    /// Waits begun.
    pub begun: u64,
    /// Waits that ended because such a request arrived.
    pub succeeded: u64,
}

/// Part of a VM's objective that its device's policy does not enforce.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DevicePart {
    /// Name of the VM.
    pub vm: String,
    /// Part of its objective; its fields stand beside `vm`.
    #[serde(flatten)]
    pub part: PartView,
}

/// Comparison of a device with its profile.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DriftView {
    /// Measured time divided by the time that the profile predicts for the same I/Os, smoothed;
    /// above 1: slower than the profile. 1 until a second was judged.
    pub ratio: f64,
    /// Standard deviation of single seconds around the ratio.
    pub spread: f64,
    /// Seconds judged, in which the device had enough I/Os in flight.
    pub seconds_judged: u64,
    /// `slower` or `faster` than the profile; absent while the device agrees with it. The name on
    /// the wire is `parted`.
    #[serde(rename = "parted", default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Time of the last change between agreement and drift, by the event loop's clock in
    /// nanoseconds; 0: since the start.
    pub since_ns: u64,
    /// I/Os that must be in flight for a second to count.
    pub enough_in_flight: u32,
    /// True if the queue depth is below `enough_in_flight`, so that no second can be judged.
    pub too_shallow: bool,
}

/// Learnt throughput limit of the layer under a device, such as a cloud volume's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CapView {
    /// I/Os a second; absent where they are not capped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<f64>,
    /// Bytes a second; absent where they are not capped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
    /// True if only one of the two is capped but not known which, because all I/Os had one size.
    pub either: bool,
    /// Time at which a cap was first learnt, by the event loop's clock in nanoseconds.
    pub since_ns: u64,
}

/// Learnt costs of requests of a device without a profile.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CostsView {
    /// Measuring windows used: those in which the device was saturated.
    pub windows: u64,
    /// Measuring windows not used: the device was not saturated, or an I/O failed.
    #[serde(rename = "idle_windows")]
    pub unused_windows: u64,
    /// Half the width of the 90 % confidence interval as a fraction of the cost, averaged over the
    /// kinds seen; absent before any I/O was seen.
    #[serde(rename = "within", default, skip_serializing_if = "Option::is_none")]
    pub relative_half_width: Option<f64>,
    /// Costs by kind of I/O, of the kinds seen so far.
    pub kinds: Vec<CostView>,
}

/// Cost of one I/O of a kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CostView {
    /// Kind of I/O: `random read`, `sequential read`, `random write` or `sequential write`.
    pub kind: String,
    /// Number of I/Os that the cost was learnt from.
    pub ios: u64,
    /// Mean size of the I/Os.
    pub size_bytes: u32,
    /// Device time that one I/O of the mean size takes on the saturated device, in nanoseconds.
    pub time_ns: f64,
    /// Half the width of the 90 % confidence interval, as a fraction of the cost.
    #[serde(rename = "within")]
    pub relative_half_width: f64,
    /// True if the confidence interval is narrow enough for feasibility checks to use the cost.
    pub known: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::round_trip;

    fn device() -> DeviceView {
        DeviceView {
            name: "disk0".to_owned(),
            backing: "memory".to_owned(),
            policy: PolicyView {
                name: "fifo".to_owned(),
                controller: None,
                regulator: "open".to_owned(),
                dispatcher: "fifo".to_owned(),
                enforces: Vec::new(),
                params: Vec::new(),
            },
            depth: 32,
            max_io_bytes: 1 << 20,
            in_flight: 1,
            uncounted: 0,
            oldest_io_ns: None,
            requests: 2,
            queued: 3,
            started: 4,
            ended: 5,
            errors: 6,
            deliberate_ns: 7,
            waits: None,
            drift: None,
            learnt_cap: None,
            adapted_depth: None,
            depth_reason: None,
            blocking_ns: 9,
            feasibility: None,
            stepped_down: None,
            write_pace_bytes_per_s: None,
            learnt_costs: None,
            exchange: None,
            vms: vec!["oltp".to_owned()],
            disks_with_faults: Vec::new(),
            limit_groups: Vec::new(),
            not_enforced: Vec::new(),
            taken_at_ns: 8,
        }
    }

    const HEAD: &str = concat!(
        r#"{"name":"disk0","backing":"memory","policy":{"name":"fifo","controller":null,"#,
        r#""regulator":"open","dispatcher":"fifo","enforces":[],"params":[]},"depth":32,"#,
        r#""max_io_bytes":1048576,"in_flight":1,"#,
    );
    const COUNTERS: &str =
        r#""requests":2,"queued":3,"started":4,"ended":5,"errors":6,"deliberate_ns":7,"#;

    #[test]
    fn optional_device_fields_are_absent() {
        let tail = r#""vms":["oltp"],"not_enforced":[],"taken_at_ns":8}"#;
        let blocking = r#""blocking_ns":9,"#;
        round_trip(
            &device(),
            &format!(r#"{HEAD}"uncounted":0,{COUNTERS}{blocking}{tail}"#),
        );
        // Older daemons count every I/O and report no blocking time.
        let early: DeviceView =
            serde_json::from_str(&format!("{HEAD}{COUNTERS}{tail}")).expect("complete");
        let without_blocking = DeviceView {
            blocking_ns: 0,
            ..device()
        };
        assert_eq!(early, without_blocking);
    }

    #[test]
    fn devices_show_feasibility_and_suspended_objectives() {
        let device = DeviceView {
            feasibility: Some(FeasibilityView {
                fits: true,
                depth_bound: 16,
                learnt: false,
            }),
            stepped_down: Some(SteppedDownView {
                background: true,
                transfers: 1,
                targets: 2,
                latencies: 3,
            }),
            write_pace_bytes_per_s: Some(4_000_000),
            ..device()
        };
        let shown = concat!(
            r#""blocking_ns":9,"feasibility":{"fits":true,"depth_bound":16,"learnt":false},"#,
            r#""stepped_down":{"background":true,"transfers":1,"targets":2,"latencies":3},"#,
            r#""write_pace_bytes_per_s":4000000,"#,
            r#""vms":["oltp"],"not_enforced":[],"taken_at_ns":8}"#,
        );
        round_trip(
            &device,
            &format!(r#"{HEAD}"uncounted":0,{COUNTERS}{shown}"#),
        );
    }

    #[test]
    fn devices_show_all_optional_fields() {
        let device = DeviceView {
            uncounted: 1,
            oldest_io_ns: Some(11),
            waits: Some(WaitsView {
                begun: 7,
                succeeded: 5,
            }),
            drift: Some(DriftView {
                ratio: 1.25,
                spread: 0.5,
                seconds_judged: 60,
                direction: Some("slower".to_owned()),
                since_ns: 3,
                enough_in_flight: 32,
                too_shallow: false,
            }),
            learnt_cap: Some(CapView {
                iops: Some(3000.0),
                bytes_per_s: Some(125),
                either: true,
                since_ns: 4,
            }),
            adapted_depth: Some(12),
            depth_reason: Some("bandwidth-delay product".to_owned()),
            learnt_costs: Some(CostsView {
                windows: 90,
                unused_windows: 12,
                relative_half_width: Some(0.125),
                kinds: vec![CostView {
                    kind: "random read".to_owned(),
                    ios: 700,
                    size_bytes: 4096,
                    time_ns: 1234.5,
                    relative_half_width: 0.125,
                    known: true,
                }],
            }),
            disks_with_faults: vec!["oltp".to_owned()],
            not_enforced: vec![DevicePart {
                vm: "oltp".to_owned(),
                part: PartView {
                    part: "latency".to_owned(),
                    value: "30 ms".to_owned(),
                    enforced_by: Vec::new(),
                },
            }],
            ..device()
        };
        let io = r#""uncounted":1,"oldest_io_ns":11,"#;
        let drift = concat!(
            r#""waits":{"begun":7,"succeeded":5},"drift":{"ratio":1.25,"spread":0.5,"#,
            r#""seconds_judged":60,"parted":"slower","since_ns":3,"enough_in_flight":32,"#,
            r#""too_shallow":false},"learnt_cap":{"iops":3000.0,"bytes_per_s":125,"either":true,"#,
            r#""since_ns":4},"adapted_depth":12,"depth_reason":"bandwidth-delay product","#,
            r#""blocking_ns":9,"#,
        );
        let costs = concat!(
            r#""learnt_costs":{"windows":90,"idle_windows":12,"within":0.125,"kinds":[{"#,
            r#""kind":"random read","ios":700,"size_bytes":4096,"time_ns":1234.5,"#,
            r#""within":0.125,"known":true}]},"#,
        );
        let tail = concat!(
            r#""vms":["oltp"],"disks_with_faults":["oltp"],"not_enforced":[{"vm":"oltp","#,
            r#""part":"latency","value":"30 ms","enforced_by":[]}],"taken_at_ns":8}"#,
        );
        let text = format!("{HEAD}{io}{COUNTERS}{drift}{costs}{tail}");
        round_trip(&device, &text);
    }
}
