//! Encoder: requests and changes in, bytes of a recording out.

use serde::Serialize;
use tidegate_base::time::Nanos;

use crate::block::{BLOCK_REQUESTS, BlockEncoder, BlockHead};
use crate::chunk::{self, Kind, MAGIC, VERSION};
use crate::facts::{Change, Header};
use crate::reader::{Ending, Gap, GapChunk, TimedChange};
use crate::request::Request;

/// Bound on the numbers of disks: an encoder has a few words for each.
pub const DISKS_MAX: u32 = 1 << 20;

/// Encoder of one file. Every method appends to the buffer that it is given, which may be emptied
/// after any call; what was written out is a readable recording at any time.
#[derive(Debug)]
pub struct Encoder {
    blocks: BlockEncoder,
    /// Requests of the block that is being filled.
    pending: Vec<Request>,
    /// Number of requests before the pending ones, dropped ones included.
    before: u64,
    /// Requests dropped since the last block.
    dropped: u64,
}

impl Encoder {
    /// Begins a file.
    pub fn new(header: &Header, out: &mut Vec<u8>) -> Encoder {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        put_json(Kind::Header, header, out);
        Encoder {
            blocks: BlockEncoder::default(),
            pending: Vec::with_capacity(BLOCK_REQUESTS),
            before: header.first_request,
            dropped: 0,
        }
    }

    /// Adds a request. They come in the order of their ends; one that ended earlier than the one
    /// before costs a few more bits. Disks have dense numbers below [`DISKS_MAX`].
    ///
    /// # Panics
    /// If the number of the disk is [`DISKS_MAX`] or more.
    pub fn push(&mut self, request: &Request, out: &mut Vec<u8>) {
        assert!(request.disk < DISKS_MAX, "disk number {}", request.disk);
        self.pending.push(*request);
        if self.pending.len() == BLOCK_REQUESTS {
            self.finish_block(out);
        }
    }

    /// Counts requests that ended here and are not in the recording.
    pub fn drop_requests(&mut self, requests: u64, out: &mut Vec<u8>) {
        if requests > 0 {
            // The gap is before the next block.
            self.finish_block(out);
            self.dropped += requests;
        }
    }

    /// Adds a change.
    pub fn change(&mut self, at: Nanos, change: &Change, out: &mut Vec<u8>) {
        self.finish_block(out);
        let change = change.clone();
        put_json(
            Kind::Change,
            &TimedChange {
                at_ns: at.0,
                change,
            },
            out,
        );
    }

    /// Adds a gap of the recording that this one is made from.
    pub fn gap(&mut self, gap: &Gap, out: &mut Vec<u8>) {
        self.finish_block(out);
        put_json(Kind::Gap, &GapChunk::from(*gap), out);
    }

    /// Writes out the requests so far as a block.
    pub fn finish_block(&mut self, out: &mut Vec<u8>) {
        if self.pending.is_empty() {
            return;
        }
        let head = BlockHead {
            first: self.before + self.dropped,
            dropped: std::mem::take(&mut self.dropped),
        };
        chunk::put(Kind::Block, out, |out| {
            self.blocks.put(head, &self.pending, out);
        });
        self.before = head.first + self.pending.len() as u64;
        self.pending.clear();
    }

    /// Returns the number of requests that are not written out yet.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns the number of requests so far, dropped ones and those of files before included.
    pub fn requests(&self) -> u64 {
        self.before + self.dropped + self.pending.len() as u64
    }

    /// Ends the file.
    pub fn end(mut self, at: Nanos, out: &mut Vec<u8>) {
        self.finish_block(out);
        let ending = Ending {
            at_ns: at.0,
            requests: self.before + self.dropped,
            dropped: self.dropped,
        };
        put_json(Kind::End, &ending, out);
    }
}

fn put_json(kind: Kind, value: &impl Serialize, out: &mut Vec<u8>) {
    chunk::put(kind, out, |out| {
        serde_json::to_writer(out, value).expect("plain data into memory");
    });
}
