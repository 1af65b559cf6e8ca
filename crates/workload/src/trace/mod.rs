//! Block traces: requests that a disk got, with their times, in one of several formats.
//!
//! ```text
//!   bytes --Input--> lines or records --parser of the Format--> Record --+--> Reader: one by one
//!                                                                        +--> read: a whole Trace
//! ```
//!
//! Nothing is skipped silently. A record that cannot be right is an error with its place. If bad
//! records are to be skipped, they are counted, and the first of them are kept. A trace without a
//! record is an error, too. A [`Reader`] needs memory for one record, or for those outstanding if
//! the format has an event for the end of a request; [`read`] needs it for all of them.
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

mod biosnoop;
mod blkparse;
mod change;
mod cloud;
mod disksim;
mod field;
mod info;
mod input;
mod iolog;
mod lint;
mod msr;
mod order;
mod raw;
mod reader;
mod recording;
#[cfg(test)]
mod tests;
mod vscsi;
mod write;

pub use change::{Cut, Sample, SampleBy, Scale};
pub use info::{GAPS, Gaps, Info, SizeOf, Sizes, info};
pub use lint::{Lint, LintFindings, LintKind, LintOptions};
pub use order::InOrder;
pub use reader::{Reader, Tally};
pub use write::{Losses, Writer};

use std::fmt;
use std::io::{self, BufRead};
use std::num::NonZeroU64;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use tidegate_units::human::duration;

/// Sector size in bytes of all formats that count in sectors.
pub const SECTOR: u64 = 512;
/// Largest request in bytes that is accepted: 1 GiB, as of a workload.
pub const LARGEST: u32 = 1 << 30;

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
    /// Events of the Linux block layer as `blkparse` prints them by default; blkparse(1), "Default
    /// output".
    Blkparse,
    /// fio's I/O log, versions 2 and 3; fio(1), "Trace file format".
    Iolog,
    /// Block I/O with latencies as bcc's `biosnoop` prints it; biosnoop(8).
    Biosnoop,
    /// Alibaba Cloud's block traces: `device_id,opcode,offset,length,timestamp`, in bytes and us.
    /// Li et al., "An In-Depth Analysis of Cloud Block Storage Workloads", IISWC 2020.
    Alibaba,
    /// Tencent's cloud block storage: `Timestamp,Offset,Size,IOType,VolumeID`, in seconds and
    /// sectors. Zhang et al., "OSCA", ATC 2020; SNIA IOTTA 27917.
    Tencent,
    /// Recording of a device of Tidegate.
    Recording,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 9] = [
        Format::Msr,
        Format::DiskSim,
        Format::Vscsi,
        Format::Blkparse,
        Format::Iolog,
        Format::Biosnoop,
        Format::Alibaba,
        Format::Tencent,
        Format::Recording,
    ];

    /// Returns the name in configurations and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Msr => "msr",
            Format::DiskSim => "disksim",
            Format::Vscsi => "vscsi",
            Format::Blkparse => "blkparse",
            Format::Iolog => "iolog",
            Format::Biosnoop => "biosnoop",
            Format::Alibaba => "alibaba",
            Format::Tencent => "tencent",
            Format::Recording => "recording",
        }
    }

    /// Returns the form of a correct record, for messages.
    const fn right(self) -> &'static str {
        match self {
            Format::Msr => msr::RIGHT,
            Format::DiskSim => disksim::RIGHT,
            Format::Vscsi => vscsi::RIGHT,
            Format::Blkparse => blkparse::RIGHT,
            Format::Iolog => iolog::RIGHT,
            Format::Biosnoop => biosnoop::RIGHT,
            Format::Alibaba => cloud::ALIBABA_RIGHT,
            Format::Tencent => cloud::TENCENT_RIGHT,
            Format::Recording => recording::RIGHT,
        }
    }

    /// Determines the format from the beginning of a trace.
    fn detect(begin: &[u8]) -> Option<Format> {
        if vscsi::begins(begin) {
            return Some(Format::Vscsi);
        }
        if recording::begins(begin) {
            return Some(Format::Recording);
        }
        let line = begin.split(|&byte| byte == b'\n').next()?;
        let text = std::str::from_utf8(line).ok()?.trim();
        let known = [
            (Format::Iolog, iolog::begins(text)),
            // Before the formats with commas: device numbers have one.
            (Format::Blkparse, blkparse::begins(text)),
            (Format::Biosnoop, biosnoop::begins(text)),
            (Format::Alibaba, cloud::begins_alibaba(text)),
            (Format::Tencent, cloud::begins_tencent(text)),
            (Format::DiskSim, disksim::begins(text)),
            // Every other text with commas, whose mistakes are reported by line.
            (Format::Msr, text.contains(',')),
        ];
        let found = known.into_iter().find(|(_, begins)| *begins);
        found.map(|(format, _)| format)
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
    /// Operation: read, write or discard.
    pub op: Op,
    /// True for a write that is durable before it is answered (FUA), where the trace says so.
    pub fua: bool,
    /// First byte on the disk.
    pub offset: u64,
    /// Length in bytes, 1 to [`LARGEST`]; like the offset not necessarily a multiple of a sector.
    pub len: u32,
    /// Time from the arrival to the end on the traced disk.
    pub took: Took,
}

impl Record {
    /// Returns the address behind the last byte.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// Time that a traced request took, in 8 bytes also where the trace does not say it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Took(Option<NonZeroU64>);

impl Took {
    /// Unknown time.
    pub const UNKNOWN: Took = Took(None);

    /// Creates a known time.
    pub fn new(time: Nanos) -> Took {
        // One more, because 0 stands for an unknown time.
        Took(NonZeroU64::new(time.0.saturating_add(1)))
    }

    /// Returns the time, if it is known.
    pub fn get(self) -> Option<Nanos> {
        self.0.map(|time| Nanos(time.get() - 1))
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
    /// Number of requests that were left out because they move and discard no bytes, such as
    /// flushes, or because the trace has only their end.
    pub others: u64,
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
    /// True for a request of no bytes.
    pub empty: bool,
}

/// Place of a record in its trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Line of a text, counted from 1.
    Line(u64),
    /// Record of fixed size, counted from 1, and the offset of its first byte.
    Record(u64, u64),
    /// Request of a recording, or a gap in its place, counted from 1.
    Request(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Record(record, byte) => write!(f, "record {record} (byte {byte})"),
            Place::Request(number) => write!(f, "request {number}"),
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
    /// A request is so far behind its place in time that it cannot be put there.
    #[error(
        "{place}: {} earlier than requests that were returned, with {} requests in between; sort \
         the trace by time first",
        duration(by.0),
        order::WINDOW
    )]
    TooLate {
        /// Place of the request.
        place: Place,
        /// Time by which it is too late.
        by: Nanos,
    },
    /// The trace has no request of the disk that was asked for.
    #[error(
        "no request of the disk {disk:?} in this trace, which has: {}",
        shown(names)
    )]
    NoDisk {
        /// Name of the disk.
        disk: String,
        /// Names of the disks that the trace has.
        names: Vec<String>,
    },
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

/// Returns the first names of a list, and how many more there are.
fn shown(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let first = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Options of reading a trace.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Options {
    /// Format; `None`: detected from the beginning.
    pub format: Option<Format>,
    /// True to count and skip bad records; false to fail at the first one.
    pub skip_bad: bool,
    /// Name of the only disk whose requests are read; `None`: all disks.
    pub disk: Option<String>,
}

/// Reads a whole trace; needs 40 bytes of memory per record.
///
/// # Errors
/// If the input fails, its format is unknown, a record is bad (unless bad ones are skipped), or it
/// has no records, or none of the disk.
pub fn read(input: impl BufRead, options: &Options) -> Result<Trace, TraceError> {
    let mut reader = Reader::new(input, options)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next()? {
        records.push(record);
    }
    let (format, (tally, disks)) = (reader.format(), reader.finish()?);
    // The sort is stable, so requests of equal times keep their order.
    records.sort_by_key(|record: &Record| record.at);
    Ok(Trace {
        format,
        disks,
        records,
        out_of_order: tally.out_of_order,
        others: tally.others,
        skipped: tally.skipped,
        bad: tally.bad,
    })
}
