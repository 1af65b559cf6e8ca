//! Medium of a disk with a volatile write cache; a stamp per sector stands for the bytes.
//!
//! A write is visible at once and durable later: when a flush or FUA says so, or when the cache
//! happens to be written back. A flush covers what was written before it started, and what was
//! written since only by chance.

use super::TortureRng;
use crate::checker::content::{BLANK, GARBAGE, Stamp};

/// Medium of one disk.
#[derive(Clone, Debug)]
pub(super) struct Media {
    current: Vec<Stamp>,
    durable: Vec<Stamp>,
    /// `true` for sectors that are listed in `dirty`.
    listed: Vec<bool>,
    /// Sectors that may differ between cache and medium, in the order in which they were written.
    dirty: Vec<u32>,
}

impl Media {
    /// Creates a blank disk.
    pub(super) fn new(sectors: usize) -> Media {
        Media {
            current: vec![BLANK; sectors],
            durable: vec![BLANK; sectors],
            listed: vec![false; sectors],
            dirty: Vec::with_capacity(sectors),
        }
    }

    /// Grows the medium to at least `sectors` sectors. A shrunk disk keeps what it cuts off, as a
    /// block device does.
    pub(super) fn grow(&mut self, sectors: usize) {
        let sectors = sectors.max(self.current.len());
        self.current.resize(sectors, BLANK);
        self.durable.resize(sectors, BLANK);
        self.listed.resize(sectors, false);
    }

    /// Contents that reads return.
    pub(super) fn current(&self) -> &[Stamp] {
        &self.current
    }

    /// Contents after a power cut, in the worst case.
    pub(super) fn durable(&self) -> &[Stamp] {
        &self.durable
    }

    /// Writes the sectors of one request.
    pub(super) fn write(&mut self, first: usize, count: usize, stamp: Stamp, rng: &mut TortureRng) {
        // In one case of four the cache is written back just before.
        let written_back = rng.chance(250);
        for sector in first..first + count {
            if written_back {
                self.durable[sector] = self.current[sector];
            }
            self.current[sector] = stamp;
            // Each sector once, which bounds the list by the size of the disk.
            if !self.listed[sector] {
                self.listed[sector] = true;
                self.dirty.push(sector as u32);
            }
        }
    }

    /// Discards sectors: they keep their contents, read as blank, or read as garbage.
    pub(super) fn discard(&mut self, first: usize, count: usize, rng: &mut TortureRng) {
        // NBD leaves the content of a discarded range undefined.
        match rng.below(3) {
            0 => {}
            1 => self.write(first, count, BLANK, rng),
            _ => self.write(first, count, GARBAGE, rng),
        }
    }

    /// Makes sectors durable, as FUA does.
    pub(super) fn make_durable(&mut self, first: usize, count: usize) {
        // The sectors stay listed: a flush writes the same content again, which changes nothing.
        self.durable[first..first + count].copy_from_slice(&self.current[first..first + count]);
    }

    /// Number of dirty sectors that a flush started now has to write back.
    pub(super) fn mark(&self) -> usize {
        self.dirty.len()
    }

    /// Writes back the first `count` sectors that were dirty when the flush started.
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
        // EventKind is written over is blank, so writing it back by chance shows nothing.
        let (mut media, mut rng) = (Media::new(8), TortureRng::new(1, 1));
        media.write(0, 2, 7, &mut rng);
        let mark = media.mark();
        media.write(4, 1, 8, &mut rng);
        media.flush(mark);
        assert_eq!(media.durable()[..3], [7, 7, BLANK]);
        assert_eq!(media.durable()[4], BLANK, "written after the flush started");
        assert_eq!(media.current()[4], 8);
        media.make_durable(4, 1);
        assert_eq!(media.durable()[4], 8);
    }
}
