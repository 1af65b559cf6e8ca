//! Device I/Os of a recording.

use std::collections::BTreeMap;

use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_recording::{Change, DiskFacts, Recording, Request};

/// Alignment of disks that are laid out one behind the other.
const DISK_ALIGNMENT: u64 = 1 << 20;
/// Length above which a request may have been split while several VMs use the device.
const WHOLE_BYTES: u32 = 64 << 10;
/// Key of the device's configuration that says whether requests are split for other VMs' sake, and
/// its value for no splitting.
const SPLITTING: (&str, &str) = ("max_io_shared", "off");

/// I/O of the device with the times of its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceIo {
    /// Operation.
    pub op: Op,
    /// Force unit access.
    pub fua: bool,
    /// First byte on the device.
    pub addr: u64,
    /// Length in bytes; 0 for a flush.
    pub len: u32,
    /// Begin of its time with the device.
    pub sent: Nanos,
    /// End of its time with the device.
    pub done: Nanos,
    /// True if the recording tells its time with the device: it was not split.
    pub is_whole: bool,
}

impl DeviceIo {
    /// Returns the recorded time with the device.
    pub fn took(&self) -> Nanos {
        self.done.since(self.sent)
    }
}

/// Returns the device I/Os of a recording in the order in which they were sent. Requests that were
/// merged are one I/O; those that failed or never went to the device are left out.
pub fn device_ios(recording: &Recording) -> Vec<DeviceIo> {
    let places = places(recording);
    let device = &recording.header.device;
    let (key, off) = SPLITTING;
    let is_shared = places.len() > 1 && device.keys.get(key).is_none_or(|value| value != off);
    let longest = if is_shared {
        WHOLE_BYTES.min(device.max_io_bytes)
    } else {
        device.max_io_bytes
    };
    let io = |request: &Request| {
        let place = *places.get(&request.disk)?;
        let goes = request.outcome.is_ok() && request.done > request.sent;
        goes.then(|| DeviceIo {
            op: request.op,
            fua: request.fua,
            addr: match request.op {
                Op::Flush => 0,
                _ => place.saturating_add(request.offset),
            },
            len: request.len,
            sent: request.sent,
            done: request.done,
            is_whole: request.len <= longest,
        })
    };
    let mut all: Vec<DeviceIo> = recording.requests.iter().filter_map(io).collect();
    all.sort_by_key(|io| (io.sent, io.done, io.addr));
    merge(&mut all, device.max_io_bytes);
    all
}

/// Makes one I/O of requests that were merged: neighbours with the same times.
fn merge(all: &mut Vec<DeviceIo>, longest: u32) {
    all.dedup_by(|next, last| {
        let same = (next.op, next.fua, next.sent, next.done);
        let adjacent = last.addr.saturating_add(last.len.into()) == next.addr;
        let sum = last.len.saturating_add(next.len);
        let is_one = same == (last.op, last.fua, last.sent, last.done)
            && matches!(next.op, Op::Read | Op::Write)
            && adjacent
            && sum <= longest;
        if is_one {
            last.len = sum;
        }
        is_one
    });
}

/// Returns the place of every disk on the device: as recorded, or one behind the other if these
/// overlap, as with files.
fn places(recording: &Recording) -> BTreeMap<u32, u64> {
    let mut disks: Vec<&DiskFacts> = Vec::new();
    for vm in &recording.header.vms {
        disks.extend(&vm.disks);
    }
    for (_, change) in &recording.changes {
        match change {
            Change::VmAdded { vm } => disks.extend(&vm.disks),
            Change::DiskAdded { disk, .. } => disks.push(disk),
            _ => {}
        }
    }
    let mut ranges: Vec<(u64, u64)> = (disks.iter())
        .map(|disk| (disk.at, disk.at.saturating_add(disk.size_bytes)))
        .collect();
    ranges.sort_unstable();
    if ranges.windows(2).all(|two| two[0].1 <= two[1].0) {
        return disks.iter().map(|disk| (disk.number, disk.at)).collect();
    }
    let mut end = 0u64;
    let place = |disk: &&DiskFacts| {
        let at = end;
        let after = end.saturating_add(disk.size_bytes);
        end = after
            .checked_next_multiple_of(DISK_ALIGNMENT)
            .unwrap_or(after);
        (disk.number, at)
    };
    disks.iter().map(place).collect()
}
