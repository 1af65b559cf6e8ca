//! Protocol between the control plane and an event loop: commands, answers and snapshots.

mod error;
#[cfg(test)]
pub(crate) mod sample_snapshot;
mod snapshot;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

pub use error::{CommandError, ControlError};
pub use snapshot::{DeviceSnapshot, DiskSnapshot, VmSnapshot};

use jiff::Timestamp;
use tidegate_core::attainment::PartRecord;
use tidegate_core::learnt_state::Blob;
use tidegate_core::objective::{Limit, Objective};
use tidegate_core::roles::Consumed;
use tidegate_core::time::Nanos;
use tidegate_policies::policy::PolicySpec;
use tidegate_recording::DeviceFacts;
use tokio::sync::{mpsc, oneshot};

use crate::backing::{Disk, Found, Tail};
use crate::connections::ConnectionPermit;
use crate::fault::Rule;
use crate::frontend::{Opening, Volume, nbd, vhost_user};
use crate::recording::{Begun, Producer};
use crate::transfer::{PersistedTransfers, TransferOrder};

/// Channel for the answer to a command that can be refused.
pub type Reply<T> = oneshot::Sender<Result<T, CommandError>>;

/// Open disk that is to be served.
#[derive(Debug)]
pub struct NewDisk {
    /// The open disk.
    pub disk: Disk,
    /// Preferred first byte on the device; `None` for any.
    pub at: Option<u64>,
}

/// VM that is to be served.
#[derive(Debug)]
pub struct NewVm {
    /// Name, unique over all VMs of the daemon.
    pub name: String,
    /// True for a process of the host instead of a VM.
    pub background: bool,
    /// Objective to put in force.
    pub objective: Objective,
    /// Most NBD connections to the VM at a time, 1 to 4096.
    pub max_connections: u32,
    /// Open disks, at least one.
    pub disks: Vec<NewDisk>,
}

/// Disk that is being resized; the event loop has prepared the change and waits for
/// [`Command::FinishResize`].
#[derive(Debug)]
pub struct Resizing {
    /// Handle of the disk's file; `None` for a disk in memory.
    pub file: Option<File>,
    /// Part of a disk in memory that is cut off and has to be discarded.
    pub tail: Option<Tail>,
    /// Size in bytes before the change.
    pub before: u64,
    /// Serial number of the disk, never reused while the daemon runs.
    pub serial: u32,
}

/// Function for a test to run on an event loop's thread.
#[cfg(test)]
pub struct LoopCall(pub Box<dyn FnOnce() + Send>);

#[cfg(test)]
impl std::fmt::Debug for LoopCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoopCall").finish_non_exhaustive()
    }
}

/// Change of limits of disks.
#[derive(Debug)]
pub enum LimitChange {
    /// Replaces the limits of a disk.
    Disk {
        /// Name of the VM.
        vm: String,
        /// NBD export name of the disk.
        export: String,
        /// Limit of the disk alone.
        limit: Box<Limit>,
        /// Name of the limit group whose limit it shares.
        group: Option<String>,
        /// Channel for the VM's snapshot after the change.
        reply: Reply<VmSnapshot>,
    },
    /// Replaces a limit that disks share.
    Group {
        /// Name of the limit group.
        group: String,
        /// Limit of all its disks together.
        limit: Box<Limit>,
        /// Channel for the device's snapshot after the change.
        reply: Reply<DeviceSnapshot>,
    },
}

/// Message to a device's event loop. A loop that has ended drops the channel of the answer.
#[derive(Debug)]
pub enum Command {
    /// Returns a snapshot of the device with all its VMs.
    Snapshot {
        /// Channel for the snapshot.
        reply: oneshot::Sender<DeviceSnapshot>,
    },
    /// Returns a snapshot of one VM, because that of a device with a thousand VMs delays the loop.
    SnapshotVm {
        /// Name of the VM.
        vm: String,
        /// Channel for the snapshot.
        reply: Reply<VmSnapshot>,
    },
    /// Replaces the objective of a VM.
    SetObjective {
        /// Name of the VM.
        vm: String,
        /// Complete new objective.
        objective: Box<Objective>,
        /// Channel for the VM's snapshot after the change.
        reply: oneshot::Sender<Result<VmSnapshot, CommandError>>,
    },
    /// Replaces the device's policy; requests that wait are passed on to the new one.
    SetPolicy {
        /// New policy with its parameters.
        policy: PolicySpec,
        /// Channel for the device's snapshot after the change.
        reply: oneshot::Sender<Result<DeviceSnapshot, CommandError>>,
    },
    /// Changes limits of disks.
    ChangeLimits(LimitChange),
    /// Changes the fault rules of a disk.
    ChangeFaults {
        /// NBD export name of the disk.
        export: String,
        /// Change of the rules.
        change: FaultChange,
        /// Channel for the disk's snapshot after the change.
        reply: oneshot::Sender<Result<DiskSnapshot, CommandError>>,
    },
    /// Returns the state that the policy's controller has learnt of some VMs, and of the device.
    ExportLearnt {
        /// Index of the first VM: 0, then [`LearntStates::next`].
        from: usize,
        /// Channel for the states.
        reply: oneshot::Sender<LearntStates>,
    },
    /// Adds a VM. If the loop refuses it, it closes the disks.
    AddVm {
        /// VM to add.
        vm: Box<NewVm>,
        /// Channel for the VM's snapshot, and the volumes to offer to clients.
        reply: Reply<(VmSnapshot, Vec<Volume>)>,
    },
    /// Removes a VM: cancels its waiting requests and waits for its I/Os in flight.
    RemoveVm {
        /// Name of the VM.
        vm: String,
        /// Cuts off connected clients; without it they are a reason to refuse.
        force: bool,
        /// Channel for the disks, which have no I/O in flight and are to be flushed and closed.
        reply: Reply<Vec<Disk>>,
    },
    /// Adds a disk to a VM.
    AddDisk {
        /// Name of the VM.
        vm: String,
        /// Disk to add.
        disk: Box<NewDisk>,
        /// Channel for the VM's snapshot, and the disk's volume to offer to clients.
        reply: Reply<(VmSnapshot, Vec<Volume>)>,
    },
    /// Removes a disk of a VM, in the manner of [`Command::RemoveVm`].
    RemoveDisk {
        /// Name of the VM.
        vm: String,
        /// NBD export name of the disk.
        export: String,
        /// Cuts off connected clients; without it they are a reason to refuse.
        force: bool,
        /// Channel for the disk, which has no I/O in flight.
        reply: Reply<Vec<Disk>>,
    },
    /// Prepares a disk for another size. If it shrinks, requests beyond the new end fail from now
    /// on, and the answer comes once no I/O is in flight there. [`Command::FinishResize`] must
    /// follow.
    StartResize {
        /// Name of the VM.
        vm: String,
        /// NBD export name of the disk.
        export: String,
        /// New size in bytes.
        size: u64,
        /// Allows a smaller size.
        force: bool,
        /// Channel for the file or the memory to resize.
        reply: Reply<Resizing>,
    },
    /// Puts a disk's size in force: the requested one, or the previous one if its file could not be
    /// resized.
    FinishResize {
        /// Name of the VM.
        vm: String,
        /// NBD export name of the disk.
        export: String,
        /// Serial number of the disk that was resized: its name may belong to another disk by now.
        serial: u32,
        /// Size in bytes.
        size: u64,
        /// Channel for the VM's snapshot, and the disk's volume to offer to clients.
        reply: Reply<(VmSnapshot, Vec<Volume>)>,
    },
    /// Changes whether I/O of a disk is served, as the lock of its file is taken or released.
    ChangeActivation(ActivationChange),
    /// Returns the state that the policy's controller has learnt of one VM.
    ExportVm {
        /// Name of the VM.
        vm: String,
        /// Channel for the state; `None` if nothing was learnt.
        reply: Reply<Option<Blob>>,
    },
    /// Passes learnt state of one VM to the policy's controller.
    ImportVm {
        /// Name of the VM.
        vm: String,
        /// Learnt state.
        learnt: Blob,
        /// True if the VM's disks are on other storage than when the state was learnt.
        moved: bool,
        /// Channel for the VM's snapshot.
        reply: Reply<VmSnapshot>,
    },
    /// Passes learnt states of VMs to the policy's controller.
    ImportLearnt {
        /// States by name of the VM.
        learnt: Vec<(String, Blob)>,
        /// True if the VMs' disks are on other storage than when the states were learnt.
        moved: bool,
    },
    /// Passes the recorded attainment of VMs to the engine.
    ImportAttainment {
        /// Records of each part of the objective, by name of the VM.
        records: Vec<(String, Vec<PartRecord>)>,
        /// Age of the records in seconds.
        ago: u32,
    },
    /// Passes learnt states of the device to the engine.
    ImportDevice(Vec<(LearntDeviceState, Blob)>),
    /// Begins a deadline transfer of a VM.
    BeginTransfer {
        /// Name of the VM.
        vm: String,
        /// Size and deadline.
        order: TransferOrder,
        /// Present time.
        at: Timestamp,
        /// Channel for the VM's snapshot.
        reply: Reply<VmSnapshot>,
    },
    /// Cancels the deadline transfer of a VM.
    CancelTransfer {
        /// Name of the VM.
        vm: String,
        /// Channel for the VM's snapshot.
        reply: Reply<VmSnapshot>,
    },
    /// Returns the running transfers and begun placements for the store.
    ExportTransfers {
        /// Channel for the transfers, by name of the VM.
        reply: oneshot::Sender<Vec<(String, PersistedTransfers)>>,
    },
    /// Resumes transfers from the store.
    ResumeTransfers {
        /// Transfers by name of the VM.
        transfers: Vec<(String, PersistedTransfers)>,
        /// Present time.
        at: Timestamp,
    },
    /// Switches the recording of requests on or off.
    ChangeRecording(RecordingChange),
    /// Takes over an NBD connection whose handshake is complete.
    AddConnection(Box<NewConnection>),
    /// Takes a step of a hand-over to another daemon.
    HandOver(HandOverStep),
    /// Stops reading, finishes the requests received, flushes, replies and ends the loop.
    Drain,
    /// Ends the loop at once; unfinished requests get no reply.
    Abort,
    /// Calls a function.
    #[cfg(test)]
    Call(LoopCall),
}

/// Step of a hand-over of connections to another daemon.
#[derive(Debug)]
pub enum HandOverStep {
    /// Answers connections over TLS and closes them, because they cannot be handed over.
    CloseTunnelled {
        /// Channel for the answer, which comes once none is left.
        reply: oneshot::Sender<()>,
    },
    /// Keeps a file in the table of the ring, in place of the one before, until the last I/O of the
    /// ring has ended.
    Keep {
        /// File.
        file: OwnedFd,
        /// Channel for the result.
        reply: oneshot::Sender<io::Result<()>>,
    },
    /// Lists all clients that are connected.
    ListClients {
        /// Channel for the answer: peers, each with the export of its disk.
        reply: oneshot::Sender<Vec<(String, String)>>,
    },
    /// Hands the connections over: receives nothing more, withdraws requests that have not begun,
    /// and lets I/O in flight end.
    Begin {
        /// Channel for the connections, closed once nothing is left here.
        handed: mpsc::UnboundedSender<HandedOver>,
    },
    /// Returns what is used up of limits.
    ExportLimitUse {
        /// Channel for the answer: the time of the monotonic clock, and limits of VMs, disks and
        /// groups that have a rate.
        reply: oneshot::Sender<(Nanos, Vec<LimitUse>)>,
    },
    /// Has limits owe what was used up of them in another daemon.
    ImportLimitUse {
        /// Time of the monotonic clock at which it was used up.
        at: Nanos,
        /// Limits. Those that are not known are left out.
        limits: Vec<LimitUse>,
    },
    /// Goes on after [`HandOverStep::Begin`]: connections may be added again.
    Resume,
    /// Ends the loop at once, after [`HandOverStep::Begin`]. The files of its disks stay open and
    /// locked until the process ends.
    GiveUpDisks,
}

/// Limit by the name of who has it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum LimitName {
    /// Limit of a VM, by the VM's name.
    Vm(String),
    /// Own limit of a disk, by its export.
    Disk(String),
    /// Limit that disks share, by the name of the limit group.
    Group(String),
}

/// Use of a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitUse {
    /// Limit.
    pub limit: LimitName,
    /// Part that is used up.
    pub consumed: Consumed,
    /// Rates and burst under which it was used up; `None`: not known, so that times are taken as
    /// they are.
    pub under: Option<Limit>,
}

/// Switch of a recording of requests.
#[derive(Debug)]
pub enum RecordingChange {
    /// Records every request from now on. A recording that is on ends.
    Start {
        /// Queues to the recorder.
        producer: Box<Producer>,
        /// Facts of the device from its configuration.
        device: Box<DeviceFacts>,
        /// Channel for what is in force at the beginning.
        reply: oneshot::Sender<Begun>,
    },
    /// Ends the recording.
    Stop {
        /// Channel for the answer.
        reply: oneshot::Sender<()>,
    },
}

/// Change of whether I/O of a disk is served.
#[derive(Debug)]
pub struct ActivationChange {
    /// Serial number of the disk.
    pub serial: u32,
    /// State of the lock of the disk's file.
    pub lock: DiskLock,
    /// Channel for the answer. It comes once no I/O is in flight if the lock is to be released.
    pub reply: Reply<()>,
}

/// Lock of a disk's file.
#[derive(Debug)]
pub enum DiskLock {
    /// The lock is to be released: all further I/O fails.
    Leaves,
    /// The lock was taken, with these findings: I/O is served.
    Taken(Found),
    /// The lock was not released: I/O is served. If the file could not be flushed, with this error,
    /// changes fail.
    Kept(Option<std::io::Error>),
}

/// NBD connection whose handshake is complete.
#[derive(Debug)]
pub struct NewConnection {
    /// State of the frontend's protocol after the handshake.
    pub opening: Opening,
    /// Serial number of the disk, as in its [`Volume`].
    pub serial: u32,
    /// Name of the disk, for the log.
    pub disk: String,
    /// Remote end of the connection, for the log.
    pub peer: String,
    /// Permit for the connection among those of its VM.
    pub permit: ConnectionPermit,
}

/// Connection of any protocol that was taken out of a loop.
#[derive(Debug)]
pub enum HandedOver {
    /// NBD connection.
    Connection(HandedConnection),
    /// Device of a front-end of vhost-user, whose session rests.
    Session(HandedSession),
}

/// Device of a session that was taken out of a loop.
pub type HandedSession = HandedConnection<vhost_user::Handed>;

/// Connection that was taken out of a loop, to be handed over to another daemon.
#[derive(Debug)]
pub struct HandedConnection<H = nbd::Handed> {
    /// Export name of its disk.
    pub disk: String,
    /// Serial number of the disk, as in its [`Volume`].
    pub serial: u32,
    /// Remote end, for the log.
    pub peer: String,
    /// Permit for the connection among those of its VM.
    pub permit: ConnectionPermit,
    /// State of the connection.
    pub handed: H,
}

impl HandedConnection<()> {
    /// Returns the connection with the state of its protocol.
    pub(crate) fn with<H>(self, handed: H) -> HandedConnection<H> {
        HandedConnection {
            disk: self.disk,
            serial: self.serial,
            peer: self.peer,
            permit: self.permit,
            handed,
        }
    }
}

impl<H: Into<Opening>> HandedConnection<H> {
    /// Returns the connection on its way to a loop. All replies were sent before.
    pub fn reopen(self) -> NewConnection {
        NewConnection {
            opening: self.handed.into(),
            serial: self.serial,
            disk: self.disk,
            peer: self.peer,
            permit: self.permit,
        }
    }
}

/// Change of a disk's fault rules.
#[derive(Clone, Debug)]
pub enum FaultChange {
    /// Appends a rule.
    Add(Box<Rule>),
    /// Removes the rule of this number.
    Remove(u32),
    /// Removes all rules.
    Clear,
}

/// Learnt states of some VMs of a device.
#[derive(Debug)]
pub struct LearntStates {
    /// Name of the policy.
    pub policy: String,
    /// Learnt states by name of the VM; VMs without one are left out.
    pub states: Vec<(String, Blob)>,
    /// Attainment by name of the VM; VMs without an objective are left out.
    pub attainment: Vec<(String, Vec<PartRecord>)>,
    /// Index of the next VM to ask for; `None` at the end.
    pub next: Option<usize>,
    /// Learnt states of the device itself, with the first VMs only; `None` for a state that the
    /// store is to delete.
    pub device: Vec<(LearntDeviceState, Option<Blob>)>,
}

/// Learnt states of a device that do not belong to a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LearntDeviceState {
    /// Costs of requests.
    Costs,
    /// Cap below the device's own limit, such as a cloud's.
    Cap,
    /// Throughput of the device by number of VMs that use it.
    Bandwidths,
}

impl LearntDeviceState {
    /// All kinds.
    pub const ALL: [LearntDeviceState; 3] = [
        LearntDeviceState::Costs,
        LearntDeviceState::Cap,
        LearntDeviceState::Bandwidths,
    ];

    /// Returns the name under which the store keeps the state.
    pub fn name(self) -> &'static str {
        match self {
            LearntDeviceState::Costs => "costs",
            LearntDeviceState::Cap => "cap",
            LearntDeviceState::Bandwidths => "bandwidths",
        }
    }
}
