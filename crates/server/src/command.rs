//! What the control plane asks of an event loop, and what it answers.

use tidegate_core::engine::DeviceFacts;
use tidegate_core::learnt::Blob;
use tidegate_core::objective::Objective;
use tidegate_core::policy::{Honours, PolicySpec};
use tidegate_core::roles::Waits;
use tidegate_core::stats::VmStats;
use tokio::sync::oneshot;

use crate::fault::{Rule, RuleSnapshot};

/// A message to a device's event loop. A loop that is gone drops the reply's sender.
#[derive(Debug)]
pub enum Command {
    /// Everything there is to show.
    Snapshot {
        /// The answer.
        reply: oneshot::Sender<DeviceSnapshot>,
    },
    /// Changes a VM's objective.
    SetObjective {
        /// The VM's name.
        vm: String,
        /// All of the new objective.
        objective: Box<Objective>,
        /// What is in force now.
        reply: oneshot::Sender<Result<VmSnapshot, CommandError>>,
    },
    /// Changes the device's policy; nothing pending is lost.
    SetPolicy {
        /// The new one.
        policy: PolicySpec,
        /// What is in force now.
        reply: oneshot::Sender<Result<DeviceSnapshot, CommandError>>,
    },
    /// Changes what goes wrong with a disk on purpose.
    ChangeFaults {
        /// The disk's NBD export name.
        export: String,
        /// The change.
        change: FaultChange,
        /// The disk as it is then.
        reply: oneshot::Sender<Result<DiskSnapshot, CommandError>>,
    },
    /// What the policy's controller has learnt of some VMs.
    ExportLearnt {
        /// Of those from this place on: zero, then [`LearntPart::next`].
        from: usize,
        /// The answer.
        reply: oneshot::Sender<LearntPart>,
    },
    /// A client whose handshake is done.
    Adopt(Box<crate::reception::Adopted>),
    /// Stop reading, finish what is there, flush, answer, end the loop.
    Drain,
    /// End the loop at once; what is not answered stays so.
    Abort,
}

/// A change of a disk's fault rules.
#[derive(Clone, Debug)]
pub enum FaultChange {
    /// One more, behind those there are.
    Add(Box<Rule>),
    /// Without the one of this number.
    Remove(u32),
    /// Without any.
    Clear,
}

/// Why a command was refused. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CommandError {
    /// No such VM on this device.
    #[error("no VM named {0:?} on this device")]
    UnknownVm(String),
    /// No disk of that name on this device.
    #[error("no export named {0:?} on this device")]
    UnknownExport(String),
    /// No fault rule of that number.
    #[error("the disk has no fault rule {0}")]
    UnknownFault(u32),
    /// The engine refused.
    #[error("{0}")]
    Refused(String),
}

/// What was learnt of some VMs of a device.
#[derive(Debug)]
pub struct LearntPart {
    /// The policy's name.
    pub policy: String,
    /// What was learnt, with the VM's name, where anything was.
    pub states: Vec<(String, Blob)>,
    /// Where to go on; `None`: those were the last.
    pub next: Option<usize>,
}

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
    /// Its VMs in the order of the configuration.
    pub vms: Vec<VmSnapshot>,
    /// Loop time when this was taken, in nanoseconds of the monotonic clock.
    pub taken_at: tidegate_core::time::Nanos,
}

/// A VM as it stands.
#[derive(Clone, Debug)]
pub struct VmSnapshot {
    /// Its name.
    pub name: String,
    /// Its device's name.
    pub device: String,
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
    /// Since the daemon started.
    pub stats: Box<VmStats>,
}

/// A disk as it stands.
#[derive(Clone, Debug)]
pub struct DiskSnapshot {
    /// NBD export name.
    pub export: String,
    /// Bytes.
    pub size: u64,
    /// Why the backing is refusing requests, after a failed fsync; `None` while it is well.
    pub failed: Option<String>,
    /// What goes wrong with it on purpose.
    pub faults: Vec<RuleSnapshot>,
    /// How often something did since the daemon started, over all rules that it ever had.
    pub faults_injected: u64,
}
