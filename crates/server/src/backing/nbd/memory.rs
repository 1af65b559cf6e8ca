//! Memory of a disk on a server, reserved when it is opened: the data of acknowledged changes, and
//! buffers of its connection.

use std::io;

use tidegate_nbd::REQUEST_LEN;
use tidegate_nbd::client::recovery::ZEROES_MAX;

use crate::backing::memory::Memory;
use crate::buffer::{Mem, PAGE};

/// Most requests that are sent together.
pub(super) const BATCH_MAX: usize = 64;
/// Room for received replies, in bytes.
const INBOX: usize = 16 << 10;
const ZEROES: usize = ZEROES_MAX as usize;
const HEADS: usize = (BATCH_MAX * REQUEST_LEN).next_multiple_of(PAGE);

/// Memory in parts: ring of logged data, zeroes, and for each connection heads of requests and an
/// inbox.
#[derive(Debug)]
pub(super) struct Buffers {
    memory: Memory,
    /// Length of the ring.
    unflushed: usize,
}

impl Buffers {
    /// Reserves a ring of `unflushed` bytes, and the buffers of `connections` connections.
    ///
    /// # Errors
    /// Fails if the address space or the system's commit limit is exhausted.
    pub(super) fn new(unflushed: u64, connections: usize) -> io::Result<Buffers> {
        let unflushed = usize::try_from(unflushed).map_err(io::Error::other)?;
        let memory = Memory::new(unflushed + ZEROES + connections * (HEADS + INBOX))?;
        Ok(Buffers { memory, unflushed })
    }

    /// Returns the `len` bytes of the ring at a position, in two ranges where it begins anew.
    pub(super) fn log(&self, at: u64, len: usize) -> impl Iterator<Item = Mem> {
        assert!(len <= self.unflushed, "more than the ring has");
        let at = (at % self.unflushed as u64) as usize;
        let first = len.min(self.unflushed - at);
        let both = [self.memory.mem(at, first), self.memory.mem(0, len - first)];
        both.into_iter().filter(|range| !range.is_empty())
    }

    /// Returns `len` zeroes, which are never written to.
    pub(super) fn zeroes(&self, len: usize) -> Mem {
        assert!(len <= ZEROES, "more zeroes than there are");
        self.memory.mem(self.unflushed, len)
    }

    /// Returns the room for the head of the n-th request in the batch of a connection.
    pub(super) fn head(&self, on: usize, n: usize) -> Mem {
        assert!(n < BATCH_MAX, "the batch is full");
        let heads = self.of_connection(on);
        self.memory.mem(heads + n * REQUEST_LEN, REQUEST_LEN)
    }

    /// Returns the room for received replies of a connection.
    pub(super) fn inbox(&self, on: usize) -> Mem {
        self.memory.mem(self.of_connection(on) + HEADS, INBOX)
    }

    fn of_connection(&self, on: usize) -> usize {
        self.unflushed + ZEROES + on * (HEADS + INBOX)
    }
}
