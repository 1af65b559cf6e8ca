//! Validation of a workload's files, page cache, journal and copies.

use crate::error::Findings;
use crate::guest::{CopyTo, Files, PageCache};
use crate::spec::{FILES_MAX, IODEPTH_MAX, Mix, REQUEST_MAX, SECTOR, Workload};

impl Workload {
    pub(super) fn check_guest(&self, findings: &mut Findings) {
        let sectors = "a multiple of 512 bytes";
        let Files { count, gap } = self.files;
        let fine = (1..=FILES_MAX).contains(&count);
        findings.expect(fine, "files.count", count, "1 to 65536");
        findings.expect(gap.is_multiple_of(SECTOR), "files.gap", gap, sectors);
        if count > 1 {
            let found = self.size.map_or("not known".to_owned(), |s| s.to_string());
            let fine = (self.size)
                // At least 1: a count of 0 has been reported, and must not divide.
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
        let size = |bytes: u32| sectors(bytes.into()) && (1..=REQUEST_MAX).contains(&bytes);
        let found = cache.hit_percent;
        findings.expect(found < 100, "hit_percent", found, "0 to 99");
        let (found, allowed) = (cache.merge_limit, "a multiple of 512 bytes up to 1 GiB");
        findings.expect(size(found), "merge_limit", found, allowed);
        let fine = (1..=IODEPTH_MAX).contains(&cache.depth);
        findings.expect(fine, "depth", cache.depth, "1 to 65536");
        let in_the_way = [
            (self.rw.mix.has_discards(), "discards"),
            // A durable write does not stay in the cache, which the model of write-back assumes.
            (self.sync, "sync"),
        ];
        findings.expect_none(&in_the_way, "reads and writes without sync");
        // Without `fsync` the dirty writes would pile up in memory until the end of the run.
        let ends = self.fsync > 0 || matches!(self.rw.mix, Mix::Read);
        let allowed = "an fsync for a workload that writes";
        findings.expect(ends, "", "never written back", allowed);
        let Some(journal) = &cache.journal else {
            return;
        };
        findings.within("journal", |findings| {
            let (found, allowed) = (journal.offset, "a multiple of 512 bytes");
            findings.expect(sectors(found), "offset", found, allowed);
            let fine = (1..=1024).contains(&journal.requests);
            findings.expect(fine, "requests", journal.requests, "1 to 1024");
            let (found, allowed) = (journal.bytes, "a multiple of 512 bytes up to 1 GiB");
            findings.expect(size(found), "bytes", found, allowed);
            // The product of two 32-bit numbers fits 64 bits.
            let commit = u64::from(journal.requests) * u64::from(journal.bytes);
            let fine = sectors(journal.size) && journal.size >= commit;
            let allowed = "a multiple of 512 bytes that holds a commit";
            findings.expect(fine, "size", journal.size, allowed);
            if let Some(table) = journal.inode_table {
                let allowed = "a multiple of 512 bytes";
                findings.expect(sectors(table), "inode_table", table, allowed);
            }
        });
    }

    fn check_copy(&self, copy: &CopyTo, findings: &mut Findings) {
        let fine = copy.offset.is_multiple_of(SECTOR);
        findings.expect(fine, "offset", copy.offset, "a multiple of 512 bytes");
        let fine = copy.piece >= u64::from(self.largest_request());
        findings.expect(fine, "piece", copy.piece, "at least the largest request");
        if let Some(limit) = copy.dirty_limit {
            let fine = limit >= copy.piece;
            findings.expect(fine, "dirty_limit", limit, "at least a piece");
        }
        // Parts are written in the order in which they were read, to the same distances.
        let in_the_way = [
            (self.rw.mix != Mix::Read, "writes or discards"),
            (self.rw.random, "random requests"),
            (self.page_cache.is_some(), "page_cache"),
            (self.fsync != 0, "fsync"),
        ];
        let allowed = "a sequential read without page_cache and fsync";
        findings.expect_none(&in_the_way, allowed);
    }
}
