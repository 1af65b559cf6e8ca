//! A hard disk: one arm, one spindle, a buffer that reads on, and what a drive puts before them.
//!
//! ```text
//!   submit -> [controller: overhead] -> read buffer or write cache hit -----> [interface] -> done
//!                                    -> [queue] [seek] [rotation] [medium] -> [interface] -> done
//!                                       [write cache] - - - ^ when idle, half full, flushed
//! ```
//!
//! - **Position is a function of time.** The platter turns whether anybody looks or not: the
//!   angle is the time modulo a revolution. The arm is where the last access, or the read-ahead
//!   since, has left it.
//! - **In order of arrival** (no `ncq` table) everything is settled at submission: each stage
//!   (controller, mechanism, interface) begins a command when the command is there and the stage
//!   is done with the one before. So the controller's overhead hides behind the mechanism at
//!   queue depths above one.
//! - **With native command queuing** the mechanism takes, each time it is free, the command
//!   that it can begin soonest. How, and why none starves, is in the `queue` module.
//! - **Read-ahead.** After a read from the medium the head reads on into the segment until it
//!   is a segment size beyond what the host has asked for. A read of what is there is served at
//!   interface speed, a read of what is on its way waits for the head. Any other access to the
//!   medium stops it; what has been read stays until its segment is taken over.
//! - **Write cache.** Without one, writes go through to the medium before they complete. With
//!   one, a write that finds room completes once its data has passed the interface, and the
//!   drive writes it back in sweeps when nobody has asked for anything for a while, or at once
//!   when the cache is half full. A write that finds no room waits for some. FUA and
//!   write-zeroes go through. Settling for a write takes longer by a figure. A write that
//!   covers a physical block in part reads it first and writes it a revolution later.
//! - **Flush** ends when everything submitted before it has ended and the cache is empty; the
//!   drive takes no command meanwhile, since it is not a queued command in ATA. **Discard**
//!   costs the overhead only. **Write-zeroes** is a write without data on the interface.

mod figures;
mod geometry;
mod mechanism;
mod queue;
mod seek;
mod segments;
mod write_cache;

pub use crate::figures::FigureError;
pub use figures::{
    HddFigures, NcqFigures, ReadAheadFigures, SeekFigures, SurfaceFigures, WriteBackOrder,
    WriteCacheFigures,
};
pub use seek::{AverageOutOfRange, SeekCurve};

use crate::divide::Divisor;
use crate::model::{Completion, Model, ModelIo, Spec, assert_submittable};
use geometry::{Geometry, Layout};
use mechanism::Mechanism;
use queue::Queue;
use seek::SeekTable;
use segments::Segments;
use std::collections::VecDeque;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use write_cache::WriteCache;

/// A hard disk. Times inside are nanoseconds in a plain `u64`.
#[derive(Clone, Debug)]
pub struct Hdd {
    spec: Spec,
    /// Commands accepted at a time: the queue depth, or more behind an array's controller.
    room: u32,
    seek: SeekCurve,
    mechanism: Mechanism,
    cache: Option<WriteCache>,
    /// `None`: in order of arrival.
    queue: Option<Queue>,
    overhead: u64,
    /// Bytes a second.
    interface_rate: Divisor,

    controller_free: u64,
    interface_free: u64,
    last_submit: Nanos,
    /// Ends of commands that went through the mechanism, or in order: they never decrease.
    slow: VecDeque<Completion>,
    slow_end: u64,
    /// Ends of commands that overtook the queue: they never decrease either.
    quick: VecDeque<Completion>,
    quick_end: u64,
}

/// Specification of a drive whose figures have been checked.
fn spec(name: &str, figures: &HddFigures) -> Spec {
    let small = |bytes: u64| u32::try_from(bytes).expect("checked with the figures");
    Spec {
        name: name.to_owned(),
        capacity: figures.capacity.0,
        logical_block: small(figures.logical_block.0),
        physical_block: small(figures.physical_block.0),
        queue_depth: figures.queue_depth,
        max_io: small(figures.max_io.0),
        rotational: true,
        positioning: figures.positioning(),
        bytes_per_s: figures.inner_rate.0.min(figures.interface_rate.0),
        bytes_per_s_max: figures.outer_rate.0.min(figures.interface_rate.0),
    }
}

impl Hdd {
    /// Builds a drive named `name`: arm on the outermost cylinder, buffers empty, time at zero.
    ///
    /// # Errors
    /// When a figure is out of range or contradicts another.
    pub fn new(name: &str, figures: &HddFigures) -> Result<Hdd, FigureError> {
        figures.check()?;
        let refuse = |field: &str, found: String, allowed: String| FigureError {
            field: field.to_owned(),
            found,
            allowed,
        };
        let geometry = Geometry::new(&layout(figures)).ok_or_else(|| {
            let allowed = "at least a physical block per revolution".to_owned();
            refuse("hdd.inner_rate", figures.inner_rate.to_string(), allowed)
        })?;
        let cylinders = geometry.cylinders();
        if cylinders < 16 {
            let found = format!("{} B, in {cylinders} cylinders", figures.capacity.0);
            let allowed = "at least 16 cylinders".to_owned();
            return Err(refuse("hdd.capacity", found, allowed));
        }
        figures.check_interface(geometry.peak_rate())?;
        let times = &figures.seek;
        let seek = SeekCurve::fit(
            times.track_to_track.0,
            times.average.0,
            times.full_stroke.0,
            cylinders - 1,
        )
        .map_err(|range| {
            let AverageOutOfRange { above, below } = range;
            let allowed = format!("{above} to {below}, given the other two seek times");
            refuse("hdd.seek.average", times.average.to_string(), allowed)
        })?;
        let block = figures.physical_block.0;
        let segment = figures.read_ahead.cache.0 / u64::from(figures.read_ahead.segments);
        let mechanism = Mechanism::new(
            geometry,
            SeekTable::new(&seek),
            figures.surfaces.as_ref().map_or(0, |s| s.head_switch.0.0),
            figures.write_settle.0.0,
            Segments::new(figures.read_ahead.segments, segment / block * block),
        );
        let cache = figures.write_cache.as_ref();
        let depth = figures.queue_depth;
        Ok(Hdd {
            spec: spec(name, figures),
            room: depth,
            seek,
            mechanism,
            cache: cache.map(|c| WriteCache::new(c.size.0, c.extents, c.idle.0.0, c.order)),
            queue: figures
                .ncq
                .as_ref()
                .map(|ncq| Queue::new(depth, depth, ncq.max_wait.0.0)),
            overhead: figures.command_overhead.0.0,
            interface_rate: Divisor::new(figures.interface_rate.0),
            controller_free: 0,
            interface_free: 0,
            last_submit: Nanos::ZERO,
            slow: VecDeque::with_capacity(depth as usize),
            slow_end: 0,
            quick: VecDeque::new(),
            quick_end: 0,
        })
    }

    /// A copy of a drive that has served nothing yet, with queues of its own that take `room`
    /// commands. (Cloned queues would have to allocate.)
    pub(crate) fn fresh(&self, room: u32) -> Hdd {
        assert!(
            self.slow_end == 0 && self.quick_end == 0 && self.in_flight() == 0,
            "the drive was used"
        );
        let queue = self.queue.as_ref().map(|q| q.fresh(room));
        let quick = if queue.is_some() { room as usize } else { 0 };
        Hdd {
            room,
            cache: self.cache.as_ref().map(WriteCache::fresh),
            slow: VecDeque::with_capacity(room as usize),
            quick: VecDeque::with_capacity(quick),
            queue,
            ..self.clone()
        }
    }

    /// The seek curve of reads, over distances in cylinders.
    pub fn seek_curve(&self) -> &SeekCurve {
        &self.seek
    }

    /// The time of a revolution.
    pub fn revolution(&self) -> Nanos {
        Nanos(self.mechanism.revolution())
    }

    /// How long `bytes` take on the interface.
    fn transfer(&self, bytes: u64) -> u64 {
        // Lengths fit 32 bits, so the product stays below 2^62.
        self.interface_rate.ceil(bytes * 1_000_000_000)
    }

    /// Sends `bytes` to the host, not before `from`; the last block not before it has been read
    /// at `last`. The command was there at `ready`.
    fn deliver(&mut self, ready: u64, from: u64, last: u64, bytes: u64) -> u64 {
        let tail = self.transfer(bytes.min(u64::from(self.spec.physical_block)));
        if self.queue.is_some() {
            // Others pass while this one waits for the medium: its share of the interface is
            // booked at once, its end is not.
            self.interface_free = ready.max(self.interface_free) + self.transfer(bytes);
            return self.interface_free.max(last + tail);
        }
        let sent = from.max(self.interface_free) + self.transfer(bytes);
        self.interface_free = sent.max(last + tail);
        self.interface_free
    }

    /// True where a write of `io` goes into the write cache.
    fn is_cached(&self, io: &ModelIo) -> bool {
        let cache = self.cache.as_ref();
        io.op == Op::Write && !io.fua && cache.is_some_and(|c| c.takes(u64::from(io.len)))
    }

    /// Puts a write whose command is there at `ready` into the cache, which has room for it;
    /// returns its end.
    fn admit(&mut self, ready: u64, io: &ModelIo) -> u64 {
        let (start, end) = range(io);
        if let Some(cache) = &mut self.cache {
            cache.insert(start, end);
        }
        self.mechanism.forget(ready, start, end);
        self.deliver(ready, ready, 0, end - start)
    }

    /// Writes the next piece of the cache back from `now` on. False when there is none.
    fn write_back(&mut self, now: u64) -> bool {
        let Some(cache) = &mut self.cache else {
            return false;
        };
        let mechanism = &self.mechanism;
        let stand = mechanism.stand(now.max(mechanism.free()));
        let delay = |start, most| mechanism.delay(&stand, &mechanism.target(start), true, most);
        let Some((start, end)) = cache.next_piece(delay) else {
            return false;
        };
        cache.lands(self.mechanism.write(now, start, end));
        true
    }

    /// Writes back what the drive has written back on its own by `now` while nobody asked for
    /// the medium.
    fn tidy(&mut self, now: u64) {
        while let Some(cache) = &self.cache
            && !cache.is_clean()
        {
            let idle = self.controller_free + cache.patience();
            let begin = idle.max(self.mechanism.free());
            if begin > now {
                return;
            }
            self.write_back(begin);
        }
    }

    /// Empties the cache for a flush whose turn comes at `ready`; returns when that is done.
    fn flush(&mut self, ready: u64) -> u64 {
        let mut end = ready.max(self.slow_end).max(self.quick_end);
        if self.cache.is_some() {
            while self.write_back(ready) {}
            end = end.max(self.cache.as_ref().map_or(0, WriteCache::landed));
            self.controller_free = self.controller_free.max(end);
        }
        end
    }

    /// Serves a command whose turn has come, and which was there at `ready`; returns its end.
    fn serve(&mut self, ready: u64, io: &ModelIo) -> u64 {
        let (start, end) = range(io);
        match io.op {
            Op::Read => {
                if self.cached(ready, start, end) {
                    return self.deliver(ready, ready, 0, end - start);
                }
                let read = self.mechanism.read(ready, start, end);
                self.deliver(ready, read.first, read.last, end - start)
            }
            Op::Write | Op::WriteZeroes => {
                if let Some(cache) = &mut self.cache {
                    cache.cut(start, end);
                }
                let data = if io.op == Op::Write { end - start } else { 0 };
                self.interface_free = ready.max(self.interface_free) + self.transfer(data);
                let written = self.mechanism.write(ready, start, end);
                written.max(self.interface_free)
            }
            Op::Flush => self.flush(ready),
            Op::Discard => {
                if let Some(cache) = &mut self.cache {
                    cache.cut(start, end);
                }
                ready
            }
        }
    }

    /// True when the write cache holds all of `start..end` at `now`.
    fn cached(&self, now: u64, start: u64, end: u64) -> bool {
        let cache = self.cache.as_ref();
        cache.is_some_and(|c| c.holds(now, start, end))
    }

    /// Serves a command in its turn, where the order is that of arrival.
    fn serve_in_order(&mut self, ready: u64, io: &ModelIo) -> u64 {
        let (mut ready, bytes) = (ready, u64::from(io.len));
        if self.is_cached(io) {
            while let Some(cache) = &self.cache
                && !cache.has_room(ready, bytes)
            {
                // First for what is on its way, then for the next piece to be there.
                if self.mechanism.free() <= ready {
                    self.write_back(ready);
                }
                ready = self.mechanism.free();
            }
            return self.admit(ready, io);
        }
        let (start, end) = range(io);
        let pressed = self.cache.as_ref().is_some_and(WriteCache::is_pressed);
        if pressed && io.op == Op::Read && !self.cached(ready, start, end) {
            // The cache has its turn, or reads would keep it full.
            self.write_back(ready);
        }
        self.serve(ready, io)
    }

    /// Records the end of a command that had its turn.
    fn end_slow(&mut self, id: u64, at: u64) {
        // Nothing that had its turn ends before what had its turn earlier.
        self.slow_end = self.slow_end.max(at);
        self.slow.push_back(Completion {
            id,
            at: Nanos(self.slow_end),
        });
    }

    /// Records the end of a command that overtook the queue.
    fn end_quick(&mut self, id: u64, at: u64) {
        self.quick_end = self.quick_end.max(at);
        self.quick.push_back(Completion {
            id,
            at: Nanos(self.quick_end),
        });
    }
}

fn range(io: &ModelIo) -> (u64, u64) {
    (io.addr, io.addr + u64::from(io.len))
}

fn layout(figures: &HddFigures) -> Layout {
    let surfaces = figures.surfaces.as_ref();
    let track_to_track = figures.seek.track_to_track.0.0;
    Layout {
        capacity: figures.capacity.0,
        block: figures.physical_block.0,
        revolution: (60_000_000_000 + figures.rotation.0 / 2) / figures.rotation.0,
        heads: surfaces.map_or(1, |s| u64::from(s.heads)),
        head_skew: surfaces.map_or(0, |s| s.head_switch.0.0),
        cylinder_skew: surfaces.map_or(track_to_track, |s| s.cylinder_switch.0.0),
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
        assert_submittable(self, self.last_submit, now, &io);
        self.last_submit = now;
        if self.queue.is_some() {
            return self.submit_queued(now.0, io);
        }
        self.tidy(now.0);
        let ready = now.0.max(self.controller_free) + self.overhead;
        self.controller_free = ready;
        let at = self.serve_in_order(ready, &io);
        self.end_slow(io.id, at);
    }

    fn next_completion(&self) -> Option<Nanos> {
        match (self.quick.front(), self.slow.front()) {
            (Some(a), Some(b)) => Some(a.at.min(b.at)),
            (a, b) => a.or(b).map(|c| c.at),
        }
    }

    fn pop_completed(&mut self, now: Nanos) -> Option<Completion> {
        self.advance(now.0);
        let quick = self.quick.front().map_or(Nanos::MAX, |c| c.at);
        let slow = self.slow.front().map_or(Nanos::MAX, |c| c.at);
        let queue = if quick <= slow {
            &mut self.quick
        } else {
            &mut self.slow
        };
        queue.pop_front_if(|c| c.at <= now)
    }

    fn in_flight(&self) -> u32 {
        // At most the room, which fits.
        (self.slow.len() + self.quick.len()) as u32 + self.queue.as_ref().map_or(0, Queue::len)
    }

    fn has_room(&self) -> bool {
        self.in_flight() < self.room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_never_grows() {
        let entry = crate::catalogue::load("hdd-7200-1tb").unwrap();
        use crate::{catalogue::Prototype, raid0::Member};
        let Prototype::Single(member) = &entry.prototype else {
            panic!("it is no array");
        };
        let Member::Hdd(prototype) = &**member else {
            panic!("it is a hard disk");
        };
        let mut hdd = prototype.fresh(32);
        let room = (hdd.slow.capacity(), hdd.quick.capacity());
        assert!(room.0 >= 32);
        for id in 0..1_000 {
            if !hdd.has_room() {
                assert!(hdd.pop_completed(Nanos::MAX).is_some());
            }
            hdd.submit(Nanos::ZERO, ModelIo::read(id, id * 4_096, 4_096));
        }
        assert_eq!(hdd.in_flight(), 32);
        assert_eq!((hdd.slow.capacity(), hdd.quick.capacity()), room);
    }
}
