//! Facts beside the requests: device, policy, VMs, and their changes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_api::objective::ObjectiveView;
use tidegate_api::policy::PolicyView;

/// Beginning of a recording: what was in force at time 0, or at the beginning of this file of a
/// longer recording.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Header {
    /// Wall clock at time 0, in nanoseconds since 1970 (UTC); 0 for a simulation. Files of one
    /// recording have the same value.
    pub started_unix_ns: u64,
    /// Number of requests of the recording before this file, dropped ones included.
    #[serde(default)]
    pub first_request: u64,
    /// Device.
    pub device: DeviceFacts,
    /// VMs and background processes of the device.
    pub vms: Vec<VmFacts>,
}

/// Device whose requests are recorded.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Name in the configuration.
    pub name: String,
    /// Kind of the device's disks, such as `file` or `memory`; `simulated` in a simulation.
    pub kind: String,
    /// Name of the disk model of an emulated or simulated device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Size in bytes, where the device has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// CRC-32C of the saturation profile in use, as of [`DeviceFacts::digest`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_digest: Option<String>,
    /// Maximum number of I/Os in flight.
    pub depth: u32,
    /// Largest device I/O in bytes.
    pub max_io_bytes: u32,
    /// Policy in force with the values of its parameters.
    pub policy: PolicyView,
    /// Other keys of the device's configuration that scheduling depends on, as text with units.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, String>,
}

impl Default for DeviceFacts {
    fn default() -> DeviceFacts {
        DeviceFacts {
            name: String::new(),
            kind: "simulated".to_owned(),
            model: None,
            size_bytes: None,
            profile_digest: None,
            depth: 32,
            max_io_bytes: 1 << 20,
            policy: PolicyView {
                name: "fifo".to_owned(),
                controller: None,
                regulator: "open".to_owned(),
                dispatcher: "fifo".to_owned(),
                enforces: Vec::new(),
                params: Vec::new(),
            },
            keys: BTreeMap::new(),
        }
    }
}

impl DeviceFacts {
    /// Returns the digest of a saturation profile's text.
    pub fn digest(profile: &[u8]) -> String {
        format!("{:08x}", crc32c::crc32c(profile))
    }
}

/// VM, or background process of the host.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct VmFacts {
    /// Number of the VM in the recording, never used again in it.
    pub number: u32,
    /// Name.
    pub name: String,
    /// True for a process of the host.
    #[serde(default)]
    pub background: bool,
    /// True if a schedule changes its objective at times of day or dates. Dumps of a daemon have
    /// it; other files do not tell.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scheduled: bool,
    /// True if disks have limits, their own or shared ones, which recordings do not have. A
    /// daemon's recordings have it as it was when they began, or when the VM was added; its dumps
    /// also have it of VMs with such limits at the time of the dump. Files of earlier builds do not
    /// tell.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disk_limits: bool,
    /// Objective in force.
    pub objective: ObjectiveView,
    /// Disks.
    pub disks: Vec<DiskFacts>,
}

/// Disk of a VM.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DiskFacts {
    /// Number of the disk in the recording, never used again in it.
    pub number: u32,
    /// Name: the export.
    pub name: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// First byte on the device.
    #[serde(default)]
    pub at: u64,
}

/// Change between two requests. It has no effect on those that arrived before.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// A VM was added.
    VmAdded {
        /// VM with its disks.
        vm: VmFacts,
    },
    /// A VM was removed; requests of it that were with the device still end.
    VmRemoved {
        /// Number of the VM.
        vm: u32,
    },
    /// A VM has another name.
    VmRenamed {
        /// Number of the VM.
        vm: u32,
        /// New name.
        name: String,
    },
    /// A VM has one more disk.
    DiskAdded {
        /// Number of the VM.
        vm: u32,
        /// Disk.
        disk: DiskFacts,
    },
    /// A disk was removed; requests to it that were with the device still end.
    DiskRemoved {
        /// Number of the disk.
        disk: u32,
    },
    /// A disk has another size.
    DiskResized {
        /// Number of the disk.
        disk: u32,
        /// New size in bytes.
        size_bytes: u64,
    },
    /// A VM has another objective.
    Objective {
        /// Number of the VM.
        vm: u32,
        /// New objective.
        objective: ObjectiveView,
    },
    /// The device has another policy.
    Policy {
        /// New policy with the values of its parameters.
        policy: PolicyView,
    },
    /// The device itself has another size.
    DeviceResized {
        /// New size in bytes.
        size_bytes: u64,
    },
}
