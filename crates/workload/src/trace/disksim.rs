//! DiskSim's ASCII format, with MQSim's times in nanoseconds.

use super::field::{number, sectors};
use super::raw::RawRecord;
use super::{Op, Took};
use std::borrow::Cow;
use tidegate_core::time::Nanos;

pub(super) const RIGHT: &str =
    "arrival time in ns, device, first sector, sectors, 0 (write) or 1 (read), with spaces between";

/// Returns true if a trace may begin with this line: five words, the first a number. The others may
/// be mistakes that are reported later.
pub(super) fn begins(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.len() == 5
        && words[0]
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

pub(super) fn parse(line: &str) -> Result<RawRecord<'_>, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [at, device, sector, count, kind] = words[..] else {
        return Err(format!("{} words, expected 5", words.len()));
    };
    // DiskSim's own files have fractions of milliseconds, which would be misread as nanoseconds.
    if at.contains('.') {
        return Err(format!("arrival time {at}: expected whole nanoseconds"));
    }
    Ok(RawRecord {
        at: Nanos(number("arrival time", at)?),
        disk: Cow::Owned(number("device", device)?.to_string()),
        // DiskSim's flag word has further bits; MQSim knows these two values.
        op: match kind {
            "0" => Op::Write,
            "1" => Op::Read,
            _ => return Err(format!("type {kind:?}")),
        },
        offset: sectors("first sector", sector)?,
        len: sectors("sectors", count)?,
        fua: false,
        took: Took::UNKNOWN,
    })
}
