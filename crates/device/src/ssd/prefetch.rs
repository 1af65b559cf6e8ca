//! Prefetch of a flash disk for sequential streams.
//!
//! A read that begins where an earlier one ended continues its stream. The drive then reads the
//! following pages, so that the next read finds them in its memory or in progress.

/// Maximum number of pages read ahead of a stream.
pub(super) const MAX_PAGES: usize = 256;

#[derive(Clone, Debug)]
struct Stream {
    /// Address behind the last byte read.
    next: u64,
    /// First prefetched page that is still held.
    from: u32,
    /// Page behind the last prefetched one; equal to `from` if none is held.
    until: u32,
    /// Time at which each held page is in memory, indexed by page number modulo `MAX_PAGES`.
    ready: Box<[u64]>,
    /// Value of [`Prefetch::clock`] at the last read.
    last_use: u64,
}

/// Streams that a drive follows.
#[derive(Clone, Debug)]
pub(super) struct Prefetch {
    streams: Box<[Stream]>,
    /// Bytes to be read ahead of a stream.
    pub(super) ahead: u64,
    /// Number of reads so far: orders the streams by their last use.
    clock: u64,
}

impl Prefetch {
    pub(super) fn new(ahead: u64, streams: u32) -> Prefetch {
        let stream = Stream {
            // No read begins there, so no stream is continued before it exists.
            next: u64::MAX,
            from: 0,
            until: 0,
            ready: vec![0; MAX_PAGES].into(),
            last_use: 0,
        };
        Prefetch {
            streams: vec![stream; streams as usize].into(),
            ahead,
            clock: 0,
        }
    }

    /// Finds the stream that a read of `start..end` continues, or replaces the least recently used
    /// one, and records `end`. Returns its index and whether the read continues it.
    pub(super) fn follow(&mut self, start: u64, end: u64) -> (usize, bool) {
        self.clock += 1;
        let known = self.streams.iter().position(|s| s.next == start);
        let index = known.unwrap_or_else(|| {
            let streams = self.streams.iter().enumerate();
            let oldest = streams.min_by_key(|(_, s)| s.last_use);
            oldest.map_or(0, |(index, _)| index)
        });
        let stream = &mut self.streams[index];
        // A stream that replaces another has nothing read ahead.
        if known.is_none() {
            (stream.from, stream.until) = (0, 0);
        }
        stream.next = end;
        stream.last_use = self.clock;
        (index, known.is_some())
    }

    /// Returns the time at which a page of a stream is in memory; `None` if it was not read ahead.
    pub(super) fn ready(&self, index: usize, page: u32) -> Option<u64> {
        let stream = &self.streams[index];
        let held = (stream.from..stream.until).contains(&page);
        held.then(|| stream.ready[page as usize % MAX_PAGES])
    }

    /// Drops the pages before `from`, and returns the pages up to `end` that are still to be read
    /// ahead.
    pub(super) fn advance(&mut self, index: usize, from: u32, end: u32) -> core::ops::Range<u32> {
        let stream = &mut self.streams[index];
        stream.from = from;
        stream.until.max(from)..end.min(from + MAX_PAGES as u32)
    }

    /// Records that a page was read ahead and is in memory at `at`.
    pub(super) fn record_ready(&mut self, index: usize, page: u32, at: u64) {
        let stream = &mut self.streams[index];
        stream.ready[page as usize % MAX_PAGES] = at;
        stream.until = page + 1;
    }

    /// Drops streams' prefetched pages if one of `first..=last` is among them, because it is
    /// written.
    pub(super) fn drop_pages(&mut self, first: u32, last: u32) {
        for s in &mut self.streams {
            if s.from <= last && first < s.until {
                (s.from, s.until) = (0, 0);
            }
        }
    }
}
