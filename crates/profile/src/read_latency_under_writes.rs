//! Latency of single reads while writes saturate the device.
//!
//! A disk with a write cache, or flash with a write buffer, answers writes before it has performed
//! them, and lets reads wait for the rest. So writes are kept at a fixed depth, and one read at a
//! time is submitted among them. The next read follows a random number of writes later, as from a
//! guest that reads rarely: back-to-back reads would find the device already switched to reading.

use hdrhistogram::Histogram;
use tidegate_core::profile::{Access, BesideWrites, Direction};
use tidegate_core::random::mix;
use tidegate_core::time::Nanos;

use crate::addresses::Addresses;
use crate::load::{Request, histogram};
use crate::outcome::StepResult;
use crate::plan::{Pace, WritesPoint};

/// Maximum number of writes between two reads, as a multiple of the depth.
const PAUSE_DEPTHS: u64 = 4;
/// Maximum duration of a measurement with too few reads, as a multiple of [`Pace::run_max`].
const RUN_MAX_FACTOR: u64 = 4;

/// Measurement of reads under writes.
#[derive(Debug)]
pub(crate) struct ReadsUnderWrites {
    point: WritesPoint,
    pace: Pace,
    writes: Addresses,
    reads: Addresses,
    seed: u64,
    /// Number of writes in flight.
    writing: u32,
    /// True if a read is in flight.
    reading: bool,
    /// Number of writes that must end before the next read is submitted.
    pause: u64,
    began: Nanos,
    /// Bytes of completed writes.
    written: u64,
    /// Time from which reads are counted; `None` during warm-up.
    counted_since: Option<Nanos>,
    times: Histogram<u64>,
    done: bool,
}

impl ReadsUnderWrites {
    /// Starts a measurement at `now`.
    pub(crate) fn new(
        point: WritesPoint,
        pace: &Pace,
        span: u64,
        seed: u64,
        now: Nanos,
    ) -> ReadsUnderWrites {
        let read = BesideWrites::READ_SIZE;
        ReadsUnderWrites {
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

    /// Maximum number of I/Os in flight: the writes and one read.
    pub(crate) fn depth(&self) -> u32 {
        self.point.depth + 1
    }

    /// Returns the next I/O; `None` if none is to be submitted now.
    pub(crate) fn next(&mut self) -> Option<Request> {
        if self.done {
            return None;
        }
        if self.writing < self.point.depth {
            self.writing += 1;
            return Some(Request {
                direction: Direction::Write,
                addr: self.writes.next(),
                len: self.point.size,
            });
        }
        if self.reading || self.pause > 0 {
            return None;
        }
        self.reading = true;
        Some(Request {
            direction: Direction::Read,
            addr: self.reads.next(),
            len: BesideWrites::READ_SIZE,
        })
    }

    /// Returns true when the measurement is complete.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Records the end of an I/O that took `time`.
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
                let pause_max = PAUSE_DEPTHS * u64::from(self.point.depth);
                // The bias of the modulo is negligible: `pause_max` is tiny against 2^64.
                self.pause = self.seed % (pause_max + 1);
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
                let time_min = pace.run.0.saturating_mul(pace.runs_min as u64);
                let enough = spent >= time_min && self.times.len() >= pace.reads_under_writes_min;
                let time_max = pace.run_max.0.saturating_mul(RUN_MAX_FACTOR);
                self.done = enough || spent >= time_max;
            }
        }
    }

    pub(crate) fn result(&self) -> StepResult {
        let quantile = |q| self.times.value_at_quantile(q);
        StepResult::ReadsUnderWrites {
            reads: self.times.len(),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
        }
    }
}
