//! Scheduling keys of every `[[device]]`, served or simulated.

use crate::keys::{KeyDefault, KeyInfo, KeyKind, words};
use tidegate_core::queue_depth::DepthTuning;
use tidegate_core::splitting::MaxIoShared;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Range of a device I/O in bytes; the maximum is the largest NBD request, 32 MiB.
const IO_SIZES: (u64, u64) = (4 * KIB, 32 * MIB);
/// Range of the number of request slots.
const REQUESTS: (u64, u64) = (1, 1 << 20);

/// Scheduling policy.
pub const POLICY: KeyInfo = KeyInfo::new(
    "policy",
    KeyKind::Policy,
    KeyDefault::Text("slo"),
    "a name, or a table (below)",
);

/// Saturation profile.
pub const PROFILE: KeyInfo = KeyInfo::new(
    "profile",
    KeyKind::Path,
    KeyDefault::Unset("none"),
    "saturation profile: the path of a file that `tidegate profile` wrote \
     ([profiling.md](profiling.md)), or the name of a model of the catalogue",
);

/// Learning of a cap below the device. Off without a profile, because a cap cannot then be told
/// from the device's own maximum.
pub const LEARN_CAP: KeyInfo = KeyInfo::new(
    "learn_cap",
    KeyKind::Flag,
    KeyDefault::Unset("`true` with a profile, else `false`"),
    "learn a throughput cap below the device, such as a cloud volume's, and stay below it \
     ([drift-and-caps.md](drift-and-caps.md))",
);

/// Queue depth.
pub const DEPTH: KeyInfo = KeyInfo::number(
    "depth",
    KeyKind::Count,
    32,
    (1, 1024),
    "maximum number of I/Os in flight at the device; for an emulated device at most its model's \
     queue",
);

/// Largest device I/O.
pub const MAX_IO: KeyInfo = KeyInfo::number(
    "max_io",
    KeyKind::Bytes,
    MIB,
    IO_SIZES,
    "largest device I/O, a multiple of 4 KiB; larger requests are split",
);

/// Largest size up to which adjacent requests are merged.
pub const MERGE_LIMIT: KeyInfo = KeyInfo::number(
    "merge_limit",
    KeyKind::Bytes,
    128 * KIB,
    (0, IO_SIZES.1),
    "size up to which adjacent requests are merged; `\"0 B\"` turns merging off",
);

/// Request slots of all VMs.
pub const MAX_REQUESTS: KeyInfo = KeyInfo::number(
    "max_requests",
    KeyKind::Count,
    16_384,
    REQUESTS,
    "request slots: maximum number of requests inside the engine, over all VMs",
);

/// Request slots of one VM.
pub const MAX_REQUESTS_PER_VM: KeyInfo = KeyInfo::number(
    "max_requests_per_vm",
    KeyKind::Count,
    1024,
    REQUESTS,
    "request slots of one VM, at most `max_requests`",
);

/// Payload memory of all VMs. The minimum holds the largest NBD request, 32 MiB, beside smaller
/// ones.
pub const BUFFER_MEMORY: KeyInfo = KeyInfo::number(
    "buffer_memory",
    KeyKind::Bytes,
    256 * MIB,
    (64 * MIB, 1 << 40),
    "memory for payloads, over all VMs: half of it for writes, half for reads",
);

/// Payload memory of one VM. The minimum is below the largest request, because a VM's only request
/// may exceed the bound.
pub const BUFFER_MEMORY_PER_VM: KeyInfo = KeyInfo::number(
    "buffer_memory_per_vm",
    KeyKind::Bytes,
    64 * MIB,
    (MIB, 1 << 40),
    "memory for payloads of one VM, at most `buffer_memory`; a VM's only request may be larger",
);

/// Adaptation of the queue depth to the throughput.
pub const ADAPTIVE_DEPTH: KeyInfo = KeyInfo::flag(
    "adaptive_depth",
    true,
    "keep only as many I/Os in flight as full throughput needs, at most `depth` \
     ([queue-depth.md](queue-depth.md))",
);

/// Largest device I/O while several VMs use the device.
pub const MAX_IO_SHARED: KeyInfo = KeyInfo::new(
    "max_io_shared",
    KeyKind::OneOf(&[KeyKind::Bytes, KeyKind::Choice(&words(&SHARED_WORDS))]),
    KeyDefault::Text("auto"),
    "largest device I/O while several VMs use the device; `\"auto\"`: the smallest that costs at \
     most 3 % of throughput. Unless `\"off\"`, one queue slot is also kept free for VMs about to \
     send a request ([queue-depth.md](queue-depth.md))",
)
.within(IO_SIZES.0, IO_SIZES.1);

/// Words of `max_io_shared` beside a size.
pub const SHARED_WORDS: [(&str, MaxIoShared); 2] =
    [("auto", MaxIoShared::Auto), ("off", MaxIoShared::Off)];

/// Trade of throughput for a shorter device queue.
pub const TUNING: KeyInfo = KeyInfo::new(
    "tuning",
    KeyKind::Choice(&words(&DepthTuning::ALL)),
    KeyDefault::Text("balanced"),
    "throughput that the adapted depth may give up for a shorter device queue: `balanced` at most \
     2.5 %, `latency` 10 % and CPU time, `throughput` 0.5 %",
);

/// Number of keys that every `[[device]]` has, served or simulated.
pub const SCHEDULING: usize = 13;

/// Returns the keys that every `[[device]]` has, served or simulated, in the order of the
/// documentation; `policies` is the help text of `policy`.
pub const fn scheduling(policies: &'static str) -> [KeyInfo; SCHEDULING] {
    [
        POLICY.with(POLICY.default, policies),
        PROFILE,
        LEARN_CAP,
        DEPTH,
        MAX_IO,
        MERGE_LIMIT,
        MAX_REQUESTS,
        MAX_REQUESTS_PER_VM,
        BUFFER_MEMORY,
        BUFFER_MEMORY_PER_VM,
        ADAPTIVE_DEPTH,
        MAX_IO_SHARED,
        TUNING,
    ]
}
