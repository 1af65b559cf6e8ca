//! Flash disk: dies on channels behind a controller with a write buffer.
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
//! - **Dies and channels** do one operation at a time. Logical addresses are striped over the dies
//!   page by page, channel by channel. Random reads therefore meet busy dies by chance, and long
//!   reads use many dies at once. IOPS grow with depth until dies, channels, the interface or the
//!   controller (one command per interval) saturate.
//! - **Everything is settled at submission.** A read takes the next free time of its die, then the
//!   first gap on its channel and on the interface; later commands do not change that. With an
//!   **interleaved** interface this holds up to the channel only: all commands with data to send
//!   share the interface, so later ones delay ends, and a write is in the buffer only when its data
//!   has arrived (modules `link` and `interleaved`).
//! - **Writes** end when their data is in the buffer. An idle die programs its waiting data when a
//!   program is full, or after [`LINGER`]. So reads go first until the buffer is full; then a write
//!   waits for the die that can begin soonest. Data leaves the buffer when it is sent to its die.
//!   Reads of buffered data are served from the buffer.
//! - **Garbage collection**, if configured, makes each die move data (read, over the channel and
//!   back, program) in proportion to what it programs, and erase a block for every block that it
//!   fills. The proportion comes from a sample of the address space (module `reclaim`).
//! - **Flush** ends when everything submitted before it has ended and is programmed; FUA ends when
//!   its own data is programmed. With power-loss protection neither waits for the flash.
//!   **Discard** costs the overhead only. **Write-zeroes** costs the same, or a write without data
//!   on the interface.
//! - **Prefetch**, if configured, reads ahead of sequential streams.

mod buffer;
mod dies;
mod figures;
mod interleaved;
mod link;
mod prefetch;
mod reads;
mod reclaim;
mod timeline;
mod writes;

pub use figures::{
    GarbageFigures, PrefetchFigures, SharingFigure, SsdFigures, WriteBufferFigures, ZeroesFigure,
};

use crate::figures::FigureError;
use crate::model::{Completion, Model, ModelIo, Spec, assert_submittable};
use crate::reciprocal::Divisor;
use buffer::Buffer;
use dies::Die;
use interleaved::Interleaved;
use prefetch::Prefetch;
use reclaim::Reclaim;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use timeline::Timeline;

/// Time for which data that does not fill a program waits for more; a choice.
pub const LINGER: Nanos = Nanos(1_000_000);

/// Maximum number of separate bookings of a channel; a choice: more than the dies of a channel have
/// waiting at any common depth.
const CHANNEL_BOOKINGS: usize = 128;
/// Maximum number of separate bookings of the interface; a choice: more than all dies have waiting
/// at any common depth.
const INTERFACE_BOOKINGS: usize = 1024;

/// Timing figures in nanoseconds, and rates in bytes per second.
#[derive(Clone, Debug)]
struct Timing {
    read: u64,
    program: u64,
    erase: u64,
    read_overhead: u64,
    write_overhead: u64,
    read_interval: u64,
    write_interval: u64,
    interface_command: u64,
    interface_turnaround: u64,
    /// Bytes per second.
    channel_rate: Divisor,
    interface_rate: Divisor,
}

/// Interface between drive and host.
#[derive(Clone, Debug)]
enum Interface {
    /// Transfers in order of submission, each at the full rate.
    InOrder {
        to_host: Timeline,
        /// Direction from the host, if it is separate (full duplex).
        from_host: Option<Timeline>,
        /// Way of the last command, true to the host; `None`: there was none.
        last_read: Option<bool>,
    },
    /// Transfers of several commands that share the rate.
    Interleaved(Box<Interleaved>),
}

impl Interface {
    fn new(figures: &SsdFigures) -> Interface {
        let (rate, duplex) = (figures.interface_rate.0, figures.full_duplex);
        match figures.interface_sharing {
            SharingFigure::InOrder => Interface::InOrder {
                to_host: Timeline::new(INTERFACE_BOOKINGS),
                from_host: duplex.then(|| Timeline::new(INTERFACE_BOOKINGS)),
                last_read: None,
            },
            SharingFigure::Interleaved => {
                let times = [
                    figures.interface_command.0.0,
                    figures.interface_turnaround.0.0,
                ];
                let shared = Interleaved::new(rate, duplex, times, figures.queue_depth);
                Interface::Interleaved(Box::new(shared))
            }
        }
    }

    /// Copies an unused interface for a queue of `room` commands.
    fn fresh(&self, room: u32) -> Interface {
        match self {
            Interface::InOrder { .. } => self.clone(),
            Interface::Interleaved(shared) => Interface::Interleaved(Box::new(shared.fresh(room))),
        }
    }
}

/// Flash disk model. Internal times are nanoseconds in a plain `u64`.
#[derive(Clone, Debug)]
pub struct Ssd {
    spec: Spec,
    /// Maximum number of commands: the queue depth, or more behind an array's controller.
    room: u32,
    timing: Timing,
    zeroes: ZeroesFigure,
    protected: bool,
    /// Logarithms to base 2 of the size in bytes of a page and of a mapping unit.
    page_bits: u32,
    unit_bits: u32,
    /// Units per program operation, and program operations per block.
    per_program: u32,
    per_block: u32,

    dies: Box<[Die]>,
    /// Time at which each die begins its next background operation; the minimum is at least
    /// `next_work_bound`.
    next_work: Box<[u64]>,
    next_work_bound: u64,
    channels: Box<[Timeline]>,
    interface: Interface,
    controller_free: u64,
    buffer: Buffer,
    reclaim: Option<Reclaim>,
    prefetch: Option<Prefetch>,

    last_submit: Nanos,
    /// Latest of all ends known so far.
    latest_end: u64,
    /// Sequence number of the last command; orders ends at equal times.
    sequence: u64,
    /// Known ends: time, sequence number and handle.
    ends: BinaryHeap<Reverse<(u64, u64, u64)>>,
}

impl Ssd {
    /// Builds a drive: buffers empty, dies idle, time zero.
    ///
    /// # Errors
    /// If a figure is out of range or contradicts another.
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
                bytes_per_s_max: figures.interface_rate.0,
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
                interface_command: figures.interface_command.0.0,
                interface_turnaround: figures.interface_turnaround.0.0,
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
            next_work: vec![u64::MAX; dies as usize].into(),
            next_work_bound: u64::MAX,
            channels: vec![Timeline::new(CHANNEL_BOOKINGS); figures.channels as usize].into(),
            interface: Interface::new(figures),
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
            sequence: 0,
            ends: BinaryHeap::with_capacity(figures.queue_depth as usize),
        })
    }

    /// Copies a drive that has not served anything, with a queue for `room` commands. (A cloned
    /// queue has the capacity of its content and would allocate later.)
    pub(crate) fn fresh(&self, room: u32) -> Ssd {
        assert!(self.sequence == 0, "the drive was used");
        Ssd {
            room,
            interface: self.interface.fresh(room),
            reclaim: self.reclaim.as_ref().map(Reclaim::clone_with_capacity),
            ends: BinaryHeap::with_capacity(room as usize),
            ..self.clone()
        }
    }

    /// Returns the present write amplification: units programmed per unit written by the host, 1
    /// without garbage collection.
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

    /// Books the in-order interface for a command of `bytes`, from `ready` on; returns the end.
    fn send_in_order(&mut self, now: u64, ready: u64, read: bool, bytes: u64) -> u64 {
        let time = self.on_interface(bytes) + self.timing.interface_command;
        let Interface::InOrder {
            to_host,
            from_host,
            last_read,
        } = &mut self.interface
        else {
            unreachable!("called for an in-order interface");
        };
        let turns = last_read.replace(read).is_some_and(|last| last != read);
        let turnaround = if turns {
            self.timing.interface_turnaround
        } else {
            0
        };
        let time = time + turnaround;
        let link = match from_host {
            Some(link) if !read => link,
            _ => to_host,
        };
        link.book(now, ready, time) + time
    }

    fn die_of(&self, page: u32) -> usize {
        (page % self.dies.len() as u32) as usize
    }

    fn channel_of(&self, die: usize) -> usize {
        (die as u32 % self.channels.len() as u32) as usize
    }

    /// Returns the first and the last page that contain `start..end`.
    fn pages(&self, start: u64, end: u64) -> (u32, u32) {
        // Figures allow at most 2^32 pages.
        let page = |byte: u64| (byte >> self.page_bits) as u32;
        (page(start), page(end - 1))
    }

    /// Returns the part of `start..end` that lies in a page: bytes, and a bit set of its units.
    fn page_part(&self, page: u32, start: u64, end: u64) -> (u64, u32) {
        let base = u64::from(page) << self.page_bits;
        let from = start.saturating_sub(base);
        let until = (end - base).min(1 << self.page_bits);
        let (first, last) = (from >> self.unit_bits, (until - 1) >> self.unit_bits);
        // Figures allow at most 32 units per page.
        // Bits `first..=last`.
        let units = (u32::MAX >> (31 - (last - first))) << first;
        (until - from, units)
    }

    /// Returns true if later commands can delay known ends, so that nothing can be settled ahead.
    pub(crate) fn is_interleaved(&self) -> bool {
        matches!(self.interface, Interface::Interleaved(_))
    }

    /// Records the end of an I/O.
    fn record_end(&mut self, at: u64, order: u64, id: u64) {
        self.latest_end = self.latest_end.max(at);
        self.ends.push(Reverse((at, order, id)));
    }

    /// Returns the earliest known end; `MAX` if there is none.
    fn first_end(&self) -> u64 {
        self.ends.peek().map_or(u64::MAX, |Reverse((at, _, _))| *at)
    }

    /// Settles the next command whose transfer on an interleaved interface ends by `until`; returns
    /// false if there is none.
    fn settle_next(&mut self, until: u64) -> bool {
        let Interface::Interleaved(shared) = &mut self.interface else {
            return false;
        };
        let Some((at, command)) = shared.next_transferred(until) else {
            return false;
        };
        let end = if command.io.op == Op::Read {
            at.max(command.until)
        } else {
            self.advance(at);
            self.buffer_write(at, at, &command.io)
        };
        self.record_end(end, command.order, command.io.id);
        if let Interface::Interleaved(shared) = &mut self.interface {
            shared.flushes.close(command.span, end);
        }
        self.flush_due(at);
        true
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
        while self.settle_next(now) {}
        self.advance(now);
        let begin = now.max(self.controller_free);
        let (interval, overhead) = match io.op {
            Op::Read => (self.timing.read_interval, self.timing.read_overhead),
            _ => (self.timing.write_interval, self.timing.write_overhead),
        };
        // The interval limits IOPS; the overhead is latency, which overlaps with other commands.
        self.controller_free = begin + interval;
        let ready = begin + overhead;
        self.sequence += 1;
        let deallocate = self.zeroes == ZeroesFigure::Deallocate;
        let end = match io.op {
            Op::Read => self.read(now, ready, &io),
            Op::Flush => self.flush(now, ready, &io),
            Op::WriteZeroes if !deallocate => self.write(now, ready, &io),
            Op::Discard | Op::WriteZeroes => {
                self.discard(io.addr, io.addr + u64::from(io.len));
                if let Interface::Interleaved(shared) = &mut self.interface {
                    shared.flushes.pass(ready);
                }
                Some(ready)
            }
            Op::Write => self.write(now, ready, &io),
        };
        if let Some(at) = end {
            self.record_end(at, self.sequence, io.id);
        }
    }

    fn next_completion(&self) -> Option<Nanos> {
        let known = self.ends.peek().map(|Reverse((at, _, _))| Nanos(*at));
        match &self.interface {
            Interface::InOrder { .. } => known,
            Interface::Interleaved(shared) => {
                let next = shared.next();
                let next = (next != u64::MAX).then_some(Nanos(next));
                known.into_iter().chain(next).min()
            }
        }
    }

    fn pop_completed(&mut self, now: Nanos) -> Option<Completion> {
        // Stop at the first end: the caller may submit at that time, and nothing later may be
        // settled by then.
        while self.settle_next(now.0.min(self.first_end())) {}
        let Reverse((at, _, id)) = *self.ends.peek()?;
        if at > now.0 {
            return None;
        }
        self.ends.pop();
        Some(Completion { id, at: Nanos(at) })
    }

    fn in_flight(&self) -> u32 {
        // At most `room`, so the cast loses nothing.
        let known = self.ends.len() as u32;
        match &self.interface {
            Interface::InOrder { .. } => known,
            Interface::Interleaved(shared) => known + shared.in_flight(),
        }
    }

    fn has_room(&self) -> bool {
        self.in_flight() < self.room
    }
}
