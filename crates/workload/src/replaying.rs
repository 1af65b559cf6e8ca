//! Requests of a block trace that a job replays, piece by piece.
//!
//! ```text
//!   trace --disk, limit--> requests --size_factor, fold--> places on the disk --bs--> pieces
//! ```
//!
//! A request goes in pieces of the job's `bs`, at most `iodepth` of them outstanding, and is done
//! once all of them are answered. [`Mode`] says when the next one comes.

use crate::job::{Job, RegionError};
use crate::replay::{Factor, Mode, Replay};
use crate::stream::Io;
use crate::trace::Record;
use tidegate_core::request::Op;
use tidegate_core::time::Nanos;

#[cfg(test)]
mod tests;

/// A request of a trace, as it is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whole {
    /// Which, from 0 on; those that come again are counted on.
    pub index: u64,
    /// A read or a write.
    pub op: Op,
    /// When it is to come, from the job's start on; zero where it comes when the one before is
    /// done.
    pub at: Nanos,
    /// Bytes of all its pieces.
    pub bytes: u64,
}

/// Where a trace's requests lie.
#[derive(Clone, Debug)]
struct Fold {
    base: u64,
    /// Bytes of each of its disks' parts, in whole blocks.
    part: u64,
    block: u64,
    factor: Factor,
}

impl Fold {
    /// First byte on the disk, and bytes.
    fn place(&self, record: &Record) -> (u64, u64) {
        let len = self.factor.up(record.len.into()).div_ceil(self.block);
        let len = len.saturating_mul(self.block).min(self.part);
        let at = self.factor.down(record.offset) / self.block * self.block;
        let at = (at % self.part).min(self.part - len);
        (self.base + u64::from(record.disk) * self.part + at, len)
    }
}

/// Asks for a trace's requests, piece by piece.
#[derive(Clone, Debug)]
pub struct Replaying {
    replay: Replay,
    fold: Fold,
    /// Bytes of a piece of a read and of a write.
    pieces: [u32; 2],
    fua: bool,
    /// The next request, and how often the last one was there.
    next: usize,
    rounds: u64,
    period: Nanos,
    /// The one whose pieces are asked for: what is left of it, and where that begins.
    whole: Option<Whole>,
    at: u64,
    left: u64,
}

impl Replaying {
    /// Copy `copy` (from 0) of `job`, which replays `replay`, on a disk of `disk_size` bytes in
    /// logical blocks of `block`.
    pub(crate) fn new(
        job: &Job,
        replay: &Replay,
        copy: u32,
        disk_size: u64,
        block: u32,
    ) -> Result<Replaying, RegionError> {
        let region = job.region(copy, disk_size)?;
        let block = u64::from(block.max(1));
        let base = region.start.next_multiple_of(block);
        let blocks = region.end.saturating_sub(base) / u64::from(replay.disks()) / block;
        if blocks == 0 {
            return Err(job.misfit(region, disk_size));
        }
        let piece = |i: usize| job.sizes[i].smallest().max(1);
        Ok(Replaying {
            fold: Fold {
                base,
                part: blocks * block,
                block,
                factor: replay.size_factor,
            },
            pieces: [piece(0), piece(1)],
            fua: job.sync,
            next: 0,
            rounds: 0,
            period: match replay.mode {
                Mode::Timed(factor) => replay.period(factor),
                Mode::NextWhenDone => Nanos::ZERO,
            },
            whole: None,
            at: 0,
            left: 0,
            replay: replay.clone(),
        })
    }

    /// The next piece; `None`: there is none any more.
    pub(crate) fn next(&mut self) -> Option<Io> {
        let first = self.left == 0;
        if first {
            self.begin()?;
        }
        let op = self.whole?.op;
        let piece = self.pieces[usize::from(op == Op::Write)];
        let len = u64::from(piece).min(self.left);
        let io = Io {
            op,
            offset: self.at,
            len: len as u32,
            fua: self.fua && op == Op::Write,
            waits: first && self.replay.mode == Mode::NextWhenDone,
            pause: Nanos::ZERO,
        };
        (self.at, self.left) = (self.at + len, self.left - len);
        Some(io)
    }

    /// Goes on to the next request.
    fn begin(&mut self) -> Option<()> {
        let all = self.replay.records();
        if self.next == all.len() {
            if !self.replay.again {
                return None;
            }
            (self.next, self.rounds) = (0, self.rounds + 1);
        }
        let record = &all[self.next];
        let (at, bytes) = self.fold.place(record);
        let before = self.rounds.saturating_mul(self.period.0);
        self.whole = Some(Whole {
            index: self.rounds * all.len() as u64 + self.next as u64,
            op: record.op,
            at: match self.replay.mode {
                Mode::Timed(factor) => Nanos(before.saturating_add(factor.down(record.at.0))),
                Mode::NextWhenDone => Nanos::ZERO,
            },
            bytes,
        });
        (self.at, self.left) = (at, bytes);
        self.next += 1;
        Some(())
    }

    /// Whether [`Replaying::next`] has nothing more to say.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0 && self.next == self.replay.requests() && !self.replay.again
    }

    /// The request that the piece that was said last is of.
    pub fn whole(&self) -> Option<&Whole> {
        self.whole.as_ref()
    }

    /// When requests come.
    pub fn mode(&self) -> Mode {
        self.replay.mode
    }
}
