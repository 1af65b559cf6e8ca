//! A hard disk: one arm, one spindle, a buffer that reads on, served in order of arrival.
//!
//! ```text
//!   submit -> [controller: overhead] -> buffer hit ------------------> [interface] -> done
//!                                    -> [seek] [rotation] [medium] --> [interface] -> done (read)
//!                                                                      done (write)
//! ```
//!
//! - **Position is a function of time.** The platter turns whether anybody looks or not: the
//!   angle is the time modulo a revolution. The arm is where the last access, or the read-ahead
//!   since, has left it.
//! - **Everything is settled at submission**, because commands are served in order of arrival:
//!   each stage (controller, mechanism, interface) begins a command when the command is there
//!   and the stage is done with the one before. So the controller's overhead hides behind the
//!   mechanism at queue depths above one.
//! - **Read-ahead.** After a read from the medium the head reads on into the segment until it
//!   is a segment size beyond what the host has asked for. A read of what is there is served at
//!   interface speed, a read of what is on its way waits for the head. Any other access to the
//!   medium stops it; what has been read stays until its segment is taken over.
//! - **Writes go through** to the medium before they complete, FUA or not: the write cache is
//!   off. Settling for a write takes longer by a figure. A write that covers a physical block in
//!   part reads it first and writes it a revolution later.
//! - **Flush** costs the controller's overhead only, as there is no write cache to empty, and
//!   ends after everything before it. **Discard** costs the overhead only. **Write-zeroes** is a
//!   write without data on the interface.

mod cache;
mod figures;
mod geometry;
mod seek;

pub use figures::{FigureError, HddFigures, ReadAheadFigures, SeekFigures};
pub use seek::{AverageOutOfRange, SeekCurve};

use crate::model::{Completion, Model, ModelIo, Spec};
use cache::Segments;
use geometry::{Geometry, Layout};
use std::collections::VecDeque;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// The head reads on into a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ahead {
    segment: usize,
    /// This byte passes the head at `since`, which may lie ahead.
    from: u64,
    since: u64,
    /// The time of `from` in the stream.
    stream: u64,
    /// Where it stops: the segment is full.
    limit: u64,
}

/// What passed under the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Access {
    /// When the first block began to pass.
    first: u64,
    /// When the last block had passed.
    last: u64,
    /// The time of the block after it in the stream.
    next: u64,
}

/// A hard disk with the write cache off. Times inside are nanoseconds in a plain `u64`.
#[derive(Clone, Debug)]
pub struct Hdd {
    spec: Spec,
    geometry: Geometry,
    seek: SeekCurve,
    overhead: u64,
    write_settle: u64,
    /// Bytes a second.
    interface_rate: u64,

    segments: Segments,
    ahead: Option<Ahead>,
    /// The track of the head, unless it reads ahead.
    track: u64,
    controller_free: u64,
    mechanism_free: u64,
    interface_free: u64,
    last_submit: Nanos,
    last_end: u64,
    done: VecDeque<Completion>,
}

impl Hdd {
    /// Builds a drive named `name`: arm on the outermost track, buffer empty, time at zero.
    ///
    /// # Errors
    /// When a figure is out of range or contradicts another.
    pub fn new(name: &str, figures: &HddFigures) -> Result<Hdd, FigureError> {
        figures.check()?;
        let geometry = Geometry::new(&layout(figures)).ok_or_else(|| FigureError {
            field: "hdd.inner_rate",
            found: figures.inner_rate.to_string(),
            allowed: "at least a physical block per revolution".into(),
        })?;
        if geometry.tracks() < 16 {
            return Err(FigureError {
                field: "hdd.capacity",
                found: format!("{} B, on {} tracks", figures.capacity.0, geometry.tracks()),
                allowed: "at least 16 tracks".into(),
            });
        }
        figures.check_interface(geometry.peak_rate())?;
        let times = &figures.seek;
        let seek = SeekCurve::fit(
            times.track_to_track.0,
            times.average.0,
            times.full_stroke.0,
            geometry.tracks() - 1,
        )
        .map_err(|range| FigureError {
            field: "hdd.seek.average",
            found: times.average.to_string(),
            allowed: format!(
                "{} to {}, given the other two seek times",
                range.above, range.below
            ),
        })?;
        let small = |bytes: u64| u32::try_from(bytes).expect("checked with the figures");
        let block = figures.physical_block.0;
        let segment = figures.read_ahead.cache.0 / u64::from(figures.read_ahead.segments);
        Ok(Hdd {
            spec: Spec {
                name: name.to_owned(),
                capacity: figures.capacity.0,
                logical_block: small(figures.logical_block.0),
                physical_block: small(block),
                queue_depth: figures.queue_depth,
                max_io: small(figures.max_io.0),
                rotational: true,
            },
            geometry,
            seek,
            overhead: figures.command_overhead.0.0,
            write_settle: figures.write_settle.0.0,
            interface_rate: figures.interface_rate.0,
            segments: Segments::new(figures.read_ahead.segments, segment / block * block),
            ahead: None,
            track: 0,
            controller_free: 0,
            mechanism_free: 0,
            interface_free: 0,
            last_submit: Nanos::ZERO,
            last_end: 0,
            done: VecDeque::with_capacity(figures.queue_depth as usize),
        })
    }

    /// A copy of a drive that has served nothing yet, with a queue of its own. (A cloned queue
    /// would have to allocate.)
    pub(crate) fn fresh(&self) -> Hdd {
        assert!(
            self.last_end == 0 && self.done.is_empty(),
            "the drive was used"
        );
        Hdd {
            done: VecDeque::with_capacity(self.spec.queue_depth as usize),
            ..self.clone()
        }
    }

    /// The seek curve of reads, over distances in tracks.
    pub fn seek_curve(&self) -> &SeekCurve {
        &self.seek
    }

    /// The time of a revolution.
    pub fn revolution(&self) -> Nanos {
        Nanos(self.geometry.revolution())
    }

    /// How long `bytes` take on the interface.
    fn transfer(&self, bytes: u64) -> u64 {
        // Lengths fit 32 bits, so the product stays below 2^62.
        (bytes * 1_000_000_000).div_ceil(self.interface_rate)
    }

    /// How far the read-ahead has come at `now`: the first byte not yet read.
    fn ahead_at(&self, ahead: &Ahead, now: u64) -> u64 {
        if now <= ahead.since {
            return ahead.from;
        }
        self.geometry
            .byte_at(ahead.stream + (now - ahead.since))
            .clamp(ahead.from, ahead.limit)
    }

    /// When the read-ahead has read everything before `end`.
    fn ahead_until(&self, ahead: &Ahead, end: u64) -> u64 {
        if end <= ahead.from {
            return 0;
        }
        ahead.since + (self.geometry.end(end).0.stream - ahead.stream)
    }

    /// Ends the read-ahead at `now`, keeping what it has read.
    fn stop_ahead(&mut self, now: u64) {
        if let Some(ahead) = self.ahead.take() {
            let end = self.ahead_at(&ahead, now);
            self.segments.fill(ahead.segment, end);
            // At the limit the head stays on the track it has read to the end.
            self.track = self.geometry.track(end.min(ahead.limit - 1));
        }
    }

    /// Lets the head read on from `from`, which is at `stream` and which it has reached at
    /// `now`.
    fn start_ahead(&mut self, segment: usize, from: u64, stream: u64, now: u64) {
        let limit = (from + self.segments.size()).min(self.spec.capacity);
        if from < limit {
            let since = self.geometry.next_pass(now, stream);
            self.ahead = Some(Ahead {
                segment,
                from,
                since,
                stream,
                limit,
            });
        }
    }

    /// Moves the arm to `start` from `now` on and passes over everything up to `end`.
    fn access(&mut self, now: u64, start: u64, end: u64, settle: u64) -> Access {
        let start = self.geometry.begin(start);
        let (end, next) = self.geometry.end(end);
        let distance = start.track.abs_diff(self.track);
        let arm = if distance == 0 {
            0
        } else {
            self.seek.time(distance).0 + settle
        };
        let first = self.geometry.next_pass(now + arm, start.stream);
        self.track = end.track;
        Access {
            first,
            last: first + (end.stream - start.stream),
            next,
        }
    }

    /// Serves a read whose command is decoded at `ready`; returns its end.
    fn read(&mut self, ready: u64, start: u64, end: u64) -> u64 {
        let bytes = end - start;
        if let Some(at) = self.read_on(ready, start, end) {
            return self.deliver(ready, at, bytes);
        }
        let held = self.segments.find(start);
        if let Some(index) = held
            && self.segments.get(index).end >= end
        {
            self.segments.touch(index);
            return self.deliver(ready, 0, bytes);
        }
        let begin = ready.max(self.mechanism_free);
        self.stop_ahead(begin);
        // What the buffer holds of the beginning need not be read again.
        let (segment, from) = match held {
            Some(index) => (index, self.segments.get(index).end),
            None => (self.segments.take_over(start), start),
        };
        self.segments.touch(segment);
        let Access { first, last, next } = self.access(begin, from, end, 0);
        self.segments.fill(segment, end);
        self.mechanism_free = last;
        self.start_ahead(segment, end, next, last);
        self.deliver(if from == start { first } else { ready }, last, bytes)
    }

    /// Serves a read from the running read-ahead, if it begins in what that has read or will
    /// read: the head is on its way there. Returns when it has read the last of it.
    fn read_on(&mut self, ready: u64, start: u64, end: u64) -> Option<u64> {
        let ahead = self.ahead?;
        let elsewhere =
            |segments: &Segments| start < segments.get(ahead.segment).start || start >= ahead.limit;
        if elsewhere(&self.segments) {
            return None;
        }
        let reached = self.ahead_at(&ahead, ready);
        self.segments.fill(ahead.segment, reached);
        if elsewhere(&self.segments) {
            return None;
        }
        self.segments.touch(ahead.segment);
        let limit = (end + self.segments.size())
            .min(self.spec.capacity)
            .max(ahead.limit);
        let stopped = self.ahead_until(&ahead, ahead.limit);
        let ahead = if limit > ahead.limit && stopped < ready {
            // It had filled the segment. With room again it goes on when the place comes round.
            let stream = self.geometry.begin(ahead.limit).stream;
            let since = self.geometry.next_pass(ready, stream);
            Ahead {
                from: ahead.limit,
                since,
                stream,
                limit,
                ..ahead
            }
        } else {
            Ahead { limit, ..ahead }
        };
        self.ahead = Some(ahead);
        let at = self.ahead_until(&ahead, end);
        self.mechanism_free = self.mechanism_free.max(at);
        Some(at)
    }

    /// Sends `bytes` to the host, not before `from`; the last block not before it has been read
    /// at `last`.
    fn deliver(&mut self, from: u64, last: u64, bytes: u64) -> u64 {
        let sent = from.max(self.interface_free) + self.transfer(bytes);
        let tail = self.transfer(bytes.min(u64::from(self.spec.physical_block)));
        self.interface_free = sent.max(last + tail);
        self.interface_free
    }

    /// Serves a write whose command is decoded at `ready`; returns its end.
    fn write(&mut self, ready: u64, start: u64, end: u64, data: u64) -> u64 {
        self.interface_free = ready.max(self.interface_free) + self.transfer(data);
        let begin = ready.max(self.mechanism_free);
        self.stop_ahead(begin);
        self.segments.invalidate(start, end);
        let Access { mut last, .. } = self.access(begin, start, end, self.write_settle);
        let block = u64::from(self.spec.physical_block);
        if !start.is_multiple_of(block) || !end.is_multiple_of(block) {
            last += self.geometry.revolution();
        }
        self.mechanism_free = last;
        last.max(self.interface_free)
    }
}

fn layout(figures: &HddFigures) -> Layout {
    Layout {
        capacity: figures.capacity.0,
        block: figures.physical_block.0,
        revolution: (60_000_000_000 + figures.rotation.0 / 2) / figures.rotation.0,
        skew: figures.seek.track_to_track.0.0,
        outer_rate: figures.outer_rate.0,
        inner_rate: figures.inner_rate.0,
        zones: u64::from(figures.zones),
    }
}

impl Model for Hdd {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn submit(&mut self, now: Nanos, io: ModelIo) {
        let (last, depth) = (self.last_submit, self.spec.queue_depth);
        assert!(now >= last, "time runs backwards: {now} after {last}");
        assert!(now.0 < 1 << 62, "{now} is no time: a century is enough");
        assert!(self.in_flight() < depth, "the queue of {depth} is full");
        self.spec.assert_valid(&io);
        self.last_submit = now;
        let ready = now.0.max(self.controller_free) + self.overhead;
        self.controller_free = ready;
        let (start, end) = (io.addr, io.addr + u64::from(io.len));
        let at = match io.op {
            Op::Read => self.read(ready, start, end),
            Op::Write => self.write(ready, start, end, end - start),
            Op::WriteZeroes => self.write(ready, start, end, 0),
            Op::Flush | Op::Discard => ready,
        };
        // In order of arrival: nothing ends before what came first.
        self.last_end = self.last_end.max(at);
        self.done.push_back(Completion {
            id: io.id,
            at: Nanos(self.last_end),
        });
    }

    fn next_completion(&self) -> Option<Nanos> {
        self.done.front().map(|c| c.at)
    }

    fn pop_completed(&mut self, now: Nanos) -> Option<Completion> {
        self.done.pop_front_if(|c| c.at <= now)
    }

    fn in_flight(&self) -> u32 {
        // At most the queue depth, which fits.
        self.done.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_never_grows() {
        let entry = crate::catalogue::load("hdd-7200-1tb").unwrap();
        let crate::catalogue::Prototype::Hdd(prototype) = &entry.prototype;
        let mut hdd = prototype.fresh();
        let room = hdd.done.capacity();
        assert!(room >= 32);
        for id in 0..1_000 {
            if !hdd.has_room() {
                assert!(hdd.pop_completed(Nanos::MAX).is_some());
            }
            hdd.submit(Nanos::ZERO, ModelIo::read(id, id * 4_096, 4_096));
        }
        assert_eq!((hdd.done.len(), hdd.done.capacity()), (32, room));
    }
}
