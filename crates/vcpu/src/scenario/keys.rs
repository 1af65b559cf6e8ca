//! Keys of vCPU scenarios. Disk scenarios share those of the host and of a VM's vCPUs.

use tidegate_config::frame;
use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, TextForm};
use tidegate_core::time::Nanos;

use crate::machine::{CpuSet, DEFAULT_WEIGHT};

/// Longest run: one day.
const DURATION_MAX: Nanos = Nanos::from_secs(24 * 3_600);
/// Range of a CPU time in nanoseconds: up to one hour.
const CPU_TIME_RANGE_NS: (u64, u64) = (1, Nanos::from_secs(3_600).0);
/// Largest number of vCPUs of a VM.
const VCPUS_MAX: u64 = 128;
/// Largest number of VMs of one table.
const VMS_MAX: u64 = 1_000;
/// Largest number of pCPUs.
const PCPUS_MAX: u64 = CpuSet::MAX_PCPUS as u64;
/// Nanoseconds of a microsecond.
const US: u64 = 1_000;

/// Declares an optional key.
const fn optional(
    name: &'static str,
    kind: KeyKind,
    otherwise: &'static str,
    help: &'static str,
) -> KeyInfo {
    KeyInfo::new(name, kind, KeyDefault::Unset(otherwise), help)
}

/// Declares the CPU time of a step; the default is in microseconds.
const fn step(name: &'static str, default_us: u64, help: &'static str) -> KeyInfo {
    KeyInfo::number(
        name,
        KeyKind::Duration,
        default_us * US,
        CPU_TIME_RANGE_NS,
        help,
    )
}

/// Number of pCPUs of the host.
pub const PCPUS: KeyInfo = KeyInfo::number(
    "pcpus",
    KeyKind::Count,
    8,
    (1, PCPUS_MAX),
    "pCPUs of the host",
);
/// Number of pCPUs of a socket.
pub const PCPUS_PER_SOCKET: KeyInfo = optional(
    "pcpus_per_socket",
    KeyKind::Count,
    "as `pcpus`",
    "pCPUs of a socket",
)
.within(1, PCPUS_MAX);
/// Cost of switching a pCPU.
pub const CONTEXT_SWITCH: KeyInfo = KeyInfo::number(
    "context_switch",
    KeyKind::Duration,
    0,
    (0, Nanos::from_millis(1).0),
    "cost of switching a pCPU to another vCPU",
);
/// Name of the definition of schedulers in a schema.
pub const SCHEDULERS: &str = "scheduler";
/// Scheduler of vCPUs.
pub const SCHEDULER: KeyInfo = KeyInfo::new(
    "scheduler",
    KeyKind::Registered(SCHEDULERS),
    KeyDefault::Required("scheduler = \"credit2\""),
    "a name, or a table of its name and parameters: [vcpu.md](vcpu.md#schedulers)",
);

/// Form of a list of pCPUs.
const PCPU_LIST: TextForm = TextForm {
    what: "pCPUs such as `\"0-1,4\"`",
    pattern: "^\\s*[0-9]+\\s*(-\\s*[0-9]+\\s*)?(,\\s*[0-9]+\\s*(-\\s*[0-9]+\\s*)?)*$",
};

/// Number of vCPUs.
pub const VCPUS: KeyInfo = KeyInfo::number(
    "vcpus",
    KeyKind::Count,
    1,
    (1, VCPUS_MAX),
    "number of vCPUs",
);
/// Weight of a VM on the pCPUs.
pub const WEIGHT: KeyInfo = KeyInfo::number(
    "weight",
    KeyKind::Count,
    DEFAULT_WEIGHT as u64,
    (1, 65_535),
    "share of CPU time relative to other VMs",
);
/// CPU limit of a VM.
pub const CAP: KeyInfo = KeyInfo::number(
    "cap",
    KeyKind::Count,
    0,
    (0, 100 * PCPUS_MAX),
    "CPU limit of all vCPUs of the VM together, in hundredths of a pCPU; 0: none",
);
/// Affinity of vCPUs.
pub const PINNED: KeyInfo = optional(
    "pinned",
    KeyKind::Form(&PCPU_LIST),
    "all",
    "pCPUs on which the vCPUs may run",
);
/// Processes that compute without end.
pub const BUSY_PROCESSES: KeyInfo = KeyInfo::number(
    "busy_processes",
    KeyKind::Count,
    0,
    (0, 1_000),
    "processes that compute without end while the VM exists, on one vCPU each",
);

/// Keys of a VM's vCPUs.
pub const CPU_KEYS: [KeyInfo; 5] = [VCPUS, WEIGHT, CAP, PINNED, BUSY_PROCESSES];

/// Driver domain.
const DRIVER: KeyInfo = optional(
    "driver",
    KeyKind::Table(&DRIVER_TABLE),
    "one vCPU, on any pCPU",
    "driver domain, whose vCPUs carry every VM's I/O",
);

/// `[host.cpu.driver]`
pub(super) const DRIVER_TABLE: SectionInfo = SectionInfo {
    name: "host.cpu.driver",
    keys: &[VCPUS, PINNED],
};

/// `[host.cpu]`
pub(super) const HOST_CPU: SectionInfo = SectionInfo {
    name: "host.cpu",
    keys: &[PCPUS, PCPUS_PER_SOCKET, CONTEXT_SWITCH, SCHEDULER, DRIVER],
};

/// `[host]`
pub(super) const HOST: SectionInfo = SectionInfo {
    name: "host",
    keys: &[KeyInfo::new(
        "cpu",
        KeyKind::Table(&HOST_CPU),
        KeyDefault::Required("[host.cpu] with scheduler = \"credit2\""),
        "pCPUs of the host",
    )],
};

/// Size of an I/O in bytes.
pub(super) const IO: KeyInfo = KeyInfo::number(
    "io",
    KeyKind::Bytes,
    512 << 10,
    (1 << 10, 64 << 20),
    "bytes of an I/O",
);
/// Duration of an I/O.
pub(super) const SERVICE: KeyInfo = step("service", 1_000, "duration of an I/O");

/// `[disk]`
pub(super) const DISK: SectionInfo = SectionInfo {
    name: "disk",
    keys: &[IO, SERVICE],
};

/// Name of a VM.
pub(super) const NAME: KeyInfo = KeyInfo::new(
    "name",
    KeyKind::Name,
    KeyDefault::Required("a unique name: name = \"web\""),
    "unique; letters, digits, `-`, `_`, `.`; at most 64",
);
/// Number of VMs of a table.
pub(super) const COUNT: KeyInfo = optional(
    "count",
    KeyKind::Count,
    "one, named `NAME`",
    "VMs like this one, named `NAME-1`, `NAME-2` ...",
)
.within(1, VMS_MAX);
/// vCPUs of a VM.
pub(super) const CPU: KeyInfo = optional(
    "cpu",
    KeyKind::Table(&CPU_TABLE),
    "one vCPU",
    "vCPUs of the VM, and processes that compute there",
);
/// CPU time of a process that ends.
pub(super) const WORK_TIME: KeyInfo = optional(
    "work",
    KeyKind::Duration,
    "none",
    "CPU time of a process that computes and ends, on the first vCPU",
)
.within(CPU_TIME_RANGE_NS.0, CPU_TIME_RANGE_NS.1);
/// Packets that a VM answers.
pub(super) const PING: KeyInfo = optional(
    "ping",
    KeyKind::Table(&PING_TABLE),
    "none",
    "packets that the VM answers",
);
/// Bytes that a VM receives.
pub(super) const STREAM: KeyInfo = optional(
    "stream",
    KeyKind::Table(&STREAM_TABLE),
    "none",
    "byte stream that the VM receives",
);
/// File that a VM writes.
pub(super) const WRITE: KeyInfo = optional(
    "write",
    KeyKind::Table(&WRITE_TABLE),
    "none",
    "file that the VM writes through its page cache",
);

/// `[vm.cpu]`
pub(super) const CPU_TABLE: SectionInfo = SectionInfo {
    name: "vm.cpu",
    keys: &CPU_KEYS,
};

/// `[[vm]]`
pub(super) const VM: SectionInfo = SectionInfo {
    name: "vm",
    keys: &[NAME, COUNT, CPU, WORK_TIME, PING, STREAM, WRITE],
};

/// VM that sends.
pub(super) const FROM: KeyInfo = KeyInfo::new(
    "from",
    KeyKind::Name,
    KeyDefault::Required("the sending VM: from = \"client\""),
    "VM that sends, another `[[vm]]`; of one with a `count` the first",
);

/// vCPU to which events of an I/O path are delivered.
pub(super) const EVENT_VCPU: KeyInfo = KeyInfo::number(
    "vcpu",
    KeyKind::Count,
    0,
    (0, VCPUS_MAX - 1),
    "vCPU of the VM, from 0, whose event queue the I/O uses and on which its process runs; modulo \
     their number",
);

/// Time between two packets.
pub(super) const PERIOD: KeyInfo = KeyInfo::number(
    "period",
    KeyKind::Duration,
    10_000 * US,
    (US, CPU_TIME_RANGE_NS.1),
    "time between two packets",
);
/// Largest delay of a packet by chance.
pub(super) const JITTER: KeyInfo = KeyInfo::number(
    "jitter",
    KeyKind::Duration,
    0,
    (0, CPU_TIME_RANGE_NS.1),
    "upper bound of the random delay of each packet",
);
/// Number of packets.
pub(super) const PACKETS: KeyInfo = KeyInfo::number(
    "count",
    KeyKind::Count,
    1_000,
    (1, 10_000_000),
    "number of packets",
);
/// Cost of a packet at the client.
pub(super) const PING_CLIENT: KeyInfo = step(
    "client",
    10,
    "CPU time of sending or receiving a packet at the sender",
);
/// Cost of a packet in the driver domain.
pub(super) const PING_DRIVER: KeyInfo =
    step("driver", 10, "CPU time in the driver domain, each way");
/// Cost of a packet in the guest.
pub(super) const PING_GUEST: KeyInfo = step("guest", 30, "CPU time of answering in the guest");
/// CPU time of a process that answers a packet.
pub(super) const PING_PROCESS: KeyInfo = optional(
    "process",
    KeyKind::Duration,
    "none",
    "CPU time of a process in the guest that answers after `guest`; without it the interrupt \
     answers",
)
.within(CPU_TIME_RANGE_NS.0, CPU_TIME_RANGE_NS.1);
/// Packets sent at one time.
pub(super) const BURST: KeyInfo = KeyInfo::number(
    "burst",
    KeyKind::Count,
    1,
    (1, 10_000),
    "packets sent at one time, each `period`",
);

/// `[vm.ping]`
pub(super) const PING_TABLE: SectionInfo = SectionInfo {
    name: "vm.ping",
    keys: &[
        FROM,
        PERIOD,
        JITTER,
        PACKETS,
        PING_CLIENT,
        PING_DRIVER,
        PING_GUEST,
        PING_PROCESS,
        BURST,
        EVENT_VCPU,
    ],
};

/// Bytes that are handled at once.
pub(super) const CHUNK: KeyInfo = KeyInfo::number(
    "chunk",
    KeyKind::Bytes,
    128 << 10,
    (1, 64 << 20),
    "bytes handled at once",
);
/// Default of `window` in bytes, unless a chunk is larger.
pub(super) const USUAL_WINDOW: u64 = 4 << 20;
/// Largest number of bytes in flight.
pub(super) const WINDOW: KeyInfo = optional(
    "window",
    KeyKind::Bytes,
    "`\"4 MiB\"`, or `chunk` if that is larger",
    "maximum bytes in flight, at least `chunk`; starts with two chunks",
)
.within(1, 1 << 40);
/// Cost of a chunk at the client.
pub(super) const STREAM_CLIENT: KeyInfo =
    step("client", 20, "CPU time of sending a chunk at the sender");
/// Cost of a chunk in the driver domain.
pub(super) const CHUNK_DRIVER: KeyInfo =
    step("driver", 20, "CPU time of a chunk in the driver domain");
/// CPU time of the guest's interrupt for a chunk or an I/O.
pub(super) const INTERRUPT: KeyInfo = step("interrupt", 10, "CPU time of the guest's interrupt");
/// Cost of a chunk in the process that receives.
pub(super) const RECEIVE: KeyInfo = step("receive", 20, "CPU time of the process that receives");
/// Cost of an acknowledgement.
pub(super) const ACKNOWLEDGE: KeyInfo = step(
    "acknowledge",
    2,
    "CPU time of an acknowledgement in the driver domain, and at the sender",
);

/// `[vm.stream]`
pub(super) const STREAM_TABLE: SectionInfo = SectionInfo {
    name: "vm.stream",
    keys: &[
        FROM,
        CHUNK,
        WINDOW,
        STREAM_CLIENT,
        CHUNK_DRIVER,
        INTERRUPT,
        RECEIVE,
        ACKNOWLEDGE,
        EVENT_VCPU,
    ],
};

/// Size of a file.
pub(super) const FILE: KeyInfo = KeyInfo::new(
    "file",
    KeyKind::Bytes,
    KeyDefault::Required("the size of the file: file = \"5 GB\""),
    "size of the file",
)
.within(1, 1 << 50);
/// Cost of making a KiB.
pub(super) const MAKE_PER_KIB: KeyInfo = step(
    "make_per_kib",
    1,
    "CPU time of producing a KiB in the process",
);
/// Dirty bytes in the guest's memory at which the writing process waits.
pub(super) const DIRTY: KeyInfo = KeyInfo::number(
    "dirty",
    KeyKind::Bytes,
    400_000_000,
    (1, 1 << 50),
    "bytes in the guest's memory above which the process waits for the disk",
);
/// Largest number of I/Os in flight.
pub(super) const DEPTH: KeyInfo = KeyInfo::number(
    "depth",
    KeyKind::Count,
    32,
    (1, 1 << 16),
    "maximum number of I/Os in flight",
);
/// Cost of an I/O in the driver domain.
pub(super) const IO_DRIVER: KeyInfo = step(
    "driver",
    20,
    "CPU time of an I/O in the driver domain, each way",
);

/// `[vm.write]`
pub(super) const WRITE_TABLE: SectionInfo = SectionInfo {
    name: "vm.write",
    keys: &[
        FILE,
        MAKE_PER_KIB,
        DIRTY,
        DEPTH,
        IO_DRIVER,
        INTERRUPT,
        EVENT_VCPU,
    ],
};

/// Keys that every scenario begins with.
pub(super) const FRAME: [KeyInfo; frame::KEYS] =
    frame::keys(DURATION_MAX, "the simulated time: duration = \"10 s\"");

/// Top level of a scenario.
pub const SCENARIO: SectionInfo = SectionInfo {
    name: "scenario",
    keys: &[
        FRAME[0],
        FRAME[1],
        FRAME[2],
        FRAME[3],
        FRAME[4],
        KeyInfo::new(
            "host",
            KeyKind::Table(&HOST),
            KeyDefault::Required("[host.cpu] with scheduler = \"credit2\""),
            "the host, which has `[host.cpu]` alone",
        ),
        optional(
            "disk",
            KeyKind::Table(&DISK),
            "one with the defaults",
            "disk behind the driver domain, which serves one I/O at a time",
        ),
        KeyInfo::new(
            "vm",
            KeyKind::Tables(&VM),
            KeyDefault::Required("add a [[vm]] with name = \"web\""),
            "VMs and their workloads",
        ),
    ],
};
