//! Files that are written through the page cache to one disk behind the driver domain (`dd`).
//!
//! A process makes bytes (zeros, or random ones, which take far longer) and writes them into its
//! guest's cache. The guest writes them back, several I/Os at a time, by way of the driver domain
//! to the disk, which does one after the other. Where more than a limit is dirty, the process
//! waits.

use super::{Flow, Found, Hop, Order, Orders};
use crate::guest::{TaskId, Token};
use std::collections::VecDeque;
use tidegate_core::time::Nanos;

/// One file that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Writer {
    /// The guest's interrupt, for an I/O that has ended; also where the process runs.
    pub interrupt: Hop,
    /// The process, and what making the bytes of an I/O costs it.
    pub make: (TaskId, Nanos),
    /// The driver domain, for an I/O on its way to the disk, and back.
    pub forward: Hop,
    /// How large the file is.
    pub file: u64,
    /// How much may be dirty before the process has to wait.
    pub dirty_most: u64,
    /// I/Os at the driver domain and the disk at most.
    pub depth: u64,
    /// When it begins.
    pub begins: Nanos,
}

/// What became of a writer.
#[derive(Clone, Copy, Default, Debug)]
struct Progress {
    has_begun: bool,
    is_making: bool,
    made: u64,
    /// Made, and not on the disk yet.
    dirty: u64,
    /// Of that, on its way.
    in_flight: u64,
    /// When the process had written the last of it.
    ended: Option<Nanos>,
}

/// A disk, and those who write to it.
#[derive(Clone, Debug)]
pub struct Disk {
    /// What it is called in tokens.
    pub id: u32,
    /// Bytes of an I/O.
    pub io: u64,
    /// How long the disk takes for one.
    pub service: Nanos,
    writers: Vec<(Writer, Progress)>,
    /// Whose I/Os wait for the disk, the first being served.
    queue: VecDeque<usize>,
    /// When the one being served ends.
    ends: Option<Nanos>,
}

const MADE: u32 = 0;
const FORWARDED: u32 = 1;
const RETURNED: u32 = 2;
const INTERRUPTED: u32 = 3;

impl Disk {
    /// A disk that takes `service` for an I/O of `io` bytes.
    pub fn new(id: u32, io: u64, service: Nanos, writers: Vec<Writer>) -> Disk {
        let writers = writers.into_iter().map(|w| (w, Progress::default()));
        Disk {
            id,
            io,
            service,
            writers: writers.collect(),
            queue: VecDeque::new(),
            ends: None,
        }
    }

    fn token(&self, stage: u32, writer: usize) -> Token {
        Token {
            flow: self.id,
            stage,
            data: writer as u64,
        }
    }

    /// Has the process go on, if it may, and writes back what it has made.
    fn drive(&mut self, writer: usize, orders: &mut Orders) {
        let (making, flushing) = (self.token(MADE, writer), self.token(FORWARDED, writer));
        let (io, (job, progress)) = (self.io, &mut self.writers[writer]);
        let may_make = progress.made < job.file && progress.dirty < job.dirty_most;
        if progress.has_begun && !progress.is_making && may_make {
            progress.is_making = true;
            let (task, cost) = job.make;
            orders.push_back(Order::Work {
                vcpu: job.interrupt.vcpu,
                task,
                cost,
                token: making,
            });
        }
        while progress.in_flight < job.depth && progress.dirty >= (progress.in_flight + 1) * io {
            progress.in_flight += 1;
            orders.push_back(job.forward.order(flushing, false));
        }
    }
}

impl Flow for Disk {
    fn start(&mut self, now: Nanos, orders: &mut Orders) {
        self.on_timer(now, orders);
    }

    fn done(&mut self, now: Nanos, token: Token, orders: &mut Orders) {
        let writer = token.data as usize;
        let io = self.io;
        match token.stage {
            MADE => {
                let (job, progress) = &mut self.writers[writer];
                progress.is_making = false;
                progress.made += io;
                progress.dirty += io;
                if progress.made >= job.file {
                    progress.ended = Some(now);
                }
                self.drive(writer, orders);
            }
            FORWARDED => {
                self.queue.push_back(writer);
                self.ends.get_or_insert(now + self.service);
            }
            RETURNED => {
                let interrupt = self.writers[writer].0.interrupt;
                orders.push_back(interrupt.order(self.token(INTERRUPTED, writer), true));
            }
            _ => {
                let progress = &mut self.writers[writer].1;
                progress.in_flight -= 1;
                progress.dirty -= io;
                self.drive(writer, orders);
            }
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        let waits = self.writers.iter().filter(|(_, p)| !p.has_begun);
        let begins = waits.map(|(job, _)| job.begins).min();
        begins.into_iter().chain(self.ends).min()
    }

    fn on_timer(&mut self, now: Nanos, orders: &mut Orders) {
        for writer in 0..self.writers.len() {
            let (job, progress) = &mut self.writers[writer];
            if !progress.has_begun && job.begins <= now {
                progress.has_begun = true;
                self.drive(writer, orders);
            }
        }
        if self.ends.is_some_and(|ends| ends <= now) {
            if let Some(writer) = self.queue.pop_front() {
                let forward = self.writers[writer].0.forward;
                orders.push_back(forward.order(self.token(RETURNED, writer), false));
            }
            self.ends = (!self.queue.is_empty()).then(|| now + self.service);
        }
    }

    fn is_over(&self) -> bool {
        self.writers.iter().all(|(_, p)| p.ended.is_some())
    }

    fn found(&self, now: Nanos) -> Found {
        let one = |(job, progress): &(Writer, Progress)| {
            let until = progress.ended.unwrap_or(now);
            (progress.made, until.since(job.begins))
        };
        Found::Written(self.writers.iter().map(one).collect())
    }
}
