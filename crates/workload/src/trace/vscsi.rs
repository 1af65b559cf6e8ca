//! Parser of VMware's vSCSI traces, version 1. A record is: u32 serial number, u32 bytes, u32
//! scatter-gather entries, u16 SCSI command, u16 version, u64 logical block, u64 microseconds, all
//! little endian.

use super::raw::RawRecord;
use super::{Op, SECTOR, Took};
use std::borrow::Cow;
use tidegate_core::time::Nanos;

pub(super) const BYTES: usize = 32;
pub(super) const RIGHT: &str = "32 bytes: serial number, bytes, scatter-gather entries, SCSI \
     command (READ or WRITE of 6, 10, 12 or 16), version 0x0100, logical block, microseconds";

/// Version of the records that are read.
const VERSION: u16 = 0x0100;
/// Unit of times in nanoseconds.
const MICROSECOND_NS: u64 = 1000;

/// Returns true if a trace begins with a record of this format.
pub(super) fn begins(begin: &[u8]) -> bool {
    begin.len() >= BYTES && word(begin, 14) == VERSION && op(word(begin, 12)).is_some()
}

pub(super) fn parse(record: [u8; BYTES]) -> Result<RawRecord<'static>, String> {
    let version = word(&record, 14);
    if version != VERSION {
        return Err(format!("version {version:#06x}"));
    }
    let command = word(&record, 12);
    let op = op(command).ok_or_else(|| format!("SCSI command {command:#04x}"))?;
    let (block, at) = (long(&record, 16), long(&record, 24));
    let beyond = |what: &str, value: u64| format!("{what} {value} is too large");
    Ok(RawRecord {
        at: Nanos(
            at.checked_mul(MICROSECOND_NS)
                .ok_or_else(|| beyond("time", at))?,
        ),
        // The format has no disk: a file is the trace of one.
        disk: Cow::Borrowed("disk"),
        op,
        offset: block
            .checked_mul(SECTOR)
            .ok_or_else(|| beyond("logical block", block))?,
        len: u32::from_le_bytes([record[4], record[5], record[6], record[7]]).into(),
        fua: false,
        took: Took::UNKNOWN,
    })
}

/// Returns the operation of a SCSI block command that moves a guest's data (SBC-4): READ and WRITE
/// of 6, 10, 12 and 16 bytes.
fn op(command: u16) -> Option<Op> {
    match command {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Op::Read),
        0x0a | 0x2a | 0xaa | 0x8a => Some(Op::Write),
        _ => None,
    }
}

fn word(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([record[at], record[at + 1]])
}

fn long(record: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&record[at..at + 8]);
    u64::from_le_bytes(bytes)
}
