//! Keys of every `[[device]]`, served or simulated.

use crate::keys::{KeyDefault, KeyInfo, KeyKind, words};
use tidegate_core::steer::{DepthTuning, SharedIo};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Range of sizes of a device I/O in bytes: NBD carries no more in one request.
const IO_SIZES: (u64, u64) = (4 * KIB, 32 * MIB);
/// Range of request slots.
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
    "what the device can do at most: the path of a file that `tidegate profile` wrote \
     ([profiling.md](profiling.md)), or the name of a model of the catalogue",
);

/// Learning of a cap below the device. Without a profile a cap is not told from a device that can
/// do no more.
pub const LEARN_CAP: KeyInfo = KeyInfo::new(
    "learn_cap",
    KeyKind::Flag,
    KeyDefault::Unset("`true` with a profile, else `false`"),
    "learn a cap below the device, such as a cloud's, and keep to it \
     ([drift-and-caps.md](drift-and-caps.md))",
);

/// Queue depth.
pub const DEPTH: KeyInfo = KeyInfo::number(
    "depth",
    KeyKind::Count,
    32,
    (1, 1024),
    "I/Os in flight at the device; of an emulated device at most its model's queue",
);

/// Largest device I/O.
pub const MAX_IO: KeyInfo = KeyInfo::number(
    "max_io",
    KeyKind::Bytes,
    MIB,
    IO_SIZES,
    "the largest device I/O, in whole 4 KiB; larger requests are split",
);

/// Largest size up to which adjacent requests are merged.
pub const MERGE_LIMIT: KeyInfo = KeyInfo::number(
    "merge_limit",
    KeyKind::Bytes,
    128 * KIB,
    (0, IO_SIZES.1),
    "adjacent requests are merged up to this size; `\"0 B\"`: never",
);

/// Request slots of all VMs.
pub const MAX_REQUESTS: KeyInfo = KeyInfo::number(
    "max_requests",
    KeyKind::Count,
    16_384,
    REQUESTS,
    "request slots: requests inside the engine, over all VMs",
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

/// Payload memory of one VM. The minimum is below the largest request, because a request that is a
/// VM's only one may exceed its bound.
pub const BUFFER_MEMORY_PER_VM: KeyInfo = KeyInfo::number(
    "buffer_memory_per_vm",
    KeyKind::Bytes,
    64 * MIB,
    (MIB, 1 << 40),
    "memory for payloads of one VM, at most `buffer_memory`; a single request may be larger",
);

/// Queue depth that follows the throughput.
pub const ADAPTIVE_DEPTH: KeyInfo = KeyInfo::flag(
    "adaptive_depth",
    true,
    "keep only as many in flight as the throughput needs, at most `depth` \
     ([queue-depth.md](queue-depth.md))",
);

/// Largest device I/O while several VMs use the device.
pub const MAX_IO_SHARED: KeyInfo = KeyInfo::new(
    "max_io_shared",
    KeyKind::OneOf(&[KeyKind::Bytes, KeyKind::Choice(&words(&SHARED_WORDS))]),
    KeyDefault::Text("auto"),
    "the largest device I/O while several VMs use it, `\"auto\"` for the shortest that costs at \
     most 3 % of the work; unless `\"off\"`, also keeps a place for who is about to come \
     ([queue-depth.md](queue-depth.md))",
)
.within(IO_SIZES.0, IO_SIZES.1);

/// Words of `max_io_shared` beside a size.
pub const SHARED_WORDS: [(&str, SharedIo); 2] = [("auto", SharedIo::Auto), ("off", SharedIo::Off)];

/// How much queueing with the device is allowed.
pub const TUNING: KeyInfo = KeyInfo::new(
    "tuning",
    KeyKind::Choice(&words(&DepthTuning::ALL)),
    KeyDefault::Text("balanced"),
    "how much queueing with the device is allowed where the depth is adapted: `balanced` gives up \
     at most 2.5 % of the work for a shorter queue, `latency` 10 %, `throughput` 0.5 %",
);

/// Number of keys that every `[[device]]` has, served or simulated.
pub const SCHEDULING: usize = 13;

/// Keys that every `[[device]]` has, served or simulated, in the order of the documentation;
/// `policies` says what a policy may be.
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
