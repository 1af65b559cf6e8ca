//! Controller of a disk array, in front of any device: read cache, read-ahead, write-back cache.
//!
//! ```text
//!   submit --> [ processor: one command after another ]
//!                 | read                        | write
//!                 v                             v
//!        dirty data or valid pages?      room in the write cache?
//!          yes: host port --> end          yes: host port --> end
//!          no:  fetch of the pages         no:  waits for a destage
//!                 |                             |
//!                 v                             v
//!               [ the device itself: fetches, prefetches, destages ]
//! ```
//!
//! - **Reads** end from memory where every byte is dirty data or a valid page. Otherwise one fetch
//!   reads from the first page that is missing to the last, in whole pages, and the read ends when
//!   the fetch and those that bring its other pages have ended.
//! - **Read-ahead** follows a stream from its third read on, in I/Os of fixed size, while the
//!   device has room for them. Pages that a stream has passed are the first to be replaced.
//! - **Writes** end when their data is in the write cache, which a battery keeps: it is durable
//!   there, so FUA costs nothing and a flush ends with the commands that came before it. Dirty data
//!   is destaged from the high watermark down to the low one, after a time without commands, and
//!   while a write waits for room. Waiting writes keep their order; reads pass them.
//! - **Without a write cache** writes, write-zeroes, FUA and flushes go through to the device.
//!   Pages that a write touches are updated in memory in either case.
//! - **Discards** drop dirty data and valid pages, and go through.
//!
//! Time passes in steps: at each end of an I/O of the device and each command that leaves the
//! processor. The next poll is the next step, at which a command may or may not have ended, as with
//! an interleaved interface. Destages go on while nothing is in flight; they are caught up with at
//! the next submission.

mod figures;
mod pages;
mod streams;
mod write_cache;

pub use figures::{ControllerFigures, ReadAheadFigures, ReadCacheFigures, WriteCacheFigures};

use crate::figures::FigureError;
use crate::model::{Completion, Model, ModelIo, Spec, assert_submittable};
use pages::{PageCache, State};
use std::collections::VecDeque;
use streams::Streams;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;
use write_cache::{Run, WriteCache};

/// Maximum number of fetches that a read waits for; one with pages of more is fetched as a whole.
const MOST_FETCHES: usize = 4;

/// Command in the controller.
#[derive(Clone, Copy, Debug)]
struct Command {
    io: ModelIo,
    /// Place in the order of submission.
    sequence: u64,
    /// Time at which the processor is done with it.
    ready: u64,
    /// True if a stream is read ahead for it.
    streams: bool,
    /// Fetches that the read waits for.
    fetches: [u32; MOST_FETCHES],
    fetch_count: usize,
    /// Number of commands before a flush that have not ended.
    before: u32,
    /// Latest end of a command before a flush, and of the flush itself.
    latest: u64,
    /// True if a flush waits for the commands before it only.
    flushed: bool,
}

/// Purpose of an I/O of the device.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// Brings pages: the first one's number, and how many.
    Fetch { first: u64, count: u64 },
    /// Writes dirty data back.
    Destage(Run),
    /// Does a command as it is.
    Pass(u32),
}

/// I/O of the device behind the controller.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    purpose: Purpose,
    io: ModelIo,
}

/// Read cache with its page size.
struct Reads {
    pages: PageCache,
    page_bits: u32,
}

/// Device model behind an array controller.
pub struct Controller {
    spec: Spec,
    inner: Box<dyn Model>,
    overhead: u64,
    /// Rate of the host port in bytes per second.
    rate: u64,
    reads: Option<Reads>,
    streams: Option<Streams>,
    cache: Option<WriteCache>,
    /// Times from which on the processor and both directions of the host port are free.
    processor_free: u64,
    in_free: u64,
    out_free: u64,
    commands: Box<[Command]>,
    free_commands: Vec<u32>,
    submitted: u64,
    /// Commands that the processor is not done with, in order.
    arriving: VecDeque<u32>,
    /// Writes that wait for room in the write cache, in order.
    writes: VecDeque<u32>,
    /// Reads that wait for fetches, in order.
    fetching: Vec<u32>,
    /// Flushes that wait for commands before them, in order.
    flushes: Vec<u32>,
    transfers: Box<[Transfer]>,
    free_transfers: Vec<u32>,
    /// I/Os of commands that wait for room in the device's queue, in order.
    backlog: VecDeque<u32>,
    last_submit: Nanos,
    /// Ends of commands, sorted by time. Never grows beyond its capacity.
    ends: VecDeque<Completion>,
}

impl Controller {
    /// Puts a controller in front of a device at time zero.
    ///
    /// # Errors
    /// If a figure is out of range or does not suit the device.
    pub fn new(
        inner: Box<dyn Model>,
        figures: &ControllerFigures,
    ) -> Result<Controller, FigureError> {
        let device = inner.spec();
        figures.check(device)?;
        let depth = figures.queue_depth;
        let spec = figures.spec(device);
        // Commands may wait for the device; everything else begins only where it has room.
        let transfers = depth + device.queue_depth;
        let idle = Command {
            io: ModelIo::flush(0),
            sequence: 0,
            ready: 0,
            streams: false,
            fetches: [0; MOST_FETCHES],
            fetch_count: 0,
            before: 0,
            latest: 0,
            flushed: false,
        };
        let unused = Transfer {
            purpose: Purpose::Pass(0),
            io: idle.io,
        };
        let room = depth as usize;
        Ok(Controller {
            spec,
            inner,
            overhead: figures.command_overhead.0.0,
            rate: figures.interface_rate.0,
            reads: figures.read_cache.map(|cache| Reads {
                pages: PageCache::new(cache.pages()),
                page_bits: cache.page.0.ilog2(),
            }),
            streams: figures.read_ahead.as_ref().map(Streams::new),
            cache: figures.write_cache.as_ref().map(WriteCache::new),
            processor_free: 0,
            in_free: 0,
            out_free: 0,
            commands: vec![idle; room].into(),
            free_commands: (0..depth).rev().collect(),
            submitted: 0,
            arriving: VecDeque::with_capacity(room),
            writes: VecDeque::with_capacity(room),
            fetching: Vec::with_capacity(room),
            flushes: Vec::with_capacity(room),
            transfers: vec![unused; transfers as usize].into(),
            free_transfers: (0..transfers).rev().collect(),
            backlog: VecDeque::with_capacity(room),
            last_submit: Nanos::ZERO,
            ends: VecDeque::with_capacity(room),
        })
    }

    /// Time that `bytes` take on the host port.
    fn port_time(&self, bytes: u32) -> u64 {
        // At most 4.3 x 10^18, which fits 64 bits.
        u64::from(bytes) * Nanos::SECOND.0 / self.rate
    }

    /// Returns the time of the next step; `MAX` if nothing happens unless a command comes.
    fn next_step(&self) -> u64 {
        let arrives = self
            .arriving
            .front()
            .map(|index| self.commands[*index as usize].ready);
        let ends = self.inner.next_completion().map(|at| at.0);
        let idles = self
            .cache
            .as_ref()
            .filter(|cache| cache.wants_destage(true));
        // Once it is idle, the ends of destages begin the next ones.
        let idles = idles.map(|cache| self.last_submit.0.saturating_add(cache.idle()));
        let idles = idles.filter(|_| self.inner.in_flight() == 0);
        let first = arrives.into_iter().chain(ends).chain(idles).min();
        first.unwrap_or(u64::MAX)
    }

    /// Returns the end of the first command that has ended; `MAX` if there is none.
    fn first_end(&self) -> u64 {
        self.ends.front().map_or(u64::MAX, |end| end.at.0)
    }

    /// Takes all steps up to `now`.
    fn advance(&mut self, now: u64) {
        while let at = self.next_step()
            && at <= now
        {
            self.step(at);
        }
    }

    /// Takes one step at `now`: ends of the device before commands that arrive.
    fn step(&mut self, now: u64) {
        if self.inner.next_completion().is_some_and(|at| at.0 <= now) {
            if let Some(ended) = self.inner.pop_completed(Nanos(now)) {
                self.end_transfer(now, ended.id as u32);
            }
        } else if let Some(index) = self.arriving.front().copied()
            && self.commands[index as usize].ready <= now
        {
            self.arriving.pop_front();
            self.start(now, index);
        }
        self.pump(now);
    }

    /// Starts what waits and can: commands on the device, writes in the cache, destages.
    fn pump(&mut self, now: u64) {
        while self.inner.has_room()
            && let Some(transfer) = self.backlog.pop_front()
        {
            self.submit_transfer(now, transfer);
        }
        self.accept_writes(now);
        let idle = self.cache.as_ref().map_or(u64::MAX, WriteCache::idle);
        let is_idle = now >= self.last_submit.0.saturating_add(idle);
        while self.inner.has_room()
            && let pressed = is_idle | !self.writes.is_empty()
            && let Some(cache) = self.cache.as_mut().filter(|c| c.wants_destage(pressed))
            && let Some(run) = cache.next_destage()
        {
            // A destage is at most 1 MiB long.
            let io = ModelIo::write(0, run.start, (run.end - run.start) as u32);
            let transfer = self.new_transfer(Purpose::Destage(run), io);
            self.submit_transfer(now, transfer);
        }
    }

    fn new_transfer(&mut self, purpose: Purpose, io: ModelIo) -> u32 {
        let index = self.free_transfers.pop();
        let index = index.expect("as many as commands and the device's queue");
        let io = ModelIo {
            id: index.into(),
            ..io
        };
        self.transfers[index as usize] = Transfer { purpose, io };
        index
    }

    fn submit_transfer(&mut self, now: u64, transfer: u32) {
        let io = self.transfers[transfer as usize].io;
        self.inner.submit(Nanos(now), io);
    }

    /// Starts a command that the processor is done with.
    fn start(&mut self, now: u64, index: u32) {
        let io = self.commands[index as usize].io;
        let end = io.addr.saturating_add(io.len.into());
        match io.op {
            Op::Read => self.start_read(now, index),
            Op::Write | Op::WriteZeroes if self.cache.is_some() => self.writes.push_back(index),
            Op::Write | Op::WriteZeroes => self.pass(index),
            Op::Discard => {
                if let Some(cache) = &mut self.cache {
                    cache.remove(io.addr, end);
                }
                if let Some(reads) = &mut self.reads {
                    let (first, last) = (io.addr >> reads.page_bits, (end - 1) >> reads.page_bits);
                    reads.drop_pages(first, last);
                }
                self.pass(index);
            }
            // The write cache is durable: a battery keeps it.
            Op::Flush if self.cache.is_some() => self.flushed(now, index),
            Op::Flush => self.pass(index),
        }
    }

    /// Leaves a command to the device as it is.
    fn pass(&mut self, index: u32) {
        let io = self.commands[index as usize].io;
        let transfer = self.new_transfer(Purpose::Pass(index), io);
        self.backlog.push_back(transfer);
    }

    /// Takes writes into the cache, in order, as far as there is room.
    fn accept_writes(&mut self, now: u64) {
        while let Some(index) = self.writes.front().copied() {
            let io = self.commands[index as usize].io;
            let cache = self.cache.as_mut().expect("writes wait only for a cache");
            if !cache.has_room(io.len.into()) {
                return;
            }
            self.writes.pop_front();
            cache.insert(io.addr, io.addr + u64::from(io.len));
            // Zeroes are made by the controller, so no data comes from the host.
            let bytes = if io.op == Op::Write { io.len } else { 0 };
            self.in_free = self.in_free.max(now) + self.port_time(bytes);
            self.end_command(index, self.in_free);
        }
    }

    /// Ends a read from memory, or fetches what is missing; then reads ahead of its stream.
    fn start_read(&mut self, now: u64, index: u32) {
        let io = self.commands[index as usize].io;
        let (start, end) = (io.addr, io.addr + u64::from(io.len));
        let covered = self
            .cache
            .as_ref()
            .is_some_and(|cache| cache.covers(start, end));
        if self.reads.is_none() {
            if covered {
                self.end_read(now, index);
            } else {
                self.pass(index);
            }
            return;
        }
        let stream = self
            .streams
            .as_mut()
            .and_then(|streams| streams.read(start, end));
        self.commands[index as usize].streams = stream.is_some();
        if covered || self.fetch(index, start, end) {
            self.end_read(now, index);
        } else {
            self.fetching.push(index);
        }
        if let Some(stream) = stream {
            self.prefetch(now, stream);
        }
    }

    /// Finds the pages of a read. Returns `true` if all its data is in memory; otherwise what is
    /// missing is fetched, and the command knows the fetches that it waits for.
    fn fetch(&mut self, index: u32, start: u64, end: u64) -> bool {
        let reads = self.reads.as_mut().expect("called with a read cache");
        let (first, last) = (start >> reads.page_bits, (end - 1) >> reads.page_bits);
        let command = &mut self.commands[index as usize];
        command.fetch_count = 0;
        let (mut missing, mut too_many) = (None, false);
        for page in first..=last {
            match reads.pages.state(page) {
                State::Valid => reads.pages.touch(page),
                _ if reads.is_dirty(self.cache.as_ref(), page, start, end) => {}
                State::Pending(fetch) => too_many |= !command.wait_for(fetch),
                State::Absent => {
                    let from = missing.map_or(page, |(from, _)| from);
                    missing = Some((from, page));
                }
            }
        }
        // One place is kept for the command's own fetch.
        if too_many {
            command.fetch_count = 0;
            missing = Some((first, last));
        }
        let Some((from, to)) = missing else {
            return command.fetch_count == 0;
        };
        let transfer = self.new_fetch(from, to);
        let command = &mut self.commands[index as usize];
        command.fetches[command.fetch_count] = transfer;
        command.fetch_count += 1;
        self.backlog.push_back(transfer);
        false
    }

    /// Prepares a fetch of the pages `from..=to`, which are pending from then on as far as the
    /// cache has places for them.
    fn new_fetch(&mut self, from: u64, to: u64) -> u32 {
        let capacity = self.spec.capacity;
        let bits = self
            .reads
            .as_ref()
            .expect("called with a read cache")
            .page_bits;
        let (start, end) = (from << bits, ((to + 1) << bits).min(capacity));
        let purpose = Purpose::Fetch {
            first: from,
            count: to - from + 1,
        };
        // At most a command and a page at both ends, which the device takes.
        let transfer = self.new_transfer(purpose, ModelIo::read(0, start, (end - start) as u32));
        let reads = self.reads.as_mut().expect("called with a read cache");
        for page in from..=to {
            if reads.pages.state(page) == State::Absent && !reads.pages.reserve(page, transfer) {
                // All pages are pending: this one passes without being kept.
                break;
            }
        }
        transfer
    }

    /// Reads ahead of a stream as far as its distance and the device's queue allow.
    fn prefetch(&mut self, now: u64, stream: usize) {
        let capacity = self.spec.capacity;
        while self.backlog.len() < self.backlog_room()
            && let Some(streams) = &mut self.streams
            && let Some((start, end)) = streams.next_prefetch(stream, capacity)
        {
            streams.set_ahead(stream, end);
            let reads = self.reads.as_ref().expect("read-ahead needs a read cache");
            let (first, last) = (start >> reads.page_bits, (end - 1) >> reads.page_bits);
            // Only what is missing, without the pages at the begin that a read has brought.
            let absent = |page: &u64| reads.pages.state(*page) == State::Absent;
            let (Some(from), Some(to)) = (
                (first..=last).find(absent),
                (first..=last).rev().find(absent),
            ) else {
                continue;
            };
            let transfer = self.new_fetch(from, to);
            self.submit_after_backlog(now, transfer);
        }
    }

    /// Number of I/Os that may wait for the device before read-ahead rests: as many as its queue
    /// has room for.
    fn backlog_room(&self) -> usize {
        (self.inner.spec().queue_depth - self.inner.in_flight()) as usize
    }

    fn submit_after_backlog(&mut self, now: u64, transfer: u32) {
        // Commands first: what waits in front was counted, so there is room for all of it.
        while let Some(waiting) = self.backlog.pop_front() {
            self.submit_transfer(now, waiting);
        }
        self.submit_transfer(now, transfer);
    }

    /// Handles the end of an I/O of the device.
    fn end_transfer(&mut self, now: u64, transfer: u32) {
        let purpose = self.transfers[transfer as usize].purpose;
        match purpose {
            Purpose::Fetch { first, count } => self.end_fetch(now, transfer, first, count),
            Purpose::Destage(run) => {
                let cache = self.cache.as_mut().expect("only a cache destages");
                cache.destaged(run);
            }
            Purpose::Pass(index) => match self.commands[index as usize].io.op {
                Op::Flush => self.flushed(now, index),
                Op::Read => self.end_read(now, index),
                _ => self.end_command(index, now),
            },
        }
        self.free_transfers.push(transfer);
    }

    /// Makes pages valid, and ends the reads that waited for nothing else, in order.
    fn end_fetch(&mut self, now: u64, transfer: u32, first: u64, count: u64) {
        let reads = self.reads.as_mut().expect("only a read cache fetches");
        for page in first..first + count {
            reads.pages.arrive(page, transfer);
        }
        let mut waiting = core::mem::take(&mut self.fetching);
        waiting.retain(|index| {
            let is_complete = self.commands[*index as usize].arrived(transfer);
            if is_complete {
                self.end_read(now, *index);
            }
            !is_complete
        });
        self.fetching = waiting;
    }

    /// Sends a read's data through the host port.
    fn end_read(&mut self, now: u64, index: u32) {
        let Command { io, streams, .. } = self.commands[index as usize];
        self.out_free = self.out_free.max(now) + self.port_time(io.len);
        if let Some(reads) = self.reads.as_mut().filter(|_| streams) {
            let end = io.addr + u64::from(io.len);
            // The last page may hold what the stream reads next.
            for page in io.addr >> reads.page_bits..end >> reads.page_bits {
                reads.pages.demote(page);
            }
        }
        self.end_command(index, self.out_free);
    }

    /// Notes that a flush needs nothing but the ends of the commands before it.
    fn flushed(&mut self, now: u64, index: u32) {
        let flush = &mut self.commands[index as usize];
        flush.flushed = true;
        flush.latest = flush.latest.max(now);
        self.end_flushes();
    }

    /// Ends a command at `at`, and the flushes that waited for it last.
    fn end_command(&mut self, index: u32, at: u64) {
        self.finish(index, at);
        self.end_flushes();
    }

    /// Ends flushes with nothing to wait for; each may be what a later one waits for.
    fn end_flushes(&mut self) {
        let mut place = 0;
        while let Some(index) = self.flushes.get(place).copied() {
            let flush = self.commands[index as usize];
            if flush.flushed && flush.before == 0 {
                self.flushes.remove(place);
                self.finish(index, flush.latest);
            } else {
                place += 1;
            }
        }
    }

    fn finish(&mut self, index: u32, at: u64) {
        let Command { io, sequence, .. } = self.commands[index as usize];
        for flush in &self.flushes {
            let flush = &mut self.commands[*flush as usize];
            if flush.sequence > sequence {
                flush.before -= 1;
                flush.latest = flush.latest.max(at);
            }
        }
        self.free_commands.push(index);
        let end = Completion {
            id: io.id,
            at: Nanos(at),
        };
        // Behind equal ends, which keeps the order of arrival. Almost always at the back.
        let place = self.ends.partition_point(|other| other.at <= end.at);
        self.ends.insert(place, end);
    }
}

impl Command {
    /// Adds a fetch to those that the read waits for. Returns `false` if there are too many; one
    /// place is left for the read's own.
    fn wait_for(&mut self, fetch: u32) -> bool {
        if self.fetches[..self.fetch_count].contains(&fetch) {
            return true;
        }
        if self.fetch_count + 1 == MOST_FETCHES {
            return false;
        }
        self.fetches[self.fetch_count] = fetch;
        self.fetch_count += 1;
        true
    }

    /// Notes the end of a fetch. Returns `true` if the read waited for it, and for no other.
    fn arrived(&mut self, fetch: u32) -> bool {
        let fetches = &mut self.fetches[..self.fetch_count];
        let Some(place) = fetches.iter().position(|known| *known == fetch) else {
            return false;
        };
        fetches.swap(place, self.fetch_count - 1);
        self.fetch_count -= 1;
        self.fetch_count == 0
    }
}

impl Reads {
    /// Returns true if the part of `start..end` on this page is in the write cache.
    fn is_dirty(&self, cache: Option<&WriteCache>, page: u64, start: u64, end: u64) -> bool {
        let (from, to) = (page << self.page_bits, (page + 1) << self.page_bits);
        cache.is_some_and(|cache| cache.covers(start.max(from), end.min(to)))
    }

    /// Drops the valid pages `first..=last`.
    fn drop_pages(&mut self, first: u64, last: u64) {
        // A discard may cover the whole device; more pages than the cache has are looked for there.
        if last - first < self.pages.count() {
            (first..=last).for_each(|page| self.pages.drop_page(page));
        } else {
            self.pages.drop_between(first, last);
        }
    }
}

impl Model for Controller {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn submit(&mut self, now: Nanos, io: ModelIo) {
        assert_submittable(self, self.last_submit, now, &io);
        // Before the new time of submission counts, because idleness depends on it.
        self.advance(now.0);
        self.last_submit = now;
        let index = self
            .free_commands
            .pop()
            .expect("as many as the queue is deep");
        let started = self.spec.queue_depth - 1 - self.free_commands.len() as u32;
        self.processor_free = self.processor_free.max(now.0) + self.overhead;
        self.submitted += 1;
        self.commands[index as usize] = Command {
            io,
            sequence: self.submitted,
            ready: self.processor_free,
            streams: false,
            fetches: [0; MOST_FETCHES],
            fetch_count: 0,
            before: started,
            latest: self.ends.back().map_or(0, |end| end.at.0),
            flushed: false,
        };
        if io.op == Op::Flush {
            self.flushes.push(index);
        }
        self.arriving.push_back(index);
        self.advance(now.0);
    }

    fn next_completion(&self) -> Option<Nanos> {
        // Destages go on without commands, but no command waits for them.
        let waits = self.in_flight() > 0;
        waits.then(|| Nanos(self.first_end().min(self.next_step())))
    }

    fn pop_completed(&mut self, now: Nanos) -> Option<Completion> {
        // Stop at the first end: the caller may submit at that time, and nothing later may be
        // settled by then.
        while let at = self.next_step()
            && at <= now.0.min(self.first_end())
            && at != u64::MAX
        {
            self.step(at);
        }
        self.ends.pop_front_if(|end| end.at <= now)
    }

    fn in_flight(&self) -> u32 {
        // A command has an index until its end is known, and an entry in `ends` from then on.
        self.spec.queue_depth - self.free_commands.len() as u32 + self.ends.len() as u32
    }
}
