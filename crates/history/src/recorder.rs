//! Recorder: takes samples, makes blocks of them, keeps the newest in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::block::{Block, BlockKind, Builder, Entries, Header};
use crate::budget::{BYTES_MAX, BYTES_PER_VM, COARSE_WINDOWS, FINE_WINDOWS, NAME_MAX, WINDOW_MS};
use crate::chunk::{Chunk, Detail};
use crate::query::{Answer, Query, whole_window};
use crate::reader::Damage;
use crate::sample::{Behind, Key, Kind, Sample};
use crate::window::Window;

/// Encoded block.
pub type Bytes = Arc<[u8]>;

/// Age from which on fine windows are removed.
const FINE_AGE_MS: u64 = FINE_WINDOWS as u64 * WINDOW_MS;
/// Age from which on coarse blocks in memory are removed: 24 hours.
const COARSE_AGE_MS: u64 = 24 * 3600 * 1000;
/// Part of a VM's memory that its blocks may take; the rest is for the open window, and for the
/// counters that the driver keeps.
const BLOCK_BYTES_PER_VM: usize = BYTES_PER_VM - (14 << 10);
/// Time after which a run without samples leaves a mark.
pub const MARK_EVERY_MS: u64 = 60_000;

/// Window of fine points.
#[derive(Debug)]
struct FineWindow {
    run: u64,
    number: u64,
    from_ms: u64,
    to_ms: u64,
    blocks: Vec<Bytes>,
    series: usize,
    bytes: usize,
}

/// Block of coarse points in memory.
#[derive(Debug)]
struct CoarseBlock {
    header: Header,
    bytes: Bytes,
    /// Number of series in the largest of its windows.
    series: usize,
}

/// Position of the recorder: what must go on from an earlier run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Position {
    /// Number of the newest window of which there is a block.
    pub last_window: u64,
    /// Number of the newest window that a coarse block has.
    pub last_coarse: u64,
}

/// Recorder of the history of all devices of a daemon.
#[derive(Debug)]
pub struct Recorder {
    run: u64,
    /// Coarse blocks are kept in memory, because there are no files.
    keeps_coarse: bool,
    window: Window,
    /// Time from which on the run's points are there: its begin, or the end of removed ones.
    since_ms: u64,
    /// Begin of the open window.
    opened_ms: u64,
    number: u64,
    fine: VecDeque<FineWindow>,
    coarse: VecDeque<CoarseBlock>,
    last_coarse: u64,
    bytes: usize,
    marked_ms: u64,
}

/// Groups of blocks that came into being, in the order in which they are to be written.
pub type Groups = Vec<(BlockKind, Vec<Bytes>)>;

impl Recorder {
    /// Creates a recorder whose first window begins at `now_ms`. `run`: a number that no other run
    /// has. `keeps_coarse`: there are no files that coarse blocks are written to.
    pub fn new(run: u64, now_ms: u64, keeps_coarse: bool) -> Recorder {
        Recorder {
            run,
            keeps_coarse,
            window: Window::default(),
            since_ms: now_ms,
            opened_ms: now_ms,
            // Greater than those of earlier runs although their files may not be there: windows
            // are counted every ten seconds.
            number: now_ms / 1000,
            fine: VecDeque::new(),
            coarse: VecDeque::new(),
            last_coarse: 0,
            bytes: 0,
            marked_ms: 0,
        }
    }

    /// Takes over the fine blocks of an earlier run, in the order in which they were written, and
    /// goes on from its position. To be called before samples come.
    pub fn restore(&mut self, position: Position, fine: impl IntoIterator<Item = Bytes>) {
        self.number = self.number.max(position.last_window.saturating_add(1));
        self.last_coarse = position.last_coarse;
        let mut blocks = Vec::new();
        for bytes in fine {
            // A damaged block would be refused by every query.
            let Ok(block) = Block::parse(&bytes) else {
                continue;
            };
            let header = block.header;
            if header.kind != BlockKind::Fine {
                continue;
            }
            let series = block.content().map_or(0, |(_, entries)| entries.count());
            blocks.push((bytes.clone(), series));
            if header.is_last {
                self.keep_fine(&header, std::mem::take(&mut blocks));
            }
        }
    }

    /// Begin of the open window in milliseconds since 1970.
    pub fn opened_ms(&self) -> u64 {
        self.opened_ms
    }

    /// Memory that is in use for blocks, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Memory that one series takes, in bytes, without what the driver keeps.
    pub fn bytes_of(&self, key: &Key) -> usize {
        let in_block = |bytes: &Bytes| {
            let (names, mut entries) = Block::parse(bytes).ok()?.content().ok()?;
            let index = names.iter().position(|name| *name == &*key.name)?;
            let is_key =
                |entry: &crate::block::Entry<'_>| entry.kind == key.kind && entry.name == index;
            let entry = entries.find_map(|entry| entry.ok().filter(is_key))?;
            // The name with its length, the entry's kind, name and length.
            Some(key.name.len() + 8 + entry.chunk.len())
        };
        let fine = self.fine.iter().flat_map(|window| &window.blocks);
        let coarse = self.coarse.iter().map(|block| &block.bytes);
        let blocks: usize = fine.chain(coarse).filter_map(in_block).sum();
        blocks + self.window.bytes(key)
    }

    /// Begin of the oldest fine and the oldest coarse point in memory.
    pub fn oldest_ms(&self) -> (Option<u64>, Option<u64>) {
        let fine = self.fine.front().map(|window| window.from_ms);
        let coarse = self.coarse.front().map(|block| block.header.from_ms);
        (fine, coarse.or(fine))
    }

    /// Takes a sample. One that ended before the open window began counts as ended at its begin.
    pub fn push(&mut self, mut key: Key, mut sample: Sample) {
        if key.name.len() > NAME_MAX {
            let end = (0..=NAME_MAX)
                .rev()
                .find(|&at| key.name.is_char_boundary(at));
            key.name = key.name[..end.unwrap_or(0)].into();
        }
        // The end of an interval is exclusive, so the first point ends behind the begin.
        sample.end_ms = sample.end_ms.max(self.opened_ms + 1);
        self.window.push(key, sample);
    }

    /// Ends the open window at `now_ms`; the next one begins at `next_ms`, which is another time
    /// where the clock was set. Returns the blocks to be written.
    pub fn close(&mut self, now_ms: u64, next_ms: u64) -> Groups {
        let mut groups = Groups::new();
        let (from_ms, to_ms) = (self.opened_ms, now_ms.max(self.opened_ms + 1));
        self.opened_ms = next_ms;
        if self.window.is_empty() {
            // Without a mark, a gap could be one in which no daemon ran.
            if now_ms.abs_diff(self.marked_ms) >= MARK_EVERY_MS {
                groups.extend(self.mark(now_ms));
            }
        } else {
            self.marked_ms = now_ms;
            let number = self.number;
            self.number += 1;
            let (blocks, _) = self.window.close(self.run, number, from_ms, to_ms);
            let blocks: Vec<Bytes> = blocks.into_iter().map(Bytes::from).collect();
            let counted: Vec<_> = (blocks.iter())
                .map(|bytes| (bytes.clone(), entries_of(bytes).map_or(0, |e| e.1.count())))
                .collect();
            let header = Header::read(&blocks[blocks.len() - 1]).expect("just written");
            self.keep_fine(&header, counted);
            groups.push((BlockKind::Fine, blocks));
        }
        groups.extend(self.cover_if_due(now_ms));
        groups.extend(self.evict(now_ms));
        groups
    }

    /// Returns a mark that the daemon runs.
    pub fn mark(&mut self, now_ms: u64) -> Groups {
        self.marked_ms = now_ms;
        let header = Header {
            kind: BlockKind::Mark,
            is_last: true,
            run: self.run,
            windows: (0, 0),
            from_ms: now_ms,
            to_ms: now_ms,
            body: 0,
        };
        let blocks = Builder::new(header).finish();
        vec![(
            BlockKind::Mark,
            blocks.into_iter().map(Bytes::from).collect(),
        )]
    }

    fn keep_fine(&mut self, header: &Header, blocks: Vec<(Bytes, usize)>) {
        let bytes = blocks.iter().map(|(block, _)| block.len()).sum();
        self.bytes += bytes;
        self.fine.push_back(FineWindow {
            run: header.run,
            number: header.windows.0,
            from_ms: header.from_ms,
            to_ms: header.to_ms,
            series: blocks.iter().map(|(_, series)| series).sum(),
            blocks: blocks.into_iter().map(|(block, _)| block).collect(),
            bytes,
        });
    }

    /// Makes a coarse group of the fine windows that no coarse block has, if they are many or old.
    fn cover_if_due(&mut self, now_ms: u64) -> Groups {
        let uncovered = self
            .fine
            .iter()
            .filter(|window| window.number > self.last_coarse);
        let oldest = uncovered.clone().next();
        let span = (COARSE_WINDOWS as u64) * WINDOW_MS;
        let old = oldest.is_some_and(|window| now_ms.abs_diff(window.from_ms) >= span);
        if old || uncovered.count() >= COARSE_WINDOWS {
            self.cover()
        } else {
            Groups::new()
        }
    }

    /// Makes coarse groups of all fine windows that no coarse block has.
    fn cover(&mut self) -> Groups {
        let mut groups = Groups::new();
        loop {
            let last_coarse = self.last_coarse;
            let windows = self
                .fine
                .iter()
                .filter(|window| window.number > last_coarse);
            // Windows of one run alone: the block says that the daemon ran from the first to the
            // last of them.
            let mut windows = windows.peekable();
            let run = windows.peek().map_or(0, |window| window.run);
            let windows = windows.take_while(|window| window.run == run);
            let windows: Vec<&FineWindow> = windows.take(COARSE_WINDOWS).collect();
            let (Some(first), Some(last)) = (windows.first(), windows.last()) else {
                return groups;
            };
            let header = Header {
                kind: BlockKind::Coarse,
                is_last: true,
                run,
                windows: (first.number, last.number),
                from_ms: windows
                    .iter()
                    .map(|window| window.from_ms)
                    .min()
                    .unwrap_or(0),
                to_ms: windows.iter().map(|window| window.to_ms).max().unwrap_or(0),
                body: 0,
            };
            let blocks = coarse_blocks(header, &windows);
            let series = windows
                .iter()
                .map(|window| window.series)
                .max()
                .unwrap_or(0);
            self.last_coarse = last.number;
            let blocks: Vec<Bytes> = blocks.into_iter().map(Bytes::from).collect();
            if self.keeps_coarse {
                for bytes in &blocks {
                    self.bytes += bytes.len();
                    self.coarse.push_back(CoarseBlock {
                        header: Header::read(bytes).expect("just written"),
                        bytes: bytes.clone(),
                        series,
                    });
                }
            }
            groups.push((BlockKind::Coarse, blocks));
        }
    }

    /// Removes what is too old or too much. Returns coarse groups of fine windows that had none.
    fn evict(&mut self, now_ms: u64) -> Groups {
        let mut groups = Groups::new();
        while let Some(oldest) = self.fine.front() {
            let old = now_ms.saturating_sub(oldest.to_ms) > FINE_AGE_MS;
            // Set back, the clock would keep windows for ever.
            if !old && self.fine.len() <= FINE_WINDOWS && self.bytes <= BYTES_MAX {
                break;
            }
            if oldest.number > self.last_coarse {
                groups.extend(self.cover());
            }
            if let Some(oldest) = self.fine.pop_front() {
                self.bytes -= oldest.bytes;
            }
        }
        // The largest window stands for the number of VMs: each has a budget, for a day after it
        // was last busy.
        let fine = self.fine.iter().map(|window| window.series);
        let coarse = self.coarse.iter().map(|block| block.series);
        let series = fine.chain(coarse).max().unwrap_or(0);
        let max = (series * BLOCK_BYTES_PER_VM).min(BYTES_MAX);
        while let Some(oldest) = self.coarse.front() {
            let old = now_ms.saturating_sub(oldest.header.to_ms) > COARSE_AGE_MS;
            if !old && self.bytes <= max {
                break;
            }
            self.bytes -= oldest.bytes.len();
            self.since_ms = oldest.header.to_ms;
            self.coarse.pop_front();
        }
        groups
    }

    /// Returns what memory has for a request, beside what `query` has read of files.
    pub fn query(&self, query: Query) -> Answer {
        self.query_all(query).swap_remove(0)
    }

    /// Answers a query of several series with what is in memory, in their order.
    pub fn query_all(&self, mut query: Query) -> Vec<Answer> {
        let fine = self.fine.iter().flat_map(|window| &window.blocks);
        for bytes in self.coarse.iter().map(|block| &block.bytes).chain(fine) {
            // Checked when it came to memory; a damage inside of it ends that block alone.
            if let Ok(block) = Block::parse(bytes) {
                let _: Result<(), Damage> = query.read(&block);
            }
        }
        query.note(&Header {
            kind: BlockKind::Mark,
            is_last: true,
            run: self.run,
            windows: (0, 0),
            from_ms: self.since_ms.min(self.opened_ms),
            to_ms: query.to_ms().max(self.opened_ms),
            body: 0,
        });
        let keys: Vec<Key> = query.keys().cloned().collect();
        for (series, key) in keys.iter().enumerate() {
            query.add_open(series, &self.window.samples(key));
        }
        query.finish_all()
    }

    /// Returns true if memory has a point of the series.
    pub fn has(&self, key: &Key) -> bool {
        let in_block = |bytes: &Bytes| {
            let names = entries_of(bytes).map(|(names, _)| names);
            names.is_some_and(|names| names.contains(&&*key.name))
        };
        let fine = self.fine.iter().flat_map(|window| &window.blocks);
        let coarse = self.coarse.iter().map(|block| &block.bytes);
        self.window.bytes(key) > 0 || fine.chain(coarse).any(in_block)
    }
}

/// Returns the names and entries of an encoded block.
fn entries_of(bytes: &Bytes) -> Option<(Vec<&str>, Entries<'_>)> {
    Block::parse(bytes).ok()?.content().ok()
}

/// Reader of one window's entries in the order of their keys, through all of its blocks.
struct Cursor<'a> {
    window: &'a FineWindow,
    block: usize,
    names: Vec<&'a str>,
    entries: Option<Entries<'a>>,
    next: Option<(Key, &'a [u8])>,
}

impl<'a> Cursor<'a> {
    fn new(window: &'a FineWindow) -> Cursor<'a> {
        let mut cursor = Cursor {
            window,
            block: 0,
            names: Vec::new(),
            entries: None,
            next: None,
        };
        cursor.advance();
        cursor
    }

    fn advance(&mut self) {
        loop {
            if let Some(Ok(entry)) = self.entries.as_mut().and_then(Iterator::next) {
                let name = self.names[entry.name].into();
                self.next = Some((
                    Key {
                        kind: entry.kind,
                        name,
                    },
                    entry.chunk,
                ));
                return;
            }
            let Some(bytes) = self.window.blocks.get(self.block) else {
                self.next = None;
                return;
            };
            self.block += 1;
            let content = entries_of(bytes);
            (self.names, self.entries) = match content {
                Some((names, entries)) => (names, Some(entries)),
                None => (Vec::new(), None),
            };
        }
    }

    /// Returns the chunk of a series, if it is next, with the VMs that it waited behind.
    fn take(&mut self, key: &Key) -> Option<(Chunk, Behind)> {
        let chunk = match &self.next {
            Some((next, chunk)) if next == key => *chunk,
            _ => return None,
        };
        let chunk = Chunk::decode(chunk, self.window.from_ms, self.names.len()).ok();
        let taken = chunk.map(|chunk| {
            let behind = chunk.details[0].behind.iter();
            let behind = behind.map(|&(name, waited)| (self.names[name].into(), waited));
            let behind = behind.collect();
            (chunk, behind)
        });
        // Behind the names: the cursor may go on to a block with others.
        self.advance();
        taken
    }
}

/// Returns the coarse group of fine windows: a point for each window of each series.
fn coarse_blocks(header: Header, windows: &[&FineWindow]) -> Vec<Vec<u8>> {
    let mut cursors: Vec<Cursor<'_>> = windows.iter().map(|window| Cursor::new(window)).collect();
    let mut builder = Builder::new(header);
    loop {
        let next = cursors.iter().filter_map(|cursor| cursor.next.as_ref());
        let Some(key) = next.map(|(key, _)| key).min().cloned() else {
            return builder.finish();
        };
        builder.split_if_full();
        let mut coarse = Chunk::default();
        for cursor in &mut cursors {
            let (from_ms, to_ms) = (cursor.window.from_ms, cursor.window.to_ms);
            let Some((chunk, behind)) = cursor.take(&key) else {
                continue;
            };
            let (point, Detail { latency, .. }) = whole_window(&chunk, from_ms, to_ms);
            let behind = behind
                .iter()
                .map(|(vm, waited)| (builder.name(vm), *waited));
            let behind = behind.collect();
            coarse.points.push(point);
            coarse.details.push(Detail { latency, behind });
        }
        if !coarse.points.is_empty() {
            builder.add(&key, &coarse.encode(header.from_ms));
        }
    }
}

/// Key of a VM's series.
pub fn vm(name: &str) -> Key {
    Key {
        kind: Kind::Vm,
        name: name.into(),
    }
}

/// Key of a device's series.
pub fn device(name: &str) -> Key {
    Key {
        kind: Kind::Device,
        name: name.into(),
    }
}
