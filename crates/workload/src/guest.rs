//! What stands between a guest's process and its disk: files, a page cache, a block layer that
//! merges, a journal. And copying, which reads in one place and writes in another.
//!
//! ```text
//!   process --read---> [cache: some hit] ----------------------------------> disk
//!           --write--> [cache: dirty] --fsync--> sorted, merged --> journal --> flush
//! ```

use crate::job::{Job, Mix, SECTOR};
use crate::mistake::Findings;
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

impl Job {
    pub(crate) fn check_guest(&self, findings: &mut Findings) {
        let sectors = "a multiple of 512 bytes";
        let Files { count, gap } = self.files;
        let fine = (1..=1 << 16).contains(&count);
        findings.expect(fine, "files.count", count, "1 to 65536");
        findings.expect(gap.is_multiple_of(SECTOR), "files.gap", gap, sectors);
        if count > 1 {
            let found = self.size.map_or("not known".to_owned(), |s| s.to_string());
            let fine = (self.size)
                .is_some_and(|size| size.is_multiple_of(u64::from(count.max(1)) * SECTOR));
            let allowed = "for several files, a multiple of 512 bytes for each";
            findings.expect(fine, "size", found, allowed);
        }
        if let Some(cache) = &self.page_cache {
            findings.within("page_cache", |findings| self.check_cache(cache, findings));
        }
        if let Some(copy) = &self.copy_to {
            findings.within("copy_to", |findings| self.check_copy(copy, findings));
        }
    }

    fn check_cache(&self, cache: &PageCache, findings: &mut Findings) {
        let sectors = |bytes: u64| bytes.is_multiple_of(SECTOR);
        let size = |bytes: u32| sectors(bytes.into()) && (1..=1 << 30).contains(&bytes);
        let what = cache.hit_percent;
        findings.expect(what < 100, "hit_percent", what, "0 to 99");
        let (what, allowed) = (cache.merge_limit, "a multiple of 512 bytes up to 1 GiB");
        findings.expect(size(what), "merge_limit", what, allowed);
        let fine = (1..=1 << 16).contains(&cache.depth);
        findings.expect(fine, "depth", cache.depth, "1 to 65536");
        let plain = matches!(self.rw.mix, Mix::Read | Mix::Write | Mix::ReadWrite { .. });
        let plain = plain && !self.sync;
        findings.expect(
            plain,
            "",
            "not for this",
            "reads and writes, without `sync`",
        );
        let ends = self.fsync > 0 || matches!(self.rw.mix, Mix::Read);
        let allowed = "an `fsync` for a job that writes";
        findings.expect(ends, "", "never written back", allowed);
        let Some(journal) = &cache.journal else {
            return;
        };
        findings.within("journal", |findings| {
            let (what, allowed) = (journal.offset, "a multiple of 512 bytes");
            findings.expect(sectors(what), "offset", what, allowed);
            let fine = (1..=1024).contains(&journal.requests);
            findings.expect(fine, "requests", journal.requests, "1 to 1024");
            let (what, allowed) = (journal.bytes, "a multiple of 512 bytes up to 1 GiB");
            findings.expect(size(what), "bytes", what, allowed);
            let commit = u64::from(journal.requests) * u64::from(journal.bytes);
            let fine = sectors(journal.size) && journal.size >= commit;
            let allowed = "a multiple of 512 bytes that holds a commit";
            findings.expect(fine, "size", journal.size, allowed);
        });
    }

    fn check_copy(&self, copy: &CopyTo, findings: &mut Findings) {
        let fine = copy.offset.is_multiple_of(SECTOR);
        findings.expect(fine, "offset", copy.offset, "a multiple of 512 bytes");
        let fine = copy.piece >= u64::from(self.largest_request());
        findings.expect(fine, "piece", copy.piece, "at least the largest request");
        let reads = self.rw.mix == Mix::Read && !self.rw.random;
        let alone = self.page_cache.is_none() && self.fsync == 0;
        let allowed = "a sequential read without page cache and fsync";
        findings.expect(reads && alone, "", "not for this", allowed);
    }

    /// The last byte on the disk, plus one, that the journal or the copy of a region of
    /// `region` bytes takes up; 0 without either.
    pub(crate) fn beside(&self, region: u64) -> u64 {
        let journal = self.page_cache.and_then(|cache| cache.journal);
        let journal = journal.map_or(0, |j| j.offset.saturating_add(j.size));
        let copy = self.copy_to.map_or(0, |c| c.offset.saturating_add(region));
        journal.max(copy)
    }
}
