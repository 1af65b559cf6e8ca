//! Check of the content that reads return: for each sector, a value that was current at some moment
//! between the read's submission and its answer. Moments are numbers of calls of the engine.
//!
//! Writes that overlap in flight may reach the medium in any order, and one that failed or was
//! cancelled may have reached it or not. So a value is legal unless it is certain to have been
//! overwritten: by a write that was submitted after the value's own write was answered, and that
//! succeeded before the read was submitted. That needs one number for each sector: its *floor*, the
//! latest moment of submission among the writes that have succeeded. What a write answered before
//! the floor has stored is overwritten for good.
//!
//! A sector that was discarded may read as anything until it is overwritten.

use super::ledger::{Entry, Ledger, NEVER};
use super::{Verdict, ensure};
use tidegate_core::request::Op;

/// Content of a sector: the number of the request that wrote it, plus one.
pub type Stamp = u64;

/// Stamp of a sector that was never written.
pub const BLANK: Stamp = 0;
/// Stamp of content that a device may leave behind after a discard.
pub const GARBAGE: Stamp = u64::MAX;

/// Discards that may still show in a sector.
#[derive(Clone, Copy, Debug, Default)]
struct Discarded {
    /// Discards that are not answered yet.
    open: u32,
    /// Moment of the last discard's answer.
    ended: u64,
}

/// Floors and discards of one disk, by sector.
#[derive(Clone, Debug)]
pub struct Shadow {
    /// Number of the disk.
    disk: u32,
    /// Floor of each sector, a moment; see the module.
    floor: Vec<u64>,
    discarded: Vec<Discarded>,
}

impl Shadow {
    /// Creates the shadow of the disk with this number.
    pub fn new(disk: u32, sectors: usize) -> Shadow {
        Shadow {
            disk,
            floor: vec![0; sectors],
            discarded: vec![Discarded::default(); sectors],
        }
    }

    /// Grows the disk to at least `sectors` sectors.
    pub fn grow(&mut self, sectors: usize) {
        let sectors = sectors.max(self.floor.len());
        self.floor.resize(sectors, 0);
        self.discarded.resize(sectors, Discarded::default());
    }

    /// Records that a request was accepted. For a read, `floors` gets the present floors of its
    /// sectors.
    pub fn submitted(&mut self, entry: &Entry, floors: &mut Vec<u64>) {
        let (first, count) = entry.sectors();
        match entry.request.op {
            Op::Read => {
                floors.clear();
                floors.extend_from_slice(&self.floor[first..first + count]);
            }
            Op::Discard => {
                let sectors = &mut self.discarded[first..first + count];
                sectors.iter_mut().for_each(|d| d.open += 1);
            }
            // A write counts from its answer: until then both contents are legal.
            Op::Write | Op::WriteZeroes | Op::Flush => {}
        }
    }

    /// Records that a request was answered; `well` is `true` for a success.
    pub fn answered(&mut self, entry: &Entry, well: bool) {
        let (first, count) = entry.sectors();
        match entry.request.op {
            // A write that failed may have reached the medium or not, so that the floor stays.
            Op::Write | Op::WriteZeroes if well => {
                for floor in &mut self.floor[first..first + count] {
                    // Answers may come in another order than submissions.
                    *floor = (*floor).max(entry.submitted);
                }
            }
            // A discard that failed may have been carried out in part: success makes no difference.
            Op::Discard => {
                for discarded in &mut self.discarded[first..first + count] {
                    discarded.open -= 1;
                    discarded.ended = entry.answered;
                }
            }
            _ => {}
        }
    }

    /// Returns `true` if a sector may hold `stamp`, given that everything older than `floor` is
    /// overwritten.
    pub fn is_legal(&self, ledger: &Ledger, sector: usize, stamp: Stamp, floor: u64) -> bool {
        let discarded = &self.discarded[sector];
        // Until a later write ends, a discarded sector may read as anything.
        if discarded.open > 0 || discarded.ended > floor {
            return true;
        }
        match stamp {
            // Legal until a write has succeeded.
            BLANK => floor == 0,
            GARBAGE => false,
            stamp => {
                // Stamps are the number of a request plus one, so that 0 is free for blank sectors.
                let entry = &ledger.entries[stamp as usize - 1];
                let (first, count) = entry.sectors();
                let covers = (first..first + count).contains(&sector);
                let writes = matches!(entry.request.op, Op::Write | Op::WriteZeroes);
                entry.disk == self.disk && covers && writes && entry.answered > floor
            }
        }
    }

    /// Checks the stamps that read `number` found from its sector `skip` on, counted from 0.
    /// `floors` are those of [`Shadow::submitted`] at the time of the read.
    ///
    /// # Errors
    /// Fails when a stamp cannot have been current since then.
    pub fn read(
        &self,
        ledger: &Ledger,
        number: u32,
        floors: &[u64],
        skip: usize,
        found: &[Stamp],
    ) -> Verdict {
        let (first, _) = ledger.entries[number as usize].sectors();
        for (at, (&stamp, &floor)) in found.iter().zip(&floors[skip..]).enumerate() {
            let sector = first + skip + at;
            ensure!(
                Content,
                self.is_legal(ledger, sector, stamp, floor),
                "read {number} found {} in sector {sector} of disk {}; it was written over \
                 before the read was asked for, at moment {floor} or later",
                describe(ledger, stamp),
                self.disk
            );
        }
        Ok(())
    }

    /// Checks the content of the medium after everything has drained.
    ///
    /// # Errors
    /// Fails when a sector holds a stamp that was overwritten.
    pub fn settled(&self, ledger: &Ledger, medium: &[Stamp]) -> Verdict {
        for (sector, (&stamp, &floor)) in medium.iter().zip(&self.floor).enumerate() {
            ensure!(
                Content,
                self.is_legal(ledger, sector, stamp, floor),
                "in the end sector {sector} of disk {} holds {}; it was written over at moment \
                 {floor} or later",
                self.disk,
                describe(ledger, stamp)
            );
        }
        Ok(())
    }
}

/// Describes a stamp in words, for messages.
pub fn describe(ledger: &Ledger, stamp: Stamp) -> String {
    match stamp {
        BLANK => "what was there in the beginning".to_owned(),
        GARBAGE => "what a discard left".to_owned(),
        stamp => {
            let entry = &ledger.entries[stamp as usize - 1];
            let until = match entry.answered {
                NEVER => "open".to_owned(),
                at => format!("answered at moment {at}"),
            };
            format!(
                "what request {} wrote (asked at moment {}, {until})",
                stamp - 1,
                entry.submitted
            )
        }
    }
}
