//! A connection inside the loop.
//!
//! ```text
//!   Open --- DISC, or the daemon ends ------------> Leaving (answers what it has, reads no more)
//!     |                                                |
//!     +-- vanished, broken rule, stuck --> Gone <------+ nothing left to answer
//!                                           | its receive and send have ended
//!                                           v
//!                                          free
//! ```

use std::collections::VecDeque;

use tidegate_core::request::ClientId;
use tidegate_core::time::Nanos;
use tidegate_nbd::{ReplyStyle, Request, Session};

use super::slots::ClientRef;
use crate::buffer::{Buffer, Mem};
use crate::connections::{ConnectionPermit, DEVICE_CONNECTIONS_MAX};
use crate::ring::FileId;

/// Bytes of a receive buffer.
pub(super) const RECEIVE: usize = 16 << 10;
/// Bytes of the headers of one send.
pub(super) const HEADS: usize = 8 << 10;
/// Clients of one loop at most.
pub(super) const CLIENTS_MAX: usize = DEVICE_CONNECTIONS_MAX;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) generation: u32,
    pub(super) file: FileId,
    pub(super) session: Session,
    pub(super) style: ReplyStyle,
    pub(super) allocation_context: Option<u32>,
    /// Index into the loop's disks.
    pub(super) disk: usize,
    pub(super) engine: ClientId,
    /// For the log.
    pub(super) peer: String,
    pub(super) state: State,
    pub(super) rx: Rx,
    pub(super) tx: Tx,
    /// Requests with the engine or the surveyor.
    pub(super) outstanding: u32,
    /// In the ready queue.
    pub(super) ready: bool,
    /// In the list of those with something to send or to receive.
    pub(super) touched: bool,
    pub(super) stall: Option<Stall>,
    /// Permit for this connection among those of its VM, released on drop.
    pub(super) _permit: ConnectionPermit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Open,
    Leaving,
    Gone,
}

/// Why a client is not read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stall {
    /// The VM has no request slot or payload memory for the next request. With `first`, the client
    /// waits at the head of its VM's queue.
    Intake { first: bool },
    /// Too many replies wait to be sent.
    Unsent,
}

/// The receiving side.
#[derive(Debug)]
pub(super) struct Rx {
    pub(super) buffer: Buffer,
    /// What was received and not parsed.
    pub(super) start: usize,
    pub(super) end: usize,
    /// A receive is with the kernel.
    pub(super) receiving: bool,
    /// The last one left nothing in the socket.
    pub(super) drained: bool,
    /// A write whose payload is coming in, and how much of it is there.
    pub(super) payload: Option<(u32, usize)>,
    /// Loop time at which bytes of that payload were last received, and at which it began
    /// (`began`).
    pub(super) moved: Nanos,
    pub(super) began: Nanos,
    /// Parsed request that waits for a request slot or payload memory.
    pub(super) held: Option<Request>,
    /// Loop time from which the bytes in the buffer have waited for a slot or memory. Requests
    /// parsed from them have waited since then, which counts as latency.
    pub(super) since: Option<Nanos>,
    /// True while a poll for readability of the socket is with the kernel.
    pub(super) polling: bool,
    /// Loop time at which the first bytes of the next receive arrived, if that was while the client
    /// was stalled.
    pub(super) next_since: Option<Nanos>,
}

/// The sending side.
#[derive(Debug)]
pub(super) struct Tx {
    /// Answered requests that wait to be sent.
    pub(super) queue: VecDeque<u32>,
    /// Bytes of them, roughly.
    pub(super) bytes: u64,
    /// Those in the send that is with the kernel.
    pub(super) sending: Vec<u32>,
    /// What of that is still to be sent.
    pub(super) ranges: Vec<Mem>,
    pub(super) heads: Option<Buffer>,
    /// A receive is linked to the send, which reports only failure.
    pub(super) linked: bool,
    /// When the client last took something.
    pub(super) moved: Nanos,
    /// Loop time at which the current send began, and its size in bytes (`began_bytes`).
    pub(super) began: Nanos,
    pub(super) began_bytes: u64,
}

impl Rx {
    /// Prepares for a receive into the empty buffer, which the caller submits.
    pub(super) fn begin(&mut self) {
        (self.start, self.end, self.receiving) = (0, 0, true);
        if self.drained {
            // The socket was empty, so that bytes received from now on have not waited.
            self.since = None;
        } else if self.next_since.is_some() {
            self.since = self.next_since.take();
        }
    }
}

impl Client {
    pub(super) fn sending(&self) -> bool {
        !self.tx.sending.is_empty()
    }

    /// Nothing left to answer.
    pub(super) fn is_quiet(&self) -> bool {
        self.outstanding == 0 && self.tx.queue.is_empty() && !self.sending()
    }
}

/// All clients of a loop.
#[derive(Debug, Default)]
pub(super) struct Clients {
    clients: Vec<Option<Client>>,
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl Clients {
    /// Where the next client will be.
    pub(super) fn vacant(&mut self) -> Option<ClientRef> {
        if self.free.is_empty() {
            if self.clients.len() == CLIENTS_MAX {
                return None;
            }
            self.free.push(self.clients.len() as u32);
            self.clients.push(None);
            self.generations.push(0);
        }
        let index = *self.free.last()?;
        Some(ClientRef {
            index,
            generation: self.generations[index as usize],
        })
    }

    /// Puts a client where [`Clients::vacant`] said.
    pub(super) fn insert(&mut self, client: Client) {
        let index = self.free.pop().expect("vacant was asked");
        assert_eq!(client.generation, self.generations[index as usize]);
        self.clients[index as usize] = Some(client);
    }

    pub(super) fn remove(&mut self, index: u32) -> Client {
        let client = self.clients[index as usize]
            .take()
            .expect("the client is there");
        self.generations[index as usize] = (client.generation + 1) & 0xff_ffff;
        self.free.push(index);
        client
    }

    /// The client at a place, whoever it is.
    pub(super) fn get(&mut self, index: u32) -> Option<&mut Client> {
        self.clients.get_mut(index as usize)?.as_mut()
    }

    /// The client that is meant, if it is still there.
    pub(super) fn resolve(&mut self, r: ClientRef) -> Option<&mut Client> {
        self.get(r.index).filter(|c| c.generation == r.generation)
    }

    /// The places of all clients.
    pub(super) fn indices(&self) -> Vec<u32> {
        let taken = |(i, c): (usize, &Option<Client>)| c.as_ref().map(|_| i as u32);
        self.clients.iter().enumerate().filter_map(taken).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.clients.len() - self.free.len()
    }
}
