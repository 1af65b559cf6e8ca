//! Checker of device I/Os. An I/O stays within its disk and, if it carries data, within `max_io`.
//! Requests are split at physical blocks only, in order and without gaps. At most `depth` I/Os are
//! in flight, and one flush per disk. Merged requests have the same VM, disk, operation and
//! durability, and none of them has failed in a merged I/O before. In a merged I/O only the first
//! request may have begun in an earlier I/O and only the last may end in a later one.

use super::ledger::{Ledger, Part};
use super::{Verdict, ensure};
use tidegate_core::request::{DeviceIo, Op, Segment};

/// Checks a device I/O that is about to start beside `in_flight` others. `flushes` of those flush
/// the same disk.
///
/// Fails when the I/O must not go to the device.
pub fn check(
    ledger: &Ledger,
    io: &DeviceIo,
    segments: &[Segment],
    parts: &[Part],
    in_flight: u32,
    flushes: u32,
) -> Verdict {
    let config = ledger.config();
    let depth = config.device.depth;
    ensure!(
        Shape,
        // `in_flight` is without this I/O.
        in_flight < depth,
        "{io:?} is more than the {depth} that the device takes"
    );
    ensure!(Shape, !parts.is_empty(), "{io:?} is part of no request");
    if io.op == Op::Flush {
        ensure!(
            Shape,
            flushes == 0,
            "{io:?} is the second flush of its disk"
        );
        ensure!(
            Shape,
            io.len == 0 && segments.is_empty(),
            "{io:?} has bytes"
        );
        return Ok(());
    }
    let carries = match io.op {
        Op::Read | Op::Write => true,
        Op::WriteZeroes => config.device.zeroes_are_writes,
        Op::Discard | Op::Flush => false,
    };
    let most = config.device.max_io;
    ensure!(
        Shape,
        !carries || io.len <= most,
        "{io:?} exceeds {most} bytes"
    );
    let first = &ledger.entries[parts[0].number as usize];
    let disk = &ledger.disks[first.disk as usize];
    // Device addresses are disk offsets shifted by the disk's base.
    let same = (io.disk, io.vm, io.addr - io.offset) == (disk.id, disk.vm, disk.spec.base);
    ensure!(Shape, same, "{io:?} is for a disk at {:?}", disk.spec);
    let end = io.offset + io.len as u64;
    ensure!(
        Shape,
        end <= disk.spec.size,
        "{io:?} crosses the end of its disk"
    );
    let all = parts.len();
    ensure!(Shape, all == 1 || io.op.merges(), "{io:?} was merged");
    let mut offset = io.offset;
    for (n, (part, segment)) in parts.iter().zip(segments).enumerate() {
        check_part(ledger, io, part, segment, offset)?;
        if all > 1 {
            check_merged_part(ledger, io, part, [n == 0, n + 1 == all])?;
        }
        offset += part.len as u64;
    }
    ensure!(
        Shape,
        offset == end,
        "{io:?} is not the sum of its parts {parts:?}"
    );
    Ok(())
}

fn check_part(
    ledger: &Ledger,
    io: &DeviceIo,
    part: &Part,
    segment: &Segment,
    offset: u64,
) -> Verdict {
    let block = ledger.config().device.physical_block as u64;
    let entry = &ledger.entries[part.number as usize];
    let request = &entry.request;
    let disk = ledger.disks[entry.disk as usize].id;
    ensure!(
        Shape,
        (entry.vm, disk, request.op) == (io.vm, io.disk, io.op) && entry.client == segment.client,
        "{io:?} carries a {:?} of {:?} and {:?}",
        request.op,
        entry.vm,
        disk
    );
    ensure!(
        Shape,
        (entry.fua(), request.keep_allocated) == (io.fua, io.keep_allocated),
        "{io:?} carries {request:?}"
    );
    ensure!(
        Shape,
        !entry.gone && entry.error.is_none(),
        "{io:?} serves request {}, which is cancelled or has failed",
        part.number
    );
    let end = part.from as u64 + part.len as u64;
    ensure!(
        Shape,
        // In order and without gaps: each part begins where the one before ended.
        part.len > 0 && part.from == entry.handed && end <= request.len as u64,
        "{io:?} takes {part:?} of {} bytes, {} of which have gone",
        request.len,
        entry.handed
    );
    ensure!(
        Shape,
        request.offset + part.from as u64 == offset,
        "{io:?} has a gap at {offset}: {part:?} of {request:?}"
    );
    let disk_base = io.addr - io.offset;
    // Blocks are the device's: a disk need not begin on one.
    let at = disk_base + request.offset + end;
    ensure!(
        Shape,
        end == request.len as u64 || at.is_multiple_of(block),
        "{io:?} is split within a physical block, at {at}"
    );
    Ok(())
}

/// Checks one part of a merged I/O; `first` and `last` tell its position.
fn check_merged_part(
    ledger: &Ledger,
    io: &DeviceIo,
    part: &Part,
    [first, last]: [bool; 2],
) -> Verdict {
    let entry = &ledger.entries[part.number as usize];
    ensure!(
        Shape,
        !entry.alone && !entry.again,
        "{io:?} merges a request that failed merged: {part:?}"
    );
    let (begins, ends) = (part.from == 0, part.from + part.len == entry.request.len);
    ensure!(
        Shape,
        (first || begins) && (last || ends),
        "{io:?} has the middle of an I/O in the middle of a request of {} bytes: {part:?}",
        entry.request.len
    );
    Ok(())
}
