//! A request in the book.

use super::SECTOR;
use tidegate_core::request::{ClientId, IoError, Op, Request, VmId};
use tidegate_core::time::Nanos;

/// A request that was accepted.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Whose it is.
    pub client: ClientId,
    /// The disk's number in [`Ledger::disks`](super::Ledger::disks).
    pub disk: u32,
    /// Whose disk it is.
    pub vm: VmId,
    /// As it was handed in; its tag is its number here.
    pub request: Request,
    /// When it came, as the engine's clock shows it.
    pub arrived: Nanos,
    /// The moments of its acceptance and of its answer.
    pub submitted: u64,
    /// See `submitted`; [`NEVER`](super::NEVER) while it is open.
    pub answered: u64,
    /// Bytes handed to the device, from its start on; back to none when it goes again.
    pub handed: u32,
    /// Bytes the device has moved for it.
    pub moved: u32,
    /// I/Os in flight that carry it.
    pub outstanding: u32,
    /// Its client vanished, or its VM was removed.
    pub gone: bool,
    /// It was served, at least in part: charged.
    pub served: bool,
    /// It failed in company, and goes again from its start once nothing of it is in flight.
    pub again: bool,
    /// It did, and shall have none any more.
    pub alone: bool,
    /// A flush: the device's flush for it has started.
    pub flushed: bool,
    /// When it was over: since then nothing keeps its answer back, and it is not inside the
    /// engine any more.
    pub over_at: Option<Nanos>,
    /// What went wrong with it first.
    pub error: Option<IoError>,
    /// Its place in [`Ledger::open`](super::Ledger::open).
    pub(super) place: u32,
}

impl Entry {
    /// First sector and how many, on its disk.
    pub fn sectors(&self) -> (usize, usize) {
        let first = self.request.offset / SECTOR;
        (first as usize, (self.request.len as u64 / SECTOR) as usize)
    }

    /// Whether FUA counts for it.
    pub fn fua(&self) -> bool {
        self.request.fua && !matches!(self.request.op, Op::Read | Op::Flush)
    }

    /// Whether all it needs from the device was handed out.
    pub fn is_handed_out(&self) -> bool {
        match self.request.op {
            Op::Flush => self.flushed,
            _ => self.handed == self.request.len,
        }
    }

    /// It has something to ask of the device still, of a disk of so many bytes.
    pub fn cut_off(&mut self, size: u64) {
        let end = self.request.offset + u64::from(self.request.len);
        if end > size && self.request.op != Op::Flush && !self.gone {
            self.error.get_or_insert(IoError::BeyondEnd);
        }
    }

    /// The last of its I/Os has ended: if one of them failed in company, it goes again by itself.
    /// Its disk has so many bytes.
    pub fn go_again(&mut self, size: u64) {
        if self.again && self.error.is_none() {
            (self.again, self.alone) = (false, true);
            (self.handed, self.moved) = (0, 0);
            self.cut_off(size);
        }
    }

    /// Whether nothing keeps its answer back.
    pub(super) fn is_over(&self) -> bool {
        let nothing_more = self.gone || self.error.is_some() || self.is_handed_out();
        self.outstanding == 0 && nothing_more
    }
}
