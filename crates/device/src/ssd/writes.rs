//! Writes: the transfer from the host, room in the write buffer, and programming where durability
//! requires it; flushes and discards. Times are in nanoseconds.

use super::interleaved::Flush;
use super::{Interface, Ssd};
use crate::model::ModelIo;
use tidegate_core::request::Op;

impl Ssd {
    /// Serves a write that the controller has decoded at `ready`; returns its end if that is known.
    pub(super) fn write(&mut self, now: u64, ready: u64, io: &ModelIo) -> Option<u64> {
        // Write-zeroes sends no data over the interface.
        let data = if io.op == Op::Write { io.len } else { 0 };
        match &mut self.interface {
            Interface::InOrder { .. } => {
                let at = self.send_in_order(now, ready, false, data.into());
                Some(self.buffer_write(now, at, io))
            }
            Interface::Interleaved(shared) => {
                shared.add(ready, self.sequence, io, 0);
                None
            }
        }
    }

    /// Puts a write whose data has arrived at `at` into the buffer; returns its end.
    pub(super) fn buffer_write(&mut self, now: u64, mut at: u64, io: &ModelIo) -> u64 {
        let (start, end) = (io.addr, io.addr + u64::from(io.len));
        let (first, last) = self.pages(start, end);
        if let Some(prefetch) = &mut self.prefetch {
            prefetch.drop_pages(first, last);
        }
        let mut die = self.die_of(first);
        for page in first..=last {
            let (_, units) = self.page_part(page, start, end);
            while !self.buffer.has_room(units.count_ones()) {
                at = at.max(self.make_room(now));
            }
            self.buffer.insert(die, page, units, at);
            if self.buffer.waiting(die) >= self.per_program && self.dies[die].full_since < at {
                self.dies[die].full_since = at;
            }
            self.plan(die);
            die = if die + 1 == self.dies.len() {
                0
            } else {
                die + 1
            };
        }
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.write(start >> self.unit_bits, ((end - 1) >> self.unit_bits) + 1);
        }
        if io.fua && !self.protected {
            // Consecutive pages lie on different dies, so more pages than dies add no die.
            let count = (last - first).saturating_add(1).min(self.dies.len() as u32);
            for page in first..first + count {
                let die = self.die_of(page);
                self.drain(now, at, die);
                at = at.max(self.dies[die].programmed);
            }
        }
        at
    }

    /// Serves a flush that the controller has decoded at `ready`; returns its end if that is known.
    pub(super) fn flush(&mut self, now: u64, ready: u64, io: &ModelIo) -> Option<u64> {
        // Programming what is buffered now need not wait for data that is still being transferred.
        let end = self.program_all(now, ready);
        match &mut self.interface {
            // In order, the ends of all earlier commands are known.
            Interface::InOrder { .. } => Some(end.max(self.latest_end)),
            Interface::Interleaved(shared) => {
                let flush = Flush {
                    id: io.id,
                    order: self.sequence,
                    ready,
                };
                shared.flushes.wait(flush);
                self.flush_due(now);
                None
            }
        }
    }

    /// Ends the flushes that waited only for commands whose ends are known by `now`.
    pub(super) fn flush_due(&mut self, now: u64) {
        while let Interface::Interleaved(shared) = &mut self.interface
            && let Some((flush, latest)) = shared.flushes.due()
        {
            let end = self.program_all(now, flush.ready.max(now)).max(latest);
            self.record_end(end, flush.order, flush.id);
            if let Interface::Interleaved(shared) = &mut self.interface {
                shared.flushes.ended(end);
            }
        }
    }

    /// Programs everything in the buffer from `ready` on, unless the buffer survives a power cut;
    /// returns the time at which that is done.
    fn program_all(&mut self, now: u64, ready: u64) -> u64 {
        let mut end = ready;
        if self.protected {
            return end;
        }
        for die in 0..self.dies.len() {
            if !self.buffer.is_empty() {
                self.drain(now, ready, die);
            }
            end = end.max(self.dies[die].programmed);
        }
        end
    }

    /// Discards the bytes `start..end`.
    pub(super) fn discard(&mut self, start: u64, end: u64) {
        if let Some(reclaim) = &mut self.reclaim {
            // Only units that are covered as a whole are discarded.
            let unit = (1_u64 << self.unit_bits) - 1;
            reclaim.discard((start + unit) >> self.unit_bits, end >> self.unit_bits);
        }
    }
}
