//! Sequential streams that a controller recognises among the reads, and how far it reads ahead.

use super::figures::ReadAheadFigures;

/// Number of reads that continue a stream before it is read ahead: the third read in a row is the
/// first that is followed.
const CONTINUED_READS: u32 = 2;

/// Sequence of reads, each near the end of the one before.
#[derive(Clone, Copy, Default, Debug)]
struct Stream {
    /// End of the furthest read.
    next: u64,
    /// Address up to which data is here or on its way.
    ahead: u64,
    /// Number of reads that continued it.
    continued: u32,
    /// Number of the read that used it last; 0: never used.
    used: u64,
}

/// Table of streams.
#[derive(Debug)]
pub(super) struct Streams {
    figures: ReadAheadFigures,
    table: Box<[Stream]>,
    reads: u64,
}

impl Streams {
    pub(super) fn new(figures: &ReadAheadFigures) -> Streams {
        Streams {
            figures: *figures,
            table: vec![Stream::default(); figures.streams as usize].into(),
            reads: 0,
        }
    }

    /// Finds the stream that the read `start..end` continues, or begins one in place of the one
    /// used longest ago. Returns the stream's index if it is read ahead.
    ///
    /// A read continues a stream if it begins within a prefetch I/O of its end, on either side,
    /// since commands of a queue may have been reordered, and ends beyond it.
    pub(super) fn read(&mut self, start: u64, end: u64) -> Option<usize> {
        self.reads += 1;
        let slack = self.figures.io.0;
        let (mut oldest, mut found) = (0, None);
        for (index, stream) in self.table.iter().enumerate() {
            if stream.used > 0 && start.abs_diff(stream.next) <= slack && end + slack > stream.next
            {
                found = Some(index);
                break;
            }
            if stream.used < self.table[oldest].used {
                oldest = index;
            }
        }
        let Some(index) = found else {
            self.table[oldest] = Stream {
                next: end,
                ahead: end,
                continued: 0,
                used: self.reads,
            };
            return None;
        };
        let stream = &mut self.table[index];
        stream.used = self.reads;
        // Reading the same data again is no progress, so a popular block is no stream.
        if end > stream.next {
            stream.next = end;
            stream.ahead = stream.ahead.max(end);
            stream.continued = stream.continued.saturating_add(1);
        }
        (stream.continued >= CONTINUED_READS).then_some(index)
    }

    /// Returns the next piece to prefetch for a stream: up to the next multiple of the prefetch
    /// I/O. `None` if enough is prefetched.
    pub(super) fn next_prefetch(&self, index: usize, capacity: u64) -> Option<(u64, u64)> {
        let (stream, io) = (&self.table[index], self.figures.io.0);
        let goal = (stream.next + self.figures.distance.0).min(capacity);
        if stream.ahead >= goal {
            return None;
        }
        let end = (stream.ahead / io + 1) * io;
        Some((stream.ahead, end.min(capacity)))
    }

    /// Notes that a stream's data up to `end` is here or on its way.
    pub(super) fn set_ahead(&mut self, index: usize, end: u64) {
        self.table[index].ahead = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_units::Bytes;

    /// Table of `count` streams, read ahead by 40 bytes in prefetch I/Os of 20 bytes.
    fn streams(count: u32) -> Streams {
        Streams::new(&ReadAheadFigures {
            distance: Bytes(40),
            io: Bytes(20),
            streams: count,
        })
    }

    #[test]
    fn the_third_read_in_a_row_is_read_ahead_up_to_the_distance() {
        let mut s = streams(2);
        assert_eq!(s.read(100, 110), None);
        assert_eq!(s.read(110, 120), None);
        let stream = s.read(120, 130).expect("a stream");
        assert_eq!(s.next_prefetch(stream, 1000), Some((130, 140)));
        s.set_ahead(stream, 140);
        assert_eq!(s.next_prefetch(stream, 1000), Some((140, 160)));
        s.set_ahead(stream, 160);
        assert_eq!(s.next_prefetch(stream, 1000), Some((160, 180)));
        s.set_ahead(stream, 180);
        // 40 beyond 130 are 170.
        assert_eq!(s.next_prefetch(stream, 1000), None);
        assert_eq!(s.read(130, 141), Some(stream));
        assert_eq!(s.next_prefetch(stream, 1000), Some((180, 200)));
        assert_eq!(s.next_prefetch(stream, 190), Some((180, 190)));
    }

    #[test]
    fn the_same_block_again_and_distant_ones_are_no_stream() {
        let mut s = streams(2);
        for _ in 0..10 {
            assert_eq!(s.read(100, 110), None);
        }
        for start in (1..10).map(|n| n * 1000) {
            assert_eq!(s.read(start, start + 10), None);
        }
    }

    #[test]
    fn streams_are_told_apart_and_the_one_used_longest_ago_is_forgotten() {
        let mut s = streams(2);
        for step in 0..3 {
            for base in [0, 1000] {
                let start = base + step * 10;
                let ahead = s.read(start, start + 10);
                assert_eq!(ahead.is_some(), step == 2, "{base}, {step}");
            }
        }
        assert_eq!(s.read(5000, 5010), None);
        assert_eq!(s.read(30, 40), None, "replaced by the stream at 5000");
        // Reordered reads belong to their stream all the same.
        assert!(s.read(50, 60).is_none() && s.read(40, 50).is_none());
        assert!(s.read(60, 70).is_some());
    }
}
