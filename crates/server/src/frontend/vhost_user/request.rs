//! Requests of virtio-blk in a chain of buffers (virtio 1.2, section 5.2.6).
//!
//! A chain is a header of 16 bytes, data and a status byte, in buffers that may be cut anywhere.

use super::virtqueue::{Chain, Fault};
use crate::buffer::Mem;
use crate::frontend::interface::Kind;

/// Unit of sectors in requests and in the configuration space, whatever the block size.
pub(super) const SECTOR: u32 = 512;

/// Statuses of requests.
pub(super) const OK: u8 = 0;
pub(super) const IO_ERROR: u8 = 1;
pub(super) const UNSUPPORTED: u8 = 2;

/// Types of requests.
const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;

/// Bytes of a request's header, and of a segment of a discard.
const HEADER: usize = 16;
/// Bytes of an identifier.
const ID: usize = 20;
/// `VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP`: the range may lose its blocks.
const UNMAP: u32 = 1;

/// Most bytes of a discard, in whole blocks of 4 KiB.
pub(super) const RANGE_MAX: u32 = u32::MAX / 4096 * 4096;

/// Limits of a disk that requests are checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Unit of offsets and lengths in bytes, a multiple of [`SECTOR`].
    pub(super) block: u32,
    /// Most bytes of data of a read or a write.
    pub(super) payload: u32,
}

/// Request as a chain describes it.
#[derive(Debug)]
pub(super) struct Request {
    /// Memory of the status byte.
    pub(super) status: Mem,
    pub(super) task: Task,
}

/// Work that a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Task {
    /// Operation on the disk; for reads and writes, its memory is what is left in the chain.
    Disk { kind: Kind, offset: u64, len: u32 },
    /// The disk's identifier; the memory for it is what is left in the chain.
    Identify,
    /// Nothing: the request is answered with this status.
    Refuse(u8),
}

impl Request {
    /// Reads a request. Leaves its data in the chain.
    ///
    /// # Errors
    /// If the chain has no header or no status byte, so that it cannot even be answered.
    pub(super) fn read(chain: &mut Chain, limits: &Limits) -> Result<Request, Fault> {
        let header = take_front::<HEADER>(&mut chain.readable).ok_or("a request without header")?;
        let status = take_last(&mut chain.writable).ok_or("a request without a status byte")?;
        // One number, so that the fields are taken out of registers. Bits 32 to 63 are reserved.
        let header = u128::from_le_bytes(header);
        let (request_type, sector) = (header as u32, (header >> 64) as u64);
        let task = task(request_type, sector, chain, limits);
        Ok(Request { status, task })
    }
}

fn task(request_type: u32, sector: u64, chain: &mut Chain, limits: &Limits) -> Task {
    match request_type {
        IN | OUT => {
            let (kind, data, other) = match request_type {
                IN => (Kind::Read, &chain.writable, &chain.readable),
                _ => (Kind::Write, &chain.readable, &chain.writable),
            };
            let len: u64 = data.iter().map(|mem| mem.len() as u64).sum();
            let offset = sector.checked_mul(SECTOR.into());
            let is_whole = |n: u64| n.is_multiple_of(limits.block.into());
            match offset {
                Some(offset)
                    if other.is_empty()
                        && (1..=u64::from(limits.payload)).contains(&len)
                        && is_whole(len)
                        && is_whole(offset) =>
                {
                    let len = len as u32;
                    Task::Disk { kind, offset, len }
                }
                _ => Task::Refuse(IO_ERROR),
            }
        }
        FLUSH => Task::Disk {
            kind: Kind::Flush,
            offset: 0,
            len: 0,
        },
        GET_ID => Task::Identify,
        DISCARD | WRITE_ZEROES => {
            // One segment each, as the configuration space says.
            let Some(segment) = take_front::<HEADER>(&mut chain.readable) else {
                return Task::Refuse(IO_ERROR);
            };
            if !chain.readable.is_empty() || !chain.writable.is_empty() {
                return Task::Refuse(IO_ERROR);
            }
            range_task(request_type, u128::from_le_bytes(segment), limits)
        }
        _ => Task::Refuse(UNSUPPORTED),
    }
}

/// Returns the task of a discard or of zeroes, whose segment has the first sector in bits 0 to 63,
/// the number of sectors in bits 64 to 95 and flags in bits 96 to 127.
fn range_task(request_type: u32, segment: u128, limits: &Limits) -> Task {
    let (sector, sectors, flags) = (
        segment as u64,
        (segment >> 64) as u32,
        (segment >> 96) as u32,
    );
    let kind = match (request_type, flags) {
        (DISCARD, 0) => Kind::Discard,
        (WRITE_ZEROES, 0 | UNMAP) => Kind::WriteZeroes {
            keep_allocated: flags & UNMAP == 0,
            only_if_fast: false,
        },
        // A device must refuse flags that it does not know (sections 5.2.6.1 and 5.2.6.2).
        _ => return Task::Refuse(UNSUPPORTED),
    };
    let len = sectors.checked_mul(SECTOR).filter(|&len| len <= RANGE_MAX);
    match (sector.checked_mul(SECTOR.into()), len) {
        (Some(offset), Some(len))
            if len > 0
                && len.is_multiple_of(limits.block)
                && offset.is_multiple_of(limits.block.into()) =>
        {
            Task::Disk { kind, offset, len }
        }
        _ => Task::Refuse(IO_ERROR),
    }
}

/// Writes a disk's identifier, its name, to memory that may be cut anywhere; returns the status and
/// the number of bytes written.
pub(super) fn identify(name: &str, memory: &[Mem]) -> (u8, u32) {
    let len: usize = memory.iter().map(Mem::len).sum();
    if len < ID {
        return (IO_ERROR, 0);
    }
    // A shorter identifier ends with a zero; one of 20 bytes does not.
    let mut id = [0; ID];
    let n = name.len().min(ID);
    id[..n].copy_from_slice(&name.as_bytes()[..n]);
    let mut rest = &id[..];
    for mem in memory {
        let (now, later) = rest.split_at(mem.len().min(rest.len()));
        mem.write(now);
        rest = later;
    }
    (OK, ID as u32)
}

/// Takes `N` bytes from the front of memory, each read once; `None` if there are fewer.
#[inline]
fn take_front<const N: usize>(memory: &mut Vec<Mem>) -> Option<[u8; N]> {
    let first = memory.first_mut()?;
    if first.len() >= N {
        let bytes = first.read_once(0);
        *first = first.from(N);
        if first.is_empty() {
            memory.remove(0);
        }
        return Some(bytes);
    }
    let mut bytes = [0; N];
    let mut n = 0;
    while n < N {
        let first = memory.first_mut()?;
        [bytes[n]] = first.read_once(0);
        n += 1;
        *first = first.from(1);
        if first.is_empty() {
            memory.remove(0);
        }
    }
    Some(bytes)
}

/// Takes the last byte of memory; `None` if there is none.
#[inline]
fn take_last(memory: &mut Vec<Mem>) -> Option<Mem> {
    let last = memory.last_mut()?;
    let len = last.len() - 1;
    let byte = last.from(len);
    if len == 0 {
        memory.pop();
    } else {
        *last = last.slice(0, len);
    }
    Some(byte)
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
