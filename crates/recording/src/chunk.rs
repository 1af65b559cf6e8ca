//! Chunks of a recording: a marker, a kind, a length and two checksums in front of each payload.
//!
//! | bytes | content |
//! |---|---|
//! | 0-3 | marker |
//! | 4 | kind |
//! | 5-7 | 0 |
//! | 8-11 | length of the payload |
//! | 12-15 | CRC-32C of bytes 0 to 11 |
//! | 16-19 | CRC-32C of the payload |
//!
//! Numbers are little endian. With a checksum of its own the length can be trusted where only the
//! payload is damaged, so that reading takes time in proportion to the file whatever is in it.

use std::io::{self, Read};
use std::ops::Range;

use crc32c::crc32c;

/// First bytes of a recording: not text, and damaged by conversions of line ends.
pub const MAGIC: [u8; 8] = *b"\x89TGREC\r\n";
/// Version of the format.
pub const VERSION: u32 = 1;

const MARKER: [u8; 4] = *b"\xF5tgc";
const HEAD: usize = 20;
/// Largest payload in bytes: 4096 VMs with long objectives need less.
pub(crate) const PAYLOAD_MAX: usize = 16 << 20;
/// Bytes that are read at once.
const READ: usize = 64 << 10;

/// Kind of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Header = 1,
    Block = 2,
    Change = 3,
    Gap = 4,
    End = 5,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::{Block, Change, End, Gap, Header};
        [Header, Block, Change, Gap, End]
            .into_iter()
            .find(|&kind| kind as u8 == byte)
    }
}

/// Appends a chunk whose payload `write` appends.
pub(crate) fn put(kind: Kind, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD]);
    write(out);
    let payload = &out[start + HEAD..];
    let len = payload.len();
    assert!(len <= PAYLOAD_MAX, "a chunk of {len} bytes");
    let checksum = crc32c(payload);
    let head = &mut out[start..start + HEAD];
    head[..4].copy_from_slice(&MARKER);
    head[4] = kind as u8;
    head[8..12].copy_from_slice(&(len as u32).to_le_bytes());
    let of_head = crc32c(&head[..12]);
    head[12..16].copy_from_slice(&of_head.to_le_bytes());
    head[16..20].copy_from_slice(&checksum.to_le_bytes());
}

/// Next part of a recording.
#[derive(PartialEq, Debug)]
pub(crate) enum Next {
    /// Chunk with a right checksum, and the place of its payload.
    Chunk(Kind, Range<usize>),
    /// Bytes that are no chunk, or a chunk with a wrong checksum; they are passed over.
    Damaged,
    /// End of the input; `cut_off` if it ends inside of a chunk.
    Ended { cut_off: bool },
}

/// Reader of chunks.
#[derive(Debug)]
pub(crate) struct Chunks<R> {
    from: R,
    buffer: Vec<u8>,
    /// Place of the next chunk in `buffer`.
    start: usize,
    /// The input has no more bytes.
    is_drained: bool,
}

impl<R: Read> Chunks<R> {
    pub(crate) fn new(from: R) -> Chunks<R> {
        Chunks {
            from,
            buffer: Vec::new(),
            start: 0,
            is_drained: false,
        }
    }

    /// Takes `len` bytes that are not part of a chunk; `None` if there are fewer.
    pub(crate) fn take(&mut self, len: usize) -> io::Result<Option<&[u8]>> {
        if !self.fill(len)? {
            return Ok(None);
        }
        let place = self.start..self.start + len;
        self.start = place.end;
        Ok(Some(&self.buffer[place]))
    }

    /// Returns the payload of the chunk that was read last.
    pub(crate) fn payload(&self, place: Range<usize>) -> &[u8] {
        &self.buffer[place]
    }

    /// Reads the next chunk.
    pub(crate) fn next(&mut self) -> io::Result<Next> {
        if !self.fill(HEAD)? {
            let cut_off = self.start < self.buffer.len();
            self.start = self.buffer.len();
            return Ok(Next::Ended { cut_off });
        }
        let head: &[u8; HEAD] = self.buffer[self.start..]
            .first_chunk()
            .expect("it was filled");
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| head[at + byte]));
        let (len, checksum) = (word(8) as usize, word(16));
        let is_head = head[..4] == MARKER && word(12) == crc32c(&head[..12]) && len <= PAYLOAD_MAX;
        if !is_head {
            self.find_marker()?;
            return Ok(Next::Damaged);
        }
        let kind = Kind::from_byte(head[4]);
        if !self.fill(HEAD + len)? {
            self.start = self.buffer.len();
            return Ok(Next::Ended { cut_off: true });
        }
        let place = self.start + HEAD..self.start + HEAD + len;
        self.start = place.end;
        Ok(match kind {
            Some(kind) if crc32c(&self.buffer[place.clone()]) == checksum => {
                Next::Chunk(kind, place)
            }
            _ => Next::Damaged,
        })
    }

    /// Moves to the next marker behind the present place, or to the end of the input.
    fn find_marker(&mut self) -> io::Result<()> {
        self.start += 1;
        while self.fill(MARKER.len())? {
            let bytes = &self.buffer[self.start..];
            let found = bytes.windows(MARKER.len()).position(|at| at == MARKER);
            match found {
                Some(at) => {
                    self.start += at;
                    return Ok(());
                }
                // The last three bytes may begin a marker.
                None => self.start = self.buffer.len() - (MARKER.len() - 1),
            }
        }
        self.start = self.buffer.len();
        Ok(())
    }

    /// Reads until `len` bytes are there from the present place on. Returns false if the input
    /// ends before. Memory grows with the bytes that are there, not with the length that a chunk
    /// claims.
    fn fill(&mut self, len: usize) -> io::Result<bool> {
        while self.buffer.len() - self.start < len && !self.is_drained {
            if self.start > 0 {
                self.buffer.drain(..self.start);
                self.start = 0;
            }
            let filled = self.buffer.len();
            self.buffer.resize(filled + READ, 0);
            let read = self.from.read(&mut self.buffer[filled..]);
            self.buffer.truncate(filled + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => self.is_drained = true,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.buffer.len() - self.start >= len)
    }
}
