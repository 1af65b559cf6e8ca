//! Requests of a trace in the order of their times, with bounded memory.

use super::{Place, Reader, Record, Tally, TraceError};
use std::collections::BTreeMap;
use std::io::BufRead;
use tidegate_core::time::Nanos;

/// Number of requests that are held to be sorted.
pub(super) const WINDOW: usize = 1 << 18;

/// Reader of a trace that returns requests in the order of their times; those of equal times in the
/// order of the input. A request may be up to 262,144 requests behind its place.
#[derive(Debug)]
pub struct InOrder<R> {
    reader: Reader<R>,
    /// Requests held, by their times and numbers.
    held: BTreeMap<(Nanos, u64), (Record, Place)>,
    window: usize,
    read: u64,
    last: Nanos,
    place: Place,
    ended: bool,
}

impl<R: BufRead> InOrder<R> {
    /// Creates the reader.
    pub fn new(reader: Reader<R>) -> InOrder<R> {
        InOrder::with_window(reader, WINDOW)
    }

    pub(super) fn with_window(reader: Reader<R>, window: usize) -> InOrder<R> {
        InOrder {
            place: reader.place(),
            reader,
            held: BTreeMap::new(),
            window,
            read: 0,
            last: Nanos::ZERO,
            ended: false,
        }
    }

    /// Returns the next request; `None` at the end of the input.
    ///
    /// # Errors
    /// Those of [`Reader::next`], and if a request is too far behind its place.
    #[expect(
        clippy::should_implement_trait,
        reason = "as of the reader: the iterator's items would be three layers deep"
    )]
    pub fn next(&mut self) -> Result<Option<Record>, TraceError> {
        while !self.ended && self.held.len() < self.window {
            match self.reader.next()? {
                Some(record) => {
                    let key = (record.at, self.read);
                    self.held.insert(key, (record, self.reader.place()));
                    self.read += 1;
                }
                None => self.ended = true,
            }
        }
        let Some(((at, _), (record, place))) = self.held.pop_first() else {
            return Ok(None);
        };
        if at < self.last {
            let by = self.last.since(at);
            return Err(TraceError::TooLate { place, by });
        }
        (self.last, self.place) = (at, place);
        Ok(Some(record))
    }

    /// Returns the reader behind it.
    pub fn reader(&self) -> &Reader<R> {
        &self.reader
    }

    /// Returns the place of the request that was returned last.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns the counts and the names of the disks.
    ///
    /// # Errors
    /// If there was no request.
    pub fn finish(self) -> Result<(Tally, Vec<String>), TraceError> {
        self.reader.finish()
    }
}
