//! What a loop says of its device: everything as it stands.

use std::sync::Arc;

use tidegate_core::engine::DeviceFacts;
use tidegate_core::engine::Holdings;
use tidegate_core::estimator::Learnt;
use tidegate_core::objective::Objective;
use tidegate_core::policy::{Honours, PolicySpec};
use tidegate_core::precision::Precision;
use tidegate_core::request::VmId;
use tidegate_core::roles::Waits;
use tidegate_core::seconds::Seconds;
use tidegate_core::stats::{Histogram, VmStats};
use tidegate_core::time::Nanos;
use tidegate_core::tuning::Tuning;
use tidegate_core::watch::{Drift, LearntCap};

use crate::fault::RuleSnapshot;
use crate::job::VmJobs;
use crate::media::State;
use crate::reception::VmConnections;

/// A device as it stands.
#[derive(Clone, Debug)]
pub struct DeviceSnapshot {
    /// Its name in the configuration.
    pub name: String,
    /// What it is made of, for people: `emulated hdd-7200-1tb`, `files`, `memory`.
    pub backing: String,
    /// The policy in force.
    pub policy: PolicySpec,
    /// Depth, what is in flight, counters.
    pub facts: DeviceFacts,
    /// Waits of the policy in force for requests that might come; `None`: it never does.
    pub waits: Option<Waits>,
    /// How it compares with its profile; `None`: it has none.
    pub drift: Option<Drift>,
    /// The cap below it that was learnt; `None`: none was.
    pub learnt_cap: Option<LearntCap>,
    /// The depth that was found to be enough; `None`: none is looked for.
    pub adapted_depth: Option<u32>,
    /// What was learnt of what requests cost; `None`: nothing is to be.
    pub learnt_costs: Option<Learnt>,
    /// I/Os with the device that do not count against its depth: those of disks that hang.
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
    /// Request slots and payload memory that it holds, and its parts of them.
    pub holdings: Holdings,
    /// Connections that are not read from because it has no slot or memory left.
    pub stalled: u32,
    /// Since it was added.
    pub stats: Box<VmStats>,
    /// What it moved in each of the last seconds.
    pub seconds: Seconds,
    /// How it is tuned to its target; `None`: it is not.
    pub tuning: Option<Tuning>,
    /// Its jobs.
    pub jobs: VmJobs,
    /// How many clients may connect, and how many were refused.
    pub connections: Arc<VmConnections>,
    /// Times from the parse of a request to its reply sent, by lane.
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
    /// Why the backing is refusing requests, after a failed fsync or because its file is not what it was, or does not
    /// answer; `None` while it is well.
    pub failed: Option<String>,
    /// State of its file; `None`: it has none.
    pub media: Option<State>,
    /// Age of its oldest I/O with the device; `None` while it has none there.
    pub oldest_io: Option<Nanos>,
    /// How long no I/O of it has ended, if it hangs: others go on, and it gets one I/O at a time.
    pub hung: Option<Nanos>,
    /// What goes wrong with it on purpose.
    pub faults: Vec<RuleSnapshot>,
    /// How often something did since the daemon started, over all rules that it ever had.
    pub faults_injected: u64,
}
