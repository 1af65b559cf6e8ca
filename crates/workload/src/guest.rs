//! Layers of a guest between a process and its disk: files, page cache, a block layer that merges,
//! a journal; and copying, which reads in one place and writes in another.
//!
//! ```text
//!   process --read---> [cache: some hit] ----------------------------------> disk
//!           --write--> [cache: dirty] --fsync--> sorted, merged --> journal --> flush
//! ```

use tidegate_core::time::Nanos;

/// Files that a workload uses, all of one size, one after the other in its region. The workload's
/// `size` is their total. Sequential workloads go through the files in order; random ones draw
/// places from all of them. A request that would pass the end of its file is cut there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Files {
    /// Number of files, 1 to 65,536.
    pub count: u32,
    /// Bytes between the end of a file and the start of the next, a multiple of 512.
    pub gap: u64,
}

impl Files {
    /// Single file: the region itself.
    pub const ONE: Files = Files { count: 1, gap: 0 };

    /// Returns the bytes of disk that `size` bytes of data occupy, gaps between files included.
    pub(crate) fn span(self, size: u64) -> u64 {
        size.saturating_add(self.gap.saturating_mul(u64::from(self.count) - 1))
    }
}

/// Page cache and block layer of a guest.
///
/// A write is done when it is in the cache. At each `fsync` of the workload, and at its end, the
/// writes since the last one are written back: sorted by address, adjacent ones merged. The
/// journal's requests follow, then a flush; the process continues when that is answered. One
/// `fsync` therefore stands for an `fsync` of all files at once, as sysbench does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageCache {
    /// Reads in a hundred that the cache answers, drawn independently: 0 to 99.
    pub hit_percent: u8,
    /// Largest size in bytes up to which adjacent writes are merged, a multiple of 512 up to 1 GiB.
    /// A write is never split.
    pub merge_limit: u32,
    /// Requests written back at a time, 1 to 65,536: the length of the guest's queue.
    pub depth: u32,
    /// Journal of the file system; `None`: only data is written.
    pub journal: Option<Journal>,
    /// True if each `fsync` ends with a flush. Without it, as in ext3 without barriers, the process
    /// continues when all of its writes are answered.
    pub flush: bool,
}

/// Journal of a guest's file system, written as a ring. Files that were written to are synced
/// `iodepth` at a time, as by that many threads whose commits join. A commit is written when the
/// one before is answered, the first one when the data is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Journal {
    /// First byte on the disk, a multiple of 512.
    pub offset: u64,
    /// Size in bytes, a multiple of 512 that holds a commit.
    pub size: u64,
    /// Requests of a commit for each of its files, 1 to 1024.
    pub requests: u32,
    /// Size of each request in bytes, a multiple of 512 up to 1 GiB.
    pub bytes: u32,
    /// Time for which a commit waits for others to join it.
    pub pause: Nanos,
    /// First byte of the inode table on the disk, a multiple of 512; `None`: inodes are in the
    /// journal only. With one, each commit writes the inodes of its files in place, too: a request
    /// of `bytes` for each [`INODES_PER_BLOCK`] files of which one was written to.
    pub inode_table: Option<u64>,
}

/// Inodes in a block of an inode table: those of ext3 have 128 bytes, and its blocks 4 KiB.
pub const INODES_PER_BLOCK: u64 = 32;

impl Journal {
    /// Returns the first byte behind the journal and the inode table of `files` files.
    pub(crate) fn end(&self, files: u32) -> u64 {
        let table = self.inode_table.map_or(0, |offset| {
            let blocks = u64::from(files).div_ceil(INODES_PER_BLOCK);
            offset.saturating_add(blocks * u64::from(self.bytes))
        });
        self.offset.saturating_add(self.size).max(table)
    }
}

/// Copy of what a workload reads to another place: it reads one piece after the other and writes
/// each when all of it has been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyTo {
    /// First byte of the copy on the disk, a multiple of 512.
    pub offset: u64,
    /// Size of a piece in bytes, at least one request.
    pub piece: u64,
    /// Bytes that pile up in the page cache of the copying process before all of them are written
    /// in one burst, [`BURST_DEPTH`] requests at a time; at least a piece. `None`: each piece is
    /// written once it has been read, `iodepth` requests at a time.
    pub dirty_limit: Option<u64>,
}

/// Requests of a write-back burst outstanding: the length of a block device's queue in Linux
/// (`nr_requests`).
pub const BURST_DEPTH: u32 = 128;
