//! Parser of fio's I/O logs, versions 2 and 3, as `write_iolog` writes and `read_iolog` reads them.
//!
//! ```text
//! fio version 2 iolog            fio version 3 iolog
//! FILE add                       TIME FILE add
//! FILE wait TIME 0               TIME FILE read OFFSET LENGTH
//! FILE read OFFSET LENGTH
//! ```
//!
//! Times are in us: in version 3 each line has one, counted from the begin of the log; in version 2
//! a `wait` lasts so long, and requests between two waits have one time. Files are the disks of the
//! trace. Source: fio(1), "Trace file format", and iolog.c of fio 3.33.

use super::field::{in_nanos, number};
use super::raw::{Parsed, RawRecord};
use super::{Op, Took};
use std::borrow::Cow;
use tidegate_core::time::Nanos;

pub(super) const RIGHT: &str = "version 2: FILE ACTION [OFFSET LENGTH], version 3: TIME FILE \
     ACTION [OFFSET LENGTH], with the actions add, open, close or read, write, trim, sync, \
     datasync, wait; bytes and us";

const MICROSECOND_NS: u64 = 1_000;

/// State of reading a log.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Version 2 or 3; `None` before the first line.
    version: Option<u32>,
    /// Time of version 2: the sum of all waits so far.
    at: Nanos,
}

/// Returns true for the first line of a log.
pub(super) fn begins(line: &str) -> bool {
    line.starts_with("fio version ") && line.ends_with(" iolog")
}

impl State {
    pub(super) fn parse<'a>(&mut self, line: &'a str) -> Result<Parsed<'a>, String> {
        let Some(version) = self.version else {
            return self.first_line(line);
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        let (at, rest) = match (version, &words[..]) {
            (3, [at, rest @ ..]) => {
                let at = number("time", at)?;
                (in_nanos("time", at, MICROSECOND_NS)?, rest)
            }
            (_, rest) => (self.at, rest),
        };
        match *rest {
            [_, "add" | "open" | "close" | "unlink"] => Ok(Parsed::Nothing),
            [_, "sync" | "datasync" | "sync_file_range", ..] => Ok(Parsed::Other),
            [_, "wait", time, _] if version == 2 => {
                let time = in_nanos("wait", number("wait", time)?, MICROSECOND_NS)?;
                let at = self.at.0.checked_add(time.0).map(Nanos);
                self.at = at.ok_or("the sum of all waits is more than 584 years")?;
                Ok(Parsed::Nothing)
            }
            [_, "wait", ..] => Err("the action wait with a wrong form or version".to_owned()),
            [file, action, offset, len] => Ok(Parsed::Request(RawRecord {
                at,
                disk: Cow::Borrowed(file),
                op: match action {
                    "read" => Op::Read,
                    "write" => Op::Write,
                    "trim" => Op::Discard,
                    _ => return Err(format!("action {action:?}")),
                },
                offset: number("offset", offset)?,
                len: number("length", len)?,
                fua: false,
                took: Took::UNKNOWN,
            })),
            _ => Err(format!(
                "{} words, expected {} or {}",
                words.len(),
                version,
                version + 2
            )),
        }
    }

    fn first_line<'a>(&mut self, line: &str) -> Result<Parsed<'a>, String> {
        // Assumed from here on also if the first line is bad and skipped.
        self.version = Some(3);
        match line {
            "fio version 2 iolog" => self.version = Some(2),
            "fio version 3 iolog" => {}
            _ => {
                return Err(format!(
                    "first line {line:?}, expected \"fio version 2 iolog\" or \"fio version 3 \
                     iolog\""
                ));
            }
        }
        Ok(Parsed::Nothing)
    }
}
