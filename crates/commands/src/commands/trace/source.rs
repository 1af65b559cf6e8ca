//! Trace files as commands open them: with progress, and with errors that name the file.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use anyhow::Result;
use tidegate_units::human::bytes;
use tidegate_workload::trace::{self, Reader, Trace, TraceError};

use crate::args::TraceReadArgs;
use crate::problem::Problem;
use crate::progress::DelayedBar;

/// Bytes read from a file at once.
const BUFFER: usize = 1 << 20;

/// Reader of an open trace file.
pub(super) type FileReader = Reader<BufReader<Counted>>;

/// File that counts what was read of it, and shows that as progress.
pub(super) struct Counted {
    file: File,
    read: u64,
    bar: DelayedBar,
}

impl Counted {
    fn open(path: &Path) -> Result<Counted> {
        let file = File::open(path)
            .map_err(|error| Problem::new(format!("cannot read {}: {error}", path.display())))?;
        // A pipe has no size; its bar stays empty.
        let size = file.metadata().map_or(0, |found| found.len());
        Ok(Counted {
            file,
            read: 0,
            bar: DelayedBar::new(size, "reading"),
        })
    }
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.read += read as u64;
        let sum = self.read;
        self.bar.set(sum, || bytes(sum));
        Ok(read)
    }
}

/// Opens a trace to be read request by request.
pub(super) fn open(file: &Path, args: &TraceReadArgs) -> Result<FileReader> {
    let input = BufReader::with_capacity(BUFFER, Counted::open(file)?);
    Reader::new(input, &args.options()).map_err(|error| problem(file, error))
}

/// Reads a whole trace.
pub(super) fn whole(file: &Path, args: &TraceReadArgs) -> Result<Trace> {
    let input = BufReader::with_capacity(BUFFER, Counted::open(file)?);
    trace::read(input, &args.options()).map_err(|error| problem(file, error))
}

/// Returns the error of a trace with its place, and what would be right.
pub(super) fn problem(file: &Path, error: TraceError) -> anyhow::Error {
    let name = file.display();
    let problem = match error {
        TraceError::Bad(bad) => Problem::new(format!("{name}: {}", bad.what))
            .at(bad.place.to_string())
            .help(format!(
                "a record has: {}; --skip-bad skips invalid records",
                bad.right
            )),
        TraceError::Unknown => Problem::new(format!("{name}: {error}"))
            .help("give its format with --format; see `tidegate trace info --help`"),
        TraceError::Empty {
            first: Some(bad),
            skipped,
        } => {
            let what = format!(
                "{name}: no valid requests, all {skipped} records are invalid: {}",
                bad.what
            );
            Problem::new(what)
                .at(bad.place.to_string())
                .help(format!("a record has: {}", bad.right))
        }
        error => Problem::new(format!("{name}: {error}")),
    };
    problem.into()
}
