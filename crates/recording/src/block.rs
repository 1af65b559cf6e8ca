//! Blocks of requests, column by column.

use tidegate_base::request::Op;
use tidegate_base::time::Nanos;
use tidegate_packing::{Bytes, put_number};

use crate::columns::{get_column, put_column};
use crate::request::Request;

/// Most requests of a block.
pub const BLOCK_REQUESTS: usize = 4096;

/// Numbers with which a block begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockHead {
    /// Number of the block's first request in the recording, from 0, with dropped ones counted.
    pub(crate) first: u64,
    /// Requests that were dropped between the block before and this one.
    pub(crate) dropped: u64,
}

/// Encoder's state of a disk.
#[derive(Clone, Copy, Default, Debug)]
struct DiskState {
    /// Number of the block that the other fields belong to, from 1.
    block: u64,
    /// Index in the block's list of disks.
    index: u32,
    /// Address behind the last request, shifted as the block's addresses are.
    end: u64,
}

/// Memory of an encoder that is used again for every block.
#[derive(Debug, Default)]
pub(crate) struct BlockEncoder {
    /// States of disks by their numbers, which are dense.
    states: Vec<DiskState>,
    /// Number of blocks begun.
    blocks: u64,
    /// Disks of the block in the order of their first requests.
    disks: Vec<u32>,
    column: Vec<i64>,
}

impl BlockEncoder {
    /// Appends the payload of a block of at least one request.
    pub(crate) fn put(&mut self, head: BlockHead, requests: &[Request], out: &mut Vec<u8>) {
        assert!((1..=BLOCK_REQUESTS).contains(&requests.len()));
        self.blocks += 1;
        self.disks.clear();
        let mut bits = 0;
        for request in requests {
            bits |= request.offset | u64::from(request.len);
            self.number(request.disk);
        }
        // Addresses and lengths are multiples of some power of two, at least of a sector.
        let shift = if bits == 0 { 0 } else { bits.trailing_zeros() };
        put_number(head.first, out);
        put_number(head.dropped, out);
        put_number(requests[0].done.0, out);
        put_number(requests.len() as u64, out);
        out.push(shift as u8);
        put_number(self.disks.len() as u64, out);
        for &disk in &self.disks {
            put_number(disk.into(), out);
        }
        let mut before = requests[0].done.0;
        self.column(requests, out, |request| {
            let since = request.done.0.wrapping_sub(before);
            before = request.done.0;
            since as i64
        });
        let between = |from: Nanos, to: Nanos| to.since(from).0 as i64;
        self.column(requests, out, |it| between(it.sent, it.done));
        self.column(requests, out, |it| between(it.admitted, it.sent));
        self.column(requests, out, |it| between(it.arrived, it.admitted));
        let states = std::mem::take(&mut self.states);
        self.column(requests, out, |it| states[it.disk as usize].index.into());
        self.states = states;
        self.column(requests, out, |it| it.kind().into());
        let mut states = std::mem::take(&mut self.states);
        self.column(requests, out, |it| {
            let state = &mut states[it.disk as usize];
            distance(&mut state.end, it, shift)
        });
        self.states = states;
        self.column(requests, out, |it| (it.len >> shift.min(31)).into());
    }

    /// Appends one column.
    fn column(
        &mut self,
        requests: &[Request],
        out: &mut Vec<u8>,
        value: impl FnMut(&Request) -> i64,
    ) {
        self.column.clear();
        self.column.extend(requests.iter().map(value));
        put_column(&self.column, out);
    }

    /// Numbers a disk in the block.
    fn number(&mut self, disk: u32) {
        let at = disk as usize;
        if at >= self.states.len() {
            self.states.resize(at + 1, DiskState::default());
        }
        if self.states[at].block != self.blocks {
            self.states[at] = DiskState {
                block: self.blocks,
                index: self.disks.len() as u32,
                end: 0,
            };
            self.disks.push(disk);
        }
    }
}

/// Returns the distance from the end of the request before on the disk, and sets the new end.
/// Flushes have no address.
fn distance(end: &mut u64, request: &Request, shift: u32) -> i64 {
    if request.op == Op::Flush {
        return 0;
    }
    let offset = request.offset >> shift;
    let distance = offset.wrapping_sub(*end) as i64;
    *end = offset.wrapping_add(u64::from(request.len) >> shift);
    distance
}

/// Decoder's columns of a block, whose memory is used again.
#[derive(Debug, Default)]
pub(crate) struct BlockDecoder {
    columns: [Vec<i64>; 8],
    disks: Vec<(u32, u64)>,
}

impl BlockDecoder {
    /// Decodes the payload of a block into `requests`. Returns `None`, with `requests` empty, if it
    /// cannot be right.
    pub(crate) fn decode(
        &mut self,
        payload: &[u8],
        requests: &mut Vec<Request>,
    ) -> Option<BlockHead> {
        requests.clear();
        let head = self.decode_all(payload, requests);
        if head.is_none() {
            requests.clear();
        }
        head
    }

    fn decode_all(&mut self, payload: &[u8], requests: &mut Vec<Request>) -> Option<BlockHead> {
        let mut bytes = Bytes::new(payload);
        let (first, dropped) = (bytes.number()?, bytes.number()?);
        let mut done = bytes.number()?;
        let count = usize::try_from(bytes.number()?).ok()?;
        let shift = u32::from(bytes.byte()?);
        let disks = bytes.number()?;
        if !(1..=BLOCK_REQUESTS).contains(&count)
            || shift >= u64::BITS
            || disks > count as u64
            || first < dropped
        {
            return None;
        }
        self.disks.clear();
        for _ in 0..disks {
            self.disks.push((u32::try_from(bytes.number()?).ok()?, 0));
        }
        for column in &mut self.columns {
            get_column(&mut bytes, count, column)?;
        }
        if !bytes.is_empty() {
            return None;
        }
        for at in 0..count {
            let request = self.request(at, &mut done, shift)?;
            requests.push(request);
        }
        Some(BlockHead { first, dropped })
    }

    /// Puts a request together. `done` is the end of the one before.
    fn request(&mut self, at: usize, done: &mut u64, shift: u32) -> Option<Request> {
        let [since, device, queued, held, disk, kind, distance, len] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|column: usize| self.columns[column][at]);
        let back = |from: u64, by: i64| from.checked_sub(u64::try_from(by).ok()?);
        *done = done.checked_add_signed(since)?;
        let sent = back(*done, device)?;
        let admitted = back(sent, queued)?;
        let arrived = back(admitted, held)?;
        let (disk, end) = self.disks.get_mut(usize::try_from(disk).ok()?)?;
        let blank = Request {
            disk: *disk,
            op: Op::Flush,
            fua: false,
            keep_allocated: false,
            outcome: Ok(()),
            offset: 0,
            len: unshift(u64::try_from(len).ok()?, shift)?.try_into().ok()?,
            arrived: Nanos(arrived),
            admitted: Nanos(admitted),
            sent: Nanos(sent),
            done: Nanos(*done),
        };
        let mut request = blank.with_kind(u8::try_from(kind).ok()?)?;
        if request.op != Op::Flush {
            let offset = end.wrapping_add(distance as u64);
            request.offset = unshift(offset, shift)?;
            *end = offset.wrapping_add(u64::from(request.len) >> shift);
        }
        Some(request)
    }
}

/// Shifts to the left unless bits would be lost.
fn unshift(value: u64, shift: u32) -> Option<u64> {
    (value.leading_zeros() >= shift || value == 0).then_some(value << shift)
}
