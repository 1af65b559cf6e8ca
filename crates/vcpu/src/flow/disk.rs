//! Files that are written through the page cache to one disk behind the driver domain (`dd`).
//!
//! A process produces bytes (zeros, or random ones, which cost far more CPU time) and writes them
//! into its guest's page cache. The guest writes them back to the disk through the driver domain,
//! with up to `depth` I/Os in flight; the disk serves one at a time. The process waits while the
//! dirty bytes reach their limit.

use super::{Flow, FlowResult, Hop, Order, Orders};
use crate::guest::{TaskId, Token};
use std::collections::VecDeque;
use tidegate_core::time::Nanos;

/// Description of one file that is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Writer {
    /// Interrupt in the guest for a completed I/O; the process runs on the same vCPU.
    pub interrupt: Hop,
    /// Process, and its CPU time of producing the bytes of one I/O.
    pub make: (TaskId, Nanos),
    /// Step in the driver domain of an I/O, on the way to the disk and on the way back.
    pub forward: Hop,
    /// Size of the file in bytes; the process writes whole I/Os, so the last one may exceed it, and
    /// the report counts it in full.
    pub file: u64,
    /// Dirty bytes at which the process waits.
    pub dirty_most: u64,
    /// Largest number of I/Os in flight at the driver domain and the disk.
    pub depth: u64,
    /// Time at which the process starts.
    pub begins: Nanos,
}

/// Progress of a writer.
#[derive(Clone, Copy, Default, Debug)]
struct Progress {
    has_begun: bool,
    is_making: bool,
    made: u64,
    /// Bytes produced and not yet on the disk.
    dirty: u64,
    /// I/Os in flight.
    in_flight: u64,
    /// Time at which the process had written the last byte into the page cache.
    ended: Option<Nanos>,
}

/// Disk and the writers that share it.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Number of this flow in tokens.
    pub id: u32,
    /// Size of an I/O in bytes.
    pub io: u64,
    /// Service time of an I/O.
    pub service: Nanos,
    writers: Vec<(Writer, Progress)>,
    /// Writers whose I/Os wait for the disk; the first one is being served.
    queue: VecDeque<usize>,
    /// Completion time of the I/O being served.
    ends: Option<Nanos>,
}

// Stages of tokens: the step that has just finished.
const MADE: u32 = 0;
const FORWARDED: u32 = 1;
const RETURNED: u32 = 2;
const INTERRUPTED: u32 = 3;

impl Disk {
    /// Creates a disk that serves an I/O of `io` bytes in `service`.
    ///
    /// # Panics
    /// `io` is 0.
    pub fn new(id: u32, io: u64, service: Nanos, writers: Vec<Writer>) -> Disk {
        // Writers advance by whole I/Os, so they would never finish.
        assert!(io > 0, "an I/O of the disk has at least one byte");
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

    /// Lets the process of `writer` produce more, and starts writeback, as far as their limits
    /// allow.
    fn advance_writer(&mut self, writer: usize, orders: &mut Orders) {
        let (making, flushing) = (self.token(MADE, writer), self.token(FORWARDED, writer));
        let (io, (spec, progress)) = (self.io, &mut self.writers[writer]);
        // The process writes ahead of writeback until the dirty limit throttles it.
        let may_make = progress.made < spec.file && progress.dirty < spec.dirty_most;
        if progress.has_begun && !progress.is_making && may_make {
            progress.is_making = true;
            let (task, cost) = spec.make;
            orders.push_back(Order::Work {
                vcpu: spec.interrupt.vcpu,
                task,
                cost,
                token: making,
            });
        }
        // Another I/O needs its whole size in dirty bytes beyond those in flight.
        while progress.in_flight < spec.depth && progress.dirty >= (progress.in_flight + 1) * io {
            progress.in_flight += 1;
            orders.push_back(spec.forward.event(flushing));
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
                let (spec, progress) = &mut self.writers[writer];
                progress.is_making = false;
                progress.made += io;
                progress.dirty += io;
                if progress.made >= spec.file {
                    progress.ended = Some(now);
                }
                self.advance_writer(writer, orders);
            }
            // An idle disk starts serving at once.
            FORWARDED => {
                self.queue.push_back(writer);
                self.ends.get_or_insert(now + self.service);
            }
            RETURNED => {
                let interrupt = self.writers[writer].0.interrupt;
                orders.push_back(interrupt.driver_answer(self.token(INTERRUPTED, writer)));
            }
            // The guest has seen the completion.
            INTERRUPTED => {
                let progress = &mut self.writers[writer].1;
                progress.in_flight -= 1;
                progress.dirty -= io;
                self.advance_writer(writer, orders);
            }
            // Only this flow makes its tokens: another stage would corrupt a writer unnoticed.
            stage => unreachable!("a disk has no stage {stage}"),
        }
    }

    fn next_timer(&self) -> Option<Nanos> {
        let waits = self.writers.iter().filter(|(_, p)| !p.has_begun);
        let begins = waits.map(|(spec, _)| spec.begins).min();
        begins.into_iter().chain(self.ends).min()
    }

    fn on_timer(&mut self, now: Nanos, orders: &mut Orders) {
        for writer in 0..self.writers.len() {
            let (spec, progress) = &mut self.writers[writer];
            if !progress.has_begun && spec.begins <= now {
                progress.has_begun = true;
                self.advance_writer(writer, orders);
            }
        }
        if self.ends.is_some_and(|ends| ends <= now) {
            if let Some(writer) = self.queue.pop_front() {
                let forward = self.writers[writer].0.forward;
                orders.push_back(forward.event(self.token(RETURNED, writer)));
            }
            // `ends` is the completion time of the first I/O in the queue only.
            self.ends = (!self.queue.is_empty()).then(|| now + self.service);
        }
    }

    fn is_over(&self) -> bool {
        self.writers.iter().all(|(_, p)| p.ended.is_some())
    }

    fn results(&self, now: Nanos) -> FlowResult {
        let one = |(spec, progress): &(Writer, Progress)| {
            let until = progress.ended.unwrap_or(now);
            (progress.made, until.since(spec.begins))
        };
        FlowResult::Written(self.writers.iter().map(one).collect())
    }
}
