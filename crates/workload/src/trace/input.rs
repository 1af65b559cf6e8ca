//! A trace's bytes, line by line or record by record, with their places.

use super::Place;
use std::io::{self, BufRead, Read};

/// No line of any format is longer; one that is is bad, and is passed over to its end.
const LONGEST_LINE: u64 = 4096;

/// What there is at a place, or what is wrong with it.
type At<T> = (Place, Result<T, String>);

/// What is read, and how far.
pub(super) struct Input<R> {
    from: R,
    line: Vec<u8>,
    /// Lines or records that were begun.
    count: u64,
}

impl<R: BufRead> Input<R> {
    pub(super) fn new(from: R) -> Input<R> {
        let (line, count) = (Vec::new(), 0);
        Input { from, line, count }
    }

    /// How it begins, as far as it is there at once. Nothing is taken.
    pub(super) fn begin(&mut self) -> io::Result<&[u8]> {
        self.from.fill_buf()
    }

    /// The next line that is not blank, without its end; `None`: there is none.
    pub(super) fn line(&mut self) -> io::Result<Option<At<&str>>> {
        loop {
            self.line.clear();
            let mut bounded = self.from.by_ref().take(LONGEST_LINE);
            if bounded.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            self.count += 1;
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
        let text = text.map_err(|_| "it is not text".to_owned());
        Ok(Some((Place::Line(self.count), text)))
    }

    /// The next record of so many bytes; `None`: there is none.
    pub(super) fn record<const BYTES: usize>(&mut self) -> io::Result<Option<At<[u8; BYTES]>>> {
        let place = Place::Record(self.count + 1, self.count * BYTES as u64);
        let mut record = [0; BYTES];
        let mut filled = 0;
        while filled < BYTES {
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
                let what = format!("it ends after {filled} of {BYTES} bytes");
                Some((place, Err(what)))
            }
            _ => Some((place, Ok(record))),
        })
    }
}
