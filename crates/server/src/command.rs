//! What the control plane asks of an event loop, and what it answers.

mod error;
#[cfg(test)]
pub(crate) mod sample;
mod snapshot;

use std::fs::File;

pub use error::{CommandError, ControlError};
pub use snapshot::{DeviceSnapshot, DiskSnapshot, VmSnapshot};

use jiff::Timestamp;
use tidegate_core::attainment::PartRecord;
use tidegate_core::learnt::Blob;
use tidegate_core::objective::Objective;
use tidegate_policies::policy::PolicySpec;
use tokio::sync::oneshot;

use crate::backing::{Disk, Tail};
use crate::connections::ConnectionPermit;
use crate::fault::Rule;
use crate::frontend::{Opening, Volume};
use crate::job::{JobOrder, KeptJob};

/// What a change of what is served is answered with.
pub type Reply<T> = oneshot::Sender<Result<T, CommandError>>;

/// A disk that is open and is to be served.
#[derive(Debug)]
pub struct NewDisk {
    /// It.
    pub disk: Disk,
    /// Where on the device it would like to lie.
    pub at: Option<u64>,
}

/// A VM that is to be served.
#[derive(Debug)]
pub struct NewVm {
    /// Its name, which nobody else has.
    pub name: String,
    /// A process of the host, not a VM.
    pub background: bool,
    /// What it is promised.
    pub objective: Objective,
    /// Most NBD connections to the VM at a time, 1 to 4096.
    pub max_connections: u32,
    /// Its disks.
    pub disks: Vec<NewDisk>,
}

/// A disk that waits to be given another size.
#[derive(Debug)]
pub struct Resizing {
    /// A handle to its file, if it has one.
    pub file: Option<File>,
    /// What is cut off of a disk in memory, to be discarded.
    pub tail: Option<Tail>,
    /// Bytes that it has, or had.
    pub before: u64,
    /// Serial number of the disk, never reused while the daemon runs.
    pub serial: u32,
}

/// A message to a device's event loop. A loop that is gone drops the reply's sender.
#[derive(Debug)]
pub enum Command {
    /// Everything there is to show.
    Snapshot {
        /// The answer.
        reply: oneshot::Sender<DeviceSnapshot>,
    },
    /// One VM: with a thousand of them a snapshot takes a loop longer than it may.
    Look {
        /// The VM's name.
        vm: String,
        /// The answer.
        reply: Reply<VmSnapshot>,
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
    /// Serves one more VM; answers with what clients are to be offered. Where it is refused its
    /// disks are closed.
    AddVm {
        /// The VM.
        vm: Box<NewVm>,
        /// It as it stands, and its volumes.
        reply: Reply<(VmSnapshot, Vec<Volume>)>,
    },
    /// Serves a VM no more: what waits is cancelled, what is in flight ends.
    RemoveVm {
        /// The VM's name.
        vm: String,
        /// Even while clients are connected, which are cut off.
        force: bool,
        /// Its disks, to be flushed and closed; nothing is in flight for them any more.
        reply: Reply<Vec<Disk>>,
    },
    /// Gives a VM one more disk.
    AddDisk {
        /// The VM's name.
        vm: String,
        /// The disk.
        disk: Box<NewDisk>,
        /// The VM as it stands, and the disk's volume.
        reply: Reply<(VmSnapshot, Vec<Volume>)>,
    },
    /// Takes a disk from a VM, as [`Command::RemoveVm`] does all of them.
    RemoveDisk {
        /// The VM's name.
        vm: String,
        /// The disk's export.
        export: String,
        /// Even while clients are connected.
        force: bool,
        /// The disk.
        reply: Reply<Vec<Disk>>,
    },
    /// Makes room for a disk of another size. Shorter, requests beyond the new end fail from now
    /// on, and it is answered once none is in flight there. [`Command::FinishResize`] must follow.
    StartResize {
        /// The VM's name.
        vm: String,
        /// The disk's export.
        export: String,
        /// Bytes it is to have.
        size: u64,
        /// Even shorter than it is.
        force: bool,
        /// What has to be given that size.
        reply: Reply<Resizing>,
    },
    /// From now on a disk has this size: the one that was asked for, or the one it had where its
    /// file could not be given another.
    FinishResize {
        /// The VM's name.
        vm: String,
        /// The disk's export.
        export: String,
        /// Serial number of the disk that was resized: its name may belong to another disk by now.
        serial: u32,
        /// Bytes it has.
        size: u64,
        /// The VM as it stands, and the disk's volume.
        reply: Reply<(VmSnapshot, Vec<Volume>)>,
    },
    /// What the policy's controller has learnt of one VM.
    ExportVm {
        /// The VM's name.
        vm: String,
        /// The answer; nothing where nothing was learnt.
        reply: Reply<Option<Blob>>,
    },
    /// Has the policy's controller go on with what was learnt of one VM.
    ImportVm {
        /// The VM's name.
        vm: String,
        /// What was learnt.
        learnt: Blob,
        /// Its disks lie elsewhere than where it was learnt.
        moved: bool,
        /// The VM as it stands.
        reply: Reply<VmSnapshot>,
    },
    /// Has the policy's controller go on with what was learnt of some VMs.
    ImportLearnt {
        /// What was learnt, by their names.
        learnt: Vec<(String, Blob)>,
        /// Their disks lie elsewhere than where it was learnt.
        moved: bool,
    },
    /// Has the engine go on with the attainment of VMs, by their names.
    ImportAttainment {
        /// Attainment of each part.
        records: Vec<(String, Vec<PartRecord>)>,
        /// Seconds since it was taken.
        ago: u32,
    },
    /// Has the engine go on with what was learnt of the device.
    ImportDevice(Vec<(DeviceLearnt, Blob)>),
    /// Begins a job of a VM.
    BeginJob {
        /// The VM's name.
        vm: String,
        /// The job.
        order: JobOrder,
        /// What time of day it is.
        at: Timestamp,
        /// The VM as it stands.
        reply: Reply<VmSnapshot>,
    },
    /// Ends the job of a VM that is not wanted any more.
    CancelJob {
        /// The VM's name.
        vm: String,
        /// The VM as it stands.
        reply: Reply<VmSnapshot>,
    },
    /// The jobs that run, by their VMs' names, to be kept.
    ExportJobs {
        /// The answer.
        reply: oneshot::Sender<Vec<(String, KeptJob)>>,
    },
    /// Goes on with jobs that were kept, by their VMs' names.
    ResumeJobs {
        /// The jobs.
        jobs: Vec<(String, KeptJob)>,
        /// What time of day it is.
        at: Timestamp,
    },
    /// A connection of a guest whose handshake is done.
    Adopt(Box<Adopted>),
    /// Stop reading, finish what is there, flush, answer, end the loop.
    Drain,
    /// End the loop at once; what is not answered stays so.
    Abort,
}

/// A connection of a guest whose handshake is done.
#[derive(Debug)]
pub struct Adopted {
    /// What its protocol needs to serve it.
    pub opening: Opening,
    /// Serial number of the disk, as the [`Volume`] has it.
    pub serial: u32,
    /// Name of the disk, for the log.
    pub disk: String,
    /// Who it is, for the log.
    pub peer: String,
    /// Permit for the connection among those of its VM.
    pub permit: ConnectionPermit,
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

/// What was learnt of some VMs of a device.
#[derive(Debug)]
pub struct LearntPart {
    /// The policy's name.
    pub policy: String,
    /// What was learnt, with the VM's name, where anything was.
    pub states: Vec<(String, Blob)>,
    /// Attainment of the VMs that were looked at, where anything is promised.
    pub attainment: Vec<(String, Vec<PartRecord>)>,
    /// Where to go on; `None`: those were the last.
    pub next: Option<usize>,
    /// What was learnt of the device itself since it was told to go on; with the first VMs.
    pub device: Vec<(DeviceLearnt, Option<Blob>)>,
}

/// What is learnt of a device, whoever uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceLearnt {
    /// What requests cost.
    Costs,
    /// The cap in front of it.
    Cap,
    /// What it does in all, by how many VMs use it.
    Bandwidths,
}

impl DeviceLearnt {
    /// All there are.
    pub const ALL: [DeviceLearnt; 3] = [
        DeviceLearnt::Costs,
        DeviceLearnt::Cap,
        DeviceLearnt::Bandwidths,
    ];

    /// What it is kept under.
    pub fn name(self) -> &'static str {
        match self {
            DeviceLearnt::Costs => "costs",
            DeviceLearnt::Cap => "cap",
            DeviceLearnt::Bandwidths => "bandwidths",
        }
    }
}
