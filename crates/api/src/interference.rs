//! Interference between the VMs of a device: where the time of each one's requests went, and
//! behind whom.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Answer to `GET /v1/devices/{name}/interference`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct InterferenceView {
    /// Name of the device.
    pub device: String,
    /// VMs and background processes in the order of their names, each with the row of the matrix.
    pub vms: Vec<VmInterferenceView>,
}

/// Row of the matrix: a VM, and the VMs behind which its requests were since it was added.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VmInterferenceView {
    /// Name of the VM.
    pub vm: String,
    /// True for a background process of the host.
    #[serde(default)]
    pub background: bool,
    /// Times of its requests.
    #[serde(flatten)]
    pub times: InterferenceTimes,
}

/// Time of a VM's requests by class, and behind which VMs. The classes add up to the time from
/// arrival to reply.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct InterferenceTimes {
    /// Requests that succeeded.
    pub requests: u64,
    /// Requests of these that were sampled, from which the time behind others is estimated.
    pub samples: u64,
    /// Time before a request slot and payload memory were there.
    pub admission_ns: u64,
    /// Time held by the VM's own limit or credits.
    pub own_limit_ns: u64,
    /// Time behind other VMs, before the device and inside of it.
    pub others_ns: u64,
    /// Time behind the VM's own other requests, before the device and inside of it.
    pub own_requests_ns: u64,
    /// Time of merged requests before the request that they joined was dispatched.
    pub merged_wait_ns: u64,
    /// Time for which the device was left idle on purpose.
    pub deliberate_ns: u64,
    /// Time of service by the device.
    pub service_ns: u64,
    /// Time in which the device ended far less than it usually does.
    pub slow_device_ns: u64,
    /// Time of waiting without a known cause.
    pub unknown_ns: u64,
    /// Time from the end of the last I/O until the reply was sent; 0 in a simulation.
    pub reply_ns: u64,
    /// Parts of `others_ns` by VM, the largest first; at most eight.
    pub behind: Vec<BehindTimes>,
    /// Part of `others_ns` of VMs that are not in `behind`.
    pub unnamed_ns: u64,
}

impl InterferenceTimes {
    /// Returns the time of all classes.
    pub fn total_ns(&self) -> u64 {
        [
            self.admission_ns,
            self.own_limit_ns,
            self.others_ns,
            self.own_requests_ns,
            self.merged_wait_ns,
            self.deliberate_ns,
            self.service_ns,
            self.slow_device_ns,
            self.unknown_ns,
            self.reply_ns,
        ]
        .iter()
        .sum()
    }
}

/// VM behind which another VM's requests were.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct BehindTimes {
    /// Name of the VM or background process; `(removed)` for one that is gone.
    pub vm: String,
    /// Time before the device.
    pub waited_ns: u64,
    /// Time inside the device.
    pub inside_ns: u64,
}

impl BehindTimes {
    /// Returns the time before the device and inside of it.
    pub fn total_ns(&self) -> u64 {
        self.waited_ns + self.inside_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_json::round_trip;

    #[test]
    fn a_row_has_its_times_beside_its_name() {
        let row = VmInterferenceView {
            vm: "db".to_owned(),
            background: false,
            times: InterferenceTimes {
                requests: 2,
                others_ns: 70,
                service_ns: 30,
                behind: vec![BehindTimes {
                    vm: "backup".to_owned(),
                    waited_ns: 60,
                    inside_ns: 10,
                }],
                ..InterferenceTimes::default()
            },
        };
        round_trip(
            &row,
            concat!(
                r#"{"vm":"db","background":false,"requests":2,"samples":0,"admission_ns":0,"#,
                r#""own_limit_ns":0,"others_ns":70,"own_requests_ns":0,"merged_wait_ns":0,"#,
                r#""deliberate_ns":0,"service_ns":30,"slow_device_ns":0,"unknown_ns":0,"#,
                r#""reply_ns":0,"behind":[{"vm":"backup","waited_ns":60,"inside_ns":10}],"#,
                r#""unnamed_ns":0}"#
            ),
        );
        assert_eq!(
            (row.times.total_ns(), row.times.behind[0].total_ns()),
            (100, 70)
        );
    }
}
