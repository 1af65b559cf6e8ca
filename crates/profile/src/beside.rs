//! Reads beside writes that keep the device saturated.
//!
//! A disk with a write cache, or flash with a buffer, answers writes before it has done them, and
//! lets reads wait for what is left. So writes are kept at a depth, and one read at a time is
//! submitted among them. The next read comes a random number of writes later, which stands for a
//! guest that reads seldom: reads that follow each other at once would find the device going their
//! way.

use hdrhistogram::Histogram;
use tidegate_core::profile::{Access, BesideWrites, Direction};
use tidegate_core::random::mix;
use tidegate_core::time::Nanos;

use crate::addresses::Addresses;
use crate::load::{Wanted, histogram};
use crate::outcome::Taken;
use crate::plan::{BesidePoint, Pace};

/// Writes between two reads, in multiples of the depth, at most.
const PAUSE_DEPTHS: u64 = 4;
/// A measurement that is short of reads goes on for so many times its usual time.
const PATIENCE: u64 = 4;

/// One measurement of reads beside writes.
#[derive(Debug)]
pub(crate) struct Beside {
    point: BesidePoint,
    pace: Pace,
    writes: Addresses,
    reads: Addresses,
    seed: u64,
    /// Writes with the device.
    writing: u32,
    /// A read is with the device.
    reading: bool,
    /// Writes that are still to end before the next read.
    pause: u64,
    began: Nanos,
    /// Bytes of writes that have ended.
    written: u64,
    /// When counting began; `None`: the device still warms up.
    counted_since: Option<Nanos>,
    times: Histogram<u64>,
    done: bool,
}

impl Beside {
    /// From `now` on.
    pub(crate) fn new(point: BesidePoint, pace: &Pace, span: u64, seed: u64, now: Nanos) -> Beside {
        let read = BesideWrites::READ_SIZE;
        Beside {
            point,
            pace: pace.clone(),
            writes: Addresses::new(point.access, point.size, span, seed),
            reads: Addresses::new(Access::Random, read, span, mix(seed)),
            seed: mix(mix(seed)),
            writing: 0,
            reading: false,
            pause: 0,
            began: now,
            written: 0,
            counted_since: None,
            times: histogram(),
            done: false,
        }
    }

    /// I/Os with the device at most: the writes and one read.
    pub(crate) fn depth(&self) -> u32 {
        self.point.depth + 1
    }

    /// What to submit next; `None`: nothing now.
    pub(crate) fn next(&mut self) -> Option<Wanted> {
        if self.done {
            return None;
        }
        if self.writing < self.point.depth {
            self.writing += 1;
            return Some(Wanted {
                direction: Direction::Write,
                addr: self.writes.next(),
                len: self.point.size,
            });
        }
        if self.reading || self.pause > 0 {
            return None;
        }
        self.reading = true;
        Some(Wanted {
            direction: Direction::Read,
            addr: self.reads.next(),
            len: BesideWrites::READ_SIZE,
        })
    }

    /// Returns true once nothing more is submitted.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// An I/O has ended, which took `time`.
    pub(crate) fn completed(&mut self, now: Nanos, time: Nanos, direction: Direction) {
        match direction {
            Direction::Write => {
                self.writing -= 1;
                self.written += u64::from(self.point.size);
                self.pause = self.pause.saturating_sub(1);
            }
            Direction::Read => {
                self.reading = false;
                self.seed = mix(self.seed);
                let most = PAUSE_DEPTHS * u64::from(self.point.depth);
                self.pause = self.seed % (most + 1);
                if self.counted_since.is_some() {
                    self.times.saturating_record(time.0.max(1));
                }
            }
        }
        let pace = &self.pace;
        let spent = now.since(self.began);
        match self.counted_since {
            None => {
                let warm = spent >= pace.warm_up && self.written >= pace.warm_up_bytes;
                let waited = spent.0 >= (pace.warm_up + pace.run_max).0;
                if warm || waited {
                    self.counted_since = Some(now);
                }
            }
            Some(since) => {
                let spent = now.since(since).0;
                let least = pace.run.0.saturating_mul(pace.runs_min as u64);
                let enough = spent >= least && self.times.len() >= pace.beside_reads;
                let most = pace.run_max.0.saturating_mul(PATIENCE);
                self.done = enough || spent >= most;
            }
        }
    }

    pub(crate) fn taken(&self) -> Taken {
        let quantile = |q| self.times.value_at_quantile(q);
        Taken::Beside {
            reads: self.times.len(),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
        }
    }
}
