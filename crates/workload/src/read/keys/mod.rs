//! Keys of `[[vm.workload]]`: fio's words, with units.

pub(super) mod guest;
pub(super) mod replay;
pub(super) mod times;

pub use times::{DISTRIBUTION, TIME, time};

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo, TextForm, words};
use tidegate_core::time::Nanos;

use super::{Kind, RwWord};
use crate::arrival_process::Spacing;

/// Unit of sizes and offsets in bytes.
pub(super) const SECTOR: u64 = 512;
/// Largest request in bytes.
pub(super) const LARGEST_REQUEST: u64 = 1 << 30;
/// Largest offset or size in bytes.
pub(super) const LARGEST: u64 = 1 << 60;
/// Longest time: a year.
pub(super) const LONGEST: Nanos = Nanos(365 * 24 * 3_600 * 1_000_000_000);
/// Default of the maximum number of requests that an open loop keeps outstanding: the engine's
/// default number of requests per VM.
pub(super) const OPEN_DEPTH: u32 = 1024;
/// Maximum of requests outstanding.
pub(super) const MAX_DEPTH: u64 = 1 << 16;

/// Words of `rw`.
pub(super) const RWS: [(&str, RwWord); 11] = [
    ("read", RwWord::sequential(Kind::Read)),
    ("write", RwWord::sequential(Kind::Write)),
    ("trim", RwWord::sequential(Kind::Trim)),
    ("randread", RwWord::random(Kind::Read)),
    ("randwrite", RwWord::random(Kind::Write)),
    ("randtrim", RwWord::random(Kind::Trim)),
    ("rw", RwWord::sequential(Kind::Mixed)),
    ("readwrite", RwWord::sequential(Kind::Mixed)),
    ("randrw", RwWord::random(Kind::Mixed)),
    ("trimwrite", RwWord::sequential(Kind::TrimWrite)),
    ("randtrimwrite", RwWord::random(Kind::TrimWrite)),
];
/// Words of `rate_process`.
pub(super) const SPACINGS: [(&str, Spacing); 2] =
    [("linear", Spacing::Fixed), ("poisson", Spacing::Poisson)];

/// Creates a key in bytes from 0 on, for the workload's part of the disk.
const fn bytes(name: &'static str, help: &'static str) -> KeyInfo {
    KeyInfo::number(name, KeyKind::Bytes, 0, (0, LARGEST), help)
}

/// Creates an optional key; `otherwise` describes the effect of leaving it out.
const fn optional(
    name: &'static str,
    kind: KeyKind,
    otherwise: &'static str,
    help: &'static str,
) -> KeyInfo {
    KeyInfo::new(name, kind, KeyDefault::Unset(otherwise), help)
}

/// Name of a workload.
pub(super) const NAME: KeyInfo = optional(
    "name",
    KeyKind::Name,
    "`jobN`, the VM's Nth",
    "its name in messages",
);
/// Operations and order of requests.
pub(super) const RW: KeyInfo = optional(
    "rw",
    KeyKind::Choice(&words(&RWS)),
    "required without `replay`",
    "operations, and whether they are at random places",
);
/// Share of reads in a mix.
pub(super) const RWMIXREAD: KeyInfo = KeyInfo::number(
    "rwmixread",
    KeyKind::Count,
    50,
    (0, 100),
    "reads in a hundred requests of a mix",
);

const BYTES_OF_REQUEST: KeyKind = KeyKind::Bytes;
const SPLIT: KeyKind = KeyKind::Form(&TextForm {
    what: "sizes with their shares",
    pattern: "^[^/:]+/\\s*[0-9]+\\s*(:[^/:]+/\\s*[0-9]+\\s*)*$",
});

/// Creates a key for one operation in a table of sizes.
const fn of_operation(name: &'static str, kind: KeyKind, help: &'static str) -> KeyInfo {
    optional(name, kind, "as `bs` unless it says", help).within(SECTOR, LARGEST_REQUEST)
}

/// Creates the keys of a table of sizes, in the order of reads, writes and discards.
const fn by_operation(kind: KeyKind) -> [KeyInfo; 3] {
    [
        of_operation("read", kind, "of reads"),
        of_operation("write", kind, "of writes"),
        of_operation("trim", kind, "of discards"),
    ]
}

/// Keys of [`BS_TABLE`].
pub(super) const BS_KEYS: [KeyInfo; 3] = by_operation(BYTES_OF_REQUEST);
/// Keys of [`BSSPLIT_TABLE`].
pub(super) const BSSPLIT_KEYS: [KeyInfo; 3] = by_operation(SPLIT);
/// `bs = { read = ..., write = ..., trim = ... }`
pub(super) const BS_TABLE: SectionInfo = SectionInfo {
    name: "vm.workload.bs",
    keys: &BS_KEYS,
};
/// `bssplit = { read = ..., write = ..., trim = ... }`
pub(super) const BSSPLIT_TABLE: SectionInfo = SectionInfo {
    name: "vm.workload.bssplit",
    keys: &BSSPLIT_KEYS,
};

/// Size of requests.
pub(super) const BS: KeyInfo = optional(
    "bs",
    KeyKind::OneOf(&[BYTES_OF_REQUEST, KeyKind::Table(&BS_TABLE)]),
    "`\"4 KiB\"`; with `replay` `\"1 MiB\"`",
    "size of a request, in whole sectors of 512 B; a table has one for each operation: `read`, \
     `write`, `trim`",
)
.within(SECTOR, LARGEST_REQUEST);
/// Sizes of requests with their shares.
pub(super) const BSSPLIT: KeyInfo = optional(
    "bssplit",
    KeyKind::OneOf(&[SPLIT, KeyKind::Table(&BSSPLIT_TABLE)]),
    "",
    "instead of `bs` several sizes and how often each comes: `\"4 KiB/60 : 64 KiB/40\"`",
);
/// Places of random requests.
pub(super) const RANDOM_DISTRIBUTION: KeyInfo = KeyInfo::new(
    "random_distribution",
    KeyKind::Form(&TextForm {
        what: "`\"random\"`, `\"shuffle\"`, `\"zipf:THETA\"`, `\"pareto:H\"` or \
               `\"normal:PERCENT\"`",
        pattern: "^\\s*(random|shuffle|\
                  (zipf|pareto|normal)\\s*:\\s*\\+?[0-9.]+([eE][+-]?[0-9]+)?)\\s*$",
    }),
    KeyDefault::Text("random"),
    "places of random requests; `shuffle` is each block once, then each once again",
);
/// Begin of the part of the disk.
pub(super) const OFFSET: KeyInfo = bytes("offset", "first byte of its part of the disk");
/// Distance between the parts of two copies.
pub(super) const OFFSET_INCREMENT: KeyInfo = bytes(
    "offset_increment",
    "distance at which the part of each copy begins after that of the one before",
);
/// Size of the part of the disk.
pub(super) const SIZE: KeyInfo = optional(
    "size",
    KeyKind::Bytes,
    "to the disk's end",
    "bytes of its part of the disk",
)
.within(SECTOR, LARGEST);
/// Copies of the workload.
pub(super) const NUMJOBS: KeyInfo = KeyInfo::number(
    "numjobs",
    KeyKind::Count,
    1,
    (1, 4096),
    "copies that run at once",
);
/// Requests outstanding.
pub(super) const IODEPTH: KeyInfo = optional(
    "iodepth",
    KeyKind::Count,
    "1; with a rate or a trace's times 1024",
    "requests that each copy keeps outstanding; with a rate, at most",
)
.within(1, MAX_DEPTH);
/// Pause of a closed loop.
pub(super) const THINKTIME: KeyInfo = time(
    "thinktime",
    "none",
    "pause after the last answer to `thinktime_blocks` requests",
);
/// Requests between two pauses.
pub(super) const THINKTIME_BLOCKS: KeyInfo = KeyInfo::number(
    "thinktime_blocks",
    KeyKind::Count,
    1,
    (1, u32::MAX as u64),
    "requests between two pauses",
);
/// Rate of an open loop.
pub(super) const RATE_IOPS: KeyInfo = optional(
    "rate_iops",
    KeyKind::Rate,
    "a closed loop",
    "an open loop: requests come at this rate, whatever the disk does: `\"200 IOPS\"`",
);
/// Spacing of an open loop.
pub(super) const RATE_PROCESS: KeyInfo = KeyInfo::new(
    "rate_process",
    KeyKind::Choice(&words(&SPACINGS)),
    KeyDefault::Text("linear"),
    "spacing of an open loop's requests",
);
/// Duration of a phase with arrivals.
pub(super) const ON: KeyInfo = TIME.named(
    "on",
    KeyDefault::Required("on = \"1 s\""),
    "time in which requests come",
);
/// Duration of a phase without arrivals.
pub(super) const OFF: KeyInfo = TIME.named(
    "off",
    KeyDefault::Required("off = \"4 s\""),
    "time in which none come",
);
/// `bursts = { on = ..., off = ... }`
pub(super) const BURSTS_TABLE: SectionInfo = SectionInfo {
    name: "vm.workload.bursts",
    keys: &[ON, OFF],
};
/// Phases of an open loop.
pub(super) const BURSTS: KeyInfo = optional(
    "bursts",
    KeyKind::Table(&BURSTS_TABLE),
    "always on",
    "an open loop that is on and off by turns",
);
/// Bytes after which the workload ends.
pub(super) const IO_SIZE: KeyInfo = optional(
    "io_size",
    KeyKind::Bytes,
    "without end",
    "bytes after which it ends",
)
.within(SECTOR, LARGEST);
/// Requests after which the workload ends.
pub(super) const NUMBER_IOS: KeyInfo = optional(
    "number_ios",
    KeyKind::Count,
    "without end",
    "requests after which it ends",
)
.within(1, u64::MAX);
/// Begin of the workload.
pub(super) const STARTDELAY: KeyInfo = KeyInfo::number(
    "startdelay",
    KeyKind::Duration,
    0,
    (0, LONGEST.0),
    "time after its VM's arrival at which it begins",
);
/// Time after which the workload ends.
pub(super) const RUNTIME: KeyInfo = optional(
    "runtime",
    KeyKind::Duration,
    "to the run's end",
    "time after its begin at which it ends",
)
.within(1, LONGEST.0);
/// Writes between two flushes.
pub(super) const FSYNC: KeyInfo = KeyInfo::number(
    "fsync",
    KeyKind::Count,
    0,
    (0, u32::MAX as u64),
    "writes after which a flush comes; 0: none comes",
);
/// Durability of each write.
pub(super) const SYNC: KeyInfo = KeyInfo::flag(
    "sync",
    false,
    "every write is durable before it is answered",
);
/// Files in the part of the disk.
pub(super) const NRFILES: KeyInfo = KeyInfo::number(
    "nrfiles",
    KeyKind::Count,
    1,
    (1, 1 << 16),
    "files of one size in its part of the disk",
);
/// Distance between two files.
pub(super) const FILE_GAP: KeyInfo = bytes("file_gap", "bytes between two of its files");
/// Page cache of the guest.
pub(super) const PAGE_CACHE: KeyInfo = optional(
    "page_cache",
    KeyKind::Table(&guest::PAGE_CACHE_TABLE),
    "none",
    "page cache, block layer and journal of the guest: \
     [workloads.md](workloads.md#page-cache-journal-and-copies)",
);
/// Destination of a copy.
pub(super) const COPY_TO: KeyInfo = optional(
    "copy_to",
    KeyKind::Table(&guest::COPY_TO_TABLE),
    "",
    "of a sequential read: what is read is written elsewhere (the same page)",
);
/// Trace that is replayed.
pub(super) const REPLAY: KeyInfo = optional(
    "replay",
    KeyKind::Table(&replay::REPLAY_TABLE),
    "none",
    "requests of a block trace instead ([below](#replaying-a-trace))",
);
/// Deadline of the workload or of the requests of its trace.
pub(super) const DEADLINE: KeyInfo = optional(
    "deadline",
    KeyKind::OneOf(&[KeyKind::Duration, KeyKind::Table(&replay::DEADLINE_TABLE)]),
    "none",
    "time by which it is to be done, or each request of its trace ([below](#deadlines))",
)
.within(1, LONGEST.0);

/// Keys that determine the requests and their times, which a trace determines instead.
pub(super) const DRAWN: [KeyInfo; 16] = [
    RW,
    RWMIXREAD,
    BSSPLIT,
    RANDOM_DISTRIBUTION,
    THINKTIME,
    THINKTIME_BLOCKS,
    RATE_IOPS,
    RATE_PROCESS,
    BURSTS,
    IO_SIZE,
    NUMBER_IOS,
    FSYNC,
    NRFILES,
    FILE_GAP,
    PAGE_CACHE,
    COPY_TO,
];

/// `[[vm.workload]]`
pub const WORKLOAD: SectionInfo = SectionInfo {
    name: "vm.workload",
    keys: &[
        NAME,
        RW,
        RWMIXREAD,
        BS,
        BSSPLIT,
        RANDOM_DISTRIBUTION,
        OFFSET,
        SIZE,
        OFFSET_INCREMENT,
        NUMJOBS,
        IODEPTH,
        THINKTIME,
        THINKTIME_BLOCKS,
        RATE_IOPS,
        RATE_PROCESS,
        BURSTS,
        IO_SIZE,
        NUMBER_IOS,
        STARTDELAY,
        RUNTIME,
        FSYNC,
        SYNC,
        NRFILES,
        FILE_GAP,
        PAGE_CACHE,
        COPY_TO,
        REPLAY,
        DEADLINE,
    ],
};
