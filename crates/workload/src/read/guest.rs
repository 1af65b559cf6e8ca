//! Reading what stands between a job and its disk: page cache, journal, copies.

use super::value::{LARGEST, LARGEST_REQUEST, LONGEST, MOST_DEPTH, SECTOR, sectors};
use crate::guest::{CopyTo, Journal, PageCache};
use tidegate_config::{Field, Section};
use tidegate_core::time::Nanos;

/// Linux's `nr_requests`.
const QUEUE: u32 = 128;
const PAGE: u64 = 4096;

/// `page_cache = { hit_percent = 36, merge_limit = "44 KiB", ... }`
pub(super) fn page_cache(field: &Field<'_>) -> Option<PageCache> {
    let mut section = Section::of(field)?;
    let hit_percent = section.read("hit_percent", 0, |field| field.count(0..=99));
    let merge_limit = section.read("merge_limit", PAGE, |field| {
        sectors(field, SECTOR..=LARGEST_REQUEST)
    });
    let depth = section.read("depth", u64::from(QUEUE), |field| {
        field.count(1..=MOST_DEPTH)
    });
    let journal = section.read("journal", None, |field| journal(field).map(Some));
    let flush = section.read("flush", true, |field| field.flag());
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
    let mut section = Section::of(field)?;
    let offset = section.read("offset", 0, |field| sectors(field, 0..=LARGEST));
    let size = section
        .need("size", "how large it is: size = \"128 MiB\"")
        .and_then(|field| sectors(&field, SECTOR..=LARGEST));
    let requests = section.read("requests", 1, |field| field.count(1..=1024));
    let bytes = section.read("bs", PAGE, |field| sectors(field, SECTOR..=LARGEST_REQUEST));
    let pause = section.read("pause", Nanos::ZERO, |field| {
        field.duration(Nanos::ZERO..=LONGEST)
    });
    section.finish();
    Some(Journal {
        offset: offset?,
        size: size?,
        requests: requests? as u32,
        bytes: bytes? as u32,
        pause: pause?,
    })
}

/// `copy_to = { offset = "12 GiB", piece = "4 MiB" }`
pub(super) fn copy_to(field: &Field<'_>) -> Option<CopyTo> {
    let mut section = Section::of(field)?;
    let offset = section
        .need("offset", "where the copy begins: offset = \"12 GiB\"")
        .and_then(|field| sectors(&field, 0..=LARGEST));
    let piece = section.read("piece", 1 << 20, |field| sectors(field, SECTOR..=LARGEST));
    section.finish();
    Some(CopyTo {
        offset: offset?,
        piece: piece?,
    })
}
