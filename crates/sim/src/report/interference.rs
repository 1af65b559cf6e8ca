//! Interference between VMs as plain data.

use serde::Serialize;
use tidegate_core::interference::{Class, Interval};
use tidegate_core::request::VmId;

/// Time of a VM's requests at the scheduler, by class, and behind which VMs. The classes add up to
/// the latency there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct InterferenceReport {
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
    pub merged_ns: u64,
    /// Time for which the device was left idle on purpose.
    pub deliberate_ns: u64,
    /// Time of service by the device.
    pub service_ns: u64,
    /// Time in which the device ended far less than it usually does.
    pub slow_device_ns: u64,
    /// Time of waiting without a known cause.
    pub unknown_ns: u64,
    /// Parts of `others_ns` by VM, the largest first; at most eight.
    pub behind: Vec<Behind>,
    /// Part of `others_ns` of VMs that are not in `behind`.
    pub unnamed_ns: u64,
}

/// VM behind which another VM's requests were.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Behind {
    /// Name of the VM or background process.
    pub vm: String,
    /// Time before the device.
    pub waited_ns: u64,
    /// Time inside the device.
    pub inside_ns: u64,
}

impl InterferenceReport {
    /// Reports an interval; `name` returns the name of a VM.
    pub fn new(interval: &Interval, name: impl Fn(VmId) -> String) -> InterferenceReport {
        let ns = |class: Class| interval.time(class).0;
        InterferenceReport {
            requests: interval.requests,
            samples: interval.samples,
            admission_ns: ns(Class::Admission),
            own_limit_ns: ns(Class::OwnLimit),
            others_ns: ns(Class::Others),
            own_requests_ns: ns(Class::OwnRequests),
            merged_ns: ns(Class::MergedWait),
            deliberate_ns: ns(Class::Deliberate),
            service_ns: ns(Class::Service),
            slow_device_ns: ns(Class::SlowDevice),
            unknown_ns: ns(Class::Unknown),
            behind: (interval.culprits.iter())
                .map(|culprit| Behind {
                    vm: name(culprit.vm),
                    waited_ns: culprit.waited.0,
                    inside_ns: culprit.inside.0,
                })
                .collect(),
            unnamed_ns: interval.unnamed.0,
        }
    }
}
