//! What is simulated, as checked data: a machine, its scheduler, virtual machines and what they do.

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

/// A scenario.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Title, duration and seed of the run. Processes and streams are counted from the end of
    /// `warm_up` on; round trips, fixed work and files begin there.
    pub frame: Frame,
    /// The machine.
    pub host: Host,
    /// Its scheduler.
    pub scheduler: SchedulerSpec,
    /// The driver domain.
    pub driver: Driver,
    /// The disk behind it.
    pub disk: DiskSpec,
    /// All others.
    pub vms: Vec<VmSpec>,
}

/// A machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    /// How many pCPUs it has.
    pub pcpus: usize,
    /// How many of them are in a socket.
    pub per_socket: usize,
    /// What a pCPU loses when it goes over to another vCPU.
    pub switch_cost: Nanos,
}

/// The driver domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Driver {
    /// How many vCPUs it has; those of each virtual machine are handled by one of them.
    pub vcpus: usize,
    /// Where they may run.
    pub pinned: CpuSet,
}

/// A disk that does one I/O after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpec {
    /// Bytes of an I/O.
    pub io: u64,
    /// How long it takes.
    pub service: Nanos,
}

/// What a virtual machine has of the processors, and what it works there whatever else it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuSpec {
    /// How many vCPUs it has. Events land on the first.
    pub vcpus: usize,
    /// Its weight.
    pub weight: u32,
    /// Its cap in hundredths of a pCPU; 0: none.
    pub cap: u32,
    /// Where its vCPUs may run.
    pub pinned: CpuSet,
    /// Processes that work without end, on one vCPU each.
    pub busy_processes: usize,
}

impl CpuSpec {
    /// Adds such a virtual machine to a machine.
    pub fn add_to(&self, machine: &mut Machine, name: &str) -> VmId {
        let pinned = self.pinned.and(machine.all());
        machine.add_vm(name, self.vcpus, pinned, self.weight, self.cap)
    }
}

impl Default for CpuSpec {
    /// One vCPU, anywhere, and nothing that it works.
    fn default() -> CpuSpec {
        CpuSpec {
            vcpus: 1,
            weight: DEFAULT_WEIGHT,
            cap: 0,
            pinned: CpuSet::first_n(CpuSet::MOST),
            busy_processes: 0,
        }
    }
}

/// A virtual machine, and what it does. All at once where it does several things.
#[derive(Clone, PartialEq, Debug)]
pub struct VmSpec {
    /// Its name.
    pub name: String,
    /// What it has of the machine.
    pub cpu: CpuSpec,
    /// A process that has so much work.
    pub work: Option<Nanos>,
    /// It answers these.
    pub ping: Option<PingSpec>,
    /// It receives this.
    pub stream: Option<StreamSpec>,
    /// It writes this.
    pub write: Option<WriteSpec>,
}

/// Round trips of small packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PingSpec {
    /// The place of the virtual machine that sends them.
    pub from: usize,
    /// How far apart.
    pub period: Nanos,
    /// Up to how much later, by chance.
    pub jitter: Nanos,
    /// How many.
    pub count: u64,
    /// What sending or receiving one takes the client.
    pub client: Nanos,
    /// What handling it takes the driver domain, each way.
    pub driver: Nanos,
    /// What answering it takes the guest.
    pub guest: Nanos,
}

/// A stream of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamSpec {
    /// The place of the virtual machine that sends it.
    pub from: usize,
    /// Bytes that are handled at once.
    pub chunk: u64,
    /// Bytes on their way at most.
    pub window: u64,
    /// What sending a chunk takes the client.
    pub client: Nanos,
    /// What handling it takes the driver domain.
    pub driver: Nanos,
    /// What it takes the guest's interrupt.
    pub interrupt: Nanos,
    /// What it takes the process that receives.
    pub receive: Nanos,
    /// What an acknowledgement takes the driver domain, and the client.
    pub acknowledge: Nanos,
}

/// A file that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteSpec {
    /// How large it is.
    pub file: u64,
    /// What making a KiB takes the process.
    pub make_per_kib: Nanos,
    /// How much may be in the guest's memory and not on the disk.
    pub dirty: u64,
    /// I/Os on their way at most.
    pub depth: u64,
    /// What an I/O takes the driver domain, each way.
    pub driver: Nanos,
    /// What it takes the guest's interrupt.
    pub interrupt: Nanos,
}
