//! Keys of a disk scenario. Keys shared with the daemon's configuration, with vCPU scenarios or
//! with workloads are defined there.

use tidegate_config::device::keys as shared;
use tidegate_config::device::limit_groups::{DISK_LIMIT, DISK_LIMIT_GROUP, LIMIT_GROUPS};
use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, joined};
use tidegate_config::{frame, objective};
use tidegate_core::time::Nanos;
use tidegate_vcpu::scenario::keys as vcpu;
use tidegate_workload::read::LARGEST_DISK;
use tidegate_workload::read::keys::{WORKLOAD, time};

use super::MAX_HOSTS;

/// Longest run: a year.
pub(super) const LONGEST: Nanos = Nanos(365 * 24 * 3_600 * 1_000_000_000);
/// Most VMs and background processes of a scenario that one table stands for.
const VMS_MAX: u64 = 100_000;
/// Longest step of a request on a vCPU.
const STEP_MAX: Nanos = Nanos::SECOND;
/// Default CPU time of a step on a vCPU.
pub(super) const STEP: Nanos = Nanos::from_micros(5);

/// Optional key; `otherwise` describes its default.
const fn optional(
    name: &'static str,
    kind: KeyKind,
    otherwise: &'static str,
    help: &'static str,
) -> KeyInfo {
    KeyInfo::new(name, kind, KeyDefault::Unset(otherwise), help)
}

/// Name of a device.
pub(super) const DEVICE_NAME: KeyInfo = KeyInfo::new(
    "name",
    KeyKind::Name,
    KeyDefault::Required("a name of its own: name = \"disk\""),
    "unique; letters, digits, `-`, `_`, `.`; at most 64",
);
/// Model of a device.
pub(super) const MODEL: KeyInfo = KeyInfo::new(
    "model",
    KeyKind::Path,
    KeyDefault::Required("what it is: model = \"hdd-7200-1tb\""),
    "its model: a name of the catalogue ([devices.md](devices.md)) or the path of a `.toml` file",
);
/// Distances between I/Os that are told apart.
pub(super) const DISTANCES: KeyInfo = optional(
    "distances",
    KeyKind::List(&KeyKind::Bytes),
    "0 B, 1 MiB, 1 GiB, 10 GiB, 100 GiB",
    "distances between one I/O's end and the next one's begin that the report tells apart: 1 to \
     64, each larger than the one before",
)
.within(0, LARGEST_DISK);
/// Messages of hosts.
pub(super) const EXCHANGE: KeyInfo = optional(
    "exchange",
    KeyKind::Table(&EXCHANGE_TABLE),
    "at once, none lost",
    "messages that hosts send each other ([below](#several-hosts-on-one-device))",
);
/// Network between hosts and a device.
pub(super) const TRANSPORT: KeyInfo = optional(
    "transport",
    KeyKind::Table(&TRANSPORT_TABLE),
    "no time",
    "network between the hosts and the device ([below](#several-hosts-on-one-device))",
);

/// Keys of a device that the daemon's configuration shares.
const SCHEDULING: [KeyInfo; shared::SCHEDULING] =
    shared::scheduling("a name, or a table: [configuration.md](configuration.md#policies)");
/// Keys of a device without those of simulated ones.
const USUAL: [KeyInfo; 2 + shared::SCHEDULING] = joined(&[DEVICE_NAME, MODEL], &SCHEDULING);
/// Keys that only a simulated device has, behind the limits that its disks share.
const SIMULATED: [KeyInfo; 4] = [LIMIT_GROUPS, DISTANCES, EXCHANGE, TRANSPORT];

/// `[[device]]`
pub(super) const DEVICE: SectionInfo = SectionInfo {
    name: "device",
    keys: &joined::<{ USUAL.len() + SIMULATED.len() }>(&USUAL, &SIMULATED),
};

/// Time of a message.
pub(super) const MESSAGE_DELAY: KeyInfo = time("delay", "none", "time of a message");
/// Share of messages that are lost.
pub(super) const LOSS: KeyInfo = KeyInfo::new(
    "loss",
    KeyKind::Percent,
    KeyDefault::Text("0 %"),
    "messages that are lost, by chance",
);

/// `[device.exchange]`
pub(super) const EXCHANGE_TABLE: SectionInfo = SectionInfo {
    name: "device.exchange",
    keys: &[MESSAGE_DELAY, LOSS],
};

/// Time of a request on the network.
pub(super) const TRANSPORT_SUBMIT: KeyInfo =
    time("submit", "none", "from a host's scheduler to the device");
/// Time of a completion on the network.
pub(super) const TRANSPORT_COMPLETE: KeyInfo =
    time("complete", "none", "from the device back to the scheduler");

/// `[device.transport]`
pub(super) const TRANSPORT_TABLE: SectionInfo = SectionInfo {
    name: "device.transport",
    keys: &[TRANSPORT_SUBMIT, TRANSPORT_COMPLETE],
};

/// Name of a VM.
pub(super) const VM_NAME: KeyInfo = DEVICE_NAME.with(
    KeyDefault::Required("a name of its own: name = \"oltp\""),
    "unique; letters, digits, `-`, `_`, `.`; at most 64",
);
/// Name of a background process.
pub(super) const BACKGROUND_NAME: KeyInfo = VM_NAME.with(
    KeyDefault::Required("a name of its own: name = \"backup\""),
    VM_NAME.help,
);
/// VMs that a table stands for.
pub(super) const COUNT: KeyInfo = optional(
    "count",
    KeyKind::Count,
    "one, named `NAME`",
    "VMs like this one, named `NAME-1`, `NAME-2` ...",
)
.within(1, VMS_MAX);
/// Device of a VM's disk.
pub(super) const ON_DEVICE: KeyInfo = optional(
    "device",
    KeyKind::Name,
    "the only one",
    "the device that its disk lies on",
);
/// Host of a VM.
pub(super) const ON_HOST: KeyInfo = KeyInfo::number(
    "host",
    KeyKind::Count,
    0,
    (0, (MAX_HOSTS - 1) as u64),
    "which of the hosts that share the device it is on ([below](#several-hosts-on-one-device))",
);
/// Disk of a VM.
const DISKS: KeyInfo = KeyInfo::new(
    "disk",
    KeyKind::Tables(&DISK),
    KeyDefault::Required("add a [[vm.disk]] below it, with size = \"20 GiB\""),
    "its disk, one",
);
/// Objective of a VM.
pub(super) const TO_OBJECTIVE: KeyInfo = optional(
    "objective",
    KeyKind::Table(&OBJECTIVE),
    "weight 100 only",
    "what it is promised, as in [configuration.md](configuration.md), without a schedule",
);
/// Time that virtualisation adds.
pub(super) const DELAY: KeyInfo = optional(
    "delay",
    KeyKind::Table(&DELAY_TABLE),
    "none",
    "time that virtualisation adds to each request",
);
/// vCPUs of a VM.
pub(super) const CPU: KeyInfo = optional(
    "cpu",
    KeyKind::Table(&CPU_TABLE),
    "one vCPU, `\"5 us\"` a step",
    "its vCPUs, where the scenario has `[host.cpu]`: [host.md](host.md)",
);
/// Arrival of a VM.
pub(super) const ARRIVES: KeyInfo = KeyInfo::number(
    "arrives",
    KeyKind::Duration,
    0,
    (0, LONGEST.0),
    "time at which it is added",
);
/// Removal of a VM.
pub(super) const LEAVES: KeyInfo = optional(
    "leaves",
    KeyKind::Duration,
    "never",
    "time at which it is removed, with what it has outstanding",
)
.within(0, LONGEST.0);
/// Workloads of a VM.
pub(super) const WORKLOADS: KeyInfo = optional(
    "workload",
    KeyKind::Tables(&WORKLOAD),
    "required, unless `cpu` has `busy_processes`",
    "what its guest does",
);

/// `[[vm]]`
pub(super) const VM: SectionInfo = SectionInfo {
    name: "vm",
    keys: &[
        VM_NAME,
        COUNT,
        ON_DEVICE,
        ON_HOST,
        DISKS,
        TO_OBJECTIVE,
        DELAY,
        CPU,
        ARRIVES,
        LEAVES,
        WORKLOADS,
    ],
};

/// `[[background]]`
pub(super) const BACKGROUND: SectionInfo = SectionInfo {
    name: "background",
    keys: &[
        BACKGROUND_NAME,
        COUNT,
        ON_DEVICE,
        ON_HOST,
        DISKS,
        TO_OBJECTIVE,
        ARRIVES,
        LEAVES,
        WORKLOADS,
    ],
};

/// Size of a disk.
pub(super) const SIZE: KeyInfo = KeyInfo::new(
    "size",
    KeyKind::Bytes,
    KeyDefault::Required("how large it is: size = \"20 GiB\""),
    "size of the disk",
)
.within(512, LARGEST_DISK);
/// Place of a disk.
pub(super) const AT: KeyInfo = optional(
    "at",
    KeyKind::Bytes,
    "behind the disk before it",
    "its first byte on the device, a multiple of 1 MiB",
)
.within(0, LARGEST_DISK);

/// `[[vm.disk]]`
pub(super) const DISK: SectionInfo = SectionInfo {
    name: "vm.disk",
    keys: &[SIZE, AT, DISK_LIMIT, DISK_LIMIT_GROUP],
};

/// `[vm.objective]`: a scenario has no time of day, so there is no schedule.
const OBJECTIVE: SectionInfo = SectionInfo {
    name: "vm.objective",
    keys: &objective::KEYS,
};

/// Time on the way to the scheduler.
pub(super) const DELAY_SUBMIT: KeyInfo = time("submit", "none", "on the way to the scheduler");
/// Time on the way back.
pub(super) const DELAY_COMPLETE: KeyInfo = time("complete", "none", "on the way back");
/// Time of the guest's only processor.
pub(super) const DELAY_PROCESSOR: KeyInfo = time(
    "processor",
    "none",
    "then the guest's only processor takes so long, for one request after the other",
);

/// `[vm.delay]`
pub(super) const DELAY_TABLE: SectionInfo = SectionInfo {
    name: "vm.delay",
    keys: &[DELAY_SUBMIT, DELAY_COMPLETE, DELAY_PROCESSOR],
};

/// CPU time of a step of a request.
const fn step(name: &'static str, default: Nanos, help: &'static str) -> KeyInfo {
    KeyInfo::number(name, KeyKind::Duration, default.0, (0, STEP_MAX.0), help)
}

/// CPU time of issuing a request.
pub(super) const ISSUE: KeyInfo = step(
    "issue",
    STEP,
    "CPU time of the process that issues a request",
);
/// CPU time of a completion's interrupt.
pub(super) const INTERRUPT: KeyInfo = step(
    "interrupt",
    STEP,
    "CPU time of a completion's interrupt, on the first vCPU",
);
/// CPU time of an answer.
pub(super) const COMPLETE: KeyInfo = step(
    "complete",
    STEP,
    "CPU time of the process that has its answer",
);

const CPU_KEYS: usize = vcpu::CPU_KEYS.len();

/// `[vm.cpu]`
pub(super) const CPU_TABLE: SectionInfo = SectionInfo {
    name: "vm.cpu",
    keys: &joined::<{ CPU_KEYS + 3 }>(&vcpu::CPU_KEYS, &[ISSUE, INTERRUPT, COMPLETE]),
};

/// Default CPU time of a step in the driver domain.
pub(super) const DRIVER_STEP: Nanos = Nanos(2 * STEP.0);
/// CPU time of a request in the driver domain.
pub(super) const DRIVER_SUBMIT: KeyInfo = step(
    "submit",
    DRIVER_STEP,
    "CPU time of a request on its way to the scheduler",
);
/// CPU time of a completion in the driver domain.
pub(super) const DRIVER_COMPLETE: KeyInfo = step(
    "complete",
    DRIVER_STEP,
    "CPU time of its completion on the way to the VM",
);

/// `[host.cpu.driver]`
pub(super) const DRIVER_TABLE: SectionInfo = SectionInfo {
    name: "host.cpu.driver",
    keys: &joined::<{ CPU_KEYS + 2 }>(&vcpu::CPU_KEYS, &[DRIVER_SUBMIT, DRIVER_COMPLETE]),
};

/// Driver domain.
pub(super) const DRIVER: KeyInfo = optional(
    "driver",
    KeyKind::OneOf(&[KeyKind::Choice(&["none"]), KeyKind::Table(&DRIVER_TABLE)]),
    "one vCPU, on any pCPU",
    "driver domain, whose vCPUs carry every VM's I/O; `\"none\"`: an operating system without VMs",
);

/// `[host.cpu]`
pub(super) const HOST_CPU: SectionInfo = SectionInfo {
    name: "host.cpu",
    keys: &[
        vcpu::PCPUS,
        vcpu::PCPUS_PER_SOCKET,
        vcpu::CONTEXT_SWITCH,
        vcpu::SCHEDULER,
        DRIVER,
    ],
};

/// pCPUs of the host.
pub(super) const HOST_CPUS: KeyInfo = KeyInfo::new(
    "cpu",
    KeyKind::Table(&HOST_CPU),
    KeyDefault::Required("[host.cpu] with pcpus = 4 and scheduler = \"credit2\""),
    "its pCPUs",
);

/// `[host]`
pub(super) const HOST: SectionInfo = SectionInfo {
    name: "host",
    keys: &[HOST_CPUS],
};

/// Time of an event.
pub(super) const EVENT_AT: KeyInfo = KeyInfo::new(
    "at",
    KeyKind::Duration,
    KeyDefault::Required("when: at = \"30 s\""),
    "when it happens",
)
.within(0, LONGEST.0);
/// VM of an event.
pub(super) const EVENT_VM: KeyInfo = optional(
    "vm",
    KeyKind::Name,
    "",
    "the VM whose objective changes; of one with a `count` all",
);
/// Objective from an event on.
pub(super) const EVENT_OBJECTIVE: KeyInfo = TO_OBJECTIVE.with(
    KeyDefault::Unset(""),
    "its new objective; what is not named stays as it is",
);
/// Policy from an event on.
pub(super) const EVENT_POLICY: KeyInfo = shared::POLICY.with(
    KeyDefault::Unset(""),
    "instead of `vm` and `objective`: the new policy of a device",
);
/// Device of an event.
pub(super) const EVENT_DEVICE: KeyInfo = ON_DEVICE.with(
    KeyDefault::Unset("the only one"),
    "the device whose policy changes",
);

/// `[[event]]`
pub(super) const EVENT: SectionInfo = SectionInfo {
    name: "event",
    keys: &[
        EVENT_AT,
        EVENT_VM,
        EVENT_OBJECTIVE,
        EVENT_POLICY,
        EVENT_DEVICE,
    ],
};

/// Keys at the top of a scenario.
pub(super) const FRAME: [KeyInfo; frame::KEYS] =
    frame::keys(LONGEST, "the simulated time: duration = \"60 s\"");

/// Tables of a scenario.
const TABLES: [KeyInfo; 5] = [
    KeyInfo::new(
        "device",
        KeyKind::Tables(&DEVICE),
        KeyDefault::Required("add a [[device]] with name = \"disk\" and model = \"hdd-7200-1tb\""),
        "devices, each with an engine of its own",
    ),
    KeyInfo::new(
        "vm",
        KeyKind::Tables(&VM),
        KeyDefault::Required("add a [[vm]] with name = \"oltp\" and a [[vm.workload]]"),
        "VMs that share them",
    ),
    optional(
        "background",
        KeyKind::Tables(&BACKGROUND),
        "none",
        "processes of the host, such as a backup, which have what the VMs leave",
    ),
    optional(
        "event",
        KeyKind::Tables(&EVENT),
        "none",
        "changes of objectives and policies",
    ),
    optional(
        "host",
        KeyKind::Table(&HOST),
        "no time on processors",
        "the host, which has `[host.cpu]` alone: [host.md](host.md)",
    ),
];

/// All keys of a scenario.
pub(super) const SCENARIO: SectionInfo = SectionInfo {
    name: "scenario",
    keys: &joined::<{ frame::KEYS + TABLES.len() }>(&FRAME, &TABLES),
};
