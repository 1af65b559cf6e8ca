//! Parsers of the traces that cloud providers have published as CSV.
//!
//! - Alibaba: `device_id,opcode,offset,length,timestamp`: a number, `R` or `W`, bytes, bytes, us
//!   since 1970 (README of the repository `alibaba/block-traces`).
//! - Tencent: `Timestamp,Offset,Size,IOType,VolumeID`: seconds since 1970, sectors of 512 bytes,
//!   sectors, 0 for a read and 1 for a write, a number (README of SNIA IOTTA 27917). All requests
//!   of a second have one time.

use super::field::{in_nanos, number, sectors};
use super::raw::RawRecord;
use super::{Op, Took};
use std::borrow::Cow;

pub(super) const ALIBABA_RIGHT: &str =
    "device_id,opcode,offset,length,timestamp: a name, R or W, bytes, bytes, us";
pub(super) const TENCENT_RIGHT: &str = "Timestamp,Offset,Size,IOType,VolumeID: seconds, sectors \
     of 512 bytes, sectors, 0 (read) or 1 (write), a number";

/// Returns the five fields of a line.
fn fields(line: &str) -> Result<[&str; 5], String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let found = fields.len();
    fields
        .try_into()
        .map_err(|_| format!("{found} fields, expected 5"))
}

/// Returns true for the names of Alibaba's columns, with which some copies begin.
pub(super) fn is_alibaba_header(line: &str) -> bool {
    fields(line).is_ok_and(|[device, ..]| device.eq_ignore_ascii_case("device_id"))
}

/// Returns true for the names of Tencent's columns, with which some copies begin.
pub(super) fn is_tencent_header(line: &str) -> bool {
    fields(line).is_ok_and(|[at, ..]| at.eq_ignore_ascii_case("timestamp"))
}

/// Returns true if a trace of Alibaba may begin with this line.
pub(super) fn begins_alibaba(line: &str) -> bool {
    is_alibaba_header(line) || fields(line).is_ok_and(|[_, code, ..]| operation(code).is_some())
}

/// Returns true if a trace of Tencent may begin with this line.
pub(super) fn begins_tencent(line: &str) -> bool {
    let digits = |field: &&str| field.bytes().all(|byte| byte.is_ascii_digit());
    is_tencent_header(line) || fields(line).is_ok_and(|fields| fields.iter().all(digits))
}

fn operation(code: &str) -> Option<Op> {
    match code {
        _ if code.eq_ignore_ascii_case("r") => Some(Op::Read),
        _ if code.eq_ignore_ascii_case("w") => Some(Op::Write),
        _ => None,
    }
}

pub(super) fn parse_alibaba(line: &str) -> Result<RawRecord<'_>, String> {
    let [device, code, offset, len, at] = fields(line)?;
    if device.is_empty() {
        return Err("no device_id".to_owned());
    }
    Ok(RawRecord {
        at: in_nanos("timestamp", number("timestamp", at)?, 1_000)?,
        disk: Cow::Borrowed(device),
        op: operation(code).ok_or_else(|| format!("opcode {code:?}"))?,
        offset: number("offset", offset)?,
        len: number("length", len)?,
        fua: false,
        took: Took::UNKNOWN,
    })
}

pub(super) fn parse_tencent(line: &str) -> Result<RawRecord<'_>, String> {
    let [at, offset, size, kind, volume] = fields(line)?;
    Ok(RawRecord {
        at: in_nanos("timestamp", number("timestamp", at)?, 1_000_000_000)?,
        disk: Cow::Owned(number("volume", volume)?.to_string()),
        op: match kind {
            "0" => Op::Read,
            "1" => Op::Write,
            _ => return Err(format!("I/O type {kind:?}")),
        },
        offset: sectors("offset", offset)?,
        len: sectors("size", size)?,
        fua: false,
        took: Took::UNKNOWN,
    })
}
