//! State of a connection inside the loop, independent of its protocol.
//!
//! ```text
//!   Open --- disconnects, or a drain begins --> Leaving (answers what it has, reads no more)
//!     |                                      |
//!     +-- vanished, broken rule, stuck       | nothing left to answer
//!           |                                v
//!           +-----------------------------> Gone --- its transport is at rest --> removed
//! ```

use tidegate_core::engine::PayloadMemory;
use tidegate_core::request::ClientId;

use crate::buffer::Mem;
use crate::connections::{ConnectionPermit, DEVICE_CONNECTIONS_MAX};
use crate::frontend::AnyFrontend;
use crate::frontend::interface::{ConnectionRef, Incoming};

/// Maximum number of connections of one loop.
pub(in crate::event_loop) const CONNECTIONS_MAX: usize = DEVICE_CONNECTIONS_MAX;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) generation: u32,
    pub(super) transport: AnyFrontend,
    /// Memory that holds payloads: the loop's, or the client's own.
    pub(super) memory: PayloadMemory,
    /// Index into the loop's disks.
    pub(super) disk: usize,
    pub(super) engine: ClientId,
    /// Address of the client, for log messages.
    pub(super) peer: String,
    pub(super) state: State,
    /// Requests that the engine, or a backing asked for extents, has yet to answer.
    pub(super) outstanding: u32,
    pub(super) stall: Option<Stall>,
    /// Request that waits for a request slot or payload memory.
    pub(super) held: Option<Incoming<u64>>,
    /// Guest memory of the request in `held`.
    pub(super) held_ranges: Vec<Mem>,
    /// Requests that the engine has given back, for the daemon that goes on with the connection.
    pub(super) withdrawn: Vec<Withdrawn>,
    /// Counts the connection against its VM's maximum until it is dropped.
    pub(super) permit: ConnectionPermit,
}

/// Request that was withdrawn from the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Withdrawn {
    pub(super) slot: u32,
    /// True if a part of it was with the device: all others of its lane have come after it.
    pub(super) is_partial: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Open,
    Leaving,
    Gone,
    /// Another daemon is to go on with it. With `has_left` the client has disconnected in order.
    HandingOver {
        has_left: bool,
    },
}

/// Reason why nothing is taken from a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stall {
    /// The VM has no request slot or payload memory for the next request. With `first`, the
    /// connection waits at the head of its VM's queue.
    Intake { first: bool },
    /// Too many replies wait to be sent.
    Unsent,
}

impl Connection {
    /// Returns true if nothing is left to answer.
    pub(super) fn is_quiet(&self) -> bool {
        self.outstanding == 0 && self.transport.is_quiet()
    }

    /// Returns true if no operation works on memory of this connection any more. Guest memory goes
    /// with the connection, so the connection stays until the device no longer uses it.
    pub(super) fn is_at_rest(&self) -> bool {
        let lends_memory = self.memory == PayloadMemory::Own && self.outstanding > 0;
        !lends_memory && self.transport.is_at_rest()
    }

    /// Returns true for a connection over TLS.
    pub(super) fn is_tunnelled(&self) -> bool {
        matches!(&self.transport, AnyFrontend::Nbd(connection) if connection.is_tunnelled())
    }

    /// Returns true if the connection waits for a request slot or payload memory.
    pub(super) fn waits_for_intake(&self) -> bool {
        matches!(self.stall, Some(Stall::Intake { .. }))
    }
}

/// Connections of a loop by index. A generation tells a connection from earlier ones with its
/// index.
#[derive(Debug, Default)]
pub(super) struct Connections {
    connections: Vec<Option<Connection>>,
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl Connections {
    /// Returns the reference that the next connection will have; `None` at the maximum.
    pub(super) fn vacant(&mut self) -> Option<ConnectionRef> {
        if self.free.is_empty() {
            if self.connections.len() == CONNECTIONS_MAX {
                return None;
            }
            self.free.push(self.connections.len() as u32);
            self.connections.push(None);
            self.generations.push(0);
        }
        // Only peeked at: a connection that is refused after this leaves no gap.
        let index = *self.free.last()?;
        Some(ConnectionRef {
            index,
            generation: self.generations[index as usize],
        })
    }

    /// Inserts a connection at the index that [`Connections::vacant`] returned last.
    pub(super) fn insert(&mut self, connection: Connection) {
        let index = self.free.pop().expect("vacant was asked");
        // Its completions would be taken for those of an earlier connection.
        assert_eq!(
            connection.generation, self.generations[index as usize],
            "a connection was opened for another place than `vacant` named last"
        );
        self.connections[index as usize] = Some(connection);
    }

    pub(super) fn remove(&mut self, index: u32) -> Connection {
        let connection = self.take_out(index);
        assert!(
            connection.state == State::Gone,
            "a connection is removed before it is closed"
        );
        connection
    }

    /// Removes a connection that is open for its client.
    pub(super) fn take_out(&mut self, index: u32) -> Connection {
        let connection = self.connections[index as usize]
            .take()
            .expect("the connection is there");
        // Its buffers go to other connections, into which the kernel would still write.
        assert!(
            connection.is_at_rest(),
            "a connection is removed while operations use its memory"
        );
        // Late completions of this connection no longer resolve.
        self.generations[index as usize] = (connection.generation + 1) & ConnectionRef::GENERATIONS;
        self.free.push(index);
        connection
    }

    /// Returns the connection at an index, whatever its generation.
    pub(super) fn get(&mut self, index: u32) -> Option<&mut Connection> {
        self.connections.get_mut(index as usize)?.as_mut()
    }

    /// Returns the connection that `r` refers to, if it still exists.
    pub(super) fn resolve(&mut self, r: ConnectionRef) -> Option<&mut Connection> {
        self.get(r.index).filter(|c| c.generation == r.generation)
    }

    /// Returns the indices of all connections, so that the caller can remove some on the way.
    pub(super) fn indices(&self) -> Vec<u32> {
        let taken = |(i, c): (usize, &Option<Connection>)| c.as_ref().map(|_| i as u32);
        self.connections
            .iter()
            .enumerate()
            .filter_map(taken)
            .collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.connections.len() - self.free.len()
    }
}
