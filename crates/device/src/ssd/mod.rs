//! A flash disk: dies on channels behind a controller with a write buffer.
//!
//! ```text
//!   read   -> [controller] -> [die: read] -> [channel] -> [interface] -> done
//!                          -> write buffer hit ---------> [interface] -> done
//!   write  -> [controller] -> [interface] -> write buffer -> done
//!                                                 :
//!                                                 v   in the background
//!                                             [channel] -> [die: program, move, erase]
//! ```
//!
//! - **Dies and channels** do one thing at a time. Logical addresses are striped over the dies
//!   page by page, channel by channel, so random reads find dies by chance and long ones use many
//!   at once. IOPS grow with depth until dies, channels, the interface or the controller (one
//!   command per interval) saturate.
//! - **Everything is settled at submission.** A read takes the next free time of its die, then the
//!   first gap on its channel and the interface: nothing that comes later changes that.
//! - **Writes** end when their data is in the buffer. Each die programs what waits for it when it is
//!   idle and a program is full, or [`LINGER`] later; so reads go first until the buffer is full,
//!   when a write waits for the die that can begin soonest. Data has left the buffer, and is read
//!   from the flash again, when it is sent to its die. Reads of what is in the buffer are served
//!   from there.
//! - **Garbage collection**, if there is any, costs each die moves (read, out and back over the
//!   channel, program) in proportion to what it programs, and an erase for every block so filled.
//!   The proportion comes from the sample in the `reclaim` module.
//! - **Flush** ends when everything submitted before it has ended and is programmed, FUA when its
//!   own data is; with power-loss protection neither waits for the flash. **Discard** costs the
//!   overhead only, **write-zeroes** the same or a write without data on the interface.
//! - **Prefetch**, if there is any, reads on behind reads that continue an earlier one.

mod buffer;
mod dies;
mod figures;
mod lane;
mod prefetch;
mod reclaim;

pub use figures::{GarbageFigures, PrefetchFigures, SsdFigures, WriteBufferFigures, ZeroesFigure};

use crate::divide::Divisor;
use crate::figures::FigureError;
use crate::model::{Completion, Model, ModelIo, Spec, assert_submittable};
use buffer::Buffer;
use dies::Die;
use lane::Lane;
use prefetch::Prefetch;
use reclaim::Reclaim;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

/// How long data that does not fill a program waits for more (a choice).
pub const LINGER: Nanos = Nanos(1_000_000);

/// Bookings kept apart (choices: more than a channel's dies, and all of them, have waiting at
/// any common depth).
const CHANNEL_BOOKINGS: usize = 128;
const INTERFACE_BOOKINGS: usize = 1024;

/// What the figures say. Nanoseconds, where nothing else is said.
#[derive(Clone, Debug)]
struct Timing {
    read: u64,
    program: u64,
    erase: u64,
    read_overhead: u64,
    write_overhead: u64,
    read_interval: u64,
    write_interval: u64,
    /// Bytes a second.
    channel_rate: Divisor,
    interface_rate: Divisor,
}

/// A flash disk.
#[derive(Clone, Debug)]
pub struct Ssd {
    spec: Spec,
    /// Commands accepted at a time: the queue depth, or more behind an array's controller.
    room: u32,
    timing: Timing,
    zeroes: ZeroesFigure,
    protected: bool,
    /// As a power of two: bytes of a page, and of a unit of the mapping.
    page_bits: u32,
    unit_bits: u32,
    /// Units a program takes, and programs a block.
    per_program: u32,
    per_block: u32,

    dies: Box<[Die]>,
    /// When each die begins its next work in the background; the least is no more than `soonest`.
    begins: Box<[u64]>,
    soonest: u64,
    channels: Box<[Lane]>,
    /// To the host, and from it where that is another.
    to_host: Lane,
    from_host: Option<Lane>,
    controller_free: u64,
    buffer: Buffer,
    reclaim: Option<Reclaim>,
    prefetch: Option<Prefetch>,

    last_submit: Nanos,
    latest_end: u64,
    /// Tells ends at the same time apart: in order of arrival.
    count: u64,
    ends: BinaryHeap<Reverse<(u64, u64, u64)>>,
}

impl Ssd {
    /// Builds a drive named `name`: buffers empty, dies idle, time at zero.
    ///
    /// # Errors
    /// When a figure is out of range or contradicts another.
    pub fn new(name: &str, figures: &SsdFigures) -> Result<Ssd, FigureError> {
        figures.check()?;
        let small = |bytes: u64| u32::try_from(bytes).expect("checked with the figures");
        let unit = figures.physical_block.0;
        let dies = figures.channels * figures.dies_per_channel;
        let garbage = figures.garbage_collection.as_ref();
        let prefetch = figures.prefetch.as_ref();
        Ok(Ssd {
            spec: Spec {
                name: name.to_owned(),
                capacity: figures.capacity.0,
                logical_block: small(figures.logical_block.0),
                physical_block: small(unit),
                queue_depth: figures.queue_depth,
                max_io: small(figures.max_io.0),
                rotational: false,
                positioning: Nanos::ZERO,
                bytes_per_s: figures.interface_rate.0,
            },
            room: figures.queue_depth,
            timing: Timing {
                read: figures.read.0.0,
                program: figures.program.0.0,
                erase: figures.erase.0.0,
                read_overhead: figures.read_overhead.0.0,
                write_overhead: figures.write_overhead.0.0,
                read_interval: figures.read_interval.0.0,
                write_interval: figures.write_interval.0.0,
                channel_rate: Divisor::new(figures.channel_rate.0),
                interface_rate: Divisor::new(figures.interface_rate.0),
            },
            zeroes: figures.write_zeroes,
            protected: figures.write_buffer.power_loss_protection,
            page_bits: figures.page.0.ilog2(),
            unit_bits: unit.ilog2(),
            per_program: small(figures.page.0 / unit) * figures.planes,
            per_block: figures.pages_per_block,
            dies: vec![Die::default(); dies as usize].into(),
            begins: vec![u64::MAX; dies as usize].into(),
            soonest: u64::MAX,
            channels: vec![Lane::new(CHANNEL_BOOKINGS); figures.channels as usize].into(),
            to_host: Lane::new(INTERFACE_BOOKINGS),
            from_host: figures.full_duplex.then(|| Lane::new(INTERFACE_BOOKINGS)),
            controller_free: 0,
            buffer: Buffer::new(small(figures.write_buffer.size.0 / unit), dies),
            reclaim: garbage.map(|g| {
                let units = |b: u64| b >> unit.ilog2();
                Reclaim::new(
                    units(figures.capacity.0),
                    units(g.spare.0),
                    units(g.filled.0),
                )
            }),
            prefetch: prefetch.map(|p| Prefetch::new(p.ahead.0, p.streams)),
            last_submit: Nanos::ZERO,
            latest_end: 0,
            count: 0,
            ends: BinaryHeap::with_capacity(figures.queue_depth as usize),
        })
    }

    /// A copy of a drive that has served nothing yet, with a queue of its own that takes `room`
    /// commands. (A cloned queue would have to allocate.)
    pub(crate) fn fresh(&self, room: u32) -> Ssd {
        assert!(self.count == 0, "the drive was used");
        Ssd {
            room,
            reclaim: self.reclaim.as_ref().map(Reclaim::fresh),
            ends: BinaryHeap::with_capacity(room as usize),
            ..self.clone()
        }
    }

    /// Units programmed per unit the host writes, as of now: 1 without garbage collection.
    pub fn write_amplification(&self) -> f64 {
        self.reclaim.as_ref().map_or(1.0, Reclaim::amplification)
    }

    fn on_channel(&self, bytes: u64) -> u64 {
        // Lengths fit 32 bits, so the product stays below 2^62.
        self.timing.channel_rate.ceil(bytes * 1_000_000_000)
    }

    fn on_interface(&self, bytes: u64) -> u64 {
        self.timing.interface_rate.ceil(bytes * 1_000_000_000)
    }

    fn die_of(&self, page: u32) -> usize {
        (page % self.dies.len() as u32) as usize
    }

    fn channel_of(&self, die: usize) -> usize {
        (die as u32 % self.channels.len() as u32) as usize
    }

    /// The pages that hold `start..end`: the first and the last.
    fn pages(&self, start: u64, end: u64) -> (u32, u32) {
        // Figures allow no more than 2^32 pages.
        let page = |byte: u64| (byte >> self.page_bits) as u32;
        (page(start), page(end - 1))
    }

    /// The part of `start..end` that lies in a page: its bytes, and its units as bits.
    fn part(&self, page: u32, start: u64, end: u64) -> (u64, u32) {
        let base = u64::from(page) << self.page_bits;
        let from = start.saturating_sub(base);
        let until = (end - base).min(1 << self.page_bits);
        let (first, last) = (from >> self.unit_bits, (until - 1) >> self.unit_bits);
        // Figures allow no more than 32 units in a page.
        let units = (u32::MAX >> (31 - (last - first))) << first;
        (until - from, units)
    }

    fn read(&mut self, now: u64, ready: u64, start: u64, end: u64) -> u64 {
        let (first, last) = self.pages(start, end);
        let stream = self.prefetch.as_mut().map(|p| p.follow(start, end));
        let (mut soonest, mut latest, mut tail) = (u64::MAX, 0, 0);
        for page in first..=last {
            let (bytes, units) = self.part(page, start, end);
            let ahead = match (stream, &self.prefetch) {
                (Some((index, true)), Some(p)) => p.ready(index, page),
                _ => None,
            };
            let at = if self.buffer.holds(page, units) {
                ready
            } else if let Some(at) = ahead {
                at.max(ready)
            } else {
                self.sense(now, ready, page, bytes)
            };
            soonest = soonest.min(at);
            if at >= latest {
                (latest, tail) = (at, bytes);
            }
        }
        if let Some((index, true)) = stream {
            self.read_ahead(now, ready, index, end);
        }
        let time = self.on_interface(end - start);
        let sent = self.to_host.book(now, soonest, time) + time;
        sent.max(latest + self.on_interface(tail))
    }

    /// Reads the pages behind `end` for a stream.
    fn read_ahead(&mut self, now: u64, ready: u64, index: usize, end: u64) {
        let Some(prefetch) = &mut self.prefetch else {
            return;
        };
        let until = (end + prefetch.ahead).min(self.spec.capacity);
        let (from, last) = (
            (end >> self.page_bits) as u32,
            ((until - 1) >> self.page_bits) as u32,
        );
        for page in prefetch.missing(index, from, last + 1) {
            let at = self.sense(now, ready, page, 1 << self.page_bits);
            if let Some(prefetch) = &mut self.prefetch {
                prefetch.keep(index, page, at);
            }
        }
    }

    fn write(&mut self, now: u64, ready: u64, start: u64, end: u64, io: &ModelIo) -> u64 {
        let data = if io.op == Op::Write { end - start } else { 0 };
        let time = self.on_interface(data);
        let lane = self.from_host.as_mut().unwrap_or(&mut self.to_host);
        let mut at = lane.book(now, ready, time) + time;
        let (first, last) = self.pages(start, end);
        if let Some(prefetch) = &mut self.prefetch {
            prefetch.forget(first, last);
        }
        let mut die = self.die_of(first);
        for page in first..=last {
            let (_, units) = self.part(page, start, end);
            while !self.buffer.has_room(units.count_ones()) {
                at = at.max(self.make_room(now));
            }
            self.buffer.insert(die, page, units, at);
            if self.buffer.waiting(die) >= self.per_program && self.dies[die].filled < at {
                self.dies[die].filled = at;
            }
            self.plan(die);
            die = if die + 1 == self.dies.len() {
                0
            } else {
                die + 1
            };
        }
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.write(start >> self.unit_bits, ((end - 1) >> self.unit_bits) + 1);
        }
        if io.fua && !self.protected {
            let count = (last - first).saturating_add(1).min(self.dies.len() as u32);
            for page in first..first + count {
                let die = self.die_of(page);
                self.drain(now, at, die);
                at = at.max(self.dies[die].programmed);
            }
        }
        at
    }

    fn flush(&mut self, now: u64, ready: u64) -> u64 {
        let mut end = ready.max(self.latest_end);
        if self.protected {
            return end;
        }
        for die in 0..self.dies.len() {
            if !self.buffer.is_empty() {
                self.drain(now, ready, die);
            }
            end = end.max(self.dies[die].programmed);
        }
        end
    }

    fn discard(&mut self, start: u64, end: u64) {
        if let Some(reclaim) = &mut self.reclaim {
            // Only whole units are let go.
            let unit = (1_u64 << self.unit_bits) - 1;
            reclaim.discard((start + unit) >> self.unit_bits, end >> self.unit_bits);
        }
    }
}

impl Model for Ssd {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn submit(&mut self, now: Nanos, io: ModelIo) {
        assert_submittable(self, self.last_submit, now, &io);
        self.last_submit = now;
        let now = now.0;
        self.advance(now);
        let begin = now.max(self.controller_free);
        let (interval, overhead) = match io.op {
            Op::Read => (self.timing.read_interval, self.timing.read_overhead),
            _ => (self.timing.write_interval, self.timing.write_overhead),
        };
        self.controller_free = begin + interval;
        let ready = begin + overhead;
        let (start, end) = (io.addr, io.addr + u64::from(io.len));
        let deallocate = self.zeroes == ZeroesFigure::Deallocate;
        let at = match io.op {
            Op::Read => self.read(now, ready, start, end),
            Op::Flush => self.flush(now, ready),
            Op::WriteZeroes if !deallocate => self.write(now, ready, start, end, &io),
            Op::Discard | Op::WriteZeroes => {
                self.discard(start, end);
                ready
            }
            Op::Write => self.write(now, ready, start, end, &io),
        };
        self.latest_end = self.latest_end.max(at);
        self.count += 1;
        self.ends.push(Reverse((at, self.count, io.id)));
    }

    fn next_completion(&self) -> Option<Nanos> {
        self.ends.peek().map(|Reverse((at, _, _))| Nanos(*at))
    }

    fn pop_completed(&mut self, now: Nanos) -> Option<Completion> {
        let Reverse((at, _, id)) = *self.ends.peek()?;
        if at > now.0 {
            return None;
        }
        self.ends.pop();
        Some(Completion { id, at: Nanos(at) })
    }

    fn in_flight(&self) -> u32 {
        // At most the room, which fits.
        self.ends.len() as u32
    }

    fn has_room(&self) -> bool {
        self.in_flight() < self.room
    }
}
