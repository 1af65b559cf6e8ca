//! Reading ahead for streams.
//!
//! A read that begins where an earlier one has ended continues its stream. The drive then reads
//! the pages that follow, so that the next read finds them in memory, or on their way.

/// Pages read ahead at most.
pub(super) const MOST: usize = 256;

#[derive(Clone, Debug)]
struct Stream {
    /// The byte after the last one read.
    next: u64,
    /// The first page not read ahead, and the first that is still held.
    until: u32,
    from: u32,
    /// When each page held is in memory, by its number modulo `MOST`.
    ready: Box<[u64]>,
    used: u64,
}

/// The streams a drive follows.
#[derive(Clone, Debug)]
pub(super) struct Prefetch {
    streams: Box<[Stream]>,
    /// Bytes read ahead.
    pub(super) ahead: u64,
    uses: u64,
}

impl Prefetch {
    pub(super) fn new(ahead: u64, streams: u32) -> Prefetch {
        let stream = Stream {
            next: u64::MAX,
            until: 0,
            from: 0,
            ready: vec![0; MOST].into(),
            used: 0,
        };
        Prefetch {
            streams: vec![stream; streams as usize].into(),
            ahead,
            uses: 0,
        }
    }

    /// The stream that a read of `start..end` continues; it or a new one goes on at `end`.
    /// Whether it continues one is the second of the pair.
    pub(super) fn follow(&mut self, start: u64, end: u64) -> (usize, bool) {
        self.uses += 1;
        let known = self.streams.iter().position(|s| s.next == start);
        let index = known.unwrap_or_else(|| {
            let streams = self.streams.iter().enumerate();
            let oldest = streams.min_by_key(|(_, s)| s.used);
            oldest.map_or(0, |(index, _)| index)
        });
        let stream = &mut self.streams[index];
        if known.is_none() {
            (stream.from, stream.until) = (0, 0);
        }
        stream.next = end;
        stream.used = self.uses;
        (index, known.is_some())
    }

    /// When a page of the stream is in memory; `None` if it was not read ahead.
    pub(super) fn ready(&self, index: usize, page: u32) -> Option<u64> {
        let stream = &self.streams[index];
        let held = (stream.from..stream.until).contains(&page);
        held.then(|| stream.ready[page as usize % MOST])
    }

    /// The pages that are still to be read ahead, up to `end`. What lies before `from` is no
    /// longer held.
    pub(super) fn missing(&mut self, index: usize, from: u32, end: u32) -> core::ops::Range<u32> {
        let stream = &mut self.streams[index];
        stream.from = from;
        stream.until.max(from)..end.min(from + MOST as u32)
    }

    /// A page is read ahead and in memory at `at`.
    pub(super) fn keep(&mut self, index: usize, page: u32, at: u64) {
        let stream = &mut self.streams[index];
        stream.ready[page as usize % MOST] = at;
        stream.until = page + 1;
    }

    /// Pages that are written are no longer held.
    pub(super) fn forget(&mut self, first: u32, last: u32) {
        for s in &mut self.streams {
            if s.from <= last && first < s.until {
                (s.from, s.until) = (0, 0);
            }
        }
    }
}
