//! Parts and scalings of traces, request by request.

use super::{LARGEST, Record, SECTOR};
use crate::factor::Factor;
use tidegate_core::random::mix;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// Part of a trace that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cut {
    /// Time from which requests are kept, counted from the first request.
    pub from: Nanos,
    /// Time before which requests are kept; `None`: to the end.
    pub to: Option<Nanos>,
    /// The only operation that is kept; `None`: all.
    pub op: Option<Op>,
}

impl Cut {
    /// Returns true if a request that comes `after` the first one is kept.
    pub fn keeps(&self, after: Nanos, record: &Record) -> bool {
        let in_time = after >= self.from && !self.is_over(after);
        in_time && self.op.is_none_or(|op| op == record.op)
    }

    /// Returns true if no request is kept from this time on.
    pub fn is_over(&self, after: Nanos) -> bool {
        self.to.is_some_and(|to| after >= to)
    }
}

/// Requests of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SampleBy {
    /// Every request by itself: `keep` of each `of` successive ones, evenly.
    Request,
    /// Regions of so many bytes: all requests that begin in a kept region, so that locality and
    /// reuse stay as they are. Regions are chosen by a hash; Waldspurger et al., "Efficient MRC
    /// Construction with SHARDS", FAST 2015.
    Region(u64),
}

/// Sample of a trace: `keep` of `of`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    keep: u64,
    of: u64,
    by: SampleBy,
}

impl Sample {
    /// Creates a sample of `keep` in `of`.
    ///
    /// # Panics
    /// If `keep` is 0 or more than `of`, or a region has no bytes.
    pub fn new(keep: u32, of: u32, by: SampleBy) -> Sample {
        assert!(keep > 0 && keep <= of, "{keep} of {of}");
        assert!(by != SampleBy::Region(0), "a region of no bytes");
        let (keep, of) = (keep.into(), of.into());
        Sample { keep, of, by }
    }

    /// Returns true if request `index` of the trace is in the sample.
    fn has(&self, index: u64, record: &Record) -> bool {
        let at = match self.by {
            // Both are below 2^32, so that the product is below 2^64.
            SampleBy::Request => return (index % self.of) * self.keep % self.of < self.keep,
            SampleBy::Region(bytes) => mix(mix(record.offset / bytes) ^ u64::from(record.disk)),
        };
        // The high bits, which are evenly distributed for every divisor.
        (u128::from(at) * u128::from(self.of)) >> 64 < u128::from(self.keep)
    }
}

/// Change of a trace's times, sizes and number of requests.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Factor of the times from the first request on.
    pub time: Factor,
    /// Factor of addresses and lengths, which are extended to whole sectors.
    pub size: Factor,
    /// Sample; `None`: all requests.
    pub sample: Option<Sample>,
    first: Option<Nanos>,
    index: u64,
}

impl Scale {
    /// Creates a change.
    pub fn new(time: Factor, size: Factor, sample: Option<Sample>) -> Scale {
        Scale {
            time,
            size,
            sample,
            first: None,
            index: 0,
        }
    }

    /// Returns the changed request; `None` if it is not in the sample.
    ///
    /// # Errors
    /// If the request becomes larger than any request, or lies beyond any disk.
    pub fn apply(&mut self, record: &Record) -> Result<Option<Record>, String> {
        let first = *self.first.get_or_insert(record.at);
        let index = self.index;
        self.index += 1;
        if !self.sample.is_none_or(|sample| sample.has(index, record)) {
            return Ok(None);
        }
        let after = self.time.mul_floor(record.at.since(first).0);
        let mut changed = *record;
        changed.at = Nanos(first.0.saturating_add(after));
        if self.size == Factor::ONE {
            return Ok(Some(changed));
        }
        let offset = self.size.mul_floor(record.offset) / SECTOR * SECTOR;
        let len = self.size.mul_ceil(record.len.into());
        let len = len.checked_next_multiple_of(SECTOR);
        let len = len.and_then(|len| u32::try_from(len).ok());
        let Some(len) = len.filter(|&len| len <= LARGEST) else {
            return Err("multiplied, the request is larger than 1 GiB".to_owned());
        };
        let end = offset.checked_add(len.into());
        if end.is_none_or(|end| end > i64::MAX as u64) {
            return Err("multiplied, the request ends beyond any disk".to_owned());
        }
        (changed.offset, changed.len) = (offset, len);
        Ok(Some(changed))
    }
}
