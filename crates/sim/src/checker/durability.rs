//! After a power cut a sector holds a value that no durable write has certainly written over.
//! A write is durable once it was answered well with FUA, or a flush that was asked for after
//! its answer was answered well.
//!
//! The floors are those of [`content`](super::content), raised by durable writes only.

use super::content::{Shadow, Stamp, describe};
use super::ledger::{Entry, Ledger};
use super::{Verdict, ensure};
use tidegate_core::request::Op;

/// A write that was answered well.
#[derive(Clone, Copy, Debug)]
struct Written {
    first: u32,
    count: u32,
    submitted: u64,
    answered: u64,
}

/// The durable floors of one disk.
#[derive(Clone, Debug)]
pub struct Durable {
    floor: Vec<u64>,
    /// Writes in the order of their answers; those before `applied` are durable.
    written: Vec<Written>,
    applied: usize,
}

impl Durable {
    /// Of a disk of so many sectors.
    pub fn new(sectors: usize) -> Durable {
        Durable {
            floor: vec![0; sectors],
            written: Vec::new(),
            applied: 0,
        }
    }

    /// The disk has at least so many sectors from now on.
    pub fn grow(&mut self, sectors: usize) {
        self.floor.resize(sectors.max(self.floor.len()), 0);
    }

    /// A request was answered well.
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
            *floor = (*floor).max(written.submitted);
        }
    }

    /// The power is cut: `survives` is what the medium may hold afterwards.
    ///
    /// # Errors
    /// When a durable write would be lost.
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
