//! Hard disk: one arm, one spindle, a read-ahead buffer, and optionally a write cache and NCQ.
//!
//! ```text
//!   submit -> [controller: overhead] -> read buffer or write cache hit -----> [interface] -> done
//!                                    -> [queue] [seek] [rotation] [medium] -> [interface] -> done
//!                                       [write cache] - - - ^ when idle, half full, flushed
//! ```
//!
//! - **Position is a function of time.** The platter turns all the time: its angle is the time
//!   modulo a revolution. The arm is where the last access, or the read-ahead since, has left it.
//! - **Without NCQ** (no `ncq` table) commands are served in order of arrival, and everything is
//!   settled at submission. Each stage (controller, mechanism, interface) begins a command when the
//!   command is there and the stage has finished the one before. So the controller's overhead is
//!   hidden behind the mechanism at queue depths above one.
//! - **With NCQ** the mechanism takes, each time it is free, the command that it can begin soonest.
//!   The module `queue` describes the order and why no command starves.
//! - **Read-ahead.** After a read from the medium the head reads on until it is a segment ahead of
//!   what the host has read. A read of buffered data is served at interface speed; a read of data
//!   that the head is about to reach waits for it. Any other access to the medium stops the
//!   read-ahead; behind a read that continues a stream it may not do so before a minimum was read
//!   on. Buffered data stays until its segment is reused.
//! - **Write cache.** Without one, a write completes when it is on the medium. With one, a write
//!   that finds room completes when its data has passed the interface. The drive writes the cache
//!   back after an idle time, or at once when it is half full; a write that finds no room waits.
//!   FUA and write-zeroes bypass the cache. The head settles longer for a write than for a read,
//!   because writing off-track would damage the neighbouring track. A write that covers a physical
//!   block in part reads it first and writes it a revolution later.
//! - **Flush** ends when everything submitted before it has ended and the cache is empty. The drive
//!   takes no command meanwhile, because FLUSH CACHE is not a queued command in ATA. **Discard**
//!   costs the overhead only. **Write-zeroes** is a write without data on the interface.

mod figures;
mod geometry;
mod mechanism;
mod platter;
mod queue;
mod seek;
mod segments;
mod write_cache;

pub use crate::figures::FigureError;
pub use figures::{
    HddFigures, NcqFigures, ReadAheadFigures, SeekFigures, SurfaceFigures, WriteBackOrder,
    WriteCacheFigures,
};
pub use platter::Platter;
pub use seek::{AverageOutOfRange, SeekCurve};

use crate::model::{Completion, Model, ModelIo, Spec, assert_submittable};
use crate::reciprocal::Divisor;
use geometry::{Geometry, Layout};
use mechanism::Mechanism;
use queue::Queue;
use seek::SeekTable;
use segments::Segments;
use std::collections::VecDeque;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use write_cache::WriteCache;

/// Hard disk model. Internal times are nanoseconds in a plain `u64`.
#[derive(Clone, Debug)]
pub struct Hdd {
    spec: Spec,
    /// Maximum number of commands: the queue depth, or more behind an array's controller.
    room: u32,
    seek: SeekCurve,
    mechanism: Mechanism,
    cache: Option<WriteCache>,
    /// NCQ; `None`: commands are served in order of arrival.
    queue: Option<Queue>,
    overhead: u64,
    /// Interface rate in bytes per second.
    interface_rate: Divisor,

    controller_free: u64,
    interface_free: u64,
    last_submit: Nanos,
    /// Ends of commands that went through the queue or were served in order; they never decrease.
    queued_ends: VecDeque<Completion>,
    last_queued_end: u64,
    /// Ends of commands that bypassed the queue; they never decrease.
    bypass_ends: VecDeque<Completion>,
    last_bypass_end: u64,
}

/// Returns the properties of a drive whose figures have been checked.
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
    /// Builds a drive: arm on the outermost cylinder, buffers empty, time zero.
    ///
    /// # Errors
    /// If a figure is out of range or contradicts another.
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
        // A seek curve needs a stroke of some cylinders to be fitted.
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
        // Segments hold whole blocks.
        let segment = figures.read_ahead.cache.0 / u64::from(figures.read_ahead.segments);
        let mechanism = Mechanism::new(
            geometry,
            SeekTable::new(&seek),
            figures.surfaces.as_ref().map_or(0, |s| s.head_switch.0.0),
            figures.write_settle.0.0,
            Segments::new(figures.read_ahead.segments, segment / block * block),
            figures.read_ahead.minimum.0,
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
                .map(|ncq| Queue::new(depth, depth, ncq.max_wait.0.0, ncq.ageing.0.0)),
            overhead: figures.command_overhead.0.0,
            interface_rate: Divisor::new(figures.interface_rate.0),
            controller_free: 0,
            interface_free: 0,
            last_submit: Nanos::ZERO,
            queued_ends: VecDeque::with_capacity(depth as usize),
            last_queued_end: 0,
            bypass_ends: VecDeque::new(),
            last_bypass_end: 0,
        })
    }

    /// Copies a drive that has not served anything, with queues for `room` commands. (A cloned
    /// queue has the capacity of its content and would allocate later.)
    pub(crate) fn fresh(&self, room: u32) -> Hdd {
        assert!(
            self.last_queued_end == 0 && self.last_bypass_end == 0 && self.in_flight() == 0,
            "the drive was used"
        );
        let queue = self.queue.as_ref().map(|q| q.fresh(room));
        // Only NCQ lets commands bypass the queue.
        let bypass = if queue.is_some() { room as usize } else { 0 };
        Hdd {
            room,
            cache: self.cache.as_ref().map(WriteCache::fresh),
            queued_ends: VecDeque::with_capacity(room as usize),
            bypass_ends: VecDeque::with_capacity(bypass),
            queue,
            ..self.clone()
        }
    }

    /// Returns the seek curve of reads, over distances in cylinders.
    pub fn seek_curve(&self) -> &SeekCurve {
        &self.seek
    }

    /// Returns the time of a revolution.
    pub fn revolution(&self) -> Nanos {
        Nanos(self.mechanism.revolution())
    }

    /// Returns the time of `bytes` on the interface, in nanoseconds.
    fn transfer(&self, bytes: u64) -> u64 {
        // Lengths fit 32 bits, so the product stays below 2^62.
        self.interface_rate.ceil(bytes * 1_000_000_000)
    }

    /// Sends `bytes` to the host for a command decoded at `ready`: the first no earlier than
    /// `from`, the last block no earlier than `last`, when it has been read. Returns the end.
    fn deliver(&mut self, ready: u64, from: u64, last: u64, bytes: u64) -> u64 {
        // Blocks are sent while later ones are read, so only the last one remains after `last`.
        let tail = self.transfer(bytes.min(u64::from(self.spec.physical_block)));
        if self.queue.is_some() {
            // With NCQ other commands use the interface while this one waits for the medium: its
            // share is booked at once, but its end is not.
            self.interface_free = ready.max(self.interface_free) + self.transfer(bytes);
            return self.interface_free.max(last + tail);
        }
        let sent = from.max(self.interface_free) + self.transfer(bytes);
        self.interface_free = sent.max(last + tail);
        self.interface_free
    }

    /// Returns true if `io` is a write that goes into the write cache.
    fn is_cached(&self, io: &ModelIo) -> bool {
        let cache = self.cache.as_ref();
        io.op == Op::Write && !io.fua && cache.is_some_and(|c| c.fits(u64::from(io.len)))
    }

    /// Puts a write decoded at `ready` into the cache, which has room for it; returns its end.
    fn cache_write(&mut self, ready: u64, io: &ModelIo) -> u64 {
        let (start, end) = byte_range(io);
        if let Some(cache) = &mut self.cache {
            cache.insert(start, end);
        }
        self.mechanism.invalidate(ready, start, end);
        self.deliver(ready, ready, 0, end - start)
    }

    /// Writes the next piece of the cache back from `now` on; returns false if the cache is empty.
    fn write_back(&mut self, now: u64) -> bool {
        let Some(cache) = &mut self.cache else {
            return false;
        };
        let mechanism = &self.mechanism;
        // Positions matter at the time when the mechanism can begin.
        let stand = mechanism.head_state(now.max(mechanism.free_at()));
        let delay =
            |start, most| mechanism.positioning_time(&stand, &mechanism.target(start), true, most);
        let Some((start, end)) = cache.next_piece(delay) else {
            return false;
        };
        cache.set_in_transit_until(self.mechanism.write(now, start, end));
        true
    }

    /// Catches up with what the drive has written back by itself until `now`, while no command used
    /// the medium.
    fn write_back_idle(&mut self, now: u64) {
        while let Some(cache) = &self.cache
            && !cache.is_clean()
        {
            let idle = self.controller_free + cache.idle_wait();
            let begin = idle.max(self.mechanism.free_at());
            if begin > now {
                return;
            }
            self.write_back(begin);
        }
    }

    /// Empties the cache for a flush that begins at `ready`; returns the time at which that is
    /// done.
    fn flush(&mut self, ready: u64) -> u64 {
        let mut end = ready.max(self.last_queued_end).max(self.last_bypass_end);
        // Without a cache, all writes are on the medium when they complete.
        if self.cache.is_some() {
            while self.write_back(ready) {}
            end = end.max(self.cache.as_ref().map_or(0, WriteCache::in_transit_until));
            // FLUSH CACHE is not queued: no command is decoded before it is done.
            self.controller_free = self.controller_free.max(end);
        }
        end
    }

    /// Serves a command that is at the head of the queue and was decoded at `ready`; returns its
    /// end.
    fn serve(&mut self, ready: u64, io: &ModelIo) -> u64 {
        let (start, end) = byte_range(io);
        match io.op {
            Op::Read => {
                if self.in_write_cache(ready, start, end) {
                    return self.deliver(ready, ready, 0, end - start);
                }
                let read = self.mechanism.read(ready, start, end);
                self.deliver(ready, read.first, read.last, end - start)
            }
            Op::Write | Op::WriteZeroes => {
                // Older data in the cache must not overwrite this later.
                if let Some(cache) = &mut self.cache {
                    cache.remove(start, end);
                }
                // The data crosses the interface while the arm moves, so the later of both counts.
                let data = if io.op == Op::Write { end - start } else { 0 };
                self.interface_free = ready.max(self.interface_free) + self.transfer(data);
                let written = self.mechanism.write(ready, start, end);
                written.max(self.interface_free)
            }
            Op::Flush => self.flush(ready),
            Op::Discard => {
                if let Some(cache) = &mut self.cache {
                    cache.remove(start, end);
                }
                ready
            }
        }
    }

    /// Returns true if the write cache holds all of `start..end` at `now`.
    fn in_write_cache(&self, now: u64, start: u64, end: u64) -> bool {
        let cache = self.cache.as_ref();
        cache.is_some_and(|c| c.holds(now, start, end))
    }

    /// Serves a command in order of arrival; returns its end.
    fn serve_in_order(&mut self, ready: u64, io: &ModelIo) -> u64 {
        let (mut ready, bytes) = (ready, u64::from(io.len));
        if self.is_cached(io) {
            while let Some(cache) = &self.cache
                && !cache.has_room(ready, bytes)
            {
                // Wait for the piece in progress to free its room first, then write the next one
                // back.
                if self.mechanism.free_at() <= ready {
                    self.write_back(ready);
                }
                ready = self.mechanism.free_at();
            }
            return self.cache_write(ready, io);
        }
        let (start, end) = byte_range(io);
        let half_full = self.cache.as_ref().is_some_and(WriteCache::is_half_full);
        if half_full && io.op == Op::Read && !self.in_write_cache(ready, start, end) {
            // Writing back alternates with reads, or a stream of reads would keep the cache full.
            self.write_back(ready);
        }
        self.serve(ready, io)
    }

    /// Records the end of a command that went through the queue.
    fn end_queued(&mut self, id: u64, at: u64) {
        // Commands of the queue complete in its order.
        self.last_queued_end = self.last_queued_end.max(at);
        self.queued_ends.push_back(Completion {
            id,
            at: Nanos(self.last_queued_end),
        });
    }

    /// Records the end of a command that bypassed the queue.
    fn end_bypassed(&mut self, id: u64, at: u64) {
        self.last_bypass_end = self.last_bypass_end.max(at);
        self.bypass_ends.push_back(Completion {
            id,
            at: Nanos(self.last_bypass_end),
        });
    }
}

fn byte_range(io: &ModelIo) -> (u64, u64) {
    (io.addr, io.addr + u64::from(io.len))
}

fn layout(figures: &HddFigures) -> Layout {
    let surfaces = figures.surfaces.as_ref();
    let track_to_track = figures.seek.track_to_track.0.0;
    Layout {
        capacity: figures.capacity.0,
        block: figures.physical_block.0,
        // A minute in nanoseconds per revolutions per minute, rounded to the nearest.
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
        self.write_back_idle(now.0);
        let ready = now.0.max(self.controller_free) + self.overhead;
        self.controller_free = ready;
        let at = self.serve_in_order(ready, &io);
        self.end_queued(io.id, at);
    }

    fn next_completion(&self) -> Option<Nanos> {
        let ends = [self.bypass_ends.front(), self.queued_ends.front()];
        let known = ends.into_iter().flatten().map(|c| c.at).min();
        // A command that waits while the head reads on is chosen when that is over.
        let waits = self.queue.as_ref().is_some_and(|q| q.len() > 0) && self.queued_ends.is_empty();
        let chosen = waits.then(|| Nanos(self.mechanism.reads_on_until()));
        known.into_iter().chain(chosen).min()
    }

    fn pop_completed(&mut self, now: Nanos) -> Option<Completion> {
        self.advance(now.0);
        let bypass = self.bypass_ends.front().map_or(Nanos::MAX, |c| c.at);
        let queued = self.queued_ends.front().map_or(Nanos::MAX, |c| c.at);
        let queue = if bypass <= queued {
            &mut self.bypass_ends
        } else {
            &mut self.queued_ends
        };
        queue.pop_front_if(|c| c.at <= now)
    }

    fn in_flight(&self) -> u32 {
        // At most `room`, so the cast loses nothing.
        (self.queued_ends.len() + self.bypass_ends.len()) as u32
            + self.queue.as_ref().map_or(0, Queue::len)
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
        let room = (hdd.queued_ends.capacity(), hdd.bypass_ends.capacity());
        assert!(room.0 >= 32);
        for id in 0..1_000 {
            if !hdd.has_room() {
                assert!(hdd.pop_completed(Nanos::MAX).is_some());
            }
            hdd.submit(Nanos::ZERO, ModelIo::read(id, id * 4_096, 4_096));
        }
        assert_eq!(hdd.in_flight(), 32);
        assert_eq!(
            (hdd.queued_ends.capacity(), hdd.bypass_ends.capacity()),
            room
        );
    }
}
