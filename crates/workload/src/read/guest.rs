//! Reader of a workload's page cache, journal and copies.

use super::keys::guest as keys;
use super::value::{whole, whole_if_any};
use crate::guest::{CopyTo, Journal, PageCache};
use tidegate_config::{Field, Section};
use tidegate_core::time::Nanos;

/// Reads `page_cache = { hit_percent = 36, merge_limit = "44 KiB", ... }`.
pub(super) fn page_cache(field: &Field<'_>) -> Option<PageCache> {
    let mut section = Section::with_keys(field, &keys::PAGE_CACHE_TABLE)?;
    let hit_percent = section.number(&keys::HIT_PERCENT);
    let merge_limit = whole(&mut section, &keys::MERGE_LIMIT);
    let depth = section.number(&keys::DEPTH);
    let journal = section.value(&keys::JOURNAL, None, |field| journal(field).map(Some));
    let flush = section.flag(&keys::FLUSH);
    section.finish();
    Some(PageCache {
        hit_percent: hit_percent? as u8,
        merge_limit: merge_limit? as u32,
        depth: depth? as u32,
        journal: journal?,
        flush: flush?,
    })
}

fn journal(field: &Field<'_>) -> Option<Journal> {
    let mut section = Section::with_keys(field, &keys::JOURNAL_TABLE)?;
    let offset = whole(&mut section, &keys::JOURNAL_OFFSET);
    let size = whole(&mut section, &keys::JOURNAL_SIZE);
    let requests = section.number(&keys::REQUESTS);
    let bytes = whole(&mut section, &keys::JOURNAL_BS);
    let pause = section.number(&keys::PAUSE);
    let inode_table = whole_if_any(&mut section, &keys::INODE_TABLE);
    section.finish();
    Some(Journal {
        offset: offset?,
        size: size?,
        requests: requests? as u32,
        bytes: bytes? as u32,
        pause: Nanos(pause?),
        inode_table: inode_table?,
    })
}

/// Reads `copy_to = { offset = "12 GiB", piece = "4 MiB" }`.
pub(super) fn copy_to(field: &Field<'_>) -> Option<CopyTo> {
    let mut section = Section::with_keys(field, &keys::COPY_TO_TABLE)?;
    let offset = whole(&mut section, &keys::COPY_OFFSET);
    let piece = whole(&mut section, &keys::PIECE);
    let dirty_limit = whole_if_any(&mut section, &keys::DIRTY_LIMIT);
    section.finish();
    Some(CopyTo {
        offset: offset?,
        piece: piece?,
        dirty_limit: dirty_limit?,
    })
}
