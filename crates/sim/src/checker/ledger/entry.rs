//! Request in the ledger.

use super::SECTOR;
use tidegate_core::request::{ClientId, IoError, Op, Request, VmId};
use tidegate_core::time::Nanos;

/// Accepted request, with its progress at the device.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Connection that submitted the request.
    pub client: ClientId,
    /// The disk's number in [`Ledger::disks`](super::Ledger::disks).
    pub disk: u32,
    /// VM that owns the disk.
    pub vm: VmId,
    /// Request as it was submitted; its tag is its number in the ledger.
    pub request: Request,
    /// Time of arrival by the engine's clock.
    pub arrived: Nanos,
    /// Moment of acceptance, in calls.
    pub submitted: u64,
    /// Moment of the answer, in calls; [`NEVER`](super::NEVER) while the request is open.
    pub answered: u64,
    /// Bytes handed to the device, counted from the request's start; 0 again when it is repeated.
    pub handed: u32,
    /// Bytes that the device has moved.
    pub moved: u32,
    /// Number of I/Os in flight that carry a part of the request.
    pub outstanding: u32,
    /// `true` once the connection has gone or the VM was removed.
    pub gone: bool,
    /// `true` once the request was served at least in part, and therefore charged.
    pub served: bool,
    /// `true` from the failure of a merged I/O until the request starts again from its beginning,
    /// which it does once none of its I/Os is in flight.
    pub again: bool,
    /// `true` once the request was repeated; it must not be merged any more.
    pub alone: bool,
    /// For a flush: `true` once the device's flush for it has started.
    pub flushed: bool,
    /// Time at which the request was over: from then on nothing holds back its answer, and it has
    /// left the engine.
    pub over_at: Option<Nanos>,
    /// First error of an I/O of this request alone.
    pub error: Option<IoError>,
    /// Index in [`Ledger::open`](super::Ledger::open).
    pub(super) place: u32,
}

impl Entry {
    /// First sector on the disk, and number of sectors.
    pub fn sectors(&self) -> (usize, usize) {
        let first = self.request.offset / SECTOR;
        (first as usize, (self.request.len as u64 / SECTOR) as usize)
    }

    /// Returns `true` if the request is a change with FUA.
    pub fn fua(&self) -> bool {
        self.request.fua && !matches!(self.request.op, Op::Read | Op::Flush)
    }

    /// Returns `true` if everything that the request needs from the device was handed out.
    pub fn is_handed_out(&self) -> bool {
        match self.request.op {
            Op::Flush => self.flushed,
            _ => self.handed == self.request.len,
        }
    }

    /// Fails a request that still needs the device, where its disk has shrunk to `size` bytes and
    /// it lies beyond the end.
    pub fn cut_off(&mut self, size: u64) {
        let end = self.request.offset + u64::from(self.request.len);
        // A flush has no place, and a cancelled request is not told of the end.
        if end > size && self.request.op != Op::Flush && !self.gone {
            self.error.get_or_insert(IoError::BeyondEnd);
        }
    }

    /// Prepares the request's repetition, unmerged, if a merged I/O with it failed. Call it when
    /// the last of its I/Os has ended; the disk has `size` bytes.
    pub fn go_again(&mut self, size: u64) {
        // With an error of its own it is answered, and not repeated.
        if self.again && self.error.is_none() {
            (self.again, self.alone) = (false, true);
            (self.handed, self.moved) = (0, 0);
            self.cut_off(size);
        }
    }

    /// Returns `true` if nothing holds back the answer.
    pub(super) fn is_over(&self) -> bool {
        let nothing_more = self.gone || self.error.is_some() || self.is_handed_out();
        // `again` needs no test: it holds only while I/Os are in flight, and `go_again` clears it.
        self.outstanding == 0 && nothing_more
    }
}
