//! Parser of MSR Cambridge's CSV format.

use super::field::number;
use super::raw::RawRecord;
use super::{Op, Took};
use std::borrow::Cow;
use tidegate_core::time::Nanos;

pub(super) const RIGHT: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime: \
     ticks of 100 ns, text, a number, Read or Write, bytes, bytes, ticks";

/// Unit of timestamps in nanoseconds: a Windows file time tick.
const TICK_NS: u64 = 100;

/// Returns true for a line of column names, with which some copies begin.
pub(super) fn is_header(line: &str) -> bool {
    let first = line.split(',').next().unwrap_or_default();
    first.trim().eq_ignore_ascii_case("timestamp")
}

pub(super) fn parse(line: &str) -> Result<RawRecord<'_>, String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [at, host, disk, kind, offset, size, response] = fields[..] else {
        return Err(format!("{} fields, expected 7", fields.len()));
    };
    if host.is_empty() {
        return Err("no host name".to_owned());
    }
    let took = number("response time", response)?;
    // No disk answers within no time: a trace without response times has zeroes.
    let took = match took {
        0 => Took::UNKNOWN,
        ticks => Took::new(Nanos(ticks.saturating_mul(TICK_NS))),
    };
    let at = number("timestamp", at)?;
    let at = at
        .checked_mul(TICK_NS)
        .ok_or_else(|| format!("timestamp {at} is beyond the year 2185"))?;
    Ok(RawRecord {
        at: Nanos(at),
        // Disk numbers repeat among the servers of the trace.
        disk: Cow::Owned(format!("{host}.{}", number("disk number", disk)?)),
        op: match kind {
            _ if kind.eq_ignore_ascii_case("read") => Op::Read,
            _ if kind.eq_ignore_ascii_case("write") => Op::Write,
            _ => return Err(format!("type {kind:?}")),
        },
        offset: number("offset", offset)?,
        len: number("size", size)?,
        fua: false,
        took,
    })
}
