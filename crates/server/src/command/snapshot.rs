//! Snapshots: the state of a device, its VMs and disks at one moment, as an event loop reports it.

use std::sync::Arc;

use tidegate_core::attainment::PartAttainment;
use tidegate_core::bandwidth_samples::BandwidthSamples;
use tidegate_core::device_monitor::{Drift, LearntCap};
use tidegate_core::engine::DeviceStats;
use tidegate_core::engine::Feasibility;
use tidegate_core::engine::Holdings;
use tidegate_core::estimator::LearntCosts;
use tidegate_core::interference::{CostSource, VmTimes};
use tidegate_core::objective::{Limit, Objective};
use tidegate_core::part::Enforces;
use tidegate_core::policy::Policy;
use tidegate_core::precision::Precision;
use tidegate_core::queue_depth::DepthView;
use tidegate_core::request::VmId;
use tidegate_core::roles::{SteppedDown, Waits};
use tidegate_core::stats::{Histogram, VmStats};
use tidegate_core::time::Nanos;
use tidegate_core::tuning::Tuning;

use crate::backing::ActivationState;
use crate::config::LimitGroup;
use crate::connections::VmConnections;
use crate::disk_file_monitor::State;
use crate::exchange::ExchangeSnapshot;
use crate::fault::RuleSnapshot;
use crate::recording::RecordingCounts;
use crate::transfer::VmTransfers;

/// State of a device at one moment.
#[derive(Clone, Debug)]
pub struct DeviceSnapshot {
    /// Name in the configuration.
    pub name: String,
    /// Medium of the disks, for people: `emulated hdd-7200-1tb`, `files`, `memory`.
    pub backing: String,
    /// The policy in force.
    pub policy: Arc<dyn Policy>,
    /// Queue depth, I/Os in flight and counters.
    pub stats: DeviceStats,
    /// Deliberate waits of the policy in force for requests that might come; `None` for a policy
    /// that never waits.
    pub waits: Option<Waits>,
    /// Deviation from the saturation profile; `None` without a profile.
    pub drift: Option<Drift>,
    /// Cap below the device's own limit, such as a cloud's, if one was learnt.
    pub learnt_cap: Option<LearntCap>,
    /// Adapted depth with the reason for it; `None` if the configured one is in force.
    pub adapted_depth: Option<DepthView>,
    /// Time by which a request that is due under a reservation may be late because the device is
    /// busy with other I/Os.
    pub blocking: Nanos,
    /// Verdict on whether all objectives fit the device; `None` while costs are unknown.
    pub feasibility: Option<Feasibility>,
    /// Promises that have given way because the device is slower than promised.
    pub stepped_down: SteppedDown,
    /// Rate in bytes a second that writes without a promise are held to; `None`: they are not.
    pub write_pace: Option<u64>,
    /// Learnt costs of requests; `None` if they are not learnt.
    pub learnt_costs: Option<LearntCosts>,
    /// Origin of the device times by which waits are attributed to VMs.
    pub costs: CostSource,
    /// I/Os with the device that do not count against its queue depth, because their disks hang.
    pub uncounted: u32,
    /// Age of the oldest I/O with the device; `None` while there is none.
    pub oldest_io: Option<Nanos>,
    /// Limits that disks share, as they are in force.
    pub limit_groups: Vec<LimitGroup>,
    /// Exchange with the hosts that share the device; `None`: no other does.
    pub exchange: Option<ExchangeSnapshot>,
    /// Requests recorded and dropped since the recording was switched on; `None` while it is off.
    pub recording: Option<RecordingCounts>,
    /// VMs in the order of the configuration.
    pub vms: Vec<VmSnapshot>,
    /// Time of the snapshot on the monotonic clock.
    pub taken_at: Nanos,
}

/// State of a VM at one moment.
#[derive(Clone, Debug)]
pub struct VmSnapshot {
    /// Name in the configuration.
    pub name: String,
    /// Handle in the engine, unique on the device for as long as the daemon runs.
    pub id: VmId,
    /// Name of the device.
    pub device: String,
    /// Name of the policy in force on the device.
    pub policy: String,
    /// The objective in force.
    pub objective: Objective,
    /// Verdict on whether all objectives on the device fit; `None` while costs are unknown.
    pub feasibility: Option<Feasibility>,
    /// Parts of an objective that the device's policy enforces.
    pub enforces: Enforces,
    /// True for a process of the host instead of a VM.
    pub background: bool,
    /// Disks with their sizes and failures.
    pub disks: Vec<DiskSnapshot>,
    /// Number of NBD clients that are connected.
    pub clients: u32,
    /// Number of requests that wait for the device.
    pub pending: u32,
    /// Device I/Os in flight.
    pub in_flight: u32,
    /// Request slots and payload memory that the VM holds, and its guaranteed parts of both.
    pub holdings: Holdings,
    /// Connections that are not read from because the VM has no request slot or payload memory
    /// left.
    pub stalled: u32,
    /// Counters since the VM was added.
    pub stats: Box<VmStats>,
    /// Time of its requests since it was added by cause, the time until replies were sent included.
    pub times: Box<VmTimes>,
    /// Bytes moved in each of the last seconds.
    pub seconds: BandwidthSamples,
    /// Attainment of each part of the objective.
    pub attainment: Vec<PartAttainment>,
    /// State of the tuning to the VM's target; `None` if nothing tunes it.
    pub tuning: Option<Tuning>,
    /// Deadline transfers.
    pub transfers: VmTransfers,
    /// Connections of the VM: open, allowed and refused.
    pub connections: Arc<VmConnections>,
    /// Times from the parse of a request until its reply is sent, indexed by lane.
    pub reply_time: Box<[Histogram; 2]>,
}

impl VmSnapshot {
    /// Returns how precisely the bandwidth was held of late; `interval` is the statistical interval
    /// in seconds.
    pub fn precision(&self, interval: u32) -> Precision {
        self.seconds
            .precision(self.objective.target.bytes_per_s, interval)
    }
}

/// State of a disk at one moment.
#[derive(Clone, Debug)]
pub struct DiskSnapshot {
    /// NBD export name.
    pub export: String,
    /// Size in bytes.
    pub size: u64,
    /// Reason why the disk refuses requests: a failed fsync, or a file that is missing, truncated,
    /// replaced or on a file system that does not answer. `None` while it is well.
    pub failed: Option<String>,
    /// Reason why the disk's server cannot be reached now, while requests wait; `None` otherwise.
    pub unreachable: Option<String>,
    /// Reason for which a change of the last minutes found no space; `None` if all did.
    pub no_space: Option<String>,
    /// State of the lock of the disk's file; `None` for a disk that has none of its own: in memory,
    /// or read-only.
    pub activation: Option<ActivationState>,
    /// Observed state of the disk's file; `None` for a disk in memory.
    pub media: Option<State>,
    /// Age of the disk's oldest I/O with the device; `None` while it has none there.
    pub oldest_io: Option<Nanos>,
    /// Time since an I/O of the disk last ended, while the disk hangs; `None` otherwise. A hung
    /// disk gets one I/O at a time and other disks go on.
    pub hung: Option<Nanos>,
    /// Limit, beside that of the VM.
    pub limit: Limit,
    /// Name of the limit that it shares with other disks; `None` if there is none.
    pub limit_group: Option<String>,
    /// Fault rules with their counts.
    pub faults: Vec<RuleSnapshot>,
    /// Number of faults injected since the daemon started, including those of removed rules.
    pub faults_injected: u64,
    /// Number of I/Os that were copied through a bounce buffer since the disk was opened, because
    /// their range or memory was not aligned as direct I/O needs it.
    pub bounced: u64,
}
