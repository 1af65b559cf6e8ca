//! Mechanism of a hard disk: arm, platter, and the buffer that they read ahead into.

use super::geometry::{Geometry, Position};
use super::seek::SeekTable;
use super::segments::Segments;

/// Read-ahead in progress: the head reads on into a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ReadAhead {
    segment: usize,
    /// First byte to be read; it passes the head at `since`, which may be in the future.
    from: u64,
    since: u64,
    /// Stream time of `from`.
    stream: u64,
    /// Byte at which the read-ahead stops because the segment is full.
    limit: u64,
}

/// Times of one access to the medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Access {
    /// Time at which the first block begins to pass the head.
    first: u64,
    /// Time at which the last block has passed the head.
    last: u64,
    /// Stream time of the block behind the last one.
    next: u64,
}

/// Times at which the bytes of a read are in the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Buffered {
    /// Time of the first byte.
    pub(super) first: u64,
    /// Time of the last byte; 0 if all bytes were in the buffer before.
    pub(super) last: u64,
}

/// Position at which an access begins.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Target {
    pub(super) cylinder: u64,
    pub(super) head: u64,
    /// Angle in nanoseconds of a revolution.
    pub(super) angle: u32,
}

/// Position of the head and angle of the platter at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HeadState {
    cylinder: u64,
    head: u64,
    angle: u32,
}

/// Arm, platter and read buffer. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Mechanism {
    geometry: Geometry,
    seek: SeekTable,
    head_switch: u64,
    write_settle: u64,
    segments: Segments,
    ahead: Option<ReadAhead>,
    /// Position of the head, unless a read-ahead is in progress.
    cylinder: u64,
    head: u64,
    /// Time at which the last access ends.
    free_at: u64,
    /// Bytes that are read on behind a sequential read before another access begins.
    minimum: u64,
    /// Time until which the head reads on for that.
    reads_on_until: u64,
}

impl Mechanism {
    pub(super) fn new(
        geometry: Geometry,
        seek: SeekTable,
        head_switch: u64,
        write_settle: u64,
        segments: Segments,
        minimum: u64,
    ) -> Mechanism {
        Mechanism {
            geometry,
            seek,
            head_switch,
            write_settle,
            segments,
            ahead: None,
            cylinder: 0,
            head: 0,
            free_at: 0,
            minimum,
            reads_on_until: 0,
        }
    }

    /// Time at which everything that was begun is done.
    pub(super) fn free_at(&self) -> u64 {
        self.free_at
    }

    /// Returns the time until which the head reads on behind a sequential read, whatever waits.
    pub(super) fn reads_on_until(&self) -> u64 {
        self.reads_on_until
    }

    pub(super) fn revolution(&self) -> u64 {
        self.geometry.revolution()
    }

    /// Reads `start..end` for a command decoded at `ready`: from the buffer, from a read-ahead that
    /// has reached it or will reach it, or else from the medium once that is free.
    pub(super) fn read(&mut self, ready: u64, start: u64, end: u64) -> Buffered {
        if let Some(last) = self.serve_from_read_ahead(ready, start, end) {
            // The head is bound to this track until it has passed the last byte.
            self.free_at = self.free_at.max(last);
            return Buffered { first: ready, last };
        }
        let held = self.segments.find(start);
        if let Some(index) = held
            && self.segments.get(index).end >= end
        {
            self.segments.touch(index);
            return Buffered {
                first: ready,
                last: 0,
            };
        }
        let begin = ready.max(self.free_at);
        self.stop_read_ahead(begin);
        let sequential = self.minimum > 0 && (held.is_some() || self.segments.ends_at(start));
        // The beginning may be in the buffer; only the rest is read from the medium.
        let (segment, from) = match held {
            Some(index) => (index, self.segments.get(index).end),
            None => (self.segments.take_over(start), start),
        };
        self.segments.touch(segment);
        let Access { first, last, next } = self.access(begin, from, end, 0);
        self.segments.fill(segment, end, last);
        self.free_at = last;
        // The head is there anyway and the next read is probably sequential, so drives read on.
        self.start_read_ahead(segment, end, next, last);
        if sequential {
            self.read_on(end);
        }
        Buffered {
            first: if from == start { first } else { ready },
            last,
        }
    }

    /// Returns true if all of `start..end` is in the buffer at `ready`. Counts as a use of the
    /// buffer: the head reads on behind a stream that is served from it.
    pub(super) fn hit(&mut self, ready: u64, start: u64, end: u64) -> bool {
        if let Some(ahead) = self.ahead
            && self.read_ahead_range().contains(&start)
        {
            let read = self.read_ahead_progress(&ahead, ready).0 >= end;
            // An earlier command may still be waiting for bytes of this segment.
            let done = self.segments.get(ahead.segment).since <= ready;
            return read && done && self.serve_from_read_ahead(ready, start, end).is_some();
        }
        let Some(index) = self.segments.find(start) else {
            return false;
        };
        let segment = self.segments.get(index);
        let hit = segment.end >= end && segment.since <= ready;
        if hit {
            self.segments.touch(index);
        }
        hit
    }

    /// Writes `start..end` from `ready` on, once the medium is free, and drops it from the read
    /// buffer. Returns the time at which it is on the medium.
    pub(super) fn write(&mut self, ready: u64, start: u64, end: u64) -> u64 {
        let begin = ready.max(self.free_at);
        self.stop_read_ahead(begin);
        self.segments.invalidate(start, end);
        let Access { mut last, .. } = self.access(begin, start, end, self.write_settle);
        let block = self.geometry.block();
        if !start.is_multiple_of(block) || !end.is_multiple_of(block) {
            // A partly covered block is read first and written when it comes round again.
            last += self.geometry.revolution();
        }
        self.free_at = last;
        last
    }

    /// Drops `start..end` from the read buffer and stops a read-ahead that would pass over it.
    pub(super) fn invalidate(&mut self, now: u64, start: u64, end: u64) {
        if let Some(ahead) = self.ahead
            && start < ahead.limit
            && self.segments.get(ahead.segment).start < end
        {
            self.stop_read_ahead(now);
        }
        self.segments.invalidate(start, end);
    }

    /// Returns the position of an access that begins at `start`, as [`Mechanism::positioning_time`]
    /// needs it.
    pub(super) fn target(&self, start: u64) -> Target {
        let place = self.geometry.begin(start);
        Target {
            cylinder: place.cylinder,
            head: place.head,
            angle: self.geometry.angle(place.stream),
        }
    }

    /// Returns the position of head and platter at `now`.
    pub(super) fn head_state(&self, now: u64) -> HeadState {
        let (mut cylinder, mut head) = (self.cylinder, self.head);
        if let Some(ahead) = &self.ahead
            && now > ahead.since
        {
            (_, cylinder, head) = self.read_ahead_progress(ahead, now);
        }
        HeadState {
            cylinder,
            head,
            angle: self.geometry.angle(now),
        }
    }

    /// Returns the time of seek, settling and rotation from `stand` to `target`. A result of `most`
    /// or more is a lower bound only: the caller has a better candidate already.
    pub(super) fn positioning_time(
        &self,
        stand: &HeadState,
        target: &Target,
        write: bool,
        most: u64,
    ) -> u64 {
        let settle = if write { self.write_settle } else { 0 };
        let arm = self.arm_time(
            (stand.cylinder, stand.head),
            (target.cylinder, target.head),
            settle,
        );
        if arm >= most {
            return arm;
        }
        let reached = self.geometry.angle(u64::from(stand.angle) + arm);
        arm + self.geometry.turn(reached, target.angle)
    }

    /// Returns the range of bytes that the read-ahead in progress holds or will read.
    pub(super) fn read_ahead_range(&self) -> core::ops::Range<u64> {
        self.ahead
            .as_ref()
            .map_or(0..0, |a| self.segments.get(a.segment).start..a.limit)
    }

    /// Returns the time from `now` until the read-ahead reaches `start`.
    pub(super) fn read_ahead_wait(&self, now: u64, start: u64) -> u64 {
        let ahead = self.ahead.as_ref();
        ahead.map_or(0, |a| self.read_ahead_end(a, start).saturating_sub(now))
    }

    /// Returns the progress of the read-ahead at `now`: the first byte not read yet, and the
    /// cylinder and head.
    fn read_ahead_progress(&self, ahead: &ReadAhead, now: u64) -> (u64, u64, u64) {
        if now <= ahead.since {
            // The head still waits for the platter where the last access left it.
            return (ahead.from, self.cylinder, self.head);
        }
        let stream = ahead.stream + (now - ahead.since);
        let (byte, cylinder, head) = self.geometry.byte_at(stream);
        if byte < ahead.limit {
            return (byte.max(ahead.from), cylinder, head);
        }
        // The head stays on the last track that it has read.
        let last = self.geometry.begin(ahead.limit - 1);
        (ahead.limit, last.cylinder, last.head)
    }

    /// Returns the time at which the read-ahead has read everything before `end`.
    fn read_ahead_end(&self, ahead: &ReadAhead, end: u64) -> u64 {
        // Everything before it has been read.
        if end <= ahead.from {
            return 0;
        }
        ahead.since + (self.geometry.end(end).0.stream - ahead.stream)
    }

    /// Ends the read-ahead at `now`; what it has read stays in the buffer.
    fn stop_read_ahead(&mut self, now: u64) {
        if let Some(ahead) = self.ahead.take() {
            let (end, cylinder, head) = self.read_ahead_progress(&ahead, now);
            self.segments.fill(ahead.segment, end, 0);
            (self.cylinder, self.head) = (cylinder, head);
        }
    }

    /// Starts a read-ahead at `from`, which is at time `stream` of the stream; the head is there at
    /// `now`.
    fn start_read_ahead(&mut self, segment: usize, from: u64, stream: u64, now: u64) {
        let limit = (from + self.segments.size()).min(self.geometry.capacity());
        if from < limit {
            let since = self.geometry.next_pass(now, stream);
            self.ahead = Some(ReadAhead {
                segment,
                from,
                since,
                stream,
                limit,
            });
        }
    }

    /// Binds the head until it has read `minimum` bytes behind `end`.
    fn read_on(&mut self, end: u64) {
        if let Some(ahead) = self.ahead {
            let until = (end + self.minimum).min(ahead.limit);
            self.reads_on_until = self.read_ahead_end(&ahead, until);
            self.free_at = self.free_at.max(self.reads_on_until);
        }
    }

    /// Returns the time of moving from one cylinder and head to another, plus `settle` if anything
    /// changes. Heads are switched while the arm moves.
    fn arm_time(&self, from: (u64, u64), to: (u64, u64), settle: u64) -> u64 {
        let other_head = u64::from(to.1 != from.1);
        let arm = self.seek.time(to.0.abs_diff(from.0));
        let arm = arm.max(other_head * self.head_switch);
        let moves = u64::from(to != from);
        arm + moves * settle
    }

    /// Moves the arm to `start` from `now` on and passes over everything up to `end`.
    fn access(&mut self, now: u64, start: u64, end: u64, settle: u64) -> Access {
        let start = self.geometry.begin(start);
        let (end, next) = self.geometry.end(end);
        let place = |p: &Position| (p.cylinder, p.head);
        let arm = self.arm_time((self.cylinder, self.head), place(&start), settle);
        let first = self.geometry.next_pass(now + arm, start.stream);
        (self.cylinder, self.head) = place(&end);
        Access {
            first,
            last: first + (end.stream - start.stream),
            next,
        }
    }

    /// Serves a read from the read-ahead in progress if it begins in what that has read or will
    /// read. Returns the time at which its last byte is read.
    fn serve_from_read_ahead(&mut self, ready: u64, start: u64, end: u64) -> Option<u64> {
        let ahead = self.ahead?;
        let elsewhere =
            |segments: &Segments| start < segments.get(ahead.segment).start || start >= ahead.limit;
        if elsewhere(&self.segments) {
            return None;
        }
        let (reached, ..) = self.read_ahead_progress(&ahead, ready);
        self.segments.fill(ahead.segment, reached, 0);
        // Filling the segment may have dropped its oldest bytes.
        if elsewhere(&self.segments) {
            return None;
        }
        self.segments.touch(ahead.segment);
        let limit = (end + self.segments.size())
            .min(self.geometry.capacity())
            .max(ahead.limit);
        let stopped = self.read_ahead_end(&ahead, ahead.limit);
        let ahead = if limit > ahead.limit && stopped < ready {
            // The read-ahead had stopped at a full segment. The read makes room, so the head goes
            // on when that position comes round again.
            let last = self.geometry.begin(ahead.limit - 1);
            (self.cylinder, self.head) = (last.cylinder, last.head);
            let stream = self.geometry.begin(ahead.limit).stream;
            let since = self.geometry.next_pass(ready, stream);
            ReadAhead {
                from: ahead.limit,
                since,
                stream,
                limit,
                ..ahead
            }
        } else {
            ReadAhead { limit, ..ahead }
        };
        self.ahead = Some(ahead);
        Some(self.read_ahead_end(&ahead, end))
    }
}
