//! What stands between a guest's process and its disk: files, a page cache, a block layer that
//! merges, a journal. And copying, which reads in one place and writes in another.
//!
//! ```text
//!   process --read---> [cache: some hit] ----------------------------------> disk
//!           --write--> [cache: dirty] --fsync--> sorted, merged --> journal --> flush
//! ```

use tidegate_core::time::Nanos;

/// The files that a job works on lie one after the other in its region, all of one size; the
/// job's `size` is that of all together. Sequential jobs go from file to file in order, random
/// ones draw their places from all of them. A request that would pass the end of its file is cut
/// there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Files {
    /// How many, 1 to 65,536.
    pub count: u32,
    /// Bytes between the end of one and the start of the next, a multiple of 512.
    pub gap: u64,
}

impl Files {
    /// One: the region itself.
    pub const ONE: Files = Files { count: 1, gap: 0 };

    /// Bytes that `size` bytes of data take with what lies between the files.
    pub(crate) fn span(self, size: u64) -> u64 {
        size.saturating_add(self.gap.saturating_mul(u64::from(self.count) - 1))
    }
}

/// A guest's page cache and its block layer.
///
/// A write is done when it is in the cache. When `fsync` of the job says so, or at the job's end,
/// what was written since is written back: sorted by address, adjacent writes merged. Then come
/// the journal's requests, then a flush; the process goes on when that is answered. So an `fsync`
/// stands for one of all files at once, as sysbench's does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageCache {
    /// Of a hundred reads so many are answered by the cache, each drawn by itself: 0 to 99.
    pub hit_percent: u8,
    /// Adjacent writes are merged as long as the sum is at most so many bytes, a multiple of 512
    /// from 512 to 1 GiB. A write is never split.
    pub merge_limit: u32,
    /// Written back at a time, 1 to 65,536 requests: the length of the guest's queue.
    pub depth: u32,
    /// What a file system writes beside the data.
    pub journal: Option<Journal>,
    /// A flush ends each `fsync`. Without it, as ext3 without barriers has it, the process goes on
    /// once all of its writes are answered.
    pub flush: bool,
}

/// The journal of a guest's file system, written round and round. Files that were written to are
/// synced `iodepth` at a time, as so many threads do it, whose commits join; a commit comes once
/// the one before is answered, and the first once the data is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Journal {
    /// Its first byte on the disk, a multiple of 512.
    pub offset: u64,
    /// Its bytes, a multiple of 512 that holds a commit.
    pub size: u64,
    /// Requests of a commit for each of its files, 1 to 1024.
    pub requests: u32,
    /// Bytes of each, a multiple of 512 from 512 to 1 GiB.
    pub bytes: u32,
    /// How long a commit waits for others to join it before it is written.
    pub pause: Nanos,
}

/// What a job reads it writes elsewhere, a piece at a time: it reads one piece after the other
/// and writes each once all of it is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyTo {
    /// Where the copy begins on the disk, a multiple of 512.
    pub offset: u64,
    /// Bytes of a piece, at least one request.
    pub piece: u64,
}
