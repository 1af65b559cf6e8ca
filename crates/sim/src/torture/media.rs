//! The medium of a disk behind a volatile write cache: one stamp a sector, not real bytes.
//!
//! A write is visible at once and durable later: when a flush or FUA says so, or when the cache
//! happens to be written back. A flush covers what was written before it started, and what was
//! written since only by chance.

use super::Dice;
use crate::checker::content::{BLANK, GARBAGE, Stamp};

/// One disk's medium.
#[derive(Clone, Debug)]
pub(super) struct Media {
    current: Vec<Stamp>,
    durable: Vec<Stamp>,
    /// Sectors that stand in `dirty`.
    listed: Vec<bool>,
    /// Sectors that may differ between the cache and the medium, in the order they came to.
    dirty: Vec<u32>,
}

impl Media {
    /// A blank disk.
    pub(super) fn new(sectors: usize) -> Media {
        Media {
            current: vec![BLANK; sectors],
            durable: vec![BLANK; sectors],
            listed: vec![false; sectors],
            dirty: Vec::with_capacity(sectors),
        }
    }

    /// More blank sectors, where it has less than so many. What a shorter disk cuts off stays, as
    /// on a block device.
    pub(super) fn grow(&mut self, sectors: usize) {
        let sectors = sectors.max(self.current.len());
        self.current.resize(sectors, BLANK);
        self.durable.resize(sectors, BLANK);
        self.listed.resize(sectors, false);
    }

    /// What reads find.
    pub(super) fn current(&self) -> &[Stamp] {
        &self.current
    }

    /// What is left after a power cut in the worst case.
    pub(super) fn durable(&self) -> &[Stamp] {
        &self.durable
    }

    /// A write of one request's sectors.
    pub(super) fn write(&mut self, first: usize, count: usize, stamp: Stamp, dice: &mut Dice) {
        // Now and then the cache is written back just before.
        let written_back = dice.chance(250);
        for sector in first..first + count {
            if written_back {
                self.durable[sector] = self.current[sector];
            }
            self.current[sector] = stamp;
            if !self.listed[sector] {
                self.listed[sector] = true;
                self.dirty.push(sector as u32);
            }
        }
    }

    /// A discard: what was there stays, or reads as blank, or as garbage.
    pub(super) fn discard(&mut self, first: usize, count: usize, dice: &mut Dice) {
        match dice.below(3) {
            0 => {}
            1 => self.write(first, count, BLANK, dice),
            _ => self.write(first, count, GARBAGE, dice),
        }
    }

    /// These sectors are durable, as with FUA.
    pub(super) fn make_durable(&mut self, first: usize, count: usize) {
        self.durable[first..first + count].copy_from_slice(&self.current[first..first + count]);
    }

    /// How much a flush that starts now has to write back.
    pub(super) fn mark(&self) -> usize {
        self.dirty.len()
    }

    /// A flush writes back the first `count` of what was dirty when it started.
    pub(super) fn flush(&mut self, count: usize) {
        for sector in self.dirty.drain(..count) {
            let sector = sector as usize;
            self.durable[sector] = self.current[sector];
            self.listed[sector] = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_what_came_before_it_and_nothing_else() {
        // What is written over is blank, so writing it back by chance shows nothing.
        let (mut media, mut dice) = (Media::new(8), Dice::new(1, 1));
        media.write(0, 2, 7, &mut dice);
        let mark = media.mark();
        media.write(4, 1, 8, &mut dice);
        media.flush(mark);
        assert_eq!(media.durable()[..3], [7, 7, BLANK]);
        assert_eq!(media.durable()[4], BLANK, "written after the flush started");
        assert_eq!(media.current()[4], 8);
        media.make_durable(4, 1);
        assert_eq!(media.durable()[4], 8);
    }
}
