//! What a loop says of its device: everything as it stands.

use std::sync::Arc;

use tidegate_core::attainment::PartAttainment;
use tidegate_core::engine::DeviceFacts;
use tidegate_core::engine::Feasibility;
use tidegate_core::engine::Holdings;
use tidegate_core::estimator::Learnt;
use tidegate_core::objective::Objective;
use tidegate_core::part::Honours;
use tidegate_core::policy::Policy;
use tidegate_core::precision::Precision;
use tidegate_core::request::VmId;
use tidegate_core::roles::{SteppedDown, Waits};
use tidegate_core::seconds::Seconds;
use tidegate_core::stats::{Histogram, VmStats};
use tidegate_core::steer::DepthView;
use tidegate_core::time::Nanos;
use tidegate_core::tuning::Tuning;
use tidegate_core::watch::{Drift, LearntCap};

use crate::connections::VmConnections;
use crate::fault::RuleSnapshot;
use crate::job::VmJobs;
use crate::media::State;

/// A device as it stands.
#[derive(Clone, Debug)]
pub struct DeviceSnapshot {
    /// Its name in the configuration.
    pub name: String,
    /// What it is made of, for people: `emulated hdd-7200-1tb`, `files`, `memory`.
    pub backing: String,
    /// The policy in force.
    pub policy: Arc<dyn Policy>,
    /// Depth, what is in flight, counters.
    pub facts: DeviceFacts,
    /// Waits of the policy in force for requests that might come; `None`: it never does.
    pub waits: Option<Waits>,
    /// How it compares with its profile; `None`: it has none.
    pub drift: Option<Drift>,
    /// The cap below it that was learnt; `None`: none was.
    pub learnt_cap: Option<LearntCap>,
    /// Depth in force and the reason for it; `None`: it is the configured one.
    pub adapted_depth: Option<DepthView>,
    /// Time by which a floor's request may be late because the device is busy.
    pub blocking: Nanos,
    /// Whether everything that is promised fits; `None`: what requests cost is not yet known.
    pub feasibility: Option<Feasibility>,
    /// Promises that have given way because the device is slower than promised.
    pub stepped_down: SteppedDown,
    /// What was learnt of what requests cost; `None`: nothing is to be.
    pub learnt_costs: Option<Learnt>,
    /// I/Os with the device that do not count against its queue depth, because their disks hang.
    pub uncounted: u32,
    /// Age of the oldest I/O with the device; `None` while there is none.
    pub oldest_io: Option<Nanos>,
    /// Its VMs in the order of the configuration.
    pub vms: Vec<VmSnapshot>,
    /// Loop time when this was taken, in nanoseconds of the monotonic clock.
    pub taken_at: Nanos,
}

/// A VM as it stands.
#[derive(Clone, Debug)]
pub struct VmSnapshot {
    /// Its name.
    pub name: String,
    /// The engine's handle of it: no other VM of the device ever has the same.
    pub id: VmId,
    /// Its device's name.
    pub device: String,
    /// The name of the policy in force there.
    pub policy: String,
    /// The objective in force.
    pub objective: Objective,
    /// Whether everything that is promised on the device fits; `None`: not yet known.
    pub feasibility: Option<Feasibility>,
    /// Which parts of an objective the device's policy enforces.
    pub honours: Honours,
    /// A process of the host, not a VM.
    pub background: bool,
    /// Its exports with their sizes in bytes and whether their backing has failed.
    pub disks: Vec<DiskSnapshot>,
    /// Connected clients.
    pub clients: u32,
    /// Requests waiting.
    pub pending: u32,
    /// Device I/Os in flight.
    pub in_flight: u32,
    /// Request slots and payload memory that the VM holds, and its guaranteed parts of both.
    pub holdings: Holdings,
    /// Connections that are not read from because the VM has no request slot or payload memory
    /// left.
    pub stalled: u32,
    /// Since it was added.
    pub stats: Box<VmStats>,
    /// What it moved in each of the last seconds.
    pub seconds: Seconds,
    /// Attainment of each part of the objective.
    pub attainment: Vec<PartAttainment>,
    /// How it is tuned to its target; `None`: it is not.
    pub tuning: Option<Tuning>,
    /// Its jobs.
    pub jobs: VmJobs,
    /// Connections of the VM: open, allowed and refused.
    pub connections: Arc<VmConnections>,
    /// Times from the parse of a request until its reply is sent, indexed by lane.
    pub reply_time: Box<[Histogram; 2]>,
}

impl VmSnapshot {
    /// How precisely its bandwidth was held of late, with statistical intervals of so many seconds.
    pub fn precision(&self, interval: u32) -> Precision {
        self.seconds
            .precision(self.objective.target.bytes_per_s, interval)
    }
}

/// A disk as it stands.
#[derive(Clone, Debug)]
pub struct DiskSnapshot {
    /// NBD export name.
    pub export: String,
    /// Bytes.
    pub size: u64,
    /// Reason why the disk refuses requests: a failed fsync, or a file that is missing, truncated,
    /// replaced or on a file system that does not answer. `None` while it is well.
    pub failed: Option<String>,
    /// Observed state of the disk's file; `None` for a disk in memory.
    pub media: Option<State>,
    /// Age of the disk's oldest I/O with the device; `None` while it has none there.
    pub oldest_io: Option<Nanos>,
    /// Time since an I/O of the disk last ended, while the disk hangs; `None` otherwise. A hung
    /// disk gets one I/O at a time and other disks go on.
    pub hung: Option<Nanos>,
    /// What goes wrong with it on purpose.
    pub faults: Vec<RuleSnapshot>,
    /// How often something did since the daemon started, over all rules that it ever had.
    pub faults_injected: u64,
}
