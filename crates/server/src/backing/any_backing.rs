//! Backings as one enumeration, so that calls are dispatched by a `match` that can be inlined.

use std::io;
use std::sync::Arc;

use tidegate_core::request::{DeviceIo, Outcome};

use super::activation::{Activation, Found};
use super::extents::ExtentQuery;
use super::file_backing::{FileBacking, FileIos};
use super::interface::{Backing, Operation, Port, Reports, ResizeWork};
use super::memory::Memory;
use super::memory_backing::Scratch;
use super::nbd::{NbdBacking, NbdIos};
use crate::buffer::Mem;
use crate::disk_file_monitor::Watched;
use crate::ring::{Completion, Ring};

/// Backing of a disk, by kind.
#[allow(
    clippy::large_enum_variant,
    reason = "calls of files go through no pointer, and there is one for each disk"
)]
#[derive(Debug)]
pub(crate) enum AnyBacking {
    /// Bytes in memory.
    Memory(Memory),
    /// Bytes in a file or block device.
    File(FileBacking),
    /// Bytes on an NBD server. Boxed, since it is eight times the size of the others, which every
    /// disk would have.
    Nbd(Box<NbdBacking>),
}

/// State that the disks of a device share, by kind of backing.
#[derive(Debug)]
pub(crate) struct Shared {
    memory: Scratch,
    files: FileIos,
    nbd: NbdIos,
}

impl Shared {
    /// Creates the shared state of a device with at most `io_slots` I/Os in flight.
    ///
    /// # Errors
    /// Fails if the address space is exhausted.
    pub(crate) fn new(io_slots: u32) -> io::Result<Shared> {
        Ok(Shared {
            memory: Scratch::default(),
            files: FileIos::new(io_slots)?,
            nbd: NbdIos::new(io_slots),
        })
    }

    /// Reports the answers that helper threads have found.
    pub(crate) fn collect(&mut self, reports: &mut Reports) {
        self.files.collect(reports);
        self.nbd.collect(reports);
    }
}

/// Calls a method of the backing, whatever its kind.
macro_rules! call {
    ($medium:expr, $backing:ident => $call:expr) => {
        match $medium {
            AnyBacking::Memory($backing) => $call,
            AnyBacking::File($backing) => $call,
            AnyBacking::Nbd($backing) => $call,
        }
    };
}

/// Calls a method with the shared state of the backing's kind.
macro_rules! call_with {
    ($medium:expr, $all:expr, $backing:ident, $shared:ident => $call:expr) => {
        match $medium {
            AnyBacking::Memory($backing) => {
                let $shared = &mut $all.memory;
                $call
            }
            AnyBacking::File($backing) => {
                let $shared = &mut $all.files;
                $call
            }
            AnyBacking::Nbd($backing) => {
                let $shared = &mut $all.nbd;
                $call
            }
        }
    };
}

impl AnyBacking {
    /// See [`Backing::submit`].
    #[inline]
    pub(crate) fn submit(
        &mut self,
        all: &mut Shared,
        port: &mut Port<'_>,
        io: &DeviceIo,
        ranges: impl Iterator<Item = Mem>,
    ) -> Option<Outcome> {
        call_with!(self, all, it, shared => it.submit(shared, port, io, ranges))
    }

    /// See [`Backing::handle`].
    #[inline]
    pub(crate) fn handle(
        &mut self,
        all: &mut Shared,
        port: &mut Port<'_>,
        operation: Operation,
        completion: Completion,
    ) {
        call_with!(self, all, it, shared => it.handle(shared, port, operation, completion));
    }

    /// See [`Backing::query_extents`].
    pub(crate) fn query_extents(
        &mut self,
        all: &mut Shared,
        port: &mut Port<'_>,
        query: ExtentQuery,
    ) {
        call_with!(self, all, it, shared => it.query_extents(shared, port, query));
    }

    /// See [`Backing::send`].
    pub(crate) fn send(&mut self, all: &mut Shared, port: &mut Port<'_>) {
        call_with!(self, all, it, shared => it.send(shared, port));
    }

    /// See [`Backing::handle_timeout`].
    pub(crate) fn handle_timeout(&mut self, all: &mut Shared, port: &mut Port<'_>) {
        call_with!(self, all, it, shared => it.handle_timeout(shared, port));
    }

    /// See [`Backing::begin_close`].
    pub(crate) fn begin_close(&mut self, all: &mut Shared, port: &mut Port<'_>) {
        call_with!(self, all, it, shared => it.begin_close(shared, port));
    }

    /// See [`Backing::attach`].
    ///
    /// # Errors
    /// If the ring's table or the process has no room.
    pub(crate) fn attach(&mut self, ring: &mut Ring) -> io::Result<()> {
        call!(self, it => it.attach(ring))
    }

    /// See [`Backing::detach`].
    pub(crate) fn detach(&mut self, ring: &mut Ring) {
        call!(self, it => it.detach(ring));
    }

    /// See [`Backing::is_at_rest`].
    pub(crate) fn is_at_rest(&self) -> bool {
        call!(self, it => it.is_at_rest())
    }

    /// See [`Backing::sync`].
    ///
    /// # Errors
    /// If what was written cannot be made durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        call!(self, it => it.sync())
    }

    /// See [`Backing::sync_failed`].
    pub(crate) fn sync_failed(&mut self, error: &io::Error) {
        call!(self, it => it.sync_failed(error));
    }

    /// See [`Backing::is_instant`].
    #[inline]
    pub(crate) fn is_instant(&self) -> bool {
        call!(self, it => it.is_instant())
    }

    /// See [`Backing::resident`].
    pub(crate) fn resident(&self, offset: u64, len: usize) -> Option<Mem> {
        call!(self, it => it.resident(offset, len))
    }

    /// See [`Backing::moves_at`].
    pub(crate) fn moves_at(&self, size: u64) -> bool {
        call!(self, it => it.moves_at(size))
    }

    /// See [`Backing::physical_block`].
    pub(crate) fn physical_block(&self) -> u32 {
        call!(self, it => it.physical_block())
    }

    /// See [`Backing::size_unit`].
    pub(crate) fn size_unit(&self) -> u32 {
        call!(self, it => it.size_unit())
    }

    /// See [`Backing::zeroes_fast`].
    pub(crate) fn zeroes_fast(&self, keep_allocated: bool) -> bool {
        call!(self, it => it.zeroes_fast(keep_allocated))
    }

    /// See [`Backing::failure`].
    pub(crate) fn failure(&self) -> Option<String> {
        call!(self, it => it.failure())
    }

    /// See [`Backing::no_space`].
    pub(crate) fn no_space(&self) -> Option<String> {
        call!(self, it => it.no_space())
    }

    /// See [`Backing::unreachable`].
    pub(crate) fn unreachable(&self) -> Option<String> {
        call!(self, it => it.unreachable())
    }

    /// See [`Backing::bounced`].
    pub(crate) fn bounced(&self) -> u64 {
        call!(self, it => it.bounced())
    }

    /// See [`Backing::watched`].
    pub(crate) fn watched(&self) -> Option<&Arc<Watched>> {
        call!(self, it => it.watched())
    }

    /// See [`Backing::identity`].
    pub(crate) fn identity(&self) -> Option<(bool, u64, u64)> {
        call!(self, it => it.identity())
    }

    /// See [`Backing::activation`].
    pub(crate) fn activation(&self) -> Option<&Arc<Activation>> {
        call!(self, it => it.activation())
    }

    /// See [`Backing::deactivate`].
    pub(crate) fn deactivate(&mut self) {
        call!(self, it => it.deactivate());
    }

    /// See [`Backing::activate`].
    pub(crate) fn activate(&mut self, found: Option<Found>) {
        call!(self, it => it.activate(found));
    }

    /// See [`Backing::first_address`].
    pub(crate) fn first_address(&self) -> Option<u64> {
        call!(self, it => it.first_address())
    }

    /// See [`Backing::resize_work`].
    ///
    /// # Errors
    /// Says in an operator's words why the size cannot change.
    pub(crate) fn resize_work(&self, size: u64) -> Result<ResizeWork, String> {
        call!(self, it => it.resize_work(size))
    }

    /// See [`Backing::expect_size`].
    pub(crate) fn expect_size(&mut self, size: u64) {
        call!(self, it => it.expect_size(size));
    }

    /// See [`Backing::resize`].
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(crate) fn resize(&mut self, size: u64) -> io::Result<()> {
        call!(self, it => it.resize(size))
    }
}
