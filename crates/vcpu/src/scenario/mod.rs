//! What is simulated, as checked data: a machine, its scheduler, virtual machines and what they do.

mod build;
mod read;

pub use build::{SPREAD, Simulation};
pub use read::{cpu, host, pcpus, read, scheduler};

use crate::credit::{self, Credit};
use crate::credit2::{self, Credit2};
use crate::io_turns::{self, IoTurns};
use crate::isacs::{self, Isacs};
use crate::machine::{CpuSet, DEFAULT_WEIGHT, Machine, VmId};
use crate::scheduler::Scheduler;
use tidegate_core::time::Nanos;

/// A scheduler with its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchedulerSpec {
    /// Xen's first.
    Credit(credit::Params),
    /// Xen's default.
    Credit2(credit2::Params),
    /// ISACS, on Credit2.
    Isacs(isacs::Params),
    /// Credit2 with turns for I/O.
    IoTurns(io_turns::Params),
}

impl SchedulerSpec {
    /// What schedulers are called.
    pub const NAMES: [&'static str; 4] = ["credit", "credit2", "isacs", "credit2-io"];

    /// The scheduler of this name with the usual parameters. `None`: there is none.
    pub fn named(name: &str) -> Option<SchedulerSpec> {
        match name {
            "credit" => Some(SchedulerSpec::Credit(credit::Params::default())),
            "credit2" => Some(SchedulerSpec::Credit2(credit2::Params::default())),
            "isacs" => Some(SchedulerSpec::Isacs(isacs::Params::default())),
            "credit2-io" => Some(SchedulerSpec::IoTurns(io_turns::Params::default())),
            _ => None,
        }
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            SchedulerSpec::Credit(_) => "credit",
            SchedulerSpec::Credit2(_) => "credit2",
            SchedulerSpec::Isacs(_) => "isacs",
            SchedulerSpec::IoTurns(_) => "credit2-io",
        }
    }

    /// The other one in its place, unless it is one of the same name, which keeps its parameters.
    /// Credit2's are also those of the schedulers that stand on it, but for when a pCPU looks
    /// again, which is each one's own.
    pub fn replaced_by(mut self, mut other: SchedulerSpec) -> SchedulerSpec {
        if self.name() == other.name() {
            return self;
        }
        if let (Some(own), Some(params)) = (self.credit2(), other.credit2()) {
            let looks_again = params.looks_again;
            *params = credit2::Params {
                looks_again,
                ..*own
            };
        }
        other
    }

    /// Those of Credit2, where it is that or stands on it.
    fn credit2(&mut self) -> Option<&mut credit2::Params> {
        match self {
            SchedulerSpec::Credit(_) => None,
            SchedulerSpec::Credit2(params) => Some(params),
            SchedulerSpec::Isacs(params) => Some(&mut params.credit2),
            SchedulerSpec::IoTurns(params) => Some(&mut params.credit2),
        }
    }

    /// It, for this machine, whose vCPUs are all blocked.
    pub fn build(&self, machine: &Machine) -> Box<dyn Scheduler> {
        match *self {
            SchedulerSpec::Credit(params) => Box::new(Credit::new(params, machine)),
            SchedulerSpec::Credit2(params) => Box::new(Credit2::new(params, machine)),
            SchedulerSpec::Isacs(params) => Box::new(Isacs::scheduler(params, machine)),
            SchedulerSpec::IoTurns(params) => Box::new(IoTurns::scheduler(params, machine)),
        }
    }
}

/// A scenario.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// What it shows.
    pub title: String,
    /// How long it lasts.
    pub duration: Nanos,
    /// It ends earlier where all that has an end has come to it.
    pub until_done: bool,
    /// What runs and what streams send is counted from here on; round trips, primes and files begin
    /// here.
    pub warm_up: Nanos,
    /// What chance depends on.
    pub seed: u64,
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
    pub hogs: usize,
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
            hogs: 0,
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
    pub primes: Option<Nanos>,
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
