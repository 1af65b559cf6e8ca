//! Reads: pages from the flash, from the write buffer or from the prefetch, and the transfer to the
//! host.

use super::{Interface, Ssd};
use crate::model::ModelIo;

impl Ssd {
    /// Serves a read that the controller has decoded at `ready`; returns its end if that is known.
    pub(super) fn read(&mut self, now: u64, ready: u64, io: &ModelIo) -> Option<u64> {
        let (start, end) = (io.addr, io.addr + u64::from(io.len));
        let (soonest, until) = self.fetch(now, ready, start, end);
        match &mut self.interface {
            Interface::InOrder { .. } => {
                let sent = self.send_in_order(now, soonest, true, end - start);
                Some(sent.max(until))
            }
            Interface::Interleaved(shared) => {
                shared.add(soonest, self.sequence, io, until);
                None
            }
        }
    }

    /// Reads the pages of `start..end`. Returns the time at which the first page is ready to be
    /// sent, and the earliest time at which the last one is sent.
    fn fetch(&mut self, now: u64, ready: u64, start: u64, end: u64) -> (u64, u64) {
        let (first, last) = self.pages(start, end);
        let stream = self.prefetch.as_mut().map(|p| p.follow(start, end));
        let (mut soonest, mut latest, mut tail) = (u64::MAX, 0, 0);
        for page in first..=last {
            let (bytes, units) = self.page_part(page, start, end);
            let ahead = match (stream, &self.prefetch) {
                (Some((index, true)), Some(p)) => p.ready(index, page),
                _ => None,
            };
            let at = if self.buffer.holds(page, units) {
                ready
            } else if let Some(at) = ahead {
                at.max(ready)
            } else {
                self.read_page(now, ready, page, bytes)
            };
            soonest = soonest.min(at);
            // Pages are sent as they become ready; behind the last one only its own bytes remain.
            if at >= latest {
                (latest, tail) = (at, bytes);
            }
        }
        if let Some((index, true)) = stream {
            self.read_ahead(now, ready, index, end);
        }
        (soonest, latest + self.on_interface(tail))
    }

    /// Prefetches the pages behind `end` for a stream.
    fn read_ahead(&mut self, now: u64, ready: u64, index: usize, end: u64) {
        let Some(prefetch) = &mut self.prefetch else {
            return;
        };
        // Nothing lies behind the last byte of the drive.
        let until = (end + prefetch.ahead).min(self.spec.capacity);
        let (from, last) = (
            (end >> self.page_bits) as u32,
            ((until - 1) >> self.page_bits) as u32,
        );
        for page in prefetch.advance(index, from, last + 1) {
            let at = self.read_page(now, ready, page, 1 << self.page_bits);
            if let Some(prefetch) = &mut self.prefetch {
                prefetch.record_ready(index, page, at);
            }
        }
    }
}
