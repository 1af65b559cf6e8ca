//! Interface between a frontend, which is one connection of a protocol, and its event loop.
//!
//! ```text
//!    transport             frontend                            event loop
//!   (socket, ring) --> poll: next request -------------> place, payload memory, engine
//!                  <-- complete: it is answered <-------- outcome, data where they belong
//!                      room: may another one be answered?
//! ```
//!
//! A [`Frontend`] works with what its [`Port`] lends it and knows neither engine nor VMs nor disks,
//! so that any thread with a ring and a request table can serve a connection: one loop for each
//! device today, several loops that share a device's connections later. Payloads are in buffers of
//! the loop's pool (NBD) or in memory of the connection itself, such as a guest's
//! ([`PayloadMemory`]).
//!
//! Calls are dispatched by an enumeration ([`AnyFrontend`](super::Transport)), never by a pointer.

use tidegate_core::engine::PayloadMemory;
use tidegate_core::time::Nanos;

use super::Failure;
pub(crate) use super::request::{Answer, ConnectionRef, Incoming, Kind, Word};
use super::request_table::Requests;
use crate::buffer::Pool;
use crate::ring::{Completion, Pause, Ring};

/// Number of requests that one connection may submit in a turn, before the next connection is
/// served.
const REQUESTS_A_TURN: u32 = 64;
/// Bytes of payload that may be copied for one connection in a turn.
const BYTES_A_TURN: usize = 256 << 10;

/// Number of buffers in a request's description whose reading takes about as long as one more
/// request. Requests of ordinary drivers have fewer.
const PARTS_A_REQUEST: usize = 64;

/// Connection of a protocol that serves guests.
///
/// A protocol whose requests arrive whole implements the items without a default. The others are
/// for transports with system calls of their own, partial payloads or replies that take time.
pub(crate) trait Frontend {
    /// Identifier that the peer gave a request, returned with the reply.
    type Token: Word;

    /// Memory that holds payloads.
    const MEMORY: PayloadMemory;

    /// Returns the next request or the reason why there is none. Puts guest memory of the request
    /// into [`Requests::offered`]. Called until it returns something other than a request.
    fn poll(&mut self, port: &mut Port<'_>, budget: &mut Budget) -> Polled<Self::Token>;

    /// Takes the finished request in `slot`; its outcome and data are in the request table.
    fn complete(&mut self, port: &mut Port<'_>, slot: u32) -> Completed;

    /// Returns true if one more request can be answered. If not, the transport reports free room by
    /// [`Progress::sent`].
    fn room(&mut self, port: &mut Port<'_>) -> bool;

    /// Handles the completion of an operation that was submitted with [`Port::token`].
    fn handle(&mut self, port: &mut Port<'_>, event: u8, completion: Completion) -> Progress;

    /// Shuts the transport down: operations in flight end soon, nothing more is sent.
    fn shut_down(&mut self, port: &mut Port<'_>);

    /// Lets the client know that the connection has ended, and changes nothing else. For a loop
    /// that is lost: its state may be half changed, and its memory is kept.
    fn hang_up(&self, ring: &Ring);

    /// Returns the connection's buffers and files; called once it [is at
    /// rest](Frontend::is_at_rest). Passes the slots that it still has to [`Requests::end`].
    fn close(self, port: &mut Port<'_>);

    /// Receives the payload of the write in `slot`, whose end [`Polled::Arrived`] reports. Called
    /// for each write of a connection whose payloads are in the loop's buffers.
    fn await_payload(&mut self, _port: &mut Port<'_>, _slot: u32) {}

    /// Returns the loop time since which the next request has waited to be admitted; `None` if it
    /// has not.
    fn waits_since(&self) -> Option<Nanos> {
        None
    }

    /// Notes that the next request must wait to be admitted: the wait counts as latency from now
    /// on.
    fn stall(&mut self, _port: &mut Port<'_>) {}

    /// Sends completed replies. `alone` is true if no other request of this connection is under
    /// way. Returns true to request a call of [`Frontend::submitted`].
    fn flush(&mut self, _port: &mut Port<'_>, _alone: bool) -> bool {
        false
    }

    /// Handles that the kernel has taken all submissions and that failures among them were
    /// reported.
    fn submitted(&mut self, _port: &mut Port<'_>) -> Progress {
        Progress::default()
    }

    /// Makes the transport report further requests; does nothing if it will report them anyway.
    fn receive(&mut self, _port: &mut Port<'_>) {}

    /// Sets the longest time that the transport may pause before it looks for further requests.
    fn bound_pause(&mut self, _longest: Pause) {}

    /// Returns true while an operation that brings further requests is with the kernel.
    fn is_receiving(&self) -> bool {
        false
    }

    /// Returns true if no reply waits to be sent.
    fn is_quiet(&self) -> bool {
        true
    }

    /// Returns true if no operation of this connection is with the kernel.
    fn is_at_rest(&self) -> bool {
        true
    }

    /// Returns a description of the peer's failure if it has made no progress for longer than
    /// `patience`.
    fn stuck(&self, _now: Nanos, _patience: Nanos) -> Option<&'static str> {
        None
    }

    /// Returns a description of the peer's delay if it is too slow while holding payload memory
    /// that other VMs wait for.
    fn overdue(&self, _now: Nanos, _requests: &Requests) -> Option<&'static str> {
        None
    }
}

/// Parts of the loop that a connection borrows for one call.
pub(crate) struct Port<'a> {
    /// The loop's ring.
    pub(crate) ring: &'a mut Ring,
    /// Request table of the loop, with the payloads.
    pub(crate) requests: &'a mut Requests,
    /// Buffers for headers and receives.
    pub(crate) plumbing: &'a mut Pool,
    /// Monotonic time, read once a turn of the loop.
    pub(crate) now: Nanos,
    /// Reference to the connection itself.
    pub(crate) connection_ref: ConnectionRef,
    /// True if the connection's next request waits for a request slot or payload memory.
    pub(crate) stalled: bool,
}

impl Port<'_> {
    /// Returns the token for an operation whose completion [`Frontend::handle`] gets with `event`,
    /// at most [`EVENT_MAX`].
    pub(crate) fn token(&self, event: u8) -> u64 {
        Event {
            connection_ref: self.connection_ref,
            event,
        }
        .encode()
    }
}

/// Largest event number; events have seven bits of a token.
pub(crate) const EVENT_MAX: u8 = 0x7f;
/// Event that is handled before all others of a turn and before [`Frontend::submitted`]: completion
/// of a send, or of an operation that failed.
pub(crate) const SENT: u8 = 0;

/// Completed operation of a connection, as encoded in its token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    /// Connection that submitted the operation.
    pub(crate) connection_ref: ConnectionRef,
    /// Number that the connection chose.
    pub(crate) event: u8,
}

/// Bit that marks tokens of connections, as opposed to those of backings and of the loop itself.
const IS_EVENT: u64 = 1 << 63;

impl Event {
    pub(crate) fn encode(self) -> u64 {
        assert!(self.event <= EVENT_MAX, "an event has seven bits");
        debug_assert!(
            self.connection_ref.generation <= ConnectionRef::GENERATIONS,
            "a generation reaches into the bits of the event"
        );
        let connection_ref =
            u64::from(self.connection_ref.generation) << 32 | u64::from(self.connection_ref.index);
        IS_EVENT | u64::from(self.event) << 56 | connection_ref
    }

    /// Returns the event that a token encodes; `None` if the token is not a connection's.
    pub(crate) fn decode(bits: u64) -> Option<Event> {
        let connection_ref = ConnectionRef {
            index: bits as u32,
            generation: (bits >> 32) as u32 & ConnectionRef::GENERATIONS,
        };
        (bits & IS_EVENT != 0).then_some(Event {
            connection_ref,
            event: (bits >> 56) as u8 & EVENT_MAX,
        })
    }
}

/// Work that a connection may still do in this turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    requests: u32,
    bytes: usize,
}

impl Budget {
    /// Returns the budget for one turn.
    pub(crate) fn of_a_turn() -> Budget {
        Budget {
            requests: REQUESTS_A_TURN,
            bytes: BYTES_A_TURN,
        }
    }

    /// Counts bytes that were copied.
    pub(crate) fn copy(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Returns false if the budget is used up, so that the next request waits for the next turn.
    #[inline]
    pub(crate) fn may_take_request(&self) -> bool {
        self.requests > 0 && self.bytes > 0
    }

    /// Counts a request.
    #[inline]
    pub(crate) fn take_request(&mut self) {
        debug_assert!(
            self.may_take_request(),
            "a request is taken beyond the turn's budget"
        );
        self.requests -= 1;
    }

    /// Counts the buffers that a request's description has, beside the request itself: a guest must
    /// not keep its neighbours waiting by long descriptions of short requests.
    #[inline]
    pub(crate) fn read_parts(&mut self, parts: usize) {
        let more = (parts / PARTS_A_REQUEST) as u32;
        self.requests = self.requests.saturating_sub(more);
    }
}

/// Result of [`Frontend::poll`].
#[derive(Debug)]
pub(crate) enum Polled<T> {
    /// Request; its payload follows if payloads are in the loop's buffers.
    Request(Incoming<T>),
    /// The payload of the write in this slot is complete.
    Arrived(u32),
    /// Request that is answered with a failure without being tried.
    Rejected {
        token: T,
        failure: Failure,
        message: &'static str,
    },
    /// Nothing has arrived; the transport reports when something has.
    Empty,
    /// The budget of the turn is used up.
    Later,
    /// No [room](Frontend::room) is left for one more reply.
    Full,
    /// The peer has disconnected in order: its requests are answered, and nothing more is read.
    Left,
    /// The peer broke a rule of the protocol; the text is for the log.
    Broken(String),
}

/// State of a request after [`Frontend::complete`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Completed {
    /// The peer has its reply.
    Now,
    /// The reply waits to be sent; the slot comes back by [`Requests::end`].
    Later,
}

/// Effects of a completed operation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Progress {
    /// True if replies were sent, so that there may be room for others.
    pub(crate) sent: bool,
    pub(crate) next: Next,
}

/// Next action that a connection needs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Next {
    #[default]
    Nothing,
    /// Poll the connection.
    Poll,
    /// Send and receive.
    Exchange,
    /// Answer what is outstanding and close: no more requests come. Holds the errno of the socket,
    /// if any.
    Closed(Option<i32>),
    /// Close: nothing can be sent. Holds the errno of the socket.
    Broken(i32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_its_word_and_is_told_from_others() {
        let connection_ref = ConnectionRef {
            index: u32::MAX,
            generation: ConnectionRef::GENERATIONS,
        };
        for event in [SENT, 1, EVENT_MAX] {
            let event = Event {
                connection_ref,
                event,
            };
            assert_eq!(Event::decode(event.encode()), Some(event));
        }
        assert_eq!(Event::decode(3 << 56 | 7), None);
    }

    #[test]
    fn a_budget_ends_with_its_requests_and_with_its_bytes() {
        let mut budget = Budget::of_a_turn();
        for _ in 0..REQUESTS_A_TURN {
            assert!(budget.may_take_request());
            budget.take_request();
        }
        assert!(!budget.may_take_request());
        let mut budget = Budget::of_a_turn();
        // A turn takes few requests with the longest chains that a virtqueue can have.
        let mut taken = 0;
        while budget.may_take_request() {
            budget.take_request();
            budget.read_parts(1024);
            taken += 1;
        }
        assert_eq!(taken, 4);
        let mut budget = Budget::of_a_turn();
        budget.read_parts(PARTS_A_REQUEST - 1);
        (1..REQUESTS_A_TURN).for_each(|_| budget.take_request());
        assert!(budget.may_take_request(), "short ones count once");
        let mut budget = Budget::of_a_turn();
        budget.copy(BYTES_A_TURN - 1);
        assert!(budget.may_take_request());
        budget.copy(BYTES_A_TURN);
        assert!(!budget.may_take_request());
    }
}
