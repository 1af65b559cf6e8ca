//! Input of traces, line by line or record by record, with places for messages.

use super::Place;
use std::io::{self, BufRead, Read};

/// Maximum length of a line in bytes, above that of any format. A longer one is bad and skipped.
const LONGEST_LINE: u64 = 4096;

/// Line or record with its place, or the mistake at that place.
type Located<T> = (Place, Result<T, String>);

/// Reader with its position.
#[derive(Debug)]
pub(super) struct Input<R> {
    from: R,
    line: Vec<u8>,
    /// Number of lines or records that were begun.
    count: u64,
}

impl<R: BufRead> Input<R> {
    pub(super) fn new(from: R) -> Input<R> {
        let (line, count) = (Vec::new(), 0);
        Input { from, line, count }
    }

    /// Returns the input from its beginning on, if nothing was read.
    pub(super) fn into_inner(self) -> R {
        self.from
    }

    /// Returns the beginning of the input as far as it is buffered, without consuming it.
    pub(super) fn begin(&mut self) -> io::Result<&[u8]> {
        self.from.fill_buf()
    }

    /// Reads the next line that is not blank, without its end; `None` at the end of the input.
    pub(super) fn line(&mut self) -> io::Result<Option<Located<&str>>> {
        loop {
            self.line.clear();
            // The bound keeps a file without line ends from filling memory.
            let mut bounded = self.from.by_ref().take(LONGEST_LINE);
            if bounded.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            self.count += 1;
            // The rest of the line is passed over, so that the next line is read as one.
            if self.line.len() as u64 == LONGEST_LINE && !self.line.ends_with(b"\n") {
                self.from.skip_until(b'\n')?;
                let what = format!("a line of more than {LONGEST_LINE} bytes");
                return Ok(Some((Place::Line(self.count), Err(what))));
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        let text = std::str::from_utf8(self.line.trim_ascii());
        let text = text.map_err(|_| "not UTF-8 text".to_owned());
        Ok(Some((Place::Line(self.count), text)))
    }

    /// Reads the next record of `BYTES` bytes; `None` at the end of the input.
    pub(super) fn record<const BYTES: usize>(
        &mut self,
    ) -> io::Result<Option<Located<[u8; BYTES]>>> {
        // Records count from 1, bytes from 0.
        let place = Place::Record(self.count + 1, self.count * BYTES as u64);
        let mut record = [0; BYTES];
        let mut filled = 0;
        while filled < BYTES {
            // Not `read_exact`, which does not say how much of a cut-off record was there.
            match self.from.read(&mut record[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.count += 1;
        Ok(match filled {
            0 => None,
            filled if filled < BYTES => {
                let what = format!("cut off after {filled} of {BYTES} bytes");
                Some((place, Err(what)))
            }
            _ => Some((place, Ok(record))),
        })
    }
}
