//! Issue of the requests of a block trace, piece by piece.
//!
//! ```text
//!   trace --disk, limit--> requests --size_factor, fold--> places on the disk --bs--> pieces
//! ```
//!
//! A request is issued in pieces of the workload's `bs`, at most `iodepth` of them outstanding, and
//! is done when all of them are answered. [`Mode`] determines when the next one is issued.

use crate::replay::{Factor, Mode, Replay};
use crate::spec::{RegionError, Workload};
use crate::stream::Io;
use crate::trace::Record;
use rand_pcg::Pcg64Mcg;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

#[cfg(test)]
mod tests;

/// Request of a trace, scaled to the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whole {
    /// Number of the request, from 0 on; repetitions of the trace continue the numbers.
    pub index: u64,
    /// Operation: read, write or discard.
    pub op: Op,
    /// Time of issue, from the workload's start on; zero if it is issued when the one before is
    /// done.
    pub at: Nanos,
    /// Total length in bytes of all its pieces.
    pub bytes: u64,
}

/// Mapping of a trace's addresses to the region.
#[derive(Clone, Debug)]
struct AddressMap {
    base: u64,
    /// Size in bytes of each disk's part of the region, in whole blocks.
    part: u64,
    block: u64,
    factor: Factor,
}

impl AddressMap {
    /// Returns the first byte on the disk, and the length in bytes.
    fn place(&self, record: &Record) -> (u64, u64) {
        // Up, so that no request becomes empty.
        let len = self.factor.mul_ceil(record.len.into()).div_ceil(self.block);
        let len = len.saturating_mul(self.block).min(self.part);
        let at = self.factor.mul_floor(record.offset) / self.block * self.block;
        // Moved rather than split where it would pass the end: its length is what the trace says.
        let at = (at % self.part).min(self.part - len);
        (self.base + u64::from(record.disk) * self.part + at, len)
    }
}

/// Generator of a trace's requests, piece by piece.
#[derive(Clone, Debug)]
pub struct TraceReplay {
    replay: Replay,
    map: AddressMap,
    /// Sizes in bytes of a piece of a read, of a write and of a discard.
    pieces: [u32; 3],
    fua: bool,
    /// Index of the next request, and number of completed rounds of the trace.
    next: usize,
    rounds: u64,
    period: Nanos,
    /// Request that is being issued; `at` and `left` are the address and the length of its rest.
    whole: Option<Whole>,
    /// True if the request that is being issued is a forced write.
    whole_fua: bool,
    at: u64,
    left: u64,
}

impl TraceReplay {
    /// Creates the generator of copy `copy` (from 0) of `workload`, which replays `replay`, on a
    /// disk of `disk_size` bytes with logical blocks of `block` bytes.
    pub(crate) fn new(
        workload: &Workload,
        replay: &Replay,
        copy: u32,
        disk_size: u64,
        block: u32,
    ) -> Result<TraceReplay, RegionError> {
        let region = workload.region(copy, disk_size)?;
        // A caller without a block size must not divide by 0.
        let block = u64::from(block.max(1));
        let base = region.start.next_multiple_of(block);
        // Before rounding the region held its requests; in whole blocks it may hold none.
        let blocks = region.end.saturating_sub(base) / u64::from(replay.disks()) / block;
        if blocks == 0 {
            return Err(workload.region_error(region, disk_size));
        }
        let piece = |i: usize| workload.sizes[i].smallest().max(1);
        Ok(TraceReplay {
            map: AddressMap {
                base,
                part: blocks * block,
                block,
                factor: replay.size_factor,
            },
            pieces: [piece(0), piece(1), piece(2)],
            fua: workload.sync,
            next: 0,
            rounds: 0,
            period: match replay.mode {
                Mode::Timed(factor) => replay.period(factor),
                Mode::NextWhenDone | Mode::Thinking(_) => Nanos::ZERO,
            },
            whole: None,
            whole_fua: false,
            at: 0,
            left: 0,
            replay: replay.clone(),
        })
    }

    /// Returns the next piece; `None` if there is none.
    pub(crate) fn next(&mut self) -> Option<Io> {
        let first = self.left == 0;
        if first {
            self.begin()?;
        }
        let op = self.whole?.op;
        let piece = match op {
            Op::Write => self.pieces[1],
            Op::Discard => self.pieces[2],
            _ => self.pieces[0],
        };
        let len = u64::from(piece).min(self.left);
        let io = Io {
            op,
            offset: self.at,
            len: len as u32,
            fua: op == Op::Write && (self.fua || self.whole_fua),
            waits: first && !matches!(self.replay.mode, Mode::Timed(_)),
            pause: Nanos::ZERO,
        };
        (self.at, self.left) = (self.at + len, self.left - len);
        Some(io)
    }

    /// Draws the pause before this piece, which was returned last.
    pub(crate) fn pause(&self, io: &Io, rng: &mut Pcg64Mcg) -> Nanos {
        if matches!(self.replay.mode, Mode::Thinking(_)) {
            // Only the first piece of a request has to wait for its think time.
            if !io.waits {
                return Nanos::ZERO;
            }
            let index = self.next - 1;
            let think = self.replay.records()[index].at;
            return match self.rounds {
                0 => think,
                _ => think + self.replay.pause_of_round(index),
            };
        }
        let is_first = self.rounds == 0 && self.next == 1;
        match self.replay.pause {
            Some(time) if io.waits && !is_first => time.draw(rng),
            _ => Nanos::ZERO,
        }
    }

    /// Proceeds to the next request; `None` if there is none.
    fn begin(&mut self) -> Option<()> {
        let all = self.replay.records();
        if self.next == all.len() {
            if self.ends() {
                return None;
            }
            (self.next, self.rounds) = (self.replay.repeats_from(), self.rounds + 1);
        }
        let record = &all[self.next];
        let (at, bytes) = self.map.place(record);
        // Saturates: a trace repeated for 584 years stays at the end of time.
        let before = self.rounds.saturating_mul(self.period.0);
        self.whole = Some(Whole {
            index: self.rounds * all.len() as u64 + self.next as u64,
            op: record.op,
            at: match self.replay.mode {
                Mode::Timed(factor) => Nanos(before.saturating_add(factor.mul_floor(record.at.0))),
                Mode::NextWhenDone | Mode::Thinking(_) => Nanos::ZERO,
            },
            bytes,
        });
        (self.at, self.left, self.whole_fua) = (at, bytes, record.fua);
        self.next += 1;
        Some(())
    }

    /// Returns true if [`TraceReplay::next`] returns no more pieces.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0 && self.next == self.replay.request_count() && self.ends()
    }

    /// Returns true if nothing follows the last request.
    fn ends(&self) -> bool {
        !self.replay.looped || self.replay.repeats_from() == self.replay.request_count()
    }

    /// Returns the request to which the piece returned last belongs.
    pub fn whole(&self) -> Option<&Whole> {
        self.whole.as_ref()
    }

    /// Returns the mode of the replay.
    pub fn mode(&self) -> Mode {
        self.replay.mode
    }
}
