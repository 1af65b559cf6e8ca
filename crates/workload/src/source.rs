//! Requests that reach the disk from a workload: drawn from a stream and passed through the guest's
//! layers, or taken from a trace.

use crate::guest::{BURST_DEPTH, CopyTo, INODES_PER_BLOCK, Journal, PageCache};
use crate::random_variate;
use crate::spec::{Flow, Workload};
use crate::stream::{Io, RegionError, Stream};
use crate::trace_replay::{TraceReplay, Whole};
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// Generator of the requests that reach the disk from one copy of a workload.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are direct, and each request goes through here"
)]
pub enum Source {
    /// Drawn requests, unchanged.
    Direct(Stream),
    /// Drawn requests behind a page cache.
    Buffered(Box<Buffered>),
    /// Drawn reads whose data is written elsewhere.
    Copying(Box<Copying>),
    /// Requests of a trace.
    TraceReplay(Box<TraceReplay>),
}

impl Source {
    /// Creates the generator of copy `copy` (from 0) of `workload`, on a disk of `disk_size` bytes
    /// with logical blocks of `block` bytes, to which a trace's requests are rounded. The workload
    /// must pass [`Workload::check`].
    ///
    /// # Errors
    /// If the region does not fit the disk; the error has both sizes.
    pub fn new(
        workload: &Workload,
        copy: u32,
        disk_size: u64,
        block: u32,
    ) -> Result<Source, RegionError> {
        if let Some(replay) = &workload.replay {
            let replaying = TraceReplay::new(workload, replay, copy, disk_size, block)?;
            return Ok(Source::TraceReplay(Box::new(replaying)));
        }
        if let Some(cache) = workload.page_cache {
            // The page cache handles `fsync`; the stream draws the writes only.
            let of_process = Workload {
                fsync: 0,
                ..workload.clone()
            };
            let stream = Stream::new(&of_process, copy, disk_size)?;
            let region = workload.region(copy, disk_size)?;
            let per_file =
                // The last file has no gap behind it, which is added for the division.
                (region.end - region.start + workload.files.gap) / u64::from(workload.files.count);
            return Ok(Source::Buffered(Box::new(Buffered {
                stream,
                cache,
                base: region.start,
                per_file: per_file.max(1),
                threads: match workload.flow {
                    // Each request outstanding stands for a thread, which calls `fsync` on a file
                    // of its own.
                    Flow::Closed { iodepth, .. } | Flow::Open { iodepth, .. } => iodepth.max(1),
                },
                fsync: workload.fsync,
                writes_to_sync: workload.fsync,
                dirty: Vec::new(),
                write_back_queue: VecDeque::new(),
                journal_at: 0,
                synced: false,
            })));
        }
        let stream = Stream::new(workload, copy, disk_size)?;
        let Some(to) = workload.copy_to else {
            return Ok(Source::Direct(stream));
        };
        Ok(Source::Copying(Box::new(Copying {
            stream,
            base: workload.region(copy, disk_size)?.start,
            to,
            piece: Vec::new(),
            held: 0,
            writes: VecDeque::new(),
        })))
    }

    /// Returns the next request; `None` if the workload has ended.
    #[inline]
    pub fn next(&mut self, rng: &mut Pcg64Mcg) -> Option<Io> {
        match self {
            Source::Direct(stream) => stream.next(rng),
            Source::Buffered(buffered) => buffered.next(rng),
            Source::Copying(copying) => copying.next(rng),
            Source::TraceReplay(replaying) => {
                let io = replaying.next()?;
                let pause = replaying.pause(&io, rng);
                Some(Io { pause, ..io })
            }
        }
    }

    /// Returns true if [`Source::next`] is known to return no more requests.
    #[inline]
    pub fn is_over(&self) -> bool {
        match self {
            Source::Direct(stream) => stream.is_over(),
            Source::Buffered(buffered) => {
                buffered.write_back_queue.is_empty()
                    && buffered.dirty.is_empty()
                    && buffered.stream.is_over()
            }
            Source::Copying(copying) => {
                copying.writes.is_empty() && copying.piece.is_empty() && copying.stream.is_over()
            }
            Source::TraceReplay(replaying) => replaying.is_over(),
        }
    }

    /// Returns the request of a trace to which the request returned last belongs; `None` without a
    /// trace.
    #[inline]
    pub fn whole(&self) -> Option<&Whole> {
        match self {
            Source::TraceReplay(replaying) => replaying.whole(),
            _ => None,
        }
    }

    /// Returns the maximum number of requests of this kind outstanding, given the workload's
    /// `iodepth`.
    #[inline]
    pub fn depth(&self, io: &Io, iodepth: u32) -> u32 {
        match self {
            Source::Buffered(buffered) if io.op != Op::Read => buffered.cache.depth,
            Source::Copying(copying) if io.op != Op::Read && copying.to.dirty_limit.is_some() => {
                BURST_DEPTH
            }
            _ => iodepth,
        }
    }
}

/// Workload behind a page cache.
#[derive(Clone, Debug)]
pub struct Buffered {
    stream: Stream,
    cache: PageCache,
    /// First byte of the region, and distance between the starts of two files in bytes.
    base: u64,
    per_file: u64,
    /// Number of files that are synced at once.
    threads: u32,
    /// Writes between two write-backs, and writes until the next one.
    fsync: u32,
    writes_to_sync: u32,
    /// Writes since the last write-back: first byte and length.
    dirty: Vec<(u64, u32)>,
    /// Requests of the present write-back that have not been issued.
    write_back_queue: VecDeque<Io>,
    /// Next byte of the journal, from its start.
    journal_at: u64,
    /// True if the next read must wait for the write-back, as the process does in `fsync`.
    synced: bool,
}

impl Buffered {
    fn next(&mut self, rng: &mut Pcg64Mcg) -> Option<Io> {
        loop {
            if let Some(io) = self.write_back_queue.pop_front() {
                // The last request of the write-back ends the `fsync`: what comes next waits for
                // it.
                self.synced = self.write_back_queue.is_empty();
                return Some(io);
            }
            let Some(io) = self.stream.next(rng) else {
                // At its end a process closes its files, and what is dirty reaches the disk.
                if self.dirty.is_empty() {
                    return None;
                }
                self.write_back();
                continue;
            };
            if io.op == Op::Read {
                // A hit does not reach the disk, but the stream has counted it.
                let hit = u64::from(self.cache.hit_percent);
                if random_variate::below(rng, 100) >= hit {
                    let waits = core::mem::take(&mut self.synced);
                    return Some(Io { waits, ..io });
                }
                continue;
            }
            self.dirty.push((io.offset, io.len));
            // Saturates: `fsync` is 0 for a workload that only reads.
            self.writes_to_sync = self.writes_to_sync.saturating_sub(1);
            if self.writes_to_sync == 0 {
                self.write_back();
            }
        }
    }

    /// Queues the requests that an `fsync` sends to the disk.
    fn write_back(&mut self) {
        self.writes_to_sync = self.fsync;
        // By address, as an elevator hands them to the disk.
        self.dirty.sort_unstable();
        let merged = merge(&self.dirty, self.cache.merge_limit);
        let first = self.write_back_queue.len();
        self.write_back_queue
            .extend(merged.iter().map(|&(at, len)| Io::write(at, len)));
        if let Some(io) = self.write_back_queue.get_mut(first) {
            // The process calls fsync after its reads have returned.
            io.waits = true;
        }
        if let Some(journal) = self.cache.journal {
            let file = |&(at, _): &(u64, u32)| (at - self.base) / self.per_file;
            let mut files: Vec<u64> = self.dirty.iter().map(file).collect();
            // Sorted by address, the writes of a file are adjacent.
            files.dedup();
            for together in files.chunks(self.threads as usize) {
                self.commit(&journal, together);
            }
        }
        if self.cache.flush {
            self.write_back_queue.push_back(Io {
                waits: true,
                ..Io::FLUSH
            });
        }
        self.dirty.clear();
    }

    /// Queues the commit of `files`, which are synced at once: ascending numbers of files.
    fn commit(&mut self, journal: &Journal, files: &[u64]) {
        for n in 0..journal.requests as usize * files.len() {
            let len = u64::from(journal.bytes);
            // A request does not wrap: the ring begins again where it would not fit.
            if len > journal.size - self.journal_at {
                self.journal_at = 0;
            }
            let at = journal.offset + self.journal_at;
            let first = n == 0;
            self.write_back_queue.push_back(Io {
                waits: first,
                pause: if first { journal.pause } else { Nanos::ZERO },
                ..Io::write(at, journal.bytes)
            });
            self.journal_at += len;
        }
        let Some(table) = journal.inode_table else {
            return;
        };
        let mut blocks: Vec<u64> = files.iter().map(|file| file / INODES_PER_BLOCK).collect();
        // Ascending, so that files of one block are adjacent.
        blocks.dedup();
        let write = |block| Io::write(table + block * u64::from(journal.bytes), journal.bytes);
        self.write_back_queue.extend(blocks.into_iter().map(write));
    }
}

/// Merges sorted writes that touch or overlap, up to `limit` bytes each.
fn merge(sorted: &[(u64, u32)], limit: u32) -> Vec<(u64, u32)> {
    let mut merged: Vec<(u64, u32)> = Vec::with_capacity(sorted.len());
    for &(at, len) in sorted {
        let end = at + u64::from(len);
        if let Some((from, sum)) = merged.last_mut()
            && at <= *from + u64::from(*sum)
        {
            // A write inside of the one before does not end behind it, hence the maximum.
            let all = (end - *from).max(u64::from(*sum));
            let inside = all == u64::from(*sum);
            if inside || all <= u64::from(limit) {
                // Fits: at most `limit` or the length that was there.
                *sum = all as u32;
                continue;
            }
        }
        merged.push((at, len));
    }
    merged
}

/// Workload whose reads are written elsewhere.
#[derive(Clone, Debug)]
pub struct Copying {
    stream: Stream,
    /// First byte of the region that is read.
    base: u64,
    to: CopyTo,
    /// Parts that were read and not written yet (first byte and length), and their total length.
    piece: Vec<(u64, u32)>,
    held: u64,
    /// Writes of the present piece that have not been issued.
    writes: VecDeque<Io>,
}

impl Copying {
    fn next(&mut self, rng: &mut Pcg64Mcg) -> Option<Io> {
        if let Some(io) = self.writes.pop_front() {
            return Some(io);
        }
        // A piece that is full, or cut short by the end of the reads, is written.
        let full = self.held >= self.to.dirty_limit.unwrap_or(self.to.piece);
        if !full && let Some(io) = self.stream.next(rng) {
            self.piece.push((io.offset, io.len));
            self.held += u64::from(io.len);
            return Some(io);
        }
        let (base, to) = (self.base, self.to.offset);
        let write = |(at, len): (u64, u32)| Io::write(at - base + to, len);
        self.writes.extend(self.piece.drain(..).map(write));
        self.held = 0;
        let mut first = self.writes.pop_front()?;
        // The data is there only when all reads of the piece are answered.
        first.waits = true;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::Files;
    use crate::random_variate::tests::seeded;
    use crate::spec::{Mix, Rw, Sizes};
    use proptest::prelude::*;

    const KIB: u64 = 1024;

    fn drawn(workload: &Workload, n: usize) -> Vec<Io> {
        assert_eq!(workload.check(), Ok(()));
        let mut source = Source::new(workload, 0, 1 << 30, 512).unwrap();
        let mut rng = seeded(7);
        std::iter::from_fn(|| source.next(&mut rng))
            .take(n)
            .collect()
    }

    fn writer(random: bool) -> Workload {
        Workload {
            rw: Rw {
                mix: Mix::Write,
                random,
            },
            sizes: std::array::from_fn(|_| Sizes::fixed(16 << 10)),
            offset: 1 << 20,
            size: Some(64 << 20),
            files: Files { count: 4, gap: 0 },
            fsync: 10,
            page_cache: Some(PageCache {
                hit_percent: 0,
                merge_limit: 44 << 10,
                depth: 32,
                journal: Some(Journal {
                    offset: 0,
                    size: 64 << 10,
                    requests: 2,
                    bytes: 4096,
                    pause: Nanos(4_000_000),
                    inode_table: None,
                }),
                flush: true,
            }),
            ..Workload::default()
        }
    }

    #[test]
    fn an_fsync_writes_back_merged_then_commits_then_flushes() {
        let ios = drawn(&writer(false), 9);
        let lens: Vec<u32> = ios.iter().map(|io| io.len).collect();
        // Ten writes of 16 KiB: two fit into 44 KiB.
        assert_eq!(lens[..5], [32 << 10; 5]);
        assert_eq!(lens[5..8], [4096, 4096, 0]);
        assert_eq!((ios[5].offset, ios[6].offset), (0, 4096));
        assert_eq!(ios[7].op, Op::Flush);
        let waits: Vec<usize> = (0..9).filter(|&i| ios[i].waits).collect();
        assert_eq!(waits, [0, 5, 7, 8]);
        let pauses: Vec<u64> = ios.iter().map(|io| io.pause.0).collect();
        assert_eq!(pauses, [0, 0, 0, 0, 0, 4_000_000, 0, 0, 0]);
        assert_eq!(ios[8].offset, (1 << 20) + 160 * KIB);
    }

    #[test]
    fn every_file_written_to_commits_by_itself() {
        let ios = drawn(&writer(true), 40);
        let first = ios.iter().position(|io| io.op == Op::Flush).unwrap();
        let data = |io: &&Io| io.op == Op::Write && io.offset >= 1 << 20;
        let files: std::collections::BTreeSet<u64> = (ios[..first].iter().filter(data))
            .map(|io| (io.offset - (1 << 20)) / (16 << 20))
            .collect();
        let commits = ios[..first].iter().filter(|io| io.offset < 1 << 20).count();
        assert_eq!(commits, 2 * files.len());
        let offsets: Vec<u64> = ios[..first - commits].iter().map(|io| io.offset).collect();
        assert!(offsets.is_sorted());
    }

    #[test]
    fn what_is_written_last_is_written_back_too() {
        let mut workload = writer(false);
        workload.number_ios = Some(12);
        let ios = drawn(&workload, 100);
        assert_eq!(ios.iter().filter(|io| io.op == Op::Flush).count(), 2);
        let bytes: u64 = (ios.iter().filter(|io| io.offset >= 1 << 20))
            .map(|io| u64::from(io.len))
            .sum();
        assert_eq!(bytes, 12 * 16 * KIB);
    }

    #[test]
    fn reads_that_hit_never_reach_the_disk() {
        let mut workload = writer(true);
        workload.rw.mix = Mix::Read;
        workload.number_ios = Some(10_000);
        workload.page_cache.as_mut().unwrap().hit_percent = 36;
        let ios = drawn(&workload, 20_000);
        assert!((6_250..6_550).contains(&ios.len()), "{}", ios.len());
        assert!(ios.iter().all(|io| !io.waits));
    }

    #[test]
    fn a_copy_writes_each_piece_once_it_is_read() {
        let workload = Workload {
            sizes: std::array::from_fn(|_| Sizes::fixed(4096)),
            size: Some(20 << 10),
            io_size: Some(20 << 10),
            copy_to: Some(CopyTo {
                offset: 1 << 20,
                piece: 8 << 10,
                dirty_limit: None,
            }),
            ..Workload::default()
        };
        let ios = drawn(&workload, 100);
        let places: Vec<(Op, u64, bool)> = ios
            .iter()
            .map(|io| (io.op, io.offset / 4096, io.waits))
            .collect();
        let (r, w) = (Op::Read, Op::Write);
        let piece = |n| {
            [
                (r, n, false),
                (r, n + 1, false),
                (w, 256 + n, true),
                (w, 257 + n, false),
            ]
        };
        let mut expected = [piece(0), piece(2)].concat();
        expected.extend([(r, 4, false), (w, 260, true)]);
        assert_eq!(places, expected);
    }

    #[test]
    fn a_commit_writes_the_inodes_of_its_files_in_place() {
        let mut workload = writer(true);
        // 64 MiB in 64 files; ten random writes, two files at a time.
        workload.files = Files { count: 64, gap: 0 };
        workload.flow = Flow::Closed {
            iodepth: 2,
            think: None,
        };
        let table = 512 * KIB;
        let cache = workload.page_cache.as_mut().unwrap();
        cache.journal.as_mut().unwrap().inode_table = Some(table);
        let ios = drawn(&workload, 60);
        let first = ios.iter().position(|io| io.op == Op::Flush).unwrap();
        let (data, commits): (Vec<&Io>, Vec<&Io>) =
            ios[..first].iter().partition(|io| io.offset >= 1 << 20);
        let mut files: Vec<u64> = data.iter().map(|io| (io.offset >> 20) - 1).collect();
        files.dedup();
        let mut expected = Vec::new();
        let mut journal = 0;
        for together in files.chunks(2) {
            for _ in 0..2 * together.len() {
                expected.push(journal);
                // The journal is a ring of 64 KiB.
                journal = (journal + 4 * KIB) % (64 * KIB);
            }
            let mut blocks: Vec<u64> = together.iter().map(|file| file / 32).collect();
            blocks.dedup();
            expected.extend(blocks.iter().map(|block| table + block * 4 * KIB));
        }
        let places: Vec<u64> = commits.iter().map(|io| io.offset).collect();
        assert_eq!(places, expected);
        // Both blocks of the table are written to, or the test shows nothing.
        assert!(places.contains(&table) && places.contains(&(table + 4 * KIB)));
        assert_eq!(
            workload.page_cache.unwrap().journal.unwrap().end(64),
            table + 8 * KIB
        );
    }

    #[test]
    fn a_dirty_limit_gathers_pieces_into_one_burst() {
        let copy = CopyTo {
            offset: 1 << 20,
            piece: 8 << 10,
            dirty_limit: Some(16 << 10),
        };
        let workload = Workload {
            sizes: std::array::from_fn(|_| Sizes::fixed(4096)),
            size: Some(24 << 10),
            io_size: Some(24 << 10),
            copy_to: Some(copy),
            ..Workload::default()
        };
        let ios = drawn(&workload, 100);
        let writes: Vec<bool> = ios.iter().map(|io| io.op == Op::Write).collect();
        let burst = |n| [vec![false; n], vec![true; n]].concat();
        assert_eq!(writes, [burst(4), burst(2)].concat());
        let source = Source::new(&workload, 0, 1 << 30, 512).unwrap();
        let depths = [&ios[0], &ios[4]].map(|io| source.depth(io, 2));
        assert_eq!(depths, [2, 128]);
        assert_eq!([ios[4].waits, ios[5].waits], [true, false]);
    }

    #[test]
    fn files_lie_apart_and_cut_what_passes_their_end() {
        let workload = Workload {
            sizes: std::array::from_fn(|_| Sizes::fixed(12 << 10)),
            size: Some(32 << 10),
            files: Files {
                count: 2,
                gap: 4096,
            },
            ..Workload::default()
        };
        let places: Vec<(u64, u64)> = drawn(&workload, 5)
            .iter()
            .map(|io| (io.offset / KIB, u64::from(io.len) / KIB))
            .collect();
        assert_eq!(places, [(0, 12), (12, 4), (20, 12), (32, 4), (0, 12)]);
    }

    proptest! {
        /// Against a set of bytes, in blocks.
        #[test]
        fn merging_keeps_every_byte(
            mut writes in prop::collection::vec((0_u64..200, 1_u32..12), 1..60), limit in 1_u32..40
        ) {
            writes.sort_unstable();
            let covered = |all: &[(u64, u32)]| -> std::collections::BTreeSet<u64> {
                all.iter().flat_map(|&(at, len)| at..at + u64::from(len)).collect()
            };
            let merged = merge(&writes, limit);
            prop_assert_eq!(covered(&writes), covered(&merged));
            for &(_, len) in &merged {
                prop_assert!(len <= limit || writes.iter().any(|w| w.1 == len));
            }
        }
    }
}
