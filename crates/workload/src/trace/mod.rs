//! Block traces: requests that a disk got, with their times, in one of three formats.
//!
//! [`read`] reads a whole trace and skips nothing silently. A record that cannot be right is an
//! error with its place. If bad records are to be skipped, they are counted, and the first of them
//! are kept. A trace without a record is an error, too.
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
use tidegate_units::human::bytes_and_count;

/// Sector size in bytes of all formats that count in sectors.
pub const SECTOR: u64 = 512;
/// Largest request in bytes that is accepted: 1 GiB, as of a workload.
pub const LARGEST: u32 = 1 << 30;
/// Number of bad records that are kept to be shown.
const BAD_SHOWN: usize = 10;

/// Format of a trace.
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
    /// All formats.
    pub const ALL: [Format; 3] = [Format::Msr, Format::DiskSim, Format::Vscsi];

    /// Returns the name in configurations and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Msr => "msr",
            Format::DiskSim => "disksim",
            Format::Vscsi => "vscsi",
        }
    }

    /// Returns the form of a correct record, for messages.
    const fn right(self) -> &'static str {
        match self {
            Format::Msr => msr::RIGHT,
            Format::DiskSim => disksim::RIGHT,
            Format::Vscsi => vscsi::RIGHT,
        }
    }

    /// Detects the format from a trace's beginning; `None` if it has none of them.
    fn detect(begin: &[u8]) -> Option<Format> {
        if vscsi::begins(begin) {
            return Some(Format::Vscsi);
        }
        let line = begin.split(|&byte| byte == b'\n').next()?;
        let text = std::str::from_utf8(line).ok()?;
        if text.contains(',') {
            // DiskSim's words have no commas.
            Some(Format::Msr)
        } else {
            disksim::begins(text).then_some(Format::DiskSim)
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Request of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Time of arrival, from the trace's own epoch.
    pub at: Nanos,
    /// Disk, an index into [`Trace::disks`].
    pub disk: u32,
    /// Operation: read or write.
    pub op: Op,
    /// First byte on the disk.
    pub offset: u64,
    /// Length in bytes, 1 to [`LARGEST`]; like the offset not necessarily a multiple of a sector.
    pub len: u32,
}

impl Record {
    /// Returns the address behind the last byte.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// Block trace as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trace {
    /// Format of the input.
    pub format: Format,
    /// Names of the disks, in the order of their first requests.
    pub disks: Vec<String>,
    /// Requests, at least one, sorted by time; those of equal times in the order of the input.
    pub records: Vec<Record>,
    /// Number of records that were earlier than the record before them.
    pub out_of_order: u64,
    /// Number of bad records that were skipped.
    pub skipped: u64,
    /// First bad records, at most ten.
    pub bad: Vec<BadRecord>,
}

/// Record that cannot be right.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {what}")]
pub struct BadRecord {
    /// Place in the input.
    pub place: Place,
    /// Mistake in the record.
    pub what: String,
    /// Format of a correct record.
    pub right: &'static str,
}

/// Place of a record in its trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Line of a text, counted from 1.
    Line(u64),
    /// Record of fixed size, counted from 1, and the offset of its first byte.
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

/// Reason why a trace was not read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The input could not be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The input has none of the known formats.
    #[error("unknown trace format, known are: {}", names())]
    Unknown,
    /// A record is bad, and bad records are not skipped.
    #[error(transparent)]
    Bad(#[from] BadRecord),
    /// The trace has no record, or no good one.
    #[error(
        "no request in this trace{}",
        match skipped {
            0 => String::new(),
            n => format!(": all {n} records are bad"),
        }
    )]
    Empty {
        /// Number of bad records that were skipped.
        skipped: u64,
        /// First bad record, if any.
        first: Option<BadRecord>,
    },
}

fn names() -> String {
    Format::ALL.map(Format::name).join(", ")
}

/// Options of reading a trace.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Options {
    /// Format; `None`: detected from the beginning.
    pub format: Option<Format>,
    /// True to count and skip bad records; false to fail at the first one.
    pub skip_bad: bool,
}

/// Reads a whole trace; needs 32 bytes of memory per record.
///
/// # Errors
/// If the input fails, its format is unknown, a record is bad (unless bad ones are skipped), or it
/// has no records.
pub fn read(input: impl BufRead, options: &Options) -> Result<Trace, TraceError> {
    let mut input = Input::new(input);
    let format = match options.format {
        Some(format) => format,
        None => Format::detect(input.begin()?).ok_or(TraceError::Unknown)?,
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
    while let Some(found) = next_record(&mut input, format, &mut disks)? {
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
    // The sort is stable, so requests of equal times keep their order.
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

/// Names of a trace's disks with their numbers.
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

/// Record as a format's parser returns it, with the disk's name and an unchecked length.
#[derive(PartialEq, Eq, Debug)]
struct RawRecord<'a> {
    at: Nanos,
    disk: std::borrow::Cow<'a, str>,
    op: Op,
    offset: u64,
    len: u64,
}

/// Reads the next record, or the mistake in it; `None` at the end of the input.
fn next_record(
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
            // The header is no bad record: it would count as one that was skipped.
            Some((Place::Line(1), Ok(line))) if format == Format::Msr && msr::is_header(line) => {
                return next_record(input, format, disks);
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

impl RawRecord<'_> {
    fn check(self, disks: &mut Disks) -> Result<Record, String> {
        let len = match u32::try_from(self.len) {
            Ok(0) => return Err("a request of no bytes".to_owned()),
            Ok(len) if len <= LARGEST => len,
            _ => return Err(format!("a request of {}", bytes_and_count(self.len))),
        };
        if self
            .offset
            .checked_add(self.len)
            // Linux's offsets are signed: nothing lies beyond 2^63 bytes.
            .is_none_or(|end| end > i64::MAX as u64)
        {
            return Err(format!(
                "the request ends beyond any disk: {} at byte {}",
                bytes_and_count(self.len),
                self.offset
            ));
        }
        Ok(Record {
            at: self.at,
            // Last, so that bad records do not number a disk.
            disk: disks.number(&self.disk),
            op: self.op,
            offset: self.offset,
            len,
        })
    }
}
