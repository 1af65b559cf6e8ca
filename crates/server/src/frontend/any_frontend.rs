//! Frontends as one enumeration, so that calls are dispatched by a `match` that can be inlined.

use std::io;

use tidegate_core::engine::PayloadMemory;
use tidegate_core::time::Nanos;

#[cfg(test)]
use super::guest_memory_queue;
use super::interface::{Budget, Completed, Frontend, Incoming, Polled, Port, Progress, Word};
use super::nbd;
use super::request_table::Requests;
use super::vhost_user;
use crate::ring::{Completion, Pause, Ring};

/// Connection on its way to a loop.
#[derive(Debug)]
pub enum Opening {
    /// NBD connection on a socket.
    Nbd(nbd::Opening),
    /// Device of a guest whose hypervisor has connected.
    VhostUser(vhost_user::Opening),
    /// Queue inside the process, for tests.
    #[cfg(test)]
    #[allow(private_interfaces)]
    Queue(guest_memory_queue::Opening),
}

/// Connection inside a loop, by protocol.
#[allow(
    clippy::large_enum_variant,
    reason = "calls go through no pointer, whichever protocol has the larger connection"
)]
#[derive(Debug)]
pub(crate) enum AnyFrontend {
    Nbd(nbd::Connection),
    VhostUser(vhost_user::Connection),
    #[cfg(test)]
    Queue(guest_memory_queue::Connection),
}

/// Calls a method of the frontend, whatever its protocol.
macro_rules! call {
    ($transport:expr, $frontend:ident => $call:expr) => {
        match $transport {
            AnyFrontend::Nbd($frontend) => $call,
            AnyFrontend::VhostUser($frontend) => $call,
            #[cfg(test)]
            AnyFrontend::Queue($frontend) => $call,
        }
    };
}

/// Maximum bytes of the loop's plumbing pool that a connection uses, over all protocols.
pub(crate) const PLUMBING: usize = nbd::Connection::PLUMBING;

impl From<nbd::Handed> for Opening {
    fn from(handed: nbd::Handed) -> Opening {
        Opening::Nbd(handed.reopen())
    }
}

impl From<vhost_user::Handed> for Opening {
    fn from(handed: vhost_user::Handed) -> Opening {
        Opening::VhostUser(handed.reopen())
    }
}

impl Opening {
    /// Returns the kind of memory that the connection's payloads use.
    pub(crate) fn memory(&self) -> PayloadMemory {
        match self {
            Opening::Nbd(_) => nbd::Connection::MEMORY,
            Opening::VhostUser(_) => vhost_user::Connection::MEMORY,
            #[cfg(test)]
            Opening::Queue(_) => guest_memory_queue::Connection::MEMORY,
        }
    }
}

impl AnyFrontend {
    /// Opens a connection in a loop.
    ///
    /// # Errors
    /// Fails if the ring's table of files is full.
    pub(crate) fn open(opening: Opening, port: &mut Port<'_>) -> io::Result<AnyFrontend> {
        match opening {
            Opening::Nbd(opening) => nbd::Connection::open(opening, port).map(AnyFrontend::Nbd),
            Opening::VhostUser(opening) => {
                vhost_user::Connection::open(opening, port).map(AnyFrontend::VhostUser)
            }
            #[cfg(test)]
            Opening::Queue(opening) => {
                guest_memory_queue::Connection::open(opening, port).map(AnyFrontend::Queue)
            }
        }
    }

    /// See [`Frontend::poll`].
    #[inline]
    pub(crate) fn poll(&mut self, port: &mut Port<'_>, budget: &mut Budget) -> Polled<u64> {
        call!(self, it => in_words(it.poll(port, budget)))
    }

    /// See [`Frontend::complete`].
    #[inline]
    pub(crate) fn complete(&mut self, port: &mut Port<'_>, slot: u32) -> Completed {
        call!(self, it => it.complete(port, slot))
    }

    /// See [`Frontend::room`].
    #[inline]
    pub(crate) fn room(&mut self, port: &mut Port<'_>) -> bool {
        call!(self, it => it.room(port))
    }

    /// See [`Frontend::handle`].
    #[inline]
    pub(crate) fn handle(
        &mut self,
        port: &mut Port<'_>,
        event: u8,
        completion: Completion,
    ) -> Progress {
        call!(self, it => it.handle(port, event, completion))
    }

    /// See [`Frontend::shut_down`].
    pub(crate) fn shut_down(&mut self, port: &mut Port<'_>) {
        call!(self, it => it.shut_down(port));
    }

    /// See [`Frontend::hang_up`].
    pub(crate) fn hang_up(&self, ring: &Ring) {
        call!(self, it => it.hang_up(ring));
    }

    /// See [`Frontend::close`].
    pub(crate) fn close(self, port: &mut Port<'_>) {
        call!(self, it => it.close(port));
    }

    /// See [`Frontend::await_payload`].
    #[inline]
    pub(crate) fn await_payload(&mut self, port: &mut Port<'_>, slot: u32) {
        call!(self, it => it.await_payload(port, slot));
    }

    /// See [`Frontend::waits_since`].
    #[inline]
    pub(crate) fn waits_since(&self) -> Option<Nanos> {
        call!(self, it => it.waits_since())
    }

    /// See [`Frontend::stall`].
    pub(crate) fn stall(&mut self, port: &mut Port<'_>) {
        call!(self, it => it.stall(port));
    }

    /// See [`Frontend::flush`].
    #[inline]
    pub(crate) fn flush(&mut self, port: &mut Port<'_>, alone: bool) -> bool {
        call!(self, it => it.flush(port, alone))
    }

    /// See [`Frontend::submitted`].
    #[inline]
    pub(crate) fn submitted(&mut self, port: &mut Port<'_>) -> Progress {
        call!(self, it => it.submitted(port))
    }

    /// See [`Frontend::receive`].
    #[inline]
    pub(crate) fn receive(&mut self, port: &mut Port<'_>) {
        call!(self, it => it.receive(port));
    }

    /// See [`Frontend::bound_pause`].
    pub(crate) fn bound_pause(&mut self, longest: Pause) {
        call!(self, it => it.bound_pause(longest));
    }

    /// See [`Frontend::is_receiving`].
    #[inline]
    pub(crate) fn is_receiving(&self) -> bool {
        call!(self, it => it.is_receiving())
    }

    /// See [`Frontend::is_quiet`].
    pub(crate) fn is_quiet(&self) -> bool {
        call!(self, it => it.is_quiet())
    }

    /// See [`Frontend::is_at_rest`].
    pub(crate) fn is_at_rest(&self) -> bool {
        call!(self, it => it.is_at_rest())
    }

    /// See [`Frontend::stuck`].
    pub(crate) fn stuck(&self, now: Nanos, patience: Nanos) -> Option<&'static str> {
        call!(self, it => it.stuck(now, patience))
    }

    /// See [`Frontend::overdue`].
    pub(crate) fn overdue(&self, now: Nanos, requests: &Requests) -> Option<&'static str> {
        call!(self, it => it.overdue(now, requests))
    }
}

/// Converts the token of a polled request to a word.
#[inline]
fn in_words<T: Word>(polled: Polled<T>) -> Polled<u64> {
    match polled {
        Polled::Request(request) => Polled::Request(Incoming::with_word(request)),
        Polled::Rejected {
            token,
            failure,
            message,
        } => Polled::Rejected {
            token: token.to_word(),
            failure,
            message,
        },
        Polled::Arrived(slot) => Polled::Arrived(slot),
        Polled::Empty => Polled::Empty,
        Polled::Later => Polled::Later,
        Polled::Full => Polled::Full,
        Polled::Left => Polled::Left,
        Polled::Broken(why) => Polled::Broken(why),
    }
}
