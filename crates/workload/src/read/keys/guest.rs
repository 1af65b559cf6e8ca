//! Keys of a workload's page cache, journal and copies.

use tidegate_config::keys::{KeyDefault, KeyInfo, KeyKind, SectionInfo};

use super::{LARGEST, LARGEST_REQUEST, LONGEST, MAX_DEPTH, SECTOR};

/// Default length of a guest's queue in requests: Linux's `nr_requests`.
const QUEUE: u64 = 128;
/// Size of a memory page in bytes.
const PAGE: u64 = 4096;

/// Reads that the cache answers.
pub(in crate::read) const HIT_PERCENT: KeyInfo = KeyInfo::number(
    "hit_percent",
    KeyKind::Count,
    0,
    (0, 99),
    "reads in a hundred that the cache answers, each drawn by itself; they count for \
     `number_ios` and `io_size`",
);
/// Largest size up to which adjacent writes are merged.
pub(in crate::read) const MERGE_LIMIT: KeyInfo = KeyInfo::number(
    "merge_limit",
    KeyKind::Bytes,
    PAGE,
    (SECTOR, LARGEST_REQUEST),
    "size up to which adjacent writes are merged; none is split",
);
/// Requests that are written back at a time.
pub(in crate::read) const DEPTH: KeyInfo = KeyInfo::number(
    "depth",
    KeyKind::Count,
    QUEUE,
    (1, MAX_DEPTH),
    "requests written back at a time",
);
/// Journal of the file system.
pub(in crate::read) const JOURNAL: KeyInfo = KeyInfo::new(
    "journal",
    KeyKind::Table(&JOURNAL_TABLE),
    KeyDefault::Unset("nothing"),
    "what the file system writes with each `fsync`",
);
/// Flush at the end of each `fsync`.
pub(in crate::read) const FLUSH: KeyInfo = KeyInfo::flag(
    "flush",
    true,
    "a flush ends each `fsync`; `false`: as ext3 without barriers, the process goes on once all \
     its writes are answered",
);

/// `[vm.workload.page_cache]`
pub(in crate::read) const PAGE_CACHE_TABLE: SectionInfo = SectionInfo {
    name: "vm.workload.page_cache",
    keys: &[HIT_PERCENT, MERGE_LIMIT, DEPTH, FLUSH, JOURNAL],
};

/// First byte of the journal.
pub(in crate::read) const JOURNAL_OFFSET: KeyInfo = KeyInfo::number(
    "offset",
    KeyKind::Bytes,
    0,
    (0, LARGEST),
    "its first byte on the disk",
);
/// Size of the journal.
pub(in crate::read) const JOURNAL_SIZE: KeyInfo = KeyInfo::new(
    "size",
    KeyKind::Bytes,
    KeyDefault::Required("how large it is: size = \"128 MiB\""),
    "its size; it is written round and round",
)
.within(SECTOR, LARGEST);
/// Requests of a commit.
pub(in crate::read) const REQUESTS: KeyInfo = KeyInfo::number(
    "requests",
    KeyKind::Count,
    1,
    (1, 1024),
    "requests of a commit, for each of its files",
);
/// Size of a commit's requests.
pub(in crate::read) const JOURNAL_BS: KeyInfo = KeyInfo::number(
    "bs",
    KeyKind::Bytes,
    PAGE,
    (SECTOR, LARGEST_REQUEST),
    "size of each of them",
);
/// Time for which a commit waits for others.
pub(in crate::read) const PAUSE: KeyInfo = KeyInfo::number(
    "pause",
    KeyKind::Duration,
    0,
    (0, LONGEST.0),
    "time for which a commit waits for others to join it (ext3's journal sleeps for a tick)",
);

/// First byte of the inode table.
pub(in crate::read) const INODE_TABLE: KeyInfo = KeyInfo::new(
    "inode_table",
    KeyKind::Bytes,
    KeyDefault::Unset("inodes are written to the journal only"),
    "first byte of the inode table on the disk: each commit also writes the inodes of its files \
     there, a request of `bs` for every 32 files of which one was written to",
)
.within(0, LARGEST);

/// `[vm.workload.page_cache.journal]`
pub(in crate::read) const JOURNAL_TABLE: SectionInfo = SectionInfo {
    name: "vm.workload.page_cache.journal",
    keys: &[
        JOURNAL_OFFSET,
        JOURNAL_SIZE,
        REQUESTS,
        JOURNAL_BS,
        PAUSE,
        INODE_TABLE,
    ],
};

/// First byte of a copy.
pub(in crate::read) const COPY_OFFSET: KeyInfo = KeyInfo::new(
    "offset",
    KeyKind::Bytes,
    KeyDefault::Required("where the copy begins: offset = \"12 GiB\""),
    "first byte of the copy on the disk",
)
.within(0, LARGEST);
/// Bytes that are read before they are written.
pub(in crate::read) const PIECE: KeyInfo = KeyInfo::number(
    "piece",
    KeyKind::Bytes,
    1 << 20,
    (SECTOR, LARGEST),
    "bytes that are read before they are written",
);

/// Bytes that are dirty before they are written.
pub(in crate::read) const DIRTY_LIMIT: KeyInfo = KeyInfo::new(
    "dirty_limit",
    KeyKind::Bytes,
    KeyDefault::Unset("each piece is written once it is read"),
    "bytes that pile up in the copying process's page cache, before all of them are written in one \
     burst, 128 requests at a time; at least a piece",
)
.within(SECTOR, LARGEST);

/// `[vm.workload.copy_to]`
pub(in crate::read) const COPY_TO_TABLE: SectionInfo = SectionInfo {
    name: "vm.workload.copy_to",
    keys: &[COPY_OFFSET, PIECE, DIRTY_LIMIT],
};
