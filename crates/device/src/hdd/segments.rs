//! Segments of a hard disk's read buffer, and the bytes that each holds.

/// Range of the disk's bytes that a segment holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Segment {
    /// First byte held.
    pub(super) start: u64,
    /// End of the range (exclusive); `start` if the segment is empty.
    pub(super) end: u64,
    /// Time in nanoseconds at which the last byte that a command asked for was or will be read.
    pub(super) since: u64,
    /// Sequence number of the last use; larger is more recent.
    used: u64,
}

/// Fixed number of segments of equal size, reused in least recently used order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Segments {
    segments: Box<[Segment]>,
    /// Capacity of a segment in bytes.
    size: u64,
    uses: u64,
}

impl Segments {
    pub(super) fn new(count: u32, size: u64) -> Segments {
        Segments {
            segments: vec![Segment::default(); count as usize].into(),
            size,
            uses: 0,
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn get(&self, index: usize) -> Segment {
        self.segments[index]
    }

    /// Returns the segment that holds `byte`.
    pub(super) fn find(&self, byte: u64) -> Option<usize> {
        // One comparison that is seldom true; two would each be a branch that is mispredicted.
        self.segments
            .iter()
            .position(|s| byte.wrapping_sub(s.start) < s.end - s.start)
    }

    /// Returns true if a segment's content ends right before `byte`, so that a read there continues
    /// a stream.
    pub(super) fn ends_at(&self, byte: u64) -> bool {
        self.segments
            .iter()
            .any(|s| s.end == byte && s.start < byte)
    }

    /// Marks a segment as the most recently used.
    pub(super) fn touch(&mut self, index: usize) {
        self.uses += 1;
        self.segments[index].used = self.uses;
    }

    /// Empties the least recently used segment, starts it at `byte` and returns its index.
    pub(super) fn take_over(&mut self, byte: u64) -> usize {
        let (index, segment) = self
            .segments
            .iter_mut()
            .enumerate()
            .min_by_key(|(_, s)| s.used)
            .expect("a drive has at least one segment");
        (segment.start, segment.end, segment.since) = (byte, byte, 0);
        self.touch(index);
        index
    }

    /// Records that everything up to `end` is in the segment at time `at`; what exceeds the
    /// segment's capacity is dropped from its beginning.
    pub(super) fn fill(&mut self, index: usize, end: u64, at: u64) {
        let segment = &mut self.segments[index];
        // Times may come out of order: a read-ahead reports 0 for bytes that no command asked for.
        segment.since = segment.since.max(at);
        segment.end = segment.end.max(end);
        segment.start = segment.start.max(segment.end.saturating_sub(self.size));
    }

    /// Drops every segment that holds a byte of `start..end`, because the medium changes.
    pub(super) fn invalidate(&mut self, start: u64, end: u64) {
        for segment in &mut self.segments {
            if segment.start < end && start < segment.end {
                *segment = Segment::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_latest_bytes_and_the_latest_segments() {
        let mut s = Segments::new(2, 100);
        let a = s.take_over(1_000);
        s.fill(a, 1_150, 0);
        assert_eq!(
            (s.find(1_049), s.find(1_050), s.find(1_150)),
            (None, Some(a), None)
        );
        let b = s.take_over(5_000);
        s.fill(b, 5_010, 0);
        s.touch(a);
        assert_eq!(s.take_over(9_000), b);
        s.invalidate(1_149, 1_200);
        assert_eq!(s.find(1_100), None);
    }
}
