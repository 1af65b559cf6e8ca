//! Commands whose data shares the interface with that of others: when their transfers begin, when
//! they are through, and which of them a flush waits for.
//!
//! ```text
//!   submit -> waits for its first page, -> shares the interface -> the drive goes on with it
//!             or for the controller                                (step of `Ssd`)
//! ```
//!
//! What comes later puts an end off, so nothing here is settled before its time has come.

use super::link::Link;
use crate::model::ModelIo;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use tidegate_core::request::Op;

/// A command whose end is not known yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) io: ModelIo,
    /// Its number in the order of arrival.
    pub(super) order: u64,
    /// It does not end before (nanoseconds): a read's last page takes until then.
    pub(super) until: u64,
    /// The flush that waits for it, or would.
    pub(super) span: u64,
}

/// Everything that is on its way through the interface. Times in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Interleaved {
    to_host: Link,
    /// From the host where that is another direction.
    from_host: Option<Link>,
    commands: Box<[Command]>,
    /// Their places that are free. Never grows beyond its capacity.
    free: Vec<u32>,
    /// When the transfer of a command begins, its order and its place.
    begins: BinaryHeap<Reverse<(u64, u64, u32)>>,
    pub(super) flushes: Flushes,
    room: u32,
    rate: u64,
}

impl Interleaved {
    /// For a drive that accepts `room` commands, at `rate` bytes a second.
    pub(super) fn new(rate: u64, full_duplex: bool, room: u32) -> Interleaved {
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
        }
    }

    /// The same for a queue of another length, unused.
    pub(super) fn fresh(&self, room: u32) -> Interleaved {
        Interleaved::new(self.rate, self.from_host.is_some(), room)
    }

    /// Commands whose end is not known yet.
    pub(super) fn in_flight(&self) -> u32 {
        self.room - self.free.len() as u32 + self.flushes.waiting()
    }

    /// A command whose transfer begins at `at`.
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

    /// When a transfer begins or is through next; `MAX` while there is none.
    pub(super) fn next(&self) -> u64 {
        let begins = self.begins.peek().map_or(u64::MAX, |b| b.0.0);
        begins.min(self.through().0)
    }

    /// When the next transfer is through if none begins before, and whether it comes from the
    /// host by a way of its own.
    fn through(&self) -> (u64, bool) {
        let to_host = self.to_host.next();
        match self.from_host.as_ref().map_or(u64::MAX, Link::next) {
            from_host if from_host < to_host => (from_host, true),
            _ => (to_host, false),
        }
    }

    /// Lets transfers begin until one is through, by `until` at the latest: when, and whose.
    pub(super) fn take(&mut self, until: u64) -> Option<(u64, Command)> {
        loop {
            let begins = self.begins.peek().map_or(u64::MAX, |b| b.0.0);
            let (at, from_host) = self.through();
            let next = begins.min(at);
            if next > until || next == u64::MAX {
                return None;
            }
            // At the same time who is through leaves first: it has had its part.
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

    /// The first transfer that has not begun does.
    fn begin(&mut self) {
        let Reverse((at, order, place)) = self.begins.pop().expect("one is about to begin");
        let io = &self.commands[place as usize].io;
        let bytes = match io.op {
            Op::Read | Op::Write => u64::from(io.len),
            // Zeroes are not sent.
            _ => 0,
        };
        let link = match &mut self.from_host {
            Some(link) if io.op != Op::Read => link,
            _ => &mut self.to_host,
        };
        link.enter(at, bytes, order, place);
    }
}

/// A flush that waits for commands before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flush {
    pub(super) id: u64,
    pub(super) order: u64,
    /// When the controller is done with it.
    pub(super) ready: u64,
}

/// The commands between two flushes.
#[derive(Clone, Copy, Default, Debug)]
struct Span {
    /// Those whose end is not known.
    open: u32,
    /// When the last of the others ends, and of all before them.
    latest: u64,
    /// What waits for them; `None` in the last span.
    flush: Option<Flush>,
}

/// Which commands came before which flush.
#[derive(Clone, Debug)]
pub(super) struct Flushes {
    /// From the first flush that waits on. Never grows beyond its capacity.
    spans: VecDeque<Span>,
    /// The number of the first of them.
    first: u64,
}

impl Flushes {
    fn new(room: u32) -> Flushes {
        let mut spans = VecDeque::with_capacity(room as usize + 1);
        spans.push_back(Span::default());
        Flushes { spans, first: 0 }
    }

    /// Flushes that wait.
    fn waiting(&self) -> u32 {
        self.spans.len() as u32 - 1
    }

    fn last(&mut self) -> &mut Span {
        self.spans.back_mut().expect("there is always one")
    }

    /// Counts a command in; returns the number of its span.
    fn open(&mut self) -> u64 {
        self.last().open += 1;
        self.first + self.spans.len() as u64 - 1
    }

    /// A command of the span with this number ends at `end`.
    pub(super) fn close(&mut self, span: u64, end: u64) {
        let span = &mut self.spans[(span - self.first) as usize];
        span.open -= 1;
        span.latest = span.latest.max(end);
    }

    /// A command that was not counted in ends at `end`.
    pub(super) fn pass(&mut self, end: u64) {
        let last = self.last();
        last.latest = last.latest.max(end);
    }

    /// A flush waits for all that was counted in before it.
    pub(super) fn wait(&mut self, flush: Flush) {
        self.last().flush = Some(flush);
        self.spans.push_back(Span::default());
    }

    /// The first flush that waits, once the ends of all before it are known, with the last of
    /// those. Tell [`Flushes::ended`] when the flush itself ends.
    pub(super) fn due(&mut self) -> Option<(Flush, u64)> {
        let span = self.spans.front()?;
        let flush = span.flush.filter(|_| span.open == 0)?;
        let latest = span.latest;
        self.spans.pop_front();
        self.first += 1;
        Some((flush, latest))
    }

    /// The flush that was due ends at `end`: no later one ends before.
    pub(super) fn ended(&mut self, end: u64) {
        let span = self.spans.front_mut().expect("there is always one");
        span.latest = span.latest.max(end);
    }
}
