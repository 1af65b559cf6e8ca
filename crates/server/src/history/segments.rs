//! Segments: files of blocks, the oldest of which is removed first.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tidegate_history::block::{Block, HEADER_BYTES, Header, MAGIC};
use tidegate_history::query::Query;
use tidegate_history::recorder::Bytes;

/// Segments that share the bound of a set: a sixteenth of it is removed at a time.
const SEGMENTS_PER_SET: u64 = 16;
/// Ending of the files' names.
const EXTENSION: &str = "tgh";

/// File of blocks.
#[derive(Clone, Debug)]
struct Segment {
    number: u64,
    len: u64,
    /// Time of its oldest block; `None`: it has none.
    from_ms: Option<u64>,
    /// Time of its newest block.
    to_ms: u64,
}

/// Segments of one resolution in a directory.
#[derive(Debug)]
pub(super) struct Segments {
    directory: PathBuf,
    /// Begin of the files' names.
    prefix: &'static str,
    /// Bound of the sizes together, in bytes.
    bytes_max: u64,
    /// Age from which on segments are removed, in milliseconds.
    age_max_ms: u64,
    segments: VecDeque<Segment>,
    /// Segment that grows; `None` before the first block, and after an error.
    open: Option<File>,
}

/// Extents of a segment that a reading has found, beside the blocks that were taken.
#[derive(Default)]
struct Found {
    /// Length of the file in bytes.
    len: u64,
    /// End of the last whole group.
    whole: u64,
    /// Bytes that no block of this version begins with, or that belong to a damaged block.
    unreadable: u64,
    /// True if all that is behind the last whole group is the begin of one that was not written
    /// whole.
    is_torn: bool,
}

/// Reads the groups of a segment in order; goes on behind a damage, and behind blocks of other
/// versions. `wants` chooses blocks by their headers, `take` gets each header with the block if it
/// was wanted, a whole group at a time.
fn read_groups<S>(
    file: &mut File,
    state: &mut S,
    wants: impl Fn(&S, &Header) -> bool,
    mut take: impl FnMut(&mut S, &Header, Option<Vec<u8>>),
) -> io::Result<Found> {
    let mut found = Found {
        len: file.metadata()?.len(),
        ..Found::default()
    };
    let (mut at, mut group, mut is_in_step) = (0, Vec::new(), true);
    while at + HEADER_BYTES as u64 <= found.len {
        // What looks like a header behind a damage may be a part of something else.
        let wants = |header: &Header| !is_in_step || wants(state, header);
        let Some((header, block)) = read_block(file, at, found.len, wants)? else {
            let next = next_magic(file, at + 1, found.len)?;
            let begins_here = read_header(file, at)?.is_some();
            if next == found.len && begins_here && is_in_step {
                break;
            }
            found.unreadable += next - at;
            (at, is_in_step) = (next, false);
            group.clear();
            continue;
        };
        at += header.total_bytes() as u64;
        group.push((header, block));
        if header.is_last {
            (found.whole, is_in_step) = (at, true);
            let group = group.drain(..);
            group.for_each(|(header, block)| take(state, &header, block));
        }
    }
    found.is_torn = is_in_step && found.whole < found.len;
    Ok(found)
}

/// Returns the header at a place of a file, if there is one of this version.
fn read_header(file: &mut File, at: u64) -> io::Result<Option<Header>> {
    let mut bytes = [0; HEADER_BYTES];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    Ok(Header::read(&bytes).ok())
}

/// Returns the block at a place of a file, without its bytes if it is not wanted; `None` if it is
/// damaged or not whole.
fn read_block(
    file: &mut File,
    at: u64,
    len: u64,
    wants: impl Fn(&Header) -> bool,
) -> io::Result<Option<(Header, Option<Vec<u8>>)>> {
    let Some(header) = read_header(file, at)? else {
        return Ok(None);
    };
    if at + header.total_bytes() as u64 > len {
        return Ok(None);
    }
    if !wants(&header) {
        return Ok(Some((header, None)));
    }
    let mut bytes = vec![0; header.total_bytes()];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    let is_whole = Block::parse(&bytes).is_ok();
    Ok(is_whole.then_some((header, Some(bytes))))
}

/// Returns the place from `at` on at which a block may begin, or the end of the file.
fn next_magic(file: &mut File, mut at: u64, len: u64) -> io::Result<u64> {
    const PIECE_BYTES: usize = 64 << 10;
    let mut piece = vec![0; PIECE_BYTES];
    while at + HEADER_BYTES as u64 <= len {
        let piece = &mut piece[..PIECE_BYTES.min((len - at) as usize)];
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(piece)?;
        if let Some(within) = piece.windows(MAGIC.len()).position(|bytes| bytes == MAGIC) {
            return Ok(at + within as u64);
        }
        // The last bytes may be the begin of one.
        at += (piece.len() - (MAGIC.len() - 1)) as u64;
    }
    Ok(len)
}

impl Segments {
    pub(super) fn new(
        directory: &Path,
        prefix: &'static str,
        bytes_max: u64,
        age_max_ms: u64,
    ) -> Segments {
        Segments {
            directory: directory.to_owned(),
            prefix,
            bytes_max,
            age_max_ms,
            segments: VecDeque::new(),
            open: None,
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory
            .join(format!("{}-{number:010}.{EXTENSION}", self.prefix))
    }

    /// Returns the numbers of the segments in the directory, the oldest first.
    fn numbers(&self) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let number: Option<u64> = name.to_str().and_then(|name| {
                let name = name.strip_prefix(self.prefix)?.strip_prefix('-')?;
                name.strip_suffix(EXTENSION)?
                    .strip_suffix('.')?
                    .parse()
                    .ok()
            });
            numbers.extend(number);
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Looks at the segments that there are, and cuts off groups that were not written whole at
    /// their ends. What is damaged or of another version stays. Calls `take` with the header of
    /// each block, and with the block itself if `wants` wants it.
    pub(super) fn load(
        &mut self,
        wants: impl Fn(&Header) -> bool,
        mut take: impl FnMut(&Header, Option<Vec<u8>>),
    ) -> io::Result<()> {
        for number in self.numbers()? {
            let path = self.path(number);
            let mut file = OpenOptions::new().read(true).write(true).open(&path)?;
            let mut segment = Segment {
                number,
                len: 0,
                from_ms: None,
                to_ms: 0,
            };
            let note = |segment: &mut Segment, header: &Header, block| {
                segment.from_ms = segment.from_ms.or(Some(header.from_ms));
                segment.to_ms = header.to_ms;
                take(header, block);
            };
            let found = read_groups(&mut file, &mut segment, |_, header| wants(header), note)?;
            segment.len = found.len;
            if found.unreadable > 0 {
                let bytes = found.unreadable;
                tracing::warn!(
                    ?path,
                    "history: {bytes} bytes are damaged or of another version, and passed over"
                );
            }
            if found.is_torn {
                let cut = found.len - found.whole;
                tracing::info!(
                    ?path,
                    "history: the last {cut} bytes were not written whole"
                );
                file.set_len(found.whole)?;
                segment.len = found.whole;
            }
            self.segments.push_back(segment);
        }
        Ok(())
    }

    /// Size of all segments in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len).sum()
    }

    /// Time of the oldest block in milliseconds since 1970.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.segments.iter().find_map(|segment| segment.from_ms)
    }

    /// Appends a group of blocks, all of it or nothing.
    ///
    /// # Errors
    /// If the disk is full or fails. The next group begins another segment.
    pub(super) fn append(&mut self, blocks: &[Bytes]) -> io::Result<()> {
        let group = blocks.concat();
        let result = self.try_append(blocks, &group);
        if result.is_err() {
            self.close_after_error();
        }
        result
    }

    fn try_append(&mut self, blocks: &[Bytes], group: &[u8]) -> io::Result<()> {
        let full = self.bytes_max / SEGMENTS_PER_SET;
        let last = self.segments.back();
        if last.is_some_and(|last| last.len > 0 && last.len + group.len() as u64 > full) {
            self.open = None;
        }
        // Space is made first, so that the bound holds at all times.
        self.make_room(group.len() as u64)?;
        let file = match &mut self.open {
            Some(file) => file,
            None => {
                let number = self.segments.back().map_or(1, |last| last.number + 1);
                let mut options = OpenOptions::new();
                let options = options.write(true).create_new(true).mode(0o600);
                let file = options.open(self.path(number))?;
                self.segments.push_back(Segment {
                    number,
                    len: 0,
                    from_ms: None,
                    to_ms: 0,
                });
                self.open.insert(file)
            }
        };
        file.write_all(group)?;
        let segment = self.segments.back_mut().expect("the open one");
        segment.len += group.len() as u64;
        for header in blocks.iter().filter_map(|block| Header::read(block).ok()) {
            segment.from_ms = segment.from_ms.or(Some(header.from_ms));
            segment.to_ms = header.to_ms;
        }
        Ok(())
    }

    /// Cuts off a group that was written in part, or removes its segment if that has nothing else.
    /// Where that fails, readers pass over the group.
    fn close_after_error(&mut self) {
        let (Some(file), Some(segment)) = (self.open.take(), self.segments.back()) else {
            return;
        };
        let _ = file.set_len(segment.len);
        if segment.len == 0 && fs::remove_file(self.path(segment.number)).is_ok() {
            self.segments.pop_back();
        }
    }

    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let newest = self.segments.back().map_or(0, |segment| segment.to_ms);
        while let Some(oldest) = self.segments.front() {
            let is_open = self.segments.len() == 1 && self.open.is_some();
            let old = newest.saturating_sub(oldest.to_ms) > self.age_max_ms;
            if is_open || !old && self.bytes() + bytes <= self.bytes_max {
                break;
            }
            match fs::remove_file(self.path(oldest.number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.segments.pop_front(),
            };
        }
        Ok(())
    }
}

/// Reads coarse blocks and marks of a directory into a query, while they may be written to.
pub(super) fn read_into(
    directory: &Path,
    prefix: &'static str,
    query: &mut Query,
) -> io::Result<()> {
    let segments = Segments::new(directory, prefix, 0, 0);
    for number in segments.numbers()? {
        let mut file = match File::open(segments.path(number)) {
            // Removed since, as the oldest.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        let take = |query: &mut Query, header: &Header, block: Option<Vec<u8>>| {
            match block.as_deref().map(Block::parse) {
                // Damage behind a right checksum ends that block alone.
                Some(Ok(block)) => drop(query.read(&block)),
                _ => query.note(header),
            }
        };
        read_groups(&mut file, query, |query, header| query.wants(header), take)?;
    }
    Ok(())
}
