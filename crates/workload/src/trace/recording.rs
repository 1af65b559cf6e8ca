//! Recordings of Tidegate: every request of a device with its times, as `tidegate record` and
//! `tidegate sim --record` write them. Requests are in the order in which they ended.

use super::raw::{Parsed, RawRecord};
use super::{Op, Took};
use std::borrow::Cow;
use std::io::{self, Read};
use tidegate_recording::{GapCause, Item, MAGIC, ReadError, Reader, VmFacts};

pub(super) const RIGHT: &str = "a request of a recording of Tidegate, without gaps before it";

/// Returns true if a trace begins as a recording.
pub(super) fn begins(begin: &[u8]) -> bool {
    begin.starts_with(&MAGIC)
}

/// Requests of a recording.
#[derive(Debug)]
pub(super) struct Requests<R> {
    reader: Reader<R>,
    /// Number of requests and gaps so far.
    count: u64,
}

impl<R: Read> Requests<R> {
    /// Reads the beginning of a recording.
    pub(super) fn new(from: R) -> io::Result<Requests<R>> {
        let reader = Reader::new(from).map_err(as_io)?;
        Ok(Requests { reader, count: 0 })
    }

    /// Returns the number of requests and gaps so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the next request, or the gap in its place; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Result<Parsed<'_>, String>>> {
        let request = loop {
            match self.reader.next_item().map_err(as_io)? {
                None => return Ok(None),
                Some(Item::Change(..)) => {}
                Some(Item::Gap(gap)) => {
                    self.count += 1;
                    let requests = gap.requests.map_or("some".to_owned(), |it| it.to_string());
                    return Ok(Some(Err(match gap.cause {
                        GapCause::Dropped => format!("{requests} requests were not recorded"),
                        GapCause::Damaged => format!("{requests} requests are damaged"),
                        GapCause::Off => "recording was off".to_owned(),
                    })));
                }
                Some(Item::Request(request)) => break request,
            }
        };
        self.count += 1;
        let op = match request.op {
            // Zeroes move no bytes, like flushes.
            Op::Flush | Op::WriteZeroes => return Ok(Some(Ok(Parsed::Other))),
            op => op,
        };
        let vm = self.reader.vm_of_disk(request.disk);
        Ok(Some(Ok(Parsed::Request(RawRecord {
            at: request.arrived,
            disk: disk_name(vm, request.disk),
            op,
            fua: request.fua,
            offset: request.offset,
            len: request.len.into(),
            took: Took::new(request.latency()),
        }))))
    }
}

/// Returns the name of a disk: its VM's, with its own where that is another one.
fn disk_name(vm: Option<&VmFacts>, number: u32) -> Cow<'_, str> {
    let Some(vm) = vm else {
        return format!("disk {number}").into();
    };
    match vm.disks.iter().find(|disk| disk.number == number) {
        Some(disk) if disk.name != vm.name => format!("{}/{}", vm.name, disk.name).into(),
        _ => Cow::Borrowed(&vm.name),
    }
}

fn as_io(error: ReadError) -> io::Error {
    match error {
        ReadError::Io(error) => error,
        other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
    }
}
