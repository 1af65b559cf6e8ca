//! Block traces: who asked a disk for what, and when. Three formats, read strictly.
//!
//! [`read`] takes a whole trace: nothing in it is passed over in silence. A record that cannot be
//! right is an error with its place, unless bad ones are to be skipped; then they are counted, and
//! the first of them kept. A trace without a single record is an error too.
//!
//! ```
//! use tidegate_workload::trace::{Options, read};
//!
//! let text = "0 0 2048 16 1\n1000000 0 2064 16 0\n";
//! let trace = read(text.as_bytes(), &Options::default())?;
//! assert_eq!(trace.records.len(), 2);
//! assert_eq!(trace.records[1].offset, 2064 * 512);
//! # Ok::<(), tidegate_workload::trace::TraceError>(())
//! ```

mod disksim;
mod info;
mod input;
mod msr;
#[cfg(test)]
mod tests;
mod vscsi;

pub use info::{GAPS, Gaps, Info, SizeOf, Sizes, info};

use input::Input;
use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead};
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// Bytes of a sector, in all formats that count in them.
pub const SECTOR: u64 = 512;
/// The largest request that is believed: 1 GiB, as of a job.
pub const LARGEST: u32 = 1 << 30;
/// So many bad records are kept to be shown.
const BAD_SHOWN: usize = 10;

/// How a trace is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, times in ticks
    /// of 100 ns since 1601, the rest in bytes. Narayanan et al., "Write Off-Loading", FAST 2008;
    /// SNIA IOTTA 388.
    Msr,
    /// DiskSim's ASCII: arrival time in ns, device, first sector, sectors, 0 for a write and 1 for
    /// a read; as MQSim has it.
    DiskSim,
    /// VMware's vSCSI binary of version 1, as CloudPhysics published it: records of 32 bytes,
    /// little endian.
    Vscsi,
}

impl Format {
    /// All there are.
    pub const ALL: [Format; 3] = [Format::Msr, Format::DiskSim, Format::Vscsi];

    /// As people name it.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Msr => "msr",
            Format::DiskSim => "disksim",
            Format::Vscsi => "vscsi",
        }
    }

    /// What a right record looks like.
    const fn right(self) -> &'static str {
        match self {
            Format::Msr => msr::RIGHT,
            Format::DiskSim => disksim::RIGHT,
            Format::Vscsi => vscsi::RIGHT,
        }
    }

    /// The format that a trace begins like; `None`: like none.
    fn of(begin: &[u8]) -> Option<Format> {
        if vscsi::begins(begin) {
            return Some(Format::Vscsi);
        }
        let line = begin.split(|&byte| byte == b'\n').next()?;
        let text = std::str::from_utf8(line).ok()?;
        match text.contains(',') {
            true => Some(Format::Msr),
            false => disksim::begins(text).then_some(Format::DiskSim),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// When it came, from the trace's own zero on.
    pub at: Nanos,
    /// Which disk, an index into [`Trace::disks`].
    pub disk: u32,
    /// A read or a write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes, 1 to [`LARGEST`]; neither has to be a multiple of anything.
    pub len: u32,
}

impl Record {
    /// Behind its last byte.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// A whole trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// How it was written.
    pub format: Format,
    /// Its disks' names, in the order of their first requests.
    pub disks: Vec<String>,
    /// At least one, in the order of time; those of one time as the trace has them.
    pub records: Vec<Record>,
    /// Records that stood behind a later one.
    pub out_of_order: u64,
    /// Bad records that were passed over.
    pub skipped: u64,
    /// The first of them.
    pub bad: Vec<BadRecord>,
}

/// A record that cannot be right.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {what}")]
pub struct BadRecord {
    /// Where it is.
    pub place: Place,
    /// What is wrong with it.
    pub what: String,
    /// What would be right.
    pub right: &'static str,
}

/// Where a record is in its trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A line of text, from 1 on.
    Line(u64),
    /// A record of fixed size, from 1 on, and its first byte.
    Record(u64, u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Record(record, byte) => write!(f, "record {record} (byte {byte})"),
        }
    }
}

/// Why a trace was not read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The input itself failed.
    #[error("reading it: {0}")]
    Io(#[from] io::Error),
    /// It is like no format that is known.
    #[error("it begins like no trace that is known: {}", names())]
    Unknown,
    /// A record is bad, and bad ones are not to be skipped.
    #[error(transparent)]
    Bad(#[from] BadRecord),
    /// There is no record in it, or no good one.
    #[error(
        "there is no request in it{}",
        match skipped {
            0 => String::new(),
            n => format!(": all {n} records are bad"),
        }
    )]
    Empty {
        /// Bad ones that were skipped.
        skipped: u64,
        /// The first of them.
        first: Option<BadRecord>,
    },
}

fn names() -> String {
    Format::ALL.map(Format::name).join(", ")
}

/// How a trace is read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Options {
    /// How it is written; `None`: told by its beginning.
    pub format: Option<Format>,
    /// Bad records are counted and passed over.
    pub skip_bad: bool,
}

/// Reads a whole trace, 32 bytes of memory a record.
///
/// # Errors
/// The input's own; an unknown format; the first bad record, unless they are skipped; nothing in
/// it.
pub fn read(input: impl BufRead, options: &Options) -> Result<Trace, TraceError> {
    let mut input = Input::new(input);
    let format = match options.format {
        Some(format) => format,
        None => Format::of(input.begin()?).ok_or(TraceError::Unknown)?,
    };
    let mut trace = Trace {
        format,
        disks: Vec::new(),
        records: Vec::new(),
        out_of_order: 0,
        skipped: 0,
        bad: Vec::new(),
    };
    let mut disks = Disks::default();
    while let Some(found) = next(&mut input, format, &mut disks)? {
        match found {
            Ok(record) => trace.push(record),
            Err(bad) if options.skip_bad => trace.skip(bad),
            Err(bad) => return Err(bad.into()),
        }
    }
    if trace.records.is_empty() {
        let skipped = trace.skipped;
        let first = trace.bad.into_iter().next();
        return Err(TraceError::Empty { skipped, first });
    }
    trace.disks = disks.names;
    // Stable: what came at one time stays as it stood.
    trace.records.sort_by_key(|record| record.at);
    Ok(trace)
}

impl Trace {
    fn push(&mut self, record: Record) {
        let behind = self.records.last().is_some_and(|last| last.at > record.at);
        self.out_of_order += u64::from(behind);
        self.records.push(record);
    }

    fn skip(&mut self, bad: BadRecord) {
        self.skipped += 1;
        if self.bad.len() < BAD_SHOWN {
            self.bad.push(bad);
        }
    }
}

/// The names of a trace's disks, and which has which number.
#[derive(Default)]
struct Disks {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Disks {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

/// What a format's reader makes of a record; the disk by its name.
#[derive(PartialEq, Eq, Debug)]
struct Raw<'a> {
    at: Nanos,
    disk: std::borrow::Cow<'a, str>,
    op: Op,
    offset: u64,
    len: u64,
}

/// The next record, or what is wrong with it; `None`: there is none any more.
fn next(
    input: &mut Input<impl BufRead>,
    format: Format,
    disks: &mut Disks,
) -> io::Result<Option<Result<Record, BadRecord>>> {
    let bad = |place, what| BadRecord {
        place,
        what,
        right: format.right(),
    };
    let (place, found) = match format {
        Format::Vscsi => match input.record::<{ vscsi::BYTES }>()? {
            None => return Ok(None),
            Some((place, found)) => (place, found.and_then(vscsi::parse)),
        },
        Format::Msr | Format::DiskSim => match input.line()? {
            None => return Ok(None),
            Some((Place::Line(1), Ok(line))) if format == Format::Msr && msr::is_header(line) => {
                return next(input, format, disks);
            }
            Some((place, found)) => {
                let parse = match format {
                    Format::Msr => msr::parse,
                    _ => disksim::parse,
                };
                (place, found.and_then(parse))
            }
        },
    };
    let checked = found.and_then(|raw| raw.check(disks));
    Ok(Some(checked.map_err(|what| bad(place, what))))
}

impl Raw<'_> {
    fn check(self, disks: &mut Disks) -> Result<Record, String> {
        let len = match u32::try_from(self.len) {
            Ok(0) => return Err("a request of no bytes".to_owned()),
            Ok(len) if len <= LARGEST => len,
            _ => return Err(format!("a request of {} bytes", self.len)),
        };
        if self
            .offset
            .checked_add(self.len)
            .is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(format!(
                "it ends beyond any disk: {} bytes at {}",
                self.len, self.offset
            ));
        }
        Ok(Record {
            at: self.at,
            disk: disks.number(&self.disk),
            op: self.op,
            offset: self.offset,
            len,
        })
    }
}
