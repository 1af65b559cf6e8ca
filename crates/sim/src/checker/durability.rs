//! Checker of durability. After a power cut no sector holds a value that a durable write has
//! certainly overwritten. A write is durable once it was answered successfully with FUA, or once a
//! flush that was requested after its answer was answered successfully.
//!
//! Floors are as in [`content`](super::content), raised by durable writes only.

use super::content::{Shadow, Stamp, describe};
use super::ledger::{Entry, Ledger};
use super::{Verdict, ensure};
use tidegate_core::request::Op;

/// Write that was answered successfully. `first` and `count` are sectors, the others moments.
#[derive(Clone, Copy, Debug)]
struct Written {
    first: u32,
    count: u32,
    submitted: u64,
    answered: u64,
}

/// Durable floors of one disk, by sector.
#[derive(Clone, Debug)]
pub struct Durable {
    floor: Vec<u64>,
    /// Writes in the order of their answers; the first `applied` of them are durable.
    written: Vec<Written>,
    applied: usize,
}

impl Durable {
    /// Creates the floors of a disk of `sectors` sectors.
    pub fn new(sectors: usize) -> Durable {
        Durable {
            floor: vec![0; sectors],
            written: Vec::new(),
            applied: 0,
        }
    }

    /// Grows the disk to at least `sectors` sectors.
    pub fn grow(&mut self, sectors: usize) {
        self.floor.resize(sectors.max(self.floor.len()), 0);
    }

    /// Records that a request was answered successfully.
    pub fn answered(&mut self, entry: &Entry) {
        let (first, count) = entry.sectors();
        let written = Written {
            first: first as u32,
            count: count as u32,
            submitted: entry.submitted,
            answered: entry.answered,
        };
        match entry.request.op {
            Op::Write | Op::WriteZeroes if entry.fua() => self.raise(written),
            Op::Write | Op::WriteZeroes => self.written.push(written),
            Op::Flush => {
                // In the order of answers, so that the first that is too late ends the search.
                while let Some(&written) = self.written.get(self.applied)
                    && written.answered < entry.submitted
                {
                    self.raise(written);
                    self.applied += 1;
                }
            }
            Op::Read | Op::Discard => {}
        }
    }

    fn raise(&mut self, written: Written) {
        let first = written.first as usize;
        for floor in &mut self.floor[first..first + written.count as usize] {
            // A later write may have become durable first, by its own FUA.
            *floor = (*floor).max(written.submitted);
        }
    }

    /// Checks `survives`, the content that the medium may hold after a power cut now.
    ///
    /// # Errors
    /// Fails when a durable write would be lost.
    pub fn check(&self, ledger: &Ledger, shadow: &Shadow, survives: &[Stamp]) -> Verdict {
        for (sector, (&stamp, &floor)) in survives.iter().zip(&self.floor).enumerate() {
            ensure!(
                Durability,
                shadow.is_legal(ledger, sector, stamp, floor),
                "after a power cut sector {sector} holds {}; a durable write asked for at moment \
                 {floor} is lost",
                describe(ledger, stamp)
            );
        }
        Ok(())
    }
}
