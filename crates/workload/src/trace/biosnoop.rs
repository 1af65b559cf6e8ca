//! Parser of the output of `biosnoop` of bcc, in the forms of its Python and its C version.
//!
//! ```text
//! TIME(s)     COMM           PID    DISK      T SECTOR     BYTES  QUE(ms) LAT(ms)
//! 0.000004    supervise      1950   xvda1     W 13092560   4096      0.01    0.74
//! ```
//!
//! `TIME(s)` is the end of a request, counted from the first line. `LAT(ms)` is the time at the
//! device and `QUE(ms)`, if it is there, the time in the block layer before. The arrival is the end
//! minus both. Source: biosnoop(8) and tools/biosnoop.py of bcc.

use super::Took;
use super::field::{Letters, decimal, letters, number, sectors};
use super::raw::{Parsed, RawRecord};
use std::borrow::Cow;
use tidegate_core::time::Nanos;

pub(super) const RIGHT: &str = "TIME(s) COMM PID DISK T SECTOR BYTES [QUE(ms)] LAT(ms): seconds, \
     words, a number, a word, R or W, a sector, bytes, milliseconds";

/// Time added to all, because requests of the first line began before it: one hour.
const EPOCH: Nanos = Nanos::from_secs(3600);
const MILLISECOND_NS: u64 = 1_000_000;
/// Fields before and after the name of the command, which may have spaces itself.
const FIELDS_LEAST: usize = 8;

/// Returns true for the line of column names, with which the output begins.
pub(super) fn begins(line: &str) -> bool {
    line.starts_with("TIME") && line.contains("COMM") && line.contains("LAT(ms)")
}

pub(super) fn parse(line: &str) -> Result<Parsed<'_>, String> {
    if begins(line) || line.starts_with("Tracing") {
        return Ok(Parsed::Nothing);
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.len() < FIELDS_LEAST {
        return Err(format!(
            "{} words, expected {FIELDS_LEAST} or more",
            words.len()
        ));
    }
    // From the end: only times in ms have decimals, and the command may be several words.
    let (latency, rest) = words.split_last().expect("there are words");
    let (queued, rest) = match rest.split_last() {
        Some((queued, rest)) if queued.contains('.') => (Some(*queued), rest),
        _ => (None, rest),
    };
    let [at, _, .., _, disk, kind, sector, bytes] = rest else {
        return Err("a field is missing".to_owned());
    };
    let millis = |field, text| decimal(field, text, MILLISECOND_NS);
    let queued = queued.map_or(Ok(Nanos::ZERO), |queued| millis("QUE(ms)", queued))?;
    let took = millis("LAT(ms)", latency)?.0.saturating_add(queued.0);
    let end = decimal("TIME(s)", at, Nanos::SECOND.0)?.0;
    let (op, len) = (letters(kind)?, number("BYTES", bytes)?);
    let Letters::Bytes { op, fua } = op else {
        return Ok(Parsed::Other);
    };
    // A flush is printed as a write of no bytes, with -1 or another odd sector.
    if len == 0 {
        return Ok(Parsed::Other);
    }
    let begin = (end.checked_add(EPOCH.0)).and_then(|end| end.checked_sub(took));
    Ok(Parsed::Request(RawRecord {
        at: begin
            .map(Nanos)
            .ok_or_else(|| format!("latency {latency} ms began more than an hour before"))?,
        disk: Cow::Borrowed(disk),
        op,
        fua,
        offset: sectors("SECTOR", sector)?,
        len,
        took: Took::new(Nanos(took)),
    }))
}
