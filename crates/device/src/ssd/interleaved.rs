//! Interleaved interface: commands whose data shares it, the times at which their transfers begin
//! and end, and the flushes that wait for them.
//!
//! ```text
//!   submit -> waits for its first page, -> shares the interface -> the drive ends it
//!             or for the controller                                (step of `Ssd`)
//! ```
//!
//! A later command delays the end of an earlier one, so nothing is settled before its time has
//! come.

use super::link::Link;
use crate::model::ModelIo;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tidegate_core::request::Op;

/// Command whose end is not known yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) io: ModelIo,
    /// Sequence number in order of arrival.
    pub(super) order: u64,
    /// Earliest end in nanoseconds: that of sending a read's last page.
    pub(super) until: u64,
    /// Number of the [`Span`] of commands that it belongs to, for the next flush.
    pub(super) span: u64,
}

/// Commands that use the interface or wait for it. Times are in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Interleaved {
    to_host: Link,
    /// Direction from the host, if it is separate (full duplex).
    from_host: Option<Link>,
    commands: Box<[Command]>,
    /// Free indices of `commands`. Never grows beyond its capacity.
    free: Vec<u32>,
    /// Begin of each transfer that has not begun, with the command's sequence number and index.
    begins: BinaryHeap<Reverse<(u64, u64, u32)>>,
    pub(super) flushes: Flushes,
    room: u32,
    rate: u64,
    /// Time of a command beside its data, and of turning from one way to the other, in nanoseconds.
    times: [u64; 2],
    /// Way of the transfer that began last, true to the host; `None`: there was none.
    last_read: Option<bool>,
}

impl Interleaved {
    /// Creates the interface of a drive that accepts `room` commands, at `rate` bytes per second.
    /// `times`: nanoseconds of a command beside its data, and of turning from one way to the other.
    pub(super) fn new(rate: u64, full_duplex: bool, times: [u64; 2], room: u32) -> Interleaved {
        let command = Command {
            io: ModelIo::flush(0),
            order: 0,
            until: 0,
            span: 0,
        };
        Interleaved {
            to_host: Link::new(rate, room),
            from_host: full_duplex.then(|| Link::new(rate, room)),
            commands: vec![command; room as usize].into(),
            free: (0..room).rev().collect(),
            begins: BinaryHeap::with_capacity(room as usize),
            flushes: Flushes::new(room),
            room,
            rate,
            times,
            last_read: None,
        }
    }

    /// Returns an unused interface with the same parameters for `room` commands.
    pub(super) fn fresh(&self, room: u32) -> Interleaved {
        Interleaved::new(self.rate, self.from_host.is_some(), self.times, room)
    }

    /// Number of commands whose end is not known yet.
    pub(super) fn in_flight(&self) -> u32 {
        self.room - self.free.len() as u32 + self.flushes.waiting()
    }

    /// Adds a command whose transfer begins at `at` and which ends no earlier than `until`.
    pub(super) fn add(&mut self, at: u64, order: u64, io: &ModelIo, until: u64) {
        let place = self.free.pop().expect("as many as the queue is deep");
        self.commands[place as usize] = Command {
            io: *io,
            order,
            until,
            span: self.flushes.open(),
        };
        self.begins.push(Reverse((at, order, place)));
    }

    /// Returns the time at which the next transfer begins or ends; `MAX` if there is none.
    pub(super) fn next(&self) -> u64 {
        let begins = self.begins.peek().map_or(u64::MAX, |b| b.0.0);
        begins.min(self.next_end().0)
    }

    /// Returns the end of the next transfer, if no other begins before, and whether it is on the
    /// separate direction from the host.
    fn next_end(&self) -> (u64, bool) {
        let to_host = self.to_host.next();
        match self.from_host.as_ref().map_or(u64::MAX, Link::next) {
            // At equal times the direction to the host goes first, so that the order is fixed.
            from_host if from_host < to_host => (from_host, true),
            _ => (to_host, false),
        }
    }

    /// Advances to the first end of a transfer, at most to `until`; returns its time and its
    /// command.
    pub(super) fn next_transferred(&mut self, until: u64) -> Option<(u64, Command)> {
        loop {
            let begins = self.begins.peek().map_or(u64::MAX, |b| b.0.0);
            let (at, from_host) = self.next_end();
            let next = begins.min(at);
            if next > until || next == u64::MAX {
                return None;
            }
            // At equal times a transfer ends before another begins: it has had its whole share.
            if at <= begins {
                let link = match &mut self.from_host {
                    Some(link) if from_host => link,
                    _ => &mut self.to_host,
                };
                let place = link.leave();
                self.free.push(place);
                return Some((at, self.commands[place as usize]));
            }
            self.begin();
        }
    }

    /// Begins the earliest transfer that has not begun.
    fn begin(&mut self) {
        let Reverse((at, order, place)) = self.begins.pop().expect("one is about to begin");
        let io = &self.commands[place as usize].io;
        let bytes = match io.op {
            Op::Read | Op::Write => u64::from(io.len),
            // Only reads and writes transfer data; write-zeroes sends none.
            _ => 0,
        };
        let read = io.op == Op::Read;
        let [command, turnaround] = self.times;
        let turns = self
            .last_read
            .replace(read)
            .is_some_and(|last| last != read);
        let time = if turns { command + turnaround } else { command };
        let link = match &mut self.from_host {
            Some(link) if !read => link,
            _ => &mut self.to_host,
        };
        link.enter(at, bytes, time, order, place);
    }
}

/// Flush that waits for the commands before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flush {
    pub(super) id: u64,
    pub(super) order: u64,
    /// Time at which the controller has decoded it, in nanoseconds.
    pub(super) ready: u64,
}

/// Commands between two flushes.
#[derive(Clone, Copy, Default, Debug)]
struct Span {
    /// Number of commands whose end is not known.
    open: u32,
    /// Latest known end of these and all earlier commands, in nanoseconds.
    latest: u64,
    /// Flush that waits for them; `None` in the last span.
    flush: Option<Flush>,
}

/// Record of which commands came before which flush.
#[derive(Clone, Debug)]
pub(super) struct Flushes {
    /// Spans that a flush still waits for, then the open one. Never grows beyond its capacity.
    spans: VecDeque<Span>,
    /// Number of the first span in `spans`.
    first: u64,
}

impl Flushes {
    fn new(room: u32) -> Flushes {
        let mut spans = VecDeque::with_capacity(room as usize + 1);
        // The open span; each waiting flush adds one.
        spans.push_back(Span::default());
        Flushes { spans, first: 0 }
    }

    /// Number of flushes that wait.
    fn waiting(&self) -> u32 {
        self.spans.len() as u32 - 1
    }

    fn last(&mut self) -> &mut Span {
        self.spans.back_mut().expect("there is always one")
    }

    /// Adds a command to the last span and returns the span's number.
    fn open(&mut self) -> u64 {
        self.last().open += 1;
        self.first + self.spans.len() as u64 - 1
    }

    /// Records the end of a command that was added to this span.
    pub(super) fn close(&mut self, span: u64, end: u64) {
        let span = &mut self.spans[(span - self.first) as usize];
        span.open -= 1;
        span.latest = span.latest.max(end);
    }

    /// Records the end of a command that was not added because its end was known at once.
    pub(super) fn pass(&mut self, end: u64) {
        let last = self.last();
        last.latest = last.latest.max(end);
    }

    /// Adds a flush that waits for all commands before it.
    pub(super) fn wait(&mut self, flush: Flush) {
        self.last().flush = Some(flush);
        self.spans.push_back(Span::default());
    }

    /// Removes and returns the first flush if the ends of all commands before it are known, with
    /// the latest of them. The caller must report the flush's own end with [`Flushes::ended`].
    pub(super) fn due(&mut self) -> Option<(Flush, u64)> {
        let span = self.spans.front()?;
        let flush = span.flush.filter(|_| span.open == 0)?;
        let latest = span.latest;
        self.spans.pop_front();
        self.first += 1;
        Some((flush, latest))
    }

    /// Records the end of the flush that was returned last: no later flush ends before it.
    pub(super) fn ended(&mut self, end: u64) {
        let span = self.spans.front_mut().expect("there is always one");
        span.latest = span.latest.max(end);
    }
}
