//! Interface between the backing of a disk and its event loop.
//!
//! ```text
//!   event loop                        backing                       kernel, peer
//!   device I/O, its memory ---------> submit ---------------------> ring operations
//!   end of a turn's submissions ----> send: what was only queued -> ring operations
//!   its I/Os' outcomes <------------- handle <--------------------- operations that ended
//!   block status <------------------- query_extents
//! ```
//!
//! A [`Backing`] stores the bytes of one disk: memory, a file, a connection to another server. It
//! works on what its [`Port`] lends it and knows neither engine nor VMs nor the device's model, so
//! that fault rules, emulated devices and hung disks are the same for all of them.
//!
//! Calls are dispatched by an enumeration, [`AnyBacking`](super::AnyBacking), not through a table
//! of functions.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use tidegate_core::request::{DeviceIo, Outcome};
use tidegate_core::time::Nanos;

use super::activation::{Activation, Found};
use super::extents::{ExtentAnswer, ExtentQuery};
use super::memory::Tail;
use crate::buffer::{Mem, Pool};
use crate::disk_file_monitor::Watched;
use crate::ring::{Completion, Ring, Wake};

/// Storage of the bytes of one disk.
///
/// The memory of an I/O belongs to the backing from [`Backing::submit`] until the I/O ends, and not
/// longer: an I/O may only end once the kernel works on none of its memory.
pub(crate) trait Backing {
    /// State that all disks with this kind of backing share on a device. What an I/O in flight
    /// needs is here, by the I/O's index, so that it grows with the queue depth and not with the
    /// number of disks.
    type Shared;

    /// Starts an I/O within the disk, which reads its bytes into `ranges` or writes them from
    /// there, in order. A change with `fua` must be durable before the I/O ends. Returns `Some` if
    /// the I/O has ended; with `None` it ends by [`Port::end_io`], in this call or later.
    fn submit(
        &mut self,
        shared: &mut Self::Shared,
        port: &mut Port<'_>,
        io: &DeviceIo,
        ranges: impl Iterator<Item = Mem>,
    ) -> Option<Outcome>;

    /// Handles the completion of an operation that was submitted with a token of the port.
    fn handle(
        &mut self,
        shared: &mut Self::Shared,
        port: &mut Port<'_>,
        operation: Operation,
        completion: Completion,
    );

    /// Finds out which parts of a range are holes, now or later, and answers by
    /// [`Port::answer_extents`]. The default reports everything as data.
    fn query_extents(&mut self, _: &mut Self::Shared, port: &mut Port<'_>, query: ExtentQuery) {
        let status = query.all_data();
        port.answer_extents(status);
    }

    /// Sends what was queued, once for all submissions of a turn. Called after
    /// [`Port::send_later`].
    fn send(&mut self, _: &mut Self::Shared, _: &mut Port<'_>) {}

    /// Handles the expiry of a time passed to [`Port::wake_at`]. Can also be called without reason.
    fn handle_timeout(&mut self, _: &mut Self::Shared, _: &mut Port<'_>) {}

    /// Prepares the end of the disk, which follows once its I/Os have ended: from now on nothing
    /// waits for storage that is away. Can be called more than once, and I/Os may still be
    /// submitted afterwards.
    fn begin_close(&mut self, _: &mut Self::Shared, _: &mut Port<'_>) {}

    /// Registers the backing's files with the ring, before the first I/O.
    ///
    /// # Errors
    /// Fails if the ring's table or the process has no room.
    fn attach(&mut self, _: &mut Ring) -> io::Result<()> {
        Ok(())
    }

    /// Removes the backing's files from the ring. Called once no I/O is in flight and the backing
    /// [is at rest](Backing::is_at_rest). Descriptors whose closing may block stay in the backing,
    /// which is dropped on another thread.
    fn detach(&mut self, _: &mut Ring) {}

    /// Returns true if no operation of this backing is with the kernel. Must become true without
    /// further calls once no I/O is in flight.
    fn is_at_rest(&self) -> bool {
        true
    }

    /// Makes all completed writes durable. May block: called at rest, at the end of the loop or on
    /// another thread.
    ///
    /// # Errors
    /// Fails with the error of the storage; some writes may then be lost.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Makes all further changes fail, because [`Backing::sync`] failed. Backings whose sync cannot
    /// fail do nothing.
    fn sync_failed(&mut self, _: &io::Error) {}

    /// Returns true if I/Os end as soon as the ring has submitted them.
    fn is_instant(&self) -> bool {
        false
    }

    /// Returns memory of the disk itself that has the bytes of a range, if reading it waits for no
    /// device. It shows changes that are made later, also half of one. It stays there until the
    /// disk is detached, shrinks, or [moves](Backing::moves_at), all of which must wait for whoever
    /// uses it.
    fn resident(&self, _offset: u64, _len: usize) -> Option<Mem> {
        None
    }

    /// Returns true if a resize to `size` bytes moves what [`Backing::resident`] returns.
    fn moves_at(&self, _size: u64) -> bool {
        false
    }

    /// Returns the smallest unit in bytes that is written without a read before it: a power of two,
    /// at least 4096.
    fn physical_block(&self) -> u32 {
        4096
    }

    /// Returns the unit in bytes of the sizes that the disk can be given; 1 allows any size.
    fn size_unit(&self) -> u32 {
        1
    }

    /// Returns true if zeroing is faster than writing zeroes.
    fn zeroes_fast(&self, keep_allocated: bool) -> bool;

    /// Returns the reason why the disk refuses requests or may not answer them; `None` if there is
    /// none.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Returns why a change of the last minutes found no space, such as on a full file system;
    /// `None` if all did.
    fn no_space(&self) -> Option<String> {
        None
    }

    /// Returns the reason why the storage cannot be reached now, while requests wait for it; `None`
    /// if it can be.
    fn unreachable(&self) -> Option<String> {
        None
    }

    /// Returns the number of I/Os that went through a bounce buffer, because their range or memory
    /// was not aligned as direct I/O needs it.
    fn bounced(&self) -> u64 {
        0
    }

    /// Returns the file under observation; `None` if the bytes are not in a file.
    fn watched(&self) -> Option<&Arc<Watched>> {
        None
    }

    /// Returns the file identity, see [`sys::identity`](crate::ring::sys::identity); `None` if the
    /// bytes are not in a file.
    fn identity(&self) -> Option<(bool, u64, u64)> {
        None
    }

    /// Returns the lock of the disk's file; `None` if the disk cannot be handed over to another
    /// daemon.
    fn activation(&self) -> Option<&Arc<Activation>> {
        None
    }

    /// Makes all further I/Os fail, because the lock of the file is to be released. I/Os in flight
    /// go on.
    fn deactivate(&mut self) {}

    /// Serves I/O again: the lock of the file was taken, with these findings, or was not released.
    fn activate(&mut self, _found: Option<Found>) {}

    /// Returns the address of the first byte on the physical device; `None` if it is unknown. May
    /// block.
    fn first_address(&self) -> Option<u64> {
        None
    }

    /// Returns the work that another thread has to do before the disk has `size` bytes.
    ///
    /// # Errors
    /// Returns a message for the operator if the size cannot change.
    fn resize_work(&self, size: u64) -> Result<ResizeWork, String>;

    /// Announces the size below which the file will not be cut, so that an intended truncation is
    /// not taken for a loss of data.
    fn expect_size(&mut self, _size: u64) {}

    /// Takes a new size, after the [work](Backing::resize_work) on it.
    ///
    /// # Errors
    /// Fails if there is no memory for it or the size cannot change; the old size then stays.
    fn resize(&mut self, size: u64) -> io::Result<()>;
}

/// Work that another thread does to give a disk another size.
#[derive(Debug, Default)]
pub(crate) struct ResizeWork {
    /// File to extend or to truncate.
    pub(crate) file: Option<File>,
    /// Memory to return to the system.
    pub(crate) tail: Option<Tail>,
}

/// Ring operation that a backing has submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// Operation of the I/O with this index.
    Io(u32),
    /// Operation of the backing itself, such as a receive; `event` is a number that the backing
    /// chooses.
    Own { disk: u32, event: u8 },
}

/// Kinds of backing operations in the top byte of their tokens. Other values belong to the loop,
/// and the highest bit marks tokens of frontends.
const IO: u64 = 3;
const OWN: u64 = 6;
// The highest bit of a token marks the events of connections.
const _: () = assert!(IO != OWN && IO < 1 << 7 && OWN < 1 << 7);

impl Operation {
    /// Returns the token of the operation.
    #[inline]
    pub(crate) fn encode(self) -> u64 {
        match self {
            Operation::Io(index) => IO << 56 | u64::from(index),
            Operation::Own { disk, event } => OWN << 56 | u64::from(event) << 32 | u64::from(disk),
        }
    }

    /// Returns the operation that a token encodes; `None` if the token is not a backing's.
    #[inline]
    pub(crate) fn decode(bits: u64) -> Option<Operation> {
        match bits >> 56 {
            IO => Some(Operation::Io(bits as u32)),
            OWN => Some(Operation::Own {
                disk: bits as u32,
                event: (bits >> 32) as u8,
            }),
            _ => None,
        }
    }
}

/// Reports of backings to their loop. The device owns them and lends them with the port.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// Indices and outcomes of I/Os that ended.
    pub(crate) ended: Vec<(u32, Outcome)>,
    /// Answers to extent queries.
    pub(crate) extent_answers: Vec<ExtentAnswer>,
    /// Disks for which [`Backing::send`] is to be called.
    pub(crate) unsent: Vec<u32>,
    /// Times for which disks requested a call of [`Backing::handle_timeout`], earliest first.
    timers: BinaryHeap<Reverse<(Nanos, u32)>>,
}

impl Reports {
    /// Returns the earliest time at which a disk is to be called.
    #[inline]
    pub(crate) fn next_timer(&self) -> Option<Nanos> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// Requests a call of [`Backing::handle_timeout`] of a disk in this turn.
    pub(crate) fn call_soon(&mut self, disk: u32) {
        self.timers.push(Reverse((Nanos::ZERO, disk)));
    }

    /// Takes a disk whose time has come. The disk may have been removed meanwhile.
    #[inline]
    pub(crate) fn pop_timer(&mut self, now: Nanos) -> Option<u32> {
        self.next_timer().filter(|&at| at <= now)?;
        self.timers.pop().map(|Reverse((_, disk))| disk)
    }
}

/// Parts of the loop that a backing borrows for one call.
pub(crate) struct Port<'a> {
    /// The loop's ring.
    pub(crate) ring: &'a mut Ring,
    /// Bounce buffers, headers and receive buffers.
    pub(crate) plumbing: &'a mut Pool,
    /// Monotonic time, read once a turn of the loop.
    pub(crate) now: Nanos,
    /// Wakes the loop from another thread.
    pub(crate) wake: &'a Arc<Wake>,
    /// Index of the disk in the loop.
    pub(crate) disk: u32,
    pub(crate) reports: &'a mut Reports,
}

impl Port<'_> {
    /// Returns the token for an operation of the backing itself; [`Backing::handle`] gets its
    /// completion with this `event`. Operations of an I/O have the token of [`Operation::Io`].
    pub(crate) fn token(&self, event: u8) -> u64 {
        let disk = self.disk;
        Operation::Own { disk, event }.encode()
    }

    /// Reports that the I/O with this index has ended.
    #[inline]
    pub(crate) fn end_io(&mut self, index: u32, outcome: Outcome) {
        self.reports.ended.push((index, outcome));
    }

    /// Answers an extent query.
    pub(crate) fn answer_extents(&mut self, status: ExtentAnswer) {
        self.reports.extent_answers.push(status);
    }

    /// Requests a call of [`Backing::send`] at the end of the turn's submissions.
    pub(crate) fn send_later(&mut self) {
        self.reports.unsent.push(self.disk);
    }

    /// Requests a call of [`Backing::handle_timeout`] at this loop time.
    pub(crate) fn wake_at(&mut self, at: Nanos) {
        self.reports.timers.push(Reverse((at, self.disk)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_survives_its_token_and_is_told_from_others() {
        let (disk, event) = (u32::MAX, u8::MAX);
        for operation in [
            Operation::Io(0),
            Operation::Io(u32::MAX),
            Operation::Own { disk, event },
        ] {
            assert_eq!(Operation::decode(operation.encode()), Some(operation));
        }
        assert_eq!(Operation::decode(4 << 56), None);
        assert_eq!(Operation::decode(1 << 63 | 3 << 56), None);
    }

    #[test]
    fn timers_come_in_the_order_of_their_times_and_not_before() {
        let mut reports = Reports::default();
        for (at, disk) in [(30, 3), (10, 1), (20, 2)] {
            reports.timers.push(Reverse((Nanos(at), disk)));
        }
        assert_eq!(reports.next_timer(), Some(Nanos(10)));
        assert_eq!(reports.pop_timer(Nanos(9)), None);
        assert_eq!(reports.pop_timer(Nanos(25)), Some(1));
        assert_eq!(reports.pop_timer(Nanos(25)), Some(2));
        assert_eq!(reports.pop_timer(Nanos(25)), None);
    }
}
