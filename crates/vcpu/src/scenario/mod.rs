//! Scenarios as checked data: a machine, its scheduler, VMs and their workloads.

mod build;
pub mod keys;
mod read;
mod schema;

pub use build::{SPREAD, Simulation};
pub use read::{cpu, host, pcpus, read, scheduler};
pub use schema::{schedulers, schema};

pub use crate::spec::SchedulerSpec;

use crate::machine::{CpuSet, DEFAULT_WEIGHT, Machine, VmId};
use tidegate_config::frame::Frame;
use tidegate_core::time::Nanos;

/// Scenario of a vCPU simulation.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Title, duration and seed of the run. Processes and streams run from time zero and are
    /// measured from the end of `warm_up`. Round trips, fixed work and files start at that time.
    pub frame: Frame,
    /// pCPUs of the host.
    pub host: Host,
    /// vCPU scheduler.
    pub scheduler: SchedulerSpec,
    /// Driver domain.
    pub driver: Driver,
    /// Disk behind the driver domain.
    pub disk: DiskSpec,
    /// All other VMs.
    pub vms: Vec<VmSpec>,
}

/// Host that runs the VMs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    /// Number of pCPUs.
    pub pcpus: usize,
    /// Number of pCPUs in a socket.
    pub per_socket: usize,
    /// Cost of switching a pCPU to another vCPU.
    pub switch_cost: Nanos,
}

/// Driver domain, which carries the I/O of every VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Driver {
    /// Number of vCPUs; the I/O of each VM is handled by one of them.
    pub vcpus: usize,
    /// pCPUs on which its vCPUs may run.
    pub pinned: CpuSet,
}

/// Disk that serves one I/O at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpec {
    /// Size of an I/O in bytes.
    pub io: u64,
    /// Service time of an I/O.
    pub service: Nanos,
}

/// vCPUs of a VM, and the processes that compute there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuSpec {
    /// Number of vCPUs; events are delivered to the first unless a workload names another.
    pub vcpus: usize,
    /// Share of CPU time relative to other VMs.
    pub weight: u32,
    /// CPU cap in hundredths of a pCPU; 0: none.
    pub cap: u32,
    /// pCPUs on which its vCPUs may run.
    pub pinned: CpuSet,
    /// Number of processes that compute without end, spread over the vCPUs.
    pub busy_processes: usize,
}

impl CpuSpec {
    /// Adds a VM with these vCPUs to `machine`.
    pub fn add_to(&self, machine: &mut Machine, name: &str) -> VmId {
        let pinned = self.pinned.and(machine.all_pcpus());
        machine.add_vm(name, self.vcpus, pinned, self.weight, self.cap)
    }
}

impl Default for CpuSpec {
    /// One vCPU on any pCPU, without processes.
    fn default() -> CpuSpec {
        CpuSpec {
            vcpus: 1,
            weight: DEFAULT_WEIGHT,
            cap: 0,
            pinned: CpuSet::first_n(CpuSet::MAX_PCPUS),
            busy_processes: 0,
        }
    }
}

/// VM and its workloads, which run concurrently.
#[derive(Clone, PartialEq, Debug)]
pub struct VmSpec {
    /// Name of the VM.
    pub name: String,
    /// vCPUs of the VM.
    pub cpu: CpuSpec,
    /// CPU time of a process that computes and ends.
    pub work: Option<Nanos>,
    /// Packets that the VM answers.
    pub ping: Option<PingSpec>,
    /// Stream that the VM receives.
    pub stream: Option<StreamSpec>,
    /// File that the VM writes.
    pub write: Option<WriteSpec>,
}

/// Round trips of small packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PingSpec {
    /// Index of the VM that sends them.
    pub from: usize,
    /// Time between two packets.
    pub period: Nanos,
    /// Upper bound of the random delay of each packet.
    pub jitter: Nanos,
    /// Number of packets.
    pub count: u64,
    /// CPU time of sending or receiving a packet at the client.
    pub client: Nanos,
    /// CPU time in the driver domain, each way.
    pub driver: Nanos,
    /// CPU time of answering in the guest, or of the interrupt if a process answers.
    pub guest: Nanos,
    /// CPU time of a process in the guest that answers after the interrupt; `None`: the interrupt
    /// answers.
    pub process: Option<Nanos>,
    /// Number of packets sent at one time.
    pub burst: u64,
    /// vCPU of the VM whose event queue the packets use, modulo their number.
    pub vcpu: usize,
}

/// Byte stream to a VM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamSpec {
    /// Index of the VM that sends it.
    pub from: usize,
    /// Chunk size in bytes.
    pub chunk: u64,
    /// Largest number of bytes in flight.
    pub window: u64,
    /// CPU time of sending a chunk at the client.
    pub client: Nanos,
    /// CPU time of a chunk in the driver domain.
    pub driver: Nanos,
    /// CPU time of the interrupt in the guest.
    pub interrupt: Nanos,
    /// CPU time of the receiving process per chunk.
    pub receive: Nanos,
    /// CPU time of an acknowledgement, in the driver domain and at the client.
    pub acknowledge: Nanos,
    /// vCPU of the VM whose event queue the stream uses, modulo their number.
    pub vcpu: usize,
}

/// File that a VM writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteSpec {
    /// Size of the file in bytes.
    pub file: u64,
    /// CPU time of producing a KiB.
    pub make_per_kib: Nanos,
    /// Dirty bytes in the guest's memory at which the process waits.
    pub dirty: u64,
    /// Largest number of I/Os in flight.
    pub depth: u64,
    /// CPU time of an I/O in the driver domain, each way.
    pub driver: Nanos,
    /// CPU time of the interrupt in the guest.
    pub interrupt: Nanos,
    /// vCPU of the VM whose event queue the disk uses, modulo their number.
    pub vcpu: usize,
}
