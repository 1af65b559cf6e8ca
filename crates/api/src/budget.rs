//! Budget: what devices can still promise, for programs that place VMs on hosts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Budget of a device; `GET /v1/budget` answers with a list of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DeviceBudgetView {
    /// Name of the device.
    pub device: String,
    /// Promises that one more VM can get beside those of the present VMs, also at all later times
    /// of their schedules; absent where the device has no profile to compute them with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<PromisesView>,
    /// Promises that one VM could get if the device had no others; absent where `available` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<PromisesView>,
    /// Part of what may be promised that is promised now, of the scarcest resource, in thousandths;
    /// above 1000 on a device that is overcommitted. Absent where `available` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_thousandths: Option<u32>,
    /// Reason for which nothing more can be promised, or for which the budget is not known, for
    /// people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Largest promises to one VM by part of the objective. Each holds by itself: a VM that is promised
/// one of them leaves less of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PromisesView {
    /// Requests of 4 KiB per second as a reservation.
    pub reservation_iops: u64,
    /// Bytes per second as a reservation, in requests of 128 KiB.
    pub reservation_bytes_per_s: u64,
    /// Requests of 4 KiB per second as a target.
    pub target_iops: u64,
    /// Bytes per second as a target, in requests of 128 KiB.
    pub target_bytes_per_s: u64,
    /// Shortest bound for the 99th percentile of the latency of 100 requests of 4 KiB per second,
    /// in nanoseconds; absent where none of up to an hour can be promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<u64>,
    /// Bytes per second that a deadline transfer may need.
    pub transfer_bytes_per_s: u64,
    /// Bytes of disks; absent where the device does not limit them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}
