//! Reader of traces, one request at a time.

use super::input::Input;
use super::raw::{Parsed, RawRecord};
use super::{
    BadRecord, Format, LARGEST, Options, Place, Record, Took, TraceError, biosnoop, blkparse,
    cloud, disksim, iolog, msr, recording, vscsi,
};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, BufRead};
use tidegate_core::time::Nanos;
use tidegate_units::human::bytes_and_count;

/// Number of bad records that are kept to be shown.
pub(super) const BAD_SHOWN: usize = 10;
/// Mistake of a request without bytes, which is counted apart.
const EMPTY: &str = "a request of no bytes";
/// Number of disks of a trace, and length of a name in bytes, that are accepted: what is read is
/// not trusted with memory.
const DISKS_MAX: usize = 65_536;
const NAME_MAX: usize = 256;

/// Counts of a trace as far as it was read.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Number of requests that were returned.
    pub requests: u64,
    /// Number of requests that are earlier than the request before them.
    pub out_of_order: u64,
    /// Number of requests that were left out because they have no bytes, such as flushes, or
    /// because the trace has only their end.
    pub others: u64,
    /// Number of requests of other disks than the one that was asked for.
    pub other_disks: u64,
    /// Number of bad records that were skipped.
    pub skipped: u64,
    /// Number of bad records that are requests of no bytes.
    pub empty: u64,
    /// First bad records, at most ten.
    pub bad: Vec<BadRecord>,
}

/// Reader of a trace, which returns requests in the order of the input.
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    format: Format,
    parser: Parser,
    skip_bad: bool,
    disks: Disks,
    tally: Tally,
    /// Place of the line or record that was read last.
    line_place: Place,
    /// Place of the request that was returned last.
    place: Place,
    last: Nanos,
    /// True at the end of the input.
    ended: bool,
}

/// Input of a trace.
#[derive(Debug)]
enum Source<R> {
    /// Lines or records of fixed size.
    Input(Input<R>),
    Recording(Box<recording::Requests<R>>),
}

/// State of a format's parser.
#[derive(Debug)]
enum Parser {
    /// Lines or records that each are a request.
    Stateless,
    Iolog(iolog::State),
    Blkparse(Box<blkparse::State>),
}

impl<R: BufRead> Reader<R> {
    /// Begins to read a trace.
    ///
    /// # Errors
    /// If the input fails, or its format is unknown.
    pub fn new(input: R, options: &Options) -> Result<Reader<R>, TraceError> {
        let mut input = Input::new(input);
        let format = match options.format {
            Some(format) => format,
            None => Format::detect(input.begin()?).ok_or(TraceError::Unknown)?,
        };
        let source = match format {
            Format::Recording => {
                let requests = recording::Requests::new(input.into_inner())?;
                Source::Recording(Box::new(requests))
            }
            _ => Source::Input(input),
        };
        Ok(Reader {
            source,
            format,
            parser: match format {
                Format::Iolog => Parser::Iolog(iolog::State::default()),
                Format::Blkparse => Parser::Blkparse(Box::default()),
                _ => Parser::Stateless,
            },
            skip_bad: options.skip_bad,
            disks: Disks::new(options.disk.clone()),
            tally: Tally::default(),
            line_place: Place::Line(0),
            place: Place::Line(0),
            last: Nanos::ZERO,
            ended: false,
        })
    }

    /// Returns the next request; `None` at the end of the input.
    ///
    /// # Errors
    /// If the input fails, or a record is bad and bad ones are not skipped.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator would end with an error, and its items would be three layers deep"
    )]
    pub fn next(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Parser::Blkparse(state) = &mut self.parser
                && let Some((record, place)) = state.pop()
            {
                return Ok(Some(self.count(record, place)));
            }
            if self.ended {
                return Ok(None);
            }
            match self.step()? {
                Ok(Some(record)) => return Ok(Some(self.count(record, self.line_place))),
                Ok(None) => {}
                Err(what) => self.bad(what)?,
            }
        }
    }

    /// Returns the format of the trace.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the place of the request that was returned last.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns the names of the disks so far; [`Record::disk`] is an index.
    pub fn disks(&self) -> &[String] {
        self.disks.numbered()
    }

    /// Returns the counts, and the names of the disks in the order of their first requests.
    ///
    /// # Errors
    /// If there was no request.
    pub fn finish(self) -> Result<(Tally, Vec<String>), TraceError> {
        let (tally, disks) = (self.tally, self.disks);
        match disks.wanted {
            _ if tally.requests > 0 => Ok((tally, disks.numbered().to_vec())),
            Some(disk) if tally.other_disks > 0 => Err(TraceError::NoDisk {
                disk,
                names: disks.names,
            }),
            _ => Err(TraceError::Empty {
                skipped: tally.skipped,
                first: tally.bad.into_iter().next(),
            }),
        }
    }

    fn count(&mut self, record: Record, place: Place) -> Record {
        self.place = place;
        let behind = self.tally.requests > 0 && record.at < self.last;
        self.tally.out_of_order += u64::from(behind);
        self.tally.requests += 1;
        self.last = record.at;
        record
    }

    fn bad(&mut self, what: String) -> Result<(), TraceError> {
        let empty = what == EMPTY;
        let bad = BadRecord {
            place: self.line_place,
            what,
            right: self.format.right(),
            empty,
        };
        if !self.skip_bad {
            return Err(bad.into());
        }
        self.tally.skipped += 1;
        self.tally.empty += u64::from(empty);
        if self.tally.bad.len() < BAD_SHOWN {
            self.tally.bad.push(bad);
        }
        Ok(())
    }

    /// Reads a line or record: the request in it, if it has one, or the mistake in it.
    fn step(&mut self) -> io::Result<Result<Option<Record>, String>> {
        let input = match &mut self.source {
            Source::Input(input) => input,
            Source::Recording(requests) => {
                let found = requests.next()?;
                self.ended = found.is_none();
                let found = found.unwrap_or(Ok(Parsed::Nothing));
                let taken = found.and_then(|it| take(it, &mut self.disks, &mut self.tally));
                self.line_place = Place::Request(requests.count());
                return Ok(taken);
            }
        };
        if self.format == Format::Vscsi {
            let Some((place, found)) = input.record::<{ vscsi::BYTES }>()? else {
                self.ended = true;
                return Ok(Ok(None));
            };
            self.line_place = place;
            let found = found.and_then(vscsi::parse).map(Parsed::Request);
            return Ok(found.and_then(|found| take(found, &mut self.disks, &mut self.tally)));
        }
        let Some((place, line)) = input.line()? else {
            self.ended = true;
            if let Parser::Blkparse(state) = &mut self.parser {
                state.finish();
            }
            return Ok(Ok(None));
        };
        self.line_place = place;
        let (disks, tally) = (&mut self.disks, &mut self.tally);
        Ok(line.and_then(|line| match &mut self.parser {
            Parser::Blkparse(state) => {
                blkparse_line(state, line, place, disks, tally).map(|()| None)
            }
            Parser::Iolog(state) => take(state.parse(line)?, disks, tally),
            Parser::Stateless => {
                let first = place == Place::Line(1);
                take(parse_line(self.format, line, first)?, disks, tally)
            }
        }))
    }
}

/// Parses a line of a format whose lines do not depend on each other.
fn parse_line(format: Format, line: &str, first: bool) -> Result<Parsed<'_>, String> {
    let is_header = match format {
        Format::Msr => msr::is_header,
        Format::Alibaba => cloud::is_alibaba_header,
        Format::Tencent => cloud::is_tencent_header,
        _ => |_: &str| false,
    };
    // The header is no bad record: it would count as one that was skipped.
    if first && is_header(line) {
        return Ok(Parsed::Nothing);
    }
    match format {
        Format::Msr => msr::parse(line).map(Parsed::Request),
        Format::Alibaba => cloud::parse_alibaba(line).map(Parsed::Request),
        Format::Tencent => cloud::parse_tencent(line).map(Parsed::Request),
        Format::Biosnoop => biosnoop::parse(line),
        Format::DiskSim => disksim::parse(line).map(Parsed::Request),
        Format::Vscsi | Format::Iolog | Format::Blkparse | Format::Recording => {
            unreachable!("{format} is binary, or has a parser with a state")
        }
    }
}

/// Checks what a parser found, and counts it.
fn take(found: Parsed<'_>, disks: &mut Disks, tally: &mut Tally) -> Result<Option<Record>, String> {
    match found {
        Parsed::Request(raw) => {
            let record = check(raw, disks)?;
            tally.other_disks += u64::from(record.is_none());
            Ok(record)
        }
        Parsed::Other => {
            tally.others += 1;
            Ok(None)
        }
        Parsed::Nothing => Ok(None),
    }
}

fn blkparse_line(
    state: &mut blkparse::State,
    line: &str,
    place: Place,
    disks: &mut Disks,
    tally: &mut Tally,
) -> Result<(), String> {
    let event = match state.parse(line)? {
        blkparse::Line::Event(event) => event,
        blkparse::Line::Other => {
            tally.others += 1;
            return Ok(());
        }
        blkparse::Line::Nothing => return Ok(()),
    };
    let raw = RawRecord {
        at: event.at,
        disk: Cow::Borrowed(event.disk),
        op: event.op,
        fua: event.fua,
        offset: event.offset,
        len: event.len,
        took: Took::UNKNOWN,
    };
    match check(raw, disks)? {
        Some(record) => tally.others += u64::from(!state.add(event.kind, record, place)),
        None => tally.other_disks += u64::from(event.kind == blkparse::Kind::Queued),
    }
    Ok(())
}

/// Names of a trace's disks with their numbers.
#[derive(Debug, Default)]
struct Disks {
    /// All names of the trace.
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    /// Name of the only disk whose requests are returned, with the number 0.
    wanted: Option<String>,
}

impl Disks {
    fn new(wanted: Option<String>) -> Disks {
        Disks {
            wanted,
            ..Disks::default()
        }
    }

    /// Returns the names by the numbers of the disks.
    fn numbered(&self) -> &[String] {
        match &self.wanted {
            Some(wanted) => std::slice::from_ref(wanted),
            None => &self.names,
        }
    }

    /// Returns the number of a disk; `None` if its requests are not wanted.
    fn number(&mut self, name: &str) -> Result<Option<u32>, String> {
        let number = match self.numbers.get(name) {
            Some(&number) => number,
            None if self.names.len() == DISKS_MAX => {
                return Err(format!("disk {name:?} is one of more than {DISKS_MAX}"));
            }
            None if name.len() > NAME_MAX => {
                return Err(format!("a disk with a name of more than {NAME_MAX} bytes"));
            }
            None => {
                let number = self.names.len() as u32;
                self.names.push(name.to_owned());
                self.numbers.insert(name.to_owned(), number);
                number
            }
        };
        Ok(match &self.wanted {
            None => Some(number),
            Some(wanted) => (wanted == name).then_some(0),
        })
    }
}

/// Returns the record; `None` if it is one of a disk that is not wanted.
fn check(raw: RawRecord<'_>, disks: &mut Disks) -> Result<Option<Record>, String> {
    let len = match u32::try_from(raw.len) {
        Ok(0) => return Err(EMPTY.to_owned()),
        Ok(len) if len <= LARGEST => len,
        _ => {
            return Err(format!(
                "a request of {}, more than 1 GiB",
                bytes_and_count(raw.len)
            ));
        }
    };
    // Linux's offsets are signed: nothing lies beyond 2^63 bytes.
    let end = raw.offset.checked_add(raw.len);
    if end.is_none_or(|end| end > i64::MAX as u64) {
        return Err(format!(
            "the request ends beyond any disk: {} at byte {}",
            bytes_and_count(raw.len),
            raw.offset
        ));
    }
    // Last, so that bad records do not number a disk.
    Ok(disks.number(&raw.disk)?.map(|disk| Record {
        at: raw.at,
        disk,
        op: raw.op,
        fua: raw.fua,
        offset: raw.offset,
        len,
        took: raw.took,
    }))
}
