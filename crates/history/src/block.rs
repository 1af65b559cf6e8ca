//! Blocks: the points of all VMs and devices of some windows, self-contained and checked.
//!
//! ```text
//!   0  "TGHB"            12  run, u64               44  end, u64, ms since 1970
//!   4  version, 1        20  first window, u64      52  CRC32C of all before and behind it
//!   5  kind              28  last window, u64       56  body: names, entries
//!   6  1: last of group  36  begin, u64, ms         names: count, (length, bytes)...
//!   7  0                     since 1970             entries: count, (kind, name, length, chunk)...
//!   8  length of body, u32
//! ```
//!
//! All numbers are little-endian; those of the body are of variable length. Entries are in the
//! order of their keys. A window with many VMs is a group of several blocks, of which only the last
//! is marked; a group that lacks its last block was not written whole. A *run* is one life of the
//! recorder, by a number that no other has; windows are numbered across runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_packing::put_number;

use crate::reader::{Damage, Reader};
use crate::sample::{Key, Kind};

/// Version of the format. A reader refuses blocks of others.
pub const VERSION: u8 = 1;
/// Length of a block before its body.
pub const HEADER_BYTES: usize = 56;
/// Longest body.
pub const BODY_MAX: usize = 8 << 20;
/// Length of a body from which on no more entries are added.
const BODY_FULL: usize = 1 << 20;
/// First bytes of a block.
pub const MAGIC: [u8; 4] = *b"TGHB";
const CRC_AT: usize = 52;

/// Content of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockKind {
    /// Points of 1 s of one window.
    Fine,
    /// Points of one window each.
    Coarse,
    /// Nothing: the daemon ran, and all VMs were idle.
    Mark,
}

/// Description of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Content.
    pub kind: BlockKind,
    /// True for the last block of its group.
    pub is_last: bool,
    /// Run of the recorder.
    pub run: u64,
    /// Numbers of the first and the last window.
    pub windows: (u64, u64),
    /// Begin in milliseconds since 1970, by the wall clock.
    pub from_ms: u64,
    /// End, likewise.
    pub to_ms: u64,
    /// Length of the body in bytes.
    pub body: usize,
}

/// Returns the checksum of a block: of all before it, and of the body.
fn checksum(head: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(head), body)
}

fn number(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes[at..].first_chunk().expect("within the header");
    u64::from_le_bytes(*bytes)
}

impl Header {
    /// Reads a header, whose body need not be there; [`Block::parse`] checks both.
    ///
    /// # Errors
    /// If the bytes do not begin with a header of this version.
    pub fn read(bytes: &[u8]) -> Result<Header, Damage> {
        let bytes = bytes
            .get(..HEADER_BYTES)
            .ok_or(Damage("a block ends early"))?;
        if bytes[..4] != MAGIC {
            return Err(Damage("no block begins here"));
        }
        if bytes[4] != VERSION {
            return Err(Damage("a block has another version"));
        }
        let kinds = [BlockKind::Fine, BlockKind::Coarse, BlockKind::Mark];
        let kind = kinds.into_iter().find(|kind| *kind as u8 == bytes[5]);
        let length = bytes[8..].first_chunk().expect("within the header");
        let body = u32::from_le_bytes(*length) as usize;
        if body > BODY_MAX {
            return Err(Damage("a block is too long"));
        }
        Ok(Header {
            kind: kind.ok_or(Damage("a block has an unknown kind"))?,
            is_last: bytes[6] & 1 == 1,
            run: number(bytes, 12),
            windows: (number(bytes, 20), number(bytes, 28)),
            from_ms: number(bytes, 36),
            to_ms: number(bytes, 44),
            body,
        })
    }

    /// Length of the whole block in bytes.
    pub fn total_bytes(&self) -> usize {
        HEADER_BYTES + self.body
    }

    fn write(&self, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
        out.extend(MAGIC);
        out.extend([VERSION, self.kind as u8, u8::from(self.is_last), 0]);
        out.extend((body.len() as u32).to_le_bytes());
        let (first, last) = self.windows;
        for number in [self.run, first, last, self.from_ms, self.to_ms] {
            out.extend(number.to_le_bytes());
        }
        out.extend(checksum(&out, body).to_le_bytes());
        out.extend(body);
        out
    }
}

/// Block whose checksum is right.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    /// Description.
    pub header: Header,
    body: &'a [u8],
}

impl<'a> Block<'a> {
    /// Reads the block at the begin of `bytes`, which may go on behind it.
    ///
    /// # Errors
    /// If no whole block of this version is there, or its checksum is wrong.
    pub fn parse(bytes: &'a [u8]) -> Result<Block<'a>, Damage> {
        let header = Header::read(bytes)?;
        let bytes = bytes
            .get(..header.total_bytes())
            .ok_or(Damage("a block ends early"))?;
        let (head, body) = bytes.split_at(HEADER_BYTES);
        let (head, crc) = head.split_at(CRC_AT);
        if checksum(head, body).to_le_bytes() != crc {
            return Err(Damage("the checksum of a block is wrong"));
        }
        Ok(Block { header, body })
    }

    /// Returns the names and the entries of the block.
    ///
    /// # Errors
    /// If the names are damaged.
    pub fn content(&self) -> Result<(Vec<&'a str>, Entries<'a>), Damage> {
        let mut reader = Reader::new(self.body);
        if self.body.is_empty() {
            return Ok((
                Vec::new(),
                Entries {
                    reader,
                    left: 0,
                    names: 0,
                },
            ));
        }
        // A name takes a byte at least.
        let count = reader.at_most(self.body.len(), "a block has too many names")?;
        let names = (0..count).map(|_| {
            core::str::from_utf8(reader.counted_bytes()?).map_err(|_| Damage("a name is no text"))
        });
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let left = reader.at_most(self.body.len(), "a block has too many entries")?;
        let names_count = names.len();
        Ok((
            names,
            Entries {
                reader,
                left,
                names: names_count,
            },
        ))
    }
}

/// Entry of a block: the chunk of a series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// Kind of the series.
    pub kind: Kind,
    /// Index of its name.
    pub name: usize,
    /// Encoded chunk.
    pub chunk: &'a [u8],
}

/// Entries of a block. Ends after the first damage.
#[derive(Clone)]
pub struct Entries<'a> {
    reader: Reader<'a>,
    left: usize,
    names: usize,
}

impl<'a> Entries<'a> {
    fn entry(&mut self) -> Result<Entry<'a>, Damage> {
        let kind = Kind::of_id(self.reader.byte()?).ok_or(Damage("a series has no kind"))?;
        let name = self.reader.at_most(self.names, "a name is not there")?;
        if name == self.names {
            return Err(Damage("a name is not there"));
        }
        let chunk = self.reader.counted_bytes()?;
        Ok(Entry { kind, name, chunk })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Damage>;

    fn next(&mut self) -> Option<Result<Entry<'a>, Damage>> {
        self.left = self.left.checked_sub(1)?;
        let entry = self.entry();
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }
}

/// Builder of the blocks of a group.
pub(crate) struct Builder {
    header: Header,
    /// Names of the present block, in the order in which they came, and their indices.
    names: Vec<Arc<str>>,
    indices: BTreeMap<Arc<str>, usize>,
    entries: Vec<u8>,
    count: u64,
    done: Vec<Vec<u8>>,
}

impl Builder {
    /// Begins a group; `header` describes it but for the lengths.
    pub(crate) fn new(header: Header) -> Builder {
        Builder {
            header,
            names: Vec::new(),
            indices: BTreeMap::new(),
            entries: Vec::new(),
            count: 0,
            done: Vec::new(),
        }
    }

    /// Returns the index of a name in the present block.
    pub(crate) fn name(&mut self, name: &Arc<str>) -> usize {
        let next = self.names.len();
        let index = *self.indices.entry(name.clone()).or_insert(next);
        if index == next {
            self.names.push(name.clone());
        }
        index
    }

    /// Appends the chunk of a series, whose names are those of the present block.
    pub(crate) fn add(&mut self, key: &Key, chunk: &[u8]) {
        let name = self.name(&key.name);
        self.entries.push(key.kind.id());
        put_number(name as u64, &mut self.entries);
        put_number(chunk.len() as u64, &mut self.entries);
        self.entries.extend(chunk);
        self.count += 1;
    }

    /// Begins another block if the present one is full. Names have other indices then.
    pub(crate) fn split_if_full(&mut self) {
        if self.entries.len() >= BODY_FULL {
            self.end_block(false);
        }
    }

    fn end_block(&mut self, is_last: bool) {
        let mut body = Vec::new();
        if self.count > 0 {
            put_number(self.names.len() as u64, &mut body);
            for name in &self.names {
                put_number(name.len() as u64, &mut body);
                body.extend(name.as_bytes());
            }
            put_number(self.count, &mut body);
            body.append(&mut self.entries);
        }
        assert!(body.len() <= BODY_MAX, "a block of {} bytes", body.len());
        let header = Header {
            is_last,
            ..self.header
        };
        self.done.push(header.write(&body));
        (self.names, self.entries, self.count) = Default::default();
        self.indices.clear();
    }

    /// Returns the blocks of the group.
    pub(crate) fn finish(mut self) -> Vec<Vec<u8>> {
        self.end_block(true);
        self.done
    }
}

/// Replaces the checksum of a block by that of its bytes.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = checksum(&bytes[..CRC_AT], &bytes[HEADER_BYTES..]);
    bytes[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    bytes
}
